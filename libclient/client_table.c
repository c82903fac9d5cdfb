/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The caller's side of the slots: a chained hash table from request id to slot, and the free list. Only the caller's thread runs
 * this code; slots that the courier is done with arrive through the `freed` ring. Chains, not open addressing: ids come and go all
 * the time, and a slot has room for the link.
 *
 * Engines set max_lookups to more than they ever need, so everything here is mapped for that limit and touched only at its first
 * use: used slots are handed out again before fresh ones, fresh slots in order, and a bucket that was never written is empty (0; a
 * slot is named in it by its index plus 1).
 *
 * Buckets are not spread over the whole mapping: each new id would then touch a cold line (a submit took 190 ns more at a limit of
 * 131,072). There are about as many buckets as live requests, by linear hashing (W. Litwin, VLDB 1980): when there are too few, one
 * chain is split to add a bucket, and when there are twice too many, the last bucket is joined to another. So no call ever works on
 * more than two chains, and nothing is allocated.
 */
#include "client_internal.h"

#include <sys/random.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define LEAST_BUCKETS ((size_t)64) /* a power of two */

bool
scout__id_ok(const char *id, size_t *ret_len)
{
	size_t len = id ? strlen(id) : 0;

	*ret_len = len;
	return len >= 1 && len <= SCOUT_MAX_NAME;
}

uint32_t
scout__id_hash(const char *id, size_t len)
{
	return (uint32_t)XXH3_64bits(id, len);
}

static size_t
buckets_bytes(const struct scout_client *client)
{
	return (client->n_slots > LEAST_BUCKETS ? client->n_slots : LEAST_BUCKETS) * sizeof(*client->buckets);
}

static size_t
lanes_bytes(const struct scout_client *client)
{
	return (size_t)client->n_slots * client->n_links * sizeof(*client->lanes);
}

int
scout__table_init(struct scout_client *client)
{
	client->n_buckets = LEAST_BUCKETS;
	client->bucket_mask = LEAST_BUCKETS - 1;
	client->buckets = scout__lazy_alloc(buckets_bytes(client));
	client->slots = scout__lazy_alloc(client->n_slots * sizeof(*client->slots));
	client->lanes = scout__lazy_alloc(lanes_bytes(client));
	if (!client->buckets || !client->slots || !client->lanes)
		return SCOUT_ERR_NOMEM;
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

/* The slot that a bucket, a link or the head of the free list names; SCOUT__NO_SLOT for 0. */
static uint32_t
named(uint32_t link)
{
	return link - 1;
}
_Static_assert(SCOUT__NO_SLOT == UINT32_MAX, "0 - 1");

static uint32_t *
bucket_of(const struct scout_client *client, uint32_t hash)
{
	uint32_t i = hash & client->bucket_mask;

	return &client->buckets[i < client->n_buckets ? i : i & client->bucket_mask >> 1];
}

/* Add a bucket: move its requests from the chain in which they are now. */
static void
add_bucket(struct scout_client *client)
{
	uint32_t i = client->n_buckets++, *from, *to = &client->buckets[i];

	if (i > client->bucket_mask)
		client->bucket_mask = client->bucket_mask * 2 + 1;
	from = &client->buckets[i & client->bucket_mask >> 1];
	while (*from != 0) {
		struct scout__lookup_slot *slot = &client->slots[named(*from)];

		if ((slot->entry.id_hash & client->bucket_mask) != i) {
			from = &slot->entry.next;
			continue;
		}
		*to = *from;
		*from = slot->entry.next;
		slot->entry.next = 0;
		to = &slot->entry.next;
	}
}

/* Remove the last bucket: append its chain to the chain of the bucket from which it was split. */
static void
remove_bucket(struct scout_client *client)
{
	uint32_t i = --client->n_buckets, *end = &client->buckets[i & client->bucket_mask >> 1];

	while (*end != 0)
		end = &client->slots[named(*end)].entry.next;
	*end = client->buckets[i];
	client->buckets[i] = 0;
	if (client->n_buckets == (client->bucket_mask >> 1) + 1)
		client->bucket_mask >>= 1;
}

uint32_t
scout__table_find(const struct scout_client *client, const char *id, size_t len, uint32_t hash)
{
	uint32_t i = named(*bucket_of(client, hash));

	while (i != SCOUT__NO_SLOT) {
		const struct scout__lookup_slot *slot = &client->slots[i];

		if (slot->entry.id_hash == hash && slot->entry.id_len == len && memcmp(slot->id, id, len) == 0)
			return i;
		i = named(slot->entry.next);
	}
	return SCOUT__NO_SLOT;
}

int
scout__table_find_id(const struct scout_client *client, const char *id, uint32_t *ret_slot)
{
	size_t len;

	if (!scout__id_ok(id, &len))
		return SCOUT_ERR_REQUEST_ID;
	*ret_slot = scout__table_find(client, id, len, scout__id_hash(id, len));
	return 0;
}

static void
collect_freed(struct scout_client *client)
{
	uint64_t word;

	while ((word = scout__ring_pop(&client->freed)) != 0)
		scout__table_release(client, (uint32_t)(word - 1));
}

/* A free slot that was used before, or else the next fresh one. */
static uint32_t
take_free(struct scout_client *client)
{
	uint32_t i = named(client->free_head);

	if (i != SCOUT__NO_SLOT) {
		client->free_head = client->slots[i].entry.next;
		return i;
	}
	if (client->n_fresh == client->n_slots)
		return SCOUT__NO_SLOT;
	i = client->n_fresh++;
	client->slots[i].work.lanes = &client->lanes[(size_t)i * client->n_links];
	return i;
}

uint32_t
scout__table_add(struct scout_client *client, const char *id, size_t len, uint32_t hash)
{
	uint32_t *bucket, i;

	collect_freed(client);
	i = client->n_live < client->cfg.max_lookups ? take_free(client) : SCOUT__NO_SLOT;
	if (i == SCOUT__NO_SLOT)
		return SCOUT__NO_SLOT;
	struct scout__lookup_slot *slot = &client->slots[i];

	slot->entry.id_hash = hash;
	slot->entry.id_len = (uint8_t)len;
	memcpy(slot->id, id, len);
	slot->id[len] = '\0';
	if (client->n_live >= client->n_buckets)
		add_bucket(client);
	bucket = bucket_of(client, hash);
	slot->entry.next = *bucket;
	*bucket = i + 1;
	client->n_live++;
	return i;
}

void
scout__table_forget(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint32_t *at = bucket_of(client, slot->entry.id_hash);

	while (named(*at) != i)
		at = &client->slots[named(*at)].entry.next;
	*at = slot->entry.next;
	slot->entry.id_len = 0;
	client->n_live--;
	for (int k = 0; k < 2; k++)
		if (client->n_buckets > LEAST_BUCKETS && client->n_live < client->n_buckets / 2)
			remove_bucket(client);
}

uint32_t
scout__table_any(const struct scout_client *client, uint32_t *bucket)
{
	/* From the end: a bucket that is removed meanwhile leaves its chain to a bucket before it. */
	if (*bucket >= client->n_buckets)
		*bucket = client->n_buckets - 1;
	while (*bucket > 0 && client->buckets[*bucket] == 0)
		--*bucket;
	return named(client->buckets[*bucket]);
}

void
scout__table_asked(struct scout_client *client, uint32_t i)
{
	client->slots[client->last_asked].entry.next_asked = i;
	client->last_asked = i;
}

void
scout__table_release(struct scout_client *client, uint32_t i)
{
	client->slots[i].entry.next = client->free_head;
	client->free_head = i + 1;
}

void
scout__client_stamp_answers(struct scout_client *client)
{
	client->stamps_answers = true;
}

uint64_t
scout__client_landed_ns(const struct scout_client *client, const char *id)
{
	uint32_t i;

	if (scout__table_find_id(client, id, &i) != 0 || i == SCOUT__NO_SLOT || !client->stamps_answers ||
	    atomic_load_explicit(&client->slots[i].answer, memory_order_acquire) == SCOUT__PENDING)
		return 0;
	return client->slots[i].landed_ns;
}

/* Random words, drawn ahead: one system call for many lookups. */
uint64_t
scout__client_ticket(struct scout_client *client)
{
	for (;;) {
		if (client->n_tickets == 0) {
			ssize_t got = getrandom(client->tickets, sizeof(client->tickets), GRND_NONBLOCK);

			if (got < (ssize_t)sizeof(client->tickets[0]))
				return 0; /* no entropy yet, at boot */
			client->n_tickets = (uint32_t)((size_t)got / sizeof(client->tickets[0]));
		}
		uint64_t ticket = client->tickets[--client->n_tickets];

		if (ticket != 0)
			return ticket;
	}
}
