#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sweep without a GPU: the order and the sizes of its points, and how results become goals and rows. TAP."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "rig"))
import sweep_plan  # noqa: E402
import sweep_report  # noqa: E402
from sweep_plan import KI, MI, Point  # noqa: E402

LOAD, PRODUCT = "load: at least 95 % of one contiguous copy", "product beside both: at most 2 % slower than beside a contiguous copy"


def measured(ratio=0.97, slower=1.0, moved=0.9):
    alone = {course: {"gbps": 50.0, "ratio": ratio} for course in sweep_plan.COURSES}
    one = {"slower": slower, "gbps": 40.0, "moved": moved}
    return {
        "status": "measured", "wrong_bytes": 0, "alone": alone,
        "beside": {name: dict.fromkeys((*sweep_plan.COURSES, "both"), one) for name in sweep_plan.LOADS},
    }


def goals(*results, floor=None):
    """By name: (verdict, text)."""
    floor = floor or measured(slower=0.0)
    point, values = Point("auto", 18 * KI, 1 * MI), {}
    for result in results:
        for name, value in sweep_report.judged(point, result, floor):
            values.setdefault(name, []).append((value, point))
    return {name: sweep_report.goal_of(name, found)[1:] for name, found in values.items()}


def goals_that_are_reached_pass():
    found = goals(measured(0.96), measured(0.99, -0.5))
    assert {verdict for verdict, _ in found.values()} == {"PASS"}, found
    assert found[LOAD][1] == "96.0 % at 18 KiB in slots of 1 MiB, 2 of 2 points", found
    assert found[PRODUCT][1].startswith("+1.0 % at 18 KiB"), found


def one_missed_point_fails_its_goal_alone():
    found = goals(measured(), measured(0.949), None)
    assert found[LOAD] == ("FAIL", "94.9 % at 18 KiB in slots of 1 MiB, 2 of 3 points"), found
    assert found[PRODUCT][0] == "INCOMPLETE", found
    assert goals(measured(slower=2.1))[PRODUCT][0] == "FAIL"


def what_a_contiguous_copy_costs_is_no_fault_of_a_copy():
    assert goals(measured(slower=5.9), floor=measured(slower=4.0))[PRODUCT] == ("PASS", "+1.9 % at 18 KiB in slots of 1 MiB, 1 of 1 points")
    assert goals(measured(slower=1.9), floor=measured(slower=-1.0))[PRODUCT][0] == "PASS"
    assert goals(measured(), floor={"status": "failed"})[PRODUCT][0] == "INCOMPLETE"


def a_copy_that_waits_fails():
    verdict, text = goals(measured(slower=0.1, moved=0.2))[PRODUCT]
    assert verdict == "FAIL" and "+0.1 %, and the copy waited (20 % of its speed alone)" in text, text


def what_is_not_measured_is_incomplete():
    nothing = {"status": "failed", "text": "it hung"}
    without_torch = {**measured(), "beside": dict.fromkeys(sweep_plan.LOADS, {"unavailable": "no torch"})}
    assert {goal for goal in goals(nothing).values()} == {("INCOMPLETE", "not measured")}
    assert (goals(without_torch)[LOAD][0], goals(without_torch)[PRODUCT][0]) == ("PASS", "INCOMPLETE")


def only_the_defaults_have_goals():
    others = [Point("kernels", 18 * KI, MI, "staged"), Point("rest", 18 * KI, MI, stage=MI)]
    others.append(Point("floor"))
    assert not [one for point in others for one in sweep_report.judged(point, measured())]
    assert len(list(sweep_report.judged(Point("rest", 18 * KI, MI), measured()))) == 8


def slots_have_about_the_asked_size():
    points = [point for point in sweep_plan.plan([], False) if point.piece and point.part != "pool"]
    assert {(point.piece, point.slot) for point in points} == {
        (piece, slot) for piece in sweep_plan.PIECES for slot in sweep_plan.SLOTS if piece <= slot
    }
    for point in points:
        assert point.chunk_blocks <= 16 and abs(point.slot_bytes / point.slot - 1) < (0.3 if point.slot < 4 * point.piece else 0.1), point


def the_most_telling_points_come_first():
    parts = list(dict.fromkeys(point.part for point in sweep_plan.plan([], False)))
    assert parts == ["layouts", "floor", "auto", "pool", "kernels", "stage", "methods", "rest"], parts
    assert all(point.has_goal for point in sweep_plan.plan(["auto"], False))
    assert {point.part for point in sweep_plan.plan(["stage"], True)} == {"stage"}


CASES = (
    goals_that_are_reached_pass, one_missed_point_fails_its_goal_alone, what_a_contiguous_copy_costs_is_no_fault_of_a_copy,
    a_copy_that_waits_fails, what_is_not_measured_is_incomplete,
    only_the_defaults_have_goals, slots_have_about_the_asked_size, the_most_telling_points_come_first,
)


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, case in enumerate(CASES, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {case.__name__}\n# {str(error)[:500]}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
