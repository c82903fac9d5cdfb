# SPDX-License-Identifier: Apache-2.0
"""The tier behind vLLM's own tiering manager and its own region of host memory, without an engine: this file is the
scheduler that asks, and the GPU whose KV is compared byte for byte. Needs no reference and no model, and runs with any
vLLM that can be imported."""

import contextlib
import dataclasses
import hashlib
import os
import random
import re
import time
import uuid
from types import SimpleNamespace
from unittest import mock

import numpy
from checks import need

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS_BYTES = 6000  # of a block; vLLM pads its rows to whole pages
PAGE = 4096
CHUNKS = 48  # of vLLM's region: far fewer than the prompts of a case have, so that most hits come from the tier
GROUPS = 2
WINDOW = 3  # chunks, of the second group of a hybrid
DEADLINE_S = 60


def config(endpoint, engine_id, extra=None, groups=GROUPS, events=False):
    from vllm.v1.kv_offload import config as theirs

    row = -(-LAYERS_BYTES // PAGE) * PAGE
    tier = {"type": "KVScoutTier", "module_path": "kvscout.vllm_tier", "namespace": "manager", "endpoint": endpoint, "verify_sample": 0}
    tier.update(extra or {})
    return theirs.OffloadingConfig(
        groups=tuple(
            theirs.OffloadingGroupConfig(tokens_per_block=16, layer_names=(f"layer{group}",), group_id=group)
            for group in range(groups)
        ),
        worker_kv_bytes_per_block=LAYERS_BYTES,
        enable_kv_cache_events=events,
        extra_config={"cpu_bytes_to_use": CHUNKS * row, "secondary_tiers": [tier]},
        engine_id=engine_id,
        model=theirs.OffloadingModelConfig(name="model", dtype="float32"),
        cache=theirs.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=theirs.OffloadingParallelConfig(
            rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
            data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=False,
        ),
    )


def row_of(key):
    return hashlib.shake_128(key).digest(LAYERS_BYTES)


@dataclasses.dataclass
class ModelConfig:
    """What the tier reads of an engine that is not there."""

    model: str = HERE
    max_model_len: int = 4096

    def try_get_generation_config(self):
        return {}


def engine_of(caches=True, **model):
    """vLLM's configuration."""
    from vllm.config import CacheConfig, LoadConfig

    own, cache = ModelConfig(), CacheConfig(enable_prefix_caching=caches)
    vars(own).update(model)
    parallel = SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1)
    return SimpleNamespace(model_config=own, load_config=LoadConfig(), cache_config=cache, parallel_config=parallel)


def layer(kind="FullAttentionSpec", **more):
    import torch
    from vllm.v1 import kv_cache_interface as kv

    return getattr(kv, kind)(block_size=16, num_kv_heads=2, head_size=8, dtype=torch.float32, **more)


class Manager:
    """vLLM's TieringOffloadingManager, and what its scheduler does with it. Counts what it compares."""

    def __init__(self, endpoint, extra=None, events=False, engine=None, layers=()):
        """@engine: vLLM's configuration. @layers: specs of its KV cache groups."""
        from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

        vllm_config = engine or engine_of()  # noqa: F841 (the tier finds these here, as in vLLM's connector)
        theirs = [SimpleNamespace(kv_cache_spec=spec, layer_names=()) for spec in layers or [layer()] * GROUPS]
        kv_cache_config = SimpleNamespace(kv_cache_groups=theirs)  # noqa: F841
        self.spec = TieringOffloadingSpec(config(endpoint, f"kvscout-{uuid.uuid4().hex}", extra, events=events))
        self.manager = self.spec.get_manager()
        (self.tier,) = self.manager.secondary_tiers
        self.view = numpy.frombuffer(self.manager.primary_tier.get_kv_memoryview(), dtype=numpy.uint8)
        self.view = self.view.reshape(-1, self.tier.block_size_bytes)
        self.requests = self.hits = self.compared = self.differ = 0
        self.announced = set()  # keys of the tier
        self._new = []
        self._n = 0

    def locked(self):
        return getattr(self.manager, "lock", None) or contextlib.nullcontext()

    def step(self):
        from vllm.v1.kv_offload.base import ScheduleEndContext

        with self.locked():
            new, self._new = self._new, []
            self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=new, preempted_req_ids=()))

    def take_events(self):
        """What vLLM asks for at the end of a step."""
        from vllm.v1.kv_offload.base import Medium

        for event in self.manager.take_events():
            if event.medium is Medium.STORAGE:
                (self.announced.difference_update if event.removed else self.announced.update)(event.keys)

    def found(self, keys):
        """Those of @keys, few enough to be promised at once, that the tier has."""
        from vllm.v1.kv_offload.base import LookupResult, ReqContext

        context = ReqContext(req_id="found")
        with self.locked():
            self.tier.on_new_request(context)
        states = {}
        while LookupResult.RETRY in states.values() or not states:
            with self.locked():
                states = {key: self.tier.lookup(key, context) for key in keys}
            self.step()
        with self.locked():
            self.tier.on_request_finished(context)
        return {key for key, state in states.items() if state is LookupResult.HIT}

    def settle(self):
        """Steps until no copy is under way; what vLLM waits for at the end of a run."""
        end = time.monotonic() + DEADLINE_S
        while self.manager.has_pending_work():
            self.step()
            need(time.monotonic() < end, f"after {DEADLINE_S} s copies are still under way")

    def keys(self, prompt, n):
        from vllm.v1.kv_offload.base import make_offload_key

        blocks = [hashlib.sha256(f"{prompt}/{at}".encode()).digest() for at in range(n)]
        return [[make_offload_key(block, group) for block in blocks] for group in range(GROUPS)]

    def _hits(self, keys, context):
        """As vLLM's scheduler looks for a prefix: leading chunks that are readable; None: ask again in the next
        step."""
        from vllm.v1.kv_offload.base import LookupResult

        hits, deferred = 0, False
        for key in keys:
            found = self.manager.lookup(key, context)
            if found is LookupResult.MISS:
                break
            hits += found is not LookupResult.RETRY
            deferred |= found is not LookupResult.HIT
        return None if deferred else hits

    def _window(self, keys, context):
        """As vLLM's scheduler looks for a window: from the end, the last run of WINDOW readable chunks, or all down to
        the first chunk. How many leading chunks that restores; None: ask again."""
        from vllm.v1.kv_offload.base import LookupResult

        run, deferred = 0, False
        for at in range(len(keys) - 1, -1, -1):
            found = self.manager.lookup(keys[at], context)
            deferred |= found in (LookupResult.RETRY, LookupResult.HIT_PENDING)
            run = run + 1 if found in (LookupResult.HIT, LookupResult.HIT_PENDING) else 0
            if run == WINDOW:
                return None if deferred else at + WINDOW
        return None if deferred else run

    def hybrid_request(self, prompt, n):
        """As request(), where the second group has a window: its last chunks are loaded and stored, and no others."""
        from vllm.v1.kv_offload.base import ReqContext

        self._n += 1
        context = ReqContext(req_id=f"r{self._n}")
        self.requests += 1
        with self.locked():
            self.manager.on_new_request(context)
        full, window = self.keys(prompt, n)
        end = time.monotonic() + DEADLINE_S
        while True:
            with self.locked():
                hits = self._hits(full, context)
                hits = self._window(window[:hits], context) if hits else hits
                if hits is not None:
                    self._load(full[:hits] + window[max(0, hits - WINDOW) : hits], context)
                    break
            self.step()
            need(time.monotonic() < end, f"request {context.req_id} has waited {DEADLINE_S} s for its lookups")
        self._new.append(context.req_id)
        with self.locked():
            self._store(full[hits:] + window[max(hits, n - WINDOW) :], context)
            self.manager.on_request_finished(context)
        self.step()
        self.settle()
        self.hits += hits
        return hits

    def request(self, prompt, n, image=None):
        """One request of @n chunks: load what there is, compare it, "compute" the rest, store it. Returns the hits. @image: its
        identifier."""
        from vllm.v1.kv_offload.base import ReqContext

        self._n += 1
        context = ReqContext(req_id=f"r{self._n}")
        self.requests += 1
        if image is not None:  # vLLM's scheduler has a variable of this name, too
            request = SimpleNamespace(  # noqa: F841
                request_id=context.req_id, lora_request=None, mm_features=[SimpleNamespace(identifier=image)]
            )
        with self.locked():
            self.manager.on_new_request(context)
        groups = self.keys(prompt, n)
        end = time.monotonic() + DEADLINE_S
        while True:
            with self.locked():
                found = [self._hits(keys, context) for keys in groups]
                if None not in found:
                    hits = min(found)  # a token needs the KV of all groups
                    self._load([key for keys in groups for key in keys[:hits]], context)
                    break
            self.step()
            need(time.monotonic() < end, f"request {context.req_id} has waited {DEADLINE_S} s for its lookups")
        self._new.append(context.req_id)
        with self.locked():
            self._store([key for keys in groups for key in keys[hits:]], context)
            self.manager.on_request_finished(context)
        self.step()
        self.hits += hits * GROUPS
        return hits

    def _load(self, keys, context):
        if not keys:
            return
        spec = self.manager.prepare_load(keys, context)
        for key, chunk in zip(keys, spec.block_ids, strict=True):
            self.compared += 1
            self.differ += self.view[int(chunk), :LAYERS_BYTES].tobytes() != row_of(key)
        self.manager.complete_load(keys, context)

    def _store(self, keys, context):
        output = self.manager.prepare_store(keys, context) if keys else None
        if output is None or not output.keys_to_store:
            return  # vLLM's region is full of chunks that are being copied
        for key, chunk in zip(output.keys_to_store, output.store_spec.block_ids, strict=True):
            self.view[int(chunk), :LAYERS_BYTES] = numpy.frombuffer(row_of(key), dtype=numpy.uint8)
        self.manager.complete_store(output.keys_to_store, context)

    def reset(self):
        self.settle()
        with self.locked():
            self.manager.reset_cache()
            if hasattr(self.manager, "on_reset_flushed"):
                self.manager.on_reset_flushed()

    def same(self):
        need(self.differ == 0, f"{self.differ} of {self.compared} loaded chunks differ")
        return f"{self.requests} requests, {self.hits} hits, {self.compared} chunks compared, 0 differ"

    def close(self):
        self.settle()
        self.view = None  # vLLM releases its memory
        self.manager.shutdown()


def one_after_the_other(server):
    """More prompts than vLLM's region holds: the second round is served by the tier."""
    made = Manager(server.endpoint)
    try:
        for prompt in range(12):
            need(made.request(f"one/{prompt}", 8) == 0, "a prompt that was never stored has hits")
            made.settle()
        before = made.tier._counts["loaded_chunks"]
        for prompt in range(12):
            need(made.request(f"one/{prompt}", 8) == 8, f"prompt {prompt} was not found again")
            made.settle()
        loaded = made.tier._counts["loaded_chunks"] - before
        need(loaded >= 12 * 8 * GROUPS - CHUNKS, f"only {loaded} chunks came from the tier")
        return f"{made.same()}; {loaded} from the tier"
    finally:
        made.close()


def stats_have_definitions(server):
    """vLLM asserts that each metric of a tier was defined, and publishes labels that the tier declares."""
    from kvscout.vllm_tier import KVScoutTier

    made = Manager(server.endpoint)
    try:
        made.request("stats", 4)
        made.settle()
        made.request("stats", 4)
        reduced = made.manager.get_stats().reduce()
        ours = {name: value for name, value in reduced.items() if name.startswith("vllm:kvscout_tier_")}
        defined = KVScoutTier.build_metric_definitions({})
        names = {re.sub("_(count|sum)$", "", name) for name in ours}  # of a histogram, reduce() makes these two
        need(names <= set(defined), f"not defined: {sorted(names - set(defined))}")
        need(ours.get("vllm:kvscout_tier_stored_chunks") == 4 * GROUPS, f"stored chunks are counted as {ours}")
        again = made.tier.get_stats()
        need(again is None, f"the second reading has {again and again.reduce()}")
        labels = set(KVScoutTier.config_info_keys({}))
        need(set(made.tier.config_info()) == labels, "labels are not those that are declared")
        return f"{len(ours)} counters"
    finally:
        made.close()


def images_that_vllm_has_not_hashed(server):
    """They stay out; and so does each request of a model with images if the tier does not find vLLM's request."""
    made = Manager(server.endpoint)
    made.tier._has_inputs = True
    counts, stored = made.tier._counts, []
    try:
        for at, image in enumerate(("a" * 64, "holiday.jpg", None)):
            for _ in range(2):
                made.request(f"image/{at}", 4, image)
                made.settle()
                made.manager.primary_tier.reset_cache()
            stored.append((counts["stored_chunks"], counts["lookup_keys"], counts["loaded_chunks"]))
        need(stored[0][0] == stored[0][2] == 4 * GROUPS and stored[0][1] > 0, f"a hashed image: {stored[0]} chunks")
        need(stored[0] == stored[1] == stored[2], f"without a hash of vLLM's: {stored}")
        return made.same()
    finally:
        made.close()


def where_vllm_reuses_nothing_the_tier_keeps_nothing(server):
    """It answers vLLM's manager as an empty tier. No key allows what vLLM cannot tell a tier of requests."""
    from kvscout.vllm_tier import KVScoutTier

    trust = {"without_prefix_cache": "trust"}
    mean = {"runner_type": "pooling", "pooler_config": SimpleNamespace(seq_pooling_type="MEAN", tok_pooling_type="ALL")}
    counted = {"multimodal_config": SimpleNamespace(mm_processor_cache_gb=0)}
    labels = set(KVScoutTier.config_info_keys({}))
    for engine, extra, keeps in (
        (engine_of(False), {}, False), (engine_of(False), trust, True), (engine_of(**mean), {}, False), (engine_of(False, **counted), trust, False),
    ):
        made = Manager(server.endpoint, {**extra, "namespace": f"inert/{time.monotonic_ns()}"}, engine=engine)
        try:
            for prompt in range(12):
                made.request(f"inert/{prompt}", 8)
                made.settle()
            hits = made.request("inert/0", 8)
            need(hits == (8 if keeps else 0), f"{hits} chunks are found with {extra} and {vars(engine.model_config)}")
            need((made.tier.get_stats() is not None) == keeps and set(made.tier.config_info()) == labels, "what it tells vLLM")
            made.same()
        finally:
            made.close()


def layers_that_no_engine_reuses_are_refused(server):
    for spec, sentence in (
        (layer(non_causal=True), "does not serve layers with non_causal,"),
        (layer("RSWASpec", rswa_window=64), "KV of another kind (RSWASpec)"),
    ):
        try:
            Manager(server.endpoint, {"without_prefix_cache": "trust"}, layers=(layer(), spec)).close()
        except ValueError as error:
            need(sentence in str(error), f"another sentence than {sentence!r}: {error}")
        else:
            need(False, f"a tier starts with {spec}")


def vllm_detects_its_pressure(server):
    """The detector that vLLM makes reaches vLLM's base class, whatever its place among the parameters."""
    from vllm.v1.kv_offload.tiering import base

    theirs = base.SecondaryTierManager.__init__

    def another(self, offloading_spec, primary_kv_view, tier_type, new=None, backpressure_detector=None):
        need(new is None, "the detector is taken for a parameter of another vLLM")
        theirs(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector)

    for init in (theirs, another):
        with mock.patch.object(base.SecondaryTierManager, "__init__", init):
            made = Manager(server.endpoint, {"backpressure": {"backpressure_cls": "EMABackpressureDetector"}})
        try:
            need(made.tier.bp_detector is not None, "the tier has no detector")
            made.request("pressure", 8)
            made.settle()
        finally:
            made.close()


def a_window_beside_full_attention(server):
    """A hybrid model: a prompt is restored where the first group has all chunks and the second one the last ones."""
    made = Manager(server.endpoint)
    try:
        need(made.hybrid_request("window", 10) == 0, "a prompt that was never stored has hits")
        need(made.hybrid_request("window", 10) == 10, "the same prompt is not restored")
        for prompt in range(8):
            made.hybrid_request(f"window/other/{prompt}", 6)  # vLLM's region forgets
        asked = made.tier._counts["lookup_keys"]
        need(made.hybrid_request("window", 14) == 10, "a longer prompt is not restored to the end of the shorter one")
        need(made.tier._counts["lookup_keys"] > asked, "nothing was asked of the tier")
        for prompt in range(8):
            made.hybrid_request(f"window/more/{prompt}", 6)
        need(made.hybrid_request("window", 8) == 0, "a prompt is restored whose window was never stored")
        return made.same()
    finally:
        made.close()


def two_engines(server):
    """The second engine has stored nothing and loads what the first one has."""
    first, second = Manager(server.endpoint), Manager(server.endpoint)
    try:
        for prompt in range(4):
            first.request(f"two/{prompt}", 6)
        first.settle()
        for prompt in range(4):
            need(second.request(f"two/{prompt}", 6) == 6, "the second engine does not find what the first one stored")
        return second.same()
    finally:
        first.close()
        second.close()


def _reaches_the_server(engine):
    """An engine that the server hears of after a reset is one of after it."""
    engine.request("reset/first", 1)
    engine.settle()


def a_reset_is_for_all(server):
    """After a reset of the first engine its old chunks are gone, and the second one stores nothing until its own
    reset."""
    first, second = Manager(server.endpoint), Manager(server.endpoint)
    try:
        _reaches_the_server(second)
        first.request("reset/old", 6)
        first.reset()
        need(first.request("reset/old", 6) == 0, "a chunk is found after the reset")
        second.request("reset/stale", 6)
        second.settle()
        need(first.request("reset/stale", 6) == 0, "an engine with older weights stored into the new cache")
        second.reset()
        need(second.request("reset/new", 6) == 0, "a chunk is found that was never stored")
        second.settle()
        third = Manager(server.endpoint)
        try:
            need(third.request("reset/new", 6) == 6, "after its own reset the second engine stores nothing")
        finally:
            third.close()
        return first.same()
    finally:
        first.close()
        second.close()


def numbered_resets(server):
    """With a weights_version both engines reset, and share again."""
    extra = {"weights_version": 1, "namespace": "numbers"}
    first, second = Manager(server.endpoint, extra), Manager(server.endpoint, extra)
    try:
        _reaches_the_server(second)
        first.request("numbered/old", 6)
        first.reset()
        need(first.request("numbered/old", 6) == 0, "a chunk is found after the reset")
        first.settle()
        second.request("numbered/stale", 6)
        second.settle()
        need(first.request("numbered/stale", 6) == 0, "an engine with older weights stored into the new cache")
        first.settle()
        second.reset()
        found = second.request("numbered/old", 6)
        need(found == 6, f"after its own reset the second engine finds {found} of the first one's 6 chunks")
        return second.same()
    finally:
        first.close()
        second.close()


def _random_requests(made, draw, n, event=None):
    for at in range(n):
        if event is not None:
            event(at)
        prompt = f"random/{draw.randrange(24)}"
        made.request(prompt, 1 + draw.randrange(8))
    made.settle()


def small_pool(server):
    """The pool holds a quarter of what is stored, so it evicts all the time."""
    draw, made = random.Random("small"), Manager(server.endpoint)
    try:
        _random_requests(made, draw, 400)
        counts = made.tier._counts
        need(made.hits > 0, "nothing was ever found")
        stored = counts["stored_chunks"]
        need(stored > 256, f"only {stored} chunks were stored, so nothing was evicted")
        return f"{made.same()}; {stored} chunks stored"
    finally:
        made.close()


def events_of_two_engines(server):
    """Each announces what it finds, whichever of them stored it, while the pool evicts."""
    draw, both = random.Random("events"), [Manager(server.endpoint, events=True) for _ in range(2)]
    try:
        asked = [key for at in range(24) for keys in both[0].keys(f"random/{at}", 8) for key in keys]
        for made in both:
            _random_requests(made, draw, 200, lambda at: [each.take_events() for each in both])
        most = 0
        for made in both:
            found = {key for first in range(0, len(asked), 16) for key in made.found(asked[first : first + 16])}
            end = time.monotonic() + DEADLINE_S
            while made.announced != found:
                made.step()
                made.take_events()
                need(time.monotonic() < end, f"{len(made.announced)} keys are announced, and {len(found)} found")
            most = max(most, len(found))
        need(0 < most < len(asked), f"{most} of {len(asked)} keys were found")
        return f"{most} of {len(asked)} keys are found and announced; {both[0].same()}"
    finally:
        for made in both:
            made.close()


def servers_that_die(server):
    """kill -9, restart and freezes at random moments, also while copies run."""
    draw, made = random.Random("kills"), Manager(server.endpoint)
    kills = freezes = 0

    def event(at):
        nonlocal kills, freezes
        if at % 40 == 20:
            server.kill()
            kills += 1
        elif at % 40 == 30:
            server.start()
        elif at % 40 == 5:
            server.freeze()
            freezes += 1
        elif at % 40 == 8:
            server.thaw()

    try:
        _random_requests(made, draw, 1000, event)
        if not server.runs:
            server.start()
        need(made.hits > 0, "nothing was ever found")
        note = made.same()
        made.reset()
        server.wait_until(lambda found: found.get("sessions", 0) == 0)
        return f"{note}; {kills} kills, {freezes} freezes"
    finally:
        made.close()


def nothing_stays(server):
    """When engines have gone, the server has no session, and nothing is pinned."""
    found = server.wait_until(lambda found: found.get("sessions") == 0 and found.get("promises", 0) == 0)
    need(found.get("sessions") == 0, f"{found.get('sessions')} sessions are left")
    return ", ".join(f"{name} {found[name]}" for name in ("sessions", "peers") if name in found)


# What runs with a server of the usual size; small_pool has one of its own.
CASES = (
    one_after_the_other, a_window_beside_full_attention, where_vllm_reuses_nothing_the_tier_keeps_nothing,
    layers_that_no_engine_reuses_are_refused, vllm_detects_its_pressure, stats_have_definitions, two_engines, a_reset_is_for_all,
    numbered_resets, images_that_vllm_has_not_hashed, servers_that_die, nothing_stays,
)
