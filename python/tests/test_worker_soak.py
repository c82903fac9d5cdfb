# SPDX-License-Identifier: Apache-2.0
"""Random stores and retrieves against a server that is killed now and then, every byte compared.

usage: test_worker_soak.py [SECONDS [SEED]]     as a test: some seconds

Blocks that no job uses are blank; a job's blocks are looked at when poll() reports its end, or after a fence, when they must not change
any more. Requests finish, jobs are cancelled, and client and worker are made anew at random times.
"""

import collections
import logging
import random
import sys
import time
import unittest

import kvscout
from pages import BLOCKS, CHUNK_TOKENS, Pages, hashes_of
from rig import ServerProcess, wait_for

SECONDS = 6


class Soak:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.server = ServerProcess(l1_bytes="8Mi")  # less than all prompts together: chunks leave and come again
        self.pages = Pages(n=256, sizes=(700, 2048))
        self.free = list(range(self.pages.n))
        self.jobs = {}  # number: (kind, prompt, ids); ids is None after a fence
        self.counts = collections.Counter()
        self.requests = 0
        self.worker = self.client = None

    def open(self):
        self.worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS, max_jobs=64, connect_timeout_ms=50)
        self.client = kvscout.Client(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        self.pages.register(self.worker, timeout_ms=0)

    def close(self):
        if self.worker is None:
            return
        self.worker.close()
        self.client.close()
        for kind, prompt, ids in self.jobs.values():
            if ids is not None:  # not reported: only what a store did is known
                assert kind == "retrieve" or self.pages.holds(prompt, ids), ("store changed its pages", prompt, ids)
                self.release(ids)
        self.jobs.clear()

    def take(self, n):
        self.random.shuffle(self.free)
        ids, self.free = self.free[:n], self.free[n:]
        assert self.pages.is_blank(ids), ("a block without a job was written", ids)
        return ids

    def release(self, ids):
        for block in ids:
            for plane in range(len(self.pages.sizes)):
                self.pages.block(plane, block)[:] = bytes(self.pages.sizes[plane])
        self.free += ids

    def prompt(self):
        return f"prompt {self.random.randrange(120)}", self.random.randint(1, 8)

    # ---- what an engine does ----

    def store(self):
        prompt, n = self.prompt()
        if len(self.free) < n * BLOCKS:
            return
        ids = self.take(n * BLOCKS)
        self.pages.fill(prompt, ids)
        self.submit("store", prompt, ids, lambda: self.worker.store(0, hashes_of(prompt, n), ids, layers=self.random.choice((None, 2))))

    def retrieve(self):
        prompt, n = self.prompt()
        self.requests += 1
        id = f"request {self.requests}"
        hit = self.client.wait_lookup(id, hashes_of(prompt, n), n * CHUNK_TOKENS + 1)
        self.counts["lookups"] += 1
        if hit.tokens and len(self.free) >= hit.chunks * BLOCKS:
            if self.random.random() < 0.9:
                self.client.admit(id)
            ids = self.take(hit.chunks * BLOCKS)
            self.submit("retrieve", prompt, ids, lambda: self.worker.retrieve(hit.ticket, 0, hit.tokens, ids))
        if self.random.random() < 0.9:
            self.client.finish(id)

    def submit(self, kind, prompt, ids, call):
        try:
            self.jobs[call()] = kind, prompt, ids
            self.counts[kind + "s"] += 1
        except kvscout.BusyError:
            self.counts["busy"] += 1
            self.release(ids)

    def cancel(self):
        if self.jobs:
            self.worker.cancel(self.random.choice(list(self.jobs)))
            self.counts["cancels"] += 1

    def fence(self):
        live = [job for job, (_, _, ids) in self.jobs.items() if ids is not None]
        if live:
            job = self.random.choice(live)
            kind, prompt, ids = self.jobs[job]
            self.worker.fence(ids)
            self.counts["fences"] += 1
            self.jobs[job] = kind, prompt, None
            self.release(ids)  # from here on a write into them is found by take()

    def poll(self):
        for done in self.worker.poll(self.random.choice((1, 7, 4096))):
            kind, prompt, ids = self.jobs.pop(done.job)
            assert done.kind == kind and (done.ok or done.error.code == done.status), done
            self.counts[f"{kind}: {kvscout.error_name(done.status)}"] += 1
            if ids is None:
                continue
            if kind == "store":
                assert self.pages.holds(prompt, ids), ("store changed its pages", done)
            else:
                assert not done.ok or not done.missing, done
                missing = set(done.missing.get(0, ()))
                for position, block in enumerate(ids):
                    if position not in missing:
                        assert self.pages.holds(prompt, [block], first=position), ("wrong bytes", done, position)
                        self.counts["compared"] += sum(self.pages.sizes)
            self.release(ids)

    # ---- what else happens ----

    def kill(self):
        self.server.kill()
        self.server.start()
        self.counts["kills"] += 1

    def anew(self):
        self.close()
        self.open()
        self.counts["anew"] += 1

    def run(self, seconds):
        calls = [self.store, self.retrieve, self.poll, self.cancel, self.fence, self.kill, self.anew]
        weights = [100, 120, 300, 8, 8, 0.25, 0.25]
        self.open()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self.random.choices(calls, weights)[0]()
            wait_for(lambda: self.poll() or not self.jobs, what="the last jobs")
            assert sorted(self.free) == list(range(self.pages.n))
            self.take(self.pages.n)
        finally:
            self.close()
            self.server.stop()
        return self.counts


class SoakTest(unittest.TestCase):
    def test_every_byte_that_a_retrieve_reports_is_right(self):
        logger = logging.getLogger("kvscout")
        logger.setLevel(logging.CRITICAL)  # a killed server is worth many lines
        self.addCleanup(logger.setLevel, logging.NOTSET)
        seed = random.randrange(1 << 30)
        print(f"# seed {seed}", flush=True)
        counts = Soak(seed).run(SECONDS)
        print("# " + ", ".join(f"{name} {n}" for name, n in sorted(counts.items())), flush=True)
        self.assertGreater(counts["compared"], 0)
        self.assertGreater(counts["store: SCOUT_OK"], 0)


if __name__ == "__main__":
    logging.getLogger("kvscout").setLevel(logging.CRITICAL)
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {chosen}", flush=True)
    for name, n in sorted(Soak(chosen).run(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS).items()):
        print(f"{n:>12} {name}")
