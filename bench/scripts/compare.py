#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare two sets of benchmark results: compare.py BEFORE.json... --with AFTER.json...

Takes what ./dev bench or kvscout-latency --json wrote. For each metric: the medians of both sets, by what factor AFTER is
larger, the 95 % interval of that factor, and what it says: higher, lower, or no difference (the interval holds 1).

A sample is one file's median. The factor is the median of the quotients of all pairs (Hodges and Lehmann); its interval
runs from the k-th smallest to the k-th largest of them, with k of the exact Mann-Whitney distribution: no assumption about
the shape of the noise, and no random numbers. It needs at least four files in each set; with fewer there is no such
interval, and none is printed.

Where a set has one file only, the medians of its rounds are the samples. That knows nothing of what changes between two
runs, so the line is marked "one run". Run the two builds in turn (before, after, before, after, ...).
"""

import argparse
import json
import math
import statistics
import sys

CHANCE = 0.05
# Up to here the distribution is computed; above, the normal one is as good.
EXACT_PAIRS = 400
ENVIRONMENT = ("build_type", "sanitizer", "compiler", "kernel", "machine", "cpu", "cores", "governor")
NOT_COMPARED = ("endpoint", "peer")


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
            yield f"{prefix}{mode} {name} p50", (hist["p50"], [value for value in rounds if value])
            yield f"{prefix}{mode} {name} p99", (hist["p99"], [])
        rate = result.get("scheduler", {}).get(mode, {}).get("lookups_per_s")
        if rate:
            yield f"{prefix}{mode} lookups/s", (rate, [])


def results_of(top):
    """name -> result; a latency result alone has no name."""
    if "modes" in top:
        return {"": top}
    if "results" not in top:
        raise ValueError("neither a result of run-bench nor of kvscout-latency")
    return top["results"]


def metrics_of(top):
    found = {}
    for name, result in results_of(top).items():
        if "modes" in result:
            found.update(latency_metrics(result, name and name + ": "))
            continue
        for path, value in leaves(result):
            if not {"environment", "options", "config"} & set(path):
                found[f"{name}: {' '.join(path)}"] = (value, [])
    return found


def settings_of(top):
    """What a number depends on, as far as the result says it."""
    found = {}
    for name, result in results_of(top).items():
        prefix = name and name + ": "
        environment, options = result.get("environment", {}), result.get("options", {})
        found.update({key: environment[key] for key in ENVIRONMENT if key in environment})
        found.update({f"{prefix}--{key.replace('_', '-')}": value for key, value in options.items() if key not in NOT_COMPARED})
    return found


def warn(text):
    print(f"compare.py: warning: {text}", file=sys.stderr)


def check_run(path, top):
    for name, result in results_of(top).items():
        if isinstance(result, dict) and (result.get("interrupted") or result.get("failure")):
            warn(f"{path}: {name or 'the run'} ended early")
        if isinstance(result, dict) and result.get("environment", {}).get("slow_build"):
            warn(f"{path}: {name or 'the run'} is of a debug or sanitizer build: its numbers mean nothing")


def check_settings(paths, settings):
    """All files, of both sets, should have been made in the same way."""
    for path, other in zip(paths[1:], settings[1:]):
        for key in settings[0].keys() & other.keys():
            if settings[0][key] != other[key]:
                warn(f"{key} is {settings[0][key]} in {paths[0]}, and {other[key]} in {path}")


def load(paths):
    """metric -> samples; and the settings of each file."""
    runs, settings = [], []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                top = json.load(file)
            runs.append(metrics_of(top))
            settings.append(settings_of(top))
            check_run(path, top)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            sys.exit(f"compare.py: {path}: {error}")
    if len(runs) == 1:
        return {name: rounds if len(rounds) > 1 else [value] for name, (value, rounds) in runs[0].items()}, settings
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: [run[name][0] for run in runs] for name in names}, settings


def ways(n, m, memo):
    """How many of the orders of n and m values have U = 0, 1, 2, ...: the largest value is of the one set or of the other."""
    if not n or not m:
        return [1]
    if (n, m) not in memo:
        last_of_n, last_of_m = [0] * m + ways(n - 1, m, memo), ways(n, m - 1, memo)
        size = n * m + 1
        memo[n, m] = [a + b for a, b in zip(last_of_n + [0] * (size - len(last_of_n)), last_of_m + [0] * (size - len(last_of_m)))]
    return memo[n, m]


def limit_rank(n, m):
    """Which quotient, counted from either end, is the limit of the interval; 0: so few samples have none."""
    if n * m > EXACT_PAIRS:
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return int(n * m / 2 - statistics.NormalDist().inv_cdf(1 - CHANCE / 2) * spread)
    share, rank = 0.0, 0
    for count in ways(n, m, {}):
        share += count / math.comb(n + m, n)
        if share > CHANCE / 2:
            break
        rank += 1
    return rank


def effect(before, after):
    """The factor, and its interval or None."""
    quotients = sorted(b / a for a in before for b in after)
    rank = limit_rank(len(before), len(after))
    return statistics.median(quotients), (quotients[rank - 1], quotients[-rank]) if rank else None


def verdict_of(interval):
    if not interval:
        return "too few runs"
    if interval[0] > 1:
        return "higher"
    return "lower" if interval[1] < 1 else "no difference"


def compare(before, after, is_one_run):
    names = [name for name in before if name in after]
    width = max(map(len, names), default=0)
    verdicts = []
    print(f"{'metric':{width}} {'before':>12} {'after':>12} {'factor':>8}  95 % interval")
    for name in names:
        line = f"{name:{width}} {statistics.median(before[name]):12.6g} {statistics.median(after[name]):12.6g} "
        if min(before[name]) <= 0:
            print(line + f"{'-':>8}")
            continue
        factor, interval = effect(before[name], after[name])
        verdicts.append(verdict_of(interval))
        limits = f"{interval[0]:.3f}..{interval[1]:.3f}  " if interval else ""
        print(line + f"{factor:8.3f}  {limits}{verdicts[-1]}{' (one run)' if interval and is_one_run else ''}")
    for title, names_here, others in (("before", before, after), ("after", after, before)):
        missing = [name for name in names_here if name not in others]
        if missing:
            print(f"only {title}: {', '.join(missing)}")
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("higher", "lower", "no difference", "too few runs")
                       if verdicts.count(word))
    judged = len(verdicts) - verdicts.count("too few runs")
    by_chance = f"; of {judged}, {judged * CHANCE:.1f} would differ by chance alone" if judged else ""
    print(f"\n{len(verdicts)} metrics: {counts or 'none in both'}{by_chance}")


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
    (old, old_settings), (new, new_settings) = load(before), load(after)
    check_settings(before + after, old_settings + new_settings)
    compare(old, new, len(before) == 1 or len(after) == 1)


if __name__ == "__main__":
    main()
