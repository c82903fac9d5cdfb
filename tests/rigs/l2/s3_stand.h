/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * An HTTP server on loopback with a thread for each connection: its answers are a test's, or those of a real server
 * that it passes requests on to, with faults between.
 */

struct stand_request {
	const char *method, *path; /* path: with the query */
	const char *head;          /* all lines up to the empty one, that one too */
	const uint8_t *body;
	size_t body_len;
};

enum stand_fault {
	STAND_PASS = 0,
	STAND_BUSY,         /* 503 SlowDown */
	STAND_RESET,        /* the connection is reset, nothing was passed on */
	STAND_LOST,         /* passed on, and the connection is reset instead of the answer */
	STAND_SHORT,        /* half of the body, then the end of the connection */
	STAND_WRONG,        /* a byte of the body is another */
	STAND_SLOW,         /* the body in ten pieces, 50 ms after each other */
	STAND_THINKS,       /* 2.5 s about the whole request before it is passed on */
	STAND_LONG,         /* the body, again and again */
	STAND_DRIP,         /* the same by single bytes, 20 ms after each other */
	STAND_PAGE,         /* 200 with a page of HTML */
	STAND_BAD,          /* 400 without a code */
	STAND_FROZEN,       /* no answer until the faults are cleared */
	STAND_ABSENT,       /* 404 NoSuchKey */
	STAND_EXPIRED,      /* 403 ExpiredToken */
	STAND_SKEWED,       /* 403 RequestTimeTooSkewed, unless x-amz-date is an hour ahead */
	STAND_MOVED,        /* 301 to eu-west-1 */
	STAND_FORBIDDEN,    /* 403 AccessDenied */
	STAND_NO_CONDITION, /* 501 to If-None-Match */
	STAND_CONFLICT      /* 409 ConditionalRequestConflict */
};

struct stand {
	int fd;
	uint16_t port;
	_Atomic uint16_t to; /* the real server's, which may change; 0: none */
	/* NULL, or called for each request, on the connection's thread; false: end the connection. */
	bool (*answer)(void *user, int fd, const struct stand_request *request);
	void *user;
	atomic_uint fault;      /* enum stand_fault */
	atomic_uint one_in;     /* faults hit each n-th request; 1: all */
	atomic_int left;        /* faults that are left; below 0: without end */
	const char *_Atomic of; /* only requests of this method; NULL: all */
	atomic_uint n;          /* requests */
	atomic_uint n_faults;   /* of them, with a fault */
	atomic_uint running;    /* connections */
	atomic_bool ends;
	pthread_t thread;
};

/* Fails the test on error. */
void stand_start(struct stand *s);
void stand_stop(struct stand *s);
/* From now on: each @one_in-th request of @method (NULL: all), @times in all (below 0: without end). */
void stand_fail(struct stand *s, enum stand_fault fault, const char *method, uint32_t one_in, int times);
/* The value of a header in @head; "" without it. */
void stand_header(const char *head, const char *name, char *ret_value, size_t size);
/* A whole answer; @headers: lines with their ends, or "". */
void stand_reply(int fd, int status, const char *headers, const void *body, size_t len);

/* Swift with its s3api, see swift.py. */
struct swift {
	pid_t pid;
	int to, from; /* its standard input and output */
	uint16_t port;
	char folder[64];
};

/*
 * A test program's main(): a Swift for all its cases, and its keys in the environment; "1..0 # SKIP" where it cannot be
 * had. A case has a bucket of its own, by this name.
 */
int swift_main(struct swift *swift, Suite *suite);
const char *swift_bucket(void);
/* NULL, or why there is none. It ends with this process, or with swift_stop(). */
const char *swift_start(struct swift *swift);
void swift_stop(struct swift *swift);
