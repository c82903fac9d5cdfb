# SPDX-License-Identifier: Apache-2.0
"""What is refused when vLLM makes its configuration. No engine is started, and no model is loaded."""

from unittest import mock

import engine
from checks import need

OTHER = {
    "kv_connector": "ExampleConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"shared_storage_path": "/nonexistent"},
}


def _configure(model, extra, by_module=True, beside=None):
    from vllm.engine.arg_utils import EngineArgs

    transfer = engine._transfer_config(dict(extra), beside)
    if not by_module:
        transfer.kv_connector_module_path = None
    args = EngineArgs(model=model, dtype="float32", max_model_len=4096, skip_tokenizer_init=True, kv_transfer_config=transfer)
    return args.create_engine_config()


def _refused(sentence, *args, **more):
    try:
        _configure(*args, **more)
    except ValueError as error:
        need(sentence in str(error), f"vLLM refused the configuration with another sentence than {sentence!r}: {error}")
        return
    need(False, f"vLLM took a configuration that was to be refused with {sentence!r}")


def _platform(**answers):
    """vLLM's platform with other answers to those who ask from now on."""
    import vllm.platforms

    real = vllm.platforms.current_platform
    own = mock.Mock(wraps=real, **{f"{name}.return_value": answer for name, answer in answers.items()})
    own.device_name = "another"
    return mock.patch.object(vllm.platforms, "current_platform", own)


def a_wrong_key_is_refused(model):
    for extra, sentence in (
        ({"chunk_size": 1}, "kv_connector_extra_config has no key 'chunk_size'"),
        ({"copy_method": "fast"}, "copy_method='fast' is not allowed: it is one of auto, staged, batch, direct"),
    ):
        _refused(sentence, model, extra)
        _refused(sentence, model, extra, beside=[OTHER])
    _configure(model, {"copy_method": "staged"})
    _configure(model, {"copy_method": "staged"}, beside=[OTHER])


def by_its_name_it_is_checked_too(model):
    from kvscout.vllm import plugin

    plugin.register()
    _refused("has no key 'chunk_size'", model, {"chunk_size": 1}, by_module=False)
    _configure(model, {}, by_module=False)


def a_platform_that_is_not_served_is_refused(model):
    import torch
    from kvscout.vllm import start

    with _platform(is_cpu=False):
        _refused("vLLM runs on another platform here (another)", model, {})
    with _platform(is_cpu=False, is_cuda=True), mock.patch.object(start, "_cuda_problem", lambda: "there is no driver; install it"):
        _refused("cannot copy to and from this machine's GPUs: there is no driver; install it", model, {})
    with _platform(is_cpu=False, is_cuda=True), mock.patch.object(start, "_cuda_problem", lambda: None):
        _configure(model, {})
    need(not torch.cuda.is_initialized(), "CUDA is initialised")


CASES = (a_wrong_key_is_refused, by_its_name_it_is_checked_too, a_platform_that_is_not_served_is_refused)
