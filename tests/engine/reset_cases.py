# SPDX-License-Identifier: Apache-2.0
"""New weights and a reset while requests run, which vLLM's own prefix cache cannot follow."""

import logging

import prompts
from checks import need
from engine import _load_weights


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def _until(engine, names):
    """Their answers, while others go on."""
    answers = {}
    while not set(names) <= set(answers):
        answers.update(engine.step())
    return [answers[name] for name in names]


def new_weights_while_requests_run(context, engine):
    """Requests from before share their prompts' heads with those after. The latter are answered and stored as the new
    weights say."""
    asked, n = prompts.of("reset")
    counts, lines = engine.side.counts, _Lines()
    log = logging.getLogger("vllm.kvscout")
    context.reference.compare(asked, n, engine.run(asked, n))  # vLLM's own cache has them now
    before = [engine.add(prompt[:600], 400) for prompt in asked]
    while len(engine.scheduler.running) < len(before):
        engine.step()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(lines)
    try:
        engine.on_workers(_load_weights, context.other_folder)
        need(not engine._engine.reset_prefix_cache(reset_connector=True), "vLLM has reset its own cache though requests run")
        need(counts["older_requests"] == len(before), f"{counts['older_requests']} of {len(before)} requests count as older")
        stored, loaded = counts["store_chunks"], counts["load_tokens"]
        for _ in range(2):  # the second time they hit vLLM's own cache, or what the first ones stored
            context.other_reference.compare(asked, n, _until(engine, [engine.add(prompt, n) for prompt in asked]))
        need(len(engine.scheduler.running) == len(before), "the requests from before have ended too early to show anything")
        stored, loaded = counts["store_chunks"] - stored, counts["load_tokens"] - loaded
        need(stored >= len(asked) * 5, f"{stored} chunks were stored while requests from before ran")
        need(loaded == 0, f"{loaded} tokens were loaded, which vLLM's own cache should have had")
        _until(engine, before)
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
    need(counts["older_requests"] == 0, f"{counts['older_requests']} requests still count as older")
    over = sum("the last request from before the reset has ended" in text for text in lines.texts)
    need(over == 1, f"{over} lines say that it is over: {lines.texts}")
    need(engine.forget(), "vLLM's own cache could not be emptied")
    loaded = counts["load_tokens"]
    context.other_reference.compare(asked, n, engine.run(asked, n))
    loaded = counts["load_tokens"] - loaded
    need(loaded >= len(asked) * 5 * 128, f"{loaded} tokens were loaded of what was stored after the reset")
    engine.forget()
    return f"{stored} chunks stored while {len(before)} requests from before ran, {loaded} tokens loaded of them"
