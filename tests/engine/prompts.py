# SPDX-License-Identifier: Apache-2.0
"""Prompts of the scenarios, as token ids drawn from seeds: the engine with and the one without a connector get the
same ones."""

import random

from models import VOCAB


def tokens(seed, n):
    draw = random.Random(seed)
    return [draw.randrange(3, VOCAB) for _ in range(n)]


def shared(seed, heads, tails, head_tokens, tail_tokens):
    """@heads prefixes, each with @tails different ends: prompts that share all but their end."""
    return [
        tokens(f"{seed}/head{h}", head_tokens) + tokens(f"{seed}/head{h}/tail{t}", tail_tokens)
        for h in range(heads)
        for t in range(tails)
    ]


def mixed(seed, n, low, high, heads=4):
    """@n prompts of @low to @high tokens, whose beginnings come from @heads prefixes of different lengths."""
    draw = random.Random(f"{seed}/mixed")
    found = []
    for i in range(n):
        length = draw.randrange(low, high)
        head = tokens(f"{seed}/head{draw.randrange(heads)}", high)[: draw.randrange(low // 2, length)]
        found.append(head + tokens(f"{seed}/{i}", length - len(head)))
    return found


# What each group of scenarios asks. Lengths are chosen so that chunks of 128 tokens are complete, incomplete by one
# token, and exact. `shared` and `exact` have seeds with which the answers of each model hold enough distinct tokens
# (checks.DISTINCT_TOKENS): a tiny model sometimes repeats a few tokens for ever.
WORKLOADS = {
    "shared": lambda: shared("shared/3", 3, 4, 900, 60),
    "exact": lambda: [tokens("exact/2", n) for n in (127, 128, 129, 255, 256, 257, 512, 513, 1024)],
    "long": lambda: [tokens("long/a", 3000), tokens("long/b", 2047), tokens("long/a", 2000) + tokens("long/c", 500)],
    "crowd": lambda: shared("crowd", 2, 5, 500, 300),
    "stream": lambda: mixed("stream", 40, 150, 700),
    "salted": lambda: [tokens("salted", 700)],
    "params": lambda: [tokens("params", 650)],
    "partial": lambda: [tokens("partial/1", 700), tokens("partial/2", 1100)],
    "beside": lambda: [tokens("beside/1", 700), tokens("beside/2", 1100)],
    "reset": lambda: [tokens("reset/1", 650), tokens("reset/2", 650)],
}
OUTPUT_TOKENS = {"crowd": 40, "stream": 12}


def of(name):
    return WORKLOADS[name](), OUTPUT_TOKENS.get(name, 24)
