#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the unittest cases of one file and speak TAP, a line for each case.

usage: tap.py FILE.py [TEST...]     TEST as unittest names it: Class or Class.method

unittest, because it is in the standard library: the same tests run in the empty environment into which the wheel is installed.
A case that fails prints its traceback as comment lines.
"""

import importlib.util
import os
import sys
import unittest


class TapResult(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.bad_subtests = []

    def line(self, ok, test, directive=""):
        self.n += 1
        name = test.id().removeprefix("__main__.").split(".", 1)[-1]
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}{directive}", flush=True)

    def comment(self, text):
        for line in text.splitlines():
            print("# " + line, flush=True)

    def addSuccess(self, test):
        self.line(True, test)

    def addSkip(self, test, reason):
        self.line(True, test, f" # SKIP {reason}")

    def addError(self, test, err):
        super().addError(test, err)
        self.line(False, test)
        self.comment(self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(False, test)
        self.comment(self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:  # unittest reports no success and no failure for the test itself
            self.bad_subtests.append(subtest)
            self.line(False, subtest)
            self.comment("".join(text for _, text in (self.failures + self.errors)[-1:]))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.line(False, test, " unexpected success")

    def addExpectedFailure(self, test, err):
        self.line(True, test)


def main():
    path, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as skip:
        print(f"1..0 # SKIP {skip}")
        return 0
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = TapResult()
    suite.run(result)
    print(f"1..{result.n}", flush=True)
    return 0 if result.wasSuccessful() and result.n else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(status)
