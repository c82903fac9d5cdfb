# SPDX-License-Identifier: Apache-2.0
"""Identity: what must be equal for KV to be the same - engine version, model by its weights, rope, attention and adapters
as loaded, parallelism, layout. It is in the namespace or the key, and what cannot be known is not shared.

Each worker computes its part when it has loaded the model, because loading decides: a rope module chooses its factors by
max_model_len, a model writes into its hf_config. A list of what counts would always be one short, so it is the other way
round: all fields of ModelConfig, all of hf_config and each module of the loaded model count, except what the tables below
name as harmless. A field that vLLM adds makes a cache cold, and never wrong.

The workers of an engine then exchange their parts and make one name of all of them, in the order of their ranks
(of_engine()). So each of them joins and registers its pages as soon as it has loaded, and no step waits for it; the
scheduler is told the name in vLLM's handshake. It computes nothing, because it sees the configuration only.
"""

import dataclasses
import enum
import hashlib
import json
import os
import sys
import uuid

from .groups import hash_block, layer_spec, scheduler_block

_BEFORE = "it acts on text, before there are tokens, and keys are of tokens"
_BEHIND = "it acts on logits, and KV does not depend on them but by tokens"
_LOADED = "what came of it is in hf_config or in the loaded model, and these count"
_MEMORY = "it says where memory is or how long, and not what is in it"

# Fields of vLLM's ModelConfig that may differ between engines with the same KV, and why.
HARMLESS = {
    "model": "a name or a path: the loaded weights count",
    "model_weights": "a path: the loaded weights count",
    "tokenizer": _BEFORE,
    "tokenizer_mode": _BEFORE,
    "tokenizer_revision": _BEFORE,
    "skip_tokenizer_init": _BEFORE,
    "io_processor_plugin": _BEFORE,
    "renderer_num_workers": _BEFORE,
    "allowed_local_media_path": "it says which images a request may name; what they are is in vLLM's block hashes",
    "allowed_media_domains": "as allowed_local_media_path",
    "served_model_name": "a name for users",
    "hf_token": "a password",
    "hf_config_path": _LOADED,
    "hf_overrides": _LOADED,
    "config_format": _LOADED,
    "revision": _LOADED,
    "max_model_len": _LOADED + "; with `auto` it follows free memory, and starts must stay warm",
    "spec_target_max_model_len": _LOADED,
    "generation_config": "a path: its content counts (generation())",
    "seed": "weights that are drawn from it count as loaded; else " + _BEHIND,
    "allow_deprecated_quantization": "it permits, and changes nothing",
    "enforce_eager": "how kernels are started; rounding differs by no more than between two batches",
    "disable_cascade_attn": "without effect since vLLM 0.31",
    "return_sampling_mask": _BEHIND,
    "max_logprobs": _BEHIND,
    "logprobs_mode": _BEHIND,
    "use_fp64_gumbel": _BEHIND,
    "enable_trace_replay": _BEHIND,
    "logits_processors": _BEHIND,
    "enable_sleep_mode": _MEMORY,
    "sleep_preserve_parameter_names": _MEMORY,
    "sleep_mode_backend": _MEMORY,
    "sleep_mode_offload_cudagraph": _MEMORY,
    "enable_nccl_comm_suspend": _MEMORY,
    "enable_cumem_allocator": _MEMORY,
}
# The others that vLLM 0.31 to 0.33 have. A new one counts, too, until a person has decided; a test names it.
COUNTED = frozenset(
    "runner convert trust_remote_code dtype hf_config hf_text_config is_submodel_config "
    "word_embeddings_untied_by_checkpoint code_revision quantization quantization_config disable_sliding_window "
    "enable_prompt_embeds model_class_overrides override_generation_config model_impl pooler_config "
    "multimodal_config".split()
)
# Attributes of a hf_config: where it came from, and what wrote it.
_HARMLESS_OF_HF = frozenset(("_name_or_path", "name_or_path", "_commit_hash", "transformers_version"))


class Unidentified(ValueError):
    """Something that counts cannot be known. The text is a sentence's end: "because ..."."""


def plain(value):
    """@value as something that JSON writes the same way in each process: no addresses, no order of sets."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in sorted(value, key=str) if key not in _HARMLESS_OF_HF}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, os.PathLike) or type(value).__module__ == "torch":
        return str(value)  # an element type, a device
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value) or not hasattr(value, "__dict__"):
        raise Unidentified(f"its configuration holds {type(value).__name__} objects, which cannot be compared")
    if dataclasses.is_dataclass(value):
        return {"type": type(value).__name__, **plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})}
    return {"type": type(value).__name__, **plain(vars(value))}


def digest(found):
    return hashlib.sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def from_callers(name, wanted):
    """The local variable @name of the nearest caller for which wanted(value) is true; None: there is none. A connector is
    handed neither the model nor, as a tier, the configuration; but what calls it has them."""
    frame = sys._getframe(1)
    while frame is not None:
        value = frame.f_locals.get(name)
        if value is not None and wanted(value):
            return value
        frame = frame.f_back
    return None


# ---- the configuration ----------------------------------------------------------------------------------------------


def minor_version(version):
    """0.32 of 0.32.1+cpu: what a block holds does not change within a minor version."""
    return ".".join(version.split("+")[0].split(".")[:2])


def of_model(model):
    """@model: vLLM's ModelConfig."""
    names = (field.name for field in dataclasses.fields(model) if field.name not in HARMLESS)
    return plain({**{name: getattr(model, name, None) for name in names}, **{"generation": generation(model), "images": _images(model)}})


def generation(model):
    """The generation config without what the user overrides, which is a field. Llama 4 takes parameters of its attention from there."""
    return model.try_get_generation_config()


def _images(model):
    """What turns an image into embeddings, apart from the weights: vLLM's block hashes hold only the image."""
    if getattr(model, "multimodal_config", None) is None:
        return None
    import transformers

    if not os.path.isdir(model.model):
        return [transformers.__version__, model.model, commit(model)]
    names = [name for name in sorted(os.listdir(model.model)) if "process" in name or name.endswith(".py")]
    return [transformers.__version__, [[name, file_digest(os.path.join(model.model, name))] for name in names]]


def commit(model):
    """Of a model that is no local folder: the commit of its repository, which names all of its files."""
    found = getattr(model.hf_config, "_commit_hash", None)
    if found:
        return found
    try:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(model.model, "config.json", revision=getattr(model, "revision", None))
    except (ImportError, ValueError):
        path = None
    if not isinstance(path, str):
        raise Unidentified(f"{model.model} is neither a local folder nor of a repository whose commit is known")
    return os.path.basename(os.path.dirname(path))  # .../snapshots/COMMIT/config.json


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def platform():
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


# Ways to guess from the tokens alone. They add no layer, and no KV depends on them.
_WITHOUT_A_MODEL = ("ngram", "ngram_gpu", "suffix")


def speculation(vllm_config):
    """vLLM's SpeculativeConfig, or None if there is none that counts. Of ngram it names the model itself as the draft."""
    found = getattr(vllm_config, "speculative_config", None)
    return None if getattr(found, "method", None) in _WITHOUT_A_MODEL else found


def of_config(vllm_config, kv_cache_config):
    """What counts of the configuration, as this process has it. The numbers of the layers, their sizes and the tokens of a
    block are in the specs of the KV cache groups. The hash algorithm counts because keys of two algorithms mean the same
    tokens; the seed of the hashes is in the keys themselves."""
    import vllm

    cache, parallel = vllm_config.cache_config, vllm_config.parallel_config
    speculative = speculation(vllm_config)
    draft = getattr(speculative, "draft_model_config", None)
    return {
        "vllm": minor_version(vllm.__version__),
        "platform": platform(),
        "model": of_model(vllm_config.model_config),
        "speculation": plain([getattr(speculative, "method", None), getattr(speculative, "num_speculative_tokens", None)]),
        "draft": of_model(draft) if draft is not None else None,
        "parallel": [
            parallel.tensor_parallel_size,
            parallel.pipeline_parallel_size,
            getattr(parallel, "decode_context_parallel_size", 1),
        ],
        "attention": plain(getattr(vllm_config, "attention_config", None)),
        "environment": {key: os.environ[key] for key in sorted(os.environ) if key.startswith(("VLLM_ATTENTION_", "VLLM_MLA_"))},
        "kv_dtype": str(cache.cache_dtype),
        "skip_layers": list(getattr(cache, "kv_cache_dtype_skip_layers", ())),
        "layout": plain(getattr(kv_cache_config, "kv_cache_layout", None)),
        "block_tokens": scheduler_block(kv_cache_config),
        "hash_algorithm": cache.prefix_caching_hash_algo,
        "hash_block_tokens": hash_block(vllm_config, kv_cache_config),
        "groups": plain([[layer_spec(group.kv_cache_spec), list(group.layer_names)] for group in kv_cache_config.kv_cache_groups]),
    }


# ---- a worker, and an engine ----------------------------------------------------------------------------------------


def of_worker(vllm_config, kv_cache_config):
    """(digest of all that counts in this worker, why it is the engine's own or None)."""
    from . import loaded, namespace

    try:
        if namespace.has_own_scales(vllm_config.cache_config):
            raise Unidentified(
                f"KV of type {vllm_config.cache_config.cache_dtype} has scales that only this engine knows, or that kvscout "
                "does not know of"
            )
        runner = from_callers("self", lambda owner: hasattr(owner, "get_model") and hasattr(owner, "model_config"))
        return digest([of_config(vllm_config, kv_cache_config), loaded.of_runner(runner, vllm_config, kv_cache_config)]), None
    except Unidentified as reason:
        return uuid.uuid4().hex, str(reason)
    except Exception as error:  # of vLLM's or a model's code: it is not worth the engine
        return uuid.uuid4().hex, f"identifying it failed: {type(error).__name__}: {error}"


def of_engine(own, vllm_config):
    """One digest of those of all workers, in the order of their ranks; each of them gives @own. With expert parallelism
    the replicas of an engine hold different experts, and vLLM's world is all of them."""
    if getattr(vllm_config.parallel_config, "enable_elastic_ep", False):
        # Replicas come while others run, and would wait for them here for ever.
        return digest([vllm_config.instance_id, vllm_config.kv_transfer_config.engine_id, uuid.getnode()])
    from vllm.distributed.parallel_state import get_world_group

    world = get_world_group()
    parts = [None] * world.world_size
    if world.world_size == 1:
        parts[0] = own
    else:
        import torch.distributed

        torch.distributed.all_gather_object(parts, own, group=world.cpu_group)
    return digest(parts)
