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

#include "clock.h"
#include "sized.h"
#include "utf8.h"

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
check_question(const struct scout_client *client, const struct scout_key_query *q, size_t *ret_id_len,
	       size_t *ret_tenant)
{
	if (!scout__id_ok(q->id, ret_id_len))
		return SCOUT_ERR_REQUEST_ID;
	if (q->hash_len != client->cfg.hash_bytes)
		return SCOUT_ERR_HASH_LEN;
	*ret_tenant = q->tenant ? strlen(q->tenant) : 0;
	if (*ret_tenant > SCOUT_MAX_NAME)
		return SCOUT_ERR_TENANT;
	if (q->n == 0 || q->n > SCOUT_KEYS_MAX ||
	    !scout__arena_can_hold(&client->arena, arena_bytes_of(q, client->groups.n)))
		return SCOUT_ERR_KEY_COUNT;
	return q->hashes && q->timeout_ms <= SCOUT_LOOKUP_TIMEOUT_MAX_MS ? 0 : SCOUT_ERR_INVALID;
}

static void
fill_slot(const struct scout_client *client, struct scout__lookup_slot *slot, const struct scout_key_query *q,
	  uint32_t n_parts, size_t tenant_len)
{
	uint32_t timeout_ms = client->cfg.lookup_timeout_ms;

	slot->terms.first = slot->terms.at_most = slot->question.skip = slot->terms.expect = 0;
	slot->question.n = (uint32_t)q->n;
	slot->question.want = 1;
	slot->terms.timeout_ms = q->timeout_ms > timeout_ms ? q->timeout_ms : timeout_ms;
	slot->terms.prompt_tokens = 0;
	slot->question.tenant_len = (uint8_t)tenant_len;
	if (tenant_len)
		memcpy(slot->tenant, q->tenant, tenant_len);
	slot->tenant[tenant_len] = '\0';
	memcpy(slot->question.last_hash, last_key(q), q->hash_len);
	scout__slot_begin(slot);
	slot->question.n_parts = (uint8_t)n_parts;
	slot->terms.keys_digest = digest_of(q);
}

/* Returns SCOUT_NOT_YET; 0: a server is known to be gone, and the slot says so. */
static int
submit(struct scout_client *client, const struct scout_key_query *q, size_t id_len, size_t tenant_len, uint32_t hash,
       uint32_t *ret_slot)
{
	unsigned down = atomic_load_explicit(&client->down, memory_order_relaxed);
	struct order order;
	int rc = order_of(client, q, &order);
	uint64_t ticket, pos = 0;
	uint32_t i;

	if (rc != 0)
		return rc;
	if (!scout__utf8_is_name(q->tenant, tenant_len))
		return SCOUT_ERR_TENANT;
	ticket = scout__client_ticket(client);
	i = ticket ? scout__table_add(client, q->id, id_len, hash) : SCOUT__NO_SLOT;
	if (i != SCOUT__NO_SLOT && !down)
		pos = scout__arena_take(&client->arena, arena_bytes_of(q, order.n_parts));
	if (i == SCOUT__NO_SLOT || pos == UINT64_MAX) {
		if (i != SCOUT__NO_SLOT) {
			scout__table_forget(client, i);
			scout__table_release(client, i);
		}
		client->stats.busy++;
		return SCOUT_ERR_BUSY;
	}
	struct scout__lookup_slot *slot = &client->slots[i];

	fill_slot(client, slot, q, order.n_parts, tenant_len);
	client->stats.lookups++;
	client->stats.asked_keys += q->n;
	*ret_slot = i;
	if (down) {
		scout__answer_unreachable(client, slot, down);
		return 0;
	}
	copy_keys(client, q, &order, scout__arena_at(&client->arena, pos));
	slot->ask.arena_pos = pos;
	slot->ask.ticket = ticket;
	slot->entry.submitted = true;
	scout__step_add(client, i);
	slot->ask.deadline_us = scout__now_us() + (uint64_t)slot->terms.timeout_ms * 1000;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_LOOKUP, i));
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

static int
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

	if (slot->terms.keys_digest != digest_of(q))
		return SCOUT_ERR_STATE;
	if (hit->error != 0)
		memset(ret_states, SCOUT_KEY_RETRY, q->n);
	else
		write_states(client, slot, q, ret_states);
	for (size_t i = 0; i < q->n; i++) {
		answer.misses += ret_states[i] == SCOUT_KEY_MISS;
		answer.retries += ret_states[i] == SCOUT_KEY_RETRY;
	}
	*ret_answer = answer;
	return 0;
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
	size_t id_len, tenant_len;
	int rc = check_question(client, q, &id_len, &tenant_len);
	uint32_t hash;
	uint32_t i;

	if (rc != 0)
		return rc;
	hash = scout__id_hash(q->id, id_len);
	i = scout__table_find(client, q->id, id_len, hash);
	if (i != SCOUT__NO_SLOT && !same_question(&client->slots[i], q))
		return SCOUT_ERR_STATE;
	if (i != SCOUT__NO_SLOT &&
	    atomic_load_explicit(&client->slots[i].answer, memory_order_acquire) == SCOUT__PENDING) {
		client->stats.not_yet++;
		return SCOUT_NOT_YET;
	}
	/* A server was restarted since the answer: what it promised is gone. */
	if (i != SCOUT__NO_SLOT &&
	    client->slots[i].landed.epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed)) {
		if (client->slots[i].terms.keys_digest != digest_of(q))
			return SCOUT_ERR_STATE;
		scout__client_forget(client, i);
		i = SCOUT__NO_SLOT;
	}
	if (i == SCOUT__NO_SLOT)
		rc = submit(client, q, id_len, tenant_len, hash, &i);
	return rc == 0 ? read_answer(client, &client->slots[i], q, ret_states, ret_answer) : rc;
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
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	scout__client_enter(client);
	rc = scout__client_leave(client, lookup_keys(client, &own, ret_states, &answer));
	if (rc == 0 && ret_answer)
		scout__sized_write(ret_answer, answer_size, &answer, sizeof(answer));
	return rc;
}
