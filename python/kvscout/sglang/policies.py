# SPDX-License-Identifier: Apache-2.0
"""From which lengths a prompt can go on, by what the pools of a hybrid model have: SGLang's PoolHitPolicy."""


def run_of(states, wanted):
    """How many of the leading @states are @wanted."""
    return next((at for at, state in enumerate(states) if state != wanted), len(states))


def gates(transfer):
    """Whether a pool says how much of a prompt can be used. One of block groups (a second form of the same pages) never does."""
    return transfer.hit_policy != "block_groups"


def restorable(kv, pools):
    """(the lengths in pages from which all pools can go on, ascending; how far each pool reaches by itself). @kv: leading pages of KV.
    @pools: [(SGLang's transfer, of each of these pages whether the pool has it)]."""
    lengths, hits = list(range(1, kv + 1)), {}
    for transfer, states in pools:
        own = _lengths(transfer, states)
        if own:
            hits[transfer.name] = own[-1]
        lengths = sorted(set(lengths).intersection(own))
    return lengths, hits


def _lengths(transfer, states):
    run, found = 0, []
    if transfer.hit_policy == "trailing_pages":  # what is in front of the window is not needed
        window = max(1, len(transfer.keys or ()))
        for at, state in enumerate(states):
            run = run + 1 if state else 0
            if run >= min(window, at + 1):
                found.append(at + 1)
        return found
    return list(range(1, run_of(states, True) + 1))
