# SPDX-License-Identifier: Apache-2.0
"""Two engines that use one server at the same time: @engine in this process, @peer in another one."""

import prompts
from checks import need
from engine import all_counts


def _run_both(context, engine, peer, asked, n):
    """The same prompts, in opposite order, in both engines at once."""
    peer.begin_run(asked[::-1], n)
    context.reference.compare(asked, n, engine.run(asked, n))
    context.reference.compare(asked[::-1], n, peer.end_run())


def both_at_once(context, engine, peer):
    """Each loads what the other has stored."""
    asked, n = prompts.of("shared")
    mine, theirs = asked[: len(asked) // 2], asked[len(asked) // 2 :]
    peer.begin_run(theirs, n)
    context.reference.compare(mine, n, engine.run(mine, n))
    context.reference.compare(theirs, n, peer.end_run())
    engine.forget()
    peer.forget()
    before, peer_before = all_counts(engine), peer.counts()
    rounds = 3
    for _ in range(rounds):
        _run_both(context, engine, peer, asked, n)
        engine.forget()
        peer.forget()
    loaded = all_counts(engine)["loaded_tokens"] - before["loaded_tokens"]
    peer_loaded = peer.counts()["loaded_tokens"] - peer_before["loaded_tokens"]
    # Each engine has itself stored only half of the prompts.
    need(min(loaded, peer_loaded) > rounds * 3 * 768, f"the engines loaded {loaded} and {peer_loaded} tokens")
    return f"{loaded} and {peer_loaded} tokens loaded"


def _ask(reference, side, asked, n):
    """(tokens that reached the engine, bytes that reached the cache) of one run with the engine's own cache empty
    before and after."""
    side.forget()
    counts = side.counts()
    reference.compare(asked, n, side.run(asked, n))
    side.forget()
    now = side.counts()
    gain = {name: now[name] - counts[name] for name in now}
    return gain["loaded_tokens"], gain["store_bytes"]


class Side:
    """@engine with the calls of a Peer."""

    def __init__(self, engine):
        self._engine = engine
        self.run, self.forget, self.load_weights = engine.run, engine.forget, engine.load_weights

    def counts(self):
        return all_counts(self._engine)


def new_weights_without_a_version(context, engine, peer):
    """A loads new weights and clears. Until its own reset, B can neither load what A stores nor store for A."""
    a, b = Side(engine), peer
    asked, n = prompts.of("reset")
    old, new = context.reference, context.other_reference
    _ask(old, a, asked, n)
    loaded, _ = _ask(old, b, asked, n)
    need(loaded > 0, "B loaded nothing of what A stored, before anything changed")
    a.load_weights(context.other_folder)
    need(a.forget(connector=True), "A's reset was not successful")
    # A step, so that A's worker joins the new generation; A has not stored these prompts yet.
    tiny = [prompts.tokens("tiny", 20)]
    a.run(tiny, 1)
    for round_ in range(2):
        loaded, stored = _ask(old, b, asked, n)  # between A's reset and A's store, and then behind it
        need(
            loaded == 0, f"B computes with the old weights, and loaded {loaded} tokens after A's reset (round {round_})"
        )
        need(
            stored == 0, f"B computes with the old weights, and stored {stored} bytes after A's reset (round {round_})"
        )
        loaded, stored = _ask(new, a, asked, n)
        need((loaded > 0) == (round_ > 0), f"A loaded {loaded} tokens in round {round_} after its reset")
        need((stored > 0) == (round_ == 0), f"A stored {stored} bytes in round {round_} after its reset")
    _new_weights_are_each_ones_own(context, a, b)
    return "two sets of weights; the engine that is out loads and stores 0"


def _new_weights_are_each_ones_own(context, a, b):
    """vLLM's CPU build packs them, and nobody can say that they are the same (identity_cases.new_weights shows those that can be read)."""
    asked, n = prompts.of("reset")
    b.load_weights(context.other_folder)
    need(b.forget(connector=True), "B's reset was not successful")
    for side, loads in ((b, False), (b, True), (a, True)):
        loaded, stored = _ask(context.other_reference, side, asked, n)
        need((loaded > 0, stored > 0) == (loads, not loads), f"after both resets {loaded} tokens were loaded and {stored} bytes stored")


def new_weights_with_a_version(context, engine, peer):
    """With weights_version each reset is the next number."""
    a, b = Side(engine), peer
    asked, n = prompts.of("reset")
    old, new = context.reference, context.other_reference
    for side, hit in ((a, False), (b, True)):
        loaded, _ = _ask(old, side, asked, n)
        need((loaded > 0) == hit, f"{loaded} tokens were loaded before anything changed")
    a.load_weights(context.other_folder)
    need(a.forget(connector=True), "A's reset was not successful")
    a.run([prompts.tokens("tiny", 20)], 1)
    loaded, stored = _ask(old, b, asked, n)
    need(
        loaded == stored == 0, f"B computes with the old weights, and loaded {loaded} tokens and stored {stored} bytes"
    )
    loaded, stored = _ask(new, a, asked, n)
    need(loaded == 0 and stored > 0, f"after its reset A loaded {loaded} tokens and stored {stored} bytes")
    loaded, stored = _ask(old, b, asked, n)
    need(
        loaded == stored == 0, f"B computes with the old weights, and loaded {loaded} tokens and stored {stored} bytes"
    )
    _new_weights_are_each_ones_own(context, a, b)
    return "two sets of weights; B loads nothing of A's"


def nothing_is_left(engine, server):
    engine.drain()
    status = server.wait_until(
        lambda s: not (s["sessions"] or s["holds"] or s["l1.bytes_promised"] or s["l1.bytes_held"])
    )
    for name in ("sessions", "holds", "l1.bytes_promised", "l1.bytes_held", "bugs.mismatches", "frames.bad"):
        need(status[name] == 0, f"the server's counter {name} is {status[name]}")
    return "0 left pinned"
