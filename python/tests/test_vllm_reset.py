# SPDX-License-Identifier: Apache-2.0
"""New weights in one of two engines that share a cache: both sides of kvscout.vllm with real clients, workers and server."""

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


if __name__ == "__main__":
    unittest.main()
