# SPDX-License-Identifier: Apache-2.0
"""What can be had, as the server's feed tells it, and what of that was announced to routers. Scheduler's process; imports no vLLM.

Each key has the media that hold it and the one that was announced: host memory if it is there, else L2. A change is the difference of the
two, so a key that goes and comes back before anybody asked is no change. After a feed has started over, what it told of before and not again
counts as gone once the feed has caught up. What comes before an object in its prompt is announced first, else the object waits: llm-d's
router drops for good what follows a block that it does not know.

An object that comes back from L2 comes without its description, so descriptions stay here after their objects have gone. All that is here
has at most LIMIT_BYTES: then the oldest go, first those of which nothing can be had; of the others it is announced that they are gone.
"""

import itertools
import time

# kvscout.FEED_*: importing this package imports no library.
START_OVER, STORED, REMOVED, CLEARED, DROPPED, CAUGHT_UP = range(6)
L1, L2 = 1, 2

LIMIT_BYTES = 128 << 20
# Of an entry, beside its description; with what events.py counts of its blocks, which are eight.
ENTRY_BYTES = 1200
# Changes of one step; the others come with the next ones.
MAX_CHANGES = 128
# A server that is away for so long has nothing to offer, and one with other weights not from then on.
AWAY_S = 5.0
BACK_S = 0.1  # without an error: by then an answer that was under way has come


class _Entry:
    __slots__ = ("description", "media", "announced", "before")

    def __init__(self):
        self.description = b""
        self.media = 0  # bits
        self.announced = 0  # L1, L2 or 0
        self.before = None  # what it waits for


class Book:
    def __init__(self, errors, group=0, limit_bytes=LIMIT_BYTES, clock=time.monotonic, apart=True, ends=lambda said: (None, None)):
        """@errors: kvscout's exceptions. @group: kvscout's number of the group whose objects are announced. @apart: memory and L2 are
        announced as two media; else as one. @ends(description): names of the object and of the one before it, None: it begins a prompt."""
        self._error = errors
        self._ends = ends
        self._told = {}  # by their names: entries that are announced, in that order
        self._held = {}  # by the name of what they wait for: {key: entry}
        self._apart = apart
        self._group = group
        self._limit = limit_bytes
        self._clock = clock
        self._live = {}  # (tenant, hash): _Entry on a medium; the oldest first
        self._idle = {}  # the same, of which nothing can be had
        self._bytes = 0
        self._dirty = {}  # entries that may have changed
        self._stale = {}  # keys of live entries that the feed has not told again
        self._failing_since = self._failed_at = None
        self._away = False
        self.error = None  # the last one, until the server answers again

    def __len__(self):
        return len(self._live)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def read(self, client):
        """Takes what has come, and asks for more. Never waits."""
        try:
            events = client.feed()
        except self._error as error:
            self._failed(error)
            return
        if self.error is not None:
            self._answered(client, events)
        for kind, medium, group, tenant, key, description in events:
            if kind == STORED:
                if group == self._group:
                    self._stored((tenant, key), medium, description)
            elif kind == REMOVED:
                if group == self._group:
                    self._removed((tenant, key), medium)
            elif kind == START_OVER:
                self._stale = dict.fromkeys(self._live)
            elif kind == CAUGHT_UP:
                self._end_stale()
            else:
                self._drop(tenant if kind == DROPPED else None)

    def keep(self, tenant, key, description):
        """Remember what the engine itself knows of an object; the feed need not have told it."""
        name = (tenant or "", key)
        entry = self._live.get(name)
        if entry is None:
            entry = self._idle.get(name)
        if entry is None:
            entry = self._idle[name] = _Entry()
            self._bytes += ENTRY_BYTES
        if not entry.description:
            self._describe(name, entry, description)
            self._fit()

    def lacks(self, tenant, key):
        name = (tenant or "", key)
        entry = self._live.get(name) or self._idle.get(name)
        return entry is None or not entry.description

    def _stored(self, name, medium, description):
        entry = self._live.get(name)
        if entry is None:
            entry = self._idle.pop(name, None)
            if entry is None:
                entry = _Entry()
                self._bytes += ENTRY_BYTES
            self._live[name] = entry
        if self._stale and name in self._stale:
            del self._stale[name]
            entry.media = 0
        entry.media |= medium
        if description and not entry.description:
            self._describe(name, entry, description)
        self._dirty[name] = entry
        self._fit()

    def _removed(self, name, medium):
        entry = self._live.get(name)
        if entry is None:
            return
        entry.media &= ~medium
        self._dirty[name] = entry
        if not entry.media:
            self._idle[name] = self._live.pop(name)

    def _end_stale(self):
        stale, self._stale = self._stale, {}
        for name in stale:
            self._removed(name, L1 | L2)

    def _drop(self, tenant):
        """@tenant: None is all of them."""
        for name in [name for name in self._live if tenant is None or name[0] == tenant]:
            self._removed(name, L1 | L2)

    def _describe(self, name, entry, description):
        entry.description = description
        self._bytes += len(description)
        self._dirty[name] = entry

    def _fit(self):
        while self._bytes > self._limit:
            entries = self._idle or self._live
            name = next(iter(entries))
            entry = entries.pop(name)
            self._bytes -= ENTRY_BYTES + len(entry.description)
            entry.media = 0
            if (waiting := self._held.get(entry.before)) and waiting.pop(name, None) and not waiting:
                del self._held[entry.before]
            if entry.announced:
                self._dirty[name] = entry
            else:
                self._dirty.pop(name, None)

    def _failed(self, error):
        now = self._failed_at = self._clock()
        if self.error is None:
            self._failing_since = now
        self.error = error
        has_other_weights = error.name == "SCOUT_ERR_WEIGHTS"
        if not self._away and (has_other_weights or now - self._failing_since >= AWAY_S):
            self._away = True
            self._dirty.update(self._live)

    def _answered(self, client, events):
        """Without an error; but the answer may be under way, or the server not there yet."""
        if not client.stats()["servers_up"]:
            self._failed(self.error)
            return
        if not events and self._clock() - self._failed_at < BACK_S:
            return
        self.error = None
        if self._away:
            self._away = False
            self._dirty.update(self._live)

    # ---- changes ----------------------------------------------------------------------------------------------------

    def announce_anew(self):
        """Routers have forgotten everything of this engine."""
        for entry in itertools.chain(self._live.values(), self._idle.values(), self._dirty.values()):
            entry.announced = 0
        self._told.clear()
        self._held.clear()
        self._dirty = dict(self._live)

    def has_changes(self, repeats=False):
        return bool(self._dirty or repeats and self._told)

    def to_repeat(self, most):
        """Some of what is announced, as changes() has it: with each call the next ones, in turn."""
        found = []
        for own in list(itertools.islice(self._told, most)):
            entry = self._told[own] = self._told.pop(own)
            before = self._ends(entry.description)[1]
            if before is None or before in self._told:
                found.append((entry.announced, entry.description))
        return found

    def changes(self):
        """(removed, stored) since the last call, both as lists of (medium, description); about MAX_CHANGES entries."""
        removed, stored = [], []
        names = list(itertools.islice(self._dirty, MAX_CHANGES))
        for name in names:  # which may become longer
            entry = self._dirty.pop(name, None)
            if entry is None:
                continue
            wanted = 0 if self._away or not entry.description or not entry.media else L1
            if wanted and self._apart and not entry.media & L1:
                wanted = L2
            if wanted == entry.announced:
                continue
            own, before = self._ends(entry.description)
            if wanted and before is not None and before not in self._told:
                entry.before, wanted = before, 0
                self._held.setdefault(before, {})[name] = entry
            if entry.announced:
                removed.append((entry.announced, entry.description))
                self._told.pop(own, None)
            if wanted:
                stored.append((wanted, entry.description))
                self._told[own] = entry
                self._dirty.update(waited := self._held.pop(own, {}))
                names += waited
            entry.announced = wanted
        return removed, stored
