/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <zmq.h>

/*
 * Wait at most @wait_ms (negative: without end) for @n items; @fds has room for as many. zmq_poll() makes some eight system calls;
 * while the sockets are quiet, one poll() on their descriptors is enough.
 *
 * *look says whether a socket may have something. True: zmq_poll() asks them, and *look becomes false if it finds nothing. False:
 * poll(); a socket whose descriptor is readable counts as readable, and *look becomes true. The caller sets *look after each call
 * on a socket, because the call may consume the edge of the descriptor. Returns as zmq_poll().
 */
int scout__zmq_wait(zmq_pollitem_t *items, struct pollfd *fds, int n, long wait_ms, bool *look);
