# SPDX-License-Identifier: Apache-2.0
"""The server in vLLM's /metrics: whether it is there, how full its pool is, what it evicted. Scheduler's process.

The client knows whether its servers answer. The rest is the answer to STATUS, which needs no HELLO and makes no peer
(kvscout/protocol.h). It travels on a socket of its own, by vLLM's ZeroMQ, and nothing here waits: a look sends the question,
and a later look finds the answer. Without pyzmq, or without an answer, the numbers stay as they are.
"""

import os
import struct
import time

GAUGES = {
    "server_up": "1: all servers answer; 0: one is away, and what is asked for is computed",
    "pool_bytes_used": "Bytes in use of the server's pool, of all engines that use it",
    "pool_bytes": "Bytes that the server's pool may have (l1_bytes)",
}
# The name here, and that of the server. `evictions` is a count; the others say how things are.
_OF_STATUS = {"pool_bytes_used": "l1.bytes_used", "pool_bytes": "l1.bytes_limit", "evictions": "l1.evictions"}
LOOK_S = 1.0
ASK_S = 5.0

_FRAME = struct.Struct("<IHHIIQQ")  # magic, version, reserved, length, op_count, epoch, sent_us
_OP = struct.Struct("<BBHIQII")  # opcode, kind, status, length, corr, budget_us, reserved
_MAGIC, _VERSION, _STATUS = 0x4353564B, 3, 12
QUESTION = _FRAME.pack(_MAGIC, _VERSION, 0, _FRAME.size + _OP.size, 1, 0, 0) + _OP.pack(_STATUS, 0, 0, 0, 1, 0, 0)


def read(frame):
    """{name: number} of an answer to STATUS; {} if it is none."""
    if len(frame) < _FRAME.size + _OP.size + 4 or _FRAME.unpack_from(frame)[:2] != (_MAGIC, _VERSION):
        return {}
    opcode, kind, status, *_ = _OP.unpack_from(frame, _FRAME.size)
    if (opcode, kind, status) != (_STATUS, 1, 0):
        return {}
    at = _FRAME.size + _OP.size
    (n,) = struct.unpack_from("<I", frame, at)
    at += 4
    found = {}
    for _ in range(n):
        (length,) = struct.unpack_from("<H", frame, at)
        name = bytes(frame[at + 2 : at + 2 + length])
        at += 2 + length
        (found[name.decode(errors="replace")],) = struct.unpack_from("<Q", frame, at)
        at += 8
    return found


def address(endpoint):
    """Where the server of endpoint=auto listens, as libcommon/host/instance_paths.c says it; another endpoint as it is."""
    if endpoint.split(":")[0] != "auto":
        return endpoint
    folder = endpoint.removeprefix("auto").removeprefix("://")
    if not folder:
        folder = f"/tmp/kvscout-{os.geteuid()}"
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if runtime.startswith("/") and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid():
            folder = f"{runtime}/kvscout"
    with open("/proc/sys/kernel/random/boot_id") as f:
        host = f"{os.stat('/proc/self/ns/ipc').st_ino}-{f.read(8)}"
    return f"ipc://{folder}/ipc-{host}/kvscout.sock"


class _Place:
    """One server."""

    def __init__(self, context, endpoint, keys):
        import zmq

        self._again = zmq.ZMQError
        self._nowait = zmq.NOBLOCK
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        if keys is not None:
            self._socket.curve_serverkey, self._socket.curve_publickey, self._socket.curve_secretkey = keys
        self._socket.connect(endpoint)
        self._last = None  # its evictions at the last answer
        self.found = {}
        self.evicted = 0

    def ask(self):
        try:
            self._socket.send(QUESTION, self._nowait)
        except self._again:
            pass  # not connected

    def look(self):
        try:
            answer = read(self._socket.recv(self._nowait))
        except (self._again, struct.error):
            return
        self.found = {name: answer[theirs] for name, theirs in _OF_STATUS.items() if theirs in answer}
        evictions = self.found.pop("evictions", 0)
        if self._last is not None:  # what it evicted before this engine looked is not told; a restart begins at 0
            self.evicted += evictions - self._last if evictions >= self._last else evictions
        self._last = evictions

    def close(self):
        self._socket.close()


def _keys(both):
    """(the server's public key, ours, our secret key) of keys of library_keys.py, or None."""
    import zmq

    if "curve_secret_file" not in both:
        return None
    with open(both["curve_secret_file"], encoding="ascii") as file:
        secret = next(line.split()[0] for line in file if line.strip() and not line.startswith("#"))
    return both["curve_server_key"].encode(), zmq.curve_public(secret.encode()), secret.encode()


class Watch:
    def __init__(self, client, endpoint, both, counts, clock=time.monotonic):
        """@client: kvscout's. @both: of library_keys.py. @counts: `server_up`, `evictions`, `pool_bytes` and `pool_bytes_used` in it are
        this object's."""
        self._client = client
        self._counts = counts
        self._clock = clock
        self._next_look = self._next_ask = 0.0
        self._context = None
        self._places = []
        self._n = len(endpoint.split())
        try:
            import zmq

            self._context = zmq.Context()
            for place in endpoint.split():
                self._places.append(_Place(self._context, address(place), _keys(both)))
        except Exception:  # of pyzmq or a file of keys: the numbers are not worth the engine
            self.close()

    def look(self):
        """Called often; does something once a second."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        self._counts["server_up"] = int(self._client.stats()["servers_up"] == self._n)
        for place in self._places:
            place.look()
        if now >= self._next_ask:
            self._next_ask = now + ASK_S
            for place in self._places:
                place.ask()
        for name in ("pool_bytes", "pool_bytes_used"):
            self._counts[name] = sum(place.found.get(name, 0) for place in self._places)
        self._counts["evictions"] = sum(place.evicted for place in self._places)

    def close(self):
        for place in self._places:
            place.close()
        self._places = []
        if self._context is not None:
            self._context.term()
            self._context = None
