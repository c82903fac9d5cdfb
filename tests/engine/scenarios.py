# SPDX-License-Identifier: Apache-2.0
"""Cases with a connector, in the order in which a session runs them. Each compares its answers, token for token, with
those of the engine without a connector; the note of a case says how many tokens that were and how many of the
prompt's came from the cache.
"""

import random
import time

import prompts
import random_hints
from checks import need
from engine import all_counts, ours
from hook_times import HookTimes, percentile

MIN_HEAD = 768  # tokens of a shared head of 900 that lie in whole chunks


def _cached(answers):
    return sum(answer.cached for answer in answers)


def _twice(context, engine, name, least, least_cached=0):
    """Cold, then with the engine's own cache emptied, so that all hits of the second run come from the connector."""
    asked, n = prompts.of(name)
    context.reference.compare(asked, n, engine.run(asked, n))
    need(engine.forget(), "the engine's own cache could not be emptied, though nothing runs")
    loaded = engine.side.counts["load_tokens"]
    answers = engine.run(asked, n)
    context.reference.compare(asked, n, answers)
    loaded = engine.side.counts["load_tokens"] - loaded
    need(loaded >= least, f"{loaded} tokens were loaded, at least {least} are in whole chunks")
    need(
        _cached(answers) >= least_cached,
        f"{_cached(answers)} prompt tokens were not computed, at least {least_cached} are in whole chunks",
    )
    engine.forget()
    return f"warm: {loaded} tokens loaded, {_cached(answers)} not computed"


def shared_prefixes_at_once(context, engine):
    return _twice(context, engine, "shared", 3 * MIN_HEAD)


def prompts_around_whole_chunks(context, engine):
    # All are the beginning of one prompt, so what one of them has loaded another may find in the engine's own cache.
    # The last token is always computed. Where a hit is no run that could end a token earlier, its last chunk is, too.
    asked = [len(prompt) for prompt in prompts.of("exact")[0]]
    if engine.side._groups.is_one_run:
        whole = sum(min(tokens // 128 * 128, tokens - 1) for tokens in asked)
    else:
        whole = sum((tokens - 1) // 128 * 128 for tokens in asked)
    return _twice(context, engine, "exact", 512, whole)


def chunked_prefill(context, engine):
    need(engine.scheduler.scheduler_config.max_num_batched_tokens < 2000, "the prompts of this case fit into one step")
    return _twice(context, engine, "long", 4000)


def preemption(context, engine):
    before = engine.preemptions
    note = _twice(context, engine, "crowd", 500)
    need(engine.preemptions > before, "nothing was preempted, so this case shows nothing; give the engine fewer blocks")
    return f"{note}; {engine.preemptions - before} preemptions"


def random_aborts(context, engine):
    asked, n = prompts.of("stream")
    draw = random.Random("aborts")
    waiting, running, answers = list(enumerate(asked)), {}, {}
    aborted = 0
    while waiting or running:
        while waiting and len(running) < 8:
            at, prompt = waiting.pop(0)
            running[engine.add(prompt, n)] = at
        if draw.random() < 0.15 and running:
            name = draw.choice(sorted(running))
            del running[name]
            engine.abort(name)
            aborted += 1
        for name, answer in engine.step().items():
            answers[running.pop(name)] = answer
    engine.drain()
    done = sorted(answers)
    context.reference.compare([asked[at] for at in done], n, [answers[at] for at in done])
    need(aborted >= 5, f"only {aborted} requests were aborted")
    _nothing_is_left(engine)
    engine.forget()
    return f"{len(done)} requests answered, {aborted} aborted"


def _nothing_is_left(engine):
    need(not engine.side.has_pending_stores(), "stores pin blocks though nothing runs")
    need(not engine.side._requests, f"the connector remembers {len(engine.side._requests)} requests that are over")
    pool = engine.scheduler.kv_cache_manager.block_pool
    need(
        pool.get_num_free_blocks() == pool.num_gpu_blocks - 1,
        f"{pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()} blocks are not free",
    )


def admit_of_less_than_the_hit(context, engine):
    """vLLM may take fewer tokens than the connector has found, also an odd number of blocks of a chunk, or none."""
    asked, n = prompts.of("partial")
    context.reference.compare(asked, n, engine.run(asked, n))
    counts, connector = engine.side.counts, engine.scheduler.connector
    honest = connector.get_num_new_matched_tokens
    taken = {"offered": 0, "taken": 0}
    less = 0

    def fewer(request, computed):
        found, waits = honest(request, computed)
        if not found:
            return found, waits
        left = max(0, found - less)
        taken["offered"] += found
        taken["taken"] += left
        return left, waits and left > 0

    connector.get_num_new_matched_tokens = fewer
    before = dict(counts)
    rounds = (1, 2, 3, 7, 100)
    try:
        for blocks in rounds:
            less = blocks * engine.block_tokens
            engine.forget()
            context.reference.compare(asked, n, engine.run(asked, n))
    finally:
        del connector.get_num_new_matched_tokens
    engine.forget()
    loaded = counts["load_tokens"] - before["load_tokens"]
    need(0 < taken["taken"] < taken["offered"], f"{taken['taken']} of {taken['offered']} offered tokens were taken")
    need(loaded == taken["taken"], f"{taken['taken']} tokens were taken, and {loaded} loaded")
    stored = counts["store_chunks"] - before["store_chunks"]
    need(stored == 0, f"{stored} chunks were stored again, though all of them were found")
    return f"{taken['offered']} tokens found, {loaded} of them loaded"


def salts_keep_tenants_apart(context, engine):
    asked, n = prompts.of("salted")
    for salt, hit in (("a", False), ("a", True), ("b", False), (None, False), ("b", True)):
        loaded = engine.side.counts["load_tokens"]
        context.reference.compare(asked, n, engine.run(asked, n, salt=salt))
        engine.forget()
        loaded = engine.side.counts["load_tokens"] - loaded
        need((loaded > 0) == hit, f"with salt {salt!r} {loaded} tokens were loaded")
    return "with salts a, a, b, none, b"


def a_request_says_what_it_may(context, engine):
    """skip_write, skip_read and expect_tokens of kv_transfer_params."""
    asked, n = prompts.of("params")
    counts = engine.side.counts
    for transfer, stores, loads in (
        ({"skip_write": True}, False, False),
        ({}, True, False),
        ({"skip_read": True}, None, False),
        ({"expect_tokens": 512}, None, True),
    ):
        before = dict(counts)
        context.reference.compare(asked, n, engine.run(asked, n, transfer=transfer))
        engine.forget()
        stored, loaded = counts["store_chunks"] - before["store_chunks"], counts["load_tokens"] - before["load_tokens"]
        need(stores is None or (stored > 0) == stores, f"with {transfer} {stored} chunks were stored")
        need((loaded > 0) == loads, f"with {transfer} {loaded} tokens were loaded")
    return "with skip_write, nothing, skip_read, expect_tokens"


def the_end_of_a_request_is_a_hint(context, engine):
    """An answer that ends by itself behind a tool call is likely to be followed; what the request says counts for
    more."""
    from kvscout.vllm.hints import Hints

    asked, n = prompts.of("params")
    answer = context.reference.tokens(asked[0], n)
    stop = next(token for token in answer[4:] if token not in answer[:4])
    counts, kept = engine.side.counts, engine.side._hints
    engine.side._hints = Hints({answer[0]}, kept._max_tokens)  # its first token is the mark of a call
    try:
        for told, expected in (
            ({"stop": [stop]}, (1, 0)),
            ({}, (0, 0)),  # it ends because it may not be longer
            ({"stop": [stop], "transfer": {"hint": "unlikely"}}, (0, 1)),
            ({"transfer": {"hint": "likely"}}, (1, 0)),
        ):
            before = dict(counts)
            found = engine.run(asked, n, **told)[0]
            need(
                answer[: len(found.tokens)] == found.tokens and (len(found.tokens) < n) == ("stop" in told),
                f"the answer with {told} is {found.tokens}, without connector {answer}",
            )
            hints = tuple(counts[name] - before[name] for name in ("hints_likely", "hints_unlikely"))
            need(hints == expected, f"with {told} the hints (likely, unlikely) are {hints}, not {expected}")
    finally:
        engine.side._hints = kept
    engine.forget()
    return "2 likely, 1 unlikely, 1 without"


def hints_change_no_token(context, engine):
    return random_hints.change_no_token(context, engine, lambda all: engine.forget(connector=all), engine.side.counts)


def reset_drops_everything(context, engine):
    asked, n = prompts.of("reset")
    counts = engine.side.counts
    found = []
    for reset in (False, False, True, False):
        if reset:
            need(
                engine.forget(connector=True),
                "reset_prefix_cache(reset_connector=True) was not successful though nothing runs",
            )
        before = counts["load_tokens"]
        context.reference.compare(asked, n, engine.run(asked, n))
        found.append(counts["load_tokens"] - before)
        engine.forget()
    need(found[0] == 0 and found[1] > 0, f"before the reset {found[:2]} tokens were loaded")
    need(found[2] == 0, f"{found[2]} tokens were loaded right after the reset")
    need(found[3] == found[1], f"{found[3]} tokens were loaded after a new store, {found[1]} before the reset")
    return f"{found[1]} tokens loaded before the reset, 0 right after it, {found[3]} after a new store"


def counters_agree(context, engine, server):
    """Engine, workers and server count the same loads and chunks, and nothing is left pinned. Only where no server
    died."""
    engine.drain()
    _nothing_is_left(engine)
    ours = engine.side.counts
    theirs = all_counts(engine)
    ranks = engine.scheduler.vllm_config.parallel_config.world_size
    status = server.wait_until(
        lambda s: not (s["sessions"] or s["holds"] or s["l1.bytes_promised"] or s["l1.bytes_held"])
    )
    for name in ("sessions", "holds", "l1.bytes_promised", "l1.bytes_held", "bugs.mismatches", "frames.bad"):
        need(status[name] == 0, f"the server's counter {name} is {status[name]}")
    need(
        theirs["loads_ended"] == ours["loads"] * ranks,
        f"{ours['loads']} loads were sent to {ranks} ranks, {theirs['loads_ended']} ended",
    )
    need(
        status["ops.retrieve"] == ours["loads"] * ranks,
        f"the server counts {status['ops.retrieve']} retrieves for {ours['loads']} loads",
    )
    need(
        theirs["failed_blocks"] == 0 and theirs["loads_failed"] == 0,
        f"{theirs['failed_blocks']} blocks were not filled, though no server died",
    )
    alone = len(getattr(engine.scheduler.connector, "sub_connectors", [0])) == 1
    if alone:
        need(engine.hits == ours["load_tokens"], f"vLLM counts {engine.hits} hits, the connector {ours['load_tokens']}")
    aborted = ours["load_tokens"] * ranks - theirs["loaded_tokens"]
    need(aborted == 0, f"{ours['load_tokens']} tokens were to be loaded, {theirs['loaded_tokens']} were")
    need(
        theirs["stores_ended"] + theirs["stores_dropped"] == ours["stores"] * ranks,
        f"{ours['stores']} stores were sent, {theirs['stores_ended']} ended, {theirs['stores_dropped']} were dropped",
    )
    need(alone == (theirs["stores_dropped"] == 0), f"{theirs['stores_dropped']} stores were dropped")
    for hint in ("likely", "unlikely"):
        told, known = ours[f"hints_{hint}"], status[f"hints.{hint}"]
        need(told == known, f"{told} requests ended with the hint {hint}, the server knows of {known}")
    share = ours["answered_at_first_ask"] / max(1, ours["asked"])
    return (
        f"{ours['loads']} loads, {ours['load_tokens']} tokens, {ours['store_chunks']} chunks stored; {share:.0%}"
        " answered at the first ask"
    )


def stored_in_l2(context, engine, server):
    asked, n = prompts.of("shared")
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.drain()
    least = 3 * MIN_HEAD // 128
    status = server.wait_until(lambda s: s["l2.writes.done"] >= least and not s["l2.writes.waiting"], 60)
    done, failed = status["l2.writes.done"], status["l2.writes.failed"] + status["l2.writes.dropped"]
    need(done >= least, f"{done} chunks were written to L2, at least {least} are whole in the heads")
    need(failed == 0, f"{failed} chunks were not written to L2")
    return f"{done} chunks in L2"


def loaded_from_l2(context, engine):
    """By an engine and a server that were both started anew: everything comes from L2."""
    asked, n = prompts.of("shared")
    context.reference.compare(asked, n, engine.run(asked, n))
    counts = engine.side.counts
    need(
        counts["load_tokens_l2"] >= 3 * MIN_HEAD,
        f"{counts['load_tokens_l2']} of {counts['load_tokens']} loaded tokens came from L2",
    )
    need(counts["failed_loads"] == 0, f"{counts['failed_loads']} loads failed")
    engine.drain()
    return f"{counts['load_tokens_l2']} of {counts['load_tokens']} loaded tokens from L2"


def answered_at_the_first_ask(engine):
    """Requests that arrive one by one, each right before the step that asks for it, while others run; some are
    preempted and ask again."""
    before = dict(engine.side.counts)
    asked = prompts.shared("first", 4, 32, 300, 40)
    begin = time.perf_counter_ns()
    steps = 0
    for prompt in asked:
        engine.add(prompt, 8)
        engine.step()
        steps += 1
    while engine.busy:
        engine.step()
        steps += 1
    took = time.perf_counter_ns() - begin
    engine.drain()
    engine.forget()
    n, answered, waits, waited = (
        engine.side.counts[name] - before[name] for name in ("asked", "answered_at_first_ask", "waits", "wait_us")
    )
    note = (
        f"{answered} of {n}; {waits} waits of {waited / max(1, waits):.0f} us, {waited * 1e3 / took:.2%} of {steps}"
        " steps"
    )
    need(answered >= FIRST_ASK_SHARE * n, f"only {note}")
    return note


HOOK_SHARE = 0.01  # of the time that the engine takes
FIRST_ASK_SHARE = 0.95


def hooks_cost_little(engine, requests):
    """What the hooks of both sides take while @requests wait, beside the engine's time, and how many lookups are
    answered when the scheduler first asks. A tiny model's step is shorter than a real one's, so a share is larger
    than it would be."""
    notes, wrong = [], []
    for kind in ("cold", "warm"):  # the second time there are hits
        wrong += _hook_round(engine, requests, kind, notes)
        engine.forget()
    note = "; ".join(notes)
    need(not wrong, f"{', '.join(wrong)} ({note})")
    return note


def _hook_round(engine, requests, kind, notes):
    """Appends to @notes; returns what is wrong."""
    sides = {"scheduler": hook_times(ours(engine.scheduler.connector), "build_connector_meta"), "worker": engine.on_workers(worker_times)[0]}
    before = dict(engine.side.counts)
    steps = []
    begin = all_began = time.perf_counter_ns()
    names = {engine.add(prompt, 4) for prompt in prompts.shared(f"hooks{requests}", requests // 8, 8, 256, 40)}
    while names:
        begin = time.perf_counter_ns()
        names -= set(engine.step())
        steps.append(time.perf_counter_ns() - begin)
    took = time.perf_counter_ns() - all_began
    engine.drain()
    asked, answered = (engine.side.counts[name] - before[name] for name in ("asked", "answered_at_first_ask"))
    notes.append(
        f"{requests} requests, {kind}: {answered / max(1, asked):.1%} of {asked} answered at the first ask, "
        f"{len(steps)} steps of {percentile(steps, 0.5) / 1e3:.0f} us (p50)"
    )
    wrong = (
        [] if answered >= FIRST_ASK_SHARE * asked else [f"{answered} of {asked} lookups were answered at the first ask"]
    )
    for name, times in sides.items():
        shown = " / ".join(f"{percentile(times.steps, share) / 1e3:.0f}" for share in (0.5, 0.99, 1.0))
        part = sum(times.steps[: len(steps)]) / took
        notes.append(f"{name} {shown} us a step (p50 / p99 / max), {part:.2%} of the time")
        if part > HOOK_SHARE:
            wrong.append(f"{kind}, the hooks of the {name}'s side take {part:.2%} of the time")
    return wrong


def hook_times(connector, last):
    """Of this connector, from now on."""
    if "hook_times" not in vars(connector):
        hooks = [name for name, method in vars(type(connector)).items() if hasattr(method, "__wrapped__")]
        connector.hook_times = HookTimes(connector, hooks, last)
    connector.hook_times.clear()
    return connector.hook_times


def worker_times(worker):
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return hook_times(ours(get_kv_transfer_group()), "build_connector_worker_meta")


CONNECTOR_CASES = (
    shared_prefixes_at_once,
    prompts_around_whole_chunks,
    chunked_prefill,
    preemption,
    random_aborts,
    salts_keep_tenants_apart,
    a_request_says_what_it_may,
    the_end_of_a_request_is_a_hint,
    hints_change_no_token,
    reset_drops_everything,
)
