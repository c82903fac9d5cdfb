# SPDX-License-Identifier: Apache-2.0
# Types of the extension. What each thing does is in its docstring; a test compares this file with the extension.

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, Unpack, final

from .config import ClientConfig, ServerConfig, WorkerConfig

__version__: str
GENERATION_NEWEST: int
KEY_MISS: int
FEED_CLEARED: int
FEED_CAUGHT_UP: int
FEED_DROPPED: int
FEED_L1: int
FEED_L2: int
FEED_REMOVED: int
FEED_START_OVER: int
FEED_STORED: int
KEY_HIT: int
KEY_RETRY: int

_Setting = str | int | bool | SupportsIndex | os.PathLike[str] | list[str] | tuple[str, ...] | None

# collections.abc.Buffer, which Python has from 3.12 on; older type checkers use this class instead.
class _Buffer(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...

_Hashes = Sequence[bytes] | bytes | bytearray | memoryview | _Buffer

class KVScoutError(Exception):
    code: int
    name: str
    scope: str
    retriable: bool

class ArgumentError(KVScoutError, ValueError): ...
class ConfigError(ArgumentError): ...
class BusyError(KVScoutError): ...
class ClosedError(KVScoutError): ...
class StateError(KVScoutError): ...
class ServerError(KVScoutError): ...

def ensure_server(
    *, endpoint: str = "auto", timeout_ms: int = 5000, server_program: str | os.PathLike[str] | None = None, **server_keys: Unpack[ServerConfig]
) -> str: ...
def _log_pop() -> tuple[int, float, int, str] | None: ...
def _log_wait() -> bool: ...
def _log_stop() -> None: ...
def _close_all() -> None: ...
def cuda_problem() -> str | None: ...
def check_keys(kind: Literal["Client", "Worker", "Server"], /, **keys: _Setting) -> None: ...
def error_of(code: int, text: str = ..., /) -> KVScoutError: ...
def error_name(code: int, /) -> str: ...
def hash_blocks(
    token_ids: Sequence[int] | memoryview | _Buffer,
    block_tokens: SupportsIndex,
    *,
    dialect: str = "vllm-0.31",
    seed: str | None = None,
    lora: str | tuple[str, str] | None = None,
    mm: Sequence[tuple[str, int, int]] = (),
    salt: str | None = None,
    prompt_embeds: Sequence[bytes] = (),
    parent: bytes | None = None,
    first_block: SupportsIndex = 0,
) -> list[bytes]: ...

@final
class Hit:
    def __new__(
        cls,
        tokens: int = 0,
        *,
        ticket: int = 0,
        chunks: int = 0,
        l1_chunks: int = 0,
        l2_chunks: int = 0,
        reason: str | None = None,
        error: int = 0,
        endpoint: int = -1,
    ) -> Hit: ...
    @property
    def tokens(self) -> int: ...
    @property
    def ticket(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def l1_chunks(self) -> int: ...
    @property
    def l2_chunks(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def error(self) -> int: ...
    @property
    def endpoint(self) -> int: ...

@final
class Keys:
    @property
    def states(self) -> bytes: ...
    @property
    def ticket(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def l2_hits(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def error(self) -> int: ...
    @property
    def endpoint(self) -> int: ...

@final
class Step:
    def __enter__(self) -> Client: ...
    def __exit__(self, *args: object) -> Literal[False]: ...

@final
class Client:
    def __new__(cls, **config: Unpack[ClientConfig]) -> Client: ...
    def __enter__(self) -> Client: ...
    def __exit__(self, *args: object) -> None: ...
    @property
    def closed(self) -> bool: ...
    def try_lookup(
        self,
        id: str,
        hashes: _Hashes,
        prompt_tokens: SupportsIndex,
        computed_tokens: SupportsIndex = 0,
        tenant: str | None = None,
        expect_tokens: SupportsIndex = 0,
        stride: SupportsIndex = 1,
        *,
        timeout_ms: SupportsIndex = 0,
        want_lengths: SupportsIndex = 0,
        from_token: SupportsIndex = 0,
    ) -> Hit | None: ...
    def poll(self, id: str, computed_tokens: SupportsIndex = 0) -> Hit | None: ...
    def wait_lookup(
        self,
        id: str,
        hashes: _Hashes,
        prompt_tokens: SupportsIndex,
        computed_tokens: SupportsIndex = 0,
        tenant: str | None = None,
        expect_tokens: SupportsIndex = 0,
        stride: SupportsIndex = 1,
        *,
        timeout_ms: SupportsIndex = 0,
        want_lengths: SupportsIndex = 0,
        from_token: SupportsIndex = 0,
    ) -> Hit: ...
    def lookup(
        self,
        id: str,
        hashes: _Hashes,
        prompt_tokens: SupportsIndex,
        computed_tokens: SupportsIndex = 0,
        tenant: str | None = None,
        expect_tokens: SupportsIndex = 0,
        stride: SupportsIndex = 1,
        *,
        timeout_ms: SupportsIndex = 0,
        want_lengths: SupportsIndex = 0,
        from_token: SupportsIndex = 0,
    ) -> Hit | None: ...
    def lookup_ahead(
        self,
        id: str,
        hashes: _Hashes,
        prompt_tokens: SupportsIndex,
        computed_tokens: SupportsIndex = 0,
        tenant: str | None = None,
        expect_tokens: SupportsIndex = 0,
        stride: SupportsIndex = 1,
        *,
        timeout_ms: SupportsIndex = 0,
        want_lengths: SupportsIndex = 0,
        from_token: SupportsIndex = 0,
    ) -> None: ...
    def lookup_lengths(self, id: str) -> list[int]: ...
    def lookup_keys(
        self,
        id: str,
        hashes: _Hashes,
        groups: _Ids | None = None,
        tenant: str | None = None,
        *,
        timeout_ms: SupportsIndex = 0,
    ) -> Keys | None: ...
    def wait_lookup_keys(
        self,
        id: str,
        hashes: _Hashes,
        groups: _Ids | None = None,
        tenant: str | None = None,
        *,
        timeout_ms: SupportsIndex = 0,
    ) -> Keys: ...
    def step(self) -> Step: ...
    def step_begin(self) -> None: ...
    def step_end(self) -> None: ...
    def step_wait(self, us: SupportsIndex) -> bool: ...
    def admit(
        self, id: str, from_token: SupportsIndex = 0, to_token: SupportsIndex | None = None
    ) -> None: ...
    def finish(self, id: str) -> None: ...
    def finish_hint(self, id: str, hint: str) -> None: ...
    def reset(self, weights_version: SupportsIndex) -> None: ...
    def clear(self, generation: SupportsIndex = 0) -> int: ...
    def wait_ready(self, timeout_ms: SupportsIndex) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def feed(self) -> list[tuple[int, int, int, str, bytes | None, bytes]]: ...
    def fileno(self) -> int: ...
    def fd_clear(self) -> None: ...
    def close(self) -> None: ...

@final
class Server:
    def __new__(cls, **config: Unpack[ServerConfig]) -> Server: ...
    def __enter__(self) -> Server: ...
    def __exit__(self, *exception: object) -> None: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...

_Ids = Sequence[int] | _Buffer
_BlockIds = _Ids | dict[int, _Ids]
_Plane = tuple[SupportsIndex, SupportsIndex, SupportsIndex] | object

@final
class Done:
    def __new__(
        cls,
        job: int = 0,
        kind: Literal["retrieve", "store"] = "retrieve",
        *,
        status: int = 0,
        ticket: int = 0,
        bytes: int = 0,
        chunks: int = 0,
        present: int = 0,
        no_room: int = 0,
        null_chunks: int = 0,
        missing: dict[int, tuple[int, ...]] = {},
        queued_us: int = 0,
        server_us: int = 0,
        copy_us: int = 0,
    ) -> Done: ...
    @property
    def job(self) -> int: ...
    @property
    def ticket(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def ok(self) -> bool: ...
    @property
    def error(self) -> KVScoutError | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def present(self) -> int: ...
    @property
    def no_room(self) -> int: ...
    @property
    def null_chunks(self) -> int: ...
    @property
    def missing(self) -> dict[int, tuple[int, ...]]: ...
    @property
    def queued_us(self) -> int: ...
    @property
    def server_us(self) -> int: ...
    @property
    def copy_us(self) -> int: ...
    @property
    def total_us(self) -> int: ...

@final
class Worker:
    def __new__(cls, **config: Unpack[WorkerConfig]) -> Worker: ...
    def __enter__(self) -> Worker: ...
    def __exit__(self, *args: object) -> None: ...
    @property
    def closed(self) -> bool: ...
    def register(
        self,
        planes: Iterable[_Plane] | None = None,
        block_tokens: SupportsIndex | None = None,
        *,
        n_blocks: SupportsIndex | None = None,
        dtype: object = None,
        null_block: SupportsIndex = -1,
        block_dim: SupportsIndex = 0,
        layout_tag: str | None = None,
        timeout_ms: SupportsIndex = 0,
        tables: list[dict[str, Any]] | tuple[dict[str, Any], ...] | None = None,
    ) -> bool: ...
    def unregister(self) -> None: ...
    def retrieve(
        self,
        ticket: SupportsIndex,
        from_token: SupportsIndex,
        to_token: SupportsIndex,
        block_ids: _BlockIds,
        *,
        ids_from: SupportsIndex | None = None,
        event: object = None,
        after: object = None,
        layers: SupportsIndex | list[int] | list[tuple[int, ...]] | None = None,
        layer_events: list[object] | tuple[object, ...] | None = None,
        timeout_ms: SupportsIndex = 0,
    ) -> int: ...
    def store(
        self,
        ticket: SupportsIndex,
        hashes: _Hashes,
        block_ids: _BlockIds,
        *,
        first_token: SupportsIndex = 0,
        ids_from: SupportsIndex | None = None,
        tenant: str | None = None,
        stride: SupportsIndex = 1,
        event: object = None,
        layers: SupportsIndex | list[int] | list[tuple[int, ...]] | None = None,
        layer_events: list[object] | tuple[object, ...] | None = None,
        announced: bool = False,
        timeout_ms: SupportsIndex = 0,
        descriptions: list[bytes] | None = None,
    ) -> int: ...
    def poll(self, max: SupportsIndex = 4096) -> list[Done]: ...
    def progress(self, job: SupportsIndex, /) -> tuple[int, int, int]: ...
    def wait_layer(self, job: SupportsIndex, layers: SupportsIndex, timeout_ms: SupportsIndex = 30000) -> bool: ...
    def layer_ready(self, job: SupportsIndex, layers: SupportsIndex) -> None: ...
    def cancel(self, job: SupportsIndex, /) -> None: ...
    def fence(self, block_ids: _Ids, stream: object = None, *, group: SupportsIndex = 0) -> None: ...
    def reset(self, weights_version: SupportsIndex, /) -> None: ...
    def clear(self, generation: SupportsIndex = 0) -> int: ...
    def stats(self) -> dict[str, int]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
