# SPDX-License-Identifier: Apache-2.0
"""Both sides of kvscout.vllm with a real client and worker, for tests without vLLM, whose base classes are empty ones here."""

import dataclasses
import importlib
import struct
import sys
import types
from unittest import mock

import kvscout
from kvscout.vllm import config, groups, weights
from pages import BLOCK_TOKENS, CHUNK_TOKENS, Pages, done_by_a_server, hashes_of, hit_of_a_server, wait_done
from rig import wait_for

BASES = {
    "vllm.distributed.kv_transfer.kv_connector.v1.base": (
        "KVConnectorBase_V1", "KVConnectorHandshakeMetadata", "KVConnectorMetadata", "KVConnectorRole", "KVConnectorTransferResults",
        "KVConnectorWorkerMetadata", "SupportsHMA",
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": ("KVConnectorPromMetrics", "KVConnectorStats"),
    "vllm.v1.metrics.cache_hit_source": ("CacheHitSource",),
}
NO_STEP = types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=set())


def platform(name):
    """What the connector asks vLLM's platform."""
    own = {f"is_{kind}": lambda kind=kind: kind == name for kind in ("cpu", "cuda", "rocm", "unspecified")}
    return types.SimpleNamespace(device_name=name, **own)


def modules_of_vllm():
    """Modules by name, with those above them."""
    found = {"torch": types.ModuleType("torch"), "vllm.platforms": types.ModuleType("vllm.platforms")}
    found["vllm.platforms"].current_platform = platform("cpu")
    found["vllm"] = types.ModuleType("vllm")
    found["vllm"].__version__ = "0.33.0"
    for name, classes in BASES.items():
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:n]), types.ModuleType(".".join(parts[:n])))
        for base in classes:
            setattr(found[name], base, type(base, (), {}))
    return found


def request(name, tokens, hash_tokens=CHUNK_TOKENS):
    """What a Scheduler reads of vLLM's Request. All begin with the same tokens."""
    return types.SimpleNamespace(
        request_id=name, num_tokens=tokens, num_prompt_tokens=tokens, num_computed_tokens=0,
        block_hashes=hashes_of("p", tokens // hash_tokens), cache_salt=None, kv_transfer_params=None, lora_request=None,
        skip_reading_prefix_cache=False, trace_headers=None, mm_features=(),
    )


class Engine:
    """What the two processes of an engine hold, and its pages."""

    def __init__(self, test, endpoint, weights_version, block_tokens=BLOCK_TOKENS, joined=True, spans=None, events=None, content="own", **keys):
        """@block_tokens: of one hash of a request. @content: of the weights, which a test may change; own: of this engine alone.
        @keys: more of kv_connector_extra_config."""
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            scheduler, worker, self.messages, self.connector = (
                importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "worker", "metadata", "connector")
            )
        own = groups.one(block_tokens, CHUNK_TOKENS)
        parsed = config.parse({"weights_version": weights_version, "chunk_tokens": CHUNK_TOKENS, "verify_sample": 0, **keys}, block_tokens)
        self._test, self._endpoint, self.content = test, endpoint, content
        self.namespace = "vllm/own" if content == "own" else weights.namespace({0: content}, "")
        self.pages = Pages()
        self.scheduler = scheduler.Scheduler(
            parsed, own, self._make_client, 1, kvscout.KVScoutError, lambda salt: None,
            types.SimpleNamespace(of=lambda request: None), spans, events,
        )
        if joined:
            self.scheduler.join({self.namespace}, {0: (0, content)})
        null = types.SimpleNamespace(block_id=0)
        self.evicted = []  # sets of blocks that left vLLM's own prefix cache
        self.blocks = {}  # of requests, by group
        pool = types.SimpleNamespace(
            num_gpu_blocks=9, null_block=null, evict_blocks=self.evicted.append, blocks=range(9), touch=lambda blocks: None,
            free_blocks=lambda blocks: None,
        )
        self.scheduler.bind(types.SimpleNamespace(block_pool=pool, get_block_ids=lambda name: self.blocks.get(name, ([],))))
        loaded = weights.Loaded(lambda: self.content, 0, self._make_worker)
        copier = self._make_worker(self.namespace, weights_version)
        self.worker = worker.Worker(own, copier, kvscout.KVScoutError, self.namespace, spans=spans, weights=loaded)
        table = {"group": 0, "planes": self.pages.planes, "block_tokens": BLOCK_TOKENS, "n_blocks": self.pages.n, "dtype": "int8"}
        self.worker.register([table], make_event=lambda: None)

    def patch(self, patch):
        patch.start()
        self._test.addCleanup(patch.stop)

    def _keys(self, namespace, weights_version):
        return {"endpoint": self._endpoint, "namespace": namespace, "chunk_tokens": CHUNK_TOKENS, "weights_version": weights_version}

    def _make_client(self, namespace):
        self.client = kvscout.Client(**self._keys(namespace, self.scheduler.weights_version), lookup_timeout_ms=60000)
        self._test.addCleanup(self.client.close)
        self.client.wait_ready(60000)
        return self.client

    def _make_worker(self, namespace, weights_version):
        self.version_of_worker = weights_version
        self.copier = kvscout.Worker(**self._keys(namespace, weights_version))
        self._test.addCleanup(self.copier.close)
        return self.copier

    def step(self):
        meta = self.scheduler.build_meta(NO_STEP)
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
        return meta

    def answer(self):
        """The workers answer what they are asked in this step."""
        meta = self.step()
        self.scheduler.worker_output(self.worker.take_meta())
        return meta

    def store(self, prompt):
        """The end of a store of one chunk."""
        self.pages.fill(prompt, range(4))
        return done_by_a_server(self.copier, lambda: wait_done(self.copier, self.copier.store(0, hashes_of(prompt, 1), list(range(4)))))

    def hit(self, prompt):
        """Chunks of @prompt that this engine could load."""
        found = hit_of_a_server(self.client, prompt, hashes_of(prompt, 1), CHUNK_TOKENS + 1)
        self.client.finish(prompt)
        return found.chunks


class Calls:
    """Calls that @objects get while a hook of vLLM runs, by (hook, name of the object, method); `fails` is one of them that raises."""

    def __init__(self, **objects):
        self.seen, self.fails, self.times, self.hook = {}, None, 0, None
        for name, own in objects.items():
            self.watch(name, own, [method for method in dir(type(own)) if not method.startswith("_") and callable(getattr(own, method))])

    def watch(self, name, own, methods):
        for method in methods:
            setattr(own, method, self.wrapped(name, method, getattr(own, method)))

    def wrapped(self, name, method, call):
        def wrapper(*args, **more):
            at = (self.hook, name, method)
            self.seen[at] = self.seen.get(at, 0) + 1
            if at == self.fails and self.times:
                self.times -= 1
                raise struct.error(f"{at} was made to fail")
            return call(*args, **more)

        wrapper.__name__ = method
        return wrapper

    def of(self, name, own):
        """@own, an object of the library, whose methods cannot be replaced."""
        methods = {}

        class Object:
            def __getattr__(_, method):
                if method not in methods:
                    methods[method] = self.wrapped(name, method, getattr(own, method))
                return methods[method]

        return Object()


class Vllm:
    """vLLM's loop as far as it concerns a connector of one group with full attention: the scheduler's states of a request, blocks with a
    count of their users, and the order of the hooks in a step. What vLLM asserts is asserted here."""

    def __init__(self, engine, pool, calls, load_async=True):
        """@engine: an Engine. @pool: of vLLM's blocks."""
        self.connector = engine.connector
        base = self.connector.KVConnectorBase_V1
        base.bind_connector_metadata = lambda own, meta: setattr(own, "_connector_metadata", meta)
        self.connector.Stats.__init__ = lambda own, data: own.__dict__.update(data=data)
        self.connector.KVConnectorTransferResults.__init__ = lambda own, **named: own.__dict__.update(
            {"finished_recving": (), "failed_recving": (), **named}
        )
        sources = modules_of_vllm()["vllm.v1.metrics.cache_hit_source"]
        sources.CacheHitSource.HOST, sources.CacheHitSource.DISK = "host", "disk"
        engine.patch(mock.patch.dict(sys.modules, {sources.__name__: sources}))
        self.engine, self.pool, self.calls, self.load_async = engine, pool, calls, load_async
        self.free = list(range(1, engine.pages.n))
        self.requests, self.tables, self.states, self.ended = {}, engine.blocks, {}, set()
        self.scheduler, self.worker = (self.half(scheduler=engine.scheduler), self.half(worker=engine.worker))
        engine.scheduler._config = dataclasses.replace(engine.scheduler._config, load_async=load_async, step_wait_us=0)
        self.loaded = 0  # blocks of loads that were reported as good
        self.preempted = set()
        self.batch_tokens = 1 << 20  # of a request in a step

    def half(self, scheduler=None, worker=None):
        own = object.__new__(self.connector.KVScoutConnector)
        own._scheduler, own._worker, own._config = scheduler, worker, types.SimpleNamespace(load_async=self.load_async)
        side = scheduler or worker
        own._faults, own._stats = side.faults, self.connector.Delta(side.counts)
        return own

    def call(self, half, hook, *args):
        self.calls.hook = hook
        try:
            return getattr(half, hook)(*args)
        finally:
            self.calls.hook = None

    def add(self, request):
        self.requests[request.request_id], self.states[request.request_id] = request, "waiting"
        self.call(self.scheduler, "on_new_request", request)

    def schedule(self):
        """Tokens by request."""
        found = {}
        for name, request in self.requests.items():
            if self.states[name] == "waiting":
                external, is_async = self.call(self.scheduler, "get_num_new_matched_tokens", request, 0)
                if external is None or len(self.free) * BLOCK_TOKENS < request.num_tokens:
                    continue
                self.take_blocks(name, request)
                self.allocated(request, external)
                request.num_computed_tokens = external
                self.states[name] = "loading" if is_async else "running"
                if external:
                    self.call(self.scheduler, "get_external_cache_hit_sources", request, external)
            elif self.states[name] == "loaded":
                self.allocated(request, 0)
                self.states[name] = "running"
            if self.states[name] == "running" and request.num_computed_tokens < request.num_tokens:
                found[name] = min(request.num_tokens - request.num_computed_tokens, self.batch_tokens)
        return found

    def take_blocks(self, name, request):
        ids = [self.free.pop() for _ in range(-(-request.num_tokens // BLOCK_TOKENS))]
        self.pool.touch([self.pool.blocks[block] for block in ids])
        self.tables[name] = (ids,)

    def give_blocks(self, name):
        (ids,) = self.tables.pop(name)
        self.pool.free_blocks([self.pool.blocks[block] for block in ids])

    def allocated(self, request, external):
        ids = self.tables[request.request_id]
        self.call(self.scheduler, "update_state_after_alloc", request, types.SimpleNamespace(get_block_ids=lambda: ids), external)

    def step(self):
        self.free += [at for at, block in enumerate(self.pool.blocks[: self.engine.pages.n]) if at and not block.ref_cnt and at not in self.free]
        tokens = self.schedule()
        preempted, self.preempted = self.preempted, set()
        output = types.SimpleNamespace(
            num_scheduled_tokens=tokens, preempted_req_ids=preempted, kv_connector_block_state=types.SimpleNamespace(boundary_state_offloads={})
        )
        meta = self.call(self.scheduler, "build_connector_meta", output)
        assert meta is not None
        worker, ended, self.ended = self.worker, self.ended, set()
        self.call(worker, "bind_connector_metadata", meta)
        if not self.load_async:
            self.call(worker, "start_load_kv", None)
        for name in tokens:  # the forward pass reads what is computed and writes the rest
            self.engine.pages.fill(self.requests[name].prompt, self.tables[name][0][self.requests[name].num_computed_tokens // BLOCK_TOKENS :], self.first(name))
        if self.load_async:
            self.call(worker, "start_load_kv", None)
        self.call(worker, "wait_for_save")
        results = self.call(worker, "get_transfer_results", ended)
        bad = self.call(worker, "get_block_ids_with_load_errors")
        self.call(worker, "get_kv_connector_stats")
        told = self.call(worker, "build_connector_worker_meta")
        self.received(results, bad, tokens)
        self.call(
            self.scheduler, "update_connector_output", types.SimpleNamespace(kv_connector_worker_meta=told, invalid_block_ids=bad)
        )
        for hook in ("get_kv_connector_stats", "take_events", "has_pending_block_frees", "has_pending_push_work"):
            self.call(self.scheduler, hook)

    def first(self, name):
        return self.requests[name].num_computed_tokens // BLOCK_TOKENS

    def received(self, results, bad, tokens):
        for name in results.failed_recving or ():
            if self.states.get(name) == "loading":
                self.requests[name].num_computed_tokens = 0
        for name, request in self.requests.items():
            if self.states[name] not in ("loading", "running"):
                continue
            ids = self.tables[name][0][: self.first(name)]
            wrong = [at for at, block in enumerate(ids) if block in bad]
            if wrong:
                request.num_computed_tokens = wrong[0] * BLOCK_TOKENS
            elif name in tokens:
                assert self.engine.pages.holds(request.prompt, self.tables[name][0]), f"{name} was computed on what is not its KV"
                self.loaded += 0 if self.load_async else len(ids)
                request.num_computed_tokens += tokens[name]
        for name in results.finished_recving or ():
            if self.states[name] == "aborted":
                self.remove(name)
                continue
            assert self.states[name] == "loading", f"{name} is {self.states[name]}, and its load was reported"
            ids = self.tables[name][0][: self.first(name)]
            assert self.engine.pages.holds(self.requests[name].prompt, ids), f"{name} was reported as loaded and is not"
            self.loaded += len(ids)
            self.states[name] = "loaded"
            if not ids:
                self.give_blocks(name)
                self.states[name] = "waiting"

    def preempt(self, name):
        self.give_blocks(name)
        self.preempted.add(name)
        self.states[name], self.requests[name].num_computed_tokens = "waiting", 0

    def finish(self, name):
        """Its end; while it loads, an abort."""
        self.ended.add(name)
        assert self.call(self.scheduler, "request_finished_all_groups", self.requests[name], self.tables.get(name, ([],))) == (False, None)
        if self.states[name] == "loading":
            self.states[name] = "aborted"
        else:
            self.remove(name)

    def remove(self, name):
        if name in self.tables:
            self.give_blocks(name)
        del self.requests[name], self.states[name]

    def compute(self, request):
        """Steps until @request is computed."""
        if request.request_id not in self.requests:
            self.add(request)
        self.steps_until(request, lambda: request.num_computed_tokens == request.num_tokens and self.states[request.request_id] == "running")

    def steps_until(self, request, condition):
        wait_for(lambda: self.step() or condition(), what=f"{request.request_id}, which is {self.states[request.request_id]}")

    def run(self, request):
        """The whole life of @request. Returns how many blocks of it were loaded."""
        before = self.loaded
        self.compute(request)
        self.finish(request.request_id)
        return self.loaded - before

    def settle(self):
        wait_for(lambda: self.step() or not (self.engine.scheduler._pins or self.requests), what="the end of all stores")
        assert not any(block.ref_cnt for block in self.pool.blocks), "blocks are in use though nothing runs"
