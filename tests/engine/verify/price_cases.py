# SPDX-License-Identifier: Apache-2.0
"""What comparisons cost (docs/verify.md): several values of `verify_sample` by turns in one engine, so that a machine with other work
changes all of them alike. The hits are the engine's own, as after its first 200."""

import statistics
import time

import prompts
from checks import need

VALUES = (0, 0, 0.001, 0.01)  # 0 twice: what differs between them is the machine
TURNS, HITS, TOGETHER, OUTPUT_TOKENS = 5, 150, 10, 16


def what_comparisons_cost(context, engine):
    asked = [prompts.tokens(f"price/{i}", 1100) for i in range(TOGETHER)]
    engine.run(asked, 2)
    engine.drain()
    hits = 15 if context.short else HITS
    turns = [[_turn(engine, asked, share, hits) for share in VALUES] for _ in range(TURNS)]
    need(not engine.side.counts["verify_mismatches"], "right KV was an alarm")
    for at, share in enumerate(VALUES):
        lost, first, cpu, rate = [f"{statistics.median(own):.3g} ({min(own):.3g} to {max(own):.3g})" for own in zip(*(turn[at] for turn in turns))]
        print(f"verify_sample={share}: {lost} % of hit tokens computed, first token {first} ms, CPU {cpu} ms, {rate} tokens/s", flush=True)
    return f"medians and ranges of {TURNS} turns, {hits} hits each"


def _turn(engine, asked, share, hits):
    """(% of hit tokens computed, ms to the first token on average, ms of CPU for each request, tokens/s of all at once)"""
    samples = engine.side._samples = type(engine.side._samples)(share)
    samples._of_others = 1 << 30
    before, cpu, first_s = dict(engine.side.counts), _cpu_s(), []
    for i in range(hits):
        engine.forget()
        begin = time.monotonic()
        engine.run([asked[i % len(asked)]], 1)
        first_s.append(time.monotonic() - begin)
    engine.drain()
    cpu = _cpu_s() - cpu
    computed, loaded = (engine.side.counts[name] - before[name] for name in ("verify_tokens", "load_tokens"))
    engine.forget()
    begin = time.monotonic()
    engine.run(asked, OUTPUT_TOKENS)
    took = time.monotonic() - begin
    return (
        100 * computed / (computed + loaded), 1000 * statistics.fmean(first_s), 1000 * cpu / hits, len(asked) * OUTPUT_TOKENS / took,
    )


def _cpu_s():
    """Of this process, its workers and the server."""
    import psutil

    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))
