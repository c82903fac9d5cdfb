/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fetch.h"
#include "group_walk.h"
#include "list.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "lookup_op.h"
#include "peer_share.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * LOOKUP in a namespace of several groups, or with features that only these need: which lengths can be restored? With
 * windows and states no run grows chunk by chunk, so nothing is promised before the lengths are known:
 *
 *   OPEN      what the session keeps: holes, at first
 *   SCAN      which objects the pool has
 *   EVALUATE  the lengths of the answer
 *   WANT      the objects that they need
 *   DROP      give back what was promised for another length
 *   PROMISE   what is needed; groups that need little first, groups with policy all last
 *   ASK       if that is not all: one question to L2 about the objects that the pool does not have
 *   FOUND     its answer; then EVALUATE, WANT, DROP and PROMISE again
 *   SOON      a lookup ahead that max_promised cut: what comes after counts as used just now (lookup_keep_recent.c)
 *   LOADS     prefetch=before_answer: wait until what was promised has arrived
 *   TRIM      the session gives back the room that it does not need
 *
 * One step of the run queue takes as many stages as SCOUT__WORK_STEP allows: a short lookup takes one step, and a step of
 * the longest lookup takes no longer.
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
	OPEN = 0,
	SCAN,
	EVALUATE,
	WANT,
	DROP,
	PROMISE,
	ASK,
	FOUND,
	SOON,
	LOADS,
	TRIM,
	DONE
};

/* The result of one step of a stage. */
enum went {
	NEXT = 1, /* the next stage begins */
	MORE,     /* the step is used up */
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

/*
 * The next object that is wanted and not promised, of a stage that goes group by group: groups with policy all come
 * last. False: there is none, or the step is used up (walk.left is 0).
 */
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
		walk->i = scout__bits_next(wg->wanted, wg->promised, walk->i > wg->low ? walk->i : wg->low, wg->high);
		if (walk->i < wg->high) {
			*ret_g = g;
			*ret_i = walk->i++;
			return true;
		}
		if (!scout__work(walk, wg->n / 64 + 1)) {
			walk->g++;
			walk->i = 0;
			return false;
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
			uint32_t g = walk->g++, i = walk->i / walk->of[g].group->stride - 1;

			if (walk->i % walk->of[g].group->stride == 0 && scout__bit(walk->of[g].wanted, i) &&
			    !scout__bit(walk->of[g].promised, i)) {
				*ret_g = g;
				*ret_i = i;
				return true;
			}
			if (!scout__work(walk, 1))
				return false;
		}
	}
	return false;
}

/* Give back what is promised and no longer wanted. */
SCOUT_ON_LOOP static enum went
drop(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	while (walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		uint32_t from = walk->i > wg->from ? walk->i : wg->from;

		while ((walk->i = scout__bits_next(wg->promised, wg->wanted, from, wg->n)) < wg->n) {
			if (!scout__work(walk, SCOUT__WORK_OBJECT))
				return MORE;
			scout__kept_hole(&pending->session->of[walk->g], walk->i);
			scout__bit_clear(wg->promised, walk->i);
			from = walk->i + 1;
		}
		walk->g++;
		walk->i = 0;
		if (!scout__work(walk, wg->n / 16 + 1))
			return MORE;
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
	scout__index_take_share(wg->group->index);
	scout__kept_promised(kept, 1);
	scout__bit_set(wg->promised, i);
	if (scout__index_is_hit(wg->group->index, entry))
		return;
	scout__bit_set(wg->in_l2, i);
	if (pending->loads)
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

	for (uint32_t n = 1; walk->left > 0; n++) {
		struct scout__group_walk was = {.g = walk->g, .i = walk->i};
		enum scout__asked what;

		if (!next_wanted(pending, &g, &i))
			return walk->left > 0 ? NEXT : MORE;
		(void)scout__work(walk, SCOUT__WORK_OBJECT);
		if (!scout__bit(walk->of[g].present, i))
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
		if (n % 16 == 0 && scout__now_us() >= end_us)
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

	while (scout__work(walk, SCOUT__WORK_OBJECT) && walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		struct scout__kept *kept = &pending->session->of[walk->g];
		uint32_t i = walk->i > wg->low ? walk->i : wg->low, entry;

		i = scout__bits_next(wg->promised, NULL, i, wg->high);
		if (i >= wg->high) {
			walk->g++;
			walk->i = 0;
			continue;
		}
		walk->i = i + 1;
		entry = kept->handles[i].entry;
		if (scout__index_is_hit(wg->group->index, entry))
			continue;
		if (scout__index_counts(wg->group->index, entry) && s->now_us < end_us) {
			if (!all_came)
				return AGAIN; /* what is absent may leave no need for it */
			walk->i = i;
			scout__chunk_wait(&pending->op, scout__group_walk_hash(pending, walk->g, i));
			scout__timer_set(s, &pending->op.run, end_us);
			return WAITS;
		}
		scout__kept_hole(kept, i);
		scout__bit_clear(wg->promised, i);
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
	struct scout__group_walk *walk = pending->walk;

	if (walk->hit >= pending->expect ||
	    !scout__lookup_sleep_until_poll(s, pending,
					    pending->hashes + (size_t)(pending->expect - 1 - walk->first) *
								      pending->op.ns->hash_bytes))
		return false;
	scout__ask_drop(s, pending);
	walk->has_asked = false;
	go_to(walk, SCAN);
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
	for (uint32_t g = 0; g < walk->n_groups; g++)
		if (scout__bits_next_clear(walk->of[g].present, 0, walk->of[g].n) < walk->of[g].n)
			return false;
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
	case OPEN:
		return scout__group_walk_open(pending) ? NEXT : MORE;
	case SCAN:
		return scout__group_walk_scan(s, pending) ? NEXT : MORE;
	case ASK:
		return ask(s, pending);
	case FOUND:
		return scout__group_walk_take_found(s, pending) ? NEXT : MORE;
	case EVALUATE:
		return scout__group_walk_evaluate(pending) ? NEXT : MORE;
	case WANT:
		return scout__group_walk_want(pending) ? NEXT : MORE;
	case DROP:
		return drop(pending);
	case PROMISE:
		return promise_some(s, pending);
	case SOON:
		return scout__lookup_keep_recent_groups(s, pending) ? MORE : NEXT;
	case LOADS:
		return s->fetch && s->fetch->load_before_answer ? await_loads(s, pending) : NEXT;
	case TRIM:
		return scout__group_walk_trim(s, pending) ? NEXT : MORE;
	default:
		return WAITS;
	}
}

/* Take the stages that fit into one step. WAITS: the pending operation sleeps. */
SCOUT_ON_LOOP static enum went
stages(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	enum went went = NEXT;

	walk->left = SCOUT__WORK_STEP;
	while (went != MORE && walk->left > 0 && walk->stage != DONE) {
		went = stage_step(s, pending);
		if (went == WAITS)
			return WAITS;
		if (went == NEXT && walk->stage == LOADS && sleep_until_poll(s, pending))
			return WAITS;
		if (went == AGAIN)
			go_to(walk, EVALUATE);
		else if (went == NEXT)
			go_to(walk, next_stage(pending));
	}
	return MORE;
}

SCOUT_ON_LOOP static void
groups_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__lookup_op *pending = SCOUT__OWNER(item, struct scout__lookup_op, op.run);
	struct scout__group_walk *walk = pending->walk;

	scout__list_del(&pending->op.waiting);
	scout__peer_share_promises(s, pending->op.peer);
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
	if (walk->stage <= SCAN && scout__records_wait(s, &pending->op))
		return;
	if (stages(s, pending) == WAITS)
		return;
	if (walk->stage == DONE) {
		scout__ask_drop(s, pending);
		if (!scout__lookup_is_delayed(s, pending))
			answer(s, pending);
	} else if (s->now_us >= scout__pending_op_answer_by(&pending->op) && walk->stage != LOADS) {
		cut_short(s, pending);
	} else {
		scout__run_queue_add(s, item);
	}
}

SCOUT_ON_LOOP static void
groups_end(struct scout_server *s, struct scout__pending_op *op)
{
	scout__lookup_end(s, op);
	scout__group_walk_free(s, SCOUT__OWNER(op, struct scout__lookup_op, op)->walk);
}

const struct scout__pending_kind scout__lookup_groups_kind = {sizeof(struct scout__lookup_op), groups_step,
							      scout__lookup_take_back, groups_end};
