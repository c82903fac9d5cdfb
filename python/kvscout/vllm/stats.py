# SPDX-License-Identifier: Apache-2.0
"""Counters of both sides, for vLLM's log line "KV Transfer metrics" and for its /metrics.

Each side counts since the engine started; what it hands to vLLM is the difference since the last time. A difference is
an entry of a dict, so that vLLM adds up what its processes hand over without knowing any name.
"""

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from . import wishes
from .times import BUCKETS
from .server_numbers import GAUGES as SERVER_GAUGES

BOTH = {"hook_errors": "Exceptions of kvscout's own code that were kept from vLLM; what they were about went on without the cache"}
SCHEDULER = {
    **BOTH,
    "asked": "Lookups asked by get_num_new_matched_tokens",
    "answered_at_first_ask": "Lookups that were answered when they were first asked for",
    "waits": "Waits for answers to lookups that a step was the first to ask for",
    "wait_us": "Microseconds of those waits",
    "hints_likely": "Requests that ended with the hint that their conversation goes on",
    "hints_unlikely": "Requests that ended with the hint that it is over",
    **wishes.MEANINGS,
    "lookup_errors": "Lookups that could not be asked",
    "loads": "Loads sent to the workers",
    "load_tokens": "Tokens of those loads",
    "load_tokens_l2": "Of those tokens, the share that was in L2 at the lookup",
    "failed_loads": "Loads of which a block was not filled",
    "stores": "Stores sent to the workers",
    "store_chunks": "Chunks of those stores",
    "verify_samples": "Hits that were computed and compared with the pool",
    "verify_mismatches": "Of these, hits whose KV in the pool was another",
    "verify_tokens": "Tokens of hits that were computed to be compared",
    "evictions": "Chunks that the server evicted since this engine started, of all engines that use it",
}
WORKER = {
    **BOTH,
    "loads_ended": "Loads that ended, by worker",
    "loads_failed": "Loads that ended with an error, by worker",
    "loaded_tokens": "Tokens of loads that filled all their blocks, by worker",
    "failed_blocks": "Blocks that a load did not fill, by worker",
    "load_bytes": "Bytes copied from the pool",
    "load_us": "Microseconds from a load's submit to its end",
    "stores_ended": "Stores that ended, by worker",
    "stores_failed": "Stores that ended with an error, by worker",
    "stores_dropped": "Stores that were not started, by worker: a load failed in their step, or the server was away",
    "store_bytes": "Bytes copied to the pool",
    "store_us": "Microseconds from a store's submit to its end",
    "verify_chunks": "Chunks that were compared with the pool, by worker",
}
ALL = {**SCHEDULER, **WORKER}
# What the scheduler's side knows now. The others are counts.
GAUGES = {
    **SERVER_GAUGES,
    "older_requests": "Requests that began before the last reset and still run; they store nothing",
}
# Seconds, one value for each event: {name: meaning}.
TIMES = {
    "lookup_seconds": "From the step that first asked for a request to the one that had its answer",
    "load_seconds": "From a load's submit to its end, by worker",
    "store_seconds": "From a store's submit to its end, by worker",
}


def new_counts():
    return dict.fromkeys((*SCHEDULER, *GAUGES), 0)


def new_worker_counts():
    return dict.fromkeys(WORKER, 0)


class Delta:
    """What has changed in @counts since the last take(), and the values of @times."""

    def __init__(self, counts, times=None):
        self._counts = counts
        self._last = dict(counts)
        self._times = times

    def take(self):
        changed = {
            name: value if name in GAUGES else value - self._last[name]
            for name, value in self._counts.items()
            if value != self._last[name]
        }
        if changed:
            self._last = dict(self._counts)
        if self._times is not None:
            changed.update(self._times.take())
        return changed


class Stats(KVConnectorStats):
    def reset(self):
        self.data = {}

    def aggregate(self, other):
        for name, value in other.data.items():
            mine = self.data.get(name)
            self.data[name] = value if mine is None or name in GAUGES else mine + value  # values of TIMES are lists
        return self

    def reduce(self):
        data = self.data
        short = {
            "kvscout lookups": data.get("asked", 0),
            "answered at first ask": data.get("answered_at_first_ask", 0),
            "loads": data.get("loads", 0),
            "loaded tokens": data.get("load_tokens", 0),
            "failed loads": data.get("failed_loads", 0),
            "stored chunks": data.get("store_chunks", 0),
            "stored MB": round(data.get("store_bytes", 0) / 1e6, 1),
        }
        if data.get("loads_ended"):
            short["mean load ms"] = round(data.get("load_us", 0) / data["loads_ended"] / 1e3, 2)
        return short

    def is_empty(self):
        return not self.data


class PromMetrics(KVConnectorPromMetrics):
    """vllm:kvscout_NAME_total, with vLLM's own labels."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._engines = per_engine_labelvalues
        self._labels = labelnames
        self._families = {
            **self._make(self._counter_cls, ALL),
            **self._make(self._gauge_cls, GAUGES, multiprocess_mode="mostrecent"),
            **self._make(self._histogram_cls, TIMES, buckets=BUCKETS),
        }

    def _make(self, cls, meanings, **more):
        """{name: {engine: metric}}"""
        found = {}
        for name, meaning in meanings.items():
            family = cls(name=f"vllm:kvscout_{name}", documentation=f"kvscout: {meaning}.", labelnames=self._labels, **more)
            found[name] = {engine: family.labels(*labels) for engine, labels in self._engines.items()}
        return found

    def observe(self, transfer_stats_data, engine_idx=0):
        for name, value in transfer_stats_data.items():
            metric = self._families.get(name, {}).get(engine_idx)
            if metric is None:
                continue
            if name in GAUGES:
                metric.set(value)
            elif name in TIMES:
                for seconds in value:
                    metric.observe(seconds)
            elif value > 0:
                metric.inc(value)
