# SPDX-License-Identifier: Apache-2.0
"""What the connector cannot do, checked when the engine starts: each is one sentence that says what to change.

Runs in the scheduler's process and in each worker's, before anything is started.
"""


class Refused(ValueError):
    """This engine's configuration is one that the connector cannot serve."""


def _many_groups(groups):
    kinds = ", ".join(f"{type(g.kv_cache_spec).__name__} ({len(g.layer_names)} layers)" for g in groups)
    return (
        f"KVScoutConnector serves models with one KV cache group, and this one has {len(groups)}: {kinds}. Start the "
        "engine with "
        "--disable-hybrid-kv-cache-manager if the model's attention allows it, or without this connector"
    )


def _spec_refusal(spec):
    name = type(spec).__name__
    if name in ("MambaSpec", "CrossAttentionSpec", "EncoderOnlyAttentionSpec", "ChunkedLocalAttentionSpec"):
        return f"KVScoutConnector serves full, sliding-window and MLA attention; this model's KV is described by {name}"
    return None


def reason(vllm_config, kv_cache_config):
    """The sentence that says why this engine is refused, or None."""
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
    groups = kv_cache_config.kv_cache_groups
    if not groups:
        return "KVScoutConnector needs a model with a KV cache, and this one has none"
    if len(groups) > 1:
        return _many_groups(groups)
    if getattr(groups[0], "host_resident", False):
        return "KVScoutConnector does not serve KV that vLLM keeps in host memory by itself (HiSparse)"
    return _spec_refusal(groups[0].kv_cache_spec)


def check(vllm_config, kv_cache_config):
    sentence = reason(vllm_config, kv_cache_config)
    if sentence is not None:
        raise Refused(sentence)
