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
needs to go on after it, so vLLM is told that the request's load failed, and computes all of it.

A load that failed in a step that also computes on its blocks (load=sync) makes everything of that step doubtful, and
with asynchronous scheduling of the next step, too: until the scheduler has heard of the failure
(Metadata.failures_seen), nothing is stored, and the scheduler is told what was not.
"""

import logging
import time
import uuid

from . import layout, ready
from .held import Held
from .metadata import Store, WorkerMetadata
from .stats import HookTimes, new_worker_counts
from .times import Times

logger = logging.getLogger("vllm.kvscout")


class Worker:
    def __init__(self, groups, worker, errors, namespace, adapters=None, spans=None):
        """@groups: of groups.py. @worker: kvscout's, in @namespace. @errors: its exceptions. @adapters: of adapters.py, with LoRA.
        @spans: of spans.py, or None."""
        self._groups = groups
        self._registered: tuple[int, ...] = ()  # kvscout's numbers of the groups that have layers on this worker
        self._worker = worker
        self._error = errors
        self._adapters = adapters
        self._spans = spans
        self._make_event = None
        self._after = None  # an event in front of this step's forward pass
        self._unsaved: list[Store] | tuple[()] = ()  # stores of this step that wait_for_save() has not seen
        self._loads = {}  # job: Load
        self._stores = {}  # job: Store
        self._sync_jobs = set()
        self._received = set()  # requests whose loads have ended, not reported yet
        self._failed = set()  # of them, those of which all is to be computed
        self._bad_blocks = set()
        self.holds_stores = False  # until the result of their step is known: with another connector
        self._held = Held()
        self.namespace = namespace
        self._out = WorkerMetadata(namespaces=frozenset((namespace,)))
        self._name = uuid.uuid4().hex
        self._failures = self._failures_told = 0
        self._last_log = 0.0
        self._suppressed = 0
        self.counts = new_worker_counts()
        self.took = Times()  # of loads and stores
        self.times = HookTimes()

    def register(self, tables, make_event):
        """@tables: of layout.py. @make_event: returns an event after all work that the GPU was given, or None (host
        memory)."""
        self._make_event = make_event
        self._worker.register(tables=tables)
        self._registered = tuple(table["group"] for table in tables)

    # ---- each step --------------------------------------------------------------------------------------------------

    def begin_step(self, meta):
        for store in self._unsaved:  # a pipeline stage of V1 with a draft model never calls wait_for_save()
            self._not_stored(store)
        self._unsaved = meta.stores
        self._after = self._make_event() if meta.loads else None
        if meta.adapters:
            self._adapters.ask(meta.adapters)

    def start_loads(self, meta):
        if self._held:
            self._settle(meta)
        if meta.generation:
            self._worker.clear(meta.generation)
        if meta.weights_version:
            self._worker.reset(meta.weights_version)
        for load in meta.loads:
            self._start_load(load)
        while self._sync_jobs:
            ready.wait(self._worker)
            self._collect()

    def wait_for_save(self, meta):
        self._unsaved = ()
        if not meta.stores:
            return
        if self._failures > meta.failures_seen.get(self._name, 0):
            for store in meta.stores:
                self._not_stored(store)
            return
        if self.holds_stores:
            self._out.held = self._held.hold(meta.stores)
            return
        event = self._make_event()
        for store in meta.stores:
            self._start_store(store, event)

    def finished(self, finished_requests):
        """(requests whose asynchronous loads have ended since the last call, each once; those of them whose load is to
        be taken for failed as a whole)."""
        if finished_requests and self._loads:
            # An aborted request's blocks come back to vLLM when its load has ended.
            for job, load in self._loads.items():
                if load.request_id in finished_requests:
                    self._worker.cancel(job)
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
            self._out.adapters = self._adapters.answers()
        if self._out.is_empty():
            return None
        out, self._out = self._out, WorkerMetadata()
        return out

    def close(self):
        self._worker.close()
        if self._adapters is not None:
            self._adapters.close()

    # ---- loads ------------------------------------------------------------------------------------------------------

    def _start_load(self, load):
        if load.adapter and not self._adapters.is_loaded(load.adapter):
            self._load_ended(load, {group: range(len(ids)) for group, ids in load.block_ids.items()})
            return
        try:
            job = self._worker.retrieve(
                load.ticket, load.from_token, load.to_token, self._own(load.block_ids), after=self._after
            )
        except self._error as error:
            self._say("a load could not be started", error)
            self._load_ended(load, {group: range(len(ids)) for group, ids in load.block_ids.items()})
            return
        self._submitted(self._loads, job, load)
        if not load.waits:
            self._sync_jobs.add(job)

    def _own(self, block_ids):
        """Those of the groups that have layers here."""
        return {group: block_ids[group] for group in self._registered}

    def _load_ended(self, load, missing):
        """@missing: by group the positions in the load's blocks that were not filled."""
        if load.waits:
            self._received.add(load.request_id)
        bad = [
            (at * self._groups[group].block_tokens, load.block_ids[group][at])
            for group, places in missing.items()
            for at in places
            if load.block_ids[group][at] != layout.NULL_BLOCK
        ]
        if not bad:
            self.counts["loaded_tokens"] += load.to_token - load.from_token
            return
        if self._groups.is_one_run:
            self._bad_blocks.update(block for _, block in bad)
        else:
            self._failed.add(load.request_id)
        self._out.failed_loads[load.request_id] = load.from_token + min(token for token, _ in bad)
        self.counts["failed_blocks"] += len(bad)
        if not load.waits:
            self._failures += 1

    # ---- stores -----------------------------------------------------------------------------------------------------

    def _start_store(self, store, event):
        if store.adapter and not self._adapters.is_loaded(store.adapter):
            self._not_stored(store)
            return
        try:
            job = self._worker.store(
                store.ticket,
                store.hashes,
                self._own(store.block_ids),
                first_token=store.first_token,
                ids_from=store.ids_from,
                tenant=store.tenant,
                event=event,
                descriptions=store.descriptions,
            )
        except self._error as error:
            self._say("a store could not be started", error)
            self._not_stored(store)
            return
        self._submitted(self._stores, job, store)

    def _settle(self, meta):
        start, drop = self._held.take(meta)
        for store in drop:
            self._not_stored(store)
        if start:
            event = self._make_event()
            for store in start:
                self._start_store(store, event)

    def _not_stored(self, store):
        self.counts["stores_dropped"] += 1
        self._out.stored[store.number] = 1
        first = self._out.not_stored.get(store.request_id, store.first_token)
        self._out.not_stored[store.request_id] = min(first, store.first_token)

    def _submitted(self, jobs, job, what):
        jobs[job] = what
        if what.trace:
            what.began_ns = time.time_ns()

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _collect(self):
        for done in self._worker.poll():
            load = self._loads.pop(done.job, None)
            if load is not None:
                self._sync_jobs.discard(done.job)
                self._count(done, "load", load)
                self._load_ended(load, done.missing)
                continue
            store = self._stores.pop(done.job, None)
            if store is not None:
                self._out.stored[store.number] = 1
                self._count(done, "store", store)

    def _count(self, done, kind, what):
        self.counts[f"{kind}s_ended"] += 1
        self.counts[f"{kind}_bytes"] += done.bytes
        self.counts[f"{kind}_us"] += done.total_us
        self.took.add(f"{kind}_seconds", done.total_us / 1e6)
        if done.status != 0:
            self.counts[f"{kind}s_failed"] += 1
            self._say(f"a {kind} ended with {done.error}", None)
        if self._spans is not None:
            self._spans.copied(kind, what, done)

    # ---- log --------------------------------------------------------------------------------------------------------

    def _say(self, what, error):
        """At most one line in ten seconds, with a count of the suppressed ones."""
        now = time.monotonic()
        if now - self._last_log < 10.0:
            self._suppressed += 1
            return
        self._last_log = now
        more = f" ({self._suppressed} lines like this were suppressed)" if self._suppressed else ""
        self._suppressed = 0
        logger.warning(
            "kvscout: %s%s%s; the engine computes what is missing",
            what,
            f": {error}" if error is not None else "",
            more,
        )
