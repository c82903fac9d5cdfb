# SPDX-License-Identifier: Apache-2.0
"""What the results of the sweep say: goals, and tables for a page of Markdown."""

from sweep_plan import COURSES, LOADS, size

GOAL_RATIO, GOAL_SLOWER, GOAL_MOVED = 0.95, 2.0, 0.5


def beside_of(result, name, course):
    return (result or {}).get("beside", {}).get(name, {}).get(course)


def judged(point, result, floor=None):
    """
    (goal, value) of a point; the value is None if it is not measured. @floor: the result of contiguous copies beside the loads. Such a
    copy alone may cost a load more than 2 %, so a goal counts what a copy costs beyond that.
    """
    result = result or {}
    if point.part == "layouts":
        yield "attention on layout blocks at most 2 % slower than on layout engine", result.get("slower")
        return
    if not point.has_goal or not point.piece:
        return
    for course in COURSES:
        ratio = result.get("alone", {}).get(course, {}).get("ratio")
        yield f"{course}: at least 95 % of one contiguous copy", ratio
    for name in LOADS if point.beside else ():
        for course in (*COURSES, "both"):
            of, least = beside_of(result, name, course), beside_of(floor, name, course)
            value = (of["slower"] - max(least["slower"], 0), of["moved"]) if of and least else None
            yield f"{name} beside {course}: at most 2 % slower than beside a contiguous copy", value


def is_reached(name, value):
    if "at least" in name:
        return value >= GOAL_RATIO
    slower, moved = value if isinstance(value, (tuple, list)) else (value, 1)
    return slower <= GOAL_SLOWER and moved >= GOAL_MOVED


def goal_of(name, found):
    measured = [(value, point) for value, point in found if value is not None]
    if not measured:
        return name, "INCOMPLETE", "not measured"
    missed = [(value, point) for value, point in measured if not is_reached(name, value)]
    worst, point = (min if "at least" in name else max)(missed or measured, key=lambda one: one[0])
    verdict = "FAIL" if missed else "PASS" if len(measured) == len(found) else "INCOMPLETE"
    where = f" at {size(point.piece)} in slots of {size(point.slot)}" if point.piece else ""
    return name, verdict, f"{value_text(name, worst)}{where}, {len(measured)} of {len(found)} points"


def value_text(name, value):
    if "at least" in name:
        return f"{value * 100:.1f} %"
    slower, moved = value if isinstance(value, (tuple, list)) else (value, 1)
    return f"{slower:+.1f} %" + ("" if moved >= GOAL_MOVED else f", and the copy waited ({moved * 100:.0f} % of its speed alone)")


def short(result):
    if result["status"] != "measured":
        return f"{result['status']}: {result.get('text', '')}"
    if "engine_ms" in result:
        return f"engine {result['engine_ms']:.3f} ms, blocks {result['blocks_ms']:.3f} ms"
    cells = [f"{course} {of['gbps']:.1f} GB/s, {of['ratio'] * 100:.1f} %" for course, of in result.get("alone", {}).items()]
    for name, of in result["beside"].items():
        cells.append(f"{name}: {of['unavailable']}" if "unavailable" in of else f"{name} {of['both']['slower']:+.1f} %")
    return "; ".join(cells) + (f"; {result['wrong_bytes']} BYTES ARE WRONG" if result.get("wrong_bytes") else "")


def goal_table(goals):
    yield from ("| goal | | worst |", "|---|---|---|")
    yield from (f"| {name} | {verdict} | {text} |" for name, verdict, text in goals)
    yield ""


def load_cells(of):
    return ["-"] * 3 if "unavailable" in of else [f"{one['slower']:+.1f} %, {one['gbps']:.1f}" for one in of.values()]


def slots_of(point):
    return size(point.slot) + (f", {size(point.total)} at once" if point.total else "") + (", huge pages" if point.huge else "")


def point_table(part, rows):
    beside = [f"{name}, {course}" for name in LOADS for course in (*COURSES, "both")] if rows[0][0].beside else []
    heads = ["pieces", "slots", "method", "stage", *(f"{course} GB/s (of contiguous); of its copy; us before" for course in COURSES), *beside]
    heads = beside if part == "floor" else heads
    yield f"Part {part}; beside a load: percent that the load is slower, and GB/s of the copies meanwhile."
    yield ""
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for point, result in rows:
        cells = [] if part == "floor" else [size(point.piece), slots_of(point), point.method, size(point.stage)]
        if result["status"] != "measured":
            cells.append(result.get("text", result["status"]).replace("|", "/"))
        else:
            cells += [
                f"{of['gbps']:.1f} ({of['ratio'] * 100:.1f} %); {of['copy_gbps']:.1f}; {of['queued_us']:.0f} + {of['server_us']:.0f}"
                for of in result.get("alone", {}).values()
            ]
            for of in result["beside"].values():
                cells += load_cells(of)
        yield "| " + " | ".join(cells) + " |"
    yield ""
