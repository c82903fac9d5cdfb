# SPDX-License-Identifier: Apache-2.0
"""KVScoutStorage: the class that SGLang makes, one object in each rank. A thin shell around pages.py.

A model has a host pool of KV, and a hybrid model has others beside it: of sliding windows, of Mamba's states, of a draft model.
Each pool has a namespace and connections of its own, because what is the same in all ranks differs from pool to pool, and because
some pools come after the start.

What SGLang calls after the start raises nothing: with several ranks the answers are reduced, and a rank that raises or hangs
holds up all of them. Refusals are for the start, or for an attachment at run time. Only what the constructor and register_mem_pool_host()
raise lets SGLang take back an attachment, so all pools are opened there, and all ranks raise if one of them does.
"""

import functools
import logging

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult

from .. import KVScoutError
from ..vllm import identity, library_keys
from . import config as configuration
from . import namespace, planes, policies, weights
from .pages import HASH_BYTES, Pages

logger = logging.getLogger("kvscout")
KV = "kv"


class KVScoutStorage(HiCacheStorage):
    def __init__(self, storage_config, kwargs):
        self._storage = storage_config
        self._registered = {}  # SGLang's pools by name
        self._pages = {}  # Pages by the name of the pool
        self._engine = None  # identity
        self._config = configuration.parse(storage_config.extra_config or {})
        if storage_config.dcp_size > 1 or storage_config.attn_cp_size > 1:
            raise planes.Unsupported("kvscout: context parallelism is not served: run SGLang without it, or without kvscout")
        if storage_config.should_split_heads or storage_config.tp_lcm_size:
            raise planes.Unsupported("kvscout: tp_lcm_size is not served: leave it out; engines share KV with others of the same --tp")
        self._scheduler = identity.from_callers("self", lambda owner: hasattr(owner, "model_config") and hasattr(owner, "server_args"))

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        controller = identity.from_callers("self", lambda owner: hasattr(owner, "storage_host_pool"))
        self._writes = weights.of_scheduler(self._scheduler, namespace.runners, controller)
        self._agreed(self._check_weights)
        entries = getattr(getattr(controller, "mem_pool_host", None), "entries", ())
        self._agreed(lambda: self._open_all({KV: mem_pool_host, **{str(entry.name): entry.host_pool for entry in entries}}))

    def _agreed(self, call):
        """Each rank waits for all here."""
        error = None
        try:
            call()
        except Exception as why:
            error = why
        first = next((text for text in namespace.of_all_ranks(error and str(error), self._scheduler) if text), None)
        if first:
            self.close()
            raise error or planes.Unsupported(first)

    def _check_weights(self):
        reason = self._writes.why_not()
        if reason and reason != self._writes.unknown:
            raise planes.Unsupported(f"kvscout: {reason}. Attach the storage then")

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        """Of pools that come later than the KV, as a draft model's; those that were there have been opened with it."""
        name = str(host_pool_name)
        if name not in self._pages:
            self._registered[name] = host_pool
            self._open(name, host_pool)

    def _open_all(self, pools):
        self._engine, reason = namespace.of_engine(self._scheduler)
        self._weights = weights.Weights(self._writes, functools.partial(namespace.of_weights, self._scheduler))
        self._registered = pools
        for name, pool in pools.items():
            self._open(name, pool)
        if reason:
            logger.warning("kvscout: no other engine shares this engine's KV, nor does it itself after a restart, because %s", reason)
        if self._config.library.is_open:
            logger.warning("kvscout: %s", library_keys.OPEN)

    def _open(self, name, pool):
        import sglang

        own, keys = self._storage, self._config.library
        if name.startswith("draft") and own.is_mla_model and own.tp_size > 1 and "MLA" not in type(pool).__name__:
            raise planes.Unsupported(
                f"kvscout: the draft model's KV ({name}) differs from rank to rank, and SGLang stores that of rank 0 only. Run it with --tp 1, or "
                "without --hicache-storage-backend"
            )
        found, n = planes.of_pool(name, pool, torch.tensor)
        full = namespace.named(self._config.namespace, self._engine, namespace.factors(own, name, pool, found, sglang.__version__))
        ranks = namespace.ranks(own, name)
        settings = keys.settings(None)
        common = {**settings, "namespace": full, "chunk_tokens": 1, "hash_bytes": HASH_BYTES, "kv_ranks": ranks}
        worker = {**keys.worker, "kv_rank": own.tp_rank if ranks > 1 else 0}
        try:
            self._pages[name] = Pages(common, keys.client, worker, found, n, self._config.start_timeout_ms)
        except KVScoutError as error:
            raise planes.Unsupported(
                f"kvscout: no server at {common['endpoint']} took this engine's pages in {self._config.start_timeout_ms} ms ({error}). Start "
                "kvscoutd, or correct the key endpoint"
            ) from None
        logger.info("kvscout: namespace %s, %d pages in SGLang's host pool %s, server %s", full, n, name, common["endpoint"])

    # ---- what SGLang's threads call ---------------------------------------------------------------------------------

    def batch_exists(self, keys, extra_info=None):
        return self._guarded(0, lambda: self._pages[KV].leading(keys))

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._guarded([False] * len(keys), lambda: self._load(KV, keys, host_indices))

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._guarded([False] * len(keys), lambda: self._store(KV, keys, host_indices))

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        def ask():
            kv = self._pages[KV].leading(keys)
            lengths, hits = policies.restorable(kv, [
                (transfer, self._pages[transfer.name].states(keys[:kv])) for transfer in pool_transfers or () if kv and policies.gates(transfer)
            ])
            return PoolTransferResult(lengths[-1] if lengths else 0, {KV: kv, **hits} if kv else {}, lengths)

        return self._guarded(PoolTransferResult(0, {}, []), ask)

    def batch_get_v2(self, transfers, extra_info=None):
        return self._each(transfers, self._load)

    def batch_set_v2(self, transfers, extra_info=None):
        return self._each(transfers, self._store)

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def get_stats(self):
        """Of each copy since the last call, for SGLang's metrics (--enable-metrics)."""
        from sglang.srt.observability.metrics_collector import StorageMetrics

        found = StorageMetrics()
        for own in list(self._pages.values()):
            for moves, pages, bandwidth in (
                (own.loads, found.prefetch_pgs, found.prefetch_bandwidth), (own.stores, found.backup_pgs, found.backup_bandwidth),
            ):
                for n, gb_per_s in [moves.popleft() for _ in range(len(moves))]:
                    pages.append(n)
                    bandwidth.append(gb_per_s)
        return found

    def counts(self, name=KV):
        """Counters of a pool since the start, by name."""
        return dict(self._pages[name].counts) if name in self._pages else {}

    def clear(self):
        for pages in self._pages.values():
            try:
                missing = pages.clear()
                if missing:
                    logger.warning("kvscout: the cache is not cleared everywhere: %s", missing)
            except KVScoutError as error:
                logger.warning("kvscout: the cache was not cleared: %s", error)

    def close(self):
        closing, self._pages = self._pages, {}
        for pages in closing.values():
            pages.close()

    def _pool(self, name):
        return self._registered.get(name, self.mem_pool_host)

    def _load(self, name, keys, host_indices):
        done = self._pages[name].load(keys, planes.number_of(host_indices, self._pool(name)))
        self._writes.loaded()
        return done

    def _store(self, name, keys, host_indices):
        if namespace.ranks(self._storage, name) == 1 and not self._storage.is_storage_writer:
            return [True] * len(keys)
        return [self._pages[name].store(keys, planes.number_of(host_indices, self._pool(name)))] * len(keys)

    def _each(self, transfers, call):
        """@call(name, keys, host_indices) for each of SGLang's transfers, by name."""
        found = {}
        for transfer in transfers:
            keys = transfer.keys or []
            if transfer.host_indices is None or len(transfer.host_indices) != len(keys) * self._pool(transfer.name).page_size:
                found[transfer.name] = [False] * len(keys)
                continue
            ask = functools.partial(call, str(transfer.name), keys, transfer.host_indices)
            found[transfer.name] = self._guarded([False] * len(keys), ask) if keys else []
        return found

    def _guarded(self, otherwise, call):
        try:
            # Asked again, because what was loaded while the weights changed is of the old ones.
            found = call() if self._weights.are_same() else otherwise
            return found if self._weights.are_same() else otherwise
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
