/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"
#include "worker_pages.h"

#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>

/* kvscoutd is killed, stopped and restarted at each step of the protocol. */

static void
up(struct matrix *m)
{
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
}

static void
restart_and_end(struct matrix *m)
{
	fault_server_start(&m->real);
	matrix_works(m, false);
	matrix_refill(m);
	matrix_end(m);
}

static void
never_there(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	m->connect_timeout_ms = 150;
	matrix_real(m);
	fault_server_kill(&m->real);
	matrix_client(m);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	restart_and_end(m);
}

/* It accepted the connection and said nothing yet. */
static void
killed_before_hello(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_real(m);
	matrix_stop(m->real.server);
	matrix_client(m);
	matrix_ask(m, 3);
	matrix_steps_ms(m, 50);
	fault_server_kill(&m->real);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	restart_and_end(m);
}

static void
killed_after_hello(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	restart_and_end(m);
}

static void
killed_after_lookup(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_stop(m->real.server);
	matrix_ask(m, 3);
	matrix_steps_ms(m, 20);
	fault_server_kill(&m->real);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	restart_and_end(m);
}

/* Keys that all are there. Their states, once there is an answer. */
static struct scout_key_answer
answer_to_keys(struct matrix *m, const char *id, uint8_t *ret_states)
{
	uint8_t *hashes = rig_hashes(MATRIX_PROMPT, MATRIX_CHUNKS);
	const struct scout_key_query q = {.id = id, .hashes = hashes, .hash_len = RIG_HASH, .n = MATRIX_CHUNKS};
	struct scout_key_answer answer;
	int rc;

	while ((rc = scout_lookup_keys(m->client, &q, ret_states, &answer)) == SCOUT_NOT_YET)
		(void)scout_step_wait(m->client, 1000000);
	ck_assert_int_eq(rc, 0);
	free(hashes);
	return answer;
}

/* Between a question for keys and its answer: each key is to be retried, and none is called a hit or a miss. */
static void
killed_after_keys(struct matrix *m, const struct matrix_row *row)
{
	uint8_t *hashes = rig_hashes(MATRIX_PROMPT, MATRIX_CHUNKS), states[MATRIX_CHUNKS];
	const struct scout_key_query q = {.id = "k2", .hashes = hashes, .hash_len = RIG_HASH, .n = MATRIX_CHUNKS};
	struct scout_key_answer answer;

	(void)row;
	matrix_patient(m);
	up(m);
	ck_assert_uint_eq(answer_to_keys(m, "k1", states).hits, MATRIX_CHUNKS);
	matrix_stop(m->real.server);
	ck_assert_int_eq(scout_lookup_keys(m->client, &q, states, &answer), SCOUT_NOT_YET);
	matrix_steps_ms(m, 20);
	fault_server_kill(&m->real);
	answer = answer_to_keys(m, "k2", states);
	ck_assert_uint_eq(answer.retries, MATRIX_CHUNKS);
	for (uint32_t i = 0; i < MATRIX_CHUNKS; i++)
		ck_assert_uint_eq(states[i], SCOUT_KEY_RETRY);
	assert_rc(answer.error, SCOUT_ERR_UNREACHABLE); /* and not its timeout ended it */
	ck_assert_int_eq(scout_finish(m->client, "k2"), 0);
	fault_server_start(&m->real);
	matrix_works(m, false);
	/* What was promised before the restart is asked for anew, and is not there. */
	answer = answer_to_keys(m, "k1", states);
	ck_assert_uint_eq(answer.misses, MATRIX_CHUNKS);
	matrix_refill(m);
	ck_assert_int_eq(scout_finish(m->client, "k1"), 0);
	ck_assert_uint_eq(answer_to_keys(m, "k1", states).hits, MATRIX_CHUNKS);
	ck_assert_int_eq(scout_finish(m->client, "k1"), 0);
	free(hashes);
	matrix_end(m);
}

static void
killed_after_answer(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_hits(m, 3);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_all_failed(m, 3);
	restart_and_end(m);
}

static void
killed_after_admit(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_hits(m, 3);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(scout_admit(m->client, m->requests[i].id, 0, FAULT_CHUNK_TOKENS), 0);
	matrix_step(m);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_all_failed(m, 3);
	restart_and_end(m);
}

static void
killed_after_finish(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_stop(m->real.server);
	matrix_finish(m);
	matrix_steps_ms(m, 10);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	restart_and_end(m);
}

/* The worker's copy is in the engine while the server goes. */
static void
killed_in_retrieve(struct matrix *m, const struct matrix_row *row)
{
	uint64_t job;

	(void)row;
	up(m);
	matrix_hits(m, 1);
	(void)fault_ask(m->worker, "gate shut");
	job = fault_retrieve_begin(m->worker, 0, m->requests[0].hit.ticket, 0, MATRIX_CHUNKS * FAULT_BPC);
	fault_enqueued(m->worker, 0, job);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	(void)fault_ask(m->worker, "gate open");
	ck_assert_uint_eq(fault_wait_done(m->worker, 0).job, job);
	restart_and_end(m);
}

static void
killed_in_store(struct matrix *m, const struct matrix_row *row)
{
	uint64_t job;

	(void)row;
	up(m);
	(void)fault_ask(m->worker, "gate shut");
	job = fault_store_begin(m->worker, 0, 2, 2, MATRIX_CHUNKS, 0);
	fault_enqueued(m->worker, 0, job);
	fault_server_kill(&m->real);
	matrix_ask(m, 3);
	matrix_answers(m);
	(void)fault_ask(m->worker, "gate open");
	ck_assert_uint_eq(fault_wait_done(m->worker, 0).job, job);
	restart_and_end(m);
}

static void
killed_twice(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	for (int i = 0; i < 2; i++) {
		fault_server_kill(&m->real);
		matrix_ask(m, 3);
		matrix_steps_ms(m, 20);
		fault_server_start(&m->real);
		matrix_ask(m, 3);
		matrix_steps_ms(m, 20);
	}
	matrix_answers(m);
	matrix_works(m, false);
	matrix_refill(m);
	matrix_end(m);
}

/* No heartbeat is due within the whole row: the epoch tells. */
static void
restarted_fast(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	m->heartbeat_ms = 5000;
	up(m);
	matrix_hits(m, 2);
	fault_server_kill(&m->real);
	fault_server_start(&m->real);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_works(m, false);
	ck_assert_uint_eq(matrix_stats(m).epochs, 1);
	matrix_refill(m);
	matrix_end(m);
}

static void
restarted_slowly(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	fault_server_kill(&m->real);
	for (int i = 0; i < 10; i++) {
		matrix_ask(m, 3);
		matrix_steps_ms(m, 50);
	}
	matrix_answers(m);
	matrix_all_failed(m, 0);
	restart_and_end(m);
}

/* Long enough to be taken for dead, or not; what it was sent meanwhile must not be carried out as if nothing had been. */
static void
stopped(struct matrix *m, const struct matrix_row *row)
{
	uint32_t rest_ms = row->arg;

	up(m);
	matrix_hits(m, 2);
	matrix_stop(m->real.server);
	for (uint32_t i = 0; i < 10; i++, rest_ms -= row->arg / 10) {
		matrix_ask(m, 2);
		matrix_steps_ms(m, row->arg / 10);
	}
	matrix_answers(m);
	matrix_all_failed(m, 2);
	matrix_cont(m->real.server);
	ck_assert_uint_eq(rest_ms, 0);
	matrix_works(m, true);
	matrix_end(m);
}

static void
stopped_before_hello(struct matrix *m, const struct matrix_row *row)
{
	matrix_real(m);
	matrix_stop(m->real.server);
	matrix_client(m);
	matrix_ask(m, 3);
	matrix_steps_ms(m, row->arg);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	matrix_cont(m->real.server);
	matrix_works(m, true);
	matrix_end(m);
}

/* Finished while it could not hear: what was promised is given back when it can. */
static void
stopped_and_finished(struct matrix *m, const struct matrix_row *row)
{
	up(m);
	matrix_hits(m, 3);
	matrix_stop(m->real.server);
	matrix_finish(m);
	matrix_ask(m, 3);
	matrix_steps_ms(m, row->arg);
	matrix_finish(m);
	matrix_cont(m->real.server);
	matrix_works(m, true);
	matrix_end(m);
}

static void
reset_while_down(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_stop(m->real.server);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_finish(m);
	ck_assert_int_eq(scout_reset(m->client, 7), 0);
	ck_assert_int_eq(scout_reset(m->client, 8), 0); /* overtakes it */
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_cont(m->real.server);
	matrix_works(m, false);
	/* It was carried out before the first answer: what was stored belongs to other weights. */
	ck_assert_uint_eq(m->requests[m->n_requests - 1].hit.tokens, 0);
	matrix_end(m);
}

static void
second_instance(struct matrix *m, const struct matrix_row *row)
{
	char path[200], text[512];
	char *argv[] = {(char *)(uintptr_t)fault_kvscoutd(), (char *)(uintptr_t) "--listen", path, NULL};
	int status;

	(void)row;
	matrix_patient(m);
	up(m);
	matrix_ask(m, 2);
	(void)snprintf(path, sizeof(path), "%s", m->real.endpoint);
	status = fault_server_run(argv, text, sizeof(text));
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) != 0, "a second server took the path of the first");
	matrix_answers(m);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* Many heartbeats without a request: still connected, for scheduler and worker. */
static void
idle(struct matrix *m, const struct matrix_row *row)
{
	uint64_t reconnects;

	m->heartbeat_ms = 200;
	up(m);
	reconnects = matrix_stats(m).reconnects;
	matrix_steps_ms(m, row->arg);
	fault_wait(&m->real, "leases", 2);
	ck_assert_uint_le(matrix_stats(m).reconnects, reconnects + 1); /* one stall of the machine is forgiven */
	assert_ok(fault_store(m->worker, 0, 3, 1).status);
	matrix_works(m, true);
	matrix_end(m);
}

/* ---- another scheduler ---- */

static void
other_killed(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *other;
	struct fault_hit hit;

	matrix_patient(m);
	up(m);
	other = fault_scheduler(&m->real);
	hit = fault_lookup(other, "x", MATRIX_PROMPT, MATRIX_CHUNKS);
	ck_assert_uint_eq(hit.chunks, MATRIX_CHUNKS);
	if (row->how == 1)
		(void)fault_ask(other, "admit x 0 %u", FAULT_CHUNK_TOKENS);
	matrix_ask(m, 2);
	matrix_step(m);
	fault_kill(other);
	matrix_answers(m);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

static void
other_killed_while_asking(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *other;

	(void)row;
	up(m);
	other = fault_scheduler(&m->real);
	matrix_stop(m->real.server);
	fault_send(other, "lookup x %u %u %u", MATRIX_PROMPT, MATRIX_CHUNKS, MATRIX_CHUNKS * FAULT_CHUNK_TOKENS + 1);
	matrix_ask(m, 2);
	matrix_steps_ms(m, 50);
	fault_kill(other);
	matrix_cont(m->real.server);
	matrix_answers(m);
	matrix_works(m, true);
	matrix_end(m);
}

static void
other_stopped(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *other;

	matrix_patient(m);
	up(m);
	other = fault_scheduler(&m->real);
	ck_assert_uint_eq(fault_lookup(other, "x", MATRIX_PROMPT, MATRIX_CHUNKS).chunks, MATRIX_CHUNKS);
	fault_freeze(other);
	matrix_ask(m, 3);
	matrix_steps_ms(m, row->arg);
	matrix_answers(m);
	matrix_all_hit(m, 0);
	ck_assert_uint_ge(fault_status(&m->real, "sessions"), 4); /* the stopped one's too */
	fault_thaw(other);
	(void)fault_ask(other, "finish x");
	matrix_works(m, true);
	matrix_end(m);
}

const struct matrix_row matrix_server_rows[] = {
	{.name = "server_was_never_there", .run = never_there},
	{.name = "server_killed_before_hello", .run = killed_before_hello},
	{.name = "server_killed_after_hello", .run = killed_after_hello},
	{.name = "server_killed_after_lookup_was_sent", .run = killed_after_lookup},
	{.name = "server_killed_after_keys_was_sent", .run = killed_after_keys},
	{.name = "server_killed_after_the_answer", .run = killed_after_answer},
	{.name = "server_killed_after_admit", .run = killed_after_admit},
	{.name = "server_killed_after_finish_was_sent", .run = killed_after_finish},
	{.name = "server_killed_between_retrieve_and_done", .run = killed_in_retrieve},
	{.name = "server_killed_during_store", .run = killed_in_store},
	{.name = "server_killed_twice", .run = killed_twice},
	{.name = "server_restarted_faster_than_a_heartbeat", .run = restarted_fast},
	{.name = "server_restarted_slower_than_a_heartbeat", .run = restarted_slowly},
	{.name = "server_stopped_1s", .run = stopped, .arg = 1000},
	{.name = "server_stopped_10s", .run = stopped, .arg = 10000, .is_long = true},
	{.name = "server_stopped_1s_before_hello", .run = stopped_before_hello, .arg = 1000},
	{.name = "server_stopped_while_requests_finish", .run = stopped_and_finished, .arg = 250},
	{.name = "weights_reset_while_the_server_is_stopped", .run = reset_while_down},
	{.name = "second_server_on_the_same_path", .run = second_instance},
	{.name = "idle_for_many_heartbeats", .run = idle, .arg = 2000},
	{.name = "other_scheduler_killed_after_the_answer", .run = other_killed, .how = 0},
	{.name = "other_scheduler_killed_after_admit", .run = other_killed, .how = 1},
	{.name = "other_scheduler_killed_while_it_asks", .run = other_killed_while_asking},
	{.name = "other_scheduler_stopped_1s_keeps_its_promise", .run = other_stopped, .arg = 1000},
	{.name = NULL},
};
