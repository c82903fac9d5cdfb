#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare two sets of benchmark results: compare.py BEFORE.json... --with AFTER.json...

Takes what ./dev bench or kvscout-latency --json wrote. For each metric: the medians of both sets, and the ratio after /
before with a bootstrap interval. A sample is one file's median; where a set has one file only, the medians of that
run's rounds are the samples, which knows nothing of what changes between two runs: the line is marked with "1".
Run the two builds in turn (before, after, before, after, ...), at least five times each.
"""

import argparse
import json
import random
import statistics
import sys

RESAMPLES = 2000


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, (*path, str(i)))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def latency_metrics(result, prefix):
    """metric -> (value, samples of the rounds)"""
    for mode, metrics in result["modes"].items():
        for name, hist in metrics.items():
            if hist["p50"] is None:
                continue
            rounds = result.get("round_p50", {}).get(mode, {}).get(name, [])
            yield f"{prefix}{mode} {name} p50", (hist["p50"], rounds)
            yield f"{prefix}{mode} {name} p99", (hist["p99"], [])
        rate = result.get("scheduler", {}).get(mode, {}).get("lookups_per_s")
        if rate:
            yield f"{prefix}{mode} lookups/s", (rate, [])


def metrics_of(top):
    if "modes" in top:
        return dict(latency_metrics(top, ""))
    if "results" not in top:
        raise ValueError("neither a result of run-bench nor of kvscout-latency")
    found = {}
    for name, result in top["results"].items():
        if "modes" in result:
            found.update(latency_metrics(result, name + ": "))
            continue
        for path, value in leaves(result):
            if not {"environment", "options", "config"} & set(path):
                found[f"{name}: {' '.join(path)}"] = (value, [])
    return found


def load(paths):
    """metric -> samples, and whether they are of one run."""
    runs = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                runs.append(metrics_of(json.load(file)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            sys.exit(f"compare.py: {path}: {error}")
    if len(runs) == 1:
        return {name: rounds if len(rounds) > 1 else [value] for name, (value, rounds) in runs[0].items()}
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: [run[name][0] for run in runs] for name in names}


def interval(before, after, rng):
    """95 % of the ratio of the medians."""
    ratios = []
    for _ in range(RESAMPLES):
        low = statistics.median(rng.choices(before, k=len(before)))
        if low > 0:
            ratios.append(statistics.median(rng.choices(after, k=len(after))) / low)
    if not ratios:
        return None
    ratios.sort()
    return ratios[int(0.025 * len(ratios))], ratios[min(len(ratios) - 1, int(0.975 * len(ratios)))]


def compare(before, after, one_run):
    rng = random.Random(1)
    width = max(map(len, before), default=0)
    print(f"{'metric':{width}} {'before':>12} {'after':>12} {'ratio':>8}  95 % interval")
    for name in before:
        if name not in after:
            continue
        a, b = statistics.median(before[name]), statistics.median(after[name])
        line = f"{name:{width}} {a:12.6g} {b:12.6g} "
        if a <= 0:
            print(line + f"{'-':>8}")
            continue
        line += f"{b / a:8.3f}"
        limits = interval(before[name], after[name], rng) if min(len(before[name]), len(after[name])) > 1 else None
        if limits:
            changed = "" if limits[0] <= 1 <= limits[1] else "  differs"
            line += f"  {limits[0]:.3f}..{limits[1]:.3f}{' 1' if one_run else ''}{changed}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="+")
    parser.add_argument("--with", dest="after", nargs="+", help="default: the last of two files")
    options = parser.parse_args()
    before, after = options.before, options.after
    if not after:
        if len(before) != 2:
            parser.error("say --with, or name two files")
        before, after = before[:1], before[1:]
    compare(load(before), load(after), len(before) == 1 or len(after) == 1)


if __name__ == "__main__":
    main()
