/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <inttypes.h>
#include <string.h>

#include "server_rig.h"

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, teardown);

/* Stores, retrieves, holds and weights versions, by raw operations over a real socket. */

START_TEST(both_ranks_make_a_hit)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer a, b;
	struct wire_grants g;

	rig_worker_unregistered(&a, scout_server_endpoint(server), 2, 1);
	ck_assert_int_eq(wire_register(&a, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	/* Until all ranks are known there is no room, and no hit. */
	ck_assert_int_eq(wire_store(&a, 0, 1, 2, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(g.grants[0].state, SCOUT_GRANT_NO_ROOM);
	free(g.grants);
	ck_assert_uint_eq(rig_peek(&a, 1, 2), 0);
	rig_worker_unregistered(&b, scout_server_endpoint(server), 2, 1);
	ck_assert_int_eq(wire_register(&b, 1, 0, 2 * SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&a, 0, 1, 2), 0); /* nothing is readable as a whole yet */
	ck_assert_uint_eq(rig_peek(&a, 1, 2), 0);
	ck_assert_uint_eq(rig_store(&b, 0, 1, 1), 1);
	ck_assert_uint_eq(rig_peek(&a, 1, 2), 1);
	ck_assert_uint_eq(rig_store(&b, 0, 1, 2), 1);
	ck_assert_uint_eq(rig_peek(&a, 1, 2), 2);
	wire_close(&a);
	wire_close(&b);
	scout_server_stop(server);
}
END_TEST

START_TEST(the_second_writer_is_told_and_skips)
{
	struct wire_peer second;
	struct wire_grants g;
	uint64_t id;
	uint32_t readable;

	rig_up(&rig, 8);
	rig_worker(&second, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 1, 2, &id), 2);
	ck_assert_int_eq(wire_store(&second, 0, 1, 3, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(g.grants[0].state, SCOUT_GRANT_PRESENT);
	ck_assert_int_eq(g.grants[1].state, SCOUT_GRANT_PRESENT);
	ck_assert_int_eq(g.grants[2].state, SCOUT_GRANT_GRANTED);
	free(g.grants);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
	ck_assert_uint_eq(rig_granted(&second, 0, 1, 2, &id), 0);
	ck_assert_uint_eq(id, 0);
	wire_close(&second);
}
END_TEST

START_TEST(an_object_that_is_named_twice_gets_one_slot)
{
	uint8_t hashes[3 * 16];
	struct scout__store_msg m = {.n = 3, .hashes = hashes};
	const char *field = "";
	struct scout__grants g;
	struct wire_reply *reply;
	uint32_t readable;
	uint64_t id;

	rig_up(&rig, 8);
	for (unsigned i = 0; i < 3; i++)
		wire_hash(hashes + 16 * i, 16, 1 + i % 2);
	scout__put_store(wire_begin(&rig.worker, SCOUT_OP_STORE), &m, 16);
	id = wire_end(&rig.worker);
	wire_flush(&rig.worker);
	reply = wire_wait(&rig.worker, id);
	ck_assert_int_eq(scout__get_grants(&(struct scout__op){.opcode = reply->opcode,
							       .kind = SCOUT_KIND_REPLY,
							       .length = reply->length,
							       .body = reply->body},
					   &g, &field),
			 SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__grant_at(&g, 0).state, SCOUT_GRANT_GRANTED);
	ck_assert_int_eq(scout__grant_at(&g, 1).state, SCOUT_GRANT_GRANTED);
	ck_assert_int_eq(scout__grant_at(&g, 2).state, SCOUT_GRANT_PRESENT);
	wire_reply_free(reply);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
}
END_TEST

START_TEST(what_is_not_committed_is_not_readable)
{
	uint64_t id;
	uint32_t readable;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 1, 4, &id), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	/* A count that is not the granted one is refused and changes nothing. */
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 3, 3, &readable), SCOUT_WIRE_RANGE);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	/* Three of four are complete; the fourth is given up and may be stored anew. */
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 4, 3, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 3);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 3);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 4, 4, &readable), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 1);
}
END_TEST

START_TEST(the_bytes_that_were_stored_are_retrieved)
{
	struct wire_peer reader;
	struct wire_grants w, r;
	uint32_t readable;

	rig_up(&rig, 8);
	rig_worker(&reader, rig.endpoint);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 8, &w), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < 8; i++)
		memset(wire_slot(&rig.worker, &w.grants[i]), (int)(i + 1), SHARD_BYTES);
	ck_assert_int_eq(wire_store_done(&rig.worker, w.id, 8, 8, &readable), SCOUT_WIRE_OK);
	rig_hit(&rig.client, 9, 1, 8);
	ck_assert_int_eq(wire_retrieve(&reader, 9, 0, 8, &r), SCOUT_WIRE_OK);
	ck_assert_uint_eq(r.n_granted, 8);
	for (uint32_t i = 0; i < 8; i++) {
		const uint8_t *bytes = wire_slot(&reader, &r.grants[i]);

		ck_assert_uint_eq(bytes[0], i + 1);
		ck_assert_uint_eq(bytes[SHARD_BYTES - 1], i + 1);
		ck_assert_uint_eq(wire_generation(&reader, &r.grants[i]), r.grants[i].generation);
	}
	ck_assert_int_eq(wire_retrieve_done(&reader, r.id, 0), SCOUT_WIRE_OK);
	free(w.grants);
	free(r.grants);
	wire_close(&reader);
}
END_TEST

START_TEST(retrieve_turns_the_promise_into_a_hold)
{
	struct wire_grants g;
	uint64_t id;

	rig_up_promised(&rig, 4, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 3, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 3);
	/* The one that was not retrieved is still promised, the others are held. */
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), SHARD_BYTES);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 3);
	free(g.grants);
	rig_finish(&rig.client, 9);
}
END_TEST

START_TEST(each_reader_has_a_unit_of_its_own)
{
	struct scout_server_config cfg = rig_config(4);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer reader[2];
	struct wire_grants g[3];
	uint64_t id;

	for (uint16_t i = 0; i < 2; i++) {
		rig_worker_unregistered(&reader[i], scout_server_endpoint(server), 1, 2);
		ck_assert_int_eq(wire_register(&reader[i], 0, i, SHARD_BYTES), SCOUT_WIRE_OK);
	}
	rig_store(&reader[0], 0, 1, 4);
	rig_hit(&reader[0], 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&reader[0], 9, 0, 4, &g[0]), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&reader[0], g[0].id, 0), SCOUT_WIRE_OK);
	/* The second reader's units still pin all of it. The first one asking again does not take them. */
	ck_assert_int_eq(wire_retrieve(&reader[0], 9, 0, 4, &g[1]), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g[1].n_granted, 4);
	ck_assert_int_eq(wire_retrieve_done(&reader[0], g[1].id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&reader[0], "l1.bytes_promised"), 4 * SHARD_BYTES);
	ck_assert_uint_eq(rig_granted(&reader[0], 0, 101, 4, &id), 0);
	ck_assert_int_eq(wire_retrieve(&reader[1], 9, 0, 4, &g[2]), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g[2].n_granted, 4);
	ck_assert_uint_eq(wire_status(&reader[0], "l1.bytes_promised"), 0);
	ck_assert_int_eq(wire_retrieve_done(&reader[1], g[2].id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&reader[0], 0, 101, 4, &id), 4);
	/* Nothing was left of the units that FINISH could give back a second time. */
	rig_finish(&reader[0], 9);
	for (int i = 0; i < 3; i++)
		free(g[i].grants);
	wire_close(&reader[0]);
	wire_close(&reader[1]);
	scout_server_stop(server);
}
END_TEST

START_TEST(a_retrieve_after_a_withdrawal_gets_what_is_still_there)
{
	struct wire_grants g;
	uint32_t kept;

	rig_up_promised(&rig, 8, 8);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 0, &kept), SCOUT_WIRE_OK);
	/* Somebody else takes two of the slots: the tail goes first. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 2), 2);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 8, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 8);
	ck_assert_uint_eq(g.n_granted, 6);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(g.grants[i].state, i < 6 ? SCOUT_GRANT_GRANTED : SCOUT_GRANT_MISSING);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 8, &g), SCOUT_WIRE_NO_SESSION);
}
END_TEST

START_TEST(a_retrieve_beyond_the_hit_is_missing_and_beyond_the_lookup_out_of_range)
{
	struct wire_grants g;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 2);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 2);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 1, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(g.grants[0].state, SCOUT_GRANT_GRANTED);
	ck_assert_int_eq(g.grants[1].state, SCOUT_GRANT_MISSING);
	ck_assert_int_eq(g.grants[2].state, SCOUT_GRANT_MISSING);
	free(g.grants);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 5, &g), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_retrieve(&rig.client, 9, 0, 1, &g), SCOUT_WIRE_ROLE);
}
END_TEST

START_TEST(done_twice_is_harmless)
{
	struct wire_grants first, second;
	uint64_t id;

	rig_up_promised(&rig, 4, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &first), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &second), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, first.id, 0), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, first.id, 0), SCOUT_WIRE_NO_SESSION);
	/* The second hold stands. */
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, second.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 4);
	free(first.grants);
	free(second.grants);
}
END_TEST

START_TEST(nobody_gives_back_the_hold_of_another)
{
	struct wire_peer other;
	struct wire_grants g;
	uint64_t id;
	uint32_t readable;

	rig_up(&rig, 8);
	rig_worker(&other, rig.endpoint);
	rig_store(&rig.worker, 0, 1, 4);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 2, &id), 2);
	ck_assert_int_eq(wire_retrieve_done(&other, g.id, 0), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_store_done(&other, id, 2, 2, &readable), SCOUT_WIRE_NO_SESSION);
	/* Nor with the number of the other kind. */
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, id, 0), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 2);
	ck_assert_uint_eq(rig_peek(&rig.client, 101, 2), 0);
	free(g.grants);
	wire_close(&other);
}
END_TEST

START_TEST(a_store_after_the_end_of_its_session_is_good)
{
	uint64_t id;
	uint32_t readable;

	rig_up(&rig, 8);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_uint_eq(rig_granted(&rig.worker, 9, 1, 2, &id), 2);
	rig_finish(&rig.client, 9);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 3, 2), 2);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
}
END_TEST

START_TEST(a_prompt_longer_than_the_pool_keeps_its_head)
{
	rig_up(&rig, 8);
	rig_hit(&rig.client, 9, 1, 12);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(rig_store(&rig.worker, 9, 1 + 4 * i, 4), i < 2 ? 4 : 0);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 12), 8);
	/* Of somebody else it is evicted as ever, the tail first. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 3), 3);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 12), 5);
}
END_TEST

START_TEST(what_a_session_stored_stays_while_it_stores_more)
{
	struct scout_server_config cfg = rig_config(8);

	cfg.eviction = "lru"; /* others protect what was read */
	rig_up_with(&rig, &cfg);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 4), 4);
	rig_hit(&rig.client, 9, 1, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 1, 4), 4);
	/* Now the others are newer, and go nevertheless. */
	ck_assert_uint_eq(rig_peek(&rig.client, 101, 4), 4);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 5, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 8), 8);
	ck_assert_uint_eq(rig_peek(&rig.client, 101, 4), 0);
}
END_TEST

START_TEST(what_a_session_retrieved_stays_while_it_stores)
{
	struct wire_grants g;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 12), 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 4), 4);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 5, 8), 4);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 12), 8);
}
END_TEST

/* Each of them meets what the other one passed over; both must come to an end. */
START_TEST(two_stores_of_one_session_in_a_pool_of_its_own_chunks_end)
{
	enum {
		POOL = 1000
	};
	struct wire_peer second;
	uint64_t corr[2];

	rig_up(&rig, POOL);
	rig_hit(&rig.client, 9, 1, POOL + 20);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 1, POOL), POOL);
	rig_worker(&second, rig.endpoint); /* one that is alone may pin all */
	corr[0] = wire_add_store(&rig.worker, 9, 1 + POOL, 10);
	corr[1] = wire_add_store(&second, 9, 11 + POOL, 10);
	wire_flush(&rig.worker);
	wire_flush(&second);
	wire_reply_free(wire_wait(&rig.worker, corr[0]));
	wire_reply_free(wire_wait(&second, corr[1]));
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, POOL), POOL);
	wire_close(&second);
}
END_TEST

START_TEST(finish_during_a_retrieve_keeps_the_hold)
{
	struct wire_grants g;
	uint64_t id;

	rig_up_promised(&rig, 4, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(wire_generation(&rig.worker, &g.grants[i]), g.grants[i].generation);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 4);
	free(g.grants);
}
END_TEST

START_TEST(mismatches_are_counted_as_bugs)
{
	struct wire_grants g;

	rig_up_promised(&rig, 4, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 5), SCOUT_WIRE_RANGE);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 2), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&rig.client, "bugs.mismatches"), 2);
	free(g.grants);
}
END_TEST

static uint64_t
compared(uint64_t storer, const char *what)
{
	char name[128];

	(void)snprintf(name, sizeof(name), "ns.test.verify.by.%016" PRIx64 ".%s", storer, what);
	return wire_status(&rig.client, name);
}

/* Those beyond the seventh make room for each other, the oldest first, and are not told one by one any more. */
START_TEST(what_comparisons_find_is_counted_by_who_stored_it)
{
	const uint8_t found[3] = {SCOUT_FOUND_COMPARED | SCOUT_FOUND_DIFFERS | 63, 0, SCOUT_FOUND_COMPARED | 1};
	struct wire_peer storers[9];
	struct wire_grants g;

	rig_up(&rig, 32);
	for (uint64_t i = 0; i < 9; i++) {
		rig_worker(&storers[i], rig.endpoint);
		(void)rig_store(&storers[i], 0, 1 + 3 * i, 3);
		ck_assert_uint_eq(rig_hit(&rig.client, 9 + i, 1 + 3 * i, 3), 3);
		ck_assert_int_eq(wire_retrieve(&rig.worker, 9 + i, 0, 3, &g), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_found(&rig.worker, g.id, found, 2), SCOUT_WIRE_RANGE);
		ck_assert_int_eq(wire_found(&rig.worker, g.id, found, 3), SCOUT_WIRE_OK);
		free(g.grants);
	}
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.verify.hits"), 9);
	ck_assert_uint_eq(wire_status(&rig.client, "verify.mismatches"), 9);
	ck_assert_uint_eq(compared(0, "mismatches"), 2);
	ck_assert_uint_eq(compared(0, "error_ppm.more"), 2);
	ck_assert_uint_eq(compared(storers[1].id, "mismatches"), UINT64_MAX);
	ck_assert_uint_eq(compared(storers[2].id, "error_ppm.1000"), 1);
	ck_assert_uint_eq(compared(storers[8].id, "mismatches"), 1);
	for (uint64_t i = 0; i < 9; i++)
		wire_close(&storers[i]);
}
END_TEST

/* No hit, failed load and hit again: what was seen to change is a miss at once, and can be stored anew. */
START_TEST(what_changed_under_a_retrieve_leaves_the_catalogue)
{
	struct wire_grants g, again;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 2), 2);
	ck_assert_uint_eq(rig_hit(&rig.client, 10, 1, 4), 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 1), SCOUT_WIRE_OK);
	/* Another session's promise keeps the two chunks in memory, but nobody gets them any more. */
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 10, 0, 4, &again), SCOUT_WIRE_OK);
	ck_assert_uint_eq(again.n_granted, 2);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, again.id, 0), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	rig_finish(&rig.client, 10);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 2);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	free(g.grants);
	free(again.grants);
}
END_TEST

START_TEST(a_reused_slot_has_another_generation)
{
	struct wire_grants old, new;

	rig_up(&rig, 1);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 1, &old), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store_done(&rig.worker, old.id, 1, 1, &(uint32_t){0}), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 2, 1, &new), SCOUT_WIRE_OK);
	ck_assert_uint_eq(new.n_granted, 1);
	ck_assert_uint_eq(new.grants[0].offset, old.grants[0].offset);
	ck_assert_uint_ne(new.grants[0].generation, old.grants[0].generation);
	ck_assert_uint_eq(wire_generation(&rig.worker, &old.grants[0]), new.grants[0].generation);
	free(old.grants);
	free(new.grants);
}
END_TEST

START_TEST(a_store_waits_for_the_memory_that_is_coming)
{
	struct scout_server_config cfg = rig_config(64);

	/* Eight extents, of which only the first is asked for by REGISTER. */
	cfg.extent_bytes = 8 * SHARD_BYTES;
	rig_up_with(&rig, &cfg);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 64), 64);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 64), 64);
	ck_assert_uint_ge(rig.worker.n_segments, 8);
}
END_TEST

START_TEST(a_store_that_finds_no_room_gets_the_leading_ones)
{
	struct wire_grants g;

	rig_up(&rig, 4);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 6, &g), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_eq(g.grants[i].state, i < 4 ? SCOUT_GRANT_GRANTED : SCOUT_GRANT_NO_ROOM);
	ck_assert_uint_ge(wire_status(&rig.client, "l1.refusals"), 1);
	free(g.grants);
}
END_TEST

/* ---- REGISTER ---- */

/* ---- weights ---- */
