# SPDX-License-Identifier: Apache-2.0
"""The worker's side of kvscout.vllm alone, with steps that are made here. The server and the copies are real; events are recorded
by a device, so here they only stand for one, and what asks for a copy on it is looked at on its way to kvscout's worker."""

import importlib
import sys
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import config, groups, ranks
from pages import CHUNK_TOKENS, hashes_of
from rig import wait_for
from vllm_rig import Engine, modules_of_vllm

IDS = list(range(4))


class Watched:
    """kvscout's worker, and the events that its retrieves were to wait for."""

    def __init__(self, worker):
        self._worker = worker
        self.after = []

    def retrieve(self, *args, after=None, **more):
        self.after.append(after)
        return self._worker.retrieve(*args, **more)

    def __getattr__(self, name):
        return getattr(self._worker, name)


class Steps(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.engine = Engine(self, self.server.endpoint, 0)
        self.worker = self.engine.worker
        self.watched = self.worker._worker = Watched(self.engine.copier)
        self.n_events = 0
        self.worker._make_event = self.event
        self.first = self.worker.take_meta()

    def event(self):
        self.n_events += 1
        return f"event {self.n_events}"

    def load(self, request_id):
        found = self.engine.client.wait_lookup(request_id, hashes_of("p", 1), CHUNK_TOKENS + 1, timeout_ms=60000)
        self.assertEqual(found.chunks, 1)
        return self.engine.messages.Load(request_id, found.ticket, 0, CHUNK_TOKENS, {0: IDS}, True)

    def store(self, number, request_id="p", **more):
        return self.engine.messages.Store(number, request_id, 0, hashes_of("p", 1), 0, {0: IDS}, 0, None, **more)

    def meta(self, **what):
        return self.engine.messages.Metadata(**what)

    def ended(self):
        return self.worker.finished(set())[0]

    def test_a_worker_tells_its_namespace_once(self):
        self.assertEqual(self.first.namespaces, {"vllm/own"})
        self.assertIsNone(self.worker.take_meta())

    def test_loads_wait_for_what_the_device_had_before_the_step(self):
        self.engine.store("p")
        meta = self.meta(loads=[self.load("a"), self.load("b")])
        self.worker.begin_step(meta)
        self.assertEqual(self.n_events, 1)
        self.worker._make_event = self.fail  # the forward pass is enqueued: an event would be behind it
        self.worker.start_loads(meta)
        self.assertEqual(self.watched.after, ["event 1", "event 1"])
        names = set()
        wait_for(lambda: names.update(self.ended()) or names == {"a", "b"}, what="the ends of the loads")
        self.assertTrue(self.engine.pages.holds("p", IDS))

    def test_a_step_without_loads_records_nothing(self):
        self.worker.begin_step(self.meta())
        self.assertEqual(self.n_events, 0)

    def test_a_store_that_no_wait_for_save_saw_is_reported_as_not_stored(self):
        meta = self.meta(stores=[self.store(7), self.store(8, "a comparison, which stores nothing", to_token=CHUNK_TOKENS)])
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
        self.assertIsNone(self.worker.take_meta())
        self.worker.begin_step(self.meta())
        told = self.worker.take_meta()
        self.assertEqual((told.stored, told.not_stored, told.compared), ({7: 1, 8: 1}, {"p": 0}, []))
        self.assertEqual(self.worker.counts["stores_dropped"], 1)
        self.worker.begin_step(self.meta())
        self.assertIsNone(self.worker.take_meta())

    def test_a_store_is_reported_once(self):
        self.worker._make_event = lambda: None
        meta = self.meta(stores=[self.store(7)])
        self.worker.begin_step(meta)
        self.worker.wait_for_save(meta)
        self.worker.begin_step(self.meta())
        wait_for(lambda: self.ended() or self.worker.counts["stores_ended"], what="the end of the store")
        self.assertEqual(self.worker.take_meta().stored, {7: 1})
        self.assertEqual(self.worker.counts["stores_dropped"], 0)


class Making(unittest.TestCase):
    def test_what_the_user_says_of_copies_is_a_key_of_the_worker(self):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            connector = importlib.import_module("kvscout.vllm.connector")
            own = object.__new__(connector.KVScoutConnector)
            own._vllm_config, own._kv_cache_config, own._groups = types.SimpleNamespace(parallel_config=None), None, groups.one(16, CHUNK_TOKENS)
            own._inert = None
            own._config = config.parse({"copy_method": "batch", "cpus": "0"}, 16)
            own._common = lambda namespace, version: {"namespace": namespace}
            with (
                mock.patch.object(connector.identity.Worker, "find", lambda *_: ("d1", None)),
                mock.patch.object(connector.identity, "world", lambda: types.SimpleNamespace(rank_in_group=0)),
                mock.patch.object(connector.identity, "of_engine", lambda *_: "d1"),
                mock.patch.object(connector.ranks, "current", lambda *_: ranks.Ranks(2, 1, 1, 0)),
                mock.patch("kvscout.Worker") as made,
            ):
                own._start_worker()
        made.assert_called_once_with(namespace="vllm/d1", copy_method="batch", cpus="0", kv_rank=1, reader=0)


if __name__ == "__main__":
    unittest.main()
