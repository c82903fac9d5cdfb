#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: kills.py BUILD [--count N | --seconds S] [--pool BYTES]

Server, Redis, a worker's and a scheduler's process are killed and stopped by turns while two engines load and store: how long until both get
all their prompts again, with all bytes. Prints a table of docs/measurements.md. The exit status is 1 where a byte was wrong. BUILD is a build
folder of meson, for figures that count of buildtype release.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python/tests"))
from measured import NOW, Redis, rank_of, said, use  # noqa: E402 the tests' own

TOKENS, CHUNKS, BYTES, PROMPTS = 16, 16, 16 << 10, 8  # of a chunk, of a prompt, of a chunk, of an engine


def content(key):
    """What a chunk must hold."""
    return hashlib.shake_128(key).digest(64) * (BYTES // 64)


def hashes(prompt, n=CHUNKS):
    return [hashlib.sha256(f"{prompt}/{at}".encode()).digest() for at in range(n)]


def part_of_an_engine(kind, endpoint):
    """A scheduler's or a worker's process: orders as JSON on stdin, each with one answer."""
    import kvscout

    common = {"endpoint": endpoint, "namespace": "kills", "chunk_tokens": TOKENS}
    if kind == "scheduler":
        client = kvscout.Client(**common)

        def look(name, prompt):
            hit = client.wait_lookup(name, hashes(prompt), CHUNKS * TOKENS + 1)
            client.admit(name)
            return [hit.chunks, hit.ticket]

        orders = {"look": look, "finish": client.finish}
    else:
        pages = bytearray(CHUNKS * BYTES)
        worker = kvscout.Worker(**common)
        worker.register([pages], TOKENS, n_blocks=CHUNKS, timeout_ms=60000)

        def ended():
            while not (done := worker.poll()):
                time.sleep(0.0005)
            return done[0]

        def load(ticket, prompt):
            """[all chunks came, wrong bytes]."""
            worker.retrieve(ticket, 0, CHUNKS * TOKENS, range(CHUNKS))
            done = ended()
            lost = set(done.missing.get(0, ())) if done.missing else set() if done.ok else set(range(CHUNKS))
            wrong = 0
            for at, key in enumerate(hashes(prompt)):
                page, right = pages[at * BYTES : (at + 1) * BYTES], content(key)
                if at not in lost and page != right:
                    wrong += sum(a != b for a, b in zip(page, right))
            pages[:] = bytes(len(pages))
            return [not lost, wrong]

        def store(prompt, n):
            for at, key in enumerate(hashes(prompt, n)):
                pages[at * BYTES : (at + 1) * BYTES] = content(key)
            worker.store(0, hashes(prompt, n), range(n))
            return ended().ok

        orders = {"load": load, "store": store}
    print("0", flush=True)
    for line in sys.stdin:
        name, *words = json.loads(line)
        try:
            print(json.dumps(orders[name](*words)), flush=True)
        except kvscout.KVScoutError as error:
            print(json.dumps(str(error)), flush=True)


class Gone(Exception):
    pass


class Part:
    def __init__(self, kind, endpoint):
        self.command = [sys.executable, __file__, "--part", kind, endpoint]
        self.start()

    def start(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(self.command, text=True, bufsize=1, **pipes)
        process.stdout.readline()
        self.process = process

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, *words):
        process = self.process
        try:
            process.stdin.write(json.dumps(words) + "\n")
            answer = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            raise Gone from None
        if isinstance(answer, str):
            raise Gone(answer)
        return answer


class Engine(threading.Thread):
    """A scheduler and a worker in processes of their own. Each round asks for all prompts, loads and compares them, and computes what is missing;
    and stores a little that is new."""

    def __init__(self, name, endpoint):
        super().__init__(daemon=True)
        self.scheduler, self.worker = Part("scheduler", endpoint), Part("worker", endpoint)
        self.title, self.recent, self.wrong, self.rounds, self.ids = name, collections.deque(maxlen=999), 0, 0, 0
        self.done = threading.Event()
        self.start()

    def one(self, prompt):
        self.ids += 1
        chunks, ticket = self.scheduler.ask("look", str(self.ids), prompt)
        came, wrong = self.worker.ask("load", ticket, prompt) if chunks == CHUNKS else (False, 0)
        self.wrong += wrong
        if not came:
            self.worker.ask("store", prompt, CHUNKS)
        self.scheduler.ask("finish", str(self.ids))
        return came

    def run(self):
        while not self.done.is_set():
            begin = NOW()
            try:
                all_came = all([self.one(f"{self.title}/{at}") for at in range(PROMPTS)])
                if self.rounds % 10 == 0:
                    self.worker.ask("store", f"{self.title}/new/{self.rounds}", 2)
            except Gone:
                all_came = False
                time.sleep(0.001)
            self.rounds += 1
            self.recent.append((begin, NOW(), all_came))
            time.sleep(0.002)

    def full_after(self, begin, end):
        """When the first of three full rounds in a row ended. It began after @begin and ended after @end."""
        until = NOW() + 120
        while NOW() < until:
            rounds = [each for each in list(self.recent) if each[0] >= begin and each[1] >= end]
            for three in zip(rounds, rounds[1:], rounds[2:]):
                if all(full for _, _, full in three):
                    return three[0][1]
            time.sleep(0.002)
        sys.exit(f"engine {self.title} has no full hits two minutes after a kill")


def stopped(processes, draw):
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            os.kill(process.pid, number)
        if number == signal.SIGSTOP:
            time.sleep(draw.uniform(0.01, 1))


def kills(options, ends):
    from rig import ServerProcess

    redis = Redis(ends, lasts=True)
    server = ServerProcess(options.pool, l2=redis.url)
    ends.callback(server.stop)
    engines = [Engine(name, server.endpoint) for name in ("first", "second")]
    for engine in engines:
        ends.callback(engine.scheduler.kill)
        ends.callback(engine.worker.kill)
        ends.callback(engine.done.set)
        engine.full_after(0, 0)
    victims = {"the server": [server], "Redis": [redis], "server and Redis": [server, redis], "a worker": [engines[0].worker],
               "a scheduler": [engines[0].scheduler]}
    kinds = [(who, how) for who in victims for how in ("SIGKILL", "SIGSTOP")]
    draw, found = random.Random("kills"), {kind: [] for kind in kinds}
    until = NOW() + options.seconds
    for number in range(options.count or sys.maxsize):
        if not options.count and NOW() > until:
            break
        who, how = kind = kinds[number % len(kinds)]
        time.sleep(draw.uniform(0, 0.2))
        begin = NOW()
        if how == "SIGKILL":
            for victim in victims[who]:
                victim.kill()
            for victim in reversed(victims[who]):
                victim.start()
        else:
            stopped([victim.process for victim in victims[who]], draw)
        back = NOW()
        found[kind].append((begin, back, max(engine.full_after(begin, back) for engine in engines)))
    said(f"{sum(map(len, found.values()))} kills and stops of processes while two engines load and store, {sum(e.rounds for e in engines)} rounds of {PROMPTS} prompts,"
         f" {sum(e.wrong for e in engines)} wrong bytes; Redis {Redis.version[2:]}")
    print(f"Milliseconds until both engines get all prompts again, in three rounds in a row; a pool of {options.pool}, prompts of 4 MiB:\n")
    print("| what | n | from SIGKILL, p50 | most | from its being back, p50 | p99.9, or most | within 1 s |\n|---|---|---|---|---|---|---|")
    for (who, how), times in [*found.items(), (("all", ""), sum(found.values(), []))]:
        from_kill, from_back = ([1000 * (full - since[which]) for *since, full in times] for which in (0, 1))
        whole = [f"{statistics.median(from_kill):.0f}", f"{max(from_kill):.0f}"] if how == "SIGKILL" else ["", ""]
        print(f"| {who} {how} | {len(times)} | {' | '.join(whole)} | {statistics.median(from_back):.0f} | {rank_of(from_back, 0.999):.0f} |"
              f" {sum(each <= 1000 for each in from_back)} of {len(times)} |")
    return sum(engine.wrong for engine in engines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--count", type=int, default=0, help="kills and stops; without it as many as fit into --seconds")
    parser.add_argument("--seconds", type=int, default=270)
    parser.add_argument("--pool", default="16Mi", help="l1_bytes; all prompts take 4 MiB, so with 3Mi each round needs Redis")
    options = parser.parse_args()
    use(options.build)
    with contextlib.ExitStack() as ends:
        return 1 if kills(options, ends) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        part_of_an_engine(*sys.argv[2:])
    else:
        sys.exit(main())
