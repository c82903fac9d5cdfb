# SPDX-License-Identifier: Apache-2.0
"""kvscout as a tier below vLLM's own offloading: `"type": "kvscout"` among the tiers of its TieringOffloadingSpec.

vLLM copies KV between the GPU and a region of host memory; a secondary tier copies between that region and other storage.
This one copies to and from the pool of a kvscout server. It touches host memory only, so it serves every GPU and every
model that vLLM offloads.

Importing this package starts nothing and imports no vLLM.

    config.py      keys of the tier, and what they default to
    namespace.py   which engines share their chunks
    keys.py        vLLM's keys as hashes
    lookups.py     which keys the server has: one question for each request and step
    transfers.py   copies between vLLM's region and the pool
    events.py      which keys can be had, announced to routers
    counts.py      counters
    tier.py        the class that vLLM makes, one object in the scheduler's process
    stand_in.py    what vLLM gets instead where the engine is inert
"""

__all__ = ["KVScoutTier"]


def _tier():
    from ..vllm import inert, internals

    reason = inert.of_version(inert.trusted(internals.from_callers("tier_config", lambda config: isinstance(config, dict))))
    if reason is None:
        from .tier import KVScoutTier

        return KVScoutTier
    from . import stand_in

    return stand_in.tier(reason)


def __getattr__(name):
    if name == "KVScoutTier":
        return _tier()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
