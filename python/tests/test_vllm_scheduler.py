# SPDX-License-Identifier: Apache-2.0
"""A request's life on the scheduler's side of kvscout.vllm, with a real client and server."""

import dataclasses
import time
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import events, inert, trace_spans
from pages import CHUNK_TOKENS, hashes_of
from rig import ServerProcess, wait_for
from test_vllm_held import Pool
from vllm_rig import NO_STEP, Calls, Engine, Vllm, request


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

    def test_any_id_of_a_request_has_a_name_that_the_library_takes(self):
        """Of a second turn, too, which makes it longer."""
        self.assertTrue(self.engine.store("p").ok)
        with self.assertNoLogs("vllm.kvscout"):
            for name in ("r" * 255, "r" * 254, "r" * 4000, "ü" * 128, "a\0b", "\udc80", "", "plain"):
                asked = request(name, CHUNK_TOKENS + 1)
                self.assertEqual(self.lives(asked), CHUNK_TOKENS)
                self.scheduler.on_new_request(asked)
                self.engine.step()
                self.scheduler._begin_turn(self.scheduler._requests[name])
                self.assertEqual(wait_for(lambda: self.engine.step() and self.matched(asked), what="an answer"), (CHUNK_TOKENS,))
                self.scheduler.finished(asked)
                self.engine.step()
        self.assertEqual(self.scheduler.counts["lookup_errors"], 0)

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
        """The others go with the step, and of most no more is kept than the announcement."""
        self.scheduler.AT_ONCE = 2
        self.assertTrue(self.engine.store("p").ok)
        client = self.scheduler._client
        self.scheduler._client = mock.Mock(wraps=client)
        burst = [request(f"burst{i}", CHUNK_TOKENS + 1) for i in range(8)]
        for asked in burst:
            self.scheduler.on_new_request(asked)
        calls = self.scheduler._client
        self.assertEqual((calls.lookup_ahead.call_count, calls.step_end.call_count), (2, 1))
        self.engine.step()
        self.assertEqual((calls.lookup_ahead.call_count, calls.step_end.call_count), (8, 2))
        self.scheduler.on_new_request(request("next", CHUNK_TOKENS + 1))
        self.assertEqual(calls.step_end.call_count, 3)
        for asked in burst:
            self.assertEqual(wait_for(lambda: self.matched(asked), what="an answer"), (CHUNK_TOKENS,))

    def test_a_burst_is_answered_in_the_step_that_asks(self):
        self.assertTrue(self.engine.store("p").ok)
        self.scheduler._config = dataclasses.replace(self.scheduler._config, step_wait_us=10_000_000)
        burst = [request(f"burst{i}", CHUNK_TOKENS + 1) for i in range(3)]
        for asked in burst:
            self.scheduler.on_new_request(asked)
        self.assertEqual([self.scheduler.matched_tokens(asked, 0) for asked in burst], [CHUNK_TOKENS] * 3)
        self.assertEqual(self.scheduler.counts["answered_at_first_ask"], 3)

    def few_a_step(self, wait_us):
        self.assertTrue(self.engine.store("p").ok)
        self.scheduler._config = dataclasses.replace(self.scheduler._config, step_wait_us=wait_us)
        self.scheduler.A_STEP = self.scheduler._asks_left = 4
        self.scheduler.AT_ONCE = 0
        return [request(f"burst{i}", CHUNK_TOKENS + 1) for i in range(15)]

    def test_a_step_asks_for_a_few_of_many_new_requests(self):
        """In the order in which vLLM wants them; one that ends before has asked nothing."""
        burst = self.few_a_step(0)
        for asked in burst:
            self.scheduler.on_new_request(asked)

        def taken():
            new = set(self.scheduler._requests) - before
            before.update(new)
            return new

        before = set()
        self.scheduler.matched_tokens(burst[9], 0)
        self.assertEqual(taken(), {"burst9", "burst0", "burst1", "burst2"})
        self.scheduler._unanswered = 4
        self.assertIsNone(self.scheduler.matched_tokens(burst[12], 0))
        self.assertEqual(taken(), set())
        self.scheduler.finished(burst.pop(4))
        self.engine.step()
        self.assertEqual(taken(), {"burst12"})
        self.assertEqual((self.scheduler.counts["asked"], self.scheduler.counts["answered_at_first_ask"]), (2, 0))
        self.engine.step()
        self.assertEqual(taken(), {"burst3", "burst5", "burst6", "burst7"})
        for asked in burst:
            self.assertEqual(wait_for(lambda: self.matched(asked) or self.engine.step() and None, what="an answer"), (CHUNK_TOKENS,))
        self.assertFalse(self.scheduler._put_off)

    def test_a_step_that_takes_no_more_says_so_of_all_that_are_left(self):
        burst = self.few_a_step(0)
        for asked in burst:
            self.scheduler.on_new_request(asked)
        self.scheduler._unanswered = 4
        for asked in burst[:4]:
            self.assertFalse(self.scheduler.not_in_this_step)
            self.assertIsNone(self.scheduler.matched_tokens(asked, 0))
        self.assertIn("burst14", self.scheduler.not_in_this_step)
        self.engine.step()
        self.assertFalse(self.scheduler.not_in_this_step)

    def test_a_step_that_waits_asks_for_as_many_as_vllm_wants(self):
        burst = self.few_a_step(10_000_000)
        for asked in burst:
            self.scheduler.on_new_request(asked)
        self.assertEqual([self.scheduler.matched_tokens(asked, 0) for asked in burst], [CHUNK_TOKENS] * 15)
        self.assertEqual(self.scheduler.counts["answered_at_first_ask"], 15)
        self.assertLess(self.scheduler.counts["waits"], 8)

    def test_what_is_no_question_waits_for_no_step(self):
        """Not either while a server is away."""
        burst = self.few_a_step(0)
        for asked in burst:
            asked.num_tokens = CHUNK_TOKENS - 1
            self.scheduler.on_new_request(asked)
        self.assertEqual([self.scheduler.matched_tokens(asked, 0) for asked in burst], [0] * 15)

    def test_a_step_begins_a_few_loads(self):
        """vLLM asks again for the others in the next one; what has nothing to load is not held up."""
        burst = self.few_a_step(10_000_000)[:6]
        miss = request("miss", CHUNK_TOKENS + 1)
        miss.block_hashes = hashes_of("other", 1)
        for asked in (miss, *burst):
            self.scheduler.on_new_request(asked)
        begun, loading = [], set()

        def step():
            for asked in burst:
                found = self.scheduler.matched_tokens(asked, 0) if asked.request_id not in loading else None
                if found:
                    loading.add(asked.request_id)
                    self.scheduler.allocated(asked, ([1],), found)
            begun.append(len(self.scheduler._loads))
            if begun == [4]:
                self.assertEqual(self.scheduler.matched_tokens(miss, 0), 0)
            self.engine.step()
            return sum(begun) == 6

        wait_for(step, what="all loads")
        self.assertEqual((begun[0], max(begun)), (4, 4))

    def test_a_step_that_begins_no_more_loads_looks_at_few_answers(self):
        burst = self.few_a_step(10_000_000)
        for asked in burst:
            self.scheduler.on_new_request(asked)
        self.scheduler._put_off_announced()
        self.scheduler._take_put_off([], len(burst))
        for asked in burst:
            if found := self.scheduler.matched_tokens(asked, 0):
                self.scheduler.allocated(asked, ([1],), found)
        known = [tracked for tracked in self.scheduler._requests.values() if tracked.hit is not None]
        self.assertEqual((len(self.scheduler._loads), len(known)), (4, 8))

    def test_an_input_that_vllm_has_not_hashed_keeps_its_request_out(self):
        """vLLM takes a user's word for it, or counts: another process means another image by that."""
        self.assertTrue(self.engine.store("p").ok)
        inert.say_once.cache_clear()
        adapter = types.SimpleNamespace(lora_name="tower")
        for n, (lora, *identifiers) in enumerate((
            (None, "a" * 64), (None, "0" * 128, "f" * 64), (adapter, "tower:" + "a" * 64),
            (None, "holiday.jpg"), (None, "a" * 64, "renderer0-mm-1-image-0"), (None, "a" * 32), (None, "A" * 64),
            (None, "tower:" + "a" * 64), (adapter, "other:" + "a" * 64), (None, "a" * 64 + "\n"),
        )):
            asked = request(f"images{n}", CHUNK_TOKENS + 1)
            asked.mm_features = [types.SimpleNamespace(identifier=name) for name in identifiers]
            with self.subTest(identifiers), self.said(n == 2):
                self.assertEqual(self.lives(asked), CHUNK_TOKENS if n < 2 else 0)
            asked.lora_request = lora
            self.assertEqual(inert.are_hashed(asked), n < 3)

    def said(self, once):
        return self.assertLogs("vllm.kvscout") if once else self.assertNoLogs("vllm.kvscout")

    def test_a_streaming_request_stores_until_it_gets_such_an_input(self):
        long = request("long", 2 * CHUNK_TOKENS)
        self.scheduler._manager.block_pool.blocks = list(range(9))
        self.scheduler._manager.get_block_ids = lambda name: ([1, 2],)
        self.scheduler.on_new_request(long)
        self.scheduler.allocated(long, ([1, 2],), 0)
        stored = []
        for more in ([], [types.SimpleNamespace(identifier="b" * 64)], [types.SimpleNamespace(identifier="holiday.jpg")]):
            long.mm_features = [*long.mm_features, *more]
            self.scheduler._requests["long"].next_store = 0
            step = types.SimpleNamespace(num_scheduled_tokens={"long": long.num_tokens}, preempted_req_ids=None)
            stored.append(len(self.scheduler.build_meta(step).stores))
        self.assertEqual(stored, [1, 1, 0])
        self.scheduler._finish_lookup(self.scheduler._requests.pop("long"))

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
            self.scheduler.allocated(long, (ids,), 0)
            step = types.SimpleNamespace(num_scheduled_tokens={"long": long.num_tokens}, preempted_req_ids=None)
            stores = self.scheduler.build_meta(step).stores
            self.assertEqual([(s.first_token, s.ids_from, s.block_ids) for s in stores], [(0, 0, {0: ids})] if there else [])
            self.assertEqual([store.hashes for store in stores], [long.block_hashes] if there else [])
            self.assertEqual(touched, there)
            self.assertEqual(self.scheduler.build_meta(step).stores, [])  # each chunk once
            self.scheduler._finish_lookup(self.scheduler._requests.pop("long"))
            touched.clear()


    def test_with_another_block_pool_it_loads_and_stores_nothing(self):
        """It starts all the same, and says so once."""
        self.assertTrue(self.engine.store("p").ok)
        manager = self.scheduler._manager
        del manager.block_pool.free_blocks
        self.scheduler._blocks = None  # as before the first bind()
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            self.scheduler.bind(manager)
        self.assertRegex("".join(log.output), "loads KV and stores none.*free_blocks")
        asked = request("asked", 5 * CHUNK_TOKENS)
        self.scheduler.on_new_request(asked)
        self.assertEqual(wait_for(lambda: self.matched(asked), what="an answer"), (CHUNK_TOKENS,))
        step = types.SimpleNamespace(num_scheduled_tokens={"asked": asked.num_tokens}, preempted_req_ids=None)
        self.assertEqual(self.scheduler.build_meta(step).stores, [])
        self.assertTrue(self.scheduler.reset())
        self.scheduler.finished(asked)

    def test_a_load_that_failed_on_two_ranks_has_failed_once(self):
        """They tell in two steps, and of each other's tokens vLLM computes the more."""
        self.assertTrue(self.engine.store("p").ok)
        asked = request("twice", CHUNK_TOKENS + 1)
        self.scheduler.on_new_request(asked)
        self.assertEqual(wait_for(lambda: self.matched(asked), what="an answer")[0], CHUNK_TOKENS)
        self.scheduler.allocated(asked, ([1],), CHUNK_TOKENS)
        for token in (CHUNK_TOKENS - 1, 0):
            self.scheduler.worker_output(self.engine.messages.WorkerMetadata(failed_loads={"twice": token}))
        tracked = self.scheduler._requests["twice"]
        self.assertEqual((tracked.failed_loads, self.scheduler.counts["failed_loads"], tracked.next_store), (1, 1, 0))


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


class Watch:
    def look(self):
        """What the server says."""

    close = look


class Events(events.Idle):
    def bind(self, block_pool):
        """Nothing of it is used."""

    read = announce_anew = bind

    def describe(self, request, begin, end, run):
        return [b"a description"] * ((end - begin) // run)

    def keep(self, *what):
        """What a store or load says."""

    loaded = keep

    def take(self, client):
        return []


class Hints:
    def of(self, request):
        return None


class Loaded:
    """Adapters of a worker."""

    def __init__(self):
        self.wanted = set()

    def ask(self, numbers):
        self.wanted.update(numbers)

    def answers(self):
        wanted, self.wanted = self.wanted, set()
        return {number: {"000000.000000": f"digest of {number}"} for number in wanted}

    def is_loaded(self, number):
        return True

    def close(self):
        """It has no thread."""


# What vLLM calls at the start, or what has nothing of ours in it.
NO_HOOKS = {
    "register_kv_caches", "get_handshake_metadata", "set_xfer_handshake_metadata_pp_aware", "bind_kv_cache_manager", "shutdown",
    "get_required_kvcache_layout", "supports_sleep_mode", "requires_kv_delivery", "build_kv_connector_stats", "build_prom_metrics",
    "wait_for_layer_load", "save_kv_layer", "handle_preemptions", "request_finished", "get_block_ids_with_load_errors",
}
OF_LOADS = {"update_state_after_alloc", "build_connector_meta", "bind_connector_metadata", "start_load_kv", "get_transfer_results"}
# No more than vLLM's own free_blocks().
OTHERS = {("update_connector_output", "pins", "give_back")}
# Without these it is not known what is in the pages, or which KV is old: then the engine goes on without kvscout.
ENDS_ALL = {"older", "held"}, {"poll", "clear", "reset", "forget", "stats"}


class Faults(unittest.TestCase):
    """Whatever raises in a hook of vLLM, the engine goes on, answers with the right KV, waits for nothing and leaves no block pinned."""

    def setUp(self):
        self.server = kvscout.Server(l1_bytes="256Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.n = 0

    def make(self, load_async):
        tracing = trace_spans.Spans(lambda *about: None, lambda headers: None)
        engine = Engine(self, self.server.endpoint, 0, spans=tracing, events=Events())
        scheduler, worker, pool = engine.scheduler, engine.worker, Pool()
        scheduler._manager.block_pool = pool
        scheduler.bind(scheduler._manager)
        scheduler.watch, scheduler._hints, worker._adapters = Watch(), Hints(), Loaded()
        calls = Calls(
            pins=scheduler._pins, older=scheduler._older, adapters=scheduler._adapters, hints=scheduler._hints, spans=tracing,
            waits=scheduler.waits, watch=scheduler.watch, events=scheduler._events, groups=scheduler._groups, held=worker._held,
            took=worker.took, loaded=worker._adapters, samples=scheduler._samples,
        )
        calls.watch(
            "scheduler", scheduler, ("on_new_request", "matched_tokens", "hit_sources", "allocated", "finished", "take_events", "reset")
        )
        scheduler._make_tenant = calls.wrapped("namespace", "tenant", lambda salt: None)
        worker._make_event = calls.wrapped("device", "event", lambda: None)
        scheduler._client, worker._worker = calls.of("client", engine.client), calls.of("worker", engine.copier)
        return Vllm(engine, pool, calls, load_async)

    def request(self, prompt, lora=None):
        self.n += 1
        asked = request(f"r{self.n}", 2 * CHUNK_TOKENS + 1)
        asked.prompt, asked.block_hashes, asked.trace_headers = prompt, hashes_of(prompt, 9)[1:], {"traceparent": "00"}
        if lora is not None:
            asked.lora_request = types.SimpleNamespace(lora_int_id=lora, lora_name=f"a{lora}", lora_path="/a")
        return asked

    def life(self, vllm, prompt):
        """Stores, loads, an abort while a load runs, a preemption, an adapter, a reset while a request runs."""
        for lora in (None, 7):
            for _ in range(2):
                vllm.run(self.request(prompt, lora))
                vllm.settle()
        vllm.engine.scheduler._samples.rate = 1  # the next one is computed and compared
        vllm.run(self.request(prompt))
        vllm.settle()
        vllm.engine.scheduler._samples.rate = 0
        aborted = self.request(prompt)
        vllm.add(aborted)
        vllm.steps_until(aborted, lambda: vllm.states[aborted.request_id] != "waiting")
        vllm.finish(aborted.request_id)
        older = self.request(prompt)
        vllm.compute(older)
        vllm.preempt(older.request_id)
        vllm.compute(older)
        self.assertIn(vllm.call(vllm.scheduler, "reset_cache"), (True, False))
        vllm.compute(self.request(prompt))
        for name in list(vllm.requests):
            vllm.finish(name)
        vllm.settle()

    def works(self, vllm, prompt):
        return wait_for(lambda: vllm.run(self.request(prompt)) and (vllm.settle() or True), what="a load")

    def test_no_hook_lets_an_exception_out(self):
        for load_async in (True, False):
            vllm = self.make(load_async)
            self.life(vllm, "reference")
            self.works(vllm, "reference")
            self.assertEqual((vllm.engine.scheduler.counts["hook_errors"], vllm.engine.worker.counts["hook_errors"]), (0, 0))
            self.assertGreater(vllm.loaded, 0)
            # Only where a load waits for nothing can a request compute on what its load has not filled.
            for at in [at for at in vllm.calls.seen if at not in OTHERS and (load_async or at[0] in OF_LOADS)]:
                for times in (1, 1000000) if load_async else (1000000,):
                    with self.subTest(load_async=load_async, at=at, times=times):
                        self.one(at, times, load_async)

    def one(self, at, times, load_async):
        vllm, prompt = self.make(load_async), f"{at} {times} {load_async}"
        vllm.calls.fails, vllm.calls.times = at, times
        with self.assertLogs("vllm.kvscout", "WARNING") as log:  # some calls come only if an answer is late
            wait_for(lambda: self.life(vllm, prompt) or vllm.calls.times < times, what="the call")
        counts = vllm.engine.scheduler.counts["hook_errors"] + vllm.engine.worker.counts["hook_errors"]
        self.assertGreaterEqual(counts, 1)
        lines = [line for line in log.output if " failed at vllm_rig.py:" in line]
        self.assertIn(len(lines), (1, 2), log.output)  # one of each side
        if times == 1 and at[1] not in ENDS_ALL[0] and at[2] not in ENDS_ALL[1]:
            self.works(vllm, prompt)
        for half in (vllm.scheduler, vllm.worker):
            vllm.call(half, "shutdown")

    def test_stores_that_do_not_begin_to_copy_do_not_keep_an_idle_engine_busy(self):
        """pause_generation() waits until no step is needed. These stores wait for a layer that is never announced, until their time is over."""
        vllm = self.make(True)
        vllm.run(self.request("a"))
        vllm.settle()
        begun = vllm.engine.worker._worker
        vllm.engine.worker._worker = mock.Mock(
            store=lambda *args, **more: begun.store(*args, layers=1, announced=True, **more), poll=begun.poll, cancel=begun.cancel
        )
        begin = time.monotonic()
        vllm.run(self.request("b"))
        vllm.settle()
        self.assertLess(time.monotonic() - begin, 10)  # of 30 s, which a job has for its first copy
        self.assertEqual(vllm.engine.worker.counts["stores_failed"], 1)
        vllm.engine.worker._worker = begun
        self.works(vllm, "a")

    def test_a_server_that_stands_still_does_not_keep_an_idle_engine_busy(self):
        self.server = ServerProcess()
        self.addCleanup(self.server.stop)
        vllm, loading = self.make(True), self.request("a")
        vllm.run(self.request("a"))
        vllm.settle()
        vllm.add(loading)
        vllm.engine.scheduler.build_meta(NO_STEP)
        wait_for(lambda: vllm.engine.client.poll(loading.request_id, 0), what="a hit")
        self.server.freeze()
        vllm.compute(self.request("b"))
        for name in list(vllm.requests):
            vllm.finish(name)
        begin = time.monotonic()
        vllm.settle()
        self.assertLess(time.monotonic() - begin, 10)
        self.server.thaw()
        self.works(vllm, "a")

    def test_each_hook_is_one_or_named_here(self):
        vllm = self.make(True)
        connector = type(vllm.scheduler)
        own = {name for name, what in vars(connector).items() if not name.startswith("_")}
        hooks = {name for name in own if isinstance(vars(connector)[name], types.FunctionType) and hasattr(vars(connector)[name], "__wrapped__")}
        self.assertEqual(own - hooks, NO_HOOKS)


if __name__ == "__main__":
    unittest.main()
