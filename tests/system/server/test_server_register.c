/* SPDX-License-Identifier: Apache-2.0 */
/* REGISTER and RESET: what a worker may register, and what another version of the weights ends. */
#include "check_main.h"

#include <errno.h>
#include <string.h>

#include "assert_rc.h"
#include "own_use.h"
#include "server_rig.h"

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(with_prealloc_the_pool_grows_until_it_is_whole_though_growing_fails_at_first)
{
	struct scout_server_config cfg = rig_config(2048);
	struct scout_server *server;
	struct wire_peer client, worker;

	cfg.extent_bytes = 256 * SHARD_BYTES;
	cfg.prealloc = 1;
	server = rig_start(&cfg);
	rig_client(&client, scout_server_endpoint(server));
	ck_assert_uint_eq(wire_status(&client, "l1.extents"), 0);
	/* The grower blocks SIGXFSZ: a memfd that is larger is an error. */
	limit_file_size(128 * SHARD_BYTES);
	rig_worker(&worker, scout_server_endpoint(server));
	wire_wait_status(&client, "l1.bytes_pool", 0);
	ck_assert_uint_eq(wire_status(&client, "l1.extents"), 0);
	ck_assert_uint_gt(wire_status(&client, "l1.growth_failures"), 0);
	ck_assert_uint_eq(wire_status(&client, "l1.growth_errno"), EFBIG);
	limit_file_size(RLIM_INFINITY);
	/* Nobody stores anything. */
	wire_wait_status(&client, "l1.extents", 8);
	ck_assert_uint_eq(wire_status(&client, "l1.growth_errno"), 0);
	ck_assert_uint_eq(wire_status(&client, "l1.bytes_extents"), cfg.l1_bytes);
	wire_close(&client);
	wire_close(&worker);
	scout_server_stop(server);
}
END_TEST

START_TEST(a_server_whose_first_extent_the_system_refuses_does_not_start)
{
	struct scout_server_config cfg = rig_config(2048);
	struct scout_server *server = NULL;
	char err[512] = "";

	limit_file_size(128 * SHARD_BYTES);
	assert_rc(scout_server_start(&cfg, &server, err, sizeof(err)), SCOUT_ERR_SYSTEM);
	ck_assert_msg(strstr(err, "ulimit -f") && strstr(err, "ftruncate"), "%s", err);
	limit_file_size(RLIM_INFINITY);
	/* And its host was not killed by SIGXFSZ. */
	assert_ok(scout_server_start(&cfg, &server, err, sizeof(err)));
	scout_server_stop(server);
}
END_TEST

START_TEST(register_with_other_bytes_is_refused_with_both_numbers)
{
	struct wire_peer other;

	rig_up(&rig, 8);
	rig_worker_unregistered(&other, rig.endpoint, 1, 1);
	ck_assert_int_eq(wire_register(&other, 0, 0, 2 * SHARD_BYTES), SCOUT_WIRE_SHARD_BYTES);
	ck_assert_ptr_nonnull(strstr(other.text, "4096"));
	ck_assert_ptr_nonnull(strstr(other.text, "8192"));
	ck_assert_int_eq(wire_register(&other, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	wire_close(&other);
}
END_TEST

START_TEST(a_worker_that_is_alone_may_change_the_layout)
{
	struct wire_peer other;

	rig_up_promised(&rig, 8, 4);
	wire_lease_bye(&rig.worker);
	wire_wait_status(&rig.client, "peers", 1);
	rig_worker_unregistered(&other, rig.endpoint, 1, 1);
	ck_assert_int_eq(wire_register(&other, 0, 0, 2 * SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_uint_eq(rig_store(&other, 0, 1, 4), 4);
	wire_close(&other);
}
END_TEST

START_TEST(a_chunk_larger_than_the_pool_is_refused_with_the_numbers)
{
	struct scout_server_config cfg = rig_config(2);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer p;

	rig_worker_unregistered(&p, scout_server_endpoint(server), 1, 1);
	ck_assert_int_eq(wire_register(&p, 0, 0, 4 * SHARD_BYTES), SCOUT_WIRE_NO_ROOM);
	ck_assert_ptr_nonnull(strstr(p.text, "16384"));
	ck_assert_ptr_nonnull(strstr(p.text, "8192"));
	/* The refusal fixed nothing. */
	ck_assert_int_eq(wire_register(&p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	wire_close(&p);
	scout_server_stop(server);
}
END_TEST

START_TEST(register_needs_the_role_the_rank_and_the_lease)
{
	struct wire_peer p;
	struct wire_grants g;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_register(&rig.client, 0, 0, SHARD_BYTES), SCOUT_WIRE_ROLE);
	wire_open(&p, rig.endpoint);
	p.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_register(&p, 0, 0, SHARD_BYTES), SCOUT_WIRE_STATE);
	ck_assert_int_eq(wire_store(&p, 0, 1, 1, &g), SCOUT_WIRE_STATE);
	ck_assert_int_eq(wire_retrieve(&p, 1, 0, 1, &g), SCOUT_WIRE_STATE);
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_store(&p, 0, 1, 1, &g), SCOUT_WIRE_STATE);
	ck_assert_int_eq(wire_register(&p, 1, 0, SHARD_BYTES), SCOUT_WIRE_ROLE);
	ck_assert_int_eq(wire_register(&p, 0, 1, SHARD_BYTES), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_register(&p, 0, 0, 0), SCOUT_WIRE_RANGE);
	ck_assert_msg(strstr(p.text, "must be 1 or more"), "%s", p.text);
	ck_assert_int_eq(wire_register(&p, 0, 0, UINT64_C(1) << 60), SCOUT_WIRE_RANGE);
	ck_assert_msg(strstr(p.text, "1125899906842624 at most"), "%s", p.text);
	ck_assert_int_eq(wire_register(&p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	wire_close(&p);
}
END_TEST

START_TEST(reset_makes_everything_older_unreadable)
{
	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	/* The same version again is nothing new. */
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
}
END_TEST

START_TEST(a_reset_between_reserve_and_commit_commits_nothing)
{
	uint64_t id;
	uint32_t readable;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 1, 4, &id), 4);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	/* New bytes under the same keys do not collide with the old reservation. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 4, 4, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 2);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.chunks"), 2);
}
END_TEST

START_TEST(reset_keeps_the_hold_of_a_running_retrieve)
{
	struct wire_grants g;
	uint64_t id;

	rig_up_promised(&rig, 4, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(wire_generation(&rig.worker, &g.grants[i]), g.grants[i].generation);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.chunks"), 0);
	free(g.grants);
}
END_TEST

START_TEST(peers_of_another_weights_version_are_refused_until_they_say_hello)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct scout__lookup_reply m;
	struct wire_peer a, b, follower, late;

	wire_open(&a, scout_server_endpoint(server));
	wire_open(&b, scout_server_endpoint(server));
	wire_open(&follower, scout_server_endpoint(server));
	wire_open(&late, scout_server_endpoint(server));
	a.hello.weights = b.hello.weights = 5;
	ck_assert_int_eq(wire_hello(&follower), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_hello(&a), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_hello(&b), SCOUT_WIRE_OK);
	late.hello.weights = 6;
	ck_assert_int_eq(wire_hello(&late), SCOUT_WIRE_WEIGHTS);
	ck_assert_ptr_nonnull(strstr(late.text, "5"));
	ck_assert_ptr_nonnull(strstr(late.text, "6"));
	ck_assert_int_eq(wire_simple(&a, SCOUT_OP_RESET, 6), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&a, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&b, 2, 1, 1, 0, &m), SCOUT_WIRE_WEIGHTS);
	ck_assert_int_eq(wire_lookup(&follower, 3, 1, 1, 0, &m), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_hello(&late), SCOUT_WIRE_OK);
	ck_assert_uint_eq(late.weights, 6);
	b.hello.weights = 6;
	ck_assert_int_eq(wire_hello(&b), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&b, 2, 1, 1, 0, &m), SCOUT_WIRE_OK);
	wire_close(&a);
	wire_close(&b);
	wire_close(&follower);
	wire_close(&late);
	scout_server_stop(server);
}
END_TEST

/* A client decides; a worker that comes late with an older version takes nobody back. */
START_TEST(a_worker_resets_only_from_the_version_that_it_is_in)
{
	struct scout__lookup_reply m;
	struct wire_grants g;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 5), SCOUT_WIRE_OK);
	/* HELLO again on the same connection: another version, and it is registered as before. */
	rig.worker.hello.weights = 5;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 6), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.worker, SCOUT_OP_RESET, 7), SCOUT_WIRE_WEIGHTS);
	ck_assert_ptr_nonnull(strstr(rig.worker.text, "version 5"));
	ck_assert_ptr_nonnull(strstr(rig.worker.text, "has 6"));
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.weights"), 6);
	/* A HELLO that is refused changes nothing. */
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_WEIGHTS);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 1, &g), SCOUT_WIRE_WEIGHTS);
	rig.worker.hello.weights = 6;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.worker, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.weights"), 7);
	/* It is in 7 now, without saying so. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2);
	/* The client had 6 by its own reset, though its HELLO gave no version: it does not follow. */
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 2, 0, &m), SCOUT_WIRE_WEIGHTS);
	ck_assert_int_eq(wire_hello(&rig.client), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 2), 2);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 8), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 1, &g), SCOUT_WIRE_WEIGHTS);
}
END_TEST

START_TEST(reset_ends_a_lookup_that_is_not_answered)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct wire_reply *reply;
	uint64_t corr;

	cfg.reply_delay_us = 20000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	reply = wire_wait(&rig.client, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_WEIGHTS);
	wire_reply_free(reply);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
}
END_TEST

#define SESSIONS 1024u

/* By the work, not by the time: 64 sessions in a step, and a turn has a step of it. */
START_TEST(another_layout_waits_until_all_sessions_have_ended_in_steps)
{
	struct scout_server_config cfg = rig_config(8);
	uint64_t turns;

	cfg.credits = SESSIONS + 1;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	for (uint64_t ticket = 1; ticket <= SESSIONS; ticket++)
		(void)wire_add_lookup(&rig.client, &(struct scout__lookup_msg){.ticket = ticket, .n = 4}, 1);
	wire_flush(&rig.client);
	wire_wait_status(&rig.client, "sessions", SESSIONS);
	turns = wire_status(&rig.client, "loop.turns");
	ck_assert_int_eq(wire_register(&rig.worker, 0, 0, SHARD_BYTES / 2), SCOUT_WIRE_OK);
	ck_assert_uint_ge(wire_status(&rig.client, "loop.turns") - turns, SESSIONS / 64);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 1), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
}
END_TEST
