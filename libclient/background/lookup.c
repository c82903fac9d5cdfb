/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The client's half on the courier thread: the words of the ring become operations on every link, and replies, lost connections
 * and deadlines become answers. lookup_answer.c makes the answers, lookup_todo.c keeps the slots that have something unsent,
 * lookup_deadlines.c knows the next deadline. The end of a step is a mark in the ring: the words of the open step wait for it, and
 * all that lies before a mark travels, whatever is open. A RESET or CLEAR is a mark, too: it ends the requests of the step.
 *
 * A slot has one lane for each link (client_internal.h). A lookup ends in one of two ways:
 *   - all lanes answered: the minimum of their hits; lanes that promised more give the rest back;
 *   - one lane refused, lost its connection, or the deadline passed: 0 tokens with that reason. FINISH gives back what other lanes
 *     have promised, or promise in a late reply: a connection keeps the order, so a FINISH sent after a LOOKUP ends the session
 *     that the LOOKUP opens, whether its reply comes or not.
 * Only FINISH is ever sent twice; the second one changes nothing.
 *
 * A reply that comes after its lookup has ended is counted and dropped: the FINISH that gives back its promise is on its way or
 * will be sent. A lookup that ends by its deadline is logged, at most once a second. A refusal is logged with the server's sentence,
 * at most once in ten seconds: an answer holds no more than its code.
 *
 * A FINISH whose connection is lost is kept as a bare ticket in a bounded ring and sent when the same server start is back; a
 * server that restarted has nothing to give back. So a slot never waits for a dead server.
 */
#include "lookup_internal.h"

#include <stdio.h>

#include <xxhash.h>

#include "clock.h"

#define TIMEOUT_LOG_US UINT64_C(1000000)  /* between two lines about timeouts */
#define REFUSAL_LOG_US UINT64_C(10000000) /* ... about refusals */

/* ---- sending ---- */

static uint32_t SCOUT_ON_COURIER
budget_us(const struct scout__lookup_slot *slot, uint64_t now_us)
{
	uint64_t left = slot->ask.deadline_us > now_us ? slot->ask.deadline_us - now_us : 1;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/* Write a LOOKUP; @kind: COOKIE_LOOKUP or COOKIE_RENEW. False: the link has no room. */
static bool SCOUT_ON_COURIER
put_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum lookup_cookie kind, uint64_t now_us)
{
	const struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_msg msg = {
		.ticket = slot->ask.ticket,
		.n = slot->question.n - slot->terms.first,
		.first = slot->terms.first,
		.beyond = slot->question.n - slot->terms.at_most,
		.skip = slot->question.skip,
		.expect = slot->terms.expect,
		.poll_timeout_ms = slot->terms.expect ? c->cfg.lookup_poll_key_timeout_ms : 0,
		.poll_interval_ms = slot->terms.expect ? c->cfg.lookup_poll_key_intervals_ms : 0,
		.tenant = {slot->tenant, slot->question.tenant_len},
		.hashes = scout__arena_at(&c->arena, slot->ask.arena_pos),
	};
	size_t room = 64 + (size_t)slot->question.tenant_len +
		      (size_t)(slot->question.n - slot->terms.first) * c->cfg.hash_bytes;
	struct scout__writer *w =
		scout__link_op_begin(link, SCOUT_OP_LOOKUP, budget_us(slot, now_us), COOKIE(kind, i), room);

	if (!w)
		return false;
	if (kind == COOKIE_RENEW) {
		msg.flags = SCOUT_LOOKUP_RENEW;
		msg.expect = msg.poll_timeout_ms = msg.poll_interval_ms = 0;
	} else if (slot->question.ahead) {
		msg.flags = SCOUT_LOOKUP_AHEAD;
	}
	if (slot->terms.loads)
		msg.flags |= SCOUT_LOOKUP_LOAD;
	/* Several servers need not have the same lengths. */
	if (slot->lengths && !slot->question.ahead && c->n_links == 1)
		msg.more = (uint16_t)(slot->question.want - 1);
	scout__put_lookup(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	return true;
}

/* Send a LOOKUP; @kind: COOKIE_LOOKUP or COOKIE_RENEW. */
static bool SCOUT_ON_COURIER
send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum lookup_cookie kind, uint64_t now_us)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[scout__link_index(link)];
	bool was_sent = slot->question.n_parts ? scout__keys_send(c, i, link, budget_us(slot, now_us))
					       : put_lookup(c, i, link, kind, now_us);

	if (!was_sent)
		return false;
	lane->in_flight++;
	if (kind == COOKIE_LOOKUP)
		lane->state = SCOUT__LANE_ASKED;
	if (--slot->work.unsent == 0)
		scout__arena_give(&c->arena, slot->ask.arena_pos);
	return true;
}

static bool SCOUT_ON_COURIER
send_admit(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[scout__link_index(link)];
	struct scout__admit_msg msg = {.ticket = slot->ask.ticket, .from = slot->work.base, .to = slot->work.least};
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_ADMIT, 0, COOKIE(COOKIE_ADMIT, i), 16);

	if (!w)
		return false;
	if (slot->work.admit_came) { /* else this ADMIT cuts a lane that promised more than the minimum */
		msg.from = slot->admit.from;
		msg.to = slot->admit.to;
	}
	scout__put_admit(w, &msg);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->want_admit = false;
	return true;
}

static bool SCOUT_ON_COURIER
lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[scout__link_index(link)];
	unsigned finish = atomic_load_explicit(&slot->finish, memory_order_relaxed);
	struct scout__finish_msg m = {slot->ask.ticket, finish % SCOUT__HINTS, finish / SCOUT__HINTS};

	if (!scout__link_is_up(link)) {
		scout__give_back_later(c, scout__link_index(link), slot->ask.ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (!scout__send_finish(link, &m, COOKIE(COOKIE_FINISH, i))) {
		return false;
	} else {
		lane->in_flight++;
	}
	lane->want_finish = false;
	return true;
}

/* Send what one slot wants on one link. False: something is left for later. */
static bool SCOUT_ON_COURIER
lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__lookup_lane *lane = &c->slots[i].work.lanes[index];

	/* A lookup that follows a reset must not be answered before the reset. */
	if (lane->state == SCOUT__LANE_WAIT &&
	    (scout__broadcast_is_due(c, index) || !send_lookup(c, i, link, COOKIE_LOOKUP, now_us)))
		return false;
	if (lane->want_renew && !scout__link_is_up(link))
		scout__renew_lost(c, i);
	if (lane->want_renew) {
		if (!send_lookup(c, i, link, COOKIE_RENEW, now_us))
			return false;
		lane->want_renew = false;
	}
	if (lane->want_admit && lane->state == SCOUT__LANE_OPEN && scout__link_is_up(link) && !send_admit(c, i, link))
		return false;
	return !lane->want_finish || lane_finish(c, i, link);
}

/* ---- what waits ---- */

static uint32_t SCOUT_ON_COURIER
links_with_room(const struct scout_client *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_links; i++)
		n += scout__link_has_room(scout__courier_link(c->courier, i));
	return n;
}

/* Whether looking at a slot could change anything: not while all servers are there and none takes an operation. */
static bool SCOUT_ON_COURIER
may_send(const struct scout_client *c)
{
	if (links_with_room(c) > 0)
		return true;
	for (uint32_t i = 0; i < c->n_links; i++)
		if (!scout__link_is_up(scout__courier_link(c->courier, i)))
			return true; /* what waits for that link may end, or be kept for later */
	return false;
}

static void SCOUT_ON_COURIER
walk_todo(struct scout_client *c, uint64_t now_us)
{
	uint32_t i;

	if (c->may_unblock)
		scout__todo_unblock(c);
	while ((i = c->todo.head) != SCOUT__NO_SLOT && may_send(c)) {
		bool done = true;

		scout__todo_remove(c, i);
		for (uint32_t link = 0; link < c->n_links; link++)
			done &= lane_send(c, i, link, now_us);
		if (c->slots[i].work.in_todo)
			continue; /* a connection was lost meanwhile, and the slot has something new to send */
		if (done) {
			scout__slot_release_if_done(c, i);
		} else {
			scout__todo_block(c, i);
			/* All links have room, so memory for the frame was missing. The next turn tries again. */
			c->may_unblock |= links_with_room(c) == c->n_links;
		}
	}
}

static void
on_flush(void *user, uint64_t now_us)
{
	struct scout_client *c = user;

	scout__enter_courier();
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__give_back_send(c, link);
	walk_todo(c, now_us);
	/* A broadcast goes after the FINISHes that it implies, and before the lookups that follow it. */
	if (scout__broadcast_send(c)) {
		c->may_unblock = true;
		walk_todo(c, now_us);
	}
	scout__feed_send(c);
}

/* ---- words ---- */

/* What became of the keep of the last prompt that slot @i's prompt begins with. */
static uint8_t SCOUT_ON_COURIER
kept_before(const struct scout_client *c, uint32_t i)
{
	const struct scout__lookup_slot *slot = &c->slots[i];
	const uint8_t *hashes = scout__arena_at(&c->arena, slot->ask.arena_pos);
	uint64_t tenant = XXH3_64bits(slot->tenant, slot->question.tenant_len); /* one keeps nothing for another */

	for (uint32_t at = c->n_kept; at > 0 && c->n_kept - at < SCOUT__KEPT_PROMPTS && !slot->question.n_parts; at--) {
		uint32_t of = (at - 1) % SCOUT__KEPT_PROMPTS, n = c->kept[of].n;

		if (n > slot->terms.first && n <= slot->question.n &&
		    XXH3_64bits_withSeed(hashes + (size_t)(n - 1 - slot->terms.first) * c->cfg.hash_bytes,
					 c->cfg.hash_bytes, tenant) == c->kept[of].last)
			return c->kept[of].outcome;
	}
	return SCOUT_KEEP_UNKNOWN;
}

static void SCOUT_ON_COURIER
note_kept(struct scout_client *c, const struct scout__lookup_slot *slot, uint8_t outcome)
{
	uint32_t of = c->n_kept % SCOUT__KEPT_PROMPTS, before = (c->n_kept - 1) % SCOUT__KEPT_PROMPTS;
	uint64_t tenant = XXH3_64bits(slot->tenant, slot->question.tenant_len);
	uint64_t last = XXH3_64bits_withSeed(slot->question.last_hash, c->cfg.hash_bytes, tenant);

	if (slot->question.n_parts)
		return;
	if (c->n_kept && c->kept[before].last == last && c->n_links > 1) { /* another server's answer */
		of = before;
		outcome = outcome > c->kept[of].outcome ? outcome : c->kept[of].outcome;
	}
	c->n_kept += of != before;
	c->kept[of].last = last;
	c->kept[of].n = slot->question.n;
	c->kept[of].outcome = outcome;
}

/* The LOOKUP word, or a RENEW word that opens a session. The slot's region of the arena was seen. */
static void SCOUT_ON_COURIER
start_lookup(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (i >= c->n_seen)
		c->n_seen = i + 1;
	slot->work.least = slot->work.base = slot->work.base_l2 = 0;
	slot->work.unanswered = (uint16_t)c->n_links;
	slot->work.unsent = (uint16_t)c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->work.lanes[link] = (struct scout__lookup_lane){.state = SCOUT__LANE_WAIT};
	if (!slot->work.again)
		slot->landed.kept = c->n_kept ? kept_before(c, i) : SCOUT_KEEP_UNKNOWN;
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

	slot->work.admit_came = true;
	scout__renew_stop(c, i);
	if (slot->admit.from == 0 && slot->admit.to >= slot->work.least && !slot->work.was_renewed)
		return; /* all is admitted: nothing to give back. Longer lanes were cut when the answer was made. */
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->work.lanes[link].want_admit = slot->work.lanes[link].state == SCOUT__LANE_OPEN;
	scout__todo_add(c, i);
}

static void SCOUT_ON_COURIER
start_finish(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->work.finished = true;
	c->n_finishing++;
	scout__renew_stop(c, i);
	if (!slot->work.ended)
		scout__count_n(&c->counts.dropped, 1);
	slot->work.ended = true; /* so a late reply is dropped */
	scout__deadlines_remove(c, i);
	scout__todo_remove(c, i); /* its LOOKUP may still have waited */
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_end(c, i, link);
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->work.lanes[link].want_finish)
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
	c->is_held = (word & SCOUT__WORD_HELD) && !c->closing;
	switch (SCOUT__WORD_OP(word)) {
	case SCOUT__WORD_LOOKUP:
		scout__arena_see(&c->arena, c->slots[i].ask.arena_pos);
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
		scout__todo_end_step(c);
		scout__broadcast_start(c, i);
		break;
	case SCOUT__WORD_FEED:
		c->feed.unsent = true;
		break;
	case SCOUT__WORD_STEP_END:
		scout__todo_end_step(c);
		break;
	default:
		SCOUT_ASSERT(!"unknown word");
	}
	c->is_held = false;
}

/* ---- replies ---- */

static void SCOUT_ON_COURIER
log_refusal(struct scout_client *c, const struct scout__lookup_slot *slot, uint32_t link, const struct scout__op *op)
{
	struct scout__str text;

	if (scout__get_text(op, &text) != SCOUT_WIRE_OK || text.len == 0)
		text = (struct scout__str){"no reason given", 15};
	scout__log_limited(&c->log, &c->refusal_limit, scout__now_us(), REFUSAL_LOG_US, SCOUT_LOG_WARN,
			   "request %s: %s refused the %s with %s: %.*s", slot->id,
			   scout__link_endpoint(scout__courier_link(c->courier, link)),
			   slot->question.n_parts ? "question for keys" : "lookup",
			   scout_err_name(scout__wire_error(op->status)), (int)text.len, text.p);
}

static void SCOUT_ON_COURIER
lookup_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[link];
	struct scout__lookup_reply reply;
	const char *field;
	int error = scout__wire_error(op->status);

	if (slot->work.ended) { /* its FINISH is on its way or will be sent */
		scout__count_n(&c->counts.late, 1);
		return;
	}
	if (error == 0 && slot->question.n_parts)
		error = scout__keys_take_reply(c, slot, op, &reply);
	else if (error == 0 && slot->question.ahead)
		error = scout__ahead_take_reply(c, slot, op, &reply);
	else if (error == 0 && (scout__get_lookup_reply(op, &reply, &field) != SCOUT_WIRE_OK ||
				!scout__take_lengths(slot, &reply, slot->work.again)))
		error = SCOUT_ERR_PROTOCOL;
	if (error == 0 && reply.hit > slot->terms.at_most)
		error = SCOUT_ERR_PROTOCOL;
	if (error != 0) {
		if (op->status != SCOUT_WIRE_OK && op->status != SCOUT_WIRE_EXPIRED) {
			lane->state = SCOUT__LANE_NONE; /* refused: no session */
			log_refusal(c, slot, link, op);
		}
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)link);
		return;
	}
	lane->state = SCOUT__LANE_OPEN;
	scout__lane_take(lane, &reply);
	if (--slot->work.unanswered == 0)
		scout__lookup_all_answered(c, i);
}

/* Also when there was no such session. */
static void SCOUT_ON_COURIER
finish_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__finish_reply reply = {0, SCOUT_OUTCOME_MISSING};
	const char *field;

	c->slots[i].work.lanes[link].state = SCOUT__LANE_NONE;
	if (atomic_load_explicit(&c->slots[i].finish, memory_order_relaxed) < SCOUT__HINTS)
		return;
	if (op->status == SCOUT_WIRE_OK && scout__get_finish_reply(op, &reply, &field))
		return;
	note_kept(c, &c->slots[i], (uint8_t)reply.outcome);
	scout__count_n(&c->counts.keeps[reply.outcome], 1);
	scout__count_n(&c->counts.kept_tokens, (uint64_t)reply.kept * c->cfg.hash_tokens);
}

/* The connection was lost while an operation of this lane was in flight. */
static void SCOUT_ON_COURIER
lane_lost(struct scout_client *c, uint32_t i, uint32_t link, uint32_t kind, int error)
{
	struct scout__lookup_lane *lane = &c->slots[i].work.lanes[link];

	if (kind == COOKIE_LOOKUP) {
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)link);
	} else if (kind == COOKIE_RENEW) {
		scout__renew_lost(c, i);
	} else if (kind == COOKIE_FINISH) {
		scout__give_back_later(c, link, c->slots[i].ask.ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (kind == COOKIE_ADMIT && lane->state == SCOUT__LANE_OPEN) {
		lane->want_admit = true; /* giving back twice changes nothing */
		scout__todo_add(c, i);
	}
}

static void
lookup_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
{
	struct scout_client *c = user;
	uint32_t i = (uint32_t)cookie, kind = (uint32_t)(cookie >> 32), index;

	scout__enter_courier();
	c->may_unblock = true; /* its credit is back */
	index = scout__link_index(link);
	if (kind == COOKIE_GIVE_BACK) {
		scout__give_back_ended(c, index, op == NULL);
		return;
	}
	if (kind == COOKIE_FEED) {
		scout__feed_reply(c, op, error);
		return;
	}
	if (kind == COOKIE_BROADCAST) {
		scout__broadcast_reply(c, i, index, op);
		return;
	}
	struct scout__lookup_lane *lane = &c->slots[i].work.lanes[index];

	lane->in_flight--;
	if (!op)
		lane_lost(c, i, index, kind, error);
	else if (kind == COOKIE_LOOKUP)
		lookup_reply(c, i, index, op);
	else if (kind == COOKIE_RENEW)
		scout__renew_reply(c, i, index, op);
	else if (kind == COOKIE_FINISH)
		finish_reply(c, i, index, op);
	scout__slot_release_if_done(c, i);
}

/* ---- links ---- */

/* @news: the link that has just come up or gone down; @text: why it is down, NULL when it is up. */
static void SCOUT_ON_COURIER
tell_ready(struct scout_client *c, const struct scout__link *news, const char *text)
{
	const struct scout__link *missing = NULL;
	uint32_t up = 0;
	unsigned down = 0;
	int error = 0;

	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = scout__courier_link(c->courier, i);

		up += scout__link_is_up(link);
		if (!scout__link_is_up(link) && !missing)
			missing = link;
		if (!down && scout__link_error(link) != 0) {
			error = scout__link_error(link);
			down = SCOUT__DOWN(i, error);
		}
	}
	atomic_store_explicit(&c->down, down, memory_order_relaxed);
	(void)pthread_mutex_lock(&c->ready_mu);
	c->ready_up = up;
	c->ready_error = error;
	if (text)
		(void)snprintf(c->ready_text, sizeof(c->ready_text), "%s: %s", scout__link_endpoint(news), text);
	else if (missing)
		(void)snprintf(c->ready_text, sizeof(c->ready_text), "%s", scout__link_endpoint(missing));
	(void)pthread_cond_broadcast(&c->ready_cond);
	(void)pthread_mutex_unlock(&c->ready_mu);
}

/* A new server start knows no session of ours. */
static void SCOUT_ON_COURIER
forget_sessions(struct scout_client *c, uint32_t index)
{
	c->give_back[index].n = c->give_back[index].sent = 0;
	for (uint32_t i = 0; i < c->n_seen; i++) {
		struct scout__lookup_lane *lane = &c->slots[i].work.lanes[index];

		if (lane->state != SCOUT__LANE_OPEN && lane->state != SCOUT__LANE_ASKED &&
		    lane->state != SCOUT__LANE_ENDING)
			continue;
		scout__renew_lost(c, i);
		lane->state = SCOUT__LANE_NONE;
		lane->want_finish = false;
		lane->want_admit = false;
		scout__slot_release_if_done(c, i);
	}
}

static void
on_link_up(void *user, struct scout__link *link, bool new_epoch)
{
	struct scout_client *c = user;

	uint32_t index;

	scout__enter_courier();
	c->may_unblock = true;
	index = scout__link_index(link);
	if (scout__link_lost_stamps(link))
		scout__broadcast_clear_again(c, index);
	if (new_epoch) {
		forget_sessions(c, index);
		atomic_fetch_add_explicit(&c->epochs, 1, memory_order_relaxed);
	}
	for (uint32_t i = 0; i < c->n_seen; i++)
		if (c->slots[i].work.lanes[index].want_admit)
			scout__todo_add(c, i);
	tell_ready(c, link, NULL);
}

static void
on_link_going(void *user, struct scout__link *link, int error, const char *text)
{
	(void)error;
	scout__enter_courier();
	tell_ready(user, link, text);
}

/* What waits for this connection ends now: unsent lookups too (C5). */
static void
on_link_down(void *user, struct scout__link *link, int error, const char *text)
{
	struct scout_client *c = user;
	uint32_t index, i;

	(void)text;
	scout__enter_courier();
	c->may_unblock = true; /* what this server must get back is kept for later */
	index = scout__link_index(link);
	while ((i = scout__deadlines_first(c)) != SCOUT__NO_SLOT)
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)index);
}

/* ---- deadlines, closing ---- */

static uint64_t
on_tick(void *user, uint64_t now_us)
{
	struct scout_client *c = user;

	scout__enter_courier();
	for (uint32_t i; (i = scout__deadlines_first(c)) != SCOUT__NO_SLOT;) {
		const struct scout__lookup_slot *slot = &c->slots[i];

		if (now_us < slot->ask.deadline_us)
			return slot->ask.deadline_us;
		if (!slot->work.again)
			scout__log_limited(&c->log, &c->timeout_limit, now_us, TIMEOUT_LOG_US, SCOUT_LOG_WARN,
					   "request %s: no answer within %u ms, going on without the cache", slot->id,
					   slot->terms.timeout_ms);
		scout__lookup_fail(c, i, SCOUT_REASON_TIMEOUT, SCOUT_ERR_TIMEOUT, -1);
	}
	return UINT64_MAX;
}

/*
 * Whether an answer is awaited. Answers to ADMIT and FINISH only bring the slot back: if each woke the courier, a lookup would
 * wake it three times instead of twice, and the server would ring twice instead of once. As long as at most half of the slots are
 * on their way back, the caller finds a free one (client_internal.h: there are twice as many as live requests), and its next
 * lookup wakes the courier.
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
	       c->feed.unsent || c->feed.in_flight || c->n_finishing > c->cfg.max_lookups || gives_back || c->closing;
}

static void
on_closing(void *user)
{
	struct scout_client *c = user;
	uint32_t i;

	scout__enter_courier();
	c->closing = true;
	scout__todo_end_step(c);
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
	.flush = on_flush,
	.link_up = on_link_up,
	.link_going = on_link_going,
	.link_down = on_link_down,
	.ended = lookup_ended,
	.is_awaited = on_is_awaited,
	.tick = on_tick,
	.closing = on_closing,
};
