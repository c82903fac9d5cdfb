# SPDX-License-Identifier: Apache-2.0
"""What an orchestrator wishes for a request's KV: the actions of vLLM's KvHintsEnvelope (Request.kv_hints, ReqContext.kv_hints).

The envelope is vLLM's; its actions are public drafts, all of version 0.x or 1.x, and each in one of these words:

- kv.retain: `directives`, a list of {start, end, priority, duration}, or `ttl_seconds` with `priority`. Keeps the request's KV
  after its end for the longest duration. A range counts as the whole request; without a time it is the hint `likely`.
- kv.evict: the request's KV is not needed any more: the hint `unlikely`.
- kv.fetch: what is in L2 comes into host memory at the request's lookup.

`block_hashes` name blocks by a hash of the orchestrator's, which says nothing here: such an action is rejected. Other actions,
versions and forms are unknown. All are counted, and logged once for each kind. Scheduler's process; connector and tier."""

import logging
import math

from .request import MAX_KEEP_S

logger = logging.getLogger("vllm.kvscout")

OUTCOMES = ("accepted", "clipped", "rejected", "unknown")
MAX_ACTIONS = 64
MEANINGS = {
    "keeps": "Requests that ended with a time to be kept",
    "wishes_accepted": "KV hints of orchestrators that are followed",
    "wishes_clipped": "KV hints that are followed in part or for a shorter time",
    "wishes_rejected": "KV hints that name blocks which mean nothing here",
    "wishes_unknown": "KV hints of a kind, version or form that is not known",
}


class Wish:
    __slots__ = ("hint", "keep_s", "load")

    def __init__(self):
        self.hint, self.keep_s, self.load = None, 0.0, False


NONE = Wish()


def keep_ms(keep_s):
    """What Client.finish_keep() takes."""
    return math.ceil(min(keep_s, MAX_KEEP_S) * 1000)


def _seconds(value):
    """A positive number, or None."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def _retain(wish, payload):
    directives = payload.get("directives")
    if directives is None:
        times = [_seconds(payload.get("ttl_seconds"))]
    elif isinstance(directives, list) and all(isinstance(each, dict) for each in directives):
        times = [_seconds(each.get("duration")) for each in directives]
    else:
        return "unknown"
    wish.hint = "likely"
    keep_s = max((each for each in times if each is not None), default=0.0)
    wish.keep_s = max(wish.keep_s, min(keep_s, MAX_KEEP_S))
    return "accepted" if 0 < keep_s <= MAX_KEEP_S else "clipped"


def _evict(wish, payload):
    wish.hint, wish.keep_s = "unlikely", 0.0
    return "accepted"


def _fetch(wish, payload):
    wish.load = True
    return "accepted"


_ACTIONS = {"kv.retain": _retain, "kv.evict": _evict, "kv.fetch": _fetch}


class Wishes:
    """Of one engine."""

    def __init__(self, counts):
        """@counts: of OUTCOMES, each as wishes_NAME."""
        self._counts = counts
        self._said = set()

    def of(self, envelope, request_id):
        """The Wish of a request with this envelope, or None."""
        if envelope is None:
            return NONE
        wish = Wish()
        for action in list(getattr(envelope, "actions", None) or ())[:MAX_ACTIONS]:
            kind, version = str(getattr(action, "action_type", "")), str(getattr(action, "action_version", ""))
            payload = getattr(action, "payload", None)
            do = _ACTIONS.get(kind)
            if do is None or version.split(".")[0] not in ("0", "1") or not isinstance(payload, dict):
                outcome = "unknown"
            elif payload.get("block_hashes"):
                outcome = "rejected"
            else:
                outcome = do(wish, payload)
            self._count(outcome, kind, version, request_id)
        return wish

    def _count(self, outcome, kind, version, request_id):
        self._counts["wishes_" + outcome] += 1
        said = (outcome, kind[:64], version[:16])
        if outcome in ("unknown", "rejected") and said not in self._said and len(self._said) < MAX_ACTIONS:
            self._said.add(said)
            logger.info("kvscout: request %s: the KV hint %s %s is %s; this is said once", request_id, *said[1:], outcome)
