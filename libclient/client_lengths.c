/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The lengths of an answer, and admitting one of them, on the caller's thread.
 *
 * Where all groups have policy `all`, any part of a hit can be restored that ends where objects of all of them end: what is shorter
 * follows from the longest length, a token count is rounded down to one, and the answer may be one token short of its last object.
 * Windows and states are there for their own length only: such an answer knows its longest length and those that want_lengths asked
 * for, and any other one is refused, for nothing promises what it needs.
 */
#include "client_internal.h"

uint32_t
scout__slot_hit(const struct scout_client *client, const struct scout__lookup_slot *slot)
{
	uint32_t hash_tokens = client->cfg.hash_tokens, hit;

	if (client->is_plain && hash_tokens == client->cfg.chunk_tokens)
		return slot->hit.chunks;
	hit = (uint32_t)((slot->hit.tokens + hash_tokens - 1) / hash_tokens);
	/* With a hash for each token, the token that is left to compute is a whole hash of the last object. */
	if (client->is_run && hash_tokens == 1 && hit % client->stride != 0 && (hit + 1) % client->stride == 0 &&
	    hit + UINT64_C(1) == slot->prompt_tokens)
		hit++;
	return hit;
}

int
scout__client_answered(const struct scout_client *client, const char *id, uint32_t *ret_slot)
{
	const struct scout__lookup_slot *slot;
	size_t len;
	uint32_t i;

	if (!scout__id_ok(id, &len))
		return SCOUT_ERR_REQUEST_ID;
	i = scout__table_find(client, id, len, scout__id_hash(id, len));
	if (i == SCOUT__NO_SLOT)
		return SCOUT_ERR_STATE;
	slot = &client->slots[i];
	if (slot->admitted || slot->is_keys || slot->ahead ||
	    atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__PENDING)
		return SCOUT_ERR_STATE;
	*ret_slot = i;
	return 0;
}

/* ---- lengths ---- */

static int
lengths_of(const struct scout_client *client, const char *id, uint64_t *ret_tokens, size_t n)
{
	const struct scout__lookup_slot *slot;
	uint64_t hash_tokens = client->cfg.hash_tokens;
	size_t known = 1;
	uint32_t i, hit;
	int rc = scout__client_answered(client, id, &i);

	if (rc)
		return rc;
	slot = &client->slots[i];
	if (n == 0 || slot->hit.tokens == 0)
		return 0;
	ret_tokens[0] = slot->hit.tokens;
	n = n < slot->want ? n : slot->want;
	hit = scout__slot_hit(client, slot);
	if (client->is_run)
		/* What is not behind the part that the GPU has is no length of the answer, nor is its longest one once more. */
		while (known < n && hit > client->stride && hit - client->stride > slot->skip) {
			hit -= client->stride;
			if (hit * hash_tokens < slot->hit.tokens)
				ret_tokens[known++] = hit * hash_tokens;
		}
	else
		for (; known < n && known <= slot->n_lengths; known++)
			ret_tokens[known] = slot->lengths[known - 1] * hash_tokens;
	return (int)known;
}

int
scout_lookup_lengths(struct scout_client *client, const char *id, uint64_t *ret_tokens, size_t n)
{
	if (!client || (n > 0 && !ret_tokens))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	scout__client_enter(client);
	return scout__client_leave(client, lengths_of(client, id, ret_tokens, n));
}

/* ---- admit ---- */

/*
 * One end of an admitted range, in tokens: negative counts from the end of the hit, values beyond it are clamped, and the token
 * count that was reported (which may be one short of the last object's end) means the end.
 */
static uint64_t
clamp_token(const struct scout_hit *hit, int64_t token, uint64_t end)
{
	if (token < 0)
		return (uint64_t) - (token + 1) + 1 >= end ? 0 : end - (uint64_t)-token;
	return (uint64_t)token >= hit->tokens ? end : (uint64_t)token;
}

/* Whether the answer says that @length can be restored. */
static bool
is_told(const struct scout__lookup_slot *slot, uint32_t hit, uint32_t length)
{
	if (length == hit)
		return true;
	for (uint32_t i = 0; i < slot->n_lengths; i++)
		if (slot->lengths[i] == length)
			return true;
	return false;
}

static int
admit(struct scout_client *client, const char *id, int64_t from_token, int64_t to_token)
{
	uint32_t hash_tokens = client->cfg.hash_tokens, i, hit;
	int rc = scout__client_answered(client, id, &i);
	struct scout__lookup_slot *slot;
	uint64_t from, to;

	if (rc)
		return rc;
	slot = &client->slots[i];
	hit = scout__slot_hit(client, slot);
	from = clamp_token(&slot->hit, from_token, (uint64_t)hit * hash_tokens);
	to = clamp_token(&slot->hit, to_token, (uint64_t)hit * hash_tokens);
	/* Of windows and states only what was promised can be had; an empty range gives back all. */
	if (!client->is_run && from < to &&
	    (to % hash_tokens != 0 || !is_told(slot, hit, (uint32_t)(to / hash_tokens))))
		return SCOUT_ERR_NOT_RESTORABLE;
	scout__renew_forget(client, slot);
	/* A retrieve starts at a block, anywhere in an object, and needs that whole object: only the end is rounded inwards. */
	slot->admit_from = (uint32_t)(from / hash_tokens);
	slot->admit_to = (uint32_t)(to / hash_tokens);
	if (client->is_run && slot->admit_to < hit)
		slot->admit_to -= slot->admit_to % client->stride;
	slot->admitted = true;
	if (slot->submitted)
		scout__client_push(client, SCOUT__WORD(SCOUT__WORD_ADMIT, i));
	return 0;
}

int
scout_admit(struct scout_client *client, const char *id, int64_t from_token, int64_t to_token)
{
	if (!client)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	scout__client_enter(client);
	return scout__client_leave(client, admit(client, id, from_token, to_token));
}
