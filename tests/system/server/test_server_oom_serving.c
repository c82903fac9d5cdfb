/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "check_main.h"
#include "oom.h"
#include "server_rig.h"

/*
 * A server that runs out of memory while it serves: each of its allocations in a round of all operations fails in turn.
 * Whatever becomes of the operation that needed it - a refusal, or no reply where there was no memory for one -, the server goes
 * on, and once the peers have left everything is free again. A new round works as ever.
 *
 * Most of its time goes by until a reply is given up that will never come, and until the pool tries to grow again.
 */

#define POOL 3000u
#define LONG 2500u         /* chunks: its grants are a frame of their own */
#define PATIENCE_US 50000u /* with a reply that may never come, since an allocation has failed */
#define MOST 500u
#define GROWERS 4u /* one of so many rounds in which the pool could not grow waits until it has grown */

/* The status of the reply, or -1: none came. @ret_reply is to be freed when it is 0. */
static int
try_wait(struct wire_peer *p, uint64_t corr, struct wire_reply **ret_reply)
{
	uint64_t end_us = scout__now_us() + PATIENCE_US, last_us = wait_begin();
	struct wire_reply *reply;
	int status;

	while (!wire_has(p, corr)) {
		ck_assert_msg(scout__now_us() < last_us, "no reply, and no allocation has failed");
		if (!oom_failed())
			end_us = scout__now_us() + PATIENCE_US;
		else if (scout__now_us() > end_us)
			return -1;
		(void)sched_yield();
	}
	reply = wire_wait(p, corr);
	status = reply->status;
	if (status == 0)
		*ret_reply = reply;
	else
		wire_reply_free(reply);
	return status;
}

/* The operation that wire_begin() began. Whatever comes. */
static void
try_end(struct wire_peer *p)
{
	struct wire_reply *reply;
	uint64_t corr = wire_end(p);

	wire_flush(p);
	if (try_wait(p, corr, &reply) == 0)
		wire_reply_free(reply);
}

/* Store, copy nothing, commit. */
static void
try_store(struct wire_peer *p, uint64_t ticket, uint64_t key, uint32_t n)
{
	uint64_t corr = wire_add_store(p, ticket, key, n);
	struct wire_reply *reply;

	wire_flush(p);
	if (try_wait(p, corr, &reply) != 0)
		return;
	wire_reply_free(reply);
	scout__put_store_done(wire_begin(p, SCOUT_OP_STORE_DONE), &(struct scout__store_done_msg){corr, n, n});
	try_end(p);
}

static void
try_lookup(struct wire_peer *p, uint64_t ticket, uint64_t key, uint32_t n)
{
	struct scout__lookup_msg m = {.ticket = ticket, .n = n};
	uint64_t corr = wire_add_lookup(p, &m, key);
	struct wire_reply *reply;

	wire_flush(p);
	if (try_wait(p, corr, &reply) == 0)
		wire_reply_free(reply);
}

/* KEYS of @n objects, of which the first 8 are there, and a RETRIEVE of those. */
static void
try_keys(struct wire_peer *client, struct wire_peer *worker, uint64_t ticket, uint32_t n)
{
	static uint8_t hashes[LONG * SCOUT_MAX_HASH];
	const struct scout__keys_msg m = {
		.ticket = ticket, .n = n, .n_parts = 1, .parts[0] = {.n = n}, .hashes = hashes};
	const struct scout__retrieve_msg retrieve = scout__retrieve_of(ticket, 0, 8);
	uint64_t corr;

	for (uint32_t i = 0; i < n; i++)
		wire_hash(hashes + (size_t)i * client->hello.hash_bytes, client->hello.hash_bytes,
			  i < 8 ? 1 + i : 50000 + i);
	scout__put_keys(wire_begin(client, SCOUT_OP_KEYS), &m, client->hello.hash_bytes);
	try_end(client);
	scout__put_retrieve(wire_begin(worker, SCOUT_OP_RETRIEVE), &retrieve);
	try_end(worker);
	corr = worker->last_corr;
	scout__put_retrieve_done(wire_begin(worker, SCOUT_OP_RETRIEVE_DONE),
				 &(struct scout__retrieve_done_msg){corr, 0});
	try_end(worker);
}

static void
try_simple(struct wire_peer *p, uint8_t opcode, uint64_t word)
{
	struct scout__writer *w = wire_begin(p, opcode);

	if (opcode == SCOUT_OP_FINISH)
		scout__put_finish(w, &(struct scout__finish_msg){.ticket = word});
	else
		scout__put_one_u64(w, word);
	try_end(p);
}

/* Each operation, short and long. */
static void
serve_all(struct wire_peer *client, struct wire_peer *worker)
{
	try_store(worker, 0, 1, 8);
	try_store(worker, 0, 100, LONG);
	try_lookup(client, 7, 1, 8);
	try_lookup(client, 8, 100, LONG + 100);
	for (uint64_t ticket = 7; ticket < 9; ticket++) {
		struct scout__retrieve_msg retrieve;
		uint64_t corr;

		retrieve = scout__retrieve_of(ticket, 0, ticket == 7 ? 8 : LONG);
		scout__put_retrieve(wire_begin(worker, SCOUT_OP_RETRIEVE), &retrieve);
		try_end(worker);
		corr = worker->last_corr;
		scout__put_retrieve_done(wire_begin(worker, SCOUT_OP_RETRIEVE_DONE),
					 &(struct scout__retrieve_done_msg){corr, 0});
		try_end(worker);
	}
	try_keys(client, worker, 9, 16);
	try_keys(client, worker, 10, LONG);
	try_store(worker, 8, 100 + LONG, 100);
	scout__put_admit(wire_begin(client, SCOUT_OP_ADMIT), &(struct scout__admit_msg){8, 10, 20});
	try_end(client);
	(void)wire_begin(client, SCOUT_OP_STATUS);
	try_end(client);
	try_simple(client, SCOUT_OP_FINISH, 7);
	try_simple(client, SCOUT_OP_FINISH, 8);
	try_simple(client, SCOUT_OP_FINISH, 9);
	try_simple(client, SCOUT_OP_FINISH, 10);
	(void)wire_begin(client, SCOUT_OP_PING);
	try_end(client);
	try_simple(worker, SCOUT_OP_RESET, 2);
}

/* A pool that could not grow tries that again after a second, whichever allocation it was. */
static bool
waits_for_growing(void)
{
	static unsigned n;

	return n++ % GROWERS == 0 || is_long();
}

/* Whether one allocation failed. */
static bool
round_with(unsigned n)
{
	struct scout_server_config cfg = rig_config(POOL);
	struct wire_peer client, worker;
	struct rig rig;
	bool failed, must_grow;
	uint64_t end_us;
	uint32_t granted, readable;
	uint64_t id;

	cfg.max_sessions = 16;
	cfg.max_peers = 8;
	rig.server = rig_start(&cfg);
	rig.endpoint = scout_server_endpoint(rig.server);
	rig_client(&client, rig.endpoint);
	rig_worker(&worker, rig.endpoint);
	oom_arm(n, OOM_SERVER);
	serve_all(&client, &worker);
	failed = oom_disarm();
	end_us = wait_begin();
	wire_lease_bye(&worker);
	wire_close(&worker);
	wire_close(&client);
	/* As if nothing had been. */
	rig_client(&rig.client, rig.endpoint);
	rig_worker(&rig.worker, rig.endpoint);
	wire_wait_status(&rig.client, "holds", 0);
	wire_wait_status(&rig.client, "sessions", 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	granted = rig_granted(&rig.worker, 0, 100000, POOL, &id);
	must_grow = granted < POOL && waits_for_growing();
	while (must_grow && granted < POOL && scout__now_us() < end_us) {
		if (id)
			ck_assert_int_eq(wire_store_done(&rig.worker, id, granted, 0, &readable), SCOUT_WIRE_OK);
		granted = rig_granted(&rig.worker, 0, 100000, POOL, &id);
	}
	ck_assert_msg(granted == POOL || !must_grow, "allocation %u: %u of %u granted, %llu held", n, granted, POOL,
		      (unsigned long long)wire_status(&rig.client, "l1.bytes_held"));
	rig_down(&rig);
	return failed;
}

CASE_TIMEOUT(170);

START_TEST(a_server_goes_on_whichever_allocation_fails)
{
	unsigned n = 1;

	while (round_with(n))
		ck_assert_uint_lt(++n, MOST);
	ck_assert_uint_gt(n, 10);
}
END_TEST
