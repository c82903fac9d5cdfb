# SPDX-License-Identifier: Apache-2.0
"""Exceptions of kvscout's own code in what vLLM calls. vLLM ends the engine at an exception there, and a cache is not worth an engine. So none
leaves a hook: it is counted, one line of the log says where it was raised, vLLM gets a safe answer, and what the hook was about goes on without
the cache. KeyboardInterrupt and its like pass, and so does what a start refuses."""

import functools
import logging
import os

from .logs import Teller

logger = logging.getLogger("vllm.kvscout")


class Faults:
    def __init__(self, counts, name="kvscout"):
        """@counts: `hook_errors` in it is this object's."""
        self.lock = None  # an RLock that is held in hooks, where another thread calls the object, too: events.py
        self._counts = counts
        self._teller = Teller(logger, name=name)

    def tell(self, where, error):
        self._counts["hook_errors"] += 1
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        self._teller.warn("%s failed at %s, so what it was about goes on without the cache. Please report: %r", where, place, error)
        logger.debug("%s failed", where, exc_info=error)

    def attempt(self, call, *args):
        """@call's result; None where it raises."""
        try:
            return call(*args)
        except Exception as error:
            self.tell(getattr(call, "__name__", "a call"), error)
            return None


def hook(answer=lambda *_, **__: None):
    """Of a method that vLLM calls while requests run. @answer(the same arguments): what it returns where the method raises; it must not
    raise itself. The object has `_faults`."""

    def wrap(method):
        @functools.wraps(method)
        def guarded(self, *args, **more):
            try:
                lock = self._faults.lock
                if lock is None:
                    return method(self, *args, **more) if more else method(self, *args)  # the usual way, and twice as fast
                with lock:
                    return method(self, *args, **more)
            except Exception as error:
                self._faults.tell(method.__name__, error)
                return answer(self, *args, **more)

        return guarded

    return wrap
