#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Choose tests of a configured build folder, and the targets to build for them.

usage: chosen.py BUILD_DIR names|targets WORD...
       chosen.py BUILD_DIR needed MESON-ARGS...

A test is chosen by its suite (+SUITE), by the beginning of its name (WORD), and left out by a suite that comes after a dash (-SUITE).
`targets` are what the chosen tests run, and everything that is no test's own: the libraries and programs must build whoever is tested.
`needed` are the targets that `meson test MESON-ARGS` runs and starts; no line: all that the folder has.
"""

import fnmatch
import json
import os
import sys

from summary import asked_for


def load(build_dir, what):
    with open(os.path.join(build_dir, "meson-info", f"intro-{what}.json"), encoding="utf-8") as file:
        return json.load(file)


def is_chosen(test, words):
    suites = {suite.split(":")[-1] for suite in test["suite"]}
    if any(word[1:] in suites for word in words if word.startswith("-")):
        return False
    return any(word[1:] in suites if word.startswith("+") else test["name"].startswith(word) for word in words)


def targets_of(build_dir, tests, and_product):
    needed = {target for test in tests for target in test["depends"]}
    tree = os.path.join(os.path.realpath(build_dir), "tests") + os.sep
    files = []
    for target in load(build_dir, "targets"):
        names = [os.path.realpath(name) for name in target["filename"]]
        if target["id"] in needed or (and_product and target["build_by_default"] and not names[0].startswith(tree)):
            files += names
    return [os.path.relpath(name, os.path.realpath(build_dir)) for name in files]


def needed_by(build_dir, args):
    """A test that is given the build folder looks at everything in it; a setup may need more than its tests do."""
    names, suites, _ = asked_for(args)
    if not names and not suites or any(arg.startswith(("--no-suite", "--setup")) for arg in args):
        return []
    names = [name.split(":")[-1] or "*" for name in names]
    words = [] if names else ["+" + suite.split(":")[-1] for suite in suites]
    tests = [test for test in load(build_dir, "tests") if is_chosen(test, words) or any(fnmatch.fnmatch(test["name"], name) for name in names)]
    if any(os.path.realpath(word) == os.path.realpath(build_dir) for test in tests for word in test["cmd"]):
        return []
    # ninja without a target builds everything; build.ninja is up to date.
    return ["build.ninja"] + targets_of(build_dir, tests, False)


def main():
    build_dir, what, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    if what == "needed":
        print("\n".join(needed_by(build_dir, words)))
        return
    tests = [test for test in load(build_dir, "tests") if is_chosen(test, words)]
    if not tests:
        sys.exit(f"chosen.py: no test is chosen by {' '.join(words)}")
    print("\n".join([test["name"] for test in tests] if what == "names" else targets_of(build_dir, tests, True)))


if __name__ == "__main__":
    main()
