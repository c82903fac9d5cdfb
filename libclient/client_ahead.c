/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Lookups ahead, the side of the caller's thread: asked before it is known how many leading tokens the GPU has. The answer says of
 * each object whether it is there (lookup_ahead.c), and all that is there is promised. The first scout_try_lookup() settles it: its
 * computed_tokens says what the GPU has, so a head that was evicted here and is still on the GPU is no miss, the lengths are found by
 * the rules of restorable.h, and a SETTLE word gives back what the longest one does not need (but not where the caller wants to hear of
 * others, too: then its admit does). From then on it is an answer like any other.
 *
 * Several servers that hold windows or states are always asked in this way: which lengths all of them can restore follows from which
 * objects each has, and from nothing less.
 *
 * An ahead lookup that failed is that failure for the first ask, and is renewed as such. One from before a restart of a server starts
 * over, like all answers.
 */
#include "client_internal.h"

#include "restorable.h"

/*
 * The longest length from @from on, and into slot->lengths those below it that the caller wants to hear of. Without memory for the
 * maps, the leading run is all that is known, or the longest length of the only server.
 */
static uint32_t
find_lengths(const struct scout_client *client, struct scout__lookup_slot *slot, uint32_t from)
{
	struct scout__presence presence[SCOUT__GROUPS_MAX];
	struct scout__restorable walk;
	uint32_t length, n = slot->lengths ? slot->want - 1u : 0;

	slot->n_lengths = 0;
	if (!slot->present) {
		/* The shortest of several servers' lengths need not be one of the others. */
		bool is_told = client->is_run || client->n_links == 1;

		return is_told && slot->least > from && slot->least <= slot->at_most ? slot->least : from;
	}
	for (uint32_t g = 0; g < client->groups.n; g++) {
		size_t bytes, at = scout__present_at(client, slot, g, &bytes);

		presence[g].bits = slot->present + at;
		presence[g].n = (uint32_t)((uint64_t)slot->known * client->cfg.hash_tokens /
					   client->groups.group[g].unit_tokens);
	}
	scout__restorable_init(&walk, &client->groups, client->cfg.hash_tokens, presence, from);
	length = scout__restorable_next(&walk, slot->at_most < slot->known ? slot->at_most : slot->known);
	if (length < from)
		return from;
	for (uint32_t below = length; below > from && slot->n_lengths < n;) {
		below = scout__restorable_next(&walk, below - 1);
		if (below > from)
			slot->lengths[slot->n_lengths++] = below;
	}
	return length;
}

/* Objects that a restore of [@from, @to) reads, and how many of them are in L2 only. A restore of nothing reads none,
   although the object in which @from lies may not be there. */
static uint32_t
count_objects(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t from, uint32_t to,
	      uint32_t *ret_l2)
{
	uint32_t n = 0, l2 = 0;

	for (uint32_t g = 0; slot->present && from < to && g < client->groups.n; g++) {
		size_t bytes, at = scout__present_at(client, slot, g, &bytes);
		const uint8_t *in_l2 = slot->present + at + bytes;
		struct scout__need need;

		if (!scout__need_of(&client->groups.group[g], client->cfg.hash_tokens, from, to, &need))
			continue;
		n += need.to - need.from;
		for (uint32_t i = need.from; i < need.to; i++)
			l2 += in_l2[i / 8] >> i % 8 & 1;
	}
	*ret_l2 = l2;
	return slot->present ? n : to - from;
}

void
scout__request_settle(struct scout_client *client, uint32_t i, uint64_t computed_tokens)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t hash_tokens = client->cfg.hash_tokens, tokens;
	uint32_t from, to, n;

	slot->ahead = false;
	from = computed_tokens / hash_tokens < slot->at_most ? (uint32_t)(computed_tokens / hash_tokens)
							     : slot->at_most;
	from = from > slot->first ? from : slot->first;
	slot->skip = from;
	if (slot->hit.error != 0)
		return;
	to = find_lengths(client, slot, from);
	tokens = to * hash_tokens;
	n = count_objects(client, slot, from, to, &slot->settle_l2);
	slot->settle_from = from;
	slot->settle_to = to;
	/* The other lengths need what is promised. */
	slot->settle_keeps = slot->n_lengths > 0;
	slot->hit.tokens = tokens < slot->prompt_tokens ? tokens : slot->prompt_tokens - 1;
	slot->hit.chunks = (uint32_t)(tokens / client->cfg.chunk_tokens);
	slot->hit.l2_chunks = slot->settle_l2;
	slot->hit.l1_chunks = n - slot->settle_l2;
	slot->hit.reason = slot->known_limited && to >= slot->known ? SCOUT_REASON_LIMITED
			   : to > 0                                 ? SCOUT_REASON_HIT
								    : SCOUT_REASON_MISS;
	client->stats.hits += to > 0;
	client->stats.hit_tokens += slot->hit.tokens;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_SETTLE, i));
}
