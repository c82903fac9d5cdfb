/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Where the demo's requests come from: a generated chat of many users, or a trace. Time is counted in steps of the
 * scheduler loop. One thread.
 */

#define WORKLOAD_HASH_BYTES 32

struct workload;

struct workload_config {
	const char *trace; /* NULL: a generated chat */
	uint64_t requests; /* at most so many; for a trace 0 = all of it */
	uint64_t seed;     /* of the chat */
	uint32_t users;    /* of the chat */
};

struct workload_request {
	uint64_t number; /* from 1 */
	uint32_t user;
	uint64_t prompt_tokens;
	uint32_t n_prompt; /* full chunks of the prompt */
	uint32_t n_total;  /* full chunks of prompt and output: what there is to store in the end */
	uint8_t *hashes;   /* n_total * WORKLOAD_HASH_BYTES; belongs to the holder of the request */
};

int workload_new(const struct workload_config *cfg, struct workload **ret_workload, char *err, size_t err_len);
void workload_free(struct workload *workload);

/* The KV geometry that the requests are cut into. */
uint32_t workload_chunk_tokens(const struct workload *workload);
uint32_t workload_block_tokens(const struct workload *workload);

/*
 * A request that is there at step @step. Returns 1; 0 when there is none at this step; or SCOUT_ERR_*,
 * SCOUT_ERR_FORMAT among them (@err names the line of the trace).
 */
int workload_next(struct workload *workload, uint64_t step, struct workload_request *ret_request, char *err,
		  size_t err_len);
/* The answer to @request is complete: its user reads it, and will ask again. */
void workload_done(struct workload *workload, const struct workload_request *request, uint64_t step);
/* No further request will come, now or later. Requests that are still out do not matter. */
bool workload_is_over(const struct workload *workload);
/* How many requests there will be; 0: unknown. */
uint64_t workload_total(const struct workload *workload);
/* One line for a person: what this workload is. Static or the workload's. */
const char *workload_text(const struct workload *workload);
