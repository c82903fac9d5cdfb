#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One start of the engine and the cases that run in it.

usage: session.py SESSION --root FOLDER [--kvscoutd PROGRAM] [--only CASE]

A process of its own, because vLLM leaves threads and state behind. run.py starts the sessions one after the other.
The last line is `N passed, N failed, N skipped`.
"""

import argparse
import contextlib
import faulthandler
import importlib
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (HERE, os.path.join(HERE, "verify"))
sys.path[:0] = FOLDERS

import models
import stores
from checks import Cases, Reference, Skip


class Context:
    def __init__(self, options, model):
        self.options = options
        self.kvscoutd = options.kvscoutd
        self.cases = Cases(options.only)
        self.short = options.short
        self._root = options.root
        self._models = os.path.join(options.root, "models")
        self._model = model
        self._references = {}
        self.folder = models.make(model, self._models)
        self.reference = self._reference(model)

    def _reference(self, name):
        return Reference(os.path.join(self._root, f"reference-{name}.json"))

    @property
    def models_folder(self):
        return self._models

    def model(self, name, seed=models.SEED):
        return models.make(name, self._models, seed)

    @property
    def other_folder(self):
        """The same model with other weights."""
        return models.make(self._model, self._models, models.OTHER_SEED)

    @property
    def other_reference(self):
        return self._reference(f"{self._model}-{models.OTHER_SEED}")

    def adapter(self, number):
        """What Engine.run() takes."""
        return None if number is None else (number, models.make_adapter(self.folder, self._models, number))

    def named_reference(self, name):
        """Of the model with an adapter or an image."""
        return self._references.setdefault(name, self._reference(f"{self._model}-with-{name}"))


def reference_session(model, names, other_weights=(), **engine_options):
    """@names and @other_weights: workloads that are answered with the model's weights, and with its other ones."""

    def session(options):
        import reference
        from engine import Engine

        context = Context(options, model)
        engine = Engine(context.folder, **engine_options)
        try:
            context.cases.run("negative_control", reference.negative_control, engine)
            context.cases.run("distinct_answers", reference.distinct, engine, context.reference, names)
            context.reference.save()
            if other_weights:
                context.cases.run("other_weights", reference.other_weights, context, engine, other_weights)
        finally:
            engine.close()
        return context.cases

    return session


def connector_session(model, cases, l2=None, extra=None, run_server=True, **engine_options):
    """@cases(context, engine, server) runs the cases of a session with one server and one engine. @l2: of stores.py."""

    def session(options):
        context = Context(options, model)
        with contextlib.ExitStack() as stack:
            try:
                keys = stack.enter_context(l2(options)) if l2 else {}
            except Skip as reason:
                context.cases.skip("l2", str(reason))
                return context.cases
            server = _server(stack, options, keys, run_server)
            engine = _engine(stack, context, server, extra, engine_options)
            cases(context, engine, server)
        return context.cases

    return session


def _server(stack, options, keys, run):
    from server import Server

    server = Server(options.kvscoutd, **keys)
    if run:
        server.start()
    stack.callback(server.stop)
    return server


def _engine(stack, context, server, extra, engine_options):
    from engine import Engine

    engine = Engine(context.folder, connector={"endpoint": server.endpoint, **(extra or {})}, **engine_options)
    stack.callback(engine.close)
    return engine


def two_engines(extra, cases):
    """Two engines on one server. They share the machine's CPUs, so each takes one of them."""

    def session(options):
        from peer import Peer

        context = Context(options, "llama")
        with contextlib.ExitStack() as stack:
            server = _server(stack, options, {}, True)
            peer = Peer(context.folder, {"endpoint": server.endpoint, **extra}, omp_bind="1")
            stack.callback(peer.close)
            engine = _engine(stack, context, server, extra, {})
            peer.wait_ready()
            cases(context, engine, peer, server)
        return context.cases

    return session


def events_session(options):
    """Two engines that announce what they can have, and Dynamo's own indexer that reads it."""
    import events_cases
    import indexer as dynamo
    from engine import BLOCK_TOKENS
    from peer import Peer

    context = Context(options, "llama")
    with contextlib.ExitStack() as stack:
        try:
            indexer = dynamo.Indexer(options.root, BLOCK_TOKENS)
        except Skip as reason:
            context.cases.skip("dynamo", str(reason))
            return context.cases
        stack.callback(indexer.close)
        server = _server(stack, options, events_cases.SERVER, True)
        own, theirs = events_cases.endpoints(), events_cases.endpoints()
        extra = {"weights_version": 1}
        peer = Peer(context.folder, {"endpoint": server.endpoint, **extra}, omp_bind="1", events=theirs)
        stack.callback(peer.close)
        engine = _engine(stack, context, server, extra, {"events": own})
        peer.wait_ready()
        wire = dynamo.Wire(own["endpoint"])
        stack.callback(wire.close)

        def register(indexer):
            indexer.register(1, wire.endpoint, own["replay_endpoint"])
            indexer.register(2, theirs["endpoint"], theirs["replay_endpoint"])

        register(indexer)
        pair = events_cases.Pair(engine, peer, indexer, 100 if context.short else 250)
        for case in (events_cases.evictions, events_cases.resets, events_cases.restarts):
            context.cases.run(case.__name__, case, pair, server)
        context.cases.run("gaps", events_cases.gaps, pair, server, wire)
        second = dynamo.Indexer(options.root, BLOCK_TOKENS)
        stack.callback(second.close)
        context.cases.run("late", events_cases.late, pair, server, second, register)
    return context.cases


def tier_session(model, cases, **engine_options):
    """As connector_session(), with vLLM's own offloading and the tier behind it instead of the connector."""

    def session(options):
        import tier_cases
        from engine import Engine
        from server import Server

        context = Context(options, model)
        server = Server(options.kvscoutd).start()
        try:
            engine = Engine(
                context.folder, kv_transfer_config=tier_cases.transfer_config(server.endpoint), **engine_options
            )
            try:
                getattr(tier_cases, cases)(context, engine, server)
            finally:
                engine.close()
        finally:
            server.stop()
        return context.cases

    return session


def tier_manager_session(options):
    """vLLM's tiering manager with the tier; no engine."""
    import tier_manager
    from server import Server

    cases = Cases(options.only)
    for keys, wanted in (
        ({}, tier_manager.CASES),
        ({"l1_bytes": "1Mi", "extent_bytes": "256Ki"}, (tier_manager.small_pool, tier_manager.events_of_two_engines)),
    ):
        server = Server(options.kvscoutd, **keys).start()
        try:
            for case in wanted:
                cases.run(case.__name__, case, server)
        finally:
            server.stop()
    return cases


def identity_session(options):
    """Engines in forks of this process, one after the other."""
    import identity_cases
    from server import Server

    identity_cases.prepare(os.path.join(options.root, "models"))
    context = Context(options, "llama")
    for case in identity_cases.CASES:
        server = Server(options.kvscoutd).start()  # of its own: another case's engines may be the same as this one's
        try:
            context.cases.run(case.__name__, case, context, server)
        finally:
            server.stop()
    return context.cases


def start_session(options):
    """What vLLM's configuration is refused for; no engine."""
    import start_cases

    cases = Cases(options.only)
    model = models.make("llama", options.root)
    for case in start_cases.CASES:
        cases.run(case.__name__, case, model)
    return cases


def group_manager_session(options):
    """vLLM's KV cache managers and its KV memory with the connector; no engine."""
    import group_manager
    import layout_cases
    from server import Server

    cases = Cases(options.only)
    server = Server(options.kvscoutd).start()
    try:
        for case in (*layout_cases.CASES, *group_manager.CASES):
            cases.run(case.__name__, case, server)
    finally:
        server.stop()
    return cases


def cases_of(module, *names):
    """Cases of a file in FOLDERS, of the context and the engine."""

    def cases(context, engine, server=None):
        found = importlib.import_module(module)
        for name in names:
            context.cases.run(name, getattr(found, name), context, engine)

    return cases


def counted(module, *names):
    """The same, and then the server's counters are looked at."""

    def cases(context, engine, server):
        import scenarios

        cases_of(module, *names)(context, engine)
        context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)

    return cases


def all_cases(context, engine, server):
    import scenarios

    for case in scenarios.CONNECTOR_CASES:
        context.cases.run(case.__name__, case, context, engine)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def group_cases(context, engine, server):
    import group_cases as of_groups

    context.cases.run("the_hybrid_manager_is_on", of_groups.the_hybrid_manager_is_on, engine)
    all_cases(context, engine, server)


def evicted_session(options):
    """A model with windows whose KV is in files, of which one is removed."""
    folder = stores.folder(options, "groups", empty=True)

    @contextlib.contextmanager
    def l2(options):
        yield {"l2": f"fs://{folder}?max_bytes=1Gi"}

    def cases(context, engine, server):
        import group_cases as of_groups

        case = of_groups.a_window_object_that_is_gone_gives_a_shorter_hit
        context.cases.run(case.__name__, case, context, engine, server, folder)

    return connector_session("gemma", cases, l2=l2)(options)


def kill_cases(context, engine, server):
    import kills

    requests, kill, others = (240, 4, 1) if context.short else (1000, 24, 6)
    context.cases.run("servers_that_die", kills.servers_that_die, context, engine, server, requests, kill, others)


def absent_cases(context, engine, server):
    import kills

    context.cases.run("absent_then_there", kills.absent_then_there, context, engine, server)


def store_l2(context, engine, server):
    import scenarios

    context.cases.run("stored_in_l2", scenarios.stored_in_l2, context, engine, server)


def two_without_version(context, engine, peer, server):
    import two

    context.cases.run("both_at_once", two.both_at_once, context, engine, peer)
    context.cases.run("new_weights", two.new_weights_without_a_version, context, engine, peer)
    context.cases.run("nothing_is_left", two.nothing_is_left, engine, server)


def two_with_version(context, engine, peer, server):
    import two

    context.cases.run("new_weights", two.new_weights_with_a_version, context, engine, peer)
    context.cases.run("nothing_is_left", two.nothing_is_left, engine, server)


def speculative_session(speculation, **engine_options):
    """An engine that guesses tokens and checks the guesses in one step. @speculation(context): vLLM's speculative_config. The answers are
    those of the engine that does not guess."""

    def session(options):
        context = Context(options, "llama")
        with contextlib.ExitStack() as stack:
            server = _server(stack, options, {}, True)
            engine = _engine(stack, context, server, None, {"speculative_config": speculation(context), **engine_options})
            counted("scenarios", "shared_prefixes_at_once", "chunked_prefill")(context, engine, server)
        return context.cases

    return session


def ngram(context):
    return {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def draft(context):
    """The model itself, so all guesses are right."""
    return {"method": "draft_model", "model": context.folder, "num_speculative_tokens": 3}


def eagle(context):
    return {"method": "eagle", "model": models.make_eagle(context.folder, context.models_folder), "num_speculative_tokens": 2}


def engine_session(model, cases, **engine_options):
    """@cases of an engine without the connector."""

    def session(options):
        from engine import Engine

        context = Context(options, model)
        engine = Engine(context.folder, **engine_options)
        try:
            cases(context, engine)
        finally:
            engine.close()
        return context.cases

    return session


def beside_session(options):
    """Under MultiConnector beside vLLM's own ExampleConnector, which keeps KV in files. It stores a prompt in the first
    step that computes it, so each prompt must fit into one step."""
    import scenarios
    import variants

    folder = stores.folder(options, "example", empty=True)
    other = {
        "kv_connector": "FailingConnector",
        "kv_connector_module_path": "failing",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": folder},
    }

    def cases(context, engine, server):
        context.cases.run(
            "beside_another_connector", variants.another_connector_loads_what_ours_may_not, context, engine
        )
        context.cases.run("a_failed_load_is_not_stored", variants.another_ones_failed_load, context, engine, folder)
        context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)

    return connector_session("llama", cases, beside=[other], batch_tokens=2048)(options)


def alarms(least, then=lambda context, engine, server: None):
    """At @least so many chunks of right KV are compared."""

    def cases(context, engine, server):
        import verify_cases

        context.cases.run("right_kv_is_no_alarm", verify_cases.right_kv_is_no_alarm, engine, 300 if context.short else least)
        then(context, engine, server)

    return cases


def measure_hooks(context, engine, server):
    import scenarios

    context.cases.run("answered_at_the_first_ask", scenarios.answered_at_the_first_ask, engine)
    for requests in (64, 512):
        context.cases.run(f"hooks_cost_little_{requests}", scenarios.hooks_cost_little, engine, requests)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def on_two_cpus(session):
    """For engines with two workers."""

    def bound(options):
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
        return session(options)

    return bound


def with_idle_cpus(session):
    """libgomp's threads spin between two parallel regions, on every CPU of a small machine. Then the client's and the
    server's threads get one when the kernel takes it away from a spinning thread, milliseconds late. Where a GPU
    computes there are none."""

    def passive(options):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        return session(options)

    return passive


def serve_session(options):
    import serve
    import traces

    context = Context(options, "llama")
    receiver = traces.Receiver()
    served = serve.Served(context.folder, options.kvscoutd, receiver.endpoint)
    try:
        context.cases.run("vllm_serve_starts", served.start)
        if context.cases.counts["failed"]:
            return context.cases
        for case in (
            serve.a_shared_prefix_over_http,
            serve.metrics_tell_of_the_server_and_of_times,
            serve.an_idle_engine_takes_back_what_a_dead_server_had,
            serve.the_server_is_killed_and_comes_back,
        ):
            context.cases.run(case.__name__, case, context, served)
        traced = serve.a_trace_goes_from_the_request_to_the_load
        context.cases.run(traced.__name__, traced, context, served, receiver)
        context.cases.run("data_parallel_ranks_share", serve.data_parallel_ranks_share, context, served)
        context.cases.run("idle_data_parallel_ranks", serve.an_idle_engine_takes_back_what_a_dead_server_had, context, served, 2)
    finally:
        served.stop()
        receiver.stop()
    return context.cases


def device_cases(context, engine, server):
    import device_cases as of_device

    all_cases(context, engine, server)
    case = of_device.every_byte_went_through_the_device
    context.cases.run(case.__name__, case, context, engine)


def device_kill_cases(context, engine, server):
    import device_cases as of_device

    kill_cases(context, engine, server)
    case = of_device.every_byte_went_through_the_device
    context.cases.run(case.__name__, case, context, engine)


def on_the_device(session):
    """Loaded when it runs, as all that needs vLLM."""

    def preloaded(options):
        import device_cases as of_device

        return of_device.on_the_device(session)(options)

    return preloaded


ALL = ("shared", "exact", "long", "crowd", "stream", "salted", "params", "partial", "beside", "reset")
# So few blocks that the engine's own cache forgets, and that decoding runs out of them.
FEW_BLOCKS = 80
GROUP_BLOCKS = 3 * FEW_BLOCKS
# vLLM leaves its own prefix cache off for such models unless it is asked for.
# One request at a time: an engine without a connector, too, gives another answer to a request that runs beside others.
RECURRENT = {"enable_prefix_caching": True, "seqs": 1}
LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
# vLLM's reference backend computes MLA in float32, in blocks of 16 tokens; for it vLLM switches its own prefix cache
# off, and with it the hashes of blocks.
MLA = {"block_tokens": 16, "attention_backend": "CPU_MLA", "prefix_caching": True, "seqs": 1}
VERIFY = {"verify_sample": 1}
FEW = counted("scenarios", "shared_prefixes_at_once", "prompts_around_whole_chunks")
# Without a connector this build of vLLM repeats these answers of recurrent layers; not so after an abort, or with chunked prefill.
RECURRENT_CASES = counted("scenarios", "shared_prefixes_at_once", "prompts_around_whole_chunks", "reset_drops_everything")
UNITS = counted("scenarios", "shared_prefixes_at_once", "chunked_prefill", "random_aborts")
BYTES = counted("byte_cases", "loaded_pages_hold_the_stored_bytes")
LOADED = counted("scenarios", "loaded_from_l2", "hints_change_no_token")
WRONG_KV = (
    "swapped_slots", "forged_commits", "a_flipped_bit", "a_flipped_link", "another_rope", "weights_without_a_flush", "old_weights",
    "three_mismatches_make_it_inert",
)
DISTRIBUTIONS = cases_of("distribution_cases", "distributions")
# A prefix LM, with what refuses it switched off (unguarded.py), and vLLM's own prefix cache, which it has switched off, on.
UNGUARDED = {**VERIFY, "without_prefix_cache": "trust", "module": "unguarded"}
WHOLE_PROMPTS = {"prefix_caching": True, "max_model_len": 2048, "batch_tokens": 2048}
IMAGES = {"skip_tokenizer_init": False, "limit_mm_per_prompt": {"image": 1}}
SESSIONS = {
    "llama": connector_session("llama", all_cases, blocks=FEW_BLOCKS),
    "llama-kills": connector_session("llama", kill_cases, blocks=FEW_BLOCKS),
    "llama-sync": connector_session("llama", all_cases, extra={"load": "sync"}, blocks=FEW_BLOCKS),
    "llama-sync-kills": connector_session("llama", kill_cases, extra={"load": "sync"}, blocks=FEW_BLOCKS),
    "llama-absent": connector_session("llama", absent_cases, run_server=False),
    "llama-files-store": connector_session("llama", store_l2, l2=stores.files(empty=True)),
    "llama-files-load": connector_session("llama", LOADED, l2=stores.files(empty=False)),
    "llama-redis-store": connector_session("llama", store_l2, l2=stores.redis(empty=True)),
    "llama-redis-load": connector_session("llama", LOADED, l2=stores.redis(empty=False)),
    "llama-two": two_engines({}, two_without_version),
    "llama-two-versions": two_engines({"weights_version": 1}, two_with_version),
    "llama-ngram": speculative_session(ngram),
    "llama-draft": speculative_session(draft),
    "llama-eagle": speculative_session(eagle),
    "llama-eagle-tp2": on_two_cpus(speculative_session(eagle, tensor_parallel_size=2)),
    "llama-reset": connector_session("llama", counted("reset_cases", "new_weights_while_requests_run")),
    "llama-tp2": on_two_cpus(connector_session("llama", FEW, tensor_parallel_size=2)),
    "llama-pp2": on_two_cpus(connector_session("llama", FEW, pipeline_parallel_size=2)),
    "llama-multi": beside_session,
    "llama-partial": connector_session("llama", counted("scenarios", "admit_of_less_than_the_hit")),
    "llama-device": on_the_device(connector_session("llama", device_cases, blocks=FEW_BLOCKS)),
    "llama-device-faults": on_the_device(connector_session("llama", cases_of("device_cases", "calls_that_fail", "a_device_that_fails"), blocks=FEW_BLOCKS)),
    "llama-device-kills": on_the_device(connector_session("llama", device_kill_cases, blocks=FEW_BLOCKS)),
    "llama-hooks": with_idle_cpus(connector_session("llama", measure_hooks, batch_tokens=2048, seqs=64)),
    "lora": connector_session("llama", counted("variants", "adapters_keep_their_kv_apart"), **LORA),
    "images": connector_session("images", counted("variants", "images_keep_their_kv_apart", "images_with_a_users_name"), **IMAGES),
    "identity": identity_session,
    "serve": serve_session,
    "events-dynamo": events_session,
    "start": start_session,
    "groups-manager": group_manager_session,
    "tier-manager": tier_manager_session,
    "tier": tier_session("llama", "all_cases"),
    "tier-gemma": tier_session("gemma", "hybrid_cases"),
    "tier-tp2": on_two_cpus(tier_session("llama", "few_cases", tensor_parallel_size=2)),
    "llama-verify": connector_session("llama", alarms(3000, cases_of("verify_cases", *WRONG_KV)), extra=VERIFY, blocks=FEW_BLOCKS, dtype="bfloat16"),
    "llama-verify-many": connector_session("llama", alarms(25000), extra={**VERIFY, "chunk_tokens": 32}, blocks=160, block_tokens=32, dtype="bfloat16"),
    "llama-verify-tp2": on_two_cpus(connector_session("llama", alarms(300), extra=VERIFY, dtype="bfloat16", tensor_parallel_size=2)),
    "gemma-verify": connector_session("gemma", alarms(300), extra=VERIFY, dtype="bfloat16"),
    "lora-verify": connector_session("llama", cases_of("verify_cases", "an_adapter_replaced_in_place"), extra=VERIFY, dtype="bfloat16", **LORA),
    "images-verify": connector_session("images", cases_of("verify_cases", "images_named_by_a_counter"), extra=VERIFY, dtype="bfloat16", **IMAGES),
    "prefix-verify": connector_session("prefix", cases_of("verify_cases", "a_prefix_lm"), extra=UNGUARDED, dtype="bfloat16", **WHOLE_PROMPTS),
    "verify-price": with_idle_cpus(connector_session("llama", cases_of("price_cases", "what_comparisons_cost"), extra=VERIFY, dtype="bfloat16")),
    **{f"kv-{dtype}": engine_session("llama", DISTRIBUTIONS, dtype=dtype) for dtype in ("bfloat16", "float16", "float32")},
    **{f"kv-{dtype}-lora": engine_session("llama", DISTRIBUTIONS, dtype=dtype, **LORA) for dtype in ("bfloat16", "float16", "float32")},
    "window": connector_session("window", FEW),
    "mla": connector_session("mla", BYTES, **MLA),
    "mla-tp2": on_two_cpus(connector_session("mla", BYTES, tensor_parallel_size=2, **MLA)),
    "llama-reference": reference_session("llama", ALL, other_weights=("reset",)),
    "lora-reference": engine_session("llama", cases_of("variants", "adapter_answers"), **LORA),
    "images-reference": engine_session("images", cases_of("variants", "image_answers"), **IMAGES),
    "gemma": connector_session("gemma", group_cases, blocks=GROUP_BLOCKS),
    "recurrent": connector_session("recurrent", RECURRENT_CASES, **RECURRENT),
    "recurrent-reference": reference_session("recurrent", ("shared", "exact", "reset"), **RECURRENT),
    "gemma-evicted": evicted_session,
    # A window that is no longer than a chunk is stored by blocks.
    "gemma-blocks": connector_session("gemma", UNITS, extra={"chunk_tokens": 256}, blocks=GROUP_BLOCKS),
    "gemma-kills": connector_session("gemma", kill_cases, blocks=GROUP_BLOCKS),
    "gemma-reference": reference_session("gemma", ALL),
    "window-reference": reference_session("window", ("shared", "exact", "long")),
}


def main():
    faulthandler.register(signal.SIGUSR1)  # run.py asks a session that hangs where it is
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session", choices=sorted(SESSIONS))
    parser.add_argument("--root", required=True)
    parser.add_argument("--kvscoutd")
    parser.add_argument("--only")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])  # for the workers
    cases = SESSIONS[options.session](options)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**cases.counts), flush=True)
    return 1 if cases.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
