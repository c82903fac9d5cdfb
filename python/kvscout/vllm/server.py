# SPDX-License-Identifier: Apache-2.0
"""Which server an engine uses: the one that `endpoint` names, else the host's own (endpoint=auto), which the first
process of the engine that needs it starts - a worker, because vLLM starts those first. The library does that on its
background thread; nothing here waits."""


class NoServer(ValueError):
    """There is no server that all processes of this engine could use."""


def settings(library, parallel_config):
    """Configuration keys of client and workers. @library: of library.py."""
    if not library.starts_server:
        return {"endpoint": library.endpoint, **library.both}
    if getattr(parallel_config, "nnodes", 1) > 1:
        raise NoServer(
            "kvscout: this engine runs on several nodes, and a server that starts by itself serves one host only. "
            "Start kvscoutd where all "
            'nodes reach it, and name it: "kv_connector_extra_config": {"endpoint": "tcp://host:port"}'
        )
    keys = " ".join(f"{key}={text}" for key, text in library.server)
    return {"endpoint": library.endpoint or "auto", "server_keys": keys, **library.both}
