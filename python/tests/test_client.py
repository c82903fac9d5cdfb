# SPDX-License-Identifier: Apache-2.0
"""Client: every call, every argument's error, and use from where it is not allowed. On a kvscoutd of its own."""

import array
import gc
import os
import selectors
import signal
import sys
import threading
import time
import unittest
import weakref

import kvscout
import rig

CHUNK = 16
HASH = 32


def setUpModule():
    global server
    server = rig.ServerProcess()


def tearDownModule():
    server.stop()


def hashes_of(n, seed=0):
    return [bytes([seed]) * 24 + i.to_bytes(8, "little") for i in range(n)]


class Asks(unittest.TestCase):
    """Has a client that is ready."""

    CONFIG = {}

    def setUp(self):
        self.client = self.open(**self.CONFIG)

    def open(self, **config):
        client = kvscout.Client(**{"endpoint": server.endpoint, "namespace": self.id()[-40:], "chunk_tokens": CHUNK,
                                   "lookup_timeout_ms": 60000, **config})
        self.addCleanup(client.close)
        client.wait_ready(60000)
        return client

    def ask(self, id="r1", n=4, **more):
        return self.client.try_lookup(id, hashes_of(n), n * CHUNK + 1, **more)

    def answer(self, id="r1", n=4, **more):
        hit = self.ask(id, n, **more)
        return hit or rig.wait_for(lambda: self.client.poll(id), what="the answer")

    def freeze(self):
        """The server answers nothing until the end of the test."""
        server.freeze()
        self.addCleanup(server.thaw)


class Lookups(Asks):
    def test_the_first_ask_is_not_answered_yet_and_a_poll_is_in_the_end(self):
        with self.client.step():
            self.assertIsNone(self.ask())
            self.assertIsNone(self.client.poll("r1"))
        hit = rig.wait_for(lambda: self.client.poll("r1"), what="the answer")
        self.assertEqual((hit.tokens, hit.chunks, hit.l1_chunks, hit.l2_chunks), (0, 0, 0, 0))
        self.assertEqual((hit.reason, hit.error, hit.endpoint), ("miss", 0, -1))
        self.assertNotEqual(hit.ticket, 0)
        self.assertIn("reason='miss'", repr(hit))
        self.assertEqual(self.client.lookup_lengths("r1"), [])
        self.assertEqual(self.client.stats()["lookups"], 1)

    def test_asking_twice_is_one_lookup_with_one_answer(self):
        first = self.answer()
        again = self.ask()
        self.assertEqual((again.ticket, again.reason), (first.ticket, first.reason))
        self.assertEqual(self.client.poll("r1").ticket, first.ticket)
        self.assertEqual(self.client.stats()["lookups"], 1)

    def test_arguments_may_be_given_by_name(self):
        self.client.try_lookup(hashes=hashes_of(2), id="r1", prompt_tokens=2 * CHUNK, computed_tokens=0, tenant="t",
                               expect_tokens=5, stride=1, timeout_ms=30000)
        self.assertIsNotNone(rig.wait_for(lambda: self.client.poll(computed_tokens=0, id="r1")))

    def test_wait_lookup_waits(self):
        hit = self.client.wait_lookup("r1", hashes_of(3), 3 * CHUNK)
        self.assertEqual(hit.reason, "miss")
        self.assertEqual(self.client.wait_lookup("r1", hashes_of(3), 3 * CHUNK).ticket, hit.ticket)

    def test_wait_lookup_ends_at_the_deadline(self):
        client = self.open(lookup_timeout_ms=1, heartbeat_ms=60000)
        self.freeze()
        self.assertIn(client.wait_lookup("r1", hashes_of(1), CHUNK).reason, ("timeout", "unreachable"))

    def test_lookup_waits_by_its_mode(self):
        with self.client.step():
            self.assertIsNone(self.client.lookup("r1", hashes_of(3), 3 * CHUNK))
        polled = self.open(lookup_mode="polled")
        self.assertEqual(polled.lookup("r1", hashes_of(3), 3 * CHUNK).reason, "miss")
        patient = self.open(step_wait_us=1000000)
        hit = rig.wait_for(lambda: patient.lookup("r1", hashes_of(3), 3 * CHUNK) or patient.finish("r1"), what="a first ask that waits")
        self.assertEqual(hit.reason, "miss")

    def test_a_lookup_ahead_is_read_by_a_poll(self):
        self.assertIsNone(self.client.lookup_ahead("r1", hashes_of(4), 4 * CHUNK))
        hit = rig.wait_for(lambda: self.client.poll("r1", 2 * CHUNK), what="the answer")
        self.assertEqual(hit.chunks, 2)  # what the GPU has

    def test_a_prompt_without_a_full_chunk_is_answered_at_once(self):
        for nothing in ([], b"", ()):
            self.assertEqual(self.client.try_lookup("r1", nothing, 5).reason, "miss")
            self.assertEqual(self.client.poll("r1").reason, "miss")
        self.assertEqual(self.client.stats()["lookups"], 0)

    def test_fewer_computed_tokens_start_a_new_lookup_by_a_poll(self):
        self.answer(computed_tokens=0)
        self.client.finish("r1")
        self.ask(computed_tokens=2 * CHUNK)
        hit = rig.wait_for(lambda: self.client.poll("r1", 2 * CHUNK), what="the answer")
        newer = rig.wait_for(lambda: self.client.poll("r1", CHUNK), what="the new answer")
        self.assertNotEqual(newer.ticket, hit.ticket)
        self.assertEqual(self.client.stats()["lookups"], 3)

    def test_a_tenant_is_a_salt(self):
        self.answer(tenant="a")
        with self.assertRaises(kvscout.StateError):
            self.ask(tenant="b")
        self.ask(tenant="a")

    def test_an_unreachable_server_is_a_reason_and_no_exception(self):
        client = kvscout.Client(endpoint=server.endpoint + "-not-there", connect_timeout_ms=1, lookup_timeout_ms=60000)
        self.addCleanup(client.close)
        hit = client.wait_lookup("r1", hashes_of(1), 300)
        self.assertEqual((hit.tokens, hit.reason, hit.endpoint), (0, "unreachable", 0))
        self.assertIsInstance(kvscout.error_of(hit.error), kvscout.ServerError)


class Hits(Asks):
    """With a worker that has stored."""

    def setUp(self):
        super().setUp()
        self.pages = bytearray(os.urandom(64 * 512))
        self.worker = kvscout.Worker(endpoint=server.endpoint, namespace=self.id()[-40:], chunk_tokens=CHUNK)
        self.addCleanup(self.worker.close)
        self.assertTrue(self.worker.register([self.pages], block_tokens=CHUNK, n_blocks=64, timeout_ms=60000))

    def store(self, n):
        self.worker.store(0, hashes_of(n), list(range(n)))
        done = rig.wait_for(self.worker.poll, what="the store")[0]
        self.assertTrue(done.ok, done)

    def test_a_hit_says_how_much_is_cached_and_where(self):
        self.store(3)
        hit = self.answer(n=5)
        self.assertEqual((hit.tokens, hit.chunks, hit.l1_chunks, hit.l2_chunks), (3 * CHUNK, 3, 3, 0))
        self.assertEqual((hit.reason, hit.error), ("hit", 0))
        self.assertEqual(self.client.lookup_lengths("r1"), [3 * CHUNK])
        self.assertEqual(self.client.stats()["hit_tokens"], 3 * CHUNK)

    def test_the_last_token_is_always_computed(self):
        self.store(3)
        hit = self.client.wait_lookup("r1", hashes_of(3), 3 * CHUNK)
        self.assertEqual((hit.tokens, hit.chunks), (3 * CHUNK - 1, 3))

    def test_what_is_admitted_can_be_retrieved_and_the_rest_is_given_back(self):
        self.store(4)
        hit = self.answer(n=4)
        self.client.admit("r1", CHUNK, 3 * CHUNK)
        before = bytes(self.pages[:4 * 512])
        self.worker.retrieve(hit.ticket, CHUNK, 3 * CHUNK, [40, 41], ids_from=CHUNK)
        self.assertTrue(rig.wait_for(self.worker.poll)[0].ok)
        self.assertEqual(bytes(self.pages[40 * 512:42 * 512]), before[512:3 * 512])

    def test_another_tenant_hits_nothing(self):
        self.store(2)
        self.assertEqual(self.answer("r1", 2, tenant="other").tokens, 0)
        self.assertEqual(self.answer("r2", 2).tokens, 2 * CHUNK)

    def test_an_old_miss_becomes_a_hit_by_polls_alone(self):
        client = self.open(lookup_refresh_ms=1)
        client.try_lookup("r1", hashes_of(2), 2 * CHUNK + 1)
        self.assertEqual(rig.wait_for(lambda: client.poll("r1")).tokens, 0)
        self.store(2)
        hit = rig.wait_for(lambda: (hit := client.poll("r1")).tokens and hit, what="the renewed answer")
        self.assertEqual(hit.tokens, 2 * CHUNK)
        self.assertEqual(client.stats()["lookups"], 1)

    def test_after_a_lookup_ahead_a_poll_settles_what_the_GPU_has(self):
        self.store(4)
        self.client.lookup_ahead("r1", hashes_of(4), 4 * CHUNK + 1)
        hit = rig.wait_for(lambda: self.client.poll("r1", 3 * CHUNK))
        self.assertEqual((hit.chunks, hit.l1_chunks), (4, 1))

    def test_a_clear_drops_what_was_stored(self):
        self.store(2)
        self.client.clear()
        rig.wait_for(lambda: self.client.wait_lookup("r1", hashes_of(2), 99).tokens == 0 or self.client.finish("r1"))


class Hashes(Asks):
    """What counts as the same hashes is the same lookup; other ones are StateError."""

    def test_every_kind_of_hashes_is_the_same_lookup(self):
        chunks = hashes_of(4)
        whole = b"".join(chunks)
        self.client.try_lookup("r1", chunks, 4 * CHUNK)

        class OwnSequence:
            def __len__(self):
                return len(chunks)

            def __getitem__(self, i):
                return chunks[i]

        kinds = [tuple(chunks), whole, bytearray(whole), memoryview(whole), array.array("B", whole), OwnSequence()]
        try:
            import numpy
            kinds += [numpy.frombuffer(whole, numpy.uint8).reshape(4, HASH), numpy.frombuffer(whole, f"S{HASH}"),
                      numpy.frombuffer(whole, f"V{HASH}")]
        except ImportError:
            pass
        for kind in kinds:
            with self.subTest(kind=type(kind).__name__):
                self.client.try_lookup("r1", kind, 4 * CHUNK)
        self.assertEqual(self.client.stats()["lookups"], 1)

    def test_with_a_stride_the_last_hash_of_each_chunk_counts(self):
        blocks = hashes_of(11)  # blocks of 8 tokens: 5 chunks of two, and a rest
        self.client.try_lookup("r1", blocks[1::2], 5 * CHUNK)
        for kind in (blocks, tuple(blocks), b"".join(blocks)):
            self.client.try_lookup("r1", kind, 5 * CHUNK + 8, stride=2)
        self.assertEqual(self.client.stats()["lookups"], 1)
        with self.assertRaises(kvscout.StateError):
            self.client.try_lookup("r1", blocks[0::2][:5], 5 * CHUNK)

    def test_a_list_may_grow_after_it_was_asked_with(self):
        growing = hashes_of(4)
        self.client.try_lookup("r1", growing, 4 * CHUNK)
        first = rig.wait_for(lambda: self.client.poll("r1"))
        growing.extend(hashes_of(3, seed=7))
        server.kill()
        server.start()
        # The library asks for the hashes again, for the server knows nothing of the request any more.
        newer = rig.wait_for(lambda: (hit := self.client.poll("r1")) and hit.ticket != first.ticket and hit)
        self.assertEqual(newer.reason, "miss")

    def test_hashes_that_have_changed_are_told_by_a_poll_that_needs_them(self):
        mine = bytearray(b"".join(hashes_of(2)))
        self.client.try_lookup("r1", mine, 2 * CHUNK, 2 * CHUNK)
        rig.wait_for(lambda: self.client.poll("r1", 2 * CHUNK))
        mine[-1] ^= 1
        with self.assertRaisesRegex(kvscout.StateError, "other hashes"):
            self.client.poll("r1", 0)

    def test_a_buffer_is_not_held_after_the_call(self):
        mine = bytearray(b"".join(hashes_of(2)))
        self.client.try_lookup("r1", mine, 2 * CHUNK)
        mine.extend(b"more")

    def test_shorter_hashes_are_taken_where_they_are_configured(self):
        client = self.open(hash_bytes=20, namespace="short hashes")
        client.try_lookup("r1", [bytes(20), bytes([1]) * 20], 2 * CHUNK)
        client.try_lookup("r1", bytes(20) + bytes([1]) * 20, 2 * CHUNK)
        self.assertEqual(client.stats()["lookups"], 1)


class Wrong(Asks):
    """Each error names the argument, what it was, and what is allowed."""

    def told(self, error, text, *args, call="try_lookup", **kwargs):
        with self.assertRaisesRegex(error, text) as caught:
            getattr(self.client, call)(*args, **kwargs)
        return caught.exception

    def test_ids(self):
        for call, more in (("try_lookup", ([], 5)), ("poll", ()), ("lookup_lengths", ()), ("admit", ()), ("finish", ()), ("finish_hint", ("likely",))):
            with self.subTest(call=call):
                self.told(TypeError, rf"Client\.{call}\(\): id must be a str, not 5 \(int\)", 5, *more, call=call)
                self.told(TypeError, "id must be a str, not None", None, *more, call=call)
                self.told(kvscout.ArgumentError, "id must be 1 to 255 bytes of UTF-8, not ''", "", *more, call=call)
                error = self.told(kvscout.ArgumentError, "1 to 255 bytes.*aaa", "a" * 256, *more, call=call)
                self.assertEqual(error.name, "SCOUT_ERR_REQUEST_ID")
                self.told(kvscout.ArgumentError, "id must be without a NUL character", "a\0b", *more, call=call)
                self.told(kvscout.ArgumentError, "id must be text that UTF-8 can hold", "\ud800", *more, call=call)

    def test_hashes(self):
        self.told(TypeError, r"hashes must be a list or tuple of bytes, or a buffer .*, not 5 \(int\)", "r", 5, 5)
        self.told(TypeError, "hashes must be a list", "r", "text", 5)
        self.told(TypeError, "hashes must be a list", "r", None, 5)
        self.told(TypeError, r"hashes\[1\] must be bytes, not 5", "r", [bytes(32), 5], 99)
        self.told(kvscout.ArgumentError, r"hashes\[1\] must have 32 bytes .*, not 16", "r", [bytes(32), bytes(16)], 99)
        self.told(kvscout.ArgumentError, "whole hashes of 32 bytes .*, not 33 bytes", "r", bytes(33), 99)
        self.told(TypeError, "hashes must be contiguous", "r", memoryview(bytes(128))[::2], 99)
        for wide in (array.array("i", [0] * 8), array.array("q", [0] * 4), memoryview(bytes(32)).cast("d")):
            self.told(TypeError, "hashes must be of bytes, if it is a buffer", "r", wide, 99)
        error = self.told(kvscout.ArgumentError, "hashes has 4 chunks with a stride of 1, and prompt_tokens = 63 are only 3 "
                          "chunks of 16 tokens", "r", hashes_of(4), 63)
        self.assertEqual(error.name, "SCOUT_ERR_INVALID")

    def test_numbers(self):
        mine = hashes_of(1)
        self.told(TypeError, "prompt_tokens must be an int, not 1.5", "r", mine, 1.5)
        self.told(kvscout.ArgumentError, r"prompt_tokens must be 0\.\.18446744073709551615, not -1", "r", mine, -1)
        self.told(kvscout.ArgumentError, r"computed_tokens must be 0\.\.", "r", mine, 99, 1 << 64)
        for stride in (0, 3, 32, 17):
            self.told(kvscout.ArgumentError, r"stride must divide hash_tokens .by default chunk_tokens., which is 16: it is 16 divided by "
                      rf"the engine's block size, not {stride}", "r", mine * 32, 999, stride=stride)
        self.told(kvscout.ArgumentError, "computed_tokens must be at most prompt_tokens, not 100 of 99", "r", mine, 99, 100)
        for name in ("prompt_tokens", "computed_tokens", "expect_tokens", "stride", "timeout_ms", "want_lengths", "from_token"):
            self.told(TypeError, f"{name} must be an int, not True", **{"id": "r", "hashes": mine, "prompt_tokens": 99, name: True})
        for call, *args in (("poll", "r", True), ("admit", "r", True), ("step_wait", True), ("reset", True), ("clear", True),
                            ("wait_ready", True)):
            self.told(TypeError, "must be an int, not True", *args, call=call)
        self.told(TypeError, r"groups\[0\] must be an int, not True", "r", mine, [True], call="lookup_keys")
        self.told(kvscout.ArgumentError, r"timeout_ms must be 0\.\.3600000, not 3600001", "r", mine, 99, timeout_ms=3600001)
        self.told(TypeError, "computed_tokens must be an int", "r", "x", call="poll")
        self.told(TypeError, "us must be an int", "x", call="step_wait")
        self.told(kvscout.ArgumentError, r"weights_version must be 1\.\.", 0, call="reset")
        self.told(kvscout.ArgumentError, r"generation must be 0\.\.", -1, call="clear")
        self.told(kvscout.ArgumentError, r"from_token must be -2\^63\.\.2\^63-1", "r", 1 << 63, call="admit")

    def test_tenants(self):
        self.told(TypeError, "tenant must be a str", "r", hashes_of(1), 99, tenant=b"t")
        self.told(kvscout.ArgumentError, "tenant must be at most 255 bytes", "r", hashes_of(1), 99, tenant="t" * 256)
        error = self.told(kvscout.ArgumentError, "without control characters, not 'a.nb'", "r", hashes_of(1), 99, tenant="a\nb")
        self.assertEqual(error.name, "SCOUT_ERR_TENANT")

    def test_counts_and_names_of_arguments(self):
        self.told(TypeError, r"Client\.try_lookup\(\) needs the argument prompt_tokens", "r", [])
        self.told(TypeError, "at most 7 arguments by position, not 8", "r", [], 5, 0, None, 0, 1, 7)
        self.told(TypeError, "no argument named 'promt_tokens'", "r", [], promt_tokens=5)
        self.told(TypeError, "got id twice", "r", [], 5, id="r")
        self.told(TypeError, "needs the argument id", call="poll")

    def test_calls_out_of_order(self):
        error = self.told(kvscout.StateError, r"poll\('r1'\): no lookup of this id is open", "r1", call="poll")
        self.assertEqual(error.name, "SCOUT_ERR_STATE")
        self.told(kvscout.StateError, r"admit\('r1'\): there is no answer", "r1", call="admit")
        self.answer()
        self.told(kvscout.StateError, "live with other hashes", "r1", hashes_of(3), 99)
        self.client.admit("r1")
        self.told(kvscout.StateError, "no lookup of this id is open", "r1", call="poll")
        self.told(kvscout.StateError, "there is no answer", "r1", call="admit")

    def test_a_full_table_is_busy(self):
        client = self.open(max_lookups=16)
        for i in range(16):
            client.try_lookup(f"r{i}", hashes_of(1), CHUNK)
        with self.assertRaises(kvscout.BusyError) as caught:
            client.try_lookup("one more", hashes_of(1), CHUNK)
        self.assertTrue(caught.exception.retriable)
        client.finish("r0")
        client.try_lookup("one more", hashes_of(1), CHUNK)

    def test_more_hashes_than_the_arena_holds_are_told(self):
        client = self.open(arena_bytes="1Mi")
        with self.assertRaisesRegex(kvscout.ArgumentError, "half of arena_bytes"):
            client.try_lookup("r", bytes(32 * 20000), 20000 * CHUNK)


class Life(Asks):
    def test_admit_and_finish(self):
        self.answer()
        self.client.admit("r1", 0, -1)
        self.client.finish("r1")
        self.client.finish("r1")
        self.client.finish("never asked")
        self.assertEqual(self.client.stats()["live"], 0)
        self.answer("r2")
        self.client.admit(id="r2", from_token=CHUNK, to_token=None)

    def test_finish_with_a_hint(self):
        for id, hint in (("r1", "likely"), ("r2", "unlikely"), ("r3", "unknown")):
            self.answer(id)
            self.client.finish_hint(id, hint)
        self.client.finish_hint(id="never asked", hint="likely")
        self.answer("r4")
        self.client.finish_keep("r4", "unknown", keep_ms=5)  # nothing was stored: nothing to keep
        rig.wait_for(lambda: self.client.stats()["keeps_missing"] == 1, what="the outcome")
        self.answer("r5")
        self.assertEqual(self.client.lookup_kept("r5"), "missing")
        self.client.finish("r5")
        for hint in ("likely", "unlikely"):
            rig.wait_for(lambda: server.counter("hints." + hint) == 1, what=f"the hint {hint}")
        self.assertEqual(self.client.stats()["live"], 0)
        with self.assertRaises(kvscout.StateError):
            self.client.poll("r1")
        rig.wait_for(lambda: self.client.wait_lookup("r1", hashes_of(4), 99))
        with self.assertRaisesRegex(TypeError, "hint must be a str, not 1"):
            self.client.finish_hint("r1", 1)
        with self.assertRaisesRegex(kvscout.ArgumentError, "hint must be 'unknown', 'likely' or 'unlikely', not 'soon'"):
            self.client.finish_hint("r1", "soon")
        self.assertEqual(self.client.stats()["live"], 1)  # a wrong hint has finished nothing

    def test_reset_and_clear_end_all_requests(self):
        self.answer()
        self.client.reset(77)
        with self.assertRaises(kvscout.StateError):
            self.client.poll("r1")
        self.answer()
        generation = self.client.clear()
        self.assertNotEqual(generation, 0)
        self.assertEqual(self.client.clear(generation), generation)
        self.assertEqual(self.client.stats()["live"], 0)

    def test_steps_send_one_message(self):
        sent, start = self.client.stats()["frames_sent"], time.monotonic()
        with self.client.step() as client:
            self.assertIs(client, self.client)
            for i in range(8):
                self.ask(f"r{i}")
        self.assertTrue(self.client.step_wait(60000000))
        for i in range(8):
            self.assertEqual(self.client.poll(f"r{i}").reason, "miss")
        sent = self.client.stats()["frames_sent"] - sent
        self.assertIn(sent, range(1, 2 + rig.pings(start)))
        self.client.step_begin()
        self.ask("last")
        self.client.step_end()
        self.assertTrue(self.client.step_wait(us=20000000))

    def test_a_step_ends_when_its_body_raises(self):
        with self.assertRaises(ZeroDivisionError):
            with self.client.step():
                self.ask()
                1 // 0
        self.assertTrue(self.client.step_wait(60000000))
        self.assertEqual(self.client.poll("r1").reason, "miss")

    def test_step_wait_says_when_the_time_is_over(self):
        self.freeze()
        self.ask()
        self.assertFalse(self.client.step_wait(1000))
        self.assertFalse(self.client.step_wait(0))

    def test_the_descriptor_is_readable_when_an_answer_has_landed(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.client, selectors.EVENT_READ)
            self.assertTrue(selector.select(0))  # what landed before the first fileno() counts, too
            self.client.fd_clear()
            self.ask()
            self.assertTrue(selector.select(20))
            self.client.fd_clear()
            self.assertEqual(self.client.poll("r1").reason, "miss")
            self.assertFalse(selector.select(0))

    def test_a_refusal_is_told_with_the_servers_sentence(self):
        self.open(namespace="shared").wait_ready(60000)
        other = kvscout.Client(endpoint=server.endpoint, namespace="shared", chunk_tokens=2 * CHUNK)
        self.addCleanup(other.close)
        with self.assertRaisesRegex(kvscout.ServerError, "chunk_tokens") as caught:
            other.wait_ready(60000)
        self.assertEqual(caught.exception.name, "SCOUT_ERR_NAMESPACE")

    def test_wait_ready_ends_with_a_timeout(self):
        client = kvscout.Client(endpoint=server.endpoint + "-not-there")
        self.addCleanup(client.close)
        with self.assertRaises(kvscout.KVScoutError) as caught:
            client.wait_ready(1)
        self.assertEqual(caught.exception.name, "SCOUT_ERR_TIMEOUT")

    def test_every_call_after_close_is_told(self):
        self.client.close()
        self.client.close()
        self.assertTrue(self.client.closed)
        calls = {"try_lookup": ("r", [], 5), "wait_lookup": ("r", [], 5), "lookup": ("r", [], 5),
                 "lookup_ahead": ("r", [], 5), "poll": ("r",), "lookup_lengths": ("r",), "lookup_kept": ("r",), "lookup_keys": ("r", []), "wait_lookup_keys": ("r", []),
                 "step_begin": (), "step_end": (), "step_wait": (5,),
                 "admit": ("r",), "finish": ("r",), "finish_hint": ("r", "likely"), "finish_keep": ("r", "likely", 5), "reset": (5,), "clear": (), "wait_ready": (5,), "stats": (),
                 "feed": (), "fileno": (), "fd_clear": (), "__enter__": ()}
        for name, args in calls.items():
            with self.subTest(call=name), self.assertRaisesRegex(kvscout.ClosedError, rf"{name}\(\): the object was closed"):
                getattr(self.client, name)(*args)
        with self.assertRaises(kvscout.ClosedError):
            with self.client.step():
                pass
        methods = {name for name in dir(kvscout.Client) if callable(getattr(kvscout.Client, name)) and name[0] != "_"}
        self.assertEqual(methods - set(calls), {"close", "step"})

    def test_with_closes_and_a_step_may_outlive_its_client(self):
        with self.client as client:
            self.assertIs(client, self.client)
            with client.step():
                client.close()
        self.assertTrue(self.client.closed)

    def test_what_was_asked_is_let_go_by_admit_finish_reset_and_close(self):
        for end in (lambda: self.client.admit("r1"), lambda: self.client.finish("r1"), lambda: self.client.reset(5),
                    lambda: self.client.clear(), lambda: self.client.close()):
            class List(list):
                pass

            mine = List(hashes_of(1))
            gone = weakref.ref(mine)
            self.client.try_lookup("r1", mine, CHUNK)
            rig.wait_for(lambda: self.client.poll("r1"))
            del mine
            self.assertIsNotNone(gone())
            end()
            gc.collect()
            self.assertIsNone(gone())

    def test_a_circle_through_a_client_is_collected(self):
        class List(list):
            pass

        client = self.open()
        mine = List(hashes_of(1))
        mine.client = client
        gone = weakref.ref(mine)
        client.try_lookup("r1", mine, CHUNK)
        self.doCleanups()
        client = kvscout.Client(endpoint=server.endpoint)
        mine.client = client
        client.try_lookup("r1", mine, 300)
        del client, mine
        with self.assertWarns(ResourceWarning):
            gc.collect()
        self.assertIsNone(gone())

    def test_no_reference_leaks(self):
        mine = hashes_of(4)
        given = ("an id", "a tenant")

        def round():
            self.client.try_lookup(given[0], mine, 4 * CHUNK, 0, given[1])
            rig.wait_for(lambda: self.client.poll(given[0]))
            self.client.admit(given[0])
            self.client.finish(given[0])
            for wrong in (lambda: self.client.poll(given[0]), lambda: self.client.try_lookup(given[0], mine, 1),
                          lambda: self.client.try_lookup(given[0], [5], 99)):
                with self.assertRaises((kvscout.KVScoutError, TypeError)):
                    wrong()

        round()
        gc.collect()
        before = [sys.getrefcount(o) for o in (*given, mine, mine[0], kvscout.Hit, kvscout.StateError)]
        for _ in range(20):
            round()
        gc.collect()
        self.assertEqual([sys.getrefcount(o) for o in (*given, mine, mine[0], kvscout.Hit, kvscout.StateError)], before)


class Threads(Asks):
    """One thread at a time; a second one is told, and close() is safe."""

    def waiting(self, timeout_ms):
        """A client without a server, inside whose wait_ready() a thread is; and that thread, and what it will have got."""
        client = kvscout.Client(endpoint=server.endpoint + "-not-there")
        self.addCleanup(client.close)
        result = []

        def work():
            try:
                result.append(client.wait_ready(timeout_ms))
            except kvscout.KVScoutError as error:
                result.append(error.name)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)

        def is_inside():
            try:
                client.stats()
            except kvscout.StateError as error:
                return error
            return None

        return client, thread, result, rig.wait_for(is_inside, what="the other thread to wait")

    def test_a_second_thread_is_told_by_the_name_of_the_call(self):
        client, thread, result, error = self.waiting(10000)
        self.assertRegex(str(error), r"stats\(\): another thread is inside Client\.wait_ready\(\) of this object")
        for call in (lambda: client.poll("r1"), lambda: client.try_lookup("r2", hashes_of(1), 300), lambda: client.finish("r1"),
                     lambda: client.step_wait(5), lambda: client.wait_lookup("r3", hashes_of(1), 300)):
            with self.assertRaises(kvscout.StateError):
                call()
        self.assertEqual(result, [])
        thread.join(rig.LIMIT_S)
        self.assertEqual(result, ["SCOUT_ERR_TIMEOUT"])
        self.assertEqual(client.stats()["lookups"], 0)

    def test_calls_that_wait_let_other_threads_run(self):
        polled = self.open(lookup_mode="polled", namespace="polled")
        for client, call in ((self.client, lambda: self.client.step_wait(200000)),
                             (self.client, lambda: self.client.wait_lookup("r", hashes_of(4), 4 * CHUNK + 1)),
                             (polled, lambda: polled.lookup("r", hashes_of(4), 4 * CHUNK + 1))):
            rig.wait_for(lambda: self.turns_during(client, call) > 5, what="a call that lets the other thread run")

    def turns_during(self, client, call):
        """How often this thread ran while another one was in `call`."""
        before = sys.getswitchinterval()
        server.freeze()
        try:
            client.try_lookup("r", hashes_of(4), 4 * CHUNK + 1)
            inside, ended, turns = threading.Event(), [], 0
            thread = threading.Thread(target=lambda: (inside.set(), ended.append(call())))
            sys.setswitchinterval(60)  # a thread that holds the GIL is not asked for it
            thread.start()
            inside.wait()
            while not ended:
                turns += 1
                time.sleep(0.001)  # gives the GIL away; it comes back only if the other thread lets it go
            thread.join()
        finally:
            sys.setswitchinterval(before)
            server.thaw()
        client.finish("r")
        client.wait_lookup("r", hashes_of(4), 4 * CHUNK + 1)
        client.finish("r")
        rig.wait_for(lambda: client.stats()["servers_up"], what="the connection after the stop")
        return turns

    def test_closing_while_another_thread_waits_ends_its_wait(self):
        client, thread, result, _ = self.waiting(600000)
        closers = [threading.Thread(target=client.close) for _ in range(3)]
        for closer in closers:
            closer.start()
        client.close()
        for closer in (*closers, thread):
            closer.join(rig.LIMIT_S)
        self.assertEqual(result, ["SCOUT_ERR_CLOSED"])
        with self.assertRaises(kvscout.ClosedError):
            client.stats()

    def test_an_argument_that_closes_the_client_is_told(self):
        class Closes:
            def __index__(this):
                self.client.close()
                return 5

        with self.assertRaises(kvscout.ClosedError):
            self.client.try_lookup("r1", [], Closes())

    def test_hashes_that_ask_themselves_meanwhile_are_collected_whole(self):
        class Asking:
            def __len__(this):
                return 4

            def __getitem__(this, i):
                if i == 3:
                    self.client.try_lookup("inner", hashes_of(400, seed=9), 400 * CHUNK)
                return hashes_of(4)[i]

        self.client.try_lookup("outer", Asking(), 4 * CHUNK)
        self.client.try_lookup("outer", hashes_of(4), 4 * CHUNK)
        self.client.try_lookup("inner", hashes_of(400, seed=9), 400 * CHUNK)

    def test_a_signal_ends_a_wait_with_its_exception(self):
        def on_alarm(number, frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, on_alarm)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        polled = self.open(lookup_mode="polled")
        self.freeze()
        self.ask()
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while True:
                self.client.step_wait(2000)
        late = kvscout.Client(endpoint=server.endpoint + ".none")
        self.addCleanup(late.close)
        for wait in (lambda: self.client.wait_lookup("r2", hashes_of(4), 4 * CHUNK),
                     lambda: polled.lookup("r2", hashes_of(4), 4 * CHUNK), lambda: late.wait_ready(60000)):
            start = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                wait()
            self.assertLess(time.monotonic() - start, 30)

    @rig.forks
    def test_a_forked_child_is_told(self):
        waited_on, thread, _, _ = self.waiting(5000)
        self.ask("mine")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for call in (self.client.stats, lambda: self.client.poll("mine"), self.client.step_begin,
                         lambda: self.client.wait_lookup("r", [], 1), waited_on.stats):
                try:
                    call()
                    said.append("nothing")
                except kvscout.ClosedError as error:
                    said.append(error.name)
                except BaseException as error:
                    said.append(repr(error))
            self.client.close()
            waited_on.close()
            os.write(write, " ".join(said).encode())
            os._exit(0)
        os.close(write)
        _, status = os.waitpid(child, 0)
        self.assertEqual((os.read(read, 1000).decode(), status), (" ".join(["SCOUT_ERR_FORKED"] * 5), 0))
        os.close(read)
        rig.wait_for(lambda: self.client.poll("mine"))  # the parent's goes on
        thread.join(rig.LIMIT_S)


class Restart(Asks):
    CONFIG = {"heartbeat_ms": 50}

    def test_a_poll_asks_again_after_a_restart_of_the_server(self):
        # A server that is off the CPU for 450 ms seems gone: then it is done again.
        rig.wait_for(lambda: self.reason_after_a_restart() == "miss", what="a restart after which the server answers")

    def reason_after_a_restart(self):
        self.client.finish("r1")
        self.client.wait_ready(60000)
        first, epochs = self.answer(), self.client.stats()["epochs"]
        server.kill()
        server.start()
        rig.wait_for(lambda: self.client.stats()["epochs"] > epochs or self.client.poll("r1") is None)
        return rig.wait_for(lambda: (hit := self.client.poll("r1")) and hit.ticket != first.ticket and hit).reason

    def test_a_poll_renews_an_old_answer(self):
        client = self.open(lookup_refresh_ms=1)
        client.try_lookup("r1", hashes_of(4), 4 * CHUNK)
        rig.wait_for(lambda: client.poll("r1"))
        rig.wait_for(lambda: client.poll("r1") and client.stats()["renewals"] >= 3)
        self.assertEqual(client.stats()["lookups"], 1)


if __name__ == "__main__":
    unittest.main()
