# SPDX-License-Identifier: Apache-2.0
"""Pages of one of SGLang's host pools in kvscout's: which are there, loads and stores. Everything here has a deadline and returns what
became of each page; a server that is away, full or frozen is a page that is not there.

SGLang asks from three threads: queries, loads and stores. Client and Worker have one caller at a time, so queries and loads
share a client under a lock, and loads and stores have a worker each. One token of kvscout's is one page.
"""

import collections
import contextlib
import itertools
import logging
import threading

from .._clears import what_is_missing
from ..vllm import ready
from ..vllm.logs import Teller
from ..vllm_tier.lookups import KEY_HIT, MAX_KEYS
from .policies import run_of

logger = logging.getLogger("kvscout")

HASH_BYTES = 32
TRANSFER_TIMEOUT_MS = 2000  # of a worker, if the user gave none: what a rank waits for, all ranks of the engine wait for
MAX_MOVES = 1000  # that SGLang has not asked for
NAMES = ("queries", "query_pages", "hit_pages", "loads", "loaded_pages", "failed_pages", "stores", "stored_pages", "present_pages",
         "unstored_pages", "errors", "clears")


def hashes_of(keys):
    """SGLang's keys, 64 hex digits each, as the library takes them."""
    return b"".join([bytes.fromhex(key) for key in keys])


class Pages:
    """@common, @client_keys, @worker_keys: keys of Client and Worker. @planes, @n_pages: of planes.py; the memory outlives this object.
    Waits at most @timeout_ms for the server, for each of three connections; KVScoutError: there is none, or it refuses."""

    def __init__(self, common, client_keys, worker_keys, planes, n_pages, timeout_ms):
        import kvscout

        self._error, self._newest = kvscout.KVScoutError, kvscout.GENERATION_NEWEST
        worker_keys = {"transfer_timeout_ms": TRANSFER_TIMEOUT_MS, **worker_keys}
        self.counts = dict.fromkeys(NAMES, 0)
        # Copies since SGLang asked last: pages of a job, and its GB/s.
        self.loads, self.stores = collections.deque(maxlen=MAX_MOVES), collections.deque(maxlen=MAX_MOVES)
        self._teller = Teller(logger, name="kvscout: SGLang")
        self._ids = itertools.count(1)
        self._client_turn, self._load_turn, self._store_turn = (threading.Lock() for _ in range(3))
        with contextlib.ExitStack() as opened:
            self._client = opened.enter_context(kvscout.Client(**common, **client_keys))
            self._workers = [opened.enter_context(kvscout.Worker(**common, **worker_keys, backend="host")) for _ in range(2)]
            # Both wait: a server that is away or refuses these pages ends the start, and not the first request.
            self._client.wait_ready(timeout_ms)
            for worker in self._workers:
                worker.register(planes, 1, n_blocks=n_pages, layout_tag="sglang", timeout_ms=timeout_ms)
            self._opened = opened.pop_all()

    def leading(self, keys):
        """How many of the leading @keys are there."""
        return run_of(self.states(keys, only_leading=True), True)

    def states(self, keys, only_leading=False):
        """Of each of @keys whether it is there; with @only_leading it may end early, after one that is not."""
        found = []
        self.counts["queries"] += 1
        self.counts["query_pages"] += len(keys)
        for first in range(0, len(keys), MAX_KEYS):
            part = keys[first : first + MAX_KEYS]
            with self._asked(part) as answer:
                found += [state == KEY_HIT for state in answer.states] if answer is not None else [False] * len(part)
            if only_leading and not found[-1]:
                break
        self.counts["hit_pages"] += sum(found)
        return found

    def load(self, keys, pages):
        """Copies @keys to @pages; True for each that was copied. A page whose copy may still run is never reported."""
        done = [False] * len(keys)
        self.counts["loads"] += 1
        with self._load_turn, self._asked(keys) as answer:
            hits = run_of(answer.states, KEY_HIT) if answer is not None else 0
            if hits:
                end = self._run(0, lambda worker: worker.retrieve(answer.ticket, 0, hits, pages[:hits]))
                if end is not None:
                    missing = set(end.missing.get(0, ())) if end.missing else set() if end.ok else set(range(hits))
                    done[:hits] = [at not in missing for at in range(hits)]
                    _moved(self.loads, sum(done), end)
        self.counts["loaded_pages"] += sum(done)
        self.counts["failed_pages"] += len(done) - sum(done)
        return done

    def store(self, keys, pages):
        """Whether all @pages are there under their @keys now."""
        self.counts["stores"] += 1
        with self._store_turn:
            end = self._run(1, lambda worker: worker.store(0, hashes_of(keys), pages))
        ok = end is not None and end.ok and not end.no_room
        if end is not None:
            self.counts["stored_pages"] += end.chunks
            self.counts["present_pages"] += end.present
            _moved(self.stores, len(keys) - end.present - end.no_room, end)
        self.counts["unstored_pages"] += 0 if ok else len(keys)
        return ok

    def clear(self):
        """Drops what is cached in this namespace; "", or where not."""
        with self._client_turn, self._load_turn, self._store_turn:
            generation = self._client.clear()
            for worker in self._workers:
                worker.clear(generation)
            missing = what_is_missing(self._client)
        self.counts["clears"] += 1
        return missing

    def close(self):
        """Waits for copies that run; then nothing touches SGLang's pool."""
        self._opened.close()

    # ---- one question, one job --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asked(self, keys):
        """The answer, or None; what it promises is given back at the end."""
        id = f"p{next(self._ids)}"
        answer = None
        try:
            with self._client_turn:
                answer = self._client.wait_lookup_keys(id, hashes_of(keys))
        except self._error as error:
            self._failed("a lookup of %d pages: %s", len(keys), error)
        try:
            yield answer
        finally:
            with contextlib.suppress(self._error), self._client_turn:
                self._client.finish(id)

    def _run(self, which, start):
        """The end of a job, or None."""
        worker = self._workers[which]
        end = self._once(worker, start)
        if end is not None and not end.ok and end.error.name == "SCOUT_ERR_CLEARED":
            # Another rank or engine has cleared the namespace. Its weights are this engine's, or it would not have it.
            worker.clear(self._newest)
            end = self._once(worker, start)
        if end is not None and not end.ok:
            self._failed("a copy ended with %s", end.error)
        return end

    def _once(self, worker, start):
        try:
            job = start(worker)
            # It ends: what has not begun by transfer_timeout_ms, and what has begun needs no server. While it runs, SGLang must not
            # have the page.
            while True:
                for end in worker.poll():
                    if end.job == job:
                        return end
                ready.wait(worker)
        except self._error as error:
            self._failed("a copy could not be started: %s", error)
            return None

    def _failed(self, text, *args):
        self.counts["errors"] += 1
        self._teller.warn(text, *args)


def _moved(moves, pages, end):
    if end.bytes:
        moves.append((pages, end.bytes / 1e3 / max(end.total_us, 1)))
