# SPDX-License-Identifier: Apache-2.0
"""kvscout: how many leading tokens of a prompt are cached outside the GPU, and no caller waits for the answer.

Client is the scheduler's side; it answers with a Hit, or about single objects with Keys. Worker copies pages and reports each job with a Done. ensure_server() finds or
starts the server of this host; Server is a server inside this process. Errors are exceptions: KVScoutError and its subclasses, with the code's number and name.
"""

import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "kvscout does not run on a free-threaded Python: its extension is built for CPython's stable ABI, "
        "which those interpreters do not have; use the ordinary build of this Python version"
    )

# Public names: `as` says so to type checkers.
from ._kvscout import (
    GENERATION_NEWEST as GENERATION_NEWEST,
    ArgumentError as ArgumentError,
    BusyError as BusyError,
    Client as Client,
    ClosedError as ClosedError,
    ConfigError as ConfigError,
    Done as Done,
    FEED_CLEARED as FEED_CLEARED,
    FEED_CAUGHT_UP as FEED_CAUGHT_UP,
    FEED_DROPPED as FEED_DROPPED,
    FEED_L1 as FEED_L1,
    FEED_L2 as FEED_L2,
    FEED_REMOVED as FEED_REMOVED,
    FEED_START_OVER as FEED_START_OVER,
    FEED_STORED as FEED_STORED,
    Hit as Hit,
    KEY_HIT as KEY_HIT,
    KEY_MISS as KEY_MISS,
    KEY_RETRY as KEY_RETRY,
    Keys as Keys,
    KVScoutError as KVScoutError,
    Server as Server,
    ServerError as ServerError,
    StateError as StateError,
    Worker as Worker,
    __version__ as __version__,
    ensure_server as ensure_server,
    error_name as error_name,
    error_of as error_of,
    hash_blocks as hash_blocks,
)
