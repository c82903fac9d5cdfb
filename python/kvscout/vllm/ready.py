# SPDX-License-Identifier: Apache-2.0
"""Waiting for a worker's copies."""

import select

WAIT_MS = 200  # at most so long: who waits looks again


def wait(worker):
    """Until @worker's descriptor rings, or WAIT_MS. With poll(), because select() takes no descriptor above 1023, and engines have more."""
    ready = select.poll()
    ready.register(worker.fileno(), select.POLLIN)
    ready.poll(WAIT_MS)
