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
 * quarter of the pool, since what waits keeps its slot). Of what does not fit the ends of prompts wait without their slots,
 * first of the youngest prompt, because without its beginning no chunk is found; when there is room again, the oldest
 * prompt goes on where it was. If the pool has used a slot for something else by then, that prompt is cut: no more of it
 * is written, which is counted, and the log says it.
 *
 * What a store fails to take, or cannot take now (it is switched off, or has not said what was cleared), is put off: it
 * waits without its slot, as long as the pool has it, until that store takes writes again or has failed FAILURES times
 * with it. It keeps nothing from another store, and no prompt from going on.
 *
 * A shard that is queued or written keeps its slot (scout__index_save), and its place in the order of eviction: see
 * chunk_index_l2.c. What came from L2 is not queued.
 *
 * A store waits for a slot that is being written, but not for a disk: a write that is late lets it go on without. When
 * a store hangs as a whole its breaker opens, and what is queued for it is put off at once, so it cannot fill the pool.
 *
 * After a RESET what is queued is of older weights. It is dropped when its turn comes, and by a sweep over the queue:
 * what stays goes round once, so its order stays too.
 *
 * Threads: loop.
 */

#define SWEEP 512u
#define FAILURES 6u
#define AGAIN_US UINT64_C(1000000) /* after a failure of a store that is not switched off */

/* A shard has been written, or not: after the last of a hit, tell the feed. */
SCOUT_ON_LOOP static void
note_saved(struct scout__ns_group *group, uint32_t entry)
{
	const struct scout__entry *e = &group->index->entries[entry];

	if (e->saving == 1 && !e->unsaved && e->owed == 0 && scout__index_is_hit(group->index, entry))
		scout__feed_saved(group, entry);
}

/* The slot is free to be used again. */
SCOUT_ON_LOOP static void
let_go(struct scout_server *s, const struct scout__write *w)
{
	struct scout__ns_group *group = w->group;
	uint32_t entry = w->handle.entry;

	s->fetch->write_bytes -= group->index->strides[w->rank];
	group->ns->n_moving--;
	scout__index_saved(group->index, entry);
	scout__ns_unpinned(group, entry);
	/* A store may have found nothing to evict but this. */
	if (!scout__list_empty(&group->ns->pool_waiters))
		scout__pending_ops_wake(s, &group->ns->pool_waiters);
}

SCOUT_ON_LOOP static void
write_end(struct scout_server *s, struct scout__write *w)
{
	if (!w->kept)
		w->group->index->entries[w->handle.entry].unsaved = 1;
	if (!w->told)
		note_saved(w->group, w->handle.entry);
	let_go(s, w);
	free(w->ops);
	free(w);
}

/* Out of what waits of its prompt. */
SCOUT_ON_LOOP static void
leave_prompt(struct scout__write *w)
{
	struct scout__prompt *prompt = w->prompt;

	scout__list_del(&w->of_prompt);
	if (scout__list_empty(&prompt->writes) && scout__list_empty(&prompt->later))
		scout__list_del(&prompt->node);
}

SCOUT_ON_LOOP static void
unqueue(struct scout__fetch *t, struct scout__write *w)
{
	t->n_writes_queued--;
	scout__list_del(&w->node);
	leave_prompt(w);
}

static struct scout__write *
first_queued(const struct scout__fetch *t)
{
	return SCOUT__OWNER(t->writes_queued.next, struct scout__write, node);
}

SCOUT_ON_LOOP static void go_on_later(struct scout_server *s);
SCOUT_ON_LOOP static void writes_start(struct scout_server *s);
SCOUT_ON_LOOP static void write_late(void *user, struct scout__l2_op *op);

SCOUT_ON_LOOP static bool
is_in_pool(const struct scout__write *w)
{
	return scout__index_valid(w->group->index, w->handle) && w->group->index->entries[w->handle.entry].readable > 0;
}

SCOUT_ON_LOOP static bool
is_outdated(const struct scout__write *w)
{
	return w->weights_gen != w->group->ns->weights_gen || w->group->index->entries[w->handle.entry].spoiled;
}

/* It waits without its slot from here on. */
SCOUT_ON_LOOP static void
owe(const struct scout__write *w)
{
	struct scout__entry *e = &w->group->index->entries[w->handle.entry];

	if (!w->kept && e->owed < SCOUT__OWED_MAX)
		e->owed++;
}

/* It has its slot again, or is given up. */
SCOUT_ON_LOOP static void
owe_no_more(const struct scout__write *w)
{
	struct scout__entry *e = &w->group->index->entries[w->handle.entry];

	if (!w->kept && scout__index_valid(w->group->index, w->handle) && e->owed < SCOUT__OWED_MAX)
		e->owed--;
}

/* Count one that has ended: as @counter, unless a store has it. */
static void
count_end(struct scout__fetch *t, const struct scout__write *w, uint64_t *counter)
{
	if (w->kept)
		t->count.writes_done++;
	else
		(*counter)++;
}

/* It has its slot, and is in no list. It ends, or waits without its slot for stores that do not have it. */
SCOUT_ON_LOOP static void
put_off(struct scout_server *s, struct scout__write *w, uint64_t again_us)
{
	struct scout__fetch *t = s->fetch;

	if (!w->todo || w->failures >= FAILURES || t->stopping || !is_in_pool(w) || is_outdated(w) ||
	    t->n_writes_later + t->n_writes_again >= SCOUT__WRITES_LATER) {
		count_end(t, w, &t->count.writes_failed);
		write_end(s, w);
		return;
	}
	owe(w);
	if (w->kept && !w->told)
		note_saved(w->group, w->handle.entry);
	w->told = w->kept;
	let_go(s, w);
	free(w->ops);
	w->ops = NULL;
	w->late = false;
	w->again_us = again_us;
	scout__list_add(&t->writes_again[w->kept ? (uint32_t)__builtin_ctz(w->todo) : SCOUT__L2_MAX_ADAPTERS],
			&w->node);
	t->n_writes_again++;
}

SCOUT_ON_LOOP static void
write_done(void *user, struct scout__l2_op *op)
{
	struct scout__write *w = user;
	struct scout_server *s = w->server;
	enum scout__l2_verdict verdict = scout__l2_verdict_of(op);

	w->kept |= op->result == SCOUT__L2_OK || op->result == SCOUT__L2_PRESENT;
	if (op->result == SCOUT__L2_OK)
		scout__bad_end(s, op->key->digest);
	w->failures += verdict == SCOUT__L2_FAILED;
	if (verdict == SCOUT__L2_WORKED)
		w->todo &= (uint8_t) ~(1u << op->adapter);
	if (--w->n_running > 0)
		return;
	s->fetch->n_writes_running--;
	put_off(s, w, s->now_us + AGAIN_US);
	writes_start(s);
}

SCOUT_ON_LOOP static void
key_of(const struct scout__write *w, struct scout__l2_key *ret_key)
{
	scout__key_of_entry(w->group, w->handle.entry, w->rank, w->group->ns->weights,
			    scout__ns_space_index(w->group->ns, w->group->index->entries[w->handle.entry].space),
			    ret_key);
}

/* One operation for each adapter, with the key that they share behind them. */
SCOUT_ON_LOOP static bool
make_ops(const struct scout__fetch *t, struct scout__write *w)
{
	w->ops = calloc(1, t->n * sizeof(*w->ops) + sizeof(*w->key));
	if (!w->ops)
		return false;
	w->key = (struct scout__l2_key *)(void *)(w->ops + t->n);
	key_of(w, w->key);
	return true;
}

/* It has its slot, and is in no list. */
SCOUT_ON_LOOP static void
write_start(struct scout_server *s, struct scout__write *w, uint8_t stores)
{
	struct scout__fetch *t = s->fetch;

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
			.timeout_us = scout__l2_store_of(t->l2, i)->write_timeout_us,
			.key = w->key,
			.after = w->after,
			.data = scout__index_data(w->group->index, w->handle.entry, w->rank),
			.bytes = w->group->layouts[w->group->ranks[w->rank]].shard_bytes,
			.done = write_done,
			.late = write_late,
			.user = w,
		};
		scout__l2_submit(t->l2, i, &w->ops[i], s->now_us);
	}
}

/* Whether a write may start as far as the namespace goes. */
SCOUT_ON_LOOP static bool
may_start(const struct scout__fetch *t, const struct scout__ns *ns)
{
	return t->n_writes_running < SCOUT__WRITE_OPS && scout__records_known(ns) &&
	       !scout__records_are_written_now(ns);
}

/* When stores that it is to go to would try it; those that would now: *ret_stores. */
SCOUT_ON_LOOP static uint64_t
stores_of(const struct scout_server *s, const struct scout__write *w, uint8_t *ret_stores)
{
	uint8_t stores = w->todo & scout__records_stores(w->group->ns);
	uint64_t first_us = UINT64_MAX;

	*ret_stores = 0;
	for (uint32_t i = 0; i < s->fetch->n; i++) {
		uint64_t at_us = stores & 1u << i ? scout__l2_writes_at_us(s->fetch->l2, i) : UINT64_MAX;

		if (at_us <= s->now_us)
			*ret_stores |= (uint8_t)(1u << i);
		if (at_us < first_us)
			first_us = at_us;
	}
	return first_us > w->again_us ? first_us : w->again_us;
}

/* Its slot stays from here on. False: it has too many writes. */
SCOUT_ON_LOOP static bool
hold(struct scout__fetch *t, struct scout__write *w)
{
	if (!scout__index_save(w->group->index, w->handle.entry))
		return false;
	t->write_bytes += w->group->index->strides[w->rank];
	w->group->ns->n_moving++;
	return true;
}

SCOUT_ON_LOOP static void
free_again(struct scout__fetch *t, struct scout__write *w)
{
	bool outdated = w->weights_gen != w->group->ns->weights_gen;

	scout__list_del(&w->node);
	t->n_writes_again--;
	owe_no_more(w);
	if (!w->kept && scout__index_valid(w->group->index, w->handle))
		w->group->index->entries[w->handle.entry].unsaved = 1;
	count_end(t, w, outdated ? &t->count.writes_outdated : &t->count.writes_dropped);
	free(w);
}

/* Those of one list that were put off, as far as they are due. */
SCOUT_ON_LOOP static void
go_on_again(struct scout_server *s, struct scout__list *list)
{
	struct scout__fetch *t = s->fetch;

	for (uint32_t left = SWEEP; left > 0 && !scout__list_empty(list); left--) {
		struct scout__write *w = SCOUT__OWNER(list->next, struct scout__write, node);
		bool gone = !is_in_pool(w) || is_outdated(w);
		uint8_t stores;

		if (!gone && (stores_of(s, w, &stores) > s->now_us || !may_start(t, w->group->ns)))
			return;
		if (gone || !hold(t, w)) {
			free_again(t, w);
			continue;
		}
		owe_no_more(w);
		scout__list_del(&w->node);
		t->n_writes_again--;
		write_start(s, w, stores);
	}
}

SCOUT_ON_LOOP static void
log_dropped(struct scout_server *s)
{
	scout__log_limited(
		&s->log, &s->fetch->limit_dropped, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
		"L2 was off, or takes writes more slowly than workers store: %llu bytes wait (l2_queue_bytes), and the "
		"pool has replaced others that waited for L2, so they or ends of prompts are not written",
		(unsigned long long)s->fetch->write_bytes);
}

SCOUT_ON_LOOP static void
writes_start(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;
	uint64_t dropped = t->count.writes_dropped;
	uint32_t left = SWEEP;

	for (uint32_t i = 0; i <= SCOUT__L2_MAX_ADAPTERS && t->n_writes_again > 0 && !t->stopping; i++)
		go_on_again(s, &t->writes_again[i]);
	if (t->count.writes_dropped > dropped)
		log_dropped(s);
	if (!t->stopping)
		go_on_later(s);
	/* The sweep drops what is outdated behind these. */
	for (; left > 0 && !scout__list_empty(&t->writes_queued) && !t->stopping; left--) {
		struct scout__write *w = first_queued(t);
		bool outdated = is_outdated(w);
		uint8_t stores;

		if (!outdated && !may_start(t, w->group->ns))
			return;
		unqueue(t, w);
		if (outdated) {
			t->count.writes_outdated++;
			write_end(s, w);
		} else if (stores_of(s, w, &stores) <= s->now_us) {
			write_start(s, w, stores);
		} else {
			put_off(s, w, 0);
		}
	}
}

static bool
has_room(const struct scout__fetch *t, uint64_t bytes)
{
	/* One may always be written, also where a quarter of the pool is less. */
	return t->write_bytes == 0 ||
	       (t->write_bytes < t->max_write_bytes && bytes <= t->max_write_bytes - t->write_bytes);
}

/* One that waits without its slot is not written, as @counter says. */
SCOUT_ON_LOOP static void
free_later(struct scout__fetch *t, struct scout__write *w, uint64_t *counter)
{
	if (scout__index_valid(w->group->index, w->handle))
		w->group->index->entries[w->handle.entry].unsaved = 1;
	owe_no_more(w);
	t->n_writes_later--;
	(*counter)++;
	leave_prompt(w);
	free(w);
}

SCOUT_ON_LOOP static void
cut(struct scout_server *s, struct scout__prompt *prompt)
{
	prompt->is_cut = true;
	while (!scout__list_empty(&prompt->later))
		free_later(s->fetch, SCOUT__OWNER(prompt->later.next, struct scout__write, of_prompt),
			   &s->fetch->count.writes_dropped);
	log_dropped(s);
}

/* @w into the queue, after what is there of its prompt. False: it is not in the pool any more, or has too many writes. */
SCOUT_ON_LOOP static bool
enqueue(struct scout__fetch *t, struct scout__write *w)
{
	if (!is_in_pool(w) || !hold(t, w))
		return false;
	t->n_writes_queued++;
	scout__list_add(&t->writes_queued, &w->node);
	scout__list_add(&w->prompt->writes, &w->of_prompt);
	return true;
}

/* What waits of one prompt without its slot goes on while there is room. False: there is none. */
SCOUT_ON_LOOP static bool
go_on_with(struct scout_server *s, struct scout__prompt *prompt)
{
	struct scout__fetch *t = s->fetch;

	while (!scout__list_empty(&prompt->later)) {
		struct scout__write *w = SCOUT__OWNER(prompt->later.next, struct scout__write, of_prompt);

		if (w->weights_gen != w->group->ns->weights_gen) {
			free_later(t, w, &t->count.writes_outdated);
			continue;
		}
		if (!has_room(t, w->group->index->strides[w->rank]))
			return false;
		scout__list_del(&w->of_prompt);
		if (enqueue(t, w)) {
			owe_no_more(w);
			t->n_writes_later--;
			continue;
		}
		scout__list_add_first(&prompt->later, &w->of_prompt);
		cut(s, prompt);
	}
	return true;
}

/* The oldest prompts first. */
SCOUT_ON_LOOP static void
go_on_later(struct scout_server *s)
{
	struct scout__list *node = s->fetch->prompts_queued.next;

	while (s->fetch->n_writes_later > 0 && node != &s->fetch->prompts_queued) {
		struct scout__prompt *prompt = SCOUT__OWNER(node, struct scout__prompt, node);

		node = node->next;
		if (!go_on_with(s, prompt))
			return;
	}
}

/* Room for @bytes more in the queue, if need be in place of the ends of younger prompts. False: there is none. */
SCOUT_ON_LOOP static bool
make_room(struct scout_server *s, const struct scout__prompt *prompt, uint64_t bytes)
{
	struct scout__fetch *t = s->fetch;
	struct scout__list *node = t->prompts_queued.prev;

	while (!has_room(t, bytes)) {
		struct scout__prompt *youngest;
		struct scout__write *last;

		if (node == &t->prompts_queued)
			return false;
		youngest = SCOUT__OWNER(node, struct scout__prompt, node);
		if (youngest->born <= prompt->born)
			return false;
		if (scout__list_empty(&youngest->writes)) {
			node = node->prev;
			continue;
		}
		last = SCOUT__OWNER(youngest->writes.prev, struct scout__write, of_prompt);
		scout__list_del(&last->node);
		scout__list_del(&last->of_prompt);
		scout__list_add_first(&youngest->later, &last->of_prompt);
		t->n_writes_queued--;
		t->n_writes_later++;
		owe(last);
		let_go(s, last);
	}
	return true;
}

SCOUT_ON_LOOP static struct scout__prompt *
prompt_of(struct scout__fetch *t, uint64_t ticket)
{
	struct scout__prompt *prompt = &t->prompts[ticket * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (SCOUT__PROMPTS - 1)];
	bool waits = !scout__list_empty(&prompt->writes) || !scout__list_empty(&prompt->later);
	struct scout__list *after = t->prompts_queued.prev;

	if (prompt->ticket != ticket) {
		prompt->ticket = ticket;
		prompt->last = (struct scout__l2_digest){0, 0};
		prompt->is_cut = false;
		if (!waits) /* what waits of another ticket keeps its place */
			prompt->born = ++t->n_born;
	}
	if (!waits && !prompt->is_cut) {
		while (after != &t->prompts_queued &&
		       SCOUT__OWNER(after, struct scout__prompt, node)->born > prompt->born)
			after = after->prev;
		scout__list_del(&prompt->node);
		scout__list_add(after->next, &prompt->node);
	}
	return prompt;
}

void
scout__writes_go_on(struct scout_server *s)
{
	writes_start(s);
}

uint64_t
scout__writes_next_us(const struct scout_server *s)
{
	const struct scout__fetch *t = s->fetch;
	uint64_t next_us = UINT64_MAX;

	for (uint32_t i = 0; i <= SCOUT__L2_MAX_ADAPTERS && t->n_writes_again > 0; i++) {
		const struct scout__write *w = SCOUT__OWNER(t->writes_again[i].next, struct scout__write, node);
		uint8_t stores;
		uint64_t at_us;

		if (scout__list_empty(&t->writes_again[i]) || !may_start(t, w->group->ns))
			continue;
		at_us = stores_of(s, w, &stores);
		if (at_us < next_us)
			next_us = at_us;
	}
	return next_us;
}

void
scout__write_queue(struct scout_server *s, struct scout__ns_group *group, uint32_t entry, uint32_t rank,
		   uint64_t ticket)
{
	struct scout__fetch *t = s->fetch;
	struct scout__prompt *prompt;
	struct scout__write *w;
	struct scout__l2_key key;

	if (!t || !group->expected || t->stopping)
		return;
	prompt = prompt_of(t, ticket);
	w = prompt->is_cut || t->n_writes_later + t->n_writes_again >= SCOUT__WRITES_LATER ? NULL
											   : calloc(1, sizeof(*w));
	if (!w) {
		group->index->entries[entry].unsaved = 1;
		t->count.writes_dropped++;
		cut(s, prompt);
		return;
	}
	*w = (struct scout__write){.server = s,
				   .group = group,
				   .prompt = prompt,
				   .handle = scout__index_handle(group->index, entry),
				   .rank = rank,
				   .after = prompt->last,
				   .todo = scout__records_hoped(s, group->ns),
				   .weights_gen = group->ns->weights_gen};
	key_of(w, &key);
	prompt->last = key.digest;
	scout__list_init(&w->node);
	t->count.writes++;
	if (!scout__list_empty(&prompt->later) || !make_room(s, prompt, group->index->strides[rank]) ||
	    !enqueue(t, w)) {
		scout__list_add(&prompt->later, &w->of_prompt);
		t->n_writes_later++;
		owe(w);
	}
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
	scout__index_save_late(w->group->index, w->handle.entry);
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
		struct scout__write *w = first_queued(t);

		if (is_outdated(w)) {
			t->count.writes_outdated++;
			unqueue(t, w);
			write_end(s, w);
		} else {
			scout__list_del(&w->node);
			scout__list_add(&t->writes_queued, &w->node);
		}
	}
	if (t->sweep_left > 0 && t->n_writes_queued > 0)
		scout__run_queue_add(s, item);
}

uint32_t
scout__writes_forget(struct scout__fetch *t, const struct scout__ns *ns)
{
	uint32_t before = t->n_writes_later + t->n_writes_again;

	for (uint32_t i = 0; i <= SCOUT__L2_MAX_ADAPTERS && t->n_writes_again > 0; i++) {
		struct scout__list *node = t->writes_again[i].next;

		while (node != &t->writes_again[i]) {
			struct scout__write *w = SCOUT__OWNER(node, struct scout__write, node);

			node = node->next;
			if (!ns || w->group->ns == ns)
				free_again(t, w);
		}
	}
	for (uint32_t i = 0; i < SCOUT__PROMPTS && t->n_writes_later > 0; i++) {
		struct scout__list *node = t->prompts[i].later.next;

		while (node != &t->prompts[i].later) {
			struct scout__write *w = SCOUT__OWNER(node, struct scout__write, of_prompt);

			node = node->next;
			if (!ns || w->group->ns == ns)
				free_later(t, w, &t->count.writes_dropped);
		}
	}
	return before - t->n_writes_later - t->n_writes_again;
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
		unqueue(s->fetch, w);
		s->fetch->count.writes_dropped++;
		write_end(s, w);
		n++;
	}
	return n + scout__writes_forget(s->fetch, ns);
}
