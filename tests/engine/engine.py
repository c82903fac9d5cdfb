# SPDX-License-Identifier: Apache-2.0
"""vLLM in this process, driven step by step: scheduler and connector's scheduler side are objects that a scenario can
look at; workers are processes of their own, as always."""

import dataclasses
import os
import time

from checks import Failed, tally

# Read by vLLM when it is imported: the scheduler in this process, no network, and the same CPU for all runs that are
# compared (vLLM takes one thread without a connector and two with one, if it may choose).
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

BLOCK_TOKENS = 64


@dataclasses.dataclass
class Answer:
    tokens: list
    logprobs: list
    cached: int  # prompt tokens that were not computed, by the engine's count


class Engine:
    def __init__(
        self,
        model,
        connector=None,
        block_tokens=BLOCK_TOKENS,
        blocks=None,
        batch_tokens=512,
        seqs=16,
        beside=None,
        prefix_caching=None,
        events=None,
        **more,
    ):
        """@connector: kv_connector_extra_config; None: no connector. @blocks: of the engine's own cache. @beside:
        configurations of connectors that run beside ours under MultiConnector. @prefix_caching: switch it behind
        vLLM's back, where vLLM forces it off. @events: keys of --kv-events-config.
        """
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        if connector is not None:
            more["kv_transfer_config"] = _transfer_config({"verify_sample": 0, **connector}, beside)
        if events is not None:
            from vllm.config import KVEventsConfig

            more["kv_events_config"] = KVEventsConfig(**events)
        args = EngineArgs(
            model=model,
            block_size=block_tokens,
            num_gpu_blocks_override=blocks,
            max_num_batched_tokens=batch_tokens,
            max_num_seqs=seqs,
            disable_log_stats=False,
            **{"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": True, "skip_tokenizer_init": True,
               "max_model_len": 4096, "kv_cache_memory_bytes": 64 << 20, **more},
        )
        config = args.create_engine_config()
        if prefix_caching is not None:
            config.cache_config.enable_prefix_caching = prefix_caching
        self._engine = LLMEngine.from_vllm_config(config)
        if config.parallel_config.pipeline_parallel_size > 1:
            self.on_workers(make_stage_buffers)
        self.block_tokens = block_tokens
        self.scheduler = self._engine.engine_core.engine_core.scheduler
        self._count_hits()
        self._n = 0
        self._open = {}
        self.preemptions = 0
        self._preempted = {}

    def _count_hits(self):
        make_stats = self.scheduler.make_stats

        def counted(*args, **more):
            stats = make_stats(*args, **more)
            found = stats.connector_prefix_cache_stats if stats is not None else None
            if found is not None:
                self.hits += found.hits + found.preempted_hits
                tally.hits += found.hits + found.preempted_hits
            return stats

        self.hits = 0
        self.scheduler.make_stats = counted

    @property
    def side(self):
        """The connector's scheduler side."""
        return ours(self.scheduler.connector)._scheduler

    def add(self, prompt, output_tokens, salt=None, transfer=None, adapter=None, image=None, image_name=None, stop=(), processor=None, hints=None):
        """@adapter: (number, folder) of a LoRA adapter. @image: stands where the prompt has the model's token for
        it. @image_name: in place of vLLM's hash of it. @stop: tokens that end the answer. @processor: options of what makes it
        of the image. @hints: a KvHintsEnvelope."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        name = f"r{self._n}"
        self._n += 1
        params = SamplingParams(
            temperature=0.0,
            max_tokens=output_tokens,
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE,
            stop_token_ids=list(stop),
            extra_args={"kv_transfer_params": transfer} if transfer else None,
        )
        question = {"prompt_token_ids": list(prompt)}
        if salt is not None:
            question["cache_salt"] = salt
        if image is not None:
            question["multi_modal_data"] = {"image": image}
        if image_name is not None:
            question["multi_modal_uuids"] = {"image": image_name}
        if processor is not None:
            question["mm_processor_kwargs"] = processor
        lora = None
        if adapter is not None:
            from vllm.lora.request import LoRARequest

            lora = LoRARequest(f"adapter{adapter[0]}", adapter[0], adapter[1])
        more = {} if hints is None else {"kv_hints": hints}  # vLLM 0.31 has none
        self._engine.add_request(name, question, params, lora_request=lora, **more)
        self._open[name] = None
        tally.requests += 1
        return name

    def hashes(self, prompt):
        """vLLM's hashes of @prompt's blocks."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        core = self._engine.engine_core.engine_core
        return Request("hashes", prompt, SamplingParams(max_tokens=1), None, block_hasher=core.request_block_hasher).block_hashes

    def embed(self, prompt):
        """The embedding of @prompt, by a model that pools."""
        from vllm import PoolingParams

        self._engine.add_request(f"e{self._n}", {"prompt_token_ids": list(prompt)}, PoolingParams(task="embed"))
        self._n += 1
        tally.requests += 1
        while True:
            for output in self._engine.step():
                if output.finished:
                    return output.outputs.data.tolist()

    def step(self):
        """One step. Returns the names of the requests that ended in it, with their answers."""
        ended = {}
        for output in self._engine.step():
            if not output.finished or output.request_id not in self._open:
                continue
            del self._open[output.request_id]
            choice = output.outputs[0]
            if choice.finish_reason not in ("length", "stop"):
                tally.errors += 1
            logprobs = [entry[token].logprob for entry, token in zip(choice.logprobs or [], choice.token_ids)]
            ended[output.request_id] = Answer(list(choice.token_ids), logprobs, output.num_cached_tokens or 0)
        for request in self.scheduler.requests.values():
            self.preemptions += request.num_preemptions - self._preempted.get(request.request_id, 0)
            self._preempted[request.request_id] = request.num_preemptions
        return ended

    def abort(self, name):
        self._open.pop(name, None)
        self._engine.abort_request([name])

    @property
    def busy(self):
        return bool(self._open)

    def run(self, prompts, output_tokens, **more):
        """All at once; the answers in the order of the prompts."""
        names = [self.add(prompt, output_tokens, **more) for prompt in prompts]
        answers = {}
        while self.busy:
            answers.update(self.step())
        return [answers[name] for name in names]

    def drain(self, seconds=60):
        """Step until nothing is left to do, stores included."""
        end = time.monotonic() + seconds
        while self.scheduler.has_requests():
            self.step()
            if time.monotonic() > end:
                raise Failed(f"after {seconds} s the engine still has something to do: {self._left()}")

    def _left(self):
        scheduler = self.scheduler
        stores = len(self.side._pins) if scheduler.connector is not None else 0
        return (
            f"{len(scheduler.requests)} requests, {len(scheduler.finished_req_ids)} ended ones to tell, {stores} stores"
        )

    def forget(self, connector=False):
        """Empty the engine's own prefix cache, and with @connector the connector's."""
        self.drain()
        return self._engine.reset_prefix_cache(reset_connector=connector)

    def load_weights(self, folder):
        """Replace the model's weights by those in @folder, as an engine in training does between steps."""
        self.drain()
        self.on_workers(_load_weights, folder)

    def on_workers(self, function, *args):
        return self._engine.collective_rpc(function, args=args)

    def blocks_of_running(self):
        """Block ids of the only request that runs, by KV cache group."""
        (request,) = self.scheduler.running
        return [list(ids) for ids in self.scheduler.kv_cache_manager.get_block_ids(request.request_id)]

    def close(self):
        self._engine.engine_core.shutdown()


def _transfer_config(connector, beside):
    from vllm.config import KVTransferConfig

    own = {
        "kv_connector": "KVScoutConnector",
        "kv_role": connector.pop("kv_role", "kv_both"),
        "kv_connector_module_path": connector.pop("module", "kvscout.vllm"),
        "kv_connector_extra_config": connector,
    }
    if not beside:
        return KVTransferConfig(**own)
    return KVTransferConfig(
        kv_connector="MultiConnector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"connectors": [own, *beside]},
    )


def ours(connector):
    """The KVScoutConnector, which MultiConnector may hold among others."""
    return next(c for c in getattr(connector, "sub_connectors", [connector]) if hasattr(c, "_scheduler"))


def worker_counts(worker):
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return dict(ours(get_kv_transfer_group())._worker.counts)


def all_counts(engine):
    """Counters of the scheduler's side and of all workers."""
    counts = dict(engine.side.counts)
    for found in engine.on_workers(worker_counts):
        for name, value in found.items():
            counts[name] = counts.get(name, 0) + value
    return counts


def _load_weights(worker, folder):
    worker.model_runner.reload_weights(weights_path=folder)


def make_stage_buffers(worker):
    """On a worker: what it receives from the stage before. vLLM makes these when it profiles a model, which the CPU
    build leaves out if the size of the KV cache is given and nothing is compiled."""
    from vllm.distributed import get_pp_group

    runner = worker.model_runner
    if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


def swap_blocks(worker, left, right):
    """On a worker: exchange the KV of two lists of blocks in all layers."""
    from vllm.v1.kv_cache_interface import group_kernel_blocks

    runner = worker.model_runner
    # Layers of several groups share their memory, of which a recurrent layer's tensors are parts.
    memory = {}
    for cache in runner.kv_caches:
        for tensor in cache if isinstance(cache, list | tuple) else (cache,):
            if tensor.data_ptr() not in memory or tensor.numel() > memory[tensor.data_ptr()].numel():
                memory[tensor.data_ptr()] = tensor
    for cache in memory.values():
        pages = group_kernel_blocks(cache, runner.kv_cache_config.num_blocks)
        for a, b in zip(left, right):
            kept = pages[a].clone()
            pages[a].copy_(pages[b])
            pages[b].copy_(kept)
    return len(runner.kv_caches)
