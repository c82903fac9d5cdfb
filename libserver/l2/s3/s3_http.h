/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "s3_curl.h"
#include "s3_sign.h"

/*
 * HTTP requests that block: one, or some at once. No proxy, no netrc, no redirect is followed; the certificate of a
 * server is verified.
 */

#define SCOUT__S3_AT_ONCE 16u /* requests of one call */

/* One request and its answer. */
struct scout__s3_exchange {
	/* The request; all borrowed until the call ends. */
	const char *method; /* GET, HEAD, PUT, POST, DELETE */
	const char *url;
	uint32_t n_headers;
	struct scout__s3_pair headers[SCOUT__S3_MAX_PAIRS];
	const struct iovec *body; /* PUT, POST */
	uint32_t n_body;
	/* The answer. */
	const struct iovec *into; /* the body of a 200 goes here; NULL: into text */
	uint32_t n_into;
	struct scout__s3_text text; /* any other body, as far as it fits */
	long status;                /* 0: none came */
	uint64_t received;          /* bytes of the body of a 200, those that did not fit too */
	int64_t server_seconds;     /* the header Date; 0: none */
	char region[32];            /* x-amz-bucket-region; "": none */
	CURLcode code;              /* CURLE_OK: the answer came whole */
	char error[CURL_ERROR_SIZE];
	/* While it runs. */
	uint64_t sent;
	CURL *easy;
	struct curl_slist *list;
	uint64_t *moved; /* of the call */
};

/* Of one call, which may make many requests; NULL: it goes on always. */
struct scout__s3_watch {
	bool (*goes_on)(void *user, uint64_t moved); /* asked 20 times a second, and after each part; false: give up */
	void *user;
	uint64_t moved; /* bytes and answers so far, of all requests */
};

/* What one thread needs at a time: connections are kept in it from call to call. */
struct scout__s3_line {
	CURLM *multi;
	CURL *easy[SCOUT__S3_AT_ONCE];
	struct scout__s3_line *next; /* of who keeps it */
};

/* Bytes of all @parts. */
uint64_t scout__s3_bytes(const struct iovec *parts, uint32_t n);

/* @ca_file: certificates to trust instead of the system's; NULL. NULL: no memory, or no libcurl (s3_curl.h). Any thread. */
struct scout__s3_line *scout__s3_line_new(const char *ca_file);
void scout__s3_line_free(struct scout__s3_line *line);

/*
 * Do @n exchanges, SCOUT__S3_AT_ONCE at most, and write their answers. Any thread, one at a time for a line. Blocks
 * until all have ended, or an exchange has made no progress for @timeout_ms (CURLE_OPERATION_TIMEDOUT), or @watch gives
 * up: returns false then, and what has not ended has CURLE_ABORTED_BY_CALLBACK.
 */
bool scout__s3_run(struct scout__s3_line *line, struct scout__s3_exchange *exchanges, uint32_t n, uint32_t timeout_ms,
		   struct scout__s3_watch *watch);
/* Wait; false: @watch gave up. */
bool scout__s3_pause(struct scout__s3_line *line, uint32_t ms, struct scout__s3_watch *watch);
