#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the test cases of one `meson test` run and print `N passed, N failed, N skipped`.

usage: summary.py BUILD_DIR MESON_EXIT_STATUS [MESON_ARGS...]

meson counts test programs; people count cases. So each TAP line is one case, and a program that speaks only by its exit
status is one case. What a program hides counts as a failure of its own: it crashed, ran out of time, printed no plan
(it ended early, whatever its exit status) or broke the protocol. meson's JUnit file is not used, because it leaves out
exactly those programs.

Where no test ran, meson's arguments are compared with the names and suites that there are, which meson does not do.
"""

import difflib
import glob
import json
import os
import re
import sys
import textwrap

CASE = re.compile(r"^(not )?ok\b\s*(\d*)\s*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")
DIRECTIVE = re.compile(r"#\s*(SKIP|TODO)\b", re.IGNORECASE)
# The results of meson that mean "as it should be", and those that mean "not run".
GOOD = ("OK", "EXPECTEDFAIL")
NOT_RUN = ("SKIP", "IGNORED")


class Totals:
    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []

    def fail(self, program, what):
        self.failures.append(f"{program}: {what}")


def known_tests(build_dir):
    """What meson knows of the tests; empty if it cannot say."""
    try:
        with open(os.path.join(build_dir, "meson-info", "intro-tests.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return []


def explain_that_none_ran(tests, args, totals):
    names = sorted({test["name"] for test in tests})
    suites = sorted({suite.split(":")[-1] for test in tests for suite in test["suite"]})
    print("\nNo test ran. Suites:", *suites)
    print(textwrap.fill("Tests: " + " ".join(names), 120, subsequent_indent="  ", break_on_hyphens=False))
    for arg in args:
        if arg.startswith("-") or arg in names or arg in suites:
            continue
        near = [name for name in names if arg in name] or difflib.get_close_matches(arg, suites + names)
        totals.fail("meson test", f"there is no test or suite {arg}" + (f"; like it: {' '.join(near[:5])}" if near else ""))
    if not totals.failures:
        totals.fail("meson test", "no test ran")


def how_it_ended(run):
    code = run.get("returncode")
    if run["result"] == "TIMEOUT":
        return "timed out"
    if isinstance(code, int) and code < 0:
        return f"killed by signal {-code}"
    return f"exit status {code}"


def count_exit(run, totals):
    if run["result"] in GOOD:
        totals.passed += 1
    elif run["result"] in NOT_RUN:
        totals.skipped += 1
    else:
        totals.fail(run["name"], f"{run['result'].lower()}, {how_it_ended(run)}")


def count_tap(run, totals):
    program = run["name"]
    before = len(totals.failures)
    plan = None
    cases = 0
    for line in (run.get("stdout") or "").splitlines():
        if match := PLAN.match(line):
            plan = int(match.group(1))
            continue
        match = CASE.match(line)
        if not match:
            continue
        cases += 1
        directive = DIRECTIVE.search(line)
        if directive:
            totals.skipped += 1
        elif match.group(1):
            totals.fail(program, match.group(3) or f"case {cases}")
        else:
            totals.passed += 1
    named = len(totals.failures) > before
    crashed = isinstance(run.get("returncode"), int) and run["returncode"] < 0
    if plan == 0 and cases == 0 and run["result"] in NOT_RUN:
        totals.skipped += 1
    elif run["result"] == "TIMEOUT" or crashed:
        totals.fail(program, f"{how_it_ended(run)} after {cases} cases")
    elif plan is None:
        totals.fail(program, f"no TAP plan after {cases} cases, {how_it_ended(run)}")
    elif plan != cases:
        totals.fail(program, f"{plan} cases planned, {cases} reported")
    elif run["result"] not in GOOD + NOT_RUN and not named:
        totals.fail(program, f"{run['result'].lower()}, {how_it_ended(run)}")


def main():
    build_dir, meson_status = sys.argv[1], int(sys.argv[2])
    tests = known_tests(build_dir)
    speaks_tap = {test["name"] for test in tests if test.get("protocol") == "tap"}
    totals = Totals()
    ran = False
    for path in sorted(glob.glob(os.path.join(build_dir, "meson-logs", "testlog*.json"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                run = json.loads(line)
                ran = True
                # meson writes "project:suite / name"; the name itself may hold the separator.
                name = run["name"]
                if any(name == tap or name.endswith(" / " + tap) for tap in speaks_tap):
                    count_tap(run, totals)
                else:
                    count_exit(run, totals)
    if not ran:
        explain_that_none_ran(tests, sys.argv[3:], totals)
    if meson_status != 0 and not totals.failures:
        totals.fail("meson test", f"exit status {meson_status} without a failed test")
    print()
    for failure in totals.failures:
        print(f"FAILED {failure}")
    print(f"{totals.passed} passed, {len(totals.failures)} failed, {totals.skipped} skipped")
    sys.exit(1 if totals.failures or not totals.passed else 0)


if __name__ == "__main__":
    main()
