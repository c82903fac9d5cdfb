# SPDX-License-Identifier: Apache-2.0
"""Whether what this rank computes, and what SGLang still holds, is KV of the weights whose identity is in the namespace.

SGLang tells its storage neither of new weights (update_weights_from_...), nor whether it dropped its own cache for them (flush_cache=False
keeps it). The storage lives in the process that holds this rank's model, so SGLang's own methods that write weights or drop the cache are
wrapped there:

  a write begins  No load, no store. Loads that requests wait for are given up, or they would bring KV of the old weights into a cache
                  that a trainer flushed before the update. Stores that run copy pages of before; queued ones are refused with the rest.
  a write ends    What SGLang computes now stands on the KV that it holds, and is of neither weights. So nothing is loaded or stored until
                  it drops its cache. If it did so before the write, and has neither computed nor loaded since, it holds nothing.
  a cache drops   What SGLang holds from now on is of the weights that it has now. They are read: if they are those of the namespace, all
                  goes on; else the storage has to be attached again.

From begin_weight_update to end_weight_update is one write, and so is the time in which the weights' memory is released, when nothing may
read it. Each public method of SGLang's WeightUpdater counts but those that are known to write nothing, so none that a release adds is
missed. If these methods are not there, nothing is loaded or stored. What a user's code writes past them is noticed when the cache drops.

Dropped: a digest for each batch. One of all bytes costs too much, a sample misses small updates, and neither says what the cache holds.
"""

import functools
import inspect
import logging
import threading

logger = logging.getLogger("kvscout")

_WRITE_NOTHING = ("init_weights_update_group", "destroy_weights_update_group", "receive_weights_from_distributed")
_WRITE = {"update_weights_from_disk", "update_weights_from_tensor", "load_weights_from_distributed", "update_weights_from_ipc"}
_BEGIN = {"begin_weight_update": "end_weight_update", "pause": "resume"}
_END = {end: begin for begin, end in _BEGIN.items()}
_UNTIL_ATTACHED = (
    "the weights of this engine have changed. It neither loads nor stores KV until its storage is detached and attached again (DELETE and "
    "PUT of /hicache/storage-backend), which finds the namespace of the new weights"
)
_CHANGING = "the weights of this engine are being changed. It neither loads nor stores KV until that has ended"
_MIXED = (
    "the weights of this engine may have changed, and its own cache may still hold KV of the old ones. It neither loads nor stores KV until "
    "that cache is flushed (POST /flush_cache)"
)
_all = []  # Writes; SGLang has one scheduler in each process
_wrappers = set()


class Writes:
    """What was written to the weights of the engine of a scheduler, as SGLang's scheduler thread tells it. Others read."""

    def __init__(self, scheduler, runners, controller):
        self._scheduler = scheduler
        self._open = set()
        self.state = (0, 0)  # events, and how often the cache was dropped
        # An engine that is older than this object may have had other weights, and its cache KV of them.
        self.from_start = bool(getattr(scheduler, "is_initializing", False))
        self.is_mixed = not self.from_start
        self._empty_at = 0 if self.from_start else None  # SGLang's number of the forward pass at which its cache was empty
        self.unknown = None
        try:
            _wrap_all(runners(scheduler), controller)
        except Exception as error:
            self.unknown = f"SGLang does not show where it changes weights ({error}). This engine neither loads nor stores KV"
        _all.append(self)

    def why_not(self):
        """Why nothing may be loaded or stored, whatever the weights are now; or None."""
        return self.unknown or (_CHANGING if self._open else _MIXED if self.is_mixed else None)

    def untouched(self):
        """Whether the weights are those that were loaded from the model's files at the start."""
        return self.from_start and self.state[0] == 0

    def begin(self, what):
        self._open.add(what)
        self.state = (self.state[0] + 1, self.state[1])
        tree = getattr(self._scheduler, "tree_cache", None)
        try:
            staged = getattr(getattr(tree, "buffer_pipeline", None), "staged_prefetches", ())
            for request in [*tree.ongoing_prefetch, *staged] if tree is not None else ():
                tree.release_aborted_request(request)
        except Exception:
            logger.exception("kvscout: loads that had begun before the weights changed were not given up")

    def end(self, what):
        self.is_mixed |= self._empty_at is None or self._empty_at != getattr(self._scheduler, "forward_ct", None)
        self._open.discard(what)
        self.state = (self.state[0] + 1, self.state[1])  # last: then others look at the rest

    def loaded(self):
        self._empty_at = None

    def dropped(self):
        self._empty_at, self.is_mixed = getattr(self._scheduler, "forward_ct", None), False
        self.state = (self.state[0], self.state[1] + 1)


def of_scheduler(scheduler, runners, controller=None):
    """The one Writes of @scheduler. @runners(scheduler): its model runners. @controller: SGLang's HiCacheController."""
    found = getattr(scheduler, "kvscout_writes", None)
    if found is None:
        found = Writes(scheduler, runners, controller)
        if scheduler is not None:
            scheduler.kvscout_writes = found
    return found


def _wrap_all(runners, controller):
    for runner in runners:
        updater = type(runner.weight_updater)
        public = {name for name, _ in inspect.getmembers(updater, inspect.isfunction) if not name.startswith("_")}
        missing = sorted({*_WRITE, "begin_weight_update", "end_weight_update"} - public)
        if missing:
            raise AttributeError(f"{updater.__name__} has no {missing[0]}")
        for name in public.difference(_WRITE_NOTHING):
            _wrap(updater, name, _around)
        _wrap(type(runner), "check_weights", _around, lambda words: not {"snapshot", "compare", "checksum"} & words)
        for name in ("pause", "resume"):
            _wrap(type(runner.memory_saver_adapter), name, _around, lambda words: "weights" in words)
    _wrap(type(controller), "reset", _then_dropped)


def _wrap(kind, name, how, counts=lambda words: True):
    """Once for each class. @counts(words): whether a call with these texts among its arguments is a write."""
    inner = getattr(kind, name)
    if inner not in _wrappers:
        @functools.wraps(inner)
        def outer(self, *args, **named):
            words = {value for value in (*args, *named.values()) if isinstance(value, str)}
            return how(name, lambda: inner(self, *args, **named)) if counts(words) else inner(self, *args, **named)

        _wrappers.add(outer)
        setattr(kind, name, outer)


def _around(name, call):
    for writes in _all:
        writes.begin(name)
    try:
        return call()
    finally:
        for writes in _all:
            if name not in _BEGIN:
                writes.end(name)
            if name in _END:
                writes.end(_END[name])


def _then_dropped(name, call):
    found = call()
    for writes in _all:
        writes.dropped()
    return found


class Weights:
    """Of one storage: whether it may load and store now."""

    def __init__(self, writes, of_now):
        """@of_now(): what shows the weights of this moment; it raises if they cannot be read."""
        self._writes, self._of_now = writes, of_now
        self._first, self._first_events = self._look(), writes.state[0]
        self._lock = threading.Lock()
        self._seen = writes.state
        self._reason = writes.unknown
        if self._reason:
            logger.warning("kvscout: %s", self._reason)

    def are_same(self):
        with self._lock:
            state = self._writes.state
            if state != self._seen:
                reason, self._seen = self._why_not(), state
                if reason and reason != self._reason:
                    logger.warning("kvscout: %s", reason)
                self._reason = reason
            return self._reason is None and self._writes.state == state

    def _why_not(self):
        reason = self._writes.why_not()
        if reason is None:
            same = self._look() == self._first if self._first is not None else self._writes.state[0] == self._first_events
            reason = None if same else _UNTIL_ATTACHED
        return reason

    def _look(self):
        try:
            return self._of_now()
        except Exception as error:
            logger.debug("kvscout: the weights cannot be read: %s", error)
            return None
