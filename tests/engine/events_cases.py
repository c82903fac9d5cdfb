# SPDX-License-Identifier: Apache-2.0
"""KV events of two engines on one pool, read by Dynamo's own indexer: its answers equal what lookups find."""

import itertools
import tempfile
import time

import prompts
from checks import need
from engine import BLOCK_TOKENS

CHUNK_TOKENS = 128
SERVER = {"l1_bytes": "16Mi", "extent_bytes": "1Mi"}  # 64 chunks of 256 KiB
MOST_STEPS = 3  # until what a step saw is announced
INDEXER_S = 5.0  # for its own queue
LATE_S = 60.0


def endpoints():
    """Keys of --kv-events-config of one engine."""
    folder = tempfile.mkdtemp(prefix="kvscout-events-")
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"ipc://{folder}/events",
        "replay_endpoint": f"ipc://{folder}/replay",
    }


class Pair:
    """Both engines, the indexer and what was asked so far."""

    def __init__(self, engine, peer, indexer, requests):
        self.engine = engine
        self.peer = peer
        self.indexer = indexer
        self.requests = requests
        self.asked = []
        self._drawn = itertools.count()
        self._ids = itertools.count()

    def run(self):
        """The next requests, half of them in each engine; some of them begin as earlier ones do."""
        fresh = prompts.mixed(f"events/{next(self._drawn)}", self.requests, 130, 520, heads=8)
        half = len(fresh) // 2
        for first in range(0, half, 16):
            self.peer.begin_run(fresh[half + first : half + first + 16], 2)
            self.engine.run(fresh[first : first + 16], 2)
            self.peer.end_run()
        self.asked += fresh

    def found(self, prompt):
        """Tokens that a lookup finds."""
        name = f"truth{next(self._ids)}"
        client = self.engine.side._client
        hashes = self.engine.hashes(prompt)
        while True:
            hit = client.wait_lookup(name, hashes, len(prompt) + 1, stride=CHUNK_TOKENS // BLOCK_TOKENS)
            client.finish(name)
            if hit.reason in ("hit", "miss"):
                return hit.chunks * CHUNK_TOKENS
            time.sleep(0.01)

    def step(self):
        tick = [prompts.tokens("tick", 20)]
        self.peer.begin_run(tick, 1)
        self.engine.run(tick, 1)
        self.peer.end_run()

    def differences(self, truth):
        """The indexer counts blocks. A prompt that parts from another one in the middle of a chunk has the blocks before in common with
        it, and can have whole chunks only."""
        wrong = []
        for prompt, tokens in truth:
            said = self.indexer.tokens(prompt)
            whole = [(gpu, cpu // CHUNK_TOKENS * CHUNK_TOKENS) for gpu, cpu in (said.get(number, (0, 0)) for number in (1, 2))]
            if whole != [(0, tokens)] * 2:
                wrong.append((len(prompt), tokens, said))
        return wrong

    def compare(self):
        """Both engines forget their own caches first, so that all that is left is ours."""
        self.engine.forget()
        self.peer.forget()
        truth = [(prompt, self.found(prompt)) for prompt in self.asked]
        for steps in range(1, MOST_STEPS + 1):
            self.step()
            end = time.monotonic() + INDEXER_S
            while wrong := self.differences(truth):
                if time.monotonic() > end:
                    break
            if not wrong:
                return steps, sum(tokens > 0 for _, tokens in truth)
        need(False, f"{len(wrong)} of {len(truth)} prompts are answered otherwise than a lookup finds, the first of them: {wrong[:3]}")


def _equal(pair):
    steps, hits = pair.compare()
    return f"{len(pair.asked)} prompts, {hits} of them hits, equal for both engines after {steps} steps"


def evictions(pair, server):
    pair.run()
    note = _equal(pair)
    evicted = server.status()["l1.evictions"]
    need(evicted > 0, "the pool evicted nothing")
    return f"{note}; {evicted} chunks evicted"


def resets(pair, server):
    """Of both engines: with a weights_version the second one joins the first."""
    for side in (pair.engine, pair.peer):
        need(side.forget(connector=True), "a reset was not successful")
    note = _equal(pair)
    pair.run()
    return f"{note}; then {_equal(pair)}"


def restarts(pair, server):
    server.kill()
    server.start()
    pair.engine.side._client.wait_ready(60000)
    pair.run()
    return _equal(pair)


def late(pair, server, indexer, register):
    """A second indexer, of which nothing was told when it came. It asks for what it missed with the first batch that it sees."""
    register(indexer)
    early, pair.indexer = pair.indexer, indexer
    truth = [(prompt, pair.found(prompt)) for prompt in pair.asked]
    begin, n = time.monotonic(), sum(tokens > 0 for _, tokens in truth)
    need(n > 0, "nothing is cached")
    try:
        while wrong := pair.differences(truth):
            need(time.monotonic() < begin + LATE_S, f"after {LATE_S:.0f} s a late indexer is wrong for {len(wrong)} of {len(truth)} prompts")
            time.sleep(1)  # between steps of an engine with little to do
            pair.step()
    finally:
        pair.indexer = early
    return f"{n} prompts are known after {time.monotonic() - begin:.0f} s"


def gaps(pair, server, wire):
    """The indexer asks the engine for what it did not get."""
    wire.cut = True
    pair.run()
    wire.cut = False
    need(wire.lost > 0, "no message was lost")
    return f"{wire.lost} messages lost; {_equal(pair)}"
