# SPDX-License-Identifier: Apache-2.0
"""The tier's namespace: engines whose chunks are interchangeable get the same one.

vLLM hands a tier less than a connector: no worker, so nothing of the model as it was loaded, and of the configuration the
shapes. The rest of the configuration is found where vLLM makes the tier (internals.from_callers()), and all that counts for the
connector counts here. What stays unknown, and how the namespace answers:

    weights        the files' sizes and times (of a hub's model its commit): copies and touched files are apart. What was switched while
                   vLLM loaded it, and random weights, are the engine's own. How they are loaded counts
    rope           chosen by max_model_len while loading, which counts here; `auto` counts as the word
    adapters       a block's hash has their name only: with LoRA on, the namespace is the engine's own
    scales         the engine's own for the types of namespace.has_own_scales(), unless the user says that they are fixed
    all else       what loading changes beyond the configuration. The user's name stands for it

A chunk is one row of vLLM's region: the KV of all workers side by side. Where vLLM says that the row is the same for
any number of workers, the numbers of workers are no part of the digest.
"""

import os
from types import SimpleNamespace

from ..vllm import groups as kv_groups
from ..vllm import identity, loaded
from ..vllm.namespace import has_own_scales

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


# Of vLLM's LoadConfig: where the files are, and what is shown while they are read.
_HARMLESS_OF_LOAD = frozenset(("download_dir", "use_tqdm_on_load"))


# Of vLLM's cache types, and the library's.
_ELEMENTS = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
             "fp8_e5m2": "float8_e5m2"}


def element(config, kv_cache_config):
    """What all numbers of a row are; None: not known, or of several kinds."""
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    if not groups or any(kv_groups.kind_of(group.kv_cache_spec) in (None, "state") for group in groups):
        return None
    return _ELEMENTS.get(str(config.model.dtype).removeprefix("torch."))


def any_workers(config):
    return config.parallel.is_parallelism_agnostic or config.replicated_layout


def factors(config, row_bytes):
    """@config: vLLM's OffloadingConfig."""
    parallel = config.parallel
    return {
        "unit": "row",
        "row_bytes": row_bytes,
        "dtype": str(config.model.dtype),
        "groups": [[group.group_id, group.tokens_per_block, list(group.layer_names)] for group in config.groups],
        "hash_tokens": config.cache.tokens_per_hash,
        "chunk_blocks": config.cache.blocks_per_chunk,
        "workers": None if any_workers(config) else [
            parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size,
        ],
        "replicated": bool(config.replicated_layout),
        "canonical": bool(config.canonical_layout),
        "layout": config.kv_cache_layout,
    }


def of_engine(vllm_config, kv_cache_config, config):
    """What counts of vLLM's configuration, as the scheduler has it. The first two are None if they were not found."""
    if vllm_config is None or kv_cache_config is None:
        raise identity.Unidentified("vLLM does not show the engine's configuration")
    if getattr(vllm_config, "lora_config", None) is not None:
        raise identity.Unidentified("LoRA is on, and a tier does not see adapters")
    found = identity.of_config(vllm_config, kv_cache_config)
    if any_workers(config):
        del found["parallel"], found["groups"]  # heads of one worker
    speculative = identity.speculation(vllm_config)
    draft = getattr(speculative, "draft_model_config", None)
    of_draft = getattr(speculative, "draft_load_config", None) or vllm_config.load_config
    models = ((vllm_config.model_config, vllm_config.load_config), (draft, of_draft))
    return [found, *(_model(model, load) for model, load in models if model is not None)]


def _model(model, load):
    if load.load_format == "dummy":
        raise identity.Unidentified("its weights are random ones")
    local = os.path.isdir(model.model)
    return {
        "load": identity.plain({name: value for name, value in vars(load).items() if name not in _HARMLESS_OF_LOAD}),
        "elsewhere": getattr(model, "model_weights", None),
        "weights": local_files(model.model) if local else [model.model, identity.commit(model, load.download_dir)],
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
    loaded.need_unchanged(folder, [name for name, _, _ in found], loaded.start_of_this_process())
    return found


def compute(name, config, found, fixed_scales, vllm_config, kv_cache_config):
    """(@name, and after it a digest of @found, which factors() returned, and of what else is known; why the namespace is the
    engine's own, or None)."""

    def find():
        if not fixed_scales and has_own_scales(SimpleNamespace(cache_dtype=config.model.dtype)):
            raise identity.Unidentified(
                f"KV of type {config.model.dtype} has scales that only this engine knows, or that kvscout does not know of. If its "
                'scales are in the checkpoint, set "kv_scales": "fixed"'
            )
        return of_engine(vllm_config, kv_cache_config, config)

    seen, reason = identity.known(find)
    return f"{name}/vllm-tier/{identity.digest([found, seen])}", reason
