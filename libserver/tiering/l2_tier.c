/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fetch.h"
#include "number.h"
#include "option_list.h"
#include "server_config.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * L2 as the loop sees it: one eventfd in its epoll set, a reap of what adapters have ended, deadlines. What is
 * unpinned is gathered over a turn and leaves in one operation for each adapter.
 *
 * Every operation belongs to something that lives until the operation is reaped: a question (l2_lookup.c), a load
 * (l2_load.c), a write (l2_write.c), a batch of unpins or a removal (here). Who started it may be gone by then.
 *
 * Stop: the adapters end before any chunk index goes, for their threads read and write its slots. One that hangs in the
 * kernel cannot be ended: then the pool stays mapped, which leaks it, and the process goes on or exits.
 *
 * Threads: loop, and the starting thread before it.
 */

#define REAP 4u      /* operations between two looks at the clock: one of thousands of keys costs 10 us */
#define REAP_US 100u /* for a turn */
#define DRAIN_US_MAX UINT64_C(20000000) /* for writes, however long one may take: init systems kill after 30 s */
#define STOP_MS 2000u                   /* for the adapters to end what they do */

static_assert(SCOUT__L2_STORES_MAX == SCOUT__L2_MAX_ADAPTERS, "the key l2 takes as many stores as there can be");

static int
open_adapters(struct scout_server *s, struct scout__fetch *t, const struct scout__l2_adapter *const *adapters,
	      char *err, size_t err_len)
{
	uint32_t ops = SCOUT__ASK_OPS + SCOUT__LOAD_OPS + SCOUT__WRITE_OPS + SCOUT__OTHER_OPS;
	const char **urls;
	int rc = scout__list_split(s->cfg.l2, &urls, &t->n);

	if (rc)
		return scout__fail(err, err_len, rc, "l2: out of memory");
	rc = scout__l2_new(adapters, urls, t->n, s->cfg.l2_timeout_ms, ops, &s->log, &t->l2, err, err_len);
	/* More would only wait in l2_submit, where a load that is not needed any more cannot be cancelled. */
	for (uint32_t i = 0; !rc && i < t->n; i++) {
		const struct scout__l2_store *store = scout__l2_store_of(t->l2, i);

		t->load_ops =
			(uint32_t)scout__min(t->load_ops + (uint64_t)store->at_once[SCOUT__L2_READS], SCOUT__LOAD_OPS);
		t->drain_us = scout__max(t->drain_us, scout__min(store->write_timeout_us, DRAIN_US_MAX));
	}
	free(urls);
	return rc;
}

static void
fetch_init(struct scout_server *s, struct scout__fetch *t)
{
	uint64_t quarter = s->cfg.l1_bytes / 4;

	scout__list_init(&t->ask_waiters);
	scout__list_init(&t->records);
	scout__list_init(&t->loads_queued);
	scout__list_init(&t->loads_bare);
	scout__list_init(&t->writes_queued);
	scout__list_init(&t->prompts_queued);
	for (uint32_t i = 0; i <= SCOUT__L2_MAX_ADAPTERS; i++)
		scout__list_init(&t->writes_again[i]);
	for (uint32_t i = 0; i < SCOUT__PROMPTS; i++) {
		scout__list_init(&t->prompts[i].node);
		scout__list_init(&t->prompts[i].writes);
		scout__list_init(&t->prompts[i].later);
	}
	t->write_sweep.step = scout__write_sweep_step;
	t->timeout_us = s->cfg.l2_timeout_ms * UINT64_C(1000);
	t->lookup_timeout_us = s->cfg.l2_lookup_timeout_ms * UINT64_C(1000);
	t->bad_us = s->cfg.bad_key_ms * UINT64_C(1000);
	t->temporary = s->cfg.l2_objects == SCOUT_L2_TEMPORARY;
	t->load_at_lookup = s->cfg.prefetch != SCOUT_PREFETCH_ON_RETRIEVE;
	t->load_before_answer = s->cfg.prefetch == SCOUT_PREFETCH_BEFORE_ANSWER;
	t->max_write_bytes = s->cfg.l2_queue_bytes < quarter ? s->cfg.l2_queue_bytes : quarter;
	t->ready = (struct scout__watch){SCOUT__WATCH_L2, -1, s};
}

int
scout__fetch_start(struct scout_server *s, const struct scout__l2_adapter *const *adapters, char *err, size_t err_len)
{
	struct scout__fetch *t;
	int rc;

	if (!s->cfg.l2 || !*s->cfg.l2)
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return scout__fail_no_memory(err, err_len);
	fetch_init(s, t);
	s->fetch = t;
	t->bad = calloc(SCOUT__BAD_KEYS, sizeof(*t->bad));
	if (!t->bad || scout__map_init(&t->bad_map, SCOUT__BAD_KEYS) != 0)
		return scout__fail_no_memory(err, err_len);
	rc = open_adapters(s, t, adapters, err, err_len);
	if (rc)
		return rc;
	t->ready.fd = scout__l2_fd(t->l2);
	if (scout__watch_add(s, &t->ready) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll_ctl failed");
	s->state->l1.pool.map_slots = true;
	s->state->l1.let_go = scout__expected_let_go;
	return 0;
}

/* ---- unpinning ---- */

SCOUT_ON_LOOP static void
simple_done(void *user, struct scout__l2_op *op)
{
	(void)user;
	free(op->digests);
	free(op);
}

SCOUT_ON_LOOP static void
flush_one(struct scout_server *s, uint32_t adapter)
{
	struct scout__fetch *t = s->fetch;
	struct scout__l2_op *op = calloc(1, sizeof(*op));

	if (!op) {
		/* They stay pinned: the store keeps a few objects longer than it should. */
		s->count.out_of_memory++;
		t->unpins[adapter].n = 0;
		return;
	}
	op->what = SCOUT__L2_UNPIN;
	op->digests = t->unpins[adapter].digests;
	op->n = t->unpins[adapter].n;
	op->done = simple_done;
	t->unpins[adapter].digests = NULL;
	t->unpins[adapter].n = 0;
	scout__l2_submit(t->l2, adapter, op, s->now_us);
}

void
scout__fetch_flush(struct scout_server *s)
{
	for (uint32_t i = 0; s->fetch && i < s->fetch->n; i++)
		if (s->fetch->unpins[i].n)
			flush_one(s, i);
}

SCOUT_ON_LOOP static void
unpin_one(struct scout_server *s, uint32_t adapter, struct scout__l2_digest digest)
{
	struct scout__fetch *t = s->fetch;
	struct scout__l2_digest **digests = &t->unpins[adapter].digests;
	uint32_t n = t->unpins[adapter].n;

	/* Grows by doubling: at 0, 16, 32, 64 ... */
	if (!*digests || (n >= 16 && (n & (n - 1)) == 0)) {
		void *p = realloc(*digests, (n < 16 ? 16 : 2 * (size_t)n) * sizeof(**digests));

		if (!p) {
			s->count.out_of_memory++;
			return;
		}
		*digests = p;
	}
	(*digests)[n] = digest;
	t->unpins[adapter].n = n + 1;
	if (n + 1 == SCOUT__L2_MAX_KEYS)
		flush_one(s, adapter);
}

void
scout__fetch_unpin(struct scout_server *s, struct scout__l2_digest digest, uint8_t adapters)
{
	/* Stopped adapters have forgotten their pins. */
	for (uint32_t i = 0; !s->fetch->stopping && i < s->fetch->n; i++)
		if (adapters & 1u << i)
			unpin_one(s, i, digest);
}

/* ---- removing ---- */

struct removal {
	struct scout__l2_op op;
	struct scout__l2_key key;
};

SCOUT_ON_LOOP static void
removal_done(void *user, struct scout__l2_op *op)
{
	(void)op; /* l2_submit has counted it; one that stays is a bad key for a while and is found out again */
	free(user);
}

void
scout__fetch_remove(struct scout_server *s, uint32_t adapter, const struct scout__l2_key *key)
{
	struct removal *r = calloc(1, sizeof(*r));

	if (!r) {
		s->count.out_of_memory++;
		return;
	}
	r->key = *key;
	r->op.what = SCOUT__L2_REMOVE;
	r->op.key = &r->key;
	r->op.timeout_us = scout__l2_store_of(s->fetch->l2, adapter)->write_timeout_us;
	r->op.done = removal_done;
	r->op.user = r;
	scout__l2_submit(s->fetch->l2, adapter, &r->op, s->now_us);
}

/* ---- the loop ---- */

void
scout__fetch_turn(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;
	uint64_t before_us, end_us;
	bool more;

	if (!t)
		return;
	scout__l2_tick(t->l2, s->now_us);
	end_us = s->now_us + REAP_US;
	/* What is left keeps the eventfd readable. */
	do {
		before_us = s->now_us;
		more = scout__l2_reap(t->l2, REAP, s->now_us);
		scout__note_step(s, before_us);
	} while (more && s->now_us < end_us);
	scout__records_tick(s);
	if (t->n_writes_again)
		scout__writes_go_on(s);
	/* Some may be late now, or the last store switched off. */
	scout__loads_start(s);
}

uint64_t
scout__fetch_next_us(const struct scout_server *s)
{
	uint64_t l2_us, records_us, writes_us;

	if (!s->fetch)
		return UINT64_MAX;
	if (scout__loads_can_start(s))
		return s->now_us;
	l2_us = scout__l2_next_us(s->fetch->l2);
	records_us = scout__records_next_us(s);
	writes_us = scout__writes_next_us(s);
	if (records_us < l2_us)
		l2_us = records_us;
	return writes_us < l2_us ? writes_us : l2_us;
}

bool
scout__fetch_is_idle(const struct scout_server *s)
{
	const struct scout__fetch *t = s->fetch;

	/* What a store that is off is owed may take longer than a stop. */
	return !t || (t->n_writes_queued + t->n_writes_later + t->n_writes_running == 0 &&
		      scout__writes_next_us(s) > s->drain_end_us + t->drain_us);
}

bool
scout__fetch_stop(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;
	uint32_t dropped;

	if (!t)
		return true;
	dropped = scout__writes_drop(s, NULL);
	if (dropped || t->n_writes_running)
		scout__log(&s->log, SCOUT_LOG_WARN,
			   "stopping: %u shards were not written to L2, and %u are being written", (unsigned)dropped,
			   (unsigned)t->n_writes_running);
	t->stopping = true;
	while (!scout__list_empty(&t->loads_queued))
		scout__load_cancel(s, SCOUT__OWNER(t->loads_queued.next, struct scout__load, node));
	while (!scout__list_empty(&t->loads_bare))
		scout__load_cancel(s, SCOUT__OWNER(t->loads_bare.next, struct scout__load, node));
	s->now_us = scout__now_us();
	t->hangs = !scout__l2_stop(t->l2, STOP_MS);
	/* Questions give back what they found. */
	while (!scout__run_queue_empty(s))
		scout__run_queue_run(s);
	if (t->hangs)
		scout__log(&s->log, SCOUT_LOG_ERROR,
			   "L2 hangs in the system: the pool stays mapped until the process ends");
	return !t->hangs;
}

void
scout__fetch_free(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;

	if (!t)
		return;
	/* A server that failed to start later than its adapters did has never stopped them. */
	if (t->l2 && !t->stopping)
		(void)scout__l2_stop(t->l2, STOP_MS);
	if (t->l2)
		scout__l2_free(t->l2);
	for (uint32_t i = 0; i < SCOUT__L2_MAX_ADAPTERS; i++)
		free(t->unpins[i].digests);
	free(t->bad);
	scout__map_fini(&t->bad_map);
	free(t);
	s->fetch = NULL;
}

SCOUT_ON_LOOP static void
cleared(struct scout_server *s, struct scout__ns *ns)
{
	scout__fetch_refingerprint(ns);
	scout__records_changed(s, ns);
}

const struct scout__state_hooks scout__fetch_hooks = {
	.slots_came = scout__loads_go_on,
	.committed = scout__write_queue,
	.outdated = scout__writes_sweep,
	.cleared = cleared,
	.index_closed = scout__fetch_close_group,
	.closed = scout__records_close,
};
