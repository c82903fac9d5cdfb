# SPDX-License-Identifier: Apache-2.0
"""What the two sides of the connector send each other with each step, by way of vLLM. It is pickled; it holds plain
data."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """Worker to scheduler, once, before the first request."""

    namespace: str | None  # None: it is inert
    inert: str | None  # why
    parts: dict[int, tuple[int, str]] = field(default_factory=dict)  # as below


NO_TICKET = 0  # of a load that cannot be made: workers report it as failed


@dataclass(slots=True)
class Load:
    """Pool to pages: a range of a request's tokens, whose blocks are allocated."""

    request_id: str
    ticket: int
    from_token: int  # a whole number of blocks
    to_token: int
    block_ids: dict[int, list[int]]  # of the range, by kvscout's number of the group
    waits: bool  # the request waits for it (async); else this step does
    adapter: int = 0  # number of the request's LoRA adapter
    trace: dict[str, str] | None = None  # headers of the request, for trace_spans.py
    began_ns: int = 0  # worker's side: since the epoch, if there is a trace


@dataclass(slots=True)
class Store:
    """Pages to pool: what this step completes. Its blocks are pinned until every rank has reported the number."""

    number: int
    request_id: str
    ticket: int
    hashes: list[bytes]  # one for every hash_tokens tokens
    first_token: int  # where the first of them begins
    block_ids: dict[int, list[int]]  # by kvscout's number of the group
    ids_from: int  # the token at which they begin
    tenant: str | None
    adapter: int = 0
    trace: dict[str, str] | None = None
    began_ns: int = 0
    descriptions: list[bytes] | None = None  # one for each hash (descriptions.py); None: events are off
    to_token: int = 0  # of a comparison (verify.py), which has no hashes and stores nothing


@dataclass(slots=True)
class Move:
    """To the namespace of new weights."""

    namespace: str
    weights_version: int
    parts: dict[int, str]  # that it is made of: a worker with another one stays out


@dataclass
class Metadata(KVConnectorMetadata):
    """Scheduler to workers."""

    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    # The cache was cleared: the generation that workers join before anything else of this step. 0: no.
    generation: int = 0
    # The same for an engine with a weights_version: the number that its workers have from now on. 0: as before.
    weights_version: int = 0
    # By worker: how many of its failed synchronous loads the scheduler has heard of; see worker.py.
    failures_seen: dict[str, int] = field(default_factory=dict)
    # Of stores that wait for the result of their step (worker.py): up to this number it is known, and up to that one it
    # was a failed load.
    settled: int = 0
    void: int = 0
    cancels_stores: bool = False  # those that do not copy yet: the engine waits for nothing else
    adapters: tuple[int, ...] = ()  # that workers are to identify
    # Of weights.py: the number of a question to all workers (0: none); how often the engine has moved, and where it moves to.
    question: int = 0
    moves: int = 0
    move: Move | None = None


@dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):
    """Workers to scheduler."""

    stored: dict[int, int] = field(default_factory=dict)  # number of a store that ended: by how many ranks
    # Requests of which tokens are not in the cache, though the scheduler thinks so: the first of them.
    not_stored: dict[str, int] = field(default_factory=dict)
    failed_loads: dict[str, int] = field(default_factory=dict)  # request: first token that was not loaded
    failures: dict[str, int] = field(default_factory=dict)  # by worker: synchronous loads that failed since its start
    held: int = 0  # number of the last store of this step that waits for the step's result
    namespaces: frozenset[str] = frozenset()  # of workers that had not told theirs
    adapters: dict[int, dict[str, str]] = field(default_factory=dict)  # number of an adapter: its digest by worker
    inert: str | None = None  # why this engine is, from a worker that had not told it
    parts: dict[int, tuple[int, str]] = field(default_factory=dict)  # by rank: number of the question (0: none), digest of its weights
    compared: list[tuple[int, int, dict | None]] = field(default_factory=list)  # number of a comparison: chunks, the worst one that differs

    def aggregate(self, other):
        stored = dict(self.stored)
        for number, ranks in other.stored.items():
            stored[number] = stored.get(number, 0) + ranks
        return WorkerMetadata(
            stored,
            _least(self.not_stored, other.not_stored),
            _least(self.failed_loads, other.failed_loads),
            {**self.failures, **other.failures},
            max(self.held, other.held),
            self.namespaces | other.namespaces,
            {
                number: {**self.adapters.get(number, {}), **other.adapters.get(number, {})}
                for number in {**self.adapters, **other.adapters}
            },
            self.inert or other.inert,
            {**self.parts, **other.parts},
            self.compared + other.compared,
        )

    def is_empty(self):
        return not (
            self.stored or self.not_stored or self.failed_loads or self.failures or self.held or self.namespaces or self.adapters
            or self.inert or self.parts or self.compared
        )


def _least(one, two):
    merged = dict(one)
    for key, value in two.items():
        merged[key] = min(value, merged.get(key, value))
    return merged
