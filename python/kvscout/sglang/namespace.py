# SPDX-License-Identifier: Apache-2.0
"""The namespace: SGLang's keys are of tokens alone, so everything else that KV depends on is here.

As for vLLM the configuration counts as a whole (kvscout.vllm.identity), found where SGLang makes the storage: in the scheduler's
process. Weights count by the bytes of their files, of a hub's model by its commit. What cannot be known is not shared: the namespace is then the
engine's own.
"""

import os
import uuid

from ..vllm import identity, loaded

# Of SGLang's ModelConfig: what says how KV is computed, beyond hf_config and the loaded model.
_OF_MODEL = ("dtype", "context_len", "quantization", "attention_arch", "is_generation", "attention_chunk_size")
# SGLang has more than 500 arguments, most of no effect on KV: these have one.
_OF_SERVER = (
    "attention_backend", "prefill_attention_backend", "decode_attention_backend", "kv_cache_dtype", "load_format", "device",
    "quantization_param_path", "modelopt_quant", "rl_quant_profile", "quantize_and_serve", "prefill_kv_cache_dequant_dtype", "revision",
    "model_impl", "model_config_parser", "model_loader_extra_config", "decrypted_config_file", "mm_process_config", "language_model_only",
    "enable_precise_embedding_interpolation", "dllm_algorithm", "uno_lora_path", "experts_shared_outer_loras",
)


def factors(config, pool, planes, version):
    """What a page depends on beyond the model. @config: SGLang's HiCacheStorageConfig."""
    return {
        "unit": "page",
        "sglang": identity.minor_version(version),
        "model": config.model_name if getattr(pool, "storage_format_tag", None) else None,
        "format": getattr(pool, "storage_format_tag", None),
        "dtype": str(pool.dtype),
        "page_tokens": pool.page_size,
        "layout": pool.layout,
        "pool": type(pool).__name__,
        "planes": [size for _, _, size in planes],
        "mla": bool(config.is_mla_model),
        # Ranks of one engine are kvscout's KV ranks, but stages and context shards are apart.
        "tp": None if config.is_mla_model else config.tp_size,
        "pp": [config.pp_rank, config.pp_size],
        "cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [config.dcp_rank, config.dcp_size],
    }


def of_engine(scheduler):
    """What counts of the model and how it runs. @scheduler: SGLang's, or None if it was not found. Only what is the same in all ranks
    counts: weights of a rank would part them, so weights count by their files."""
    if scheduler is None:
        raise identity.Unidentified("SGLang does not show the engine's configuration")
    model, server = scheduler.model_config, scheduler.server_args
    if str(getattr(server, "load_format", "auto")) == "dummy":
        raise identity.Unidentified("its weights are random ones")
    folder = model.model_path
    weights = loaded.of_folder(folder, loaded.start_of_this_process()) if os.path.isdir(folder) else [folder, _commit(model)]
    return {
        "weights": weights,
        "hf_config": identity.plain(model.hf_config.to_dict()),
        "model": {name: identity.plain(str(getattr(model, name, None))) for name in _OF_MODEL},
        "server": {name: identity.plain(str(getattr(server, name, None))) for name in _OF_SERVER},
        "override": str(getattr(server, "json_model_override_args", None)),
    }


def _commit(model):
    found = getattr(model.hf_config, "_commit_hash", None)
    if not found:
        raise identity.Unidentified(f"{model.model_path} is neither a local folder nor of a repository whose commit is known")
    return found


def scheduler_of_callers():
    return identity.from_callers("self", lambda owner: hasattr(owner, "model_config") and hasattr(owner, "server_args"))


def compute(name, found, scheduler):
    """(the namespace, why it is the engine's own or None)."""
    try:
        seen, reason = of_engine(scheduler), None
    except identity.Unidentified as why:
        seen, reason = uuid.uuid4().hex, str(why)
    except Exception as error:  # of SGLang's or a model's code: it is not worth the engine
        seen, reason = uuid.uuid4().hex, f"identifying it failed: {type(error).__name__}: {error}"
    own = f"sglang/{identity.digest([found, seen])}"
    return f"{name}/{own}" if name else own, reason
