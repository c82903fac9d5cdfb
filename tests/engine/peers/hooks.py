#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a connector's hooks take of each step of vLLM's scheduler, by turns: kvscout, vLLM's own offloading, Mooncake's store and LMCache.

The scheduler, its block pool, the connectors on both sides, their servers and their copies are real. Only the model is not: a step sleeps
(sleeping.py), as a CPU does while a GPU computes. In a round each system gets the same prompts, new in that round: cold, and, its own prefix
cache emptied, warm.

burst     so many requests come at once, and after the first step as many again, while the first ones wait
arrivals  requests come one by one at random times. The time to the first token counts from there

Times of hooks are CPU time of the scheduler's thread, which other processes of the machine do not stretch, and which has no waits in it;
`clock` is their time on the clock, measuring included: about 1 us of each call.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True

import compare
import models
import systems
from hook_times import percentile

KINDS = ("cold", "warm")


def plan(options, number):
    """(prompts, times of arrival)."""
    draw = random.Random(f"hooks/{number}")
    n = 2 * options.requests if options.scenario == "burst" else options.requests
    prompts = [[draw.randrange(3, models.VOCAB) for _ in range(options.tokens)] for _ in range(n)]
    if options.scenario == "burst":
        return prompts, [0.0] * options.requests + [-1.0] * options.requests
    at = [draw.expovariate(options.rate) for _ in prompts]
    return prompts, [sum(at[: place + 1]) for place in range(n)]


def turn(engine, options, prompts, at):
    found = {}
    for kind in KINDS:
        time.sleep(options.settle)
        found[kind] = engine.call(do="arrive", prompts=prompts, at_s=at, output_tokens=options.output_tokens)
        engine.call(do="forget")
    return found


def of_rounds(rounds, name, kind, value):
    """(median, least) over the rounds."""
    values = [value(found[name][kind]) for found in rounds if name in found]
    return statistics.median(values), min(values)


def burst_cells(rounds, name, kind):
    def cell(value, scale=1000):
        median, least = of_rounds(rounds, name, kind, value)
        return f"{median / scale:.2f} ({least / scale:.2f})"

    yield cell(lambda found: percentile(found["schedule_us"], 1))
    if name == "none":
        return
    for share in (0.5, 0.99, 1):
        yield cell(lambda found, share=share: percentile(found["cpu_us"], share))
    yield cell(lambda found: percentile(found["wall_us"], 0.99))
    yield cell(lambda found: sum(found["cpu_us"]) / len(found["first_s"]), 1)


def arrival_cells(rounds, name, kind):
    def cell(value, scale=1.0, form=".1f"):
        median, least = of_rounds(rounds, name, kind, value)
        return f"{median * scale:{form}} ({least * scale:{form}})"

    for share in (0.5, 0.99):
        yield cell(lambda found, share=share: percentile(found["first_s"], share), 1000)
    yield cell(lambda found: percentile(found["wall_us"], 0.99) if found["wall_us"] else 0, 0.001, ".2f")
    counts = [found[name][kind]["counts"] for found in rounds if name in found]
    asked, answered, waits, waited = (sum(each.get(key, 0) for each in counts) for key in ("asked", "answered_at_first_ask", "waits", "wait_us"))
    yield f"{answered / asked:.1%}" if asked else ""
    yield f"{waited / waits:.0f}" if waits else ""


HEADS = {
    "burst": ("schedule max, ms", "hooks p50, ms", "p99", "max", "clock p99", "us a request"),
    "arrivals": ("first token p50, ms", "p99", "hooks p99 on the clock, ms", "answered at first ask", "mean wait, us"),
}


def show(options, rounds):
    heads = ("", "", *HEADS[options.scenario], "cached")
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for kind in KINDS:
        for name in [name for name in options.systems if any(name in found for found in rounds)]:
            cells = list((burst_cells if options.scenario == "burst" else arrival_cells)(rounds, name, kind))
            cells += [""] * (len(heads) - 3 - len(cells))
            cached = of_rounds(rounds, name, kind, lambda found: found["cached"] / len(found["first_s"]) / options.tokens)[0]
            print(f"| {kind} | {systems.SYSTEMS[name].title} | {' | '.join(cells)} | {cached:.0%} |")
    print(f"\nMedian (least) of {len(rounds)} rounds by turns, steps of {options.step_ms} ms, load {os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs")


def run(options, folder):
    started, engines, rounds = [], [], []
    try:
        for name in options.systems:
            started.append(systems.SYSTEMS[name](folder, options))
            started[-1].start()
            engines.append(
                compare.Engine(
                    started[-1], options, seqs=options.seqs, cache_bytes=options.cache_mb << 20, step_ms=options.step_ms
                )
            )
            engines[-1].wait(compare.ENGINE_START_S)
        for number in range(-1, options.rounds):
            prompts, at = plan(options, number)
            found = {}
            shift = number % len(engines)
            for engine in engines[shift:] + engines[:shift]:
                try:
                    found[engine.system.name] = turn(engine, options, prompts, at)
                except (compare.Hangs, RuntimeError) as failure:
                    print(f"round {number + 1}: {failure}", flush=True)
                    engines = [other for other in engines if other is not engine]
                    engine.end()
            if number >= 0:
                rounds.append(found)
                if options.json:
                    with open(options.json, "w") as file:
                        json.dump(rounds, file)
    finally:
        for engine in engines:
            engine.end()
        for system in started:
            system.stop()
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="where the models are, and the logs go")
    parser.add_argument("--kvscoutd", required=True)
    parser.add_argument("--package", required=True, help="folder that holds the package kvscout")
    parser.add_argument("--scenario", choices=HEADS, default="burst")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", default="none,kvscout,offloading,mooncake,lmcache", help="comma-separated; default %(default)s")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=520, help="of a prompt; default %(default)s")
    parser.add_argument("--output-tokens", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=40.0, help="arrivals a second")
    parser.add_argument("--seqs", type=int, default=256)
    parser.add_argument("--cache-mb", type=int, default=1400, help="of the engine's own KV cache")
    parser.add_argument("--block-tokens", type=int, default=32)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--bind", default="0")
    parser.add_argument("--settle", type=float, default=0.3, help="seconds before each turn")
    parser.add_argument("--extra", default="{}", help="kv_connector_extra_config of kvscout beyond the endpoint, as JSON")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.systems = options.systems.split(",")
    compare.end_on_sigterm()
    options.logs = os.path.join(options.root, "peers")
    os.makedirs(options.logs, exist_ok=True)
    options.folder = models.make("llama", os.path.join(options.root, "models"))
    with tempfile.TemporaryDirectory(prefix="kvscout-peers-") as folder:
        rounds = run(options, folder)
    show(options, rounds)


if __name__ == "__main__":
    main()
