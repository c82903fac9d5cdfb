/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The public calls that ask, on the caller's thread: they take the caller's structures of whatever version, and choose by mode.
 *
 * The polling adapter, on the caller's thread: the same lookup, with a wait behind it. It submits through scout_try_lookup() and
 * sleeps on the answer word (answer_word.c), so it wakes when the answer lands, not at the next tick. The deadline is the courier's
 * (C2): the answer word is set by then in any case, and the adapter adds no request and no timer of its own.
 */
#include "client_internal.h"

#include <string.h>

#include "answer_word.h"
#include "clock.h"
#include "sized.h"

/* Of a request that was asked for just now. */
static struct scout__lookup_slot *
slot_of(struct scout_client *client, const char *id)
{
	size_t len = strlen(id);

	return &client->slots[scout__table_find(client, id, len, scout__id_hash(id, len))];
}

static int
wait_lookup(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	int rc;

	/* More than once only if a server was restarted just when it had answered. */
	while ((rc = scout__client_ask(client, query, ret_hit)) == SCOUT_NOT_YET) {
		struct scout__lookup_slot *slot = slot_of(client, query->id);

		scout__client_push_on(client);
		(void)scout__answer_await(client, slot, UINT64_MAX); /* the courier's deadline ends it */
	}
	return rc;
}

/* scout_try_lookup(), and what is left of the step's budget for its answer. */
static int
lookup_in_step(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	int rc = scout__client_ask(client, query, ret_hit);
	uint64_t start_us, took_us;
	uint32_t left_us;
	bool landed;

	if (rc != SCOUT_NOT_YET)
		return rc;
	left_us = client->in_step ? client->step_left_us : client->cfg.step_wait_us;
	if (left_us == 0)
		return rc;
	start_us = scout__now_us();
	scout__client_push_on(client);
	landed = scout__answer_await(client, slot_of(client, query->id), start_us + left_us);
	took_us = scout__now_us() - start_us;
	if (client->in_step)
		client->step_left_us = took_us < left_us ? left_us - (uint32_t)took_us : 0;
	return landed ? scout__client_ask(client, query, ret_hit) : rc;
}

static int
lookup_by_mode(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	return client && client->cfg.lookup_mode == SCOUT_LOOKUP_POLLED ? wait_lookup(client, query, ret_hit)
									: lookup_in_step(client, query, ret_hit);
}

/* ---- the public calls, with the caller's structures ---- */

typedef int ask_fn(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit);

/* @ask, with structures of whatever version of the header: see sized.h. */
static int
ask_sized(ask_fn *ask, struct scout_client *client, const struct scout_query *query, size_t query_size,
	  struct scout_hit *ret_hit, size_t hit_size)
{
	struct scout_query own;
	struct scout_hit hit;
	int rc;

	if (!query || !ret_hit)
		return SCOUT_ERR_INVALID;
	if (query_size == sizeof(own) && hit_size == sizeof(hit))
		return ask(client, query, ret_hit);
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_hit, endpoint), hit_size);
	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_query, from_token), query,
				       query_size);
	if (rc == 0)
		rc = ask(client, &own, &hit);
	if (rc == 0)
		scout__sized_write(ret_hit, hit_size, &hit, sizeof(hit));
	return rc;
}

int
scout_try_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
		       struct scout_hit *ret_hit, size_t hit_size)
{
	if (query_size == sizeof(*query) && hit_size == sizeof(*ret_hit))
		return scout__client_ask(client, query, ret_hit);
	return ask_sized(scout__client_ask, client, query, query_size, ret_hit, hit_size);
}

int
scout_wait_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
			struct scout_hit *ret_hit, size_t hit_size)
{
	return ask_sized(wait_lookup, client, query, query_size, ret_hit, hit_size);
}

int
scout_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
		   struct scout_hit *ret_hit, size_t hit_size)
{
	return ask_sized(lookup_by_mode, client, query, query_size, ret_hit, hit_size);
}

int
scout_poll_lookup_sized(struct scout_client *client, const char *id, uint64_t computed_tokens,
			struct scout_hit *ret_hit, size_t hit_size)
{
	struct scout_hit hit;
	int rc;

	if (!ret_hit)
		return SCOUT_ERR_INVALID;
	if (hit_size == sizeof(hit))
		return scout__client_poll(client, id, computed_tokens, ret_hit);
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_hit, endpoint), hit_size);
	if (rc == 0)
		rc = scout__client_poll(client, id, computed_tokens, &hit);
	if (rc == 0)
		scout__sized_write(ret_hit, hit_size, &hit, sizeof(hit));
	return rc;
}

int
scout_lookup_ahead_sized(struct scout_client *client, const struct scout_query *query, size_t query_size)
{
	struct scout_query own;
	int rc;

	if (!query)
		return SCOUT_ERR_INVALID;
	if (query_size == sizeof(own))
		return scout__client_ask_ahead(client, query);
	rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_query, from_token), query, query_size);
	return rc == 0 ? scout__client_ask_ahead(client, &own) : rc;
}
