#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel on a GPU: the connector's scheduler side and worker side, without vLLM (stubs of python/tests), above KV tensors as vLLM's
allocate_kv_cache() makes them. A replayed graph writes pages, they are stored, spoiled, looked up, loaded into other pages, and every byte
of the memory is compared.

usage: wheel_gpu.py [--wheel FILE] [CASE...]     without --wheel: the package that Python finds, and KVSCOUTD

TAP. Each case is a process with a time limit, some at a time. It needs torch with CUDA. On the stand-in for the driver, which LD_LIBRARY_PATH
names, memory of the process takes the place of torch's tensors. KVSCOUT_WHEEL_DEVICE=cpu tries the cases with torch and no driver.
"""

import contextlib
import ctypes
import importlib
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import types
import zipfile
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "rig"), os.path.join(HERE, "..", "..", "python", "tests")]

CASE_LIMIT_S = 60 * float(os.environ.get("KVSCOUT_TEST_TIMES", "1"))
JOBS = 4
SKIPPED = 77
SPOILED = 0x5A
BLOCK, CHUNK = 16, 64


class Skip(Exception):
    pass


def pick_device():
    import kv_cache

    forced = os.environ.get("KVSCOUT_WHEEL_DEVICE")
    if forced:
        return kv_cache.Torch(forced)
    try:
        cu = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Skip("there is no driver of CUDA's (libcuda.so.1)") from None
    if hasattr(cu, "standin_set"):
        return kv_cache.StandIn(cu)
    try:
        import torch
    except ImportError:
        raise Skip("torch is not installed") from None
    if not torch.cuda.is_available():
        raise Skip("torch finds no CUDA device")
    return kv_cache.Torch("cuda")


# ---- an engine -------------------------------------------------------------------------------------------------------


class Engine:
    """Both sides of an engine of one group; its tensors, what its model computes, and what the tensors should hold."""

    def __init__(self, device, endpoint, kind="bf16", layout="LBNHC"):
        import kv_cache
        import kvscout
        from kvscout.vllm import config, groups, layout as layouts
        from test_vllm_groups import FullAttentionSpec, Manager, NoHints, engine_of
        from vllm_rig import modules_of_vllm

        is_gpu = device.name == "cuda"
        self.device, self.blocks, self.chunks = device, 512 if is_gpu else 64, 40 if is_gpu else 6
        geometry = kv_cache.Geometry(kv_cache.KINDS[kind], layout, 8 if is_gpu else 3, self.blocks, BLOCK)
        self.cache, self.source, self.model = (device.cache(geometry) for _ in range(3))
        self.source.randomize(7)
        tensors = self.cache.tensors()
        vllm_config, cache_config = engine_of(FullAttentionSpec())
        cache_config.kv_cache_groups[0].layer_names = list(tensors)
        own = groups.of_engine(vllm_config, cache_config, CHUNK)
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            scheduler, worker = (importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "worker"))
        self.keys = {"endpoint": endpoint, "chunk_tokens": CHUNK, **own.keys()}
        client, self.copier = kvscout.Client(**self.keys, lookup_timeout_ms=10000), kvscout.Worker(**self.keys)
        client.wait_ready(20000)
        self.manager = Manager(cache_config.kv_cache_groups)
        self.manager.block_pool = shuffled_pool(self.blocks)
        self.scheduler = scheduler.Scheduler(
            config.parse({"chunk_tokens": CHUNK}, BLOCK), own, lambda namespace: client, 1, kvscout.KVScoutError, lambda salt: None, NoHints
        )
        self.scheduler.join({"vllm/own"})
        self.scheduler.bind(self.manager)
        self.worker = worker.Worker(own, self.copier, kvscout.KVScoutError, "vllm/own")
        self.tables = layouts.tables(tensors, self.blocks, own, lambda layers, element: f"{layout}/{element}")
        self.worker.register(self.tables, device.event_maker(next(iter(tensors.values()))))
        self.spoil()

    def close(self):
        self.scheduler.close()
        self.worker.close()

    def spoil(self):
        for cache in (self.cache, self.model):
            cache.fill(SPOILED)

    def check(self, pairs):
        """The blocks (of the model's computation, of the pages) hold what was computed, and all else what it was spoiled with."""
        self.model.take(self.source, pairs)
        self.device.wait()
        assert self.cache.equals(self.model), "the tensors hold other bytes than they should"

    def pairs(self, prompt, table):
        """Of a prompt's blocks: what the model computes for each, and the page."""
        return [((at + 31 * prompt) % self.blocks, block) for at, block in enumerate(table)]

    def request(self, prompt, why):
        from test_vllm_groups import request

        return request(f"{why} {prompt}", str(prompt), self.chunks * CHUNK + 1)

    def wait_for(self, condition, what):
        until = time.monotonic() + CASE_LIMIT_S / 2
        while not (value := condition()):
            assert time.monotonic() < until, f"waited for {what}"
            time.sleep(0.0005)
        return value

    def matched(self, request):
        found = []
        self.scheduler.on_new_request(request)
        self.wait_for(lambda: found.append(self.scheduler.matched_tokens(request, 0)) or found[-1] is not None, "an answer")
        return found[-1]

    def schedule(self, scheduled):
        return self.scheduler.build_meta(types.SimpleNamespace(num_scheduled_tokens=scheduled, preempted_req_ids=set()))

    def settle(self):
        def settled():
            self.worker.finished(())
            self.scheduler.worker_output(self.worker.take_meta())
            return not self.scheduler.has_pending_stores()

        self.wait_for(settled, "the stores to end")

    def end(self, request):
        request.status = types.SimpleNamespace(name="FINISHED_LENGTH_CAPPED")
        self.scheduler.finished(request)
        self.manager.free(request)
        self.schedule({})

    def store(self, prompt):
        """A step that computes all of @prompt. Returns whether all that was not there was stored."""
        first, counts = self.request(prompt, "store"), dict(self.worker.counts)
        self.matched(first)
        self.scheduler.allocated(first, ([],), 0)
        self.manager.allocate(first, 0, first.num_tokens)
        pairs = self.pairs(prompt, self.manager.get_block_ids(first.request_id)[0])
        compute = self.device.writer(self.cache, self.source, pairs)
        meta = self.schedule({first.request_id: first.num_tokens})
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
        self.device.keep_busy()
        compute()
        first.num_computed_tokens = first.num_tokens
        self.worker.wait_for_save(meta)
        self.settle()
        self.end(first)
        self.check(pairs)
        return all(self.worker.counts[count] == counts[count] for count in ("stores_failed", "stores_dropped"))

    def start_load(self, prompt):
        """The step that loads what is there of @prompt: (request, pairs), or None where nothing is."""
        again = self.request(prompt, "load")
        found = self.matched(again)
        if not found:
            self.end_unfound(again)
            return None
        self.manager.allocate(again, found, found)
        self.scheduler.allocated(again, self.manager.get_block_ids(again.request_id), found)
        meta = self.schedule({})
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
        return again, self.pairs(prompt, self.manager.get_block_ids(again.request_id)[0])

    def end_unfound(self, request):
        self.scheduler.allocated(request, ([],), 0)
        self.manager.tables.setdefault(request.request_id, [[]])
        self.end(request)

    def end_load(self, started):
        """Waits for it, and looks at every byte. Returns how many blocks it did not fill."""
        again, pairs = started
        self.wait_for(lambda: self.worker._received or self.worker._collect(), "the load to end")
        self.worker.finished(())
        bad = self.worker.bad_blocks()
        self.scheduler.worker_output(self.worker.take_meta())
        self.check_loaded(pairs, bad)
        self.end(again)
        return len(bad)

    def check_loaded(self, pairs, bad):
        """What a block holds that was not filled is nobody's: it is taken over before the comparison."""
        self.model.take(self.cache, [(block, block) for _, block in pairs if block in bad])
        self.check([pair for pair in pairs if pair[1] not in bad])

    def load(self, prompt):
        started = self.start_load(prompt)
        assert started and len(started[1]) == self.chunks * CHUNK // BLOCK, f"of prompt {prompt} not all is found"
        assert self.end_load(started) == 0, "a block was not loaded"

    def round_trip(self, prompt):
        assert self.store(prompt), f"prompt {prompt} was not stored as a whole"
        self.spoil()
        self.load(prompt)
        self.spoil()


def shuffled_pool(blocks):
    """Blocks come in an order of chance."""
    from test_vllm_groups import Pool

    class Shuffled(Pool):
        def new(self):
            block = chance.choice([block for block in self.blocks[1:] if not block.ref_cnt])
            block.ref_cnt = 1
            return block

    chance = random.Random(3)
    return Shuffled(blocks)


@contextlib.contextmanager
def server(**config):
    from rig import ServerProcess

    process = ServerProcess(**{"l1_bytes": "1Gi", **config})
    try:
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def engine_on(device, endpoint, *args):
    engine = Engine(device, endpoint, *args)
    try:
        yield engine
    finally:
        engine.close()


# ---- cases -----------------------------------------------------------------------------------------------------------

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def of_layout(layout):
    def run(device):
        import kv_cache

        with server() as serving:
            for prompt, (kind, what) in enumerate(kv_cache.KINDS.items()):
                if what.split > 1 and not kv_cache.can_be_split(layout):
                    continue
                with engine_on(device, serving.endpoint, kind, layout) as engine:
                    engine.round_trip(prompt)
                say(f"{kind}: every byte is right")

    run.__name__ = f"tensors_in_layout_{layout.lower()}_come_back"
    return run


for name in ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"):
    case(of_layout(name))


@case
def a_side_stream_is_waited_for(device):
    device.use_side_stream()
    with server() as serving, engine_on(device, serving.endpoint) as engine:
        for prompt in range(4):
            engine.round_trip(prompt)


@case
def graphs_are_captured_while_the_pool_is_pinned(device):
    """In the strictest mode, which any unsafe call of this process would break. Workers come and pin all that the pool has, and go."""
    with server(l1_bytes="4Gi") as serving, engine_on(device, serving.endpoint) as engine:
        for prompt in range(24):
            assert engine.store(prompt)
        pinning = Pinning(engine)
        pinning.start()
        captured, until = 0, time.monotonic() + 3
        while time.monotonic() < until and not pinning.error:
            pairs = engine.pairs(captured, range(1, engine.chunks))
            write = device.writer(engine.cache, engine.source, pairs)
            write()
            engine.check(pairs)
            captured += 1
        pinning.end()
        say(f"{captured} graphs were captured while {pinning.workers} workers came and went")
        engine.spoil()
        engine.round_trip(30)


class Pinning(threading.Thread):
    """Other workers on an engine's pages, one after the other."""

    def __init__(self, engine):
        super().__init__()
        self.engine, self.workers, self.error = engine, 0, None
        self.over = threading.Event()

    def run(self):
        import kvscout

        try:
            while not self.over.is_set():
                with kvscout.Worker(**self.engine.keys) as worker:
                    worker.register(tables=self.engine.tables)
                    self.over.wait(0.3)  # it pins behind the registration
                self.workers += 1
        except kvscout.KVScoutError as error:
            self.error = error

    def end(self):
        self.over.set()
        self.join()
        assert self.workers > 0 and self.error is None, f"{self.workers} workers, {self.error}"


@case
def expandable_segments_hold_the_tensors(device):
    if device.name != "cuda":
        raise Skip("expandable segments are torch's, on a GPU")
    with server() as serving, engine_on(device, serving.endpoint) as engine:
        segments = device.torch.cuda.memory_snapshot()
        assert any(segment.get("is_expandable") for segment in segments), "torch has no expandable segments here"
        for prompt in range(3):
            engine.round_trip(prompt)


@case
def two_processes_share_what_they_store(device):
    with server() as serving, engine_on(device, serving.endpoint) as engine:
        assert engine.store(1)
        engine.spoil()
        command = [sys.executable, __file__, "--peer", serving.endpoint]
        other = subprocess.run(command, timeout=CASE_LIMIT_S - 10, capture_output=True, text=True)
        assert other.returncode == 0, f"the other process: {other.stdout}{other.stderr}"
        engine.load(2)


def peer(endpoint):
    """The other process: loads what the first one stored, and stores something."""
    with engine_on(pick_device(), endpoint) as engine:
        engine.load(1)
        engine.spoil()
        assert engine.store(2)


@case
def a_server_that_is_killed_costs_only_the_cache(device):
    with server() as serving, engine_on(device, serving.endpoint) as engine:
        for prompt in range(3):
            assert engine.store(prompt)
            engine.spoil()
            started = engine.start_load(prompt)
            serving.kill()
            say(f"{engine.end_load(started)} blocks of {len(started[1])} were not loaded")
            serving.start()
            engine.spoil()
            engine.wait_for(lambda: comes_back(engine, 10 + prompt), "the server to come back")


@case
def continuous_batching_of_transformers_goes_on_bit_for_bit(device):
    """With the KV of all requests stored, spoiled and loaded between steps; and not, if it is not loaded."""
    import kvscout

    if not hasattr(device, "torch"):
        raise Skip("without torch there is no model")
    try:
        import batching
        from transformers import ContinuousBatchingConfig  # noqa: F401
    except ImportError as error:
        raise Skip(f"no continuous batching: {error}") from None
    model = batching.make_model(device.name)
    plain = batching.generate(model)
    if not batching.same(plain, batching.generate(model)):
        raise Skip("without a worker, too, the logits of two runs differ")
    record = device.event_maker(next(model.parameters()))
    with server() as serving:
        for is_whole in (True, False):
            keys = {"endpoint": serving.endpoint, "chunk_tokens": batching.PAGE_TOKENS, "namespace": f"batching {is_whole}"}
            with kvscout.Client(**keys, lookup_timeout_ms=10000) as client, kvscout.Worker(**keys) as worker:
                client.wait_ready(20000)
                swap = batching.Swap(client, worker, record, is_whole)
                assert batching.same(plain, batching.generate(model, swap)) == is_whole, f"loaded: {is_whole}"
                say(f"{len(plain[0])} steps, {swap.blocks} blocks in {swap.steps} of them, loaded: {is_whole}")


def comes_back(engine, prompt):
    engine.store(prompt)
    engine.spoil()
    started = engine.start_load(prompt)
    is_whole = started is not None and engine.end_load(started) == 0
    engine.spoil()
    return is_whole


# ---- running ---------------------------------------------------------------------------------------------------------


def say(text):
    print("# " + text, flush=True)


def run_case(name):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with its parent
    try:
        device = pick_device()
        CASES[name](device)
        device.require_copies()
    except Skip as skip:
        say(f"SKIP {skip}")
        return SKIPPED
    return 0


def start_case(name):
    """(exit status, what it said)."""
    more = {}
    if name.startswith("expandable"):
        more = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")
    process = subprocess.Popen(
        [sys.executable, __file__, "--case", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, **more}, start_new_session=True,
    )
    try:
        said = process.communicate(timeout=CASE_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 124, process.communicate()[0] + f"# it did not end in {CASE_LIMIT_S} s\n"
    return process.returncode, said


def unpack(wheel, folder):
    """As pip does; what its console scripts become lies beside the extension."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    program = os.path.join(folder, "kvscout", "kvscoutd")
    os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
    os.environ["PYTHONPATH"] = folder
    os.environ["KVSCOUTD"] = program


def run_all(names):
    failed = skipped = 0
    print(f"1..{len(names)}", flush=True)
    with ThreadPoolExecutor(int(os.environ.get("GPU_TEST_JOBS", JOBS))) as pool:
        for number, (name, (status, said)) in enumerate(zip(names, pool.map(start_case, names)), 1):
            lines = said.splitlines()
            why = lines[-1].removeprefix("# SKIP ") if status == SKIPPED and lines else ""
            for line in lines:
                print(line if line.startswith("#") else "# " + line)
            print(f"{'ok' if status in (0, SKIPPED) else 'not ok'} {number} - {name}" + (f" # SKIP {why}" if why else ""), flush=True)
            failed += status not in (0, SKIPPED)
            skipped += status == SKIPPED
    say(f"{len(names) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def main(args):
    if args[:1] == ["--case"]:
        return run_case(args[1])
    if args[:1] == ["--peer"]:
        return peer(args[1])
    with tempfile.TemporaryDirectory(prefix="kvscout-wheel-") as folder:
        if args[:1] == ["--wheel"]:
            unpack(args[1], folder)
            args = args[2:]
        return run_all(args or list(CASES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
