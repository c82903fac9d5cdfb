# SPDX-License-Identifier: Apache-2.0
"""What kvscout takes of vLLM that is no interface of vLLM's: frames of callers, the block pool, the manager of adapters. The next vLLM
may have it otherwise. Then a feature is lost, never the start: each function says which one.
"""

import sys


def minor_version(version):
    """0.32 of 0.32.1+cpu: neither interfaces nor what a block holds change within a minor version."""
    return ".".join(str(version).split("+")[0].split(".")[:2])


def version():
    import vllm

    return minor_version(getattr(vllm, "__version__", "of an unknown version"))


def from_callers(name, wanted):
    """The local variable @name of the nearest caller for which wanted(value) is true; None: there is none. A connector is handed
    neither the model nor, as a tier, the configuration; but what calls it has them. Who gets None shares no KV, or checks later."""
    frame = sys._getframe(1)
    while frame is not None:
        value = frame.f_locals.get(name)
        try:
            if value is not None and wanted(value):
                return value
        except Exception:  # a property of somebody else's object
            pass
        frame = frame.f_back
    return None


def executor():
    """What makes all calls to the workers, by collective_rpc(). None: an engine that cannot see new weights neither loads nor stores."""
    core = from_callers("self", lambda owner: hasattr(owner.model_executor, "collective_rpc"))
    return getattr(core, "model_executor", None)


def waker():
    """A function by which any thread has an idle engine look whether a step is wanted. None: the engine has no loop of its own, or it is
    another vLLM: what changes while it is idle is announced with its next step."""
    core = from_callers("self", lambda owner: hasattr(owner.input_queue, "put_nowait"))
    try:
        from vllm.v1.engine import EngineCoreRequestType

        queue, nothing = core.input_queue, (EngineCoreRequestType.WAKEUP, None)
    except (ImportError, AttributeError):
        return None
    return lambda: queue.put_nowait(nothing)


def adapters():
    """A function that returns the LoRA adapters that this worker has loaded, by number. With another vLLM it returns none, and
    requests with adapters neither load nor store."""
    runner = from_callers("self", lambda owner: hasattr(owner, "lora_manager"))
    return getattr(getattr(getattr(runner, "lora_manager", None), "_adapter_manager", None), "list_adapters", dict)


class Blocks:
    """vLLM's block pool, by numbers of blocks. With a pool that has not all of this, AttributeError: the engine stores nothing."""

    def __init__(self, kv_cache_manager):
        self._manager = kv_cache_manager
        self._pool = pool = kv_cache_manager.block_pool
        self.null, self.n = pool.null_block.block_id, pool.num_gpu_blocks
        _ = pool.blocks, pool.touch, pool.free_blocks, pool.evict_blocks, kv_cache_manager.get_block_ids

    def of_request(self, request_id):
        """By group."""
        return self._manager.get_block_ids(request_id)

    def hold(self, numbers):
        """As one more request that uses these blocks."""
        self._pool.touch([self._pool.blocks[number] for number in numbers])

    def release(self, numbers):
        self._pool.free_blocks([self._pool.blocks[number] for number in numbers])

    def users(self, number):
        return self._pool.blocks[number].ref_cnt

    def evict(self, numbers):
        """From vLLM's own prefix cache."""
        self._pool.evict_blocks(numbers)


def hash_table(kv_cache_manager):
    """Of vLLM's own prefix cache: another one after its reset. None: with another vLLM routers are not told again after a reset."""
    return getattr(getattr(kv_cache_manager, "block_pool", None), "cached_block_hash_to_block", None)
