# SPDX-License-Identifier: Apache-2.0
"""The tier without vLLM: its lookups and transfers, a region of host memory as vLLM has one, and one step after the
other."""

import ctypes
import hashlib
import importlib
import logging
import sys
import types
from unittest import mock

import kvscout
from kvscout.vllm.faults import Faults
from kvscout.vllm.logs import Teller
from kvscout.vllm_tier.counts import new_counts
from kvscout.vllm_tier.keeps import Keeps
from kvscout.vllm_tier.keys import HASH_BYTES
from kvscout.vllm_tier.lookups import Lookups
from kvscout.vllm_tier.transfers import Transfers
from rig import wait_for
from vllm_rig import Calls, modules_of_vllm

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
        self.faults = faults = Faults(self.counts, "kvscout tier")
        self.lookups = Lookups(self.client, kvscout.KVScoutError, self.counts, teller, faults)
        self.transfers = Transfers(self.worker, kvscout.KVScoutError, self.counts, teller, self.lookups.run_ended, events, faults)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.region))
        self.transfers.register(address, ROW_BYTES, ROWS, "vllm-tier", "int8")
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


class Named:
    """A class of values of vLLM."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def modules_of_tiers():
    """vLLM's modules that tier.py imports."""
    found = modules_of_vllm()
    classes = {
        "vllm.v1.kv_offload.base": {name: Named for name in (
            "OffloadingCounterMetadata", "OffloadingEvent", "OffloadingGaugeMetadata", "OffloadingHistogramMetadata", "RequestOffloadingContext",
        )},
        "vllm.v1.kv_offload.tiering.base": {"JobResult": Named, "SecondaryTierManager": type("SecondaryTierManager", (), {})},
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": {"OffloadingConnectorStats": mock.Mock},
    }
    classes["vllm.v1.kv_offload.base"].update(
        Locality=Named(), LookupResult=Named(HIT="hit", MISS="miss", RETRY="retry"), Medium=Named(CPU="CPU", STORAGE="STORAGE")
    )
    for name, named in classes.items():
        for at in range(1, name.count(".") + 2):
            found.setdefault(".".join(name.split(".")[:at]), types.ModuleType(name))
        found[name].__dict__.update(named)
    found["vllm.v1.kv_offload"].base = found["vllm.v1.kv_offload.base"]
    return found


class Manager:
    """vLLM's manager of tiers as far as it concerns one: the order of the hooks, and what is asserted there."""

    def __init__(self, test, engine, watch, events, mismatches_make_inert=True):
        patch = mock.patch.dict(sys.modules, modules_of_tiers())
        patch.start()
        test.addCleanup(patch.stop)
        module = importlib.import_module("kvscout.vllm_tier.tier")
        keeps = Keeps(engine.lookups, engine.counts, engine.faults)
        self.calls = Calls(
            keeps=keeps, lookups=engine.lookups, transfers=engine.transfers, watch=watch, took=engine.lookups.took, times=engine.transfers.took, events=events
        )
        engine.lookups._client = client = self.calls.of("client", engine.client)
        engine.transfers._worker = self.calls.of("worker", engine.worker)
        self.engine, self.jobs = engine, {}
        own = self.tier = object.__new__(module.KVScoutTier)
        own._config, own._client, own._error, own._counts = Named(clears=True, mismatches_make_inert=mismatches_make_inert), client, kvscout.KVScoutError, engine.counts
        own._lookups, own._transfers, own._events, own._watch, own._keeps = engine.lookups, engine.transfers, events, watch, keeps
        own._teller = Teller(logging.getLogger("vllm.kvscout"))
        own._faults, own._is_out = engine.faults, False
        own._delta, own._weights_version = module.Delta(engine.counts), 0
        own._live, own._kept_out, own._before_reset, own._has_inputs = {}, set(), set(), False
        own._namespace, own._endpoint = "tier", ""
        engine.transfers._compared = own._compared

    def call(self, hook, *args):
        self.calls.hook = hook
        try:
            return getattr(self.tier, hook)(*args)
        finally:
            self.calls.hook = None

    def job(self, hook, request, keys, chunk_ids):
        number = self.engine.job()
        self.jobs[number] = Named(job_id=number, keys=keys, chunk_ids=chunk_ids, req_context=request)
        request._offload_key_positions.update((key, at) for at, key in enumerate(keys))
        if hook == "submit_store":
            self.engine.fill(keys, chunk_ids)
        self.call(hook, self.jobs[number])
        return number

    def ended(self, number):
        """The end of a job, once; None: not yet."""
        for result in self.call("get_finished_jobs"):
            job = self.jobs.pop(result.job_id)
            done = set(job.keys) if result.success else set(result.successful_keys or ())
            for key, chunk_id in zip(job.keys, job.chunk_ids, strict=True):
                assert key not in done or self.engine.row(chunk_id) == row_of(key), "a key that was copied has other bytes"
            job.result = result
            if result.job_id == number:
                return result
        return None

    def step(self, new=()):
        self.call("on_schedule_end", Named(new_req_ids=new))
        for hook in ("take_events", "get_stats", "has_pending_work"):
            self.call(hook)

    def wait(self, number):
        return wait_for(lambda: self.step() or self.ended(number), what=f"job {number}")

    def lookup(self, request, keys):
        """Keys that are there, as soon as all are known."""

        def known():
            found = [self.call("lookup", key, request) for key in keys]
            self.step()
            return None if "retry" in found else [[key for key, said in zip(keys, found) if said == "hit"]]

        return wait_for(known, what="answers")[0]

    def begin(self, name, *actions):
        """@actions of its kv_hints: (word, payload)."""
        hints = Named(actions=[Named(action_type=word, action_version="1.0", payload=payload) for word, payload in actions])
        request = Named(req_id=name, kv_hints=hints, _offload_key_positions={})
        assert self.call("on_new_request", request) is not None
        return request

    def load(self, name, keys, *actions):
        """A request's life. Returns how many of its keys were copied."""
        request, copied = self.begin(name, *actions), 0
        found = self.lookup(request, keys)
        self.call("touch", keys, request)
        if found:
            self.engine.wipe()
            result = self.wait(self.job("submit_load", request, found, list(range(len(found)))))
            copied = len(found) if result.success else len(result.successful_keys or ())
        self.step([name])
        self.wait(self.job("submit_store", request, keys, list(range(len(keys)))))
        self.call("on_request_finished", request)
        return copied

    def reset(self):
        self.call("drain_jobs")
        for number in list(self.jobs):
            self.ended(number)
        assert not self.jobs, "jobs have not ended after drain_jobs()"
