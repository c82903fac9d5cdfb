/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "feed.h"
#include "fetch.h"
#include "ns.h"
#include "pending_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * Pool -> L2: what workers have stored is written through to every adapter, first come first served, WRITE_OPS shards
 * at once. Waiting has no deadline, only room: the queue is bounded in bytes (l2_queue_bytes, and never more than a
 * quarter of the pool, since what waits keeps its slot), and what comes when it is full takes the place of the oldest
 * that was not begun, which is counted and logged. Nothing is tried twice: a store that fails is counted, and the chunk
 * is written when it is stored again some day.
 *
 * A shard that is queued or written keeps its slot (scout__index_save), and its place in the order of eviction: see
 * chunk_index_l2.c. What came from L2 is not queued.
 *
 * A store waits for a slot that is being written, but not for a disk: a write that is late lets it go on without. When
 * a store hangs as a whole its breaker opens, and what is queued for it ends at once, so it cannot fill the pool.
 *
 * After a RESET what is queued is of older weights. It is dropped when its turn comes, and by a sweep over the queue:
 * what stays goes round once, so its order stays too.
 *
 * Threads: loop.
 */

#define SWEEP 512u

/* A shard has been written, or not: after the last of a hit, tell the feed. */
SCOUT_ON_LOOP static void
note_saved(struct scout__ns_group *group, uint32_t entry)
{
	const struct scout__entry *e = &group->index->entries[entry];

	if (e->saving == 1 && !e->unsaved && scout__index_is_hit(group->index, entry))
		scout__feed_saved(group, entry);
}

/* The slot is free to be used again. */
SCOUT_ON_LOOP static void
write_end(struct scout_server *s, struct scout__write *w)
{
	struct scout__ns_group *group = w->group;
	uint32_t entry = w->entry;

	s->fetch->write_bytes -= group->index->strides[w->rank];
	group->ns->n_moving--;
	if (!w->kept)
		group->index->entries[entry].unsaved = 1;
	free(w->ops);
	free(w);
	note_saved(group, entry);
	scout__index_saved(group->index, entry);
	scout__ns_unpinned(group, entry);
	/* A store may have found nothing to evict but this. */
	if (!scout__list_empty(&group->ns->pool_waiters))
		scout__pending_ops_wake(s, &group->ns->pool_waiters);
}

/* The first of the queue, which must not be empty, out of it. */
SCOUT_ON_LOOP static struct scout__write *
take_queued(struct scout__fetch *t)
{
	t->n_writes_queued--;
	return SCOUT__OWNER(scout__list_pop(&t->writes_queued), struct scout__write, node);
}

SCOUT_ON_LOOP static void writes_start(struct scout_server *s);
SCOUT_ON_LOOP static void write_late(void *user, struct scout__l2_op *op);

SCOUT_ON_LOOP static void
write_done(void *user, struct scout__l2_op *op)
{
	struct scout__write *w = user;
	struct scout_server *s = w->server;

	w->kept |= op->result == SCOUT__L2_OK || op->result == SCOUT__L2_PRESENT;
	if (--w->n_running > 0)
		return;
	if (w->kept)
		s->fetch->count.writes_done++;
	else
		s->fetch->count.writes_failed++;
	s->fetch->n_writes_running--;
	write_end(s, w);
	writes_start(s);
}

/* One operation for each adapter, with the key that they share behind them. */
SCOUT_ON_LOOP static bool
make_ops(const struct scout__fetch *t, struct scout__write *w)
{
	w->ops = calloc(1, t->n * sizeof(*w->ops) + sizeof(*w->key));
	if (!w->ops)
		return false;
	w->key = (struct scout__l2_key *)(void *)(w->ops + t->n);
	scout__key_of_entry(w->group, w->entry, w->rank, w->group->ns->weights,
			    scout__ns_space_index(w->group->ns, w->group->index->entries[w->entry].space), w->key);
	return true;
}

/* One whose turn it is, out of the queue. */
SCOUT_ON_LOOP static void
write_start(struct scout_server *s, struct scout__write *w)
{
	struct scout__fetch *t = s->fetch;
	uint8_t stores = scout__records_stores(w->group->ns);

	if (stores == 0) {
		t->count.writes_dropped++;
		write_end(s, w);
		return;
	}
	if (!make_ops(t, w)) {
		s->count.out_of_memory++;
		t->count.writes_dropped++;
		write_end(s, w);
		return;
	}
	t->n_writes_running++;
	w->n_running = (uint32_t)__builtin_popcount(stores);
	for (uint32_t i = 0; i < t->n; i++) {
		if (!(stores & 1u << i))
			continue;
		w->ops[i] = (struct scout__l2_op){
			.what = SCOUT__L2_STORE,
			.timeout_us = t->timeout_us,
			.key = w->key,
			.data = scout__index_data(w->group->index, w->entry, w->rank),
			.bytes = w->group->layouts[w->group->ranks[w->rank]].shard_bytes,
			.done = write_done,
			.late = write_late,
			.user = w,
		};
		scout__l2_submit(t->l2, i, &w->ops[i], s->now_us);
	}
}

SCOUT_ON_LOOP static bool
is_outdated(const struct scout__write *w)
{
	return w->weights_gen != w->group->ns->weights_gen || w->group->index->entries[w->entry].spoiled;
}

SCOUT_ON_LOOP static void
writes_start(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;
	uint32_t left = SWEEP;

	/* The sweep drops what is outdated behind these. */
	for (; left > 0 && !scout__list_empty(&t->writes_queued) && !t->stopping; left--) {
		struct scout__write *w = SCOUT__OWNER(t->writes_queued.next, struct scout__write, node);
		bool outdated = is_outdated(w);

		if (!outdated && (t->n_writes_running >= SCOUT__WRITE_OPS || !scout__records_known(w->group->ns) ||
				  scout__records_are_written_now(w->group->ns)))
			return;
		w = take_queued(t);
		if (outdated) {
			t->count.writes_outdated++;
			write_end(s, w);
		} else {
			write_start(s, w);
		}
	}
}

/* One is not written because of others. */
SCOUT_ON_LOOP static void
drop(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;

	t->count.writes_dropped++;
	scout__log_limited(&s->log, &t->limit_dropped, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
			   "L2 takes writes more slowly than workers store: the oldest of the %llu bytes that "
			   "wait (l2_queue_bytes) is not written",
			   (unsigned long long)t->write_bytes);
}

/* Room for @bytes more in the queue, if need be in place of the oldest that are not begun. False: there is none. */
SCOUT_ON_LOOP static bool
make_room(struct scout_server *s, uint64_t bytes)
{
	struct scout__fetch *t = s->fetch;

	/* One may always be written, also where a quarter of the pool is less. */
	while (t->write_bytes > 0 &&
	       (t->write_bytes >= t->max_write_bytes || bytes > t->max_write_bytes - t->write_bytes)) {
		if (t->n_writes_queued == 0)
			return false;
		drop(s);
		write_end(s, take_queued(t));
	}
	return true;
}

void
scout__writes_go_on(struct scout_server *s)
{
	writes_start(s);
}

void
scout__write_queue(struct scout_server *s, struct scout__ns_group *group, uint32_t entry, uint32_t rank)
{
	struct scout__fetch *t = s->fetch;
	uint64_t bytes = group->index->strides[rank];
	struct scout__write *w;

	if (!t || !group->expected || t->stopping)
		return;
	if (!make_room(s, bytes)) {
		group->index->entries[entry].unsaved = 1;
		drop(s);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w || !scout__index_save(group->index, entry)) {
		free(w);
		group->index->entries[entry].unsaved = 1;
		t->count.writes_dropped++;
		return;
	}
	w->server = s;
	w->group = group;
	w->weights_gen = group->ns->weights_gen;
	w->entry = entry;
	w->rank = rank;
	t->write_bytes += bytes;
	t->n_writes_queued++;
	t->count.writes++;
	group->ns->n_moving++;
	scout__list_add(&t->writes_queued, &w->node);
	writes_start(s);
}

SCOUT_ON_LOOP static void
write_late(void *user, struct scout__l2_op *op)
{
	struct scout__write *w = user;
	struct scout_server *s = w->server;

	(void)op;
	/* One of several adapters may be late after another. */
	if (w->late)
		return;
	w->late = true;
	s->fetch->count.writes_late++;
	scout__index_save_late(w->group->index, w->entry);
	scout__pending_ops_wake(s, &w->group->ns->pool_waiters);
}

/* ---- dropping ---- */

void
scout__writes_sweep(struct scout_server *s)
{
	if (!s->fetch)
		return;
	s->fetch->sweep_left = s->fetch->n_writes_queued;
	scout__run_queue_add(s, &s->fetch->write_sweep);
}

void
scout__write_sweep_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__fetch *t = s->fetch;

	for (uint32_t i = 0; i < SWEEP && t->sweep_left > 0 && t->n_writes_queued > 0; i++, t->sweep_left--) {
		struct scout__write *w = take_queued(t);

		if (is_outdated(w)) {
			t->count.writes_outdated++;
			write_end(s, w);
		} else {
			scout__list_add(&t->writes_queued, &w->node);
			t->n_writes_queued++;
		}
	}
	if (t->sweep_left > 0 && t->n_writes_queued > 0)
		scout__run_queue_add(s, item);
}

uint32_t
scout__writes_drop(struct scout_server *s, const struct scout__ns *ns)
{
	uint32_t n = 0;
	struct scout__list *node;

	if (!s->fetch)
		return 0;
	node = s->fetch->writes_queued.next;
	while (node != &s->fetch->writes_queued) {
		struct scout__write *w = SCOUT__OWNER(node, struct scout__write, node);

		node = node->next;
		if (ns && w->group->ns != ns)
			continue;
		scout__list_del(&w->node);
		s->fetch->n_writes_queued--;
		s->fetch->count.writes_dropped++;
		write_end(s, w);
		n++;
	}
	return n;
}
