/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Words to the courier, and steps: what is pushed between scout_step_begin() and scout_step_end() is marked as held, so the courier
 * sends nothing of it before the word that ends the step, and rings once for all.
 */
#include "client_priv.h"

void
scout__client_push(struct scout_client *client, uint64_t word)
{
	if (client->in_step) {
		word |= SCOUT__WORD_HELD;
		client->step_dirty = true;
	}
	SCOUT_ASSERT(scout__courier_push(client->courier, word)); /* room was set aside: client_priv.h */
	if (!client->in_step && scout__courier_ring(client->courier))
		client->stats.rings++;
}

void
scout__client_push_on(struct scout_client *client)
{
	if (!client->step_dirty)
		return;
	client->step_dirty = false;
	SCOUT_ASSERT(scout__courier_push(client->courier, SCOUT__WORD(SCOUT__JOB_STEP_END, 0)));
	if (scout__courier_ring(client->courier))
		client->stats.rings++;
}

void
scout_step_begin(struct scout_client *client)
{
	if (client && !scout__courier_forked(client->courier))
		client->in_step = true;
}

void
scout_step_end(struct scout_client *client)
{
	if (!client || scout__courier_forked(client->courier))
		return;
	client->in_step = false;
	scout__client_push_on(client);
}
