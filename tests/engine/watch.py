# SPDX-License-Identifier: Apache-2.0
"""Where the time of the connector's slowest hooks went: its own CPU, a wait, the machine's other processes, or Python's
garbage collector.

watch() wraps the hooks of a connector in the process where it is called. The kernel says of each thread how long it
ran and how long it was ready to run while other threads had the CPU (/proc/thread-self/schedstat). The rest of a call's
time it waited: for a lock, a socket, another thread.
"""

import gc
import resource
import time

SCHEDULER_HOOKS = (
    "on_new_request",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
    "update_connector_output",
    "request_finished",
    "get_kv_connector_stats",
    "has_pending_block_frees",
    "has_pending_push_work",
)
WORKER_HOOKS = (
    "start_load_kv",
    "wait_for_save",
    "get_finished",
    "get_block_ids_with_load_errors",
    "build_connector_worker_meta",
    "get_kv_connector_stats",
)
KEPT = 5


class Watch:
    """The slowest calls of one process, and the slowest of those that waited."""

    def __init__(self):
        self._slow = []
        self._waited = []
        self._gc_ns = self._gc_begin = 0
        self.calls = 0
        gc.callbacks.append(self._collected)

    def _collected(self, phase, info):
        if phase == "start":
            self._gc_begin = time.perf_counter_ns()
        else:
            self._gc_ns += time.perf_counter_ns() - self._gc_begin

    def wrap(self, connector, hooks):
        for name in hooks:
            setattr(connector, name, self._wrapped(name, getattr(connector, name)))

    def _wrapped(self, name, call):
        def hook(*args, **kwargs):
            used, gc_ns = resource.getrusage(resource.RUSAGE_THREAD), self._gc_ns
            queued, cpu, begin = _queued_ns(), time.thread_time_ns(), time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                wall = time.perf_counter_ns() - begin
                cpu, queued = time.thread_time_ns() - cpu, _queued_ns() - queued
                now = resource.getrusage(resource.RUSAGE_THREAD)
                self._note(
                    {
                        "hook": name,
                        "ms": wall / 1e6,
                        "cpu_ms": cpu / 1e6,
                        "queued_ms": queued / 1e6,
                        "waited_ms": max(0, wall - cpu - queued) / 1e6,
                        "gc_ms": (self._gc_ns - gc_ns) / 1e6,
                        "waits": now.ru_nvcsw - used.ru_nvcsw,
                        "faults": now.ru_minflt - used.ru_minflt,
                    }
                )

        return hook

    def _note(self, found):
        self.calls += 1
        self._slow = sorted([*self._slow, found], key=lambda c: -c["ms"])[:KEPT]
        if found["waits"]:
            self._waited = sorted([*self._waited, found], key=lambda c: -c["waited_ms"])[:KEPT]

    def end(self):
        gc.callbacks.remove(self._collected)
        return {"calls": self.calls, "slow": self._slow, "waited": self._waited}


def _queued_ns():
    """How long this thread was ready to run while other threads had the CPU."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])


def shown(call):
    return (
        f"{call['hook']} {call['ms']:.1f} ms: {call['cpu_ms']:.1f} on the CPU, of which {call['gc_ms']:.1f} garbage"
        f" collection, {call['queued_ms']:.1f} ready without a CPU, {call['waited_ms']:.1f} in {call['waits']} waits;"
        f" {call['faults']} page faults"
    )


def longest_wait(found):
    """Milliseconds that a call waited; 0 if none did."""
    return max((call["waited_ms"] for call in found["waited"]), default=0.0)


_watch = None


def watch_worker(worker):
    """For Engine.on_workers()."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    global _watch
    _watch = Watch()
    _watch.wrap(get_kv_transfer_group(), WORKER_HOOKS)


def end_on_worker(worker):
    return _watch.end()
