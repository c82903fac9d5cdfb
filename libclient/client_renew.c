/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How an answer that was not admitted stays young: the side of the caller's thread (the courier's is lookup_renew.c).
 *
 * A request may wait for minutes while another one stores its prefix, or while others hold what max_promised allows. So an ask that
 * finds its answer older than lookup_refresh_ms returns it and lets the courier ask anew; a later ask takes over what came. Nothing
 * else does, so an answer never changes between an ask and its admit. Nothing is asked on a timer: what the caller asks for no more is
 * not renewed either.
 *
 * The arena has given the hashes back long ago. The caller passes them with each ask, and they are copied once more; a poll, which has
 * none, returns SCOUT_NEED_QUERY when their answer has its turn. A full arena, a server that is known to be gone, or the bound below
 * means: not now, perhaps at the next ask. It is never an error.
 *
 * Bound: RENEWALS_PER_S for each client, and RENEWALS_BURST at once, which is also the most that may be unanswered. A queue of
 * thousands, asked for in each step, would else ask the server for all of it each second. The first ask of a step has the first
 * turn: a scheduler asks in the order in which it will admit, so what is admitted next has the youngest answers.
 * Rejected: a turn for each, oldest answer first. With 2,000 waiting the head of the queue would be 8 s old.
 *
 * The lengths of a newer answer come with it, and replace the others when it is taken over. Not renewed is an answer of a lookup
 * ahead that tells several lengths of windows and states: until its admit the servers promise all that they have.
 *
 * An answer with a session (hit, miss, limited) is renewed in it: promised chunks stay promised, and tokens only grow. One without a
 * session (timeout, unreachable, refused) is asked under a new ticket.
 */
#include "client_internal.h"

#include <string.h>

#include "clock.h"

#define RENEWALS_PER_S 256u
#define RENEWALS_BURST 32u

/* The time that has passed allows more renewals. */
static void
refill_turns(struct scout_client *client, uint64_t now_us)
{
	uint64_t more = (now_us - client->renew_refill_us) * RENEWALS_PER_S / 1000000u;

	if (more > 0) {
		client->renew_refill_us = now_us;
		client->renew_tokens = client->renew_tokens + more < RENEWALS_BURST
					       ? client->renew_tokens + (uint32_t)more
					       : RENEWALS_BURST;
	}
}

/* Whether one more may be asked for now. */
static bool
has_turn(const struct scout_client *client)
{
	return client->renew_tokens > 0 && client->n_renewing < RENEWALS_BURST;
}

static bool
has_session(const struct scout_hit *hit)
{
	return hit->reason == SCOUT_REASON_HIT || hit->reason == SCOUT_REASON_MISS ||
	       hit->reason == SCOUT_REASON_LIMITED;
}

void
scout__renew_ask(struct scout_client *client, uint32_t i, const struct scout_query *q)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t ticket = 0, pos;

	if (q->n != slot->n - slot->first)
		return; /* a session is renewed by the hashes that it was opened with */
	if (!has_session(&slot->hit) && (ticket = scout__client_ticket(client)) == 0)
		return;
	pos = scout__arena_take(&client->arena, q->n * q->hash_len);
	if (pos == UINT64_MAX)
		return;
	memcpy(scout__arena_at(&client->arena, pos), q->hashes, q->n * q->hash_len);
	slot->arena_pos = pos;
	slot->renew_ticket = ticket;
	slot->deadline_us = scout__now_us() + (uint64_t)slot->timeout_ms * 1000;
	slot->renewing = true;
	slot->submitted = true;
	client->n_renewing++;
	client->renew_tokens--;
	client->stats.renewals++;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_RENEW, i));
}

/* What came is the answer from now on, unless it says less: within a server's life tokens never decrease. */
static void
take_over(struct scout_client *client, struct scout__lookup_slot *slot, uint64_t now_us)
{
	const struct scout_hit *newer = &slot->newer;

	scout__renew_forget(client, slot);
	slot->renewed_us = now_us;
	atomic_store_explicit(&slot->answer, SCOUT__ANSWERED, memory_order_relaxed);
	if (!has_session(newer) || (has_session(&slot->hit) && newer->tokens < slot->hit.tokens))
		return;
	client->stats.renewed += newer->tokens > slot->hit.tokens;
	if (slot->n_newer > 0)
		memcpy(slot->lengths, slot->lengths + slot->want - 1, slot->n_newer * sizeof(*slot->lengths));
	slot->n_lengths = slot->n_newer;
	slot->hit = *newer;
	slot->epochs = slot->newer_epochs;
}

bool
scout__renew_look(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t now_us, since_us;

	if (client->cfg.lookup_refresh_ms == SCOUT_NEVER || slot->settle_keeps)
		return false;
	now_us = scout__now_us();
	if (atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__RENEWED)
		take_over(client, slot, now_us);
	since_us = slot->renewed_us > slot->landed_us ? slot->renewed_us : slot->landed_us;
	if (slot->renewing || now_us < since_us + (uint64_t)client->cfg.lookup_refresh_ms * 1000)
		return false;
	/* After a restart of a server the caller starts over anyway. */
	if (slot->epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed))
		return false;
	if (!has_session(&slot->hit) && atomic_load_explicit(&client->down, memory_order_relaxed))
		return false;
	refill_turns(client, now_us);
	return has_turn(client);
}

void
scout__renew_forget(struct scout_client *client, struct scout__lookup_slot *slot)
{
	client->n_renewing -= slot->renewing;
	slot->renewing = false;
}
