# SPDX-License-Identifier: Apache-2.0
"""Hits that the engine computes and compares (docs/verify.md): right KV is never an alarm, and each way to wrong KV is found, or not, as that
page says. Wrong KV is made behind the connector's back: what keeps it out of the cache is switched off here, and nowhere in the product.
"""

import ctypes
import dataclasses
import functools
import os
import random
import shutil

import prompts
from checks import need
from engine import all_counts, ours

MEASURES = "norm_error", "share"


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


def wrong_kv(way):
    """A way to it. After three mismatches an engine is inert; so that one engine shows all, that is switched off. What writes weights here is
    not seen."""

    @functools.wraps(way)
    def case(context, engine):
        engine.on_workers(see_no_weights)
        side = engine.side
        own, side._config = side._config, dataclasses.replace(side._config, mismatches_make_inert=False)
        try:
            return way(context, engine)
        finally:
            side._config = own

    return case


@wrong_kv
def swapped_slots(context, engine):
    """Of each store two chunks have each other's hash."""
    asked = [prompts.tokens(f"verify/swapped{i}", 300) for i in range(3)]
    store_as(engine, asked, list.reverse)
    return finds(context, engine, asked)


@wrong_kv
def forged_commits(context, engine):
    """A worker commits chunks of prompts that nobody has computed."""
    asked, others = ([prompts.tokens(f"verify/{name}{i}", 300) for i in range(3)] for name in ("forged", "other"))
    names = iter([hash for prompt in asked for hash in engine.hashes(prompt)[1::2]])
    store_as(engine, others, lambda hashes: hashes.__setitem__(slice(None), [next(names) for _ in hashes]))
    return finds(context, engine, asked)


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


@wrong_kv
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
    return finds(context, engine, asked)


@wrong_kv
def a_flipped_link(context, engine):
    """The chain of a prompt's hashes goes on from another prompt's chunk, so what follows in that prompt has the same hash."""
    from vllm.v1.core import kv_cache_utils

    parts = (("head", 256), ("other", 256), ("body", 500))
    heads, others, bodies = ([prompts.tokens(f"verify/link/{name}{i}", n) for i in range(3)] for name, n in parts)
    links = {tuple(body[: engine.block_tokens]): engine.hashes(other)[-1] for body, other in zip(bodies, others)}
    right = kv_cache_utils.hash_block_tokens
    kv_cache_utils.hash_block_tokens = lambda hash, before, tokens, more=None: right(hash, links.get(tuple(tokens), before), tokens, more)
    for prompt in (*map(list.__add__, others, bodies), *heads):
        engine.run([prompt], 2)
    engine.drain()
    try:
        return finds(context, engine, list(map(list.__add__, heads, bodies)))
    finally:
        kv_cache_utils.hash_block_tokens = right


@wrong_kv
def another_rope(context, engine):
    """A table of positions that are twice as dense, as a longrope's may be."""
    asked = [prompts.tokens(f"verify/rope{i}", 700) for i in range(3)]
    engine.run(asked, 2)
    engine.drain()
    engine.on_workers(bend_rope)
    return finds(context, engine, asked)


def untold_weights(engine, folder):
    """The engine is not told that its weights are new ones."""
    engine.drain()
    engine.side._is_inert = True  # hears of no call
    engine.load_weights(folder)
    engine.side._is_inert = False


@wrong_kv
def weights_without_a_flush(context, engine):
    """The engine's own cache keeps the KV of the old weights, and what it computes on that with the new ones is stored as theirs. SGLang does
    so with flush_cache=False."""
    heads = [prompts.tokens(f"verify/unflushed{i}", 512) for i in range(3)]
    asked = [head + prompts.tokens(f"verify/unflushed/tail{i}", 300) for i, head in enumerate(heads)]
    engine.forget()
    engine.run(heads, 2)
    untold_weights(engine, context.other_folder)
    engine.run(asked, 2)
    engine.drain()
    return finds(context, engine, asked, is_own=True)


OLD = [prompts.tokens(f"verify/old{i}", 700) for i in range(3)]


@wrong_kv
def old_weights(context, engine):
    engine.run(OLD, 2)
    untold_weights(engine, context.folder)
    return finds(context, engine, OLD, is_own=True)


@wrong_kv
def an_adapter_replaced_in_place(context, engine):
    """Other files at its path, loaded again under its name. Keys have the name alone."""
    asked = [prompts.tokens(f"verify/lora{i}", 700) for i in range(3)]
    (_, first), (_, second) = (context.adapter(number) for number in (1, 2))
    folder = os.path.join(context.models_folder, "adapter-in-place")
    shutil.copytree(first, folder, dirs_exist_ok=True)
    engine.side._adapters.of = lambda lora: lora.lora_name.encode()
    engine.on_workers(trust_adapters)
    engine.run(asked, 2, adapter=(1, folder))
    engine.drain()
    shutil.copytree(second, folder, dirs_exist_ok=True)
    need(engine._engine.remove_lora(1), "the adapter was not loaded")
    return finds(context, engine, asked, is_own=True, adapter=(1, folder))


@wrong_kv
def images_named_by_a_counter(context, engine):
    """As two processes name their first image. It comes first in the prompt."""
    import variants
    from kvscout.vllm import inert

    inert.are_hashed = lambda request: True
    asked = [variants._with_image(prompts.tokens(f"verify/image{i}", 650)) for i in range(3)]
    name = "renderer0-mm-1-image-0"
    engine.run(asked, 2, image=variants._image("one"), image_name=name)
    engine.drain()
    engine._engine.reset_mm_cache()
    engine._engine.reset_encoder_cache()
    return finds(context, engine, asked, image=variants._image("two"), image_name=name)


@wrong_kv
def a_prefix_lm(context, engine):
    """A prompt's tokens look ahead. What is stored comes from a prompt that goes on in another way."""
    begun = [prompts.tokens(f"verify/ahead{i}", 600) for i in range(3)]
    engine.run([prompt + prompts.tokens("verify/ahead/other", 100) for prompt in begun], 2)
    engine.drain()
    return finds(context, engine, [prompt + prompts.tokens("verify/ahead/own", 100) for prompt in begun])


def three_mismatches_make_it_inert(context, engine):
    """What old_weights() has left in the cache."""
    compare_each_hit(engine)
    ask_one_by_one(engine, OLD)
    need(engine.side._is_inert, "three mismatches did not make the engine inert")
    hits = engine.hits
    engine.run(OLD[:1], 2)
    need(engine.hits == hits, "an inert engine has loaded")


def finds(context, engine, asked, is_own=False, **more):
    """How many requests come one after another until an alarm, also with tails alone; then each hit is computed, and each is one. @is_own: this
    engine has stored what is wrong. @more: of Engine.add()."""
    engine.side._samples._own.clear()
    notes = []
    for share in () if context.short else (0.01, 0.001):
        until = sorted(requests_until_found(engine, asked, share, is_own, more) for _ in range(5))
        need(until[-1] < float("inf"), f"no alarm with {share}: {until}")
        notes.append(f"{until} requests at {share}")
    notes.append(f"tails alone {requests_until_found(engine, asked, 1e-9, True, more, 200)} requests")
    engine.side._samples = type(engine.side._samples)(1)  # those before count no more
    compare_each_hit(engine)
    before = all_counts(engine)
    engine.on_workers(keep_measures)
    ask_one_by_one(engine, asked, **more)
    after = all_counts(engine)
    samples, mismatches = (after[name] - before[name] for name in ("verify_samples", "verify_mismatches"))
    need(samples == mismatches == len(asked), f"{mismatches} of {samples} samples were found, of {len(asked)} requests")
    return ", ".join([f"{mismatches} of {samples}", *notes, measured(engine)])


def ask_one_by_one(engine, asked, **more):
    for prompt in asked:
        engine.forget()
        engine.run([prompt], 2, **more)
        engine.drain()


def requests_until_found(engine, asked, share, is_own, more, most=6000):
    """How many until the first alarm; infinite: not in @most. Of what the engine has stored itself no more than @share is computed."""
    samples = type(engine.side._samples)(share)
    samples._own = engine.side._samples._own  # what the requests before have stored
    if is_own:
        samples._of_others = 1 << 30
    engine.side._samples = samples
    before = engine.side.counts["verify_mismatches"]
    for n in range(most):
        ask_one_by_one(engine, [asked[n % len(asked)]], **more)
        if engine.side.counts["verify_mismatches"] > before:
            return n + 1
    return float("inf")


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


def trust_adapters(worker):
    adapters = own_worker()._adapters
    adapters.may_load = adapters.is_loaded = lambda number: True


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
