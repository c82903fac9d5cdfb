/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>
#include <unistd.h>

#include "server_rig.h"

/*
 * Promise S7: a client that takes all it gets, beside one that does not. What the first took before stays its own; the other gets
 * its share; and after the first has gone, nothing of it is left.
 */

static struct rig rig;
static struct wire_peer hog;

static void
up(struct scout_server_config *cfg)
{
	rig_up_with(&rig, cfg);
	/* With a lease, no silence is too long. */
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	rig_client(&hog, rig.endpoint);
	ck_assert_int_eq(wire_lease(&hog), SCOUT_LEASE_OK);
}

/* The hog leaves; what @rig.client has opened is ended by FINISH of tickets 1 to @n. Then there is nothing left. */
static void
down(uint64_t n)
{
	wire_lease_bye(&hog);
	wire_wait_status(&rig.client, "peers", 2);
	wire_wait_status(&rig.client, "sessions", n);
	while (n)
		rig_finish(&rig.client, n--);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions.bytes"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 0);
	wire_close(&hog);
	rig_down(&rig);
}

#define MOST 640u
#define SHARE 20u /* a quarter of an eighth */

START_TEST(a_client_with_all_sessions_leaves_another_its_share)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;
	uint64_t n = 0;

	cfg.max_sessions = MOST;
	up(&cfg);
	while (wire_lookup(&hog, 1000 + n, 1, 1, 0, &m) == SCOUT_WIRE_OK)
		n++;
	ck_assert_uint_eq(n, MOST); /* no cap while there is room */
	ck_assert_msg(strstr(hog.text, "max_sessions = 640 are open, 640 of them are this peer's, whose share is 20") !=
			      NULL,
		      "%s", hog.text);
	for (uint64_t i = 1; i <= SHARE; i++)
		ck_assert_int_eq(wire_lookup(&rig.client, i, 1, 1, 0, &m), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&rig.client, SHARE + 1, 1, 1, 0, &m), SCOUT_WIRE_LIMIT);
	/* What the hog gives back is nobody's, but the reserve comes first. */
	rig_finish(&hog, 1000);
	ck_assert_int_eq(wire_lookup(&hog, 1000, 1, 1, 0, &m), SCOUT_WIRE_LIMIT);
	rig_finish(&rig.client, SHARE);
	ck_assert_int_eq(wire_lookup(&rig.client, SHARE, 1, 1, 0, &m), SCOUT_WIRE_OK);
	down(SHARE);
}
END_TEST

#define CHUNKS 512u
#define PROMISED 256u
#define CHUNKS_SHARE 8u /* a quarter of an eighth of what may be promised */

START_TEST(a_client_with_all_promises_leaves_another_its_share)
{
	struct scout_server_config cfg = rig_config(CHUNKS);
	struct scout__lookup_reply m;

	cfg.max_promised = PROMISED * SHARD_BYTES;
	up(&cfg);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, CHUNKS), CHUNKS);
	ck_assert_int_eq(wire_lookup(&hog, 1000, 1, CHUNKS, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, PROMISED);
	ck_assert_uint_eq(m.limited, 1);
	/* In two sessions: the share is the client's. */
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 301, CHUNKS_SHARE - 2, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, CHUNKS_SHARE - 2);
	ck_assert_int_eq(wire_lookup(&rig.client, 2, 401, CHUNKS_SHARE, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), (PROMISED + CHUNKS_SHARE) * SHARD_BYTES);
	ck_assert_int_eq(wire_lookup(&hog, 1001, 501, 1, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 0);
	/* What a session gives back, or turns into a hold, counts no more. */
	rig_finish(&rig.client, 2);
	ck_assert_int_eq(wire_lookup(&rig.client, 2, 403, CHUNKS_SHARE, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	down(2);
}
END_TEST

START_TEST(what_is_retrieved_is_no_longer_the_clients)
{
	struct scout_server_config cfg = rig_config(CHUNKS);
	struct scout__lookup_reply m;
	struct wire_grants g;

	cfg.max_promised = PROMISED * SHARD_BYTES;
	up(&cfg);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, CHUNKS), CHUNKS);
	ck_assert_int_eq(wire_lookup(&hog, 1000, 1, CHUNKS, 0, &m), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 301, CHUNKS, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, CHUNKS_SHARE);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 1, 0, CHUNKS_SHARE, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, CHUNKS_SHARE);
	ck_assert_int_eq(wire_lookup(&rig.client, 2, 401, CHUNKS, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, CHUNKS_SHARE);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	down(2);
}
END_TEST

/* It is granted what it may have and never says DONE; the other worker of the namespace stores an eighth of the pool at a time. */
START_TEST(a_worker_that_hangs_in_its_stores_leaves_another_an_eighth)
{
	struct scout_server_config cfg = rig_config(CHUNKS);
	struct wire_peer deaf;
	uint64_t id;

	up(&cfg);
	rig_worker(&deaf, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&deaf, 0, 1, CHUNKS, &id), CHUNKS - CHUNKS / 8);
	ck_assert_uint_eq(rig_granted(&deaf, 0, 1001, 1, &id), 0);
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_uint_eq(rig_store(&rig.worker, 0, 2000 + i * CHUNKS, CHUNKS), CHUNKS / 8);
	wire_lease_bye(&deaf);
	wire_close(&deaf);
	down(0);
}
END_TEST

/* A shard pins the chunk: the worker of one of two ranks holds a pool with half of its bytes. */
START_TEST(a_worker_of_one_rank_that_hangs_leaves_the_other_rank_an_eighth)
{
	struct scout_server_config cfg = rig_config(2 * CHUNKS);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer rank[2];
	uint64_t id;

	for (uint32_t i = 0; i < 2; i++)
		rig_worker_unregistered(&rank[i], scout_server_endpoint(server), 2, 1);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(wire_register(&rank[i], i, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rank[0], 0, 1, CHUNKS, &id), CHUNKS - CHUNKS / 8);
	ck_assert_uint_eq(rig_granted(&rank[1], 0, 1001, CHUNKS, &id), CHUNKS / 8);
	for (uint32_t i = 0; i < 2; i++)
		wire_close(&rank[i]);
	scout_server_stop(server);
}
END_TEST

#define HELD 16u /* half of what is left where promises end */

/* It stores and never says DONE; then it turns promises into holds and never says DONE. */
START_TEST(a_worker_that_never_says_DONE_leaves_others_their_share)
{
	struct scout_server_config cfg = rig_config(CHUNKS);
	struct wire_peer deaf, reader;
	struct wire_grants g;
	uint64_t id, ticket = 1000;
	uint32_t held = 0, n;

	cfg.max_promised = PROMISED * SHARD_BYTES;
	up(&cfg);
	/* Alone it may have all of the pool at once. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, CHUNKS), CHUNKS);
	rig_worker(&deaf, rig.endpoint);
	rig_worker(&reader, rig.endpoint);
	/* 100 at a time: promised, retrieved, finished. What is held stays. */
	do {
		struct scout__lookup_reply m;

		ck_assert_int_eq(wire_lookup(&hog, ++ticket, held + 1, 100, 0, &m), SCOUT_WIRE_OK);
		n = m.hit;
		if (n > 0) {
			ck_assert_int_eq(wire_retrieve(&reader, ticket, 0, n, &g), SCOUT_WIRE_OK);
			ck_assert_uint_eq(g.n_granted, n);
			free(g.grants);
		}
		rig_finish(&hog, ticket);
		held += n;
	} while (n > 0);
	ck_assert_uint_eq(held, CHUNKS - CHUNKS / 16);
	/* Room that nothing pins is left, and only for those that hold little. */
	ck_assert_uint_eq(rig_granted(&deaf, 0, 1001, HELD, &id), HELD);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 2001, HELD), HELD);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 3001, HELD), HELD);
	ck_assert_uint_eq(rig_granted(&reader, 0, 4001, 1, &id), 0);
	wire_lease_bye(&reader);
	wire_lease_bye(&deaf);
	wire_lease_bye(&rig.worker);
	wire_wait_status(&rig.client, "peers", 2);
	wire_close(&deaf);
	rig_worker(&deaf, rig.endpoint);
	ck_assert_uint_eq(rig_store(&deaf, 0, 5001, CHUNKS - CHUNKS / 8), CHUNKS - CHUNKS / 8);
	down(0);
	wire_close(&reader);
	wire_close(&deaf);
}
END_TEST
