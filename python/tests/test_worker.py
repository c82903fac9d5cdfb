# SPDX-License-Identifier: Apache-2.0
"""Worker: pages, jobs, ends, arguments; with a server of its own and every byte compared."""

import array
import ctypes
import mmap
import os
import select
import subprocess
import tempfile
import unittest

import kvscout
from kvscout import _logs
from pages import BLOCK_TOKENS, BLOCKS, CHUNK_TOKENS, Array, Pages, Tensor, bytes_of, hashes_of, wait_done
from rig import server_program, wait_for


class Case(unittest.TestCase):
    namespaces = 0

    def setUp(self):
        Case.namespaces += 1
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.client = self.make(kvscout.Client, lookup_timeout_ms=60000)
        self.client.wait_ready(60000)

    def make(self, cls, **more):
        made = cls(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS, **more)
        self.addCleanup(made.close)
        return made

    def registered(self, pages=None, **more):
        worker, pages = self.make(kvscout.Worker, **more), pages or Pages()
        self.assertIs(pages.register(worker), True)
        return worker, pages

    def hit(self, prompt, n, id=None):
        """The answer for n chunks of a prompt, admitted."""
        id = id or f"request of {prompt}"
        hit = self.client.wait_lookup(id, hashes_of(prompt, n), n * CHUNK_TOKENS + 1)
        if hit.tokens:
            self.client.admit(id)
        return hit

    def store(self, worker, pages, prompt, ids, **more):
        pages.fill(prompt, ids)
        done = wait_done(worker, worker.store(0, hashes_of(prompt, len(ids) // BLOCKS), ids, **more))
        self.assertTrue(done.ok, done)
        return done


class Jobs(Case):
    def test_what_was_stored_is_retrieved_into_other_pages(self):
        worker, pages = self.registered()
        done = self.store(worker, pages, "a", list(range(8)))
        self.assertEqual((done.kind, done.status, done.chunks, done.present, done.missing), ("store", 0, 2, 0, {}))
        self.assertEqual(done.bytes, 8 * sum(pages.sizes))
        self.assertIsNone(done.error)
        self.assertEqual(done.total_us, done.queued_us + done.server_us + done.copy_us)
        pages.wipe()
        hit = self.hit("a", 2)
        self.assertEqual(hit.tokens, 2 * CHUNK_TOKENS)
        ids = [40, 3, 22, 9, 50, 51, 11, 63]
        job = worker.retrieve(hit.ticket, 0, hit.tokens, ids)
        done = wait_done(worker, job)
        self.assertEqual((done.job, done.ticket, done.kind, done.ok, done.missing), (job, hit.ticket, "retrieve", True, {}))
        self.assertTrue(pages.holds("a", ids))
        self.assertTrue(pages.is_blank(set(range(64)) - set(ids)))
        self.assertEqual(self.store(worker, pages, "a", list(range(8))).present, 2)

    def test_block_ids_may_be_lists_and_buffers(self):
        worker, pages = self.registered()
        ids = list(range(8, 16))
        kinds = [ids, tuple(ids), array.array("q", ids), array.array("i", ids), array.array("l", ids), range(8, 16),
                 memoryview(array.array("q", [0, *ids]))[1:], memoryview(bytes(array.array("i", ids))).cast("i")]
        for number, kind in enumerate(kinds):
            with self.subTest(kind=kind):
                prompt = f"kind {number}"
                pages.fill(prompt, ids)
                self.assertTrue(wait_done(worker, worker.store(0, hashes_of(prompt, 2), kind)).ok)
                pages.wipe()
                self.assertTrue(wait_done(worker, worker.retrieve(self.hit(prompt, 2).ticket, 0, 128, kind)).ok)
                self.assertTrue(pages.holds(prompt, ids))
                worker.fence(kind)

    def test_ids_may_be_the_whole_table_of_a_request(self):
        worker, pages = self.registered()
        table = list(range(20, 28))
        pages.fill("t", table)
        done = wait_done(worker, worker.store(0, hashes_of("t", 1), table, ids_from=0))
        self.assertEqual(done.chunks, 1)
        done = wait_done(worker, worker.store(0, hashes_of("t", 2)[1:], table, first_token=CHUNK_TOKENS, ids_from=0))
        self.assertEqual(done.chunks, 1)
        pages.wipe()
        hit = self.hit("t", 2)
        self.assertEqual(hit.chunks, 2)
        wait_done(worker, worker.retrieve(hit.ticket, CHUNK_TOKENS + BLOCK_TOKENS, 128, table, ids_from=0))
        self.assertTrue(pages.is_blank(table[:5]))
        self.assertTrue(pages.holds("t", table[5:], first=5))

    def test_null_and_negative_ids_are_left_alone(self):
        worker, pages = self.make(kvscout.Worker), Pages()
        pages.register(worker, null_block=0)
        self.store(worker, pages, "n", list(range(1, 9)))
        pages.wipe()
        ids = [0, 41, -1, 43, 44, 45, 46, 47]
        wait_done(worker, worker.retrieve(self.hit("n", 2).ticket, 0, 128, ids))
        self.assertTrue(pages.is_blank([0, 63]))
        self.assertTrue(pages.holds("n", ids[3:], first=3))
        done = wait_done(worker, worker.store(0, hashes_of("n2", 2), ids))
        self.assertEqual((done.chunks, done.null_chunks), (1, 1))

    def test_missing_blocks_are_named(self):
        worker, pages = self.registered()
        self.store(worker, pages, "m", list(range(4)))
        hit = self.hit("m", 3)
        self.assertEqual(hit.chunks, 1)
        done = wait_done(worker, worker.retrieve(hit.ticket, 0, 3 * CHUNK_TOKENS, list(range(20, 32))))
        self.assertEqual((done.ok, done.error.name), (False, "SCOUT_ERR_MISSING"))
        self.assertEqual(done.missing, {0: tuple(range(4, 12))})
        self.assertIn("missing={0: (4, 5,", repr(done))
        done = wait_done(worker, worker.retrieve(self.hit("m", 3, "other").ticket, 16, 5 * BLOCK_TOKENS, {0: range(21, 25)}, ids_from=16))
        self.assertEqual(done.missing, {0: (3,)})

    def test_hashes_come_as_one_buffer_and_every_strideth(self):
        worker, pages = self.registered()
        pages.fill("h", range(8))
        blocks = [os.urandom(32) for _ in range(8)]
        blocks[3], blocks[7] = hashes_of("h", 2)
        self.assertEqual(wait_done(worker, worker.store(0, blocks, list(range(8)), stride=4)).chunks, 2)
        self.assertEqual(wait_done(worker, worker.store(0, b"".join(blocks), range(8), stride=4)).present, 2)
        self.assertEqual(self.hit("h", 2).chunks, 2)

    def test_tenants_do_not_share(self):
        worker, pages = self.registered()
        self.store(worker, pages, "s", list(range(4)), tenant="red")
        self.assertEqual(self.hit("s", 1).tokens, 0)
        self.assertEqual(self.client.wait_lookup("red", hashes_of("s", 1), 100, tenant="red").tokens, CHUNK_TOKENS)

    def test_layers_are_announced_awaited_and_progress(self):
        worker, pages = self.registered()
        pages.fill("l", range(4))
        job = worker.store(0, hashes_of("l", 1), range(4), layers=2, announced=True)
        self.assertIs(worker.wait_layer(job, 1, timeout_ms=20), False)
        self.assertEqual(worker.progress(job)[0], 2)
        worker.layer_ready(job, 1)
        self.assertIs(worker.wait_layer(job, 1), True)
        self.assertEqual(worker.progress(job), (2, 1, 1))
        self.assertIs(worker.wait_layer(job, 2, 0), False)
        with self.assertRaisesRegex(kvscout.ArgumentError, r"wait_layer\(\): layers must be 0\.\.2, which job \d+ has, not 3"):
            worker.wait_layer(job, 3)
        worker.layer_ready(job, 2)
        self.assertTrue(wait_done(worker, job).ok)
        with self.assertRaisesRegex(kvscout.StateError, rf"progress\(\): job {job} does not exist, or poll\(\) has reported it"):
            worker.progress(job)
        pages.wipe()
        job = worker.retrieve(self.hit("l", 1).ticket, 0, CHUNK_TOKENS, range(4, 8), layers=[1, 1])
        self.assertIs(worker.wait_layer(job, 2), True)
        with self.assertRaisesRegex(kvscout.ArgumentError, "is no store with announced=True"):
            worker.layer_ready(job, 1)
        self.assertTrue(wait_done(worker, job).ok)
        self.assertTrue(pages.holds("l", range(4, 8)))

    def test_a_job_that_ends_by_its_own_timeout_is_told_by_wait_layer(self):
        worker, pages = self.registered()
        job = worker.store(0, hashes_of("o", 1), range(4), layers=2, announced=True, timeout_ms=50)
        with self.assertRaises(kvscout.KVScoutError) as caught:
            worker.wait_layer(job, 1, timeout_ms=60000)
        self.assertEqual(caught.exception.name, "SCOUT_ERR_TIMEOUT")
        self.assertEqual(wait_done(worker, job).error.name, "SCOUT_ERR_TIMEOUT")

    def test_cancel_and_fence_end_what_has_not_started(self):
        worker, pages = self.registered()
        jobs = [worker.store(0, hashes_of(f"c{i}", 1), range(4 * i, 4 * i + 4), layers=2, announced=True) for i in range(3)]
        worker.cancel(jobs[0])
        self.assertEqual(wait_done(worker, jobs[0]).error.name, "SCOUT_ERR_CANCELED")
        worker.fence([5])
        self.assertEqual(wait_done(worker, jobs[1]).error.name, "SCOUT_ERR_CANCELED")
        worker.layer_ready(jobs[2], 2)
        self.assertTrue(wait_done(worker, jobs[2]).ok)
        worker.fence([5])
        with self.assertRaises(kvscout.StateError):
            worker.cancel(jobs[0])

    def test_new_weights_and_a_cleared_cache_end_older_jobs(self):
        worker, pages = self.registered()
        job = worker.store(0, hashes_of("w", 1), range(4), layers=2, announced=True)
        worker.reset(7)
        self.assertEqual(wait_done(worker, job).error.name, "SCOUT_ERR_WEIGHTS")
        self.client.reset(7)
        self.store(worker, pages, "w", list(range(4)))
        self.assertEqual(self.hit("w", 1).chunks, 1)
        job = worker.store(0, hashes_of("w2", 1), range(4), layers=2, announced=True)
        generation = worker.clear()
        self.assertGreater(generation, 0)
        self.assertEqual(wait_done(worker, job).error.name, "SCOUT_ERR_CLEARED")
        self.assertEqual(worker.clear(generation), generation)
        wait_for(lambda: self.client.wait_lookup("after", hashes_of("w", 1), 100).tokens == 0 or self.client.finish("after"))

    def test_the_descriptor_is_readable_when_poll_has_something(self):
        worker, pages = self.registered()
        self.assertEqual(select.select([worker], [], [], 0)[0], [])
        job = worker.store(0, hashes_of("d", 1), range(4))
        self.assertEqual(select.select([worker], [], [], 20)[0], [worker])
        self.assertEqual([done.job for done in worker.poll()], [job])
        self.assertEqual(select.select([worker], [], [], 0)[0], [])

    def test_poll_reports_at_most_max(self):
        worker, pages = self.registered(Pages(n=1024))
        jobs = [worker.store(0, hashes_of(f"p{i}", 1), range(4 * i, 4 * i + 4)) for i in range(200)]
        wait_for(lambda: worker.stats()["live"] == 200 and len(worker.poll(0)) == 0)
        ended = []
        while len(ended) < 200:
            some = worker.poll(max=7)
            self.assertLessEqual(len(some), 7)
            ended += some
        self.assertEqual(sorted(done.job for done in ended), sorted(jobs))

    def test_stats_count(self):
        worker, pages = self.registered()
        self.store(worker, pages, "x", list(range(8)))
        stats = worker.stats()
        self.assertEqual((stats["registered"], stats["stores_ok"], stats["stored_chunks"], stats["live"]), (1, 1, 2, 0))
        self.assertEqual(stats["stored_bytes"], 8 * sum(pages.sizes))

    def test_a_full_worker_is_busy(self):
        worker, pages = self.registered(max_jobs=2)
        jobs = [worker.store(0, hashes_of(f"b{i}", 1), range(4), layers=2, announced=True) for i in range(2)]
        with self.assertRaises(kvscout.BusyError):
            worker.store(0, hashes_of("b3", 1), range(4))
        for job in jobs:
            worker.cancel(job)
        wait_done(worker, *jobs)


class Verify(Case):
    """Pages that hold what the engine computed, against what the pool has."""

    def verify(self, worker, hit, ids, **more):
        return wait_done(worker, worker.verify(hit.ticket, 0, hit.tokens, ids, **more))

    def test_what_differs_is_named(self):
        worker, pages = self.registered()
        ids = list(range(8))
        self.store(worker, pages, "v", ids)
        hit = self.hit("v", 2)
        done = self.verify(worker, hit, ids, ids_from=0, timeout_ms=60000)
        self.assertEqual((done.kind, done.ok, done.chunks, done.mismatched, done.missing), ("verify", True, 2, 0, {}))
        self.assertEqual([(v["group"], v["chunk"], v["differs"], v["norm_error"], v["share"]) for v in done.verified],
                         [(0, 0, False, 0.0, 0.0), (0, 1, False, 0.0, 0.0)])
        self.assertGreater(done.verified[0]["stored_by"], 0)
        self.assertGreater(done.verified[0]["stored_s"], 1e9)
        pages.block(1, 5)[7] ^= 1
        done = self.verify(worker, hit, ids)
        self.assertEqual((done.ok, done.mismatched, [v["differs"] for v in done.verified], done.verified[1]["plane"]), (True, 1, [False, True], 1))
        self.assertIn("kind='verify', status=0 (SCOUT_OK), chunks=2, mismatched=1", repr(done))
        stats = worker.stats()
        self.assertEqual((stats["verified_chunks"], stats["mismatched_chunks"], stats["verifies_ok"]), (4, 1, 2))
        status, by = [server_program(), "--status", self.server.endpoint], f".verify.by.{done.verified[0]['stored_by']:016x}."
        wait_for(lambda: f"{by}mismatches 1" in subprocess.run(status, capture_output=True, text=True).stdout)
        said = subprocess.run(status, capture_output=True, text=True).stdout
        for line in (f"{by}error_ppm.0 3", f"{by}error_ppm.1000000 1", ".verify.hits 2"):
            self.assertIn(f"{line}\n", said)
        done = wait_done(worker, worker.verify(hit.ticket, 64, 192, ids[4:] + [60, 61, 62, 63], ids_from=64))
        self.assertEqual((done.ok, done.error.name, done.missing), (False, "SCOUT_ERR_MISSING", {0: (0, 1, 2, 3, 4, 5, 6, 7)}))
        with self.assertRaisesRegex(kvscout.ArgumentError, r"Worker.verify\(\): from_token must be at most to_token"):
            worker.verify(hit.ticket, 64, 0, ids, ids_from=0)
        with self.assertRaisesRegex(TypeError, "layers"):
            worker.verify(hit.ticket, 0, 64, ids, layers=2)

    def test_each_group_is_compared(self):
        worker = self.make(kvscout.Worker, namespace="two", group=["all", "all"])
        client = self.make(kvscout.Client, namespace="two", group=["all", "all"], lookup_timeout_ms=60000)
        memory = [bytearray(os.urandom(64 * 256)) for _ in range(3)]
        planes = [[Tensor(m, (64, 128)) for m in memory[:2]], [Tensor(memory[2], (64, 128))]]
        self.assertTrue(worker.register(tables=[{"group": g, "planes": planes[g], "block_tokens": BLOCK_TOKENS} for g in (0, 1)],
                                        timeout_ms=60000))
        table = {0: list(range(8)), 1: list(range(20, 28))}
        self.assertTrue(wait_done(worker, worker.store(0, hashes_of("g", 2), table)).ok)
        hit = client.wait_lookup("g", hashes_of("g", 2), 129)
        client.admit("g")
        self.assertEqual(self.verify(worker, hit, table).mismatched, 0)
        memory[2][27 * 256 + 3] ^= 128
        done = self.verify(worker, hit, table)
        self.assertEqual([(v["group"], v["chunk"]) for v in done.verified if v["differs"]], [(1, 1)])
        self.assertEqual([(v["group"], v["chunk"]) for v in done.verified], [(0, 0), (0, 1), (1, 0), (1, 1)])

    def test_what_only_l2_has_is_loaded_and_compared(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.server = kvscout.Server(l1_bytes="1Mi", extent_bytes="256Ki", l2=f"fs://{folder.name}")
        self.addCleanup(self.server.stop)
        worker, pages = self.registered(Pages(sizes=(16384, 16384)))
        self.client = self.make(kvscout.Client, lookup_timeout_ms=60000)
        ids = list(range(4))
        self.store(worker, pages, "l2", ids)

        def in_l2(number):
            for chunk in range(10):  # as much as the pool holds
                self.store(worker, pages, f"other {number} {chunk}", range(8, 12))
            self.client.finish(f"{number - 1}")
            return self.hit("l2", 1, f"{number}")

        hit = next(hit for number in range(1000) if (hit := in_l2(number)).l2_chunks or not hit.tokens)
        self.assertEqual((hit.l2_chunks, hit.tokens), (1, CHUNK_TOKENS))
        done = self.verify(worker, hit, ids)
        self.assertEqual((done.ok, done.chunks, done.mismatched), (True, 1, 0), done)
        self.assertEqual((done.verified[0]["stored_by"], done.verified[0]["stored_s"]), (0, 0))
        pages.block(0, 3)[0] ^= 1
        self.assertEqual(self.verify(worker, hit, ids).mismatched, 1)


class Planes(Case):
    """Each form of pages: what is stored from it comes back into it, and the bytes lie where they should."""

    def round_trip(self, memory, planes, blocks, **how):
        """`blocks(b)`: the slices of block b, in the order of the planes."""
        worker = self.make(kvscout.Worker, namespace=self.id())
        self.assertIs(worker.register(planes, BLOCK_TOKENS, timeout_ms=60000, **how), True)
        want = {}
        for position, block in enumerate((1, 2, 4, 5)):
            for number, piece in enumerate(blocks(block)):
                want[position, number] = bytes_of("p", position, number, piece.stop - piece.start)
                memory[piece] = want[position, number]
        self.client_of = self.make(kvscout.Client, namespace=self.id(), lookup_timeout_ms=60000)
        self.client_of.wait_ready(60000)
        self.assertEqual(wait_done(worker, worker.store(0, hashes_of("p", 1), [1, 2, 4, 5])).chunks, 1)
        memory[:] = bytes(len(memory))
        hit = self.client_of.wait_lookup("p", hashes_of("p", 1), 100)
        self.assertTrue(wait_done(worker, worker.retrieve(hit.ticket, 0, CHUNK_TOKENS, [7, 6, 3, 0])).ok)
        expected = bytearray(len(memory))
        for position, block in enumerate((7, 6, 3, 0)):
            for number, piece in enumerate(blocks(block)):
                expected[piece] = want[position, number]
        self.assertEqual(bytes(memory), bytes(expected))
        worker.close()

    def dense(self, size):
        return lambda b: [slice(b * size, (b + 1) * size)]

    def test_addresses(self):
        memory = bytearray(8 * 128)
        tensor = Tensor(memory, (8, 128), item=1)
        self.round_trip(memory, [(tensor.address, 128, 64), (tensor.address + 64, 128, 64)],
                        lambda b: [slice(b * 128, b * 128 + 64), slice(b * 128 + 64, b * 128 + 128)], n_blocks=8)

    def test_a_bytearray_is_cut_into_equal_blocks(self):
        memory = bytearray(8 * 96)
        self.round_trip(memory, [memory], self.dense(96), n_blocks=8)

    def test_a_shaped_memoryview(self):
        memory = bytearray(8 * 96)
        self.round_trip(memory, [memoryview(memory).cast("B", shape=[8, 96])], self.dense(96))

    def test_an_mmap(self):
        memory = mmap.mmap(-1, 8 * 4096)
        self.addCleanup(memory.close)
        self.round_trip(memory, [memory], self.dense(4096), n_blocks=8)

    def test_a_tensor_with_blocks_first(self):
        memory = bytearray(8 * 2 * 16 * 4 * 2)
        self.round_trip(memory, [Tensor(memory, (8, 2, 16, 4))], self.dense(256), dtype="torch.bfloat16", layout_tag="NHD")

    def test_a_tensor_with_keys_and_values_apart(self):
        memory = bytearray(2 * 8 * 16 * 4 * 2)
        self.round_trip(memory, [Tensor(memory, (2, 8, 16, 4))],
                        lambda b: [slice(kv * 1024 + b * 128, kv * 1024 + (b + 1) * 128) for kv in range(2)], block_dim=1)

    def test_a_tensor_whose_heads_come_first_in_memory(self):
        memory = bytearray(8 * 64 * 2)  # shape (blocks, tokens, heads), in memory (blocks, heads, tokens)
        self.round_trip(memory, [Tensor(memory, (8, 16, 4), strides=(64, 1, 16))], self.dense(128))

    def test_layers_that_share_one_tensor(self):
        memory = bytearray(8 * 3 * 64 * 2)  # (blocks, layers, 64): each layer a view with gaps
        layers = [Tensor(memory, (8, 64), strides=(3 * 64, 1), offset=layer * 128) for layer in range(3)]
        self.round_trip(memory, layers, lambda b: [slice(b * 384 + layer * 128, b * 384 + (layer + 1) * 128) for layer in range(3)])

    def test_two_axes_that_are_not_dense(self):
        memory = bytearray(2 * 3 * 8 * 32)  # (2, 3, blocks, 32)
        self.round_trip(memory, [Tensor(memory, (2, 3, 8, 32), item=1)],
                        lambda b: [slice((i * 8 + b) * 32, (i * 8 + b + 1) * 32) for i in range(6)], block_dim=2)

    def test_an_array(self):
        memory = bytearray(8 * 64 * 2)
        self.round_trip(memory, [Array(memory, (8, 64))], self.dense(128))

    def test_an_array_with_strides(self):
        memory = bytearray(8 * 64 * 2)
        self.round_trip(memory, [Array(memory, (8, 4, 16), strides=(128, 2, 8))], self.dense(128))

    def test_tables(self):
        memory = bytearray(8 * 96)
        worker = self.make(kvscout.Worker)
        self.assertTrue(worker.register(tables=[{"group": 0, "planes": [memory], "block_tokens": 16, "n_blocks": 8}],
                                        timeout_ms=60000))

    def test_dtypes_keep_workers_apart(self):
        a, b = (self.make(kvscout.Worker) for _ in range(2))
        Pages().register(a, dtype="f16")
        with self.assertLogs("kvscout"):
            with self.assertRaises(kvscout.ServerError):
                Pages().register(b, dtype="bf16")
            _logs.flush()
        self.assertTrue(Pages().register(b, dtype="float16"))  # a refused registration may be repeated

    def test_layout_tags_keep_workers_apart(self):
        a, b = (self.make(kvscout.Worker) for _ in range(2))
        Pages().register(a, layout_tag="NHD")
        with self.assertLogs("kvscout"):
            with self.assertRaises(kvscout.ServerError):
                Pages().register(b, layout_tag="HND")
            _logs.flush()
        self.assertTrue(Pages().register(b, layout_tag="NHD"))


class Arguments(Case):
    def refused(self, error, text, call, *args, **more):
        with self.assertRaisesRegex(error, text):
            call(*args, **more)

    def test_register(self):
        worker = self.make(kvscout.Worker)
        A, T, m = kvscout.ArgumentError, TypeError, bytearray(1024)
        r = worker.register
        for error, text, args, more in [
            (T, r"needs the argument planes", (), {}),
            (T, r"needs the argument block_tokens", ([m],), {}),
            (A, r"block_tokens is 24; chunk_tokens, which is 64, must be a multiple of it", ([m], 24), {}),
            (A, r"block_tokens must be 1 or more, not 0", ([m], 0), {}),
            (T, r"planes must be a list of planes, not bytearray", (m, 16), {}),
            (T, r"planes must be a list of planes \(of a dict its values\(\)\)", ({"a": m}, 16), {}),
            (A, r"planes is empty", ([], 16), {}),
            (T, r"planes\[1\] must be \(address, stride, block_bytes\), a tensor, an array or a writable buffer, not 5", ([m, 5], 16),
             {"n_blocks": 8}),
            (A, r"planes\[0\]: .*read-only|gives no writable memory", ([bytes(64)], 16), {"n_blocks": 8}),
            (A, r"planes\[0\]: its memory is read-only", ([Array(m, (8, 64), read_only=True)], 16), {}),
            (A, r"planes\[0\]: it has one dimension; n_blocks must say into how many", ([m], 16), {}),
            (A, r"planes\[0\]: its 1024 bytes cannot be cut into 7 equal blocks", ([m], 16), {"n_blocks": 7}),
            (A, r"planes\[1\]: it has 4 blocks; n_blocks, or a plane before it, says 8", ([Tensor(m, (8, 64)), Tensor(m, (4, 64))], 16),
             {}),
            (A, r"planes\[0\]: block_dim is 2; it has dimensions 0\.\.1", ([Tensor(m, (8, 64))], 16), {"block_dim": 2}),
            (A, r"planes\[0\]: its dimension 1 has the stride 0", ([Tensor(m, (8, 64), strides=(64, 0))], 16), {}),
            (A, r"planes\[0\]: its blocks overlap: 2 bytes from one to the next", ([Tensor(m, (8, 64), strides=(1, 1))], 16), {}),
            (A, r"planes\[0\]: a tuple must be \(address, stride, block_bytes\)", ([(1, 2)], 16), {"n_blocks": 8}),
            (A, r"planes\[0\]: stride is 8 and block_bytes 16", ([(4096, 8, 16)], 16), {"n_blocks": 8}),
            (A, r"planes\[0\]: address must be an int of 0\.\.2\^64-1, not -1", ([(-1, 8, 16)], 16), {"n_blocks": 8}),
            (A, r"n_blocks is needed", ([(4096, 16, 16)], 16), {}),
            (A, r"cannot read|mapped|memory", ([(4096, 16, 16)], 16), {"n_blocks": 8}),
            (A, r"dtype must be 'opaque', .*, not 'f13'", ([m], 16), {"n_blocks": 8, "dtype": "f13"}),
            (A, r"null_block", ([m], 16), {"n_blocks": 8, "null_block": 8}),
            (T, r"layout_tag must be a str, not 5", ([m], 16), {"layout_tag": 5}),
            (A, r"timeout_ms must be 0\.\.4294967295, not -1", ([m], 16), {"timeout_ms": -1}),
            (T, r"give planes or tables, not both", ([m], 16), {"tables": []}),
            (A, r"tables must be a list of 1\.\.32 tables", (), {"tables": []}),
            (T, r"a table has planes, .* but no 'block_token'", (), {"tables": [{"block_token": 5}]}),
            (kvscout.KVScoutError, r"group", (), {"tables": [{"planes": [m], "block_tokens": 16, "n_blocks": 8, "group": 3}]}),
            (T, r"has no argument named 'plane'", (), {"plane": []}),
        ]:
            with self.subTest(text=text):
                self.refused(error, text, r, *args, **more)
        self.assertTrue(r([m], 16, n_blocks=8, timeout_ms=60000))
        self.refused(kvscout.StateError, "registered already", r, [m], 16, n_blocks=8)

    def test_jobs(self):
        A, T = kvscout.ArgumentError, TypeError
        fresh = self.make(kvscout.Worker)
        self.refused(kvscout.StateError, r"store\(\): no pages are registered; call register\(\) first", fresh.store, 0, [], [])
        worker, pages = self.registered()
        h, four = hashes_of("x", 1), range(4)
        for error, text, args, more in [
            (T, r"needs the argument block_ids", (0, h), {}),
            (A, r"ticket must be 0\.\.18446744073709551615, not -1", (-1, h, four), {}),
            (T, r"hashes must be a list or tuple of bytes, or a buffer .*, not 5", (0, 5, four), {}),
            (A, r"hashes\[0\] must have 32 bytes \(the configured hash_bytes\), not 3", (0, [b"abc"], four), {}),
            (T, r"hashes\[0\] must be bytes, not 'x'", (0, ["x"], four), {}),
            (A, r"hashes must be a buffer of whole hashes of 32 bytes .*, not 33 bytes", (0, bytes(33), four), {}),
            (T, r"hashes must be of bytes, if it is a buffer", (0, array.array("i", [0] * 8), four), {}),
            (A, r"stride must divide hash_tokens .by default chunk_tokens., which is 64: it is 64 divided by .* not 0", (0, h, four),
             {"stride": 0}),
            (A, r"stride must divide hash_tokens .*, not 3", (0, h * 3, four), {"stride": 3}),
            (T, r"block_ids must be a list of ints or a buffer of int64 or int32, not 'abcd'", (0, h, "abcd"), {}),
            (T, r"block_ids\[2\] must be an int, not 'c'", (0, h, [1, 2, "c", 4]), {}),
            (T, r"block_ids\[0\] must be an int, not 0\.5", (0, h, [0.5, 1, 2, 3]), {}),
            (A, r"block_ids\[1\] must be an int of 64 bits", (0, h, [0, 1 << 70, 2, 3]), {}),
            (A, r"block_ids must be .* buffer of int64 or int32 with one dimension, not format 'd'", (0, h, array.array("d", four)), {}),
            (A, r"block_ids has 3 blocks of 16 tokens, for the tokens 0\.\.48; the job needs 0\.\.64", (0, h, range(3)), {}),
            (A, r"block_ids has 4 blocks .* 16\.\.80; the job needs 0\.\.64", (0, h, four), {"ids_from": 16}),
            (A, r"block_ids begins at token 8; it must be a multiple of block_tokens, which is 16", (0, h, four), {"ids_from": 8}),
            (A, r"block_ids\[3\] is 64; the registered pages are 0\.\.63 \(group 0\)", (0, h, [1, 2, 3, 64]), {}),
            (A, r"block_ids has one page for two blocks of the store; each needs its own", (0, h * 2, [0, 1, 2, 3, 4, 5, 6, 0]), {}),
            (kvscout.KVScoutError, r"no table of group 2 is registered", (0, h, {2: four}), {}),
            (A, r"first_token must be a multiple of hash_tokens .by default chunk_tokens., not 16", (0, h, four),
             {"first_token": 16, "ids_from": 16}),
            (T, r"store\(\) needs the argument ids_from where first_token is 64: 0 if block_ids is the request's whole block table, or 64 "
             r"if block_ids\[0\] is the block of token 64", (0, h, range(8)), {"first_token": 64}),
            (T, r"needs the argument ids_from", (0, h, {0: range(8)}), {"first_token": 64, "ids_from": None}),
            (A, r"block_ids has 7 blocks of 16 tokens, for the tokens 0\.\.112; the job needs 64\.\.128", (0, h, range(7)),
             {"first_token": 64, "ids_from": 0}),
            (A, r"block_ids has 3 blocks of 16 tokens, for the tokens 64\.\.112; the job needs 64\.\.128", (0, h, range(3)),
             {"first_token": 64, "ids_from": 64}),
            (T, r"tenant must be a str, not b'x'", (0, h, four), {"tenant": b"x"}),
            (A, r"tenant", (0, h, four), {"tenant": "x" * 256}),
            (A, r"announced=True needs layers", (0, h, four), {"announced": True}),
            (A, r"layers is 3; the 2 planes of group 0 are no multiple of it", (0, h, four), {"layers": 3}),
            (A, r"layers has 3 planes of group 0; together they must be the 2 that are registered", (0, h, four), {"layers": [1, 2]}),
            (T, r"layers must be an int or a list of ints, not 'x'", (0, h, four), {"layers": "x"}),
            (A, r"layers\[1\] has 2 numbers; must be one for each of the 1 groups", (0, h, four), {"layers": [1, (1, 1)]}),
            (A, r"layers\[0\] has 0 numbers; must be one for each of the 1 groups", (0, h, four), {"layers": [(), 2]}),
            (A, r"layer_events has 1 events for 2 layers", (0, h, four), {"layers": 2, "layer_events": [5]}),
            (T, r"event must be an int \(a cudaEvent_t\), an object with cuda_event, or None, not 'x'", (0, h, four), {"event": "x"}),
            (A, r"event must be an event that exists \(its handle is 0; record it first\)", (0, h, four), {"event": 0}),
            (A, r"SCOUT_ERR_UNSUPPORTED", (0, h, four), {"event": 5}),
        ]:
            with self.subTest(text=text):
                self.refused(error, text, worker.store, *args, **more)
        for error, text, args, more in [
            (A, r"ticket must be the ticket of a Hit, not 0, not 0", (0, 0, 64, four), {}),
            (A, r"from_token must be at most to_token, not 80", (5, 80, 64, four), {"ids_from": 0}),
            (A, r"from_token must be a multiple of block_tokens, not 8", (5, 8, 64, four), {"ids_from": 0}),
            (T, r"retrieve\(\) needs the argument ids_from where from_token is 16: 0 if .* or 16 if", (5, 16, 64, four), {}),
            (A, r"block_ids has 4 blocks of 16 tokens, for the tokens 0\.\.64; the job needs 0\.\.65", (5, 0, 65, four), {}),
            (A, r"block_ids has 3 blocks of 16 tokens, for the tokens 0\.\.48; the job needs 16\.\.64", (5, 16, 64, range(3)),
             {"ids_from": 0}),
            (A, r"to_token must be 0\.\.9223372036854775807", (5, 0, 1 << 64, four), {}),
        ]:
            with self.subTest(text=text):
                self.refused(error, text, worker.retrieve, *args, **more)
        self.assertEqual(worker.stats()["live"], 0)

    def test_true_is_no_number(self):
        worker, pages = self.registered()
        h, four, m = hashes_of("x", 1), range(4), bytearray(1024)
        for name in ("ticket", "first_token", "ids_from", "stride", "event", "layers", "timeout_ms"):
            with self.subTest(name=name):
                args = {"ticket": 0, "hashes": h, "block_ids": four, name: True}
                self.refused(TypeError, rf"{name} must be an int.*, not True", worker.store, **args)
        for name in ("from_token", "to_token", "after"):
            with self.subTest(name=name):
                args = {"ticket": 5, "from_token": 0, "to_token": 64, "block_ids": four, name: True}
                self.refused(TypeError, rf"{name} must be an int.*, not True", worker.retrieve, **args)
        for text, call, args in [
            ("layers", worker.store, (0, h, four, True)), (r"block_ids\[1\]", worker.store, (0, h, [0, True, 2, 3])),
            (r"block_ids\[0\]", worker.fence, ([True],)), ("stream", worker.fence, ([1], True)), ("max", worker.poll, (True,)),
            ("job", worker.cancel, (True,)), ("layers", worker.wait_layer, (5, True)), ("layers", worker.layer_ready, (5, True)),
            ("weights_version", worker.reset, (True,)), ("generation", worker.clear, (True,)), ("code", kvscout.error_of, (True,)),
        ]:
            with self.subTest(text=text, call=call.__name__):
                more = {"layers": args[3:]} if len(args) > 3 else {}
                self.refused(TypeError, rf"{text} must be an int.*, not True", call, *args[:3], **more)
        fresh = self.make(kvscout.Worker)
        for name in ("block_tokens", "n_blocks", "null_block", "block_dim", "timeout_ms"):
            with self.subTest(name=name):
                args = {"planes": [m], "block_tokens": 16, "n_blocks": 8, name: True}
                self.refused(TypeError, rf"{name} must be an int.*, not True", fresh.register, **args)
        self.refused(kvscout.ArgumentError, "address must be an int", fresh.register, [(True, 8, 8)], 16, n_blocks=8)
        self.refused(kvscout.ArgumentError, "a stride must be an int", fresh.register, [Tensor(m, (8, 64), strides=(64, True))], 16)
        self.refused(kvscout.ConfigError, r"chunk_tokens = .true.: must be a number", kvscout.Worker, chunk_tokens=True)

    def test_planes_are_memory_of_their_own(self):
        """Layers of one tensor lie in each other's gaps; tables of two groups share their pages, of which each block is one group's."""
        m, worker = bytearray(4096), self.make(kvscout.Worker, namespace="two groups", group=["all", "all"])
        at = ctypes.addressof(ctypes.c_char.from_buffer(m))
        tensors = [Tensor(m, (8, 64)), Tensor(m, (8, 64))]
        for planes in ([(at, 512, 256), (at, 512, 256)], [(at, 512, 256), (at + 512 * 8, 512, 256)] * 2,
                       [(at, 512, 256), (at + 255, 512, 256)], [(at + 512, 512, 256), (at, 512, 257), (at + 256, 512, 256)],
                       [(at, 512, 256), (at + 1023, 512, 2)], tensors):
            with self.subTest(planes=planes):
                self.refused(kvscout.ArgumentError, r"planes\[\d\] and planes\[\d\] share memory: must be apart", worker.register, planes,
                             16, n_blocks=8)
        apart = {"planes": [(at, 512, 256), (at + 256, 512, 256)], "block_tokens": 16, "n_blocks": 8}
        self.assertTrue(worker.register(tables=[{**apart, "group": 0}, {**apart, "group": 1}], timeout_ms=60000))
        worker.close()

    def test_other_calls(self):
        A, T = kvscout.ArgumentError, TypeError
        worker, pages = self.registered()
        self.refused(A, r"fence\(\): block_ids\[1\] is 64; the registered pages are 0\.\.63", worker.fence, [-1, 64])
        self.refused(kvscout.KVScoutError, r"fence\(\): no table of group 1 is registered", worker.fence, [1], group=1)
        self.refused(A, r"fence\(\): stream is given, but the host backend knows none", worker.fence, [1], 0)
        self.refused(T, r"stream must be an int \(a cudaStream_t\), an object with cuda_stream, or None", worker.fence, [1], "s")
        self.refused(A, r"reset\(\): weights_version must be 1\.\.2\^64-1, not 0", worker.reset, 0)
        self.refused(T, r"clear\(\): generation must be an int, not 'x'", worker.clear, "x")
        generation = self.client.clear()
        for number in (1, 7, 1 << 63, generation + 1, generation ^ 1 << 40):  # none was handed out
            self.refused(A, r"generation must be what Client.clear\(\) returned, 0 or GENERATION_NEWEST, not \d+", worker.clear, number)
            self.refused(A, r"generation must be 0, or what another clear\(\) returned, not \d+", self.client.clear, number)
        self.assertEqual((worker.clear(generation), self.client.clear(generation)), (generation, generation))
        self.assertEqual(worker.clear(kvscout.GENERATION_NEWEST), kvscout.GENERATION_NEWEST)
        self.assertNotEqual(self.client.clear(worker.clear()), generation)
        self.refused(T, r"cancel\(\): job must be an int, not None", worker.cancel, None)
        self.refused(A, r"poll\(\): max must be 0\.\.4294967295, not -1", worker.poll, -1)
        self.refused(kvscout.StateError, r"wait_layer\(\): job 77 does not exist", worker.wait_layer, 77, 1)
        self.refused(kvscout.ConfigError, r"kv_rank", kvscout.Worker, endpoint=self.server.endpoint, kv_rank=-3)

    def test_events_are_taken_out_of_objects(self):
        class Event:
            cuda_event = 5

        worker, pages = self.registered()
        self.refused(kvscout.ArgumentError, "SCOUT_ERR_UNSUPPORTED", worker.store, 0, hashes_of("e", 1), range(4), event=Event())


if __name__ == "__main__":
    unittest.main()
