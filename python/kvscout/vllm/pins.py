# SPDX-License-Identifier: Apache-2.0
"""Blocks that stores read. Scheduler's process.

A store copies after the step that computed its blocks, and its request may end or be preempted meanwhile. Each store
therefore holds a reference on its blocks, as a request does, until every rank has reported its end. So no request's end
waits for a store.
"""


class Pins:
    def __init__(self, ranks):
        self._blocks = None
        self._ranks = ranks  # that report each store
        self._held = {}  # number of the store: [block ids, ranks that have not reported it]

    def bind(self, blocks):
        """@blocks: of internals.py."""
        self._blocks = blocks

    def __len__(self):
        return len(self._held)

    def take(self, number, block_ids):
        self._blocks.hold(block_ids)
        self._held[number] = [block_ids, self._ranks]

    def give_back(self, number, ranks):
        """Whether all have reported it now."""
        held = self._held.get(number)
        if held is None:
            return False
        held[1] -= ranks
        if held[1] > 0:
            return False
        del self._held[number]
        # Tail first, so that vLLM evicts the shared head of a prefix last.
        self._blocks.release(reversed(held[0]))
        return True

    def hold_back_blocks(self):
        """Whether a block would be free but for a store: then it is wiser to wait for the store than to preempt a
        request."""
        return any(self._blocks.users(block) == 1 for block_ids, _ in self._held.values() for block in block_ids)
