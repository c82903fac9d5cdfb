# SPDX-License-Identifier: Apache-2.0
"""Counters of the tier since the engine started."""

from ..vllm import wishes
from ..vllm.server_numbers import GAUGES

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
    **wishes.MEANINGS,
    "hook_errors": "Exceptions of the tier's own code that were kept from vLLM; what they were about went on without the cache",
    "resets": "Times that the namespace was cleared",
    "verify_samples": "Requests whose hits were computed and compared with the pool",
    "verify_mismatches": "Of these, requests whose KV in the pool was another",
    "verify_chunks": "Chunks that were compared",
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
