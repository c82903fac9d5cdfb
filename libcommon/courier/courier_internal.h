/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <zmq.h>

#include "courier.h"
#include "doorbell.h"
#include "link.h"

/*
 * The courier's own state, for its three files: courier_start.c (new and free) -> courier.c (the loop) -> courier_context.c (libzmq's
 * context).
 */

struct scout__courier {
	/* const after start */
	const struct scout__courier_ops *ops;
	void *user;
	const struct scout__log *log;
	struct scout__link_env env; /* passed to the links */
	struct scout__curve_keys curve;
	int user_fd;
	uint32_t spin_us;
	uint32_t n_links;
	unsigned fork_generation;
	pthread_t thread;
	bool started;

	/* courier */
	struct scout__link *links;
	zmq_pollitem_t *items;
	struct pollfd *fds; /* room for the same descriptors, while the sockets are quiet */
	bool look;          /* some socket may have something: see zmq_wait.h */

	/* shared */
	struct scout__ring ring; /* caller -> courier */
	struct scout__doorbell bell;
	atomic_bool stop; /* caller -> courier */
	struct scout__courier_stats stats;
};

/* courier.c: the thread; @arg is the courier. */
void *scout__courier_main(void *arg);

/*
 * courier_context.c: a context for these endpoints; it starts libzmq's threads. 0 or SCOUT_ERR_*, with a sentence in @err. Close the
 * context in either case, on the courier or on the thread that frees it, when all sockets are closed.
 */
int scout__courier_open_context(struct scout__courier *c, const char *const *endpoints, uint32_t n, char *err,
				size_t err_len);
void scout__courier_close_context(struct scout__courier *c);
