# SPDX-License-Identifier: Apache-2.0
"""KVScoutConnector: the class that vLLM makes, one object in the scheduler's process and one in each worker's.

It is a thin shell: what vLLM calls goes to scheduler.py or worker.py, with vLLM's objects taken apart. What is called while requests
run is a @hook (faults.py), which no exception leaves; what is called at the start raises. Written against the connector interface of vLLM 0.31 to 0.33 (tests/engine/contract.json has its signatures).
"""

import functools
import logging

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from . import config as configuration
from . import adapters, events, groups, hints, identity, inert, internals, layout, logs, namespace, ranks, refusals, trace_spans
from . import start, server_numbers, weights
from .faults import Faults, hook
from .metadata import Handshake, Metadata
from .scheduler import Scheduler
from .stats import Delta, PromMetrics, Stats
from .worker import Worker

logger = logging.getLogger("vllm.kvscout")


def _set_failure_policy(transfer, config):
    """vLLM's default ends a request whose KV could not be loaded. The scheduler reads the policy after it has made
    the connector."""
    if config.load_failure == "fail":
        if transfer.kv_load_failure_policy != "fail":
            raise configuration.ConfigError(
                "kvscout: load_failure=fail contradicts kv_load_failure_policy=recompute in --kv-transfer-config; "
                "leave one of them out"
            )
        return
    if transfer.kv_load_failure_policy != "recompute":
        transfer.kv_load_failure_policy = "recompute"
        logger.info(
            "kvscout: kv_load_failure_policy is now recompute: what cannot be loaded is computed (load_failure=fail in "
            "kv_connector_extra_config keeps vLLM's default, which ends such requests)"
        )


def _event_maker(tensor):
    """A function that returns an event recorded after all work of the current stream so far; for KV in host memory
    it returns None. It does not keep @tensor."""
    device = tensor.device
    if device.type != "cuda":
        return lambda: None

    def record():
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    return record


@functools.cache
def _hit_sources():
    from vllm.v1.metrics.cache_hit_source import CacheHitSource

    return CacheHitSource


def _tag_of(vllm_config, kv_cache_config, layer_names):
    """Names of these layers' attention backends and of the layout. Two backends may order the bytes of equally large
    blocks differently, so the server compares this with what other workers of the namespace said."""
    names = set()
    layers = vllm_config.compilation_config.static_forward_context
    for name in layer_names:
        layer = layers.get(name)
        get_backend = getattr(layer, "get_attn_backend", None)
        if get_backend is not None:
            backend = get_backend().get_name()
            isa = getattr(layer, "isa", None)
            names.add(f"{backend}-{isa}" if isinstance(isa, str) else backend)
    return "+".join(sorted(names)) + "/" + str(getattr(kv_cache_config, "kv_cache_layout", None) or "default")


class KVScoutConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        logs.join_vllm()
        transfer = vllm_config.kv_transfer_config
        start.check_platform()
        refusals.check(vllm_config, kv_cache_config)
        block_tokens = groups.scheduler_block(kv_cache_config)
        extra = transfer.kv_connector_extra_config or {}
        self._config = configuration.parse(extra, block_tokens, transfer.is_kv_consumer, transfer.is_kv_producer)
        refusals.refuse(refusals.reason_of_found_layout(self._config, getattr(kv_cache_config, "kv_cache_layout", None)))
        self._groups = groups.of_engine(vllm_config, kv_cache_config, self._config.chunk_tokens)
        refusals.refuse(refusals.reason_of_groups(self._groups, self._config, block_tokens))
        _set_failure_policy(transfer, self._config)
        self._scheduler = self._worker = self._stats = None
        self._inert = inert.of_engine(vllm_config, self._config.trusts)
        self._faults = Faults({"hook_errors": 0})  # until a side has its own
        if role == KVConnectorRole.SCHEDULER:
            self._start_scheduler(extra)

    def _common(self, name_space, weights_version):
        """Configuration that client and workers share."""
        algorithm = self._vllm_config.cache_config.prefix_caching_hash_algo
        found = ranks.of_engine(self._vllm_config.parallel_config, self._kv_cache_config)
        return {
            **self._config.library.settings(self._vllm_config.parallel_config),
            **self._groups.keys(),
            "namespace": name_space,
            "chunk_tokens": self._config.chunk_tokens,
            "kv_ranks": found.kv_ranks,
            "readers": found.readers,
            "hash_bytes": 16 if algorithm.startswith("xxhash") else 32,
            "weights_version": weights_version,
        }

    def _start_scheduler(self, extra):
        import kvscout

        parallel = self._vllm_config.parallel_config
        self._scheduler = Scheduler(
            self._config,
            self._groups,
            self._make_client,
            parallel.world_size,
            kvscout.KVScoutError,
            namespace.tenant,
            hints.of_engine(self._vllm_config),
            trace_spans.of_engine(self._vllm_config),
            events.of_engine(self._vllm_config, self._kv_cache_config, self._groups, self._config.may_read, kvscout.KVScoutError),
            inert.of_requests(self._vllm_config),
        )
        executor = internals.executor()
        if executor is not None:
            weights.watch_calls(executor, self._scheduler.workers_called)
        elif self._inert is None:
            self._inert = "the calls that bring new weights cannot be seen in this vLLM"
        if self._inert is not None:
            self._scheduler.stay_inert(self._inert)
        self._stats = Delta(self._scheduler.counts, self._scheduler.waits)
        self._faults = self._scheduler.faults
        for sentence in (
            *configuration.notes(extra, self._config, getattr(parallel, "data_parallel_size", 1)),
            *namespace.warnings(self._vllm_config),
        ):
            logger.warning("kvscout: %s", sentence)
        self._scheduler.watch_idle()

    def _make_client(self, name_space):
        import kvscout

        common = self._common(name_space, self._scheduler.weights_version)
        logger.info(
            "kvscout: namespace %s, chunks of %d tokens (%d blocks), KV cache groups: %s, server %s",
            name_space,
            self._config.chunk_tokens,
            self._config.chunk_tokens // self._config.block_tokens,
            " ".join(group.item() for group in self._groups),
            common["endpoint"],
        )
        client = kvscout.Client(**common, **self._config.library.client)
        self._scheduler.watch = server_numbers.Watch(client, common["endpoint"], self._config.library.both, self._scheduler.counts)
        return client

    def _start_worker(self):
        """The model is loaded."""
        import kvscout

        own = identity.Worker(self._vllm_config, self._kv_cache_config)
        models = [own.runner.get_model()] if own.runner is not None else []
        loaded = weights.Loaded(own.part if self._inert is None else lambda: None, identity.world().rank_in_group, self._make_worker, models)
        found = identity.of_engine(loaded.part, self._vllm_config)
        if found is None:
            self._worker = Worker(self._groups, None, kvscout.KVScoutError, None, inert=self._inert or "")
        else:
            name_space = namespace.named(found, self._config.namespace)
            worker, rank = self._make_worker(name_space, self._config.weights_version), self._rank()
            lora = None
            if getattr(self._vllm_config, "lora_config", None) is not None:
                lora = adapters.LoadedAdapters(internals.adapters(), f"{rank.kv_rank:06}.{rank.reader:06}")
            own_spans = trace_spans.of_engine(self._vllm_config)
            self._worker = Worker(self._groups, worker, kvscout.KVScoutError, name_space, lora, own_spans, weights=loaded)
        self._stats = Delta(self._worker.counts, self._worker.took)
        self._faults = self._worker.faults

    def _rank(self):
        return ranks.current(self._vllm_config.parallel_config, self._kv_cache_config)

    def _make_worker(self, name_space, weights_version):
        import kvscout

        keys = {**self._common(name_space, weights_version), **self._config.library.worker, **self._config.copy_keys}
        return kvscout.Worker(**keys, kv_rank=self._rank().kv_rank, reader=self._rank().reader)

    # ---- both sides -------------------------------------------------------------------------------------------------

    @property
    def requires_kv_delivery(self):
        return False  # a store that is lost is a miss, later

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        return start.layout(vllm_config)

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config):
        return False  # vLLM 0.33 asks; refusals.py says so to the versions before

    def shutdown(self):
        for side in (self._scheduler, self._worker):
            if side is not None:
                self._faults.attempt(side.close)

    @hook()
    def get_kv_connector_stats(self):
        if self._scheduler is not None and self._scheduler.watch is not None:
            self._faults.attempt(self._scheduler.watch.look)
        changed = self._stats.take() if self._stats is not None else None
        return Stats(data=changed) if changed else None

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # ---- worker -----------------------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches):
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        if self._worker is None:
            self._start_worker()
        self._worker.holds_stores = get_kv_transfer_group() is not self
        if self._worker.inert is not None:
            return
        found = layout.tables(kv_caches, self._kv_cache_config.num_blocks, self._groups, self._tag)
        planes = ", ".join(f"{len(table['planes'])} in group {table['group']}" for table in found)
        logger.info("kvscout: planes of KV on this worker: %s", planes)
        self._worker.register(found, _event_maker(next(layout.tensors(kv_caches))))

    def get_handshake_metadata(self):
        # Under MultiConnector vLLM takes the first one of all connectors, and hands it to all.
        return None if self._worker.holds_stores else Handshake(self._worker.namespace, self._worker.inert, self._worker.parts())

    def _tag(self, layers, element):
        return f"{_tag_of(self._vllm_config, self._kv_cache_config, layers)}/{element}"

    @hook()
    def bind_connector_metadata(self, connector_metadata):
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            self._worker.begin_step(self._meta())

    @hook()
    def start_load_kv(self, forward_context, **kwargs):
        self._worker.start_loads(self._meta())

    def wait_for_layer_load(self, layer_name):
        return

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        return

    @hook()
    def wait_for_save(self):
        self._worker.wait_for_save(self._meta())

    @hook(lambda self, _: KVConnectorTransferResults())
    def get_transfer_results(self, finished_req_ids):
        received, failed = self._worker.finished(finished_req_ids)
        return KVConnectorTransferResults(finished_recving=received, failed_recving=failed)

    def get_block_ids_with_load_errors(self):
        return self._worker.bad_blocks()

    def handle_preemptions(self, kv_connector_metadata):
        return  # blocks that stores read are pinned, and a request that waits for its load cannot be preempted

    @hook()
    def build_connector_worker_meta(self):
        return self._worker.take_meta()

    def _meta(self):
        meta = self._connector_metadata
        return meta if isinstance(meta, Metadata) else _EMPTY

    # ---- scheduler --------------------------------------------------------------------------------------------------

    def bind_kv_cache_manager(self, kv_cache_manager):
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.bind(kv_cache_manager)

    def set_xfer_handshake_metadata_pp_aware(self, metadata):
        told = [own for own in metadata.values() if isinstance(own, Handshake)]
        for reason in filter(None, (own.inert for own in told)):
            self._scheduler.stay_inert(reason)
        if told:
            self._scheduler.join({own.namespace for own in told}, {rank: part for own in told for rank, part in own.parts.items()})

    def _give_up(self, request, *_):
        self._scheduler.give_up(request.request_id)

    @hook(_give_up)
    def on_new_request(self, request):
        self._scheduler.on_new_request(request)

    @hook(lambda self, request, _: (self._give_up(request) or 0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if request.request_id in self._scheduler.not_in_this_step:  # in a burst nearly all calls
            return _NOT_IN_THIS_STEP
        found = self._scheduler.matched_tokens(request, num_computed_tokens)
        return found, self._config.load_async if found else False

    @hook(lambda *_: {})
    def get_external_cache_hit_sources(self, request, num_external_tokens):
        memory, l2 = self._scheduler.hit_sources(request, num_external_tokens)
        sources = _hit_sources()
        return {source: tokens for source, tokens in ((sources.HOST, memory), (sources.DISK, l2)) if tokens}

    @hook(lambda self, request, blocks, external: self._scheduler.lose(request, blocks.get_block_ids(), external))
    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        ids = blocks.get_block_ids() if self._scheduler.reads_blocks(num_external_tokens) else ()
        self._scheduler.allocated(request, ids, num_external_tokens)

    @hook(lambda *_: Metadata())
    def build_connector_meta(self, scheduler_output):
        return self._scheduler.build_meta(scheduler_output)

    @hook()
    def update_connector_output(self, connector_output):
        meta, failed = connector_output.kv_connector_worker_meta, bool(connector_output.invalid_block_ids)
        self._scheduler.worker_output(meta, failed)

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    @hook(lambda self, request, _: (bool(self._give_up(request)), None))
    def request_finished_all_groups(self, request, block_ids):
        self._scheduler.finished(request)
        return False, None

    @hook(lambda _: False)
    def has_pending_block_frees(self):
        return self._scheduler.pins_hold_back_blocks()

    @hook(lambda _: False)
    def has_pending_push_work(self):
        return self._scheduler.wants_step()

    @hook(lambda _: ())
    def take_events(self):
        return self._scheduler.take_events()

    @hook(lambda self: bool(self._scheduler.doubt()))
    def reset_cache(self):
        return self._scheduler.reset() if self._scheduler is not None else None


_EMPTY = Metadata()
_NOT_IN_THIS_STEP = (None, False)
