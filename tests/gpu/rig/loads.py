# SPDX-License-Identifier: Apache-2.0
"""What a model keeps a GPU busy with: a matrix product of cuBLAS in bf16, through torch, and attention over pages, in Triton. Each has units,
which are enqueued in torch's current stream. On a CPU, Triton's interpreter runs the attention; that tries the kernel, and tells no speed."""

import os
import threading
import time

import torch

PAGE = 16
GROUP = 16  # query heads of one KV head
STEP = 64  # tokens that a program reads at once


class Product:
    """A unit: the product of two square matrices of random numbers."""

    name = "product"

    def __init__(self, device, small):
        n = 64 if small else 8192
        self.a, self.b = (torch.randn(n, n, dtype=torch.bfloat16, device=device) for _ in range(2))
        self.made = torch.empty_like(self.a)

    def unit(self):
        torch.mm(self.a, self.b, out=self.made)


class Attention:
    """
    A unit: one step of @sequences in all layers, with one new token each, and pages at random places. @kv_layout as in the connector's key:
    "engine", each layer's pages by themselves, or "blocks", all layers of a block in one piece.
    """

    name = "attention"

    def __init__(self, device, small, kv_layout="engine"):
        dtype = torch.bfloat16
        if device == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
            dtype = torch.float16  # the interpreter multiplies no others
        self.kernel = make_kernel()
        self.layers, self.heads, self.dim = (2, 1, 16) if small else (4, 8, 128)
        self.sequences, tokens = (2, 2 * STEP) if small else (64, 4096)
        self.pages = tokens // PAGE
        blocks = self.sequences * self.pages
        axes = (self.layers, blocks) if kv_layout == "engine" else (blocks, self.layers)
        torch.manual_seed(3)
        self.kv = torch.empty(*axes, 2, PAGE, self.heads, self.dim, dtype=dtype, device=device).normal_()
        self.of_layer = self.kv if kv_layout == "engine" else self.kv.transpose(0, 1)
        self.tables = torch.randperm(blocks, device=device).view(self.sequences, self.pages).int()
        self.query = torch.randn(self.sequences, self.heads, GROUP, self.dim, dtype=dtype, device=device)
        self.made = torch.empty(self.query.shape, dtype=torch.float32, device=device)
        self._check()

    def _layer(self, layer):
        keys, values = self.of_layer[layer, :, 0], self.of_layer[layer, :, 1]
        self.kernel[(self.sequences, self.heads)](
            self.query, keys, values, self.made, self.tables, self.pages, keys.stride(0), keys.stride(1), keys.stride(2), self.dim**-0.5,
            PAGE=PAGE, GROUP=GROUP, STEP=STEP, DIM=self.dim,
        )

    def unit(self):
        for layer in range(self.layers):
            self._layer(layer)

    def _check(self):
        """One sequence of the last layer, by torch."""
        self._layer(self.layers - 1)
        own = self.of_layer[self.layers - 1][self.tables[1].long()].float()  # page, key or value, token, head, number
        keys, values = (own[:, which].flatten(0, 1).transpose(0, 1) for which in (0, 1))
        expected = torch.nn.functional.scaled_dot_product_attention(self.query[1].float(), keys, values)
        assert torch.allclose(self.made[1], expected, atol=0.02), "the attention is wrong"


def make_kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def attend(
        query, keys, values, made, tables, pages, page_stride, token_stride, head_stride, scale,
        PAGE: tl.constexpr, GROUP: tl.constexpr, STEP: tl.constexpr, DIM: tl.constexpr,
    ):
        sequence, head = tl.program_id(0), tl.program_id(1)
        rows, tokens, numbers = tl.arange(0, GROUP), tl.arange(0, STEP), tl.arange(0, DIM)
        at_query = ((sequence * tl.num_programs(1) + head) * GROUP + rows)[:, None] * DIM + numbers[None, :]
        asked = tl.load(query + at_query)
        best = tl.full((GROUP,), float("-inf"), tl.float32)
        total = tl.zeros((GROUP,), tl.float32)
        mixed = tl.zeros((GROUP, DIM), tl.float32)
        for begin in range(0, pages * PAGE, STEP):
            token = begin + tokens
            page = tl.load(tables + sequence * pages + token // PAGE).to(tl.int64)
            at = (page * page_stride + (token % PAGE) * token_stride + head * head_stride)[:, None] + numbers[None, :]
            scores = tl.dot(asked, tl.trans(tl.load(keys + at))) * scale
            higher = tl.maximum(best, tl.max(scores, 1))
            weights = tl.exp(scores - higher[:, None])
            shrunk = tl.exp(best - higher)
            total = total * shrunk + tl.sum(weights, 1)
            read = tl.load(values + at)
            mixed = mixed * shrunk[:, None] + tl.dot(weights.to(read.dtype), read)
            best = higher
        tl.store(made + at_query, mixed / total[:, None])

    # Triton compiles a kernel with the globals of its module.
    globals()["tl"] = tl
    return attend


class GpuRun:
    """Units of a load, enqueued at once; is_over() asks the GPU, ms() is its own time."""

    def __init__(self, load, units):
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.begin.record()
        for _ in range(units):
            load.unit()
        self.end.record()

    def is_over(self):
        return self.end.query()

    def ms(self):
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)


class CpuRun(threading.Thread):
    """The same on a CPU, in a thread."""

    def __init__(self, load, units):
        super().__init__(daemon=True)
        self.load, self.units, self.seconds = load, units, 0
        self.start()

    def run(self):
        begin = time.perf_counter()
        for _ in range(self.units):
            self.load.unit()
        self.seconds = time.perf_counter() - begin

    def is_over(self):
        return not self.is_alive()

    def ms(self):
        self.join()
        return self.seconds * 1e3


def run_of(device):
    return GpuRun if device == "cuda" else CpuRun


def make(name, device, small):
    """Loads by name: product, attention, attention of layout blocks."""
    if name == "product":
        return Product(device, small)
    return Attention(device, small, "blocks" if name == "attention of blocks" else "engine")
