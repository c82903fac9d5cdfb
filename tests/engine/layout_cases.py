# SPDX-License-Identifier: Apache-2.0
"""KV memory as vLLM itself allocates and views it, in each of its layouts, stored and loaded by kvscout's worker. No engine:
the CPU's attention reads one layout only (LBHNC)."""

import time
from types import SimpleNamespace

from checks import need

BLOCK, CHUNK, BLOCKS, LAYERS, HEADS = 16, 64, 18, 5, 2
# Blocks by group. The groups share one memory, so each block is of one of them.
STORED, LOADED, FREE = {0: [1, 2, 3, 4], 1: [5, 6, 7, 8]}, {0: [12, 10, 9, 11], 1: [16, 13, 14, 15]}, 17
DEADLINE_S = 60


def _allocate(layout):
    """vLLM's configuration and views for @layout: a group with full attention and one with a window, whose layers are fewer."""
    import torch
    from vllm.v1 import kv_cache_interface as kv
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
    from vllm.v1.worker.utils import allocate_kv_cache

    shape = {"block_size": BLOCK, "num_kv_heads": HEADS, "head_size": 8, "dtype": torch.float32}
    theirs = [
        kv.KVCacheGroupSpec([f"full.{at}" for at in range(LAYERS)], kv.FullAttentionSpec(**shape)),
        kv.KVCacheGroupSpec([f"window.{at}" for at in range(LAYERS - 1)], kv.SlidingWindowSpec(sliding_window=1024, **shape)),
    ]
    cache = SimpleNamespace(
        get_resolved_kv_cache_layout=lambda: layout, num_gpu_blocks_override=BLOCKS, prefix_cache_retention_interval=None
    )
    vllm_config = SimpleNamespace(cache_config=cache, attention_config=SimpleNamespace(hisparse_config=None))
    config = get_kv_cache_config_from_groups(vllm_config, theirs, 1 << 20)
    return config, allocate_kv_cache(config, torch.device("cpu"), layout)


def views_in_each_layout(server):
    """In layouts with the block outermost the layers of a group are one plane, and the same bytes come back."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return ", ".join(f"{layout.name} {_store_and_load(server, layout)}" for layout in KVCacheLayout)


def _store_and_load(server, layout):
    import torch
    from kvscout import Client, Worker
    from kvscout.vllm import groups, layout as layouts

    config, caches = _allocate(layout)
    own = groups.of_engine(SimpleNamespace(cache_config=SimpleNamespace()), config, CHUNK)
    tables = layouts.tables(caches, config.num_blocks, own, lambda layers, element: f"{layout.name}/{element}")
    planes = [len(table["planes"]) for table in tables]
    need(planes == ([1, 1] if layout.is_block_outermost else [LAYERS, LAYERS - 1]), f"{layout.name} has {planes} planes")
    keys = {"endpoint": server.endpoint, "namespace": f"layout/{layout.name}/{time.monotonic_ns()}", "chunk_tokens": CHUNK, **own.keys()}
    hashes = [bytes([at + 1]) * 32 for at in range(CHUNK // own.hash_tokens)]
    views = [(number, caches[name]) for number, group in enumerate(own) for name in group.layers]
    before = []
    for number, view in views:
        view[STORED[number]] = torch.randn(view[STORED[number]].shape)
        before.append(view[STORED[number]].clone())
    with Client(**keys) as client, Worker(**keys) as worker:
        worker.register(tables=tables, timeout_ms=DEADLINE_S * 1000)
        _end(worker, worker.store(0, hashes, STORED))
        hit = client.wait_lookup("r", hashes, CHUNK + 1, timeout_ms=DEADLINE_S * 1000)
        need(hit.tokens == CHUNK, f"{layout.name}: {hit.tokens} tokens were found")
        _end(worker, worker.retrieve(hit.ticket, 0, CHUNK, LOADED))
    for (number, view), old in zip(views, before):
        need(torch.equal(view[LOADED[number]], old), f"{layout.name}: other bytes came back in group {number}")
        need(torch.equal(view[STORED[number]], old), f"{layout.name}: what was stored has changed")
        need(not view[FREE].any(), f"{layout.name}: a block of no job was written")
    return planes


def _end(worker, job):
    end = time.monotonic() + DEADLINE_S
    while not (found := worker.poll()):
        need(time.monotonic() < end, f"a job has not ended in {DEADLINE_S} s")
    need(found[0].job == job and found[0].ok and found[0].bytes, f"a job ended with {found[0].error}")


CASES = (views_in_each_layout,)
