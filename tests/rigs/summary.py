#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the test cases of one `meson test` run and print `N passed, N failed, N skipped`.

usage: summary.py BUILD_DIR MESON_EXIT_STATUS [MESON_ARGS...]

meson counts test programs; people count cases. So each TAP line is one case, and a program that speaks only by its exit
status is one case. What a program hides counts as a failure of its own: it crashed, ran out of time, printed no plan
(it ended early, whatever its exit status) or broke the protocol. meson's JUnit file is not used, because it leaves out
exactly those programs.

A case of Check cannot skip while it runs. One that passes without having judged anything prints a line "# SKIP REASON", and counts as
skipped.

meson's arguments are compared with the names and suites that there are, which meson does not do where other tests run.

Programs that failed run again, alone, unless KVSCOUT_ALONE=no: see again.py.

The file that KVSCOUT_EXPECTED names lists cases that cannot work where this run was made (an emulator): PROGRAM CASE REASON on each
line. Such a case, when it fails, is printed with its reason and counted as skipped.
"""

import difflib
import fnmatch
import glob
import json
import os
import re
import sys
import textwrap

import again

CASE = re.compile(r"^(not )?ok\b\s*(\d*)\s*(?:- )?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")
# Check: "FILE:TCASE:CASE: what failed".
CASE_NAME = re.compile(r"[^\s:]+:[^\s:]+:(\w+):")
SKIPPED = re.compile(r"^# SKIP (.+)$", re.MULTILINE)
DIRECTIVE = re.compile(r"#\s*(?:SKIP|TODO)\b\s*(.*)$", re.IGNORECASE)
# Options of `meson test` whose value is the next argument.
VALUED = ("-C", "-j", "-t", "--gdb-path", "--logbase", "--maxfail", "--num-processes", "--repeat", "--setup", "--test-args",
          "--timeout-multiplier", "--wrapper")
# The results of meson that mean "as it should be", and those that mean "not run".
GOOD = ("OK", "EXPECTEDFAIL")
NOT_RUN = ("SKIP", "IGNORED")
SLOWEST = 10
NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Totals:
    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.reasons = {}  # of skips: how many, and the first in its own words; by the words without numbers
        self.failures = []
        self.expected = expected_failures()
        self.excused = 0

    def skip(self, reason):
        self.skipped += 1
        reason = reason.strip() or "no reason is given"
        n, words = self.reasons.get(NUMBER.sub("", reason), (0, reason))
        self.reasons[NUMBER.sub("", reason)] = (n + 1, words)

    def fail(self, program, what):
        case = CASE_NAME.match(what)
        reason = self.expected.get((short(program), case.group(1))) if case else None
        if reason:
            print(f"SKIPPED {program} {case.group(1)}: {reason}")
            self.skip(reason)
            self.excused += 1
        else:
            self.failures.append((program, what))

    def skip_passed(self, program, reasons):
        """Cases that passed, and said that they judged nothing."""
        self.passed -= len(reasons)
        for reason in reasons:
            self.skip(reason)
            print(f"SKIPPED {program}: {reason}")


def short(program):
    """meson writes "project:suite / name", a newer one "suite - project:name"; the name itself may hold the separator."""
    return re.split(r" / | - [^:]*:", program, maxsplit=1)[-1]


def expected_failures():
    expected = {}
    path = os.environ.get("KVSCOUT_EXPECTED")
    if path:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    program, case, reason = line.split(maxsplit=2)
                    expected[program, case] = reason.strip()
    return expected


def known_tests(build_dir):
    """What meson knows of the tests; empty if it cannot say."""
    try:
        with open(os.path.join(build_dir, "meson-info", "intro-tests.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return []


def asked_for(args):
    """The names of tests and of suites in the arguments of `meson test`, and the other arguments."""
    tests, suites, others = [], [], []
    args = iter(args)
    for arg in args:
        option, equals, value = arg.partition("=")
        if option in ("--suite", "--no-suite"):
            suites.append(value if equals else next(args, ""))
        elif option in VALUED and not equals:
            others += [arg, next(args, "")]
        elif arg.startswith("-"):
            others.append(arg)
        else:
            tests.append(arg)
    return tests, suites, others


def check_names(tests, args, ran, totals):
    """Each name that was asked for must be there, also beside others that are: a misspelt test must not count as run."""
    names = sorted({test["name"] for test in tests})
    suites = sorted({suite.split(":")[-1] for test in tests for suite in test["suite"]})
    if not tests:
        return
    if not ran:
        print("\nNo test ran. Suites:", *suites)
        print(textwrap.fill("Tests: " + " ".join(names), 120, subsequent_indent="  ", break_on_hyphens=False))
    asked, asked_suites, _ = asked_for(args)
    unknown = [("test", name) for name in asked if not fnmatch.filter(names, name.split(":")[-1] or "*")]
    unknown += [("suite", name) for name in asked_suites if name.split(":")[-1] not in suites]
    for kind, name in unknown:
        near = [known for known in suites + names if name in known] or difflib.get_close_matches(name, suites + names)
        totals.fail("meson test", f"there is no {kind} {name}" + (f"; like it: {' '.join(near[:5])}" if near else ""))
    if not ran and not totals.failures:
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
        totals.skip(((run.get("stdout") or "").strip().splitlines() or [""])[-1])
    else:
        totals.fail(run["name"], f"{run['result'].lower()}, {how_it_ended(run)}")


def count_tap(run, totals):
    program = run["name"]
    before = len(totals.failures) + totals.excused
    passed = totals.passed
    plan = None
    why = ""
    cases = 0
    for line in (run.get("stdout") or "").splitlines():
        if match := PLAN.match(line):
            plan = int(match.group(1))
            directive = DIRECTIVE.search(line)
            why = directive.group(1) if directive else ""
            continue
        match = CASE.match(line)
        if not match:
            continue
        cases += 1
        directive = DIRECTIVE.search(line)
        if directive:
            totals.skip(directive.group(1))
        elif match.group(1):
            totals.fail(program, match.group(3) or f"case {cases}")
        else:
            totals.passed += 1
    named = len(totals.failures) + totals.excused > before
    crashed = isinstance(run.get("returncode"), int) and run["returncode"] < 0
    if plan == 0 and cases == 0 and run["result"] in NOT_RUN:
        totals.skip(why)
    elif run["result"] == "TIMEOUT" or crashed:
        totals.fail(program, f"{how_it_ended(run)} after {cases} cases")
    elif plan is None:
        totals.fail(program, f"no TAP plan after {cases} cases, {how_it_ended(run)}")
    elif plan != cases:
        totals.fail(program, f"{plan} cases planned, {cases} reported")
    elif run["result"] not in GOOD + NOT_RUN and not named:
        totals.fail(program, f"{run['result'].lower()}, {how_it_ended(run)}")
    skipped = SKIPPED.findall(run.get("stdout") or "")
    if len(skipped) <= totals.passed - passed:
        totals.skip_passed(program, skipped)
    elif len(totals.failures) + totals.excused == before:
        totals.fail(program, f"{len(skipped)} lines of # SKIP for {totals.passed - passed} passed cases")


def print_slowest(durations):
    if len(durations) > 1:
        print("\nThe slowest programs:")
        for program, seconds in sorted(durations.items(), key=lambda item: -item[1])[:SLOWEST]:
            print(f"{seconds:8.1f} s  {program}")


def print_reasons(reasons):
    if reasons:
        print("\nSkipped, and why:")
        for n, words in sorted(reasons.values(), key=lambda reason: -reason[0]):
            print(f"{n:8}  {words}")


def print_failures(build_dir, args, totals):
    """Each failure, how often its program fails alone, and how to run these programs again."""
    options = asked_for(args)[2]
    programs = list(dict.fromkeys(short(program) for program, _ in totals.failures if program != "meson test"))
    alone = {} if os.environ.get("KVSCOUT_ALONE") == "no" else again.run_alone(build_dir, options, programs)
    for program, what in totals.failures:
        text = alone.get(short(program))
        print(f"FAILED {program}: {what}" + (f"; alone: {text}" if text else ""))
    if programs:
        run = "./dev test" if os.path.basename(build_dir) == "build" else f"meson test -C {build_dir}"
        print("To run those that failed:", run, *programs)


def main():
    build_dir, meson_status = sys.argv[1], int(sys.argv[2])
    tests = known_tests(build_dir)
    speaks_tap = {test["name"] for test in tests if test.get("protocol") == "tap"}
    totals = Totals()
    durations = {}
    for path in sorted(glob.glob(os.path.join(build_dir, "meson-logs", "testlog*.json"))):
        with open(path, encoding="utf-8") as file:
            for line in filter(str.strip, file):  # a newer meson ends with an empty line
                run = json.loads(line)
                name = run["name"]
                durations[name] = max(durations.get(name, 0), run.get("duration", 0))
                if short(name) in speaks_tap:
                    count_tap(run, totals)
                else:
                    count_exit(run, totals)
    check_names(tests, sys.argv[3:], bool(durations), totals)
    if not durations and not totals.failures:
        totals.fail("meson test", "no test ran")
    if meson_status != 0 and not totals.failures and not totals.excused:
        totals.fail("meson test", f"exit status {meson_status} without a failed test")
    print_slowest(durations)
    print_reasons(totals.reasons)
    print()
    print_failures(build_dir, sys.argv[3:], totals)
    print(f"{totals.passed} passed, {len(totals.failures)} failed, {totals.skipped} skipped")
    sys.exit(1 if totals.failures or not totals.passed else 0)


if __name__ == "__main__":
    main()
