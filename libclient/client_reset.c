/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What ends everything, on the caller's thread: a reset (new weights) and a clear (drop what is cached). The call ends the live requests
 * and leaves one number for the courier, the version or the clear's name; lookup_broadcast.c sends it to every server.
 *
 * The latest one wins. The number lies in one word that a later call overwrites, and at most one word is in the ring for it:
 * so the call is never refused, however long a server is away. The courier clears `queued` before it reads the number: a call that
 * comes later pushes a word of its own.
 */
#include "client_internal.h"

static int
broadcast(struct scout_client *client, enum scout__broadcast_what what, uint64_t number)
{
	struct scout__broadcast *t = &client->broadcasts[what];
	uint32_t bucket = UINT32_MAX, i;

	while ((i = scout__table_any(client, &bucket)) != SCOUT__NO_SLOT)
		scout__client_forget(client, i);
	atomic_store(&t->number, number);
	if (!atomic_exchange(&t->queued, true))
		scout__client_push(client, SCOUT__WORD(SCOUT__WORD_BROADCAST, (uint32_t)what));
	return 0;
}

int
scout_reset(struct scout_client *client, uint64_t weights_version)
{
	if (!client || weights_version == 0)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	scout__client_enter(client);
	return scout__client_leave(client, broadcast(client, SCOUT__BROADCAST_RESET, weights_version));
}

int
scout_clear(struct scout_client *client, uint64_t generation, uint64_t *ret_generation)
{
	int rc;

	if (!client || generation == SCOUT_GENERATION_ANY)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	if (generation == 0 && !scout__draw_generation(&generation))
		return SCOUT_ERR_BUSY;
	scout__client_enter(client);
	rc = broadcast(client, SCOUT__BROADCAST_CLEAR, generation);
	if (ret_generation)
		*ret_generation = generation;
	return scout__client_leave(client, rc);
}
