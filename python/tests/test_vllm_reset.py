# SPDX-License-Identifier: Apache-2.0
"""New weights in one of two engines that share a cache: both sides of kvscout.vllm with real clients, workers and server."""

import types
import unittest
from unittest import mock

import kvscout
from pages import BLOCK_TOKENS, CHUNK_TOKENS
from rig import wait_for
from vllm_rig import Engine, request


class TwoEngines(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def engines(self, weights_version):
        a, b = (Engine(self, self.server.endpoint, weights_version) for _ in range(2))
        self.assertTrue(a.store("old").ok)
        self.assertTrue(b.store("own").ok)  # an engine whose worker the server meets after a reset is one of after it
        self.assertEqual(b.hit("old"), 1)
        return a, b

    def test_with_a_version_each_reset_is_the_next_number_and_the_other_engine_joins_by_its_own(self):
        a, b = self.engines(1)
        self.assertTrue(a.scheduler.reset())
        self.assertEqual([a.step().weights_version for _ in range(2)], [2, 0])
        self.assertTrue(a.store("new").ok)
        self.assertEqual(b.store("late").error.name, "SCOUT_ERR_WEIGHTS")
        self.assertEqual(b.hit("new"), 0)
        self.assertTrue(b.scheduler.reset())
        self.assertEqual(b.step().weights_version, 2)
        wait_for(lambda: b.hit("new") == 1, what="the second engine to find what the first one stored")
        self.assertEqual((a.hit("new"), a.hit("old"), a.hit("late")), (1, 0, 0))
        self.assertTrue(b.store("late").ok)

    def test_without_a_version_a_reset_is_a_generation_that_only_its_engine_joins(self):
        a, b = self.engines(0)
        self.assertTrue(a.scheduler.reset())
        first = a.step()
        self.assertEqual((first.weights_version, a.step().generation), (0, 0))
        self.assertGreater(first.generation, 0)
        self.assertTrue(a.store("new").ok)
        self.assertEqual(b.store("late").error.name, "SCOUT_ERR_CLEARED")
        self.assertTrue(b.scheduler.reset())
        b.step()
        self.assertTrue(b.store("late").ok)
        self.assertEqual(a.store("newer").error.name, "SCOUT_ERR_CLEARED")
        self.assertEqual((b.hit("new"), b.hit("late")), (0, 1))

    def test_it_waits_for_no_step(self):
        """Requests are paused: vLLM announces them, and no step takes them."""
        a, b = self.engines(0)
        with mock.patch("time.monotonic", return_value=100.0):
            for name in ("one", "two"):
                a.scheduler.on_new_request(request(name, CHUNK_TOKENS, BLOCK_TOKENS))
        self.assertTrue(a.scheduler.reset())
        wait_for(lambda: b.hit("old") == 0, what="the server to drop what was stored before the reset")

    def test_the_log_names_the_number(self):
        a, _ = self.engines(41)
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            a.scheduler.reset()
        self.assertIn("weights_version is now 42", log.output[0])


class WhileRequestsRun(unittest.TestCase):
    """vLLM's own prefix cache still has blocks from before the reset, and cannot be reset."""

    def setUp(self):
        server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(server.stop)
        self.engine = Engine(self, server.endpoint, 0, block_tokens=CHUNK_TOKENS)
        self.scheduler = self.engine.scheduler
        self.requests = {}
        pool = self.scheduler._manager.block_pool
        pool.blocks, pool.touch, pool.free_blocks = list(range(9)), lambda blocks: None, lambda blocks: None

    def allocate(self, name, blocks):
        asked = self.requests[name] = request(name, 2 * CHUNK_TOKENS)
        self.scheduler.on_new_request(asked)
        self.allocate_again(name, blocks)

    def allocate_again(self, name, blocks):
        self.engine.blocks[name] = (blocks,)
        self.scheduler.allocated(self.requests[name], (blocks,), 0)

    def step(self, *names, preempted=()):
        """Names of the requests whose chunks are stored. The step has all of their tokens."""
        tokens = {name: 2 * CHUNK_TOKENS for name in names}
        found = self.scheduler.build_meta(types.SimpleNamespace(num_scheduled_tokens=tokens, preempted_req_ids=set(preempted)))
        return [store.request_id for store in found.stores]

    def ends(self, name):
        self.scheduler.finished(self.requests.pop(name))
        del self.engine.blocks[name]

    def test_new_requests_are_stored_and_those_from_before_are_not(self):
        self.allocate("old", [1, 2])
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            self.assertTrue(self.scheduler.reset())
        self.assertIn("1 requests from before go on, and store nothing", log.output[0])
        self.assertEqual(self.engine.evicted.pop(), set(range(9)))
        self.assertEqual(self.scheduler.counts["older_requests"], 1)
        self.allocate("new", [3, 4])
        self.assertEqual(self.step("old", "new"), ["new"])
        self.assertEqual(self.engine.evicted.pop(), {1, 2})  # what vLLM cached of it in this step
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            self.ends("old")
        self.assertIn("the last request from before the reset has ended", log.output[0])
        self.assertEqual(self.engine.evicted.pop(), {1, 2})
        self.assertEqual(self.scheduler.counts["older_requests"], 0)
        self.step()
        self.assertEqual(self.engine.evicted, [])

    def test_a_request_that_shares_a_block_with_an_older_one_is_older_itself(self):
        """vLLM allocates it in the step in which the other one's block was filled."""
        self.allocate("old", [1, 2])
        self.scheduler.reset()
        self.allocate("heir", [1, 5])
        self.allocate("grandchild", [5, 6])
        self.allocate("new", [0, 7])
        self.assertEqual(self.step("heir", "grandchild", "new"), ["new"])
        self.ends("old")
        self.assertEqual(self.scheduler._older._ids, {"heir", "grandchild"})

    def test_an_older_request_that_is_preempted_leaves_nothing_in_vllms_cache(self):
        self.allocate("old", [1, 2])
        self.scheduler.reset()
        self.engine.blocks["old"] = ([],)
        self.step(preempted=["old"])
        self.assertEqual(self.engine.evicted.pop(), set(range(9)))
        self.allocate_again("old", [3, 4])
        self.assertEqual(self.step("old"), [])

    def test_a_preempted_one_begins_anew(self):
        """With reset_running_requests vLLM preempts all before the reset, and tells after it."""
        self.allocate("old", [1, 2])
        self.engine.blocks["old"] = ([],)
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            self.scheduler.reset()
        self.assertNotIn("go on", log.output[0])
        self.assertEqual(self.scheduler.counts["older_requests"], 0)
        self.allocate_again("old", [3, 4])
        self.assertEqual(self.step("old"), ["old"])


if __name__ == "__main__":
    unittest.main()
