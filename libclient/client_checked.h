/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <string.h>

#include "client_internal.h"
#include "clock.h"
#include "utf8.h"

/*
 * What a lookup (client_ask.c) and a question for keys (client_keys.c) have in common on their way to the courier:
 * checked, given a slot, submitted. Caller's thread. Inline, because a submit runs each of these once.
 */

/* A question whose id, tenant and length of hashes are checked; the strings are the caller's. */
struct scout__checked {
	const char *id, *tenant; /* tenant: may be NULL */
	size_t id_len, tenant_len;
	uint32_t id_hash;
	uint32_t slot; /* the live slot of the id; SCOUT__NO_SLOT: there is none */
};

/* The code @rc of a question that was refused, and what is wrong with it goes to the log. @q: NULL for keys. client_wrong.c */
int scout__say_wrong(struct scout_client *client, const char *id, const struct scout_query *q, size_t hash_len, int rc);

static inline int
scout__said(struct scout_client *client, const char *id, const struct scout_query *q, size_t hash_len, int rc)
{
	return rc >= 0 || rc == SCOUT_ERR_BUSY ? rc : scout__say_wrong(client, id, q, hash_len, rc);
}

/* Returns 0, SCOUT_ERR_REQUEST_ID, SCOUT_ERR_HASH_LEN or SCOUT_ERR_TENANT. */
static inline int
scout__ask_begin(const struct scout_client *client, const char *id, const char *tenant, size_t hash_len,
		 struct scout__checked *ret)
{
	if (!scout__id_ok(id, &ret->id_len))
		return SCOUT_ERR_REQUEST_ID;
	if (hash_len != client->cfg.hash_bytes)
		return SCOUT_ERR_HASH_LEN; /* the configured length is within 16..32 */
	ret->tenant_len = tenant ? strlen(tenant) : 0;
	if (ret->tenant_len > SCOUT_MAX_NAME)
		return SCOUT_ERR_TENANT;
	ret->id = id;
	ret->tenant = tenant;
	ret->id_hash = scout__id_hash(id, ret->id_len);
	ret->slot = scout__table_find(client, id, ret->id_len, ret->id_hash);
	return 0;
}

/* Reset the fields with which a new question begins. */
static inline void
scout__slot_begin(struct scout__lookup_slot *slot)
{
	slot->landed.n_lengths = 0;
	slot->entry.admitted = false;
	slot->landed.hit = (struct scout_hit){.endpoint = -1};
	slot->work.ended = false;
	slot->work.finished = false;
	slot->work.admit_came = slot->work.was_renewed = slot->work.again = slot->renewal.is_open = false;
	slot->work.renew_left = 0;
	slot->question.ahead = slot->entry.unasked = slot->settle.keeps = false;
	slot->question.n_parts = 0;
	slot->renewal.ended_us = 0;
	atomic_store_explicit(&slot->finish, SCOUT_HINT_UNKNOWN, memory_order_relaxed);
	atomic_store_explicit(&slot->sleeping, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->answer, SCOUT__PENDING, memory_order_relaxed);
}

/*
 * A slot for a new question: its fields reset, with its id, its tenant, a ticket, and @bytes of the arena (0: a server is gone, and
 * nothing will be sent). Returns 0, SCOUT_ERR_TENANT or SCOUT_ERR_BUSY, and then keeps nothing.
 */
static inline int
scout__slot_open(struct scout_client *client, const struct scout__checked *checked, size_t bytes, uint32_t *ret_slot)
{
	uint64_t ticket = scout__client_ticket(client), pos = 0;
	struct scout__lookup_slot *slot;
	uint32_t i;

	if (!scout__utf8_is_name(checked->tenant, checked->tenant_len))
		return SCOUT_ERR_TENANT;
	i = ticket ? scout__table_add(client, checked->id, checked->id_len, checked->id_hash) : SCOUT__NO_SLOT;
	if (i == SCOUT__NO_SLOT)
		goto err_busy;
	if (bytes > 0 && (pos = scout__arena_take(&client->arena, bytes)) == UINT64_MAX)
		goto err_release;
	slot = &client->slots[i];
	scout__slot_begin(slot);
	slot->question.tenant_len = (uint8_t)checked->tenant_len;
	if (checked->tenant_len)
		memcpy(slot->tenant, checked->tenant, checked->tenant_len);
	slot->tenant[checked->tenant_len] = '\0';
	slot->ask.ticket = ticket;
	slot->ask.arena_pos = pos;
	*ret_slot = i;
	return 0;
err_release:
	scout__table_forget(client, i);
	scout__table_release(client, i);
err_busy:
	client->stats.busy++;
	return SCOUT_ERR_BUSY;
}

/* The slot is filled, and its bytes are in the arena: hand it to the courier. */
static inline void
scout__slot_submit(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];

	slot->entry.submitted = true;
	slot->ask.deadline_us = scout__now_us() + (uint64_t)slot->terms.timeout_ms * 1000;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_LOOKUP, i));
}
