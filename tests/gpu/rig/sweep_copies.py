# SPDX-License-Identifier: Apache-2.0
"""A worker's copies for the sweep: the memory of its pages, its jobs, and their speed, alone and beside a load."""

import ctypes
import os
import random
import statistics
import time

from sweep_plan import COURSES

BLOCK_TOKENS = 16
ROUNDS = 3
POOL = 12  # times the bytes of one copy: what is loaded stays, though stores run through the pool
WAIT_S = 45


class TorchMemory:
    """Pages in torch's memory, and pinned memory for a contiguous copy."""

    def __init__(self, name, sizes):
        import torch

        self.torch, self.name, self.reason, self.flat_bytes, self.most = torch, name, None, sizes.total, sizes.most
        self.pages = torch.empty(sizes.pages, dtype=torch.uint8, device=name)
        self.address = self.pages.data_ptr()
        self.flat = torch.empty(sizes.most, dtype=torch.uint8, device=name)
        self.host = torch.empty(sizes.most, dtype=torch.uint8, pin_memory=name == "cuda")
        self.streams = {}

    def wait(self):
        if self.name == "cuda":
            self.torch.cuda.synchronize()

    def contiguous(self, course, n):
        begin, end = (self.host, self.flat) if course == "load" else (self.flat, self.host)
        end[:n].copy_(begin[:n], non_blocking=True)
        self.wait()

    def start_part(self, course, which, parts):
        """One of the parts of a contiguous copy; what says whether it is over."""
        size = self.flat_bytes // parts
        part = slice(which * size, (which + 1) * size)
        begin, end = (self.host, self.flat) if course == "load" else (self.flat, self.host)
        if self.name != "cuda":
            end[part].copy_(begin[part])
            return lambda: True
        stream, event = self.streams.setdefault(course, self.torch.cuda.Stream()), self.torch.cuda.Event()
        with self.torch.cuda.stream(stream):
            end[part].copy_(begin[part], non_blocking=True)
            event.record()
        return event.query

    def randomize(self):
        self.pages.random_(0, 256)
        self.wait()

    def spoil(self):
        self.pages.fill_(0x5A)
        self.wait()

    def gather(self, point, n_blocks, ids):
        view = self.pages[: point.planes * n_blocks * point.piece].view(point.planes, n_blocks, point.piece)
        return view[:, self.torch.tensor(ids, device=self.name)]

    def wrong(self, one, other):
        return int((one != other).sum())


class PlainMemory:
    """Memory of this process, which is the GPU's for the stand-in for the driver."""

    reason = "torch is not used on the stand-in for the driver"

    def __init__(self, device, sizes):
        self.device, self.name = device, "stand-in"
        self.memory = bytearray(sizes.pages)
        self.keep = [(ctypes.c_char * sizes.pages).from_buffer(self.memory), *((ctypes.c_char * sizes.most)() for _ in range(2))]
        self.address, flat, host = map(ctypes.addressof, self.keep)
        self.flat_bytes, self.most = sizes.total, sizes.most
        device.declare(self.address, sizes.pages, 0)
        device.declare(flat, sizes.most, 0)
        self.flat, self.host = ctypes.c_uint64(flat), ctypes.c_void_p(host)
        device._call("cuMemHostRegister_v2", self.host, ctypes.c_size_t(sizes.most), 3)

    def contiguous(self, course, n):
        if course == "load":
            self.device._call("cuMemcpyHtoDAsync_v2", self.flat, self.host, ctypes.c_size_t(n), self.device.stream)
        else:
            self.device._call("cuMemcpyDtoHAsync_v2", self.host, self.flat, ctypes.c_size_t(n), self.device.stream)
        self.device.wait()

    def randomize(self):
        self.memory[:] = random.Random(7).randbytes(len(self.memory))

    def spoil(self):
        self.memory[:] = b"\x5a" * len(self.memory)

    def gather(self, point, n_blocks, ids):
        ends = [(plane * n_blocks + block) * point.piece for plane in range(point.planes) for block in ids]
        return [bytes(self.memory[at : at + point.piece]) for at in ends]

    def wrong(self, one, other):
        return sum(len(own) for own, theirs in zip(one, other) if own != theirs)


def make_memory(sizes):
    import kv_cache
    from wheel_gpu import pick_device

    device = pick_device()
    if isinstance(device, kv_cache.StandIn):
        return PlainMemory(device, sizes)
    return TorchMemory(device.name, sizes)


class Copies:
    """A worker with the options of a point, and its jobs."""

    SETS = 4  # a job beside a load moves one of so many parts of the bytes

    def __init__(self, memory, sizes, endpoint, point):
        import kvscout

        self.memory, self.point = memory, point
        self.n_blocks = sizes.pages // (point.planes * point.piece)
        self.chunks = max(self.SETS, (point.total or sizes.total) // point.slot_bytes)
        self.bytes = self.chunks * point.slot_bytes
        keys = {"endpoint": endpoint, "chunk_tokens": point.chunk_blocks * BLOCK_TOKENS, "namespace": f"sweep {point.piece} {point.slot}"}
        self.client = kvscout.Client(**keys, lookup_timeout_ms=30000)
        self.worker = None
        try:
            self.client.wait_ready(30000)
            self.worker = kvscout.Worker(**keys, copy_method=point.method, stage_bytes=point.stage)
            plane = self.n_blocks * point.piece
            planes = [(memory.address + at * plane, point.piece, point.piece) for at in range(point.planes)]
            self.worker.register(planes, BLOCK_TOKENS, n_blocks=self.n_blocks, timeout_ms=30000)
        except BaseException:
            self.close()
            raise
        chance = random.Random(point.piece + point.slot)
        ids = chance.sample(range(self.n_blocks), 2 * self.chunks * point.chunk_blocks)
        self.ids = {"store": ids[: len(ids) // 2], "load": ids[len(ids) // 2 :]}
        self.hashes = self._new(self.chunks)  # of what is loaded
        self.names = 0
        self.asked = {}  # lookups of retrieves, by job

    def close(self):
        if self.worker:
            self.worker.close()
        self.client.close()

    def _new(self, n):
        return [os.urandom(32) for _ in range(n)]

    def _part(self, which):
        """The chunks of a set; None: all."""
        if which is None:
            return slice(0, self.chunks)
        size = self.chunks // self.SETS
        return slice(which * size, (which + 1) * size)

    def start(self, course, which=None, hashes=None):
        """A job: load what is there, or store as new chunks."""
        part = self._part(which)
        n = part.stop - part.start
        ids = self.ids[course][part.start * self.point.chunk_blocks : part.stop * self.point.chunk_blocks]
        if course == "store":
            return self.worker.store(0, hashes or self._new(n), ids)
        name, hit = self._ask(part)
        tokens = n * self.point.chunk_blocks * BLOCK_TOKENS
        assert hit.tokens == tokens, f"of {tokens} tokens {hit.tokens} were found ({hit.reason})"
        self.client.admit(name)
        job = self.worker.retrieve(hit.ticket, 0, tokens, ids)
        self.asked[job] = name
        return job

    def _ask(self, part):
        self.names += 1
        name = f"{os.getpid()} {self.names}"
        tokens = (part.stop - part.start) * self.point.chunk_blocks * BLOCK_TOKENS
        return name, self.client.wait_lookup(name, self.hashes[part], tokens + 1)

    def refill(self):
        """What is loaded is there, though stores have evicted it."""
        for which in range(self.SETS):
            part = self._part(which)
            name, hit = self._ask(part)
            self.client.finish(name)
            if hit.chunks < part.stop - part.start:
                self.hashes[part] = self._new(part.stop - part.start)
                self.end([self.start("store", which, self.hashes[part])])

    def end(self, jobs):
        """Waits for all; returns what they say."""
        ends, until = {}, time.monotonic() + WAIT_S
        while set(jobs) - set(ends):
            ends.update((done.job, done) for done in self.poll())
            assert time.monotonic() < until, f"jobs {set(jobs) - set(ends)} did not end"
        return [ends[job] for job in jobs]

    def poll(self):
        """Jobs that have ended, all of their chunks copied."""
        ends = self.worker.poll()
        for done in ends:
            assert done.ok and not done.no_room and not done.present, f"{done}"
            if done.job in self.asked:
                self.client.finish(self.asked.pop(done.job))
        return ends

    def fill(self):
        """Stores as much as the pool has, so that all of its memory is pinned before something is measured."""
        for _ in range(POOL):
            self.end([self.start("store")])

    def verify(self):
        """Every byte of one copy of all chunks, through the pool to other pages. Returns the wrong ones."""
        self.memory.randomize()
        begun = self.memory.gather(self.point, self.n_blocks, self.ids["store"])
        self.end([self.start("store", hashes=self.hashes)])
        self.memory.spoil()
        self.end([self.start("load")])
        return self.memory.wrong(begun, self.memory.gather(self.point, self.n_blocks, self.ids["load"]))

    def pump(self, courses, is_over):
        """
        Jobs back to back, two in flight in each direction, and in no direction many more than in the other: stores evict what is loaded.
        Returns the GB/s of those that ended before it was over.
        """
        flying, moved, begin = {}, 0, time.perf_counter()
        last, started = begin, dict.fromkeys(courses, 0)
        while not is_over():
            for course in courses:
                while list(flying.values()).count(course) < 2 and started[course] < min(started.values()) + 2:
                    started[course] += 1
                    flying[self.start(course, started[course] % self.SETS)] = course
            for done in self.poll():
                del flying[done.job]
                if not is_over():
                    moved += done.bytes
                    last = time.perf_counter()
        self.end(list(flying))
        return moved / (last - begin) / 1e9 if moved else 0.0


class Contiguous:
    """Contiguous copies back to back, two in flight in each direction: what any copy of so many bytes costs a load at least."""

    PARTS = 8

    def __init__(self, memory):
        self.memory = memory

    def refill(self):
        pass

    def pump(self, courses, is_over):
        flying, moved, begin = {course: [] for course in courses}, 0, time.perf_counter()
        last, at = begin, 0
        while not is_over():
            for course, parts in flying.items():
                while len(parts) < 2:
                    at += 1
                    parts.append(self.memory.start_part(course, at % self.PARTS, self.PARTS))
                while parts and parts[0]():
                    parts.pop(0)
                    moved += self.memory.flat_bytes // self.PARTS
                    last = time.perf_counter()
        self.memory.wait()
        return moved / (last - begin) / 1e9 if moved else 0.0


def timed(call):
    begin = time.perf_counter()
    made = call()
    return time.perf_counter() - begin, made


def measure_alone(copies):
    """
    By course: GB/s of whole jobs, of their copies, of one contiguous copy of the same bytes, the ratio within a round, and what a job takes
    before its first byte: until it is sent, and until it is granted.
    """
    names = ("gbps", "copy_gbps", "contiguous", "ratio", "queued_us", "server_us")
    found = {course: {name: [] for name in names} for course in COURSES}
    total, flat = copies.bytes, min(copies.bytes, copies.memory.most)
    for round in range(ROUNDS + 1):
        for course in COURSES:
            contiguous = flat / timed(lambda: copies.memory.contiguous(course, flat))[0] / 1e9
            seconds, (done,) = timed(lambda: copies.end([copies.start(course)]))
            if round == 0:
                continue  # it raises clocks
            gbps = total / seconds / 1e9
            values = (gbps, total / max(done.copy_us, 1) / 1e3, contiguous, gbps / contiguous, done.queued_us, done.server_us)
            for name, value in zip(names, values):
                found[course][name].append(value)
    return {course: {name: statistics.median(values) for name, values in of.items()} for course, of in found.items()}


def measure_beside(copies, load, run, units):
    """By course: percent that the load is slower beside copies, their GB/s meanwhile, and these by the same copies alone."""
    found = {}
    for course, courses in (("load", ("load",)), ("store", ("store",)), ("both", COURSES)):
        slower, gbps, moved = [], [], []
        for _ in range(ROUNDS):
            copies.refill()
            before = run(load, units).ms()
            running = run(load, units)
            beside = copies.pump(courses, running.is_over)
            during = running.ms()
            after = run(load, units).ms()
            until = time.perf_counter() + before / 2e3
            alone = copies.pump(courses, lambda: time.perf_counter() > until)
            slower.append((during / ((before + after) / 2) - 1) * 100)
            gbps.append(beside)
            moved.append(beside / alone if alone else 0.0)
        found[course] = {"slower": statistics.median(slower), "gbps": statistics.median(gbps), "moved": statistics.median(moved)}
    return found
