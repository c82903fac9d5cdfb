# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side. One object, in the process of vLLM's scheduler, called by its one thread; owns the Client.

A request's life here: on_new_request() or a later step asks ahead; matched_tokens() reads the answer, step after step until it is
there; allocated() admits the range that will be loaded; build_meta() sends loads, and with each step the chunks that
the step completes; finished() ends it. Nothing raises for a reason that lies outside the engine: without a server there
are no hits.

vLLM tells of a request microseconds before it asks for it, and a request without an answer misses its step. So a
step that is the first to ask for requests waits for their answers: step_wait_us at most, all of its requests together.
That is the only wait in here. When one has run out, no step waits until an answer to a pending lookup has come: a
server that stands still costs one wait, and not one in each step.

New requests come in bursts, between two steps, and a step does little for those that it cannot take. The first AT_ONCE are asked for when
vLLM announces them, and the first one wakes the client's thread, which costs several times what else is done for a request. Of the others no
more than the announcement is kept. Each step asks ahead for A_STEP requests, in the order in which vLLM wants them, in one message. It asks
for more where vLLM takes more, but once A_STEP have no answer yet, the others wait for the next step. It begins A_STEP loads at most: for
each of them vLLM goes over all that are under way.

vLLM takes steps until the last store has ended, and pause_generation() waits for that. With a server that stands still each store would
last until transfer_timeout_ms. So if steps compute nothing and no store has ended for STALL_S, stores that do not copy yet are cancelled.
"""

import functools
import itertools
import logging
import time

from .._clears import what_is_missing
from . import adapters, inert, internals, verify, weights
from .faults import Faults
from .logs import Teller
from .metadata import NO_TICKET, Load, Metadata, Move, Store, WorkerMetadata
from .older_requests import Older
from .pins import Pins
from .request import MAX_FAILED_LOADS, Tracked
from .stats import new_counts
from .times import Times
from .wishes import NONE, Wishes, keep_ms

logger = logging.getLogger("vllm.kvscout")


class Scheduler:
    STALL_S = 1.5
    A_STEP = 24
    AT_ONCE = 8

    def __init__(self, config, groups, make_client, ranks, errors, make_tenant, hints, spans=None, events=None, keeps_out=lambda request: False):
        """@groups: of groups.py. @make_client(namespace): see join(). @ranks: worker processes that report each store. @errors:
        kvscout's exceptions. @make_tenant: of a request's salt. @hints: of requests that bring none (hints.py). @spans: of trace_spans.py, or None.
        @events: of events.py, or None. @keeps_out: whether a request neither loads nor stores (inert.py)."""
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
        self._keeps_out = keeps_out
        self._run_tokens = groups.hash_tokens
        self._stride = groups.stride
        self._requests = {}
        self._announced = []  # by vLLM since the last call
        self._asked_at_once = 0  # since the last step
        self._put_off = {}  # by id: new requests that are not asked for yet
        self._wanted = []  # of these, the first ones that vLLM wanted in this step
        self.not_in_this_step = {}  # _put_off, once this step takes no more of them
        self._asks_left = self.A_STEP
        self._unanswered = 0  # of this step's first asks
        self._looks = 0  # for an answer, of this step, once it begins no more loads
        self._pins = Pins(ranks)
        self._older = Older()
        self._adapters = adapters.Adapters(ranks)
        self._asked_weights = weights.Asked(ranks)
        self._manager = None
        self._blocks = None  # of vLLM's block pool
        self._can_store = config.may_write
        self._loads = []
        self._generation = 0
        self.weights_version = config.weights_version
        self._new_weights = 0  # workers are to be told
        self._moves = 0  # to namespaces of new weights
        self._move = None  # workers are to be told
        self._next_store_number = 1
        self._failures_seen = {}
        self._settled = self._void = 0  # numbers of stores; see worker.py
        self._in_step = False
        self._steps = 0
        self._moved = 0.0  # when a step last computed something, or a store ended
        self._wait_left_us = 0  # of this step's budget
        self._answers_come = True  # no wait has run out since the last answer to a pending lookup
        self._is_out = True  # of the cache: not in a namespace yet, or not known to be in that of the weights
        self._may_store = False
        self._is_inert = False  # out for good
        self._teller, self._alarms = (Teller(logger, name="kvscout") for _ in range(2))
        self._samples = verify.Samples(config.verify_sample)
        self._checks = {}  # by request: of verify.py, not sent
        self._compared = {}  # the same by number of the store, sent
        self.watch = None  # of server_numbers.py, from join() on
        self.counts = new_counts()
        self._wishes = Wishes(self.counts)
        self.faults = Faults(self.counts)
        self.waits = Times()  # of requests for their answers

    # ---- what vLLM calls --------------------------------------------------------------------------------------------

    def bind(self, kv_cache_manager):
        self._manager = kv_cache_manager
        if self._events is not None:
            self._events.bind(kv_cache_manager)
        try:
            self._blocks = internals.Blocks(kv_cache_manager)
        except AttributeError as error:
            self._can_store = self._may_store = False
            logger.warning("kvscout: this engine loads KV and stores none, because vLLM's block pool is another one than kvscout knows: %s", error)
        else:
            self._pins.bind(self._blocks)
            self._older.bind(self._blocks)

    def on_new_request(self, request):
        if self._asked_at_once >= self.AT_ONCE or self._put_off:
            self._announced.append(request)
            return
        self._asked_at_once += 1
        if self._take(request).known and self._asked_at_once == 1:
            self._end_step()  # send it now, with what ended since the last step

    def _put_off_announced(self):
        self._put_off.update((request.request_id, request) for request in self._announced)
        self._announced.clear()

    def _take(self, request):
        """A new request: ask ahead for it."""
        self._asks_left -= 1
        tracked = self._requests[request.request_id] = Tracked(request)
        hints = getattr(request, "kv_hints", None)
        tracked.wish = (self.faults.attempt(self._wishes.of, hints, request.request_id) if hints is not None else None) or NONE
        if request.cache_salt:
            tracked.tenant = self._make_tenant(request.cache_salt)
        if self._keeps_out(request):
            tracked.give_up()
        if tracked.lora is not None:
            if self._adapters.is_full():
                self._begin_anew()
            tracked.identity = self._adapters.of(tracked.lora)
        tracked.may_read = self._may_read(tracked)
        if tracked.may_read and not self._is_out:
            self._begin_step()
            self._ask_ahead(tracked)
        return tracked

    def _take_put_off(self, wanted, n):
        """@wanted before the others, @n in all."""
        put_off = self._put_off
        for request in [*wanted, *itertools.islice(put_off.values(), n)][:n]:
            if put_off.pop(request.request_id, None) is not None:
                self._of_request(request.request_id, self._take, request)

    def _take_wanted(self, request):
        """A request that was put off, and that vLLM asks for. None: not in this step."""
        if self._is_out or max(self._unanswered, len(self._loads)) < self.A_STEP:
            self._take_put_off([request], self.A_STEP)  # one wait for all of them
            return self._requests[request.request_id]
        self._wanted.append(request)
        if len(self._wanted) >= self.A_STEP:
            self.not_in_this_step = self._put_off
        return None

    def _end_asks(self):
        wanted, self._wanted = self._wanted, []
        self.not_in_this_step = {}
        if self._announced:
            self._put_off_announced()
        if self._is_out or not self._put_off:
            return
        self._take_put_off(wanted, max(self._asks_left, len(wanted)))
        for tracked in filter(None, (self._requests.get(request.request_id) for request in wanted)):
            self._count_asked(tracked)

    def matched_tokens(self, request, computed):
        """How many tokens after the @computed ones can be loaded; None: not known yet, or not in this step."""
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            if self._announced:
                self._put_off_announced()
            if request.request_id not in self._put_off:
                return 0
            tracked = None if self.not_in_this_step else self._take_wanted(request)
            if tracked is None:
                return None
        if tracked.scheduled:
            # Preempted, or its load failed and left nothing.
            self._finish_lookup(tracked)
            self._begin_turn(tracked)
        if not tracked.may_read or tracked.failed_loads >= MAX_FAILED_LOADS:
            return 0
        if self._is_out:
            return None if self._client is not None and self._asked_weights.answers_soon() else 0
        has_room = len(self._loads) < self.A_STEP
        if not has_room and tracked.hit is None:
            self._looks += 1
        if not has_room and (self._looks > self.A_STEP if tracked.hit is None else self._offered(tracked) > computed):
            return None
        if self._answer(tracked, computed) is None:
            return None
        found = max(0, self._offered(tracked) - computed)
        return found if has_room or not found else None

    def _answer(self, tracked, computed):
        """The hit; None: not known yet."""
        first = not tracked.asked
        if first:
            self._count_asked(tracked)
        tracked.computed = computed
        hit = self._ask(tracked, computed)
        if first:
            if hit is None and self._wait():
                hit = self._ask(tracked, computed)
                # An answer that came while this thread had no CPU is not late.
                self._answers_come = self._answers_come or hit is not None
            self.counts["answered_at_first_ask"] += hit is not None
            self._unanswered += hit is None
        elif hit is not None and tracked.hit is None:
            self._answers_come = True
        if hit is None:
            return None
        if tracked.hit is None:
            tracked.hit = hit
            self._answered(tracked, time.monotonic() - tracked.asked_s)
            tracked.sample = self._sample(tracked)
        tracked.hit = hit
        return hit

    def _count_asked(self, tracked):
        tracked.asked = True
        tracked.asked_s = time.monotonic()
        self.counts["asked"] += 1

    def _sample(self, tracked):
        """What of a hit is to be compared: once for each request."""
        hit = tracked.hit
        if hit.tokens <= tracked.computed or tracked.turn or self._blocks is None or len(self._checks) + len(self._compared) >= verify.AT_ONCE:
            return None
        hashes, stride = tracked.request.block_hashes, self._stride
        last = self._found_tokens(hit) // self._run_tokens * stride - 1
        return self._samples.choose(tracked.request.request_id, bytes(hashes[stride - 1]), bytes(hashes[last]))

    def _offered(self, tracked):
        """Leading tokens of the answer that may be loaded. Of several groups a shorter length may not be restorable."""
        if tracked.sample == verify.TAIL and self._groups.is_one_run:
            tail = self._found_tokens(tracked.hit) - self._run_tokens
            return tail if tail > tracked.computed else tracked.hit.tokens
        return 0 if tracked.sample == verify.WHOLE else tracked.hit.tokens

    def _answered(self, tracked, waited_s):
        self.waits.add("lookup_seconds", waited_s)
        if self._spans is not None:
            tiers = self.hit_sources(tracked.request, tracked.hit.tokens)
            self._spans.lookup(tracked.request, waited_s, tracked.computed, tracked.hit, tiers)

    def _trace(self, tracked):
        return tracked.request.trace_headers if self._spans is not None else None

    def _answered_by_another(self, request):
        """Connector: vLLM has not asked this one."""
        self._put_off_announced()
        if request.request_id in self._put_off:
            self._take_put_off([request], 1)
        return self._requests.get(request.request_id)

    def reads_blocks(self, external):
        return external or len(self._older) > 0

    def allocated(self, request, block_ids, external):
        """@block_ids: all blocks of @request, by vLLM's number of the group, if reads_blocks(). @external: tokens that are to be loaded, at
        most what matched_tokens() said."""
        tracked = self._requests.get(request.request_id) or self._answered_by_another(request)
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
        self._admit(tracked, begin, max(end, self._check_from(tracked, end)))
        if not external:
            return
        tracked.loaded = external
        self._loads.append(
            Load(
                request.request_id, hit.ticket, begin, end, self._groups.blocks(block_ids, begin, end), self._config.load_async,
                tracked.adapter, self._trace(tracked),
            )
        )
        if self._events is not None:
            self._describe_loaded(tracked, begin, end)
        self.counts["loads"] += 1
        self.counts["load_tokens"] += external
        self.counts["load_tokens_l2"] += self.hit_sources(request, external)[1]

    def _check_from(self, tracked, begin):
        """If all that is cached from the token @begin on is to be computed and compared, where it ends; else 0."""
        hit, request_id = tracked.hit, tracked.request.request_id
        if not begin < hit.tokens > self._offered(tracked) or request_id in self._older:
            return 0
        self._checks[request_id] = verify.Check(tracked, self._samples, begin, self._found_tokens(hit))
        self.counts["verify_tokens"] += hit.tokens - begin
        return hit.tokens

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
        """What does not fail comes first: loads have to travel, because requests wait for them."""
        meta = Metadata(
            loads=self._loads, generation=self._generation, weights_version=self._new_weights,
            failures_seen=dict(self._failures_seen), settled=self._settled, void=self._void,
            question=self._asked_weights.take_question(), moves=self._moves, move=self._move,
        )
        self._loads, self._move = [], None
        self._generation = self._new_weights = 0
        if scheduler_output.num_scheduled_tokens:
            self._moved = time.monotonic()
        meta.cancels_stores = len(self._pins) > 0 and time.monotonic() - self._moved >= self.STALL_S
        if self._may_store:
            self._add_all_stores(meta, scheduler_output)
        if self._checks and not self._is_out:
            for request_id in self._checks.keys() & scheduler_output.num_scheduled_tokens.keys():
                self._of_request(request_id, self._add_check, meta, scheduler_output, request_id)
        preempted = getattr(scheduler_output, "preempted_req_ids", None) or ()
        for request_id in preempted:
            self._of_request(request_id, self._preempted, request_id)
        if self._older:
            self._of_request(None, self._older.end_step, preempted)
        self.faults.attempt(self._end_asks)
        self._asks_left, self._asked_at_once, self._unanswered, self._looks = self.A_STEP, 0, 0, 0
        self.faults.attempt(self._end_meta, meta)
        try:
            self._end_step()
        except Exception as error:
            self.faults.tell("ending a step", error)
            for request_id in [name for name, tracked in self._requests.items() if tracked.known and tracked.hit is None]:
                self.give_up(request_id)  # its question may not have left
        self._steps += 1
        return meta

    def _end_meta(self, meta):
        meta.adapters = self._adapters.take_questions()
        if self._events is not None and not self._is_out:
            self._events.read(self._client)

    def take_events(self):
        """KV events since the last step, as vLLM's objects."""
        return self._events.take(self._client) if self._events is not None and not self._is_out else ()

    def wants_step(self):
        return self.has_pending_stores() or self._events is not None and self._events.wants_step and not self._is_out

    def watch_idle(self):
        if self._events is not None:
            self._events.watch_idle(self.faults, lambda: None if self._is_out else self._client)

    def worker_output(self, meta, load_failed=False):
        """@load_failed: of any connector, in this step."""
        if load_failed:
            # Of this step and of those after it that vLLM has scheduled before it heard of the failure.
            self._void = self._next_store_number - 1
        if not isinstance(meta, WorkerMetadata):
            return
        self._settled = max(self._settled, meta.held)
        self._failures_seen.update(meta.failures)
        if meta.stored:
            self._moved = time.monotonic()
        for number, chunks, worst in meta.compared:
            if number in self._compared:
                self._compared[number].told(chunks, worst)
        for number, ranks in meta.stored.items():
            if self.faults.attempt(self._pins.give_back, number, ranks) is not False and number in self._compared:
                self.faults.attempt(self._check_ended, number)
        for request_id, token in meta.not_stored.items():
            tracked = self._requests.get(request_id)
            if tracked is not None:
                self._store_from(tracked, token)
        for request_id, token in meta.failed_loads.items():
            self._load_failed(request_id, token)
        for number, parts in meta.adapters.items():
            self._adapters.told(number, parts)
        if meta.inert:
            self.stay_inert(meta.inert)
        if meta.namespaces or meta.parts:
            self.join(meta.namespaces, meta.parts)

    def stay_inert(self, reason):
        if not self._is_inert:
            self._is_inert = self._is_out = True
            self._may_store = False
            logger.warning(inert.line("kvscout", reason))

    def join(self, namespaces, parts=()):
        """@namespaces: of the workers, which have computed it (identity.py); before the first request by vLLM's handshake. Beside
        another connector vLLM hands over the handshake of one of them only, and then it comes with the first step.
        @parts: see weights.py."""
        if self._is_inert:
            return
        if self._client is None and len(namespaces) == 1:
            (self._namespace,) = namespaces
            self._client = self._make_client(self._namespace)
            self._set_out(False)
        elif namespaces and namespaces != {self._namespace}:
            named = ", ".join(sorted(namespaces | {self._namespace} - {None}))
            self._stay_out(f"its workers are in different namespaces: {named}")  # the server would keep what nobody asks for
        if parts:
            self._heard_of_weights(self._asked_weights.told(parts))

    def _set_out(self, is_out):
        self._is_out, self._may_store = is_out, self._can_store and not is_out

    def _stay_out(self, reason):
        self._set_out(True)
        self._asked_weights.join({})
        logger.error(
            "kvscout: this engine neither loads nor stores KV, because %s. Please report the model and the flags of vLLM", reason
        )

    # ---- faults of our own ------------------------------------------------------------------------------------------

    def _of_request(self, request_id, call, *args):
        """A part of a step. If it raises, its request goes on without the cache, and the step with the other requests."""
        try:
            call(*args)
        except Exception as error:
            self.faults.tell(call.__name__, error)
            self.give_up(request_id)

    def give_up(self, request_id):
        """A hook has failed for this request."""
        tracked = self._requests.get(request_id)
        if tracked is not None:
            tracked.give_up()
            self.faults.attempt(self._finish_lookup, tracked)
        if self._older:
            self.doubt()

    def doubt(self):
        """A hook has failed at a reset, or while requests from before it run: which blocks they leave in vLLM's own cache is not known."""
        self._older.clear()
        self._stay_out("a reset of the cache failed half-way")

    def lose(self, request, block_ids, external):
        """allocated() has failed. vLLM waits for a load of @external tokens or takes them for loaded: the workers report it as failed."""
        tracked = self._requests.get(request.request_id)
        begin = tracked.computed if tracked is not None else 0
        self.give_up(request.request_id)
        if external and not any(load.request_id == request.request_id for load in self._loads):
            blocks = list(block_ids[0][begin // self._config.block_tokens :])
            self._loads.append(Load(request.request_id, NO_TICKET, begin, begin + external, {0: blocks}, self._config.load_async))

    # ---- new weights: see weights.py --------------------------------------------------------------------------------

    def workers_called(self, name):
        """Before a call to vLLM's workers that may write weights."""
        if self._is_inert:
            return
        if self._asked_weights.called(name):
            logger.info("kvscout: new weights are coming (%s): this engine neither loads nor stores KV until finish_weight_update", name)
        self._set_out(True)

    def _heard_of_weights(self, parts):
        """@parts: digests by rank; None: not of all yet."""
        if parts is not None and not self._asked_weights.is_in(parts):
            self._move_to(weights.namespace(parts, self._config.namespace), parts)
            self._asked_weights.join(parts)
        self._set_out(parts is None)

    def _move_to(self, namespace, parts):
        self._end_step()
        client, watch = self._client, self.watch
        self._client, self._namespace = self._make_client(namespace), namespace
        for left in filter(None, (watch, client)):
            left.close()
        self._generation = self._new_weights = 0  # were of the old one
        self._moves += 1
        self._move = Move(namespace, self.weights_version, parts)
        self._begin_anew()
        logger.info("kvscout: this engine has new weights%s", self._older_ones())

    def _begin_anew(self):
        """What was computed before is of no use: not what vLLM's own cache has of it, and not for requests that go on with it."""
        if self._blocks is not None:
            self._older.begin(request_id for request_id, tracked in self._requests.items() if tracked.scheduled)
        self._adapters.forget()
        self._checks.clear()
        self._samples = verify.Samples(self._config.verify_sample)
        for request_id, tracked in self._requests.items():
            if request_id in self._older:
                tracked.may_store = False
            else:
                self._finish_lookup(tracked)
                self._begin_turn(tracked)
        self._count_older()

    def _older_ones(self):
        return f"; {len(self._older)} requests from before go on, and store nothing" if self._older else ""

    def finished(self, request):
        tracked = self._requests.pop(request.request_id, None)
        if tracked is None:
            self._put_off_announced()
            self._put_off.pop(request.request_id, None)
            return
        if self._older:
            self._of_request(None, self._end_older, request.request_id)
        # Many requests may end in one step: what they give back travels with the next one. vLLM takes a step for the ended ones even if there
        # is nothing to schedule.
        if self._client is None:
            return
        if not self._in_step:
            self.faults.attempt(self._begin_step)
        hint = tracked.params.hint or tracked.wish.hint or self.faults.attempt(self._hints.of, request)
        self._finish_lookup(tracked, hint, tracked.params.keep_s or tracked.wish.keep_s)

    def _end_older(self, request_id):
        if self._older.ended(request_id):
            self._count_older()
            logger.info("kvscout: the last request from before the reset has ended: all requests store again")

    def reset(self):
        """Drop everything that is cached, for all engines of the namespace.

        With a weights_version, a reset is the next number: other engines that have one join by a reset of their own, and until then the
        server refuses what they computed with the number before. Without one, it is a new generation, which only this engine joins.
        """
        if self._is_inert and self._client is None:
            return True  # nothing here is of this engine
        if self._client is None:
            logger.warning("kvscout: the cache was not cleared: this engine's workers have not told its namespace yet")
            return False
        self._end_step()  # requests may be paused: it waits for no step
        try:
            if self.weights_version:
                self._client.reset(self.weights_version + 1)
                self.weights_version = self._new_weights = self.weights_version + 1
            else:
                self._generation = self._client.clear()
        except self._error as error:
            logger.warning("kvscout: the cache was not cleared: %s", error)
            return False
        self._begin_anew()
        missing = what_is_missing(self._client)
        if missing:
            logger.warning("kvscout: the cache of this namespace is not cleared everywhere: %s%s", missing, self._older_ones())
        else:
            logger.info("kvscout: cleared the cache of this namespace%s%s", self._number(), self._older_ones())
        return not missing

    def _count_older(self):
        self.counts["older_requests"] = len(self._older)

    def _number(self):
        if not self.weights_version:
            return ""
        return f"; its weights_version is now {self.weights_version}, and engines with another one neither load nor store"

    def has_pending_stores(self):
        return len(self._pins) > 0

    def pins_hold_back_blocks(self):
        return self._pins.hold_back_blocks()

    def close(self):
        for side in (self._events, self.watch, self._client):
            if side is not None:
                self.faults.attempt(side.close)

    # ---- lookups ----------------------------------------------------------------------------------------------------

    def _begin_turn(self, tracked):
        tracked.begin_turn()
        if tracked.lora is not None:
            tracked.identity = self._adapters.of(tracked.lora)
        if tracked.request.request_id in self._older:
            tracked.may_store = False
        tracked.may_read = self._may_read(tracked)

    def _may_read(self, tracked):
        """A prompt that is shorter than the shortest hit is no question."""
        request = tracked.request
        return (
            self._config.may_read
            and tracked.identity is not None
            and not tracked.params.skip_read
            and not request.skip_reading_prefix_cache
            and request.num_tokens >= self._groups.step_tokens
            and (not request.mm_features or inert.are_hashed(request))
        )

    def _ask_ahead(self, tracked):
        request = tracked.request
        try:
            hashes, stride = self._hashes(tracked)
            self._client.lookup_ahead(
                tracked.lookup_id, hashes, request.num_tokens, tenant=tracked.tenant, expect_tokens=tracked.params.expect_tokens, stride=stride
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
        if tracked.may_read and not self._is_out:
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
                tracked.lookup_id, hashes, request.num_tokens, computed_tokens=computed, tenant=tracked.tenant,
                expect_tokens=tracked.params.expect_tokens, stride=stride, load=tracked.wish.load,
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

    def _finish_lookup(self, tracked, hint=None, keep_s=0):
        """Not before the end of a comparison, which needs its session."""
        self._checks.pop(tracked.request.request_id, None)
        if self._client is None:
            return
        sent = self._compared.get(tracked.check)
        if sent is None:
            self._finish(tracked, tracked.lookup_id, hint, keep_s)
        elif sent.finish is None:
            sent.finish = functools.partial(self._finish, tracked, tracked.lookup_id, hint, keep_s)

    def _finish(self, tracked, name, hint, keep_s):
        try:
            if keep_s:
                self._client.finish_keep(name, hint or "unknown", keep_ms(keep_s))
                self.counts["keeps"] += 1
            elif hint is None:
                self._client.finish(name)
            else:
                self._client.finish_hint(name, hint)
            if hint is not None:
                self.counts["hints_" + hint] += 1
        except self._error as error:
            self._say(tracked, "finishing", error)

    def _begin_step(self):
        """Lookups of one schedule() travel together: the first one, or the end of a request before, opens the step,
        build_meta() closes it."""
        if not self._in_step:
            self._in_step = True
            self._wait_left_us = self._config.step_wait_us
            self._client.step_begin()

    def _end_step(self):
        if self._in_step:
            self._client.step_end()
            self._in_step = False

    def _load_failed(self, request_id, token):
        tracked = self._requests.get(request_id)
        if tracked is None:
            return
        if tracked.loaded:  # else another rank has said it
            tracked.loaded = 0
            tracked.failed_loads += 1
            self.counts["failed_loads"] += 1
        # The engine computes it again, and then it can be stored again.
        self._store_from(tracked, token)

    # ---- stores -----------------------------------------------------------------------------------------------------

    def _found_tokens(self, hit):
        """How many leading tokens are cached. A hit of one run may be one token short of the end of its last chunk."""
        return hit.chunks * self._run_tokens if self._groups.is_one_run else hit.tokens

    def _store_from(self, tracked, token):
        """@token is not in the cache."""
        tracked.next_store = min(tracked.next_store, token // self._run_tokens * self._run_tokens)

    def _offers(self, scheduler_output):
        return getattr(scheduler_output.kv_connector_block_state, "boundary_state_offloads", {}) if self._groups.states else {}

    def _there(self, ids):
        null, found = self._blocks.null, []
        for own in ids.values():
            found += [block for block in own if block != null] if null in own else own
        return found

    def _add_all_stores(self, meta, scheduler_output):
        """A step that decodes completes a chunk for few of its requests: the others take no more than this look."""
        run = self._run_tokens
        offers = self._offers(scheduler_output)
        for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
            tracked = self._requests.get(request_id)
            if (
                tracked is not None
                and tracked.request.num_computed_tokens + tokens >= tracked.next_store + run
                and tracked.may_store
            ):
                self._of_request(request_id, self._add_stores, meta, tracked, tokens, offers.get(request_id, ()))

    def _add_stores(self, meta, tracked, tokens, offers):
        request = tracked.request
        if request.mm_features and not inert.are_hashed(request):  # a streaming request gets more of them while it runs
            return
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
        groups, stride, run, null = self._groups, self._stride, self._run_tokens, self._blocks.null
        ids_from = begin - begin % groups.span_tokens
        ids = groups.blocks(self._blocks.of_request(tracked.request.request_id), ids_from, end)
        if groups.states:
            groups.keep_states(ids, ids_from, offers, null)
        pinned = self._there(ids)
        if not pinned:
            return
        first, last = begin // run, end // run
        hashes = list(map(bytes, tracked.request.block_hashes[(first + 1) * stride - 1 : last * stride : stride]))
        self._samples.stored(hashes)
        if tracked.identity:
            hashes = adapters.keys(tracked.identity, hashes)
        descriptions = None
        if self._events is not None:
            descriptions = self._events.describe(tracked.request, begin, end, run)
            self._events.keep(tracked.tenant, hashes, descriptions)
        self._send(meta, tracked, pinned, hashes, begin, ids, ids_from, descriptions=descriptions)
        self.counts["stores"] += 1
        self.counts["store_chunks"] += last - first

    def _send(self, meta, tracked, pinned, hashes, begin, ids, ids_from, **more):
        """A store; its number."""
        number = self._next_store_number
        self._next_store_number += 1
        store = Store(
            number, tracked.request.request_id, tracked.ticket, hashes, begin, ids, ids_from, tracked.tenant, tracked.adapter,
            self._trace(tracked), **more,
        )
        self._pins.take(number, pinned)  # nothing fails from here on: what is pinned is sent
        meta.stores.append(store)
        return number

    # ---- comparisons: see verify.py ---------------------------------------------------------------------------------

    def _add_check(self, meta, scheduler_output, request_id):
        """When a step computes the last token of the range."""
        check = self._checks[request_id]
        tracked, begin = check.tracked, check.begin
        computed = tracked.request.num_computed_tokens
        if not check.has_begun and computed > begin:  # another connector has loaded it
            del self._checks[request_id]
            return
        check.has_begun = True
        if computed + scheduler_output.num_scheduled_tokens[request_id] < check.end:
            return
        del self._checks[request_id]
        ids = self._groups.blocks(self._blocks.of_request(request_id), begin, tracked.hit.tokens)
        if self._groups.states:
            self._groups.keep_states(ids, begin, self._offers(scheduler_output).get(request_id, ()), self._blocks.null)
        tracked.check = self._send(meta, tracked, self._there(ids), [], begin, ids, begin, to_token=tracked.hit.tokens)
        self._compared[tracked.check] = check

    def _check_ended(self, number):
        check = self._compared.pop(number)
        if check.finish is not None:
            check.finish()
        if not check.chunks or check.samples is not self._samples:
            return
        self.counts["verify_samples"] += 1
        is_too_many = self._samples.ended(check.worst)
        if check.worst is None:
            return
        self.counts["verify_mismatches"] += 1
        self._alarms.warn("%s", verify.line(self._namespace, check.tracked.request.request_id, check.worst))
        if is_too_many and self._config.mismatches_make_inert:
            self.stay_inert(verify.INERT)

    def _describe_loaded(self, tracked, begin, end):
        run = self._run_tokens
        hashes, stride = self._hashes(tracked)
        first, last = begin // run, -(-end // run)
        self._events.loaded(tracked, first * run, last * run, hashes[(first + 1) * stride - 1 : last * stride : stride], run)

    # ---- log --------------------------------------------------------------------------------------------------------

    def _say(self, tracked, what, error):
        self._teller.warn("%s for request %s failed, so it is computed: %s", what, tracked.request.request_id, error)


class _Nothing:
    """The answer to a question that could not be asked."""

    tokens = ticket = chunks = l1_chunks = l2_chunks = 0
    reason = "error"


_NOTHING = _Nothing()
