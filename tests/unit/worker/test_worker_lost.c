/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that breaks after the server has granted and before the worker has heard of it: the worker gives back what it
 * never saw, or the server would hold it for as long as the worker lives.
 */
#include <poll.h>
#include <string.h>

#include <kvscout/protocol.h>
#include <kvscout/worker.h>

#include "check_main.h"
#include "clock.h"
#include "fake_server.h"
#include "waiting.h"

static struct fake_server *fake;
static struct scout_worker *worker;
static uint8_t pages[4096];

static void
up(void)
{
	struct scout_plane plane = {.base = pages, .stride = 256, .block_bytes = 256};
	struct scout_table layout = {
		.block_tokens = 16, .n_planes = 1, .planes = &plane, .n_blocks = 16, .null_block = -1};
	struct scout_worker_config cfg;
	char err[256] = "";

	fake = fake_start();
	scout_worker_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.heartbeat_ms = 250; /* a pause of the machine is no silence yet */
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
down(void)
{
	scout_worker_free(worker);
	fake_stop(fake);
}

static struct scout_done
wait_done(void)
{
	struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};
	struct scout_done done;

	wait_until(scout_worker_poll(worker, &done, 1) != 0)
		(void)poll(&pfd, 1, 1000);
	return done;
}

/* The server hears of @opcode, the connection breaks, the same server start comes back. */
static void
lose(unsigned opcode)
{
	ck_assert(fake_wait(fake, opcode, 1));
	fake_unbind(fake);
	ck_assert_int_eq(wait_done().status, SCOUT_ERR_UNREACHABLE);
	fake_bind(fake, false);
}

CHECKED_FIXTURE(up, down);

START_TEST(retrieve_whose_reply_was_lost_is_given_back_by_its_correlation_id)
{
	int64_t ids[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	struct scout_retrieve r = {
		.ticket = 5, .to_token = 256, .blocks = &(struct scout_blocks){.ids = ids, .n = 16}, .n_groups = 1};
	uint64_t job;

	fake_always(fake, SCOUT_OP_RETRIEVE, FAKE_DROP, 0);
	ck_assert_int_eq(scout_worker_retrieve(worker, &r, &job), 0);
	lose(SCOUT_OP_RETRIEVE);
	ck_assert(fake_wait(fake, SCOUT_OP_RETRIEVE_DONE, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RETRIEVE_DONE), fake_last_corr(fake, SCOUT_OP_RETRIEVE));
}
END_TEST

START_TEST(store_whose_reply_was_lost_is_given_up_by_its_correlation_id)
{
	int64_t ids[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	uint8_t hash[32] = {1};
	struct scout_store s = {.hashes = hash,
				.hash_len = 32,
				.n = 1,
				.blocks = &(struct scout_blocks){.ids = ids, .n = 16},
				.n_groups = 1};
	uint64_t job;

	fake_always(fake, SCOUT_OP_STORE, FAKE_DROP, 0);
	ck_assert_int_eq(scout_worker_store(worker, &s, &job), 0);
	lose(SCOUT_OP_STORE);
	ck_assert(fake_wait(fake, SCOUT_OP_STORE_DONE, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_STORE_DONE), fake_last_corr(fake, SCOUT_OP_STORE));
}
END_TEST

START_TEST(another_server_start_has_nothing_to_be_given_back)
{
	int64_t ids[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	struct scout_retrieve r = {
		.ticket = 5, .to_token = 256, .blocks = &(struct scout_blocks){.ids = ids, .n = 16}, .n_groups = 1};
	uint64_t job;

	fake_always(fake, SCOUT_OP_RETRIEVE, FAKE_DROP, 0);
	ck_assert_int_eq(scout_worker_retrieve(worker, &r, &job), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RETRIEVE, 1));
	fake_unbind(fake);
	ck_assert_int_eq(wait_done().status, SCOUT_ERR_UNREACHABLE);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_REGISTER, 2)); /* by itself */
	ck_assert_int_eq(scout_worker_retrieve(worker, &r, &job), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RETRIEVE, 2));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RETRIEVE_DONE), 0);
}
END_TEST

/* The server has taken all of them, and answers none: the first waits for transfer_timeout_ms. */
START_TEST(a_job_ends_at_its_own_time_whatever_waits_before_it)
{
	static const uint32_t timeouts_ms[3] = {0, 1400, 50}; /* far from each other: a thread may stand still */
	int64_t ids[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	uint8_t hash[32] = {1};
	struct scout_retrieve r = {
		.ticket = 5, .to_token = 256, .blocks = &(struct scout_blocks){.ids = ids, .n = 16}, .n_groups = 1};
	struct scout_store s = {.hashes = hash,
				.hash_len = 32,
				.n = 1,
				.blocks = &(struct scout_blocks){.ids = ids, .n = 16},
				.n_groups = 1,
				.timeout_ms = 700};
	struct scout_progress progress = {0};
	uint64_t jobs[3], ends[3], store, begin_us;
	struct scout_done done;

	/* Once more if the server's thread stood still for so long that it was taken for gone. */
	for (int tries = 0;; tries++) {
		ck_assert_int_lt(tries, 5);
		fake_always(fake, SCOUT_OP_RETRIEVE, FAKE_DROP, 0);
		fake_always(fake, SCOUT_OP_STORE, FAKE_DROP, 0);
		begin_us = scout__now_us();
		for (int i = 0; i < 3; i++) {
			r.timeout_ms = timeouts_ms[i];
			ck_assert_int_eq(scout_worker_retrieve(worker, &r, &jobs[i]), 0);
		}
		ck_assert_int_eq(scout_worker_store(worker, &s, &store), 0);
		for (int i = 0; i < 3; i++) {
			done = wait_done();
			ends[i] = done.job;
			if (done.status == SCOUT_ERR_UNREACHABLE)
				break;
			ck_assert_int_eq(done.status, SCOUT_ERR_TIMEOUT);
			ck_assert_uint_eq(done.n_missing, done.job == store ? 0 : 16);
		}
		if (done.status == SCOUT_ERR_TIMEOUT)
			break;
		down();
		up();
	}
	ck_assert_uint_eq(ends[0], jobs[2]);
	ck_assert_uint_eq(ends[1], store);
	ck_assert_uint_eq(ends[2], jobs[1]);
	ck_assert_uint_ge(scout__now_us() - begin_us, 1400000);
	ck_assert_int_eq(scout_worker_progress(worker, jobs[0], &progress), 0);
	ck_assert_int_eq(scout_worker_retrieve_sized(worker, &r, sizeof(r) - 8, sizeof(struct scout_blocks), &jobs[0]),
			 SCOUT_ERR_UNSUPPORTED);
}
END_TEST
