# SPDX-License-Identifier: Apache-2.0
"""KV pages for the tests of Worker: what engines have, made of memory of the standard library."""

import ctypes
import hashlib
import time

from rig import LIMIT_S, wait_for

BLOCK_TOKENS = 16
CHUNK_TOKENS = 64
BLOCKS = CHUNK_TOKENS // BLOCK_TOKENS  # of a chunk


class Tensor:
    """What a worker reads of a torch tensor. `strides` in elements; the memory is a bytearray."""

    def __init__(self, memory, shape, strides=None, offset=0, item=2):
        self.memory, self.shape, self.item = memory, tuple(shape), item
        self.strides = tuple(strides) if strides else self.dense(shape)
        self.view = (ctypes.c_char * len(memory)).from_buffer(memory)
        self.address = ctypes.addressof(self.view) + offset

    @staticmethod
    def dense(shape):
        strides, n = [], 1
        for size in reversed(shape):
            strides.insert(0, n)
            n *= size
        return strides

    def data_ptr(self):
        return self.address

    def stride(self):
        return self.strides

    def element_size(self):
        return self.item


class Array:
    """What a worker reads of a numpy array."""

    def __init__(self, memory, shape, read_only=False, strides=None, item=2):
        tensor = Tensor(memory, shape, item=item)
        self.keep = tensor
        self.__array_interface__ = {"version": 3, "typestr": f"<u{item}", "data": (tensor.address, read_only), "shape": tuple(shape),
                                    "strides": strides}


def hashes_of(prompt, n):
    return [hashlib.sha256(f"{prompt}/{i}".encode()).digest() for i in range(n)]


def bytes_of(prompt, block, plane, size):
    """The bytes of one block of a prompt in a plane."""
    return hashlib.shake_128(f"{prompt}/{block}/{plane}".encode()).digest(size)


def wait_done(worker, *jobs):
    """The ends of these jobs, by number; polls as an engine does."""
    ends, until = {}, time.monotonic() + LIMIT_S
    while set(jobs) - set(ends):
        for done in worker.poll():
            ends[done.job] = done
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT_S} s for jobs {sorted(set(jobs) - set(ends))}")
        time.sleep(0.0005)
    return ends[jobs[0]] if len(jobs) == 1 else [ends[job] for job in jobs]


def done_by_a_server(worker, call):
    """What `call`, which returns the end of a job, has in the end. A server that is off the CPU for 450 ms seems gone: then it is called again."""
    while True:
        done = call()
        if not done.error or done.error.name != "SCOUT_ERR_UNREACHABLE":
            return done
        wait_for(lambda: worker.stats()["registered"], what="the server to come back")


def hit_of_a_server(client, id, *lookup):
    """The answer to wait_lookup(), asked for anew while the server seems gone."""
    while (hit := client.wait_lookup(id, *lookup)).reason == "unreachable":
        client.finish(id)
        client.wait_ready(60000)
    return hit


class Pages:
    """Planes of one bytearray each, `n` blocks in each."""

    def __init__(self, n=64, sizes=(256, 1024)):
        self.n, self.sizes = n, sizes
        self.planes = [bytearray(n * size) for size in sizes]

    def register(self, worker, timeout_ms=60000, **more):
        return worker.register(self.planes, BLOCK_TOKENS, n_blocks=self.n, timeout_ms=timeout_ms, **more)

    def block(self, plane, block):
        size = self.sizes[plane]
        return memoryview(self.planes[plane])[block * size:(block + 1) * size]

    def fill(self, prompt, ids, first=0):
        for position, block in enumerate(ids, first):
            for plane, size in enumerate(self.sizes):
                self.block(plane, block)[:] = bytes_of(prompt, position, plane, size)

    def wipe(self):
        for plane in self.planes:
            plane[:] = bytes(len(plane))

    def holds(self, prompt, ids, first=0):
        return all(self.block(plane, block) == bytes_of(prompt, position, plane, size)
                   for position, block in enumerate(ids, first) for plane, size in enumerate(self.sizes))

    def is_blank(self, ids):
        return not any(any(self.block(plane, block)) for block in ids for plane in range(len(self.sizes)))
