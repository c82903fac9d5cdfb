# SPDX-License-Identifier: Apache-2.0
"""What the kv_hints of a request wish for its KV after its end (../vllm/wishes.py has the words).

A tier has no session that lasts as long as a request: what a question found is given back when the request is scheduled, and stores belong
to none. So when a request with a wish is over, and its last store, too, one more question asks for all keys that vLLM has given it, and
the end of this question keeps them or lets them go. kv.fetch asks for nothing more: what a lookup finds in L2 comes into vLLM's
region. One object, next to the lookups, called under the lock of vLLM's manager."""

from ..vllm.wishes import Wishes


class _Open:
    __slots__ = ("wish", "keys", "stores")

    def __init__(self, wish):
        self.wish = wish
        self.keys = ()  # once the request is over
        self.stores = 0  # under way


class Keeps:
    def __init__(self, lookups, counts, faults):
        self._wishes = Wishes(counts)
        self._lookups = lookups
        self._counts = counts
        self._faults = faults
        self._open = {}  # by request
        self._stores = {}  # by job

    def began(self, req_context):
        hints = getattr(req_context, "kv_hints", None)
        wish = self._faults.attempt(self._wishes.of, hints, req_context.req_id) if hints is not None else None
        if wish is not None and wish.hint is not None:
            self._open[req_context.req_id] = _Open(wish)

    def stores(self, request_id, job):
        found = self._open.get(request_id)
        if found is not None:
            found.stores += 1
            self._stores[job] = found

    def store_ended(self, job):
        found = self._stores.pop(job, None)
        if found is not None:
            found.stores -= 1
            self._end_if_over(found)

    def finished(self, req_context):
        found = self._open.pop(req_context.req_id, None)
        if found is not None:
            ends = getattr(req_context, "_offload_key_positions", {})
            found.keys = sorted(ends, key=ends.get)  # the beginning of the prompt first, in all groups
            self._end_if_over(found)

    def forget_all(self):
        """The server was cleared: nothing is left to keep."""
        self._open.clear()
        self._stores.clear()

    def _end_if_over(self, found):
        if found.keys and not found.stores:
            self._counts["keeps"] += found.wish.keep_s > 0
            self._lookups.end(found.keys, found.wish)
