# SPDX-License-Identifier: Apache-2.0
"""The keys of Client, Worker and Server (which ensure_server() takes, too) with the types of their values, for type checkers and editors.

docs/configuration.md says what each key means and which values it takes. A number may be text with a suffix ('64Mi'), None is
the default. A function that hands keys on takes ``**keys: Unpack[ClientConfig]``, as the constructors do.
"""

import os
from typing import Literal, SupportsIndex, TypedDict

Number = SupportsIndex | str | None
Flag = bool | int | str | None
Path = str | os.PathLike[str] | None
Texts = str | list[str] | tuple[str, ...] | None


class _Shared(TypedDict, total=False):
    """Keys that clients and workers have."""

    namespace: str | None
    chunk_tokens: Number
    hash_tokens: Number
    group: Texts
    kv_ranks: Number
    readers: Number
    curve_secret_file: Path
    curve_server_key: str | None
    heartbeat_ms: Number
    connect_timeout_ms: Number
    hash_bytes: Number
    spin_us: Number
    weights_version: Number
    local_transport: Literal["shm", "socket"] | None
    cpus: Texts
    server_program: Path
    server_keys: Texts


class ClientConfig(_Shared, total=False):
    """Keys of Client."""

    endpoint: Texts
    lookup_mode: Literal["async", "polled"] | None
    lookup_timeout_ms: Number
    lookup_refresh_ms: Number
    step_wait_us: Number
    lookup_poll_interval_ms: Number
    lookup_poll_key_timeout_ms: Number
    lookup_poll_key_intervals_ms: Number
    lookup_poll_key_all: Flag
    max_lookups: Number
    arena_bytes: Number


class WorkerConfig(_Shared, total=False):
    """Keys of Worker."""

    endpoint: Texts
    backend: str | None
    rank_first: Number
    rank_count: Number
    kv_rank: Number
    reader: Number
    transfer_timeout_ms: Number
    max_jobs: Number
    copy_method: str | None
    stage_bytes: Number
    numa_node: Number


class ServerConfig(TypedDict, total=False):
    """Keys of Server."""

    listen: str | None
    eviction: str | None
    l1_bytes: Number
    extent_bytes: Number
    prealloc: Flag
    max_promised: Number
    max_request_bytes: Number
    feed_bytes: Number
    tenant_share: str | None
    namespace_share: str | None
    max_sessions: Number
    max_peers: Number
    max_namespaces: Number
    peer_timeout_ms: Number
    idle_exit_s: Number
    dead_writer_ms: Number
    l2: Texts
    prefetch: Literal["on_retrieve", "on_lookup", "before_answer"] | None
    l2_objects: Literal["retain", "temporary"] | None
    l2_timeout_ms: Number
    l2_lookup_timeout_ms: Number
    l2_queue_bytes: Number
    bad_key_ms: Number
    curve_secret_file: Path
    curve_clients_file: Path
    curve_rights_file: Path
    socket_group: str | None
    metrics: str | None
    spin_us: Number
    local_transport: Literal["shm", "socket"] | None
    credits: Number
    reply_delay_us: Number
    cpus: Texts
