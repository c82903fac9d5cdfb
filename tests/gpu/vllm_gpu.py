#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM itself on a GPU, with the connector and with the tier. Models are tiny, with random weights by seed (tests/engine/models.py).

usage: vllm_gpu.py [--short] [--budget-s N] [CASE...]       on the GPU machine: unpacks build-gpu-vllm and the wheel of build-gpu-carry
       vllm_gpu.py --kvscoutd PROGRAM [...]                 with the vLLM that this Python finds; its CPU build tries the cases
       vllm_gpu.py --unpack PARTS FOLDER

Each case is a process with a time limit, whose log is $OUT/CASE.log; those that prove most come first. A run that is killed keeps what it
has. First comes vLLM alone: on a GPU it must repeat its own answers to the last bit, behind its own cached prefix, too
(VLLM_BATCH_INVARIANT). The last line is `N passed, N failed, N skipped`.
"""

import argparse
import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "engine"), HERE]

import torch

import checks
import kills as of_engine
import models
import prompts
import scenarios
import tier_cases
from checks import Skip, need
from engine import Engine, ours
from run import run_session
from server import Server
from wheel_gpu import unpack as unpack_wheel

CHUNK, OUTPUT = 128, 24


class World:
    """What a case runs with. @variant: of VARIANTS."""

    def __init__(self, options, variant="base"):
        self.options, self.variant = options, variant
        keys = dict(VARIANTS[variant][0])
        self.connector = {"kv_layout": keys.pop("kv_layout")} if "kv_layout" in keys else {}
        self.models = os.path.join(options.root, "models")
        self.folder = models.make(keys.pop("model", "llama"), self.models)
        self.engine_keys = keys
        if torch.cuda.is_available():
            checks.LOGPROB_TOLERANCE = 0.0
            self.engine_keys = {"dtype": "bfloat16", "enforce_eager": False, "kv_cache_memory_bytes": 1 << 30, **keys}
        if keys.get("speculative_config") == "eagle":
            head = models.make_eagle(self.folder, self.models)
            self.engine_keys["speculative_config"] = {"method": "eagle", "model": head, "num_speculative_tokens": 2}
        self.asked = prompts.shared("shared/3", *[4 if options.short else 8] * 2, 900, 60)
        self.reference = checks.Reference(os.path.join(options.root, f"vllm-{variant}.json"))
        self.cases = checks.Cases()

    @contextlib.contextmanager
    def engine(self, endpoint=None, **more):
        """@endpoint: None: without the connector."""
        connector = None if endpoint is None else {"endpoint": endpoint, **self.connector}
        engine = Engine(self.folder, connector=connector, **{**self.engine_keys, **more})
        try:
            yield engine
        finally:
            engine.close()

    @contextlib.contextmanager
    def server(self):
        server = Server(self.options.kvscoutd, l1_bytes="2Gi").start()
        try:
            yield server
        finally:
            server.stop()

    def ask(self, engine):
        """Compares all answers; returns what the note says of them."""
        answers = engine.run(self.asked, OUTPUT)
        compared = self.reference.compare(self.asked, OUTPUT, answers)
        engine.drain()
        return compared, sum(answer.cached for answer in answers)

    def another_process(self, *words):
        """For the base only: each start costs seconds of a GPU machine."""
        command_line = [*command(self.options, "again", self.variant), *words]
        need(self.variant != "base" or subprocess.run(command_line).returncode == 0, "another process: see its line")


# Engine's options by name, and whether the CPU build can have them. What they are compared with is vLLM alone with the same ones.
VARIANTS = {
    "base": ({}, True),
    "few-blocks": ({"blocks": 80}, True),
    "blocks": ({"kv_layout": "blocks"}, False),
    "eager": ({"enforce_eager": True}, False),
    "triton": ({"attention_backend": "TRITON_ATTN"}, False),
    "blocks-triton": ({"kv_layout": "blocks", "attention_backend": "TRITON_ATTN"}, False),
    "blocks-eager": ({"kv_layout": "blocks", "enforce_eager": True}, False),
    "unasync": ({"async_scheduling": False}, False),
    "blocks-unasync": ({"kv_layout": "blocks", "async_scheduling": False}, False),
    "blocks-few": ({"kv_layout": "blocks", "blocks": 80}, False),
    "gemma": ({"model": "gemma", "blocks": 240}, True),
    "mla": ({"model": "mla"}, False),
    "eagle": ({"speculative_config": "eagle"}, True),
    "fp8": ({"kv_cache_dtype": "fp8"}, False),
    "cumem": ({"enable_cumem_allocator": True}, False),
}


def kernel(world):
    """One kernel of vLLM's own: whether the packed machine code runs."""
    if not torch.cuda.is_available():
        raise Skip("there is no GPU")
    import vllm._C_stable_libtorch  # noqa: F401

    x, weight = torch.randn(64, 4096, device="cuda"), torch.randn(4096, device="cuda")
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, 1e-6)
    right = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    need(torch.allclose(out, right, atol=1e-4), "rms_norm computes something else")
    return f"{torch.cuda.get_device_name()}, capability {torch.cuda.get_device_capability()}, torch {torch.__version__}"


def alone(world):
    """The control of the method: vLLM without a connector gives the same answers again, in another process and behind its own prefixes."""
    with world.engine() as engine:
        answers = engine.run(world.asked, OUTPUT)
        for prompt, answer in zip(world.asked, answers):
            world.reference.add(prompt, OUTPUT, answer)
        world.reference.save()
        distinct = sum(len(set(answer.tokens)) >= checks.DISTINCT_TOKENS for answer in answers)
        need(distinct > len(answers) // 2, f"only {distinct} answers hold {checks.DISTINCT_TOKENS} different tokens")
        cached = world.ask(engine)[1]
        need(engine.preemptions or cached, "nothing came from vLLM's own prefix cache")
        note = f"{cached} tokens from vLLM's own cache, {engine.preemptions} preemptions; {engine.on_workers(runner)[0]}"
    world.another_process()
    return note


def connector(world):
    """Cold, then warm from the server alone, then in a second engine's process."""
    with world.server() as server:
        with world.engine(server.endpoint) as engine:
            compared = world.ask(engine)[0]
            need(engine.forget(), "vLLM's own cache could not be emptied")
            before = engine.hits
            compared += world.ask(engine)[0]
            hits = engine.hits - before
            need(hits > 0, "no token came from the server")
            note = f"{compared} tokens equal, {hits} hit warm, {engine.preemptions} preemptions; {engine.on_workers(runner)[0]}"
        world.another_process("--endpoint", server.endpoint)
    return note


def runner(worker):
    return type(worker.model_runner).__module__


def again(world):
    """In another process: what the first one was answered, and with an endpoint from what it stored."""
    with world.engine(world.options.endpoint) as engine:
        compared = world.ask(engine)[0]
        need(engine.hits > 0 or world.options.endpoint is None, "no token came from what the first process stored")
        return f"{compared} tokens equal, {engine.hits} hit"


def control(spoil):
    """@spoil: runs on the worker and makes its stores wrong. Answers from the server must then differ."""

    def run(world):
        with world.server() as server, world.engine(server.endpoint) as engine:
            engine.on_workers(spoil)
            world.ask(engine)
            engine.forget()
            answers = engine.run(world.asked, OUTPUT)
            differ = sum(answer.tokens != world.reference.tokens(prompt, OUTPUT) for prompt, answer in zip(world.asked, answers))
            need(engine.hits > 0, "no token came from the server")
            need(differ > 0, "no answer differs, so equal answers show nothing")
            return f"{differ} of {len(answers)} answers differ, as they must"

    return run


def own_worker():
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return ours(get_kv_transfer_group())._worker


def exchange_a_chunk(worker):
    """The first chunk of one request's store becomes that of another request."""
    own = own_worker()
    start, seen = own._start_stores, []

    def wrong(stores):
        for store in stores:
            ((group, blocks),) = store.block_ids.items()
            if seen and store.request_id != seen[0] and store.first_token == 0 and len(seen) == 2:
                blocks[: len(seen[1])] = seen[1]
                seen.append(None)
            elif not seen and store.first_token == 0:
                seen.extend((store.request_id, blocks[: CHUNK // own._groups[group].block_tokens]))
        start(stores)

    own._start_stores = wrong


def store_before_the_pass(worker):
    """Stores copy before the step that computes what they copy: what the event is for."""
    own = own_worker()
    begin, make_event = own.begin_step, own._make_event

    def early(meta):
        begin(meta)
        stores, meta.stores = meta.stores, []
        own._unsaved, own._make_event = (), lambda: None
        own._start_stores(stores)
        own._make_event = make_event
        while own._stores:
            own._collect()

    own.begin_step = early


def kills(world):
    """kvscoutd is killed, frozen and restarted under load; requests are aborted while copies are under way."""
    asked, n = prompts.of("stream")
    with world.engine() as engine:
        for prompt, answer in zip(asked, engine.run(asked, n)):
            world.reference.add(prompt, n, answer)
    with world.server() as server, world.engine(server.endpoint) as engine:
        aborts = scenarios.random_aborts(world, engine)
        return f"{aborts}; {of_engine.servers_that_die(world, engine, server, 240, 4, 1)}"


def pinned(world):
    """The server stands still, and stores that wait for it hold blocks that no waiting request can do without: nobody hangs."""
    if torch.cuda.is_available():
        raise Skip("its blocks are those of the CPU build")
    few, asked, output = {"blocks": 24, "max_model_len": 1024}, [prompts.tokens(f"pinned/{at}", 900) for at in range(4)], 8
    with world.engine(**few) as engine:
        for prompt, answer in zip(asked, engine.run(asked, output)):
            world.reference.add(prompt, output, answer)
    with world.server() as server, world.engine(server.endpoint, **few) as engine:
        engine.run([prompts.tokens("pinned/first", 900)], output)
        engine.drain()
        server.freeze()
        left = {engine.add(prompt, output): prompt for prompt in asked}
        begin, starved_s = time.monotonic(), 0.0
        while left:
            before = time.monotonic()
            for name, answer in engine.step().items():
                world.reference.compare([left.pop(name)], output, [answer])
            if engine.scheduler.waiting and not engine.scheduler.running and len(engine.side._pins):
                starved_s += time.monotonic() - before
            need(time.monotonic() - begin < 60, f"{len(left)} requests have no answer after a minute")
        took = time.monotonic() - begin
        engine.drain()
        server.thaw()
        need(starved_s > 0, "no request has waited for the blocks of a store")
        return f"{len(asked)} requests in {took:.1f} s, for {starved_s:.1f} s of which none ran because of blocks that stores held"


def tier(world):
    """Below vLLM's own OffloadingConnector: on a GPU with vLLM's own worker, on a CPU with the tests'."""
    names = ("shared", "exact")
    with world.engine() as engine:
        for name in names:
            asked, n = prompts.of(name)
            for prompt, answer in zip(asked, engine.run(asked, n)):
                world.reference.add(prompt, n, answer)
    with world.server() as server:
        config = tier_cases.transfer_config(server.endpoint)
        if torch.cuda.is_available():
            config.kv_connector_extra_config.update(spec_name="TieringOffloadingSpec")
            del config.kv_connector_extra_config["spec_module_path"]
        with world.engine(kv_transfer_config=config) as engine:
            return "; ".join(tier_cases.again_from_the_tier(world, engine, name, 512) for name in names)


def times(world):
    """First token of a repeated long prompt, requests a second without hits, and how long the device was idle: with and without."""
    lengths, requests = ((8192, 32768), 256) if torch.cuda.is_available() else ((2048,), 32)
    longest = max(lengths)
    shape, keys = {"max_position_embeddings": longest + 64}, {"load_format": "dummy", "max_model_len": longest + 64, "seqs": 64}
    if torch.cuda.is_available():
        shape.update(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128)
        keys.update(batch_tokens=8192, kv_cache_memory_bytes=8 << 30)
    keys["hf_overrides"] = shape
    found = {}
    with world.server() as server:
        for name, endpoint in (("without", None), ("with", server.endpoint)):
            with world.engine(endpoint, **keys) as engine:
                engine.run([prompts.tokens("warm", 600)], 4)
                rows = {f"first token of {n}, s": first_token(engine, prompts.tokens(f"long/{n}", n)) for n in lengths}
                busy = engine.on_workers(time_the_steps)[0]
                begin = time.monotonic()
                engine.run([prompts.tokens(f"rate/{at}", 500) for at in range(requests)], 8)
                took = time.monotonic() - begin
                busy = engine.on_workers(busy_seconds)[0]
                engine.drain()
                found[name] = {**rows, "requests a second, no hits": requests / took, "share of time in no step": 1 - busy / took}
    return json.dumps(found, sort_keys=True)


def first_token(engine, prompt):
    """The second time, with vLLM's own cache emptied in between."""
    engine.run([prompt], 1)
    engine.forget()
    begin = time.monotonic()
    engine.run([prompt], 1)
    took = time.monotonic() - begin
    engine.drain()
    return took


def time_the_steps(worker):
    """On a worker: an event of the device's before and after what each step launches; a clock where there is none."""
    worker.timed, run = [], worker.execute_model

    def mark():
        if not torch.cuda.is_available():
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def timed(*args, **more):
        before = mark()
        try:
            return run(*args, **more)
        finally:
            worker.timed.append((before, mark()))

    worker.execute_model = timed


def busy_seconds(worker):
    if not torch.cuda.is_available():
        return sum(after - before for before, after in worker.timed)
    torch.cuda.synchronize()
    return sum(before.elapsed_time(after) for before, after in worker.timed) / 1e3


# In the order in which they run: (function, seconds).
CASES = {
    "kernel": (kernel, 60),
    "alone": (alone, 240),
    "connector": (connector, 240),
    "control-exchanged": (control(exchange_a_chunk), 150),
    "control-unwaited": (control(store_before_the_pass), 150),
    "kills": (kills, 240),
    "pinned": (pinned, 240),
    "times": (times, 240),
    "tier": (tier, 240),
    "again": (again, 0),  # part of others
}


def all_cases(cuda):
    """(name, case, variant); the variants' behind the first five."""
    plain = [(name, name, "base") for name in CASES if name != "again"]
    own = [variant for variant, (_, on_cpu) in VARIANTS.items() if variant != "base" and (cuda or on_cpu)]
    return plain[:5] + [(f"{variant}-{name}", name, variant) for variant in own for name in ("alone", "connector")] + plain[5:]


def run_case(options):
    world = World(options, options.variant)
    world.cases.run(options.case, CASES[options.case][0], world)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**world.cases.counts), flush=True)
    return 1 if world.cases.counts["failed"] else 0


def unpack(parts, folder):
    """All archives at once: each takes a CPU."""
    shutil.rmtree(folder, ignore_errors=True)
    with ThreadPoolExecutor() as pool:
        archives = glob.glob(os.path.join(parts, "part*", "*.tar.xz"))
        return list(pool.map(lambda path: tarfile.open(path).extractall(folder, filter="tar"), archives))


def prepare(options):
    """On the GPU machine: vLLM and the wheel, from what travelled."""
    site, own = (os.path.join(ROOT, f"build-gpu-vllm-{name}") for name in ("site", "wheel"))
    begin = time.monotonic()
    if glob.glob(os.path.join(ROOT, "build-gpu-vllm", "part*")):  # a later call need not carry it again
        unpack(os.path.join(ROOT, "build-gpu-vllm"), site)
    wheels = glob.glob(os.path.join(ROOT, "build-gpu-carry", "wheel", "*.whl"))
    if len(wheels) != 1 or not os.path.isdir(os.path.join(site, "vllm")):
        raise SystemExit("vllm_gpu: needs what ./dev gpu --pack and ./dev gpu --pack-vllm write, build-gpu-carry and build-gpu-vllm")
    unpack_wheel(wheels[0], own)
    os.environ["PYTHONPATH"] = os.pathsep.join([own, site])
    options.kvscoutd = os.environ["KVSCOUTD"]
    print(f"unpacked in {time.monotonic() - begin:.0f} s", flush=True)


def command(options, case, variant):
    words = [sys.executable, "-B", __file__, "--root", options.root, "--kvscoutd", options.kvscoutd, "--case", case, "--variant", variant]
    return words + ["--short"] * options.short


def run_all(options):
    os.makedirs(options.root, exist_ok=True)
    cuda = options.kvscoutd is None
    print(f"# {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}: {' '.join(sys.argv)}", flush=True)
    if cuda:
        prepare(options)
        os.environ.setdefault("VLLM_BATCH_INVARIANT", "1")
        subprocess.run("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", shell=True)
    end, total = time.monotonic() + options.budget_s, [0, 0, 0]
    for name, case, variant in all_cases(cuda):
        if options.names and name not in options.names:
            continue
        limit = int(min(CASES[case][1] * float(os.environ.get("KVSCOUT_TEST_TIMES", "1")), end - time.monotonic()))
        done = run_session(name, limit, options, command(options, case, variant)) if limit >= 30 else [0, 0, 1]
        if limit < 30:
            print(f"{name}: not run, the time is used up", flush=True)
        total = [a + b for a, b in zip(total, done)]
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


def main():
    if sys.argv[1:2] == ["--unpack"]:
        return 0 if unpack(*sys.argv[2:4]) else 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvscoutd")
    parser.add_argument("--root", default=os.environ.get("OUT") or os.path.join(ROOT, "build-gpu"))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--budget-s", type=float, default=560)
    parser.add_argument("--case")
    parser.add_argument("--variant", default="base")
    parser.add_argument("--endpoint")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    return run_case(options) if options.case else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
