# SPDX-License-Identifier: Apache-2.0
"""kvscout: how many leading tokens of a prompt are cached outside the GPU, and no caller waits for the answer.

Client is the scheduler's side; it answers with a Hit, or about single objects with Keys. Worker copies pages and reports each job with a Done. ensure_server() finds or
starts the server of this host; Server is a server inside this process. Errors are exceptions: KVScoutError and its subclasses, with the code's number and name.
"""

import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "kvscout does not run on a free-threaded Python: its extension is built for CPython's stable ABI, "
        "which those interpreters do not have; use the ordinary build of this Python version"
    )

from ._kvscout import (
    GENERATION_NEWEST,
    ArgumentError,
    BusyError,
    Client,
    ClosedError,
    ConfigError,
    Done,
    FEED_CLEARED,
    FEED_CAUGHT_UP,
    FEED_DROPPED,
    FEED_L1,
    FEED_L2,
    FEED_REMOVED,
    FEED_START_OVER,
    FEED_STORED,
    Hit,
    KEY_HIT,
    KEY_MISS,
    KEY_RETRY,
    Keys,
    KVScoutError,
    Server,
    ServerError,
    StateError,
    Worker,
    __version__,
    ensure_server,
    error_name,
    error_of,
    hash_blocks,
)

__all__ = [
    "GENERATION_NEWEST",
    "ArgumentError",
    "BusyError",
    "Client",
    "ClosedError",
    "ConfigError",
    "Done",
    "FEED_CLEARED",
    "FEED_CAUGHT_UP",
    "FEED_DROPPED",
    "FEED_L1",
    "FEED_L2",
    "FEED_REMOVED",
    "FEED_START_OVER",
    "FEED_STORED",
    "Hit",
    "KEY_HIT",
    "KEY_MISS",
    "KEY_RETRY",
    "Keys",
    "KVScoutError",
    "Server",
    "ServerError",
    "StateError",
    "Worker",
    "__version__",
    "ensure_server",
    "error_name",
    "error_of",
    "hash_blocks",
]
