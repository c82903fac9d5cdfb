# SPDX-License-Identifier: Apache-2.0
"""Run programs that failed once more, alone and several times: what fails always is told from what fails by chance.

A program stays failed, however often it passes here. All of these runs together take at most LIMIT_S.
"""

import os
import shlex
import subprocess
import time

RUNS = 20
PROGRAMS = 10
LIMIT_S = 600


def run_once(command, limit_s):
    """Whether the command failed; None: it did not end in time."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return process.wait(max(limit_s, 0)) != 0
        except subprocess.TimeoutExpired:
            process.terminate()  # meson ends the program that it runs
            return None


def count(run, limit_s, clock=time.monotonic):
    """(failed, runs) of at most RUNS calls of run(seconds left), the last of which begins so that it probably ends in time."""
    begin = clock()
    failed = runs = 0
    longest = 0.0
    while runs < RUNS and clock() - begin + longest <= limit_s:
        started = clock()
        result = run(limit_s - (started - begin))
        if result is None:
            break
        longest = max(longest, clock() - started)
        runs += 1
        failed += result
    return failed, runs


def run_alone(build_dir, options, programs):
    """{program: how many of its runs failed}, for the first PROGRAMS ones."""
    meson = shlex.split(os.environ.get("KVSCOUT_RUN_UNDER", "")) + ["meson", "test", "-C", build_dir, "--no-rebuild", "--logbase", "again"]
    end = time.monotonic() + LIMIT_S
    texts = {}
    programs = programs[:PROGRAMS]
    for i, program in enumerate(programs):
        print(f"running {program} alone", end=": ", flush=True)
        share_s = (end - time.monotonic()) / (len(programs) - i)
        command = [*meson, *options, program]
        failed, runs = count(lambda left_s, command=command: run_once(command, left_s), share_s)
        texts[program] = f"{failed} of {runs} runs failed" if runs else f"one run did not end within {share_s:.0f} s"
        print(texts[program], flush=True)
    return texts
