#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of a run of kvscout-copy on a GPU in Markdown, for docs/gpu.md: copy_markdown.py FILE, which --json or --lines has written. Of a run
that was cut off, --lines has what it had measured."""

import datetime
import json
import pathlib
import sys

WAYS = ("contiguous", "staged", "batch", "auto")


def read(path):
    text = path.read_text(encoding="utf-8")
    if not text.startswith('{"kind"'):
        return json.loads(text)
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    goals = [line["goals"] for line in lines if line["kind"] == "goals"]
    return {**lines[0], "points": [line for line in lines if line["kind"] == "point"], "goals": goals[0] if goals else []}


def size(n):
    return f"{n >> 20} MiB" if n >= 1 << 20 and n % (1 << 20) == 0 else f"{n >> 10} KiB" if n % 1024 == 0 else f"{n} B"


def extras(point):
    groups = f", {point['groups']} groups" if point["groups"] > 1 else ""
    return ("" if point["slots"] == "memfd" else f", {point['slots']}") + groups


def head(run, date):
    at = run["environment"]
    yield (
        f"{date}, {run['gpu']}{run['link'] and ', ' + run['link']}, the driver's CUDA {run['driver'] // 1000}.{run['driver'] % 1000 // 10}, "
        f"batch copies {'in one call' if run['has_batch'] else 'one by one'}; {at['cpu']}, Linux {at['kernel']}; revision {at['revision']}."
    )
    point = next((point for point in run["points"] if point["status"] == "measured"), None)
    if point:
        yield (
            f"Each copy moves {point['total_bytes'] >> 20} MiB between pages that are spread over {point['pool_bytes'] / (1 << 30):.1f} GiB and "
            f"slots in {point['slot_region_bytes'] / (1 << 30):.1f} GiB of sealed memfds."
        )
    yield f"\n| at least 95 % of contiguous (method `{run['method']}`, pieces of 2 KiB and more) | | worst | points |\n|---|---|---|---|"
    for goal in run["goals"]:
        worst = f"{goal['worst'] * 100:.1f} % at {size(goal['worst_piece_bytes'])}" if goal["worst_piece_bytes"] else "not measured"
        yield f"| {goal['name']} | {goal['verdict']} | {worst} | {goal['measured']} of {goal['points']} |"


def cell(way, found):
    if way not in found:
        return ""
    gbps = f"{found[way]['gbps']['p50']:.1f}"
    return gbps if way == "contiguous" else f"{gbps} ({found[way]['ratio']['p50'] * 100:.0f} %)"


def tables(points):
    """Those of the usual memory, then the others; points by size."""
    kinds = [(special, layered, course) for special in (False, True) for layered in (False, True) for course in ("h2d", "d2h", "both")]
    for kind in kinds:
        rows = [p for p in points if p["status"] == "measured" and (bool(extras(p)), p["layered"], p["direction"]) == kind]
        if not rows:
            continue
        title = "both at once" if kind[2] == "both" else kind[2]
        yield f"\n{title}{', layer by layer' if kind[1] else ''}{', other memory and groups' if kind[0] else ''}: GB/s, median of the rounds " \
            f"(% of the contiguous copy in the same round)\n\n| piece | {' | '.join(WAYS)} |\n|---|---|---|---|---|"
        for point in sorted(rows, key=lambda p: p["piece_bytes"]):
            yield f"| {size(point['piece_bytes'])}{extras(point)} | {' | '.join(cell(way, point['methods']) for way in WAYS)} |"


def rest(run):
    for point in run["points"]:
        if point["text"]:
            said = "Not run" if point["status"] == "unavailable" else "FAILED"
            yield f"\n{said}: {point['direction']} {size(point['piece_bytes'])}{', by layers' if point['layered'] else ''}{extras(point)}: {point['text']}"
    ended = sum(point["status"] != "not measured" for point in run["points"])
    verified, wrong = (sum(point[name] for point in run["points"]) for name in ("verified_bytes", "wrong_bytes"))
    missing = run["planned_points"] - ended
    yield f"\n{verified / (1 << 30):.1f} GiB verified, {wrong} bytes wrong; {missing} of {run['planned_points']} points not measured."


def main():
    path = pathlib.Path(sys.argv[1])
    run, date = read(path), datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc).date()
    print("\n".join([*head(run, date), *tables(run["points"]), *rest(run)]))


if __name__ == "__main__":
    main()
