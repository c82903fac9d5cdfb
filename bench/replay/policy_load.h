/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Requests as chains of block ids, as in a trace; all in memory. What runs out of memory ends the process. One
 * thread.
 */
struct policy_load {
	uint64_t *ids; /* all requests' one after the other */
	size_t n_ids;
	size_t cap_ids;
	size_t *first; /* of each request; and n_ids behind the last */
	double *ms;    /* when each request came; NULL: not from a trace */
	size_t n_requests;
	size_t cap_requests;
};

void load_free(struct policy_load *load);
/* From a trace file; exits with a message. */
void load_trace(struct policy_load *load, const char *path);
/* A synthetic one by name. False: no such name. */
bool load_synthetic(struct policy_load *load, const char *name, uint64_t seed, uint32_t n_requests);
