/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_submit_rig.h"

struct scout__l2 *l2;

struct script *script = &scripts[0];

struct scout__l2_op ops[N];

struct scout__l2_key keys[N];

struct scout__l2_digest digests[N];

uint8_t found[N];

uint8_t data[16];

unsigned ended[N];

unsigned n_late[N];

struct scout__l2_op *order[4 * N];

unsigned n_ended;

char err[512];

void
on_done(void *user, struct scout__l2_op *op)
{
	ck_assert_ptr_eq(user, &ended[op - ops]);
	ended[op - ops]++;
	order[n_ended++ % (4 * N)] = op;
}

static void
on_late(void *user, struct scout__l2_op *op)
{
	ck_assert_ptr_eq(user, &ended[op - ops]);
	ck_assert_uint_eq(ended[op - ops], 0);
	n_late[op - ops]++;
}

void
open_front(const char *a, const char *b)
{
	const char *const urls[] = {a, b};

	scout__enter_loop();
	n_scripts = 0;
	n_ended = 0;
	log_text[0] = '\0';
	ck_assert_int_eq(
		scout__l2_new(script_adapters, urls, b ? 2 : 1, 1000, MAX_OPS, &test_log, &l2, err, sizeof(err)), 0);
}

void
setup(void)
{
	open_front("script:///a", NULL);
}

void
teardown(void)
{
	if (!l2)
		return;
	scout__enter_loop();
	ck_assert(scout__l2_stop(l2, 1000));
	scout__l2_free(l2);
	l2 = NULL;
	ck_assert(scripts[0].is_closed);
}

void
moves(struct scout__l2_op *op, uint64_t now_us)
{
	atomic_store(&op->moved_us, now_us ? now_us : 1);
}

void
submit(unsigned i, enum scout__l2_what what, uint64_t now_us)
{
	scout__enter_loop();
	keys[i].digest = digests[i] = (struct scout__l2_digest){i + 1, i + 2};
	keys[i].len = 1;
	ended[i] = n_late[i] = 0;
	ops[i] = (struct scout__l2_op){
		.what = (uint8_t)what,
		.timeout_us = what == SCOUT__L2_STORE ? scout__l2_store_of(l2, 0)->write_timeout_us : S,
		.n = what <= SCOUT__L2_UNPIN ? 1 : 0,
		.digests = &digests[i],
		.found = &found[i],
		.key = &keys[i],
		.data = data,
		.bytes = 7,
		.done = on_done,
		.late = on_late,
		.user = &ended[i],
	};
	scout__l2_submit(l2, 0, &ops[i], now_us);
	ck_assert_uint_eq(ended[i], 0);
	moves(&ops[i], now_us);
}

void
reap(uint64_t now_us)
{
	scout__enter_loop();
	ck_assert(!scout__l2_reap(l2, 1000, now_us));
}

enum scout__l2_result
one(enum scout__l2_what what, enum scout__l2_result result, int detail, uint64_t now_us)
{
	submit(0, what, now_us);
	if (script->n)
		script_end(script, script->n - 1, result, detail);
	reap(now_us);
	ck_assert_uint_eq(ended[0], 1);
	return (enum scout__l2_result)ops[0].result;
}

const struct scout__l2_counters *
counters(void)
{
	scout__enter_loop();
	return &scout__l2_store_of(l2, 0)->counters;
}

enum scout__l2_breaker
breaker(enum scout__l2_side side)
{
	scout__enter_loop();
	return scout__l2_breaker_of(l2, 0, side);
}

void
tick(uint64_t now_us)
{
	scout__enter_loop();
	scout__l2_tick(l2, now_us);
}

uint64_t
next_us(void)
{
	scout__enter_loop();
	return scout__l2_next_us(l2);
}

struct scout__l2_health
health(uint64_t now_us)
{
	struct scout__l2_health ret;

	scout__enter_loop();
	scout__l2_health_of(l2, 0, now_us, &ret);
	return ret;
}

void
open_breaker(enum scout__l2_what what, uint64_t now_us)
{
	for (unsigned i = 0; i < SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(what, SCOUT__L2_ERROR, 5, now_us), SCOUT__L2_ERROR);
}
