# SPDX-License-Identifier: Apache-2.0
"""Models with several KV cache groups in kvscout.vllm: what becomes of vLLM's groups, and both sides of the connector with a real
client, worker and server, above block tables that lose blocks as vLLM's do."""

import importlib
import sys
import types
import unittest
from types import SimpleNamespace
from unittest import mock

import kvscout
from kvscout.vllm import config, groups, layout, refusals
from pages import Tensor, bytes_of, hashes_of
from rig import wait_for
from vllm_rig import modules_of_vllm

BLOCK, CHUNK = 16, 64


class KVCacheSpec:
    prefix_cacheable = True

    def __init__(self, block_size=BLOCK, **fields):
        self.block_size = block_size
        self.__dict__.update(fields)


class FullAttentionSpec(KVCacheSpec):
    pass


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec(KVCacheSpec):
    pass


class ChunkedLocalAttentionSpec(KVCacheSpec):
    pass


class MambaSpec(KVCacheSpec):
    pass


class CrossAttentionSpec(KVCacheSpec):
    pass


class CircularBufferSpec(KVCacheSpec):
    prefix_cacheable = False


class UniformTypeKVCacheSpecs(KVCacheSpec):
    pass


def states(mode="align", **fields):
    return MambaSpec(mamba_cache_mode=mode, **fields)


def window(tokens, **fields):
    return SlidingWindowSpec(sliding_window=tokens, **fields)


def engine_of(*specs, drafts=(), eagle=False, drops=None, **cache):
    """vLLM's configurations of an engine whose groups have these specs; layers l0, l1, ... are of group 0, 1, ..."""
    theirs = [
        SimpleNamespace(kv_cache_spec=spec, layer_names=[f"l{at}"], is_eagle_group=at in drafts) for at, spec in enumerate(specs)
    ]
    speculative = SimpleNamespace(use_eagle=lambda: True) if eagle else None
    if drops is not None:
        speculative.use_eagle_block_drop = lambda: drops
    return (
        SimpleNamespace(
            parallel_config=SimpleNamespace(), model_config=SimpleNamespace(is_encoder_decoder=False),
            speculative_config=speculative, cache_config=SimpleNamespace(),
        ),
        SimpleNamespace(kv_cache_groups=theirs, **cache),
    )


class Translation(unittest.TestCase):
    def items(self, *specs, **more):
        return [group.item() for group in groups.of_engine(*engine_of(*specs, **more), CHUNK)]

    def test_each_kind_of_layers_has_its_policy_and_a_unit_that_is_whole_when_it_is_complete(self):
        for spec, item in (
            (FullAttentionSpec(), "all,unit=64"),
            (FullAttentionSpec(sliding_window=100), "all,unit=64"),  # the hybrid manager is off
            (MLAAttentionSpec(), "all,unit=64"),
            (window(65), "window:65,unit=64"),
            (window(64), "window:64,unit=16"),
            (window(64, extra_retained_tokens=3), "window:67,unit=64"),
            (ChunkedLocalAttentionSpec(attention_chunk_size=128), "local:128,unit=64"),
            (ChunkedLocalAttentionSpec(attention_chunk_size=96), "local:96,unit=16"),
            (UniformTypeKVCacheSpecs(kv_cache_specs={"a": window(65), "b": window(65)}), "window:65,unit=64"),
        ):
            with self.subTest(item=item, kind=type(spec).__name__):
                self.assertEqual(self.items(spec), [item])

    def test_one_group_with_full_attention_is_what_it_was_without_groups(self):
        found = groups.of_engine(*engine_of(FullAttentionSpec()), CHUNK)
        self.assertTrue(found.is_one_run)
        self.assertEqual((found.keys(), found.hash_tokens, found.stride, found.step_tokens), ({}, CHUNK, 4, CHUNK))
        self.assertEqual(found[0].item(), groups.one(BLOCK, CHUNK)[0].item())

    def test_a_short_window_makes_the_hashes_finer_and_not_the_hits(self):
        found = groups.of_engine(*engine_of(FullAttentionSpec(), window(40), window(200)), CHUNK)
        self.assertEqual(found.keys(), {"group": "all,unit=64 window:40,unit=16 window:200,unit=64", "hash_tokens": 16})
        self.assertEqual((found.stride, found.step_tokens, found.span_tokens, found.is_one_run), (1, 64, 64, False))

    def test_groups_of_different_blocks_have_hashes_of_the_finer_one(self):
        engine = engine_of(FullAttentionSpec(32), window(40), hash_block_size=16)
        self.assertEqual(groups.scheduler_block(engine[1]), 32)
        found = groups.of_engine(*engine, CHUNK)
        self.assertEqual((found.hash_tokens, found.stride), (16, 1))
        self.assertEqual(found.blocks([[1, 2, 3, 4], [5, 6, 7, 8, 9]], 32, 80), {0: [2, 3], 1: [7, 8, 9]})
        engine = engine_of(FullAttentionSpec(32), window(40), hash_block_size=8)
        self.assertEqual(groups.of_engine(*engine, CHUNK).stride, 2)
        del engine[1].hash_block_size  # vLLM 0.31
        self.assertEqual(groups.hash_block(*engine), 16)
        engine[0].cache_config.prefix_match_unit = 8
        self.assertEqual(groups.hash_block(*engine), 8)

    def test_layers_of_drafts_want_a_block_more(self):
        specs = FullAttentionSpec(), window(100)
        self.assertEqual(self.items(*specs, eagle=True, drafts={1}), ["all,unit=64", "window:100,unit=64,margin=16"])
        self.assertEqual(self.items(*specs, eagle=True), ["all,unit=64,margin=16", "window:100,unit=64,margin=16"])
        self.assertFalse(groups.of_engine(*engine_of(FullAttentionSpec(), eagle=True), CHUNK).is_one_run)
        self.assertEqual(self.items(*specs, eagle=True, drops=True), ["all,unit=64,margin=16", "window:100,unit=64,margin=16"])

    def test_drafts_without_a_volatile_block_need_no_margin(self):
        """DFlash and DSpark from vLLM 0.33 on, and others where that is switched off."""
        specs = FullAttentionSpec(), window(100)
        self.assertEqual(self.items(*specs, eagle=True, drops=False), self.items(*specs))
        self.assertTrue(groups.of_engine(*engine_of(FullAttentionSpec(), eagle=True, drops=False), CHUNK).is_one_run)

    def test_beside_states_each_block_is_an_object(self):
        found = groups.of_engine(*engine_of(FullAttentionSpec(), states(), window(100), eagle=True, drafts={0}), CHUNK)
        self.assertEqual([group.item() for group in found], ["all,unit=16,margin=16", "state,unit=16", "window:100,unit=16"])
        self.assertEqual((found.hash_tokens, found.step_tokens, found.states), (16, 16, (1,)))
        blocks = found.blocks([[1, 2, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]], 16, 64)
        found.keep_states(blocks, 16, [(1, 7, 48), (1, 5, 16), (1, 8, 60), (0, 9, 32)], 0)
        self.assertEqual(blocks, {0: [2, 3, 4], 1: [0, 7, 0], 2: [9, 9, 9]})

    def test_scratch_memory_is_left_out(self):
        engine = engine_of(CircularBufferSpec(8), FullAttentionSpec(), window(100))
        engine[1].kv_cache_groups[2].enable_kv_transfer = False
        found = groups.of_engine(*engine, CHUNK)
        self.assertEqual([(group.engine_number, group.item()) for group in found], [(1, "all,unit=64")])
        self.assertEqual(found.blocks([[9], [1, 2, 3, 4], [8]], 16, 64), {0: [2, 3, 4]})
        self.assertEqual((found.is_one_run, found.names_blocks), (True, False))
        refusals.check(*engine)

    def refusal(self, *specs, **extra):
        engine = engine_of(*specs)
        block = groups.scheduler_block(engine[1])
        parsed = config.parse({"chunk_tokens": CHUNK, "verify_sample": 0, **extra}, block)
        found = groups.of_engine(*engine, parsed.chunk_tokens)
        return refusals.reason_of_groups(found, parsed, block) or ""

    def test_what_it_cannot_do_is_refused(self):
        for specs, sentence in (
            ((FullAttentionSpec(), CrossAttentionSpec()), r"1 layers of this model have KV of another kind \(CrossAttentionSpec\).*without kvscout"),
            ((UniformTypeKVCacheSpecs(kv_cache_specs={"a": states("none")}),),
             r"1 layers of this model \(MambaSpec\) have mamba_cache_mode=none.*--mamba-cache-mode align"),
            ((CircularBufferSpec(),), "no KV cache group of this model has any"),
        ):
            with self.subTest(sentence=sentence), self.assertRaisesRegex(refusals.Refused, sentence):
                refusals.check(*engine_of(*specs))
        self.assertEqual(self.refusal(FullAttentionSpec(), load="sync"), "")
        for specs in ((window(100),), (FullAttentionSpec(), CircularBufferSpec())):
            self.assertRegex(self.refusal(*specs, load="sync"), "does not load synchronously.*\"load\": \"async\"")
        self.assertEqual(self.refusal(window(40, block_size=32), FullAttentionSpec()), "")
        self.assertRegex(self.refusal(window(40, block_size=32), window(60)), "in steps of 16 tokens.*multiples of 32")

    def test_a_table_has_its_group_s_layers_and_its_own_name_of_the_layout(self):
        memory = bytearray(8 * 32)
        caches = {name: Layer(memory, 8) for name in ("l1", "l0", "l2")}
        found = groups.of_engine(*engine_of(FullAttentionSpec(), window(100), window(99), window(98)), CHUNK)
        tables = layout.tables(caches, 8, found, lambda layers, element: "+".join(layers) + "/" + element)
        self.assertEqual([(t["group"], len(t["planes"]), t["layout_tag"]) for t in tables],
                         [(0, 1, "l0/float16"), (1, 1, "l1/float16"), (2, 1, "l2/float16")])
        self.assertEqual({(t["block_tokens"], t["n_blocks"], t["null_block"], t["dtype"]) for t in tables}, {(16, 8, 0, "float16")})


class Layer(Tensor):
    """The KV of a layer: blocks of 32 bytes."""

    dtype = "torch.float16"

    def __init__(self, memory, n, shape=(16,), strides=(16, 1), offset=0):
        super().__init__(memory, (n, *shape), strides, offset)


class SideBySide(unittest.TestCase):
    """Views as vLLM makes them of one allocation, in blocks of 96 bytes: three layers of 2 heads, 4 tokens and 2 elements."""

    BLOCKS, BYTES, PAD = 8, 96, 8
    # Strides in elements of (block, head, token, element), and from layer to layer.
    LAYOUTS = {
        "BLHNC": ((48, 8, 2, 1), 16),
        "BLNHC": ((48, 2, 4, 1), 16),
        "BHLNC": ((48, 24, 2, 1), 8),
        "LBHNC": ((16, 8, 2, 1), 128),
    }

    def setUp(self):
        self.memory = bytearray(self.BLOCKS * self.BYTES + self.PAD * self.BLOCKS)

    def views(self, layout_name, order=(0, 1, 2), pad=0, gap=0):
        (block, *inner), layer = self.LAYOUTS[layout_name]
        step = (layer + gap) * 2
        return [Layer(self.memory, self.BLOCKS, (2, 4, 2), (block + pad, *inner), at * step) for at in order]

    def test_in_layouts_with_the_block_outermost_they_are_one_plane(self):
        for name in ("BLHNC", "BLNHC", "BHLNC"):
            with self.subTest(name=name):
                views = self.views(name)
                found = layout.side_by_side(views)
                self.assertEqual((found.data_ptr(), found.shape, found.stride(), found.element_size()),
                                 (views[0].data_ptr(), (8, 96), (96, 1), 1))

    def test_behind_a_block_there_may_be_memory_of_no_layer(self):
        self.assertEqual(layout.side_by_side(self.views("BLHNC", pad=4)).stride(), (104, 1))

    def test_what_is_not_side_by_side_stays_as_it_is(self):
        for views in (
            self.views("LBHNC"),
            self.views("BLHNC", gap=2, pad=4),
            self.views("BLHNC")[::2],
            self.views("BLHNC")[:1],
            [*self.views("BLHNC", pad=4)[:2], self.views("BLHNC")[2]],
            [Layer(self.memory, 2, (8,), (8, 1), at) for at in (0, 16)],
            [Layer(bytearray(32), 8, (2,), (2, 1)) for _ in range(2)],
        ):
            self.assertIsNone(layout.side_by_side(views))

    def test_with_one_block_two_allocations_could_look_like_one(self):
        self.assertIsNone(layout.side_by_side([Layer(self.memory, 1, (4,), (8, 1), at) for at in (0, 8)]))

    def test_the_tag_names_the_place_of_each_layer_and_the_order_in_it(self):
        def order(*args, **more):
            return layout.side_by_side(self.views(*args, **more)).order

        orders = [order("BLHNC"), order("BLNHC"), order("BHLNC"), order("BLHNC", (2, 1, 0)), order("BLHNC", (1, 0, 2))]
        self.assertEqual(len(set(orders)), 5)
        self.assertEqual(order("BLHNC", pad=4), orders[0])  # the bytes of a block are the same

    def test_the_server_keeps_engines_with_merged_views_apart_from_others(self):
        server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(server.stop)
        tables = []
        for views in (self.views("BLHNC"), self.views("BLHNC", (2, 1, 0)), self.views("LBHNC")):
            (table,) = layout.tables({"l0": views}, 8, groups.of_engine(*engine_of(FullAttentionSpec()), CHUNK), lambda layers, element: element)
            tables.append(table)
        self.assertEqual([len(table["planes"]) for table in tables], [1, 1, 3])
        workers = [kvscout.Worker(endpoint=server.endpoint, chunk_tokens=CHUNK, readers=2, reader=at) for at in (0, 1)]
        for worker in workers:
            self.addCleanup(worker.close)
        wait_for(lambda: self.registers(workers[0], tables[0]), what="the first worker's registration")
        for other, sentence in ((tables[1], "layout_tag"), (tables[2], "n_planes")):
            with self.assertRaisesRegex(kvscout.ServerError, sentence):
                self.registers(workers[1], other)
            workers[1].unregister()
        self.assertTrue(self.registers(workers[1], dict(tables[0])))

    @staticmethod
    def registers(worker, table):
        return worker.register(tables=[table], timeout_ms=60000)


class Pool:
    """Blocks with references, as vLLM's block pool."""

    def __init__(self, n):
        self.blocks = [SimpleNamespace(block_id=at, ref_cnt=0) for at in range(n)]
        self.null_block = self.blocks[0]
        self.num_gpu_blocks = n

    def new(self):
        block = next(block for block in self.blocks[1:] if not block.ref_cnt)
        block.ref_cnt = 1
        return block

    def touch(self, blocks):
        for block in blocks:
            assert block is not self.null_block, "vLLM's null block is nobody's"
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0

    def evict_blocks(self, numbers):
        pass

    def get_num_free_blocks(self):
        return sum(not block.ref_cnt for block in self.blocks[1:])


class Manager:
    """Block tables by group. Before each allocation blocks behind the windows, and all states but the last, are given back,
    as vLLM does."""

    def __init__(self, theirs):
        self.block_pool = Pool(200)
        self.groups = theirs
        self.tables = {}

    def allocate(self, request, computed, tokens):
        tables = self.tables.setdefault(request.request_id, [[] for _ in self.groups])
        null = self.block_pool.null_block
        for group, table in zip(self.groups, tables):
            spec = group.kv_cache_spec
            kept = 2 if isinstance(spec, MambaSpec) else getattr(spec, "sliding_window", computed + 1)
            behind = max(0, computed - kept + 1) // spec.block_size
            self.block_pool.free_blocks([block for block in table[:behind] if block is not null])
            table[:behind] = [null] * behind
            while len(table) < -(-tokens // spec.block_size):
                table.append(self.block_pool.new())

    def free(self, request):
        for table in self.tables.pop(request.request_id):
            self.block_pool.free_blocks([block for block in table if block is not self.block_pool.null_block])

    def get_block_ids(self, name):
        return tuple([block.block_id for block in table] for table in self.tables[name])


class Engine:
    """Both sides of an engine with these groups. All have their layers in the same memory."""

    SIZE = 32

    def __init__(self, test, endpoint, *specs, views=1):
        """@views: of so many parts of a block, side by side."""
        vllm_config, cache_config = engine_of(*specs)
        self.groups = groups.of_engine(vllm_config, cache_config, CHUNK)
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            scheduler, worker = (importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "worker"))
        parsed = config.parse({"chunk_tokens": CHUNK, "verify_sample": 0}, groups.scheduler_block(cache_config))
        keys = {"endpoint": endpoint, "chunk_tokens": CHUNK, **self.groups.keys()}
        client, copier = kvscout.Client(**keys, lookup_timeout_ms=60000), kvscout.Worker(**keys)
        test.addCleanup(client.close)
        test.addCleanup(copier.close)
        client.wait_ready(60000)
        self.manager = Manager(cache_config.kv_cache_groups)
        n = self.manager.block_pool.num_gpu_blocks
        self.memory = bytearray(n * self.SIZE)
        parts = [Layer(self.memory, n, (16 // views,), offset=at * self.SIZE // views) for at in range(views)]
        caches = {name: parts for group in cache_config.kv_cache_groups for name in group.layer_names}
        self.scheduler = scheduler.Scheduler(
            parsed, self.groups, lambda namespace: client, 1, kvscout.KVScoutError, lambda salt: None, NoHints
        )
        self.scheduler.join({"vllm/own"})
        self.scheduler.bind(self.manager)
        self.worker = worker.Worker(self.groups, copier, kvscout.KVScoutError, "vllm/own")
        self.worker.register(layout.tables(caches, n, self.groups, lambda layers, element: ""), lambda: None)

    def page(self, block):
        return memoryview(self.memory)[block * self.SIZE : (block + 1) * self.SIZE]

    def expected(self, request, number, at):
        return bytes_of(f"{request.prompt}/{number}", at, 0, self.SIZE)

    def step(self, request=None, tokens=0):
        """One step of the engine, which computes these tokens of @request."""
        scheduled = {request.request_id: tokens} if tokens else {}
        offers = self.offers(request, tokens) if tokens else {}
        meta = self.schedule(scheduled, offers)
        self.worker.start_loads(meta)
        if tokens:
            end = request.num_computed_tokens + tokens
            for number, table in enumerate(self.manager.get_block_ids(request.request_id)):
                for at in range(request.num_computed_tokens // BLOCK, end // BLOCK):
                    # Of a state nothing is left but that at the end of the step.
                    holds = number not in self.groups.states or (at + 1) * BLOCK == end
                    self.page(table[at])[:] = self.expected(request, number, at) if holds else bytes(self.SIZE)
            request.num_computed_tokens = end
        self.worker.wait_for_save(meta)
        return meta

    def schedule(self, scheduled, offers):
        return self.scheduler.build_meta(SimpleNamespace(
            num_scheduled_tokens=scheduled, preempted_req_ids=set(),
            kv_connector_block_state=SimpleNamespace(boundary_state_offloads=offers),
        ))

    def offers(self, request, tokens):
        """What vLLM says of the states that a step leaves."""
        end = request.num_computed_tokens + tokens
        if end % BLOCK:
            return {}
        tables = self.manager.get_block_ids(request.request_id)
        return {request.request_id: [(number, tables[number][end // BLOCK - 1], end) for number in self.groups.states]}

    def settle(self):
        """Until all stores have ended and their blocks are given back."""

        def settled():
            self.worker.finished(())
            self.scheduler.worker_output(self.worker.take_meta())
            return not self.scheduler.has_pending_stores()

        wait_for(settled, what="the stores to end")

    def matched(self, request, computed=0):
        self.scheduler.on_new_request(request)
        found = []

        def answered():
            tokens = self.scheduler.matched_tokens(request, computed)
            found.append(tokens)
            return tokens is not None

        wait_for(answered, what="an answer")
        return found[-1]

    def admit(self, request, computed, external):
        """Allocate as vLLM does for a load, and send it."""
        self.manager.allocate(request, computed + external, computed + external)
        self.scheduler.allocated(request, self.manager.get_block_ids(request.request_id), external)
        return self.schedule({}, {})

    def load(self, meta):
        """(received, failed) of the loads of @meta."""
        self.worker.start_loads(meta)
        wait_for(lambda: self.worker._received or self.worker._collect(), what="the load to end")
        return self.worker.finished(())

    def compute(self, request, step, lose=()):
        """The rest of the prompt, @step tokens at a time. @lose: (group, position) of blocks that are gone when the step that
        completes them is over, as if nothing had stored them."""
        while request.num_computed_tokens < request.num_tokens:
            tokens = min(step, request.num_tokens - request.num_computed_tokens)
            self.manager.allocate(request, request.num_computed_tokens, request.num_computed_tokens + tokens)
            tables, kept = self.manager.tables[request.request_id], []
            for number, at in lose:
                if at < len(tables[number]):
                    kept.append((number, at, tables[number][at]))
            ids = self.manager.get_block_ids
            self.manager.get_block_ids = lambda name: tuple(
                [0 if (number, at) in lose else block for at, block in enumerate(table)] for number, table in enumerate(ids(name))
            )
            try:
                self.step(request, tokens)
            finally:
                del self.manager.get_block_ids
        self.settle()

    def end(self, request):
        request.status = SimpleNamespace(name="FINISHED_LENGTH_CAPPED")
        self.scheduler.finished(request)
        self.manager.free(request)
        self.step()
        self.settle()

    def holds(self, request, computed, tokens):
        """By group: positions of the loaded blocks, all of which must hold the prompt's KV."""
        found = []
        for number, table in enumerate(self.manager.get_block_ids(request.request_id)):
            real = [at for at in range(computed // BLOCK, tokens // BLOCK) if table[at]]
            wrong = [at for at in real if self.page(table[at]) != self.expected(request, number, at)]
            assert not wrong, f"group {number}: blocks {wrong} of {real} do not hold the prompt's KV"
            found.append(real)
        return found


NoHints = SimpleNamespace(of=lambda request: None)


def request(name, prompt, tokens):
    return SimpleNamespace(
        request_id=name, prompt=prompt, num_tokens=tokens, num_prompt_tokens=tokens, num_computed_tokens=0,
        block_hashes=hashes_of(prompt, tokens // BLOCK), cache_salt=None, kv_transfer_params=None, lora_request=None,
        skip_reading_prefix_cache=False, mm_features=(),
    )


class Lives(unittest.TestCase):
    def start(self, *specs, views=1):
        server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(server.stop)
        return Engine(self, server.endpoint, *specs, views=views)

    def store(self, engine, prompt="p", tokens=300, step=48, **more):
        first = request(f"store {prompt}", prompt, tokens)
        self.assertEqual(engine.matched(first), 0)
        engine.scheduler.allocated(first, ([], [], []), 0)
        engine.compute(first, step, **more)
        engine.end(first)
        pool = engine.manager.block_pool
        self.assertEqual(pool.get_num_free_blocks(), pool.num_gpu_blocks - 1)

    def test_what_chunked_prefill_stored_is_loaded_behind_each_window(self):
        for step, views in ((16, 1), (48, 1), (300, 1), (48, 4)):
            with self.subTest(step=step, views=views):
                engine = self.start(FullAttentionSpec(), window(40), window(100), views=views)
                self.store(engine, step=step)
                again = request("again", "p", 300)
                self.assertEqual(engine.matched(again), 256)
                meta = engine.admit(again, 0, 256)
                self.assertEqual(engine.load(meta), ({"again"}, set()))
                # The SPAN - 1 tokens before token 256.
                self.assertEqual(engine.holds(again, 0, 256), [list(range(16)), [13, 14, 15], list(range(9, 16))])
                again.num_computed_tokens = 256
                before = engine.scheduler.counts["store_chunks"]
                engine.compute(again, 48)
                self.assertEqual(engine.scheduler.counts["store_chunks"] - before, 2)  # blocks 16 and 17
                engine.end(again)

    def test_behind_what_the_engine_has_only_the_rest_is_loaded(self):
        engine = self.start(FullAttentionSpec(), window(40), window(100))
        self.store(engine)
        again = request("again", "p", 300)
        self.assertEqual(engine.matched(again, computed=192), 64)
        meta = engine.admit(again, 192, 64)
        self.assertEqual([sorted(load.block_ids) for load in meta.loads], [[0, 1, 2]])
        self.assertEqual(engine.load(meta), ({"again"}, set()))
        self.assertEqual(engine.holds(again, 192, 256), [[12, 13, 14, 15], [13, 14, 15], [12, 13, 14, 15]])

    def test_without_one_object_of_a_window_the_hit_is_shorter(self):
        for lost, found in (((1, 14), 192), ((2, 15), 192), ((1, 11), 256), ((2, 9), 128), ((0, 5), 64)):
            with self.subTest(lost=lost):
                engine = self.start(FullAttentionSpec(), window(40), window(100))
                self.store(engine, step=300, lose={lost})
                again = request("again", "p", 300)
                self.assertEqual(engine.matched(again), found)
                self.assertEqual(engine.load(engine.admit(again, 0, found)), ({"again"}, set()))
                engine.holds(again, 0, found)

    def test_a_window_alone_needs_nothing_in_front_of_it(self):
        engine = self.start(window(100))
        self.assertFalse(engine.groups.is_one_run)
        self.store(engine, step=300, lose={(0, 2)})
        again = request("again", "p", 300)
        self.assertEqual(engine.matched(again), 256)
        self.assertEqual(engine.load(engine.admit(again, 0, 256)), ({"again"}, set()))
        self.assertEqual(engine.holds(again, 0, 256), [list(range(9, 16))])

    def test_of_states_those_are_found_that_a_step_has_left(self):
        engine = self.start(FullAttentionSpec(), states(), window(40))
        self.store(engine, step=112)
        again = request("again", "p", 300)
        self.assertEqual(engine.matched(again), 224)  # 112, 224 and the end, which is not at the end of a block
        self.assertEqual(engine.load(engine.admit(again, 0, 224)), ({"again"}, set()))
        self.assertEqual(engine.holds(again, 0, 224), [list(range(14)), [13], [11, 12, 13]])
        again.num_computed_tokens = 224
        engine.compute(again, 64)
        engine.end(again)
        third = request("third", "p", 300)
        self.assertEqual(engine.matched(third), 288)
        self.assertEqual(engine.load(engine.admit(third, 0, 288)), ({"third"}, set()))
        self.assertEqual(engine.holds(third, 0, 288)[1:], [[17], [15, 16, 17]])

    def test_a_load_that_fails_in_part_fails_as_a_whole(self):
        """A window behind a shorter prefix was never loaded, so vLLM must not go on there."""
        for specs, failed, named in (
            ((FullAttentionSpec(), window(40), window(100)), {"again"}, False), ((window(100),), {"again"}, False),
            ((FullAttentionSpec(),), set(), True), ((FullAttentionSpec(), CircularBufferSpec()), {"again"}, False),
        ):
            with self.subTest(groups=len(specs), named=named):
                engine = self.start(*specs)
                self.store(engine)
                again = request("again", "p", 300)
                self.assertEqual(engine.matched(again), 256)
                meta = engine.admit(again, 0, 256)
                meta.loads[0].ticket += 1
                self.assertEqual(engine.load(meta), ({"again"}, failed))
                self.assertEqual(bool(engine.worker.bad_blocks()), named)
                engine.scheduler.worker_output(engine.worker.take_meta())
                self.assertEqual(engine.scheduler._requests["again"].failed_loads, 1)
                self.assertLess(engine.scheduler._requests["again"].next_store, 256)


if __name__ == "__main__":
    unittest.main()
