# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side. One object, in the process of vLLM's scheduler, called by its one thread; owns the Client.

A request's life here: on_new_request() asks ahead; matched_tokens() reads the answer, step after step until it is
there; allocated() admits the range that will be loaded; build_meta() sends loads, and with each step the chunks that
the step completes; finished() ends it. Nothing raises for a reason that lies outside the engine: without a server there
are no hits.

vLLM often tells of a request microseconds before it asks for it, and a request without an answer misses its step. So a
step that is the first to ask for requests waits for their answers: step_wait_us at most, all of its requests together.
That is the only wait in here. When one has run out, no step waits until an answer to a pending lookup has come: a
server that stands still costs one wait, and not one in each step.

New requests come in bursts, between two steps, and to wake the client's thread costs several times what else is done
for a request. So of those between two steps the first one wakes it, and then one in QUIET_S; the others go with the
step, for vLLM takes none of them without one.
"""

import logging
import time

from . import adapters
from .metadata import Load, Metadata, Store, WorkerMetadata
from .older import Older
from .pins import Pins
from .request import MAX_FAILED_LOADS, Tracked
from .stats import HookTimes, new_counts
from .times import Times

logger = logging.getLogger("vllm.kvscout")


class Scheduler:
    QUIET_S = 0.005

    def __init__(self, config, groups, make_client, ranks, errors, make_tenant, hints, spans=None, events=None):
        """@groups: of groups.py. @make_client(namespace): see join(). @ranks: worker processes that report each store. @errors:
        kvscout's exceptions. @make_tenant: of a request's salt. @hints: of requests that bring none (hints.py). @spans: of spans.py, or None.
        @events: of events.py, or None."""
        self._config = config
        self._groups = groups
        self._make_client = make_client
        self._client = None  # until join()
        self._namespace = None
        self._error = errors
        self._make_tenant = make_tenant
        self._hints = hints
        self._spans = spans
        self._events = events
        self._run_tokens = groups.hash_tokens
        self._stride = groups.stride
        self._requests = {}
        self._pins = Pins(ranks)
        self._older = Older()
        self._adapters = adapters.Adapters(ranks)
        self._manager = None
        self._loads = []
        self._generation = 0
        self._weights_version = config.weights_version
        self._new_weights = 0  # workers are to be told
        self._next_store_number = 1
        self._failures_seen = {}
        self._settled = self._void = 0  # numbers of stores; see held.py
        self._quiet_until = 0.0  # of the new requests before the next step none wakes the client until then
        self._in_step = False
        self._steps = 0
        self._wait_left_us = 0  # of this step's budget
        self._answers_come = True  # no wait has run out since the last answer to a pending lookup
        self._is_out = True  # of the cache: not in a namespace yet, or workers told two
        self._may_store = False
        self._last_log = 0.0
        self._suppressed = 0
        self.watch = None  # of watch.py, from join() on
        self.counts = new_counts()
        self.waits = Times()  # of requests for their answers
        self.times = HookTimes()

    # ---- what vLLM calls --------------------------------------------------------------------------------------------

    def bind(self, kv_cache_manager):
        self._manager = kv_cache_manager
        self._pins.bind(kv_cache_manager.block_pool)
        self._older.bind(kv_cache_manager)
        if self._events is not None:
            self._events.bind(kv_cache_manager.block_pool)
        self._null_block = kv_cache_manager.block_pool.null_block.block_id

    def on_new_request(self, request):
        tracked = Tracked(request, self._make_tenant(request.cache_salt))
        self._requests[request.request_id] = tracked
        if tracked.lora is not None:
            tracked.identity = self._adapters.of(tracked.lora)
        tracked.may_read = self._may_read(tracked)
        if not tracked.may_read:
            return
        self._begin_step()
        self._ask_ahead(tracked)
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + self.QUIET_S
            self._end_step()  # send it now, with what ended since the last step

    def matched_tokens(self, request, computed):
        """How many tokens after the @computed ones can be loaded; None: not known yet."""
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            return 0
        if tracked.scheduled:
            # Preempted, or its load failed and left nothing.
            self._finish_lookup(tracked)
            self._begin_turn(tracked)
        if not tracked.may_read or tracked.failed_loads >= MAX_FAILED_LOADS:
            return 0
        first = not tracked.asked
        if first:
            tracked.asked_s = time.monotonic()
        tracked.asked = True
        tracked.computed = computed
        hit = self._ask(tracked, computed)
        if first:
            self.counts["asked"] += 1
            if hit is None and self._wait():
                hit = self._ask(tracked, computed)
                # An answer that came while this thread had no CPU is not late.
                self._answers_come = self._answers_come or hit is not None
            self.counts["answered_at_first_ask"] += hit is not None
        elif hit is not None and tracked.hit is None:
            self._answers_come = True
        if hit is None:
            return None
        if tracked.hit is None:
            tracked.hit = hit
            self._answered(tracked, time.monotonic() - tracked.asked_s)
        tracked.hit = hit
        return max(0, hit.tokens - computed)

    def _answered(self, tracked, waited_s):
        self.waits.add("lookup_seconds", waited_s)
        if self._spans is not None:
            tiers = self.hit_sources(tracked.request, tracked.hit.tokens)
            self._spans.lookup(tracked.request, waited_s, tracked.computed, tracked.hit, tiers)

    def _trace(self, tracked):
        return tracked.request.trace_headers if self._spans is not None else None

    def allocated(self, request, block_ids, external):
        """@block_ids: all blocks of @request, by vLLM's number of the group. @external: tokens that are to be loaded,
        at most what matched_tokens() said."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or tracked.scheduled:
            return  # the second call for an asynchronous load
        tracked.scheduled = True
        tracked.allocated_in = self._steps
        if self._older and self._older.allocated(request.request_id, block_ids):
            tracked.may_store = False
        hit = tracked.hit
        if hit is None:
            self._finish_lookup(tracked)
            return
        begin, end = tracked.computed, tracked.computed + external
        tracked.next_store = max(tracked.next_store, self._found_tokens(hit))
        self._admit(tracked, begin, end if external else begin)
        if not external:
            return
        tracked.loaded = external
        self._loads.append(
            Load(
                request.request_id,
                hit.ticket,
                begin,
                end,
                self._groups.blocks(block_ids, begin, end),
                self._config.load_async,
                tracked.adapter,
                self._trace(tracked),
            )
        )
        if self._events is not None:
            self._describe_loaded(tracked, begin, end)
        self.counts["loads"] += 1
        self.counts["load_tokens"] += external
        self.counts["load_tokens_l2"] += self.hit_sources(request, external)[1]

    def hit_sources(self, request, external):
        """@external tokens by tier: (from host memory, from L2)."""
        tracked = self._requests.get(request.request_id)
        hit = tracked.hit if tracked is not None else None
        if hit is None or not hit.chunks:
            return external, 0
        # As often as not, chunks in L2 come after chunks in memory, so L2's share of the objects is its share of the
        # tokens. With one group an object is a chunk.
        objects = hit.chunks if self._groups.is_one_run else max(1, hit.l1_chunks + hit.l2_chunks)
        from_l2 = external * hit.l2_chunks // objects
        return external - from_l2, from_l2

    def build_meta(self, scheduler_output):
        meta = Metadata(
            loads=self._loads, generation=self._generation, weights_version=self._new_weights,
            failures_seen=dict(self._failures_seen), settled=self._settled, void=self._void,
            adapters=self._adapters.take_questions(),
        )
        self._loads = []
        self._generation = self._new_weights = 0
        if self._may_store:
            self._add_all_stores(meta, scheduler_output)
        preempted = getattr(scheduler_output, "preempted_req_ids", None) or ()
        for request_id in preempted:
            self._preempted(request_id)
        if self._older:
            self._older.end_step(preempted)
        if self._events is not None and not self._is_out:
            self._events.read(self._client)
        self._end_step()
        self._quiet_until = 0.0
        self._steps += 1
        return meta

    def take_events(self):
        """KV events since the last step, as vLLM's objects."""
        return self._events.take(self._client) if self._events is not None and not self._is_out else ()

    def worker_output(self, meta, load_failed=False):
        """@load_failed: of any connector, in this step."""
        if load_failed:
            # Of this step and of those after it that vLLM has scheduled before it heard of the failure.
            self._void = self._next_store_number - 1
        if not isinstance(meta, WorkerMetadata):
            return
        if meta.namespaces:
            self.join(meta.namespaces)
        self._settled = max(self._settled, meta.held)
        for number, parts in meta.adapters.items():
            self._adapters.told(number, parts)
        for number, ranks in meta.stored.items():
            self._pins.give_back(number, ranks)
        for request_id, token in meta.not_stored.items():
            tracked = self._requests.get(request_id)
            if tracked is not None:
                self._store_from(tracked, token)
        for request_id, token in meta.failed_loads.items():
            self._load_failed(request_id, token)
        self._failures_seen.update(meta.failures)

    def join(self, namespaces):
        """@namespaces: of the workers, which have computed it (identity.py); before the first request by vLLM's handshake. Beside
        another connector vLLM hands over the handshake of one of them only, and then it comes with the first step."""
        if self._client is None and len(namespaces) == 1:
            (self._namespace,) = namespaces
            self._client = self._make_client(self._namespace)
            self._is_out, self._may_store = False, self._config.may_write
        elif namespaces != {self._namespace}:
            self._stay_out(namespaces)

    def _stay_out(self, namespaces):
        """The server would keep what nobody asks for."""
        self._is_out, self._may_store = True, False
        for tracked in self._requests.values():
            tracked.may_read = tracked.may_store = False
        logger.error(
            "kvscout: this engine neither loads nor stores KV, because its workers are in different namespaces: %s. Please "
            "report the model and the flags of vLLM",
            ", ".join(sorted(namespaces | {self._namespace} - {None})),
        )

    def finished(self, request):
        tracked = self._requests.pop(request.request_id, None)
        if tracked is None:
            return
        if self._older.ended(request.request_id):
            self._count_older()
            logger.info("kvscout: the last request from before the reset has ended: all requests store again")
        # Many requests may end in one step: what they give back travels with the next step, or with the next request if
        # that comes first. vLLM takes a step for the ended ones even if there is nothing to schedule.
        if self._client is None:
            return
        self._begin_step()
        hint = tracked.params.hint or self._hints.of(request)
        if hint is None:
            self._finish_lookup(tracked)
        else:
            self._finish_with_hint(tracked, hint)

    def reset(self):
        """Drop everything that is cached, for all engines of the namespace.

        With a weights_version, a reset is the next number: other engines that have one join by a reset of their own, and until then the
        server refuses what they computed with the number before. Without one, it is a new generation, which only this engine joins.
        """
        if self._client is None:
            logger.warning("kvscout: the cache was not cleared: this engine's workers have not told its namespace yet")
            return False
        self._end_step()  # requests may be paused: it waits for no step
        try:
            if self._weights_version:
                self._client.reset(self._weights_version + 1)
                self._weights_version = self._new_weights = self._weights_version + 1
            else:
                self._generation = self._client.clear()
        except self._error as error:
            logger.warning("kvscout: the cache was not cleared: %s", error)
            return False
        self._older.begin(request_id for request_id, tracked in self._requests.items() if tracked.scheduled)
        for request_id, tracked in self._requests.items():
            if request_id in self._older:
                tracked.may_store = False  # its KV was computed before
            else:
                self._begin_turn(tracked)  # its lookup ended with the clear
        self._count_older()
        self._adapters.forget()
        logger.info(
            "kvscout: cleared the cache of this namespace%s%s",
            self._number(),
            f"; {len(self._older)} requests from before go on, and store nothing" if self._older else "",
        )
        return True

    def _count_older(self):
        self.counts["older_requests"] = len(self._older)

    def _number(self):
        if not self._weights_version:
            return ""
        return f"; its weights_version is now {self._weights_version}, and engines with another one neither load nor store"

    def has_pending_stores(self):
        return len(self._pins) > 0

    def pins_hold_back_blocks(self):
        return self._pins.hold_back_blocks()

    def close(self):
        if self.watch is not None:
            self.watch.close()
        if self._client is not None:
            self._client.close()

    # ---- lookups ----------------------------------------------------------------------------------------------------

    def _begin_turn(self, tracked):
        tracked.begin_turn()
        if tracked.request.request_id in self._older:
            tracked.may_store = False
        tracked.may_read = self._may_read(tracked)

    def _may_read(self, tracked):
        """A prompt that is shorter than the shortest hit is no question."""
        request = tracked.request
        return (
            self._config.may_read
            and not self._is_out
            and tracked.identity is not None
            and not tracked.params.skip_read
            and not request.skip_reading_prefix_cache
            and request.num_tokens >= self._groups.step_tokens
        )

    def _ask_ahead(self, tracked):
        request = tracked.request
        try:
            hashes, stride = self._hashes(tracked)
            self._client.lookup_ahead(
                tracked.lookup_id,
                hashes,
                request.num_tokens,
                tenant=tracked.tenant,
                expect_tokens=tracked.params.expect_tokens,
                stride=stride,
            )
            tracked.known = True
        except self._error as error:
            self._say(tracked, "asking ahead", error)

    def _hashes(self, tracked):
        """(hashes, how many of them for a key). With an adapter they are the keys."""
        hashes = tracked.request.block_hashes
        if not tracked.identity:
            return hashes, self._stride
        return adapters.keys(tracked.identity, hashes[self._stride - 1 :: self._stride]), 1

    def _preempted(self, request_id):
        """It will be asked for again, in the next step at the earliest: ask ahead. Not if this very step has
        allocated blocks for it again."""
        tracked = self._requests.get(request_id)
        if tracked is None or not tracked.scheduled or tracked.allocated_in == self._steps:
            return
        self._finish_lookup(tracked)
        self._begin_turn(tracked)
        if tracked.may_read:
            self._ask_ahead(tracked)

    def _ask(self, tracked, computed):
        """The answer, or None: not yet. A question that cannot be asked is a miss."""
        request = tracked.request
        self._begin_step()
        try:
            if tracked.known:
                # By its id: its hashes may have grown since it was asked ahead, and the question is the same one.
                return self._client.poll(tracked.lookup_id, computed)
            hashes, stride = self._hashes(tracked)
            hit = self._client.try_lookup(
                tracked.lookup_id,
                hashes,
                request.num_tokens,
                computed_tokens=computed,
                tenant=tracked.tenant,
                expect_tokens=tracked.params.expect_tokens,
                stride=stride,
            )
            tracked.known = True
            return hit
        except self._error as error:
            tracked.known = False
            self._say(tracked, "asking", error)
            self.counts["lookup_errors"] += 1
            return _NOTHING

    def _wait(self):
        """Wait for what this step was the first to ask for, within its budget. Whether it is worth while to ask
        again."""
        if self._wait_left_us <= 0 or not self._answers_come:
            return False
        begin = time.perf_counter_ns()
        try:
            self._answers_come = self._client.step_wait(self._wait_left_us)
        except self._error:  # asking again has the same error, and says so
            return False
        took_us = (time.perf_counter_ns() - begin) // 1000
        self._wait_left_us -= took_us
        self.counts["waits"] += 1
        self.counts["wait_us"] += took_us
        return True

    def _admit(self, tracked, begin, end):
        if tracked.hit is _NOTHING:
            return
        try:
            self._client.admit(tracked.lookup_id, begin, end)
        except self._error as error:
            # The answer was of a server that is gone, or a clear ended the lookup: the load names all its blocks as
            # missing.
            self._say(tracked, "admitting", error)

    def _finish_lookup(self, tracked):
        if self._client is None:
            return
        try:
            self._client.finish(tracked.lookup_id)
        except self._error as error:
            self._say(tracked, "finishing", error)

    def _finish_with_hint(self, tracked, hint):
        try:
            self._client.finish_hint(tracked.lookup_id, hint)
            self.counts["hints_" + hint] += 1
        except self._error as error:
            self._say(tracked, f"finishing with the hint {hint!r}", error)

    def _begin_step(self):
        """Lookups of one schedule() travel together: the first one, or the end of a request before, opens the step,
        build_meta() closes it."""
        if not self._in_step:
            self._in_step = True
            self._wait_left_us = self._config.step_wait_us
            self._client.step_begin()

    def _end_step(self):
        if self._in_step:
            self._in_step = False
            self._client.step_end()

    def _load_failed(self, request_id, token):
        tracked = self._requests.get(request_id)
        self.counts["failed_loads"] += 1
        if tracked is None:
            return
        tracked.failed_loads += 1
        # The engine computes it again, and then it can be stored again.
        self._store_from(tracked, token)

    # ---- stores -----------------------------------------------------------------------------------------------------

    def _found_tokens(self, hit):
        """How many leading tokens are cached. A hit of one run may be one token short of the end of its last chunk."""
        return hit.chunks * self._run_tokens if self._groups.is_one_run else hit.tokens

    def _store_from(self, tracked, token):
        """@token is not in the cache."""
        tracked.next_store = min(tracked.next_store, token // self._run_tokens * self._run_tokens)

    def _add_all_stores(self, meta, scheduler_output):
        """A step that decodes completes a chunk for few of its requests: the others take no more than this look."""
        run = self._run_tokens
        offers = getattr(scheduler_output.kv_connector_block_state, "boundary_state_offloads", {}) if self._groups.states else {}
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            tracked = self._requests.get(request_id)
            if (
                tracked is not None
                and tracked.request.num_computed_tokens + tokens >= tracked.next_store + run
                and tracked.may_store
            ):
                self._add_stores(meta, tracked, tokens, offers.get(request_id, ()))

    def _add_stores(self, meta, tracked, tokens, offers):
        request = tracked.request
        if tracked.identity is None:
            tracked.identity = self._adapters.of(tracked.lora)
            if tracked.identity is None:
                return
        known = request.num_prompt_tokens if self._config.store == "prompt" else request.num_tokens
        # Behind the known tokens lie drafts and placeholders, whose hashes do not exist yet.
        runs = min(
            min(request.num_computed_tokens + tokens, known) // self._run_tokens,
            len(request.block_hashes) // self._stride,
        )
        begin, end = tracked.next_store, runs * self._run_tokens
        if end <= begin:
            return
        self._add_store(meta, tracked, begin, end, offers)
        tracked.next_store = end

    def _add_store(self, meta, tracked, begin, end, offers):
        """Store what ends in the tokens @begin..@end. vLLM frees the blocks before a window, and an object that lost one
        is left out (see UNITS in groups.py). @offers: states of recurrent layers."""
        groups, stride, run, null = self._groups, self._stride, self._run_tokens, self._null_block
        ids_from = begin - begin % groups.span_tokens
        ids = groups.blocks(self._manager.get_block_ids(tracked.request.request_id), ids_from, end)
        if groups.states:
            groups.keep_states(ids, ids_from, offers, null)
        pinned = []
        for own in ids.values():
            pinned += [block for block in own if block != null] if null in own else own
        if not pinned:
            return
        number = self._next_store_number
        self._next_store_number += 1
        first, last = begin // run, end // run
        hashes = list(map(bytes, tracked.request.block_hashes[(first + 1) * stride - 1 : last * stride : stride]))
        if tracked.identity:
            hashes = adapters.keys(tracked.identity, hashes)
        self._pins.take(number, pinned)
        descriptions = None
        if self._events is not None:
            descriptions = self._events.describe(tracked.request, begin, end, run)
            self._events.keep(tracked.tenant, hashes, descriptions)
        meta.stores.append(
            Store(
                number, tracked.request.request_id, tracked.ticket, hashes, begin, ids, ids_from, tracked.tenant, tracked.adapter,
                self._trace(tracked), descriptions=descriptions,
            )
        )
        self.counts["stores"] += 1
        self.counts["store_chunks"] += last - first

    def _describe_loaded(self, tracked, begin, end):
        run = self._run_tokens
        hashes, stride = self._hashes(tracked)
        first, last = begin // run, -(-end // run)
        self._events.loaded(tracked, first * run, last * run, hashes[(first + 1) * stride - 1 : last * stride : stride], run)

    # ---- log --------------------------------------------------------------------------------------------------------

    def _say(self, tracked, what, error):
        """At most one line in ten seconds, with a count of the suppressed ones."""
        now = time.monotonic()
        if now - self._last_log < 10.0:
            self._suppressed += 1
            return
        self._last_log = now
        more = f" ({self._suppressed} lines like this were suppressed)" if self._suppressed else ""
        self._suppressed = 0
        logger.warning(
            "kvscout: %s for request %s failed, so it is computed: %s%s", what, tracked.request.request_id, error, more
        )


class _Nothing:
    """The answer to a question that could not be asked."""

    tokens = ticket = chunks = l1_chunks = l2_chunks = 0
    reason = "error"


_NOTHING = _Nothing()
