# SPDX-License-Identifier: Apache-2.0
"""Which keys the server has. One object, in the process of vLLM's scheduler, called under the lock of vLLM's manager.

vLLM asks for one key after the other and takes "not known yet" for an answer. The keys of a request that are new in a
step become one question at the end of the step (Client.lookup_keys), and those of all requests travel in one frame. Each
key is answered by itself, so the keys of a prefix and of a window are asked for in the same way. A request has a question
of its own, because what is promised to it is given back with it.

The server keeps what a question found (a promise) until the tier has submitted the copies, or the request is scheduled or
ends. A key of which the server could not tell counts as missing: a request never waits for a server that is away or full.
A key whose copy failed counts as missing until its request ends, or vLLM would try it for ever.
"""

import time

from ..vllm.times import Times
from ..vllm.verify import WHOLE, Samples
from ..vllm.wishes import keep_ms
from .keys import hashes_of

_MISSING = False
_ASKED = None
# More keys than these are not touched in one step.
MAX_TOUCHED = 8192
# In one question: what the library allows.
MAX_KEYS = 16384
KEY_HIT = 1  # kvscout.KEY_HIT; importing this package imports no library


class _Batch:
    """One question. `left`: found keys whose copies were not submitted; `loads`: submitted copies that have not ended; `wish`: for
    what is found, of a request that is over (keeps.py)."""

    __slots__ = ("id", "request", "keys", "hashes", "ticket", "left", "loads", "closing", "asked_s", "wish")

    def __init__(self, id, request, keys, wish):
        self.id = id
        self.wish = wish
        self.request = request
        self.keys = keys
        self.hashes = hashes_of(keys)  # until there is an answer
        self.ticket = 0
        self.left = self.loads = 0
        self.closing = False
        self.asked_s = time.monotonic()


class _Request:
    __slots__ = ("id", "known", "new", "failed", "batches", "is_sample", "differs")

    def __init__(self, id):
        self.id = id
        self.is_sample = None  # what is found counts as missing, and is compared when it comes to be stored; None: not known yet
        self.differs = None  # of what was compared; None: nothing yet
        self.known = {}  # key: _ASKED, _MISSING or its place (batch, index)
        self.new = []  # keys to ask for at the end of the step
        self.failed = set()  # keys whose copies failed
        self.batches = set()  # not finished


class Run:
    """Chunks that lie side by side in one batch: one retrieve."""

    __slots__ = ("batch", "first", "keys", "chunk_ids")

    def __init__(self, batch, first):
        self.batch = batch
        self.first = first
        self.keys = []
        self.chunk_ids = []


class Lookups:
    def __init__(self, client, errors, counts, teller, faults, verify_sample=0):
        """@verify_sample: the key. @client: kvscout's, with one token for each key. @errors: kvscout's exceptions. @faults: of ../vllm/faults.py."""
        self._client = client
        self._error = errors
        self._counts = counts
        self._teller = teller
        self._faults = faults
        self.took = Times()
        self.samples = Samples(verify_sample)
        self._requests = {}
        self._pending = {}  # id: _Batch without an answer
        self._asking = []  # requests with new keys
        self._wished = []  # (keys, wish) of requests that are over
        self._touched = {}  # keys, in order
        self._touching = None  # id of the lookup that touches
        self._next_id = 0
        self._may_have_answers = False

    # ---- what the tier calls ----------------------------------------------------------------------------------------

    def lookup(self, request_id, key):
        """True, False, or None: not known yet."""
        if self._may_have_answers:
            self._may_have_answers = False
            self._collect()
        request = self._requests.get(request_id)
        if request is None:
            request = self._requests[request_id] = _Request(request_id)
        try:
            place = request.known[key]
        except KeyError:
            if not request.new:
                self._asking.append(request)
            request.new.append(key)
            request.known[key] = _ASKED
            return None
        return place is not _MISSING and not request.is_sample if place is not _ASKED else None

    def touch(self, keys):
        for key in keys:
            if len(self._touched) >= MAX_TOUCHED:
                return
            self._touched[key] = None

    def flush(self):
        """The end of a step: what was collected goes to the server in one frame."""
        self._collect()
        self._may_have_answers = bool(self._asking or self._pending)
        if not self._asking and not self._wished and (not self._touched or self._touching):
            return
        asking, self._asking = self._asking, []
        wished, self._wished = self._wished, []
        self._faults.attempt(self._client.step_begin)
        for request in asking:
            self._ask(request)
        for keys, wish in wished:
            self._submit(_Request(None), keys, wish)
        self._touch()
        try:
            self._client.step_end()
        except Exception as error:
            self._tell(error, "the questions of a step were not sent")
            self.give_up()

    def give_up(self):
        """A step has failed: what it was to ask may not have left, and no request waits for an answer."""
        for request in self._asking:
            request.known.update(dict.fromkeys(request.new, _MISSING))
            request.new = []
        self._asking = []
        self._wished = []
        for batch in list(self._pending.values()):
            self._missing(batch)

    def runs(self, request_id, keys, chunk_ids):
        """@keys, found by earlier lookups, as runs, and those that no lookup of this request has found."""
        request = self._requests.get(request_id)
        runs, lost = [], []
        for key, chunk_id in zip(keys, map(int, list(chunk_ids)), strict=True):
            place = request.known.pop(key, _MISSING) if request is not None else _MISSING
            if place is _MISSING or place is _ASKED:
                lost.append(key)
                continue
            batch, index = place
            run = runs[-1] if runs else None
            if run is None or run.batch is not batch or run.first + len(run.keys) != index:
                run = Run(batch, index)
                runs.append(run)
                batch.loads += 1
            run.keys.append(key)
            run.chunk_ids.append(chunk_id)
            batch.left -= 1
        if lost and request is not None:
            self._failed(request, lost)
        return runs, lost

    def compared(self, request_id, keys, chunk_ids):
        """Of what is to be stored: (runs to be compared, keys to be stored, their chunks)."""
        request = self._requests.get(request_id)
        if request is None or not request.is_sample:
            return [], keys, chunk_ids
        places = [(key, chunk_id, isinstance(request.known.get(key), tuple)) for key, chunk_id in zip(keys, chunk_ids, strict=True)]
        runs, _ = self.runs(request_id, *zip(*[place[:2] for place in places if place[2]])) if any(place[2] for place in places) else ([], ())
        return runs, [key for key, _, is_found in places if not is_found], [chunk for _, chunk, is_found in places if not is_found]

    def run_ended(self, run, failed_keys):
        batch = run.batch
        batch.loads -= 1
        self._failed(batch.request, failed_keys)
        if batch.closing or not batch.left:
            self._finish(batch)

    def scheduled(self, request_ids):
        """These requests have what they wait for: what else was found for them is given back."""
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None and not request.new and not request.is_sample:
                self._forget(request)

    def finished(self, request_id):
        request = self._requests.pop(request_id, None)
        if request is not None:
            request.new.clear()
            self._asking = [other for other in self._asking if other is not request]
            self._forget(request)

    def end(self, keys, wish):
        """A request that used @keys is over: one more question finds them, and its end says what it wishes."""
        self._wished += [(keys[first : first + MAX_KEYS], wish) for first in range(0, len(keys), MAX_KEYS)]

    def has_wishes(self):
        return bool(self._wished) or any(batch.wish is not None for batch in self._pending.values())

    def forget_all(self):
        """The server was cleared: all keys are asked for anew."""
        for request in self._requests.values():
            request.new.clear()
            request.failed.clear()
            self._forget(request)
        self.samples = Samples(self.samples.rate)
        self._asking.clear()
        self._wished.clear()
        self._touched.clear()

    # ---- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, request):
        keys = [key for key in request.new if request.known.get(key) is _ASKED]
        request.new = []
        for first in range(0, len(keys), MAX_KEYS):
            self._submit(request, keys[first : first + MAX_KEYS])

    def _submit(self, request, keys, wish=None):
        batch = _Batch(self._new_id("look"), request, keys, wish)
        if wish is None:
            self._counts["lookups"] += 1
            self._counts["lookup_keys"] += len(keys)
        request.batches.add(batch)
        self._pending[batch.id] = batch
        self._look(batch)

    def _look(self, batch):
        """Asks, or asks again."""
        try:
            answer = self._client.lookup_keys(batch.id, batch.hashes)
            if answer is not None:
                del self._pending[batch.id]
                self._answered(batch, answer)
        except Exception as error:
            self._no_answer(batch, error)

    def _new_id(self, kind):
        self._next_id += 1
        return f"{kind}{self._next_id}"

    def _touch(self):
        """A lookup whose keys count as computed promises nothing; its end touches them."""
        if not self._touched or self._touching:
            return
        keys, self._touched = list(self._touched), {}
        id = self._new_id("touch")
        try:
            self._client.try_lookup(id, hashes_of(keys), len(keys) + 1, computed_tokens=len(keys))
            self._touching = id
        except Exception as error:
            self._tell(error, "%d keys were not touched", len(keys))

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _collect(self):
        for batch in list(self._pending.values()):
            self._look(batch)
        if self._touching:
            self._collect_touch()

    def _collect_touch(self):
        try:
            if self._client.poll(self._touching) is None:
                return
        except Exception as error:
            if not isinstance(error, self._error):  # else the server is gone, and with it what was to be touched
                self._faults.tell("touching", error)
        self._end(self._touching)
        self._touching = None

    def _answered(self, batch, answer):
        if batch.wish is not None:
            self._finish(batch)
            return
        self.took.add("lookup_seconds", time.monotonic() - batch.asked_s)
        known = batch.request.known
        batch.ticket = answer.ticket
        batch.left = answer.hits
        batch.hashes = None
        self._counts["hit_keys"] += answer.hits
        self._counts["lookup_errors"] += answer.retries > 0 and answer.reason != "limited"
        for index, (key, state) in enumerate(zip(batch.keys, answer.states, strict=True)):
            known[key] = (batch, index) if state == KEY_HIT else _MISSING
        if not answer.hits:
            self._finish(batch)
        elif batch.request.is_sample is None:
            batch.request.is_sample = self.samples.choose(batch.request.id, batch.keys[0], batch.keys[-1]) == WHOLE

    def _no_answer(self, batch, error):
        """A question that cannot be asked is a miss: a request never waits for a server that is not there."""
        self._counts["lookup_errors"] += 1
        self._tell(error, "asking for %d keys failed, so they are %s", len(batch.keys), "computed" if batch.wish is None else "not kept")
        self._missing(batch)

    def _missing(self, batch):
        self._pending.pop(batch.id, None)
        batch.request.known.update(dict.fromkeys(batch.keys, _MISSING))
        self._finish(batch)

    def _tell(self, error, text, *args):
        if isinstance(error, self._error):
            self._teller.warn(text + ": %s", *args, error)
        else:
            self._faults.tell("asking", error)

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _failed(self, request, keys):
        request.failed.update(keys)
        for key in keys:
            request.known[key] = _MISSING

    def _forget(self, request):
        """Keys that failed stay missing."""
        request.known = dict.fromkeys(request.failed, _MISSING)
        for batch in list(request.batches):
            self._pending.pop(batch.id, None)
            batch.closing = True
            if not batch.loads:
                self._finish(batch)

    def _finish(self, batch):
        if batch.loads:
            return  # the server would refuse a retrieve that it sees after the end of its session
        batch.request.batches.discard(batch)
        self._end(batch.id, batch.wish)

    def _end(self, id, wish=None):
        try:
            if wish is None:
                self._client.finish(id)
            else:
                self._client.finish_keep(id, wish.hint, keep_ms(wish.keep_s))
        except Exception as error:
            self._tell(error, "giving back what a question found failed")
