/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The client's half on the courier thread: turns the words of the ring into operations on every link (lookup_send.c), replies and lost
 * connections (lookup_reply.c) into answers (lookup_answer.c). Here: the words, the deadlines, closing.
 *
 * A slot has one lane for each link (client_internal.h). An answer is one of
 *   - all lanes answered: the minimum of their hits; lanes that promised more give the rest back;
 *   - one lane refused, lost its connection, or the deadline passed: 0 tokens with that reason. What other lanes have promised, or
 *     may still promise when a late reply comes, is given back by FINISH: a connection keeps the order, so a FINISH sent after a
 *     LOOKUP ends the session that the LOOKUP opens, whether its reply comes or not.
 * Nothing is ever sent twice but FINISH, which changes nothing the second time.
 *
 * The order of deadlines is kept by lookup_deadlines.c. A lookup that ends by its deadline is logged here, at most once a second.
 *
 * A FINISH whose connection is lost is kept as a bare ticket in a bounded ring and sent when the same server start is back; a
 * server that restarted has nothing to give back. So a slot never waits for a dead server.
 */
#include "lookup_internal.h"

#define TIMEOUT_LOG_US UINT64_C(1000000) /* between two lines about timeouts */

/* ---- words ---- */

/* The LOOKUP word, or a RENEW word that opens a session. The arena's region was seen. */
static void SCOUT_ON_COURIER
start_lookup(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (i >= c->n_seen)
		c->n_seen = i + 1;
	slot->least = slot->base = slot->base_l2 = 0;
	slot->unanswered = (uint16_t)c->n_links;
	slot->unsent = (uint16_t)c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->lanes[link] = (struct scout__lookup_lane){.state = SCOUT__LANE_WAIT};
	scout__deadlines_add(c, i);
	for (uint32_t link = 0; link < c->n_links; link++) {
		int error = c->closing ? SCOUT_ERR_CLOSED : scout__link_error(scout__courier_link(c->courier, link));

		if (error != 0) {
			scout__lookup_fail(c, i, scout__reason_of(error), error, (int)link);
			return;
		}
	}
	scout__todo_add(c, i);
}

static void SCOUT_ON_COURIER
start_admit(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->admit_came = true;
	scout__renew_stop(c, i);
	if (slot->admit_from == 0 && slot->admit_to >= slot->least && !slot->was_renewed)
		return; /* all of it: nothing to give back. Longer lanes were cut when the answer was made. */
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->lanes[link].want_admit = slot->lanes[link].state == SCOUT__LANE_OPEN;
	scout__todo_add(c, i);
}

static void SCOUT_ON_COURIER
start_finish(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->finished = true;
	c->n_finishing++;
	scout__renew_stop(c, i);
	if (!slot->ended)
		scout__count_n(&c->counts.dropped, 1);
	slot->ended = true; /* an answer has no reader any more; a late reply finds this */
	scout__deadlines_remove(c, i);
	scout__todo_remove(c, i); /* it may have waited to ask */
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_end(c, i, link);
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->lanes[link].want_finish)
			scout__todo_add(c, i);
	scout__slot_release_if_done(c, i);
}

static void
on_word(void *user, uint64_t word, uint64_t now_us)
{
	struct scout_client *c = user;
	uint32_t i = SCOUT__WORD_SLOT(word);

	(void)now_us;
	scout__enter_courier();
	if (word & SCOUT__WORD_HELD)
		c->held = true;
	switch (SCOUT__WORD_OP(word)) {
	case SCOUT__WORD_LOOKUP:
		scout__arena_see(&c->arena, c->slots[i].arena_pos);
		start_lookup(c, i);
		break;
	case SCOUT__WORD_SETTLE:
		scout__apply_settle(c, i);
		break;
	case SCOUT__WORD_RENEW:
		if (scout__renew_start(c, i))
			start_lookup(c, i);
		break;
	case SCOUT__WORD_ADMIT:
		start_admit(c, i);
		break;
	case SCOUT__WORD_FINISH:
		start_finish(c, i);
		break;
	case SCOUT__WORD_BROADCAST:
		scout__broadcast_start(c, i);
		break;
	case SCOUT__WORD_STEP_END:
		c->held = false;
		break;
	default:
		SCOUT_ASSERT(!"unknown word");
	}
}

/* ---- deadlines, closing ---- */

static uint64_t
on_tick(void *user, uint64_t now_us)
{
	struct scout_client *c = user;

	scout__enter_courier();
	for (uint32_t i; (i = scout__deadlines_first(c)) != SCOUT__NO_SLOT;) {
		const struct scout__lookup_slot *slot = &c->slots[i];

		if (now_us < slot->deadline_us)
			return slot->deadline_us;
		if (!slot->again)
			scout__log_limited(&c->log, &c->timeout_limit, now_us, TIMEOUT_LOG_US, SCOUT_LOG_WARN,
					   "request %s: no answer within %u ms, going on without the cache", slot->id,
					   slot->timeout_ms);
		scout__lookup_fail(c, i, SCOUT_REASON_TIMEOUT, SCOUT_ERR_TIMEOUT, -1);
	}
	return UINT64_MAX;
}

/*
 * The answers to ADMIT and FINISH change nothing but the slot, which comes back with them: a courier that is woken for each would
 * be woken three times for a lookup instead of twice, and the server would ring twice instead of once. As long as at most half of
 * the slots are on their way back, the caller finds a free one (client_internal.h: there are twice as many as live requests), and
 * what it asks wakes the courier.
 */
static bool
on_is_awaited(void *user)
{
	const struct scout_client *c = user;
	bool gives_back = false;

	scout__enter_courier();
	for (uint32_t i = 0; i < c->n_links; i++)
		gives_back |= c->give_back[i].n > 0;
	return scout__deadlines_first(c) != SCOUT__NO_SLOT || c->todo.head != SCOUT__NO_SLOT ||
	       c->blocked.head != SCOUT__NO_SLOT || scout__broadcast_is_open(c) || c->n_renewals > 0 ||
	       c->n_finishing > c->cfg.max_lookups || gives_back || c->closing;
}

static void
on_closing(void *user)
{
	struct scout_client *c = user;
	uint32_t i;

	scout__enter_courier();
	c->closing = true;
	while ((i = scout__deadlines_first(c)) != SCOUT__NO_SLOT)
		scout__lookup_fail(c, i, SCOUT_REASON_CLOSED, SCOUT_ERR_CLOSED, -1);
	/* With a lease, its BYE ends every session at once; without, each is finished. */
	for (i = 0; i < c->n_seen; i++)
		for (uint32_t link = 0; link < c->n_links; link++)
			if (!scout__link_has_lease(scout__courier_link(c->courier, link)))
				scout__lane_end(c, i, link);
}

const struct scout__courier_ops scout__lookup_ops = {
	.word = on_word,
	.flush = scout__lookup_flush,
	.link_up = scout__lookup_link_up,
	.link_going = scout__lookup_link_going,
	.link_down = scout__lookup_link_down,
	.ended = scout__lookup_op_ended,
	.is_awaited = on_is_awaited,
	.tick = on_tick,
	.closing = on_closing,
};
