# SPDX-License-Identifier: Apache-2.0
"""A worker extension of vLLM: a step computes nothing and sleeps for KVSCOUT_TEST_STEP_MS, as a CPU does while a GPU computes. Everything
around the model is vLLM's, and so is what connectors copy."""

import os
import time

import torch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

_STEP_S = float(os.environ["KVSCOUT_TEST_STEP_MS"]) / 1000


def _forward(self, input_ids=None, positions=None, *args, **more):
    time.sleep(_STEP_S)
    return torch.zeros(len(positions), self.model_config.get_hidden_size())


GPUModelRunner._model_forward = _forward


class Extension:
    pass
