/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Questions for keys, on the caller's thread. They use the slot table, the deadlines and the path to the courier of
 * lookups. They differ in the question, which names objects by group, and in the answer, which has a state for each
 * key.
 *
 * The message names the keys group by group (protocol.h, KEYS). The caller's order may differ, and is not kept: the
 * keys are sorted by group as they are copied into the arena. The caller passes them again to read the answer, and they
 * are sorted in the same way once more. Nothing is allocated here.
 *
 * Keys are no chain, so the last key does not stand for all. A pending question is recognised by number, tenant and
 * last key, which is cheap. Before states are written, a digest of all keys is compared: states of other keys could
 * be taken for hits.
 */
#include "client_internal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client_checked.h"
#include "sized.h"

_Static_assert(SCOUT_KEYS_MAX == SCOUT_MAX_KEYS, "the limit of the protocol");

/* How many keys each group has, and where its first key is in the message. */
struct order {
	uint32_t n[SCOUT__GROUPS_MAX];
	uint32_t begin[SCOUT__GROUPS_MAX];
	uint32_t n_parts; /* how many groups have a key */
};

static uint32_t
group_at(const struct scout_key_query *q, size_t i)
{
	return q->groups ? q->groups[i] : 0;
}

/* Returns 0, SCOUT_ERR_GROUP, or SCOUT_ERR_KEY_COUNT: a retrieve could not name the last key of a group. */
static int
order_of(const struct scout_client *client, const struct scout_key_query *q, struct order *ret)
{
	struct order order = {.n_parts = 0};
	uint32_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		uint32_t g = group_at(q, i);

		if (g >= client->groups.n)
			return SCOUT_ERR_GROUP;
		order.n[g]++;
	}
	for (uint32_t g = 0; g < client->groups.n; g++) {
		uint64_t unit_tokens = client->groups.group[g].unit_tokens;

		if (order.n[g] * unit_tokens > (uint64_t)SCOUT_MAX_CHUNKS * client->cfg.hash_tokens)
			return SCOUT_ERR_KEY_COUNT;
		order.begin[g] = n;
		order.n_parts += order.n[g] > 0;
		n += order.n[g];
	}
	*ret = order;
	return 0;
}

static size_t
arena_bytes_of(const struct scout_key_query *q, uint32_t n_parts)
{
	return n_parts * sizeof(struct scout__keys_part) + q->n * q->hash_len;
}

/* Copy the parts, then the hashes, as lookup_answer.c reads them. */
static void
copy_keys(const struct scout_client *client, const struct scout_key_query *q, struct order *order, uint8_t *to)
{
	struct scout__keys_part *parts = (struct scout__keys_part *)(void *)to; /* regions are aligned */
	uint8_t *hashes = to + order->n_parts * sizeof(*parts);

	for (uint32_t g = 0, part = 0; g < client->groups.n; g++)
		if (order->n[g])
			parts[part++] = (struct scout__keys_part){g, order->n[g]};
	if (order->n_parts == 1) {
		memcpy(hashes, q->hashes, q->n * q->hash_len);
		return;
	}
	for (size_t i = 0; i < q->n; i++)
		memcpy(hashes + order->begin[q->groups[i]]++ * q->hash_len,
		       (const uint8_t *)q->hashes + i * q->hash_len, q->hash_len);
}

static uint64_t
digest_of(const struct scout_key_query *q)
{
	uint64_t groups = q->groups ? XXH3_64bits(q->groups, q->n * sizeof(*q->groups)) : 0;

	return XXH3_64bits_withSeed(q->hashes, q->n * q->hash_len, groups);
}

static const uint8_t *
last_key(const struct scout_key_query *q)
{
	return (const uint8_t *)q->hashes + (q->n - 1) * q->hash_len;
}

/* ---- asking ---- */

static int
begin(const struct scout_client *client, const struct scout_key_query *q, struct scout__checked *ret)
{
	int rc = scout__ask_begin(client, q->id, q->tenant, q->hash_len, ret);

	if (rc != 0)
		return rc;
	if (q->n == 0 || q->n > SCOUT_KEYS_MAX ||
	    !scout__arena_can_hold(&client->arena, arena_bytes_of(q, client->groups.n)))
		return SCOUT_ERR_KEY_COUNT;
	return q->hashes && q->timeout_ms <= SCOUT_LOOKUP_TIMEOUT_MAX_MS ? 0 : SCOUT_ERR_INVALID;
}

static void
fill_slot(const struct scout_client *client, struct scout__lookup_slot *slot, const struct scout_key_query *q,
	  uint32_t n_parts)
{
	uint32_t timeout_ms = client->cfg.lookup_timeout_ms;

	slot->terms.first = slot->terms.at_most = slot->question.skip = slot->terms.expect = 0;
	slot->question.n = (uint32_t)q->n;
	slot->question.want = 1;
	slot->terms.timeout_ms = (q->timeout_ms > timeout_ms ? q->timeout_ms : timeout_ms) & INT32_MAX;
	slot->terms.loads = 0;
	slot->terms.prompt_tokens = 0;
	memcpy(slot->question.last_hash, last_key(q), q->hash_len);
	slot->question.n_parts = (uint8_t)n_parts;
	slot->terms.keys_digest = digest_of(q);
}

/* Ask for keys under a new id. Returns SCOUT_NOT_YET; 0: a server is known to be gone, and the slot says so; or an error. */
static int
ask_anew(struct scout_client *client, const struct scout_key_query *q, const struct scout__checked *checked,
	 uint32_t *ret_slot)
{
	unsigned down = atomic_load_explicit(&client->down, memory_order_relaxed);
	struct scout__lookup_slot *slot;
	struct order order;
	int rc = order_of(client, q, &order);

	if (rc == 0)
		rc = scout__slot_open(client, checked, down ? 0 : arena_bytes_of(q, order.n_parts), ret_slot);
	if (rc != 0)
		return rc;
	slot = &client->slots[*ret_slot];
	fill_slot(client, slot, q, order.n_parts);
	client->stats.lookups++;
	client->stats.asked_keys += q->n;
	if (down) {
		scout__answer_unreachable(client, slot, down);
		return 0;
	}
	copy_keys(client, q, &order, scout__arena_at(&client->arena, slot->ask.arena_pos));
	scout__step_add(client, *ret_slot);
	scout__slot_submit(client, *ret_slot);
	client->stats.not_yet++;
	return SCOUT_NOT_YET;
}

/* ---- the answer ---- */

static bool
bit(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

/* Write the states of an answer that came from all servers; lookup_answer.c describes the maps. */
static void
write_states(const struct scout_client *client, const struct scout__lookup_slot *slot, const struct scout_key_query *q,
	     uint8_t *ret_states)
{
	const uint8_t *hit = slot->objects.bits, *not_miss = slot->objects.bits + ((size_t)slot->question.n + 7) / 8;
	struct order order;

	SCOUT_ASSERT(order_of(client, q, &order) == 0); /* the slot was asked for the same keys */
	for (size_t i = 0; i < q->n; i++) {
		uint32_t at = order.begin[group_at(q, i)]++;

		ret_states[i] = bit(hit, at) ? SCOUT_KEY_HIT : bit(not_miss, at) ? SCOUT_KEY_RETRY : SCOUT_KEY_MISS;
	}
}

static void
read_answer(const struct scout_client *client, const struct scout__lookup_slot *slot, const struct scout_key_query *q,
	    uint8_t *ret_states, struct scout_key_answer *ret_answer)
{
	const struct scout_hit *hit = &slot->landed.hit;
	struct scout_key_answer answer = {
		.ticket = hit->ticket,
		.hits = hit->chunks,
		.l2_hits = hit->l2_chunks,
		.reason = hit->reason,
		.error = hit->error,
		.endpoint = hit->endpoint,
	};

	if (hit->error != 0)
		memset(ret_states, SCOUT_KEY_RETRY, q->n);
	else
		write_states(client, slot, q, ret_states);
	for (size_t i = 0; i < q->n; i++) {
		answer.misses += ret_states[i] == SCOUT_KEY_MISS;
		answer.retries += ret_states[i] == SCOUT_KEY_RETRY;
	}
	*ret_answer = answer;
}

static bool
same_question(const struct scout__lookup_slot *slot, const struct scout_key_query *q)
{
	return slot->question.n_parts > 0 && slot->question.n == q->n &&
	       memcmp(slot->question.last_hash, last_key(q), q->hash_len) == 0 &&
	       strcmp(slot->tenant, q->tenant ? q->tenant : "") == 0;
}

static int
lookup_keys(struct scout_client *client, const struct scout_key_query *q, uint8_t *ret_states,
	    struct scout_key_answer *ret_answer)
{
	struct scout__checked checked;
	int rc = begin(client, q, &checked);

	if (rc != 0)
		return rc;
	if (checked.slot != SCOUT__NO_SLOT) {
		const struct scout__lookup_slot *slot = &client->slots[checked.slot];

		if (!same_question(slot, q))
			return SCOUT_ERR_STATE;
		if (atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__PENDING) {
			client->stats.not_yet++;
			return SCOUT_NOT_YET;
		}
		if (slot->terms.keys_digest != digest_of(q))
			return SCOUT_ERR_STATE;
		if (slot->landed.epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed)) {
			scout__client_forget(client, checked.slot); /* a restarted server promises nothing any more */
			checked.slot = SCOUT__NO_SLOT;
		}
	}
	if (checked.slot == SCOUT__NO_SLOT)
		rc = ask_anew(client, q, &checked, &checked.slot);
	if (rc == 0)
		read_answer(client, &client->slots[checked.slot], q, ret_states, ret_answer);
	return rc;
}

int
scout_lookup_keys_sized(struct scout_client *client, const struct scout_key_query *query, size_t query_size,
			uint8_t *ret_states, struct scout_key_answer *ret_answer, size_t answer_size)
{
	struct scout_key_query own;
	struct scout_key_answer answer;
	int rc;

	if (!client || !query || !ret_states)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_key_answer, endpoint), answer_size);
	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_key_query, timeout_ms), query,
				       query_size);
	if (rc != 0)
		return rc;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	rc = lookup_keys(client, &own, ret_states, &answer);
	rc = scout__client_leave(client, scout__said(client, own.id, NULL, own.hash_len, rc));
	if (rc == 0 && ret_answer)
		scout__sized_write(ret_answer, answer_size, &answer, sizeof(answer));
	return rc;
}
