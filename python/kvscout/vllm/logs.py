# SPDX-License-Identifier: Apache-2.0
"""The library's log lines in vLLM's log, with its format and level. vLLM gives handlers to its own logger alone;
lines of any other one would come out bare, and below `warning` not at all. And warnings at most once in ten seconds."""

import logging
import time


def join_vllm():
    """Legal more than once. A program that has set up the logger `kvscout` by itself is left alone."""
    library = logging.getLogger("kvscout")
    if not library.handlers and library.propagate and library.parent is logging.getLogger():
        library.parent = logging.getLogger("vllm")


class Teller:
    """Warnings for the log. An engine without a server meets the same error with each request."""

    SECONDS = 10.0

    def __init__(self, logger, clock=time.monotonic, name="kvscout tier"):
        self._logger = logger
        self._name = name
        self._clock = clock
        self._last = -self.SECONDS
        self._suppressed = 0

    def warn(self, text, *args):
        now = self._clock()
        if now - self._last < self.SECONDS:
            self._suppressed += 1
            return
        self._last = now
        more = f" ({self._suppressed} lines like this were suppressed)" if self._suppressed else ""
        self._suppressed = 0
        self._logger.warning("%s: " + text + "%s", self._name, *args, more)
