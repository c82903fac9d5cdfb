# SPDX-License-Identifier: Apache-2.0
"""Which engines share their KV. Each engine runs in a process of its own, one after the other on one server, so whatever
the second one loads is what the first one stored. Pairs that differ must be apart: the second engine loads nothing, and its
answers are those of an engine with its own options and no connector. Pairs that are the same must share.

This process imports vLLM once and runs no engine; those are forks of it.
"""

import dataclasses
import json
import os
import shutil
import time
import traceback

import models
import prompts
from checks import need, tally

OUTPUT_TOKENS = 24
ADAPTER = 1


@dataclasses.dataclass
class Run:
    answers: list  # tokens of each
    loaded: int
    stored: int
    namespace: str


def questions():
    return [prompts.tokens(f"identity/{n}", 700 + 10 * n) for n in range(4)]


def _engine_run(folder, endpoint, options, adapter):
    from engine import Engine

    connector = {"endpoint": endpoint} if endpoint else None
    engine = Engine(folder, connector=connector, prefix_caching_hash_algo="sha256_cbor", **options)
    try:
        lora = (ADAPTER, adapter) if adapter else None
        if adapter and endpoint:
            _let_it_be_identified(engine, lora)
        answers = [answer.tokens for answer in engine.run(questions(), OUTPUT_TOKENS, adapter=lora)]
        if not endpoint:
            return dataclasses.asdict(Run(answers, 0, 0, ""))
        engine.drain()
        counts = engine.side.counts
        return dataclasses.asdict(Run(answers, counts["load_tokens"], counts["store_chunks"], engine.side._namespace))
    finally:
        engine.close()


def _let_it_be_identified(engine, lora):
    """An adapter's first request brings that about, and is cold."""
    end = time.monotonic() + 60
    while not engine.side._adapters._known:
        need(time.monotonic() < end, "the adapter is not identified")
        engine.run([prompts.tokens("tiny", 20)], 1, adapter=lora)


def in_a_fork(call, *args):
    """What call(*args) returns, as JSON has it; None: it failed, and the session's log says why. torch must not compute in the
    process that forks, because its threads would be missing in the forks."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = json.dumps(call(*args))
            with os.fdopen(write, "w") as file:
                file.write(found)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def run(folder, endpoint=None, adapter=None, **options):
    """An engine that answers questions() and ends."""
    found = in_a_fork(_engine_run, folder, endpoint, options, adapter)
    need(found is not None, f"an engine with {options} did not end well; its reason is in the session's log")
    tally.requests += len(questions())
    return Run(**found)


def _compare(found, right):
    for one, other in zip(found.answers, right.answers):
        tally.tokens += len(other)
        tally.differ += sum(a != b for a, b in zip(one, other))
    need(found.answers == right.answers, "an answer is not that of the engine without a connector")


def _differ(one, other):
    return sum(a != b for x, y in zip(one.answers, other.answers) for a, b in zip(x, y))


def apart(server, first, second):
    """@first and @second: (folder, options). What the first one stores the second one must not load."""
    note, stored, found = _apart(server, first, second)
    need(found.namespace != stored.namespace, "both engines have one namespace")
    return note


def _apart(server, first, second, between=lambda: None):
    stored = run(first[0], server.endpoint, **first[1])
    need(stored.stored + stored.loaded > 0, "the pool has nothing of the first engine, so this shows nothing")
    between()
    right = run(second[0], **second[1])
    differ = _differ(stored, right)
    need(differ > 0, "both engines give the same answers, so equal answers prove nothing")
    found = run(second[0], server.endpoint, **second[1])
    need(found.loaded == 0, f"{found.loaded} tokens were loaded")
    _compare(found, right)
    return f"{differ} tokens would differ between the two", stored, found


def together(server, first, second):
    stored = run(first[0], server.endpoint, **first[1])
    found = run(second[0], server.endpoint, **second[1])
    need(found.loaded > 0, f"nothing was loaded; the namespaces are {stored.namespace} and {found.namespace}")
    tally.hits += found.loaded
    _compare(found, stored)
    return f"{found.loaded} tokens loaded"


def longrope(context, server):
    folder = context.model("phi")
    return apart(server, (folder, {"max_model_len": 8192}), (folder, {"max_model_len": 2048}))


def temperature_tuning(context, server):
    """Llama 4 tunes the temperature of its attention if max_model_len is above 32,768."""
    folder = context.model("llama4")
    more = {"kv_cache_memory_bytes": 256 << 20}
    return apart(server, (folder, {"max_model_len": 40960, **more}), (folder, {"max_model_len": 4096, **more}))


def generation_config(context, server):
    """... or if its generation config says so."""
    folder = context.model("llama4")
    tuned = {"override_generation_config": {"attn_temperature_tuning": True}}
    return apart(server, (folder, tuned), (folder, {}))


def another_theta(context, server):
    folder = context.model("llama")
    theta = {"hf_overrides": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}}
    return apart(server, (folder, {}), (folder, theta))


def other_weights(context, server):
    return apart(server, (context.model("llama"), {}), (context.model("llama", models.OTHER_SEED), {}))


def a_restart(context, server):
    folder = context.model("llama")
    return together(server, (folder, {}), (folder, {}))


def a_copy_under_another_path(context, server):
    folder = context.model("llama")
    copy = f"{folder}-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return together(server, (folder, {}), (copy, {}))


def a_restart_with_two_ranks(context, server):
    """Workers in processes of their own, which make one namespace of their parts."""
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    engine = (context.model("llama"), {"tensor_parallel_size": 2})
    try:
        return together(server, engine, engine)
    finally:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"


def plain_rope_with_another_max_model_len(context, server):
    folder = context.model("llama")
    return together(server, (folder, {}), (folder, {"max_model_len": 2048}))


def guesses_from_the_prompt_alone(context, server):
    """They add no KV and change none."""
    folder = context.model("llama")
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    return together(server, (folder, {}), (folder, {"speculative_config": ngram}))


LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def _put_adapter(root, number):
    folder, there = models.make(*MODELS[0][:1], root), os.path.join(root, "adapter-in-place")
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(models.make_adapter(folder, root, number), there)
    return there


def an_adapter_replaced_in_place(context, server):
    folder = context.model("llama")
    there = in_a_fork(_put_adapter, context.models_folder, 1)
    engine = (folder, {"adapter": there, **LORA})
    note, stored, found = _apart(server, engine, engine, between=lambda: in_a_fork(_put_adapter, context.models_folder, 2))
    need(found.namespace == stored.namespace, "the adapter is part of the namespace")
    return note


def an_adapter_after_a_restart(context, server):
    folder = context.model("llama")
    engine = (folder, {"adapter": in_a_fork(_put_adapter, context.models_folder, 1), **LORA})
    return together(server, engine, engine)


def all_fields_are_known(context, server):
    from vllm.config import ModelConfig

    from kvscout.vllm import identity

    names = {field.name for field in dataclasses.fields(ModelConfig)}
    unknown = names - set(identity.HARMLESS) - identity.COUNTED
    need(not unknown, f"identity.py does not know {sorted(unknown)} of ModelConfig")
    return f"{len(names)} fields of ModelConfig"


MODELS = (("llama", models.SEED), ("llama", models.OTHER_SEED), ("phi", models.SEED), ("llama4", models.SEED))
def a_length_that_follows_free_memory(context, server):
    """`--max-model-len auto`: rope was chosen before the length was fitted."""
    folder = context.model("phi")
    small, large = ({"max_model_len": -1, "kv_cache_memory_bytes": size << 20} for size in (8, 12))
    return together(server, (folder, small), (folder, large))


def _tensors():
    import torch

    from kvscout.vllm.loaded import of_tensor

    one = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
    swapped, changed = one.clone(), one.clone()
    swapped[[1, 2]] = one[[2, 1]]
    changed[77, 5] += 1e-6
    square = one[:64].clone()
    others = [swapped, changed, one.reshape(64, 4096), one.to(torch.bfloat16), one[1:], one[:, 1:], square, square.t()]
    same = of_tensor(one) == of_tensor(one.clone()) and of_tensor(one[:, ::2]) == of_tensor(one[:, ::2].clone())
    odd = [torch.tensor(1.0), torch.empty(0), torch.ones(3, dtype=torch.bool)[1:], torch.zeros(2, 1).expand(2, 7)]
    found = {json.dumps(of_tensor(tensor)) for tensor in (one, *others, *odd)}
    return [same, len(found), 1 + len(others) + len(odd)]


def each_byte_of_a_tensor_counts(context, server):
    same, found, wanted = in_a_fork(_tensors) or (False, 0, 1)
    need(same and found == wanted, f"{found} of {wanted} tensors have an identity of their own")
    return f"{wanted} tensors"


APART = (
    longrope,
    temperature_tuning,
    generation_config,
    another_theta,
    other_weights,
    an_adapter_replaced_in_place,
)
TOGETHER = (
    a_restart,
    a_copy_under_another_path,
    plain_rope_with_another_max_model_len,
    guesses_from_the_prompt_alone,
    a_length_that_follows_free_memory,
    an_adapter_after_a_restart,
    a_restart_with_two_ranks,
)
CASES = (all_fields_are_known, each_byte_of_a_tensor_counts, *TOGETHER, *APART)


def prepare(root):
    """Make the models, and import vLLM."""
    for name, seed in MODELS:
        need(in_a_fork(models.make, name, root, seed) is not None, f"the model {name} could not be made")
    import engine  # noqa: F401 (its environment comes before vLLM)
    import vllm.engine.arg_utils  # noqa: F401
    import vllm.v1.engine.llm_engine  # noqa: F401
    import vllm.v1.worker.cpu_worker  # noqa: F401
