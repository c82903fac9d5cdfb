# SPDX-License-Identifier: Apache-2.0
"""Keys of kv_connector_extra_config. Runs in every process of the engine, and gives the same answer in all of them."""

import re
from dataclasses import dataclass

DEFAULT_CHUNK_TOKENS = 128

_KEYS = {
    "endpoint": "address of the server; without it, or with auto, the host's server, which is started if there is none",
    "l1_bytes": "host memory of a server that this engine starts, such as 64Gi",
    "l2": "L2 store of a server that this engine starts: a URL or a list of URLs",
    "chunk_tokens": f"tokens in a chunk, rounded up to whole blocks; default {DEFAULT_CHUNK_TOKENS}",
    "namespace": "a name in front of the computed namespace: engines that differ in it share nothing",
    "weights_version": "number of the weights, 1 or greater; engines with the same number may join a cleared cache",
    "load": "async (default): a request waits for its KV while others run; sync: the step waits",
    "store": "all (default): prompts and answers; prompt: prompts only; off",
    "load_failure": "recompute (default) or fail: what happens to a request whose KV could not be loaded",
}
_SUFFIX = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}


class ConfigError(ValueError):
    """A key of kv_connector_extra_config is wrong. The text says what is allowed."""


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
    store: str
    load_failure: str
    may_read: bool
    may_write: bool

    @property
    def starts_server(self):
        return self.endpoint is None or self.endpoint.split(":")[0] == "auto"

    @property
    def stride(self):
        """Blocks in a chunk: every stride-th block hash is a chunk's."""
        return self.chunk_tokens // self.block_tokens


def _bad(key, value, allowed):
    return ConfigError(f"kvscout: kv_connector_extra_config: {key}={value!r} is not allowed: {allowed}")


def _word(extra, key, words):
    value = extra.get(key, words[0])
    if value not in words:
        raise _bad(key, value, "it is one of " + ", ".join(words))
    return value


def _number(extra, key, default, low, high):
    value = extra.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _bad(key, value, f"it is a whole number from {low} to {high}")
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?i?)b?\s*", str(value).lower())
    if match is None or match[2] == "i":
        raise _bad(key, value, f"it is a whole number from {low} to {high}, which may have a suffix such as Mi or Gi")
    number = int(match[1]) * _SUFFIX[match[2]]
    if not low <= number <= high:
        raise _bad(key, value, f"it is a whole number from {low} to {high}")
    return number


def _text(extra, key):
    value = extra.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value.encode()) > 4096 or "\0" in value:
        raise _bad(key, value, "it is a text of 1 to 4096 bytes")
    return value


def _urls(extra):
    value = extra.get("l2", ())
    urls = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else None
    if urls is None or not all(isinstance(url, str) and url and url.split() == [url] for url in urls):
        raise _bad("l2", value, "it is a URL without blanks, as fs:///path or redis://host:port, or a list of them")
    return urls


def _store(extra):
    value = extra.get("store", "all")
    if isinstance(value, bool):
        return "all" if value else "off"
    return _word(extra, "store", ("all", "prompt", "off"))


def round_up(chunk_tokens, block_tokens):
    return -(-chunk_tokens // block_tokens) * block_tokens


def parse(extra, block_tokens, is_consumer=True, is_producer=True):
    """The configuration. @extra is kv_connector_extra_config, @block_tokens the scheduler's block; the rest is what kv_role means."""
    unknown = sorted(set(extra) - set(_KEYS))
    if unknown:
        known = "; ".join(f"{key}: {meaning}" for key, meaning in _KEYS.items())
        raise ConfigError(f"kvscout: kv_connector_extra_config has no key {unknown[0]!r}. There are: {known}")
    namespace = _text(extra, "namespace") or ""
    if len(namespace.encode()) > 128:
        raise _bad("namespace", namespace, "it is a text of 1 to 128 bytes")
    chunk = _number(extra, "chunk_tokens", DEFAULT_CHUNK_TOKENS, 1, 1 << 20)
    endpoint = _text(extra, "endpoint")
    if endpoint is not None and endpoint.split(":")[0] != "auto" and ("l1_bytes" in extra or "l2" in extra):
        raise ConfigError(
            "kvscout: kv_connector_extra_config: l1_bytes and l2 configure a server that this engine starts; with an endpoint there "
            "is a server already. Leave them out, and give them to that server"
        )
    return Config(
        endpoint=endpoint,
        l1_bytes=_number(extra, "l1_bytes", 0, 1, 1 << 50) if "l1_bytes" in extra else None,
        l2=_urls(extra),
        chunk_tokens=round_up(chunk, block_tokens),
        block_tokens=block_tokens,
        namespace=namespace,
        weights_version=_number(extra, "weights_version", 0, 0, (1 << 64) - 1),
        load_async=_word(extra, "load", ("async", "sync")) == "async",
        store=_store(extra) if is_producer else "off",
        load_failure=_word(extra, "load_failure", ("recompute", "fail")),
        may_read=is_consumer,
        may_write=is_producer and _store(extra) != "off",
    )


def notes(extra, config):
    """Sentences for the log: what the configuration makes of what the user wrote."""
    asked = _number(extra, "chunk_tokens", DEFAULT_CHUNK_TOKENS, 1, 1 << 20)
    if asked != config.chunk_tokens and "chunk_tokens" in extra:
        yield (
            f"chunk_tokens={asked} is rounded up to {config.chunk_tokens}, because a chunk is a whole number of this engine's blocks "
            f"of {config.block_tokens} tokens"
        )
