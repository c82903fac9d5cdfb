/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

/* A peer that breaks the protocol, once, at one operation. */

/*
 * Half a frame, then silence: it ends with the connections, the server start is the same. A HELLO of another server start: what
 * was asked of that one is nobody's to give back.
 */
static void
mend(struct matrix *m, const struct matrix_row *row)
{
	bool other_start = row->how == FAKE_BAD_EPOCH && row->opcode == SCOUT_OP_HELLO;

	if (row->how != FAKE_HALF && !other_start)
		return;
	fake_unbind(m->fake);
	fake_bind(m->fake, other_start);
}

static void
close_row(struct matrix *m, const struct matrix_row *row)
{
	matrix_answers(m);
	mend(m, row);
	matrix_works(m, true);
	matrix_end(m);
}

static void
script(struct matrix *m, const struct matrix_row *row)
{
	fake_script(m->fake, row->opcode, (enum fake_action)row->how, row->arg);
}

static void
at_hello(struct matrix *m, const struct matrix_row *row)
{
	matrix_fake(m);
	script(m, row);
	matrix_client(m);
	matrix_ask(m, 3);
	close_row(m, row);
}

static void
at_lookup(struct matrix *m, const struct matrix_row *row)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
	script(m, row);
	matrix_ask(m, 3);
	close_row(m, row);
}

static void
at_admit(struct matrix *m, const struct matrix_row *row)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
	matrix_hits(m, 2);
	script(m, row);
	/* In part, for of all of it the server need not hear. */
	ck_assert_int_eq(scout_admit(m->client, m->requests[0].id, 0, FAULT_CHUNK_TOKENS), 0);
	ck_assert(fake_wait(m->fake, SCOUT_OP_ADMIT, 1));
	matrix_ask(m, 3);
	close_row(m, row);
}

static void
at_finish(struct matrix *m, const struct matrix_row *row)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
	matrix_hits(m, 2);
	script(m, row);
	scout_step_begin(
		m->client); /* in one frame: what spoils the first reply must not keep back the second request */
	matrix_finish(m);
	scout_step_end(m->client);
	ck_assert(fake_wait(m->fake, SCOUT_OP_FINISH, 2));
	matrix_ask(m, 3);
	close_row(m, row);
}

static void
at_ping(struct matrix *m, const struct matrix_row *row)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
	script(m, row);
	ck_assert(fake_wait(m->fake, SCOUT_OP_PING, 1));
	matrix_ask(m, 3);
	close_row(m, row);
}

#define ROWS(at, op, name)                                                                                             \
	{name "_delayed", at, op, 120, FAKE_DELAY, true, false}, {name "_dropped", at, op, 0, FAKE_DROP, true, false}, \
		{name "_twice", at, op, 0, FAKE_TWICE, true, false},                                                   \
		{name "_reordered", at, op, 0, FAKE_REORDER, true, false},                                             \
		{name "_wrong_epoch", at, op, 0, FAKE_BAD_EPOCH, true, false},                                         \
		{name "_wrong_version", at, op, 0, FAKE_BAD_VERSION, true, false},                                     \
		{name "_wrong_length", at, op, 0, FAKE_BAD_LENGTH, true, false},                                       \
		{name "_short_body", at, op, 0, FAKE_SHORT_BODY, true, false},                                         \
		{name "_refused", at, op, SCOUT_WIRE_LIMIT, FAKE_REFUSE, true, false},                                 \
		{name "_error", at, op, SCOUT_WIRE_LIMIT, FAKE_ERROR, true, false},                                    \
		{name "_error_for_no_request", at, op, SCOUT_WIRE_LIMIT, FAKE_NO_CORR, true, false},                   \
		{name "_garbage", at, op, 0, FAKE_GARBAGE, true, false},                                               \
	{                                                                                                              \
		name "_half_then_silence", at, op, 0, FAKE_HALF, true, false                                           \
	}

const struct matrix_row matrix_scripted_rows[] = {
	ROWS(at_hello, SCOUT_OP_HELLO, "hello_reply"), ROWS(at_lookup, SCOUT_OP_LOOKUP, "lookup_reply"),
	ROWS(at_admit, SCOUT_OP_ADMIT, "admit_reply"), ROWS(at_finish, SCOUT_OP_FINISH, "finish_reply"),
	ROWS(at_ping, SCOUT_OP_PING, "ping_reply"),    {.name = NULL},
};
