#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One start of the engine and the cases that run in it: session.py SESSION --root FOLDER [--kvscoutd PROGRAM] [--only
CASE].

A process of its own, because vLLM leaves threads and state behind. run.py starts the sessions one after the other.
The last line is `N passed, N failed, N skipped`.
"""

import argparse
import faulthandler
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import models
from checks import Cases, Reference


class Context:
    def __init__(self, options, model):
        self.options = options
        self.kvscoutd = options.kvscoutd
        self.cases = Cases(options.only)
        self.short = options.short
        self.folder = models.make(model, os.path.join(options.root, "models"))
        self.reference = Reference(os.path.join(options.root, f"reference-{model}.json"))


def reference_session(model, names, **engine_options):
    def session(options):
        import reference
        from engine import Engine

        context = Context(options, model)
        engine = Engine(context.folder, **engine_options)
        try:
            context.cases.run("negative_control", reference.negative_control, engine)
            context.cases.run("distinct_answers", reference.distinct, engine, context.reference, names)
            context.reference.save()
        finally:
            engine.close()
        return context.cases

    return session


def connector_session(model, cases, server_keys=None, extra=None, run_server=True, **engine_options):
    """@cases(context, engine, server) runs the cases of a session with one server and one engine."""

    def session(options):
        from engine import Engine
        from server import Server

        context = Context(options, model)
        server = Server(options.kvscoutd, **(server_keys(options) if server_keys else {}))
        if run_server:
            server.start()
        try:
            engine = Engine(context.folder, connector={"endpoint": server.endpoint, **(extra or {})}, **engine_options)
            try:
                cases(context, engine, server)
            finally:
                engine.close()
        finally:
            server.stop()
        return context.cases

    return session


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
        ({"l1_bytes": "1Mi", "extent_bytes": "256Ki"}, (tier_manager.small_pool,)),
    ):
        server = Server(options.kvscoutd, **keys).start()
        try:
            for case in wanted:
                cases.run(case.__name__, case, server)
        finally:
            server.stop()
    return cases


def all_cases(context, engine, server):
    import scenarios

    for case in scenarios.CONNECTOR_CASES:
        context.cases.run(case.__name__, case, context, engine)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def few_cases(context, engine, server):
    import scenarios

    for case in (scenarios.shared_prefixes_at_once, scenarios.prompts_around_whole_chunks):
        context.cases.run(case.__name__, case, context, engine)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def kill_cases(context, engine, server):
    import kills

    requests, events = (120, 6) if context.short else (1000, 30)
    context.cases.run("servers_that_die", kills.servers_that_die, context, engine, server, requests, events)


def absent_cases(context, engine, server):
    import kills

    context.cases.run("absent_then_there", kills.absent_then_there, context, engine, server)


ALL = ("shared", "exact", "long", "crowd", "stream", "salted", "params", "reset")


def files_keys(options):
    return {"l2": f"fs://{options.root}/files?max_bytes=1Gi"}


def store_files(context, engine, server):
    import scenarios

    context.cases.run("stored_in_files", scenarios.stored_in_files, context, engine)


def load_files(context, engine, server):
    import scenarios

    context.cases.run("loaded_from_files", scenarios.loaded_from_files, context, engine)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def empty_files(options):
    shutil.rmtree(os.path.join(options.root, "files"), ignore_errors=True)
    os.makedirs(os.path.join(options.root, "files"))
    return files_keys(options)


def measure_hooks(context, engine, server):
    import scenarios

    context.cases.run("answered_at_the_first_ask", scenarios.answered_at_the_first_ask, engine)
    for requests in (64, 512):
        context.cases.run(f"hooks_cost_little_{requests}", scenarios.hooks_cost_little, engine, requests)
    context.cases.run("counters_agree", scenarios.counters_agree, context, engine, server)


def tensor_parallel(session):
    def bound(options):
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
        return session(options)

    return bound


def serve_session(options):
    import serve

    context = Context(options, "llama")
    served = serve.Served(context.folder, options.kvscoutd)
    try:
        context.cases.run("vllm_serve_starts", served.start)
        if context.cases.counts["failed"]:
            return context.cases
        for case in (serve.a_shared_prefix_over_http, serve.the_server_is_killed_and_comes_back):
            context.cases.run(case.__name__, case, context, served)
    finally:
        served.stop()
    return context.cases


# So few blocks that the engine's own cache forgets, and that decoding runs out of them.
FEW_BLOCKS = 80
SESSIONS = {
    "llama": connector_session("llama", all_cases, blocks=FEW_BLOCKS),
    "llama-kills": connector_session("llama", kill_cases, blocks=FEW_BLOCKS),
    "llama-sync": connector_session("llama", all_cases, extra={"load": "sync"}, blocks=FEW_BLOCKS),
    "llama-sync-kills": connector_session("llama", kill_cases, extra={"load": "sync"}, blocks=FEW_BLOCKS),
    "llama-absent": connector_session("llama", absent_cases, run_server=False),
    "llama-files-store": connector_session("llama", store_files, server_keys=empty_files),
    "llama-files-load": connector_session("llama", load_files, server_keys=files_keys),
    "llama-tp2": tensor_parallel(connector_session("llama", few_cases, tensor_parallel_size=2)),
    "llama-hooks": connector_session("llama", measure_hooks, batch_tokens=2048, seqs=64),
    "serve": serve_session,
    "tier-manager": tier_manager_session,
    "tier": tier_session("llama", "all_cases"),
    "window": connector_session("window", few_cases),
    "mla": connector_session("mla", few_cases, block_tokens=16),
    "llama-reference": reference_session("llama", ALL),
    "window-reference": reference_session("window", ("shared", "exact", "long")),
    "mla-reference": reference_session(
        "mla", ("shared", "exact"), block_tokens=16
    ),  # the only size of vLLM's MLA on a CPU
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
    cases = SESSIONS[options.session](options)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**cases.counts), flush=True)
    return 1 if cases.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
