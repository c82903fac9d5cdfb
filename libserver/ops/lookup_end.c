/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "lookup_op.h"
#include "peer.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * The end that all lookups share, with one group (lookup.c) or several (lookup_groups.c). Loop thread.
 */

void
scout__lookup_count(struct scout_server *s, const struct scout__lookup_op *pending, const struct scout__lookup_reply *m,
		    uint32_t asked, uint32_t hit)
{
	struct scout__ns *ns = pending->op.ns;

	s->count.lookups_asked_chunks += asked;
	s->count.lookups_hit_chunks += hit;
	if (s->fetch)
		s->fetch->count.hit_chunks += m->l2;
	s->count.lookups_limited += m->limited;
	s->count.lookups_full += hit == asked;
	s->count.lookups_partial += hit > 0 && hit < asked;
	s->count.lookups_none += hit == 0 && asked > 0;
	ns->count.lookups++;
	ns->count.asked_chunks += asked;
	ns->count.hit_chunks += hit;
	ns->count.asked_tokens += (uint64_t)asked * ns->hash_tokens;
	ns->count.hit_tokens += (uint64_t)hit * ns->hash_tokens;
}

bool
scout__lookup_is_delayed(struct scout_server *s, struct scout__lookup_op *pending)
{
	uint64_t delay_us = s->cfg.reply_delay_us;
	uint64_t at_us = pending->op.arrived_us + delay_us;

	if (at_us > pending->op.deadline_us)
		at_us = pending->op.deadline_us;
	if (delay_us == 0 || at_us <= s->now_us)
		return false;
	pending->state = SCOUT__LOOKUP_WAITS_TO_ANSWER;
	scout__timer_set(s, &pending->op.run, at_us);
	return true;
}

bool
scout__lookup_sleep_until_poll(struct scout_server *s, struct scout__lookup_op *pending, const uint8_t *hash)
{
	uint64_t end_us = scout__pending_op_answer_by(&pending->op);

	if (end_us > pending->poll_end_us)
		end_us = pending->poll_end_us;
	if (pending->limited || s->now_us >= end_us)
		return false;
	if (pending->poll_next_us <= s->now_us)
		pending->poll_next_us = s->now_us + pending->poll_interval_us;
	scout__chunk_wait(&pending->op, hash);
	scout__timer_set_poll(s, &pending->op.run, &pending->op.peer->polls,
			      pending->poll_next_us < end_us ? pending->poll_next_us : end_us);
	return true;
}

void
scout__lookup_take_back(struct scout_server *s, struct scout__pending_op *op)
{
	struct scout__lookup_op *pending = SCOUT__OWNER(op, struct scout__lookup_op, op);
	struct scout__session *session = pending->session;

	if (!session)
		return;
	pending->session = NULL;
	session->lookup = NULL;
	/* What a renewal has promised belongs to its session, as earlier promises do: its next answer says so. */
	if (!session->ended && !pending->renews)
		scout__session_end(s, session, false);
}

void
scout__lookup_end(struct scout_server *s, struct scout__pending_op *op)
{
	struct scout__lookup_op *pending = SCOUT__OWNER(op, struct scout__lookup_op, op);

	scout__ask_drop(s, pending);
	if (pending->session)
		pending->session->lookup = NULL;
	free(pending->from_l2);
	free(pending->present);
}
