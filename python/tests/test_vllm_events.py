# SPDX-License-Identifier: Apache-2.0
"""KV events of kvscout.vllm: descriptions, and with a real server that what is announced equals what lookups find."""

import collections
import hashlib
import os
import queue
import random
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import descriptions, events, feed, groups, internals
from pages import BLOCK_TOKENS, BLOCKS, CHUNK_TOKENS, Pages, done_by_a_server, hashes_of, hit_of_a_server, wait_done
from rig import ServerProcess, wait_for
from vllm_rig import Engine, NO_STEP, request

CHUNK = 16 * BLOCKS * 1280  # bytes; twelve of them fill 1 MiB


class Stored(types.SimpleNamespace):
    pass


class Removed(types.SimpleNamespace):
    pass


def of_vllm():
    """What events.py takes from vLLM, where there is none: names of blocks, and classes that hold fields."""
    return types.SimpleNamespace(
        hash=lambda own: int.from_bytes(own, "big") & (1 << 64) - 1, stored=Stored, removed=Removed, about={"kv_cache_spec_kind": "full_attention"},
        untag=list,
        extra_keys=lambda request, begin, end, image: ((request.cache_salt,) if request.cache_salt and not begin else None, image),
    )


class Router:
    """An index by medium, as routers keep one; one that counts how often a block was stored, as llm-d's does; and one by another rule of
    llm-d: what follows a block that it does not know is dropped for good."""

    def __init__(self):
        self.blocks = {"CPU": {}, "STORAGE": {}}
        self.counts = {"CPU": collections.Counter(), "STORAGE": collections.Counter()}
        self.kept = set()
        self.n = self.removed = 0

    def take(self, found):
        for event in found:
            self.n += 1
            blocks = self.blocks[event.medium]
            if not isinstance(event, Stored):
                self.kept.difference_update(event.block_hashes)
            elif event.parent_block_hash is None or event.parent_block_hash in self.kept:
                self.kept.update(event.block_hashes)
            self.counts[event.medium].update(dict.fromkeys(event.block_hashes, 1 if isinstance(event, Stored) else -1))
            for own in event.block_hashes:
                if isinstance(event, Stored):
                    blocks[own] = event
                else:
                    blocks.pop(own, None)
                    self.removed += 1

    def has(self, prompt, medium="CPU"):
        """@prompt's one chunk."""
        names = list(map(of_vllm().hash, prompt.block_hashes))
        if any((own in self.blocks[medium]) != self.counts[medium][own] for own in names):
            raise AssertionError("a block was not stored exactly as often as it was removed, or once more")
        return all(own in self.blocks[medium] for own in names)

    def leads(self, prompt):
        """How many of @prompt's leading chunks an index by llm-d's rule has."""
        if not hasattr(prompt, "names"):
            names = list(map(of_vllm().hash, prompt.block_hashes))
            prompt.names = [names[at : at + BLOCKS] for at in range(0, len(names), BLOCKS)]
        return next((n for n, own in enumerate(prompt.names) if not self.kept.issuperset(own)), len(prompt.names))


def prompt_of(name, chunks=1, salt=None, lora=None, head=None):
    """vLLM's Request of whole chunks, with its tokens and chained hashes of its blocks. @head: those with the same one have the same first
    block."""
    drawn = random.Random(name)
    found = request(str(name), chunks * CHUNK_TOKENS, BLOCK_TOKENS)
    found.cache_salt, found.lora_request, found.mm_features, found.prompt_embeds = salt, lora, [], None
    found.all_token_ids = [drawn.randrange(150_000) for _ in range(chunks * CHUNK_TOKENS)]
    if head is not None:
        found.all_token_ids[:BLOCK_TOKENS] = prompt_of(f"head{head}").all_token_ids[:BLOCK_TOKENS]
    found.block_hashes, before = [], b""
    for begin in range(0, chunks * CHUNK_TOKENS, BLOCK_TOKENS):
        before = hashlib.sha256(before + repr(found.all_token_ids[begin : begin + BLOCK_TOKENS]).encode()).digest()
        found.block_hashes.append(before)
    return found


def keys_of(prompt):
    return prompt.block_hashes[BLOCKS - 1 :: BLOCKS]


class Reader:
    """One engine's announcements, and its router."""

    def __init__(self, test, endpoint, clock=None, limit_bytes=feed.LIMIT_BYTES, **config):
        self.client = kvscout.Client(endpoint=endpoint, chunk_tokens=CHUNK_TOKENS, lookup_timeout_ms=60000, **config)
        test.addCleanup(self.client.close)
        self.client.wait_ready(60000)
        self.events = events.Events(of_vllm(), groups.one(BLOCK_TOKENS, CHUNK_TOKENS), 0, True, kvscout.KVScoutError)
        if clock is not None or limit_bytes != feed.LIMIT_BYTES:
            self.events._book = feed.Book(kvscout.KVScoutError, 0, limit_bytes, clock or (lambda: 0.0), ends=descriptions.ends_of)
        self.router = Router()
        self.kinds = []  # of the feed's events

    def feed(self):
        page = self.client.feed()
        self.kinds += [event[0] for event in page]
        return page

    def stats(self):
        return self.client.stats()

    def step(self):
        self.router.take(self.events.take(self))

    def finds(self, prompt):
        found = hit_of_a_server(self.client, prompt.request_id, keys_of(prompt), len(prompt.all_token_ids) + 1)
        self.client.finish(prompt.request_id)
        return found

    def announced(self, prompts, medium="CPU"):
        return {prompt.request_id for prompt in prompts if self.router.has(prompt, medium)}

    def found(self, prompts):
        return {prompt.request_id for prompt in prompts if self.finds(prompt).chunks}


class Pool(unittest.TestCase):
    """A server of a dozen chunks, and a worker that stores what a prompt has."""

    KEYS = {"l1_bytes": "1Mi", "extent_bytes": "256Ki"}

    def setUp(self):
        self.server = self.start()
        self.worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        self.addCleanup(self.worker.close)
        self.pages = Pages(sizes=(4096, 16384))
        self.pages.register(self.worker)
        self.reader = self.read()

    def start(self):
        server = ServerProcess(**self.KEYS)
        self.addCleanup(server.stop)
        return server

    def read(self, **more):
        return Reader(self, self.server.endpoint, **more)

    def store(self, prompt, says=True, first=0, last=1):
        said = self.reader.events.describe(prompt, first * CHUNK_TOKENS, last * CHUNK_TOKENS, CHUNK_TOKENS) if says else None
        pages = list(range((last - first) * BLOCKS))
        return wait_done(self.worker, self.worker.store(0, keys_of(prompt)[first:last], pages, descriptions=said))

    def settled(self, reader, prompts, what="announcements that equal what lookups find"):
        """@reader's announcements once they equal its lookups."""
        found = reader.found(prompts)

        def same():
            reader.step()
            return reader.announced(prompts) == found

        try:
            wait_for(same, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: announced {sorted(reader.announced(prompts))}, found {sorted(found)}") from None
        return found


class Announced(Pool):
    def test_what_two_engines_announce_equals_what_they_find_whatever_happens(self):
        drawn, prompts = random.Random(7), [prompt_of(n, head=n % 5) for n in range(40)]
        readers = [self.reader, self.read()]
        sizes = set()
        for round_ in range(40):
            event = drawn.choice(["store"] * 8 + ["clear", "restart"])
            if event == "store":
                for prompt in drawn.sample(prompts, drawn.randrange(1, 9)):
                    self.store(prompt)
            elif event == "clear":
                self.worker.clear(readers[round_ % 2].client.clear())
            else:
                self.server.kill()
                self.server.start()
                wait_for(lambda: self.worker.stats()["registered"], what="the server to come back")
            for reader in readers[: drawn.randrange(3)]:  # one that does not look for a while misses nothing
                reader.events._repeat_at = drawn.choice((0.0, time.monotonic() + events.REPEAT_S))
                sizes.add(len(self.settled(reader, prompts)))
        found = [self.settled(reader, prompts) for reader in readers]
        self.assertGreater(len(sizes), 4, "too few different states were compared")
        self.assertIn(0, sizes)
        self.assertTrue(found)

    def test_an_event_has_what_a_router_needs(self):
        lora = types.SimpleNamespace(lora_int_id=3, lora_name="poet")
        prompt = prompt_of("two chunks", 2, salt="pepper", lora=lora)
        said = self.reader.events.describe(prompt, 0, 2 * CHUNK_TOKENS, CHUNK_TOKENS)
        wait_done(self.worker, self.worker.store(0, keys_of(prompt), list(range(2 * BLOCKS)), descriptions=said))
        other = self.read()  # it has stored nothing
        wait_for(lambda: other.step() or other.router.n == 2, what="two events")
        hashes = list(map(of_vllm().hash, prompt.block_hashes))
        first, second = (other.router.blocks["CPU"][hashes[at]] for at in (0, BLOCKS))
        self.assertEqual((first.block_hashes, second.block_hashes), (hashes[:BLOCKS], hashes[BLOCKS:]))
        self.assertEqual((first.parent_block_hash, second.parent_block_hash), (None, hashes[BLOCKS - 1]))
        self.assertEqual(first.token_ids + second.token_ids, prompt.all_token_ids)
        self.assertEqual((first.block_size, first.lora_id, first.lora_name, first.group_idx), (BLOCK_TOKENS, 3, "poet", 0))
        self.assertEqual(first.extra_keys, [("pepper",), None, None, None])
        self.assertEqual(first.kv_cache_spec_kind, "full_attention")

    def test_a_chunk_without_a_description_is_announced_once_a_load_tells_its_tokens(self):
        prompt = prompt_of("mute")
        self.store(prompt, says=False)
        wait_for(lambda: self.reader.step() or len(self.reader.events._book), what="the feed to tell of it")
        self.assertEqual(self.reader.router.n, 0)
        tracked = types.SimpleNamespace(tenant=None, request=prompt)
        self.reader.events.loaded(tracked, 0, CHUNK_TOKENS, keys_of(prompt), CHUNK_TOKENS)
        self.reader.step()
        self.assertTrue(self.reader.router.has(prompt))

    def test_everything_is_announced_again_after_a_reset_of_the_engines_own_cache(self):
        pool = types.SimpleNamespace(cached_block_hash_to_block={})
        self.reader.events.bind(types.SimpleNamespace(block_pool=pool))
        prompts = [prompt_of(n) for n in range(5)]
        for prompt in prompts:
            self.store(prompt)
        self.settled(self.reader, prompts)
        self.reader.router = Router()  # took AllBlocksCleared
        self.reader.step()
        self.assertEqual(self.reader.router.n, 0)
        pool.cached_block_hash_to_block = {}
        self.reader.step()
        self.assertEqual(self.reader.announced(prompts), self.reader.found(prompts))
        self.assertEqual(self.reader.router.n, 5)

    def test_a_router_that_comes_late_is_told_in_turns(self):
        prompts = [prompt_of(n, head=n % 2) for n in range(5)]
        for prompt in prompts:
            self.store(prompt)
        self.settled(self.reader, prompts)
        late, ours = Router(), self.reader.events
        for turn in range(3):
            self.assertFalse(ours.is_due())
            ours._repeat_at = 0.0
            self.assertTrue(ours.is_due())
            with mock.patch.object(events, "REPEATED", 2):
                found = ours.take(self.reader)
            late.take(found)
            self.reader.router.take(found)
            self.assertEqual(late.n, 4 * (turn + 1))
        self.assertEqual([len(router.blocks["CPU"]) for router in (late, self.reader.router)], [17, 17])  # 5 * 4, less 3 heads
        self.worker.clear(self.reader.client.clear())
        self.settled(self.reader, prompts)
        self.assertEqual(self.reader.router.blocks["CPU"], {})

    def test_a_server_that_is_away_for_long_has_nothing_to_offer(self):
        now = [0.0]
        reader = self.read(clock=lambda: now[0] + time.monotonic())
        prompts = [prompt_of(n) for n in range(3)]
        for prompt in prompts:
            self.store(prompt)
        self.assertEqual(len(self.settled(reader, prompts)), 3)
        self.server.freeze()
        wait_for(lambda: reader.step() or reader.events._book.error is not None, what="the client to miss the server")
        self.assertEqual(len(reader.announced(prompts)), 3)
        now[0] = feed.AWAY_S
        wait_for(lambda: reader.step() or not reader.announced(prompts), what="nothing to be announced")
        self.server.thaw()
        wait_for(lambda: reader.step() or len(reader.announced(prompts)) == 3, what="all to be announced again")

    def test_an_engine_with_older_weights_announces_nothing_until_its_own_reset(self):
        prompts = [prompt_of(n) for n in range(3)]
        old, new = (self.read(weights_version=1, namespace="versions") for _ in range(2))
        self.worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS, weights_version=1, namespace="versions")
        self.addCleanup(self.worker.close)
        self.pages.register(self.worker)
        self.store(prompts[0])
        self.assertEqual([len(self.settled(reader, prompts)) for reader in (old, new)], [1, 1])
        new.client.reset(2)
        self.worker.reset(2)
        self.store(prompts[1])
        self.assertEqual(self.settled(new, prompts), {"1"})
        wait_for(lambda: old.step() or old.events._book.error is not None, what="the refusal")
        wait_for(lambda: old.step() or not old.announced(prompts), what="nothing to be announced")
        old.client.reset(2)
        self.assertEqual(self.settled(old, prompts), {"1"})

    def test_with_a_limit_the_oldest_are_given_up_and_the_router_is_told(self):
        prompts = [prompt_of(n) for n in range(8)]
        said = len(self.reader.events.describe(prompts[0], 0, CHUNK_TOKENS, CHUNK_TOKENS)[0])
        reader = self.read(limit_bytes=5 * (said + feed.ENTRY_BYTES))
        for prompt in prompts:
            self.store(prompt)
            wait_for(lambda prompt=prompt: reader.step() or reader.router.has(prompt), what="the new one")
        self.assertEqual(reader.announced(prompts), {"3", "4", "5", "6", "7"})

    def test_what_waited_for_a_block_that_never_came_leaves_nothing(self):
        book = feed.Book(kvscout.KVScoutError, limit_bytes=2 * (feed.ENTRY_BYTES + 1), ends=lambda said: (said, b"before " + said))
        for key in range(9):
            book._stored(("", key), feed.L1, b"%d" % key)
            self.assertEqual(book.changes(), ([], []))
        self.assertEqual(list(book._held), [b"before 7", b"before 8"])

    def test_an_engine_that_never_loads_announces_nothing_and_asks_nothing(self):
        self.reader.events._may_read = False
        prompt = prompt_of("alone")
        self.store(prompt)
        self.settled(self.read(), [prompt])
        self.reader.step()
        self.assertEqual((self.reader.router.n, self.reader.client.feed()), (0, []))


class Overflow(Pool):
    KEYS = {"l1_bytes": "128Mi", "extent_bytes": "8Mi", "feed_bytes": "16Ki"}

    def test_a_reader_that_lost_events_starts_over(self):
        prompts = [prompt_of(n) for n in range(60)]
        for prompt in prompts[:20]:
            self.store(prompt)
        self.assertEqual(len(self.settled(self.reader, prompts)), 20)
        other = self.read()  # keeps the feed going while the reader is away
        for round_ in range(4):
            self.worker.clear(other.client.clear())
            for prompt in prompts[10 + 10 * round_ :][:20]:
                self.store(prompt)
                other.step()
        self.reader.kinds.clear()
        found = {str(n) for n in range(40, 60)}
        wait_for(lambda: self.reader.step() or self.reader.announced(prompts) == found, what="the last twenty")
        self.assertIn(feed.START_OVER, self.reader.kinds)


    @mock.patch.object(feed, "MAX_CHANGES", 10_000)
    def test_a_feed_that_starts_over_removes_nothing_that_is_still_there(self):
        prompts = [prompt_of(n) for n in range(20)]
        self.store_others(0, 50)  # the feed tells of these first, on a page of their own
        for prompt in prompts:
            self.store(prompt)
        self.assertEqual(len(self.settled(self.reader, prompts)), 20)
        self.reader.kinds.clear()
        self.store_others(50, 75)
        last = ("", hashes_of(74, 16)[-1])
        wait_for(lambda: self.reader.step() or last in self.reader.events._book._live, what="the last one")
        wait_for(lambda: self.reader.step() or feed.CAUGHT_UP in self.reader.kinds, what="the end of starting over")
        self.assertIn(feed.START_OVER, self.reader.kinds)
        self.assertEqual((len(self.reader.announced(prompts)), self.reader.router.removed), (20, 0))


    def store_others(self, first, last):
        """16 chunks each, without descriptions."""
        for n in range(first, last):
            wait_done(self.worker, self.worker.store(0, hashes_of(n, 16), list(range(64))))


class Ordered(Pool):
    KEYS = {"l1_bytes": "21Mi", "extent_bytes": "1Mi", "feed_bytes": "192Ki"}  # 268 chunks, and some 150 events

    def check(self, reader, prompts):
        there = [reader.finds(prompt).chunks for prompt in prompts]
        wait_for(lambda: reader.step() or [reader.router.leads(prompt) for prompt in prompts] == there, what=f"an index of {sum(there)}")
        return sum(there)

    def test_an_index_that_drops_what_follows_an_unknown_block_has_everything_whatever_happens(self):
        drawn, chains = random.Random(9), [prompt_of(n, 16) for n in range(16)]  # 256 chunks
        others = [prompt_of(f"other {n}", 16) for n in range(16)]
        pool = types.SimpleNamespace(cached_block_hash_to_block={})
        self.reader.events.bind(types.SimpleNamespace(block_pool=pool))
        for round_ in range(8):
            for prompt in drawn.sample(others + chains, 6):
                middle = drawn.randrange(1, 16)
                for part in drawn.sample([(0, middle), (middle, 16)], 2):  # what comes first is not always stored first
                    self.store(prompt, True, *part)
                if drawn.randrange(2):
                    self.reader.step()
            if round_ % 4 == 0:
                self.server.kill()
                self.server.start()
                wait_for(lambda: self.worker.stats()["registered"], what="the server to come back")
            elif round_ % 4 == 1:
                self.reader.router = Router()  # vLLM's own reset
                pool.cached_block_hash_to_block = {}
            elif round_ % 4 == 2:
                self.worker.clear(self.reader.client.clear())
            self.check(self.reader, chains + others)
            self.check(self.read(), chains + others)
        self.worker.clear(self.reader.client.clear())
        for prompt in drawn.sample(chains, len(chains)):
            for first in (8, 0):
                self.store(prompt, True, first, first + 8)
        self.assertEqual([self.check(reader, chains) for reader in (self.reader, self.read())], [256, 256])
        self.assertGreater(self.reader.kinds.count(feed.START_OVER), 3)


class Below(Pool):
    """With files below the pool."""

    def start(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-events-")
        self.addCleanup(folder.cleanup)
        server = ServerProcess(**self.KEYS, l2=f"fs://{os.path.join(folder.name, 'l2')}")
        self.addCleanup(server.stop)
        return server

    def test_what_only_l2_has_is_storage_and_what_comes_back_is_announced_in_memory(self):
        prompts = [prompt_of(n) for n in range(30)]
        wait_for(lambda: self.reader.step() or feed.START_OVER in self.reader.kinds, what="the feed's begin: of L2 it tells what is new")
        for prompt in prompts:
            self.store(prompt)
            wait_for(lambda: not self.server.counter("l2.writes.waiting"), what="the write")
            self.reader.step()
        everything = {prompt.request_id for prompt in prompts}

        def complete():
            self.reader.step()
            memory, storage = (self.reader.announced(prompts, medium) for medium in ("CPU", "STORAGE"))
            return memory | storage == everything and not memory & storage and storage

        storage = wait_for(complete, what="each chunk on one medium")
        self.assertEqual(self.reader.found(prompts), everything)
        gone = next(prompt for prompt in prompts if prompt.request_id in storage)
        # Another engine loads one: the server brings it back to memory, without its description.
        asker = self.read()
        hit = hit_of_a_server(asker.client, "load", keys_of(gone), CHUNK_TOKENS + 1)
        wait_done(self.worker, self.worker.retrieve(hit.ticket, 0, CHUNK_TOKENS, list(range(BLOCKS))))
        wait_for(lambda: self.reader.step() or self.reader.router.has(gone), what="it in memory")
        self.assertFalse(self.reader.router.has(gone, "STORAGE"))


class InTheScheduler(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def engine(self, own):
        return Engine(self, self.server.endpoint, 0, BLOCK_TOKENS, events=own)

    def own(self, may_read=True):
        return events.Events(of_vllm(), groups.one(BLOCK_TOKENS, CHUNK_TOKENS), 0, may_read, kvscout.KVScoutError)

    def store(self, engine, prompt):
        engine.blocks[prompt.request_id] = (list(range(BLOCKS)),)
        engine.scheduler.on_new_request(prompt)
        wait_for(lambda: engine.scheduler.matched_tokens(prompt, 0) is not None, what="an answer")
        engine.scheduler.allocated(prompt, (list(range(BLOCKS)),), 0)
        step = types.SimpleNamespace(num_scheduled_tokens={prompt.request_id: CHUNK_TOKENS}, preempted_req_ids=set(), kv_connector_block_state=None)
        meta = engine.scheduler.build_meta(step)
        engine.worker.begin_step(meta)
        engine.worker.start_loads(meta)
        engine.worker.wait_for_save(meta)
        return meta.stores

    def test_a_store_of_one_engine_is_announced_by_both(self):
        engines, router = [self.engine(self.own()), self.engine(self.own())], Router()
        prompt = prompt_of("p", 1)
        (store,) = self.store(engines[0], prompt)
        self.assertEqual([len(said) > 0 for said in store.descriptions], [True])
        for engine in engines:
            router = Router()
            wait_for(
                lambda engine=engine, router=router: engine.worker.finished(set())
                and (engine.scheduler.build_meta(NO_STEP), router.take(engine.scheduler.take_events()))
                and router.has(prompt),
                what="its announcement",
            )

    def test_with_new_weights_what_was_announced_for_the_old_ones_is_removed(self):
        engine, router, prompt = self.engine(self.own()), Router(), prompt_of("p", 1)
        self.store(engine, prompt)

        def has():
            engine.worker.finished(set())
            engine.answer()
            router.take(engine.scheduler.take_events())
            return router.has(prompt)

        wait_for(has, what="its announcement")
        engine.scheduler.workers_called("reload_weights")
        engine.content = "W2"
        wait_for(lambda: not has(), what="its removal")

    def test_an_idle_engine_is_woken_once_for_each_batch(self):
        """By a thread as vLLM's loop has one, which takes steps while one is wanted."""
        loop, steps, router, shift = queue.SimpleQueue(), [], Router(), [0.0]
        server = ServerProcess(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(server.stop)
        self.server = server
        own, prompts = self.own(), [prompt_of(n) for n in range(3)]
        own._book._clock = lambda: time.monotonic() + shift[0]
        engine, other = self.engine(own), self.engine(self.own())

        def run():
            while loop.get():
                while engine.scheduler.wants_step():
                    with engine.scheduler.faults.lock:
                        engine.scheduler.build_meta(NO_STEP)
                        router.take(engine.scheduler.take_events())
                    steps.append(router.n)

        def store(prompt):
            keys, said = keys_of(prompt), own.describe(prompt, 0, CHUNK_TOKENS, CHUNK_TOKENS)
            done_by_a_server(other.copier, lambda: wait_done(other.copier, other.copier.store(0, keys, list(range(BLOCKS)), descriptions=said)))

        with mock.patch.object(events, "LOOK_S", 0.02), mock.patch.object(internals, "waker", return_value=lambda: loop.put(True)):
            engine.scheduler.watch_idle()
            thread = threading.Thread(target=run)
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(loop.put, False)
            self.addCleanup(own.close)
            for prompt in prompts[:2]:
                store(prompt)
                wait_for(lambda prompt=prompt: router.has(prompt), what="an announcement of what another engine stored")
            server.kill()
            wait_for(lambda: own._book.error is not None, what="the client to miss the server")
            self.assertEqual(router.n, 2)
            shift[0] = feed.AWAY_S
            wait_for(lambda: not router.blocks["CPU"], what="what the dead server had to be taken back")
            server.start()
            store(prompts[2])
            wait_for(lambda: router.has(prompts[2]), what="the next server's chunk")
        self.assertEqual(router.blocks["CPU"].keys(), set(map(of_vllm().hash, prompts[2].block_hashes)))
        self.assertLessEqual(len(steps), 6)
        self.assertFalse(engine.scheduler.wants_step())

    def test_of_vllm_only_a_core_with_a_loop_can_be_woken(self):
        engine = types.ModuleType("vllm.v1.engine")
        engine.EngineCoreRequestType = types.SimpleNamespace(WAKEUP="wakeup")

        class Core:
            def __init__(self, **has):
                self.__dict__.update(has)
                self.wake = internals.waker()

        names = ("vllm", "vllm.v1")
        with mock.patch.dict(sys.modules, {**{name: types.ModuleType(name) for name in names}, "vllm.v1.engine": engine}):
            core, in_process = Core(input_queue=queue.Queue()), Core()
            del engine.EngineCoreRequestType
            self.assertEqual((in_process.wake, Core(input_queue=queue.Queue()).wake), (None, None))
        core.wake()
        self.assertEqual(core.input_queue.get_nowait(), ("wakeup", None))

    def test_without_events_stores_say_nothing_and_steps_ask_nothing(self):
        engine = self.engine(None)
        (store,) = self.store(engine, prompt_of("p", 1))
        self.assertIsNone(store.descriptions)
        self.assertEqual(engine.scheduler.take_events(), ())
        for config in (None, types.SimpleNamespace(enable_kv_cache_events=False)):
            self.assertIsNone(events.of_engine(types.SimpleNamespace(kv_events_config=config), None, None, True, None))


class Descriptions(unittest.TestCase):
    def of(self, drawn, blocks, block_tokens, hash_bytes=8, parent=True, vocabulary=1 << 18):
        return descriptions.Description(
            [drawn.randbytes(hash_bytes) for _ in range(blocks)], drawn.randbytes(hash_bytes) if parent else None,
            [drawn.randrange(vocabulary) for _ in range(blocks * block_tokens)], block_tokens,
        )

    def test_what_is_written_is_read(self):
        drawn = random.Random(3)
        for vocabulary in (2, 256, 257, 65536, 65537, 1 << 24, (1 << 24) + 1, 1 << 32):
            for hash_bytes, parent in ((8, True), (16, False), (32, True)):
                what = self.of(drawn, 4, 16, hash_bytes, parent, vocabulary)
                self.assertEqual(descriptions.decode(descriptions.encode(what)), what)
        what = self.of(drawn, 2, 16)
        what.lora_id, what.lora_name, what.extra_keys = 0, "größe", [("a", ("image", 3), b"\xff"), None]
        said = descriptions.encode(what)
        self.assertEqual(descriptions.decode(said), what)
        self.assertEqual(descriptions.hashes_of(said), what.hashes)

    def test_chunks_of_1024_tokens_fit_and_what_does_not_loses_its_tokens_first(self):
        drawn = random.Random(4)
        self.assertEqual(len(descriptions.decode(descriptions.encode(self.of(drawn, 64, 16))).tokens), 1024)
        large = self.of(drawn, 128, 16)
        said = descriptions.decode(descriptions.encode(large))
        self.assertEqual((said.hashes, said.parent, said.tokens), (large.hashes, large.parent, []))
        self.assertEqual(descriptions.encode(self.of(drawn, 600, 16)), b"")
        largest = self.of(drawn, 1, 1)  # chunk_tokens=1048576 in blocks of 16, or of one token
        for blocks in (1 << 16, 1 << 20):
            largest.hashes = largest.hashes[:1] * blocks
            self.assertEqual(descriptions.encode(largest), b"")
        what = self.of(drawn, 1, 16)
        what.lora_name = "a" * 65536
        self.assertEqual(descriptions.encode(what), b"")

    def test_no_bytes_of_another_engine_raise(self):
        drawn = random.Random(5)
        what = self.of(drawn, 4, 16)
        what.extra_keys = [None, ("(" * 50,), None, None]
        good = descriptions.encode(what)
        self.assertIsNone(descriptions.decode(b"\2" + good[1:]))
        self.assertEqual(descriptions.hashes_of(b"\2" + good[1:]), [])
        for _ in range(3000):
            bad = bytearray(good[: drawn.randrange(len(good) + 1)])
            for _ in range(drawn.randrange(4)):
                if bad:
                    bad[drawn.randrange(len(bad))] = drawn.randrange(256)
            descriptions.decode(bytes(bad))
            descriptions.hashes_of(bytes(bad))


if __name__ == "__main__":
    unittest.main()
