# SPDX-License-Identifier: Apache-2.0
"""Refusals before vLLM loads the model.

vLLM makes a connector when the model is loaded. But it asks for the connector's class when it makes its configuration: whether
the class knows KV cache groups, and on a GPU whether it needs piecewise graphs. That is in the process that the user started,
before it starts others and before CUDA is initialised, and an exception there is an error of the configuration. So each
request for the class (kvscout/vllm/__init__.py) runs these checks first. vLLM does not pass the configuration; the frames
of the callers have it.

On a vLLM that kvscout does not know, nothing of it is looked at: it gets a class that is inert (stand_in.py).

With --disable-hybrid-kv-cache-manager and --enforce-eager together vLLM does not ask early. So the connector checks again.
"""

import os

from . import config, inert, refusals
from .internals import from_callers
from .plugin import NAME


def connector():
    """The class for vLLM, checked."""
    transfer = from_callers("kv_transfer_config", lambda value: getattr(value, "kv_connector", None) == NAME)
    reason = inert.of_version(inert.trusted(getattr(transfer, "kv_connector_extra_config", None)))
    if reason is not None:
        from .stand_in import connector

        return connector(reason)
    _check(transfer)
    from .connector import KVScoutConnector

    return KVScoutConnector


def _check(transfer):
    check_platform()
    vllm_config = from_callers("self", lambda value: type(value).__name__ == "VllmConfig")
    if vllm_config is not None:
        refusals.refuse(refusals.reason_of_config(vllm_config))
    if transfer is not None:
        parsed = _parse(transfer)
        _check_layout(parsed)
        if vllm_config is not None:
            parsed.library.settings(vllm_config.parallel_config)


def _parse(transfer):
    # The blocks are not known yet; chunk_tokens is a whole number of any.
    return config.parse(transfer.kv_connector_extra_config or {}, 1, transfer.is_kv_consumer, transfer.is_kv_producer)


def _check_layout(parsed):
    from vllm.platforms import current_platform

    asked_by_user = os.environ.get("VLLM_KV_CACHE_LAYOUT")
    refusals.refuse(refusals.reason_of_layout(parsed, current_platform, asked_by_user, _outer()))


def _outer():
    """The name of the connector whose configuration holds ours; None: there is none."""

    def name(value):
        return getattr(getattr(value, "kv_transfer_config", None), "kv_connector", None)

    for variable in ("self", "vllm_config"):
        found = from_callers(variable, lambda value: name(value) not in (None, NAME))
        if found is not None:
            return name(found)
    return None


def layout(vllm_config):
    """The name of the layout that the connector needs, or None. vLLM asks when the model is loaded and its KV has no memory yet. With
    one worker this process has the layers; with several it has none, and vLLM itself refuses kernels that split blocks."""
    if _parse(vllm_config.kv_transfer_config).kv_layout != "blocks":
        return None
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(vllm_config):
        refusals.refuse(refusals.reason_of_kernels(vllm_config))
    return refusals.BLOCK_LAYOUTS[0]


def check_platform():
    from vllm.platforms import current_platform

    refusals.refuse(refusals.reason_of_platform(current_platform, _cuda_problem))


def _cuda_problem():
    from .._kvscout import cuda_problem

    return cuda_problem()
