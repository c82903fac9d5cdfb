# SPDX-License-Identifier: Apache-2.0
"""KV events: the engine announces to routers what it can have from kvscout, with vLLM's own objects. Scheduler's process.

With --kv-events-config each store says of its objects what a router needs (descriptions.py); the server's feed brings that to all engines
of the namespace (feed.py), and vLLM asks for the events of each step. Without it there is no object of this class.

Removals are named one by one. AllBlocksCleared, which would be shorter, tells routers to forget what is in the GPU as well. vLLM itself
sends it when its own prefix cache is reset, and routers then forget our part, too: so all of that is announced again.

Two prompts that part in the middle of a chunk have two chunks with the same first blocks. llm-d's router counts how often a block was
announced, Dynamo's indexer does not. So a block is announced with the first of its chunks, and removed with the last one.

A router that comes late asks vLLM for its last batches (replay_endpoint). Of Dynamo it does so when it gets one, and older ones are lost. So
some chunks are announced again every REPEAT_S, in turn: removed and stored, which changes no count.

vLLM asks for events in steps, and takes steps for requests. So after a second without one a thread reads the server's feed. If that gives
something to announce, it wakes vLLM's loop, which takes one empty step for each batch of events. What vLLM calls and this thread hold the same
lock (faults.py): a client of kvscout has one caller at a time.

What routers take: one group with full attention. Objects of others (windows, states) are cached, and not announced.
"""

import logging
import threading
import time

from . import descriptions, feed, internals

logger = logging.getLogger("vllm.kvscout")

LOOK_S = 1.0
REPEAT_S = 10.0
REPEATED = 64  # chunks
_PROBE = bytes(range(32))
_MEDIA = {feed.L1: "CPU", feed.L2: "STORAGE"}


def of_engine(vllm_config, kv_cache_config, groups, may_read, errors):
    """Events, or None."""
    if not getattr(getattr(vllm_config, "kv_events_config", None), "enable_kv_cache_events", False):
        return None
    number = next((n for n, group in enumerate(groups) if group.policy == "all"), None)
    if number is None:
        logger.warning("kvscout: no KV events, because this model has no layers with full attention, the only ones that routers look at")
        return None
    return Events(_Vllm(kv_cache_config.kv_cache_groups[groups[number].engine_number].kv_cache_spec), groups, number, may_read, errors)


class _Vllm:
    """What events need of vLLM."""

    def __init__(self, spec):
        from vllm.distributed.kv_events import BlockRemoved, BlockStored
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window

        self.hash = kv_cache_utils.maybe_convert_block_hash
        self.extra_keys = kv_cache_utils.generate_block_hash_extra_keys
        self.untag = kv_cache_utils.to_event_extra_keys
        self.stored, self.removed = BlockStored, BlockRemoved
        self.about = {
            "kv_cache_spec_kind": get_kv_cache_spec_kind(spec).value,
            "kv_cache_spec_sliding_window": get_kv_cache_spec_sliding_window(spec),
        }


def _has_extra_keys(request):
    """Few have any. What vLLM makes them of: an adapter, a salt, images, embeddings."""
    return bool(request.lora_request or request.cache_salt or request.mm_features) or request.prompt_embeds is not None


class Idle:
    """What Events of connector and tier have in common."""

    wants_step = False  # vLLM's loop asks before it waits
    _stepped = True
    _end = _thread = None
    _book: feed.Book

    def watch_idle(self, faults, client):
        """@faults: of the hooks. @client(): what they read, None: nothing can be announced."""
        wake = internals.waker()
        if wake is None:
            logger.info("kvscout: while this engine is idle nothing is announced, because it has no loop that kvscout knows how to wake")
            return
        faults.lock = threading.RLock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(faults, client, wake), name="kvscout-events", daemon=True)
        self._thread.start()

    def read(self, client):
        self.wants_step, self._stepped = False, True
        self._book.read(client)

    def is_due(self):
        """Whether take() would have something."""
        return self._book.has_changes()

    def end_take(self):
        self.wants_step = self._thread is not None and self.is_due()

    def _run(self, faults, client, wake):
        while not self._end.wait(LOOK_S):
            with faults.lock:
                if not self._stepped and not self.wants_step and client() is not None:
                    faults.attempt(self.read, client())
                    self.wants_step = self.is_due()
                    if self.wants_step:
                        wake()
                self._stepped = False

    def close(self):
        if self._thread is not None:
            self._end.set()
            self._thread.join()


class Events(Idle):
    def __init__(self, vllm, groups, number, may_read, errors, clock=time.monotonic):
        """@vllm: a _Vllm. @number: of the group that is announced. @may_read: else this engine can have nothing."""
        group = groups[number]
        self._vllm = vllm
        self._engine_group = group.engine_number
        self._block = group.block_tokens
        self._unit = group.unit_tokens
        self._hash_block = groups.hash_tokens // groups.stride
        self._ints = vllm.hash(_PROBE) == int.from_bytes(_PROBE[-8:], "big")  # else the hashes themselves
        self._may_read = may_read
        self._book = feed.Book(errors, number, ends=descriptions.ends_of)
        self._chunks_with = {}  # (medium, block): number of announced chunks
        self._manager = self._table = None
        self._told_error = False
        self._clock = clock
        self._repeat_at = clock() + REPEAT_S

    def bind(self, kv_cache_manager):
        self._manager = kv_cache_manager
        self._table = internals.hash_table(kv_cache_manager)

    # ---- what stores say --------------------------------------------------------------------------------------------

    def describe(self, request, begin, end, run):
        """Of @request's tokens @begin..@end: a description for each @run of tokens, empty where no object of the group ends."""
        return [
            self._of_object(request, stop - self._unit, stop) if not stop % self._unit else b"" for stop in range(begin + run, end + 1, run)
        ]

    def keep(self, tenant, hashes, said):
        for key, description in zip(hashes, said, strict=True):
            if description:
                self._book.keep(tenant, key, description)

    def loaded(self, tracked, begin, end, keys, run):
        """A hit at the tokens @begin..@end, at whose runs are @keys. What came back from L2 has no description at the server any more."""
        for key, stop in zip(keys, range(begin + run, end + 1, run), strict=False):
            if not stop % self._unit and self._book.lacks(tracked.tenant, key):
                self._book.keep(tracked.tenant, key, self._of_object(tracked.request, stop - self._unit, stop))

    def _of_object(self, request, begin, end):
        step = self._block // self._hash_block
        hashes = request.block_hashes[begin // self._hash_block + step - 1 : end // self._hash_block : step]
        parent = request.block_hashes[begin // self._hash_block - 1] if begin else None
        lora = request.lora_request
        return descriptions.encode(
            descriptions.Description(
                [self._sent(own) for own in hashes],
                None if parent is None else self._sent(parent),
                request.all_token_ids[begin:end],
                self._block,
                None if lora is None else lora.lora_int_id,
                None if lora is None else lora.lora_name,
                self._extra_keys(request, begin, end) if _has_extra_keys(request) else None,
            )
        )

    def _sent(self, own):
        """As events name it, so that nothing is sent for nothing."""
        return bytes(own[-8:]) if self._ints else bytes(own)

    def _extra_keys(self, request, begin, end):
        found, image = [], 0
        for block in range(begin, end, self._block):
            own, image = self._vllm.extra_keys(request, block, block + self._block, image)
            found.append(own)
        return self._vllm.untag(found)

    # ---- each step --------------------------------------------------------------------------------------------------

    def read(self, client):
        """Twice in a step, so that what was there when the step began is announced with it."""
        if not self._may_read:
            return
        super().read(client)
        if self._book.error is not None and self._book.error.name == "SCOUT_ERR_UNSUPPORTED" and not self._told_error:
            self._told_error = True
            logger.warning("kvscout: no KV events, because the server has no feed: %s", self._book.error)

    def take(self, client):
        """vLLM's events since the last step."""
        self.read(client)
        table = internals.hash_table(self._manager)
        if table is not self._table:  # vLLM's reset puts a new one there, and announces AllBlocksCleared
            self._table = table
            self._chunks_with.clear()
            self._book.announce_anew()
        removed, stored = self._book.changes()
        found = [*self._removals(removed), *filter(None, (self._stored(*change) for change in stored)), *self._repeats()]
        self.end_take()
        return found

    def is_due(self):
        return self._book.has_changes(self._clock() >= self._repeat_at)

    def _repeats(self):
        if self._clock() < self._repeat_at:
            return
        self._repeat_at = self._clock() + REPEAT_S
        for medium, said in self._book.to_repeat(REPEATED):
            found = self._readable(said)
            if found is not None:
                yield self._removed(medium, self._names(found.hashes))
                yield self._event(medium, found, 0)

    def _removals(self, removed):
        by_medium = {}
        for medium, said in removed:
            gone = by_medium.setdefault(medium, [])
            for block in self._names(descriptions.hashes_of(said)):
                left = self._chunks_with.pop((medium, block), 0) - 1
                if left > 0:
                    self._chunks_with[medium, block] = left
                elif left == 0:
                    gone.append(block)
        for medium, hashes in by_medium.items():
            if hashes:
                yield self._removed(medium, hashes)

    def _removed(self, medium, hashes):
        return self._vllm.removed(block_hashes=hashes, medium=_MEDIA[medium], group_idx=self._engine_group)

    def _names(self, hashes):
        """As vLLM's own events name blocks. Its function looks into the environment each time."""
        return [int.from_bytes(own[-8:], "big") for own in hashes] if self._ints else list(map(self._vllm.hash, hashes))

    def _readable(self, said):
        found = descriptions.decode(said)
        if found is None or not self._ints and len(found.hashes[0]) == 8:
            return None  # of an engine that names blocks by numbers
        return found

    def _stored(self, medium, said):
        found = self._readable(said)
        if found is None:
            return None
        n_known = 0  # its first ones
        for at, block in enumerate(self._names(found.hashes)):
            self._chunks_with[medium, block] = others = self._chunks_with.get((medium, block), 0) + 1
            n_known += others > 1 and at == n_known
        return self._event(medium, found, n_known) if n_known < len(found.hashes) else None

    def _event(self, medium, found, first):
        """Of @found's blocks from the @first one on."""
        parent = found.hashes[first - 1] if first else found.parent
        return self._vllm.stored(
            block_hashes=self._names(found.hashes[first:]),
            parent_block_hash=None if parent is None else self._names([parent])[0],
            token_ids=found.tokens[first * found.block_tokens :],
            block_size=found.block_tokens if found.tokens else 0,
            lora_id=found.lora_id,
            medium=_MEDIA[medium],
            lora_name=found.lora_name,
            extra_keys=found.extra_keys and found.extra_keys[first:],
            group_idx=self._engine_group,
            **self._vllm.about,
        )
