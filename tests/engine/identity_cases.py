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
from unittest import mock

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


UNPACKED = {"worker_extension_cls": "unpacked.Extension", "weight_transfer_config": {"backend": "folder"}}
# An engine that takes new weights while it lives, and what it does for that: resets before, after, and with steps between.
_CALLS = {
    "reset": lambda engine, folder: need(engine.forget(connector=True), "the reset was not successful"),
    "step": lambda engine, folder: engine.run(questions()[:1], 1),
    "reload": lambda engine, folder: engine.load_weights(folder),
    "extension": lambda engine, folder: engine.on_workers("write_weights", folder),
    "start": lambda engine, folder: engine.on_workers("start_weight_update"),
    "update": lambda engine, folder: engine.on_workers("update_weights", {"folder": folder}),
    "finish": lambda engine, folder: engine.on_workers("finish_weight_update"),
    "out": lambda engine, folder: _neither_loads_nor_stores(engine),
}


def _neither_loads_nor_stores(engine):
    before = dict(engine.side.counts)
    for _ in range(2):
        engine.run(questions()[:1], 4)
        engine.forget()
    for name in ("stores", "loads"):
        need(engine.side.counts[name] == before[name], f"{engine.side.counts[name] - before[name]} {name} within an update")


def _updated_run(folder, other, endpoint, calls, options):
    """As _engine_run(), with the weights in @other from @calls on."""
    from engine import Engine

    engine = Engine(folder, connector={"endpoint": endpoint}, prefix_caching_hash_algo="sha256_cbor", **options)
    try:
        engine.run(questions()[:1], 1)
        for call in calls:
            _CALLS[call](engine, other)
        before = dict(engine.side.counts)
        answers = [answer.tokens for answer in engine.run(questions(), OUTPUT_TOKENS)]
        engine.drain()
        loaded, stored = (engine.side.counts[name] - before[name] for name in ("load_tokens", "store_chunks"))
        return dataclasses.asdict(Run(answers, loaded, stored, engine.side._namespace))
    finally:
        engine.close()


def new_weights(context, server):
    """Every way to bring them, in each order with a reset. What they compute is for engines that have them: not for one that starts with the
    old ones, which finds no more than the first question, for all of them began with the old weights and that one; and at once for one that
    starts with the new ones. vLLM's reload leaves other buffers and scalars in some modules on the CPU, so what it brings is the engine's own."""
    old, new = context.model("llama"), context.model("llama", models.OTHER_SEED)
    right, right_of_old = (run(folder, **UNPACKED) for folder in (new, old))
    need(_differ(right, right_of_old) > 0, "both weights give the same answers")
    names = set()
    for calls, finds in (
        (("reset", "start", "out", "update", "out", "finish"), False),
        (("reset", "extension"), True),
        (("start", "update", "finish", "reset"), False),  # behind a step, so it is one of the new weights' namespace
        (("reload",), False),
    ):
        found = in_a_fork(_updated_run, old, new, server.endpoint, calls, UNPACKED)
        need(found is not None, f"an engine did not survive {calls}; its reason is in the session's log")
        found = Run(**found)
        need((found.loaded > 0) == finds, f"{calls}: {found.loaded} tokens loaded, {found.stored} chunks stored")
        _compare(found, right)
        if calls != ("reload",):
            names.add(found.namespace)
    restarted, fresh = (run(folder, server.endpoint, **UNPACKED) for folder in (old, new))
    _compare(restarted, right_of_old)
    _compare(fresh, right)
    need(restarted.loaded <= len(questions()[0]), f"an engine with the old weights loaded {restarted.loaded} tokens")
    need(fresh.loaded > 0 and names == {fresh.namespace}, f"an engine with the new weights loaded {fresh.loaded} tokens in {names}")
    return f"{len(names)} namespace for {fresh.loaded} tokens of the new weights"


def new_weights_that_cannot_be_read(context, server):
    """vLLM's CPU build packs them. They are the engine's own."""
    old, new = context.model("llama"), context.model("llama", models.OTHER_SEED)
    found = in_a_fork(_updated_run, old, new, server.endpoint, ("reload",), {})
    need(found is not None and found["stored"] > 0, f"nothing was stored: {found}")
    for folder in (old, new):
        right, after = run(folder), run(folder, server.endpoint)
        _compare(after, right)
        most = len(questions()[0]) if folder == old else 0  # what it computed before it took the new ones
        need(after.loaded <= most and after.namespace != found["namespace"], f"{after.loaded} tokens were loaded")
    return f"{found['stored']} chunks for the engine alone"


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


def a_link_switched_while_it_loads(context, server):
    """The CPU build packs weights, so files stand for them."""
    one, other = context.model("llama"), context.model("llama", models.OTHER_SEED)
    link = f"{one}-link"
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(one, link)
    here = os.path.dirname(os.path.abspath(__file__))
    for_workers = {"KVSCOUT_TEST_SWITCH": f"{link}:{other}", "PYTHONPATH": os.pathsep.join((here, os.environ.get("PYTHONPATH", "")))}
    with mock.patch.dict(os.environ, for_workers):
        return apart(server, (link, {"worker_extension_cls": "unpacked.Extension"}), (other, {}))


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


MODELS = (
    ("llama", models.SEED), ("llama", models.OTHER_SEED), ("phi", models.SEED), ("llama4", models.SEED), ("images", models.SEED),
    ("prefix", models.SEED),
)
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


# ---- where vLLM itself would not reuse KV ---------------------------------------------------------------------------

TRUST = {"without_prefix_cache": "trust"}


def _text_then_image(folder, endpoint, extra, image, processor):
    """[answer for the @image, chunks stored of the text, chunks stored of the image, tokens loaded, client]"""
    import variants
    from engine import Engine

    off = {"enable_prefix_caching": False, "mm_processor_cache_gb": 0, "skip_tokenizer_init": False, "limit_mm_per_prompt": {"image": 1}}
    engine = Engine(folder, connector={"endpoint": endpoint, **extra} if endpoint else None, **off)
    try:
        asked, n = prompts.of("params")
        stored = []
        for prompt, more in ((prompts.tokens("text", 300), {}), (variants._with_image(asked[0]), {"image": variants._image(image), "processor": processor})):
            (answer,) = engine.run([prompt], n, **more)
            engine.drain()
            stored.append(engine.side.counts["store_chunks"] if endpoint else 0)
        loaded = engine.side.counts["load_tokens"] if endpoint else 0
        return [answer.tokens, stored[0], stored[1] - stored[0], loaded, endpoint is not None and engine.side._client is not None]
    finally:
        engine.close()


def images_that_are_named_by_a_counter(context, server):
    """Without a prefix cache and a cache of the renderer vLLM names the first image of each process alike, and with options of the
    request that name is in a digest. One engine's image must not be answered as another's."""
    folder = context.model("images")
    right = in_a_fork(_text_then_image, folder, None, {}, "two", None)
    for extra, processor in (({}, None), (TRUST, None), (TRUST, {"do_convert_rgb": True})):
        first = in_a_fork(_text_then_image, folder, server.endpoint, extra, "one", processor)
        found = in_a_fork(_text_then_image, folder, server.endpoint, extra, "two", processor)
        need(right and first and found, "an engine did not end well; its reason is in the session's log")
        need(first[0] != right[0], "two images give the same answer, so equal answers prove nothing")
        tally.tokens += len(found[0])
        tally.differ += sum(a != b for a, b in zip(found[0], right[0]))
        need(found[0] == right[0], f"with {extra} and {processor} the second image is answered as the first one")
        need(first[2] == found[2] == 0, f"with {extra} and {processor} KV of an image is stored")
        need((first[1] > 0, found[3] > 0, found[4]) == (bool(extra),) * 3 or processor, f"with {extra}: {first[1:]}, {found[1:]}")
    return "inert without the key; with it the text is shared, and the image is not"


def _embed_again(folder, endpoint, extra):
    from vllm.config import PoolerConfig

    from engine import Engine

    engine = Engine(
        folder, connector={"endpoint": endpoint, **extra} if endpoint else None, runner="pooling", pooler_config=PoolerConfig(pooling_type="MEAN"),
        enable_chunked_prefill=False, max_model_len=1024, batch_tokens=1024,
    )
    try:
        found = []
        for _ in range(2):
            found.append(engine.embed(prompts.tokens("text", 700)))
            if endpoint:
                engine.drain()
        return [*found, engine.side.counts["store_chunks"] + engine.side.counts["load_tokens"] if endpoint else 0]
    finally:
        engine.close()


def embeddings_that_need_all_tokens(context, server):
    """The mean of the hidden states. Of a prompt whose KV is loaded vLLM has those of the last tokens only, and its engine dies of it."""
    folder = context.model("llama")
    right = in_a_fork(_embed_again, folder, None, {})
    for extra in ({}, TRUST):
        found = in_a_fork(_embed_again, folder, server.endpoint, extra)
        need(right and found, f"an engine with {extra} did not end well; its reason is in the session's log")
        need(found == right, f"with {extra}: other embeddings, or {found[2]} chunks and tokens were copied")


def _start_prefix_lm(folder, endpoint, extra):
    from engine import Engine

    try:
        engine = Engine(folder, connector={"endpoint": endpoint, **extra}, max_model_len=2048, batch_tokens=2048)
    except Exception as error:
        return str(error)
    engine.close()
    return "it starts"


def a_prefix_lm_is_refused(context, server):
    """Whatever the key says."""
    for extra in ({}, TRUST):
        found = in_a_fork(_start_prefix_lm, context.model("prefix"), server.endpoint, extra)
        need("does not serve layers with non_causal" in found, f"with {extra}: {found}")


NOT_REUSED = (images_that_are_named_by_a_counter, embeddings_that_need_all_tokens, a_prefix_lm_is_refused)
APART = (
    longrope,
    temperature_tuning,
    generation_config,
    another_theta,
    other_weights,
    an_adapter_replaced_in_place,
    a_link_switched_while_it_loads,
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
CASES = (all_fields_are_known, each_byte_of_a_tensor_counts, *TOGETHER, *APART, *NOT_REUSED, new_weights, new_weights_that_cannot_be_read)


def prepare(root):
    """Make the models, and import vLLM."""
    for name, seed in MODELS:
        need(in_a_fork(models.make, name, root, seed) is not None, f"the model {name} could not be made")
    import engine  # noqa: F401 (its environment comes before vLLM)
    import vllm.engine.arg_utils  # noqa: F401
    import vllm.v1.engine.llm_engine  # noqa: F401
    import vllm.v1.worker.cpu_worker  # noqa: F401
