# SPDX-License-Identifier: Apache-2.0
"""Client.lookup_keys(), several lengths, and Worker.unregister(): models of several groups, with every byte compared."""

import array
import time
import unittest

import kvscout
import rig
from kvscout import KEY_HIT, KEY_MISS, KEY_RETRY
from pages import wait_done

TOKENS = 16  # of a hash, a block and an object
BLOCK_BYTES = 96
BLOCKS = 32
GROUPS = "all state"


def setUpModule():
    global server
    server = rig.ServerProcess()


def tearDownModule():
    server.stop()


def hashes_of(n, seed=0):
    return [bytes([seed]) * 24 + i.to_bytes(8, "little") for i in range(n)]


def bytes_of(group, i):
    return bytes([1 + group * 100 + i]) * BLOCK_BYTES


class Case(unittest.TestCase):
    def setUp(self):
        self.common = {"endpoint": server.endpoint, "namespace": self.id()[-60:], "chunk_tokens": TOKENS, "group": GROUPS,
                       "lookup_timeout_ms": 60000}
        self.client = self.open()
        self.worker = kvscout.Worker(**{key: self.common[key] for key in ("endpoint", "namespace", "chunk_tokens", "group")})
        self.addCleanup(self.worker.close)
        self.memory = [bytearray(BLOCKS * BLOCK_BYTES) for _ in range(2)]
        self.register()

    def open(self, **more):
        client = kvscout.Client(**{**self.common, **more})
        self.addCleanup(client.close)
        client.wait_ready(60000)
        return client

    def register(self):
        tables = [{"group": group, "planes": [memory], "block_tokens": TOKENS, "n_blocks": BLOCKS}
                  for group, memory in enumerate(self.memory)]
        self.assertIs(self.worker.register(tables=tables, timeout_ms=60000), True)

    def block(self, group, i):
        return bytes(self.memory[group][i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES])

    def store(self, n=6):
        """Of the prompt's n hashes all objects of group 0, and the states behind hashes 2 and 5."""
        for group in range(2):
            for i in range(n):
                self.memory[group][i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES] = bytes_of(group, i)
        done = wait_done(self.worker, self.worker.store(
            0, hashes_of(n), {0: list(range(n)), 1: [i if i in (2, 5) else -1 for i in range(n)]}))
        self.assertTrue(done.ok, done)
        for memory in self.memory:
            memory[:] = bytes(len(memory))

    def answer(self, id, hashes, *args, client=None, **more):
        return rig.wait_for(lambda: (client or self.client).lookup_keys(id, hashes, *args, **more), what="the answer")


class Feed(Case):
    def setUp(self):
        super().setUp()
        self.events = []

    def pull(self):
        self.events += self.client.feed()
        return self.events

    def test_what_is_stored_and_cleared_is_told_in_order(self):
        rig.wait_for(lambda: kvscout.FEED_START_OVER in [event[0] for event in self.pull()], what="the begin")
        rig.wait_for(lambda: len(self.pull()) == 2, what="the end of what was there")
        self.store()
        rig.wait_for(lambda: len(self.pull()) == 2 + 8, what="eight objects")
        stored = {(event[2], event[4]) for event in self.events[2:]}
        hashes = hashes_of(6)
        self.assertEqual(stored, {(0, hash) for hash in hashes} | {(1, hashes[2]), (1, hashes[5])})
        for kind, medium, _, tenant, _, description in self.events[2:]:
            self.assertEqual((kind, medium, tenant, description), (kvscout.FEED_STORED, kvscout.FEED_L1, "", b""))
        self.client.clear()
        rig.wait_for(lambda: len(self.pull()) == 2 + 8 + 1, what="the clear")
        self.assertEqual(self.events[-1], (kvscout.FEED_CLEARED, 0, 0, "", None, b""))

    def test_readers_get_what_the_worker_said_of_each_object(self):
        said = [b"%d says" % i for i in range(5)] + [b"x" * 4096]
        done = wait_done(self.worker, self.worker.store(
            0, hashes_of(6), {0: list(range(6)), 1: [i if i in (2, 5) else -1 for i in range(6)]}, descriptions=said))
        self.assertTrue(done.ok, done)
        rig.wait_for(lambda: len(self.pull()) == 1 + 8 + 1, what="the begin, eight objects and the end of what was there")
        for _, _, group, _, hash, description in self.events[1:-1]:
            self.assertEqual(description, said[hashes_of(6).index(hash)], group)
        for bad in ([b""], [b""] * 5 + [b"x" * 4097], [b""] * 5 + ["text"]):
            with self.assertRaises((ValueError, TypeError, kvscout.KVScoutError)):
                self.worker.store(0, hashes_of(6), {0: list(range(6)), 1: [-1] * 6}, descriptions=bad)

    def test_a_later_reader_begins_with_what_is_there(self):
        self.store(2)
        self.client = self.open()
        rig.wait_for(lambda: len(self.pull()) == 4, what="the begin, two objects and their end")
        kinds = [kvscout.FEED_START_OVER, kvscout.FEED_STORED, kvscout.FEED_STORED, kvscout.FEED_CAUGHT_UP]
        self.assertEqual([event[0] for event in self.events], kinds)


class Keys(Case):
    def test_each_key_is_answered_by_itself_and_loaded_by_its_place(self):
        self.store()
        prompt, other = hashes_of(6), hashes_of(6, 9)
        hashes = [prompt[5], prompt[4], other[0], prompt[0], prompt[3], prompt[2]]
        groups = [1, 0, 0, 0, 1, 1]
        self.assertIsNone(self.client.lookup_keys("k", hashes, groups))
        answer = self.answer("k", hashes, groups)
        self.assertEqual(list(answer.states), [KEY_HIT, KEY_HIT, KEY_MISS, KEY_HIT, KEY_MISS, KEY_HIT])
        self.assertEqual((answer.hits, answer.misses, answer.retries, answer.l2_hits), (4, 2, 0, 0))
        self.assertEqual((answer.reason, answer.error, answer.endpoint), ("hit", 0, -1))
        self.assertIn("hits=4, misses=2", repr(answer))
        # Group 0 has keys 4, other, 0 at its places 0, 1, 2; group 1 has 5, 3, 2.
        done = wait_done(self.worker, self.worker.retrieve(
            answer.ticket, 0, 3 * TOKENS, {0: [20, -1, 22], 1: [25, -1, 27]}))
        self.assertTrue(done.error is None or done.error.name == "SCOUT_ERR_MISSING", done)
        self.assertEqual([self.block(0, 20), self.block(0, 22)], [bytes_of(0, 4), bytes_of(0, 0)])
        self.assertEqual([self.block(1, 25), self.block(1, 27)], [bytes_of(1, 5), bytes_of(1, 2)])
        self.client.finish("k")
        rig.wait_for(lambda: server.counter("sessions") == 0, what="the end of the session")

    def test_keys_and_groups_may_be_buffers(self):
        self.store()
        hashes, groups = b"".join(hashes_of(3)), array.array("i", [0, 1, 1])
        answer = self.answer("k", hashes, groups, timeout_ms=30000)
        self.assertEqual(list(answer.states), [KEY_HIT, KEY_MISS, KEY_HIT])
        self.assertEqual(list(self.answer("k2", bytearray(hashes)).states), [KEY_HIT] * 3)  # of group 0
        self.assertEqual(list(self.answer("k3", hashes, None, "another tenant").states), [KEY_MISS] * 3)
        self.assertEqual(self.client.stats()["hit_keys"], 5)
        self.assertEqual(self.client.stats()["asked_keys"], 9)

    def test_a_server_that_is_away_makes_no_miss(self):
        self.store()
        self.assertEqual(self.answer("k", hashes_of(2)).hits, 2)
        server.kill()
        answer = self.answer("k2", hashes_of(2))
        self.assertEqual(list(answer.states), [KEY_RETRY, KEY_RETRY])
        self.assertEqual((answer.retries, answer.reason), (2, "unreachable"))
        self.assertEqual(kvscout.error_of(answer.error).name, "SCOUT_ERR_UNREACHABLE")
        server.start()
        rig.wait_for(lambda: self.client.stats()["epochs"] == 1, what="the new server")
        self.assertEqual(self.answer("k", hashes_of(2)).misses, 2)  # and not what was known before

    def test_a_wait_ends_with_the_answer(self):
        self.store()
        answer = self.client.wait_lookup_keys("k", hashes_of(7))
        self.assertEqual(list(answer.states), [KEY_HIT] * 6 + [KEY_MISS])
        done = wait_done(self.worker, self.worker.retrieve(answer.ticket, 0, 6 * TOKENS, {0: [20, 21, 22, 23, 24, 25]}))
        self.assertTrue(done.error is None or done.error.name == "SCOUT_ERR_MISSING", done)
        self.assertEqual([self.block(0, 20 + i) for i in range(6)], [bytes_of(0, i) for i in range(6)])
        self.assertEqual(list(self.client.wait_lookup_keys("g", hashes_of(3), [1, 1, 1]).states), [KEY_MISS, KEY_MISS, KEY_HIT])

    def test_a_wait_for_a_frozen_server_ends_at_its_deadline(self):
        client = self.open(lookup_timeout_ms=100)
        server.freeze()
        self.addCleanup(server.thaw)
        begin = time.monotonic()
        answer = client.wait_lookup_keys("k", hashes_of(2), timeout_ms=300)
        self.assertEqual(list(answer.states), [KEY_RETRY, KEY_RETRY])
        self.assertIn(answer.reason, ("timeout", "unreachable"))
        self.assertLess(time.monotonic() - begin, rig.LIMIT_S)

    def test_a_wait_in_a_later_step_ends_with_the_answer(self):
        self.store()
        for at in range(20):
            self.client.lookup_keys(f"k{at}", hashes_of(6))
            with self.client.step():
                self.assertEqual(self.client.wait_lookup_keys(f"k{at}", hashes_of(6)).hits, 6)
            self.client.finish(f"k{at}")

    def test_a_wait_refuses_in_its_own_name(self):
        with self.assertRaisesRegex(kvscout.ArgumentError, r"wait_lookup_keys\(\): hashes has 0 keys"):
            self.client.wait_lookup_keys("k", [])

    def test_wrong_arguments_are_told(self):
        some = hashes_of(2)
        for error, text, args in (
            (TypeError, r"lookup_keys\(\) needs the argument hashes|missing|hashes", ("k",)),
            (TypeError, r"id must be a str", (5, some)),
            (kvscout.ArgumentError, r"id must be 1 to 255 bytes", ("", some)),
            (kvscout.ArgumentError, r"hashes has 0 keys: must be 1 to 16384", ("k", [])),
            (kvscout.ArgumentError, r"hashes has 16385 keys: must be 1 to 16384", ("k", bytes(16385 * 32))),
            (kvscout.ArgumentError, r"groups has 1 numbers, and hashes has 2 keys", ("k", some, [0])),
            (kvscout.ArgumentError, r"groups must be numbers of groups that the key `group` names", ("k", some, [0, 2])),
            (kvscout.ArgumentError, r"groups must be numbers of groups", ("k", some, [0, -1])),
            (TypeError, r"groups\[1\] must be an int", ("k", some, [0, "x"])),
            (kvscout.ArgumentError, r"tenant must be at most 255 bytes", ("k", some, None, "a\nb")),
        ):
            with self.subTest(args=str(args)[:60]), self.assertRaisesRegex(error, text):
                self.client.lookup_keys(*args)
        self.assertEqual(self.client.stats()["lookups"], 0)
        self.answer("k", some)
        with self.assertRaisesRegex(kvscout.StateError, "live with other keys"):
            self.client.lookup_keys("k", hashes_of(2, 5))
        with self.assertRaises(kvscout.StateError):
            self.client.try_lookup("k", some, 2 * TOKENS + 1)
        with self.assertRaises(TypeError):
            kvscout.Keys()

    def test_a_full_table_is_busy(self):
        client = self.open(max_lookups=1)
        with client.step():
            self.assertIsNone(client.lookup_keys("k1", hashes_of(1)))
            with self.assertRaises(kvscout.BusyError):
                client.lookup_keys("k2", hashes_of(1))
        self.answer("k1", hashes_of(1), client=client)
        client.finish("k1")
        self.answer("k2", hashes_of(1), client=client)


class Lengths(Case):
    def test_several_lengths_are_told(self):
        self.store()
        hit = self.client.wait_lookup("r", hashes_of(6), 6 * TOKENS + 1, want_lengths=4)
        self.assertEqual(hit.tokens, 6 * TOKENS)
        self.assertEqual(self.client.lookup_lengths("r"), [6 * TOKENS, 3 * TOKENS])
        self.client.admit("r", 0, 3 * TOKENS)
        hit = self.client.wait_lookup("r2", hashes_of(6), 6 * TOKENS + 1)
        self.assertEqual(self.client.lookup_lengths("r2"), [6 * TOKENS])
        with self.assertRaisesRegex(kvscout.KVScoutError, "no such length"):
            self.client.admit("r2", 0, 3 * TOKENS)

    def test_hashes_may_begin_behind_what_the_engine_has(self):
        self.store()
        behind = hashes_of(6)[2:]
        hit = self.client.wait_lookup("r", behind, 6 * TOKENS + 1, 2 * TOKENS, from_token=2 * TOKENS)
        self.assertEqual(hit.tokens, 6 * TOKENS)
        for from_token in (2 * TOKENS + 1, 3 * TOKENS):
            with self.subTest(from_token=from_token), self.assertRaisesRegex(kvscout.ArgumentError, "from_token"):
                self.client.try_lookup("r2", behind, 6 * TOKENS + 1, 2 * TOKENS, from_token=from_token)
        with self.assertRaisesRegex(kvscout.ArgumentError, "want_lengths"):
            self.client.try_lookup("r2", hashes_of(6), 6 * TOKENS + 1, want_lengths=65)


class Sleep(Case):
    def test_pages_are_taken_back_and_others_registered(self):
        self.store()
        self.worker.unregister()
        self.worker.unregister()
        with self.assertRaises(kvscout.StateError):
            self.worker.retrieve(5, 0, TOKENS, {0: [1]})
        self.memory[0].extend(b"x")  # the buffers are the caller's again
        self.memory = [bytearray(BLOCKS * BLOCK_BYTES) for _ in range(2)]
        self.register()
        answer = self.answer("k", hashes_of(2))
        self.assertEqual(answer.hits, 2)  # what is cached stays cached
        self.assertTrue(wait_done(self.worker, self.worker.retrieve(answer.ticket, 0, 2 * TOKENS, {0: [3, 4]})).ok)
        self.assertEqual([self.block(0, 3), self.block(0, 4)], [bytes_of(0, 0), bytes_of(0, 1)])

    def test_jobs_end_with_it(self):
        jobs = [self.worker.store(0, hashes_of(6, 50 + at), {0: list(range(6)), 1: [-1] * 6}) for at in range(20)]
        self.worker.unregister()
        ended = rig.wait_for(self.worker.poll, what="the jobs")
        while len(ended) < len(jobs):
            ended += rig.wait_for(self.worker.poll, what="the jobs")
        self.assertEqual({done.job for done in ended}, set(jobs))
        self.assertLessEqual({done.error and done.error.name for done in ended}, {None, "SCOUT_ERR_CANCELED"})

    def test_a_closed_worker_tells(self):
        self.worker.close()
        with self.assertRaisesRegex(kvscout.ClosedError, r"unregister\(\): the object was closed"):
            self.worker.unregister()


if __name__ == "__main__":
    unittest.main()
