# SPDX-License-Identifier: Apache-2.0
"""Servers that die, stand still, come back or were never there: the engine answers as without a connector, and goes
on."""

import random
import time

import prompts
from checks import need
from scenarios import _nothing_is_left, worker_times

AT_ONCE = 8


class Trouble:
    """What happens to the server, by steps of the engine: each event ends some steps later."""

    def __init__(self, server, draw):
        self._server = server
        self._draw = draw
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
        kind = self._draw.choice(("kill", "kill", "freeze", "restart"))
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


def servers_that_die(context, engine, server, requests, events):
    asked, n = prompts.of("stream")
    draw = random.Random("kills")
    trouble = Trouble(server, draw)
    due = sorted(draw.randrange(requests // 20, requests) for _ in range(events))
    engine.run(asked[:1], n)  # the first forward pass of an engine takes seconds
    sides = (engine.side.times, engine.on_workers(worker_times)[0])
    for times in sides:
        times.start()
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
    need(engine.errors == 0, f"{engine.errors} requests ended with an error")
    _nothing_is_left(engine)
    status = server.wait_until(
        lambda s: not (s["sessions"] or s["holds"] or s["l1.bytes_promised"] or s["l1.bytes_held"]), 60
    )
    for name in ("sessions", "holds", "l1.bytes_promised", "l1.bytes_held", "bugs.mismatches"):
        need(status[name] == 0, f"the last server's counter {name} is {status[name]}")
    counts = {name: value - before[name] for name, value in engine.side.counts.items()}
    need(counts["loads"] > 0, "nothing was loaded, so no load could fail")
    return (
        f"{done} requests, {done * n} tokens compared, 0 differ, 0 failed, 0 left pinned; {trouble.kills} kills,"
        f" {trouble.freezes} freezes, {trouble.restarts} restarts; {counts['loads']} loads, of which"
        f" {counts['failed_loads']} failed; the hooks of a step took {max(sides[0].steps) / 1e6:.1f} ms (scheduler) and"
        f" {max(sides[1].steps) / 1e6:.1f} ms (worker) at most"
    )


def absent_then_there(context, engine, server):
    asked, n = prompts.of("shared")
    compared = context.reference.compare(asked, n, engine.run(asked, n))
    engine.forget()
    compared += context.reference.compare(asked, n, engine.run(asked, n))
    engine.forget()
    need(engine.side.counts["loads"] == 0, "tokens were loaded though there is no server")
    server.start()
    rounds = 0
    end = time.monotonic() + 60
    while engine.side.counts["loads"] == 0:
        need(time.monotonic() < end, "nothing was loaded in the minute after the server was started")
        compared += context.reference.compare(asked, n, engine.run(asked, n))
        engine.forget()
        rounds += 1
    return f"{compared} tokens compared, 0 differ; the first load came in round {rounds} after the start"
