#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py and run-bench of bench/scripts without measuring: statistics against known values, what they say, what they refuse.

TAP. usage: test_tools_bench_scripts.py SCRIPTS_FOLDER
"""

import copy
import json
import math
import os
import random
import subprocess
import sys
import tempfile

BENCH = sys.argv[1]
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True
import compare  # pylint: disable=wrong-import-position

CASES = []


def case(function):
    CASES.append(function)
    return function


def hist(p50, p99=None):
    return {"n": 100, "min": 1, "p50": p50, "p90": p50, "p99": p99 or p50, "p999": p50, "max": p50}


def latency_result(p50, **more):
    """What kvscout-latency --json writes, as far as anybody here reads it."""
    return {"modes": {"sync": {"rtt_ns": hist(p50)}}, "round_p50": {"sync": {"rtt_ns": [p50] * 3}},
            "options": {"chunks": 256, "endpoint": None}, "failure": None, "interrupted": False,
            "environment": {"build_type": "release", "cpu": "some", "slow_build": False}, **more}


def run(*arguments, tool="compare.py"):
    done = subprocess.run([sys.executable, os.path.join(BENCH, tool), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def compare_runs(before, after):
    """Each of them is a list of results, in files of their own."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for i, result in enumerate(before + after):
            names.append(f"{folder}/{i}.json")
            with open(names[-1], "w", encoding="utf-8") as file:
                json.dump(result, file)
        return run(*names[:len(before)], "--with", *names[len(before):])


def line_of(out, start):
    return next(line for line in out.splitlines() if line.startswith(start))


@case
def limits_are_those_of_the_published_tables():
    """Two-sided 5 % critical values of U; the rank of the limit is the next one."""
    table = {(4, 4): 0, (5, 5): 2, (5, 8): 6, (6, 6): 5, (7, 9): 12, (8, 8): 13, (10, 10): 23, (12, 15): 49, (20, 20): 127}
    for (n, m), critical in table.items():
        assert compare.limit_rank(n, m) == compare.limit_rank(m, n) == critical + 1, (n, m, compare.limit_rank(n, m))
    for n, m in ((1, 1), (2, 2), (3, 3), (1, 30), (3, 4)):
        assert compare.limit_rank(n, m) == 0, (n, m)


@case
def the_distribution_is_complete_and_meets_the_normal_one():
    for n, m in ((4, 7), (10, 10)):
        counts = compare.ways(n, m, {})
        assert sum(counts) == math.comb(n + m, n) and counts == counts[::-1] and len(counts) == n * m + 1
    exact, compare.EXACT_PAIRS = compare.EXACT_PAIRS, 0
    try:
        assert abs(compare.limit_rank(20, 20) - 128) <= 1, compare.limit_rank(20, 20)
    finally:
        compare.EXACT_PAIRS = exact


@case
def an_effect_is_what_it_is_by_hand():
    # 16 quotients: 0.5 2/3 1 1 4/3 1.5 2 2 2 2 ... 4 4 6 8; of four and four the extremes are the limits.
    assert compare.effect([1, 2, 3, 4], [2, 4, 6, 8]) == (2.0, (0.5, 8.0))
    # Of five and five the third from either end: 10/12 10/11 | 10/10 ... 12/10 | 13/10 14/10, sorted.
    quotients = sorted(b / a for a in (8, 9, 10, 11, 12) for b in (10, 11, 12, 13, 14))
    assert compare.effect([8, 9, 10, 11, 12], [10, 11, 12, 13, 14]) == (quotients[12], (quotients[2], quotients[-3]))


@case
def the_interval_holds_the_truth_as_often_as_it_says():
    rng, held, trials = random.Random(1), 0, 1000
    for _ in range(trials):
        before = [rng.lognormvariate(0, 0.3) for _ in range(6)]
        after = [1.5 * rng.lognormvariate(0, 0.3) for _ in range(6)]
        low, high = compare.effect(before, after)[1]
        held += low <= 1.5 <= high
    assert held >= 0.93 * trials, held


@case
def the_same_files_twice_are_no_difference():
    runs = [latency_result(p50) for p50 in (90, 100, 110, 105)]
    status, out, err = compare_runs(runs, copy.deepcopy(runs))
    assert status == 0 and not err, err
    assert line_of(out, "sync rtt_ns p50").endswith("no difference"), out
    assert "2 metrics: 2 no difference; of 2, 0.1 would differ by chance alone" in out, out


@case
def twice_as_slow_is_higher_and_the_other_way_lower():
    slow, fast = [latency_result(p50) for p50 in (200, 210, 190, 205)], [latency_result(p50) for p50 in (100, 105, 95, 99)]
    assert line_of(compare_runs(fast, slow)[1], "sync rtt_ns p50").endswith("higher")
    assert line_of(compare_runs(slow, fast)[1], "sync rtt_ns p50").endswith("lower")


@case
def three_files_are_too_few_to_say_anything():
    out = compare_runs([latency_result(100)] * 3, [latency_result(200)] * 3)[1]
    assert line_of(out, "sync rtt_ns p50").split()[-4:] == ["2.000", "too", "few", "runs"], out


@case
def rounds_of_one_run_are_marked_and_empty_ones_left_out():
    one = latency_result(100, round_p50={"sync": {"rtt_ns": [90, None, 100, 110, 95, 105]}})
    out = compare_runs([one], [one])[1]
    assert line_of(out, "sync rtt_ns p50").endswith("no difference (one run)"), out


@case
def what_was_not_measured_alike_is_warned_of():
    other = latency_result(100, options={"chunks": 16, "endpoint": "tcp://a:1"})
    other["environment"]["build_type"] = "debug"
    other["environment"]["slow_build"] = True
    status, _out, err = compare_runs([latency_result(100)], [other])
    assert status == 0
    assert "--chunks is 256 in" in err and ", and 16 in" in err and "build_type is release in" in err, err
    assert "debug or sanitizer build" in err and "endpoint" not in err, err
    assert "ended early" in compare_runs([latency_result(100)], [latency_result(100, interrupted=True)])[2]
    assert "ended early" in compare_runs([latency_result(100)], [latency_result(100, failure="died")])[2]


@case
def what_only_one_side_has_is_named():
    out = compare_runs([latency_result(100)], [{"modes": {"async": {"seen_ns": hist(5)}}}])[1]
    assert "only before: sync rtt_ns p50" in out and "only after: async seen_ns p50" in out, out


@case
def results_of_run_bench_are_taken_too():
    top = {"results": {"latency": latency_result(100), "calls": {"pending": {"p50": 30}}}}
    out = compare_runs([top] * 4, [top] * 4)[1]
    assert line_of(out, "latency: sync rtt_ns p50") and line_of(out, "calls: pending p50").endswith("no difference"), out


@case
def what_is_no_result_is_named():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("text", "hello"), ("other", "{}"), ("list", "[1]"), ("odd", '{"modes": {"a": 1}}')):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
            status, out, err = run(f"{folder}/{name}", f"{folder}/{name}")
            assert status == 1 and f"{folder}/{name}: " in err and "Traceback" not in err and not out, (name, err)
        assert f"{folder}/none" in run(f"{folder}/none", f"{folder}/none")[2]
    assert run("one")[0] == 2


@case
def run_bench_looks_first_whether_it_can_write():
    status, out, err = run("--out", "/proc/none/here", "--only", "hashing", tool="run-bench")
    assert status == 1 and not out and "run-bench: --out /proc/none/here: " in err and "Traceback" not in err, err


@case
def run_bench_says_which_tool_does_not_run():
    with tempfile.TemporaryDirectory() as folder:
        status, _out, err = run("--out", folder, "--build", folder, "--only", "hashing", tool="run-bench")
        assert status == 1 and "nothing ran: hashing: " in err and "micro_hash" in err and "Traceback" not in err, err
        assert not os.listdir(folder)


@case
def run_bench_keeps_what_it_has_when_it_is_interrupted():
    """Two tools that print what they should; the second of them ends the script, as Ctrl-C would. There is no git."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/bench/micro")
        tools = {"micro_hash": 'echo "block 16: 5.0 ns/token (spread 1.0 %), floor 4.0 ns/token"', "micro_client": "kill -TERM $PPID",
                 "openssl": "exit 0"}
        for name, script in tools.items():
            with open(f"{folder}/bench/micro/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{script}\n")
            os.chmod(f"{folder}/bench/micro/{name}", 0o755)
        os.environ["PATH"] = f"{folder}/bench/micro"
        status, out, err = run("--out", f"{folder}/out", "--build", folder, "--only", "hashing", "--only", "calls",
                               tool="run-bench")
        assert status == 130 and "interrupted" in out and "sha256_cbor, block 16" in out, (status, out, err)
        (name,) = os.listdir(f"{folder}/out")
        assert name.startswith("unknown-"), name
        with open(f"{folder}/out/{name}", encoding="utf-8") as file:
            top = json.load(file)
        assert top["interrupted"] is True and top["results"]["hashing"]["block 16"]["ns_per_token"] == 5, top


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for i, function in enumerate(CASES, 1):
        try:
            function()
            print(f"ok {i} - {function.__name__}")
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {i} - {function.__name__}\n# {type(error).__name__}: {error}".replace("\n", "\n# ").replace("# #", "#"))
    sys.exit(failed > 0)


main()
