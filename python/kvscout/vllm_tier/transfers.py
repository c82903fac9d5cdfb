# SPDX-License-Identifier: Apache-2.0
"""Copies between vLLM's region of host memory and the pool. One object, next to the lookups; owns the Worker.

A job of vLLM is one store, or one retrieve for each run of chunks that a lookup found. Nothing here waits but drain().
A job uses its chunks of the region until ended() has reported it, and each one is reported, whatever raises.
"""

import logging
import time
from dataclasses import dataclass

from ..vllm import ready
from ..vllm.times import Times
from .keys import hashes_of

logger = logging.getLogger("vllm.kvscout")

# Jobs that have not begun to copy are cancelled by drain() after this time; and stores, and loads of requests that have ended, if no job
# has ended for so long. vLLM's pause_generation() waits for all of them.
STALL_S = 1.5


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
    def __init__(self, worker, errors, counts, teller, run_ended, events, faults, compared=None):
        """@worker: kvscout's, with one token in a block. @run_ended(run, failed keys): a retrieve has ended. @compared(run, done): so has a
        comparison.
        @events: of events.py, or None. @faults: of ../vllm/faults.py."""
        self._worker = worker
        self._error = errors
        self._counts = counts
        self._teller = teller
        self._run_ended = run_ended
        self._compared = compared
        self._events = events
        self._faults = faults
        self._moved = 0.0  # when the last part ended, or the first of those that run was submitted
        self._parts = {}  # kvscout's job: (_Job, Run of a load)
        self._ended = []
        self.took = Times()

    def register(self, address, row_bytes, rows, tag, dtype=None):
        """@address: of the region, which outlives this object. Does not wait for the server."""
        self._worker.register([(address, row_bytes, row_bytes)], 1, n_blocks=rows, layout_tag=tag, dtype=dtype)

    def store(self, job_id, keys, chunk_ids, runs=()):
        """@runs: that are compared."""
        job = _Job(job_id, False)
        self._counts["stores"] += 1
        for run in runs:
            self._start_run(job, run, self._worker.verify)
        if not keys:
            self._end_if_over(job)
            return
        try:
            number = self._worker.store(
                0, hashes_of(keys), [int(chunk_id) for chunk_id in chunk_ids],
                descriptions=self._events.describe(keys) if self._events is not None else None,
            )
        except Exception as error:
            self._counts["stores_failed"] += 1
            self._tell("a store", error)
            job.ok = False
            self._end_if_over(job)
            return
        self._begin(number, job, None)

    def skip_store(self, job_id):
        self._counts["stores_skipped"] += 1
        self._end(_Job(job_id, False))

    def fail(self, job_id):
        """It was not started."""
        job = _Job(job_id, False)
        job.ok = False
        self._end(job)

    def _tell(self, what, error):
        if isinstance(error, self._error):
            self._teller.warn("%s could not be started: %s", what, error)
        else:
            self._faults.tell(what, error)

    def _begin(self, number, job, run):
        if not self._parts:
            self._moved = time.monotonic()
        job.parts += 1
        self._parts[number] = (job, run)

    def load(self, job_id, runs, lost):
        """@runs and @lost: as Lookups.runs() returned them."""
        job = _Job(job_id, True)
        self._counts["loads"] += 1
        if lost:
            job.ok = False
            self._counts["failed_chunks"] += len(lost)
        for run in runs:
            self._start_run(job, run, self._worker.retrieve)
        self._end_if_over(job)

    def _start_run(self, job, run, call):
        first, n = run.first, len(run.keys)
        try:
            number = call(run.batch.ticket, first, first + n, run.chunk_ids, ids_from=first)
        except Exception as error:
            self._tell("a load" if job.is_load else "a comparison", error)
            if job.is_load:
                self._run_is_over(job, run, run.keys)
            else:
                self._run_ended(run, ())
            return
        self._begin(number, job, run)

    def ended(self):
        """Jobs of vLLM that have ended since the last call, each once."""
        if self._parts:
            self._collect()
        if self._parts and time.monotonic() - self._moved >= STALL_S:
            self._cancel([number for number, (_, run) in self._parts.items() if run is None or run.batch.closing])
        ended, self._ended = self._ended, []
        return ended

    def is_idle(self):
        return not self._parts and not self._ended

    def drain(self):
        """Wait until no copy touches the region. ended() reports what ended meanwhile."""
        until = time.monotonic() + STALL_S
        canceled = False
        while self._parts:
            self._collect()
            if not self._parts:
                return
            if not canceled and time.monotonic() >= until:
                canceled = True
                self._teller.warn("%d copies have not ended in %g s and are cancelled", len(self._parts), STALL_S)
                self._cancel(self._parts)
            self._faults.attempt(ready.wait, self._worker)

    def _cancel(self, numbers):
        for number in numbers:
            self._faults.attempt(self._worker.cancel, number)

    def clear(self, generation):
        self._worker.clear(generation)

    def reset(self, weights_version):
        self._worker.reset(weights_version)

    def close(self):
        """Waits for running copies; then nothing touches the region."""
        self._worker.close()

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _collect(self):
        try:
            ended = self._worker.poll()
        except Exception as error:
            self._faults.tell("asking for the ends of copies", error)
            self.stop()
            return
        for done in ended:
            part = self._parts.pop(done.job, None)
            if part is None:
                continue
            job, run = part
            job.parts -= 1
            job.bytes += done.bytes
            self._moved = time.monotonic()
            if run is not None and not job.is_load:
                self._run_ended(run, ())
                self._faults.attempt(self._compared, run, done)
                self._end_if_over(job)
                continue
            self._faults.attempt(self._count, "load" if job.is_load else "store", done)
            if run is not None:
                missing = set(done.missing.get(0, ()))
                self._run_is_over(job, run, [key for at, key in enumerate(run.keys) if at in missing])
            else:
                self._store_is_over(job, done)
            self._end_if_over(job)

    def _count(self, kind, done):
        self._counts[f"{kind}_bytes"] += done.bytes
        self._counts[f"{kind}_us"] += done.total_us
        self.took.add(f"{kind}_seconds", done.total_us / 1e6)
        if not done.ok:
            self._teller.warn("a %s ended with %s", kind, done.error)

    def stop(self):
        """If copies are under way, nothing is known of them any more. After close() none touches the region, and none is started."""
        if not self._parts:
            return
        logger.error("kvscout tier: this engine neither loads nor stores KV any more, because copies could not be waited for. Please report this")
        self._faults.attempt(self._worker.close)
        parts, self._parts = self._parts, {}
        for job, run in parts.values():
            job.ok = False
            job.parts -= 1
            if run is not None:
                self._run_is_over(job, run, run.keys)
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

    def _end_if_over(self, job):
        if not job.parts:
            self._end(job)

    def _end(self, job):
        seconds = time.monotonic() - job.begin
        self._ended.append(Ended(job.id, job.ok, tuple(job.keys), seconds, job.bytes))
