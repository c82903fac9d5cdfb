/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The caller's side of the slots: chained hash table from request id to slot, and the free list. Only the caller's thread
 * comes here; slots that the courier is done with arrive through the `freed` ring. Chains, not open addressing: ids come and go all
 * the time, and a slot has room for the link.
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

int
scout__table_init(struct scout_client *client)
{
	uint32_t buckets = 1;

	while (buckets < client->n_slots)
		buckets *= 2;
	client->bucket_mask = buckets - 1;
	client->buckets = malloc(buckets * sizeof(*client->buckets));
	client->slots = aligned_alloc(SCOUT__CACHE_LINE, client->n_slots * sizeof(*client->slots));
	client->lanes = calloc((size_t)client->n_slots * client->n_links, sizeof(*client->lanes));
	if (!client->buckets || !client->slots || !client->lanes)
		return SCOUT_ERR_NOMEM;
	memset(client->buckets, 0xff, buckets * sizeof(*client->buckets));
	memset(client->slots, 0, client->n_slots * sizeof(*client->slots));
	for (uint32_t i = 0; i < client->n_slots; i++) {
		client->slots[i].next_free = i + 1 < client->n_slots ? i + 1 : SCOUT__NO_SLOT;
		client->slots[i].lanes = &client->lanes[(size_t)i * client->n_links];
	}
	client->free_head = 0;
	return 0;
}

void
scout__table_fini(struct scout_client *client)
{
	free(client->buckets);
	free(client->slots);
	free(client->lanes);
	client->buckets = NULL;
	client->slots = NULL;
	client->lanes = NULL;
}

uint32_t
scout__table_find(const struct scout_client *client, const char *id, size_t len, uint64_t hash)
{
	uint32_t i = client->buckets[hash & client->bucket_mask];

	while (i != SCOUT__NO_SLOT) {
		const struct scout__slot *slot = &client->slots[i];

		if (slot->id_hash == hash && slot->id_len == len && memcmp(slot->id, id, len) == 0)
			return i;
		i = slot->next_in_bucket;
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

uint32_t
scout__table_add(struct scout_client *client, const char *id, size_t len, uint64_t hash)
{
	uint32_t *bucket = &client->buckets[hash & client->bucket_mask];
	uint32_t i;

	collect_freed(client);
	i = client->free_head;
	if (i == SCOUT__NO_SLOT || client->n_live >= client->cfg.max_lookups)
		return SCOUT__NO_SLOT;
	struct scout__slot *slot = &client->slots[i];

	client->free_head = slot->next_free;
	slot->id_hash = hash;
	slot->id_len = (uint8_t)len;
	memcpy(slot->id, id, len);
	slot->id[len] = '\0';
	slot->next_in_bucket = *bucket;
	*bucket = i;
	client->n_live++;
	return i;
}

void
scout__table_forget(struct scout_client *client, uint32_t i)
{
	struct scout__slot *slot = &client->slots[i];
	uint32_t *at = &client->buckets[slot->id_hash & client->bucket_mask];

	while (*at != i)
		at = &client->slots[*at].next_in_bucket;
	*at = slot->next_in_bucket;
	slot->id_len = 0;
	client->n_live--;
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
	    atomic_load_explicit(&client->slots[i].answer, memory_order_acquire) != SCOUT__ANSWERED)
		return 0;
	return client->slots[i].landed_ns;
}
