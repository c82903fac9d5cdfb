/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"
#include "ns.h"
#include "ops_internal.h"
#include "lookup_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * A waiting request is a free hint: it will soon ask for its chunks. A lookup ahead promises them, but only within
 * max_promised, so that waiting requests never pin the whole pool. The chunks after that limit count as used just now:
 * each becomes the newest of its queue, from the last one to the first, so that the head of the prompt is evicted last.
 * They can still be evicted, and the eviction policy learns nothing from this: the request may be cancelled.
 *
 * With several groups, a group with policy all has its objects renewed up to where all such groups reach, and any other
 * group has the objects renewed that the length there needs: the request would load these.
 *
 * The walk over these chunks is the second part of the lookup's walk, in slices, from the end. A slice renews what it
 * finds up to its first hole: chunks after a hole are seldom of use.
 *
 * Threads: loop.
 */

bool
scout__lookup_keep_recent(struct scout_server *s, struct scout__lookup_op *pending)
{
	uint32_t n = pending->keep_recent_to - pending->next;

	if (n > SCOUT__KEEP_RECENT)
		n = SCOUT__KEEP_RECENT;
	pending->keep_recent_to -= n;
	s->count.lookups_kept_recent_chunks += scout__index_keep_recent(
		pending->group->index, pending->space,
		pending->hashes + (size_t)pending->keep_recent_to * pending->op.ns->hash_bytes, n);
	return pending->keep_recent_to > pending->next;
}

/* The objects of group @g that the request would load, after what was promised. */
SCOUT_ON_LOOP static struct scout__need
keep_recent_of(const struct scout__lookup_op *pending, uint32_t g)
{
	const struct scout__group_walk *walk = pending->walk;
	const struct scout__walk_group *wg = &walk->of[g];
	const struct scout__group *said = &pending->op.ns->groups.group[g];
	uint32_t length = walk->diverges_at < walk->at_most ? walk->diverges_at : walk->at_most;
	uint32_t promised = walk->known / wg->group->stride;
	struct scout__need need = {promised, walk->diverges_at / wg->group->stride};

	if (said->policy == SCOUT_POLICY_STATE)
		length -= length % wg->group->stride;
	if (said->policy != SCOUT_POLICY_ALL)
		need = scout__group_walk_need(walk, wg, length);
	need.from = need.from > promised ? need.from : promised;
	need.to = need.to < wg->n ? need.to : wg->n;
	return need;
}

bool
scout__lookup_keep_recent_groups(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	/* walk.i counts from the end of the group: the head comes last. */
	for (uint32_t left = SCOUT__KEEP_RECENT; walk->g < walk->n_groups; walk->g++, walk->i = 0) {
		const struct scout__walk_group *wg = &walk->of[walk->g];
		struct scout__need need = keep_recent_of(pending, walk->g);

		for (; wg->group->index && need.from + walk->i < need.to; walk->i++) {
			struct scout__handle seen = wg->seen[need.to - 1 - walk->i];

			if (left-- == 0)
				return true;
			if (seen.entry != SCOUT__NO_ENTRY && scout__index_valid(wg->group->index, seen))
				s->count.lookups_kept_recent_chunks +=
					scout__index_keep_recent_entry(wg->group->index, seen.entry);
		}
	}
	return false;
}
