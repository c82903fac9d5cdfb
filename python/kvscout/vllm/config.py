# SPDX-License-Identifier: Apache-2.0
"""Keys of kv_connector_extra_config. Runs in every process of the engine, and gives the same answer in all of them."""

from dataclasses import dataclass

from .values import ConfigError, Values

__all__ = ["DEFAULT_CHUNK_TOKENS", "Config", "ConfigError", "notes", "parse", "round_up"]

DEFAULT_CHUNK_TOKENS = 128
# Longer than an answer takes on an idle machine, and 1 % of a step of 50 ms.
DEFAULT_STEP_WAIT_US = 500

_KEYS = {
    "endpoint": "address of the server; without it, or with auto, the host's server, which is started if there is none",
    "l1_bytes": "host memory of a server that this engine starts, such as 64Gi",
    "l2": "L2 store of a server that this engine starts: a URL or a list of URLs",
    "chunk_tokens": f"tokens in a chunk, rounded up to whole blocks; default {DEFAULT_CHUNK_TOKENS}",
    "namespace": "a name in front of the computed namespace: engines that differ in it share nothing",
    "weights_version": "number of the weights at the start, 1 or greater; each reset adds 1, and engines with the same number share their KV",
    "load": "async (default): a request waits for its KV while others run; sync: the step waits",
    "store": "all (default): prompts and answers; prompt: prompts only; off",
    "step_wait_us": "how long a step may wait for answers to the lookups that it is the first to ask for, all of them "
    f"together; 0: not at all; default {DEFAULT_STEP_WAIT_US}",
    "load_failure": "recompute (default) or fail: what happens to a request whose KV could not be loaded",
}
_WHERE = "kv_connector_extra_config"


@dataclass(frozen=True)
class Config:
    endpoint: str | None
    l1_bytes: int | None
    l2: tuple[str, ...]
    chunk_tokens: int  # a multiple of block_tokens
    block_tokens: int
    namespace: str
    weights_version: int
    load_async: bool
    step_wait_us: int
    store: str
    load_failure: str
    may_read: bool
    may_write: bool

    @property
    def starts_server(self):
        return self.endpoint is None or self.endpoint.split(":")[0] == "auto"


def _store(values):
    value = values.given.get("store", "all")
    if isinstance(value, bool):
        return "all" if value else "off"
    return values.word("store", ("all", "prompt", "off"))


def round_up(chunk_tokens, block_tokens):
    return -(-chunk_tokens // block_tokens) * block_tokens


def parse(extra, block_tokens, is_consumer=True, is_producer=True):
    """The configuration. @extra is kv_connector_extra_config, @block_tokens the scheduler's block (whole blocks of all
    groups); the rest is what kv_role means."""
    values = Values(_WHERE, extra, _KEYS)
    chunk = values.number("chunk_tokens", DEFAULT_CHUNK_TOKENS, 1, 1 << 20)
    endpoint, l1_bytes, l2 = values.server()
    return Config(
        endpoint=endpoint,
        l1_bytes=l1_bytes,
        l2=l2,
        chunk_tokens=round_up(chunk, block_tokens),
        block_tokens=block_tokens,
        namespace=values.text("namespace", 128) or "",
        weights_version=values.number("weights_version", 0, 0, 1 << 63),
        load_async=values.word("load", ("async", "sync")) == "async",
        step_wait_us=values.number("step_wait_us", DEFAULT_STEP_WAIT_US, 0, 1_000_000),
        store=_store(values) if is_producer else "off",
        load_failure=values.word("load_failure", ("recompute", "fail")),
        may_read=is_consumer,
        may_write=is_producer and _store(values) != "off",
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
