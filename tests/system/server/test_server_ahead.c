/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "server_rig.h"

/* Lookups ahead: what is there by chunk, before anybody knows what the GPU has. */

#define N 10u

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

/* Ask ahead for keys 1 to N under ticket 9: @want has a 1 for each that must be there. */
static struct scout__ahead_reply
ahead(const char *want)
{
	struct scout__ahead_reply m;
	uint8_t present[N];

	ck_assert_int_eq(wire_ahead(&rig.client, 9, 1, N, &m, present), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.known, strlen(want));
	for (uint32_t i = 0; i < m.known; i++)
		ck_assert_msg(present[i] == want[i] - '0', "chunk %u", i);
	return m;
}

/* A pool with keys 1, 2, 5, 6, 7 and 9. */
static void
up_with_holes(uint64_t max_promised)
{
	struct scout_server_config cfg = rig_config(16);

	cfg.max_promised = max_promised * SHARD_BYTES;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 2);
	rig_store(&rig.worker, 0, 5, 3);
	rig_store(&rig.worker, 0, 9, 1);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(it_says_what_is_there_behind_a_hole_and_promises_it)
{
	struct scout__ahead_reply m;

	up_with_holes(16);
	m = ahead("1100111010");
	ck_assert_uint_eq(m.lookup.hit, 2);
	ck_assert_uint_eq(m.lookup.l1, 2);
	ck_assert_uint_eq(m.lookup.l2, 0);
	ck_assert_uint_eq(m.lookup.limited, 0);
	ck_assert_uint_eq(rig_promised(&rig), 6);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(an_admit_keeps_the_run_behind_what_the_gpu_has)
{
	struct wire_grants g;
	uint32_t kept;

	up_with_holes(16);
	(void)ahead("1100111010");
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 7, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 3);
	ck_assert_uint_eq(rig_promised(&rig), 3);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 3, 8, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 3);
	ck_assert_uint_eq(g.grants[0].state, SCOUT_GRANT_MISSING);
	ck_assert_uint_eq(g.grants[1].state, SCOUT_GRANT_GRANTED);
	ck_assert_uint_eq(g.grants[4].state, SCOUT_GRANT_MISSING);
	ck_assert_uint_eq(rig_promised(&rig), 0);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(max_promised_ends_it)
{
	struct scout__ahead_reply m;

	up_with_holes(3);
	m = ahead("11001");
	ck_assert_uint_eq(m.lookup.hit, 2);
	ck_assert_uint_eq(m.lookup.limited, 1);
	ck_assert_uint_eq(rig_promised(&rig), 3);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.limited"), 1);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

/*
 * The oldest six of 16 chunks are waited for, and two of them can be promised. New chunks then take the place of
 * others: of the next ten, and of those only when there is nothing else.
 */
START_LOOP_TEST(what_waits_beyond_max_promised_counts_as_used, 0, 2)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout__ahead_reply m;
	uint8_t present[6];

	cfg.max_promised = 2 * SHARD_BYTES;
	cfg.eviction = _i ? "hdc" : "lru";
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 16);
	ck_assert_int_eq(wire_ahead(&rig.client, 9, 1, 6, &m, present), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.known, 2);
	ck_assert_uint_eq(m.lookup.limited, 1);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.kept_recent_chunks"), 4);
	rig_store(&rig.worker, 0, 101, 10);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 10), 0);
}
END_TEST

START_TEST(many_chunks_beyond_max_promised_are_renewed_in_slices)
{
	struct scout_server_config cfg = rig_config(1200);
	struct scout__ahead_reply m;
	uint8_t present[1000];

	cfg.max_promised = SHARD_BYTES;
	cfg.eviction = "lru";
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 1000);
	ck_assert_int_eq(wire_ahead(&rig.client, 9, 1, 1000, &m, present), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.known, 1);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.kept_recent_chunks"), 999);
	rig_finish(&rig.client, 9);
}
END_TEST

START_TEST(it_is_renewed_once_a_run_is_admitted)
{
	struct scout__lookup_reply m;
	uint32_t kept;

	up_with_holes(16);
	(void)ahead("1100111010");
	ck_assert_int_eq(wire_renew(&rig.client, 9, 1, N, 0, &m), SCOUT_WIRE_STATE);
	ck_assert_uint_eq(rig_promised(&rig), 6);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 7, &kept), SCOUT_WIRE_OK);
	rig_store(&rig.worker, 0, 8, 1);
	ck_assert_int_eq(wire_renew(&rig.client, 9, 1, N, 4, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 9);
	ck_assert_uint_eq(m.l1, 5);
	ck_assert_uint_eq(rig_promised(&rig), 5);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(an_empty_run_is_renewed_from_anywhere)
{
	struct scout__lookup_reply m;
	uint32_t kept;

	up_with_holes(16);
	(void)ahead("1100111010");
	ck_assert_int_eq(wire_admit(&rig.client, 9, 7, 7, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_promised(&rig), 0);
	rig_store(&rig.worker, 0, 8, 1);
	ck_assert_int_eq(wire_renew(&rig.client, 9, 1, N, 7, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 9);
	ck_assert_uint_eq(m.l1, 2);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(what_is_expected_is_waited_for_and_else_is_a_hole)
{
	struct scout__lookup_msg m = {
		.ticket = 9,
		.n = N,
		.expect = 4,
		.poll_timeout_ms = 60,
		.poll_interval_ms = 1,
		.flags = SCOUT_LOOKUP_AHEAD,
	};
	struct scout__ahead_reply got;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t corr;

	up_with_holes(16);
	/* Its end may come before it was seen to wait: again, with more time. */
	for (;; m.poll_timeout_ms *= 4) {
		uint64_t since_us = 0, now_us = 0;

		ck_assert_uint_lt(m.poll_timeout_ms, 60000);
		corr = wire_add_lookup(&rig.client, &m, 1);
		wire_flush(&rig.client);
		while (!wire_has(&rig.client, corr) && now_us - since_us < 20000) {
			bool waits = wire_status(&rig.worker, "ops.waiting") == 1;

			now_us = scout__now_us();
			since_us = waits && since_us ? since_us : now_us;
		}
		if (!wire_has(&rig.client, corr))
			break;
		wire_reply_free(wire_wait(&rig.client, corr));
		rig_finish(&rig.client, 9);
	}
	rig_store(&rig.worker, 0, 3, 1);
	reply = wire_wait(&rig.client, corr);
	op = (struct scout__op){.length = reply->length, .body = reply->body};
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__get_ahead_reply(&op, &got, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.known, N);
	ck_assert_uint_eq(got.present[0] & ~4u, 0x73); /* keys 1, 2, 5, 6, 7; 3 came, if not too late */
	ck_assert_uint_eq(got.present[1], 1);
	wire_reply_free(reply);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_long_prompt_of_holes_is_walked_in_slices)
{
	enum {
		LONG = 3000
	};
	static uint8_t present[LONG];
	struct scout__ahead_reply m;

	rig_up(&rig, 16);
	for (uint32_t key = 1; key <= LONG; key += 300)
		rig_store(&rig.worker, 0, key, 1);
	ck_assert_int_eq(wire_ahead(&rig.client, 9, 1, LONG, &m, present), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.known, LONG);
	ck_assert_uint_eq(m.lookup.hit, 1);
	for (uint32_t i = 0; i < LONG; i++)
		ck_assert_uint_eq(present[i], i % 300 == 0);
	ck_assert_uint_eq(rig_promised(&rig), 10);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST
