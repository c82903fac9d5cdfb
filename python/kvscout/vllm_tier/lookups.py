# SPDX-License-Identifier: Apache-2.0
"""Which keys the server has. One object, in the process of vLLM's scheduler, called under the lock of vLLM's manager.

vLLM asks for one key after the other and takes "not known yet" for an answer. The keys of a request that are new in a
step become one lookup at the end of the step. A lookup's answer is a run of leading keys: behind the first missing one
nothing is known. A prefix ends there, so vLLM does not ask for the rest. For a window it does, and each of those keys
then becomes a lookup of its own, all of them in one step.

The server keeps what a lookup found (a promise) until the tier has submitted the copies, or the request is scheduled or
ends. A key whose copy failed counts as missing until its request ends, or vLLM would try it for ever.
"""

from .keys import hash_of, hashes_of

_MISSING = False
_ASKED = None
# More keys than these are not touched in one step.
MAX_TOUCHED = 8192


class _Batch:
    """One lookup. `left`: found keys whose copies were not submitted; `loads`: submitted copies that have not ended."""

    __slots__ = ("id", "request", "keys", "ticket", "left", "loads", "closing")

    def __init__(self, id, request, keys):
        self.id = id
        self.request = request
        self.keys = keys
        self.ticket = 0
        self.left = self.loads = 0
        self.closing = False


class _Request:
    __slots__ = ("known", "new", "alone", "failed", "batches")

    def __init__(self):
        self.known = {}  # key: _ASKED, _MISSING or its place (batch, index)
        self.new = []  # keys to ask for at the end of the step
        self.alone = set()  # keys behind a gap
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
    def __init__(self, client, errors, counts, teller):
        """@client: kvscout's, with one token for each key. @errors: kvscout's exceptions."""
        self._client = client
        self._error = errors
        self._counts = counts
        self._teller = teller
        self._requests = {}
        self._pending = {}  # id: _Batch without an answer
        self._asking = []  # requests with new keys
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
            request = self._requests[request_id] = _Request()
        try:
            place = request.known[key]
        except KeyError:
            if not request.new:
                self._asking.append(request)
            request.new.append(key)
            request.known[key] = _ASKED
            return None
        return place is not _MISSING if place is not _ASKED else None

    def touch(self, keys):
        for key in keys:
            if len(self._touched) >= MAX_TOUCHED:
                return
            self._touched[key] = None

    def flush(self):
        """The end of a step: what was collected goes to the server in one frame."""
        self._collect()
        self._may_have_answers = bool(self._asking or self._pending)
        if not self._asking and (not self._touched or self._touching):
            return
        asking, self._asking = self._asking, []
        self._client.step_begin()
        try:
            for request in asking:
                self._ask(request)
            self._touch()
        finally:
            self._client.step_end()

    def runs(self, request_id, keys, chunk_ids):
        """@keys, found by earlier lookups, as runs, and those that no lookup of this request has found."""
        request = self._requests.get(request_id)
        runs, lost = [], []
        for key, chunk_id in zip(keys, chunk_ids, strict=True):
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
            run.chunk_ids.append(int(chunk_id))
            batch.left -= 1
        if lost and request is not None:
            self._failed(request, lost)
        return runs, lost

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
            if request is not None and not request.new:
                self._forget(request)

    def finished(self, request_id):
        request = self._requests.pop(request_id, None)
        if request is not None:
            request.new.clear()
            self._asking = [other for other in self._asking if other is not request]
            self._forget(request)

    def forget_all(self):
        """The server was cleared: all keys are asked for anew."""
        for request in self._requests.values():
            request.new.clear()
            request.failed.clear()
            self._forget(request)
        self._asking.clear()
        self._touched.clear()

    # ---- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, request):
        keys = [key for key in request.new if request.known.get(key) is _ASKED]
        request.new = []
        if request.alone:
            run = [key for key in keys if key not in request.alone]
            alone = [key for key in keys if key in request.alone]
            batches = ([run] if run else []) + [[key] for key in alone]
        else:
            batches = [keys] if keys else []
        for batch in batches:
            self._submit(request, batch)

    def _submit(self, request, keys):
        batch = _Batch(self._new_id("look"), request, keys)
        self._counts["lookups"] += 1
        self._counts["lookup_keys"] += len(keys)
        try:
            hit = self._client.try_lookup(batch.id, self._hashes(keys), len(keys) + 1)
        except self._error as error:
            self._no_answer(batch, error)
            return
        request.batches.add(batch)
        if hit is None:
            self._pending[batch.id] = batch
        else:
            self._answered(batch, hit)

    @staticmethod
    def _hashes(keys):
        return hashes_of(keys) if len(keys) > 1 else [hash_of(keys[0])]

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
        except self._error as error:
            self._teller.warn("%d keys were not touched: %s", len(keys), error)

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _collect(self):
        for batch in list(self._pending.values()):
            try:
                hit = self._client.poll(batch.id)
            except self._error as error:
                del self._pending[batch.id]
                self._no_answer(batch, error)
                self._finish(batch)
                continue
            if hit is not None:
                del self._pending[batch.id]
                self._answered(batch, hit)
        if self._touching:
            self._collect_touch()

    def _collect_touch(self):
        try:
            if self._client.poll(self._touching) is None:
                return
        except self._error:
            pass  # the server is gone, and with it what was to be touched
        self._end(self._touching)
        self._touching = None

    def _answered(self, batch, hit):
        known, keys = batch.request.known, batch.keys
        n = min(hit.tokens, len(keys))
        batch.ticket = hit.ticket
        batch.left = n
        self._counts["hit_keys"] += n
        for index in range(n):
            known[keys[index]] = (batch, index)
        if n < len(keys):
            self._behind_the_run(batch, n, hit)
        if not n:
            self._finish(batch)

    def _behind_the_run(self, batch, n, hit):
        request, keys = batch.request, batch.keys
        if hit.reason not in ("hit", "miss"):
            self._counts["lookup_errors"] += hit.reason != "limited"
            for key in keys[n:]:
                request.known[key] = _MISSING
            return
        request.known[keys[n]] = _MISSING
        for key in keys[n + 1 :]:
            del request.known[key]
            request.alone.add(key)

    def _no_answer(self, batch, error):
        """A question that cannot be asked is a miss: a request never waits for a server that is not there."""
        self._counts["lookup_errors"] += 1
        self._teller.warn("asking for %d keys failed, so they are computed: %s", len(batch.keys), error)
        for key in batch.keys:
            batch.request.known[key] = _MISSING

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _failed(self, request, keys):
        request.failed.update(keys)
        for key in keys:
            request.known[key] = _MISSING

    def _forget(self, request):
        """Keys that failed stay missing."""
        request.known = dict.fromkeys(request.failed, _MISSING)
        request.alone.clear()
        for batch in list(request.batches):
            self._pending.pop(batch.id, None)
            batch.closing = True
            if not batch.loads:
                self._finish(batch)

    def _finish(self, batch):
        if batch.loads:
            return  # the server would refuse a retrieve that it sees after the end of its session
        batch.request.batches.discard(batch)
        self._end(batch.id)

    def _end(self, id):
        try:
            self._client.finish(id)
        except self._error as error:
            self._teller.warn("giving back what a lookup found failed: %s", error)
