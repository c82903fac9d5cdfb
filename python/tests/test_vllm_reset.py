# SPDX-License-Identifier: Apache-2.0
"""New weights in one of two engines that share a cache: both sides of kvscout.vllm with real clients, workers and
server. vLLM is not needed: its base classes are empty ones here."""

import importlib
import sys
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import config
from pages import BLOCK_TOKENS, CHUNK_TOKENS, Pages, hashes_of, wait_done
from rig import wait_for

BASES = {
    "vllm.distributed.kv_transfer.kv_connector.v1.base": ("KVConnectorMetadata", "KVConnectorWorkerMetadata"),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": ("KVConnectorPromMetrics", "KVConnectorStats"),
}
NO_STEP = types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=set())


def modules_of_vllm():
    """Modules by name, with those above them."""
    found = {}
    for name, classes in BASES.items():
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:n]), types.ModuleType(".".join(parts[:n])))
        for base in classes:
            setattr(found[name], base, type(base, (), {}))
    return found


class Engine:
    """What the two processes of an engine hold, and its pages."""

    def __init__(self, test, endpoint, weights_version):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            scheduler, worker = (importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "worker"))
        parsed = config.parse({"weights_version": weights_version, "chunk_tokens": CHUNK_TOKENS}, BLOCK_TOKENS)
        keys = {"endpoint": endpoint, "chunk_tokens": CHUNK_TOKENS, "weights_version": weights_version}
        self.client, self.copier = kvscout.Client(**keys), kvscout.Worker(**keys)
        test.addCleanup(self.client.close)
        test.addCleanup(self.copier.close)
        self.pages = Pages()
        self.pages.register(self.copier)
        self.scheduler = scheduler.Scheduler(parsed, self.client, 1, kvscout.KVScoutError, lambda salt: None, hints=None)
        pool = types.SimpleNamespace(num_gpu_blocks=2, get_num_free_blocks=lambda: 1)
        self.scheduler.bind(types.SimpleNamespace(block_pool=pool))
        self.worker = worker.Worker(parsed, self.copier, kvscout.KVScoutError)

    def step(self):
        meta = self.scheduler.build_meta(NO_STEP)
        self.worker.start_loads(meta)
        return meta

    def store(self, prompt):
        """The end of a store of one chunk."""
        self.pages.fill(prompt, range(4))
        return wait_done(self.copier, self.copier.store(0, hashes_of(prompt, 1), list(range(4))))

    def hit(self, prompt):
        """Chunks of @prompt that this engine could load."""
        found = self.client.wait_lookup(prompt, hashes_of(prompt, 1), CHUNK_TOKENS + 1)
        self.client.finish(prompt)
        return found.chunks


class TwoEngines(unittest.TestCase):
    servers = 0

    def setUp(self):
        TwoEngines.servers += 1
        self.server = kvscout.Server(listen=f"inproc://reset{TwoEngines.servers}", l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def engines(self, weights_version):
        a, b = (Engine(self, self.server.endpoint, weights_version) for _ in range(2))
        self.assertTrue(a.store("old").ok)
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

    def test_the_log_names_the_number(self):
        a, _ = self.engines(41)
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            a.scheduler.reset()
        self.assertIn("weights_version is now 42", log.output[0])


if __name__ == "__main__":
    unittest.main()
