#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What inference engines written in Python do for cached-prefix lookups, as a baseline for kvscout-latency.

The mechanism is the one that vLLM's Mooncake store connector documents (vllm-project/vllm pull request 45659, "Async
lookup to reduce scheduler overhead"): a REQ socket of pyzmq behind a lock, used by one background thread; the scheduler
submits a lookup the first time it sees a request, keeps the future, and asks it once per step whether it is done. The
answering side is one REP thread in another process, as the worker's lookup server is.

It is kind to that mechanism: the hashes travel as one joined byte string instead of a serialised list, and the server
looks for them in a set of its own memory instead of asking another service.

Standalone it prints JSON; with --serve it takes "run N" lines on standard input and writes each sample as a line (see
bench/latency/lat_peer.c).
"""

import argparse
import json
import os
import random
import struct
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import zmq

HASH_BYTES = 32
PROMPTS_MAX = 64
KEYS_AUTO = 65536
METRICS = ("submit_ns", "pending_ns", "seen_ns", "service_ns", "stall_ns_per_step", "rtt_ns")
now_ns = time.perf_counter_ns


def make_prompts(chunks, hit_ratio):
    """Lists of hashes, and how many leading ones of each list are cached."""
    n = max(1, min(PROMPTS_MAX, KEYS_AUTO // chunks))
    prompts = [[os.urandom(HASH_BYTES) for _ in range(chunks)] for _ in range(n)]
    truth = []
    for p in range(n):
        due = int(hit_ratio * (p + 1) * chunks + 1e-6)
        truth.append(min(chunks, due - sum(truth)))
    return prompts, truth


def serve(endpoint, cached, delay_s, parent):
    """The worker's side: one thread that answers one question after the other."""
    socket = zmq.Context().socket(zmq.REP)
    socket.setsockopt(zmq.RCVTIMEO, 1000)
    socket.bind(endpoint)
    while True:
        try:
            count, blob = socket.recv_multipart()
        except zmq.Again:
            if os.getppid() != parent:
                return  # killed: no goodbye comes
            continue
        if not blob and struct.unpack("<Q", count)[0] == 0:
            socket.send(b"")
            return
        if delay_s:
            time.sleep(delay_s)
        hit = 0
        for at in range(0, len(blob), HASH_BYTES):
            if blob[at : at + HASH_BYTES] not in cached:
                break
            hit += 1
        socket.send(struct.pack("<Q", hit))


class LookupClient:
    """The scheduler's side."""

    def __init__(self, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.REQ)
        self.socket.connect(endpoint)
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.futures = {}
        self.rtts = []

    def _round_trip(self, hashes):
        start = now_ns()
        with self.lock:
            self.socket.send_multipart((struct.pack("<Q", len(hashes)), b"".join(hashes)))
            hit = struct.unpack("<Q", self.socket.recv())[0]
        self.rtts.append(now_ns() - start)
        return hit

    def get_or_submit(self, request, hashes):
        """The number of cached chunks, or None: ask again in the next step."""
        future = self.futures.get(request)
        if future is None:
            self.futures[request] = self.pool.submit(self._round_trip, hashes)
            return None
        if not future.done():
            return None
        del self.futures[request]
        return future.result()

    def close(self):
        self.pool.shutdown()
        self.socket.send_multipart((struct.pack("<Q", 0), b""))
        self.socket.recv()
        self.socket.close()
        self.context.term()


class Arrivals:
    """When requests may start, as kvscout-latency has it: at once, or (rate) at times that do not depend on the server."""

    def __init__(self, rate, requests):
        self.mean_ns = 1e9 / rate if rate else 0
        self.left = requests
        self.next_ns = now_ns() + self.gap()

    def gap(self):
        return random.expovariate(1) * self.mean_ns

    def take(self, now):
        """None: none is due. Else when it should have started; 0 in the closed loop."""
        if not self.left or (self.mean_ns and now < self.next_ns):
            return None
        self.left -= 1
        intended = int(self.next_ns) if self.mean_ns else 0
        self.next_ns += self.gap()
        return intended


class Loop:
    """A scheduler with room for so many waiting requests."""

    def __init__(self, client, prompts, truth, options):
        self.client = client
        self.prompts = prompts
        self.truth = truth
        self.inflight = options.inflight
        self.step_ns = options.step_us * 1000
        self.rate = options.rate
        self.next_request = 0

    def run(self, requests):
        samples = {name: [] for name in METRICS}
        counts = {"requests": 0, "steps": 0, "hit_chunks": 0, "asked_chunks": 0, "wrong": 0}
        waiting = {}  # request -> [time of its submit, intended start]
        arrivals = Arrivals(self.rate, requests)
        self.client.rtts = samples["rtt_ns"]
        next_step = now_ns() + self.step_ns
        while counts["requests"] < requests:
            now = now_ns()
            while len(waiting) < self.inflight:
                intended = arrivals.take(now)
                if intended is None:
                    break
                waiting[self.next_request] = [None, intended]
                self.next_request += 1
            if waiting:
                self.step(waiting, samples, counts)
            rest = next_step - now_ns()
            if rest > 0:
                time.sleep(rest / 1e9)
                next_step += self.step_ns
            else:
                next_step = now_ns() + self.step_ns
        return samples, counts

    def step(self, waiting, samples, counts):
        calls = []
        begin = before = now_ns()
        for request in waiting:
            hit = self.client.get_or_submit(request, self.prompts[request % len(self.prompts)])
            after = now_ns()
            calls.append((request, hit, before, after))
            before = after
        samples["stall_ns_per_step"].append(now_ns() - begin)
        counts["steps"] += 1
        for request, hit, before, after in calls:
            if waiting[request][0] is None:
                samples["submit_ns"].append(after - before)
                waiting[request][0] = before
            elif hit is None:
                samples["pending_ns"].append(after - before)
            if hit is None:
                continue
            submitted, intended = waiting.pop(request)
            samples["seen_ns"].append(after - (intended or submitted))
            if intended:
                samples["service_ns"].append(after - submitted)
            prompt = request % len(self.prompts)
            counts["requests"] += 1
            counts["hit_chunks"] += hit
            counts["asked_chunks"] += len(self.prompts[prompt])
            counts["wrong"] += hit != self.truth[prompt]


def percentiles(values):
    values = sorted(values)
    n = len(values)
    if not n:
        return dict.fromkeys(("min", "p50", "p90", "p99", "p999", "max"), None) | {"n": 0}
    at = {name: values[min(n - 1, max(0, -int(-q * n // 1) - 1))] for name, q in
          (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))}
    return {"n": n, "min": values[0], **at, "max": values[-1]}


def serve_lines(loop):
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word != "run" or not number.isdigit():
            sys.exit(f"peer_python.py: cannot read the line {line!r}")
        samples, counts = loop.run(int(number))
        out = [f"{name} {value}\n" for name, values in samples.items() for value in values]
        out += [f"count {name} {value}\n" for name, value in counts.items()]
        sys.stdout.write("".join(out) + "end\n")
        sys.stdout.flush()


def print_json(loop, options):
    loop.run(options.warmup)
    samples, counts = loop.run(options.requests)
    print(json.dumps({
        "tool": "peer_python",
        "environment": {"python": sys.version.split()[0], "pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()},
        "options": vars(options),
        "modes": {"peer": {name: percentiles(values) for name, values in samples.items()}},
        "counts": {"peer": counts},
    }, indent=2))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=256)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--step-us", type=int, default=1000)
    parser.add_argument("--hit-ratio", type=float, default=1.0)
    parser.add_argument("--delay-us", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0, help="open loop: arrivals per second")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--serve", action="store_true", help="take commands from standard input")
    options = parser.parse_args()
    for name, low in (("chunks", 1), ("inflight", 1), ("step_us", 0), ("delay_us", 0), ("rate", 0),
                      ("requests", 1), ("warmup", 0)):
        if getattr(options, name) < low:
            parser.error(f"--{name.replace('_', '-')} must be at least {low}")
    if not 0 <= options.hit_ratio <= 1:
        parser.error("--hit-ratio must be 0 to 1")
    return options


def main():
    options = parse()
    prompts, truth = make_prompts(options.chunks, options.hit_ratio)
    folder = tempfile.mkdtemp(prefix="kvscout-peer-")
    endpoint = f"ipc://{folder}/lookup.sock"
    parent = os.getpid()
    child = os.fork()  # before there are threads and sockets
    if child == 0:
        try:
            serve(endpoint, {h for p, hashes in enumerate(prompts) for h in hashes[: truth[p]]}, options.delay_us / 1e6, parent)
        finally:
            os._exit(0)
    client = LookupClient(endpoint)
    try:
        loop = Loop(client, prompts, truth, options)
        if options.serve:
            serve_lines(loop)
        else:
            print_json(loop, options)
    finally:
        client.close()
        os.waitpid(child, 0)
        try:
            os.unlink(f"{folder}/lookup.sock")
        except FileNotFoundError:
            pass
        os.rmdir(folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
