#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/img/step.svg from a run of kvscout-latency: what one scheduler step loses while 64 requests wait.

usage: step_picture.py LATENCY_TOOL [OUT.svg]

The tool runs in this process's place: blocking lookups (sync), a Python client with a thread of its own (the peer), and kvscout, by
turns in one run, with answers after 1 ms. Bars are p50 of `stall_ns_per_step` on a logarithmic scale, whiskers end at p99.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BARS = (("sync", "blocking lookups", "#b0413e"), ("peer", "a Python client", "#c98f2b"), ("async", "kvscout", "#2b7a4b"))
LEFT, WIDTH, TOP, ROW = 150, 440, 64, 44


def run(tool):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.json")
        subprocess.run([tool, "--compare", "--requests", "1000", "--inflight", "64", "--server-delay-us", "1000", "--peer",
                        f"{sys.executable} {HERE}/peer_python.py", "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def text_of(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def draw(result):
    low, high = 1e3, 1e8

    def x(ns):
        return LEFT + WIDTH * (math.log10(min(max(ns, low), high)) - math.log10(low)) / (math.log10(high) - math.log10(low))

    bottom = TOP + ROW * len(BARS)
    env = result["environment"]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 290}" height="{bottom + 62}" '
             'font-family="sans-serif" font-size="14" role="img">',
             '<title>What one scheduler step loses while 64 requests wait</title>',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             '<text x="16" y="26" font-size="16" font-weight="bold">What one scheduler step loses while 64 requests wait</text>',
             '<text x="16" y="46" fill="#555555">time that the loop waits in each step (p50; the line ends at p99), answers take 1 ms, '
             'logarithmic</text>']
    for power in range(3, 9):
        at = x(10.0 ** power)
        lines.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="#dddddd"/>'
                     f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555555" font-size="12">'
                     f'{text_of(10.0 ** power)}</text>')
    for i, (mode, name, colour) in enumerate(BARS):
        stall = result["modes"][mode]["stall_ns_per_step"]
        modes = result["modes"][mode]
        arrival = modes.get("seen_ns", modes.get("rtt_ns"))["p50"]
        y = TOP + ROW * i + 8
        lines.append(f'<text x="{LEFT - 10}" y="{y + 19}" text-anchor="end">{name}</text>'
                     f'<rect x="{LEFT}" y="{y}" width="{x(stall["p50"]) - LEFT:.1f}" height="28" fill="{colour}"/>'
                     f'<line x1="{x(stall["p50"]):.1f}" y1="{y + 14}" x2="{x(stall["p99"]):.1f}" y2="{y + 14}" stroke="{colour}" '
                     'stroke-width="2"/>'
                     f'<text x="{x(stall["p99"]) + 8:.1f}" y="{y + 19}">{text_of(stall["p50"])}'
                     f'<tspan fill="#555555">; an answer is there after {text_of(arrival)}</tspan></text>')
    lines.append(f'<text x="16" y="{bottom + 46}" fill="#555555" font-size="12">kvscout-latency --compare --server-delay-us 1000, '
                 f'256 chunks a lookup; {env["cpu"]}, revision {env["revision"]}</text></svg>')
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.join(HERE, "..", "..", "docs", "img", "step.svg")
    picture = draw(run(sys.argv[1]))
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
