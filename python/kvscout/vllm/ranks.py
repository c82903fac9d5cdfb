# SPDX-License-Identifier: Apache-2.0
"""Which part of the KV a worker holds, in kvscout's words: KV rank and reader.

A chunk's KV lies in kv_ranks shards, one for each pipeline stage and each part of the heads. Where several
tensor-parallel ranks hold the same KV (MLA; fewer KV heads than ranks), they are the readers of one shard, and share
the work of storing it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    kv_ranks: int
    readers: int
    kv_rank: int = 0
    reader: int = 0


def of_engine(parallel_config, kv_cache_config):
    """The numbers that all processes of an engine have in common."""
    tp = parallel_config.tensor_parallel_size
    readers = max(1, getattr(kv_cache_config, "kv_tp_replicas", 1))
    if tp % readers:
        readers = 1
    return Ranks(parallel_config.pipeline_parallel_size * (tp // readers), readers)


def of_worker(parallel_config, kv_cache_config, tp_rank, pp_rank):
    engine = of_engine(parallel_config, kv_cache_config)
    shards = parallel_config.tensor_parallel_size // engine.readers
    return Ranks(
        engine.kv_ranks, engine.readers, pp_rank * shards + tp_rank // engine.readers, tp_rank % engine.readers
    )


def current(parallel_config, kv_cache_config):
    """Of the worker in whose process this runs."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return of_worker(parallel_config, kv_cache_config, get_tp_group().rank_in_group, get_pp_group().rank_in_group)
