# SPDX-License-Identifier: Apache-2.0
"""An engine on asyncio: client and worker are two more descriptors of the event loop, and a request is a coroutine.

Eight requests ask at once; each then loads its chunk, or computes and stores it. The second run loads all of them. The package comes with
the wheel, or from build/python of the source tree:

    pip install build-wheel/dist/*.whl
    python3 examples/with_asyncio.py && python3 examples/with_asyncio.py
"""
import asyncio
import hashlib

import kvscout

CHUNK = 64  # tokens; here a block of the engine is as long
REQUESTS, BYTES = 8, 4096


class Engine:
    """To be made inside the event loop."""

    def __init__(self):
        self.pages = memoryview(bytearray(REQUESTS * BYTES))
        self.client = kvscout.Client(namespace="asyncio", chunk_tokens=CHUNK)
        self.worker = kvscout.Worker(namespace="asyncio", chunk_tokens=CHUNK)
        self.client.wait_ready(10000)
        self.worker.register([self.pages], CHUNK, n_blocks=REQUESTS, timeout_ms=10000)
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

    async def request(self, page):
        """One request: whether its KV was loaded."""
        id = f"request {page}"
        hashes = [hashlib.sha256(id.encode()).digest()]  # an engine's own kind of hash will do
        kv = bytes([page + 1]) * BYTES
        hit = self.client.try_lookup(id, hashes, CHUNK + 1)
        if hit is None:
            hit = await self.asked.setdefault(id, self.loop.create_future())
        self.client.admit(id)
        if hit.tokens > 0:
            job = self.worker.retrieve(hit.ticket, 0, hit.tokens, [page])
        else:
            self.pages[page * BYTES:(page + 1) * BYTES] = kv  # the model computes
            job = self.worker.store(hit.ticket, hashes, [page])
        done = await self.jobs.setdefault(job, self.loop.create_future())
        if not done.ok:
            raise done.error
        assert self.pages[page * BYTES:(page + 1) * BYTES] == kv, "wrong bytes"
        self.client.finish(id)
        return hit.tokens > 0

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
