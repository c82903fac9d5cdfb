# SPDX-License-Identifier: Apache-2.0
"""The engine without a connector: the negative control, and the answers that all others are compared with."""

import checks
import prompts
from checks import need
from engine import swap_blocks


def negative_control(engine):
    """KV that belongs to another prompt changes the answer. If it does not, equal answers prove nothing.

    (Exchanging two chunks of one prompt changes nothing, and should not: keys carry their position, and attention
    sums over a set.)
    """
    n = 24
    prompt, other = prompts.tokens("control", 1000), prompts.tokens("control/other", 1000)
    right = engine.run([prompt], n)[0]
    again, blocks = _watched(engine, prompt, n)
    need(again.cached >= 896, f"only {again.cached} tokens of a repeated prompt came from the engine's own cache")
    need(again.tokens == right.tokens, "the same prompt has another answer when it is repeated")
    _, other_blocks = _watched(engine, other, n)
    # One chunk, within the window of a window model.
    first, last = 640 // engine.block_tokens, 768 // engine.block_tokens
    engine.on_workers(swap_blocks, blocks[first:last], other_blocks[first:last])
    wrong = engine.run([prompt], n)[0]
    engine.forget()
    fresh = engine.run([prompt], n)[0]
    need(wrong.cached >= 896, "the engine did not use the blocks that were exchanged")
    need(
        wrong.tokens != right.tokens,
        "a chunk of another prompt's KV does not change the answer, so equal answers would prove nothing",
    )
    need(fresh.tokens == right.tokens, "the answer is not the same after the exchanged blocks are gone")
    return f"{sum(a != b for a, b in zip(wrong.tokens, right.tokens))} of {n} tokens differ"


def _watched(engine, prompt, output_tokens):
    """The answer to @prompt, and its blocks in the engine's cache."""
    name = engine.add(prompt, output_tokens)
    answers, blocks = {}, []
    while engine.busy:
        answers.update(engine.step())
        if engine.scheduler.running:
            blocks = engine.blocks_of_running()
    return answers[name], blocks


def distinct(engine, reference, names):
    """Fills the reference; each answer must have enough different tokens for a comparison to mean something."""
    least = 1000
    for name in names:
        asked, n = prompts.of(name)
        for prompt, answer in zip(asked, engine.run(asked, n)):
            least = min(least, len(set(answer.tokens)))
            reference.add(prompt, n, answer)
        engine.forget()
    need(
        least >= checks.DISTINCT_TOKENS,
        f"an answer has {least} distinct tokens; at least {checks.DISTINCT_TOKENS} are needed",
    )
    return f"at least {least} distinct tokens in an answer"


def other_weights(context, engine, names):
    """The answers of the model's other weights, loaded into the running engine. They must differ from the first
    ones'."""
    engine.load_weights(context.other_folder)
    engine.forget()
    reference = context.other_reference
    n_prompts = same = 0
    for name in names:
        asked, n = prompts.of(name)
        for prompt, answer in zip(asked, engine.run(asked, n)):
            n_prompts += 1
            same += answer.tokens == context.reference.tokens(prompt, n)
            reference.add(prompt, n, answer)
        engine.forget()
    reference.save()
    need(same == 0, f"{same} of {n_prompts} answers are the same with other weights")
    return "no answer is the same as with the first weights"
