# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's side remembers of a request, and what its kv_transfer_params ask for. Scheduler's process."""

import hashlib
import logging
from typing import Any

logger = logging.getLogger("vllm.kvscout")

# Words of Client.finish_hint().
HINTS = ("likely", "unlikely")
MAX_KEEP_S = 3600.0  # the server's limit
ID_BYTES = 255  # the library's limit
# A request whose loads failed so often is computed without the cache.
MAX_FAILED_LOADS = 2


def lookup_id(request_id, turn):
    """The library's name for a turn of a request. Ids that it does not take (long ones, control characters) are there by a digest."""
    found = f"{request_id}/{turn}" if turn else request_id
    if len(found) <= ID_BYTES and found.isascii() and found.isprintable() and found:
        return found
    return "sha256/" + hashlib.sha256(found.encode(errors="surrogatepass")).hexdigest()


class Params:
    """The keys of kv_transfer_params that are ours. Others belong to other connectors and proxies, and are left
    alone."""

    __slots__ = ("expect_tokens", "skip_read", "skip_write", "hint", "keep_s")

    def __init__(self, params, request_id):
        self.expect_tokens = 0
        self.skip_read = self.skip_write = False
        self.hint = None
        self.keep_s = 0
        if not isinstance(params, dict):
            return
        for key, kind in (("expect_tokens", int), ("skip_read", bool), ("skip_write", bool), ("hint", str), ("keep_s", float)):
            value = params.get(key)
            if value is None:
                continue
            if kind is float and isinstance(value, int):
                value = value if isinstance(value, bool) else float(value)
            if not isinstance(value, kind) or (kind in (int, float) and (isinstance(value, bool) or not value >= 0)):
                logger.warning(
                    "kvscout: request %s: kv_transfer_params: %s=%r is ignored; it is a %s",
                    request_id,
                    key,
                    value,
                    {int: "number of tokens", float: "number of seconds", bool: "truth value", str: "word"}[kind],
                )
                continue
            if key == "hint" and value not in HINTS:
                logger.warning(
                    "kvscout: request %s: kv_transfer_params: hint=%r is ignored; it is one of %s",
                    request_id,
                    value,
                    ", ".join(HINTS),
                )
                continue
            setattr(self, key, value)


NO_PARAMS = Params(None, "")
GIVEN_UP = Params({"skip_read": True, "skip_write": True}, "")


class Tracked:
    """One request, from on_new_request() to request_finished()."""

    tenant = None
    # A request that is preempted, or whose load failed, asks anew: under another id, because its hashes have grown.
    turn = 0
    may_read = False  # this turn may ask for it
    known = False  # the client knows a lookup of this id
    asked = False  # the scheduler has asked for it
    asked_s = 0.0  # when it first did
    hit = None
    sample = None  # of verify.py: what of the hit is compared
    check = 0  # number of the comparison that was sent
    computed = 0  # leading tokens that the GPU had at the last ask
    scheduled = False  # its blocks are allocated
    allocated_in = -1  # number of that step
    next_store = 0  # the first token that is not known to be in the cache; a multiple of hash_tokens
    failed_loads = 0
    loaded = 0  # tokens that the last load brings
    params = NO_PARAMS
    wish: Any = None  # of wishes.py
    may_store = True
    lora = None
    adapter = 0  # the number by which workers know it
    identity = b""  # of the adapter; None: not known

    def __init__(self, request):
        self.request = request
        self.lookup_id = lookup_id(request.request_id, 0)
        if request.kv_transfer_params:
            self.params = Params(request.kv_transfer_params, request.request_id)
            self.may_store = not self.params.skip_write
        if request.lora_request is not None:
            self.lora, self.identity = request.lora_request, None
            self.adapter = self.lora.lora_int_id

    def begin_turn(self):
        """Forget the lookup; the caller has finished it. What was stored stays stored."""
        self.turn += 1
        self.lookup_id = lookup_id(self.request.request_id, self.turn)
        self.known = self.asked = False
        self.hit = self.sample = None
        self.check = 0
        self.scheduled = False
        self.loaded = 0
        self.may_store = not self.params.skip_write

    def give_up(self):
        """No turn of it asks for the cache or stores any more."""
        self.params = GIVEN_UP
        self.may_read = self.may_store = False
        self.hit = None

    @property
    def ticket(self):
        return getattr(self.hit, "ticket", 0)
