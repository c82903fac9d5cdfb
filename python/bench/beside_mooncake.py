#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lookup alone, through Python, beside the lookup client of vLLM's Mooncake store connector, by turns.

    meson setup build-release --buildtype=release && ninja -C build-release
    build-engine/venv/bin/python python/bench/beside_mooncake.py build-release

It runs where vLLM can be imported. Ours: kvscout.Client, kvscoutd with all chunks in its index. Theirs: vLLM's own
LookupKeyClient and LookupKeyServer in another process, in front of a store that answers at once (the real one asks
Mooncake's master), so it is their best case. 64 requests of 256 hashes of 32 bytes wait, and a step takes 1 ms.

submit    the first call for a request, per call, in a loop over all of them: from a list of bytes, and from one buffer
          (ours only)
pending   a further call while the server does not answer (it is stopped), per call, in a loop over all of them in each
          step
alone     microseconds until a caller that waits has the answer to its only request
queue     microseconds until the answer to one of 64 that were submitted together is seen, polled each 50 us

Each round measures each line of both sides once. Shown: the median of the rounds' medians, the least and the largest,
and the median of the ratios of each round. With --check the exit status is 1 where a limit is passed: pending and alone
at most a fifth of theirs, submit 2.5 us from a list and 1.3 us from a buffer.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

WAITING = 64
HASHES = 256
BLOCK_TOKENS = 16
PROMPT = HASHES * BLOCK_TOKENS + 1
STEP_S = 0.001
PENDING_S = 0.12  # a server that is stopped for longer is asked whether it lives
ALONE = 200
NOW = time.perf_counter_ns


def chunk_hashes():
    return [hashlib.sha256(b"beside %d" % i).digest() for i in range(HASHES)]


def per_call_us(begin):
    return (NOW() - begin) / WAITING / 1000


def sleep_until(end_s):
    left = end_s - time.perf_counter()
    if left > 0:
        time.sleep(left)


def alive(process):
    if process.poll() is not None:
        raise SystemExit(f"a server ended with status {process.returncode}")


def kill(process):
    process.kill()
    process.wait()


class Ours:
    def __init__(self, ends):
        """@ends: an ExitStack, which closes what was begun, also where a later part fails."""
        import kvscout

        from rig import ServerProcess

        server = ServerProcess()
        ends.callback(server.stop)
        self.process = server.process
        common = {"endpoint": server.endpoint, "namespace": "beside", "chunk_tokens": BLOCK_TOKENS}
        self.hashes = chunk_hashes()
        self.buffer = b"".join(self.hashes)
        worker = kvscout.Worker(**common)
        ends.callback(worker.close)
        self._fill(worker)
        self.client = kvscout.Client(**common, lookup_timeout_ms=60000, lookup_refresh_ms=3600000)
        ends.callback(self.client.close)
        self.client.wait_ready(20000)

    def _fill(self, worker):
        """All chunks, of 64 bytes each."""
        self.pages = bytearray(64 * HASHES)
        worker.register([self.pages], BLOCK_TOKENS, n_blocks=HASHES, timeout_ms=20000)
        job = worker.store(0, self.hashes, list(range(HASHES)))
        until = time.monotonic() + 20
        while not any(done.job == job and done.ok for done in worker.poll()):
            if time.monotonic() > until:
                raise SystemExit("the chunks could not be stored")
            time.sleep(0.001)

    def submit(self, names, hashes=None):
        ask, hashes = self.client.try_lookup, hashes or self.hashes
        self.client.step_begin()
        begin = NOW()
        for name in names:
            ask(name, hashes, PROMPT)
        took = per_call_us(begin)
        self.client.step_end()
        return took

    def look(self, name):
        """The answer, or None."""
        hit = self.client.poll(name)
        if hit is not None and hit.chunks != HASHES:
            raise SystemExit(f"a lookup was answered with {hit}")
        return hit

    def sweep_us(self, names):
        poll = self.client.poll
        begin = NOW()
        for name in names:
            poll(name)
        return per_call_us(begin)

    def alone_us(self, name):
        begin = NOW()
        self.client.wait_lookup(name, self.hashes, PROMPT)
        took = NOW() - begin
        self.client.finish(name)
        return took / 1000

    def forget(self, names):
        for name in names:
            self.client.finish(name)


def theirs_config():
    """What LookupKeyClient and LookupKeyServer read of vLLM's configuration."""
    transfer = SimpleNamespace(kv_connector_extra_config={})
    return SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0), kv_transfer_config=transfer)


def their_worker():
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import worker

    return worker


def serve_theirs():
    """The process of vLLM's worker: their server, until stdin ends."""
    worker = their_worker()
    store = SimpleNamespace(lookup=lambda num_tokens, hashes: worker.MooncakeLookupResult(HASHES * BLOCK_TOKENS))
    worker.LookupKeyServer(store, theirs_config())
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)  # their thread waits in a socket for ever


class Theirs:
    def __init__(self, folder, ends):
        os.environ["VLLM_RPC_BASE_PATH"] = folder
        command = [sys.executable, os.path.abspath(__file__), "--serve-theirs"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ends.callback(kill, self.process)
        while (line := self.process.stdout.readline()) != "ready\n":
            if not line:
                raise SystemExit("their server did not start")
        self.client = their_worker().LookupKeyClient(theirs_config())
        ends.callback(self.client.close)
        self.hashes = chunk_hashes()

    def submit(self, names, hashes=None):
        ask, hashes = self.client.lookup, hashes or self.hashes
        begin = NOW()
        for name in names:
            ask(name, PROMPT, hashes, non_block=True)
        return per_call_us(begin)

    def look(self, name):
        found = self.client.lookup(name, PROMPT, self.hashes, non_block=True)
        if found is not None and found.hit_length != HASHES * BLOCK_TOKENS:
            raise SystemExit(f"their lookup was answered with {found}")
        return found

    def sweep_us(self, names):
        ask, hashes = self.client.lookup, self.hashes
        begin = NOW()
        for name in names:
            ask(name, PROMPT, hashes, non_block=True)
        return per_call_us(begin)

    def alone_us(self, name):
        begin = NOW()
        self.client.lookup(name, PROMPT, self.hashes)
        return (NOW() - begin) / 1000

    def forget(self, names):
        for name in names:
            self.client.discard(name)


def answered_us(side, names):
    """Microseconds until each is seen."""
    begin = time.perf_counter()
    waiting, seen = list(names), []
    while waiting:
        still = []
        for name in waiting:
            if side.look(name) is None:
                still.append(name)
            else:
                seen.append((time.perf_counter() - begin) * 1e6)
        waiting = still
        if waiting:
            alive(side.process)
            time.sleep(50e-6)
    return seen


def pending_us(side, names):
    """All wait and the server is stopped: each step looks at all of them."""
    side.process.send_signal(signal.SIGSTOP)
    try:
        side.submit(names)
        end = time.perf_counter() + PENDING_S
        sweeps = []
        while (now := time.perf_counter()) < end:
            sweeps.append(side.sweep_us(names))
            sleep_until(now + STEP_S)
    finally:
        side.process.send_signal(signal.SIGCONT)
    return sweeps


def round_of(side, number):
    """Medians, by line."""
    tag = f"request-{number}"
    found = {"submit, list": [], "queue": []}
    for turn in range(10):
        names = [f"{tag}-{turn}-{i}" for i in range(WAITING)]
        found["submit, list"].append(side.submit(names))
        found["queue"] += answered_us(side, names)
        side.forget(names)
    if isinstance(side, Ours):
        found["submit, buffer"] = []
        for turn in range(10):
            names = [f"{tag}-b{turn}-{i}" for i in range(WAITING)]
            found["submit, buffer"].append(side.submit(names, side.buffer))
            answered_us(side, names)
            side.forget(names)
    names = [f"{tag}-p-{i}" for i in range(WAITING)]
    found["pending"] = pending_us(side, names)
    answered_us(side, names)
    side.forget(names)
    found["alone"] = [side.alone_us(f"{tag}-a-{i}") for i in range(ALONE)]
    return {line: statistics.median(values) for line, values in found.items()}


LINES = ("submit, list", "submit, buffer", "pending", "alone", "queue")


def shown(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})" if values else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", help="build folder of meson; for figures that count, of buildtype release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is passed")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve-theirs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_theirs:
        serve_theirs()
    if not options.build:
        parser.error("which build folder?")
    build = os.path.abspath(options.build)
    sys.path[:0] = [os.path.join(build, "python"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests")]
    os.environ["KVSCOUTD"] = os.path.join(build, "libserver", "daemon", "kvscoutd")
    try:
        import vllm
    except ImportError:
        print("vLLM cannot be imported here. ./dev engine --install makes build-engine/venv, whose python can")
        return 77
    figures = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.ExitStack() as ends:
            sides = {"ours": Ours(ends), "theirs": Theirs(folder, ends)}
            for side in sides.values():
                round_of(side, "warm")
            for number in range(options.rounds):
                for name in sorted(sides, reverse=number % 2 == 1):
                    figures[name].append(round_of(sides[name], number))
    print(f"Python {sys.version.split()[0]}, vLLM {vllm.__version__}, {options.rounds} rounds; microseconds\n")
    print("| | kvscout | vLLM's Mooncake lookup client | theirs / ours |\n|---|---|---|---|")
    ratios = {}
    for line in LINES:
        ours, theirs = ([found[line] for found in figures[name] if line in found] for name in ("ours", "theirs"))
        ratios[line] = statistics.median(b / a for a, b in zip(ours, theirs)) if theirs else None
        ratio = "" if ratios[line] is None else format(ratios[line], ".1f")
        print(f"| {line} | {shown(ours)} | {shown(theirs)} | {ratio} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"python": sys.version, "vllm": vllm.__version__, "rounds": figures}, file)
    ours = {line: statistics.median(found[line] for found in figures["ours"]) for line in LINES}
    holds = ratios["pending"] >= 5 and ratios["alone"] >= 5
    holds &= ours["submit, list"] <= 2.5 and ours["submit, buffer"] <= 1.3
    return 0 if holds or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
