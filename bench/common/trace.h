/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Reader of traces in the format of Mooncake (FAST'25): one JSON object a line with `timestamp` (ms), `input_length`,
 * `output_length` (tokens) and `hash_ids`, where an equal id is the same block of tokens behind the same prefix. One
 * request is in memory at a time, so a trace may be longer than memory. One thread.
 */

#define TRACE_BLOCK_TOKENS 512               /* tokens behind one hash id */
#define TRACE_MAX_LINE ((size_t)8 << 20)     /* bytes */
#define TRACE_MAX_IDS 262144u                /* of one request: what one lookup may carry */
#define TRACE_MAX_TOKENS (UINT64_C(1) << 32) /* of one request */
#define TRACE_HASH_BYTES 32

struct trace;

struct trace_request {
	uint64_t line; /* in the file, from 1 */
	double timestamp_ms;
	uint64_t input_tokens;
	uint64_t output_tokens;
	size_t n;            /* hash ids; 0 is legal */
	const uint64_t *ids; /* valid until the next call */
};

/* Returns 0, or SCOUT_ERR_FORMAT or SCOUT_ERR_NOMEM with a sentence in @err that names the file. */
int trace_open(const char *path, struct trace **ret_trace, char *err, size_t err_len);

/*
 * The next request. Returns 1, 0 at the end of the file, SCOUT_ERR_FORMAT (@err: "FILE:LINE: what is wrong") or
 * SCOUT_ERR_NOMEM. Lines of white space are skipped.
 */
int trace_next(struct trace *trace, struct trace_request *ret_request, char *err, size_t err_len);

/* How much of the file has been read, 0..1; 0 where the file has no size (a pipe). */
double trace_progress(const struct trace *trace);

void trace_close(struct trace *trace);

/* A chunk hash for a hash id: other ids, other hashes. An id stands for its prefix too, as a chained hash does. */
void trace_hash(uint64_t id, uint8_t ret_hash[TRACE_HASH_BYTES]);
