/* SPDX-License-Identifier: Apache-2.0 */
#include "l1_rig.h"

void
capture(void *user, int level, const char *text)
{
	struct captured *c = user;

	if (level == SCOUT_LOG_ERROR) {
		c->errors++;
		(void)snprintf(c->last_error, sizeof(c->last_error), "%s", text);
	} else if (level == SCOUT_LOG_WARN) {
		c->warnings++;
	} else if (level == SCOUT_LOG_INFO) {
		c->infos++;
		(void)snprintf(c->last_info, sizeof(c->last_info), "%s", text);
	}
}

struct captured captured;

const struct scout__log test_log = {.fn = capture, .user = &captured, .who = "test"};

const uint8_t *
key(uint32_t i)
{
	static uint8_t hash[HASH];

	for (uint32_t at = 0; at < HASH; at += 4) {
		uint32_t x = (i + 1) * 2654435761u ^ at * 40503u;

		memcpy(hash + at, &x, sizeof(x));
	}
	return hash;
}

void
wait_ready(struct scout__pool *pool)
{
	struct pollfd ready = {.fd = pool->ready_fd, .events = POLLIN};

	ck_assert_int_eq(poll(&ready, 1, DEADLINE_MS), 1);
}

SCOUT_ON_LOOP struct scout__extent *
wait_extent(struct scout__pool *pool)
{
	struct scout__extent *extent;

	while (!(extent = scout__pool_ready(pool)))
		wait_ready(pool);
	return extent;
}

SCOUT_ON_LOOP bool
wait_grown(struct scout__chunk_index *index)
{
	struct scout__extent *extent;

	ck_assert(index->growth.n);
	extent = wait_extent(&index->l1->pool);
	ck_assert_ptr_eq(extent->owner, index);
	return scout__index_grow(index, extent);
}
