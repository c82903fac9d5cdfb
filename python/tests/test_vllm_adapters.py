# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters: their identity, which is of their content, and the keys of their requests, with a real client, worker and
server. Adapters are stand-ins for vLLM's."""

import types
import unittest
import weakref
from unittest import mock

import kvscout
from kvscout.vllm import adapters, loaded
from pages import BLOCK_TOKENS, CHUNK_TOKENS
from rig import wait_for
from vllm_rig import NO_STEP, Engine, request

LORA = types.SimpleNamespace(lora_name="sql", lora_path="/adapters/sql", lora_int_id=1)


class Adapter:
    """As vLLM's LoRAModel."""

    def __init__(self, loras):
        self.id, self.rank, self.loras = 1, 8, loras


def adapter(weight, alpha=16):
    return Adapter({"layer": types.SimpleNamespace(lora_alpha=alpha, scaling=1, lora_a=weight, lora_b=[weight, None])})


class Weight:
    def __init__(self, content):
        self.content = content

    def data_ptr(self):
        return id(self)


def setUpModule():
    patch = mock.patch.object(loaded, "of_tensor", lambda tensor: tensor.content)
    patch.start()
    unittest.addModuleCleanup(patch.stop)


def of(content, **more):
    found = adapter(Weight(content), **more)
    return adapters.of_adapter(weakref.ref(found))


class Identity(unittest.TestCase):
    def test_it_is_of_the_content(self):
        self.assertEqual(of("one"), of("one"))
        self.assertNotEqual(of("one"), of("two"))
        self.assertNotEqual(of("one"), of("one", alpha=32))

    def test_what_cannot_be_read_is_never_the_same(self):
        with self.assertLogs("vllm.kvscout", "WARNING"):
            self.assertNotEqual(*(adapters.of_adapter(lambda: Adapter(None)) for _ in range(2)))

    def test_keys_are_of_the_identity_and_as_long_as_the_hashes(self):
        one, other = (adapters.keys(identity, [b"h" * 16, b"i" * 32]) for identity in (b"one", b"two"))
        self.assertEqual([len(key) for key in one], [16, 32])
        self.assertFalse(set(one) & set(other))


class Workers(unittest.TestCase):
    def setUp(self):
        self.models = {}
        self.worker = adapters.LoadedAdapters(lambda: dict(self.models), "0")
        self.addCleanup(self.worker.close)

    def answer(self):
        return wait_for(self.worker.answers, what="the identity of an adapter")[1]["0"]

    def test_it_answers_when_the_adapter_is_loaded(self):
        self.worker.ask((1,))
        self.assertEqual(self.worker.answers(), {})
        self.assertFalse(self.worker.is_loaded(1))
        self.models[1] = adapter(Weight("one"))
        self.assertEqual(self.answer(), of("one"))
        self.assertTrue(self.worker.is_loaded(1))
        self.assertEqual(self.worker.answers(), {})

    def test_one_that_is_loaded_again_counts_when_it_is_the_same(self):
        self.models[1] = adapter(Weight("one"))
        self.worker.ask((1,))
        self.answer()
        self.models[1] = adapter(Weight("one"))
        self.assertFalse(self.worker.is_loaded(1))
        self.assertEqual(self.answer(), of("one"))
        self.assertTrue(self.worker.is_loaded(1))

    def test_one_that_was_replaced_stays_out_until_it_is_asked_for_anew(self):
        """Steps that were made before the scheduler heard of it have the keys of the old one."""
        self.models[1] = adapter(Weight("one"))
        self.worker.ask((1,))
        self.answer()
        self.models[1] = adapter(Weight("two"))
        self.assertFalse(self.worker.is_loaded(1))
        self.assertEqual(self.answer(), of("two"))
        self.assertFalse(self.worker.is_loaded(1))
        self.worker.ask((1,))
        self.answer()
        self.assertTrue(self.worker.is_loaded(1))


    def test_it_keeps_no_adapter_alive(self):
        """1,000 adapters through vLLM's cache of two."""
        alive = []
        for number in range(1, 1001):
            self.models = {number - 1: self.models.get(number - 1), number: adapter(Weight(f"W{number}"))}
            alive.append(weakref.ref(self.models[number]))
            self.worker.ask((number,))
            self.assertEqual(self.answers(number), of(f"W{number}"))
        self.assertEqual(sum(own() is not None for own in alive), 2)

    def answers(self, number):
        return wait_for(self.worker.answers, what="the identity of an adapter")[number]["0"]

    def test_what_was_told_last_may_be_loaded_while_the_adapter_is_not_in_memory(self):
        self.models[1] = adapter(Weight("one"))
        self.worker.ask((1,))
        self.answer()
        self.models.clear()
        self.assertEqual((self.worker.may_load(1), self.worker.is_loaded(1)), (True, False))
        self.models[1] = adapter(Weight("one"))
        self.assertEqual((self.worker.may_load(1), self.worker.is_loaded(1)), (True, False))
        self.answer()
        self.assertEqual((self.worker.may_load(1), self.worker.is_loaded(1)), (True, True))
        self.models[1] = adapter(Weight("two"))
        self.assertTrue(self.worker.may_load(1))  # and looks
        self.answer()
        self.assertFalse(self.worker.may_load(1))

    def test_both_sides_remember_so_many(self):
        known = adapters.Adapters(1)
        with mock.patch.object(adapters, "LIMIT", 3):
            for number in range(1, 60):
                self.models = {number: adapter(Weight("one"))}
                if known.is_full():
                    known.forget()
                known.of(types.SimpleNamespace(lora_name=f"a{number}", lora_path="/", lora_int_id=number))
                self.worker.ask(known.take_questions())
                known.told(number, {"0": self.answers(number)})
                self.assertTrue(self.worker.is_loaded(number))
                self.assertFalse(self.worker.is_loaded(number - 4))
            sides = (self.worker._seen, self.worker._told, self.worker._wanted, known._names, known._parts, known._known)
            self.assertLessEqual(max(map(len, sides)), 4)


class Schedulers(unittest.TestCase):
    def setUp(self):
        self.known = adapters.Adapters(2)

    def test_it_is_known_when_all_workers_have_answered(self):
        self.assertIsNone(self.known.of(LORA))
        self.assertEqual((self.known.take_questions(), self.known.take_questions()), ((1,), ()))
        self.known.told(1, {"0": "a"})
        self.assertIsNone(self.known.of(LORA))
        self.known.told(1, {"1": "b"})
        self.assertIsInstance(self.known.of(LORA), bytes)
        self.assertEqual(self.known.take_questions(), ())

    def test_another_content_under_the_same_name_is_out_until_a_reset(self):
        """Also under another number: vLLM's own blocks have name and path only."""
        again = types.SimpleNamespace(**{**vars(LORA), "lora_int_id": 2})
        for lora in (LORA, again):
            with self.subTest(number=lora.lora_int_id):
                self.known.forget()
                self.known.of(LORA), self.known.told(1, {"0": "a", "1": "b"})
                self.known.of(lora)
                with self.assertLogs("vllm.kvscout", "WARNING") as log:
                    self.known.told(lora.lora_int_id, {"0": "c", "1": "b"})
                self.assertIn("sql at /adapters/sql was loaded again with other weights", log.output[0])
                self.assertIsNone(self.known.of(lora))
                self.known.told(lora.lora_int_id, {"0": "a", "1": "b"})
                self.assertIsNone(self.known.of(lora))
                self.known.forget()
                self.known.of(lora), self.known.told(lora.lora_int_id, {"0": "c", "1": "b"})
                self.assertIsInstance(self.known.of(lora), bytes)


class Lives(unittest.TestCase):
    """Two engines on one server, one after the other."""

    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def engine(self, content):
        engine = Engine(self, self.server.endpoint, 0)
        self.models = {1: adapter(Weight(content))}
        engine.worker._adapters = adapters.LoadedAdapters(lambda: dict(self.models), "0")
        self.addCleanup(engine.worker._adapters.close)
        engine.scheduler._pins.take = lambda number, blocks: None
        engine.scheduler._pins.give_back = lambda number, ranks: None
        engine.scheduler._manager.get_block_ids = lambda request_id: ([1, 2, 3, 4],)
        return engine

    def asked(self, engine, name):
        found = request(name, CHUNK_TOKENS + 1, hash_tokens=BLOCK_TOKENS)
        found.lora_request = LORA
        engine.scheduler.on_new_request(found)
        return found

    def step(self, engine, *scheduled):
        tokens = {found.request_id: CHUNK_TOKENS for found in scheduled}
        output = types.SimpleNamespace(num_scheduled_tokens=tokens, preempted_req_ids=set())
        meta = engine.scheduler.build_meta(output)
        engine.worker.begin_step(meta)
        engine.worker.start_loads(meta)
        engine.worker.wait_for_save(meta)
        engine.worker.finished(set())
        told = engine.worker.take_meta()
        engine.scheduler.worker_output(told)
        return meta, told

    def identified(self, engine, found):
        """Steps until the adapter's identity is known, and its request may store."""
        wait_for(lambda: self.step(engine, found)[0].stores, what="a store")

    def hit(self, engine, found):
        def answer():
            tokens = engine.scheduler.matched_tokens(found, 0)
            return None if tokens is None else (tokens,)

        return wait_for(answer, what="an answer")[0]

    def stored(self, engine):
        wait_for(lambda: self.step(engine) and engine.worker.counts["stores_ended"], what="the end of a store")

    def test_the_first_request_is_cold_and_stored_and_the_next_one_finds_it(self):
        engine = self.engine("one")
        first = self.asked(engine, "first")
        self.assertEqual(self.hit(engine, first), 0)
        engine.scheduler.allocated(first, ([1, 2, 3, 4],), 0)
        self.identified(engine, first)
        self.stored(engine)
        self.assertEqual(self.hit(engine, self.asked(engine, "second")), CHUNK_TOKENS)

    def test_an_adapter_replaced_at_its_path_shares_nothing_with_the_old_one(self):
        engine = self.engine("one")
        first = self.asked(engine, "first")
        engine.scheduler.allocated(first, ([1, 2, 3, 4],), 0)
        self.identified(engine, first)
        self.stored(engine)
        for content, tokens in (("two", 0), ("one", CHUNK_TOKENS)):
            engine = self.engine(content)
            self.asked(engine, "first")
            wait_for(lambda: engine.scheduler._adapters.of(LORA) or self.step(engine) and None, what="an identity")
            self.assertEqual(self.hit(engine, self.asked(engine, "second")), tokens)

    def test_the_first_hit_after_an_eviction_is_loaded(self):
        engine = self.engine("one")
        first = self.asked(engine, "first")
        engine.scheduler.allocated(first, ([1, 2, 3, 4],), 0)
        self.identified(engine, first)
        self.stored(engine)
        self.models.clear()
        second = self.asked(engine, "second")
        self.assertEqual(self.hit(engine, second), CHUNK_TOKENS)
        engine.scheduler.allocated(second, ([1, 2, 3, 4, 5],), CHUNK_TOKENS)
        wait_for(lambda: self.step(engine) and engine.worker.counts["loads_ended"], what="the end of the load")
        self.assertEqual((engine.worker.counts["loaded_tokens"], engine.scheduler.counts["failed_loads"]), (CHUNK_TOKENS, 0))

    def test_a_waiting_request_is_asked_for_anew_after_a_reset(self):
        """The adapter was replaced meanwhile, and the reset makes its new weights as good as others."""
        engine = self.engine("one")
        waits = self.asked(engine, "waits")
        wait_for(lambda: engine.scheduler._adapters.of(LORA) or self.step(engine) and None, what="an identity")
        again = self.asked(engine, "again")
        self.step(engine)
        old = engine.scheduler._requests["again"].identity
        self.models[1] = adapter(Weight("two"))
        self.assertTrue(engine.scheduler.reset())
        self.assertEqual([engine.scheduler._requests[found.request_id].identity for found in (waits, again)], [None, None])
        engine.scheduler.allocated(again, ([1, 2, 3, 4],), 0)
        self.identified(engine, again)
        self.assertNotIn(engine.scheduler._requests["again"].identity, (None, old))

    def test_more_adapters_than_it_remembers_empty_vllms_own_cache(self):
        """It names them by name and path only, so their old content must not come back from there when it is forgotten here."""
        engine = self.engine("one")
        found = self.asked(engine, "first")
        wait_for(lambda: engine.scheduler._adapters.of(LORA) or self.step(engine) and None, what="an identity")
        with mock.patch.object(adapters, "LIMIT", 1):
            engine.scheduler.finished(found)
            self.asked(engine, "second")
            engine.scheduler.build_meta(NO_STEP)
        self.assertEqual((engine.evicted, engine.scheduler._adapters._known), ([set(range(9))], {}))

    def test_what_the_new_weights_computed_is_not_stored_with_the_old_keys(self):
        engine = self.engine("one")
        first = self.asked(engine, "first")
        engine.scheduler.allocated(first, ([1, 2, 3, 4],), 0)
        wait_for(lambda: self.step(engine)[1], what="an identity")
        self.models[1] = adapter(Weight("two"))
        self.step(engine, first)
        self.assertEqual((engine.worker.counts["stores_dropped"], engine.worker._stores), (1, {}))


if __name__ == "__main__":
    unittest.main()
