# SPDX-License-Identifier: Apache-2.0
"""The worker's side. One object in each of vLLM's workers, called by the worker's one thread; owns the Worker of
kvscout.

Each step: begin_step() runs before the step computes anything, start_loads() submits retrieves, wait_for_save() submits
stores after the forward pass, finished() collects ended jobs. Only a synchronous load waits, in start_loads().

A load may be started after the forward pass and writes blocks that no request reads yet, but that the GPU may not be done
with: what was enqueued before begin_step() can still zero them, or write drafts of the request that had them before. So
loads wait for an event of begin_step().

A block that a load did not fill is named to vLLM, which computes it. That is of use where any leading part of a hit is:
in a model of one group with full attention. With windows, several groups or a draft model a part has not what the engine
needs to go on after it, so vLLM is told that the request's load failed, and computes all of it. So it is where vLLM has more groups than
are cached here (scratch memory): there it raises if a block is named.

A load that failed in a step that also computes on its blocks (load=sync) makes everything of that step doubtful, and
with asynchronous scheduling of the next step, too: until the scheduler has heard of the failure
(Metadata.failures_seen), nothing is stored, and the scheduler is told what was not.

New weights are another namespace, with a Worker of its own (weights.py). Jobs in the old one end there, and then its Worker is closed.
"""

import collections
import logging
import time
import uuid

from . import layout, ready
from .faults import Faults
from .logs import Teller
from .metadata import NO_TICKET, Store, WorkerMetadata
from .stats import new_worker_counts
from .times import Times
from .weights import Loaded

logger = logging.getLogger("vllm.kvscout")


class Held:
    """Stores that wait until the scheduler has heard of their step; only under MultiConnector.

    There another connector may load in the step that computes. If such a load fails, what the step computed is wrong, and
    only vLLM hears of it, when the step is over. So a store waits until the scheduler's side has seen the result of its
    step (Metadata.settled), and is dropped if that result names a failed load (Metadata.void). Its blocks are pinned all
    the while.
    """

    def __init__(self):
        self._stores = collections.deque()  # by rising number

    def __len__(self):
        return len(self._stores)

    def hold(self, stores):
        """Returns the number of the last one."""
        self._stores.extend(stores)
        return self._stores[-1].number

    def take(self, meta):
        """(stores that may start, stores that may not) by what @meta says."""
        drops_all = meta.generation or meta.weights_version or meta.move  # what was computed before a reset, or with old weights
        start, drop = [], []
        while self._stores:
            number = self._stores[0].number
            if drops_all or number <= meta.void:
                drop.append(self._stores.popleft())
            elif number <= meta.settled:
                start.append(self._stores.popleft())
            else:
                break
        return start, drop


class Worker:
    def __init__(self, groups, worker, errors, namespace, adapters=None, spans=None, inert=None, weights=None):
        """@groups: of groups.py. @worker: kvscout's, in @namespace. @errors: its exceptions. @adapters: of adapters.py, with LoRA.
        @spans: of trace_spans.py, or None. @inert: why there is no @worker and no @namespace (empty: another worker
        knows); the scheduler then asks for nothing. @weights: of weights.py; None: they never change."""
        self._groups = groups
        self._registered: tuple[int, ...] = ()  # kvscout's numbers of the groups that have layers on this worker
        self._worker = worker
        self._left = []  # Workers in namespaces of old weights that have jobs
        self._weights = weights or Loaded(lambda: "the same", 0)
        self._moves = 0  # -1: these weights are in no namespace yet
        self._error = errors
        self._adapters = adapters
        self._spans = spans
        self._make_event = None
        self._after = None  # an event in front of this step's forward pass
        self._is_out = False  # in this step: its beginning failed, or it is for other weights
        self._event = None  # in front of which is what this step's stores copy
        self._tables = []
        self._unsaved: list[Store] | tuple[()] = ()  # stores of this step that wait_for_save() has not seen
        self._loads = {}  # (Worker, job): Load
        self._stores = {}  # (Worker, job): Store
        self._sync_jobs = set()
        self._received = set()  # requests whose loads have ended, not reported yet
        self._failed = set()  # of them, those of which all is to be computed
        self._bad_blocks = set()
        self.holds_stores = False  # until the result of their step is known: with another connector
        self._held = Held()
        self.namespace = namespace
        self.inert = inert
        self._out = WorkerMetadata(namespaces=frozenset({namespace} - {None}), inert=inert, parts=self.parts() if inert is None else {})
        self._name = uuid.uuid4().hex
        self._failures = self._failures_told = 0
        self._teller = Teller(logger, name="kvscout")
        self.counts = new_worker_counts()
        self.faults = Faults(self.counts)
        self.took = Times()  # of loads and stores

    def register(self, tables, make_event):
        """@tables: of layout.py. @make_event: returns an event after all work that the GPU was given, or None (host
        memory)."""
        self._make_event = make_event
        self._tables = tables
        self._worker.register(tables=tables)
        self._registered = tuple(table["group"] for table in tables)

    def parts(self, question=0):
        return {self._weights.rank: (question, self._weights.part)}

    # ---- each step --------------------------------------------------------------------------------------------------

    def begin_step(self, meta):
        for store in self._unsaved:  # a pipeline stage of V1 with a draft model never calls wait_for_save()
            self._not_stored(store)
        self._unsaved = meta.stores
        self._is_out = True
        if meta.move is not None and meta.move.parts[self._weights.rank] == self._weights.part:
            self._move(meta.move, meta.moves)
        if meta.question or self._weights.is_touched:
            self._look(meta.question)
        self._after = self._make_event() if meta.loads else None
        self._is_out = self._moves != meta.moves
        if meta.adapters and self._adapters is not None:  # None: inert
            self._adapters.ask(meta.adapters)

    def _look(self, question):
        moves, self._moves = self._moves, -1
        if not self._weights.has_changed():
            self._moves = moves
        if question or self._moves < 0:
            self._out.parts = self.parts(question)

    def _move(self, move, moves):
        worker = self._weights.make_worker(move.namespace, move.weights_version)
        worker.register(tables=self._tables)
        self._left.append(self._worker)
        self._worker, self.namespace, self._moves = worker, move.namespace, moves
        self._close_left()

    def _close_left(self):
        busy = [worker for worker, _ in (*self._loads, *self._stores)]
        for worker in self._left:
            if worker not in busy:
                self.faults.attempt(worker.close)
        self._left = [worker for worker in self._left if worker in busy]

    def start_loads(self, meta):
        """vLLM waits for each of the loads, so each of them ends, whatever raises."""
        try:
            if self._held:
                self._settle(meta)
            if meta.generation:
                self._worker.clear(meta.generation)
            if meta.weights_version:
                self._worker.reset(meta.weights_version)
        except Exception as error:  # this worker's KV would be taken for newer than it is
            self._stop("joining a reset", error)
        if meta.cancels_stores:
            for worker, job in self._stores:
                self.faults.attempt(worker.cancel, job)
        for load in meta.loads:
            self._start(load, self._start_load, self._load_ended)
        while self._sync_jobs:
            self.faults.attempt(ready.wait, self._worker)
            self._collect()

    def wait_for_save(self, meta):
        """What is left in _unsaved where this raises is reported by the next begin_step()."""
        if self._is_out or self._failures > meta.failures_seen.get(self._name, 0):
            for store in meta.stores:
                self._not_stored(store)
        elif self.holds_stores and meta.stores:
            self._out.held = self._held.hold(meta.stores)
        else:
            self._start_stores(meta.stores)
        self._unsaved = ()

    def finished(self, finished_requests):
        """(requests whose asynchronous loads have ended since the last call, each once; those of them whose load is to
        be taken for failed as a whole)."""
        if finished_requests and self._loads:
            # An aborted request's blocks come back to vLLM when its load has ended.
            for (worker, job), load in self._loads.items():
                if load.request_id in finished_requests:
                    self.faults.attempt(worker.cancel, job)
        if self._loads or self._stores:
            self._collect()
        received, self._received = self._received, set()
        failed, self._failed = self._failed, set()
        return received, failed

    def bad_blocks(self):
        blocks, self._bad_blocks = self._bad_blocks, set()
        return blocks

    def take_meta(self):
        if self._failures != self._failures_told:
            self._failures_told = self._failures
            self._out.failures[self._name] = self._failures
        if self._adapters is not None:
            self._out.adapters = self.faults.attempt(self._adapters.answers) or {}
        if self._out.is_empty():
            return None
        out, self._out = self._out, WorkerMetadata()
        return out

    def close(self):
        self._close_workers()
        if self._adapters is not None:
            self._adapters.close()

    def _start(self, what, call, give_up):
        """@call() for a load or store. If it cannot be started, @give_up() reports it."""
        try:
            call(what)
        except self._error as error:
            self._teller.warn("a %s could not be started: %s; the engine computes what is missing", type(what).__name__.lower(), error)
            give_up(what)
        except Exception as error:
            self.faults.tell(call.__name__, error)
            give_up(what)

    # ---- loads ------------------------------------------------------------------------------------------------------

    def _start_load(self, load):
        if load.ticket == NO_TICKET or self._is_out or load.adapter and not self._adapters.may_load(load.adapter):
            self._load_ended(load)
            return
        ids, begin = self._own(load.block_ids), load.from_token
        job = self._worker.retrieve(load.ticket, begin, load.to_token, ids, ids_from=begin, after=self._after)
        self._submitted(self._loads, job, load)
        if not load.waits:
            self._sync_jobs.add((self._worker, job))

    def _own(self, block_ids):
        """Those of the groups that have layers here."""
        return {group: block_ids[group] for group in self._registered}

    def _load_ended(self, load, missing=None):
        """@missing: by group the positions in the load's blocks that were not filled; None: it was not made."""
        was_made = missing is not None
        if not was_made:
            missing = {group: range(len(ids)) for group, ids in load.block_ids.items()}
        bad = [
            (at * self._groups[group].block_tokens, load.block_ids[group][at])
            for group, places in missing.items()
            for at in places
            if load.block_ids[group][at] != layout.NULL_BLOCK
        ]
        if load.waits:
            self._received.add(load.request_id)
        if was_made and not bad:
            self.counts["loaded_tokens"] += load.to_token - load.from_token
            return
        if bad and self._groups.names_blocks:
            self._bad_blocks.update(block for _, block in bad)
        else:
            self._failed.add(load.request_id)
        self._out.failed_loads[load.request_id] = load.from_token + min((token for token, _ in bad), default=0)
        self.counts["failed_blocks"] += len(bad)
        if not load.waits:
            self._failures += 1

    # ---- stores -----------------------------------------------------------------------------------------------------

    def _start_stores(self, stores):
        self._event = None  # one for all of them
        for store in stores:
            self._start(store, self._start_store, self._not_stored)

    def _start_store(self, store):
        if store.adapter and not self._adapters.is_loaded(store.adapter):
            self._not_stored(store)
            return
        self._event = self._event or self._make_event()
        if store.to_token:
            job = self._worker.verify(
                store.ticket, store.first_token, store.to_token, self._own(store.block_ids), ids_from=store.ids_from, after=self._event
            )
            self._submitted(self._stores, job, store)
            return
        job = self._worker.store(
            store.ticket, store.hashes, self._own(store.block_ids), first_token=store.first_token, ids_from=store.ids_from,
            tenant=store.tenant, event=self._event, descriptions=store.descriptions,
        )
        self._submitted(self._stores, job, store)

    def _settle(self, meta):
        start, drop = self._held.take(meta)
        for store in drop:
            self._not_stored(store)
        self._start_stores(start)

    def _not_stored(self, store):
        self._out.stored[store.number] = 1
        if store.to_token:
            return
        self.counts["stores_dropped"] += 1
        first = self._out.not_stored.get(store.request_id, store.first_token)
        self._out.not_stored[store.request_id] = min(first, store.first_token)

    def _submitted(self, jobs, job, what):
        jobs[self._worker, job] = what
        if what.trace:
            what.began_ns = time.time_ns()

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _collect(self):
        for worker in (*self._left, self._worker):
            try:
                ended = worker.poll()
            except Exception as error:
                self._stop("asking for the ends of copies", error)
                return
            for done in ended:
                self._job_ended((worker, done.job), done)
        if self._left:
            self._close_left()

    def _job_ended(self, job, done):
        load = self._loads.pop(job, None)
        if load is not None:
            self._sync_jobs.discard(job)
            self._load_ended(load, done.missing)
            self.faults.attempt(self._count, done, "load", load)
            return
        store = self._stores.pop(job, None)
        if store is not None:
            self._out.stored[store.number] = 1
            self.faults.attempt(*(self._compared, store, done) if store.to_token else (self._count, done, "store", store))

    def _compared(self, store, done):
        """Of elements that are only bytes to kvscout no sum is the same in another batch, so those say nothing."""
        numbers = {table["group"] for table in self._tables if table["dtype"] is not None}
        compared = [found for found in done.verified if found["group"] in numbers]
        worst = max((found for found in compared if found["differs"]), key=lambda found: found["norm_error"], default=None)
        if worst is not None:
            worst["layer"] = self._layer(worst["group"], worst["plane"])
        self.counts["verify_chunks"] += len(compared)
        self._out.compared.append((store.number, len(compared), worst))

    def _layer(self, group, plane):
        """A plane of a group's table, by the name of its layer where a plane is one."""
        layers = self._groups[group].layers
        n = sum(len(table["planes"]) for table in self._tables if table["group"] == group)
        return layers[plane] if n == len(layers) else f"plane {plane} of {n}"

    def _close_workers(self):
        for worker in filter(None, (*self._left, self._worker)):
            self.faults.attempt(worker.close)

    def _stop(self, what, error):
        """Nothing is known of the copies any more. After close() none touches a page, and none is started."""
        self.faults.tell(what, error)
        logger.error("kvscout: this worker neither loads nor stores KV any more, because %s failed: %r. Please report this", what, error)
        self._close_workers()
        loads, self._loads = self._loads, {}
        stores, self._stores = self._stores, {}
        self._sync_jobs.clear()
        for load in loads.values():
            self._load_ended(load)
        for store in stores.values():
            self._not_stored(store)

    def _count(self, done, kind, what):
        self.counts[f"{kind}s_ended"] += 1
        self.counts[f"{kind}_bytes"] += done.bytes
        self.counts[f"{kind}_us"] += done.total_us
        self.took.add(f"{kind}_seconds", done.total_us / 1e6)
        if done.status != 0:
            self.counts[f"{kind}s_failed"] += 1
            self._teller.warn("a %s ended with %s; the engine computes what is missing", kind, done.error)
        if self._spans is not None:
            self._spans.copied(kind, what, done)
