#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the connector's hooks on vLLM's scheduler side cost in a round of new requests, without vLLM.

    meson setup build-release --buildtype=release && ninja -C build-release
    python3 python/bench/hooks.py build-release [OTHER/python]

A round: --waiting requests are announced, asked for, get their blocks, take the steps of a prompt in pieces and of an
answer of 4 tokens, and end. The hooks are called as vLLM's scheduler calls them, with the real Scheduler of
kvscout.vllm, a real client and kvscoutd; vLLM's own objects are stand-ins, and a worker says at once that each store
has ended. Nothing is cached, so each chunk is looked up and stored.

Figures are CPU microseconds of the scheduler's thread for a round and for a request, medians over the rounds. With
OTHER, the folder of another version's Python package (the same extension is used), both versions take turns, and the
median of the ratios OTHER / ours is shown, too.
"""

import argparse
import hashlib
import importlib
import os
import statistics
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

BLOCK_TOKENS = 64
CHUNK_TOKENS = 128
PROMPT_TOKENS = 296
ANSWER_TOKENS = 4
STEP_TOKENS = 2048
SERVER_S = 10


class Request:
    """What the hooks read of vLLM's Request."""

    def __init__(self, name, hashes):
        self.request_id = name
        self.cache_salt = self.kv_transfer_params = self.lora_request = None
        self.skip_reading_prefix_cache = False
        self.mm_features = ()
        self.num_prompt_tokens = PROMPT_TOKENS
        self.num_computed_tokens = 0
        self._tokens = [7] * PROMPT_TOKENS
        self.output_token_ids = []
        self.block_hashes = hashes
        self.status = SimpleNamespace(name="FINISHED_LENGTH_CAPPED")

    @property
    def num_tokens(self):
        return len(self._tokens)

    def append(self, token):
        self._tokens.append(token)
        self.output_token_ids.append(token)


class Manager:
    """What the hooks read of vLLM's KVCacheManager."""

    def __init__(self):
        null = SimpleNamespace(block_id=0)
        self.block_pool = SimpleNamespace(
            blocks=[SimpleNamespace(ref_cnt=1) for _ in range(8)],
            null_block=null,
            touch=lambda blocks: None,
            free_blocks=lambda blocks: None,
            evict_blocks=lambda blocks: None,
            num_gpu_blocks=8,
        )
        self.ids = ([1, 2, 3, 4, 5],)

    def get_block_ids(self, request_id):
        return self.ids


def load(folder):
    """kvscout.vllm's modules of @folder, beside those of other folders. kvscout itself is loaded already."""
    import vllm_rig

    found = {}
    with mock.patch.dict(sys.modules, vllm_rig.modules_of_vllm()):
        for name in [name for name in sys.modules if name.startswith("kvscout.vllm")]:
            del sys.modules[name]
        package = sys.modules["kvscout.vllm"] = types.ModuleType("kvscout.vllm")
        package.__path__ = [str(Path(folder) / "kvscout" / "vllm")]
        for name in ("config", "groups", "scheduler", "hints", "metadata"):
            found[name] = importlib.import_module(f"kvscout.vllm.{name}")
    for name in [name for name in sys.modules if name.startswith("kvscout.vllm")]:
        del sys.modules[name]
    return SimpleNamespace(**found)


class Side:
    """One version of the scheduler's side, with a client of its own."""

    def __init__(self, folder, endpoint, kvscout):
        self.modules = load(folder)
        parsed = self.modules.config.parse({"chunk_tokens": CHUNK_TOKENS}, BLOCK_TOKENS)
        client = kvscout.Client(endpoint=endpoint, chunk_tokens=CHUNK_TOKENS, namespace="hooks")
        client.wait_ready(SERVER_S * 1000)
        self.scheduler = self.modules.scheduler.Scheduler(
            parsed, self.modules.groups.one(BLOCK_TOKENS, CHUNK_TOKENS), lambda namespace: client, 1, kvscout.KVScoutError,
            lambda salt: None, self.modules.hints.Hints((), 1 << 20),
        )
        self.scheduler.join({"hooks"})
        self.scheduler.bind(Manager())
        self.n = 0
        self.spent_ns = 0

    def hook(self, name, *args):
        begin = time.thread_time_ns()
        found = getattr(self.scheduler, name)(*args)
        self.spent_ns += time.thread_time_ns() - begin
        return found

    def new_requests(self, n):
        for _ in range(n):
            self.n += 1
            name = f"cmpl-7f3a1c52-40d8-4be1-{self.n:012x}"
            yield Request(name, [hashlib.sha256(b"%s %d" % (name.encode(), i)).digest() for i in range(4)])

    def ask(self, waiting, running):
        """The part of schedule() that takes requests from the queue, while the step has tokens."""
        left = STEP_TOKENS
        while waiting and left >= PROMPT_TOKENS:
            request = waiting.pop(0)
            if self.hook("matched_tokens", request, 0) is None:
                waiting.append(request)
                return
            self.hook("allocated", request, ([1, 2, 3, 4, 5],), 0)
            running[request.request_id] = request
            left -= PROMPT_TOKENS

    def step(self, waiting, running):
        decoding = {name: 1 for name in running}
        self.ask(waiting, running)
        scheduled = {name: decoding.get(name, PROMPT_TOKENS) for name in running}
        meta = self.hook("build_meta", SimpleNamespace(num_scheduled_tokens=scheduled, preempted_req_ids=None))
        stored = {store.number: 1 for store in meta.stores}
        self.hook("worker_output", self.modules.metadata.WorkerMetadata(stored=stored))
        for name, tokens in scheduled.items():
            request = running[name]
            request.num_computed_tokens += tokens
            request.append(9)
            if len(request.output_token_ids) == ANSWER_TOKENS:
                del running[name]
                self.hook("finished", request)

    def round(self, n):
        """CPU microseconds of the hooks."""
        requests = list(self.new_requests(n))
        waiting, running = list(requests), {}
        self.spent_ns = 0
        for request in requests:
            self.hook("on_new_request", request)
        while waiting or running:
            self.step(waiting, running)
        self.step(waiting, running)
        return self.spent_ns / 1000


def measure(sides, options):
    """Rounds of each side, by turns."""
    taken = [[] for _ in sides]
    for round_number in range(options.rounds + 2):
        for side, times in zip(sides, taken):
            spent = side.round(options.waiting)
            if round_number >= 2:
                times.append(spent)
    return taken


def hook_of_nothing_us():
    """What measuring a hook costs by itself."""
    begin = time.thread_time_ns()
    for _ in range(1000):
        time.thread_time_ns()
    return (time.thread_time_ns() - begin) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="build folder of meson; for figures that count, of buildtype release")
    parser.add_argument("other", nargs="?", type=Path, help="folder of another version's package")
    parser.add_argument("--waiting", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    build = options.build.resolve()
    sys.path[:0] = [str(build / "python"), str(Path(__file__).resolve().parent.parent / "tests")]
    os.environ["KVSCOUTD"] = str(build / "libserver" / "daemon" / "kvscoutd")
    import kvscout
    from rig import ServerProcess

    server = ServerProcess()
    folders = [build / "python"] + ([options.other.resolve()] if options.other else [])
    sides = [Side(folder, server.endpoint, kvscout) for folder in folders]
    taken = measure(sides, options)
    for side in sides:
        side.scheduler.close()
    server.stop()
    print(f"{options.waiting} requests wait, {options.rounds} rounds; a reading of the clock is {hook_of_nothing_us():.2f} us")
    for name, times in zip(("ours", "other"), taken):
        median = statistics.median(times)
        print(f"{name:6} {median:8.0f} us a round (least {min(times):.0f}), {median / options.waiting:.1f} us a request")
    if len(taken) == 2:
        print(f"other / ours: {statistics.median(other / own for own, other in zip(*taken)):.3f}")


if __name__ == "__main__":
    main()
