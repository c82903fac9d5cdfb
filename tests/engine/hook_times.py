# SPDX-License-Identifier: Apache-2.0
"""How long the hooks of a connector's side take in each step. Imports nothing of vLLM and of kvscout."""

import time


class HookTimes:
    """Of one connector. A step ends with the hook @last; what comes after it belongs to the next one. By step, in nanoseconds: `steps` on the
    clock, `cpu` of this thread alone, which other processes do not disturb; `calls` is number and time of the calls by name. Measuring takes as
    long as a short hook, so what it takes of a call that does nothing is taken off."""

    def __init__(self, connector, names, last):
        self.steps, self.cpu, self.calls = [], [], {}
        self._wall = self._spent = self._depth = 0
        self._measuring = 0
        self._measuring = self._of_nothing()
        for name in names:
            setattr(connector, name, self._timed(getattr(connector, name), name, name == last))

    def _of_nothing(self):
        call = self._timed(lambda request, n: None, "", False)
        found = []
        for _ in range(2000):
            self._spent = 0
            call(None, 0)
            found.append(self._spent)
        self._wall = self._spent = 0
        self.clear()
        return percentile(found, 0.5)

    def _timed(self, hook, name, ends_step):
        wall, thread = time.perf_counter_ns, time.thread_time_ns

        def timed(*args, **more):
            if self._depth:  # one hook calls another
                return hook(*args, **more)
            self._depth = 1
            cpu, begin = thread(), wall()
            try:
                return hook(*args, **more)
            finally:
                self._wall += wall() - begin
                took = max(0, thread() - cpu - self._measuring)
                self._spent += took
                n, sum_ = self.calls.get(name, (0, 0))
                self.calls[name] = (n + 1, sum_ + took)
                self._depth = 0
                if ends_step:
                    self.end_step()

        return timed

    def end_step(self):
        self.steps.append(self._wall)
        self.cpu.append(self._spent)
        self._wall = self._spent = 0

    def clear(self):
        self.steps.clear()
        self.cpu.clear()
        self.calls.clear()


def public_methods(connector):
    """Of a vLLM connector: what vLLM's scheduler may call."""
    kinds = type(connector)
    return [name for name in dir(kinds) if not name.startswith("_") and callable(getattr(kinds, name)) and not isinstance(vars(kinds).get(name), classmethod | staticmethod)]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
