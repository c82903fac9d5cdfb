# SPDX-License-Identifier: Apache-2.0
"""KVScoutStorage: the class that SGLang makes, one object in each rank. A thin shell around pages.py.

What SGLang calls after the start raises nothing: with several ranks the answers are reduced, and a rank that raises or hangs
holds up all of them. Refusals are for the start.
"""

import functools
import logging

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from .. import KVScoutError
from ..vllm import library, server
from . import config as configuration
from . import namespace, planes
from .pages import HASH_BYTES, Pages
from .weights import Weights

logger = logging.getLogger("kvscout")


class KVScoutStorage(HiCacheStorage):
    def __init__(self, storage_config, kwargs):
        self._storage = storage_config
        self._pages = None
        self._config = configuration.parse(storage_config.extra_config or {})
        if storage_config.dcp_size > 1 or storage_config.attn_cp_size > 1:
            raise planes.Unsupported("kvscout: context parallelism is not served: run SGLang without it, or without kvscout")
        if storage_config.should_split_heads or storage_config.tp_lcm_size:
            raise planes.Unsupported("kvscout: tp_lcm_size is not served: leave it out; engines share KV with others of the same --tp")
        self._scheduler = namespace.scheduler_of_callers()

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        if str(host_pool_name) != "kv":
            raise planes.Unsupported(
                f"kvscout: this model has a second pool of KV ({host_pool_name}: a hybrid model, or a draft model), which this version "
                "does not serve. Run SGLang without --hicache-storage-backend for it"
            )

    def on_host_pools_registered(self):
        if self._pages is not None:
            return
        import sglang

        pool, own = self.mem_pool_host, self._storage
        found, n = planes.of_pool(pool, torch.tensor)
        name, reason = namespace.compute(
            self._config.namespace, namespace.factors(own, pool, found, sglang.__version__), self._scheduler
        )
        self._weights = Weights(functools.partial(namespace.of_weights, self._scheduler))
        ranks = 1 if own.is_mla_model else own.tp_size
        settings = server.settings(self._config.library, None)
        common = {
            **settings, "namespace": name, "chunk_tokens": 1, "hash_bytes": HASH_BYTES, "kv_ranks": ranks,
        }
        keys = self._config.library
        worker = {**keys.worker, "kv_rank": 0 if own.is_mla_model else own.tp_rank}
        try:
            self._pages = Pages(common, keys.client, worker, found, n, self._config.start_timeout_ms)
        except KVScoutError as error:
            raise planes.Unsupported(
                f"kvscout: no server at {common['endpoint']} took this engine's pages in {self._config.start_timeout_ms} ms ({error}). Start "
                "kvscoutd, or correct the key endpoint"
            ) from None
        logger.info("kvscout: namespace %s, %d pages in SGLang's host pool, server %s", name, n, common["endpoint"])
        if reason:
            logger.warning("kvscout: no other engine shares this engine's KV, nor does it itself after a restart, because %s", reason)
        if keys.is_open:
            logger.warning("kvscout: %s", library.OPEN)

    # ---- what SGLang's threads call ---------------------------------------------------------------------------------

    def batch_exists(self, keys, extra_info=None):
        return self._guarded(0, lambda: self._pages.leading(keys))

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._guarded([False] * len(keys), lambda: self._pages.load(keys, self._numbers(host_indices)))

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        if not self._storage.is_storage_writer:
            return [True] * len(keys)
        return [self._guarded(False, lambda: self._pages.store(keys, self._numbers(host_indices)))] * len(keys)

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def get_stats(self):
        """Of each copy since the last call, for SGLang's metrics (--enable-metrics)."""
        from sglang.srt.observability.metrics_collector import StorageMetrics

        found = StorageMetrics()
        if self._pages is not None:
            for moves, pages, bandwidth in (
                (self._pages.loads, found.prefetch_pgs, found.prefetch_bandwidth),
                (self._pages.stores, found.backup_pgs, found.backup_bandwidth),
            ):
                for n, gb_per_s in [moves.popleft() for _ in range(len(moves))]:
                    pages.append(n)
                    bandwidth.append(gb_per_s)
        return found

    def counts(self):
        """Counters since the start, by name."""
        return dict(self._pages.counts) if self._pages is not None else {}

    def clear(self):
        try:
            self._pages.clear()
        except KVScoutError as error:
            logger.warning("kvscout: the cache was not cleared: %s", error)

    def close(self):
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.close()

    def _numbers(self, host_indices):
        size = self.mem_pool_host.page_size
        return [int(index) // size for index in host_indices[::size].tolist()]

    def _guarded(self, otherwise, call):
        try:
            return call() if self._weights.are_same() else otherwise
        except Exception:
            logger.exception("kvscout: a call of SGLang failed; it counts as nothing found and nothing stored")
            return otherwise

    # ---- the interface that copies in Python: not called with interface_v1 ------------------------------------------

    def get(self, key, target_location=None, target_sizes=None):
        return None

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        return [None] * len(keys)

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return False

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        return False
