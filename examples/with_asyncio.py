# SPDX-License-Identifier: Apache-2.0
"""An engine on asyncio: client and worker are two more descriptors of the event loop, and a request is a coroutine.

Eight requests run at once, each in two turns: a prompt of one chunk, then the same with a second chunk behind it. A turn loads the chunks
that are cached; it computes the others and stores them. The second run loads all of them. The package comes with the wheel, or from
build/python of the source tree:

    pip install build-wheel/dist/*.whl
    python3 examples/with_asyncio.py && python3 examples/with_asyncio.py
"""
import asyncio
import hashlib

import kvscout

CHUNK = 64  # tokens; here a block of the engine is as long
REQUESTS, TURNS, BYTES = 8, 2, 4096


class Engine:
    """To be made inside the event loop."""

    def __init__(self):
        self.pages = memoryview(bytearray(REQUESTS * TURNS * BYTES))
        self.client = kvscout.Client(namespace="asyncio", chunk_tokens=CHUNK)
        self.worker = kvscout.Worker(namespace="asyncio", chunk_tokens=CHUNK)
        self.client.wait_ready(10000)
        self.worker.register([self.pages], CHUNK, n_blocks=REQUESTS * TURNS, timeout_ms=10000)
        self.loop = asyncio.get_running_loop()
        self.asked, self.jobs = {}, {}  # futures by request and by job
        self.loop.add_reader(self.client, self.answers_landed)
        self.loop.add_reader(self.worker, self.jobs_ended)

    def answers_landed(self):
        self.client.fd_clear()  # before the answers are read, so that no later one is missed
        for id in list(self.asked):
            if (hit := self.client.poll(id)) is not None:
                self.asked.pop(id).set_result(hit)

    def jobs_ended(self):
        for done in self.worker.poll():
            self.jobs.pop(done.job).set_result(done)

    async def request(self, number):
        """One request: whether all of its KV was loaded."""
        table = list(range(number * TURNS, (number + 1) * TURNS))  # its pages, from token 0 on
        return all([await self.turn(f"request {number}", table, chunks) for chunks in range(1, TURNS + 1)])

    async def turn(self, name, table, chunks):
        id = f"{name}, turn {chunks}"
        hashes = [hashlib.sha256(f"{name} {chunk}".encode()).digest() for chunk in range(chunks)]  # an engine's own kind of hash will do
        hit = self.client.try_lookup(id, hashes, chunks * CHUNK + 1)
        if hit is None:
            hit = await self.asked.setdefault(id, self.loop.create_future())
        self.client.admit(id)
        if hit.tokens > 0:
            await self.end_of(self.worker.retrieve(hit.ticket, 0, hit.tokens, table))
        if hit.chunks < chunks:
            for page in table[hit.chunks:chunks]:
                self.pages[page * BYTES:(page + 1) * BYTES] = self.kv(page)  # the model computes
            # The chunks from hit.tokens on, in the middle of the prompt; ids_from: the table begins with the prompt.
            await self.end_of(self.worker.store(hit.ticket, hashes[hit.chunks:], table, first_token=hit.tokens, ids_from=0))
        for page in table[:chunks]:
            assert self.pages[page * BYTES:(page + 1) * BYTES] == self.kv(page), "wrong bytes"
        self.client.finish(id)
        return hit.chunks == chunks

    async def end_of(self, job):
        done = await self.jobs.setdefault(job, self.loop.create_future())
        if not done.ok:
            raise done.error

    @staticmethod
    def kv(page):
        return bytes([page + 1]) * BYTES

    def close(self):
        self.loop.remove_reader(self.client)
        self.loop.remove_reader(self.worker)
        self.worker.close()
        self.client.close()


async def main():
    engine = Engine()
    loaded = await asyncio.gather(*(engine.request(page) for page in range(REQUESTS)))
    print(f"{sum(loaded)} of {REQUESTS} requests were loaded, the others stored")
    engine.close()


asyncio.run(main())
