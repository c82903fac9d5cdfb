# SPDX-License-Identifier: Apache-2.0
"""Cases of engines that differ in more than their prompts: LoRA adapters, and another connector beside ours."""

import os

import models
import prompts
from checks import DISTINCT_TOKENS, need

# As the numbers of vLLM's requests; None: the model without an adapter.
ADAPTERS = (None, 1, 2)


def adapter_answers(context, engine):
    """The engine without a connector. An adapter must change the answers, or equal answers would prove nothing."""
    asked, n = prompts.of("shared")
    found = []
    for adapter in ADAPTERS:
        answers = engine.run(asked, n, adapter=context.adapter(adapter))
        for prompt, answer in zip(asked, answers):
            context.named_reference(adapter).add(prompt, n, answer)
        context.named_reference(adapter).save()
        found.append([answer.tokens for answer in answers])
        engine.forget()
    for one in range(len(found)):
        for two in range(one):
            same = sum(a == b for a, b in zip(found[one], found[two]))
            need(
                same == 0,
                f"{same} of {len(asked)} answers are the same with adapters {ADAPTERS[one]} and {ADAPTERS[two]}",
            )
    return "no two adapters give the same answer"


def adapters_keep_their_kv_apart(context, engine):
    asked, n = prompts.of("shared")
    counts = engine.side.counts
    loaded = 0
    for turn in ("cold", "warm"):
        for adapter in ADAPTERS:
            before = counts["load_tokens"]
            answers = engine.run(asked, n, adapter=context.adapter(adapter))
            context.named_reference(adapter).compare(asked, n, answers)
            engine.forget()
            found = counts["load_tokens"] - before
            need(
                found >= 3 * 768 if turn == "warm" else found == 0,
                f"adapter {adapter}, {turn}: {found} tokens were loaded",
            )
            loaded += found
    return f"{len(ADAPTERS) - 1} adapters and none; {loaded} tokens loaded"


def another_connector_loads_what_ours_may_not(context, engine):
    """MultiConnector loads from the first connector that has tokens: from ours, or with skip_read from the other
    one."""
    asked, n = prompts.of("beside")
    counts = engine.side.counts
    context.reference.compare(asked, n, engine.run(asked, n))
    notes = []
    for transfer, ours in ((None, True), ({"skip_read": True}, False), (None, True)):
        engine.forget()
        before = dict(counts)
        answers = engine.run(asked, n, transfer=transfer)
        context.reference.compare(asked, n, answers)
        loaded = counts["load_tokens"] - before["load_tokens"]
        cached = sum(answer.cached for answer in answers)
        need((loaded > 0) == ours, f"with {transfer} our connector loaded {loaded} tokens")
        need(cached > 0, f"with {transfer} neither connector loaded anything")
        notes.append(f"{loaded} tokens loaded by ours and {cached - loaded} by the other")
    engine.forget()
    return f"in turns {', '.join(notes)}"


def another_ones_failed_load(context, engine, folder):
    """The other connector loads in the step that computes, and fails. vLLM says so after the step, and computes again.
    What the step computed on the failed load must not be in our cache."""
    from failing import MARK

    asked, n = prompts.of("beside")
    counts = engine.side.counts
    engine.forget(connector=True)  # ours has nothing now, the other one its files
    mark = os.path.join(folder, MARK)
    with open(mark, "w"):
        before = dict(counts)
    failed = engine.run(asked, n)
    os.unlink(mark)
    context.reference.compare(asked, n, failed)
    engine.forget()
    stored = counts["store_chunks"] - before["store_chunks"]
    need(counts["load_tokens"] == before["load_tokens"], "our connector loaded something after its reset")
    need(stored > 0, "nothing was stored, so no store could be wrong")
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.forget()
    loaded = counts["load_tokens"] - before["load_tokens"]
    need(loaded > 0, "our connector loaded nothing of what it stored")
    return f"{stored} chunks stored, {loaded} tokens loaded"


IMAGES = ("one", "two")


def _image(name):
    import numpy
    from PIL import Image

    draw = numpy.random.default_rng(sum(name.encode()))
    return Image.fromarray(draw.integers(0, 256, (models.IMAGE_PIXELS, models.IMAGE_PIXELS, 3), dtype=numpy.uint8))


def _with_image(prompt):
    """The image comes first, so no token behind it has the same KV with another image."""
    return [models.IMAGE_TOKEN, *prompt]


def image_answers(context, engine):
    """The engine without a connector. The image must change the answers."""
    asked, n = prompts.of("params")
    found = []
    for name in IMAGES:
        (answer,) = engine.run([_with_image(asked[0])], n, image=_image(name))
        context.named_reference(name).add(_with_image(asked[0]), n, answer)
        context.named_reference(name).save()
        found.append(answer.tokens)
        engine.forget()
    need(found[0] != found[1], "two images give the same answer, so equal answers would prove nothing")
    distinct = min(len(set(tokens)) for tokens in found)
    need(
        distinct >= DISTINCT_TOKENS, f"an answer has {distinct} distinct tokens; at least {DISTINCT_TOKENS} are needed"
    )
    return f"{sum(a != b for a, b in zip(*found))} of {n} tokens differ between two images"


def images_keep_their_kv_apart(context, engine):
    asked, n = prompts.of("params")
    question = [_with_image(asked[0])]
    counts = engine.side.counts
    loaded = 0
    for turn in ("cold", "warm"):
        for name in IMAGES:
            before = counts["load_tokens"]
            context.named_reference(name).compare(question, n, engine.run(question, n, image=_image(name)))
            engine.forget()
            found = counts["load_tokens"] - before
            need(found >= 512 if turn == "warm" else found == 0, f"image {name}, {turn}: {found} tokens were loaded")
            loaded += found
    return f"{len(IMAGES)} images; {loaded} tokens loaded"


def images_with_a_users_name(context, engine):
    """Nothing says that the next process means the same image by it. vLLM's own caches take the user's word, so it is one image here."""
    asked, n = prompts.of("params")
    question, counts = [_with_image(asked[0])], engine.side.counts
    before = dict(counts)
    for name in ("holiday.jpg", "renderer0-mm-1-image-0", "0" * 32):
        context.named_reference(IMAGES[0]).compare(question, n, engine.run(question, n, image=_image(IMAGES[0]), image_name=name))
        engine.forget()
    more = {name: counts[name] - before[name] for name in ("asked", "stores", "loads")}
    need(not any(more.values()), f"the cache was used: {more}")
    return "3 names"
