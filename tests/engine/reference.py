# SPDX-License-Identifier: Apache-2.0
"""The engine without a connector: the negative control, and the answers that all others are compared with."""

import checks
import prompts
from checks import need
from engine import swap_blocks


def negative_control(engine):
    """KV that belongs to another prompt changes the answer, whichever group's layers it is of. If it does not, equal
    answers prove nothing. Beside recurrent layers attention may change the logprobs only, which are compared, too.

    (Exchanging two chunks of one prompt changes nothing, and should not: keys carry their position, and attention
    sums over a set.)
    """
    groups = engine.scheduler.kv_cache_config.kv_cache_groups
    return "; ".join(_control_of_group(engine, at, groups) for at in range(len(groups)))


def _is_recurrent(group):
    return hasattr(group.kv_cache_spec, "mamba_cache_mode")


def _control_of_group(engine, at, groups):
    group = groups[at]
    n = 24
    # A state that reaches back no further than a few tokens shows in the tokens right behind it.
    length = 961 if _is_recurrent(group) else 1000
    prompt, other = prompts.tokens("control", length), prompts.tokens("control/other", length)
    right = engine.run([prompt], n)[0]
    again, blocks = _watched(engine, prompt, n)
    need(again.cached >= 896, f"only {again.cached} tokens of a repeated prompt came from the engine's own cache")
    need(again.tokens == right.tokens, "the same prompt has another answer when it is repeated")
    _, other_blocks = _watched(engine, other, n)
    # One chunk, within the window at the end of the prompt and at the end of what the engine's own cache has of it.
    block = group.kv_cache_spec.block_size
    first, last = 832 // block, 960 // block
    pairs = [pair for pair in zip(blocks[at][first:last], other_blocks[at][first:last]) if all(pair)]
    engine.on_workers(swap_blocks, *zip(*pairs))
    wrong = engine.run([prompt], n)[0]
    engine.forget()
    fresh = engine.run([prompt], n)[0]
    need(wrong.cached >= 896, "the engine did not use the blocks that were exchanged")
    moved = max(abs(a - b) for a, b in zip(wrong.logprobs, right.logprobs))
    may_move = any(map(_is_recurrent, groups)) and not _is_recurrent(group)
    need(
        wrong.tokens != right.tokens or may_move and moved > 5 * checks.LOGPROB_TOLERANCE,
        f"a chunk of another prompt's KV in group {at} does not change the answer, so equal answers would prove nothing",
    )
    need(fresh.tokens == right.tokens, "the answer is not the same after the exchanged blocks are gone")
    differ = sum(a != b for a, b in zip(wrong.tokens, right.tokens))
    told = f"{differ} of {n} tokens differ" if differ else f"a logprob differs by {moved:.2f}"
    return f"{type(group.kv_cache_spec).__name__}: {told}"


def _watched(engine, prompt, output_tokens):
    """The answer to @prompt, and by KV cache group its blocks in the engine's cache: those too that it has given back,
    because they are behind a window or hold a state that was left behind. 0: there was none."""
    name = engine.add(prompt, output_tokens)
    answers, found = {}, {}
    while engine.busy:
        answers.update(engine.step())
        for group, ids in enumerate(engine.blocks_of_running() if engine.scheduler.running else ()):
            found.setdefault(group, {}).update({place: block for place, block in enumerate(ids) if block})
    return answers[name], [[own.get(place, 0) for place in range(max(own) + 1)] for _, own in sorted(found.items())]


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
