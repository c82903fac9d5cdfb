# SPDX-License-Identifier: Apache-2.0
"""A worker extension of vLLM. Workers import this file before they load the model. vLLM's CPU build then packs no weights, so what is in
memory can be read there, as on a GPU; and vLLM's own calls for an update take their weights from a folder.

With KVSCOUT_TEST_SWITCH=LINK:FOLDER in the environment weights are packed, and behind the loader the link leads to another folder, as when
a new release comes while an engine starts."""

import os

from safetensors.torch import load_file
from vllm import _custom_ops
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

_load = DefaultModelLoader.load_weights


def _load_and_switch(self, *args, **more):
    found = _load(self, *args, **more)
    link, folder = os.environ["KVSCOUT_TEST_SWITCH"].split(":")
    os.symlink(folder, link + ".new")
    os.replace(link + ".new", link)
    return found


if "KVSCOUT_TEST_SWITCH" in os.environ:
    DefaultModelLoader.load_weights = _load_and_switch
else:
    _custom_ops._supports_onednn = False


def weights_of(folder):
    return load_file(os.path.join(folder, "model.safetensors")).items()


class Extension:
    def write_weights(self, folder):
        self.model_runner.model.load_weights(weights_of(folder))


class _FromFolder(WeightTransferEngine):
    init_info_cls = update_info_cls = dict

    def init_transfer_engine(self, init_info):
        pass

    def start_weight_update(self):
        pass

    def finish_weight_update(self):
        pass

    def receive_weights(self, update_info):
        self.model.load_weights(weights_of(update_info["folder"]))

    def update_weights(self, update_info):
        self.receive_weights(update_info)

    def shutdown(self):
        pass


WeightTransferEngineFactory.register_engine("folder", _FromFolder)
