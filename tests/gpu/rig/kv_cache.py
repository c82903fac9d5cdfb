# SPDX-License-Identifier: Apache-2.0
"""KV caches as vLLM's allocate_kv_cache() (vllm/v1/worker/utils.py) makes them: one buffer of bytes for all layers, zeroed, and of each
layer a view [block, head, token, content] whose strides the layout gives. On a GPU by torch; without torch, in memory of this process that is
declared to the stand-in for the driver."""

import ctypes
import itertools
import random
from dataclasses import dataclass

from pages import Tensor

# vLLM's names of its layouts: the physical order of the axes layer, block, head, token, content.
LAYOUTS = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")


@dataclass(frozen=True)
class Kind:
    """What a layer keeps of a token in each head, and how many views' blocks a block of the scheduler is (smaller kernel blocks)."""

    dtype: str
    item: int
    heads: int
    content_bytes: int
    split: int = 1


KINDS = {
    "bf16": Kind("bfloat16", 2, 4, 2 * 128 * 2),
    "fp8": Kind("uint8", 1, 8, 2 * 128),
    "fp8 e4m3": Kind("float8_e4m3fn", 1, 4, 2 * 128),
    "mla": Kind("bfloat16", 2, 1, 576 * 2),
    "mla fp8": Kind("uint8", 1, 1, 656),
    "kernel blocks": Kind("bfloat16", 2, 4, 2 * 128 * 2, split=2),
}


@dataclass(frozen=True)
class Geometry:
    kind: Kind
    layout: str
    layers: int
    blocks: int
    block_tokens: int = 16

    @property
    def sizes(self):
        kind = self.kind
        return {"L": self.layers, "B": self.blocks * kind.split, "H": kind.heads, "N": self.block_tokens // kind.split}

    @property
    def strides(self):
        """Bytes, by axis."""
        found, dense = {}, self.kind.content_bytes
        for axis in reversed(self.layout[:-1]):
            found[axis] = dense
            dense *= self.sizes[axis]
        return found

    @property
    def bytes(self):
        return self.layers * self.blocks * self.kind.heads * self.block_tokens * self.kind.content_bytes

    def runs(self, block):
        """[where, bytes]: the dense pieces of a block of the scheduler, in all layers."""
        sizes, strides, split = self.sizes, self.strides, self.kind.split
        of_block = range(block * split, (block + 1) * split)
        found = []
        for at in sorted(
            sum(index * strides[axis] for axis, index in zip("LBHN", indices))
            for indices in itertools.product(range(self.layers), of_block, range(sizes["H"]), range(sizes["N"]))
        ):
            if found and sum(found[-1]) == at:
                found[-1][1] += self.kind.content_bytes
            else:
                found.append([at, self.kind.content_bytes])
        return found


def can_be_split(layout):
    """Whether kernel blocks may be smaller than the scheduler's: a block is one page then."""
    return layout.startswith("LB")


# ---- in this process -------------------------------------------------------------------------------------------------


class View(Tensor):
    def __init__(self, memory, shape, strides, offset, kind):
        super().__init__(memory, shape, strides, offset, kind.item)
        self.dtype = "torch." + kind.dtype

    def unflatten(self, axis, sizes):
        assert axis == 0 and sizes[1] == -1
        self.shape = (sizes[0], self.shape[0] // sizes[0], *self.shape[1:])
        self.strides = [self.shape[1] * self.strides[0], *self.strides]
        return self


class PlainCache:
    def __init__(self, device, geometry):
        self.device, self.geometry = device, geometry
        self.memory = bytearray(geometry.bytes)
        self.view = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.address = ctypes.addressof(self.view)
        device.declare(self.address, len(self.memory), 0)

    def __del__(self):
        self.device.declare(self.address, len(self.memory), -1)

    def tensors(self):
        """By the layers' names."""
        g, kind = self.geometry, self.geometry.kind
        shape = (*(g.sizes[axis] for axis in "BHN"), kind.content_bytes // kind.item)
        strides = [*(g.strides[axis] // kind.item for axis in "BHN"), 1]
        return {f"layers.{l}": View(self.memory, shape, strides, l * g.strides["L"], kind) for l in range(g.layers)}

    def randomize(self, seed):
        self.memory[:] = random.Random(seed).randbytes(len(self.memory))

    def fill(self, byte):
        self.device.wait()
        self.memory[:] = bytes((byte,)) * len(self.memory)

    def take(self, source, pairs):
        """Blocks (of @source, of this cache) at once, for what is expected."""
        for begin, end in pairs:
            for (at, n), (to, _) in zip(self.geometry.runs(begin), self.geometry.runs(end)):
                self.memory[to : to + n] = source.memory[at : at + n]

    def equals(self, other):
        self.device.wait()
        return self.memory == other.memory


class StandIn:
    """The stand-in for libcuda.so.1: its streams, events and graphs. @cu: the library."""

    name = "the stand-in for the driver"

    def __init__(self, cu):
        self.cu, self.events = cu, []
        self.large = (ctypes.c_char * (65 << 20))()
        self.declare(ctypes.addressof(self.large), ctypes.sizeof(self.large), 0)
        self.stream = ctypes.c_void_p(1)  # the legacy default stream
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name, *args):
        rc = getattr(self.cu, name)(*args)
        assert rc == 0, f"{name}: {rc}"

    def declare(self, address, size, device):
        """This memory is the device's from now on; -1: no device's."""
        self.cu.standin_declare(ctypes.c_void_p(address), ctypes.c_size_t(size), device)

    def cache(self, geometry):
        return PlainCache(self, geometry)

    def use_side_stream(self):
        self.stream = self._new_stream()

    def _new_stream(self):
        stream = ctypes.c_void_p()
        self._call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        return stream

    def event_maker(self, tensor):
        def record():
            event = ctypes.c_void_p()
            self._call("cuEventCreate", ctypes.byref(event), 2)
            self._call("cuEventRecord", event, self.stream)
            self.events.append(event)
            return event.value

        return record

    def writer(self, cache, source, pairs):
        """A graph that writes blocks of @cache, captured now; each call of it enqueues it."""
        stream, graph, ready = self._new_stream(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", stream, 0)
        for begin, end in pairs:
            for (at, n), (to, _) in zip(source.geometry.runs(begin), cache.geometry.runs(end)):
                to, at = (ctypes.c_uint64(base + offset) for base, offset in ((cache.address, to), (source.address, at)))
                self._call("cuMemcpyDtoDAsync_v2", to, at, ctypes.c_size_t(n), stream)
        self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        return lambda: self._call("cuGraphLaunch", ready, self.stream)

    def keep_busy(self):
        """Some 20 ms of work for the current stream."""
        for _ in range(40):
            self._call("cuMemsetD8Async", ctypes.byref(self.large), 0, ctypes.c_size_t(ctypes.sizeof(self.large)), self.stream)

    def wait(self):
        self._call("cuStreamSynchronize", self.stream)

    def require_copies(self):
        """Whether the copies were the driver's and not the host's, and broke no capture."""
        self.cu.standin_count.restype = ctypes.c_uint64
        counts = [self.cu.standin_count(name) for name in (b"bytes_to_device", b"bytes_to_host", b"captures_broken")]
        assert min(counts[:2]) > 0 and counts[2] == 0, f"bytes to the device, to the host, captures broken: {counts}"


# ---- on a GPU --------------------------------------------------------------------------------------------------------


class TorchCache:
    def __init__(self, device, geometry):
        self.torch, self.geometry = device.torch, geometry
        self.buffer = self.torch.zeros(geometry.bytes, dtype=self.torch.int8, device=device.name)

    def _layers(self):
        """As bytes: [layer, block, head, token, content]."""
        g = self.geometry
        return self.torch.as_strided(
            self.buffer, (*(g.sizes[axis] for axis in "LBHN"), g.kind.content_bytes), (*(g.strides[axis] for axis in "LBHN"), 1)
        )

    def tensors(self):
        dtype = getattr(self.torch, self.geometry.kind.dtype)
        return {f"layers.{at}": layer.view(dtype) for at, layer in enumerate(self._layers())}

    def randomize(self, seed):
        self.torch.manual_seed(seed)
        self.buffer.random_(-128, 128)

    def fill(self, byte):
        self.buffer.fill_(byte)

    def _parts(self, blocks):
        """Of the scheduler's blocks those of the views, on the device."""
        split = self.geometry.kind.split
        return self.torch.tensor([block * split + part for block in blocks for part in range(split)], device=self.buffer.device)

    def prepare(self, source, pairs):
        """Writes them without another copy to the device."""
        begin, end = (self._parts(blocks) for blocks in zip(*pairs))
        mine, theirs = self._layers(), source._layers()

        def write():
            for own, other in zip(mine, theirs):
                own[end] = other[begin]

        return write

    def take(self, source, pairs):
        if pairs:
            self.prepare(source, pairs)()

    def equals(self, other):
        return self.torch.equal(self.buffer, other.buffer)


class Torch:
    """What vLLM's worker has. @name: "cuda"; or "cpu", on which all is done at once, to try the cases without a GPU."""

    def __init__(self, name):
        import torch

        self.torch, self.name = torch, name

    def cache(self, geometry):
        return TorchCache(self, geometry)

    def use_side_stream(self):
        if self.name == "cuda":
            self.torch.cuda.set_stream(self.torch.cuda.Stream())

    def event_maker(self, tensor):
        from kvscout.vllm import device

        return device.event_maker(tensor)

    def writer(self, cache, source, pairs):
        write = cache.prepare(source, pairs)
        if self.name != "cuda":
            return write
        # Once outside: the first call of a kernel loads it. vLLM captures likewise.
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            write()
        self.torch.cuda.current_stream().wait_stream(side)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            write()

        def replay(needed=write):  # the graph reads its tensors
            graph.replay()

        return replay

    def keep_busy(self):
        """Some 20 ms of work for the current stream."""
        if self.name == "cuda":
            self.torch.cuda._sleep(40_000_000)

    def wait(self):
        if self.name == "cuda":
            self.torch.cuda.synchronize()

    def require_copies(self):
        """The host copies none of a GPU's memory, so they were the driver's."""
