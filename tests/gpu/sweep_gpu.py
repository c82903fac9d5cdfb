#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a worker's copies reach and cost on a GPU: sizes of pieces and slots, methods and stages, each alone and
beside a model's work in the same process. Every copy is a job of the wheel's worker, through a kvscoutd.

usage: sweep_gpu.py [--wheel FILE] [--budget-s N] [--out FOLDER] [--small] [PART...]

Parts, in the order of their worth: layouts floor auto pool kernels stage methods rest. Results are written as they come: sweep.jsonl has a line for
each point, sweep.md the tables. A process of its own measures; a point that hangs or crashes costs that point. --small: tiny sizes, for
the stand-in for the driver, on which there is no model. Part pool is whole slots in one DMA, and jobs of other sizes; huge pages are
reserved for it, and given back. KVSCOUT_WHEEL_DEVICE=cpu tries all of it with torch on a CPU.

A goal that is missed prints FAIL and is no failure of this program; a point that fails is."""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "rig"), os.path.join(HERE, "..", "..", "python", "tests")]

from sweep_copies import POOL, ROUNDS, Contiguous, Copies, make_memory, measure_alone, measure_beside  # noqa: E402
from sweep_plan import LOADS, MI, SMALL, USUAL, describe_point, plan  # noqa: E402
from sweep_report import goal_of, goal_table, judged, point_table, short  # noqa: E402
from wheel_gpu import SKIPPED, Skip, server, unpack  # noqa: E402

POINT_LIMIT_S = 90
CHILDREN = 5


# ---- the process that measures ---------------------------------------------------------------------------------------


class Measuring:
    def __init__(self, small):
        self.sizes, self.small = (SMALL if small else USUAL), small
        self.memory = make_memory(self.sizes)
        self.loads = {}

    def load(self, name):
        """(load, units of a round), or the sentence that says why there is none."""
        if name not in self.loads:
            self.loads[name] = self.memory.reason or self._make_load(name)
        return self.loads[name]

    def _make_load(self, name):
        try:
            import loads

            load, run = loads.make(name, self.memory.name, self.small), loads.run_of(self.memory.name)
        except ImportError as error:
            return str(error)
        run(load, 1).ms()
        units = 1
        for _ in range(2):  # the first window raises the clocks of an idle GPU
            units = max(1, round(self.sizes.window_ms / (run(load, units).ms() / units)))
        return load, units

    def layouts(self):
        """Attention alone, by turns, on both layouts of KV."""
        import_error = self.memory.reason
        found = [self.load(name) for name in ("attention", "attention of blocks")]
        for one in found:
            import_error = one if isinstance(one, str) else import_error
        if import_error:
            return {"status": "unavailable", "text": import_error}
        import loads

        run = loads.run_of(self.memory.name)
        times = [[run(load, units).ms() / units for load, units in found] for _ in range(2 * ROUNDS + 1)]
        engine, blocks = (statistics.median(values) for values in zip(*times))
        slower = statistics.median((blocks / engine - 1) * 100 for engine, blocks in times)
        return {"status": "measured", "engine_ms": engine, "blocks_ms": blocks, "slower": slower}

    def floor(self):
        """The loads beside contiguous copies."""
        if self.memory.reason:
            return {"status": "unavailable", "text": self.memory.reason}
        copies = Contiguous(self.memory)
        return {"status": "measured", "beside": {name: self.beside(copies, name) for name in LOADS}}

    def point(self, point, endpoint):
        copies = Copies(self.memory, self.sizes, endpoint, point)
        try:
            copies.fill()
            result = {"status": "measured", "slot_bytes": point.slot_bytes, "bytes": copies.bytes, "wrong_bytes": copies.verify()}
            result["alone"] = measure_alone(copies)
            result["beside"] = {name: self.beside(copies, name) for name in LOADS} if point.beside else {}
        finally:
            copies.close()
        return result

    def beside(self, copies, name):
        load = self.load(name)
        if isinstance(load, str):
            return {"unavailable": load}
        import loads

        return measure_beside(copies, load[0], loads.run_of(self.memory.name), load[1])


def measure(small, until, numbers, parts):
    """Lines of JSON on standard output: begin and result of each point, while there is time."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with its parent
    points, measuring = plan(parts, small), Measuring(small)
    say({"device": describe(measuring.memory)})
    at = 0
    while at < len(numbers) and time.time() < until:
        first = points[numbers[at]]
        if not first.piece:
            say({"begin": numbers[at]})
            say({"result": numbers[at], **(measuring.layouts() if first.part == "layouts" else measuring.floor())})
            at += 1
            continue
        l1_bytes = POOL * max(first.total or measuring.sizes.total, Copies.SETS * first.slot_bytes) + 64 * MI
        # What leaves the pool is what was not used for the longest time: stores run through it, what is loaded stays.
        with huge_pages(l1_bytes if first.huge else 0) as missing, server(l1_bytes=l1_bytes, prealloc="on", eviction="lru") as serving:
            if missing:
                say({"begin": numbers[at]})
                say({"result": numbers[at], "status": "unavailable", "text": missing})
                at += 1
                continue
            while at < len(numbers) and time.time() < until and points[numbers[at]].same_server(first):
                say({"begin": numbers[at]})
                say({"result": numbers[at], **measuring.point(points[numbers[at]], serving.endpoint)})
                at += 1


@contextlib.contextmanager
def huge_pages(n_bytes):
    """Reserves pages for a pool of so many bytes, with an eighth for what lies beside its slots. Yields why there are none, or None."""
    path, wanted, before = "/proc/sys/vm/nr_hugepages", -(-n_bytes * 9 // 8 // (2 * MI)), None
    try:
        if wanted:
            with open(path, encoding="ascii") as file:
                before = int(file.read())
            with open(path, "w", encoding="ascii") as file:
                file.write(str(before + wanted))
            with open(path, encoding="ascii") as file:
                got = int(file.read()) - before
            yield None if got >= wanted else f"the kernel reserves {got} of {wanted} huge pages"
        else:
            yield None
    finally:
        if before is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(str(before))


def describe(memory):
    if memory.name != "cuda":
        return memory.name
    return f"{memory.torch.cuda.get_device_name()}, torch {memory.torch.__version__}"


def say(message):
    print(json.dumps(message), flush=True)


# ---- the process that reports ----------------------------------------------------------------------------------------


class Report:
    def __init__(self, args, points):
        self.args, self.points = args, points
        self.results, self.device, self.note = {}, "", ""
        self.lines = open(os.path.join(args.out, "sweep.jsonl"), "w", encoding="utf-8")
        self.until = time.time() + args.budget_s

    def take(self, number, result):
        self.results[number] = result
        self.lines.write(json.dumps({"point": dataclasses.asdict(self.points[number]), **result}) + "\n")
        self.lines.flush()
        with open(os.path.join(self.args.out, "sweep.md"), "w", encoding="utf-8") as page:
            page.write("\n".join(self.page()) + "\n")
        print(f"{number + 1} of {len(self.points)}: {describe_point(self.points[number])}: {short(result)}", flush=True)

    def run(self):
        for _ in range(CHILDREN):
            left = [number for number in range(len(self.points)) if number not in self.results]
            if not left or time.time() >= self.until or not self.child(left):
                break

    def child(self, left):
        """One measuring process. Returns whether another is worth its start."""
        command = [sys.executable, __file__, "--measure", json.dumps([self.args.small, self.until, left, self.args.parts])]
        at, status, ends = None, None, ""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
            for message in lines_of(process, lambda: min(POINT_LIMIT_S, self.until + 15 - time.time())):
                if "begin" in message:
                    at = message["begin"]
                elif "result" in message:
                    self.take(message.pop("result"), message)
                    at = None
                else:
                    self.device = message["device"]
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                ends = f"nothing happened for {POINT_LIMIT_S} s"
            status = process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
        if status == SKIPPED:
            raise Skip(said[-1] if said else "the device cannot be used")
        if status == 0 or time.time() >= self.until:
            return False
        self.note = ends or (said[-1] if said else f"the measuring process ended with status {status}")
        if at is None:
            return False  # nor would the next one come to a point
        self.take(at, {"status": "failed", "text": self.note})
        return True

    def page(self):
        yield f"{time.strftime('%Y-%m-%d')}, {self.device}. Jobs of a worker; medians of {ROUNDS} rounds. {len(self.results)} of {len(self.points)} points."
        yield ""
        yield from goal_table(self.goals())
        for part in dict.fromkeys(point.part for point in self.points):
            rows = [(point, self.results[n]) for n, point in enumerate(self.points) if point.part == part and n in self.results]
            if rows and part != "layouts":
                yield from point_table(part, rows)

    def goals(self):
        """[name, verdict, worst as text]."""
        values, floor = {}, next((self.results.get(n) for n, point in enumerate(self.points) if point.part == "floor"), None)
        for number, point in enumerate(self.points):
            for name, value in judged(point, self.results.get(number), floor):
                values.setdefault(name, []).append((value, point))
        return [goal_of(name, found) for name, found in values.items()]

    def end(self):
        for name, verdict, text in self.goals():
            print(f"  {verdict:10} {name}: {text}")
        counts = [sum(verdict == which for _, verdict, _ in self.goals()) for which in ("PASS", "FAIL", "INCOMPLETE")]
        failed = [result for result in self.results.values() if result["status"] == "failed" or result.get("wrong_bytes")]
        missing = len(self.points) - len(self.results)
        print(f"{len(self.results) - len(failed)} points measured, {len(failed)} failed, {missing} not reached", end="")
        print(f": {self.note or 'the time was used up'}" if missing or failed else "")
        print("goals: {} passed, {} failed, {} incomplete".format(*counts), flush=True)
        return 1 if failed or not self.results else 0


def lines_of(process, patience):
    """Messages, until the process ends its output or says nothing for as long as patience() says."""
    selector, rest = selectors.DefaultSelector(), b""
    selector.register(process.stdout, selectors.EVENT_READ)
    while selector.select(max(0, patience())):
        read = os.read(process.stdout.fileno(), 65536)
        if not read:
            process.wait()
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from map(json.loads, lines)


def main():
    if sys.argv[1:2] == ["--measure"]:
        try:
            return measure(*json.loads(sys.argv[2]))
        except Skip as skip:
            print(skip, file=sys.stderr)
            return SKIPPED
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel")
    parser.add_argument("--budget-s", type=float, default=240)
    parser.add_argument("--out", default=".")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kvscout-sweep-") as folder:
        if args.wheel:
            unpack(args.wheel, folder)
        report = Report(args, plan(args.parts, args.small))
        try:
            report.run()
        except Skip as skip:
            print(f"SKIPPED, {skip}")
            return SKIPPED
        return report.end()


if __name__ == "__main__":
    sys.exit(main())
