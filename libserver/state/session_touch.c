/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ns.h"
#include "session.h"

/*
 * DESIGN
 *
 * What the end of a request says about its objects. In a group with policy all, every object counts as used: whatever
 * continues this prompt needs all of them. A window, a local or a state group is needed at its lengths only, and a
 * prompt that goes on no longer needs most of what it stored. So the unneeded objects of these groups are marked and
 * leave first (chunk_index_unneeded.c). In this order, of what the session found and then stored, it needs
 *
 *   - the last objects, as many as two lengths can need that share no object: a request that continues this one goes
 *     on here, or shortly before, if its text differs from the end of what was stored,
 *   - as many of the objects stored up to where the prompt leaves what others have stored (the divergence): two prompts
 *     have this beginning in common now, and a third one may; this counts as having been needed,
 *   - objects that it found and that two requests have needed by now, this one included: several share this beginning.
 *
 * A request does not judge what another request has stored meanwhile (PRESENT).
 *
 * LOOKUP knows where the prompt diverges: all groups with policy all have their objects up to there, and the hit is
 * shorter. STORE carries hashes and no positions, so the session notes the beginning of the hash at the divergence.
 *
 * Rejected: to ask for each object whether some restorable length needs it. As long as a whole window is there, each of
 * its objects has such a length; what counts is that nothing will ask for it.
 *
 * Threads: loop.
 */

#define SHARED 2u /* requests that needed an object: it is shared */

static uint32_t
objects(uint64_t tokens, uint32_t unit_tokens)
{
	return (uint32_t)((tokens + unit_tokens - 1) / unit_tokens);
}

uint32_t
scout__kept_needs(const struct scout__ns_group *group)
{
	const struct scout__group *said = &group->ns->groups.group[group->number];
	uint32_t margin = objects(said->margin_tokens, said->unit_tokens);

	switch (said->policy) {
	case SCOUT_POLICY_WINDOW:
	case SCOUT_POLICY_LOCAL:
		/* One more if a length may end within an object. */
		return objects(said->span_tokens - UINT64_C(1), said->unit_tokens) + margin + (group->stride > 1);
	case SCOUT_POLICY_STATE:
		return 1 + margin;
	default:
		return UINT32_MAX;
	}
}

static uint64_t
beginning_of(const uint8_t *hash)
{
	uint64_t beginning;

	memcpy(&beginning, hash, sizeof(beginning));
	return beginning;
}

void
scout__kept_parts(struct scout__kept *kept, const uint8_t *hash)
{
	kept->diverges_hash = beginning_of(hash);
}

bool
scout__kept_diverges_at(const struct scout__kept *kept, uint32_t entry)
{
	return beginning_of(kept->group->index->entries[entry].hash) == kept->diverges_hash;
}

void
scout__kept_forget(struct scout__kept *kept, uint32_t i)
{
	if (kept->needs != UINT32_MAX)
		kept->handles[i].entry = SCOUT__NO_ENTRY;
}

void
scout__touch_stored(const struct scout__session *session, struct scout__kept *kept, uint32_t i,
		    struct scout__handle handle, bool present)
{
	struct scout__chunk_index *index = kept->group->index;
	bool is_divergence = i < kept->diverges_at && kept->diverges_at - i <= kept->needs;
	bool is_last = kept->n_behind++ / SCOUT__LENGTHS < kept->needs;

	if (handle.entry == SCOUT__NO_ENTRY || !scout__index_valid(index, handle))
		return;
	if (is_divergence)
		(void)scout__index_needed(index, handle.entry);
	if (is_divergence || is_last)
		scout__kept_touch(session, kept, handle, present ? SCOUT__ACCESS_READ : SCOUT__ACCESS_STORED);
	else if (!present)
		scout__index_unneeded(index, handle.entry);
}

void
scout__touch_found(const struct scout__session *session, struct scout__kept *kept, struct scout__handle handle)
{
	struct scout__chunk_index *index = kept->group->index;
	bool is_last = kept->n_behind / SCOUT__LENGTHS < kept->needs;

	if (handle.entry == SCOUT__NO_ENTRY || !scout__index_valid(index, handle))
		return;
	kept->n_behind++;
	if (scout__index_needed(index, handle.entry) >= SHARED || is_last)
		scout__kept_touch(session, kept, handle, SCOUT__ACCESS_READ);
	else
		scout__index_unneeded(index, handle.entry);
}
