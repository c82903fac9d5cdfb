/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>
#include <zmq.h>

#include "peer.h"
#include "server_rig.h"

/*
 * The server as its wire sees it: frames, HELLO, budgets and credits. Raw operations over a real socket, so that what no
 * well-behaved client sends is sent too.
 */

/* ---- frames ---- */

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

static size_t
make_ping(uint8_t *buf, size_t cap, uint64_t corr)
{
	struct scout__writer w = {.buf = buf, .cap = cap};

	scout__frame_begin(&w);
	scout__op_end(&w, scout__op_begin(&w, SCOUT_OP_PING, SCOUT_KIND_REQUEST, 0, corr, 0));
	scout__frame_end(&w, 1, 0, 1);
	ck_assert(!w.bad);
	return w.len;
}

static void
expect_frame_error(struct wire_peer *p, const void *data, size_t len, int status)
{
	struct wire_reply *reply;

	wire_raw(p, data, len, false);
	reply = wire_wait(p, 0);
	ck_assert_int_eq(reply->opcode, SCOUT_OP_ERROR);
	ck_assert_int_eq(reply->status, status);
	wire_reply_free(reply);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_frame_that_cannot_be_taken_apart_is_answered_by_its_error)
{
	uint8_t buf[256];
	size_t len = make_ping(buf, sizeof(buf), 7);
	uint8_t bad[256];

	rig_up(&rig, 8);
	memcpy(bad, buf, len);
	bad[4] = 2;
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_BAD_VERSION);
	ck_assert_msg(strstr(rig.client.text, "version 2") && strstr(rig.client.text, "version 3") &&
			      strstr(rig.client.text, "upgrade the peer"),
		      "%s", rig.client.text);
	bad[4] = 4;
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_BAD_VERSION);
	ck_assert_msg(strstr(rig.client.text, "upgrade this server") != NULL, "%s", rig.client.text);
	memcpy(bad, buf, len);
	bad[6] = 1;
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_BAD_RESERVED);
	memcpy(bad, buf, len);
	expect_frame_error(&rig.client, bad, len - 1, SCOUT_WIRE_TRUNCATED);
	memcpy(bad, buf, len);
	bad[32 + 4] = 1; /* the operation reaches beyond the end */
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_TRUNCATED);
	memcpy(bad, buf, len);
	bad[12] = 0;
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_TOO_LARGE);
	memcpy(bad, buf, len);
	bad[32 + 1] = SCOUT_KIND_REPLY;
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_BAD_RESERVED);
	len = make_ping(bad, sizeof(bad), 0);
	expect_frame_error(&rig.client, bad, len, SCOUT_WIRE_BAD_RESERVED);
	ck_assert_uint_eq(wire_status(&rig.client, "frames.bad"), 8);
}
END_TEST

START_TEST(an_oversized_frame_is_refused_and_the_connection_lives)
{
	size_t len = SCOUT_MAX_FRAME + 1;
	uint8_t *big = calloc(1, len);

	ck_assert_ptr_nonnull(big);
	rig_up(&rig, 8);
	make_ping(big, 256, 7);
	expect_frame_error(&rig.client, big, len, SCOUT_WIRE_TOO_LARGE);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	free(big);
}
END_TEST

START_TEST(what_is_not_our_protocol_is_dropped_and_counted)
{
	uint64_t before;
	uint8_t buf[256];
	size_t len = make_ping(buf, sizeof(buf), 7);

	rig_up(&rig, 8);
	before = wire_status(&rig.client, "frames.dropped");
	wire_raw(&rig.client, "hello", 5, false);
	wire_raw(&rig.client, "", 0, false);
	wire_raw(&rig.client, buf, len, true); /* in two parts */
	wire_raw(&rig.client, buf, len, false);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&rig.client, "frames.dropped"), before + 3);
	ck_assert(!wire_has(&rig.client, 7));
}
END_TEST

START_TEST(an_unknown_opcode_is_answered_with_it)
{
	const uint8_t opcodes[] = {0, SCOUT_OP_ERROR, SCOUT_OP_LAST + 1, 255};

	rig_up(&rig, 8);
	for (size_t i = 0; i < sizeof(opcodes); i++) {
		struct wire_reply *reply;
		uint64_t corr;

		(void)wire_begin(&rig.client, opcodes[i]);
		corr = wire_end(&rig.client);
		wire_flush(&rig.client);
		reply = wire_wait(&rig.client, corr);
		ck_assert_int_eq(reply->status, SCOUT_WIRE_UNKNOWN_OP);
		ck_assert_int_eq(reply->opcode, opcodes[i]);
		wire_reply_free(reply);
	}
}
END_TEST

START_TEST(a_body_of_the_wrong_length_is_refused_for_every_opcode)
{
	char begin[64];

	rig_up(&rig, 8);
	for (uint8_t opcode = SCOUT_OP_HELLO; opcode <= SCOUT_OP_LAST; opcode++) {
		struct wire_reply *reply;
		uint64_t corr;

		if (opcode == SCOUT_OP_ERROR)
			continue;

		/* Five bytes are no body of any operation. */
		scout__put_bytes(wire_begin(&rig.worker, opcode), "12345", 5);
		corr = wire_end(&rig.worker);
		wire_flush(&rig.worker);
		reply = wire_wait(&rig.worker, corr);
		ck_assert_int_eq(reply->opcode, opcode);
		ck_assert_int_eq(reply->status, SCOUT_WIRE_BAD_BODY);
		/* Its own handler said so. */
		(void)snprintf(begin, sizeof(begin), "%s: ", scout__op_name(opcode));
		ck_assert_msg(strncmp(rig.worker.text, begin, strlen(begin)) == 0, "%s%s", begin, rig.worker.text);
		wire_reply_free(reply);
	}
}
END_TEST

/* ---- HELLO ---- */

START_TEST(nothing_but_ping_and_status_before_hello)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct scout__lookup_reply m;
	struct wire_peer p;

	wire_open(&p, scout_server_endpoint(server));
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK);
	ck_assert_uint_ne(wire_status(&p, "epoch"), 0);
	ck_assert_int_eq(wire_lookup(&p, 1, 1, 1, 0, &m), SCOUT_WIRE_NO_HELLO);
	ck_assert_int_eq(wire_simple(&p, SCOUT_OP_FINISH, 1), SCOUT_WIRE_NO_HELLO);
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&p, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	wire_close(&p);
	scout_server_stop(server);
}
END_TEST

START_TEST(another_epoch_is_stale)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig.client.epoch++;
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_STALE_EPOCH);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 1), SCOUT_WIRE_STALE_EPOCH);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_hello(&rig.client), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
}
END_TEST

START_TEST(hello_with_another_parameter_is_refused_and_names_it)
{
	static const char *const names[] = {"hash_bytes", "chunk_tokens", "kv_ranks",
					    "rank_first", "rank_count",   "readers"};
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer first;

	wire_open(&first, scout_server_endpoint(server));
	first.hello.kv_ranks = 4;
	first.hello.rank_count = 2;
	ck_assert_int_eq(wire_hello(&first), SCOUT_WIRE_OK);
	for (int i = 0; i < 6; i++) {
		struct wire_peer p;

		wire_open(&p, scout_server_endpoint(server));
		p.hello.kv_ranks = i == 2 ? 5 : 4;
		p.hello.rank_count = i == 4 ? 1 : 2;
		p.hello.hash_bytes = i == 0 ? 32 : 16;
		p.hello.chunk_tokens = i == 1 ? 32 : 16;
		p.hello.rank_first = i == 3 ? 1 : 0;
		p.hello.readers = i == 5 ? 2 : 1;
		ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_NAMESPACE);
		ck_assert_msg(strstr(p.text, names[i]), "%s: %s", names[i], p.text);
		wire_close(&p);
	}
	wire_close(&first);
	scout_server_stop(server);
}
END_TEST

START_TEST(a_hello_out_of_range_is_refused)
{
	struct wire_peer p;

	rig_up(&rig, 8);
	wire_open(&p, rig.endpoint);
	p.hello.readers = 0;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_RANGE);
	ck_assert_ptr_nonnull(strstr(p.text, "readers"));
	p.hello.readers = 1;
	p.hello.rank_first = 1;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_RANGE);
	wire_close(&p);
}
END_TEST

START_TEST(a_namespace_that_all_have_left_takes_other_parameters)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer worker, next, watcher;

	wire_open(&watcher, scout_server_endpoint(server));
	rig_worker(&worker, scout_server_endpoint(server));
	ck_assert_uint_eq(rig_store(&worker, 0, 1, 4), 4);
	wire_lease_bye(&worker);
	wire_wait_status(&watcher, "peers", 0);
	wire_open(&next, scout_server_endpoint(server));
	next.hello.role = SCOUT_ROLE_WORKER;
	next.hello.hash_bytes = 32;
	wait_until(wire_hello(&next) == SCOUT_WIRE_OK)
		;
	ck_assert_int_eq(wire_lease(&next), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&next, 0, 0, 2 * SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&next, 1, 4), 0);
	ck_assert_uint_eq(rig_store(&next, 0, 1, 4), 4);
	wire_close(&next);
	wire_close(&worker);
	wire_close(&watcher);
	scout_server_stop(server);
}
END_TEST

START_TEST(a_reconnected_token_keeps_its_sessions)
{
	struct wire_peer again;
	uint32_t kept;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 77, 1, 4), 4);
	wire_open(&again, rig.endpoint);
	wire_as(&again, &rig.client.hello);
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_admit(&again, 77, 0, 3, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 3);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 77), SCOUT_WIRE_NO_HELLO);
	rig_finish(&again, 77);
	ck_assert_uint_eq(wire_status(&again, "l1.bytes_promised"), 0);
	wire_close(&again);
}
END_TEST

START_TEST(one_connection_one_token_one_role)
{
	uint64_t token;

	rig_up(&rig, 8);
	token = rig.client.hello.token;
	rig.client.hello.token = token + 1;
	ck_assert_int_eq(wire_hello(&rig.client), SCOUT_WIRE_STATE);
	rig.client.hello.token = token;
	rig.client.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&rig.client), SCOUT_WIRE_STATE);
}
END_TEST

START_TEST(max_peers_is_a_typed_refusal)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer third;

	cfg.max_peers = 2;
	rig_up_with(&rig, &cfg);
	wire_open(&third, rig.endpoint);
	ck_assert_int_eq(wire_hello(&third), SCOUT_WIRE_LIMIT);
	ck_assert_ptr_nonnull(strstr(third.text, "max_peers = 2"));
	wire_lease_bye(&rig.worker);
	wire_wait_status(&third, "peers", 1);
	ck_assert_int_eq(wire_hello(&third), SCOUT_WIRE_OK);
	wire_close(&third);
}
END_TEST

START_TEST(a_silent_client_is_forgotten_with_its_promises)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer silent;

	cfg.peer_timeout_ms = 3000; /* it is not forgotten before it is seen */
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&silent, rig.endpoint);
	silent.hello.heartbeat_ms = 20;
	ck_assert_int_eq(wire_hello(&silent), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_hit(&silent, 5, 1, 4), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	wire_wait_status(&rig.client, "peers", 2);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	ck_assert_int_eq(wire_simple(&silent, SCOUT_OP_FINISH, 5), SCOUT_WIRE_NO_HELLO);
	wire_close(&silent);
}
END_TEST

/* The server's key decides, and a peer that said that it would be silent for longer is believed. */
START_LOOP_TEST(a_silent_client_is_kept_for_as_long_as_the_server_waits_and_it_said, 0, 2)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer silent[3];

	cfg.peer_timeout_ms = _i == 0 ? 600000 : 60;
	rig_up_with(&rig, &cfg);
	rig.client.hello.heartbeat_ms = 60000; /* the one that watches stays, however late it asks */
	ck_assert_int_eq(wire_hello(&rig.client), SCOUT_WIRE_OK);
	for (unsigned i = 0; i < 3; i++) {
		wire_open(&silent[i], rig.endpoint);
		silent[i].hello.heartbeat_ms = i == 0 ? 10 : 60000;
		ck_assert_int_eq(wire_hello(&silent[i]), SCOUT_WIRE_OK);
	}
	/* Long enough for the peer with the short heartbeat: it goes where the key allows it. */
	for (uint64_t end_us = scout__now_us() + 1500000; scout__now_us() < end_us;)
		(void)wire_status(&rig.client, "peers.forgotten");
	if (_i == 1)
		wire_wait_status(&rig.client, "peers.forgotten", 1);
	ck_assert_uint_eq(wire_status(&rig.client, "peers.forgotten"), _i == 0 ? 0 : 1);
	for (unsigned i = 0; i < 3; i++)
		wire_close(&silent[i]);
}
END_TEST

/* S6: none of them makes the loop's turn long, and each has its turn within a second. */
START_TEST(a_tick_looks_at_few_of_many_peers)
{
	ck_assert_uint_eq(scout__tick_share(0), 0);
	ck_assert_uint_eq(scout__tick_share(3), 3);
	for (uint32_t n = 1; n <= 65536; n++) {
		uint32_t share = scout__tick_share(n);

		ck_assert_uint_le(share, n);
		ck_assert_uint_le(share, 1311);
		ck_assert_uint_ge(share * 51, n);
	}
}
END_TEST

/* ---- budgets and credits ---- */

START_TEST(an_expired_operation_is_not_executed)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig.client.budget_us = 60000000;
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	rig.client.budget_us = 500000;
	rig.client.sent_us_shift = -2000000; /* as if it had waited for two seconds */
	ck_assert_int_eq(wire_lookup(&rig.client, 2, 1, 1, 0, &m), SCOUT_WIRE_EXPIRED);
	ck_assert_uint_eq(wire_status(&rig.client, "ops.expired"), 1);
	rig.client.sent_us_shift = 0;
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 2), SCOUT_WIRE_NO_SESSION);
	rig_finish(&rig.client, 1);
}
END_TEST

START_TEST(a_lookup_is_answered_within_its_budget)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;
	uint64_t held, before_us;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	/* Without a budget the answer is held back for the whole delay; it was asked for before. */
	held = wire_add_lookup(&rig.client, &(struct scout__lookup_msg){.ticket = 2, .n = 1}, 1);
	wire_flush(&rig.client);
	rig.client.budget_us = 50000;
	rig.client.sent_us_shift = 10000000; /* however late it is read, it has not waited */
	before_us = scout__now_us();
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_ge(scout__now_us() - before_us, 30000);
	ck_assert(!wire_has(&rig.client, held));
}
END_TEST

/* What is skipped is in the GPU, so it is a hit however far the walk got. */
START_TEST(a_budget_that_ends_among_the_skipped_chunks_is_a_hit_of_these)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig.client.budget_us = 100;
	rig.client.sent_us_shift = 10000000; /* the frame is large; it has not waited all the same */
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, SCOUT_MAX_CHUNKS, SCOUT_MAX_CHUNKS - 1, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, SCOUT_MAX_CHUNKS - 1);
	ck_assert_uint_eq(m.l1, 0);
	ck_assert_uint_eq(m.l2, 0);
	rig.client.budget_us = 0;
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.hit_chunks"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.none"), 1);
	rig_finish(&rig.client, 1);
}
END_TEST

START_TEST(operations_beyond_the_credits_are_refused)
{
	struct scout_server_config cfg = rig_config(8);
	const struct scout__lookup_msg m = {.n = 1};
	struct wire_reply *reply;
	uint64_t corr[3];

	cfg.credits = 2;
	cfg.reply_delay_us = 200000;
	rig_up_with(&rig, &cfg);
	ck_assert_uint_eq(rig.client.credits, 2);
	for (unsigned i = 0; i < 3; i++) {
		struct scout__lookup_msg mine = m;

		mine.ticket = i + 1;
		corr[i] = wire_add_lookup(&rig.client, &mine, 1);
	}
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr[2]);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_LIMIT);
	ck_assert_uint_eq(reply->order, 2); /* HELLO's was the first */
	wire_reply_free(reply);
	for (unsigned i = 0; i < 2; i++) {
		reply = wire_wait(&rig.client, corr[i]);
		ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
		wire_reply_free(reply);
	}
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 1), SCOUT_WIRE_OK);
}
END_TEST

START_TEST(max_sessions_is_a_typed_refusal)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;

	cfg.max_sessions = 2;
	rig_up_with(&rig, &cfg);
	rig_hit(&rig.client, 1, 1, 1);
	rig_hit(&rig.client, 2, 1, 1);
	ck_assert_int_eq(wire_lookup(&rig.client, 3, 1, 1, 0, &m), SCOUT_WIRE_LIMIT);
	rig_finish(&rig.client, 1);
	ck_assert_int_eq(wire_lookup(&rig.client, 3, 1, 1, 0, &m), SCOUT_WIRE_OK);
}
END_TEST
