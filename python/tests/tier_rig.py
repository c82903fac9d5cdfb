# SPDX-License-Identifier: Apache-2.0
"""The tier without vLLM: its lookups and transfers, a region of host memory as vLLM has one, and one step after the
other."""

import ctypes
import hashlib
import logging

import kvscout
from kvscout.vllm_tier.counts import Teller, new_counts
from kvscout.vllm_tier.keys import HASH_BYTES
from kvscout.vllm_tier.lookups import Lookups
from kvscout.vllm_tier.transfers import Transfers
from rig import wait_for

ROW_BYTES = 8192
ROWS = 64


def key_of(prompt, chunk, group=0):
    """An OffloadKey as vLLM makes it: the block's hash, and the group as a big-endian u32."""
    return hashlib.sha256(f"{prompt}/{chunk}".encode()).digest() + group.to_bytes(4, "big")


def keys_of(prompt, n, group=0):
    return [key_of(prompt, chunk, group) for chunk in range(n)]


def row_of(key):
    return hashlib.shake_128(key).digest(ROW_BYTES)


class Engine:
    """What of the tier needs no vLLM, with a region of its own. Job numbers and request ids are this engine's."""

    def __init__(self, test, endpoint, namespace="tier", events=None, **config):
        self.region = bytearray(ROWS * ROW_BYTES)
        common = {"endpoint": endpoint, "namespace": namespace, "chunk_tokens": 1, "hash_bytes": HASH_BYTES, **config}
        self.client = kvscout.Client(**{"lookup_timeout_ms": 60000, **common})
        test.addCleanup(self.client.close)
        self.worker = kvscout.Worker(**common, backend="host")
        test.addCleanup(self.worker.close)
        self.counts = new_counts()
        teller = Teller(logging.getLogger("vllm.kvscout"))
        self.lookups = Lookups(self.client, kvscout.KVScoutError, self.counts, teller)
        self.transfers = Transfers(self.worker, kvscout.KVScoutError, self.counts, teller, self.lookups.run_ended, events)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.region))
        self.transfers.register(address, ROW_BYTES, ROWS, "vllm-tier")
        self.next_job = 0
        self.client.wait_ready(60000)

    def row(self, chunk_id):
        return bytes(self.region[chunk_id * ROW_BYTES : (chunk_id + 1) * ROW_BYTES])

    def fill(self, keys, chunk_ids):
        for key, chunk_id in zip(keys, chunk_ids, strict=True):
            self.region[chunk_id * ROW_BYTES : (chunk_id + 1) * ROW_BYTES] = row_of(key)

    def wipe(self):
        self.region[:] = bytes(len(self.region))

    # ---- steps ------------------------------------------------------------------------------------------------------

    def ask(self, request, keys):
        """One pass of vLLM over keys: {key: True, False or None}, without a stop at the first missing one."""
        return {key: self.lookups.lookup(request, key) for key in keys}

    def known(self, request, keys):
        """Steps until all keys are known."""

        def step():
            found = self.ask(request, keys)
            self.lookups.flush()
            return found if None not in found.values() else None

        return wait_for(step, what="answers")

    def prefix(self, request, keys):
        """vLLM's lookup of a prefix: it goes on behind a key that is not known yet, and stops at a missing one."""

        def step():
            hits, deferred = 0, False
            for key in keys:
                found = self.lookups.lookup(request, key)
                if found is False:
                    break
                hits += found is True
                deferred |= found is None
            self.lookups.flush()
            return None if deferred else [hits]

        return wait_for(step, what="a prefix")[0]

    def job(self):
        self.next_job += 1
        return self.next_job

    def end_of(self, job):
        """Polls as vLLM does; no other job may be under way."""
        ended = wait_for(self.transfers.ended, what=f"job {job}")
        assert [end.job_id for end in ended] == [job], ended
        return ended[0]

    def store(self, keys, chunk_ids=None):
        chunk_ids = list(range(len(keys))) if chunk_ids is None else chunk_ids
        self.fill(keys, chunk_ids)
        return self.store_again(keys, chunk_ids)

    def store_again(self, keys, chunk_ids):
        job = self.job()
        self.transfers.store(job, keys, chunk_ids)
        return self.end_of(job)

    def start_load(self, request, keys, chunk_ids):
        job = self.job()
        self.transfers.load(job, *self.lookups.runs(request, keys, chunk_ids))
        return job

    def load(self, request, keys, chunk_ids=None):
        chunk_ids = list(range(len(keys))) if chunk_ids is None else chunk_ids
        return self.end_of(self.start_load(request, keys, chunk_ids))

    def holds(self, keys, chunk_ids=None):
        chunk_ids = range(len(keys)) if chunk_ids is None else chunk_ids
        return all(self.row(chunk_id) == row_of(key) for key, chunk_id in zip(keys, chunk_ids, strict=True))

    def clear(self):
        """What a reset of vLLM's connector does."""
        self.transfers.drain()
        self.transfers.clear(self.client.clear())
        self.lookups.forget_all()

    def reset(self, weights_version):
        """The same with a weights_version."""
        self.transfers.drain()
        self.client.reset(weights_version)
        self.transfers.reset(weights_version)
        self.lookups.forget_all()
