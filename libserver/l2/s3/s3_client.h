/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <kvscout/l2_plugin.h>

#include "s3_credentials.h"
#include "s3_http.h"

/*
 * Requests on objects of one bucket, until they have an outcome: signed, tried again where this helps, and explained
 * where it does not.
 *
 *   tried again, after 0.1 to 5 s (doubled each time, less up to a half), SCOUT__S3_TRIES times in all
 *                        500, 502, 503 (SlowDown), 504, 429, 408, RequestTimeout, OperationAborted, 409 of a conditional PUT,
 *                        a connection that is refused, reset or ends early
 *   tried again at once  RequestTimeTooSkewed, with the store's clock; ExpiredToken and the like, with credentials read
 *                        anew; 400 or 501 to If-None-Match, without it. Each once
 *   never                403, 404, a redirect to another region, a certificate that does not verify
 */

#define SCOUT__S3_TRIES 6u
#define SCOUT__S3_PLAIN_VOTES 3u
#define SCOUT__S3_MAX_KEY 512u

struct scout__s3_client {
	/* const after scout__s3_client_init() */
	char scheme[8];
	char host[512];   /* with the bucket in it, if the style is `host`; with the port, unless it is the scheme's */
	char bucket[256]; /* path style: first part of each path; "" otherwise */
	char prefix[SCOUT__S3_MAX_KEY];
	char region[64];
	char *ca_file, *credentials_file; /* NULL: not given */
	bool hashes_payloads;             /* else UNSIGNED-PAYLOAD, over TLS only */
	uint32_t timeout_ms;
	/* any thread */
	struct scout__s3_credentials credentials;
	atomic_llong clock_offset;   /* seconds that the store's clock is ahead */
	atomic_uint plain_votes;     /* SCOUT__S3_PLAIN_VOTES: it does not know If-None-Match */
	_Atomic uint64_t n_requests; /* all that were sent */
	_Atomic uint64_t n_again;    /* those among them that repeat one */
	pthread_mutex_t mu;
	struct scout__s3_line *lines; /* G:mu; idle */
};

struct scout__s3_options {
	const char *bucket, *prefix;
	const char *endpoint; /* https://host[:port]; NULL: AWS, by the region */
	const char *region;   /* NULL: us-east-1 */
	const char *style;    /* "path", "host"; NULL: "host" with AWS, "path" with an endpoint */
	const char *ca_file, *credentials_file;
	bool unsigned_payload;
	uint32_t timeout_ms;
};

/* Returns whether the options are good; @err says what is not. Looks at no store. */
bool scout__s3_client_init(struct scout__s3_client *client, const struct scout__s3_options *options, char *err,
			   size_t err_len);
void scout__s3_client_fini(struct scout__s3_client *client);

struct scout__s3_ask {
	const char *method;
	const char *key; /* below the prefix; NULL: the bucket itself */
	uint32_t n_pairs;
	struct scout__s3_pair pairs[6]; /* the query */
	const struct iovec *parts;      /* PUT: the body. GET: where it goes, all of it; NULL: into text */
	uint32_t n_parts;
	bool must_be_new; /* PUT: what is there stays */
	bool newest;      /* GET: a store with replicas that lag asks all of them */
	struct scout__s3_text text;
	/* The outcome. */
	enum scout_l2_outcome result;
	long status;                  /* of the last answer; 0: none */
	char why[SCOUT__S3_SENTENCE]; /* ERROR: a sentence without a secret */
};

/* Do @n asks, SCOUT__S3_AT_ONCE at most. Any thread; blocks until each has its outcome. */
void scout__s3_do(struct scout__s3_client *client, struct scout__s3_ask *asks, uint32_t n,
		  struct scout__s3_watch *watch);

/* ---- s3_judge.c: what an answer means ---- */

enum scout__s3_verdict {
	SCOUT__S3_IS_OVER,     /* ask->result is written */
	SCOUT__S3_AGAIN_LATER, /* the store is busy, or a connection broke */
	SCOUT__S3_AGAIN_WITH_CLOCK,
	SCOUT__S3_AGAIN_WITH_KEYS,
	SCOUT__S3_AGAIN_PLAIN /* without If-None-Match */
};

/* @was_plain: the PUT did not say If-None-Match. @x->text holds the document of a failure. */
enum scout__s3_verdict scout__s3_judge(const struct scout__s3_client *client, const struct scout__s3_exchange *x,
				       bool was_plain, struct scout__s3_ask *ask);
