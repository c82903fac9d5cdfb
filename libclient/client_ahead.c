/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Lookups ahead, the side of the caller's thread: asked before it is known how many leading tokens the GPU has. The answer says of
 * each chunk whether it is there (lookup_ahead.c), and all that is there is promised. The first scout_try_lookup() settles it: its
 * computed_tokens says from which chunk on a run counts, so a head that was evicted here and is still on the GPU is no miss, and a
 * SETTLE word gives back what is outside of that run. From then on it is an answer like any other.
 *
 * An ahead lookup that failed is that failure for the first ask, and is renewed as such. One from before a restart of a server starts
 * over, like all answers.
 */
#include "client_internal.h"

/* Whether the server has chunk @i; behind what is known: no. */
static bool
is_set(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

/* The end of the run of chunks that begins with @from. Without memory for the map, the leading run is all that is known. */
static uint32_t
run_end(const struct scout__lookup_slot *slot, uint32_t from)
{
	uint32_t end = from;

	if (!slot->present)
		return slot->least > from ? slot->least : from;
	while (end < slot->known) {
		if (end % 8 == 0 && slot->known - end >= 8 && slot->present[end / 8] == 0xff)
			end += 8;
		else if (is_set(slot->present, end))
			end++;
		else
			break;
	}
	return end;
}

static uint32_t
count_l2(const struct scout__lookup_slot *slot, uint32_t from, uint32_t to)
{
	const uint8_t *in_l2 = slot->present + (slot->n + 7) / 8;
	uint32_t n = 0;

	for (uint32_t i = from; slot->present && i < to; i++)
		n += is_set(in_l2, i);
	return n;
}

void
scout__ahead_settle(struct scout_client *client, uint32_t i, uint64_t computed_tokens)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t chunk_tokens = client->cfg.chunk_tokens, tokens;
	uint32_t from, to;

	slot->ahead = false;
	from = computed_tokens / chunk_tokens < slot->n ? (uint32_t)(computed_tokens / chunk_tokens) : slot->n;
	slot->skip = from;
	if (slot->hit.error != 0)
		return;
	to = run_end(slot, from);
	tokens = to * chunk_tokens;
	slot->settle_from = from;
	slot->settle_to = to;
	slot->settle_l2 = count_l2(slot, from, to);
	slot->hit.tokens = tokens < slot->prompt_tokens ? tokens : slot->prompt_tokens - 1;
	slot->hit.chunks = to;
	slot->hit.l2_chunks = slot->settle_l2;
	slot->hit.l1_chunks = to - from - slot->settle_l2;
	slot->hit.reason = slot->known_limited && to >= slot->known ? SCOUT_REASON_LIMITED
			   : to > 0                                 ? SCOUT_REASON_HIT
								    : SCOUT_REASON_MISS;
	client->stats.hits += to > 0;
	client->stats.hit_tokens += slot->hit.tokens;
	scout__client_push(client, SCOUT__WORD(SCOUT__JOB_SETTLE, i));
}
