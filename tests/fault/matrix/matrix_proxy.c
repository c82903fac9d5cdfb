/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

/* The connection itself breaks, between the real client and the real server. */

static void
close_row(struct matrix *m)
{
	matrix_answers(m);
	proxy_set(m->proxy, PROXY_PASS);
	matrix_works(m, true);
	matrix_end(m);
}

static void
at_hello(struct matrix *m, const struct matrix_row *row)
{
	matrix_real(m);
	matrix_proxy(m);
	proxy_set(m->proxy, (enum proxy_mode)row->how);
	matrix_client(m);
	matrix_ask(m, 3);
	close_row(m);
}

static void
at_lookup(struct matrix *m, const struct matrix_row *row)
{
	matrix_real(m);
	matrix_proxy(m);
	matrix_client(m);
	matrix_ready(m);
	proxy_set(m->proxy, (enum proxy_mode)row->how);
	matrix_ask(m, 3);
	close_row(m);
}

/* The promise is made, its answer does not pass; then the connection is cut. */
static void
answer_lost(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_patient(m);
	matrix_real(m);
	matrix_proxy(m);
	matrix_client(m);
	matrix_ready(m);
	proxy_set(m->proxy, PROXY_STALL_BACK);
	matrix_ask(m, 3);
	matrix_step(m);
	fault_wait(&m->real, "sessions", 3);
	proxy_set(m->proxy, PROXY_CUT);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	close_row(m);
}

/* Cut while the FINISHes are on their way; the server start is the same one afterwards. */
static void
finish_lost(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_real(m);
	matrix_proxy(m);
	matrix_client(m);
	matrix_ready(m);
	matrix_hits(m, 3);
	proxy_set(m->proxy, PROXY_STALL);
	matrix_finish(m);
	matrix_steps_ms(m, 20);
	proxy_set(m->proxy, PROXY_CUT);
	matrix_ask(m, 1);
	close_row(m);
}

/* After so many bytes of a reply. */
static void
in_the_middle(struct matrix *m, const struct matrix_row *row)
{
	matrix_real(m);
	matrix_proxy(m);
	if (row->opcode == SCOUT_OP_HELLO) {
		proxy_set_after(m->proxy, row->arg, (enum proxy_mode)row->how);
		matrix_client(m);
	} else {
		matrix_client(m);
		matrix_ready(m);
		proxy_set_after(m->proxy, row->arg, (enum proxy_mode)row->how);
	}
	matrix_ask(m, 3);
	close_row(m);
}

/* Cut again and again, while requests come. */
static void
flapping(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_real(m);
	matrix_proxy(m);
	matrix_client(m);
	for (int i = 0; i < 10; i++) {
		matrix_ask(m, 3);
		matrix_steps_ms(m, 15);
		proxy_set(m->proxy, PROXY_CUT);
		matrix_steps_ms(m, 5);
		proxy_set(m->proxy, PROXY_PASS);
	}
	close_row(m);
}

const struct matrix_row matrix_proxy_rows[] = {
	{.name = "connection_cut_at_hello", .run = at_hello, .how = PROXY_CUT, .is_scripted = true},
	{.name = "connection_stalled_at_hello", .run = at_hello, .how = PROXY_STALL, .is_scripted = true},
	{.name = "replies_stalled_at_hello", .run = at_hello, .how = PROXY_STALL_BACK, .is_scripted = true},
	{.name = "connection_slow_at_hello", .run = at_hello, .how = PROXY_SLOW, .is_scripted = true},
	{.name = "connection_half_closed_at_hello", .run = at_hello, .how = PROXY_HALF_CLOSE, .is_scripted = true},
	{.name = "connection_cut_at_lookup", .run = at_lookup, .how = PROXY_CUT, .is_scripted = true},
	{.name = "connection_stalled_at_lookup", .run = at_lookup, .how = PROXY_STALL, .is_scripted = true},
	{.name = "replies_stalled_at_lookup", .run = at_lookup, .how = PROXY_STALL_BACK, .is_scripted = true},
	{.name = "connection_slow_at_lookup", .run = at_lookup, .how = PROXY_SLOW, .is_scripted = true},
	{.name = "connection_half_closed_at_lookup", .run = at_lookup, .how = PROXY_HALF_CLOSE, .is_scripted = true},
	{.name = "connection_cut_with_the_answer_on_its_way", .run = answer_lost, .is_scripted = true},
	{.name = "connection_cut_with_the_finish_on_its_way", .run = finish_lost, .is_scripted = true},
	{.name = "greeting_cut_in_the_middle",
	 .run = in_the_middle,
	 .opcode = SCOUT_OP_HELLO,
	 .arg = 40,
	 .how = PROXY_CUT,
	 .is_scripted = true},
	{.name = "greeting_half_then_silence",
	 .run = in_the_middle,
	 .opcode = SCOUT_OP_HELLO,
	 .arg = 40,
	 .how = PROXY_STALL,
	 .is_scripted = true},
	{.name = "lookup_reply_cut_in_the_middle",
	 .run = in_the_middle,
	 .opcode = SCOUT_OP_LOOKUP,
	 .arg = 60,
	 .how = PROXY_CUT,
	 .is_scripted = true},
	{.name = "lookup_reply_half_then_stall",
	 .run = in_the_middle,
	 .opcode = SCOUT_OP_LOOKUP,
	 .arg = 60,
	 .how = PROXY_STALL,
	 .is_scripted = true},
	{.name = "connection_cut_again_and_again", .run = flapping, .is_scripted = true},
	{.name = NULL},
};
