# SPDX-License-Identifier: Apache-2.0
"""kvscout.aio: lookups that are awaited, and the ends of jobs in `async for`."""

import asyncio
import threading
import unittest

import kvscout
from kvscout import aio
from pages import BLOCK_TOKENS, CHUNK_TOKENS, Pages, hashes_of
from rig import LIMIT_S, ServerProcess


class Aio(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = ServerProcess()
        self.addCleanup(self.server.stop)
        keys = {"endpoint": self.server.endpoint, "chunk_tokens": CHUNK_TOKENS}
        self.client = kvscout.Client(**keys, lookup_timeout_ms=60000)
        self.addCleanup(self.client.close)
        self.worker = kvscout.Worker(**keys)
        self.addCleanup(self.worker.close)
        self.client.wait_ready(60000)
        self.pages = Pages()
        self.assertTrue(self.pages.register(self.worker))

    async def store(self, *prompts):
        jobs = {self.worker.store(0, hashes_of(prompt, 1), range(4)) for prompt in prompts}
        async with asyncio.timeout(LIMIT_S):
            async for done in aio.ends(self.worker):
                self.assertTrue(done.ok)
                jobs.remove(done.job)
                if not jobs:
                    return

    async def lookup(self, prompt, name=None):
        hit = await asyncio.wait_for(aio.lookup(self.client, name or prompt, hashes_of(prompt, 1), CHUNK_TOKENS + 1), LIMIT_S)
        self.client.finish(name or prompt)
        return hit.chunks

    async def test_a_store_ends_and_many_lookups_at_once_are_answered(self):
        await self.store("a", "b")
        names = [("a", f"r{i}") if i % 3 else ("none", f"r{i}") for i in range(300)]
        found = await asyncio.gather(*(self.lookup(prompt, name) for prompt, name in names))
        self.assertEqual(found, [int(prompt == "a") for prompt, _ in names])
        self.assertEqual(aio._Bell._all, {})

    async def test_what_waits_for_a_server_that_stands_still_leaves_the_loop_to_others(self):
        await self.store("a")
        self.server.freeze()
        asked = asyncio.ensure_future(self.lookup("a"))
        turns = 0
        while turns < 10:
            await asyncio.sleep(0)
            turns += 1
        self.assertFalse(asked.done())
        self.server.thaw()
        self.assertIn(await asked, (0, 1))  # 0: the machine was slow, and the server counted as gone

    async def test_keys(self):
        await self.store("a")
        keys = await asyncio.wait_for(aio.lookup_keys(self.client, "k", hashes_of("a", 1) + hashes_of("b", 1)), LIMIT_S)
        self.assertEqual(list(keys.states), [kvscout.KEY_HIT, kvscout.KEY_MISS])
        self.client.finish("k")

    async def test_a_cancelled_wait_leaves_the_lookup_open_and_no_reader(self):
        self.server.freeze()  # no answer comes before the cancel
        self.addCleanup(self.server.thaw)
        asked = asyncio.ensure_future(aio.lookup(self.client, "r", hashes_of("x", 1), CHUNK_TOKENS + 1))
        await asyncio.sleep(0)
        asked.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await asked
        self.assertEqual(aio._Bell._all, {})
        self.assertEqual(self.client.stats()["live"], 1)
        self.client.finish("r")

    async def test_close_ends_the_iteration_and_a_waiting_lookup(self):
        self.server.freeze()
        self.addCleanup(self.server.thaw)
        asked = asyncio.ensure_future(aio.lookup(self.client, "r", hashes_of("x", 1), CHUNK_TOKENS + 1))
        iterated = asyncio.ensure_future(self.all_ends())
        await asyncio.sleep(0)
        for one in (self.client, self.worker):
            threading.Thread(target=one.close).start()
        self.assertEqual(await asyncio.wait_for(iterated, LIMIT_S), [])
        try:
            self.assertEqual((await asyncio.wait_for(asked, LIMIT_S)).tokens, 0)
        except kvscout.ClosedError:
            pass

    async def all_ends(self):
        return [done async for done in aio.ends(self.worker)]

    async def test_a_failed_job_is_an_end_like_others(self):
        job = self.worker.retrieve(77, 0, CHUNK_TOKENS, range(CHUNK_TOKENS // BLOCK_TOKENS))
        async for done in aio.ends(self.worker):
            self.assertEqual((done.job, done.ok), (job, False))
            break


if __name__ == "__main__":
    unittest.main()
