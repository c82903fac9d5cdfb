# SPDX-License-Identifier: Apache-2.0
"""kvscout as the storage of SGLang's hierarchical cache: `--hicache-storage-backend dynamic` (docs/sglang.md).

SGLang copies KV between the GPU and a pool of host memory of its own; a HiCacheStorage copies between that pool and other
storage. This one copies to and from the pool of a kvscout server, page by page, without a copy in between.

Importing this package starts nothing and imports no SGLang.

    config.py      keys of --hicache-storage-backend-extra-config
    weights.py     what happened to the weights, and whether KV may be stored and loaded since
    policies.py    lengths from which all pools of a hybrid model can go on
    planes.py      where the pages of SGLang's pool are
    namespace.py   which engines share their pages
    arguments.py   which of SGLang's arguments do not count for that
    pages.py       lookups and copies with deadlines, and no SGLang
    storage.py     the class that SGLang makes, one object in each rank
"""

__all__ = ["KVScoutStorage"]


def __getattr__(name):
    if name == "KVScoutStorage":
        from .storage import KVScoutStorage

        return KVScoutStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
