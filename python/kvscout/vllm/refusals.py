# SPDX-License-Identifier: Apache-2.0
"""What the connector cannot do: each is one sentence that says what to change.

What the platform and the configuration say is checked before vLLM loads the model (start.py). What only the KV cache groups
say is known when it is loaded; it is checked in the scheduler's process and in each worker's, before anything is started.
"""

from . import groups as kv_groups


class Refused(ValueError):
    """This engine's configuration is one that the connector cannot serve."""


def _spec_refusal(group):
    if kv_groups.policy_of(group.kv_cache_spec) is not None:
        return None
    spec = kv_groups.layer_spec(group.kv_cache_spec)
    name = type(spec).__name__
    if hasattr(spec, "mamba_cache_mode"):
        return (
            f"KVScoutConnector serves recurrent layers whose states vLLM itself can reuse; {len(group.layer_names)} "
            f"layers of this model ({name}) have mamba_cache_mode={spec.mamba_cache_mode}. Start the engine with "
            "--enable-prefix-caching (before vLLM 0.33 also --mamba-cache-mode align), or without this "
            "connector"
        )
    return (
        "KVScoutConnector serves full, MLA, sliding-window and chunked local attention and recurrent layers; "
        f"{len(group.layer_names)} layers of this model have KV of another kind ({name}). Use vLLM's offloading with "
        "the tier of kvscout (kvscout.vllm_tier), which serves every kind"
    )


def _groups_refusal(groups):
    if not groups:
        return "KVScoutConnector needs a model with a KV cache, and this one has none"
    if any(getattr(group, "host_resident", False) for group in groups):
        return "KVScoutConnector does not serve KV that vLLM keeps in host memory by itself (HiSparse)"
    cached = [group for group in groups if kv_groups.is_cached(group)]
    if not cached:
        return "KVScoutConnector needs KV that vLLM finds by its hash, and no KV cache group of this model has any"
    return next((sentence for sentence in map(_spec_refusal, cached) if sentence is not None), None)


_TIER = "vLLM's offloading with the tier of kvscout (docs/vllm.md), which copies nothing on the GPU itself"


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
    if not config.load_async and not groups.is_one_run:
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


def check_groups(groups, config, scheduler_block):
    refuse(reason_of_groups(groups, config, scheduler_block))


def refuse(sentence):
    if sentence is not None:
        raise Refused(sentence)
