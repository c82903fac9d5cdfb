# SPDX-License-Identifier: Apache-2.0
"""Keys of --hicache-storage-backend-extra-config that are ours. SGLang takes its own ones out before."""

from dataclasses import dataclass

from ..vllm import library_keys
from ..vllm.values import ConfigError, Values
from .pages import TRANSFER_TIMEOUT_MS

__all__ = ["Config", "ConfigError", "parse"]

_WHERE = "hicache-storage-backend-extra-config"
# SGLang's own, which it leaves in.
_OF_SGLANG = {
    "backend_name": "a name for SGLang's log and counters, as kvscout",
    "module_path": "kvscout.sglang",
    "class_name": "KVScoutStorage",
    "interface_v1": "required: 1",
}
_KEYS = {
    **_OF_SGLANG,
    **library_keys.MEANINGS,
    "transfer_timeout_ms": f"how long a load or store may wait for its first copy; default {TRANSFER_TIMEOUT_MS}",
    "namespace": "a name in front of the computed namespace: engines that differ in it share nothing",
    "start_timeout_ms": "how long the start waits for the server; default 10000",
}


@dataclass(frozen=True)
class Config:
    library: library_keys.Library
    namespace: str
    start_timeout_ms: int


def parse(given):
    values = Values(_WHERE, given, _KEYS)
    if not given.get("interface_v1"):
        raise ConfigError(f'kvscout: {_WHERE}: "interface_v1": 1 is missing. Without it SGLang copies page by page, which kvscout does not serve')
    return Config(
        library=library_keys.read(values),
        namespace=values.text("namespace", 128) or "",
        start_timeout_ms=values.number("start_timeout_ms", 10000, 1, 600_000),
    )
