# SPDX-License-Identifier: Apache-2.0
"""The two distributions between which the bounds of comparisons lie (docs/verify.md): how far the same KV differs when it is computed in
another way, and other KV from it. The measure is the worker's own, libworker/jobs/kv_compare.c; each figure is of one layer and block."""

import ctypes
import os
import shutil
import subprocess

import models
import prompts
from checks import need

BLOCKS = 16
DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "float8_e4m3fn": 4, "float8_e5m2": 5}  # SCOUT_DTYPE_*
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class _Measure(ctypes.Structure):
    _fields_ = (("norm_error", ctypes.c_float), ("share", ctypes.c_float), ("differs", ctypes.c_bool))


def _measure(folder):
    program = os.path.join(folder, "kv_compare.so")
    source = os.path.join(ROOT, "libworker", "jobs", "kv_compare.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT}/include", source, "-lm", "-o", program], check=True)
    measure = ctypes.CDLL(program).scout__kv_compare
    measure.restype, measure.argtypes = _Measure, (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    return measure


class Pages:
    """KV of the first BLOCKS blocks of prompts, as tensors by layer."""

    def __init__(self, engine):
        self._engine = engine

    def __call__(self, prompt, beside=(), forget=True, tokens=None, **more):
        """@beside: prompts that run with it. @tokens: until so many are computed, beyond the prompt they are decoded; with them."""
        engine = self._engine
        if forget:
            engine.forget()
        for other in beside:
            engine.add(other, 30)
        name, running = engine.add(prompt, max(3, (tokens or 0) - len(prompt) + 2), **more), engine.scheduler.running
        while not (own := [r for r in running if r.request_id.split("-")[0] == name and r.num_computed_tokens >= (tokens or len(prompt))]):
            need(name not in engine.step(), "the request ended before its KV was seen")
        blocks = list(engine.scheduler.kv_cache_manager.get_block_ids(own[0].request_id)[0])[:BLOCKS]
        (found,) = engine.on_workers(read, blocks)
        known = list(own[0].all_token_ids)
        while engine.busy:
            engine.step()
        return (found, known) if tokens else found


def read(worker, blocks):
    return [cache[blocks].clone() for cache in worker.model_runner.kv_caches]


def distributions(context, engine):
    measure = _measure(context.models_folder)
    own, size = Pages(engine), BLOCKS * engine.block_tokens
    prompt, others = prompts.tokens("kv/own", size + 50), [prompts.tokens(f"kv/{i}", 700 + 90 * i) for i in range(6)]
    base = own(prompt)
    decoded, answer = own(prompt[:60], tokens=size + 1)
    same = {
        "beside another one": own(prompt, others[:1]),
        "beside 6 others, in other steps": own(prompt, others),
        "with more tokens after them": own(prompt + others[0]),
        "with fewer": own(prompt[: size + 1]),
        "after a cached prefix": (own(prompt[:500]), own(prompt, forget=False))[1],
        "noise of 3 % of the root mean square on each number": [noise(layer, 0.03) for layer in base],
    }
    pairs = [("same", name, base, found) for name, found in same.items()]
    pairs.append(("same", "decoded token by token, and as a prompt", own(answer[: size + 1]), decoded))
    other = {
        "one of the first tokens is another": own([prompt[0], prompt[1] ^ 1, *prompt[2:]]),
        "another prompt": own(prompts.tokens("kv/another", size + 50)),
        "blocks exchanged": [layer.roll(1, 0) for layer in base],
    }
    if context.options.session.endswith("lora"):
        other["an adapter"] = own(prompt, adapter=context.adapter(1))
    else:
        for name, folder in (("noise of 1 % on all weights", noisy(context)), ("other weights", context.other_folder)):
            engine.load_weights(folder)
            other[name] = own(prompt)
    pairs += [("other", name, base, found) for name, found in other.items()]
    lines = [line for kind, name, one, two in pairs for line in _lines(measure, kind, name, one, two)]
    print("\n".join(lines), flush=True)
    return f"{len(lines)} rows"


def noisy(context):
    """The model with noise on all of its weights."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = context.folder + "-noisy"
    shutil.copytree(context.folder, folder, dirs_exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    torch.manual_seed(models.SEED)
    save_file({name: noise(weight, 0.01) for name, weight in load_file(path).items()}, path, metadata={"format": "pt"})
    return folder


def noise(tensor, share):
    """@tensor with noise of @share of its root mean square."""
    import torch

    wide = tensor.float()
    return (wide + share * wide.pow(2).mean().sqrt() * torch.randn(wide.shape)).to(tensor.dtype)


def _lines(measure, kind, name, one, two):
    """Of the same KV the figure is the most of all, of other KV the block that is most alike, by its layer that is least alike. KV of fp8
    is that of bf16, rounded."""
    import torch

    own = str(one[0].dtype).removeprefix("torch.")
    for dtype in (own, "float8_e4m3fn", "float8_e5m2") if own == "bfloat16" else (own,):
        blocks = []
        for block in range(BLOCKS):
            sides = [[layer[block].to(getattr(torch, dtype)).contiguous().view(torch.uint8).numpy().tobytes() for layer in side] for side in (one, two)]
            found = [measure(DTYPES[dtype], *layers, len(layers[0])) for layers in zip(*sides)]
            blocks.append([max(getattr(layer, what) for layer in found) for what in ("norm_error", "share")])
        worst = max if kind == "same" else min
        norm, share = (worst(values) for values in zip(*blocks))
        yield f"{dtype}, {kind} KV, {name}: norm {norm:.2g}, share {share:.2g}"
