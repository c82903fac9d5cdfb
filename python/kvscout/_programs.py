# SPDX-License-Identifier: Apache-2.0
"""Console scripts: each executes the program of the same name, which lies next to this file."""

import os
import sys


def _become(name):
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {program} ({error.strerror}); is the package kvscout installed from its wheel?")


def kvscoutd():
    _become("kvscoutd")


def kvscout_latency():
    _become("kvscout-latency")


def kvscout_replay():
    _become("kvscout-replay")
