# SPDX-License-Identifier: Apache-2.0
"""KVScoutTier: the class that vLLM makes for a secondary tier, in the scheduler's process.

It is a thin shell: what vLLM calls goes to lookups.py and transfers.py, with vLLM's objects taken apart. What is called while requests
run is a @hook (../vllm/faults.py), which no exception leaves. shutdown() raises if the library may still use the region: vLLM then keeps it
mapped. Written against
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

from .._clears import what_is_missing
from ..vllm import inert, internals, library_keys, logs, refusals, verify
from ..vllm.faults import Faults, hook
from ..vllm.stats import Delta
from ..vllm.times import BUCKETS
from ..vllm.server_numbers import Watch
from . import config as configuration
from . import events, namespace, stand_in
from .counts import GAUGES, MEANINGS, TIMES, new_counts
from .keeps import Keeps
from .keys import HASH_BYTES
from .lookups import Lookups
from .transfers import Transfers

logger = logging.getLogger("vllm.kvscout")

METRIC = "vllm:kvscout_tier_"
_LABELS = ("kvscout_endpoint", "kvscout_namespace")


def _address_of(view):
    """Of a region's first byte. The export ends with this call: vLLM releases its view at the end."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _given(backpressure_detector):
    """By its name: another vLLM may have it in another place, or not at all."""
    return {} if backpressure_detector is None else {"backpressure_detector": backpressure_detector}


def _reason(trusts, vllm_config, kv_cache_config):
    """Why the engine is inert, or None."""
    if vllm_config is None or kv_cache_config is None:
        return "vLLM does not show a tier the engine's configuration and layers"
    refusals.refuse(refusals.reason_of_layers(kv_cache_config.kv_cache_groups))
    return inert.of_engine(vllm_config, trusts) or inert.of_any_request(vllm_config)


class KVScoutTier(SecondaryTierManager):
    medium = Medium.CPU

    def __new__(cls, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, **keys):
        """A stand-in, if the engine is inert. vLLM shows a tier neither configuration nor layers, but what calls it has them."""
        reason = _reason(
            configuration.parse(keys).trusts,
            internals.from_callers("vllm_config", lambda config: hasattr(config, "model_config")),
            internals.from_callers("kv_cache_config", lambda config: hasattr(config, "kv_cache_groups")),
        )
        if reason is None:
            return super().__new__(cls)
        labels = dict(zip(_LABELS, ("", "inert"), strict=True))
        given = _given(backpressure_detector)
        return stand_in.tier(reason, config_info=lambda self: labels)(offloading_spec, primary_kv_view, tier_type, **given, **keys)

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, **keys):
        """@keys: the keys that the user wrote next to `type`; config.py lists them."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, **_given(backpressure_detector))
        import kvscout

        logs.join_vllm()
        self._config = configuration.parse(keys)
        self.locality = Locality[self._config.locality]
        rows, row_bytes = primary_kv_view.shape[0], self.block_size_bytes
        vllm_config = internals.from_callers("vllm_config", lambda config: hasattr(config, "model_config"))
        kv_cache_config = internals.from_callers("kv_cache_config", lambda config: hasattr(config, "kv_cache_groups"))
        self._namespace, self._own = namespace.compute(
            self._config.namespace, offloading_spec.config, namespace.factors(offloading_spec.config, row_bytes), self._config.fixed_scales,
            vllm_config, kv_cache_config,
        )
        self._has_inputs = getattr(getattr(vllm_config, "model_config", None), "multimodal_config", None) is not None
        common = {
            **self._config.library.settings(None),
            "namespace": self._namespace,
            "chunk_tokens": 1,
            "hash_bytes": HASH_BYTES,
            "weights_version": self._config.weights_version,
        }
        self._endpoint = common["endpoint"]
        self._error = kvscout.KVScoutError
        self._counts = new_counts()
        self._delta = Delta(self._counts)
        self._teller = logs.Teller(logger)
        self._faults = Faults(self._counts, "kvscout tier")
        self._is_out = False  # a reset has failed: what is cached may be of older weights
        self._weights_version = self._config.weights_version
        self._live = {}  # requests by id: vLLM's own, which a tier is not handed; None: not found
        self._kept_out = set()  # those of them with inputs that vLLM has not hashed
        self._before_reset = set()  # those of them that began before the last reset
        self._watch = None
        self._client = kvscout.Client(**common, **self._config.library.client)
        try:
            worker = kvscout.Worker(**common, **self._config.library.worker, backend="host")
        except Exception:
            self._client.close()
            raise
        dtype = namespace.element(offloading_spec.config, kv_cache_config)
        sample = self._config.verify_sample if dtype is not None else 0  # no two runs give the same bytes
        self._lookups = Lookups(self._client, self._error, self._counts, self._teller, self._faults, sample)
        self._keeps = Keeps(self._lookups, self._counts, self._faults)
        self._events = events.of_engine(offloading_spec, OffloadingEvent, Medium.STORAGE, self.locality, self._error)
        self._transfers = Transfers(worker, self._error, self._counts, self._teller, self._lookups.run_ended, self._events, self._faults, self._compared)
        try:
            self._transfers.register(_address_of(primary_kv_view), row_bytes, rows, "vllm-tier", dtype)
        except Exception:
            self.shutdown()
            raise
        self._watch = Watch(self._client, self._endpoint, self._config.library.both, self._counts)
        if self._events is not None:
            self._events.watch_idle(self._faults, lambda: self._client)
        self._log_start(rows, row_bytes)

    def _log_start(self, rows, row_bytes):
        logger.info(
            "kvscout tier: namespace %s, %d chunks of %d bytes in vLLM's region, server %s",
            self._namespace, rows, row_bytes, self._endpoint,
        )
        if self._config.library.is_open:
            logger.warning("kvscout tier: %s", library_keys.OPEN)
        if self._own is not None:
            logger.warning(
                "kvscout tier: no other engine shares this engine's KV, nor does it itself after a restart, because %s", self._own
            )

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _keep_out(self, req_context):
        self._live.setdefault(req_context.req_id)
        self._kept_out.add(req_context.req_id)
        return RequestOffloadingContext()

    @hook(_keep_out)
    def on_new_request(self, req_context):
        name = req_context.req_id
        self._live[name] = internals.from_callers("request", lambda request: getattr(request, "request_id", None) == name)
        if not self._may_share(name):
            self._kept_out.add(name)
        else:
            self._keeps.began(req_context)
        return RequestOffloadingContext()

    @hook()
    def on_request_finished(self, req_context):
        self._live.pop(req_context.req_id, None)
        self._kept_out.discard(req_context.req_id)
        self._before_reset.discard(req_context.req_id)
        self._faults.attempt(self._keeps.finished, req_context)
        self._lookups.finished(req_context.req_id)

    def _may_share(self, name):
        request = self._live.get(name)
        return not self._has_inputs or (request is not None and inert.are_hashed(request))

    # ---- lookups ----------------------------------------------------------------------------------------------------

    @hook(lambda *_: LookupResult.MISS)
    def lookup(self, key, req_context):
        if self._is_out or req_context.req_id in self._kept_out:
            return LookupResult.MISS
        found = self._lookups.lookup(req_context.req_id, key)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    @hook()
    def touch(self, keys, req_context):
        self._lookups.touch(keys)

    @hook(lambda self, _: self._lookups.give_up())
    def on_schedule_end(self, context):
        self._lookups.scheduled(context.new_req_ids)
        self._lookups.flush()
        if self._events is not None:
            self._events.read(self._client)

    @hook(lambda *_: ())
    def take_events(self):
        return tuple(self._events.take(self._client)) if self._events is not None else ()

    # ---- jobs -------------------------------------------------------------------------------------------------------

    def _fail(self, job_metadata):
        self._transfers.fail(job_metadata.job_id)

    @hook(_fail)
    def submit_store(self, job_metadata):
        name = job_metadata.req_context.req_id
        if self._is_out or name in self._before_reset or not self._may_share(name):
            self._transfers.skip_store(job_metadata.job_id)
            return
        runs, keys, chunk_ids = self._lookups.compared(name, list(job_metadata.keys), job_metadata.chunk_ids)
        self._lookups.samples.stored(keys)
        self._keeps.stores(name, job_metadata.job_id)
        self._transfers.store(job_metadata.job_id, keys, chunk_ids, runs)

    def _compared(self, run, done):
        """Runs of one request are one sample. A reset waits for all of them."""
        request, differs = run.batch.request, done.mismatched > 0
        before = request.differs
        self._counts["verify_chunks"] += done.chunks
        if not done.chunks or before or before is not None and not differs:
            return
        request.differs = differs
        self._counts["verify_samples"] += before is None
        worst = max((found for found in done.verified if found["differs"]), key=lambda found: found["norm_error"], default=None)
        is_too_many = self._lookups.samples.ended(worst)
        if worst is None:
            return
        self._counts["verify_mismatches"] += 1
        self._teller.warn("%s", verify.line(self._namespace, request.id, {**worst, "layer": "all layers"}))
        if is_too_many and self._config.mismatches_make_inert:
            self._is_out = True
            logger.warning(inert.line("kvscout tier", verify.INERT))

    @hook(_fail)
    def submit_load(self, job_metadata):
        keys = list(job_metadata.keys)
        if self._events is not None:
            self._events.keep(keys)
        runs, lost = self._lookups.runs(job_metadata.req_context.req_id, keys, job_metadata.chunk_ids)
        self._transfers.load(job_metadata.job_id, runs, lost)

    @hook(lambda *_: [])
    def get_finished_jobs(self):
        ended = self._transfers.ended()
        for end in ended:
            self._faults.attempt(self._keeps.store_ended, end.job_id)
        return [
            JobResult(
                job_id=end.job_id, success=end.ok, successful_keys=end.keys if end.keys and not end.ok else None,
                transfer_time=end.seconds, transfer_bytes=end.bytes,
            )
            for end in ended
        ]

    @hook(lambda *_: False)
    def has_pending_work(self):
        return not self._transfers.is_idle() or self._lookups.has_wishes() or self._events is not None and self._events.wants_step

    @hook(lambda self: self._transfers.stop())
    def drain_jobs(self):
        """vLLM calls it for a reset of the cache, and for nothing else."""
        self._transfers.drain()
        if self._config.clears:
            self._clear()
        if self._events is not None:
            self._events.announce_anew()  # vLLM has told routers to forget everything

    def _clear(self):
        """As the connector does: with a weights_version the next number, without one a new generation."""
        self._is_out = True  # until it is done
        self._before_reset |= self._live.keys()
        try:
            if self._weights_version:
                self._client.reset(self._weights_version + 1)
                self._weights_version += 1
                self._transfers.reset(self._weights_version)
            else:
                self._transfers.clear(self._client.clear())
        except Exception as error:
            logger.error("kvscout tier: this engine neither loads nor stores KV, because the cache was not cleared: %r", error)
            raise
        self._is_out = False
        self._counts["resets"] += 1
        self._lookups.forget_all()
        self._keeps.forget_all()
        missing = what_is_missing(self._client)
        if missing:
            logger.warning("kvscout tier: the cache of namespace %s is not cleared everywhere: %s", self._namespace, missing)
            return
        number = f"; its weights_version is now {self._weights_version}" if self._weights_version else ""
        logger.info("kvscout tier: cleared the cache of namespace %s%s", self._namespace, number)

    def shutdown(self):
        for side in filter(None, (self._events, self._watch)):
            self._faults.attempt(side.close)
        try:
            self._transfers.close()
        finally:
            self._faults.attempt(self._client.close)

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

    @hook()
    def get_stats(self):
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats

        self._faults.attempt(self._watch.look)
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
