#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Choose tests of a configured build folder, and the targets to build for them.

usage: chosen.py BUILD_DIR names|targets WORD...

A test is chosen by its suite (+SUITE), by the beginning of its name (WORD), and left out by a suite that comes after a dash (-SUITE).
`targets` are what the chosen tests run, and everything that is no test's own: the libraries and programs must build whoever is tested.
"""

import json
import os
import sys


def load(build_dir, what):
    with open(os.path.join(build_dir, "meson-info", f"intro-{what}.json"), encoding="utf-8") as file:
        return json.load(file)


def is_chosen(test, words):
    suites = {suite.split(":")[-1] for suite in test["suite"]}
    if any(word[1:] in suites for word in words if word.startswith("-")):
        return False
    return any(word[1:] in suites if word.startswith("+") else test["name"].startswith(word) for word in words)


def targets_of(build_dir, tests):
    needed = {target for test in tests for target in test["depends"]}
    tree = os.path.join(os.path.realpath(build_dir), "tests") + os.sep
    files = []
    for target in load(build_dir, "targets"):
        names = [os.path.realpath(name) for name in target["filename"]]
        if target["id"] in needed or (target["build_by_default"] and not names[0].startswith(tree)):
            files += names
    return [os.path.relpath(name, os.path.realpath(build_dir)) for name in files]


def main():
    build_dir, what, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    tests = [test for test in load(build_dir, "tests") if is_chosen(test, words)]
    if not tests:
        sys.exit(f"chosen.py: no test is chosen by {' '.join(words)}")
    print("\n".join([test["name"] for test in tests] if what == "names" else targets_of(build_dir, tests)))


if __name__ == "__main__":
    main()
