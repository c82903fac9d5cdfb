/* SPDX-License-Identifier: Apache-2.0 */
#include "stale_tickets.h"

#include <stdlib.h>

#include "ns.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * The tickets of sessions that a new weights version or a clear ended. A STORE that names such a ticket carries old KV,
 * however late it comes: a worker that gives no version of its own may not know the new version yet, and these bytes
 * would be served under the new version. There is room for a ticket of each place, so for every session that one RESET
 * can end; beyond that the oldest are forgotten. Nothing is allocated before the first ticket.
 *
 * Out of memory: the ticket is not remembered, and its store counts as one without a session.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static bool
make_room(struct scout__stale_tickets *o, uint32_t cap)
{
	if (o->tickets)
		return true;
	if (scout__map_init(&o->map, cap) != 0)
		return false;
	o->tickets = calloc(cap, sizeof(*o->tickets));
	if (!o->tickets) {
		scout__map_fini(&o->map);
		return false;
	}
	o->cap = cap;
	return true;
}

void
scout__stale_tickets_add(struct scout_server *s, uint64_t ticket, uint16_t status)
{
	struct scout__stale_tickets *o = &s->state->stale_tickets;

	if (!make_room(o, s->state->n_session_places)) {
		s->count.out_of_memory++;
		return;
	}
	if (o->n == o->cap)
		(void)scout__map_del(&o->map, o->tickets[o->next]);
	else
		o->n++;
	/* The map has room. A ticket that was drawn twice is in the ring twice, and is forgotten with the first. */
	(void)scout__map_put(&o->map, ticket, status);
	o->tickets[o->next] = ticket;
	o->next = o->next + 1 == o->cap ? 0 : o->next + 1;
}

uint16_t
scout__stale_tickets_find(const struct scout_server *s, const struct scout__ns *ns, uint64_t ticket)
{
	uint32_t slot = scout__map_get(&s->state->by_ticket, ticket);
	uint32_t status;

	/* The sweep has not come to this session yet. */
	if (slot != SCOUT__MAP_NONE) {
		const struct scout__session *session = s->state->sessions[slot];

		return session->ns == ns && session->weights_gen != ns->weights_gen ? ns->ended_by : SCOUT_WIRE_OK;
	}
	if (!s->state->stale_tickets.tickets)
		return SCOUT_WIRE_OK;
	status = scout__map_get(&s->state->stale_tickets.map, ticket);
	return status == SCOUT__MAP_NONE ? SCOUT_WIRE_OK : (uint16_t)status;
}

void
scout__stale_tickets_fini(struct scout__stale_tickets *stale)
{
	scout__map_fini(&stale->map);
	free(stale->tickets);
}
