# SPDX-License-Identifier: Apache-2.0
"""Whether a rank still has the weights whose identity is in the namespace."""

import logging
import threading
import weakref

logger = logging.getLogger("kvscout")


class Weights:
    """SGLang does not tell its storage of new weights (update_weights_from_...). But when it drops its own cache, as it does for them, it
    ends its storage threads and starts others. So the first call of each thread looks at the weights in memory again."""

    def __init__(self, of_now):
        """@of_now(): what shows the weights of this moment."""
        self._of_now = of_now
        self._first = self._look()
        self._lock = threading.Lock()
        self._threads = weakref.WeakSet()
        self._same = True

    def are_same(self):
        with self._lock:
            thread = threading.current_thread()
            if thread not in self._threads:
                self._threads.add(thread)
                before, self._same = self._same, self._look() == self._first
                if before and not self._same:
                    logger.warning(
                        "kvscout: the weights of this engine have changed. It neither loads nor stores KV until its storage is detached and "
                        "attached again (DELETE and PUT of /hicache/storage-backend), which finds the namespace of the new weights"
                    )
            return self._same

    def _look(self):
        try:
            return self._of_now()
        except Exception as error:  # then the namespace is the engine's own, for the same reason
            return str(error)
