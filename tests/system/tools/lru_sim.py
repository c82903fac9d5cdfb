#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kvscout-replay must report, found without kvscout.

    lru_sim.py generate SEED REQUESTS           a trace in Mooncake's format, on standard output
    lru_sim.py simulate TRACE BLOCKS [LIMIT]    "requests blocks hit_blocks evicted" of an LRU of BLOCKS blocks

The cache is a dictionary in the order of use. A request hits its longest leading run of present blocks, inserts the rest as
far as the cache could hold it at all, and touches everything tail first, so that the head of a prefix is the last to go.
"""
import json
import random
import sys
from collections import OrderedDict


def generate(seed, requests):
    """Conversations that share heads and grow turn by turn; some are longer than a small cache, some are empty."""
    rng = random.Random(seed)
    next_id = 0
    heads = []
    for _ in range(4):
        length = rng.randint(1, 6)
        heads.append(list(range(next_id, next_id + length)))
        next_id += length
    open_talks = []
    for number in range(requests):
        kind = rng.random()
        if kind < 0.02:
            ids = []
        elif kind < 0.1 and open_talks:
            ids = list(rng.choice(open_talks))  # the same prompt again
        else:
            if kind < 0.6 and open_talks:
                talk = rng.choice(open_talks)
            else:
                talk = list(rng.choice(heads))
                open_talks.append(talk)
                if len(open_talks) > 30:
                    open_talks.pop(0)
            length = rng.randint(60, 150) if rng.random() < 0.02 else rng.randint(1, 9)
            talk.extend(range(next_id, next_id + length))
            next_id += length
            ids = list(talk)
        print(json.dumps({"timestamp": number * 10, "input_length": len(ids) * 512, "output_length": 10,
                          "hash_ids": ids}))


def simulate(path, capacity, limit):
    cache = OrderedDict()
    requests = blocks = hits = evicted = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if limit and requests == limit:
                break
            ids = json.loads(line)["hash_ids"]
            requests += 1
            blocks += len(ids)
            hit = 0
            while hit < len(ids) and ids[hit] in cache:
                hit += 1
            hits += hit
            kept = ids[:max(hit, min(len(ids), capacity))]
            for block in reversed(kept):
                cache[block] = True
                cache.move_to_end(block)
            while len(cache) > capacity:
                cache.popitem(last=False)
                evicted += 1
    print(requests, blocks, hits, evicted)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "generate":
        generate(int(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) in (4, 5) and sys.argv[1] == "simulate":
        simulate(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) == 5 else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
