# SPDX-License-Identifier: Apache-2.0
"""Copies between vLLM's region of host memory and the pool. One object, next to the lookups; owns the Worker.

A job of vLLM is one store, or one retrieve for each run of chunks that a lookup found. Nothing here waits but drain().
A job uses its chunks of the region until ended() has reported it.
"""

import time
from dataclasses import dataclass

from ..vllm import ready
from ..vllm.times import Times
from .keys import hashes_of

# drain() gives jobs this long, then cancels those that have not begun to copy.
DRAIN_S = 5.0


@dataclass(slots=True)
class Ended:
    """The end of a job of vLLM. @keys: of a load, those that were copied."""

    job_id: int
    ok: bool
    keys: tuple
    seconds: float
    bytes: int


class _Job:
    __slots__ = ("id", "is_load", "parts", "ok", "keys", "bytes", "begin")

    def __init__(self, id, is_load):
        self.id = id
        self.is_load = is_load
        self.parts = 0
        self.ok = True
        self.keys = []
        self.bytes = 0
        self.begin = time.monotonic()


class Transfers:
    def __init__(self, worker, errors, counts, teller, run_ended, events=None):
        """@worker: kvscout's, with one token in a block. @run_ended(run, failed keys): a retrieve has ended.
        @events: of events.py, or None."""
        self._worker = worker
        self._error = errors
        self._counts = counts
        self._teller = teller
        self._run_ended = run_ended
        self._events = events
        self._parts = {}  # kvscout's job: (_Job, Run of a load)
        self._ended = []
        self.took = Times()

    def register(self, address, row_bytes, rows, tag):
        """@address: of the region, which outlives this object. Does not wait for the server."""
        self._worker.register([(address, row_bytes, row_bytes)], 1, n_blocks=rows, layout_tag=tag)

    def store(self, job_id, keys, chunk_ids):
        job = _Job(job_id, False)
        self._counts["stores"] += 1
        try:
            number = self._worker.store(
                0, hashes_of(keys), [int(chunk_id) for chunk_id in chunk_ids],
                descriptions=self._events.describe(keys) if self._events is not None else None,
            )
        except self._error as error:
            self._counts["stores_failed"] += 1
            self._teller.warn("a store could not be started: %s", error)
            job.ok = False
            self._end(job)
            return
        job.parts = 1
        self._parts[number] = (job, None)

    def skip_store(self, job_id):
        self._counts["stores_skipped"] += 1
        self._end(_Job(job_id, False))

    def load(self, job_id, runs, lost):
        """@runs and @lost: as Lookups.runs() returned them."""
        job = _Job(job_id, True)
        self._counts["loads"] += 1
        if lost:
            job.ok = False
            self._counts["failed_chunks"] += len(lost)
        for run in runs:
            self._start_run(job, run)
        if not job.parts:
            self._end(job)

    def _start_run(self, job, run):
        first, n = run.first, len(run.keys)
        try:
            number = self._worker.retrieve(run.batch.ticket, first, first + n, run.chunk_ids)
        except self._error as error:
            self._teller.warn("a load could not be started: %s", error)
            self._run_is_over(job, run, run.keys)
            return
        job.parts += 1
        self._parts[number] = (job, run)

    def ended(self):
        """Jobs of vLLM that have ended since the last call, each once."""
        if self._parts:
            self._collect()
        ended, self._ended = self._ended, []
        return ended

    def is_idle(self):
        return not self._parts and not self._ended

    def drain(self):
        """Wait until no copy touches the region. ended() reports what ended meanwhile."""
        until = time.monotonic() + DRAIN_S
        canceled = False
        while self._parts:
            self._collect()
            if not self._parts:
                return
            if not canceled and time.monotonic() >= until:
                canceled = True
                self._teller.warn("%d copies have not ended in %g s and are cancelled", len(self._parts), DRAIN_S)
                for number in list(self._parts):
                    self._worker.cancel(number)
            ready.wait(self._worker)

    def clear(self, generation):
        self._worker.clear(generation)

    def reset(self, weights_version):
        self._worker.reset(weights_version)

    def close(self):
        """Waits for running copies; then nothing touches the region."""
        self._worker.close()

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _collect(self):
        for done in self._worker.poll():
            part = self._parts.pop(done.job, None)
            if part is None:
                continue
            job, run = part
            job.parts -= 1
            job.bytes += done.bytes
            kind = "load" if job.is_load else "store"
            self._counts[f"{kind}_bytes"] += done.bytes
            self._counts[f"{kind}_us"] += done.total_us
            self.took.add(f"{kind}_seconds", done.total_us / 1e6)
            if not done.ok:
                self._teller.warn("a %s ended with %s", kind, done.error)
            if run is not None:
                missing = set(done.missing.get(0, ()))
                self._run_is_over(job, run, [key for at, key in enumerate(run.keys) if at in missing])
            else:
                self._store_is_over(job, done)
            if not job.parts:
                self._end(job)

    def _run_is_over(self, job, run, failed):
        if failed:
            job.ok = False
        gone = set(failed)
        job.keys += [key for key in run.keys if key not in gone]
        self._counts["failed_chunks"] += len(failed)
        self._counts["loaded_chunks"] += len(run.keys) - len(failed)
        self._run_ended(run, failed)

    def _store_is_over(self, job, done):
        self._counts["stored_chunks"] += done.chunks
        self._counts["present_chunks"] += done.present
        self._counts["no_room_chunks"] += done.no_room
        self._counts["stores_failed"] += not done.ok
        job.ok = done.ok and not done.no_room

    def _end(self, job):
        seconds = time.monotonic() - job.begin
        self._ended.append(Ended(job.id, job.ok, tuple(job.keys), seconds, job.bytes))
