# SPDX-License-Identifier: Apache-2.0
"""Cases that compare KV byte for byte, for models whose answers this build of vLLM does not repeat.

With its kernels for MLA on a CPU an engine without a connector gives other answers behind its own cached prefix than
without one (docs/vllm-tested.md). What a connector has to do can be shown all the same: the pages of a loaded prefix hold the
bytes that were there when it was stored.
"""

import hashlib

import prompts
from checks import need

CHUNK = 128
WIPED = 0x5A
LENGTHS = (129, 300, 513, 700, 1100, 2050)  # no whole number of chunks: all whole ones are loaded


def loaded_pages_hold_the_stored_bytes(context, engine):
    """Prompts one by one. Before the second time all pages of all ranks are overwritten, and the engine's own prefix
    cache is emptied: what is in the loaded pages then came from the server."""
    asked = [prompts.tokens(f"bytes/{n}", n) for n in LENGTHS]
    stored = [_pages(engine, prompt) for prompt in asked]
    compared = tokens = 0
    for prompt, before in zip(asked, stored):
        need(engine.forget(), "the engine's own cache could not be emptied")
        need(all(engine.on_workers(wipe)), "the workers' pages could not be overwritten")
        loaded = engine.side.counts["load_tokens"]
        after = _pages(engine, prompt)
        loaded = engine.side.counts["load_tokens"] - loaded
        whole = len(prompt) // CHUNK * CHUNK
        need(loaded == whole, f"of {len(prompt)} tokens {loaded} were loaded, not {whole}")
        for rank, (old, new) in enumerate(zip(before, after)):
            wrong = [chunk for chunk, pair in enumerate(zip(old, new)) if pair[0] != pair[1]]
            need(not wrong, f"rank {rank}: of {len(old)} chunks of {len(prompt)} tokens these differ: {wrong}")
            compared += len(old)
        tokens += loaded
    every = [digest for ranks in stored for digest in ranks[0]]
    need(len(set(every)) == len(every), "two chunks of different prompts hold the same bytes: this could not fail")
    return f"{tokens} tokens loaded, {compared} chunks compared in {len(stored[0])} ranks"


def _pages(engine, prompt):
    """By rank: a digest of each whole chunk of @prompt, when all of it is in the engine's pages."""
    engine.add(prompt, 3)
    while not any(request.num_computed_tokens >= len(prompt) for request in engine.scheduler.running):
        need(not engine.step(), "the request ended before its first token was seen")
    (blocks,) = engine.blocks_of_running()
    size = CHUNK // engine.block_tokens
    chunks = [blocks[at * size : (at + 1) * size] for at in range(len(prompt) // CHUNK)]
    found = engine.on_workers(digests, chunks)
    while engine.busy:
        engine.step()
    engine.drain()
    return found


def digests(worker, chunks):
    """On a worker: a digest of each of @chunks, lists of blocks, over all layers."""
    found = []
    for blocks in chunks:
        digest = hashlib.sha256()
        for cache in worker.model_runner.kv_caches:
            digest.update(cache[blocks].contiguous().view(torch_bytes()).numpy().tobytes())
        found.append(digest.hexdigest())
    return found


def wipe(worker):
    """On a worker: overwrite all pages. Whether that is what they hold now."""
    pages = [cache.view(torch_bytes()).fill_(WIPED) for cache in worker.model_runner.kv_caches]
    return bool(pages) and all((own == WIPED).all() for own in pages)


def torch_bytes():
    import torch

    return torch.uint8
