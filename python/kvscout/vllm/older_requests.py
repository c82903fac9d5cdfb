# SPDX-License-Identifier: Apache-2.0
"""Requests from before a reset that still run. Scheduler's process.

vLLM resets its own prefix cache only while no block is in use. A reset of the connector while requests run would otherwise leave
blocks there that old weights computed, and a request that builds on them would store KV of the old weights. So at such a reset all
blocks leave vLLM's prefix cache, and after each step those that the older requests have filled meanwhile; vLLM does the same with
blocks that a load did not fill. A request that vLLM allocates in the same step, before this was done, may share a block with an
older one: then it counts as older itself. Older requests store nothing. When the last of them has ended, it is over.
"""


class Older:
    def __init__(self):
        self._pool = None
        self._ids = set()

    def bind(self, blocks):
        """@blocks: of internals.py."""
        self._pool = blocks

    def __len__(self):
        return len(self._ids)

    def __contains__(self, request_id):
        return request_id in self._ids

    def begin(self, request_ids):
        """A reset. Of @request_ids those that have blocks are older ones."""
        self._ids = {request_id for request_id in request_ids if self._blocks_of(request_id)}
        self._forget_all()

    def clear(self):
        self._ids = set()

    def allocated(self, request_id, block_ids):
        """@block_ids: of @request_id, by group. Whether it is an older one now."""
        if request_id not in self._ids and not self._blocks().isdisjoint(self._flat(block_ids)):
            self._ids.add(request_id)
        return request_id in self._ids

    def end_step(self, preempted):
        """@preempted: ids of requests; their blocks are nobody's any more, and not known here."""
        if self._ids.isdisjoint(preempted):
            self._pool.evict(self._blocks())
        else:
            self._forget_all()

    def ended(self, request_id):
        """vLLM has not freed its blocks yet. Whether it was the last one."""
        if request_id not in self._ids:
            return False
        self._pool.evict(self._blocks_of(request_id))
        self._ids.remove(request_id)
        return not self._ids

    def _forget_all(self):
        self._pool.evict(set(range(self._pool.n)))

    def _blocks(self):
        return set().union(*map(self._blocks_of, self._ids))

    def _blocks_of(self, request_id):
        return self._flat(self._pool.of_request(request_id))

    def _flat(self, block_ids):
        return {block for group in block_ids for block in group if block != self._pool.null}
