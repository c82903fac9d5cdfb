/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "chunk_index.h"

/*
 * Shared by the tests of the host-memory tier: captured log lines, keys, waiting for the grower, descriptors counted.
 */

/* What begins a test: from there on its thread is the loop's. */
#define SCOUT_STARTS_LOOP SCOUT_TSA(assert_capability(scout__loop_role))

#define DEADLINE_MS 60000
#define HASH 32u

struct captured {
	int errors;
	int infos;
	int warnings;
	char last_error[512];
	char last_info[512];
};

void capture(void *user, int level, const char *text);
extern struct captured captured;
extern const struct scout__log test_log;

/* The hash of chunk @i; valid until the next call. */
const uint8_t *key(uint32_t i);

/* Sleep until the pool has something. */
void wait_ready(struct scout__pool *pool);

/* The next extent of the pool. */
SCOUT_ON_LOOP struct scout__extent *wait_extent(struct scout__pool *pool);

/* Give @index the extent that it asked for. Returns whether there are new slots. */
SCOUT_ON_LOOP bool wait_grown(struct scout__chunk_index *index);
