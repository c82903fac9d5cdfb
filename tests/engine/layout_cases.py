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


def _allocate(layout, block=BLOCK, windows=LAYERS - 1):
    """vLLM's configuration and views for @layout: a group with full attention and one with a window, whose layers are fewer or none."""
    import torch
    from vllm.v1 import kv_cache_interface as kv
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
    from vllm.v1.worker.utils import allocate_kv_cache

    shape = {"block_size": block, "num_kv_heads": HEADS, "head_size": 8, "dtype": torch.float32}
    theirs = [
        kv.KVCacheGroupSpec([f"full.{at}" for at in range(LAYERS)], kv.FullAttentionSpec(**shape)),
        kv.KVCacheGroupSpec([f"window.{at}" for at in range(windows)], kv.SlidingWindowSpec(sliding_window=1024, **shape)),
    ][: 2 if windows else 1]
    cache = SimpleNamespace(
        get_resolved_kv_cache_layout=lambda: layout, num_gpu_blocks_override=BLOCKS, prefix_cache_retention_interval=None
    )
    vllm_config = SimpleNamespace(cache_config=cache, attention_config=SimpleNamespace(hisparse_config=None))
    config = get_kv_cache_config_from_groups(vllm_config, theirs, 1 << 20)
    return config, allocate_kv_cache(config, torch.device("cpu"), layout)


def _tables(config, caches, layout):
    """The engine's groups and its tables."""
    from kvscout.vllm import groups, layout as layouts

    own = groups.of_engine(SimpleNamespace(cache_config=SimpleNamespace()), config, CHUNK)
    return own, layouts.tables(caches, config.num_blocks, own, lambda layers, element: f"{layout.name}/{element}")


def views_in_each_layout(server):
    """In layouts with the block outermost the layers of a group are one plane, and the same bytes come back."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    return ", ".join(f"{layout.name} {_store_and_load(server, layout)}" for layout in KVCacheLayout)


def _store_and_load(server, layout):
    import torch
    from kvscout import Client, Worker

    config, caches = _allocate(layout)
    own, tables = _tables(config, caches, layout)
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


def a_block_of_the_asked_layout_is_one_piece(server):
    """Of the layout that kv_layout=blocks asks vLLM for: the bytes of the one plane's block are those of all layers' tensors."""
    import ctypes

    import torch
    from kvscout.vllm.refusals import BLOCK_LAYOUTS
    from vllm.v1.kv_cache_layout import KVCacheLayout

    layout = KVCacheLayout[BLOCK_LAYOUTS[0]]
    need({own.name for own in KVCacheLayout if own.is_block_outermost} == set(BLOCK_LAYOUTS), "vLLM has other layouts by now")
    config, caches = _allocate(layout, windows=0)
    _, (table,) = _tables(config, caches, layout)
    (plane,) = table["planes"]
    size = sum(cache[0].numel() * cache.element_size() for cache in caches.values())
    need((plane.shape, plane.stride()) == ((BLOCKS, size), (size, 1)), f"a block has {plane.shape} and {plane.stride()}, not {size} bytes")
    for cache in caches.values():
        cache[3] = torch.randn(cache[3].shape)
    piece = ctypes.string_at(plane.data_ptr() + 3 * size, size)
    need(piece == b"".join(cache[3].contiguous().numpy().tobytes() for cache in caches.values()), "the piece holds other bytes")
    return f"{len(caches)} layers, {size} bytes"


def engines_of_two_layouts_share_nothing(server):
    """Their namespaces differ (start_cases.py). Were they the same, the server would not let the second one register."""
    from kvscout import ServerError
    from vllm.v1.kv_cache_layout import KVCacheLayout

    merged, apart = KVCacheLayout.BLHNC, KVCacheLayout.LBNHC
    need(_second_loads(server, merged, merged) == CHUNK, "engines of one layout do not share")
    for first, second in ((merged, apart), (apart, merged), (merged, KVCacheLayout.BLNHC)):
        try:
            found = _second_loads(server, first, second)
        except ServerError as error:
            need("n_planes" in str(error) or "layout_tag" in str(error), f"{second.name} after {first.name}: {error}")
        else:
            need(False, f"{second.name} after {first.name} loads {found} tokens")


def _second_loads(server, first, second):
    """Tokens that an engine with the layout @second loads of what one with @first has stored in the same namespace."""
    from kvscout import Client, Worker

    keys = {"endpoint": server.endpoint, "namespace": f"layout/{time.monotonic_ns()}", "chunk_tokens": CHUNK}
    hashes = [bytes(32)]
    caches, tables = {}, {}
    for at, layout in enumerate((first, second)):
        config, caches[at] = _allocate(layout, windows=0)
        _, tables[at] = _tables(config, caches[at], layout)
    for cache in caches[0].values():
        cache[STORED[0]] = 1
    with Worker(**keys, readers=2, reader=0) as one, Worker(**keys, readers=2, reader=1) as two, Client(**keys, readers=2) as client:
        one.register(tables=tables[0], timeout_ms=DEADLINE_S * 1000)
        _end(one, one.store(0, hashes, {0: STORED[0]}))
        two.register(tables=tables[1], timeout_ms=DEADLINE_S * 1000)
        hit = client.wait_lookup("r", hashes, CHUNK + 1, timeout_ms=DEADLINE_S * 1000)
        _end(two, two.retrieve(hit.ticket, 0, CHUNK, {0: LOADED[0]}))
        need(all(bool((cache[LOADED[0]] == 1).all()) for cache in caches[1].values()), "other bytes were loaded")
        return hit.tokens


def what_vllm_cannot_split_is_refused(server):
    """For sizes of a block and of what kernels take: there is a refusal if and only if vLLM would raise when it has made the views."""
    from kvscout.vllm import refusals
    from vllm.v1.attention.backend import AttentionBackend, MultipleOf
    from vllm.v1.kv_cache_layout import KVCacheLayout
    from vllm.v1.worker.utils import AttentionGroup, map_kv_caches_to_kernel_blocks, select_common_block_size

    raised = []
    for block, sizes in ((16, [16]), (64, [64]), (64, [16, 32]), (128, [64]), (128, [64, 128]), (48, [MultipleOf(16)]), (32, [16, MultipleOf(32)])):
        backend = type("Own", (AttentionBackend,), {"get_name": lambda: "OWN", "get_supported_kernel_block_sizes": lambda spec=None, own=sizes: own})
        config, caches = _allocate(KVCacheLayout.BLHNC, block, windows=0)
        spec = config.kv_cache_groups[0].kv_cache_spec
        group = AttentionGroup(backend, list(caches), spec, 0)
        taken = select_common_block_size(block, [backend], [spec])
        group.kernel_block_size = taken if taken != block else None  # as create_metadata_builders() does
        try:
            map_kv_caches_to_kernel_blocks(caches, [group])
        except ValueError as error:
            raised.append(f"{block} by {taken}")
            need(f"Reduce --block-size to {taken}" in str(error), f"vLLM raises another error: {error}")
        layer = SimpleNamespace(get_attn_backend=lambda: backend, get_kv_cache_spec=lambda vllm_config: spec)
        vllm_config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context={"layer": layer}))
        sentence = refusals.reason_of_kernels(vllm_config)
        need((sentence is not None) == (group.kernel_block_size is not None), f"{block} and {sizes}: {sentence}")
        need((sentence is not None) == (f"{block} by {taken}" in raised), f"{block} and {sizes}: vLLM and we differ")
    need(len(raised) == 2, f"vLLM raises for {raised}")
    return f"vLLM raises for blocks of {', '.join(raised)}"


CASES = (
    views_in_each_layout,
    a_block_of_the_asked_layout_is_one_piece,
    engines_of_two_layouts_share_nothing,
    what_vllm_cannot_split_is_refused,
)
