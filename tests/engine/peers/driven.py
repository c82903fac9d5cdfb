#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One engine in a process of its own, which compare.py drives: driven.py OPTIONS-AS-JSON.

Commands come as lines of JSON on standard input, answers go as lines of JSON to the descriptor that the options name:
standard output belongs to vLLM. The scheduler runs in this process, the worker in a child of it.
"""

import json
import os
import sys
import time

# Read by vLLM when it is imported.
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_HOST_IP="127.0.0.1", VLLM_LOGGING_LEVEL="WARNING")
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", PYTHONHASHSEED="0")

MAX_TOKENS = 8192
DRAIN_S = 60


class Driven:
    def __init__(self, model, transfer, block_tokens, batch_tokens, dtype, seqs=16, cache_bytes=640 << 20, step_ms=None):
        """@step_ms: no model computes; each step sleeps so long (sleeping.py)."""
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        more = {"kv_transfer_config": KVTransferConfig(**transfer)} if transfer else {}
        if step_ms is not None:
            os.environ["KVSCOUT_TEST_STEP_MS"] = str(step_ms)
            more["worker_extension_cls"] = "sleeping.Extension"
        args = EngineArgs(
            model=model,
            dtype=dtype,
            max_model_len=MAX_TOKENS,
            enforce_eager=True,
            block_size=block_tokens,
            kv_cache_memory_bytes=cache_bytes,
            max_num_batched_tokens=batch_tokens,
            max_num_seqs=seqs,
            enable_chunked_prefill=True,
            skip_tokenizer_init=True,
            distributed_executor_backend="mp",  # as vllm serve: only a worker process of its own is bound to its CPU
            **more,
        )
        self._engine = LLMEngine.from_engine_args(args)
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self._n = 0
        self._hooks = None

    def ask(self, prompts, output_tokens, tell_after_step=False):
        """All prompts at once. Seconds to each first token, answers, cached tokens, seconds until the last answer."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=output_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE,
        )
        begin = time.monotonic()
        names = []
        for prompt in prompts:
            names.append(f"r{self._n}")
            self._n += 1
            self._engine.add_request(names[-1], {"prompt_token_ids": prompt}, params)
        first, found = {}, {}
        while len(found) < len(names):
            outputs = self._engine.step()
            now = time.monotonic()
            for output in outputs:
                if output.outputs[0].token_ids:
                    first.setdefault(output.request_id, now - begin)
                if output.finished:
                    found[output.request_id] = output
            if tell_after_step:
                tell_after_step = False
                yield {"stepped": True}
        yield {
            "first_s": [first[name] for name in names],
            "tokens": [list(found[name].outputs[0].token_ids) for name in names],
            "cached": [found[name].num_cached_tokens or 0 for name in names],
            "wall_s": time.monotonic() - begin,
        }

    def arrive(self, prompts, at_s, output_tokens):
        """Each prompt at its time; a negative one is that of the step before which it comes. Seconds from there to its first token; by step what the connector's hooks took, in us of CPU and on the
        clock; what schedule() took."""
        from hook_times import HookTimes, public_methods
        from vllm import SamplingParams

        scheduler = self._scheduler
        if self._hooks is None:
            found = scheduler.connector
            self._hooks = HookTimes(found, public_methods(found), "build_connector_meta") if found is not None else None
            self._schedules = HookTimes(scheduler, ("schedule", "add_request", "update_from_output"), "schedule")
        for times in filter(None, (self._hooks, self._schedules)):
            times.end_step()
            times.clear()
        params = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True, detokenize=False)
        counts = getattr(getattr(scheduler.connector, "_scheduler", None), "counts", {})
        before = dict(counts)
        begin = time.monotonic()
        arrived, first, ended, cached, steps = {}, {}, 0, 0, 0
        while ended < len(prompts):
            now = time.monotonic() - begin
            while len(arrived) < len(prompts) and (at := at_s[len(arrived)]) <= now and at >= -steps:
                arrived[f"r{self._n}"] = now if at < 0 else at
                self._engine.add_request(f"r{self._n}", {"prompt_token_ids": prompts[len(arrived) - 1]}, params)
                self._n += 1
            if ended == len(arrived):
                time.sleep(max(0.0, at_s[len(arrived)] - now))
                continue
            outputs = self._engine.step()
            steps += 1
            now = time.monotonic() - begin
            for output in outputs:
                if output.outputs[0].token_ids:
                    first.setdefault(output.request_id, now - arrived[output.request_id])
                if output.finished:
                    ended += 1
                    cached += output.num_cached_tokens or 0
        yield {
            "first_s": [first[name] for name in arrived],
            "cached": cached,
            "cpu_us": [took / 1000 for took in self._hooks.cpu] if self._hooks else [],
            "wall_us": [took / 1000 for took in self._hooks.steps] if self._hooks else [],
            "calls": self._hooks.calls if self._hooks else {},
            "schedule_us": [took / 1000 for took in self._schedules.cpu],
            "counts": {name: value - before.get(name, 0) for name, value in counts.items() if value != before.get(name, 0)},
            "wall_s": now,
        }

    def forget(self):
        """Drain, stores included, and empty the engine's own prefix cache."""
        begin = time.monotonic()
        while True:
            while self._scheduler.has_requests():
                self._engine.step()
                if time.monotonic() - begin > DRAIN_S:
                    yield {"error": f"after {DRAIN_S} s the engine still has something to do"}
                    return
            if self._engine.reset_prefix_cache():
                break
            self._engine.step()
            if time.monotonic() - begin > DRAIN_S:
                yield {"error": f"after {DRAIN_S} s the engine's blocks are still held"}
                return
        yield {"wall_s": time.monotonic() - begin}

    def close(self):
        self._engine.engine_core.shutdown()


def main():
    options = json.loads(sys.argv[1])
    out = os.fdopen(options.pop("answers"), "w")

    def tell(answer):
        out.write(json.dumps(answer) + "\n")
        out.flush()

    driven = Driven(**options)
    tell({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        if name == "close":
            break
        for answer in getattr(driven, name)(**command):
            tell(answer)
    driven.close()


if __name__ == "__main__":
    main()
