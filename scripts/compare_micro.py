#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operation costs in two revisions: `scripts/compare_micro.py OLD NEW`, in a git checkout.

It builds the libraries of both, and one program for both: bench/micro/micro_ops.c of this working tree, which needs the
public interface of the libraries only. NEW may be "work": the files as they are here. Then

- by turns, old, new, old, new: CPU time of each thread for an operation, and the median of the ratios of neighbours;
- with --feed, NEW's client reads the feed of the server as well: `compare_micro.py work work --feed` says what it costs;
- with --instructions, each case once under valgrind's callgrind: instructions of the functions in FUNCTIONS for an
  operation, calls of theirs included. A loaded machine does not change them.

A ratio above 1 means that NEW is dearer. The exit status is 1 where one is above --limit.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The program, and what its command line is read with.
FOLDERS = ("bench/common", "tools/common", "libcommon/config", "libcommon/base")
SOURCES = (
    "bench/micro/micro_ops.c",
    "bench/common/thread_cpu.c",
    *(f"tools/common/{name}.c" for name in ("cli", "say")),
    "libcommon/config/option_parse.c",
    *(f"libcommon/base/{name}.c" for name in ("log", "mask", "secret", "utf8")),
)
CASES = ("miss", "half", "hit", "retrieve", "store", "evict")
# What a call of the scheduler or the engine costs its caller; the client's courier with an answer; the server's loop
# with an operation. The loop may divide one into steps, which its run queue carries out.
FUNCTIONS = {
    "submit": ("scout_try_lookup_sized",),
    "landed": ("scout__lookup_op_ended", "lookup_ended"),
    "server": (
        "scout__serve_lookup",
        "scout__serve_admit",
        "scout__serve_finish",
        "scout__serve_store",
        "scout__serve_store_done",
        "scout__serve_retrieve",
        "scout__serve_retrieve_done",
        "scout__serve_feed",
        "scout__run_queue_run",
        "scout__timers_run",
    ),
    "worker": ("scout_worker_store_sized", "scout_worker_retrieve_sized", "scout__courier_main"),
}
# valgrind 3.19 does not know pidfd_open(), without which no server starts. Nobody dies here, so any descriptor will do.
PIDFD = """
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
long syscall(long number, ...)
{
	long a[6];
	va_list args;
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_pidfd_open)
		return eventfd(0, EFD_CLOEXEC);
	return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""

# valgrind counts an instruction for each byte that a `rep movsb` copies.
NO_REP_MOVSB = f"glibc.cpu.x86_rep_movsb_threshold={1 << 30}"


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"compare_micro: {command[0]} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def source_of(revision, folder):
    """A folder with the files of @revision."""
    if revision == "work":
        return ROOT
    source = folder / "source"
    if not source.exists():
        source.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE)
        run(["tar", "x", "-C", source], stdin=archive.stdout)
        if archive.wait():
            shutil.rmtree(source)
            sys.exit(f"compare_micro: git has no revision {revision!r}")
    return source


def build(revision, folder):
    """The program, linked with the libraries of @revision."""
    name = revision if revision == "work" else run(["git", "-C", ROOT, "rev-parse", "--short", revision]).strip()
    source = source_of(name, folder / name)
    made = folder / name / "build"
    if not (made / "build.ninja").exists():
        run(["meson", "setup", made, source, "-Dtests=disabled", "-Dpython=disabled"])
    # Before the server had a library of its own, it was in the worker's.
    parts = [part for part in ("client", "worker", "server") if (source / f"lib{part}/kvscout-{part}.map").exists()]
    run(["meson", "compile", "-C", made, *(f"lib{part}/kvscout-{part}" for part in parts)])
    libraries = [made / f"lib{part}" for part in parts]
    program = folder / name / "micro_ops"
    run(
        ["cc", "-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-o", program]
        + [f"-I{path}" for path in (source / "include", made / "include", *(ROOT / folder for folder in FOLDERS))]
        + [ROOT / source for source in SOURCES]
        + [f"-L{path}" for path in libraries]
        + [f"-Wl,-rpath,{path}" for path in libraries]
        + [f"-lkvscout-{part}" for part in parts]
    )
    return program


# ---- CPU time, by turns ----------------------------------------------------------------------------------------------


def cpu_times(side, case, options):
    """Thread: ns for an operation."""
    words = run([*side, "--rounds", options.rounds, "--chunks", options.chunks, *options.more, "--case", case])
    return {name: float(ns) for name, ns in re.findall(r"(caller|scout-\w+) (\d+)", words)}


def by_turns(sides, options):
    worst = 0.0
    print(f"CPU time of an operation, {options.turns} turns, median: old, new, new / old")
    for case in options.cases:
        turns = [[cpu_times(side, case, options) for side in sides] for _ in range(options.turns)]
        for thread in turns[0][0]:
            old, new = (statistics.median(turn[side][thread] for turn in turns) for side in (0, 1))
            if old < options.least_ns:
                continue
            ratio = statistics.median(turn[1][thread] / turn[0][thread] for turn in turns if turn[0][thread])
            worst = max(worst, ratio)
            print(f"  {case:9} {thread:14} {old / 1000:9.2f} us {new / 1000:9.2f} us  {ratio:6.3f}", flush=True)
    return worst


# ---- instructions ----------------------------------------------------------------------------------------------------


def count(side, case, options, folder):
    """Instructions: {function: those of one operation}, those of the case's preparations taken off."""
    sums = []
    for rounds in (options.count_rounds, 2 * options.count_rounds):
        out = folder / f"callgrind.{case}.{rounds}"
        run(
            ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={out}", *side]
            + ["--rounds", rounds, "--chunks", options.chunks, *options.more, "--case", case],
            env={**os.environ, "LD_PRELOAD": str(folder.parent / "pidfd.so"), "GLIBC_TUNABLES": NO_REP_MOVSB},
        )
        words = run(["callgrind_annotate", "--threshold=100", "--inclusive=yes", "--auto=no", out])
        sums.append({name: 0 for names in FUNCTIONS.values() for name in names})
        for amount, name in re.findall(r"^\s*([\d,]+) .*:(\w+)(?: \[.*)?$", words, re.M):
            if name in sums[-1]:
                sums[-1][name] = max(sums[-1][name], int(amount.replace(",", "")))
    operations = options.count_rounds * 8
    return {name: (sums[1][name] - sums[0][name]) / operations for name in sums[0]}


def instructions(sides, options, folder):
    worst = 0.0
    (folder / "pidfd.c").write_text(PIDFD)
    run(["cc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", folder / "pidfd.so", folder / "pidfd.c"])
    print("Instructions of an operation: old, new, new / old")
    for case in options.cases:
        old, new = (count(side, case, options, side[0].parent) for side in sides)
        for part, names in FUNCTIONS.items():
            sums = [sum(side[name] for name in names) for side in (old, new)]
            if sums[0] < options.least_instructions:
                continue
            ratio = sums[1] / sums[0]
            worst = max(worst, ratio) if part != "worker" else worst
            print(f"  {case:9} {part:14} {sums[0]:9.0f}    {sums[1]:9.0f}     {ratio:6.3f}", flush=True)
            for name in names:
                if options.verbose and max(old[name], new[name]) >= options.least_instructions:
                    print(f"            {name:30} {old[name]:9.0f} {new[name]:9.0f}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="work", help="default: work, the files as they are here")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--instructions", action="store_true", help="count them instead, with valgrind")
    parser.add_argument("--verbose", action="store_true", help="with --instructions: each function")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=300, help="steps of 8 operations in a turn")
    parser.add_argument("--count-rounds", type=int, default=20, help="... under valgrind")
    parser.add_argument("--chunks", type=int, default=256)
    parser.add_argument("--eviction", help="the server's policy; default: its own")
    parser.add_argument("--feed", action="store_true", help="NEW's client reads the feed of the server")
    parser.add_argument("--limit", type=float, default=float("inf"), help="exit status 1 above this ratio")
    parser.add_argument("--folder", type=Path, default=ROOT / "build-compare", help="default: build-compare")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    if not set(options.cases) <= set(CASES):
        parser.error(f"--cases: {', '.join(sorted(set(options.cases) - set(CASES)))}; there are {', '.join(CASES)}")
    options.more = ["--eviction", options.eviction] if options.eviction else []
    options.least_ns, options.least_instructions = 300, 300
    options.folder.mkdir(parents=True, exist_ok=True)
    sides = [[build(revision, options.folder.resolve())] for revision in (options.old, options.new)]
    if options.feed:
        sides[1].append("--feed")
    worst = (instructions if options.instructions else by_turns)(
        sides, options, *([options.folder.resolve()] if options.instructions else [])
    )
    return 1 if worst > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
