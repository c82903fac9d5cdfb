# SPDX-License-Identifier: Apache-2.0
"""Cases that compare KV byte for byte, for models whose answers this build of vLLM does not repeat.

With its kernels for MLA on a CPU an engine without a connector gives other answers behind its own cached prefix than
without one (docs/vllm-tested.md). What a connector has to do can be shown all the same: the pages of a loaded prefix hold the
bytes that were there when it was stored.

And hits that the engine computes and compares (docs/verify.md), each of them here: right KV is never an alarm, and each way to wrong KV is
found. Wrong KV is made behind the connector's back.
"""

import ctypes
import dataclasses
import hashlib
import random

import prompts
from checks import need
from engine import all_counts, ours

CHUNK = 128
WIPED = 0x5A
MEASURES = "norm_error", "share"
LENGTHS = (129, 300, 513, 700, 1100, 2050)  # no whole number of chunks: all whole ones are loaded


def loaded_pages_hold_the_stored_bytes(engine):
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


# ---- hits that are computed and compared ------------------------------------------------------------------------------


def compare_each_hit(engine):
    from kvscout.vllm import verify

    verify.AT_ONCE = 1 << 20
    engine.side._samples._hits = 1  # also the first one


def right_kv_is_no_alarm(engine, least):
    """Prefixes that many requests share, in batches and in prompts of several steps, with preemptions; and answers, whose KV was computed
    token by token. Stored once, then computed again in other batches until @least chunks are compared."""
    compare_each_hit(engine)
    engine.on_workers(keep_measures)
    begun = [prompts.tokens(f"verify/{i}", 60) for i in range(6)]
    answered = [prompt + answer.tokens for prompt, answer in zip(begun, engine.run(begun, 80))]
    asked = [(answered, 2), *((prompts.of(name)[0], n) for name, n in (("stream", 4), ("crowd", 40), ("long", 4)))]
    many = [(prompts.mixed("many", 24, 700, 2500), 2), (prompts.of("long")[0], 2)]  # more comparisons in the same time
    turn = 0
    while not turn or all_counts(engine)["verify_chunks"] < least:
        for found, output_tokens in many if least > 10000 and turn % 12 else asked:
            engine.forget()
            engine.run(random.Random(turn).sample(found, len(found)), output_tokens)
        turn += 1
    engine.drain()
    counts = all_counts(engine)
    need(not counts["verify_mismatches"], f"{counts['verify_mismatches']} of {counts['verify_samples']} samples of right KV were alarms")
    return f"{counts['verify_samples']} samples, {counts['verify_chunks']} chunks, {engine.preemptions} preemptions; {measured(engine)}"


def wrong_kv_is_found(context, engine):
    """After three mismatches the engine is inert; so that one engine shows all, that is looked at with the last way only."""
    side = engine.side
    own, side._config = side._config, dataclasses.replace(side._config, mismatches_make_inert=False)
    found = [way(context, engine) for way in (swapped_slots, forged_commits, a_flipped_bit, another_rope)]
    side._config = own
    found.append(old_weights(context, engine))
    need(side._is_inert, "three mismatches did not make the engine inert")
    hits = engine.hits
    engine.run([prompts.tokens("verify/old0", 700)], 2)
    need(engine.hits == hits, "an inert engine has loaded")
    return "; ".join(found)


def swapped_slots(context, engine):
    """Of each store two chunks have each other's hash."""
    asked = [prompts.tokens(f"verify/swapped{i}", 300) for i in range(3)]
    store_as(engine, asked, list.reverse)
    return finds(context, "swapped slots", engine, asked)


def forged_commits(context, engine):
    """A worker commits chunks of prompts that nobody has computed."""
    asked, others = ([prompts.tokens(f"verify/{name}{i}", 300) for i in range(3)] for name in ("forged", "other"))
    names = iter([hash for prompt in asked for hash in engine.hashes(prompt)[1::2]])
    store_as(engine, others, lambda hashes: hashes.__setitem__(slice(None), [next(names) for _ in hashes]))
    return finds(context, "forged commits", engine, asked)


def store_as(engine, asked, change):
    """@change alters the hashes of each store."""
    build = engine.side.build_meta

    def changed(output):
        meta = build(output)
        for store in meta.stores:
            change(store.hashes)
        return meta

    engine.side.build_meta = changed
    for prompt in asked:  # all of it in one step
        engine.run([prompt], 2)
    engine.drain()
    engine.side.build_meta = build


def a_flipped_bit(context, engine):
    """In the pool: the highest one of the exponent of one number, which becomes a huge one. Other bits change too little to be found."""
    asked = [prompts.tokens(f"verify/flipped{i}", 300) for i in range(3)]
    for prompt in asked:
        engine.add(prompt, 3)
        while not engine.scheduler.running or engine.scheduler.running[0].num_computed_tokens < len(prompt):
            engine.step()
        (blocks,) = engine.blocks_of_running()
        while engine.busy:
            engine.step()
        engine.drain()
        need(all(engine.on_workers(flip, blocks[0])), "the stored bytes were not found in the pool")
    return finds(context, "a flipped bit", engine, asked)


def another_rope(context, engine):
    """A table of positions that are twice as dense, as a longrope's may be."""
    asked = [prompts.tokens(f"verify/rope{i}", 700) for i in range(3)]
    engine.run(asked, 2)
    engine.drain()
    engine.on_workers(see_no_weights)
    engine.on_workers(bend_rope)
    return finds(context, "another rope", engine, asked)


def old_weights(context, engine):
    """The engine is not told that its weights are new ones."""
    asked = [prompts.tokens(f"verify/old{i}", 700) for i in range(3)]
    engine.run(asked, 2)
    engine.drain()
    engine.side._is_inert = True  # hears of no call; and the workers see none, since the way before
    engine.load_weights(context.other_folder)
    engine.side._is_inert = False
    return finds(context, "old weights", engine, asked)


def finds(context, what, engine, asked):
    shares = () if context.short or engine.side._config.mismatches_make_inert else (0.01, 0.001)
    until = [f"{sorted(requests_until_found(engine, asked, share) for _ in range(5))} requests at {share}" for share in shares]
    engine.side._samples = type(engine.side._samples)(1)  # those before count no more
    compare_each_hit(engine)
    before = all_counts(engine)
    engine.on_workers(keep_measures)
    for prompt in asked:
        engine.forget()
        engine.run([prompt], 2)
    engine.drain()
    after = all_counts(engine)
    samples, mismatches = (after[name] - before[name] for name in ("verify_samples", "verify_mismatches"))
    need(samples == mismatches == len(asked), f"{what}: {mismatches} of {samples} samples were found, of {len(asked)} requests")
    return f"{what}: {', '.join([f'{mismatches} of {samples}', *until])}, {measured(engine)}"


def requests_until_found(engine, asked, share):
    """One after another, of an engine that has stored none of it. How many until the first alarm."""
    engine.side._samples = type(engine.side._samples)(share)
    n, before = 0, all_counts(engine)["verify_mismatches"]
    while all_counts(engine)["verify_mismatches"] == before:
        engine.forget()
        engine.run([asked[n % len(asked)]], 2)
        engine.drain()
        n += 1
    return n


# ---- on a worker ----------------------------------------------------------------------------------------------------


def own_worker():
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return ours(get_kv_transfer_group())._worker


def keep_measures(worker):
    """From now on, of each chunk that is compared."""
    own = own_worker()
    own.measured = []
    if not hasattr(own, "compared_before"):
        own.compared_before = own._compared
    own._compared = lambda store, done: own.measured.extend(done.verified) or own.compared_before(store, done)


def take_measures(worker):
    return own_worker().measured


def see_no_weights(worker):
    own_worker()._weights.has_changed = lambda: False


def bend_rope(worker):
    for module in worker.model_runner.model.modules():
        if hasattr(module, "cos_sin_cache"):
            module.cos_sin_cache = module.cos_sin_cache.repeat_interleave(2, 0)[: len(module.cos_sin_cache)]


def flip(worker, block):
    """In the slot that holds @block of the first layer. Whether one does."""
    page = worker.model_runner.kv_caches[0][block].contiguous()
    wanted = ctypes.string_at(page.data_ptr(), page.numel() * page.element_size())
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:" not in line or " rw-s " not in line:
                continue
            begin, end = (int(at, 16) for at in line.split()[0].split("-"))
            at = (ctypes.c_char * (end - begin)).from_address(begin).raw.find(wanted)
            if at >= 0:
                size = page.element_size()
                small = next(end for end in range(size - 1, len(wanted), size) if not wanted[end] & 0x40)
                ctypes.c_uint8.from_address(begin + at + small).value ^= 0x40
                return True
    return False


def measured(engine):
    """The greatest measures of each chunk's worst plane: their distribution."""
    chunks = [chunk for rank in engine.on_workers(take_measures) for chunk in rank]
    parts = []
    for name in MEASURES:
        values = sorted(chunk[name] for chunk in chunks)
        parts.append(f"{name} " + "/".join(f"{values[min(len(values) - 1, len(values) * at // 1000)]:.2g}" for at in (0, 500, 990, 1000)))
    return f"of {len(chunks)} chunks (least/median/p99/most): {', '.join(parts)}"
