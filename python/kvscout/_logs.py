# SPDX-License-Identifier: Apache-2.0
"""From the library's threads to ``logging``, and the end of the interpreter.

The library logs from threads of its own. They run no Python: a line goes into a ring of 512 lines, and the thread "kvscout-log" hands
it to the logger "kvscout", with the time at which it was logged. Lines that find the ring full are lost; their number is logged as a
warning in their place.
"""

import atexit
import logging
import os
import threading
import traceback

from . import _kvscout

LOGGER = logging.getLogger("kvscout")

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_EXIT_WAIT_S = 2.0  # at exit, for a handler that is busy with an earlier line

_turn = threading.RLock()  # held from taking a line until its handlers have run, so lines stay in order
_thread: threading.Thread | None = None


def _handle(level: int, when: float, text: str) -> None:
    if not LOGGER.isEnabledFor(level):
        return
    record = LOGGER.makeRecord(LOGGER.name, level, "(kvscout)", 0, text, (), None)
    record.relativeCreated += (when - record.created) * 1000
    record.created = when
    record.msecs = float(int(when % 1 * 1000))
    try:
        LOGGER.handle(record)
    except Exception:  # a filter's; handlers catch their own
        if logging.raiseExceptions:
            traceback.print_exc()


def _drain() -> None:
    while (line := _kvscout._log_pop()) is not None:
        level, when, lost, text = line
        if lost:
            _handle(logging.WARNING, when, f"{lost} log lines were lost here: they came faster than they were handled")
        if level:
            _handle(_LEVELS.get(level, logging.ERROR), when, text)


def flush() -> None:
    """Return when every line that was logged before this call has been handed to ``logging``."""
    with _turn:
        _drain()


def _run() -> None:
    while _kvscout._log_wait():
        flush()


def start() -> None:
    """Called when an object of the library is made."""
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_run, name="kvscout-log", daemon=True)
        _thread.start()


def _at_exit() -> None:
    """Close what is open, then hand over the last lines. Runs before logging.shutdown(), which was registered earlier."""
    _kvscout._close_all()
    if _thread is not None:
        _kvscout._log_stop()
        _thread.join(_EXIT_WAIT_S)
    if _turn.acquire(timeout=_EXIT_WAIT_S):
        try:
            _drain()
        finally:
            _turn.release()


def _after_fork_in_child() -> None:
    global _turn, _thread
    _turn = threading.RLock()  # the parent's thread may hold the other one
    _thread = None


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
