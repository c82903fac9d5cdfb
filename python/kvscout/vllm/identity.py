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
import fnmatch
import hashlib
import json
import logging
import os
import re
import uuid

from .groups import hash_block, layer_spec, scheduler_block
from .internals import from_callers as from_callers
from .internals import version

logger = logging.getLogger("vllm.kvscout")

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
# Of the variables VLLM_*, by their names without it, those that may differ between engines with the same KV, or do between the ranks of
# one: why, and which. vLLM 0.31 to 0.33 have some 350; one that is not here counts when it is set.
HARMLESS_VARIABLES = {
    "where a process is, and how it starts and talks to others; vLLM sets some of these itself, to other values in each process": """
        DP_RANK DP_RANK_LOCAL DP_SIZE DP_MASTER_IP HOST_IP LOOPBACK_IP PORT *_PORT *_HOST RPC_BASE_PATH DIST_IDENT RAY_*
        OBJECT_STORAGE_SHM_BUFFER_NAME WORKER_MULTIPROC_METHOD ENABLE_V1_MULTIPROCESSING RANDOMIZE_DP_DUMMY_INPUTS
        ELASTIC_EP_SCALE_UP_LAUNCH ELASTIC_EP_DRAIN_REQUESTS MQ_MAX_CHUNK_BYTES_MB MSGPACK_ZERO_COPY_THRESHOLD""",
    "Kubernetes writes it for each service whose name begins with vllm, with an address of the day": """
        *_SERVICE_PORT_* PORT_*_TCP PORT_*_UDP PORT_*_TCP_* PORT_*_UDP_* *_PORT_*_TCP *_PORT_*_UDP *_PORT_*_TCP_* *_PORT_*_UDP_*""",
    "which CPUs compute, and how much memory there is": """
        CPU_OMP_THREADS_BIND CPU_NUM_OF_RESERVED_CPU CPU_KVCACHE_SPACE OMP_NUM_THREADS_SET_BY_VLLM OBJECT_STORAGE_SHM_BUFFER_SIZE""",
    "where files and caches are": """
        CACHE_ROOT CONFIG_ROOT ASSETS_CACHE ASSETS_CACHE_MODEL_CLEAN XLA_CACHE_PATH DEBUG_DUMP_PATH MEDIA_CACHE MEDIA_CACHE_*
        FLASHINFER_AUTOTUNE_CACHE_DIR DISABLE_COMPILE_CACHE COMPILE_CACHE_SAVE_FORMAT LORA_RESOLVER_* NCCL_SO_PATH CUDART_SO_PATH
        CUDA_COMPATIBILITY_PATH RUST_FRONTEND_PATH""",
    "a log, a count, a trace or a limit of time": """
        CONFIGURE_LOGGING LOGGING_* LOG_* TRACE_FUNCTION NO_USAGE_STATS DO_NOT_TRACK USAGE_* DEBUG_LOG_API_SERVER_RESPONSE DEBUG_MFU_METRICS
        PATTERN_MATCH_DEBUG REQUEST_BODY_LOG_LEVEL CUSTOM_SCOPES_FOR_PROFILING NVTX_SCOPES_FOR_PROFILING RINGBUFFER_WARNING_INTERVAL
        *_TIMEOUT *_TIMEOUT_S *_TIMEOUT_MS *_TIMEOUT_SECONDS HTTP_TIMEOUT_KEEP_ALIVE WATCHDOG_TIME_S""",
    "of the API server, or it permits and changes nothing; " + _BEFORE: """
        API_KEY SERVER_DEV_MODE KEEP_ALIVE_ON_ENGINE_DEATH USE_RUST_FRONTEND V1_OUTPUT_PROC_CHUNK_SIZE SYSTEM_START_DATE TOOL_* GPT_OSS_*
        ENABLE_RESPONSES_API_STORE MAX_N_SEQUENCES MEDIA_FETCH_MAX_RETRIES MEDIA_URL_ALLOW_REDIRECTS MEDIA_LOADING_THREAD_COUNT
        ALLOW_RUNTIME_LORA_UPDATING ALLOW_INSECURE_SERIALIZATION ALLOW_LONG_MAX_MODEL_LEN SKIP_MODEL_NAME_VALIDATION
        DISABLE_REQUEST_ID_RANDOMIZATION KV_EVENTS_USE_INT_BLOCK_HASHES""",
}
_IS_HARMLESS = re.compile("|".join(fnmatch.translate(f"VLLM_{word}") for words in HARMLESS_VARIABLES.values() for word in words.split()))
# Of other packages, what makes numbers coarser than the model's type, or pixels of a video others. What only chooses kernels (NCCL_*,
# CUBLAS_*, FLASHINFER_*, TORCHINDUCTOR_*) rounds no more differently than two batches do.
_OF_OTHERS = re.compile(
    r"(AITER|FLA|INKLING|MINIMAX)_\w+|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|TRITON_F32_DEFAULT|XHS_VIDEO_JPEG_QUALITY"
    r"|(ONEDNN|DNNL)_DEFAULT_FPMATH_MODE"
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


def known(find):
    """(what @find() returns, None); or, where it cannot be known, (something of this engine's own, why)."""
    try:
        return find(), None
    except Unidentified as reason:
        return uuid.uuid4().hex, str(reason)
    except Exception as error:  # of an engine's or a model's code: it is not worth the engine
        return uuid.uuid4().hex, f"identifying it failed: {type(error).__name__}: {error}"


# ---- the configuration ----------------------------------------------------------------------------------------------


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
    from . import loaded

    names = [name for name in sorted(os.listdir(model.model)) if "process" in name or name.endswith(".py")]
    found = [transformers.__version__, [[name, file_digest(os.path.join(model.model, name))] for name in names]]
    loaded.need_unchanged(model.model, names, loaded.start_of_this_process())
    return found


def commit(model, download_dir=None):
    """Of a model that is no local folder: the commit of its repository, which names all of its files. The configuration has it, and the
    hub's cache has that of the weights; a branch may have moved between the two."""
    read = getattr(model.hf_config, "_commit_hash", None)
    try:
        from huggingface_hub import snapshot_download

        path = snapshot_download(model.model, revision=getattr(model, "revision", None), cache_dir=download_dir, local_files_only=True)
    except (ImportError, OSError, ValueError):
        raise Unidentified(f"{model.model} is neither a local folder nor of a repository whose commit is known") from None
    found = os.path.basename(path)  # .../snapshots/COMMIT
    if read not in (None, found):
        raise Unidentified(f"the configuration of {model.model} is of the commit {read}, and the hub's cache is at {found} now")
    return found


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
    cache, parallel = vllm_config.cache_config, vllm_config.parallel_config
    speculative = speculation(vllm_config)
    draft = getattr(speculative, "draft_model_config", None)
    return {
        "vllm": version(),
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
        "environment": of_environment(),
        "kv_dtype": str(cache.cache_dtype),
        "skip_layers": list(getattr(cache, "kv_cache_dtype_skip_layers", ())),
        "layout": plain(getattr(kv_cache_config, "kv_cache_layout", None)),
        "block_tokens": scheduler_block(kv_cache_config),
        "hash_algorithm": cache.prefix_caching_hash_algo,
        "hash_block_tokens": hash_block(vllm_config, kv_cache_config),
        "groups": plain([[layer_spec(group.kv_cache_spec), list(group.layer_names)] for group in kv_cache_config.kv_cache_groups]),
    }


def of_environment():
    """As a worker has it with its model loaded: what vLLM sets for a model is in it."""
    return of_variables(os.environ, lambda name: name.startswith("VLLM_") and not _IS_HARMLESS.match(name))


def of_variables(given, is_counted):
    return {name: given[name] for name in sorted(given) if is_counted(name) or _OF_OTHERS.fullmatch(name)}


# ---- a worker, and an engine ----------------------------------------------------------------------------------------


class Worker:
    """What a worker computes its part of the identity with, at the start and after new weights."""

    def __init__(self, vllm_config, kv_cache_config):
        from . import loaded

        self._configs = vllm_config, kv_cache_config
        self.runner = from_callers("self", lambda owner: hasattr(owner, "get_model") and hasattr(owner, "model_config"))
        self._packed = loaded.Packed()
        self._is_start = True

    def part(self):
        """The digest of all that counts in this worker."""
        part, reason = self.find()
        self._is_start = False
        if reason is not None:
            logger.warning("kvscout: no other engine shares this engine's KV, nor does it itself after a restart, because %s", reason)
        return part

    def find(self):
        """(digest, why it is the engine's own or None)."""
        return known(self._find)

    def _find(self):
        from . import loaded, namespace

        cache, parallel = self._configs[0].cache_config, self._configs[0].parallel_config
        if namespace.has_own_scales(cache):
            raise Unidentified(f"KV of type {cache.cache_dtype} has scales that only this engine knows, or that kvscout does not know of")
        if not self._is_start and (_is_elastic(parallel) or world().world_size != parallel.world_size):
            raise Unidentified("it may have new weights, of which other replicas have a part")
        return digest([of_config(*self._configs), loaded.of_runner(self.runner, *self._configs, self._packed)])


def _is_elastic(parallel_config):
    return getattr(parallel_config, "enable_elastic_ep", False)


def world():
    from vllm.distributed.parallel_state import get_world_group

    return get_world_group()


def of_engine(own, vllm_config):
    """One digest of those of all workers, in the order of their ranks; each of them gives @own. None: one of them gave None, because
    it is inert. With expert parallelism the replicas of an engine hold different experts, and vLLM's world is all of them."""
    if _is_elastic(vllm_config.parallel_config):
        # Replicas come while others run, and would wait for them here for ever.
        return own and digest([vllm_config.instance_id, vllm_config.kv_transfer_config.engine_id, uuid.getnode()])
    ranks = world()
    parts = [None] * ranks.world_size
    if ranks.world_size == 1:
        parts[0] = own
    else:
        import torch.distributed

        torch.distributed.all_gather_object(parts, own, group=ranks.cpu_group)
    return None if None in parts else digest(parts)
