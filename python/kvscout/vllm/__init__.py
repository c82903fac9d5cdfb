# SPDX-License-Identifier: Apache-2.0
"""kvscout as a KV connector of vLLM: `"kv_connector": "KVScoutConnector"` in --kv-transfer-config.

Importing this package starts nothing and imports neither vLLM nor the extension: vLLM's API server imports it, too. The
class is loaded when it is asked for, by vLLM's plugin mechanism (plugin.py) or by
`"kv_connector_module_path": "kvscout.vllm"`.

    config.py      keys of kv_connector_extra_config, and what they default to
    values.py      reading values that a user wrote
    library_keys.py of the keys, those that kvscout's Client, Worker and Server have themselves
    refusals.py    what the connector cannot do, each with a sentence
    start.py       those of them that need no model, before vLLM loads one
    inert.py       why an engine, or a request, stays out of the cache
    stand_in.py    the class for a vLLM that kvscout does not know
    internals.py   what is taken of vLLM that is no interface
    groups.py      vLLM's KV cache groups in kvscout's words
    identity.py    what must be equal for KV to be the same
    loaded.py      of that, what a loaded model shows
    adapters.py    the same for LoRA adapters, which come and go
    namespace.py   the name of engines that share their KV
    ranks.py       which part of the KV a worker holds
    connector.py   the class that vLLM makes, one object in the scheduler's process and one in each worker's
    scheduler.py   the scheduler's side: lookups, admits, what to load and to store
    request.py     what the scheduler's side remembers of a request
    older_requests.py requests from before a reset that still run
    pins.py        blocks that stores read
    worker.py      the worker's side: retrieves and stores
    layout.py      KV tensors as planes
    events.py      what of it this engine can have, announced to routers
    faults.py      exceptions of our own, which no hook of vLLM lets out
    feed.py        the server's feed, and what of it was announced
    descriptions.py what a store says of its objects for that
    logs.py        the library's log lines in vLLM's log
    metadata.py    what the two sides send each other
    stats.py       counters and times, for vLLM's log and its /metrics
    times.py       of events, for its histograms
    ready.py       waiting for copies
    server_numbers.py the server's numbers among them
"""

__all__ = ["KVScoutConnector"]


def __getattr__(name):
    if name == "KVScoutConnector":
        from .start import connector

        return connector()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
