#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/measurements.md that no other program makes. Each command prints one, with the machine's load.

    figures.py BUILD pools TRACE     one pool for eight engines, or a pool of an eighth for each
    figures.py BUILD hosts TRACE     three hosts (network namespaces; needs root) on one Redis: whom a router asks
    figures.py BUILD tiers           loading 1 GiB from the pool, from files, Redis and S3

BUILD is a build folder of meson, for figures that count of buildtype release. A whole run takes five minutes at most.
"""

import argparse
import contextlib
import hashlib
import hmac
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python/tests"))
from measured import NOW, Redis, forget, rank_of, said, use  # noqa: E402 the tests' own

# ---- pools, hosts ----------------------------------------------------------------------------------------------------

BLOCK, PAGES = 512, 1024  # tokens of a block of the trace; pages of an engine


class Replayer:
    """An engine that takes requests one by one: asks, loads what there is and compares it, stores the rest."""

    def __init__(self, endpoint, block_bytes, ends, pages=PAGES):
        import kvscout

        self.bytes, self.wrong, self.n, self.n_pages = block_bytes, 0, 0, pages
        common = {"endpoint": endpoint, "namespace": "trace", "chunk_tokens": BLOCK}
        self.client = ends.enter_context(kvscout.Client(**common, lookup_timeout_ms=60000))
        self.worker = ends.enter_context(kvscout.Worker(**common, transfer_timeout_ms=600000))
        self.pages = bytearray(b"\1") * (pages * block_bytes)  # touched: the kernel clears no page while a load is timed
        self.worker.register([self.pages], BLOCK, n_blocks=pages, timeout_ms=60000)
        self.client.wait_ready(60000)

    def ended(self):
        while not (done := self.worker.poll()):
            time.sleep(0.0001)
        return done[0]

    def content(self, hash):
        return hash * (self.bytes // len(hash))

    def request(self, keys):
        """(blocks of the pool, of L2, seconds until they are in the pages, seconds of the question)."""
        self.n += 1
        name, begin = str(self.n), NOW()
        hit = self.client.wait_lookup(name, keys, len(keys) * BLOCK + 1)
        question, seconds = NOW() - begin, 0
        self.client.admit(name)
        for first in range(0, hit.chunks, self.n_pages):
            n = min(self.n_pages, hit.chunks - first)
            asked = NOW()
            self.worker.retrieve(hit.ticket, first * BLOCK, (first + n) * BLOCK, range(n), ids_from=first * BLOCK)
            done = self.ended()
            seconds += NOW() - (asked if first else begin)
            if done.missing or not done.ok:
                raise SystemExit(f"blocks were promised and then not there: {done}")
            for at in range(n):
                self.wrong += self.pages[at * self.bytes : (at + 1) * self.bytes] != self.content(keys[first + at])
        for first in range(hit.chunks, len(keys), self.n_pages):
            part = keys[first : first + self.n_pages]
            for at, key in enumerate(part):
                self.pages[at * self.bytes : (at + 1) * self.bytes] = self.content(key)
            self.worker.store(hit.ticket, part, range(len(part)), first_token=first * BLOCK, ids_from=first * BLOCK)
            self.ended()
        self.client.finish(name)
        return hit.l1_chunks, hit.l2_chunks, seconds, question


class Router:
    """Deals requests to engines: by turns, or to the one that had the longest part of the prompt last (sticky)."""

    def __init__(self, n, sticky):
        self.n, self.sticky, self.turn, self.last = n, sticky, 0, {}

    def of(self, ids):
        known = next((at for at in range(len(ids) - 1, 0, -1) if ids[at] in self.last), 0)  # all prompts begin with the same block
        if self.sticky and known:
            found = self.last[ids[known]]
        else:
            found, self.turn = self.turn, (self.turn + 1) % self.n
        self.last.update(dict.fromkeys(ids[1:], found))
        return found


def replayed(trace, limit, endpoints, sticky, block_bytes=4096):
    """Sums over a trace: [requests, blocks, of the pool, of L2, seconds of each load, wrong blocks]."""
    with contextlib.ExitStack() as ends, open(trace, encoding="ascii") as lines:
        engines, router = [Replayer(endpoint, block_bytes, ends) for endpoint in endpoints], Router(len(endpoints), sticky)
        requests = blocks = pool = l2 = 0
        loads = []
        for line in lines:
            ids = json.loads(line)["hash_ids"]
            if limit and requests >= limit:
                break
            if not ids:
                continue
            keys = [hashlib.sha256(str(id).encode()).digest() for id in ids]
            found = engines[router.of(ids)].request(keys)
            requests, blocks, pool, l2 = requests + 1, blocks + len(ids), pool + found[0], l2 + found[1]
            loads += [found[2]] if found[0] + found[1] else []
        return requests, blocks, pool, l2, loads, sum(engine.wrong for engine in engines)


def pools(options, ends):
    from rig import ServerProcess

    rows, wrong = [], 0
    for size in options.blocks:
        found = []
        for n, sticky in ((1, False), (8, False), (8, True)):
            bytes_of_each = size // n * 4096
            servers = [ServerProcess(bytes_of_each, max_promised=bytes_of_each, eviction=options.eviction) for _ in range(n)]
            endpoints = [servers[at % n].endpoint for at in range(8)]
            requests, blocks, pool, _, _, differ = replayed(options.trace, options.limit, endpoints, sticky)
            found.append(100 * pool / blocks)
            wrong += differ
            for server in servers:
                server.stop()
        rows.append(f"| {size:,} | " + " | ".join(f"{each:.1f}" for each in found) + " |")
    said(f"{options.trace.name}, {requests:,} requests, {blocks:,} blocks dealt to eight engines, eviction {options.eviction}, {wrong} wrong blocks")
    print("Percent of blocks that hit:\n\n| blocks of memory in all | one server for eight engines | eight servers of an eighth, by turns | the same, sticky |")
    print("|---|---|---|---|", *rows, sep="\n")
    return wrong


def host(at, ends, mbit):
    """A network namespace with a link of its own: the command in front of its programs, and our end's address."""
    name, far, own = f"kvscout-{os.getpid()}-{at}", f"10.213.{at}.2", f"10.213.{at}.1"
    ends.callback(subprocess.run, ["ip", "netns", "delete", name])
    limit = f"root tbf rate {mbit}mbit burst 1mb latency 50ms"
    for command in (
        f"ip netns add {name}", f"ip link add kvs{at}a type veth peer name kvs{at}b netns {name}", f"ip addr add {own}/24 dev kvs{at}a",
        f"ip link set kvs{at}a up", f"ip -n {name} addr add {far}/24 dev kvs{at}b", f"ip -n {name} link set kvs{at}b up",
        f"tc qdisc add dev kvs{at}a {limit}", f"tc -n {name} qdisc add dev kvs{at}b {limit}",
    ):
        subprocess.run(command.split(), check=True)
    return f"ip netns exec {name}", own


def hosts(options, ends):
    from rig import ServerProcess

    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    made = [host(at, ends, options.mbit) for at in range(3)]
    program, wrapper = os.environ["KVSCOUTD"], Path(ends.enter_context(tempfile.TemporaryDirectory())) / "kvscoutd"
    os.environ["KVSCOUTD"] = str(wrapper)
    rows, wrong, bytes_of_each = [], 0, options.blocks[0] * options.block_bytes
    for sticky, with_redis in ((False, False), (True, False), (False, True), (True, True)):
        with contextlib.ExitStack() as run_ends:
            redis = Redis(run_ends, " ".join(["127.0.0.1", *(own for _, own in made)])) if with_redis else None
            servers = []
            for prefix, own in made:
                wrapper.write_text(f'#!/bin/sh\nexec {prefix} {program} "$@"\n')
                wrapper.chmod(0o755)
                l2 = {"l2": f"redis://{own}:{redis.port}"} if with_redis else {}
                servers.append(ServerProcess(bytes_of_each, max_promised=bytes_of_each, **l2))
            ends_of = [server.endpoint for server in servers]
            requests, blocks, pool, l2, loads, differ = replayed(options.trace, options.limit, ends_of, sticky, options.block_bytes)
            wrong += differ
            loads = [1000 * each for each in loads]
            rows.append(f"| {'sticky' if sticky else 'by turns'} | {'Redis' if with_redis else 'none'} | {100 * (pool + l2) / blocks:.1f} |"
                        f" {100 * pool / blocks:.1f} | {100 * l2 / blocks:.1f} | {statistics.median(loads):.1f} | {rank_of(loads, 0.99):.1f} |")
            for server in servers:
                server.stop()
    said(f"{options.trace.name}, {requests:,} requests of {blocks:,} blocks of {options.block_bytes >> 10} KiB dealt to three hosts with {options.blocks[0]:,}"
         f" blocks of memory each, {options.mbit} Mbit/s to Redis {Redis.version[2:]}, {wrong} wrong blocks")
    print("| requests | shared L2 | % of blocks that hit | from the host's pool | from L2 | a hit's bytes are there after ms, p50 | p99 |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")
    return wrong


# ---- tiers -----------------------------------------------------------------------------------------------------------

CHUNK = 4 << 20


def swift(build, ends):
    """Keys of a server that has a bucket of OpenStack Swift, or why there is none."""
    folder = tempfile.mkdtemp()
    os.rmdir(folder)
    ends.callback(shutil.rmtree, folder, ignore_errors=True)
    venv = next(path for path in (build / "tests/rigs", build) if path.is_dir()) / "swift"
    command = [sys.executable, ROOT / "tests/rigs/l2/swift.py", venv, folder]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ends.callback(process.wait, 60)
    ends.callback(process.stdin.close)
    word, _, rest = process.stdout.readline().strip().partition(" ")
    if word != "ready":
        return f"no Swift: {rest}"
    day, day_and_time = time.strftime("%Y%m%d", now := time.gmtime()), time.strftime("%Y%m%dT%H%M%SZ", now)
    headers = {"host": f"127.0.0.1:{rest}", "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(), "x-amz-date": day_and_time}
    signed, scope, key = ";".join(headers), f"{day}/us-east-1/s3/aws4_request", b"AWS4testing"
    request = "\n".join(["PUT", "/tiers", "", *(f"{name}:{value}" for name, value in headers.items()), "", signed, headers["x-amz-content-sha256"]])
    for part in (*scope.split("/"), "\n".join(["AWS4-HMAC-SHA256", day_and_time, scope, hashlib.sha256(request.encode()).hexdigest()])):
        key = hmac.digest(key, part.encode(), "sha256")
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential=test:tester/{scope}, SignedHeaders={signed}, Signature={key.hex()}"
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{rest}/tiers", data=b"", method="PUT", headers=headers))
    os.environ |= {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing"}
    return {"l2": f"s3://tiers?endpoint=http://127.0.0.1:{rest}", "l2_timeout_ms": 60000, "l2_lookup_timeout_ms": 60000}


@contextlib.contextmanager
def engine_of(n, keys):
    """An engine with pages for a prompt of @n chunks, and its server, whose memory is there before anything is timed."""
    from rig import ServerProcess, wait_for

    pool = (n + n // 4 + 8) * (CHUNK + 4096)
    with contextlib.ExitStack() as ends:
        server = ServerProcess(pool, max_promised=pool, prealloc="on", **keys)
        ends.callback(server.stop)
        engine = Replayer(server.endpoint, CHUNK, ends, n)
        wait_for(lambda: server.counter("l1.bytes_extents") > 0.9 * pool, "the pool's memory")
        yield engine, server


def tiers(options, ends):
    n = (options.mib << 20) // CHUNK
    folder = ends.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
    stores = {"host memory: the pool": {}, "files, in the page cache": {"l2": f"fs://{folder}"}, "files, from the disk": {"l2": f"fs://{folder}"},
              "Redis on loopback": {"l2": Redis(ends).url, "l2_timeout_ms": 60000},
              "S3: OpenStack Swift on loopback": swift(options.build.resolve(), ends)}
    found = {name: [] for name, keys in stores.items() if not isinstance(keys, str)}
    prompt = [hashlib.sha256(b"tiers %d" % at).digest() for at in range(n)]
    for at in range(options.rounds + 1):  # the first one stores
        for name, loads in found.items():
            with engine_of(n, stores[name]) as (engine, server):
                if at == 0 or not stores[name]:
                    engine.request(prompt)
                    while stores[name] and server.counter("l2.writes.waiting"):
                        time.sleep(0.05)
                if at and "disk" in name:
                    forget(folder)
                if at:
                    pool, l2, took, question = engine.request(prompt)
                    assert pool + l2 == n and engine.wrong == 0, (name, pool, l2, engine.wrong)
                    loads.append((question, took))
    said(f"{options.mib} MiB in chunks of {CHUNK >> 20} MiB, by turns, {options.rounds} rounds, every byte compared; Redis {Redis.version[2:]}")
    print(f"| from | the question, ms | {options.mib} MiB are there after s, median (least) | GB/s | thousand tokens/s of Llama 3 8B |\n|---|---|---|---|---|")
    for name, times in found.items():
        took = [each for _, each in times]
        middle = statistics.median(took)
        print(f"| {name} | {1000 * statistics.median(asked for asked, _ in times):.1f} | {middle:.2f} ({min(took):.2f}) | {n * CHUNK / middle / 1e9:.2f} |"
              f" {n * CHUNK / middle / (128 << 10) / 1000:.1f} |")
    for name, why in stores.items():
        if isinstance(why, str):
            print(f"\n{name} is missing: {why}")
    return sum(isinstance(why, str) for why in stores.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, sizes, limit in (("pools", [8000, 40000], 0), ("hosts", [4000], 4000)):
        command = commands.add_parser(name)
        command.add_argument("trace", type=Path, help="a trace in Mooncake's format")
        command.add_argument("--blocks", type=int, nargs="+", default=sizes, help="of memory, in all pools (hosts: in each)")
        command.add_argument("--limit", type=int, default=limit, help="requests; 0: the whole trace")
        command.add_argument("--eviction", default="hdc")
        command.add_argument("--block-bytes", type=int, default=16384)
        command.add_argument("--mbit", type=int, default=1000, help="of a host's link, in each direction")
    command = commands.add_parser("tiers")
    command.add_argument("--mib", type=int, default=1024)
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--folder", default="/var/tmp", help="a folder of the disk to measure")
    options = parser.parse_args()
    use(options.build)
    with contextlib.ExitStack() as ends:
        return 1 if {"pools": pools, "hosts": hosts, "tiers": tiers}[options.command](options, ends) else 0


if __name__ == "__main__":
    sys.exit(main())
