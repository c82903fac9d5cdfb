# SPDX-License-Identifier: Apache-2.0
"""A plugin of SGLang for `./dev engine sglang`: what its CUDA kernels for host copies do, as index copies on a CPU, no page-locked
memory, and no 10 GiB of memory that have to stay free. SGLang loads it in each of its processes (entry point sglang.srt.plugins). With
KVSCOUT_TEST_UNGUARDED in the environment kvscout takes the weights for the same for ever."""

import os


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


def with_windows(attend):
    """SGLang's attention on a CPU writes KV of windows into their pool, and reads it at the places of the other pool: its answers depend on
    which places those are. This reads where it wrote."""

    def read(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, *rest, sliding_window_size=None, **more):
        if sliding_window_size is not None and self.use_sliding_window_kv_pool:
            import torch

            rows = req_to_token[req_pool_indices, : int(seq_lens.max())]
            req_to_token = self.token_to_kv_pool.translate_loc_from_full_to_swa(rows.flatten().long()).view(rows.shape)
            req_pool_indices = torch.arange(len(rows))
        return attend(self, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, *rest,
                      sliding_window_size=sliding_window_size, **more)

    return read


class NoNccl:
    """The groups of ranks talk through gloo."""

    disabled = True

    def __init__(self, **of_a_group):
        pass


def load():
    from sglang.srt.distributed.device_communicators import pynccl
    from sglang.srt.layers.attention import torch_native_backend
    from sglang.srt.mem_cache.pool_host import base, common, mha

    pynccl.PyNcclCommunicator = NoNccl
    backend = torch_native_backend.TorchNativeAttnBackend
    backend._run_sdpa_forward_extend = with_windows(backend._run_sdpa_forward_extend)
    backend._run_sdpa_forward_decode = with_windows(backend._run_sdpa_forward_decode)

    mha.transfer_kv_direct = between_layers
    mha.transfer_kv_per_layer_direct_pf_lf = page_first_to_layer
    mha.transfer_kv_all_layer_direct_lf_pf = layers_to_page_first
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
    if "KVSCOUT_TEST_UNGUARDED" in os.environ:
        from kvscout.sglang import weights

        weights.Weights.are_same = lambda self: True
    common._cuda_host_register = lambda *args, **more: None
