# SPDX-License-Identifier: Apache-2.0
"""Servers that die, stand still, come back or were never there: the engine answers as without a connector, and goes
on."""

import random
import time

import prompts
import watch
from checks import need
from scenarios import _nothing_is_left

AT_ONCE = 8
# A hook of the scheduler waits step_wait_us (0.5 ms) at most, and a busy machine's timer adds to that. One that waited
# for a dead server would wait 150 ms at least.
MAX_WAIT_MS = 20.0


class Trouble:
    """What happens to the server, by steps of the engine: each event ends some steps later."""

    def __init__(self, server, draw, kinds):
        """@kinds: the events, one after the other."""
        self._server = server
        self._draw = draw
        self._kinds = list(kinds)
        self._end = None
        self._left = 0
        self.kills = self.freezes = self.restarts = 0

    def step(self):
        if self._end is not None:
            self._left -= 1
            if self._left <= 0:
                self._end()
                self._end = None

    def begin(self):
        """One event, unless one is under way."""
        if self._end is not None:
            return False
        self._left = self._draw.choice((1, 5, 40))
        kind = self._kinds.pop()
        if kind == "kill":
            self._server.kill()
            self._end = self._server.start
            self.kills += 1
        elif kind == "freeze":
            self._server.freeze()
            self._end = self._server.thaw
            self.freezes += 1
        else:
            self._server.stop()
            self._end = self._server.start
            self.restarts += 1
        return True

    def over(self):
        if self._end is not None:
            self._end()
            self._end = None


def servers_that_die(context, engine, server, requests, kills, others):
    """@kills, and of each other kind @others, at random moments of @requests."""
    asked, n = prompts.of("stream")
    draw = random.Random("kills")
    kinds = ["kill"] * kills + ["freeze", "restart"] * others
    draw.shuffle(kinds)
    trouble = Trouble(server, draw, kinds)
    # Not at the very end, so that each event ends while requests run.
    due = sorted(draw.randrange(requests // 20, requests - requests // 20) for _ in kinds)
    engine.run(asked[:1], n)  # the first forward pass of an engine takes seconds
    watched = watch.Watch()
    watched.wrap(engine.scheduler.connector, watch.SCHEDULER_HOOKS)
    engine.on_workers(watch.watch_worker)
    running, done = {}, 0
    added = 0
    before = dict(engine.side.counts)
    while done < requests:
        while added < requests and len(running) < AT_ONCE:
            running[engine.add(asked[added % len(asked)], n)] = added % len(asked)
            added += 1
        if due and added >= due[0] and trouble.begin():
            due.pop(0)
        ended = engine.step()
        trouble.step()
        for name, answer in ended.items():
            at = running.pop(name)
            done += 1
            context.reference.compare([asked[at]], n, [answer])
    trouble.over()
    engine.drain()
    scheduler, worker = watched.end(), engine.on_workers(watch.end_on_worker)[0]
    for side, found in (("scheduler", scheduler), ("worker", worker)):
        for call in found["slow"]:
            print(f"-- slowest hooks, {side}: {watch.shown(call)}", flush=True)
        for call in found["waited"]:
            print(f"-- longest waits, {side}: {watch.shown(call)}", flush=True)
    need(
        (trouble.kills, trouble.freezes, trouble.restarts) == (kills, others, others),
        f"only {trouble.kills} kills happened",
    )
    _nothing_is_left(engine)
    status = server.wait_until(
        lambda s: not (s["sessions"] or s["holds"] or s["l1.bytes_promised"] or s["l1.bytes_held"]), 60
    )
    for name in ("sessions", "holds", "l1.bytes_promised", "l1.bytes_held", "bugs.mismatches"):
        need(status[name] == 0, f"the last server's counter {name} is {status[name]}")
    counts = {name: value - before[name] for name, value in engine.side.counts.items()}
    need(counts["loads"] > 0, "nothing was loaded, so no load could fail")
    wait = watch.longest_wait(scheduler)
    need(
        wait <= MAX_WAIT_MS, f"a hook of the scheduler waited {wait:.1f} ms: {[*map(watch.shown, scheduler['waited'])]}"
    )
    return (
        f"0 left pinned; {trouble.kills} kills, {trouble.freezes} freezes, {trouble.restarts} restarts;"
        f" {counts['loads']} loads of {counts['load_tokens']} tokens, of which {counts['failed_loads']} failed; slowest"
        f" hooks: {watch.shown(scheduler['slow'][0])} (scheduler), {watch.shown(worker['slow'][0])} (worker)"
    )


def absent_then_there(context, engine, server):
    asked, n = prompts.of("shared")
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.forget()
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.forget()
    need(engine.side.counts["loads"] == 0, "tokens were loaded though there is no server")
    server.start()
    rounds = 0
    end = time.monotonic() + 60
    while engine.side.counts["loads"] == 0:
        need(time.monotonic() < end, "nothing was loaded in the minute after the server was started")
        context.reference.compare(asked, n, engine.run(asked, n))
        engine.forget()
        rounds += 1
    return f"the first load came in round {rounds} after the start"
