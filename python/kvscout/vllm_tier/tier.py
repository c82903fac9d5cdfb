# SPDX-License-Identifier: Apache-2.0
"""KVScoutTier: the class that vLLM makes for a secondary tier, in the scheduler's process.

It is a thin shell: what vLLM calls goes to lookups.py and transfers.py, with vLLM's objects taken apart. Written against
the tier interface of vLLM 0.31 to 0.33 (tests/engine/contract.json has its signatures). Client and Worker live here, side
by side: the region of host memory that vLLM's workers copy to and from the GPU is mapped in this process, too.

vLLM calls a tier under its manager's lock, from one thread at a time, which is what Client and Worker ask for.
"""

import ctypes
import logging

from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingGaugeMetadata,
    OffloadingHistogramMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from ..vllm import identity, library, logs, server
from ..vllm.stats import Delta
from ..vllm.times import BUCKETS
from ..vllm.watch import Watch
from . import config as configuration
from . import events, namespace
from .counts import GAUGES, MEANINGS, TIMES, Teller, new_counts
from .keys import HASH_BYTES
from .lookups import Lookups
from .transfers import Transfers

logger = logging.getLogger("vllm.kvscout")

METRIC = "vllm:kvscout_tier_"
_LABELS = ("kvscout_endpoint", "kvscout_namespace")


def _address_of(view):
    """Of a region's first byte. The export ends with this call: vLLM releases its view at the end."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


class KVScoutTier(SecondaryTierManager):
    medium = Medium.CPU

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, **keys):
        """@keys: the keys that the user wrote next to `type`; config.py lists them."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        import kvscout
        import vllm

        logs.join_vllm()
        self._config = configuration.parse(keys)
        self.locality = Locality[self._config.locality]
        rows, row_bytes = primary_kv_view.shape[0], self.block_size_bytes
        found = namespace.factors(offloading_spec.config, row_bytes, identity.minor_version(vllm.__version__), identity.platform())
        vllm_config = identity.from_callers("vllm_config", lambda config: hasattr(config, "model_config"))
        self._namespace, self._own = namespace.compute(
            self._config.namespace, offloading_spec.config, found, self._config.fixed_scales, vllm_config
        )
        common = {
            **server.settings(self._config.library, None),
            "namespace": self._namespace,
            "chunk_tokens": 1,
            "hash_bytes": HASH_BYTES,
            "weights_version": self._config.weights_version,
        }
        self._endpoint = common["endpoint"]
        self._error = kvscout.KVScoutError
        self._counts = new_counts()
        self._delta = Delta(self._counts)
        self._teller = Teller(logger)
        self._weights_version = self._config.weights_version
        self._live = set()  # requests
        self._before_reset = set()  # those of them that began before the last reset
        self._watch = None
        self._client = kvscout.Client(**common, **self._config.library.client)
        try:
            worker = kvscout.Worker(**common, **self._config.library.worker, backend="host")
        except Exception:
            self._client.close()
            raise
        self._lookups = Lookups(self._client, self._error, self._counts, self._teller)
        self._events = events.of_engine(offloading_spec, OffloadingEvent, Medium.STORAGE, self.locality, self._error)
        self._transfers = Transfers(worker, self._error, self._counts, self._teller, self._lookups.run_ended, self._events)
        try:
            self._transfers.register(_address_of(primary_kv_view), row_bytes, rows, "vllm-tier")
        except Exception:
            self.shutdown()
            raise
        self._watch = Watch(self._client, self._endpoint, self._config.library.both, self._counts)
        self._log_start(rows, row_bytes)

    def _log_start(self, rows, row_bytes):
        logger.info(
            "kvscout tier: namespace %s, %d chunks of %d bytes in vLLM's region, server %s",
            self._namespace, rows, row_bytes, self._endpoint,
        )
        if self._config.library.is_open:
            logger.warning("kvscout tier: %s", library.OPEN)
        if self._own is not None:
            logger.warning(
                "kvscout tier: no other engine shares this engine's KV, nor does it itself after a restart, because %s", self._own
            )

    # ---- requests ---------------------------------------------------------------------------------------------------

    def on_new_request(self, req_context):
        self._live.add(req_context.req_id)
        return RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self._live.discard(req_context.req_id)
        self._before_reset.discard(req_context.req_id)
        self._lookups.finished(req_context.req_id)

    # ---- lookups ----------------------------------------------------------------------------------------------------

    def lookup(self, key, req_context):
        found = self._lookups.lookup(req_context.req_id, key)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def touch(self, keys, req_context):
        self._lookups.touch(keys)

    def on_schedule_end(self, context):
        self._lookups.scheduled(context.new_req_ids)
        self._lookups.flush()
        if self._events is not None:
            self._events.read(self._client)

    def take_events(self):
        return self._events.take(self._client) if self._events is not None else ()

    # ---- jobs -------------------------------------------------------------------------------------------------------

    def submit_store(self, job_metadata):
        if job_metadata.req_context.req_id in self._before_reset:
            self._transfers.skip_store(job_metadata.job_id)
            return
        self._transfers.store(job_metadata.job_id, list(job_metadata.keys), job_metadata.chunk_ids)

    def submit_load(self, job_metadata):
        keys = list(job_metadata.keys)
        if self._events is not None:
            self._events.keep(keys)
        runs, lost = self._lookups.runs(job_metadata.req_context.req_id, keys, job_metadata.chunk_ids)
        self._transfers.load(job_metadata.job_id, runs, lost)

    def get_finished_jobs(self):
        return [
            JobResult(
                job_id=end.job_id, success=end.ok, successful_keys=end.keys if end.keys and not end.ok else None,
                transfer_time=end.seconds, transfer_bytes=end.bytes,
            )
            for end in self._transfers.ended()
        ]

    def has_pending_work(self):
        return not self._transfers.is_idle()

    def drain_jobs(self):
        """vLLM calls it for a reset of the cache, and for nothing else."""
        self._transfers.drain()
        if self._config.clears:
            self._clear()
        if self._events is not None:
            self._events.announce_anew()  # vLLM has told routers to forget everything

    def _clear(self):
        """As the connector does: with a weights_version the next number, without one a new generation."""
        try:
            if self._weights_version:
                self._client.reset(self._weights_version + 1)
                self._weights_version += 1
                self._transfers.reset(self._weights_version)
            else:
                self._transfers.clear(self._client.clear())
        except self._error as error:
            logger.warning("kvscout tier: the cache was not cleared: %s", error)
            return
        self._counts["resets"] += 1
        self._lookups.forget_all()
        self._before_reset |= self._live
        number = f"; its weights_version is now {self._weights_version}" if self._weights_version else ""
        logger.info("kvscout tier: cleared the cache of namespace %s%s", self._namespace, number)

    def shutdown(self):
        if self._watch is not None:
            self._watch.close()
        self._transfers.close()
        self._client.close()

    # ---- what /metrics says -----------------------------------------------------------------------------------------

    @classmethod
    def build_metric_definitions(cls, extra_config):
        def about(meaning):
            return f"kvscout tier: {meaning}."

        return {
            **{METRIC + name: OffloadingCounterMetadata(documentation=about(meaning)) for name, meaning in MEANINGS.items()},
            **{METRIC + name: OffloadingGaugeMetadata(documentation=about(meaning)) for name, meaning in GAUGES.items()},
            **{
                METRIC + name: OffloadingHistogramMetadata(documentation=about(meaning), buckets=BUCKETS)
                for name, meaning in TIMES.items()
            },
        }

    def get_stats(self):
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats

        self._watch.look()
        changed = {**self._delta.take(), **self._lookups.took.take(), **self._transfers.took.take()}
        if not changed:
            return None
        stats = OffloadingConnectorStats()
        for name, value in changed.items():
            if name in GAUGES:
                stats.set_gauge(METRIC + name, value)
            elif name not in TIMES:
                stats.increase_counter(METRIC + name, value)
            else:
                for seconds in value:
                    stats.observe_histogram(METRIC + name, seconds)
        return stats

    @classmethod
    def config_info_keys(cls, tier_config):
        return _LABELS

    def config_info(self):
        return dict(zip(_LABELS, (self._endpoint, self._namespace), strict=True))
