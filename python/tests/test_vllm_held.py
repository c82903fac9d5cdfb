# SPDX-License-Identifier: Apache-2.0
"""Beside another connector, whose failed load vLLM hears of after the step: what such a step computed is not stored. Both sides of kvscout.vllm
with a real client, worker and server."""

import types
import unittest

import kvscout
from pages import BLOCKS, CHUNK_TOKENS, hashes_of
from rig import wait_for
from vllm_rig import Engine

IDS = list(range(1, 1 + 2 * BLOCKS))  # of the blocks of a request of two chunks


class Pool:
    """vLLM's block pool, as far as a store pins blocks in it."""

    def __init__(self):
        self.num_gpu_blocks = 64
        self.blocks = [types.SimpleNamespace(block_id=i, ref_cnt=0) for i in range(self.num_gpu_blocks)]
        self.null_block = self.blocks[0]

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1

    def evict_blocks(self, block_ids):
        """No block is in the prefix cache."""

    def get_num_free_blocks(self):
        return self.num_gpu_blocks - 1

    @property
    def pinned(self):
        return sum(block.ref_cnt for block in self.blocks)


def request(name):
    hashes = [found for found in hashes_of(name, 2) for _ in range(BLOCKS)]
    return types.SimpleNamespace(
        request_id=name, num_tokens=2 * CHUNK_TOKENS, num_prompt_tokens=2 * CHUNK_TOKENS, num_computed_tokens=0, block_hashes=hashes,
        cache_salt=None, kv_transfer_params=None, skip_reading_prefix_cache=False, lora_request=None, mm_features=(),
    )


class Beside(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.engine = Engine(self, self.server.endpoint, 0)
        self.scheduler, self.worker = self.engine.scheduler, self.engine.worker
        self.pool = Pool()
        self.scheduler.bind(types.SimpleNamespace(block_pool=self.pool, get_block_ids=lambda name: (IDS,)))
        self.worker._make_event = lambda: None
        self.worker.holds_stores = True
        self.request = request("p")
        self.scheduler.on_new_request(self.request)
        self.scheduler.allocated(self.request, (IDS,), 0)
        self.engine.pages.fill("p", IDS)

    def schedule(self, tokens=0):
        """A step of the scheduler, which computes @tokens of the request."""
        step = types.SimpleNamespace(num_scheduled_tokens={"p": tokens} if tokens else {}, preempted_req_ids=set())
        meta = self.scheduler.build_meta(step)
        self.request.num_computed_tokens += tokens
        return meta

    def execute(self, meta):
        """The worker's part. Returns what it tells."""
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
        self.worker.wait_for_save(meta)
        self.worker.finished(set())
        return self.worker.take_meta()

    def step(self, tokens=0, load_failed=False):
        self.scheduler.worker_output(self.execute(self.schedule(tokens)), load_failed)

    def steps_until_nothing_is_pinned(self):
        wait_for(lambda: self.step() or not self.pool.pinned, what="the end of the stores")
        self.assertFalse(self.scheduler.has_pending_stores())

    def hit(self):
        """Leading chunks of the request that are cached."""
        found = self.engine.client.wait_lookup("q", hashes_of("p", 2), 2 * CHUNK_TOKENS + 1)
        self.engine.client.finish("q")
        return found.chunks

    def test_a_store_starts_when_the_result_of_its_step_is_known(self):
        self.step(CHUNK_TOKENS)
        self.assertEqual((self.worker.counts["stores_ended"], self.pool.pinned, len(self.worker._held)), (0, BLOCKS, 1))
        self.assertTrue(self.scheduler.has_pending_stores())  # so vLLM takes another step
        self.steps_until_nothing_is_pinned()
        self.assertEqual((self.worker.counts["stores_ended"], self.hit()), (1, 1))

    def test_what_was_computed_beside_a_failed_load_is_stored_when_it_is_computed_again(self):
        self.step(2 * CHUNK_TOKENS, load_failed=True)
        self.steps_until_nothing_is_pinned()
        self.assertEqual((self.worker.counts["stores_ended"], self.worker.counts["stores_dropped"], self.hit()), (0, 1, 0))
        self.request.num_computed_tokens = 0
        self.step(2 * CHUNK_TOKENS)
        self.steps_until_nothing_is_pinned()
        self.assertEqual(self.hit(), 2)

    def test_a_step_that_was_scheduled_before_the_failure_was_known_counts_too(self):
        first, second = self.schedule(CHUNK_TOKENS), self.schedule(CHUNK_TOKENS)
        self.scheduler.worker_output(self.execute(first), True)
        self.scheduler.worker_output(self.execute(second), False)
        self.steps_until_nothing_is_pinned()
        self.assertEqual((self.worker.counts["stores_ended"], self.hit()), (0, 0))

    def test_a_failure_does_not_stop_what_an_earlier_step_stored(self):
        self.step(CHUNK_TOKENS)
        self.step(CHUNK_TOKENS, load_failed=True)
        self.steps_until_nothing_is_pinned()
        self.assertEqual(self.hit(), 1)

    def test_a_reset_drops_what_waits(self):
        self.step(CHUNK_TOKENS)
        self.assertTrue(self.scheduler.reset())
        self.steps_until_nothing_is_pinned()
        self.assertEqual((self.worker.counts["stores_ended"], self.hit()), (0, 0))

    def test_alone_nothing_waits(self):
        self.worker.holds_stores = False
        self.execute(self.schedule(CHUNK_TOKENS))
        wait_for(lambda: self.worker.finished(set())[0] or self.worker.counts["stores_ended"] == 1, what="the end of the store")
        self.assertEqual(self.hit(), 1)


if __name__ == "__main__":
    unittest.main()
