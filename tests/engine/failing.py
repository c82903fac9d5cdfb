# SPDX-License-Identifier: Apache-2.0
"""A connector whose loads fail when a test says so: vLLM's ExampleConnector, which loads in the step that computes. vLLM
imports this file in the scheduler's process and in each worker."""

import os

import torch

from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

MARK = "loads-fail"  # a file of this name among its others makes loads fail


class FailingConnector(ExampleConnector):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self._bad = set()

    def start_load_kv(self, forward_context, **more):
        if not os.path.exists(os.path.join(self._storage_path, MARK)):
            super().start_load_kv(forward_context, **more)
            return
        for request in self._get_connector_metadata().requests:
            if not request.is_store:
                self._spoil(forward_context, request)

    def _spoil(self, forward_context, request):
        """What a load leaves that broke off: its blocks hold something else."""
        blocks = torch.unique(request.slot_mapping // self._block_size)
        for layer in forward_context.no_compile_layers.values():
            if getattr(layer, "kv_cache", None) is not None:
                layer.kv_cache[blocks] = 0.5
        self._bad.update(blocks.tolist())

    def get_block_ids_with_load_errors(self):
        bad, self._bad = self._bad, set()
        return bad
