# SPDX-License-Identifier: Apache-2.0
"""New weights in one of two engines that share a cache: both sides of kvscout.vllm with real clients, workers and server."""

import shutil
import tempfile
import time
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import internals, weights
from pages import BLOCK_TOKENS, CHUNK_TOKENS, hashes_of
from rig import ServerProcess, wait_for
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

    def test_what_is_not_cleared_yet_is_said(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = ServerProcess(l2=f"fs://{folder.name}/l2")
        self.addCleanup(server.stop)
        scheduler = Engine(self, server.endpoint, 0).scheduler
        server.freeze()
        with mock.patch("kvscout._clears.TURNS", 20), self.assertLogs("vllm.kvscout", "WARNING") as log:
            self.assertFalse(scheduler.reset())
        self.assertIn("not cleared everywhere: 1 server(s) have not answered", log.output[0])
        server.thaw()
        wait_for(lambda: scheduler._client.stats()["servers_untold"] == 0, what="the server to clear")
        self.assertTrue(scheduler.reset())
        shutil.rmtree(f"{folder.name}/l2")
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            self.assertFalse(scheduler.reset())
        self.assertIn("not cleared everywhere: 1 L2 store(s) have not recorded it", log.output[0])

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


class NewWeights(unittest.TestCase):
    """The namespace is that of the weights in memory, whenever they were written and whatever was reset before or after."""

    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def engine(self, content="W1", **more):
        return Engine(self, self.server.endpoint, block_tokens=CHUNK_TOKENS, content=content, **{"weights_version": 0, **more})

    def write(self, engine, content, *calls):
        for call in calls or ("reload_weights",):
            engine.scheduler.workers_called(call)
        engine.content = content

    def matched(self, engine, name):
        """Tokens that a new request finds, and steps until it knew."""
        asked, steps = request(name, CHUNK_TOKENS + 1), 0
        engine.scheduler.on_new_request(asked)
        while (found := engine.scheduler.matched_tokens(asked, 0)) is None:
            engine.answer()
            steps += 1
        return found, steps

    def test_what_they_compute_is_only_found_by_engines_that_have_them(self):
        for n, (version, order) in enumerate(
            (version, order) for version in (0, 1) for order in (("reset", "write"), ("write", "reset"), ("write", "step", "reset"), ("write",))
        ):
            with self.subTest(version=version, order=order):
                old, new = f"W{n}", f"W{n} trained"
                engine = self.engine(old, weights_version=version)
                self.assertTrue(engine.store("old").ok)
                for what in order:
                    if what == "step":
                        engine.answer(), engine.answer()
                    else:
                        engine.scheduler.reset() if what == "reset" else self.write(engine, new)
                self.assertEqual(self.matched(engine, "first")[0], 0)
                engine.answer()
                self.assertTrue(engine.store("p").ok)
                self.assertEqual(self.matched(engine, "second")[0], CHUNK_TOKENS)
                # A restart from the base checkpoint under the number of the others, too.
                now = engine.scheduler.weights_version
                restarted, other = self.engine(old, weights_version=now), self.engine(new, weights_version=now)
                self.assertEqual((self.matched(restarted, "p")[0], self.matched(other, "p")[0]), (0, CHUNK_TOKENS))
                if order[-1] == "write":
                    self.assertEqual(engine.version_of_worker, now)

    def test_a_call_that_writes_nothing_costs_two_steps_and_no_hit(self):
        engine = self.engine()
        self.assertTrue(engine.store("p").ok)
        client = engine.client
        self.write(engine, "W1", "get_my_numbers")
        found, steps = self.matched(engine, "a")
        self.assertEqual(found, CHUNK_TOKENS)
        self.assertGreater(steps, 0)
        self.assertIs(engine.scheduler._client, client)
        self.assertEqual((engine.evicted, engine.scheduler._may_store), ([], True))

    def test_from_start_to_finish_the_engine_is_out_and_an_update_that_never_ends_is_one_line(self):
        engine = self.engine()
        self.assertTrue(engine.store("p").ok)
        with self.assertLogs("vllm.kvscout", "INFO") as log:
            self.write(engine, "half of W2", "start_weight_update", "update_weights")
            for n in range(20):
                self.assertEqual(self.matched(engine, f"a{n}"), (0, 0))
                self.assertEqual((engine.answer().question, engine.scheduler._may_store), (0, False))
        self.assertEqual(len(log.output), 1)
        self.assertIn("neither loads nor stores KV until finish_weight_update", log.output[0])
        self.write(engine, "W1", "finish_weight_update")  # the same as before, but steps have computed with others
        self.assertEqual(self.matched(engine, "end")[0], CHUNK_TOKENS)
        self.assertEqual((engine.scheduler._moves, engine.evicted), (1, [set(range(9))]))

    def test_weights_that_a_worker_finds_by_itself_put_it_out_in_that_step(self):
        """Its model's load_weights() was called in its own process, and the scheduler has made steps without knowing."""
        engine = self.engine()
        self.assertTrue(engine.store("p").ok)
        model = types.SimpleNamespace(load_weights=lambda weights: setattr(engine, "content", weights))
        weights.Loaded.__init__(engine.worker._weights, lambda: engine.content, 0, engine._make_worker, [model])
        hit = engine.client.wait_lookup("p", hashes_of("p", 1), CHUNK_TOKENS + 1, timeout_ms=60000)
        load = engine.messages.Load("p", hit.ticket, 0, CHUNK_TOKENS, {0: [1, 2, 3, 4]}, True)
        store = engine.messages.Store(7, "p", 0, hashes_of("p", 1), 0, {0: [1, 2, 3, 4]}, 0, None)
        model.load_weights("W2")
        meta = engine.messages.Metadata(loads=[load], stores=[store])
        engine.worker.begin_step(meta), engine.worker.start_loads(meta), engine.worker.wait_for_save(meta)
        self.assertEqual((engine.worker.finished(set())[0], engine.worker._loads, engine.worker._stores), ({"p"}, {}, {}))
        told = engine.worker.take_meta()
        self.assertEqual((told.failed_loads, told.not_stored), ({"p": 0}, {"p": 0}))
        engine.scheduler.worker_output(told)
        self.assertEqual(self.matched(engine, "a")[0], 0)
        engine.answer()
        self.assertEqual(engine.worker.namespace, weights.namespace({0: "W2"}, ""))

    def test_what_runs_in_the_old_namespace_ends_there_and_then_its_worker_is_closed(self):
        engine = self.engine()
        held = engine.copier
        meta = engine.messages.Metadata(stores=[engine.messages.Store(7, "p", 0, hashes_of("p", 1), 0, {0: [1, 2, 3, 4]}, 0, None)])
        engine.pages.fill("p", [1, 2, 3, 4])
        engine.worker.begin_step(meta), engine.worker.wait_for_save(meta)
        self.write(engine, "W2")
        engine.answer(), engine.answer()
        self.assertEqual((engine.worker._left, engine.copier is held), ([held], False))
        wait_for(lambda: engine.worker.finished(set()) and not engine.worker._left, what="the end of the store")
        self.assertEqual(engine.worker.take_meta().stored, {7: 1})
        with self.assertRaisesRegex(Exception, "closed"):
            held.poll()
        self.assertEqual(self.matched(self.engine(), "p")[0], CHUNK_TOKENS)


    def test_a_reset_of_the_old_namespace_is_not_one_of_the_new(self):
        """It came when the workers had looked and had not told yet."""
        engine = self.engine()
        self.write(engine, "W2")
        engine.step()
        self.assertTrue(engine.scheduler.reset())
        engine.scheduler.worker_output(engine.worker.take_meta())
        meta = engine.answer()
        self.assertEqual((meta.move.namespace, meta.generation), (engine.worker.namespace, 0))

    def test_a_store_that_waits_for_its_step_is_not_one_of_new_weights(self):
        """Beside another connector."""
        engine = self.engine()
        engine.worker.holds_stores = True
        meta = engine.messages.Metadata(stores=[engine.messages.Store(7, "p", 0, hashes_of("p", 1), 0, {0: [1, 2, 3, 4]}, 0, None)])
        engine.worker.begin_step(meta), engine.worker.start_loads(meta), engine.worker.wait_for_save(meta)
        self.write(engine, "W2")
        engine.answer()
        self.assertEqual(len(engine.worker._held), 1)
        engine.answer()
        self.assertEqual((len(engine.worker._held), engine.worker._stores, engine.worker.counts["stores_dropped"]), (0, {}, 1))


class SeveralWorkers(unittest.TestCase):
    """What the scheduler hears of two of them."""

    def asked(self):
        asked = weights.Asked(2)
        self.assertTrue(asked.is_in(asked.told({0: (0, "a"), 1: (0, "b")})))
        asked.called("my_extension")
        self.assertEqual((asked.take_question(), asked.take_question()), (1, 0))
        return asked

    def test_they_move_when_all_have_answered_the_last_question(self):
        asked = self.asked()
        self.assertIsNone(asked.told({0: (1, "c")}))
        asked.called("my_extension")
        self.assertIsNone(asked.told({1: (1, "b")}))
        self.assertEqual(asked.take_question(), 2)
        found = asked.told({0: (2, "a"), 1: (2, "b")})
        self.assertEqual(found, {0: "a", 1: "b"})
        self.assertFalse(asked.is_in(found), "worker 0 has been at others, and is out")

    def test_an_answer_from_before_an_update_counts_for_nothing(self):
        asked = self.asked()
        self.assertTrue(asked.called("start_draft_weight_update"))
        self.assertIsNone(asked.told({0: (1, "a"), 1: (1, "b")}))
        self.assertFalse(asked.answers_soon())
        asked.called("finish_weight_update")
        self.assertEqual(asked.told(dict.fromkeys((0, 1), (asked.take_question(), "c"))), {0: "c", 1: "c"})

    def test_a_worker_that_is_lost_holds_requests_up_for_a_while_only(self):
        asked = self.asked()
        self.assertTrue(asked.answers_soon())
        with mock.patch("time.monotonic", return_value=time.monotonic() + weights.ANSWER_S):
            self.assertFalse(asked.answers_soon())

    def test_a_question_that_workers_find_reason_for_goes_to_all(self):
        asked = self.asked()
        self.assertTrue(asked.is_in(asked.told({0: (1, "a"), 1: (1, "b")})))
        self.assertIsNone(asked.told({0: (0, "c")}))
        self.assertEqual(asked.take_question(), 2)


class Calls(unittest.TestCase):
    def test_each_call_to_the_workers_counts_but_those_that_are_known_to_be_harmless(self):
        made, told = [], []

        class Executor:
            def collective_rpc(self, method, timeout=None, args=()):
                made.append(method)
                return [method]

        class Core:
            def __init__(self, executor):
                self.model_executor = executor
                self.found = internals.executor()

        def write(worker):
            pass

        core = Core(Executor())
        weights.watch_calls(core.found, told.append)
        calls = ["execute_model", "reload_weights", "add_lora", write, "of_an_extension", types.SimpleNamespace()]
        self.assertEqual([core.model_executor.collective_rpc(call, args=(1,)) for call in calls], [[call] for call in calls])
        self.assertEqual((made, told), (calls, ["reload_weights", "write", "of_an_extension", "a function"]))
        self.assertIsNone(Core(None).found)


if __name__ == "__main__":
    unittest.main()
