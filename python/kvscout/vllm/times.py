# SPDX-License-Identifier: Apache-2.0
"""Times of single events, for histograms of /metrics. Any process; one thread."""

BUCKETS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds


class Times:
    """Seconds by name since the last take(). Bounded, for a program that never takes them."""

    ROOM = 4096

    def __init__(self):
        self._found = {}

    def add(self, name, seconds):
        values = self._found.setdefault(name, [])
        if len(values) < self.ROOM:
            values.append(seconds)

    def take(self):
        found, self._found = self._found, {}
        return found
