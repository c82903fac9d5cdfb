/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * A byte proxy between stream sockets that knows nothing of what it carries: it can cut, stall, slow and half-close a real
 * connection. It listens on loopback TCP and connects to a unix socket for each connection that it accepts.
 */

enum proxy_mode {
	PROXY_PASS = 0,
	PROXY_CUT,        /* connections are closed, new ones too */
	PROXY_STALL,      /* nothing passes; connections stay */
	PROXY_STALL_BACK, /* what the server sends does not pass */
	PROXY_SLOW,       /* 64 bytes a millisecond, each way */
	PROXY_HALF_CLOSE  /* the client's side is told that the server sends no more; the other way passes */
};

struct proxy;

/* @path: of the server's socket. Fails the test on error. */
struct proxy *proxy_start(const char *path);
void proxy_stop(struct proxy *p);
/* tcp://127.0.0.1:PORT */
const char *proxy_endpoint(const struct proxy *p);
/* From now on, for connections that there are and those that come. Has taken effect when it returns. */
void proxy_set(struct proxy *p, enum proxy_mode mode);
/* Let @bytes more of what the server sends pass, then change to @mode. */
void proxy_set_after(struct proxy *p, uint32_t bytes, enum proxy_mode mode);
