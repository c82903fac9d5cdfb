# SPDX-License-Identifier: Apache-2.0
"""What the connector cannot do: each is one sentence that says what to change.

What the platform and the configuration say is checked before vLLM loads the model (start.py). What only the KV cache groups
say is known when it is loaded; it is checked in the scheduler's process and in each worker's, before anything is started.
"""

from . import groups as kv_groups


class Refused(ValueError):
    """This engine's configuration is one that the connector cannot serve."""


# Fields of a spec that say that a token's KV depends on tokens behind it. vLLM switches its own prefix cache off for such layers.
_NOT_CAUSAL = ("non_causal", "non_causal_multi_token_decode")


def reason_of_layers(groups):
    """What neither connector nor tier serve of vLLM's KV cache @groups, or None. No key allows it."""
    for group in groups:
        specs = kv_groups.layer_specs(group.kv_cache_spec)
        for field in _NOT_CAUSAL:
            if any(getattr(spec, field, False) for spec in specs):
                return (
                    f"kvscout does not serve layers with {field}, because a token's KV depends on the tokens behind it there; "
                    f"{len(group.layer_names)} layers of this model are such. Start the engine without kvscout"
                )
        if kv_groups.is_cached(group) and kv_groups.kind_of(group.kv_cache_spec) is None:
            return (
                "kvscout serves full, MLA, sliding-window and chunked local attention and recurrent layers; "
                f"{len(group.layer_names)} layers of this model have KV of another kind "
                f"({' and '.join(sorted({type(spec).__name__ for spec in specs}))}). Start the engine without kvscout"
            )
    return None


def _state_refusal(group):
    if kv_groups.policy_of(group.kv_cache_spec) is not None:
        return None
    spec = kv_groups.layer_spec(group.kv_cache_spec)
    return (
        f"KVScoutConnector serves recurrent layers whose states vLLM itself can reuse; {len(group.layer_names)} "
        f"layers of this model ({type(spec).__name__}) have mamba_cache_mode={spec.mamba_cache_mode}. Start the engine with "
        "--enable-prefix-caching (before vLLM 0.33 also --mamba-cache-mode align), or without this "
        "connector"
    )


def _groups_refusal(groups):
    if not groups:
        return "KVScoutConnector needs a model with a KV cache, and this one has none"
    if any(getattr(group, "host_resident", False) for group in groups):
        return "KVScoutConnector does not serve KV that vLLM keeps in host memory by itself (HiSparse)"
    cached = [group for group in groups if kv_groups.is_cached(group)]
    if not cached:
        return "KVScoutConnector needs KV that vLLM finds by its hash, and no KV cache group of this model has any"
    return reason_of_layers(groups) or next(filter(None, map(_state_refusal, cached)), None)


_TIER = "vLLM's offloading with the tier of kvscout (docs/vllm-reference.md), which copies nothing on the GPU itself"


def reason_of_platform(platform, cuda_problem):
    """@platform: vLLM's. @cuda_problem(): why kvscout cannot copy to and from CUDA devices, or None. Neither initialises CUDA, which
    would leave the processes without it that vLLM forks."""
    if platform.is_cpu() or platform.is_unspecified():
        return None
    if not platform.is_cuda():
        # The tensors of ROCm say `cuda`, too.
        return (
            f"KVScoutConnector serves NVIDIA GPUs and CPUs, and vLLM runs on another platform here ({platform.device_name}). Use {_TIER}"
        )
    problem = cuda_problem()
    if problem is None:
        return None
    return f"KVScoutConnector cannot copy to and from this machine's GPUs: {problem}. Or use {_TIER}"


# What kv_layout=blocks stands for. The connector asks vLLM for the first one, because more attention backends read it than the others.
BLOCK_LAYOUTS = ("BLHNC", "BLNHC", "BHLNC")
_OUT = "kv_layout out of kv_connector_extra_config"


def reason_of_layout(config, platform, asked_by_user, outer):
    """Why the connector cannot ask vLLM for the layout that kv_layout stands for, or None. @asked_by_user: VLLM_KV_CACHE_LAYOUT; vLLM
    asks no connector if the user has set it. @outer: the name of the connector that holds this one, or None."""
    if config.kv_layout != "blocks":
        return None
    if platform.is_cpu():
        return (
            "KVScoutConnector serves kv_layout=blocks on NVIDIA GPUs, and vLLM runs on another platform here "
            f"({platform.device_name}). Leave {_OUT}"
        )
    if asked_by_user is not None:
        if asked_by_user in BLOCK_LAYOUTS:
            return None
        return (
            f"KVScoutConnector's kv_layout=blocks contradicts VLLM_KV_CACHE_LAYOUT={asked_by_user}: it stands for one of "
            f"{', '.join(BLOCK_LAYOUTS)}. Leave {_OUT}, or take the variable out of the environment"
        )
    if outer is None:
        return None
    return (
        f"KVScoutConnector does not serve kv_layout=blocks below {outer}: another connector there may ask for another layout, and vLLM "
        f"does not start then. Leave {_OUT}; if all connectors there can use such a layout, set "
        f"VLLM_KV_CACHE_LAYOUT={BLOCK_LAYOUTS[0]} in vLLM's environment instead"
    )


def reason_of_found_layout(config, layout):
    """The same, when vLLM has chosen @layout. vLLM logs a warning and chooses another layout than the connector's if a backend does
    not read that one."""
    if config.kv_layout != "blocks" or layout in (None, *BLOCK_LAYOUTS):
        return None
    return (
        f"KVScoutConnector asked for kv_layout=blocks, and vLLM chose the layout {layout}, because an attention backend of this model "
        f"does not read {BLOCK_LAYOUTS[0]}. Leave {_OUT}, or choose another backend with --attention-backend"
    )


def reason_of_kernels(vllm_config):
    """Why vLLM cannot lay a block out as one piece, or None. Between two blocks of a layer lie the other layers, so kernels must read
    whole blocks. The caller sets vLLM's current configuration, because backends read it."""
    for layer in vllm_config.compilation_config.static_forward_context.values():
        get_backend = getattr(layer, "get_attn_backend", None)
        spec = layer.get_kv_cache_spec(vllm_config) if get_backend is not None else None
        if "AttentionSpec" not in _bases(spec) or spec.tokens_per_state > 1:  # vLLM splits compressed KV in another way
            continue
        sizes = get_backend().get_supported_kernel_block_sizes(spec)
        if sizes and not any(_is_whole(spec.block_size, size) for size in sizes):
            allowed = " or ".join(f"{size}" if isinstance(size, int) else f"a multiple of {size.base}" for size in sizes)
            return (
                f"KVScoutConnector's kv_layout=blocks needs kernels that read whole blocks of {spec.block_size} tokens, and those of "
                f"{get_backend().get_name()} split them. Start the engine with --block-size {allowed}, or leave {_OUT}"
            )
    return None


def _bases(spec):
    return {base.__name__ for base in type(spec).__mro__}


def _is_whole(block_tokens, size):
    """Whether kernels that take @size, a number or vLLM's MultipleOf, read a block of @block_tokens whole."""
    return block_tokens == size if isinstance(size, int) else block_tokens % size.base == 0


def reason_of_config(vllm_config):
    """Why an engine with this configuration is refused, or None."""
    parallel = vllm_config.parallel_config
    if getattr(parallel, "decode_context_parallel_size", 1) > 1:
        return (
            "KVScoutConnector does not serve decode context parallelism, because a block's tokens are spread over "
            "ranks then. Start the "
            "engine with --decode-context-parallel-size 1"
        )
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        return (
            "KVScoutConnector does not serve prefill context parallelism. Start the engine with "
            "--prefill-context-parallel-size 1"
        )
    if getattr(vllm_config.model_config, "is_encoder_decoder", False):
        return (
            "KVScoutConnector does not serve encoder-decoder models, because the decoder's KV depends on more than its "
            "tokens"
        )
    if getattr(vllm_config.model_config, "enable_sleep_mode", False):
        return (
            "KVScoutConnector does not serve sleep mode, because its workers copy from and to pages that sleep takes away. "
            "Start the engine without --enable-sleep-mode"
        )
    return None


def reason(vllm_config, kv_cache_config):
    """As reason_of_config(), when the KV cache groups are known, too."""
    sentence = reason_of_config(vllm_config)
    if sentence is not None:
        return sentence
    return _groups_refusal(kv_cache_config.kv_cache_groups) or _drafts_refusal(vllm_config, kv_cache_config)


def _drafts_refusal(vllm_config, kv_cache_config):
    if getattr(vllm_config, "speculative_config", None) is None:
        return None
    if getattr(vllm_config.parallel_config, "pipeline_parallel_size", 1) == 1:
        return None
    cached = filter(kv_groups.is_cached, kv_cache_config.kv_cache_groups)
    if not any(kv_groups.policy_of(group.kv_cache_spec)[0] == "state" for group in cached):
        return None
    return (
        "KVScoutConnector does not serve recurrent layers with speculative decoding and pipeline parallelism together: "
        "the stages but the last learn only steps later which states were accepted. Start the engine with "
        "--pipeline-parallel-size 1 or without --speculative-config"
    )


def reason_of_groups(groups, config, scheduler_block):
    """What the groups and the configuration together make impossible, or None."""
    if not config.load_async and not groups.names_blocks:
        return (
            "KVScoutConnector does not load synchronously into a model with several KV cache groups, sliding windows or "
            "a draft model, because vLLM computes a failed load of these anew only if the request waits for it. Use "
            '"load": "async" in kv_connector_extra_config'
        )
    if groups.step_tokens % scheduler_block:
        kinds = ", ".join(group.item() for group in groups)
        return (
            f"KVScoutConnector finds prefixes of this model in steps of {groups.step_tokens} tokens, and vLLM takes "
            f"multiples of {scheduler_block}, the least common multiple of its groups' blocks ({kinds}). Give "
            f"chunk_tokens in kv_connector_extra_config at most the shortest window"
        )
    return None


def check(vllm_config, kv_cache_config):
    refuse(reason(vllm_config, kv_cache_config))


def refuse(sentence):
    if sentence is not None:
        raise Refused(sentence)
