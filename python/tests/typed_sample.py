# SPDX-License-Identifier: Apache-2.0
"""What a user's type checker must accept, and refuse: each refusal is a `type: ignore`, and one that is not needed is an error."""

import array
import selectors

from typing import Unpack

import kvscout
from kvscout import aio
from kvscout.config import ClientConfig


def schedule(client: kvscout.Client, id: str, hashes: list[bytes], prompt: int, on_gpu: int) -> int:
    with client.step() as same:
        hit = same.try_lookup(id, hashes, prompt, on_gpu, tenant="t", expect_tokens=5, stride=16, timeout_ms=50)
    if hit is None and client.step_wait(200):
        hit = client.poll(id, on_gpu)
    if hit is None:
        return client.wait_lookup(id, b"".join(hashes), prompt).tokens
    keys = client.lookup_keys(f"{id} keys", hashes, groups=[0] * len(hashes), timeout_ms=50)
    states: bytes = client.wait_lookup_keys(f"{id} waited", hashes, timeout_ms=50).states
    if keys is not None and keys.states[0] == kvscout.KEY_HIT:
        client.finish(f"{id} keys")
    client.admit(id, on_gpu, hit.tokens)
    client.admit(id, to_token=None)
    client.finish(id)
    if hit.error:
        raise kvscout.error_of(hit.error)
    return hit.tokens + client.stats()["hits"] + client.clear() + len(hit.reason)


def wrong(client: kvscout.Client) -> None:
    client.try_lookup(5, [], 5)  # type: ignore[arg-type]
    client.try_lookup("r", [5], 5)  # type: ignore[list-item]
    client.poll("r").tokens  # type: ignore[union-attr]
    client.finish()  # type: ignore[call-arg]
    kvscout.Client(chunk_token=256)  # type: ignore[call-arg]
    kvscout.Client(lookup_mode="blocking")  # type: ignore[arg-type]
    kvscout.Worker(kv_rank=0.5)  # type: ignore[arg-type]
    kvscout.Server(endpoint="auto")  # type: ignore[call-arg]
    kvscout.ensure_server(l1_bytes=[5])  # type: ignore[arg-type]


def hands_on(**keys: Unpack[ClientConfig]) -> kvscout.Client:
    more: ClientConfig = {"chunk_tokens": "1Ki", "endpoint": ("ipc:///run/a",)}
    return kvscout.Client(**keys) if keys else kvscout.Client(**more)


def stores_the_rest(worker: kvscout.Worker, hit: kvscout.Hit, hashes: list[bytes], table: list[int]) -> int:
    worker.clear(kvscout.GENERATION_NEWEST)
    return worker.store(hit.ticket, hashes[hit.chunks:], table, first_token=hit.tokens, ids_from=0)


async def waits(client: kvscout.Client, worker: kvscout.Worker) -> int:
    hit = await aio.lookup(client, "r", [bytes(32)], 300)
    async for done in aio.ends(worker):
        if done.missing.get(0):
            return len(done.missing[0])
    return hit.tokens + (await aio.lookup_keys(client, "k", [bytes(32)])).hits


def main() -> list[bytes]:
    with kvscout.Client(endpoint=["ipc:///run/a", "ipc:///run/b"], chunk_tokens=256, cpus=None) as client:
        selectors.DefaultSelector().register(client, selectors.EVENT_READ)
        schedule(client, "r", [bytes(32)], 300, 0)
    try:
        client.poll("r")
    except kvscout.ClosedError as error:
        print(error.code + 1, error.name.lower(), error.retriable)
    return kvscout.hash_blocks(array.array("I", [1, 2]), 2, lora=("a", "/a"), mm=[("image", 0, 2)]) + kvscout.hash_blocks([1], 1)
