/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fetch.h"
#include "group_walk.h"
#include "list.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "lookup_op.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * LOOKUP in a namespace of several groups, or with features that only these need: which lengths can be restored? With
 * windows and states no run grows chunk by chunk, so nothing is promised before the lengths are known:
 *
 *   SCAN      which objects the pool has
 *   EVALUATE  the lengths of the answer, and the objects that they need
 *   DROP      give back what was promised for another length
 *   PROMISE   what is needed; groups that need little first, groups with policy all last
 *   ASK       if that is not all: one question to L2 about the objects that the pool does not have
 *   FOUND     its answer; then EVALUATE, DROP and PROMISE again
 *   SOON      a lookup ahead that max_promised cut: what comes after counts as used just now (lookup_keep_recent.c)
 *   LOADS     prefetch=before_answer: wait until what was promised has arrived
 *
 * An object that is gone when it is promised, that max_promised does not allow, or that does not arrive, is absent from
 * then on, and the lookup evaluates anew: its answer was promised as a whole at that moment. The rounds end, because
 * each makes objects absent and none present. max_promised cuts a run of policy all; the windows of the shorter length
 * then take the place of those of the longer length.
 *
 * Key polling begins again with SCAN, at the next interval or when the object that ends the expected length is stored.
 *
 * A lookup ahead promises all that is there, in the order of positions over all groups, so max_promised allows the head
 * of the prompt in each group.
 *
 * KEYS takes the same steps, without lengths: each object that is there is wanted, and one that cannot be promised does
 * not affect the others. The answer names objects that are present but not promised, and objects that the budget left
 * unasked (keys.c).
 *
 * When the budget ends, or an ADMIT or RETRIEVE cuts a renewal, the answer is what the session promises by then.
 *
 * Threads: loop.
 */

#define STEP_US 100u

enum stage {
	SCAN = 0,
	EVALUATE,
	DROP,
	PROMISE,
	ASK,
	FOUND,
	SOON,
	LOADS,
	DONE
};

/* The result of one step of a stage. */
enum went {
	NEXT = 1, /* the next stage begins */
	MORE,     /* the slice is used up */
	WAITS,    /* the pending operation sleeps */
	AGAIN     /* an object is absent after all: evaluate anew */
};

SCOUT_ON_LOOP static void
go_to(struct scout__group_walk *walk, enum stage stage)
{
	walk->stage = (uint8_t)stage;
	walk->g = walk->i = 0;
}

/* ---- ending before everything is found ---- */

/* How far a lookup ahead has searched the pool. */
static uint32_t
looked_at(const struct scout__group_walk *walk)
{
	if (walk->stage != PROMISE || walk->i <= walk->skip)
		return walk->stage < PROMISE ? walk->skip : walk->known;
	return walk->i - 1 < walk->known ? walk->i - 1 : walk->known;
}

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__lookup_op *pending)
{
	if (pending->walk->by_key)
		scout__keys_answer(s, pending);
	else
		scout__group_walk_answer(s, pending);
}

/* Answer with what is promised by now. */
SCOUT_ON_LOOP static void
cut_short(struct scout_server *s, struct scout__lookup_op *pending)
{
	scout__ask_drop(s, pending);
	if (pending->ahead && !pending->walk->has_asked)
		pending->walk->known = looked_at(pending->walk);
	if (!pending->walk->by_key)
		scout__group_walk_settle(pending);
	answer(s, pending);
}

void
scout__lookup_groups_cut(struct scout_server *s, struct scout__lookup_op *pending)
{
	cut_short(s, pending);
}

/* ---- stages ---- */

/* The next object of a stage that goes group by group: groups with policy all come last. False: none is left. */
SCOUT_ON_LOOP static bool
next_by_group(const struct scout__lookup_op *pending, uint32_t *ret_g, uint32_t *ret_i)
{
	struct scout__group_walk *walk = pending->walk;

	for (; walk->g < 2 * walk->n_groups; walk->g++, walk->i = 0) {
		uint32_t g = walk->g % walk->n_groups;
		const struct scout__walk_group *wg = &walk->of[g];
		bool is_all = pending->op.ns->groups.group[g].policy == SCOUT_POLICY_ALL;

		if (is_all != (walk->g >= walk->n_groups))
			continue;
		if (walk->i < wg->low)
			walk->i = wg->low;
		if (walk->i < wg->high) {
			*ret_g = g;
			*ret_i = walk->i++;
			return true;
		}
	}
	return false;
}

/* The same by positions: walk.i is a length, and each group whose object ends there has its turn. */
SCOUT_ON_LOOP static bool
next_by_position(const struct scout__lookup_op *pending, uint32_t *ret_g, uint32_t *ret_i)
{
	struct scout__group_walk *walk = pending->walk;

	if (walk->i <= walk->skip)
		walk->i = walk->skip + 1;
	for (; walk->i <= walk->known; walk->i++, walk->g = 0) {
		while (walk->g < walk->n_groups) {
			uint32_t g = walk->g++;

			if (walk->i % walk->of[g].group->stride)
				continue;
			*ret_g = g;
			*ret_i = walk->i / walk->of[g].group->stride - 1;
			return true;
		}
	}
	return false;
}

/* Give back what is promised and no longer wanted. */
SCOUT_ON_LOOP static enum went
drop(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	for (; walk->g < walk->n_groups; walk->g++, walk->i = 0) {
		struct scout__walk_group *wg = &walk->of[walk->g];

		if (wg->n_promised == 0)
			continue;
		for (walk->i = walk->i > wg->from ? walk->i : wg->from; walk->i < wg->n; walk->i++) {
			if (scout__bit(wg->wanted, walk->i) || !scout__group_walk_has(pending, walk->g, walk->i))
				continue;
			if (left-- == 0)
				return MORE;
			scout__kept_hole(&pending->session->of[walk->g], walk->i);
			wg->n_promised--;
		}
	}
	return NEXT;
}

/* Entry @entry, which is promised, is object @i of group @g. */
SCOUT_ON_LOOP static void
note_promised(struct scout_server *s, struct scout__lookup_op *pending, uint32_t g, uint32_t i, uint32_t entry)
{
	struct scout__walk_group *wg = &pending->walk->of[g];
	struct scout__kept *kept = &pending->session->of[g];

	kept->handles[i] = scout__index_handle(wg->group->index, entry);
	kept->n_holes--;
	wg->n_promised++;
	if (scout__index_is_hit(wg->group->index, entry))
		return;
	scout__bit_set(wg->in_l2, i);
	if (s->fetch->load_at_lookup)
		scout__load_want_all(s, wg->group, entry);
}

/* Promise object @i of group @g, which was there a moment ago. */
SCOUT_ON_LOOP static enum scout__asked
promise(struct scout_server *s, struct scout__lookup_op *pending, uint32_t g, uint32_t i)
{
	struct scout__walk_group *wg = &pending->walk->of[g];
	struct scout__chunk_index *index = wg->group->index;
	uint32_t entry = wg->seen[i].entry;
	enum scout__asked what = SCOUT__ASKED_GAP;

	if (entry == SCOUT__NO_ENTRY || !scout__index_valid(index, wg->seen[i]))
		entry = wg->space ? scout__index_find(index, wg->space, scout__group_walk_hash(pending, g, i))
				  : SCOUT__NO_ENTRY;
	if (entry != SCOUT__NO_ENTRY && scout__index_counts(index, entry))
		what = scout__index_promise(index, entry) ? SCOUT__ASKED_TAKEN : SCOUT__ASKED_LIMITED;
	else if (pending->ask && wg->group->expected)
		what = scout__ask_take(s, pending, wg->base + i, &entry);
	if (what != SCOUT__ASKED_TAKEN)
		return what;
	wg->space = index->entries[entry].space;
	note_promised(s, pending, g, i, entry);
	return what;
}

/* Object @i of group @g is absent after all. */
SCOUT_ON_LOOP static void
note_absent(const struct scout__lookup_op *pending, uint32_t g, uint32_t i)
{
	struct scout__walk_group *wg = &pending->walk->of[g];

	scout__bit_clear(wg->present, i);
	scout__bit_clear(wg->wanted, i);
}

SCOUT_ON_LOOP static bool
next_wanted(const struct scout__lookup_op *pending, uint32_t *ret_g, uint32_t *ret_i)
{
	return pending->ahead ? next_by_position(pending, ret_g, ret_i) : next_by_group(pending, ret_g, ret_i);
}

/* Object @i of group @g cannot be promised, as @what says. */
SCOUT_ON_LOOP static enum went
refused(struct scout__lookup_op *pending, uint32_t g, uint32_t i, enum scout__asked what)
{
	struct scout__group_walk *walk = pending->walk;

	if (walk->by_key && what == SCOUT__ASKED_LIMITED) { /* it stays present, and the next object has its turn */
		pending->limited = 1;
		scout__bit_clear(walk->of[g].wanted, i);
		return NEXT;
	}
	note_absent(pending, g, i);
	if (walk->by_key)
		return NEXT;
	if (what == SCOUT__ASKED_LIMITED) {
		pending->limited = 1;
		if (pending->ahead) /* everything before this position is known */
			walk->known = (i + 1) * walk->of[g].group->stride - 1;
		return AGAIN;
	}
	return pending->ahead ? NEXT : AGAIN;
}

SCOUT_ON_LOOP static enum went
promise_some(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	uint64_t end_us = 0;
	uint32_t g, i;

	for (uint32_t left = SCOUT__SLICE_CHUNKS; left > 0; left--) {
		struct scout__group_walk was = {.g = walk->g, .i = walk->i};
		enum scout__asked what;

		if (!next_wanted(pending, &g, &i))
			return NEXT;
		if (!scout__bit(walk->of[g].wanted, i) || !scout__bit(walk->of[g].present, i) ||
		    scout__group_walk_has(pending, g, i))
			continue;
		what = promise(s, pending, g, i);
		if (what == SCOUT__ASKED_WAIT) {
			walk->g = was.g;
			walk->i = was.i;
			return WAITS;
		}
		if (what != SCOUT__ASKED_TAKEN && refused(pending, g, i, what) == AGAIN)
			return AGAIN;
		/* Room for an object may cost page faults. */
		if (end_us == 0)
			end_us = s->now_us + STEP_US;
		if (left % 16 == 0 && scout__now_us() >= end_us)
			break;
	}
	return MORE;
}

/* prefetch=before_answer: wait for what was promised. */
SCOUT_ON_LOOP static enum went
await_loads(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	uint64_t end_us = scout__pending_op_answer_by(&pending->op);
	bool all_came = true;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	for (; left > 0 && walk->g < walk->n_groups; left--) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		struct scout__kept *kept = &pending->session->of[walk->g];
		uint32_t i = walk->i > wg->low ? walk->i : wg->low, entry;

		if (i >= wg->high) {
			walk->g++;
			walk->i = 0;
			continue;
		}
		walk->i = i + 1;
		if (!scout__group_walk_has(pending, walk->g, i))
			continue;
		entry = kept->handles[i].entry;
		if (scout__index_is_hit(wg->group->index, entry))
			continue;
		if (scout__index_counts(wg->group->index, entry) && s->now_us < end_us) {
			walk->i = i;
			scout__chunk_wait(&pending->op, scout__group_walk_hash(pending, walk->g, i));
			scout__timer_set(s, &pending->op.run, end_us);
			return WAITS;
		}
		scout__kept_hole(kept, i);
		wg->n_promised--;
		if (walk->by_key && scout__index_counts(wg->group->index, entry))
			continue; /* it is still on its way: present, and not promised */
		note_absent(pending, walk->g, i);
		all_came = walk->by_key;
	}
	if (!all_came)
		return AGAIN;
	return walk->g < walk->n_groups ? MORE : NEXT;
}

/*
 * The expected length is not there yet. True: it may come, and the pending operation sleeps until the next look at it.
 */
SCOUT_ON_LOOP static bool
sleep_until_poll(struct scout_server *s, struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;
	uint64_t end_us = scout__pending_op_answer_by(&pending->op);
	uint64_t at_us;

	if (end_us > pending->poll_end_us)
		end_us = pending->poll_end_us;
	if (walk->hit >= pending->expect || pending->limited || s->now_us >= end_us)
		return false;
	if (pending->poll_next_us <= s->now_us)
		pending->poll_next_us = s->now_us + pending->poll_interval_us;
	at_us = pending->poll_next_us < end_us ? pending->poll_next_us : end_us;
	scout__ask_drop(s, pending);
	pending->walk->has_asked = false;
	go_to(pending->walk, SCAN);
	scout__chunk_wait(&pending->op,
			  pending->hashes + (size_t)(pending->expect - 1 - walk->first) * pending->op.ns->hash_bytes);
	scout__timer_set(s, &pending->op.run, at_us);
	return true;
}

SCOUT_ON_LOOP static enum went
ask(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	switch (scout__ask_all(s, pending, walk->n_objects, scout__group_walk_count_shards(walk))) {
	case SCOUT__ASKED_MORE:
		return MORE;
	case SCOUT__ASKED_WAIT:
		return WAITS;
	case SCOUT__ASKED_TAKEN:
		walk->is_known = s->now_us < scout__pending_op_answer_by(&pending->op);
		return NEXT;
	default:
		walk->is_known = s->now_us < scout__pending_op_answer_by(&pending->op);
		go_to(walk, LOADS); /* there is no store to ask */
		return MORE;
	}
}

/* Whether all that was asked for is there. */
SCOUT_ON_LOOP static bool
has_all(const struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;

	if (!walk->by_key)
		return walk->hit >= walk->at_most && !pending->ahead;
	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		uint32_t i = 0;

		while (i < wg->n && scout__bit(wg->present, i))
			i += i % 8 == 0 && wg->n - i >= 8 && wg->present[i / 8] == 0xff ? 8 : 1;
		if (i < wg->n)
			return false;
	}
	return true;
}

/* The stage after @walk's. */
SCOUT_ON_LOOP static enum stage
next_stage(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	if (walk->stage == FOUND)
		return EVALUATE;
	if (walk->stage != PROMISE)
		return (enum stage)(walk->stage + 1);
	if (pending->limited && pending->ahead)
		return SOON;
	if (walk->has_asked || (pending->limited && !walk->by_key) || has_all(pending))
		return LOADS;
	walk->has_asked = true;
	return ASK;
}

/* Take one step of the present stage. */
SCOUT_ON_LOOP static enum went
stage_step(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	switch (walk->stage) {
	case SCAN:
		return scout__group_walk_scan(s, pending, SCOUT__SLICE_CHUNKS) ? NEXT : MORE;
	case ASK:
		return ask(s, pending);
	case FOUND:
		return scout__group_walk_take_found(s, pending, SCOUT__SLICE_CHUNKS) ? NEXT : MORE;
	case EVALUATE:
		scout__group_walk_evaluate(pending);
		return NEXT;
	case DROP:
		return drop(pending);
	case PROMISE:
		return promise_some(s, pending);
	case SOON:
		return scout__lookup_keep_recent_groups(s, pending) ? MORE : NEXT;
	case LOADS:
		return s->fetch && s->fetch->load_before_answer ? await_loads(s, pending) : NEXT;
	default:
		return WAITS;
	}
}

/* All that was found is promised: answer, unless more is expected. */
SCOUT_ON_LOOP static void
finish(struct scout_server *s, struct scout__lookup_op *pending)
{
	if (sleep_until_poll(s, pending))
		return;
	scout__ask_drop(s, pending);
	scout__group_walk_trim(s, pending);
	go_to(pending->walk, DONE);
	if (!scout__lookup_is_delayed(s, pending))
		answer(s, pending);
}

SCOUT_ON_LOOP static void
groups_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__lookup_op *pending = SCOUT__OWNER(item, struct scout__lookup_op, op.run);
	struct scout__group_walk *walk = pending->walk;

	scout__list_del(&pending->op.waiting);
	if (pending->op.weights_gen != pending->op.ns->weights_gen) {
		scout__pending_op_refuse(s, &pending->op, pending->op.ns->ended_by, "%s",
					 scout__ns_ended_text(pending->op.ns));
		return;
	}
	scout__timer_clear(s, &pending->op.run);
	if (walk->stage == DONE) {
		answer(s, pending);
		return;
	}
	if (walk->stage == SCAN && scout__records_wait(s, &pending->op))
		return;
	switch (stage_step(s, pending)) {
	case WAITS:
		return;
	case AGAIN:
		go_to(walk, EVALUATE);
		break;
	case NEXT:
		go_to(walk, next_stage(pending));
		break;
	default:
		break;
	}
	if (walk->stage == DONE)
		finish(s, pending);
	else if (s->now_us >= scout__pending_op_answer_by(&pending->op) && walk->stage != LOADS)
		cut_short(s, pending);
	else
		scout__run_queue_add(s, item);
}

SCOUT_ON_LOOP static void
groups_end(struct scout_server *s, struct scout__pending_op *op)
{
	scout__lookup_end(s, op);
	scout__group_walk_free(SCOUT__OWNER(op, struct scout__lookup_op, op)->walk);
}

const struct scout__pending_kind scout__lookup_groups_kind = {sizeof(struct scout__lookup_op), groups_step,
							      scout__lookup_take_back, groups_end};
