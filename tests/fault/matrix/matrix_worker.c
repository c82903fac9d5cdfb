/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

/* The worker is killed or stopped at each step; the scheduler must not notice, and another worker goes on. */

static void
up(struct matrix *m)
{
	matrix_patient(m);
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
}

/* A new worker in the place of the dead one; the stored chunks are as good as before. */
static void
replace_and_end(struct matrix *m)
{
	struct fault_done done;

	matrix_ask(m, 3);
	matrix_answers(m);
	m->worker = fault_worker(&m->real);
	matrix_works(m, true);
	done = fault_retrieve(m->worker, 0, m->requests[m->n_requests - 1].hit.ticket, 0, MATRIX_CHUNKS * FAULT_BPC);
	fault_check_all(m->worker, 0, &done, MATRIX_PROMPT, 0, MATRIX_CHUNKS * FAULT_BPC);
	matrix_end(m);
}

/* A session that hit; its ticket. */
static uint64_t
hit(struct matrix *m)
{
	matrix_ask(m, 1);
	matrix_answers(m);
	matrix_all_hit(m, m->n_requests - 1);
	return m->requests[m->n_requests - 1].hit.ticket;
}

static void
begin_retrieve(struct matrix *m)
{
	uint64_t ticket = hit(m), job;

	(void)fault_ask(m->worker, "gate shut");
	job = fault_retrieve_begin(m->worker, 0, ticket, 0, MATRIX_CHUNKS * FAULT_BPC);
	fault_enqueued(m->worker, 0, job);
}

static void
begin_store(struct matrix *m)
{
	uint64_t job;

	(void)fault_ask(m->worker, "gate shut");
	job = fault_store_begin(m->worker, 0, 2, 2, MATRIX_CHUNKS, 0);
	fault_enqueued(m->worker, 0, job);
}

static void
killed_idle(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	fault_kill(m->worker);
	replace_and_end(m);
}

static void
killed_before_register(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *late;

	(void)row;
	up(m);
	(void)fault_ask(m->worker, "worker_close 0");
	matrix_stop(m->real.server);
	late = fault_actor(&m->real);
	fault_send(late, "worker 0");
	matrix_ask(m, 2);
	matrix_steps_ms(m, 50);
	fault_kill(late);
	matrix_cont(m->real.server);
	matrix_answers(m);
	replace_and_end(m);
}

static void
killed_in_retrieve(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	begin_retrieve(m);
	fault_kill(m->worker);
	replace_and_end(m);
}

static void
killed_after_retrieve(struct matrix *m, const struct matrix_row *row)
{
	struct fault_done done;

	(void)row;
	up(m);
	done = fault_retrieve(m->worker, 0, hit(m), 0, MATRIX_CHUNKS * FAULT_BPC);
	assert_ok(done.status);
	fault_kill(m->worker);
	replace_and_end(m);
}

/* RETRIEVE is on its way to a server that cannot hear it yet. */
static void
killed_before_grant(struct matrix *m, const struct matrix_row *row)
{
	uint64_t ticket;

	up(m);
	ticket = row->how ? 0 : hit(m);
	matrix_stop(m->real.server);
	if (row->how)
		(void)fault_store_begin(m->worker, 0, 2, 2, MATRIX_CHUNKS, 0);
	else
		(void)fault_retrieve_begin(m->worker, 0, ticket, 0, MATRIX_CHUNKS * FAULT_BPC);
	matrix_steps_ms(m, 20);
	fault_kill(m->worker);
	matrix_cont(m->real.server);
	replace_and_end(m);
}

static void
killed_in_store(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	begin_store(m);
	fault_kill(m->worker);
	replace_and_end(m);
}

static void
killed_after_store(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	assert_ok(fault_store(m->worker, 0, 2, MATRIX_CHUNKS).status);
	fault_kill(m->worker);
	replace_and_end(m);
}

/* A stopped worker keeps what it holds. */
static void
stopped(struct matrix *m, const struct matrix_row *row)
{
	struct fault_done done;

	up(m);
	if (row->how)
		begin_store(m);
	else
		begin_retrieve(m);
	fault_freeze(m->worker);
	matrix_finish(m);
	matrix_ask(m, 3);
	matrix_steps_ms(m, row->arg);
	matrix_answers(m);
	matrix_all_hit(m, m->n_requests - 3);
	ck_assert_uint_gt(fault_status(&m->real, "holds"), 0);
	fault_thaw(m->worker);
	(void)fault_ask(m->worker, "gate open");
	done = fault_wait_done(m->worker, 0);
	ck_assert_msg(done.status == 0, "%s", scout_err_name(done.status));
	matrix_works(m, true);
	matrix_end(m);
}

static void
closed_in_retrieve(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	begin_retrieve(m);
	matrix_finish(m);
	(void)fault_ask(m->worker, "gate open");
	(void)fault_ask(m->worker, "worker_close 0");
	(void)fault_ask(m->worker, "worker 0");
	matrix_works(m, true);
	matrix_end(m);
}

/* The copy of one item fails in the middle of a retrieve: the blocks are named, the rest is right. */
static void
copy_fails(struct matrix *m, const struct matrix_row *row)
{
	struct fault_done done;
	uint64_t ticket;

	(void)row;
	up(m);
	ticket = hit(m);
	(void)fault_ask(m->worker, "fail 3");
	done = fault_retrieve(m->worker, 0, ticket, 0, MATRIX_CHUNKS * FAULT_BPC);
	ck_assert_uint_gt(done.n_missing, 0);
	(void)fault_ask(m->worker, "gate open"); /* and no failure any more */
	matrix_works(m, true);
	matrix_end(m);
}

/* Finished, and finished again, while the worker copies: its hold is nobody else's to end. */
static void
finished_twice(struct matrix *m, const struct matrix_row *row)
{
	struct fault_done done;

	(void)row;
	up(m);
	begin_retrieve(m);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(scout_finish(m->client, m->requests[0].id), 0);
	m->requests[0].finished = true;
	matrix_ask(m, 2);
	matrix_answers(m);
	ck_assert_uint_gt(fault_status(&m->real, "holds"), 0);
	(void)fault_ask(m->worker, "gate open");
	done = fault_wait_done(m->worker, 0);
	fault_check_all(m->worker, 0, &done, MATRIX_PROMPT, 0, MATRIX_CHUNKS * FAULT_BPC);
	matrix_works(m, true);
	matrix_end(m);
}

const struct matrix_row matrix_worker_rows[] = {
	{.name = "worker_killed_idle", .run = killed_idle},
	{.name = "worker_killed_before_register", .run = killed_before_register},
	{.name = "worker_killed_after_retrieve_was_sent", .run = killed_before_grant, .how = 0},
	{.name = "worker_killed_between_retrieve_and_done", .run = killed_in_retrieve},
	{.name = "worker_killed_after_retrieve", .run = killed_after_retrieve},
	{.name = "worker_killed_after_store_was_sent", .run = killed_before_grant, .how = 1},
	{.name = "worker_killed_during_store", .run = killed_in_store},
	{.name = "worker_killed_after_store", .run = killed_after_store},
	{.name = "worker_stopped_1s_in_retrieve", .run = stopped, .how = 0, .arg = 1000},
	{.name = "worker_stopped_1s_in_store", .run = stopped, .how = 1, .arg = 1000},
	{.name = "worker_closed_in_retrieve", .run = closed_in_retrieve},
	{.name = "worker_copy_fails_in_part", .run = copy_fails},
	{.name = "request_finished_twice_in_retrieve", .run = finished_twice},
	{.name = NULL},
};
