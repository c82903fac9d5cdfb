# SPDX-License-Identifier: Apache-2.0
"""A plugin of SGLang for `./dev engine sglang`: what its CUDA kernels for host copies do, as index copies on a CPU, no page-locked
memory, and no 10 GiB of memory that have to stay free. SGLang loads it in each of its processes (entry point sglang.srt.plugins)."""


def between_layers(src_layers, dst_layers, src_indices, dst_indices, page_size):
    for src, dst in zip(src_layers, dst_layers, strict=True):
        dst[dst_indices] = src[src_indices]


def page_first_to_layer(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    for src, dst in zip(src_ptrs, dst_ptrs, strict=True):  # src: page, layer, token
        rows = src[src_indices // page_size, layer_id, src_indices % page_size]
        dst[dst_indices] = rows.reshape(-1, *dst.shape[1:])


def layers_to_page_first(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    layers = len(src_ptrs) // len(dst_ptrs)
    for at, src in enumerate(src_ptrs):
        dst = dst_ptrs[at // layers]
        dst[dst_indices // page_size, at % layers, dst_indices % page_size] = src[src_indices].reshape(-1, *dst.shape[3:])


def load():
    from sglang.srt.mem_cache.pool_host import base, common, mha

    mha.transfer_kv_direct = between_layers
    mha.transfer_kv_per_layer_direct_pf_lf = page_first_to_layer
    mha.transfer_kv_all_layer_direct_lf_pf = layers_to_page_first
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
    common._cuda_host_register = lambda *args, **more: None
