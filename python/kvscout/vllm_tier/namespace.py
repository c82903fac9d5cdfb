# SPDX-License-Identifier: Apache-2.0
"""The tier's namespace: engines whose chunks are interchangeable get the same one.

vLLM hands a tier less than a connector: no worker, so nothing of the model as it was loaded, and of the configuration the
shapes. The rest of the configuration is found where vLLM makes the tier (identity.from_callers()), and all of it counts, as
for the connector. What stays unknown, and how the namespace answers:

    weights        the files' sizes and times (of a hub's model its commit): copies and touched files are apart
    rope           chosen by max_model_len while loading, which counts here; `auto` counts as the word
    adapters       a block's hash has their name only: with LoRA on, the namespace is the engine's own
    scales         the engine's own for the types of namespace.has_own_scales(), unless the user says that they are fixed
    all else       what loading changes beyond the configuration. The user's name stands for it

A chunk is one row of vLLM's region: the KV of all workers side by side. Where vLLM says that the row is the same for
any number of workers, the numbers of workers are no part of the digest.
"""

import os
import uuid
from types import SimpleNamespace

from ..vllm import identity
from ..vllm.namespace import has_own_scales

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


def factors(config, row_bytes, vllm_version, platform):
    """@config: vLLM's OffloadingConfig. @platform: what the order of the bytes in a block depends on."""
    parallel = config.parallel
    any_workers = parallel.is_parallelism_agnostic or config.replicated_layout
    return {
        "unit": "row",
        "row_bytes": row_bytes,
        "vllm": vllm_version,
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


def of_engine(vllm_config):
    """What counts of vLLM's configuration, as the scheduler has it. @vllm_config: None if it was not found."""
    if vllm_config is None:
        raise identity.Unidentified("vLLM does not show the engine's configuration")
    if getattr(vllm_config, "lora_config", None) is not None:
        raise identity.Unidentified("LoRA is on, and a tier does not see adapters")
    draft = getattr(identity.speculation(vllm_config), "draft_model_config", None)
    return [_model(model) for model in (vllm_config.model_config, draft) if model is not None]


def _model(model):
    local = os.path.isdir(model.model)
    return {
        "configuration": identity.of_model(model),
        "weights": local_files(model.model) if local else [model.model, identity.commit(model)],
        "max_model_len": "auto" if getattr(model, "original_max_model_len", None) == -1 else model.max_model_len,
    }


def local_files(folder):
    """Names, sizes and times of a local model's configuration and weights: new weights in the same folder are
    another model."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name == "config.json" or name.endswith(_WEIGHTS):
            stat = os.stat(os.path.join(folder, name))
            found.append([name, stat.st_size, stat.st_mtime_ns])
    return found


def compute(name, config, found, fixed_scales, vllm_config):
    """(@name, and after it a digest of @found, which factors() returned, and of what else is known; why the namespace is the
    engine's own, or None)."""
    try:
        if not fixed_scales and has_own_scales(SimpleNamespace(cache_dtype=config.model.dtype)):
            raise identity.Unidentified(
                f"KV of type {config.model.dtype} has scales that only this engine knows, or that kvscout does not know of. If its "
                'scales are in the checkpoint, set "kv_scales": "fixed"'
            )
        seen, reason = of_engine(vllm_config), None
    except identity.Unidentified as why:
        seen, reason = uuid.uuid4().hex, str(why)
    return f"{name}/vllm-tier/{identity.digest([found, seen])}", reason
