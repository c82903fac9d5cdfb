# SPDX-License-Identifier: Apache-2.0
"""The namespace: engines whose KV is interchangeable get the same one, all others another.

It is computed in each process of an engine from what all of them know (vLLM's configuration), so nothing has to be
sent. Workers compute it when they have loaded the model, and loading changes the configuration in their processes alone:
some models write into their hf_config (EAGLE-3 drafts, MiniMax-M2, Falcon), sparse MLA into cache_dtype. So nothing is
taken from there; each worker also tells its namespace with its first step, and the scheduler compares (scheduler.py).
What only a worker knows - strides, sizes, element type - the server compares when workers register. Too fine a
namespace costs hits, too coarse a one gives wrong answers, so whatever may change a byte of KV is part of it.

The numbers of the layers, their sizes and the tokens of a block are in the specs of the KV cache groups. The hash
algorithm is part of it because keys of two algorithms mean the same tokens; the seed of the hashes is in the keys
themselves.
"""

import dataclasses
import hashlib
import json
import os
import re

from .groups import hash_block, layer_spec, scheduler_block

_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


def _plain(value):
    """@value as something that JSON writes the same way in each process: no addresses, no order of sets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=str)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return f"{type(value).__name__}:{value}"


def local_files(folder):
    """Names, sizes and times of a local model's configuration and weights: new weights in the same folder are
    another model."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name == "config.json" or name.endswith(_WEIGHT_SUFFIXES):
            stat = os.stat(os.path.join(folder, name))
            found.append([name, stat.st_size, stat.st_mtime_ns])
    return found


def _commit(model):
    """Of a model that is no local folder: the commit of its repository, which names its configuration and weights."""
    commit = getattr(model.hf_config, "_commit_hash", None)
    if commit:
        return commit
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model.model, "config.json", revision=getattr(model, "revision", None))
    except (ImportError, ValueError):
        return None
    # .../snapshots/COMMIT/config.json
    return os.path.basename(os.path.dirname(found)) if isinstance(found, str) else None


def _model(model):
    is_local = os.path.isdir(model.model)
    config_path = getattr(model, "hf_config_path", None)
    return {
        "model": os.path.realpath(model.model) if is_local else model.model,
        "files": local_files(model.model) if is_local else None,
        "commit": None if is_local else _commit(model),
        "hf_config_path": config_path,
        "hf_config_files": local_files(config_path) if config_path and os.path.isdir(config_path) else None,
        "revision": getattr(model, "revision", None),
        "code_revision": getattr(model, "code_revision", None),
        "dtype": str(model.dtype),
        "quantization": getattr(model, "quantization", None),
        "hf_overrides": getattr(model, "hf_overrides", None),
        "model_impl": getattr(model, "model_impl", None),
        "mm_processor_kwargs": getattr(model, "mm_processor_kwargs", None),
    }


def _weights(vllm_config):
    """Where weights come from that are in no file: load_format=dummy draws them from the seed."""
    load = vllm_config.load_config
    load_format = str(getattr(load, "load_format", "auto"))
    return {"load_format": load_format, "seed": vllm_config.model_config.seed if load_format == "dummy" else None}


def _speculation(speculative):
    if speculative is None:
        return None
    draft = getattr(speculative, "draft_model_config", None)
    return {
        "method": getattr(speculative, "method", None),
        "model": getattr(speculative, "model", None),
        "tokens": getattr(speculative, "num_speculative_tokens", None),
        "draft": _model(draft) if draft is not None else None,
    }


def _attention(vllm_config, kv_cache_config):
    attention = getattr(vllm_config, "attention_config", None)
    attention = _plain(attention) if attention is not None else {}
    attention.pop("sparse_mla_force_mqa", None)  # a model sets it as it is loaded, and it is of the computation alone
    return {
        "config": attention,
        "layout": getattr(kv_cache_config, "kv_cache_layout", None),
        "environment": {
            key: os.environ[key] for key in sorted(os.environ) if key.startswith(("VLLM_ATTENTION_", "VLLM_MLA_"))
        },
        "platform": _platform(),
    }


def _platform():
    """What a backend is chosen by, and with it the order of the bytes in a block (a CPU with AMX packs keys another
    way)."""
    from vllm.platforms import current_platform

    facts = [current_platform.device_type]
    if current_platform.is_cpu():
        import torch

        facts.append(str(current_platform.get_cpu_architecture()))
        facts.append(str(torch.backends.cpu.get_cpu_capability()))
        probe = getattr(torch.cpu, "_is_amx_tile_supported", None)
        facts.append(bool(probe()) if probe is not None else None)
    else:
        capability = current_platform.get_device_capability()
        facts.append(capability.as_version_str() if capability is not None else None)
    return facts


def _kv_dtype(cache, kv_cache_config):
    """MLA names its own in its specs, which all processes have from one; as it is loaded it may set the configuration's."""
    specs = [layer_spec(group.kv_cache_spec) for group in kv_cache_config.kv_cache_groups]
    named = {spec.cache_dtype_str for spec in specs if getattr(spec, "cache_dtype_str", None)}
    return sorted(named) if named else str(cache.cache_dtype)


def _cache(vllm_config, kv_cache_config):
    cache = vllm_config.cache_config
    return {
        "kv_dtype": _kv_dtype(cache, kv_cache_config),
        "skip_layers": list(getattr(cache, "kv_cache_dtype_skip_layers", ())),
        "block_tokens": scheduler_block(kv_cache_config),
        "hash_algorithm": cache.prefix_caching_hash_algo,
        "hash_block_tokens": hash_block(vllm_config, kv_cache_config),
        # Of a group the scheduler sees one layer's spec where a worker sees those of all layers of a kind; the sizes are
        # in the model's configuration.
        "groups": [
            [_plain(layer_spec(group.kv_cache_spec)), list(group.layer_names)]
            for group in kv_cache_config.kv_cache_groups
        ],
    }


# Element types of KV that another engine can read: plain ones, and those whose scales are in the checkpoint (else 1.0)
# or in the block. vLLM 0.31 to 0.33 have no others but fp8_inc, whose scales come from a calibration outside of the
# model.
_READABLE = re.compile(
    r"auto|float(16|32)|bfloat16|fp8(_e4m3|_e5m2|_ds_mla|_per_token_head)?|int[48]_per_token_head|nvfp4(_ds_mla"
    r"|_4over6)?"
    r"|turboquant_\w+|octave_\w+|ultraquant_4bit"
)


def has_own_scales(cache):
    """Whether no other engine can read this KV: its scales are (calculate_kv_scales, until vLLM 0.30) computed from
    the first tokens that the engine sees, or it is not known where an element type has them."""
    return bool(getattr(cache, "calculate_kv_scales", False)) or not _READABLE.fullmatch(str(cache.cache_dtype))


def _own_scales(vllm_config):
    """The engine's id if its KV has scales of its own: then its namespace is, too."""
    return vllm_config.kv_transfer_config.engine_id if has_own_scales(vllm_config.cache_config) else None


def minor_version(version):
    """0.32 of 0.32.1+cpu: what a block holds does not change within a minor version."""
    return ".".join(version.split("+")[0].split(".")[:2])


def factors(vllm_config, kv_cache_config):
    """Everything that the namespace depends on, as JSON has it. A person compares two of these to see why engines do
    not share."""
    import vllm

    parallel = vllm_config.parallel_config
    # A pipeline stage holds some layers only, and each process sees its own groups; the group of the whole model is
    # what the stages have in common, so their layers are not named.
    staged = parallel.pipeline_parallel_size > 1
    cache = _cache(vllm_config, kv_cache_config)
    if staged:
        cache["groups"] = [group[0] for group in cache["groups"]]
    return _plain(
        {
            "vllm": minor_version(vllm.__version__),
            "model": _model(vllm_config.model_config),
            "weights": _weights(vllm_config),
            "speculation": _speculation(getattr(vllm_config, "speculative_config", None)),
            "parallel": [
                parallel.tensor_parallel_size,
                parallel.pipeline_parallel_size,
                getattr(parallel, "decode_context_parallel_size", 1),
            ],
            "attention": _attention(vllm_config, kv_cache_config),
            "cache": cache,
            "own_scales": _own_scales(vllm_config),
        }
    )


def digest(found):
    return hashlib.sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def compute(vllm_config, kv_cache_config, name=""):
    """The namespace for client and workers: "vllm/" and a digest, behind the name that the user gave."""
    found = digest(factors(vllm_config, kv_cache_config))
    return f"{name}/vllm/{found}" if name else f"vllm/{found}"


def tenant(cache_salt):
    """A request's tenant. A salt is a secret between a user and the engine, and of any length: its digest serves,
    and shows nothing."""
    if not cache_salt:
        return None
    return hashlib.sha256(cache_salt.encode()).hexdigest()[:32]


def warnings(vllm_config):
    """Sentences for the log."""
    cache = vllm_config.cache_config
    if has_own_scales(cache):
        yield (
            f"KV of type {cache.cache_dtype} has scales that only this engine knows, or that kvscout does not know of: "
            "no other engine shares "
            "its cache, nor does this one after a restart"
        )
    algorithm = cache.prefix_caching_hash_algo
    if algorithm.startswith("xxhash"):
        yield (
            f"prefix_caching_hash_algo is {algorithm}, which is not cryptographic: a user who can choose tokens may "
            "find two prompts with one "
            "hash and be served another tenant's KV. Use sha256 or sha256_cbor where tenants do not trust each other"
        )
    if algorithm in ("sha256", "xxhash"):
        yield (
            f"prefix_caching_hash_algo is {algorithm}, which hashes Python's pickles: engines share their KV only "
            "while their Python "
            "versions pickle alike. sha256_cbor is the same everywhere"
        )
