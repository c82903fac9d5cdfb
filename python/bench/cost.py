#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of the Python client costs, beside an empty call of CPython's limited API and beside the C call.

    meson setup build-release --buildtype=release && ninja -C build-release
    python3 python/bench/cost.py build-release

Each figure is the median over turns, of the calling thread's own CPU time; in each turn every line is measured once, so that a slow
moment meets all of them. A line's "call" is the time of one turn of the same for loop, its own cost taken off; "C call" is the same call
in a loop in C; "over" is the difference of the two. With --check the exit status is 1 where a limit is passed: a poll of a pending
lookup 100 ns, and try_lookup of 64 hashes from a list 1000 ns over the C call.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time

HASHES = 64


def loop_ns(call, args, n):
    """Nanoseconds of one turn of a for loop that calls."""
    start = time.thread_time_ns()
    if len(args) == 1:
        (a,) = args
        for _ in itertools.repeat(None, n):
            call(a)
    elif len(args) == 3:
        a, b, c = args
        for _ in itertools.repeat(None, n):
            call(a, b, c)
    else:
        for _ in itertools.repeat(None, n):
            call()
    return (time.thread_time_ns() - start) / n


def bare_ns(n):
    start = time.thread_time_ns()
    for _ in itertools.repeat(None, n):
        pass
    return (time.thread_time_ns() - start) / n


def submit_ns(client, hashes, prompt, n):
    """A first ask and its finish."""
    total = 0
    ask, finish = client.try_lookup, client.finish
    for _ in range(n // 100):
        client.step_begin()
        start = time.thread_time_ns()
        for _ in itertools.repeat(None, 100):
            ask("request-1", hashes, prompt)
            finish("request-1")
        total += time.thread_time_ns() - start
        client.step_end()
        client.step_wait(1000)
    return total / (n // 100 * 100)


def lines(kvscout, cost, endpoint, n):
    """name: (of the call in Python, of the same call in C or None); each is a function that returns nanoseconds."""
    config = {"endpoint": endpoint, "namespace": "cost", "lookup_timeout_ms": 3600000}
    pending = kvscout.Client(**config)
    other = kvscout.Client(**config)
    for client in (pending, other):
        client.wait_ready(10000)
    blocks = [bytes((i * 7 + j) % 256 for j in range(32)) for i in range(16 * HASHES)]
    chunks = blocks[15::16]
    whole = b"".join(chunks)
    prompt = HASHES * 256 + 1
    pending.step_begin()  # until it ends nothing is sent, so nothing is answered
    pending.try_lookup("request-1", chunks, prompt)

    def in_c(what):
        return lambda: cost.c_call(endpoint, what, HASHES, n)

    return {
        "an empty call of one argument": (lambda: loop_ns(cost.empty, ("request-1",), n), None),
        "poll(id), pending": (lambda: loop_ns(pending.poll, ("request-1",), n), in_c("poll")),
        f"try_lookup(id, list of {HASHES}, prompt), pending":
            (lambda: loop_ns(pending.try_lookup, ("request-1", chunks, prompt), n), in_c("again")),
        f"try_lookup(id, bytes of {HASHES}, prompt), pending":
            (lambda: loop_ns(pending.try_lookup, ("request-1", whole, prompt), n), in_c("again")),
        f"try_lookup(id, list of {HASHES}, prompt) and finish(id), first ask":
            (lambda: submit_ns(other, chunks, prompt, n), in_c("submit")),
    }, (pending, other)


def measure(kvscout, cost, endpoint, turns, n):
    calls, clients = lines(kvscout, cost, endpoint, n)
    taken = {name: ([], []) for name in calls}
    for _ in range(turns):
        bare = bare_ns(n)
        for name, (python, c) in calls.items():
            taken[name][0].append(python() - bare)
            if c:
                taken[name][1].append(c())
    for client in clients:
        client.close()
    return {name: {"call": sorted(python), "c": sorted(c)} for name, (python, c) in taken.items()}


def row(name, figures):
    call = statistics.median(figures["call"])
    c = statistics.median(figures["c"]) if figures["c"] else None
    spread = f"{figures['call'][0]:.0f}..{figures['call'][-1]:.0f}"
    c_text, over = ("", "") if c is None else (f"{c:.0f}", f"{call - c:.0f}")
    print(f"| {name} | {call:.0f} | {spread} | {c_text} | {over} |")
    return call, c


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="build folder of meson; for figures that count, of buildtype release")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100000, help="in each turn and line")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is passed")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests")
    sys.path[:0] = [os.path.join(build, "python"), os.path.join(build, "python", "bench"), tests]
    os.environ["KVSCOUTD"] = os.path.join(build, "libserver", "daemon", "kvscoutd")
    import _cost
    import kvscout
    from rig import ServerProcess

    server = ServerProcess()
    figures = measure(kvscout, _cost, server.endpoint, options.turns, options.calls)
    server.stop()
    print(f"Python {sys.version.split()[0]}, {options.turns} turns of {options.calls} calls; nanoseconds of CPU time, medians\n")
    print("| call | ns | least..most | C call | over |\n|---|---|---|---|---|")
    medians = [row(name, each) for name, each in figures.items()]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"python": sys.version, "hashes": HASHES, "lines": figures}, file)
    if options.check:
        poll, again, first = medians[1], medians[2], medians[4]
        sys.exit(0 if poll[0] <= 100 and again[0] - again[1] <= 1000 and first[0] - first[1] <= 1000 else 1)


if __name__ == "__main__":
    main()
