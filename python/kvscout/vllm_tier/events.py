# SPDX-License-Identifier: Apache-2.0
"""KV events of the tier: which of vLLM's keys can be had from kvscout. Scheduler's process; only with --kv-events-config.

A store says of each object its key, which the feed brings to all engines. vLLM makes the events that routers read. It knows the tokens of
what this engine has computed or found (with self_describing_kv_events), and of other engines' objects the last block's hash alone.

All of it is STORAGE, also what is in host memory: vLLM's own tier above announces CPU, and its evictions would take ours out of the router.
"""

from ..vllm.events import Idle
from ..vllm.feed import Book
from .keys import hashes_of


def of_engine(offloading_spec, event, storage, locality, errors):
    """Events, or None. @event, @storage: vLLM's OffloadingEvent and Medium.STORAGE."""
    told = getattr(offloading_spec, "kv_events_config", None)
    return Events(event, storage, locality, errors) if getattr(told, "enable_kv_cache_events", False) else None


class Events(Idle):
    def __init__(self, event, storage, locality, errors):
        self._about = {"medium": storage, "locality": locality, "removal_expected": True}
        self._event = event
        self._book = Book(errors, apart=False)

    def describe(self, keys):
        """What a store says of its @keys."""
        return [bytes(key) for key in keys]

    def keep(self, keys):
        """Keys that this engine stores or loads: the server need not know any more what they are."""
        hashes = hashes_of(keys)
        for at, key in enumerate(keys):
            self._book.keep(None, hashes[32 * at : 32 * at + 32], bytes(key))

    def announce_anew(self):
        self._book.announce_anew()

    def take(self, client):
        """vLLM's events since the last call."""
        self.read(client)
        for keys, removed in zip(self._book.changes(), (True, False), strict=True):
            if keys:
                yield self._event(keys=[said for _, said in keys], removed=removed, **self._about)
        self.end_take()
