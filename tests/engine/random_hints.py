# SPDX-License-Identifier: Apache-2.0
"""KV hints at random, as an orchestrator could send them, good and bad ones: whatever they say, no answer changes. For the connector and
for the tier."""

import random

import prompts
from checks import need

WORKLOADS = ("shared", "stream")
ROUNDS = 3
TIMES = (0.05, 1, 7.5, 3600, 1e9, 0, -1, "5", None, float("nan"), True)


def _payload(draw, word):
    if draw.random() < 0.1:
        return draw.choice((None, [], "all", {"directives": 5}, {"directives": [7]}))
    found = {"block_hashes": [draw.getrandbits(64)]} if draw.random() < 0.1 else {}
    if word != "kv.retain":
        return found
    if draw.random() < 0.5:
        return {**found, "ttl_seconds": draw.choice(TIMES), "priority": draw.randrange(101)}
    ranges = [{"start": at * 64, "end": draw.choice((None, at * 64 + 64)), "priority": 50, "duration": draw.choice(TIMES)} for at in range(draw.randrange(4))]
    return {**found, "scope": "request", "directives": ranges}


def envelope(draw):
    from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope

    if draw.random() < 0.1:
        return draw.choice((None, KvHintsEnvelope("1.0", "none", None), KvHintsEnvelope("1.0", "wrong", ["kv.retain"])))
    actions = []
    for at in range(draw.randrange(5)):
        word = draw.choice(("kv.retain", "kv.retain", "kv.evict", "kv.fetch", "kv.share", ""))
        actions.append(KvHintAction(f"a{at}", word, draw.choice(("1.0", "0.1", "0.9.3", "2.0", "")), _payload(draw, word)))
    return KvHintsEnvelope("1.0", f"m{draw.getrandbits(32)}", actions)


def change_no_token(context, engine, forget, counts):
    """@forget: leaves the answers to the connector or tier; with True, drops what these have, too. @counts: of the wishes."""
    draw, before, loaded = random.Random("hints"), dict(counts), 0
    for at in range(ROUNDS):
        for name in WORKLOADS:
            asked, n = prompts.of(name)
            mixed = draw.sample(range(len(asked)), len(asked))
            names = {}
            for i in mixed:
                params = {"keep_s": draw.choice((0.5, 2, 9000)), "hint": draw.choice(("likely", "unlikely"))} if draw.random() < 0.2 else None
                names[engine.add(asked[i], n, transfer=params, hints=envelope(draw))] = i
            answers = {}
            while engine.busy:
                answers.update((names[ended], answer) for ended, answer in engine.step().items())
            context.reference.compare(asked, n, [answers[i] for i in range(len(asked))])
            loaded += sum(answer.cached for answer in answers.values()) if at else 0
            forget(False)
    forget(True)
    found = {name: counts[name] - before[name] for name in counts if name == "keeps" or name.startswith("wishes_")}
    need(min(found.values()) > 0 and loaded > 0, f"{loaded} tokens came from the cache, and of the hints {found}: some kind never came")
    need(counts["hook_errors"] == before["hook_errors"], "a hint made a hook fail")
    return f"{loaded} tokens not computed; {', '.join(f'{name} {n}' for name, n in found.items())}"
