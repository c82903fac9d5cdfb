# SPDX-License-Identifier: Apache-2.0
"""Counters of the tier since the engine started, and at most one line of the log in ten seconds."""

import time

from ..vllm.watch import GAUGES

MEANINGS = {
    "lookups": "Batches of keys that the server was asked for",
    "lookup_keys": "Keys in those batches",
    "hit_keys": "Keys that the server had",
    "lookup_errors": "Batches that could not be asked, or with keys that the server could not tell of in time",
    "loads": "Jobs from the pool to vLLM's region",
    "loaded_chunks": "Chunks that those jobs copied",
    "failed_chunks": "Chunks that those jobs did not copy; the engine computes them",
    "load_bytes": "Bytes copied from the pool",
    "load_us": "Microseconds from a load's submit to its end",
    "stores": "Jobs from vLLM's region to the pool",
    "stored_chunks": "Chunks that those jobs made readable",
    "present_chunks": "Chunks of those jobs that were there already",
    "no_room_chunks": "Chunks of those jobs that the pool had no room for",
    "store_bytes": "Bytes copied to the pool",
    "store_us": "Microseconds from a store's submit to its end",
    "stores_failed": "Stores that ended with an error",
    "stores_skipped": "Stores of requests that began before a reset; their KV may be of older weights",
    "resets": "Times that the namespace was cleared",
    "evictions": "Chunks that the server evicted since this engine started, of all engines that use it",
}
# Seconds, one value for each event.
TIMES = {
    "lookup_seconds": "From the end of the step that asked a batch to the look that found its answer",
    "load_seconds": "From a load's submit to its end",
    "store_seconds": "From a store's submit to its end",
}


def new_counts():
    return dict.fromkeys((*MEANINGS, *GAUGES), 0)


class Teller:
    """Warnings for the log. An engine without a server meets the same error with each request."""

    SECONDS = 10.0

    def __init__(self, logger, clock=time.monotonic, name="kvscout tier"):
        self._logger = logger
        self._name = name
        self._clock = clock
        self._last = -self.SECONDS
        self._suppressed = 0

    def warn(self, text, *args):
        now = self._clock()
        if now - self._last < self.SECONDS:
            self._suppressed += 1
            return
        self._last = now
        more = f" ({self._suppressed} lines of the tier were suppressed)" if self._suppressed else ""
        self._suppressed = 0
        self._logger.warning("%s: " + text + "%s", self._name, *args, more)
