# SPDX-License-Identifier: Apache-2.0
"""Stores that wait until the scheduler has heard of their step. Worker's process; only under MultiConnector.

There another connector may load in the step that computes. If such a load fails, what the step computed is wrong, and
only vLLM hears of it, when the step is over. So a store waits until the scheduler's side has seen the result of its
step (Metadata.settled), and is dropped if that result names a failed load (Metadata.void). Its blocks are pinned all
the while.
"""

import collections


class Held:
    def __init__(self):
        self._stores = collections.deque()  # by rising number

    def __len__(self):
        return len(self._stores)

    def hold(self, stores):
        """Returns the number of the last one."""
        self._stores.extend(stores)
        return self._stores[-1].number

    def take(self, meta):
        """(stores that may start, stores that may not) by what @meta says."""
        drops_all = meta.generation or meta.weights_version or meta.move  # what was computed before a reset, or with old weights
        start, drop = [], []
        while self._stores:
            number = self._stores[0].number
            if drops_all or number <= meta.void:
                drop.append(self._stores.popleft())
            elif number <= meta.settled:
                start.append(self._stores.popleft())
            else:
                break
        return start, drop
