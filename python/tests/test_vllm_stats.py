# SPDX-License-Identifier: Apache-2.0
"""What connector and tier of vLLM say to its /metrics: counts, gauges, times, and the server's own numbers."""

import importlib
import importlib.util
import struct
import sys
import tempfile
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import server_numbers
from kvscout.vllm.times import Times
from pages import CHUNK_TOKENS, Pages, hashes_of, wait_done
from rig import ServerProcess, server_program, wait_for
from test_ensure_server import end
from vllm_rig import modules_of_vllm

with mock.patch.dict(sys.modules, modules_of_vllm()):
    stats = importlib.import_module("kvscout.vllm.stats")


class Metric:
    """A metric of Prometheus that remembers what it was told."""

    def __init__(self, **about):
        self.about, self.told = about, []
        self.set = self.inc = self.observe = self.told.append

    def labels(self, *labels):
        return self


class Stats(unittest.TestCase):
    @staticmethod
    def of(**data):
        found = stats.Stats()
        found.data = data
        return found

    def test_counts_add_up_a_gauge_is_the_last_one_and_times_are_all_there(self):
        whole = self.of(asked=2, server_up=0, lookup_seconds=[0.1]).aggregate(self.of(asked=3, server_up=1, lookup_seconds=[0.2], load_us=5))
        self.assertEqual(whole.data, {"asked": 5, "server_up": 1, "lookup_seconds": [0.1, 0.2], "load_us": 5})
        self.assertEqual(whole.reduce()["kvscout lookups"], 5)

    def test_what_has_changed_is_told_once(self):
        counts, times = {"asked": 1, "server_up": 1}, Times()
        delta = stats.Delta(counts, times)
        self.assertEqual(delta.take(), {})
        counts.update(asked=5, server_up=0)
        times.add("lookup_seconds", 0.5)
        self.assertEqual(delta.take(), {"asked": 4, "server_up": 0, "lookup_seconds": [0.5]})
        self.assertEqual(delta.take(), {})

    def test_times_that_nobody_takes_are_bounded(self):
        times = Times()
        for _ in range(Times.ROOM + 5):
            times.add("load_seconds", 1.0)
        self.assertEqual(len(times.take()["load_seconds"]), Times.ROOM)

    def test_each_kind_is_its_own_metric(self):
        made = {}

        def metric(**about):
            made[about["name"]] = Metric(**about)
            return made[about["name"]]

        prom = stats.PromMetrics.__new__(stats.PromMetrics)
        prom._counter_cls = prom._gauge_cls = prom._histogram_cls = metric
        with mock.patch.object(stats.KVConnectorPromMetrics, "__init__", lambda self, *args: None, create=True):
            prom.__init__(None, {}, ["engine"], {0: ["0"]})
        prom.observe({"asked": 3, "server_up": 0, "load_seconds": [0.1, 0.2], "of another version": 1}, 0)
        told = {name: m.told for name, m in made.items() if m.told}
        self.assertEqual(
            told, {"vllm:kvscout_asked": [3], "vllm:kvscout_server_up": [0], "vllm:kvscout_load_seconds": [0.1, 0.2]}
        )
        self.assertEqual(set(made), {f"vllm:kvscout_{name}" for name in (*stats.ALL, *stats.GAUGES, *stats.TIMES)})
        self.assertIn("buckets", made["vllm:kvscout_load_seconds"].about)


class Answers(unittest.TestCase):
    def test_what_is_no_answer_to_status_says_nothing(self):
        question = server_numbers.QUESTION
        for frame in (b"", question, question + bytes(4), bytes(200)):
            self.assertEqual(server_numbers.read(frame), {})

    def test_an_answer_that_ends_too_early_is_an_error_of_struct(self):
        head = bytearray(server_numbers.QUESTION)
        head[33] = 1  # kind: reply
        with self.assertRaises(struct.error):
            server_numbers.read(bytes(head) + struct.pack("<I", 1))

    def test_the_address_of_auto_is_the_librarys(self):
        with tempfile.TemporaryDirectory(prefix="kvscout-") as folder:
            where = f"auto://{folder}"
            found = kvscout.ensure_server(endpoint=where, server_program=server_program(), l1_bytes="64Mi")
            self.addCleanup(end, found)
            self.assertEqual(server_numbers.address(where), found)
            end(found)
        self.assertEqual(server_numbers.address("tcp://a:1"), "tcp://a:1")


@unittest.skipUnless(importlib.util.find_spec("zmq"), "pyzmq is not installed; vLLM brings it")
class Watch(unittest.TestCase):
    def setUp(self):
        self.server = ServerProcess(l1_bytes="1Mi", extent_bytes="128Ki")
        self.addCleanup(self.server.stop)
        keys = {"endpoint": self.server.endpoint, "chunk_tokens": CHUNK_TOKENS}
        self.client = kvscout.Client(**keys)
        self.addCleanup(self.client.close)
        self.client.wait_ready(60000)
        self.worker = kvscout.Worker(**keys)
        self.addCleanup(self.worker.close)
        self.pages = Pages()
        self.assertTrue(self.pages.register(self.worker))
        self.counts = dict.fromkeys((*server_numbers.GAUGES, "evictions"), 0)
        self.now = 100.0
        self.watch = server_numbers.Watch(self.client, self.server.endpoint, {}, self.counts, clock=lambda: self.now)
        self.addCleanup(self.watch.close)

    def looks(self, condition):
        def look():
            self.now += server_numbers.LOOK_S
            self.watch.look()
            return condition(self.counts)

        wait_for(look, what="the server's numbers")

    def store(self, prompt):
        self.pages.fill(prompt, range(4))
        return wait_done(self.worker, self.worker.store(0, hashes_of(prompt, 1), range(4))).ok

    def test_it_says_how_full_the_pool_is_and_what_was_evicted(self):
        self.looks(lambda counts: counts["pool_bytes"] == 1 << 20 and counts["server_up"] == 1)
        self.assertTrue(self.store("a"))
        self.looks(lambda counts: counts["pool_bytes_used"] > 0)
        self.assertEqual(self.counts["evictions"], 0)
        stored = 0
        while not self.server.counter("l1.evictions"):
            stored += self.store(f"b{stored}")
        self.looks(lambda counts: counts["evictions"] == self.server.counter("l1.evictions"))

    def test_it_says_that_the_server_is_away_and_goes_on_with_the_next_one(self):
        self.looks(lambda counts: counts["pool_bytes"] > 0)
        self.server.kill()
        self.looks(lambda counts: counts["server_up"] == 0)
        self.server.config["l1_bytes"] = "2Mi"
        self.server.start()
        self.looks(lambda counts: counts["server_up"] == 1 and counts["pool_bytes"] == 2 << 20)
        self.assertEqual(self.counts["evictions"], 0)

    def test_it_asks_once_in_a_while(self):
        self.looks(lambda counts: counts["pool_bytes"] > 0)
        place = self.watch._places[0]
        with mock.patch.object(place, "ask") as ask:
            for _ in range(100):
                self.now += 0.1
                self.watch.look()
        self.assertEqual(ask.call_count, 2)

    def test_without_an_answer_the_engine_goes_on(self):
        for keys in ({"curve_secret_file": "/no/such", "curve_server_key": "k" * 40}, {}):
            with mock.patch.dict(sys.modules, {"zmq": None} if not keys else {}):
                found = server_numbers.Watch(self.client, self.server.endpoint, keys, self.counts)
            found.look()
            self.assertEqual((self.counts["server_up"], self.counts["pool_bytes"]), (1, 0))
            found.close()


if __name__ == "__main__":
    unittest.main()
