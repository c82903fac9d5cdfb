# SPDX-License-Identifier: Apache-2.0
"""SGLang's arguments and environment: all of them count for the namespace, except what is known to be harmless here. One that
SGLang adds makes a cache cold, and never wrong."""

import os
import re

from ..vllm import identity

_LOADED = "the loaded model counts, with its weights, rope, scales and attention (namespace.py)"
_ORDER = "it says which requests share a step; rounding differs by no more than between two batches"

# Fields of SGLang's ServerArgs that may differ between engines with the same KV: why, and which. A test compares them with the real class.
_HARMLESS = {
    "it acts on text, before there are tokens, and keys are of tokens": """
        tokenizer_path tokenizer_mode tokenizer_backend tokenizer_worker_num detokenizer_worker_num skip_tokenizer_init
        enable_dynamic_batch_tokenizer dynamic_batch_tokenizer_batch_size dynamic_batch_tokenizer_batch_timeout
        enable_tokenizer_batch_encode disable_tokenizer_batch_decode chat_template trust_request_chat_template hf_chat_template_name
        completion_template default_chat_template_kwargs reasoning_parser tool_call_parser tool_server allow_auto_truncate""",
    "it acts on logits or on what is answered, and KV does not depend on them but by tokens": """
        sampling_backend grammar_backend sampling_defaults preferred_sampling_params constrained_json_whitespace_pattern
        constrained_json_disable_any_whitespace constrained_json_max_whitespace_cnt enable_custom_logit_processor sampling_mask_max_tokens
        enable_watermark watermark_config watermark_key watermark_key_b watermark_context_window watermark_mixing_probability
        watermark_max_probability watermark_default_enabled watermark_enforce_all enable_fp32_lm_head enable_return_hidden_states
        return_hidden_states_mode enable_return_routed_experts disable_outlines_disk_cache enable_strict_thinking return_input_ids
        return_output_ids enable_cache_report stream_interval batch_notify_size stream_response_default_include_usage
        incremental_streaming_output random_seed speculative_accept_threshold_single speculative_accept_threshold_acc
        speculative_use_rejection_sampling""",
    "it guesses tokens from tokens": """
        speculative_ngram_min_bfs_breadth speculative_ngram_max_bfs_breadth speculative_ngram_match_type speculative_ngram_max_trie_depth
        speculative_ngram_capacity speculative_ngram_external_corpus_path speculative_ngram_external_sam_budget
        speculative_ngram_external_corpus_max_tokens""",
    "a name, an address or a password": """
        served_model_name api_key admin_api_key host port fastapi_root_path smg_grpc_mode grpc_mode grpc_port grpc_worker_threads
        grpc_response_timeout_secs smg_http_sidecar_port sidecar sidecar_args skip_server_warmup warmups enable_http2
        http2_max_concurrent_streams http2_initial_connection_window_size ssl_keyfile ssl_certfile ssl_ca_certs ssl_keyfile_password
        enable_ssl_refresh file_storage_path enable_http_worker_reuseport enable_response_store asr_max_buffer_seconds
        asr_max_concurrent_sessions nccl_port dist_timeout dist_init_addr gated_launch_port engine_info_bootstrap_port nnodes node_rank
        base_gpu_id gpu_id_step numa_node use_ray custom_sigquit_handler watchdog_timeout soft_watchdog_timeout sleep_on_idle gc_threshold
        allowed_media_domains media_url_max_file_size_mb limit_mm_data_per_request mm_processor_worker_num mm_io_worker_num
        disaggregation_transfer_backend disaggregation_bootstrap_port disaggregation_ib_device mooncake_ib_device encoder_bootstrap_port
        encoder_urls encoder_register_urls decoupled_spec_bind_endpoint decoupled_spec_connect_endpoints decoupled_spec_rank""",
    "a log, a count or a trace": """
        log_level log_level_http log_requests log_requests_level log_requests_format log_requests_target
        uvicorn_access_log_exclude_prefixes crash_dump_folder show_time_cost enable_metrics enable_mfu_metrics
        enable_metrics_for_all_schedulers load_snapshot_publish_interval tokenizer_metrics_custom_labels_header
        tokenizer_metrics_allowed_custom_labels extra_metric_labels bucket_time_to_first_token bucket_inter_token_latency
        bucket_e2e_request_latency prompt_tokens_buckets generation_tokens_buckets gc_warning_threshold_secs decode_log_interval
        enable_request_time_stats_logging kv_events_config load_publish_endpoint enable_forward_pass_metrics forward_pass_metrics_worker_id
        forward_pass_metrics_ipc_name enable_trace trace_modules otlp_traces_endpoint otlp_service_name export_metrics_to_file
        export_metrics_to_file_dir stat_loggers spec_trace_dir prefill_delayer_forward_passes_buckets prefill_delayer_wait_seconds_buckets""",
    _ORDER: """
        max_running_requests max_queued_requests chunked_prefill_size enable_dynamic_chunking max_prefill_tokens prefill_max_requests
        prefill_decode_interval prefill_decode_interval_min_bs schedule_policy enable_priority_scheduling disable_priority_preemption
        default_priority_value abort_on_priority_when_disabled schedule_low_priority_values_first priority_scheduling_preemption_threshold
        retraction_policy schedule_conservativeness disable_overlap_schedule num_continuous_decode_steps scheduler_recv_interval
        enable_mixed_chunk dp_size load_balance_method pp_max_micro_batch_size pp_async_batch_depth enable_prefill_delayer
        prefill_delayer_max_delay_passes prefill_delayer_token_usage_low_watermark prefill_delayer_queue_min_ratio
        prefill_delayer_max_delay_ms min_free_slots_delay""",
    "how kernels are started; " + _ORDER: """
        cuda_graph_config cuda_graph_backend_decode cuda_graph_backend_prefill cuda_graph_max_bs_decode cuda_graph_max_bs_prefill
        cuda_graph_bs_decode cuda_graph_bs_prefill cuda_graph_prefill_max_context cuda_graph_max_seq_len_prefill disable_prefill_cuda_graph
        disable_decode_cuda_graph disable_cuda_graph disable_cuda_graph_padding enable_profile_cuda_graph enable_cudagraph_gc
        debug_cuda_graph enable_layerwise_nvtx_marker pre_warm_nccl""",
    "it says where memory is or how much, and not what is in it": """
        mem_fraction_static max_total_tokens swa_full_tokens_ratio _swa_full_tokens_ratio_explicitly_set swa_prefix_tails
        max_mamba_cache_size mamba_full_memory_ratio radix_eviction_policy radix_eviction_policy_config
        _radix_eviction_policy_explicitly_set enable_hierarchical_cache hicache_host_memory_mode hicache_ratio hicache_size
        hicache_host_memory_fraction hicache_write_policy hicache_io_backend hicache_storage_backend hicache_storage_prefetch_policy
        hicache_storage_prefetch_retry_poll_interval hicache_storage_prefetch_retry_max_attempts mm_preprocess_cache_size_mb
        enable_memory_saver enable_weights_cpu_backup enable_draft_weights_cpu_backup""",
    "kvscout's own keys; its namespace stands in front": "hicache_storage_backend_extra_config",
    "the layout of SGLang's pools counts as they have it": "hicache_mem_layout",
    "adapters count by their files (namespace.py)": "lora_paths",
    "when adapters come and go": """
        max_loaded_loras max_loras_per_batch lora_eviction_policy enable_lora_overlap_loading lora_drain_wait_threshold
        lora_strict_loading""",
    _LOADED: """
        model_path revision load_format context_length download_dir model_loader_extra_config weight_loader_disable_mmap
        weight_loader_prefetch_checkpoints weight_loader_prefetch_num_threads weight_loader_drop_cache_after_load startup_weight_load_mode
        model_checksum delete_ckpt_after_loading weight_cache_mode weight_cache_socket weight_cache_timeout modelexpress_config
        remote_instance_weight_loader_seed_instance_ip remote_instance_weight_loader_seed_instance_service_port
        remote_instance_weight_loader_send_weights_group_ports remote_instance_weight_loader_backend
        remote_instance_weight_loader_start_seed_via_transfer_engine""",
}
HARMLESS = {name: why for why, names in _HARMLESS.items() for name in names.split()}

# Of the variables SGLANG_*: whole words (LOG is not LOGITS) for places, ports, clocks, logs and tests, and for storage that is not ours.
_HARMLESS_VARIABLE = re.compile(
    "_(RUN_ID|PORT|DIR$|PATH$|TIMEOUT|INTERVAL|LOG|LOGGING|TRACE|PROFILE|PROFILER|PROFILING|METRICS?|TEST|DEBUG_CUDA|COREDUMP|NUMA"
    "|OMP_THREADS|GRPC|ZMQ|SOCKET|HTTP|HICACHE|SCHEDULER|DISAGGREGATION|NAMESPACES|FIRST_RANK|IN_CI)(_|$)"
)


def of_values(values):
    """@values: of SGLang's ServerArgs as it resolved them, so its choices for this GPU and model count, too."""
    return {name: identity.plain(values[name]) for name in sorted(values) if name not in HARMLESS}


def of_environment(environment=None):
    given = os.environ if environment is None else environment
    return identity.of_variables(given, lambda name: name.startswith("SGLANG_") and not _HARMLESS_VARIABLE.search(name))
