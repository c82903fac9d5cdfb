/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"
#include "ns.h"
#include "ops_internal.h"
#include "pending_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * What a request waits for is a free hint: it will be asked for soon. A lookup ahead promises it, but only within
 * max_promised, so that waiting requests never pin the whole pool. The chunks behind that limit count as used just now:
 * each becomes the newest of its queue, from the last one to the first, so that the head of the prompt goes last. They
 * can still be evicted, and the eviction policy learns nothing from it: the request may be cancelled.
 *
 * Of several groups, those with policy all have their objects renewed up to where all of them reach, and the others what
 * the length there needs: that is what the request would load.
 *
 * The walk over them is the second part of the lookup's, in slices, from the end. A slice renews what it finds up to
 * its first hole: chunks behind a hole are seldom of use.
 *
 * Threads: loop.
 */

bool
scout__lookup_soon(struct scout_server *s, struct scout__pending_op *pending)
{
	uint32_t n = pending->soon_to - pending->next;

	if (n > SCOUT__SOON)
		n = SCOUT__SOON;
	pending->soon_to -= n;
	s->count.soon_chunks +=
		scout__index_soon(pending->group->index, pending->space,
				  pending->hashes + (size_t)pending->soon_to * pending->ns->hash_bytes, n);
	return pending->soon_to > pending->next;
}

/* The objects of group @g behind what was promised that the request would load. */
SCOUT_ON_LOOP static struct scout__need
soon_of(const struct scout__pending_op *pending, uint32_t g)
{
	const struct scout__many *many = pending->many;
	const struct scout__many_group *mg = &many->of[g];
	const struct scout__group *said = &pending->ns->groups.group[g];
	uint32_t length = many->parting < many->at_most ? many->parting : many->at_most;
	uint32_t promised = many->known / mg->group->stride;
	struct scout__need need = {promised, many->parting / mg->group->stride};

	if (said->policy == SCOUT_POLICY_STATE)
		length -= length % mg->group->stride;
	if (said->policy != SCOUT_POLICY_ALL)
		need = scout__many_need(many, mg, length);
	need.from = need.from > promised ? need.from : promised;
	need.to = need.to < mg->n ? need.to : mg->n;
	return need;
}

bool
scout__lookup_soon_groups(struct scout_server *s, struct scout__pending_op *pending)
{
	struct scout__many *many = pending->many;

	/* many.i counts from the end of the group: the head goes last. */
	for (uint32_t left = SCOUT__SOON; many->g < many->n_groups; many->g++, many->i = 0) {
		const struct scout__many_group *mg = &many->of[many->g];
		struct scout__need need = soon_of(pending, many->g);

		for (; mg->group->index && need.from + many->i < need.to; many->i++) {
			struct scout__handle seen = mg->seen[need.to - 1 - many->i];

			if (left-- == 0)
				return true;
			if (seen.entry != SCOUT__NO_ENTRY && scout__index_valid(mg->group->index, seen))
				s->count.soon_chunks += scout__index_soon_entry(mg->group->index, seen.entry);
		}
	}
	return false;
}
