/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The caller's side of the slots: chained hash table from request id to slot, and the free list. Only the caller's thread
 * comes here; slots that the courier is done with arrive through the `freed` ring. Chains, not open addressing: ids come and go all
 * the time, and a slot has room for the link.
 *
 * max_lookups is a limit that engines set to more than they ever need, so everything here is mapped for the limit and touched as it is used
 * for the first time: slots are handed out again before fresh ones, in order, and a bucket that was never written is empty (0;
 * a slot is named in it by its index plus 1).
 */
#include "client_priv.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t
scout__id_hash(const char *id, size_t len)
{
	return XXH3_64bits(id, len);
}

static size_t
buckets_bytes(const struct scout_client *client)
{
	return ((size_t)client->bucket_mask + 1) * sizeof(*client->buckets);
}

static size_t
lanes_bytes(const struct scout_client *client)
{
	return (size_t)client->n_slots * client->n_links * sizeof(*client->lanes);
}

int
scout__table_init(struct scout_client *client)
{
	uint32_t buckets = 1;

	while (buckets < client->n_slots)
		buckets *= 2;
	client->bucket_mask = buckets - 1;
	client->buckets = scout__lazy_alloc(buckets_bytes(client));
	client->slots = scout__lazy_alloc(client->n_slots * sizeof(*client->slots));
	client->lanes = scout__lazy_alloc(lanes_bytes(client));
	if (!client->buckets || !client->slots || !client->lanes)
		return SCOUT_ERR_NOMEM;
	client->free_head = SCOUT__NO_SLOT;
	client->n_fresh = 0;
	return 0;
}

void
scout__table_fini(struct scout_client *client)
{
	scout__lazy_free(client->buckets, buckets_bytes(client));
	scout__lazy_free(client->slots, client->n_slots * sizeof(*client->slots));
	scout__lazy_free(client->lanes, lanes_bytes(client));
	client->buckets = NULL;
	client->slots = NULL;
	client->lanes = NULL;
}

/* What a bucket or a chain says: a slot, or SCOUT__NO_SLOT for 0. */
static uint32_t
named(uint32_t link)
{
	return link - 1;
}
_Static_assert(SCOUT__NO_SLOT == UINT32_MAX, "0 - 1");

uint32_t
scout__table_find(const struct scout_client *client, const char *id, size_t len, uint64_t hash)
{
	uint32_t i = named(client->buckets[hash & client->bucket_mask]);

	while (i != SCOUT__NO_SLOT) {
		const struct scout__slot *slot = &client->slots[i];

		if (slot->id_hash == hash && slot->id_len == len && memcmp(slot->id, id, len) == 0)
			return i;
		i = named(slot->next_in_bucket);
	}
	return SCOUT__NO_SLOT;
}

static void
collect_freed(struct scout_client *client)
{
	uint64_t word;

	while ((word = scout__ring_pop(&client->freed)) != 0)
		scout__table_release(client, (uint32_t)(word - 1));
}

/* A slot that was used before, or else the next one that was not. */
static uint32_t
take_free(struct scout_client *client)
{
	uint32_t i = client->free_head;

	if (i != SCOUT__NO_SLOT) {
		client->free_head = client->slots[i].next_free;
		return i;
	}
	if (client->n_fresh == client->n_slots)
		return SCOUT__NO_SLOT;
	i = client->n_fresh++;
	client->slots[i].lanes = &client->lanes[(size_t)i * client->n_links];
	return i;
}

uint32_t
scout__table_add(struct scout_client *client, const char *id, size_t len, uint64_t hash)
{
	uint32_t *bucket = &client->buckets[hash & client->bucket_mask];
	uint32_t i;

	collect_freed(client);
	i = client->n_live < client->cfg.max_lookups ? take_free(client) : SCOUT__NO_SLOT;
	if (i == SCOUT__NO_SLOT)
		return SCOUT__NO_SLOT;
	struct scout__slot *slot = &client->slots[i];

	slot->id_hash = hash;
	slot->id_len = (uint8_t)len;
	memcpy(slot->id, id, len);
	slot->id[len] = '\0';
	slot->next_in_bucket = *bucket;
	*bucket = i + 1;
	client->n_live++;
	return i;
}

void
scout__table_forget(struct scout_client *client, uint32_t i)
{
	struct scout__slot *slot = &client->slots[i];
	uint32_t *at = &client->buckets[slot->id_hash & client->bucket_mask];

	while (named(*at) != i)
		at = &client->slots[named(*at)].next_in_bucket;
	*at = slot->next_in_bucket;
	slot->id_len = 0;
	client->n_live--;
}

uint32_t
scout__table_any(const struct scout_client *client, uint32_t *bucket)
{
	while (*bucket <= client->bucket_mask && client->buckets[*bucket] == 0)
		++*bucket;
	return *bucket <= client->bucket_mask ? named(client->buckets[*bucket]) : SCOUT__NO_SLOT;
}

void
scout__table_asked(struct scout_client *client, uint32_t i)
{
	client->slots[client->last_asked].next_asked = i;
	client->last_asked = i;
}

void
scout__table_release(struct scout_client *client, uint32_t i)
{
	client->slots[i].next_free = client->free_head;
	client->free_head = i;
}

void
scout__client_stamp_answers(struct scout_client *client)
{
	client->stamps_answers = true;
}

uint64_t
scout__client_landed_ns(const struct scout_client *client, const char *id)
{
	size_t len = strlen(id);
	uint32_t i = scout__table_find(client, id, len, scout__id_hash(id, len));

	if (i == SCOUT__NO_SLOT || !client->stamps_answers ||
	    atomic_load_explicit(&client->slots[i].answer, memory_order_acquire) == SCOUT__PENDING)
		return 0;
	return client->slots[i].landed_ns;
}
