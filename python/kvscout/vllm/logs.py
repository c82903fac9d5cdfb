# SPDX-License-Identifier: Apache-2.0
"""The library's log lines in vLLM's log, with its format and level. vLLM gives handlers to its own logger alone;
lines of any other one would come out bare, and below `warning` not at all."""

import logging


def join_vllm():
    """Legal more than once. A program that has set up the logger `kvscout` by itself is left alone."""
    library = logging.getLogger("kvscout")
    if not library.handlers and library.propagate and library.parent is logging.getLogger():
        library.parent = logging.getLogger("vllm")
