# SPDX-License-Identifier: Apache-2.0
"""The connector's both sides behind vLLM's own KV cache managers, without an engine: this file is the scheduler's loop
and the model, whose KV is compared byte for byte. Full attention, windows, recurrent states and drafts, mixed at random.

What the connector finds is compared with vLLM's own prefix cache: a second manager with memory for everything is given
the same prompts. Needs no reference and no model, and runs with any vLLM that can be imported."""

import contextlib
import hashlib
import random
import time
from types import SimpleNamespace

from checks import Failed, need, tally

BLOCK = 16
PAGE = 64  # bytes of a block
POOL = 150  # blocks of the engine's own cache: a few prompts
EVERYTHING = 40000
LONGEST = 640  # tokens of a prompt
DEADLINE_S = 60


def _specs(name, torch):
    from vllm.v1 import kv_cache_interface as kv

    heads = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 1, "dtype": torch.int8, "page_size_padded": PAGE}
    full = kv.FullAttentionSpec(**heads)
    state = kv.MambaSpec(
        block_size=BLOCK, shapes=((PAGE,),), dtypes=(torch.int8,), page_size_padded=PAGE, mamba_cache_mode="align"
    )

    def window(tokens):
        return kv.SlidingWindowSpec(sliding_window=tokens, **heads)

    return {
        "windows": (full, window(40), window(100)),
        "states": (full, state, state),
        "all": (full, window(33), state),
        "scratch": (full, kv.CircularBufferSpec(**heads)),
        "drafts": (full, window(100), full),
    }[name]


class Layer:
    """What the worker reads of a tensor: all groups have their layer in the same memory."""

    dtype = "torch.int8"

    def __init__(self, memory, blocks):
        import numpy

        self._array = numpy.frombuffer(memory, dtype=numpy.int8).reshape(blocks, PAGE)
        self.shape = self._array.shape

    def data_ptr(self):
        return self._array.ctypes.data

    def stride(self):
        return (PAGE, 1)

    def element_size(self):
        return 1


class Side:
    """vLLM's manager, and the loop of its scheduler around it for one request at a time."""

    def __init__(self, specs, drafts, blocks):
        from vllm.v1 import kv_cache_interface as kv
        from vllm.v1.core.kv_cache_manager import KVCacheManager

        groups = [kv.KVCacheGroupSpec([f"l{at}"], spec, is_eagle_group=at in drafts) for at, spec in enumerate(specs)]
        self.config = kv.KVCacheConfig(blocks, [], groups)
        self.config.hash_block_size = BLOCK
        self.manager = KVCacheManager(
            self.config, max_model_len=4096, scheduler_block_size=BLOCK, hash_block_size=BLOCK, use_eagle=bool(drafts)
        )
        self.states = {at for at, spec in enumerate(specs) if isinstance(spec, kv.MambaSpec)}

    def hit(self, request):
        self.blocks, self.local, request.shared_prefix_boundary = self.manager.get_computed_blocks(request)
        return self.local

    def steps(self, request, draw, begin):
        """(first token, token behind the last) of each step; allocated. The steps of a prompt end at ends of blocks, one of
        them at the last one in front of the prompt's end, as vLLM's scheduler has it for recurrent layers."""
        fresh = request.num_computed_tokens == 0
        last = (request.num_tokens - 1) // BLOCK * BLOCK
        while begin < request.num_tokens:
            end = min(begin + BLOCK * draw.choice((1, 3, 8, 20)), last) if begin < last else request.num_tokens
            self.manager.new_step_starts()
            self._allocate(
                request,
                end - begin,
                num_new_computed_tokens=self.local if fresh else 0,
                new_computed_blocks=self.blocks if fresh else None,
            )
            fresh = False
            request.num_computed_tokens = begin
            yield begin, end
            request.num_computed_tokens = begin = end


    def _allocate(self, *args, **more):
        need(self.manager.allocate_slots(*args, **more) is not None, "there are too few blocks for one request")


class Engine(Side):
    """With the connector, and with KV."""

    def __init__(self, specs, drafts, endpoint, chunk_tokens):
        import kvscout
        from kvscout.vllm import config, groups, layout
        from kvscout.vllm.scheduler import Scheduler
        from kvscout.vllm.worker import Worker

        super().__init__(specs, drafts, POOL)
        speculative = SimpleNamespace(use_eagle=lambda: True) if drafts else None
        vllm_config = SimpleNamespace(speculative_config=speculative, cache_config=SimpleNamespace())
        own = groups.of_engine(vllm_config, self.config, chunk_tokens)
        keys = {"endpoint": endpoint, "chunk_tokens": chunk_tokens, "namespace": f"manager/{time.monotonic_ns()}", **own.keys()}
        self.client, worker = kvscout.Client(**keys), kvscout.Worker(**keys)
        no_hints = SimpleNamespace(of=lambda request: None)
        parsed = config.parse({"chunk_tokens": chunk_tokens, "verify_sample": 0}, BLOCK)
        self.scheduler = Scheduler(parsed, own, lambda namespace: self.client, 1, kvscout.KVScoutError, lambda salt: None, no_hints)
        self.scheduler.join({"vllm/own"})
        self.scheduler.bind(self.manager)
        self.memory = bytearray(POOL * PAGE)
        caches = {f"l{at}": Layer(self.memory, POOL) for at in range(len(specs))}
        self.worker = Worker(own, worker, kvscout.KVScoutError, "vllm/own")
        self.worker.register(layout.tables(caches, POOL, own, lambda layers, element: element), lambda: None)
        self.compared = self.loaded = 0
        self.chance = random.Random("settle")  # not that of the steps, which are the same on both sides

    def close(self):
        self.scheduler.close()
        self.worker.close()

    def wait(self, condition, what):
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            need(time.monotonic() < end, f"after {DEADLINE_S} s {what}")
        return found

    def _allocate(self, *args, **more):
        """As vLLM's scheduler, which waits while stores hold blocks."""
        if self.manager.allocate_slots(*args, **more) is None:
            self.settle()
            super()._allocate(*args, **more)

    def find(self, request):
        """Leading tokens that need not be computed."""
        self.hit(request)
        self.scheduler.on_new_request(request)
        found = []

        def answered():
            found.append(self.scheduler.matched_tokens(request, self.local))
            return found[-1] is not None

        self.wait(answered, "a lookup has no answer")
        if found[-1]:
            self._load(request, found[-1])
        return self.local + found[-1]

    def _load(self, request, external):
        self.manager.new_step_starts()
        self._allocate(
            request,
            0,
            num_new_computed_tokens=self.local,
            new_computed_blocks=self.blocks,
            num_external_computed_tokens=external,
            delay_cache_blocks=True,
        )
        self.scheduler.allocated(request, self.manager.get_block_ids(request.request_id), external)
        self.worker.start_loads(self._schedule({}))
        received, failed = self.wait(self._received, "a load has not ended")
        need(received == {request.request_id} and not failed, "a load has failed")
        request.num_computed_tokens = self.local + external
        self.manager.cache_blocks(request, request.num_computed_tokens)
        self.loaded += external

    def _received(self):
        found = self.worker.finished(())
        return found if found[0] else None

    def _schedule(self, tokens):
        offers = self.manager.take_boundary_state_offloads()
        return self.scheduler.build_meta(
            SimpleNamespace(
                num_scheduled_tokens=tokens,
                preempted_req_ids=set(),
                kv_connector_block_state=SimpleNamespace(boundary_state_offloads=offers),
            )
        )

    def compute(self, request, draw, begin):
        name = request.request_id
        for first, last in self.steps(request, draw, begin):
            ids = self.manager.get_block_ids(name)
            if first == begin and not self.scheduler._requests[name].scheduled:
                self.scheduler.allocated(request, ids, 0)
            self._read(request, ids, first)
            meta = self._schedule({name: last - first})
            self.worker.start_loads(meta)
            self._write(request, ids, first, last)
            self.worker.wait_for_save(meta)
            if self.chance.random() < 0.5:
                self.settle()
        request.status = SimpleNamespace(name="FINISHED_LENGTH_CAPPED")
        self.scheduler.finished(request)
        self.manager.free(request)

    def _page(self, block):
        return memoryview(self.memory)[block * PAGE : (block + 1) * PAGE]

    @staticmethod
    def _kv(request, group, place):
        """KV depends on all tokens up to its own."""
        return hashlib.shake_128(bytes(request.block_hashes[place]) + bytes([group])).digest(PAGE)

    def _read(self, request, ids, computed):
        """What a forward pass reads: whatever vLLM has left in the tables of the groups."""
        for group, table in enumerate(ids):
            places = range(computed // BLOCK)
            if group in self.states:
                places = [computed // BLOCK - 1] if computed >= BLOCK else []
                need(not places or table[places[0]], f"the state behind token {computed} has no block")
            for place in places:
                if table[place]:
                    self.compared += 1
                    need(
                        self._page(table[place]) == self._kv(request, group, place),
                        f"block {place} of group {group} does not hold the KV of its tokens, of which {computed} are computed",
                    )

    def _write(self, request, ids, first, last):
        for group, table in enumerate(ids):
            for place in range(first // BLOCK, last // BLOCK):
                if table[place] and (group not in self.states or (place + 1) * BLOCK == last):
                    self._page(table[place])[:] = self._kv(request, group, place)

    def settle(self):
        def settled():
            self.worker.finished(())
            self.scheduler.worker_output(self.worker.take_meta())
            return not self.scheduler.has_pending_stores()

        self.wait(settled, "stores have not ended")


def _request(name, tokens):
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    hasher = get_request_block_hasher(BLOCK, sha256_cbor)
    return Request(name, tokens, SamplingParams(max_tokens=1), None, block_hasher=hasher)


def _prompts(draw, n):
    """Beginnings of a few long texts with ends of their own, some of them asked again."""
    texts = [[draw.randrange(1000) for _ in range(LONGEST)] for _ in range(6)]
    asked = []
    for _ in range(n):
        if asked and draw.random() < 0.2:
            asked.append(draw.choice(asked))
            continue
        own = [draw.randrange(1000) for _ in range(draw.randrange(1, 80))]
        asked.append(draw.choice(texts)[: draw.randrange(LONGEST - 80)] + own)
    return asked


def _run(server, name, drafts=(), chunk_tokens=BLOCK, n=150):
    """@chunk_tokens: with chunks of one block the connector finds exactly what vLLM's own prefix cache would."""
    import torch
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256_cbor)
    specs = _specs(name, torch)
    theirs = Side(specs, drafts, EVERYTHING)
    ours = Engine(specs, drafts, server.endpoint, chunk_tokens)
    draw = random.Random(f"{name}/{chunk_tokens}")
    hits = shorter = 0
    try:
        for at, tokens in enumerate(_prompts(draw, n)):
            seed = draw.random()
            theirs_request, request = _request(f"r{at}", tokens), _request(f"r{at}", tokens)
            expected, found = theirs.hit(theirs_request), ours.find(request)
            need(found <= expected, f"prompt {at}: {found} tokens were found, vLLM's own cache has {expected}")
            need(chunk_tokens > BLOCK or found == expected, f"prompt {at}: {found} tokens found, in vLLM's own cache {expected}")
            shorter += found < expected
            hits += found
            for _ in theirs.steps(theirs_request, random.Random(seed), expected):
                pass
            theirs.manager.free(theirs_request)
            ours.compute(request, random.Random(seed), found)
            tally.requests += 1
            if draw.random() < 0.3:
                ours.settle()
                need(ours.manager.reset_prefix_cache(), "blocks are in use though nothing runs")
        ours.settle()
    finally:
        ours.close()
    need(ours.loaded > 0 and ours.compared > 0, "nothing was loaded")
    return f"{hits} tokens found, {ours.loaded} of them loaded, {ours.compared} blocks compared; {shorter} hits shorter than vLLM's"


def windows(server):
    return _run(server, "windows")


def windows_in_chunks(server):
    return _run(server, "windows", chunk_tokens=4 * BLOCK)


def states(server):
    return _run(server, "states")


def windows_and_states(server):
    return _run(server, "all")


def drafts(server):
    return _run(server, "drafts", drafts={2})


def a_failed_load_beside_scratch_memory(server):
    """vLLM keeps the scratch group out of its prefix cache, and counts it: what the worker reports goes to vLLM's own scheduler."""
    import torch
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import RequestStatus

    init_none_hash(sha256_cbor)
    ours = Engine(_specs("scratch", torch), (), server.endpoint, BLOCK)
    try:
        ours._read = ours._write = lambda *_: None  # of which group a block is says nothing here
        need(ours.scheduler._groups.is_one_run, "the scratch group is cached, too")
        tokens, draw = list(range(LONGEST)), random.Random("scratch")
        first = _request("first", tokens)
        ours.compute(first, draw, ours.find(first))
        ours.settle()
        need(ours.manager.reset_prefix_cache(), "blocks are in use though nothing runs")
        again = _request("again", tokens)
        started = ours.worker.start_loads

        def with_another_ticket(meta):
            for load in meta.loads:
                load.ticket += 1
            started(meta)

        ours.worker.start_loads, reported = with_another_ticket, []
        ours._received = lambda: reported or reported.extend(Engine._received(ours) or ()) or reported
        with contextlib.suppress(Failed):  # _load() finds that it has failed
            ours.find(again)
        theirs = object.__new__(Scheduler)
        theirs.kv_cache_config, theirs.requests = ours.config, {"again": again}
        theirs.recompute_kv_load_failures, theirs.failed_recving_kv_req_ids = True, set()
        again.status, again.num_computed_tokens = RequestStatus.WAITING_FOR_REMOTE_KVS, LONGEST
        bad = ours.worker.bad_blocks()
        if bad:
            theirs._handle_invalid_blocks(bad, {})  # raises, which ends an engine
        theirs._handle_failed_recving(reported[1])
        need(theirs.failed_recving_kv_req_ids == {"again"} and not again.num_computed_tokens, "vLLM does not compute it anew")
    finally:
        ours.close()
    return f"{len(reported[1])} load reported as failed, {len(bad)} blocks named"


CASES = (a_failed_load_beside_scratch_memory, windows, windows_in_chunks, states, windows_and_states, drafts)
