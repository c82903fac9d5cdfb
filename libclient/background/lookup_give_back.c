/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Sends FINISH, and keeps the tickets whose FINISH was lost with its connection; courier thread only. For each link this file owns a
 * bounded ring of tickets, sent when the same server start is back; a server that restarted has nothing to give back.
 */
#include "lookup_internal.h"

bool
scout__send_finish(struct scout__link *link, const struct scout__finish_msg *m, uint64_t cookie)
{
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_FINISH, 0, cookie, SCOUT__FINISH_BYTES);

	if (!w)
		return false;
	scout__put_finish(w, m);
	scout__link_op_end(link);
	return true;
}

void
scout__give_back_later(struct scout_client *c, uint32_t link, uint64_t ticket)
{
	struct scout__give_back *g = &c->give_back[link];

	if (g->n == g->cap) { /* drop the oldest: its server ends it when this client ends */
		g->first = (g->first + 1) % g->cap;
		g->n--;
		g->sent -= g->sent > 0;
	}
	g->tickets[(g->first + g->n++) % g->cap] = ticket;
}

void
scout__give_back_send(struct scout_client *c, uint32_t index)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__give_back *g = &c->give_back[index];

	while (g->sent < g->n) {
		struct scout__finish_msg m = {.ticket = g->tickets[(g->first + g->sent) % g->cap]};

		if (!scout__send_finish(link, &m, COOKIE(COOKIE_GIVE_BACK, 0)))
			return;
		g->sent++;
		g->in_flight++;
	}
}

/*
 * The tickets stay until all FINISHes that were sent are answered. If one is lost on the way, all are sent again: giving back
 * twice changes nothing.
 */
void
scout__give_back_ended(struct scout_client *c, uint32_t index, bool lost)
{
	struct scout__give_back *g = &c->give_back[index];

	g->in_flight--;
	if (lost)
		g->sent = 0; /* all others in flight are lost, too */
	if (g->in_flight > 0)
		return;
	g->first = (g->first + g->sent) % g->cap;
	g->n -= g->sent;
	g->sent = 0;
}
