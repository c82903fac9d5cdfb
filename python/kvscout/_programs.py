# SPDX-License-Identifier: Apache-2.0
"""Console scripts: each executes the program of the same name, which lies next to this file."""

import os
import sys
from typing import NoReturn


def _become(name: str) -> NoReturn:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {program} ({error.strerror}); is the package kvscout installed from its wheel?")


def kvscout() -> NoReturn:
    _become("kvscout")


def kvscoutd() -> NoReturn:
    _become("kvscoutd")


def kvscout_latency() -> NoReturn:
    _become("kvscout-latency")


def kvscout_replay() -> NoReturn:
    _become("kvscout-replay")
