# SPDX-License-Identifier: Apache-2.0
"""Keys of kv_connector_extra_config. Runs in every process of the engine, and gives the same answer in all of them."""

import re
from dataclasses import dataclass

from . import inert, library_keys, verify
from .values import ConfigError, Values

__all__ = ["DEFAULT_CHUNK_TOKENS", "Config", "ConfigError", "notes", "parse", "round_up"]

DEFAULT_CHUNK_TOKENS = 128
# Longer than an answer takes on an idle machine, and 1 % of a step of 50 ms.
DEFAULT_STEP_WAIT_US = 500

_KEYS = {
    **library_keys.MEANINGS,
    "chunk_tokens": f"tokens in a chunk, rounded up to whole blocks; default {DEFAULT_CHUNK_TOKENS}",
    "namespace": "a name in front of the computed namespace: engines that differ in it share nothing",
    "weights_version": "number of resets at the start, 1 or greater; each reset adds 1, and engines with another number share nothing",
    "load": "async (default): a request waits for its KV while others run; sync: the step waits",
    "store": "all (default): prompts and answers; prompt: prompts only; off",
    "kv_layout": "engine (default) or blocks: ask vLLM for a layout in which all layers of a block are one piece of memory; "
    "for NVIDIA GPUs",
    "step_wait_us": "how long a step may wait for answers to the lookups that it is the first to ask for, all of them "
    f"together; 0: not at all; default {DEFAULT_STEP_WAIT_US}",
    "load_failure": "recompute (default) or fail: what happens to a request whose KV could not be loaded",
    "copy_method": "how workers copy between GPU and pool: auto (default), staged or batch",
    "stage_bytes": "GPU memory that each worker takes for copies in each direction, such as 128Mi (default)",
    "numa_node": "NUMA node of the pool's memory that the workers use: auto (default), none or a number",
    "cpus": "CPUs of the threads that each worker starts for copies: auto (default), inherit or a list such as 0-3,8",
    **inert.MEANINGS,
    **verify.MEANINGS,
}
_WHERE = "kv_connector_extra_config"
# As in libworker/worker_config.c. A worker would refuse other values, too, but only when the model is loaded.
_COPY_METHODS = ("auto", "staged", "batch")
_STAGE_BYTES = (512 << 10, 16 << 30)
_NUMA_NODES = _CPUS = 1024


@dataclass(frozen=True)
class Config:
    library: library_keys.Library
    chunk_tokens: int  # a multiple of block_tokens
    block_tokens: int
    namespace: str
    weights_version: int
    load_async: bool
    kv_layout: str
    step_wait_us: int
    store: str
    load_failure: str
    may_read: bool
    may_write: bool
    copy_keys: dict  # keys of kvscout's Worker for its copies that the user gave
    trusts: frozenset[str]  # of inert.py
    verify_sample: float
    mismatches_make_inert: bool


def _store(values):
    value = values.given.get("store", "all")
    if isinstance(value, bool):
        return "all" if value else "off"
    return values.word("store", ("all", "prompt", "off"))


def _is_numa_node(text):
    return text in ("auto", "none") or bool(re.fullmatch("[0-9]{1,4}", text)) and int(text) < _NUMA_NODES


def _is_cpus(text):
    """Whether the library reads it as CPUs: numbers and ranges, without blanks."""
    if text in ("auto", "inherit"):
        return True
    if len(text) > 1024 or not re.fullmatch("[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", text):
        return False
    ranges = [[int(cpu) for cpu in part.split("-")] for part in text.split(",")]
    return all(found[0] <= found[-1] < _CPUS for found in ranges)


def _copy_keys(values):
    """What the user says about copies, by the keys that kvscout's Worker has for it. What is not given is the library's
    own default."""
    found = {
        "copy_method": values.word("copy_method", _COPY_METHODS),
        "stage_bytes": values.number("stage_bytes", 128 << 20, *_STAGE_BYTES),
        "numa_node": values.checked("numa_node", "auto", _is_numa_node, f"it is auto, none or a number from 0 to {_NUMA_NODES - 1}"),
        "cpus": values.checked("cpus", "auto", _is_cpus, f"it is auto, inherit or a list of CPUs below {_CPUS}, such as 0-3,8"),
    }
    return {key: value for key, value in found.items() if key in values.given}


def round_up(chunk_tokens, block_tokens):
    return -(-chunk_tokens // block_tokens) * block_tokens


def parse(extra, block_tokens, is_consumer=True, is_producer=True):
    """The configuration. @extra is kv_connector_extra_config, @block_tokens the scheduler's block (whole blocks of all
    groups); the rest is what kv_role means."""
    values = Values(_WHERE, extra, _KEYS)
    chunk = values.number("chunk_tokens", DEFAULT_CHUNK_TOKENS, 1, 1 << 20)
    sample, makes_inert = verify.read(values)
    return Config(
        library=library_keys.read(values),
        chunk_tokens=round_up(chunk, block_tokens),
        block_tokens=block_tokens,
        namespace=values.text("namespace", 128) or "",
        weights_version=values.number("weights_version", 0, 0, 1 << 63),
        load_async=values.word("load", ("async", "sync")) == "async",
        kv_layout=values.word("kv_layout", ("engine", "blocks")),
        step_wait_us=values.number("step_wait_us", DEFAULT_STEP_WAIT_US, 0, 1_000_000),
        store=_store(values) if is_producer else "off",
        load_failure=values.word("load_failure", ("recompute", "fail")),
        may_read=is_consumer,
        may_write=is_producer and _store(values) != "off",
        copy_keys=_copy_keys(values),
        trusts=inert.read(values),
        verify_sample=sample,
        mismatches_make_inert=makes_inert,
    )


def notes(extra, config, data_parallel_size=1):
    """Sentences for the log: what the configuration makes of what the user wrote."""
    asked = Values(_WHERE, extra, _KEYS).number("chunk_tokens", DEFAULT_CHUNK_TOKENS, 1, 1 << 20)
    if asked != config.chunk_tokens and "chunk_tokens" in extra:
        yield (
            f"chunk_tokens={asked} is rounded up to {config.chunk_tokens}, because a chunk is a whole number of this "
            "engine's blocks "
            f"of {config.block_tokens} tokens"
        )
    if data_parallel_size > 1 and not config.weights_version:
        yield (
            f"data_parallel_size={data_parallel_size} without a weights_version: a reset (reset_prefix_cache with "
            "reset_external=true) shuts all of these engines but one out of the cache until their next reset. Give "
            "weights_version in kv_connector_extra_config, the same number to all"
        )
    if config.library.is_open:
        yield library_keys.OPEN
