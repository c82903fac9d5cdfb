/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fetch.h"
#include "ns.h"
#include "pending_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * L2 -> pool: one load for each shard, however many ask for it. Loads queue behind as many as the stores work
 * on at once (load_ops), first come first served; one that is queued is cancelled when nothing pins its entry any more,
 * and given up when no store can be asked. One that is late keeps no other from running.
 *
 *   want ─▶ queued ─▶ running on an adapter ─▶ verified: readable     ─▶ who waits for the chunk is woken
 *                        │    ▲                failed: the next adapter that has it, else the shard is given up,
 *                        │    └── next adapter        the key is bad for a while
 *                        └─ late: the adapter has begun it and does not get on with it (the key is bad), or hangs as a whole
 *                           before it has begun: it does not count any more; the slot stays its own until it is reaped
 *
 * A load that waits, here or in the queue of L2, has no deadline: what it waits for are other loads, which get on or
 * are late, or the memory of its slot (loads_bare), which comes or fails; if that fails, the load is cancelled. A retrieve waits for its loads as long as its own budget allows (retrieve.c).
 *
 * While it runs it holds its entry, so the slot under it is never another chunk's. What comes late and is good is
 * readable all the same. After a RESET nothing of before is committed.
 *
 * Threads: loop.
 */

#define STARTS 128u /* in one go: thousands may have to be given up */

SCOUT_ON_LOOP static void
load_free(struct scout__load *load)
{
	load->expected->shards[load->rank].load = NULL;
	free(load);
}

void
scout__load_cancel(struct scout_server *s, struct scout__load *load)
{
	scout__list_del(&load->node);
	s->fetch->n_loads_queued--;
	s->fetch->count.loads_cancelled++;
	load_free(load);
}

/*
 * The store that comes first in the order of preference, of those that are left and can be asked: first those that said
 * they have it, then the others, whose answer may have come too late.
 */
SCOUT_ON_LOOP static bool
next_adapter(const struct scout_server *s, struct scout__load *load, uint32_t *ret_adapter)
{
	const struct scout__fetch *t = s->fetch;

	while (load->left) {
		uint32_t adapter =
			(uint32_t)__builtin_ctz(load->left & load->known ? load->left & load->known : load->left);

		load->left &= (uint8_t) ~(1u << adapter);
		if (scout__l2_tries_reads(t->l2, adapter)) {
			*ret_adapter = adapter;
			return true;
		}
	}
	return false;
}

SCOUT_ON_LOOP static void load_done(void *user, struct scout__l2_op *op);
SCOUT_ON_LOOP static void load_late(void *user, struct scout__l2_op *op);

SCOUT_ON_LOOP static void
submit(struct scout_server *s, struct scout__load *load, uint32_t adapter)
{
	struct scout__fetch *t = s->fetch;
	struct scout__l2_op *op = &load->op;

	*op = (struct scout__l2_op){
		.what = SCOUT__L2_LOAD,
		.timeout_us = t->timeout_us,
		.key = &load->key,
		.data = scout__index_data(load->group->index, load->entry, load->rank),
		.bytes = load->group->layouts[load->group->ranks[load->rank]].shard_bytes,
		.done = load_done,
		.late = load_late,
		.user = load,
	};
	scout__l2_submit(t->l2, adapter, op, s->now_us);
}

/* The shard is not to be had: its chunk does not count any more. The state of the shard is the caller's. */
SCOUT_ON_LOOP static void
give_up(struct scout_server *s, struct scout__load *load)
{
	struct scout__expected_shard *shard = &load->expected->shards[load->rank];

	s->fetch->count.loads_failed++;
	scout__fetch_unpin(s, shard->digest, shard->pinned);
	shard->pinned = 0;
	scout__chunk_wake(s, load->group->ns, load->group->index->entries[load->entry].hash);
}

/* A load whose turn it is, out of the queue. */
SCOUT_ON_LOOP static void
load_start(struct scout_server *s, struct scout__load *load)
{
	struct scout__ns_group *group = load->group;
	const struct scout__expected *x = load->expected;
	uint32_t adapter;

	s->fetch->n_loads_queued--;
	if (load->weights_gen != group->ns->weights_gen || !next_adapter(s, load, &adapter) ||
	    !scout__index_load(group->index, load->entry, load->rank)) {
		give_up(s, load);
		scout__index_unexpect_shard(group->index, load->entry, load->rank);
		load_free(load);
		return;
	}
	scout__key_of_entry(group, load->entry, load->rank, x->shards[load->rank].weights, x->space, &load->key);
	load->running = true;
	group->ns->n_moving++;
	s->fetch->n_loads_running++;
	submit(s, load, adapter);
}

bool
scout__loads_can_start(const struct scout_server *s)
{
	const struct scout__fetch *t = s->fetch;
	bool any_usable = false;

	if (scout__list_empty(&t->loads_queued) || t->stopping)
		return false;
	for (uint32_t i = 0; i < t->n && !any_usable; i++)
		any_usable = scout__l2_tries_reads(t->l2, i);
	/* Without one they are given up. */
	return !any_usable || t->n_loads_running - t->n_loads_late < t->load_ops;
}

void
scout__loads_start(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;

	for (unsigned left = STARTS; left > 0 && scout__loads_can_start(s); left--)
		load_start(s, SCOUT__OWNER(scout__list_pop(&t->loads_queued), struct scout__load, node));
}

void
scout__load_want(struct scout_server *s, struct scout__ns_group *group, uint32_t entry, uint32_t rank)
{
	struct scout__expected *x = scout__expected_of(group, entry);
	struct scout__fetch *t = s->fetch;
	struct scout__load *load;

	if (!x || x->shards[rank].load || scout__index_state(group->index, entry, rank) != SCOUT__SHARD_EXPECTED)
		return;
	load = calloc(1, sizeof(*load));
	if (!load) {
		/* It stays expected; who needs it is told that it is missing. */
		s->count.out_of_memory++;
		return;
	}
	load->server = s;
	load->group = group;
	load->expected = x;
	load->weights_gen = group->ns->weights_gen;
	load->entry = entry;
	load->rank = rank;
	load->known = x->shards[rank].pinned;
	load->left = scout__records_stores(group->ns);
	x->shards[rank].load = load;
	scout__list_add(group->index->entries[entry].bare ? &t->loads_bare : &t->loads_queued, &load->node);
	t->n_loads_queued++;
	t->count.loads++;
	scout__loads_start(s);
}

void
scout__load_want_all(struct scout_server *s, struct scout__ns_group *group, uint32_t entry)
{
	for (uint32_t rank = 0; rank < group->index->n_ranks; rank++)
		scout__load_want(s, group, entry, rank);
}

void
scout__loads_go_on(struct scout_server *s, struct scout__ns_group *group, uint32_t first, uint32_t n)
{
	if (!s->fetch)
		return;
	for (uint32_t entry = first; entry < first + n; entry++) {
		struct scout__expected *x = scout__expected_of(group, entry);

		for (uint32_t rank = 0; x && rank < group->index->n_ranks; rank++) {
			struct scout__load *load = x->shards[rank].load;

			if (!load)
				continue;
			scout__list_del(&load->node);
			scout__list_add(&s->fetch->loads_queued, &load->node);
		}
	}
	scout__loads_start(s);
}

/* ---- the end ---- */

static bool
is_a_key_s_fault(enum scout__l2_result result)
{
	return result != SCOUT__L2_OK && result != SCOUT__L2_REFUSED && result != SCOUT__L2_CANCELLED;
}

/* It failed for good. The hold ends, and with it perhaps the entry. */
SCOUT_ON_LOOP static void
load_failed(struct scout_server *s, struct scout__load *load)
{
	struct scout__ns_group *group = load->group;
	uint32_t entry = load->entry;
	uint32_t rank = load->rank;

	/* That it was late is the same failure. */
	if (is_a_key_s_fault(load->op.result) && !(load->is_bad && load->a_store_failed))
		scout__bad_add(s, load->key.digest, load->a_store_failed);
	give_up(s, load);
	load_free(load);
	scout__index_abort(group->index, entry, rank);
	scout__ns_unpinned(group, entry);
}

SCOUT_ON_LOOP static void
load_succeeded(struct scout_server *s, struct scout__load *load)
{
	struct scout__ns_group *group = load->group;
	uint32_t entry = load->entry;
	uint32_t rank = load->rank;
	struct scout__expected_shard *shard = &load->expected->shards[rank];

	s->fetch->count.loads_done++;
	scout__fetch_unpin(s, shard->digest, shard->pinned);
	shard->pinned = 0;
	scout__chunk_wake(s, group->ns, group->index->entries[entry].hash);
	load_free(load);
	(void)scout__index_commit(group->index, entry, rank);
	scout__ns_unpinned(group, entry);
}

SCOUT_ON_LOOP static void
load_done(void *user, struct scout__l2_op *op)
{
	struct scout__load *load = user;
	struct scout_server *s = load->server;
	bool fits = load->weights_gen == load->group->ns->weights_gen && !s->fetch->stopping;
	uint32_t adapter;

	load->a_store_failed |= scout__l2_verdict_of(op) == SCOUT__L2_FAILED;
	if (op->result == SCOUT__L2_CORRUPT)
		scout__fetch_remove(s, op->adapter, &load->key);
	if (op->result != SCOUT__L2_OK && fits && !load->late && next_adapter(s, load, &adapter)) {
		submit(s, load, adapter);
		return;
	}
	s->fetch->n_loads_running--;
	s->fetch->n_loads_late -= load->late;
	load->group->ns->n_moving--;
	if (op->result == SCOUT__L2_OK && fits)
		load_succeeded(s, load);
	else
		load_failed(s, load);
	scout__loads_start(s);
}

SCOUT_ON_LOOP static void
load_late(void *user, struct scout__l2_op *op)
{
	struct scout__load *load = user;
	struct scout_server *s = load->server;

	load->late = true;
	s->fetch->n_loads_late++;
	s->fetch->count.loads_late++;
	/* Behind a store that hangs it is not the object's fault. */
	load->is_bad = scout__l2_has_begun(op);
	if (load->is_bad)
		scout__bad_add(s, load->key.digest, true);
	scout__index_load_late(load->group->index, load->entry, load->rank);
	scout__chunk_wake(s, load->group->ns, load->group->index->entries[load->entry].hash);
}
