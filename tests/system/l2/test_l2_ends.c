/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

#include <stdatomic.h>
#include <string.h>

#include "check_main.h"
#include "waiting.h"

/*
 * What fails, what ends in the middle, and what a new weights version does to it: nothing wrong, nothing left behind.
 */

static struct l2_rig r;

static void
setup(void)
{
	r = l2_rig_of(64);
}

static void
teardown(void)
{
	if (r.rig.server)
		l2_down(&r);
}

static uint64_t
ask_to_retrieve(struct wire_peer *p, uint64_t ticket, uint32_t from, uint32_t to)
{
	const struct scout__retrieve_msg m = scout__retrieve_of(ticket, from, to);
	uint64_t corr;

	scout__put_retrieve(wire_begin(p, SCOUT_OP_RETRIEVE), &m);
	corr = wire_end(p);
	wire_flush(p);
	return corr;
}

/* The status of the answer, and how many were granted. */
static int
answer_of(struct wire_peer *p, uint64_t corr, uint32_t *ret_granted)
{
	struct wire_reply *reply = wire_wait(p, corr);
	struct scout__reader reader = {.p = reply->body, .left = reply->length};
	int status = reply->status;
	uint32_t n, granted = 0;

	if (status == SCOUT_WIRE_OK) {
		(void)scout__get_u64(&reader);
		n = scout__get_u32(&reader);
		(void)scout__get_u32(&reader);
		for (uint32_t i = 0; i < n; i++) {
			(void)scout__get_u32(&reader);
			granted += scout__get_u16(&reader) == SCOUT_GRANT_GRANTED;
			(void)scout__get_u16(&reader);
			(void)scout__get_u64(&reader);
			(void)scout__get_u64(&reader);
		}
		*ret_granted = granted;
	}
	wire_reply_free(reply);
	return status;
}

/* Eight chunks in L2 only, and a lookup (ticket 1) that hits them. */
static void
eight_expected(void)
{
	l2_up_with_keys_in_order(&r, 8);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
}

/* A retrieve of them, whose loads are under way until they are resumed. Returns what its answer will be named by. */
static uint64_t
eight_loading(void)
{
	uint64_t corr;

	eight_expected();
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	corr = ask_to_retrieve(&r.rig.worker, 1, 0, 8);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 8);
	return corr;
}

/* ---- loads that fail: S9 ---- */

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(a_failed_load_is_missing_and_is_not_offered_again, 0, 4)
{
	static const enum scout__l2_result results[] = {SCOUT__L2_CORRUPT, SCOUT__L2_ABSENT, SCOUT__L2_ERROR,
							SCOUT__L2_TIMEOUT};

	r.cfg.eviction = "lru";
	r.cfg.bad_key_ms = 86400000; /* also a sixtieth of it is longer than this case */
	eight_expected();
	l2_memory_fail(r.m, SCOUT__L2_LOAD, 1, results[_i]);
	/* Exactly the first is missing: the others are as good as before. */
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 7);
	rig_finish(&r.rig.client, 1);
	/* The store may still have it; the lookup does not count it, nor what is behind it. */
	l2_lookup(&r.rig.client, 2, 1, 8, 0, 0);
	rig_finish(&r.rig.client, 2);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.bad_keys"), 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.loads.failed"), 1);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_REMOVE), results[_i] == SCOUT__L2_CORRUPT);
	/* Stored anew it counts at once. */
	l2_store(&r.rig.worker, 1, 1);
	l2_lookup(&r.rig.client, 3, 1, 8, 8, 0);
	rig_finish(&r.rig.client, 3);
	/* Out of the pool it counts if it was written anew: a damaged one was removed. The others the store had, and wrote nothing. */
	for (uint64_t key = 1000; key < 1064; key += 8)
		l2_store(&r.rig.worker, key, 8);
	l2_lookup(&r.rig.client, 4, 1, 8, 0, results[_i] == SCOUT__L2_CORRUPT ? 8 : 0);
	l2_end(&r, 4);
}
END_TEST

START_TEST(a_bad_key_counts_again_after_its_time)
{
	/* The first error may be the store's: a sixtieth. The second is the object's. When its time is over, the next is the first again. */
	static const uint64_t least_us[] = {25000, 1500000, 25000};
	struct scout__lookup_reply m;
	uint64_t ticket = 1, begin_us, took_us;

	r.cfg.bad_key_ms = 1500;
	eight_expected();
	for (unsigned i = 0; i < 3; i++) {
		l2_memory_fail(r.m, SCOUT__L2_LOAD, 1, SCOUT__L2_ERROR);
		begin_us = scout__now_us();
		ck_assert_uint_eq(l2_retrieve(&r.rig.worker, ticket, 1, 0, 1), 0);
		m.hit = 0;
		wait_until(m.hit == 8) {
			rig_finish(&r.rig.client, ticket);
			ck_assert_int_eq(wire_lookup(&r.rig.client, ++ticket, 1, 8, 0, &m), SCOUT_WIRE_OK);
		}
		took_us = scout__now_us() - begin_us;
		ck_assert_uint_ge(took_us, least_us[i]);
		ck_assert(i == 1 || took_us < 1500000);
	}
	rig_finish(&r.rig.client, ticket);
	l2_check_idle(&r);
}
END_TEST

/* The loads of all eight are late, until they are resumed. */
static void
eight_late(void)
{
	uint32_t granted = 9;
	uint64_t corr;

	r.cfg.l2_timeout_ms = L2_LATE_MS;
	corr = eight_loading();
	ck_assert_int_eq(answer_of(&r.rig.worker, corr, &granted), SCOUT_WIRE_OK);
	ck_assert_uint_eq(granted, 0);
	rig_finish(&r.rig.client, 1);
}

START_TEST(a_load_that_is_late_and_fails_is_one_failure)
{
	eight_late();
	l2_memory_fail(r.m, SCOUT__L2_LOAD, 8, SCOUT__L2_ERROR);
	ck_assert_uint_gt(wire_status(&r.rig.client, "l2.loads.late"), 0);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	wire_wait_status(&r.rig.client, "l2.loads.failed", 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.bad_keys"), 8);
	l2_check_idle(&r);
}
END_TEST

START_TEST(a_load_that_is_late_is_missing_and_its_slot_is_left_alone)
{
	uint32_t granted;
	uint64_t corr;

	eight_late();
	/* Nothing is promised; the slots are the loads' until they are over. The keys do not count meanwhile. */
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_held"), 8 * SHARD_BYTES);
	l2_lookup(&r.rig.client, 2, 1, 8, 0, 0);
	for (uint64_t key = 1000; key < 1056; key += 8)
		l2_store_in_pool(&r.rig.worker, key, 8);
	ck_assert_uint_eq(rig_granted(&r.rig.worker, 0, 2000, 8, &corr), 8);
	ck_assert_int_eq(wire_store_done(&r.rig.worker, corr, 8, 0, &granted), SCOUT_WIRE_OK);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	rig_finish(&r.rig.client, 2);
	l2_check_idle(&r);
	/* What came late is there all the same. */
	l2_lookup(&r.rig.client, 3, 1, 8, 8, 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 3, 1, 0, 8), 8);
	l2_end(&r, 3);
}
END_TEST

START_TEST(an_object_deleted_behind_its_lookup_is_missing)
{
	eight_expected();
	l2_memory_delete(r.m, 3);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 7);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_store_that_is_switched_off_is_not_asked_and_comes_back)
{
	uint64_t ticket = 1;

	eight_expected();
	rig_finish(&r.rig.client, 1);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_fail(r.m, SCOUT__L2_EXISTS, UINT32_MAX, SCOUT__L2_ERROR);
	for (uint32_t i = 0; i <= SCOUT__L2_FAILURES; i++) {
		l2_lookup(&r.rig.client, ++ticket, 1, 8, 3, 0);
		rig_finish(&r.rig.client, ticket);
	}
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.skipped"), 1);
	ck_assert_uint_gt(wire_status(&r.rig.client, "l2.0.breaker.reads"), 0);
	l2_memory_fail(r.m, SCOUT__L2_EXISTS, 0, SCOUT__L2_OK);
	wire_wait_status(&r.rig.client, "l2.0.breaker.reads", 0);
	l2_lookup(&r.rig.client, ++ticket, 1, 8, 3, 5);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, ticket, 1, 0, 8), 8);
	l2_end(&r, ticket);
}
END_TEST

/* ---- who goes in the middle ---- */

START_TEST(finish_in_the_middle_of_a_load_leaves_nothing)
{
	uint32_t granted = 9;
	uint64_t corr;

	corr = eight_loading();
	rig_finish(&r.rig.client, 1);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	ck_assert_int_eq(answer_of(&r.rig.worker, corr, &granted), SCOUT_WIRE_OK);
	ck_assert_uint_eq(granted, 0);
	l2_check_idle(&r);
	l2_lookup(&r.rig.client, 2, 1, 8, 8, 0);
	l2_end(&r, 2);
}
END_TEST

START_TEST(a_worker_that_goes_in_the_middle_of_a_load_leaves_nothing)
{
	(void)eight_loading();
	wire_lease_bye(&r.rig.worker);
	wire_wait_status(&r.rig.client, "ops.waiting", 0);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_store_takes_the_place_of_what_is_expected)
{
	eight_expected();
	l2_store(&r.rig.worker, 1, 4);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 4);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_store_takes_the_place_of_a_load_that_has_not_begun)
{
	r = l2_rig_of(512);
	r.cfg.prefetch = SCOUT_PREFETCH_ON_LOOKUP;
	l2_up_with_keys(&r, 80);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	l2_lookup(&r.rig.client, 1, 1, 80, 0, 80);
	/* The loads begin when a thread of its own has brought their memory: slots of the new pool have none yet. */
	wire_wait_status(&r.rig.client, "l2.loads.running", 64);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.loads.queued"), 16);
	l2_store_in_pool(&r.rig.worker, 75, 6);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.loads.queued"), 10);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 80), 80);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 74);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_retrieve_waits_for_the_store_that_took_its_place)
{
	struct wire_grants g;
	uint32_t granted = 9, readable;
	uint64_t corr;

	eight_expected();
	ck_assert_int_eq(wire_store(&r.rig.worker, 0, 1, 1, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 1);
	corr = ask_to_retrieve(&r.rig.worker, 1, 0, 1);
	wire_wait_status(&r.rig.client, "ops.waiting", 1);
	ck_assert(!wire_has(&r.rig.worker, corr));
	l2_fill(wire_slot(&r.rig.worker, &g.grants[0]), 1);
	ck_assert_int_eq(wire_store_done(&r.rig.worker, g.id, 1, 1, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_int_eq(answer_of(&r.rig.worker, corr, &granted), SCOUT_WIRE_OK);
	ck_assert_uint_eq(granted, 1);
	ck_assert_int_eq(wire_retrieve_done(&r.rig.worker, corr, 0), SCOUT_WIRE_OK);
	l2_end(&r, 1);
}
END_TEST

/* ---- S8 ---- */

START_TEST(new_weights_end_a_question)
{
	const struct scout__lookup_msg m = {.ticket = 9, .n = 8};
	uint64_t corr;

	eight_expected();
	rig_finish(&r.rig.client, 1);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	corr = wire_add_lookup(&r.rig.client, &m, 1);
	wire_flush(&r.rig.client);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 2);
	ck_assert_int_eq(wire_simple(&r.rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	wire_reply_free(wire_wait(&r.rig.client, corr));
	ck_assert_uint_eq(wire_status(&r.rig.client, "ops.waiting"), 0);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_check_idle(&r);
	l2_lookup(&r.rig.client, 10, 1, 8, 0, 0);
	rig_finish(&r.rig.client, 10);
}
END_TEST

START_TEST(new_weights_in_the_middle_of_a_load_commit_nothing)
{
	uint32_t granted = 9;
	uint64_t corr;

	corr = eight_loading();
	ck_assert_int_eq(wire_simple(&r.rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	ck_assert_int_eq(answer_of(&r.rig.worker, corr, &granted), SCOUT_WIRE_WEIGHTS);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.bad_keys"), 0);
	l2_lookup(&r.rig.client, 2, 1, 8, 0, 0);
	rig_finish(&r.rig.client, 2);
}
END_TEST

/* In the queue, or beyond it, where it is looked at when there is room. */
START_LOOP_TEST(what_waits_to_be_written_is_dropped_with_its_weights, 0, 2)
{
	r = l2_rig_of(512);
	if (_i)
		r.cfg.l2_queue_bytes = 40 * SHARD_BYTES;
	l2_up(&r);
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	l2_store_in_pool(&r.rig.worker, 1, 100);
	l2_memory_wait(r.m, SCOUT__L2_STORE, 32);
	ck_assert_int_eq(wire_simple(&r.rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	wire_wait_status(&r.rig.client, "l2.writes.outdated", _i ? 8 : 68);
	l2_memory_resume(r.m, SCOUT__L2_STORE);
	wire_wait_status(&r.rig.client, "l2.writes.outdated", 68);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.dropped"), 0);
	/* Those that were on their way are of the old version: nobody finds them. */
	ck_assert_uint_eq(l2_memory_objects(r.m), 32);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
	l2_lookup(&r.rig.client, 1, 1, 100, 0, 0);
	rig_finish(&r.rig.client, 1);
}
END_TEST

START_TEST(after_a_restart_the_version_says_what_is_found)
{
	l2_up(&r);
	ck_assert_int_eq(wire_simple(&r.rig.client, SCOUT_OP_RESET, 1), SCOUT_WIRE_OK);
	l2_store(&r.rig.worker, 1, 8);
	ck_assert_int_eq(wire_simple(&r.rig.client, SCOUT_OP_RESET, 2), SCOUT_WIRE_OK);
	l2_store(&r.rig.worker, 1, 4);
	l2_down(&r);
	r.rig.server = rig_start(&r.cfg);
	r.rig.endpoint = scout_server_endpoint(r.rig.server);
	wire_open(&r.rig.client, r.rig.endpoint);
	r.rig.client.hello.weights = 2;
	ck_assert_int_eq(wire_hello(&r.rig.client), SCOUT_WIRE_OK);
	rig_worker(&r.rig.worker, r.rig.endpoint);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 4);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 4), 4);
	l2_end(&r, 1);
}
END_TEST

/* ---- writing ---- */

START_TEST(a_write_without_room_is_counted_and_not_tried_again)
{
	l2_up(&r);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 3, SCOUT__L2_FULL);
	l2_store(&r.rig.worker, 1, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.failed"), 3);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.done"), 5);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_STORE), 8);
	/* The pool does not care. */
	l2_lookup(&r.rig.client, 1, 1, 8, 8, 0);
	l2_end(&r, 1);
}
END_TEST

START_TEST(writes_ride_out_an_outage_without_their_slots)
{
	l2_up(&r);
	l2_memory_fail(r.m, SCOUT__L2_STORE, SCOUT__L2_FAILURES + 1, SCOUT__L2_ERROR);
	l2_store_in_pool(&r.rig.worker, 1, 40);
	wire_wait_status(&r.rig.client, "l2.writes.bytes", 0);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.done"), 40);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_STORE), 40 + SCOUT__L2_FAILURES + 1);
	ck_assert_uint_eq(l2_memory_objects(r.m), 40);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 40, 0, 40);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 40), 40);
	l2_end(&r, 1);
}
END_TEST

static atomic_uint n_said;

static void
hear_of_replaced(void *user, int level, const char *line)
{
	(void)user;
	if (level == SCOUT_LOG_WARN && strstr(line, "the pool has replaced others"))
		atomic_fetch_add(&n_said, 1);
}

START_TEST(what_the_pool_replaced_during_an_outage_is_not_written)
{
	r.cfg.log = hear_of_replaced;
	l2_up(&r);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 1000, SCOUT__L2_ERROR);
	l2_store_in_pool(&r.rig.worker, 1, 32);
	wire_wait_status(&r.rig.client, "l2.writes.bytes", 0);
	l2_store_in_pool(&r.rig.worker, 1000, 48);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 0, SCOUT__L2_OK);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	/* One that is being tried keeps its slot meanwhile. */
	ck_assert_uint_ge(l2_memory_objects(r.m), 64);
	ck_assert_uint_le(l2_memory_objects(r.m), 65);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.dropped"), 80 - l2_memory_objects(r.m));
	wait_until(atomic_load(&n_said) > 0)
		;
	l2_check_idle(&r);
}
END_TEST

START_TEST(a_write_that_a_store_refuses_again_and_again_is_given_up)
{
	l2_up(&r);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 6, SCOUT__L2_ERROR);
	l2_store(&r.rig.worker, 1, 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.failed"), 1);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_STORE), 6);
	ck_assert_uint_eq(l2_memory_objects(r.m), 0);
	l2_check_idle(&r);
}
END_TEST

START_TEST(a_store_that_fails_keeps_nothing_from_another)
{
	struct l2_memory *other = l2_memory("b");

	r.cfg.l2 = "memory://a memory://b";
	r.cfg.l2_queue_bytes = 8 * SHARD_BYTES;
	l2_up(&r);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 1000, SCOUT__L2_ERROR);
	for (uint64_t key = 1; key <= 48; key += 8) {
		l2_store_in_pool(&r.rig.worker, key, 8);
		wire_wait_status(&r.rig.client, "l2.writes.bytes", 0);
		ck_assert_uint_eq(l2_memory_objects(other), key + 7);
	}
	ck_assert_uint_ne(wire_status(&r.rig.client, "l2.0.breaker.writes"), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.waiting"), 48);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 0, SCOUT__L2_OK);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.writes.done"), 48);
	ck_assert_uint_eq(l2_memory_objects(r.m), 48);
	ck_assert_uint_eq(l2_memory_objects(other), 48);
	l2_check_idle(&r);
}
END_TEST

START_TEST(what_is_being_written_is_not_overwritten)
{
	l2_up(&r);
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	l2_store_in_pool(&r.rig.worker, 1, 16);
	/* All else is evicted three times over. */
	for (uint64_t key = 1000; key < 1200; key += 8)
		l2_store_in_pool(&r.rig.worker, key, 8);
	l2_memory_resume(r.m, SCOUT__L2_STORE);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 16, 0, 16);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 16), 16);
	l2_end(&r, 1);
}
END_TEST

/* ---- stopping ---- */

START_TEST(stopping_writes_what_waits)
{
	r = l2_rig_of(512);
	l2_up(&r);
	l2_store_in_pool(&r.rig.worker, 1, 100);
	l2_down(&r);
	ck_assert_uint_eq(l2_memory_objects(r.m), 100);
}
END_TEST

START_TEST(stopping_in_the_middle_of_everything)
{
	const struct scout__lookup_msg m = {.ticket = 2, .n = 12};

	r = l2_rig_of(256);
	/* For so long the server waits for what is being written. */
	r.cfg.l2_timeout_ms = L2_LATE_MS;
	eight_expected();
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	/* The question first: loads that are late would have reads switched off, and nothing would be asked. */
	(void)wire_add_lookup(&r.rig.client, &m, 1);
	wire_flush(&r.rig.client);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 2);
	(void)ask_to_retrieve(&r.rig.worker, 1, 0, 8);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 8);
	l2_store_in_pool(&r.rig.worker, 100, 60);
}
END_TEST

START_TEST(an_adapter_that_hangs_does_not_keep_the_server)
{
	r.cfg.l2_timeout_ms = L2_LATE_MS;
	eight_expected();
	l2_memory_hang(r.m);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	(void)ask_to_retrieve(&r.rig.worker, 1, 0, 8);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 8);
}
END_TEST
