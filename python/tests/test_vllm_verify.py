# SPDX-License-Identifier: Apache-2.0
"""Hits that are computed and compared: which ones, what a mismatch does, and each way in which a comparison ends. Both sides of kvscout.vllm
with a real client, worker and server, below the loop of vLLM in vllm_rig.py."""

import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import verify
from pages import BLOCKS, CHUNK_TOKENS, hashes_of
from rig import ServerProcess, wait_for
from test_vllm_held import Pool
from vllm_rig import Calls, Engine, Vllm, request


class Choosing(unittest.TestCase):
    def chosen(self, samples, n, *ends):
        found = [samples.choose(f"cmpl-{i}", *ends or (b"other", b"other")) for i in range(n)]
        return found.count(verify.WHOLE), found.count(verify.TAIL)

    def test_the_share_of_requests_is_the_users_and_the_same_in_each_run(self):
        samples = verify.Samples(0.01)
        samples.stored([b"own"])
        whole, tail = self.chosen(samples, 50000, b"own")
        self.assertTrue(400 < whole < 600 and 2300 < tail < 2700, (whole, tail))
        again = verify.Samples(0.01)
        again.stored([b"own"])
        self.assertEqual(self.chosen(again, 50000, b"own"), (whole, tail))
        self.assertEqual(self.chosen(verify.Samples(0), 1000), (0, 0))

    def test_of_the_first_hits_that_another_engine_stored_it_is_more_but_never_the_first(self):
        for ends in ((b"other", b"other"), (b"other", b"own"), (b"own", b"other")):
            samples = verify.Samples(1e-9)
            samples.stored([b"own"])
            whole, _ = self.chosen(samples, 50000, *ends)
            self.assertTrue(2 <= whole <= 25, (ends, whole))
        self.assertIsNone(verify.Samples(1).choose("r", b"other"))
        self.assertEqual(self.chosen(verify.Samples(1), 10), (9, 0))

    def test_three_mismatches_in_a_hundred_samples_are_too_many(self):
        for gap, is_too_many in ((1, True), (49, True), (50, False)):
            samples, found = verify.Samples(1), []
            for i in range(3):
                found.append([samples.ended(None) for _ in range(gap - 1)] and None or samples.ended({"norm_error": 1.4, "share": 0.9}))
            self.assertEqual(found, [False, False, is_too_many], gap)

    def test_what_may_be_noise_is_said_and_never_too_many(self):
        for error, share, is_too_many in ((0.29, 0.99, False), (0.3, 0.1, True), (float("inf"), 0, True), (0, 1, True)):
            samples = verify.Samples(1)
            found = [samples.ended({"norm_error": error, "share": share}) for _ in range(3)]
            self.assertEqual(found, [False, False, is_too_many], (error, share))


class Comparing(unittest.TestCase):
    CHUNKS = 2

    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.n = 0

    def make(self, endpoint=None, load_async=True, **keys):
        engine = Engine(self, endpoint or self.server.endpoint, 0, **{"verify_sample": 1, **keys})
        self.scheduler, self.worker, self.pool = engine.scheduler, engine.worker, Pool()
        self.scheduler._manager.block_pool = self.pool
        self.scheduler.bind(self.scheduler._manager)
        self.vllm = Vllm(engine, self.pool, Calls(), load_async)
        self.cached = f"p{self.n}"  # what the requests hash to
        for loaded in (0, self.CHUNKS * BLOCKS):  # the first hit is no sample
            self.assertEqual(self.vllm.run(self.asked()), loaded)
            self.vllm.settle()

    def asked(self, computes=None, name=None):
        """A request for what is cached, of which the engine computes the KV of @computes, by default the same."""
        self.n += 1
        asked = request(name or f"r{self.n}", self.CHUNKS * CHUNK_TOKENS + 1)
        asked.prompt, asked.block_hashes = computes or self.cached, hashes_of(self.cached, self.CHUNKS * BLOCKS + 1)[1:]
        return asked

    def begun(self, computes="q"):
        """The same; a part of the sample is computed."""
        asked = self.asked(computes)
        self.vllm.batch_tokens = CHUNK_TOKENS
        self.vllm.add(asked)
        self.vllm.steps_until(asked, lambda: asked.num_computed_tokens == CHUNK_TOKENS)
        self.assertEqual(len(self.scheduler._checks), 1)
        return asked

    def finish(self, asked):
        self.vllm.compute(asked)
        self.vllm.finish(asked.request_id)

    def counts(self):
        """(samples, mismatches, chunks compared), when nothing is under way or pinned any more."""
        self.vllm.settle()
        self.assertEqual((self.scheduler._checks, self.scheduler._compared), ({}, {}))
        scheduler, worker = self.scheduler.counts, self.worker.counts
        self.assertEqual((scheduler["hook_errors"], worker["hook_errors"]), (0, 0))
        return scheduler["verify_samples"], scheduler["verify_mismatches"], worker["verify_chunks"]

    def test_a_sample_is_computed_and_compared_and_stored_by_nobody(self):
        self.make()
        before = self.worker.counts["stores_ended"]
        self.assertEqual(self.vllm.run(self.asked()), 0)
        self.assertEqual(self.counts(), (1, 0, self.CHUNKS))
        self.assertEqual((self.scheduler.counts["verify_tokens"], self.worker.counts["stores_ended"]), (self.CHUNKS * CHUNK_TOKENS, before))

    def test_a_prompt_in_several_steps_is_compared_once(self):
        self.make()
        self.finish(self.begun(self.cached))
        self.assertEqual(self.counts(), (1, 0, self.CHUNKS))

    def test_of_a_sampled_tail_the_rest_is_loaded(self):
        for load_async in (True, False):
            self.make(verify_sample=1e-9, load_async=load_async)
            samples = verify.Samples(1e-9)
            samples.stored([b"own"])
            asked = self.asked(name=next(f"t{i}" for i in range(1000) if samples.choose(f"t{i}", b"own")))
            self.assertEqual(self.vllm.run(asked), (self.CHUNKS - 1) * BLOCKS)
            self.assertEqual(self.counts(), (1, 0, 1))

    def test_three_mismatches_are_said_and_make_the_engine_inert(self):
        self.make()
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            for _ in range(3):
                self.vllm.run(self.asked("q"))
                self.vllm.settle()
        self.assertEqual(self.counts(), (3, 3, 3 * self.CHUNKS))
        self.assertRegex(log.output[0], f"namespace {self.vllm.engine.namespace}, request r3, chunk .*group 0, plane . of 2: error .* stored it at")
        self.assertIn("this engine is inert, it neither loads nor stores KV, because 3 of the last 100 hits", log.output[-1])
        self.assertEqual((self.vllm.run(self.asked()), self.cached_chunks()), (0, self.CHUNKS))
        self.assertTrue(self.scheduler.reset())  # clears it for the others, and stays inert
        self.assertEqual((self.vllm.run(self.asked()), self.cached_chunks(), self.counts()[0]), (0, 0, 3))

    def cached_chunks(self):
        asked = self.asked()
        found = self.vllm.engine.client.wait_lookup(asked.request_id, asked.block_hashes, asked.num_tokens, stride=BLOCKS)
        self.vllm.engine.client.finish(asked.request_id)
        return found.chunks

    def test_with_log_it_only_says_so(self):
        self.make(verify_action="log")
        for _ in range(4):
            self.vllm.run(self.asked("q"))
            self.vllm.settle()
        self.assertEqual(self.counts(), (4, 4, 4 * self.CHUNKS))
        self.assertTrue(self.scheduler._may_store)

    def test_what_ends_between_lookup_and_comparison_is_compared_to_nothing(self):
        """All of these compute other KV than is cached, so that a comparison would be an alarm."""
        for end in (
            lambda asked: self.vllm.finish(asked.request_id),  # aborted
            lambda asked: self.scheduler.reset() and self.finish(asked),
            lambda asked: self.new_weights() or self.finish(asked),
            lambda asked: self.scheduler.workers_called("start_weight_update") or self.finish(asked),
            self.preempted,
        ):
            self.make(content="w1")
            end(self.begun())
            self.assertEqual(self.counts()[1:], (0, 0))

    def new_weights(self):
        self.vllm.engine.content = "w2"
        self.scheduler.workers_called("update_weights")

    def preempted(self, asked):
        """It comes back, and is sampled once."""
        asked.prompt = self.cached
        self.vllm.preempt(asked.request_id)
        before = self.vllm.loaded
        self.finish(asked)
        self.assertEqual(self.vllm.loaded - before, self.CHUNKS * BLOCKS)

    def test_weights_that_change_while_a_comparison_runs_make_no_alarm(self):
        self.make(content="w1")
        poll = self.hold_back()
        self.finish(self.begun())
        self.assertEqual(len(self.scheduler._compared), 1)
        self.new_weights()
        wait_for(lambda: self.vllm.step() or self.scheduler._moves, what="the move")
        poll()
        self.assertEqual(self.counts()[:2], (0, 0))

    def hold_back(self):
        """No end of a job is seen until the first of these is called."""
        copier = self.worker._worker
        held = self.worker._worker = mock.Mock(wraps=copier)
        held.poll.side_effect = list
        return lambda: setattr(held.poll, "side_effect", copier.poll)

    def test_the_session_stays_until_the_comparison_has_ended(self):
        self.make()
        poll = self.hold_back()
        asked = self.begun(self.cached)
        self.finish(asked)
        (check,) = self.scheduler._compared.values()
        self.assertIsNotNone(check.finish)
        poll()
        self.assertEqual(self.counts(), (1, 0, self.CHUNKS))

    def test_without_a_server_there_is_no_sample(self):
        server = ServerProcess()
        self.addCleanup(server.stop)
        self.make(server.endpoint)
        asked = self.begun()
        server.kill()
        self.finish(asked)
        self.assertEqual(self.counts(), (0, 0, 0))

    def test_what_another_connector_has_loaded_is_not_compared(self):
        self.make()
        asked = self.asked("q")
        self.vllm.add(asked)
        wait_for(lambda: self.scheduler.matched_tokens(asked, 0) is not None, what="an answer")
        self.scheduler.allocated(asked, ([1] * 9,), 0)
        asked.num_computed_tokens = CHUNK_TOKENS
        step = types.SimpleNamespace(num_scheduled_tokens={asked.request_id: CHUNK_TOKENS + 1}, preempted_req_ids=())
        self.assertEqual([store for store in self.scheduler.build_meta(step).stores if store.to_token], [])
        self.assertEqual(self.scheduler._checks, {})
        self.scheduler.finished(asked)


if __name__ == "__main__":
    unittest.main()
