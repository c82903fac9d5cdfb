/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

#include "check_main.h"
#include "given_time.h"

/*
 * A store that is slow and well: nothing is lost, and nothing is held against it. Each operation takes less than l2_timeout_ms, all
 * together take much longer.
 */

#define EACH_MS 40u
#define TIMEOUT_MS 2000u

/* Nothing was late, nothing failed, nothing is switched off. */
static void
check_no_blame(struct l2_rig *r)
{
	static const char *const none[] = {
		"l2.loads.late", "l2.loads.failed",    "l2.writes.late",      "l2.writes.failed",
		"l2.bad_keys",   "l2.0.breaker.reads", "l2.0.breaker.writes", "l2.0.late",
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		uint64_t value = wire_status(&r->rig.client, none[i]);

		/* Some are not listed while they are 0. */
		ck_assert_msg(value == 0 || value == UINT64_MAX, "%s is %llu", none[i], (unsigned long long)value);
	}
}

START_TEST(a_retrieve_goes_on_while_its_loads_do)
{
	struct l2_rig r = l2_rig_of(512);

	r.cfg.l2_timeout_ms = TIMEOUT_MS;
	l2_up_with_keys(&r, 100);
	l2_memory_slow(r.m, SCOUT__L2_LOAD, EACH_MS);
	l2_lookup(&r.rig.client, 1, 1, 100, 0, 100);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 100), 100);
	check_no_blame(&r);
	l2_memory_slow(r.m, SCOUT__L2_LOAD, 0);
	l2_end(&r, 1);
}
END_TEST

/* The budget of the RETRIEVE is what bounds it: what has come is granted, the rest is missing, and no key is bad. */
START_TEST(a_retrieve_ends_with_its_budget_and_has_what_came)
{
	struct l2_rig r = l2_rig_of(512);
	struct given_time t;
	uint32_t n;

	r.cfg.l2_timeout_ms = TIMEOUT_MS;
	l2_up_with_keys(&r, 100);
	l2_memory_slow(r.m, SCOUT__L2_LOAD, EACH_MS);
	l2_lookup(&r.rig.client, 1, 1, 100, 0, 100);
	r.rig.worker.budget_us = 2000000;
	given_time_begin(&t);
	n = l2_retrieve(&r.rig.worker, 1, 1, 0, 100);
	(void)given_time_within(&t, 100u * EACH_MS * 1000, "a retrieve of 2 s");
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_lt(n, 100);
	check_no_blame(&r);
	l2_memory_slow(r.m, SCOUT__L2_LOAD, 0);
	r.rig.worker.budget_us = 0;
	/* The others still come. */
	wire_wait_status(&r.rig.client, "l2.loads.done", 100);
	l2_lookup(&r.rig.client, 2, 1, 100, 100, 0);
	rig_finish(&r.rig.client, 2);
	l2_end(&r, 1);
}
END_TEST

START_TEST(writes_wait_for_their_turn_and_none_is_lost)
{
	struct l2_rig r = l2_rig_of(256);

	r.cfg.l2_timeout_ms = TIMEOUT_MS;
	l2_up(&r);
	l2_memory_slow(r.m, SCOUT__L2_STORE, EACH_MS);
	l2_store_in_pool(&r.rig.worker, 1, 60);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(l2_memory_objects(r.m), 60);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.dropped"), 0);
	check_no_blame(&r);
	l2_memory_slow(r.m, SCOUT__L2_STORE, 0);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

#define PROMPTS 12u
#define CHUNKS 48u

static uint64_t
first_key(uint32_t prompt)
{
	return 1 + 1000u * prompt;
}

/*
 * @n_fit fit into the queue, 32 of which are the store's at once; of the others the pool replaces some before their turn. @part chunks in one
 * STORE, the prompts by turns. What is written is found after a restart, from the beginning of each prompt on: no beginning is lost for
 * another prompt's end. Returns how many that is.
 */
static uint32_t
overload(uint32_t pool, uint32_t part, uint32_t n_fit)
{
	struct l2_rig r = l2_rig_of(pool);
	uint32_t n_usable = 0, n_written;

	r.cfg.l2_queue_bytes = n_fit * SHARD_BYTES;
	l2_up(&r);
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk += part)
		for (uint32_t i = 0; i < PROMPTS; i++)
			l2_store_of(&r.rig.worker, 1 + i, first_key(i) + chunk, part);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.bytes"), n_fit * SHARD_BYTES);
	l2_memory_resume(r.m, SCOUT__L2_STORE);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	l2_check_idle(&r);
	n_written = (uint32_t)l2_memory_objects(r.m);
	ck_assert_uint_ge(l2_memory_following(r.m), n_written - PROMPTS);
	ck_assert_uint_lt(l2_memory_following(r.m), n_written);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.dropped"), PROMPTS * CHUNKS - n_written);
	l2_restart(&r);
	for (uint32_t i = 0; i < PROMPTS; i++) {
		struct scout__lookup_reply m;

		assert_wire(wire_lookup(&r.rig.client, 100 + i, first_key(i), CHUNKS, 0, &m), SCOUT_WIRE_OK);
		n_usable += m.hit;
		rig_finish(&r.rig.client, 100 + i);
	}
	ck_assert_uint_eq(n_usable, n_written);
	l2_down(&r);
	return n_written;
}

/* While the pool has the chunks they wait, however few the queue takes at once. */
START_LOOP_TEST(beyond_the_queue_ends_of_prompts_wait_and_are_written, 0, 3)
{
	static const uint32_t parts[] = {1, 4, CHUNKS};

	ck_assert_uint_eq(overload(4096, parts[_i], 40), PROMPTS * CHUNKS);
}
END_TEST

START_LOOP_TEST(what_the_pool_replaces_before_its_turn_is_the_end_of_a_prompt, 0, 3)
{
	static const uint32_t parts[] = {1, 4, CHUNKS};

	ck_assert_uint_ge(overload(256, parts[_i], 50), 50);
}
END_TEST

/* What a dropped write held is free: a pool that waits for a slow store takes new chunks all the same. */
START_TEST(writes_that_wait_do_not_fill_the_pool)
{
	struct l2_rig r = l2_rig_of(64);

	r.cfg.l2_queue_bytes = r.cfg.l1_bytes;
	l2_up(&r);
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	for (uint64_t key = 1; key <= 640; key += 8)
		l2_store_in_pool(&r.rig.worker, key, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.bytes"), 64 / 4 * SHARD_BYTES);
	l2_memory_resume(r.m, SCOUT__L2_STORE);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_ge(wire_status(&r.rig.client, "l2.writes.dropped"), 640 - 64 - 16);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

/* A question has its own time, which is not that of loads. */
START_TEST(a_lookup_waits_for_its_question_and_not_for_l2_timeout_ms)
{
	struct l2_rig r = l2_rig_of(64);
	struct given_time t;

	r.cfg.l2_timeout_ms = L2_PATIENT_MS;
	r.cfg.l2_lookup_timeout_ms = 50;
	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	given_time_begin(&t);
	l2_lookup(&r.rig.client, 1, 1, 8, 3, 0);
	(void)given_time_within(&t, 1000000, "a lookup whose question has 50 ms");
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_end(&r, 1);
}
END_TEST

/* The store's own clock ran out first, or the store's thread saw that before the loop did. */
START_TEST(a_question_that_the_store_gives_up_is_late)
{
	struct l2_rig r = l2_rig_of(64);

	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_fail(r.m, SCOUT__L2_EXISTS, 1, SCOUT__L2_TIMEOUT);
	l2_lookup(&r.rig.client, 1, 1, 8, 3, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	rig_finish(&r.rig.client, 1);
	/* An error is none of that: the store has its own counter for it. */
	l2_memory_fail(r.m, SCOUT__L2_EXISTS, 1, SCOUT__L2_ERROR);
	l2_lookup(&r.rig.client, 2, 1, 8, 3, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	l2_end(&r, 2);
}
END_TEST
