/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "msg.h"

/*
 * A bare peer of a server, for micro_server: one DEALER for HELLO, and for frames either that or the channel in
 * shared memory. It keeps no state of operations. Main thread only. A failure ends the process.
 */
struct micro_link {
	void *zmq, *dealer;
	int lease_fd;                  /* -1: none */
	struct scout__channel channel; /* open: frames travel through it */
	uint8_t *in;                   /* the frame that arrives through it */
	size_t in_cap;
	uint64_t epoch;
	void (*on_frame)(void *user, const void *data, size_t len);
	void *user;
};

/* Connect and say HELLO. on_frame and user are set; @max_frame: bytes of the longest frame that may arrive. */
void micro_link_open(struct micro_link *link, const char *endpoint, bool use_socket, const struct scout__hello *hello,
		     size_t max_frame);
void micro_link_close(struct micro_link *link);

/* Complete the frame and send it. */
void micro_link_send(struct micro_link *link, struct scout__writer *w, uint32_t n_ops);
/* Hand every frame that has come to on_frame. Waits for the first one if @wait. */
void micro_link_receive(struct micro_link *link, bool wait);
/* Until there is something to read, or @until_ns. All was read just before: the descriptor tells of what came since. */
void micro_link_sleep_until(struct micro_link *link, double until_ns);
