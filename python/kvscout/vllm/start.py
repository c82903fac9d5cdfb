# SPDX-License-Identifier: Apache-2.0
"""Refusals before vLLM loads the model.

vLLM makes a connector when the model is loaded. But it asks for the connector's class when it makes its configuration: whether
the class knows KV cache groups, and on a GPU whether it needs piecewise graphs. That is in the process that the user started,
before it starts others and before CUDA is initialised, and an exception there is an error of the configuration. So each
request for the class (kvscout/vllm/__init__.py) runs these checks first. vLLM does not pass the configuration; the frames
of the callers have it.

With --disable-hybrid-kv-cache-manager and --enforce-eager together vLLM does not ask early. So the connector checks again.
"""

from . import config, refusals, server
from .identity import from_callers
from .plugin import NAME


def check():
    check_platform()
    transfer = from_callers("kv_transfer_config", lambda value: getattr(value, "kv_connector", None) == NAME)
    vllm_config = from_callers("self", lambda value: type(value).__name__ == "VllmConfig")
    if vllm_config is not None:
        refusals.refuse(refusals.reason_of_config(vllm_config))
    if transfer is not None:
        # The blocks are not known yet; chunk_tokens is a whole number of any.
        parsed = config.parse(transfer.kv_connector_extra_config or {}, 1, transfer.is_kv_consumer, transfer.is_kv_producer)
        if vllm_config is not None:
            server.settings(parsed, vllm_config.parallel_config)


def check_platform():
    from vllm.platforms import current_platform

    refusals.refuse(refusals.reason_of_platform(current_platform, _cuda_problem))


def _cuda_problem():
    from .._kvscout import cuda_problem

    return cuda_problem()
