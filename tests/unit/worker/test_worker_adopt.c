/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a worker tells the server of new weights, or of a clear, operation by operation: what it says in which order, and what it keeps to itself
 * until the server has said yes.
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
up_with(uint64_t weights)
{
	struct scout_plane plane = {.base = pages, .stride = 256, .block_bytes = 256};
	struct scout_table layout = {
		.block_tokens = 16, .n_planes = 1, .planes = &plane, .n_blocks = 16, .null_block = -1};
	struct scout_worker_config cfg;
	char err[256] = "";

	fake_set_weights(fake, weights);
	scout_worker_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.weights_version = weights;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
up(void)
{
	fake = fake_start();
	fake_always(fake, SCOUT_OP_STORE, FAKE_DROP, 0);
	worker = NULL;
}

static void
down(void)
{
	scout_worker_free(worker);
	fake_stop(fake);
}

/* The server never answers it. */
static void
store(void)
{
	int64_t ids[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	uint8_t hash[32] = {1};
	struct scout_store s = {.hashes = hash,
				.hash_len = 32,
				.n = 1,
				.blocks = &(struct scout_blocks){.ids = ids, .n = 16},
				.n_groups = 1};
	uint64_t job;

	ck_assert_int_eq(scout_worker_store(worker, &s, &job), 0);
}

static int
wait_status(void)
{
	struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};
	struct scout_done done;

	wait_until(scout_worker_poll(worker, &done, 1) != 0)
		(void)poll(&pfd, 1, 1000);
	return done.status;
}

CHECKED_FIXTURE(up, down);

START_TEST(the_version_that_it_had_is_compared_and_changed)
{
	up_with(6);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), 1);
	ck_assert_uint_eq(fake_said_weights(fake), 6);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	ck_assert_uint_eq(fake_said_weights(fake), 0);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 3));
	ck_assert_uint_eq(fake_said_weights(fake), 6);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 4));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 1);
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RESET), 7);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_RESET), fake_last_order(fake, SCOUT_OP_HELLO));
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	/* On the same connection, as the same registered worker. */
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), 4);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_REGISTER), 1);
}
END_TEST

START_TEST(a_namespace_without_a_version_is_reset_before_ours_is_said)
{
	up_with(0);
	fake_script(fake, SCOUT_OP_RESET, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RESET), 7);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), 2);
	ck_assert_uint_eq(fake_said_weights(fake), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_HELLO), fake_last_order(fake, SCOUT_OP_STORE));
}
END_TEST

START_TEST(a_version_that_it_never_had_is_left_alone)
{
	up_with(6);
	fake_set_weights(fake, 9);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	store();
	ck_assert_int_eq(wait_status(), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fake_said_weights(fake), 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 0);
	/* Ours: somebody else has reset it. */
	fake_set_weights(fake, 7);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 0);
	/* Back to one that it had before: then the later one is what it left. */
	ck_assert_int_eq(scout_worker_reset(worker, 6), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RESET), 6);
}
END_TEST

START_TEST(no_job_asks_before_the_server_has_said_yes)
{
	up_with(6);
	fake_set_weights(fake, 9);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	store();
	/* The answer to a question that was sent before the job came is none for it: it makes us ask once more. */
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 3));
	fake_set_weights(fake, 7);
	fake_release(fake); /* it still says 9 */
	ck_assert_int_eq(wait_status(), SCOUT_ERR_WEIGHTS);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 4));
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 5));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), 5);
}
END_TEST

/* The steps to a new version, with what is said last in each. */
static const struct {
	unsigned opcode, hellos;
	uint64_t said;
} steps[] = {{SCOUT_OP_HELLO, 2, 0}, {SCOUT_OP_HELLO, 3, 6}, {SCOUT_OP_RESET, 3, 6}, {SCOUT_OP_HELLO, 4, 7}};

/* Wherever the connection breaks, the next one begins without a version, and all is said again. */
START_LOOP_TEST(a_reset_that_was_lost_is_said_again, 0, 4)
{
	unsigned opcode = steps[_i].opcode;

	up_with(6);
	for (int i = 0; i < _i; i++)
		if (steps[i].opcode == opcode)
			fake_script(fake, opcode, FAKE_ANSWER, 0);
	fake_script(fake, opcode, FAKE_DROP, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, opcode, opcode == SCOUT_OP_HELLO ? steps[_i].hellos : 1));
	ck_assert_uint_eq(fake_said_weights(fake), steps[_i].said);
	store();
	fake_unbind(fake);
	ck_assert_int_eq(wait_status(), SCOUT_ERR_UNREACHABLE);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 0);
	/* The first of the next connection. */
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	fake_bind(fake, false);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, steps[_i].hellos + 1));
	ck_assert_uint_eq(fake_said_weights(fake), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, steps[_i].hellos + 4));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	/* From now on the first HELLO says it, also to another server. */
	fake_always(fake, SCOUT_OP_HELLO, FAKE_DROP, 0);
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, steps[_i].hellos + 5));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
}
END_TEST

START_TEST(an_answer_about_a_version_that_was_overtaken_is_no_answer)
{
	up_with(6);
	fake_set_weights(fake, 7);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_ANSWER, 0);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 3));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	ck_assert_int_eq(scout_worker_reset(worker, 8), 0);
	store();
	fake_set_weights(fake, 9);
	fake_release(fake); /* yes to 7 */
	ck_assert_int_eq(wait_status(), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 0);
	fake_set_weights(fake, 8);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_said_weights(fake), 8);
}
END_TEST

START_TEST(a_refusal_is_the_error_of_the_jobs_that_waited)
{
	up_with(6);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	store();
	ck_assert_int_eq(wait_status(), SCOUT_ERR_LIMIT);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 0);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_ANSWER, 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
}
END_TEST

START_TEST(a_server_that_went_on_meanwhile_is_asked_again)
{
	up_with(6);
	fake_script(fake, SCOUT_OP_RESET, FAKE_REFUSE, SCOUT_WIRE_WEIGHTS);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 2);
	/* One that says one thing and does another is not asked for ever. */
	fake_always(fake, SCOUT_OP_RESET, FAKE_REFUSE, SCOUT_WIRE_WEIGHTS);
	ck_assert_int_eq(scout_worker_reset(worker, 8), 0);
	fake_set_weights(fake, 7);
	store();
	for (int i = 0; i < 2; i++) /* the first one, which was of 7, is over too */
		ck_assert_int_eq(wait_status(), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 1);
	ck_assert_uint_le(fake_count(fake, SCOUT_OP_RESET), 2 + 2 * 4);
}
END_TEST

START_TEST(an_answer_that_makes_no_sense_ends_the_connection)
{
	up_with(6);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_SHORT_BODY, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	store();
	fake_set_weights(fake, 7);
	fake_release(fake);                            /* of 6, which is then compared: nonsense */
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 6)); /* a new connection: none, none, ours */
	ck_assert_uint_eq(fake_said_weights(fake), 7);
	(void)wait_status();
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
}
END_TEST

START_TEST(a_worker_that_was_refused_for_its_weights_comes_back_without_being_made_anew)
{
	up_with(6);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_WEIGHTS);
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	/* The refusal may still be on its way; from then on jobs are told why. */
	do
		store();
	while (wait_status() != SCOUT_ERR_WEIGHTS);
	fake_set_weights(fake, 7);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_ANSWER, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	store(); /* waits for the connection */
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_said_weights(fake), 7);
}
END_TEST

/* Nothing asks between the call and the answer; what the answer said, later HELLOs repeat. */
START_TEST(a_clear_is_answered_before_anything_is_asked)
{
	uint64_t generation = 0;

	up_with(0);
	ck_assert_uint_eq(fake_said_joined(fake), 0); /* it was new */
	fake_script(fake, SCOUT_OP_CLEAR, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
	store();
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_STORE), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 1);
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	ck_assert_uint_eq(fake_said_generation(fake), generation);
	ck_assert_uint_gt(fake_said_joined(fake), 1000); /* since the clear's stamp, which is the fake server's */
}
END_TEST

/* Lost on the way, to the same server start or to another: said again, and only the latest. */
START_LOOP_TEST(a_clear_that_was_lost_is_said_again, 0, 2)
{
	uint64_t generation = 0;

	up_with(0);
	fake_script(fake, SCOUT_OP_CLEAR, FAKE_DROP, 0);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	fake_unbind(fake);
	fake_bind(fake, _i != 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 2));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
	ck_assert_uint_eq(fake_said_generation(fake), 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 2);
}
END_TEST

/* By a server that is stopping, or has no room: it has not carried it out. */
START_LOOP_TEST(a_clear_that_is_put_off_is_said_again_before_anything_is_asked, 0, 2)
{
	uint64_t generation = 0;

	up_with(0);
	fake_script(fake, SCOUT_OP_CLEAR, FAKE_REFUSE, _i == 0 ? SCOUT_WIRE_SHUTDOWN : SCOUT_WIRE_LIMIT);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 2));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 2);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_CLEAR), fake_last_order(fake, SCOUT_OP_STORE));
}
END_TEST

/* The server was restarted and knows nothing of it; our client's CLEAR of the same name comes before our HELLO. */
START_TEST(a_clear_that_our_client_repeated_before_us_is_said_again)
{
	uint64_t generation = 0;

	up_with(0);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 1);
	fake_unbind(fake);
	fake_clear_again(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 2));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 2));
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_CLEAR), fake_last_order(fake, SCOUT_OP_STORE));
}
END_TEST

/* The server has come back to our clear, and we were not told, or it is the next one: a job that is refused makes us ask and say it. */
START_LOOP_TEST(a_worker_that_is_out_asks_whether_its_own_clear_is_the_last_one, 0, 2)
{
	uint64_t generation = 0;

	up_with(0);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	if (_i)
		fake_clear_again(fake);
	fake_script(fake, SCOUT_OP_STORE, FAKE_REFUSE, SCOUT_WIRE_CLEARED);
	store();
	ck_assert_int_eq(wait_status(), SCOUT_ERR_CLEARED);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1 + (unsigned)_i));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
	store();
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 3));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 1 + (unsigned)_i);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), 2);
}
END_TEST

/* New weights and a clear at once: the version first, for the server takes no CLEAR from a worker of another one. */
START_TEST(a_clear_waits_for_the_version_of_the_weights)
{
	uint64_t generation = 0;

	up_with(6);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_worker_reset(worker, 7), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 2));
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	store();
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 0);
	fake_release(fake);
	ck_assert(fake_wait(fake, SCOUT_OP_STORE, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 1);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_RESET), fake_last_order(fake, SCOUT_OP_CLEAR));
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_CLEAR), fake_last_order(fake, SCOUT_OP_STORE));
}
END_TEST
