# SPDX-License-Identifier: Apache-2.0
"""The tier's namespace: engines whose chunks are interchangeable get the same one.

vLLM tells a tier less than a connector: the model's name, the KV's type and the shapes, but not the revision,
quantization or overrides. The user names those (key `namespace`). What can be known is a digest behind that name.

A chunk is one row of vLLM's region: the KV of all workers side by side. Where vLLM says that the row is the same for
any number of workers, the numbers of workers are no part of the digest.
"""

import os
from types import SimpleNamespace

from ..vllm import namespace as theirs


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
        "files": theirs.local_files(config.model.name) if local else None,
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
    """Whether other engines cannot read this KV, by its element type."""
    return not fixed_scales and theirs.has_own_scales(SimpleNamespace(cache_dtype=config.model.dtype))


def compute(name, config, found, fixed_scales):
    """@name, and behind it a digest of @found, which factors() returned."""
    own = {"engine": config.engine_id} if has_own_scales(config, fixed_scales) else {}
    return f"{name}/vllm-tier/{theirs.digest({**found, **own})}"
