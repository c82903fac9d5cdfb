# SPDX-License-Identifier: Apache-2.0
"""Both sides of kvscout.vllm with a real client and worker, for tests without vLLM, whose base classes are empty ones here."""

import importlib
import sys
import types
from unittest import mock

import kvscout
from kvscout.vllm import config, groups
from pages import BLOCK_TOKENS, CHUNK_TOKENS, Pages, done_by_a_server, hashes_of, hit_of_a_server, wait_done

BASES = {
    "vllm.distributed.kv_transfer.kv_connector.v1.base": (
        "KVConnectorBase_V1", "KVConnectorHandshakeMetadata", "KVConnectorMetadata", "KVConnectorRole", "KVConnectorTransferResults",
        "KVConnectorWorkerMetadata", "SupportsHMA",
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": ("KVConnectorPromMetrics", "KVConnectorStats"),
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
        skip_reading_prefix_cache=False, trace_headers=None,
    )


class Engine:
    """What the two processes of an engine hold, and its pages."""

    def __init__(self, test, endpoint, weights_version, block_tokens=BLOCK_TOKENS, joined=True, spans=None, events=None):
        """@block_tokens: of one hash of a request."""
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            scheduler, worker, self.messages = (
                importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "worker", "metadata")
            )
        own = groups.one(block_tokens, CHUNK_TOKENS)
        parsed = config.parse({"weights_version": weights_version, "chunk_tokens": CHUNK_TOKENS}, block_tokens)
        keys = {"endpoint": endpoint, "chunk_tokens": CHUNK_TOKENS, "weights_version": weights_version}
        self.client, self.copier = kvscout.Client(**keys, lookup_timeout_ms=60000), kvscout.Worker(**keys)
        test.addCleanup(self.client.close)
        test.addCleanup(self.copier.close)
        self.client.wait_ready(60000)
        self.pages = Pages()
        self.scheduler = scheduler.Scheduler(
            parsed, own, lambda namespace: self.client, 1, kvscout.KVScoutError, lambda salt: None,
            types.SimpleNamespace(of=lambda request: None), spans, events,
        )
        if joined:
            self.scheduler.join({"vllm/own"})
        null = types.SimpleNamespace(block_id=0)
        self.evicted = []  # sets of blocks that left vLLM's own prefix cache
        self.blocks = {}  # of requests, by group
        pool = types.SimpleNamespace(
            num_gpu_blocks=9, null_block=null, evict_blocks=self.evicted.append, blocks=range(9), touch=lambda blocks: None,
            free_blocks=lambda blocks: None,
        )
        self.scheduler.bind(types.SimpleNamespace(block_pool=pool, get_block_ids=lambda name: self.blocks.get(name, ([],))))
        self.worker = worker.Worker(own, self.copier, kvscout.KVScoutError, "vllm/own", spans=spans)
        table = {"group": 0, "planes": self.pages.planes, "block_tokens": BLOCK_TOKENS, "n_blocks": self.pages.n}
        self.worker.register([table], make_event=lambda: None)

    def step(self):
        meta = self.scheduler.build_meta(NO_STEP)
        self.worker.begin_step(meta)
        self.worker.start_loads(meta)
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
