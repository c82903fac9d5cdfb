/* SPDX-License-Identifier: Apache-2.0 */
#include "hold.h"

#include <stdlib.h>

#include "ns.h"
#include "peer.h"
#include "pending_op.h"
#include "server_core.h"
#include "state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/*
 * DESIGN
 *
 * A hold is what one RETRIEVE (reading) or one STORE (writing) was granted: the entries, in order. It belongs to its
 * worker: no other peer can name it, and only that worker's DONE, its goodbye or its death ends it. No timer does.
 *
 *   reading:  DONE, BYE or death            -> RELEASE
 *   writing:  DONE                          -> COMMIT of the first n, the rest given up
 *             BYE (no copy is running)      -> all given up
 *             death                         -> QUARANTINE: the slots stay as they are for dead_writer_ms, because the device
 *                                              may still be writing; then given up (EXPIRED)
 *             never told to the worker      -> as BYE
 *
 * A retrieve whose worker saw a slot change (a bug, counted) takes all its chunks out of the catalogue: DONE says how
 * many changed, not which, and a chunk that stays would be a hit again and fail again.
 *
 * A store that was reserved before a RESET commits nothing: its keys are of the old weights.
 *
 * Once ended, a hold has no name any more; giving back takes several steps, and the answer to DONE follows the last
 * step. Chunks are given back from the last to the first, as at the end of a session: what is unpinned later is evicted
 * later, and other prompts share the head of a prompt.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static void give_back_step(struct scout_server *s, struct scout__run_item *item);

/*
 * A worker names its holds by its own correlation ids, so that it can give back a hold whose grant it never saw. In the
 * one map for all workers these ids are hashed with the worker's secret, which no other peer knows.
 */
static uint64_t
hold_id(const struct scout__peer *worker, uint64_t corr)
{
	return XXH3_64bits_withSeed(&corr, sizeof(corr), worker->secret.half[0]);
}

bool
scout__hold_name_taken(struct scout_server *s, const struct scout__peer *worker, uint64_t corr)
{
	return scout__map_get(&s->state->by_hold, hold_id(worker, corr)) != SCOUT__MAP_NONE;
}

struct scout__hold *
scout__hold_new(struct scout_server *s, struct scout__peer *worker, uint8_t kind, uint32_t n, uint32_t n_parts,
		uint64_t corr)
{
	struct scout__hold *hold;

	if (s->state->n_free_holds == 0)
		return NULL;
	hold = calloc(1, sizeof(*hold) + n_parts * sizeof(hold->parts[0]) + (size_t)n * sizeof(hold->entries[0]));
	if (!hold)
		return NULL;
	hold->number = s->state->free_holds[s->state->n_free_holds - 1];
	if (!scout__map_put(&s->state->by_hold, hold_id(worker, corr), hold->number)) {
		free(hold);
		return NULL;
	}
	s->state->n_free_holds--;
	s->state->holds[hold->number] = hold;
	hold->id = hold_id(worker, corr);
	hold->corr = corr;
	hold->run.step = give_back_step;
	hold->worker = worker;
	hold->ns = worker->ns;
	hold->weights_gen = worker->ns->weights_gen;
	hold->entries = (uint32_t *)(void *)(hold->parts + n_parts);
	hold->n_parts = n_parts;
	for (uint32_t i = 0; i < n_parts; i++)
		hold->parts[i].first = UINT32_MAX;
	hold->kind = kind;
	scout__list_add(&worker->holds, &hold->of_worker);
	worker->n_holds++;
	worker->ns->n_holds++;
	return hold;
}

struct scout__hold *
scout__hold_find(struct scout_server *s, const struct scout__peer *worker, uint64_t corr, uint8_t kind)
{
	uint32_t slot = scout__map_get(&s->state->by_hold, hold_id(worker, corr));
	struct scout__hold *hold;

	if (slot == SCOUT__MAP_NONE)
		return NULL;
	hold = s->state->holds[slot];
	return hold->worker == worker && hold->corr == corr && hold->kind == kind && hold->told ? hold : NULL;
}

/* The hold no longer belongs to its worker. */
SCOUT_ON_LOOP static void
detach(struct scout__hold *hold)
{
	scout__list_del(&hold->of_worker);
	hold->worker = NULL;
}

void
scout__hold_end(struct scout_server *s, struct scout__hold *hold, enum scout__hold_ending how, uint32_t n_commit)
{
	SCOUT_ASSERT(hold->end == SCOUT__END_NONE);
	(void)scout__map_del(&s->state->by_hold, hold->id);
	/* Only a copy that the worker was told of can be under way. */
	if (how == SCOUT__END_QUARANTINE && !hold->told)
		how = SCOUT__END_COMMIT;
	hold->end = (uint8_t)how;
	hold->n_commit = n_commit;
	hold->worker->n_holds--;
	hold->worker->held_bytes -= hold->bytes;
	if (!hold->deferred.reply)
		detach(hold);
	scout__run_queue_start(s, &hold->run, hold->n);
}

void
scout__hold_undo(struct scout_server *s, struct scout__hold *hold)
{
	hold->told = false;
	scout__hold_end(s, hold, hold->kind == SCOUT__HOLD_READ ? SCOUT__END_RELEASE : SCOUT__END_COMMIT, 0);
}

void
scout__hold_take_back(struct scout_server *s, uint64_t id)
{
	uint32_t at = scout__map_get(&s->state->by_hold, id);

	if (at != SCOUT__MAP_NONE && s->state->holds[at]->end == SCOUT__END_NONE)
		scout__hold_undo(s, s->state->holds[at]);
}

/* The chunks from entry @begin to below @end are in the pool, the first one last: tell so from the first one on. */
SCOUT_ON_LOOP static void
tell_committed(struct scout_server *s, const struct scout__hold *hold, uint32_t begin, uint32_t end)
{
	const struct scout__hold_part *part = &hold->parts[0];

	for (uint32_t i = begin; i < end && i < hold->n_commit; i++) {
		const struct scout__entry *e = &part->group->index->entries[hold->entries[i]];

		if (e->in_use && e->readable > 0) /* or it was dropped with its last pin */
			s->state->hooks->committed(s, part->group, hold->entries[i], part->rank, hold->ticket);
	}
}

/* The part that has entry @i. Callers go from the last entry to the first. */
SCOUT_ON_LOOP static const struct scout__hold_part *
part_of(struct scout__hold *hold, uint32_t i)
{
	while (scout__hold_now(hold)->first > i)
		hold->part--;
	return scout__hold_now(hold);
}

/* Count what the worker has found in a chunk that @id stored. */
SCOUT_ON_LOOP static void
count_found(struct scout_server *s, struct scout__ns_counters *count, uint64_t id, uint8_t found)
{
	uint32_t above = found & (SCOUT_FOUND_DIFFERS - 1), differs = (found & SCOUT_FOUND_DIFFERS) != 0, at = 0;
	struct scout__storer *by = count->by;

	while (at < SCOUT__STORERS && by[at].id != id && (at == 0 || by[at].id))
		at++;
	if (at == SCOUT__STORERS) {
		at = 1 + (uint32_t)(count->n_replaced++ % (SCOUT__STORERS - 1));
		for (uint32_t i = 0; i < SCOUT_FOUND_BOUNDS + 2; i++)
			by->chunks[i] += by[at].chunks[i];
		by[at] = (struct scout__storer){0};
	}
	by[at].id = id;
	by[at].chunks[above < SCOUT_FOUND_BOUNDS ? above : SCOUT_FOUND_BOUNDS]++;
	by[at].chunks[SCOUT_FOUND_BOUNDS + 1] += differs;
	s->count.verify_mismatches += differs;
}

SCOUT_ON_LOOP static void
give_back_one(struct scout_server *s, struct scout__hold *hold, uint32_t i)
{
	const struct scout__hold_part *part = part_of(hold, i);
	struct scout__chunk_index *index = part->group->index;
	uint32_t entry = hold->entries[i];

	/* Operations that wait for the chunk look at it after this step. */
	if (hold->kind == SCOUT__HOLD_WRITE)
		scout__chunk_wake(s, hold->ns, index->entries[entry].hash);
	switch (hold->end) {
	case SCOUT__END_RELEASE:
		if (hold->found && hold->found[i] & SCOUT_FOUND_COMPARED)
			count_found(s, &hold->ns->count, *scout__index_place(index, entry, part->rank).writer,
				    hold->found[i]);
		if (hold->spoiled)
			scout__index_spoil(index, entry); /* this hold pins it: it is freed with the last pin */
		scout__index_unhold(index, entry);
		break;
	case SCOUT__END_COMMIT:
		if (i < hold->n_commit && hold->weights_gen == hold->ns->weights_gen)
			hold->n_readable += scout__index_commit(index, entry, part->rank);
		else
			scout__index_abort(index, entry, part->rank);
		break;
	case SCOUT__END_QUARANTINE:
		scout__index_quarantine(index, entry, part->rank);
		return;
	default:
		scout__index_abort(index, entry, part->rank);
		break;
	}
	scout__ns_unpinned(part->group, entry);
}

SCOUT_ON_LOOP static void
hold_free(struct scout_server *s, struct scout__hold *hold)
{
	if (hold->worker) {
		scout__deferred_reply_send(s, &hold->deferred, hold->worker, hold->n_readable);
		detach(hold);
	}
	s->state->holds[hold->number] = NULL;
	s->state->free_holds[s->state->n_free_holds++] = hold->number;
	hold->ns->n_holds--;
	free(hold->found);
	free(hold);
}

SCOUT_ON_LOOP static void
give_back_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__hold *hold = SCOUT__OWNER(item, struct scout__hold, run);
	uint32_t begin = hold->next, end = hold->n;

	if (end - hold->next > SCOUT__SLICE_CHUNKS)
		end = hold->next + SCOUT__SLICE_CHUNKS;
	for (; hold->next < end; hold->next++)
		give_back_one(s, hold, hold->n - 1 - hold->next);
	if (hold->end == SCOUT__END_COMMIT && hold->weights_gen == hold->ns->weights_gen)
		tell_committed(s, hold, hold->n - end, hold->n - begin);
	if (hold->next < hold->n) {
		scout__run_queue_add(s, item);
	} else if (hold->end == SCOUT__END_QUARANTINE) {
		hold->due_us = s->now_us + s->cfg.dead_writer_ms * UINT64_C(1000);
		scout__list_add(&s->state->quarantine, &hold->of_worker);
		s->state->n_quarantine++;
	} else {
		hold_free(s, hold);
	}
}

void
scout__quarantine_run(struct scout_server *s)
{
	while (!scout__list_empty(&s->state->quarantine)) {
		struct scout__hold *hold = SCOUT__OWNER(s->state->quarantine.next, struct scout__hold, of_worker);

		/* All holds wait equally long, so the first in the list is due first. */
		if (hold->due_us > s->now_us && !s->draining)
			return;
		scout__list_del(&hold->of_worker);
		s->state->n_quarantine--;
		hold->end = SCOUT__END_EXPIRED;
		hold->next = 0;
		hold->part = hold->n_parts - 1;
		scout__run_queue_add(s, &hold->run);
	}
}
