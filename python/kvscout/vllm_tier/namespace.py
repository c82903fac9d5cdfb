# SPDX-License-Identifier: Apache-2.0
"""The tier's namespace: engines whose chunks are interchangeable get the same one.

vLLM tells a tier less than a connector: the model's name, the KV's type and the shapes, but not the revision,
quantization or overrides. Those are the user's to name (key `namespace`). What can be known is a digest behind that name.

A chunk is one row of vLLM's region: the KV of all workers side by side. Where vLLM says that the row is the same for any
number of workers, the numbers of workers are no part of the digest.
"""

import os

from ..vllm.namespace import digest, local_files


def factors(config, row_bytes, vllm_version, platform):
    """@config: vLLM's OffloadingConfig. @platform: what the order of the bytes in a block depends on."""
    parallel = config.parallel
    any_workers = parallel.is_parallelism_agnostic or config.replicated_layout
    local = os.path.isdir(config.model.name)
    return {
        "unit": "row",
        "row_bytes": row_bytes,
        "vllm": vllm_version,
        "model": os.path.realpath(config.model.name) if local else config.model.name,
        "files": local_files(config.model.name) if local else None,
        "dtype": str(config.model.dtype),
        "groups": [[group.group_id, group.tokens_per_block, list(group.layer_names)] for group in config.groups],
        "hash_tokens": config.cache.tokens_per_hash,
        "chunk_blocks": config.cache.blocks_per_chunk,
        "workers": None if any_workers else [
            parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size,
        ],
        "replicated": bool(config.replicated_layout),
        "canonical": bool(config.canonical_layout),
        "layout": config.kv_cache_layout,
        "platform": platform,
    }


def has_own_scales(config, fixed_scales):
    """Whether the KV may be unreadable for other engines: vLLM does not tell a tier where scales of fp8 come from."""
    return "fp8" in str(config.model.dtype) and not fixed_scales


def compute(name, config, found, fixed_scales):
    """@name, and behind it a digest of @found, which factors() returned."""
    own = {"engine": config.engine_id} if has_own_scales(config, fixed_scales) else {}
    return f"{name}/vllm-tier/{digest({**found, **own})}"
