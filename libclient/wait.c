/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The polling adapter, on the caller's thread: the same lookup, with a wait behind it. It submits through scout_try_lookup() and
 * sleeps on the answer word (answer_word.c), so it wakes when the answer lands, not at the next tick. The deadline is the courier's
 * (C2): the answer word is set by then in any case, and the adapter adds no request and no timer of its own.
 */
#include "client_internal.h"

#include <string.h>

#include "answer_word.h"
#include "clock.h"

/* Of a request that was asked for just now. */
static struct scout__lookup_slot *
slot_of(struct scout_client *client, const char *id)
{
	size_t len = strlen(id);

	return &client->slots[scout__table_find(client, id, len, scout__id_hash(id, len))];
}

int
scout_wait_lookup(struct scout_client *client, const struct scout_query *lookup, struct scout_hit *ret_hit)
{
	int rc;

	/* More than once only if a server was restarted just when it had answered. */
	while ((rc = scout_try_lookup(client, lookup, ret_hit)) == SCOUT_NOT_YET) {
		struct scout__lookup_slot *slot = slot_of(client, lookup->id);

		scout__client_push_on(client);
		(void)scout__answer_await(client, slot, UINT64_MAX); /* the courier's deadline ends it */
	}
	return rc;
}

/* scout_try_lookup(), and what is left of the step's budget for its answer. */
static int
lookup_in_step(struct scout_client *client, const struct scout_query *lookup, struct scout_hit *ret_hit)
{
	int rc = scout_try_lookup(client, lookup, ret_hit);
	uint32_t left_us = client->in_step ? client->step_left_us : client->cfg.step_wait_us;
	uint64_t start_us, took_us;
	bool landed;

	if (rc != SCOUT_NOT_YET || left_us == 0)
		return rc;
	start_us = scout__now_us();
	scout__client_push_on(client);
	landed = scout__answer_await(client, slot_of(client, lookup->id), start_us + left_us);
	took_us = scout__now_us() - start_us;
	if (client->in_step)
		client->step_left_us = took_us < left_us ? left_us - (uint32_t)took_us : 0;
	return landed ? scout_try_lookup(client, lookup, ret_hit) : rc;
}

int
scout_lookup(struct scout_client *client, const struct scout_query *lookup, struct scout_hit *ret_hit)
{
	if (!client)
		return SCOUT_ERR_INVALID;
	return client->cfg.lookup_mode == SCOUT_LOOKUP_POLLED ? scout_wait_lookup(client, lookup, ret_hit)
							      : lookup_in_step(client, lookup, ret_hit);
}
