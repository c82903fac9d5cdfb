# SPDX-License-Identifier: Apache-2.0
"""A request's life on the scheduler's side of kvscout.vllm, with a real client and server."""

import dataclasses
import types
import unittest
from unittest import mock

import kvscout
from pages import CHUNK_TOKENS, hashes_of
from rig import ServerProcess, wait_for
from vllm_rig import Engine, request


class Lives(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.engine = Engine(self, self.server.endpoint, 0, block_tokens=CHUNK_TOKENS)
        self.scheduler = self.engine.scheduler

    def lives(self, asked):
        """What is found for a request that is announced, asked for, admitted and at its end."""
        self.scheduler.on_new_request(asked)
        found = wait_for(lambda: self.matched(asked), what="an answer")[0]
        self.scheduler.allocated(asked, ([1],), 0)
        self.engine.step()
        self.scheduler._finish_lookup(self.scheduler._requests.pop(asked.request_id))
        return found

    def matched(self, asked):
        found = self.scheduler.matched_tokens(asked, 0)
        return None if found is None else (found,)

    def test_a_prompt_of_less_than_a_chunk_is_no_question_and_no_line_in_the_log(self):
        self.assertTrue(self.engine.store("p").ok)
        with self.assertNoLogs("vllm.kvscout"):
            self.assertEqual(self.lives(request("short", CHUNK_TOKENS - 1)), 0)
            self.assertEqual(self.lives(request("whole", CHUNK_TOKENS)), CHUNK_TOKENS - 1)
            self.assertEqual(self.lives(request("longer", CHUNK_TOKENS + 1)), CHUNK_TOKENS)
        self.assertEqual(self.scheduler.counts["asked"], 2)

    def test_workers_in_two_namespaces_are_said_and_the_engine_stays_out(self):
        self.assertTrue(self.engine.store("p").ok)
        told = self.engine.messages.WorkerMetadata
        with self.assertNoLogs("vllm.kvscout"):
            self.scheduler.worker_output(told(namespaces=frozenset(("vllm/own",))))
        before = request("before", CHUNK_TOKENS + 1)
        self.scheduler.on_new_request(before)
        with self.assertLogs("vllm.kvscout", "ERROR") as log:
            self.scheduler.worker_output(told(namespaces=frozenset(("vllm/own", "vllm/other"))))
        self.assertIn("its workers are in different namespaces: vllm/other, vllm/own", log.output[0])
        self.assertEqual(self.lives(request("after", CHUNK_TOKENS + 1)), 0)
        self.assertEqual(self.scheduler.matched_tokens(before, 0), 0)
        self.assertTrue(self.scheduler.reset())
        self.assertFalse(self.scheduler._may_store)
        self.assertEqual(self.scheduler.counts["asked"], 0)

    def test_before_the_namespace_is_known_nothing_is_asked_and_then_what_was_computed_is_stored(self):
        """Beside another connector it comes with the first step."""
        early = Engine(self, self.server.endpoint, 0, block_tokens=CHUNK_TOKENS, joined=False)
        scheduler, asked = early.scheduler, request("early", CHUNK_TOKENS + 1)
        scheduler.on_new_request(asked)
        self.assertEqual(scheduler.matched_tokens(asked, 0), 0)
        scheduler.allocated(asked, ([1],), 0)
        early.step()
        with self.assertLogs("vllm.kvscout", "WARNING"):
            self.assertFalse(scheduler.reset())
        scheduler.finished(request("early", 1))
        scheduler.worker_output(early.messages.WorkerMetadata(namespaces=frozenset(("vllm/own",))))
        self.assertTrue(scheduler._may_store)
        later = request("later", CHUNK_TOKENS + 1)
        scheduler.on_new_request(later)
        self.assertTrue(wait_for(lambda: scheduler.matched_tokens(later, 0) is not None, what="an answer"))
        scheduler._finish_lookup(scheduler._requests.pop("later"))

    def test_an_answer_found_behind_a_wait_that_ran_out_is_not_late(self):
        """The thread may have had no CPU while it waited: the next step waits again."""
        client = self.scheduler._client
        self.scheduler._client = mock.Mock(wraps=client)
        self.scheduler._client.poll.side_effect = [None, client.wait_lookup("p", hashes_of("p", 1), CHUNK_TOKENS + 1)]
        self.scheduler._client.step_wait.side_effect = lambda us: False
        asked = request("late", CHUNK_TOKENS)
        self.scheduler.on_new_request(asked)
        self.assertEqual(self.scheduler.matched_tokens(asked, 0), 0)
        self.engine.step()
        self.scheduler._client = client
        again = request("again", CHUNK_TOKENS)
        self.scheduler.on_new_request(again)
        self.scheduler._begin_step()
        self.assertTrue(self.scheduler._wait())

    def test_of_a_burst_of_new_requests_the_first_one_wakes_the_client(self):
        """And one more in QUIET_S. The others go with the step."""
        self.assertTrue(self.engine.store("p").ok)
        client = self.scheduler._client
        self.scheduler._client = mock.Mock(wraps=client)
        sent = self.scheduler._client.step_end
        burst = [request(f"burst{i}", CHUNK_TOKENS + 1) for i in range(8)]
        with mock.patch("time.monotonic") as now:
            now.return_value = 100.0
            for asked in burst[:6]:
                self.scheduler.on_new_request(asked)
                self.assertEqual(sent.call_count, 1)
            now.return_value += 2 * self.scheduler.QUIET_S
            for asked in burst[6:]:
                self.scheduler.on_new_request(asked)
            self.assertEqual(sent.call_count, 2)
            self.engine.step()  # asks for none of them, and nothing is left to send but the last one
            self.assertEqual(sent.call_count, 3)
            self.scheduler.on_new_request(request("next", CHUNK_TOKENS + 1))
            self.assertEqual(sent.call_count, 4)
        for asked in burst:
            self.assertEqual(wait_for(lambda: self.matched(asked), what="an answer"), (CHUNK_TOKENS,))

    def test_a_burst_is_answered_in_the_step_that_asks(self):
        """Also those that have not left before it."""
        self.assertTrue(self.engine.store("p").ok)
        self.scheduler._config = dataclasses.replace(self.scheduler._config, step_wait_us=10_000_000)
        with mock.patch("time.monotonic", return_value=100.0):
            burst = [request(f"burst{i}", CHUNK_TOKENS + 1) for i in range(3)]
            for asked in burst:
                self.scheduler.on_new_request(asked)
            self.assertEqual([self.scheduler.matched_tokens(asked, 0) for asked in burst], [CHUNK_TOKENS] * 3)
        self.assertEqual(self.scheduler.counts["answered_at_first_ask"], 3)

    def test_a_store_pins_the_blocks_that_are_there(self):
        """The library leaves out chunks whose blocks are gone."""
        long = request("long", 5 * CHUNK_TOKENS)
        touched = []
        pool = self.scheduler._manager.block_pool
        pool.blocks, pool.touch = list(range(9)), touched.extend
        for ids in ([1, 2, 3, 4, 5], [0, 2, 3, 0, 5], [0, 0, 0, 0, 0]):
            there = [block for block in ids if block]
            self.scheduler._manager.get_block_ids = lambda name: (ids,)
            self.scheduler.on_new_request(long)
            step = types.SimpleNamespace(num_scheduled_tokens={"long": long.num_tokens}, preempted_req_ids=None)
            stores = self.scheduler.build_meta(step).stores
            self.assertEqual([(s.first_token, s.ids_from, s.block_ids) for s in stores], [(0, 0, {0: ids})] if there else [])
            self.assertEqual([store.hashes for store in stores], [long.block_hashes] if there else [])
            self.assertEqual(touched, there)
            self.assertEqual(self.scheduler.build_meta(step).stores, [])  # each chunk once
            self.scheduler._finish_lookup(self.scheduler._requests.pop("long"))
            touched.clear()


class Waits(unittest.TestCase):
    """A step's wait for a server that stands still."""

    def setUp(self):
        self.server = ServerProcess()
        self.addCleanup(self.server.stop)
        self.engine = Engine(self, self.server.endpoint, 0, block_tokens=CHUNK_TOKENS)
        self.scheduler = self.engine.scheduler
        self.assertTrue(self.engine.store("p").ok)
        self.asked = []

    def ask_new(self):
        """The first ask for another request, in a step of its own. Returns how often a step has waited up to now."""
        asked = request(f"r{len(self.asked)}", 2 * CHUNK_TOKENS)
        self.asked.append(asked)
        self.scheduler.on_new_request(asked)
        self.scheduler.matched_tokens(asked, 0)
        self.engine.step()
        return self.scheduler.counts["waits"]

    def answers(self, asked):
        return wait_for(lambda: self.scheduler.matched_tokens(asked, 0) is not None, what="an answer")

    def test_a_server_that_stands_still_costs_one_wait_each_time(self):
        self.server.freeze()
        self.assertEqual([self.ask_new() for _ in range(20)], [1] * 20)
        self.server.thaw()
        self.answers(self.asked[0])  # of a lookup that was pending, so answers come again
        wait_for(lambda: self.engine.hit("p"), what="a hit after the server goes on")
        before = self.scheduler.counts["waits"]
        self.server.freeze()
        self.assertEqual([self.ask_new() - before for _ in range(20)], [1] * 20)
        self.server.thaw()


if __name__ == "__main__":
    unittest.main()
