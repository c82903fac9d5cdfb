# SPDX-License-Identifier: Apache-2.0
"""Keys of kvscout's own Client, Worker and Server that a user may write for vLLM; connector and tier have the same ones.

The library itself reads and checks the values, in its own words, before a model is loaded (_kvscout.check_keys()). It asks no
server and no store: what is wrong ends the start, and what is down does not.

An engine uses the server that `endpoint` names, else the host's own (endpoint=auto), which the first process of the engine that needs it
starts - a worker, because vLLM starts those first. The library does that on its background thread; nothing here waits.
"""

import re
from dataclasses import dataclass, field

from .values import ConfigError

# vLLM makes connectors when it has loaded the model. A server that an engine started therefore stays longer without a peer than
# the library's 60 s, so that the next start of the engine finds the cache.
IDLE_EXIT_S = 600

_BOTH = {
    "curve_secret_file": "with an endpoint: file with this engine's secret key, for encryption (CURVE)",
    "curve_server_key": "with an endpoint: the server's public key",
    "heartbeat_ms": "how often an idle connection is tried; default 1000",
    "connect_timeout_ms": "how long lookups and copies wait for the first connection; default 400",
}
_CLIENT = {"lookup_timeout_ms": "how long a lookup waits for its answer, at most; default 500"}
_WORKER = {"transfer_timeout_ms": "how long a load or store may wait for its first copy; default 30000"}
_SERVER = {
    "l1_bytes": "host memory of a server that this engine starts, such as 64Gi",
    "l2": "L2 store of a server that this engine starts: a URL or a list of URLs",
    "idle_exit_s": f"how long a server that this engine starts stays without a peer; default {IDLE_EXIT_S}; 0: for ever",
    "metrics": "HOST:PORT where a server that this engine starts has its own /metrics",
    "server_keys": 'other keys of a server that this engine starts, as {"eviction": "lru"}; "config" names a file of them',
}
MEANINGS = {
    "endpoint": "address of the server; without it, or with auto, the host's server, which is started if there is none",
    **_SERVER,
    **_BOTH,
    **_CLIENT,
    **_WORKER,
}
OPEN = (
    "the endpoint is reached over a network without keys, so whoever is on that network can read what this engine asks for, and "
    "clear the cache. Give the server and this engine keys: curve_secret_file and curve_server_key (docs/security.md)"
)
# What kvscoutd takes, and the library does not check: files of keys, and the log.
_OF_THE_PROGRAM = ("config", "log-level")


class NoServer(ValueError):
    """There is no server that all processes of this engine could use."""


@dataclass(frozen=True)
class Library:
    endpoint: str | None
    both: dict = field(default_factory=dict)  # keys of Client and Worker that the user gave
    client: dict = field(default_factory=dict)
    worker: dict = field(default_factory=dict)
    server: tuple[tuple[str, str], ...] = ()  # of a server that this engine starts: (key, text), in kvscoutd's order

    @property
    def starts_server(self):
        return self.endpoint is None or self.endpoint.split(":")[0] == "auto"

    @property
    def is_open(self):
        """Whether frames travel through a network unencrypted."""
        places = (self.endpoint or "").split()
        return "curve_secret_file" not in self.both and any(
            place.startswith("tcp://") and not place.startswith(("tcp://127.", "tcp://[::1]")) for place in places
        )

    def settings(self, parallel_config):
        """Configuration keys of client and workers."""
        if not self.starts_server:
            return {"endpoint": self.endpoint, **self.both}
        if getattr(parallel_config, "nnodes", 1) > 1:
            raise NoServer(
                "kvscout: this engine runs on several nodes, and a server that starts by itself serves one host only. Start kvscoutd where "
                'all nodes reach it, and name it: "kv_connector_extra_config": {"endpoint": "tcp://host:port"}'
            )
        keys = " ".join(f"{key}={text}" for key, text in self.server)
        return {"endpoint": self.endpoint or "auto", "server_keys": keys, **self.both}


def read(values):
    """@values: of values.py, with MEANINGS among its keys."""
    found = Library(
        endpoint=_endpoint(values),
        both=_given(values, _BOTH),
        client=_given(values, _CLIENT),
        worker=_given(values, _WORKER),
        server=_server(values),
    )
    _check_curve(values, found)
    _check(values, "Client", {**found.both, **found.client})
    _check(values, "Worker", {**found.both, **found.worker, **({} if found.starts_server else {"endpoint": found.endpoint})})
    if not found.starts_server:
        asked = sorted(key for key in _SERVER if values.given.get(key) is not None)
        if asked:
            raise ConfigError(
                f"kvscout: {values.where}: {' and '.join(asked)} configure a server that this engine starts; with an endpoint there is "
                "a server already. Leave them out, and give them to that server"
            )
        return Library(found.endpoint, found.both, found.client, found.worker)
    _check_server(values, found.server)
    return found


def _endpoint(values):
    """The library finds most of what is wrong with one only when it connects, with the model loaded."""
    if values.text("endpoint") is None:
        return None
    allowed = "it is ipc:///path (up to 107 bytes), tcp://host:port, auto or auto:///folder"
    return values.checked("endpoint", "auto", lambda text: re.fullmatch(r"ipc:///\S{1,106}|tcp://[^\s/]+:\d+|auto(:///\S*)?", text), allowed)


def _given(values, keys):
    return {key: values.given[key] for key in keys if values.given.get(key) is not None}


def _server(values):
    """Later ones override, as on a command line: a file, then what is written here."""
    others = dict(_others(values))
    pairs = [("idle_exit_s", str(IDLE_EXIT_S))]
    if "config" in others:
        pairs.append(("config", others.pop("config")))
    if values.given.get("l1_bytes") is not None:
        pairs.append(("l1_bytes", str(values.number("l1_bytes", 0, 1, 1 << 50))))
    pairs += [("l2", url) for url in values.urls("l2")]
    pairs += [(key, _word(values, key, values.given[key])) for key in ("idle_exit_s", "metrics") if values.given.get(key) is not None]
    pairs += others.items()
    return tuple(pairs)


def _others(values):
    given = values.given.get("server_keys")
    if given is None:
        return
    if not isinstance(given, dict):
        raise values.bad("server_keys", given, 'it is an object of keys and values, as {"eviction": "lru"}')
    for key, value in given.items():
        if key in _SERVER or key == "listen":
            own = "which is a key of its own" if key in _SERVER else "and such a server chooses where it listens"
            raise values.bad("server_keys", given, f"it has {key!r}, {own}")
        yield key, _word(values, key, value)


def _word(values, key, value):
    """As kvscoutd reads it. A value with a blank would be two words."""
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if not isinstance(value, int | str) or text.split() != [text]:
        raise values.bad(key, value, "it is a number, a truth value or a text without blanks")
    return text


def _check_curve(values, found):
    given = [key for key in ("curve_secret_file", "curve_server_key") if key in found.both]
    if not given:
        return
    if len(given) == 1 or found.starts_server:
        raise ConfigError(
            f"kvscout: {values.where}: {given[0]}: encryption needs curve_secret_file and curve_server_key, both of them, and the "
            "endpoint of a server that has keys"
        )
    path = found.both["curve_secret_file"]
    try:
        with open(path, "rb"):
            pass
    except (OSError, TypeError) as error:
        raise ConfigError(f"kvscout: {values.where}: curve_secret_file={path!r} cannot be read: {error}") from None


def _check_server(values, pairs):
    lists = {}
    for key, text in pairs:
        if key not in _OF_THE_PROGRAM:
            lists.setdefault(key, []).append(text)
    # Of a key that is there twice the later one counts; only l2 is a list.
    _check(values, "Server", {key: texts if key == "l2" else texts[-1] for key, texts in lists.items()})


def _check(values, kind, keys):
    from .. import KVScoutError
    from .._kvscout import check_keys

    try:
        check_keys(kind, **keys)
    except (KVScoutError, TypeError) as error:
        raise ConfigError(f"kvscout: {values.where}: {str(error).removeprefix(f'{kind}(): ')}") from None
