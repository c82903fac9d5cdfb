# SPDX-License-Identifier: Apache-2.0
"""Cases with vLLM's own offloading and the tier behind it. Answers are compared, token for token, with those of the
engine without a connector. vLLM's region is so small that it forgets a prompt before it is asked again."""

import os
import time

import prompts
import random_hints
from checks import need

REGION_BYTES = 24 << 20


def transfer_config(endpoint, more=None):
    """For the engine: the offloading connector with the test's spec and one tier."""
    from vllm.config import KVTransferConfig

    here = os.path.dirname(os.path.abspath(__file__))
    tier = {"type": "KVScoutTier", "module_path": "kvscout.vllm_tier", "namespace": "tests", "endpoint": endpoint, "verify_sample": 0}
    tier.update(more or {})
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])  # for the workers
    return KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both",
        kv_connector_extra_config={
            "spec_name": "CpuTieringSpec", "spec_module_path": "tier_spec", "cpu_bytes_to_use": REGION_BYTES,
            "offload_prompt_only": False,
            "secondary_tiers": [tier],
        },
    )


def tier_of(engine):
    (tier,) = engine.scheduler.connector.connector_scheduler.manager.secondary_tiers
    return tier


def _settle(engine, seconds=60):
    """Steps until vLLM has nothing left to copy."""
    manager = engine.scheduler.connector.connector_scheduler.manager
    end = time.monotonic() + seconds
    while engine.scheduler.has_requests() or manager.has_pending_work():
        engine.step()
        need(time.monotonic() < end, f"after {seconds} s copies are still under way")


def _forget(engine):
    """Empty the engine's own cache and vLLM's region; the tier keeps what it has."""
    _settle(engine)
    manager = engine.scheduler.connector.connector_scheduler.manager
    need(engine._engine.reset_prefix_cache(), "the engine's own cache could not be emptied, though nothing runs")
    manager.primary_tier.reset_cache()


def _run(context, engine, name):
    asked, n = prompts.of(name)
    answers = engine.run(asked, n)
    compared = context.reference.compare(asked, n, answers)
    return len(asked), compared, sum(answer.cached for answer in answers)


def again_from_the_tier(context, engine, name, least):
    """Cold, then again with nothing in the engine and in vLLM's region, so that all hits come from the tier."""
    counts = tier_of(engine)._counts
    n, compared, _ = _run(context, engine, name)
    _forget(engine)
    loaded, failed = counts["loaded_chunks"], counts["failed_chunks"]
    _, more, cached = _run(context, engine, name)
    _settle(engine)
    loaded, failed = counts["loaded_chunks"] - loaded, counts["failed_chunks"] - failed
    need(cached >= least, f"{cached} prompt tokens were not computed, at least {least} are in whole blocks")
    need(loaded > 0 and failed == 0, f"{loaded} chunks were loaded from the tier, {failed} failed")
    _forget(engine)
    note = f"{2 * n} requests, {compared + more} tokens compared, 0 differ"
    return f"{note}; {cached} tokens not computed, {loaded} chunks from the tier"


def shared_prefixes(context, engine):
    return again_from_the_tier(context, engine, "shared", 3 * 768)


def whole_blocks(context, engine):
    return again_from_the_tier(context, engine, "exact", 1024)


def chunked_prefill(context, engine):
    return again_from_the_tier(context, engine, "long", 4000)


def killed_between_rounds(context, engine, server):
    """kill -9 with everything in the pool, a round without a server, a restart, and hits again."""
    counts = tier_of(engine)._counts
    _run(context, engine, "shared")
    _forget(engine)
    server.kill()
    n, compared, cached = _run(context, engine, "shared")
    need(cached < 3 * 768 * 4, "a dead server had hits")
    _forget(engine)
    server.start()
    end, before = time.monotonic() + 60, counts["stored_chunks"]
    rounds = 1
    while counts["stored_chunks"] == before:
        need(time.monotonic() < end, "nothing is stored at the server's successor")
        _forget(engine)
        n, more, _ = _run(context, engine, "shared")
        _settle(engine)
        compared += more
        rounds += 1
    _forget(engine)
    loaded = counts["loaded_chunks"]
    n, more, cached = _run(context, engine, "shared")
    _settle(engine)
    need(counts["loaded_chunks"] > loaded, "the successor's chunks are not loaded")
    note = f"{(rounds + 1) * n} requests, {compared + more} tokens compared, 0 differ"
    return f"{note}; {cached} tokens not computed at the end"


def reset_clears(context, engine):
    """A reset with the connector drops the tier's chunks, too."""
    asked, n = prompts.of("reset")
    compared = context.reference.compare(asked, n, engine.run(asked, n))
    _settle(engine)
    need(engine._engine.reset_prefix_cache(reset_connector=True), "the reset failed, though nothing runs")
    answers = engine.run(asked, n)
    compared += context.reference.compare(asked, n, answers)
    need(sum(answer.cached for answer in answers) == 0, "something is found after the reset")
    _forget(engine)
    answers = engine.run(asked, n)
    compared += context.reference.compare(asked, n, answers)
    need(sum(answer.cached for answer in answers) > 0, "after the reset nothing is stored")
    _settle(engine)
    return f"{3 * len(asked)} requests, {compared} tokens compared, 0 differ"


def hints_change_no_token(context, engine):
    def forget(all):
        _forget(engine)
        need(not all or engine._engine.reset_prefix_cache(reset_connector=True), "the reset failed, though nothing runs")

    return random_hints.change_no_token(context, engine, forget, tier_of(engine)._counts)


def hits_are_the_hosts(context, engine):
    """vLLM takes the tier for host memory."""
    source = tier_of(engine).cache_hit_source
    need(source.name == "HOST", f"hits are counted as {source}")
    return str(source)


def few_cases(context, engine, server):
    for case in (shared_prefixes, whole_blocks, hits_are_the_hosts):
        context.cases.run(case.__name__, case, context, engine)


def several_groups(context, engine):
    """Otherwise a session with a hybrid model shows nothing."""
    groups = engine.scheduler.kv_cache_config.kv_cache_groups
    need(len(groups) > 1, "vLLM made one KV cache group of the model")
    return f"{len(groups)} groups: {', '.join(type(group.kv_cache_spec).__name__ for group in groups)}"


def hybrid_cases(context, engine, server):
    context.cases.run("several_groups", several_groups, context, engine)
    few_cases(context, engine, server)
    context.cases.run("chunked_prefill", chunked_prefill, context, engine)


def all_cases(context, engine, server):
    few_cases(context, engine, server)
    context.cases.run("chunked_prefill", chunked_prefill, context, engine)
    context.cases.run("hints_change_no_token", hints_change_no_token, context, engine)
    context.cases.run("reset_clears", reset_clears, context, engine)
    context.cases.run("killed_between_rounds", killed_between_rounds, context, engine, server)
