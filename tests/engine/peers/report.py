# SPDX-License-Identifier: Apache-2.0
"""What a run of compare.py shows: medians and ratios from its rounds, and the table, in Markdown."""

import statistics

import systems


def median(values):
    return statistics.median(values) if values else None


def summary(result):
    """What the table and the picture show, from the rounds."""
    found = {}
    for name in result["systems"]:
        turns = [turn[name] for turn in result["rounds"]]
        base = [turn.get("none", turn[name]) for turn in result["rounds"]]
        firsts = list(zip(*(turn["first_s"] for turn in turns)))
        found[name] = {
            "first_s": median([value for turn in turns for value in turn["first_s"]]),
            "first_s_by_length": [median(values) for values in firsts],
            "first_s_range": [[min(values), max(values)] for values in firsts],
            "cold_ratio": median([turn["cold_s"] / none["cold_s"] for turn, none in zip(turns, base)]),
            "cold_ratio_range": [
                f(turn["cold_s"] / none["cold_s"] for turn, none in zip(turns, base)) for f in (min, max)
            ],
            "drained_ratio": median(
                [
                    (turn["cold_s"] + turn["drain_s"]) / (none["cold_s"] + none["drain_s"])
                    for turn, none in zip(turns, base)
                ]
            ),
            "user_ratio": median([turn["cold_user_s"] / none["cold_user_s"] for turn, none in zip(turns, base)]),
            "cpu_ratio": median(
                [
                    (turn["cold_user_s"] + turn["cold_system_s"]) / (none["cold_user_s"] + none["cold_system_s"])
                    for turn, none in zip(turns, base)
                ]
            ),
            "recomputed": median([n - c for turn in turns for n, c in zip(result["lengths"], turn["cached"])]),
            "compared": sum(turn["compared"] for turn in turns),
            "differing": sum(turn["differing"] for turn in turns),
        }
    return found


def ms(seconds):
    return f"{seconds * 1000:.0f}"


def end_of(kill):
    """A cell: what happened after the server was killed."""
    if kill is None:
        return "-"
    if "failure" not in kill:
        return f"{kill['killed_s']:.1f} s, the next {kill['absent_s']:.1f} s"
    answered = f"{kill['killed_s']:.1f} s; the next: " if "killed_s" in kill else ""
    return f"{answered}{kill['failure']}"


def show(result):
    lengths = result["lengths"]
    heads = [
        "",
        *(f"{n:,}" for n in lengths),
        "all",
        "computed",
        "without hits",
        "CPU",
        "server killed",
        "tokens, differing",
    ]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, found in result["summary"].items():
        low, high = found["cold_ratio_range"]
        cells = [
            systems.SYSTEMS[name].title,
            *(ms(value) for value in found["first_s_by_length"]),
            ms(found["first_s"]),
            f"{found['recomputed']:.0f}",
            f"{found['cold_ratio']:.2f} ({low:.2f} to {high:.2f})",
            f"{found['cpu_ratio']:.2f}",
            end_of(result["kills"].get(name)),
            f"{found['compared']:,}, {found['differing']}",
        ]
        print(f"| {' | '.join(cells)} |")
    print(f"""
Median of {len(result["rounds"])} rounds, by turns. First columns: ms to the first token of a repeated prompt of so many
tokens; computed: tokens of it that the engine computed again. Without hits: time for all prompts at once, new ones, as
a ratio to no connector in the same round; CPU: the ratio of CPU time of worker, server and helper threads. Server
killed: seconds until the answer to a prompt of {result["kill_tokens"]:,} tokens that was being answered, and to the
next one; computing it takes {computed_s(result)}.""")


def computed_s(result):
    return (
        " to ".join(f"{f(kill['computed_s'] for kill in result['kills'].values()):.1f} s" for f in (min, max))
        if result["kills"]
        else "-"
    )
