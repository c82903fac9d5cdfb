# SPDX-License-Identifier: Apache-2.0
"""A cache that checks itself: which hits are computed and compared with the pool, and what follows. Scheduler's process.

Whatever is believed about identity may be wrong, and loaded KV looks like any other. So of a sampled hit nothing is loaded, of a sampled tail
all but its last chunk. The engine computes it, and workers compare their pages with the slots. The comparison travels as a store does: it
pins its blocks, is dropped where a store would be, and the lookup's session stays until all ranks have ended it. KV of new weights is
compared to nothing: what began before is older (older_requests.py), and its comparison is forgotten.
"""

import hashlib
import time
from dataclasses import dataclass

MEANINGS = {
    "verify_sample": "share of the hits that are computed and compared with the pool instead of loaded; 0.001 by default, 0: none",
    "verify_action": "inert (default): where what is compared differs too often, this engine neither loads nor stores; log: it only says so",
}
FIRST, FIRST_RATE = 200, 0.05  # of the hits whose first or last chunk another engine stored
TAIL_RATE = 0.05
MISMATCHES, OF_SAMPLES = 3, 100  # make the engine inert
# Of the norm, from which a mismatch counts for that: no noise is so large, and other prompts, weights or adapters are above 1. The bounds of
# a mismatch are narrower, and not measured on a GPU: nobody shall lose the cache for those alone.
GROSS = 0.3
AT_ONCE = 4  # comparisons that have not ended; each pins blocks
_ROOM = 1 << 16
WHOLE, TAIL = "whole", "tail"


def read(values):
    """(share, whether mismatches make inert). @values: of values.py."""
    return values.share("verify_sample", 0.001), values.word("verify_action", ("inert", "log")) == "inert"


@dataclass(slots=True)
class Check:
    """One comparison, from the answer to the lookup until all ranks have ended."""

    tracked: object  # of request.py
    samples: object  # of the namespace, which may have become another one
    begin: int  # tokens
    end: int  # after the last chunk
    has_begun: bool = False  # a step has computed from `begin` on
    finish: object = None  # ends the lookup, if its request no longer does
    chunks: int = 0  # compared
    worst: dict | None = None  # chunk that differs

    def told(self, chunks, worst):
        """By one rank."""
        self.chunks += chunks
        if worst is not None and (self.worst is None or self.worst["norm_error"] < worst["norm_error"]):
            self.worst = worst


class Samples:
    """Of one namespace."""

    def __init__(self, rate):
        self.rate = rate
        self._hits = self._of_others = self._ended = 0
        self._own = set()  # hashes that this engine stored, while that matters
        self._mismatched = []  # numbers of the last samples that did

    def stored(self, hashes):
        if self.rate and self._of_others < FIRST:
            if len(self._own) >= _ROOM:
                self._own.clear()
            self._own.update(hashes)

    def choose(self, request_id, *ends):
        """WHOLE, TAIL or None for a hit. @ends: hashes of its first and last chunk. By the id alone, so neither length nor content matters.
        What this engine has stored on another one's KV is no better than that, and a tail would not show it."""
        self._hits += 1
        if not self.rate or self._hits == 1:
            return None
        rate = self.rate
        if self._of_others < FIRST and not self._own.issuperset(ends):
            self._of_others += 1
            rate = max(rate, FIRST_RATE)
        drawn = int.from_bytes(hashlib.sha256(request_id.encode(errors="surrogatepass")).digest()[:8]) / 2**64
        return WHOLE if drawn < rate else TAIL if drawn < rate + TAIL_RATE else None

    def ended(self, worst):
        """Of a sample that compared something. Whether it is one mismatch too many. @worst: the worst chunk that differs, or None."""
        self._ended += 1
        if worst is None or worst["norm_error"] < GROSS and worst["share"] < 1:
            return False
        self._mismatched = [*self._mismatched[1 - MISMATCHES :], self._ended]
        return len(self._mismatched) == MISMATCHES and self._ended - self._mismatched[0] < OF_SAMPLES


INERT = (
    f"{MISMATCHES} of the last {OF_SAMPLES} hits that it computed itself differ from what is cached. Clear this namespace, find out who "
    "stored it (docs/verify.md), and restart the engine"
)


def line(namespace, request_id, found):
    """For the log. @found: the worst chunk."""
    by = "it came from L2"
    if found["stored_by"]:
        by = f"worker {found['stored_by']:016x} stored it at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(found['stored_s']))} UTC"
    return (
        f"cached KV differs from what this engine computes: namespace {namespace}, request {request_id}, chunk "
        f"{found['chunk']}, group {found['group']}, {found['layer']}: error {found['norm_error']:.3g} of the norm, {found['share']:.3g} of the "
        f"numbers differ; {by}"
    )
