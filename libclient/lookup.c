/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The client's half on the courier thread: turns job words into operations on every link, and replies into answers.
 *
 * A slot has one lane for each link (client_priv.h). An answer is one of
 *   - all lanes answered: the minimum of their hits; lanes that promised more give the rest back;
 *   - one lane refused, lost its connection, or the deadline passed: 0 tokens with that reason. What other lanes have promised, or
 *     may still promise when a late reply comes, is given back by FINISH: a connection keeps the order, so a FINISH sent after a
 *     LOOKUP ends the session that the LOOKUP opens, whether its reply comes or not.
 * Nothing is ever sent twice but FINISH, which changes nothing the second time.
 *
 * All lookups have the same timeout, so the order of submit is the order of deadlines: a list, no heap.
 *
 * `todo` holds the slots with something unsent. It is walked once per turn; what finds no credit or no connection stays in it.
 *
 * A FINISH whose connection is lost is kept as a bare ticket in a bounded ring and sent when the same server start is back; a
 * server that restarted has nothing to give back. So a slot never waits for a dead server.
 */
#include "client_priv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "polling.h"

/* Cookies of operations: kind and slot. */
enum cookie_kind {
	COOKIE_LOOKUP = 1,
	COOKIE_ADMIT,
	COOKIE_FINISH,
	COOKIE_GIVE_BACK,
	COOKIE_RESET
};
#define COOKIE(kind, slot) ((uint64_t)(kind) << 32 | (slot))

/* ---- lists ---- */

static void
todo_add(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	if (slot->in_todo)
		return;
	slot->in_todo = true;
	slot->todo_next = SCOUT__NO_SLOT;
	if (c->todo_tail == SCOUT__NO_SLOT)
		c->todo_head = i;
	else
		c->slots[c->todo_tail].todo_next = i;
	c->todo_tail = i;
}

static void
deadlines_add(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	slot->in_deadlines = true;
	slot->deadline_prev = c->deadline_tail;
	slot->deadline_next = SCOUT__NO_SLOT;
	if (c->deadline_tail == SCOUT__NO_SLOT)
		c->deadline_head = i;
	else
		c->slots[c->deadline_tail].deadline_next = i;
	c->deadline_tail = i;
}

static void
deadlines_remove(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	if (!slot->in_deadlines)
		return;
	slot->in_deadlines = false;
	if (slot->deadline_prev == SCOUT__NO_SLOT)
		c->deadline_head = slot->deadline_next;
	else
		c->slots[slot->deadline_prev].deadline_next = slot->deadline_next;
	if (slot->deadline_next == SCOUT__NO_SLOT)
		c->deadline_tail = slot->deadline_prev;
	else
		c->slots[slot->deadline_next].deadline_prev = slot->deadline_prev;
}

static void
count(atomic_uint_fast64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- lanes ---- */

static void
give_back_later(struct scout_client *c, uint32_t link, uint64_t ticket)
{
	struct scout__give_back *g = &c->give_back[link];

	if (g->n == g->cap) { /* the oldest has waited longest: if its server lives, our death ends it there */
		g->first = (g->first + 1) % g->cap;
		g->n--;
		g->sent -= g->sent > 0;
	}
	g->tickets[(g->first + g->n++) % g->cap] = ticket;
}

/* A lane that waited to send its LOOKUP does so no more. */
static void
lane_unsend(struct scout_client *c, struct scout__slot *slot, struct scout__lane *lane)
{
	lane->state = SCOUT__LANE_NONE;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
}

/* End what the server has or may have for this slot. */
static void lane_end(struct scout_client *c, uint32_t i, uint32_t link) SCOUT_ON_COURIER;
static void
lane_end(struct scout_client *c, uint32_t i, uint32_t link)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[link];

	lane->want_admit = false;
	if (lane->state == SCOUT__LANE_WAIT) {
		lane_unsend(c, slot, lane);
	} else if (lane->state == SCOUT__LANE_ASKED || lane->state == SCOUT__LANE_OPEN) {
		lane->state = SCOUT__LANE_ENDING;
		lane->want_finish = true;
		todo_add(c, i);
	}
}

/* The slot goes back to the caller when it is finished and nothing names it any more. */
static void
release_if_done(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	if (!slot->finished || slot->in_todo)
		return;
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->lanes[link].state != SCOUT__LANE_NONE || slot->lanes[link].in_flight)
			return;
	slot->finished = false;
	SCOUT_ASSERT(scout__ring_push(&c->freed, (uint64_t)i + 1)); /* as large as there are slots */
}

/* ---- answers ---- */

static void
count_answer(struct scout_client *c, const struct scout_hit *hit)
{
	count(&c->counts.answers, 1);
	switch (hit->reason) {
	case SCOUT_REASON_HIT:
		count(&c->counts.hits, 1);
		count(&c->counts.hit_tokens, hit->tokens);
		break;
	case SCOUT_REASON_TIMEOUT:
		count(&c->counts.timeouts, 1);
		break;
	case SCOUT_REASON_UNREACHABLE:
		count(&c->counts.unreachable, 1);
		break;
	case SCOUT_REASON_REFUSED:
		count(&c->counts.refused, 1);
		break;
	default:
		break;
	}
}

/* Exactly once for each LOOKUP word. */
static void publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit) SCOUT_ON_COURIER;
static void
publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit)
{
	struct scout__slot *slot = &c->slots[i];
	uint64_t one = 1;

	SCOUT_DASSERT(!slot->ended);
	slot->ended = true;
	deadlines_remove(c, i);
	count_answer(c, hit);
	slot->hit = *hit;
	slot->hit.ticket = slot->ticket;
	if (c->stamps_answers)
		slot->landed_ns = scout__now_ns();
	atomic_store_explicit(&slot->answer, SCOUT__ANSWERED, memory_order_release);
	scout__answer_wake(slot);
	if (atomic_load_explicit(&c->event_armed, memory_order_relaxed))
		(void)!write(c->event_fd, &one, sizeof(one)); /* full: readable anyway */
}

/* Answer 0 tokens, and give back what any server may have promised. */
static void fail(struct scout_client *c, uint32_t i, int reason, int error, int endpoint) SCOUT_ON_COURIER;
static void
fail(struct scout_client *c, uint32_t i, int reason, int error, int endpoint)
{
	struct scout_hit hit = {.reason = reason, .error = error, .endpoint = endpoint};

	if (c->slots[i].ended)
		return;
	publish(c, i, &hit);
	for (uint32_t link = 0; link < c->n_links; link++)
		lane_end(c, i, link);
}

int
scout__reason_of(int error)
{
	switch (error) {
	case SCOUT_ERR_TIMEOUT:
		return SCOUT_REASON_TIMEOUT;
	case SCOUT_ERR_UNREACHABLE:
	case SCOUT_ERR_EPOCH:
		return SCOUT_REASON_UNREACHABLE;
	case SCOUT_ERR_CLOSED:
		return SCOUT_REASON_CLOSED;
	default:
		return SCOUT_REASON_REFUSED;
	}
}

/* All lanes have answered: the hit is their minimum. */
static void all_answered(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
static void
all_answered(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];
	const struct scout__lane *least = &slot->lanes[0];
	struct scout_hit hit = {.endpoint = -1};
	uint64_t tokens;

	for (uint32_t link = 1; link < c->n_links; link++)
		if (slot->lanes[link].hit < least->hit)
			least = &slot->lanes[link];
	tokens = (uint64_t)least->hit * c->cfg.chunk_tokens;
	hit.chunks = least->hit;
	hit.l1_chunks = least->l1;
	hit.l2_chunks = least->l2;
	hit.tokens = tokens < slot->prompt_tokens ? tokens : slot->prompt_tokens - 1;
	hit.reason = least->hit ? SCOUT_REASON_HIT : SCOUT_REASON_MISS;
	slot->admit_from = 0;
	slot->admit_to = least->hit;
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->lanes[link].hit > least->hit) {
			slot->lanes[link].want_admit = true;
			todo_add(c, i);
		}
	publish(c, i, &hit);
}

/* ---- sending ---- */

static uint32_t
budget_us(const struct scout__slot *slot, uint64_t now_us)
{
	uint64_t left = slot->deadline_us > now_us ? slot->deadline_us - now_us : 1;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

static bool send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
static bool
send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, uint64_t now_us)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];
	struct scout__lookup_msg msg = {
		.ticket = slot->ticket,
		.n = slot->n,
		.skip = slot->skip,
		.expect = slot->expect,
		.poll_timeout_ms = slot->expect || c->cfg.lookup_poll_key_all ? c->cfg.lookup_poll_key_timeout_ms : 0,
		.poll_interval_ms = c->cfg.lookup_poll_key_intervals_ms,
		.tenant = {slot->tenant, slot->tenant_len},
		.hashes = scout__arena_at(&c->arena, slot->arena_pos),
	};
	size_t room = 64 + (size_t)slot->tenant_len + (size_t)slot->n * c->cfg.hash_bytes;
	struct scout__writer *w =
		scout__link_op_begin(link, SCOUT_OP_LOOKUP, budget_us(slot, now_us), COOKIE(COOKIE_LOOKUP, i), room);

	if (!w)
		return false;
	scout__put_lookup(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->state = SCOUT__LANE_ASKED;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
	return true;
}

static bool send_admit(struct scout_client *c, uint32_t i, struct scout__link *link) SCOUT_ON_COURIER;
static bool
send_admit(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];
	struct scout__admit_msg msg = {slot->ticket, slot->admit_from, slot->admit_to};
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_ADMIT, 0, COOKIE(COOKIE_ADMIT, i), 16);

	if (!w)
		return false;
	scout__put_admit(w, &msg);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->want_admit = false;
	return true;
}

static bool send_finish(struct scout__link *link, uint64_t ticket, uint64_t cookie) SCOUT_ON_COURIER;
static bool
send_finish(struct scout__link *link, uint64_t ticket, uint64_t cookie)
{
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_FINISH, 0, cookie, 8);

	if (!w)
		return false;
	scout__put_one_u64(w, ticket);
	scout__link_op_end(link);
	return true;
}

static bool lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link) SCOUT_ON_COURIER;
static bool
lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];

	if (!scout__link_is_up(link)) {
		give_back_later(c, scout__link_index(link), slot->ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (!send_finish(link, slot->ticket, COOKIE(COOKIE_FINISH, i))) {
		return false;
	} else {
		lane->in_flight++;
	}
	lane->want_finish = false;
	return true;
}

/* Send what one slot wants on one link. False: something is left for later. */
static bool lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us) SCOUT_ON_COURIER;
static bool
lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__lane *lane = &c->slots[i].lanes[index];

	/* A lookup that comes after a reset must not be answered before it. */
	if (lane->state == SCOUT__LANE_WAIT && (c->reset_todo[index] != 0 || !send_lookup(c, i, link, now_us)))
		return false;
	if (lane->want_admit && lane->state == SCOUT__LANE_OPEN && scout__link_is_up(link) && !send_admit(c, i, link))
		return false;
	return !lane->want_finish || lane_finish(c, i, link);
}

static void send_give_back(struct scout_client *c, uint32_t index) SCOUT_ON_COURIER;
static void
send_give_back(struct scout_client *c, uint32_t index)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__give_back *g = &c->give_back[index];

	while (g->sent < g->n &&
	       send_finish(link, g->tickets[(g->first + g->sent) % g->cap], COOKIE(COOKIE_GIVE_BACK, 0))) {
		g->sent++;
		g->in_flight++;
	}
}

/*
 * The tickets stay until all that were sent are answered: one that is lost on the way is sent again with the others, for giving
 * back twice changes nothing.
 */
static void give_back_ended(struct scout_client *c, uint32_t index, bool lost) SCOUT_ON_COURIER;
static void
give_back_ended(struct scout_client *c, uint32_t index, bool lost)
{
	struct scout__give_back *g = &c->give_back[index];

	g->in_flight--;
	if (lost)
		g->sent = 0; /* so do all others in flight */
	if (g->in_flight > 0)
		return;
	g->first = (g->first + g->sent) % g->cap;
	g->n -= g->sent;
	g->sent = 0;
}

/* Whether one was sent. */
static bool send_reset(struct scout_client *c, uint32_t index) SCOUT_ON_COURIER;
static bool
send_reset(struct scout_client *c, uint32_t index)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__writer *w;

	if (c->reset_todo[index] == 0)
		return false;
	w = scout__link_op_begin(link, SCOUT_OP_RESET, 0, COOKIE(COOKIE_RESET, 0), 8);
	if (!w)
		return false;
	scout__put_one_u64(w, c->reset_todo[index]);
	scout__link_op_end(link);
	c->reset_todo[index] = 0;
	return true;
}

static void walk_todo(struct scout_client *c, uint64_t now_us) SCOUT_ON_COURIER;
static void
walk_todo(struct scout_client *c, uint64_t now_us)
{
	uint32_t i = c->todo_head;

	c->todo_head = c->todo_tail = SCOUT__NO_SLOT;
	while (i != SCOUT__NO_SLOT) {
		struct scout__slot *slot = &c->slots[i];
		uint32_t next = slot->todo_next;
		bool done = true;

		slot->in_todo = false;
		for (uint32_t link = 0; link < c->n_links; link++)
			done &= lane_send(c, i, link, now_us);
		if (!done)
			todo_add(c, i);
		else
			release_if_done(c, i);
		i = next;
	}
}

static void
on_flush(void *user, uint64_t now_us)
{
	struct scout_client *c = user;
	bool was_reset = false;

	scout__enter_courier();
	if (c->held && !c->closing)
		return;
	for (uint32_t link = 0; link < c->n_links; link++)
		send_give_back(c, link);
	walk_todo(c, now_us);
	if (c->reset_version != 0) /* behind the FINISHes that it implies, and before the lookups that follow it */
		for (uint32_t link = 0; link < c->n_links; link++)
			was_reset |= send_reset(c, link);
	if (was_reset)
		walk_todo(c, now_us);
}

/* ---- jobs ---- */

static void start_lookup(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
static void
start_lookup(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	scout__arena_see(&c->arena, slot->arena_pos);
	slot->unanswered = (uint16_t)c->n_links;
	slot->unsent = (uint16_t)c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->lanes[link] = (struct scout__lane){.state = SCOUT__LANE_WAIT};
	deadlines_add(c, i);
	for (uint32_t link = 0; link < c->n_links; link++) {
		int error = c->closing ? SCOUT_ERR_CLOSED : scout__link_error(scout__courier_link(c->courier, link));

		if (error != 0) {
			fail(c, i, scout__reason_of(error), error, (int)link);
			return;
		}
	}
	todo_add(c, i);
}

static void start_admit(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
static void
start_admit(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	if (slot->admit_from == 0 && slot->admit_to >= slot->hit.chunks)
		return; /* all of it: nothing to give back. Longer lanes were cut when the answer was made. */
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->lanes[link].want_admit = true;
	todo_add(c, i);
}

static void start_finish(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
static void
start_finish(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	slot->finished = true;
	slot->ended = true; /* nobody will read an answer; a late reply finds this */
	deadlines_remove(c, i);
	for (uint32_t link = 0; link < c->n_links; link++)
		lane_end(c, i, link);
	release_if_done(c, i);
}

static void start_reset(struct scout_client *c) SCOUT_ON_COURIER;
static void
start_reset(struct scout_client *c)
{
	c->reset_version = atomic_load_explicit(&c->reset_to, memory_order_relaxed);
	c->reset_in_flight = c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++) {
		c->reset_todo[link] = c->reset_version;
		/* Until it is done, a reconnect must not be refused for the old version. */
		scout__link_set_weights(scout__courier_link(c->courier, link), 0);
	}
}

static void
on_job(void *user, uint64_t word, uint64_t now_us)
{
	struct scout_client *c = user;
	uint32_t i = SCOUT__WORD_SLOT(word);

	(void)now_us;
	scout__enter_courier();
	if (word & SCOUT__WORD_HELD)
		c->held = true;
	switch (SCOUT__WORD_OP(word)) {
	case SCOUT__JOB_LOOKUP:
		start_lookup(c, i);
		break;
	case SCOUT__JOB_ADMIT:
		start_admit(c, i);
		break;
	case SCOUT__JOB_FINISH:
		start_finish(c, i);
		break;
	case SCOUT__JOB_RESET:
		start_reset(c);
		break;
	case SCOUT__JOB_STEP_END:
		c->held = false;
		break;
	default:
		SCOUT_ASSERT(!"unknown job");
	}
}

/* ---- replies ---- */

static void lookup_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
	SCOUT_ON_COURIER;
static void
lookup_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[link];
	struct scout__lookup_reply reply;
	const char *field;
	int error = scout__wire_error(op->status);

	if (slot->ended) { /* its FINISH follows or is on its way */
		count(&c->counts.late, 1);
		return;
	}
	if (error == 0 && (scout__get_lookup_reply(op, &reply, &field) != SCOUT_WIRE_OK || reply.hit > slot->n))
		error = SCOUT_ERR_PROTOCOL;
	if (error != 0) {
		if (op->status != SCOUT_WIRE_OK && op->status != SCOUT_WIRE_EXPIRED)
			lane->state = SCOUT__LANE_NONE; /* refused: no session */
		fail(c, i, scout__reason_of(error), error, (int)link);
		return;
	}
	lane->state = SCOUT__LANE_OPEN;
	lane->hit = reply.hit;
	lane->l1 = reply.l1;
	lane->l2 = reply.l2;
	if (--slot->unanswered == 0)
		all_answered(c, i);
}

static void reset_reply(struct scout_client *c, uint32_t link, const struct scout__op *op) SCOUT_ON_COURIER;
static void
reset_reply(struct scout_client *c, uint32_t link, const struct scout__op *op)
{
	if (!op) { /* lost on the way: once more when the server is back; it changes nothing twice */
		c->reset_todo[link] = c->reset_version;
		return;
	}
	if (op->status != SCOUT_WIRE_OK)
		scout__log(&c->log, SCOUT_LOG_ERROR, "reset to weights version %llu was refused: %s",
			   (unsigned long long)c->reset_version, scout__wire_name(op->status));
	scout__link_set_weights(scout__courier_link(c->courier, link), c->reset_version);
	if (--c->reset_in_flight == 0) {
		c->reset_version = 0;
		atomic_store_explicit(&c->reset_to, 0, memory_order_release);
	}
}

/* The connection went while an operation of this lane was in flight. */
static void lane_lost(struct scout_client *c, uint32_t i, uint32_t link, uint32_t kind, int error) SCOUT_ON_COURIER;
static void
lane_lost(struct scout_client *c, uint32_t i, uint32_t link, uint32_t kind, int error)
{
	struct scout__lane *lane = &c->slots[i].lanes[link];

	if (kind == COOKIE_LOOKUP) {
		fail(c, i, scout__reason_of(error), error, (int)link);
	} else if (kind == COOKIE_FINISH) {
		give_back_later(c, link, c->slots[i].ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (kind == COOKIE_ADMIT && lane->state == SCOUT__LANE_OPEN) {
		lane->want_admit = true; /* giving back twice changes nothing */
		todo_add(c, i);
	}
}

static void
on_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
{
	struct scout_client *c = user;
	uint32_t i = (uint32_t)cookie, kind = (uint32_t)(cookie >> 32), index;

	scout__enter_courier();
	index = scout__link_index(link);
	if (kind == COOKIE_GIVE_BACK) {
		give_back_ended(c, index, op == NULL);
		return;
	}
	if (kind == COOKIE_RESET) {
		reset_reply(c, index, op);
		return;
	}
	struct scout__lane *lane = &c->slots[i].lanes[index];

	lane->in_flight--;
	if (!op)
		lane_lost(c, i, index, kind, error);
	else if (kind == COOKIE_LOOKUP)
		lookup_reply(c, i, index, op);
	else if (kind == COOKIE_FINISH)
		lane->state = SCOUT__LANE_NONE; /* also when there was no such session */
	release_if_done(c, i);
}

/* ---- links ---- */

static void tell_ready(struct scout_client *c, const char *text) SCOUT_ON_COURIER;
static void
tell_ready(struct scout_client *c, const char *text)
{
	uint32_t up = 0;
	unsigned down = 0;
	int error = 0;

	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = scout__courier_link(c->courier, i);

		up += scout__link_is_up(link);
		if (!down && scout__link_error(link) != 0) {
			error = scout__link_error(link);
			down = SCOUT__DOWN(i, error);
		}
	}
	atomic_store_explicit(&c->down, down, memory_order_relaxed);
	(void)pthread_mutex_lock(&c->ready_mu);
	c->ready_up = up;
	c->ready_error = error;
	(void)snprintf(c->ready_text, sizeof(c->ready_text), "%s", text);
	(void)pthread_cond_broadcast(&c->ready_cond);
	(void)pthread_mutex_unlock(&c->ready_mu);
}

/* A new server start knows no session of ours. */
static void forget_sessions(struct scout_client *c, uint32_t index) SCOUT_ON_COURIER;
static void
forget_sessions(struct scout_client *c, uint32_t index)
{
	c->give_back[index].n = c->give_back[index].sent = 0;
	for (uint32_t i = 0; i < c->n_slots; i++) {
		struct scout__lane *lane = &c->slots[i].lanes[index];

		if (lane->state != SCOUT__LANE_OPEN && lane->state != SCOUT__LANE_ASKED &&
		    lane->state != SCOUT__LANE_ENDING)
			continue;
		lane->state = SCOUT__LANE_NONE;
		lane->want_finish = false;
		lane->want_admit = false;
		release_if_done(c, i);
	}
}

static void
on_link_up(void *user, struct scout__link *link, bool new_epoch)
{
	struct scout_client *c = user;

	uint32_t index;

	scout__enter_courier();
	index = scout__link_index(link);
	if (new_epoch)
		forget_sessions(c, index);
	for (uint32_t i = 0; i < c->n_slots; i++)
		if (c->slots[i].lanes[index].want_admit)
			todo_add(c, i);
	tell_ready(c, "");
}

static void
on_link_going(void *user, struct scout__link *link, int error, const char *text)
{
	(void)link;
	(void)error;
	scout__enter_courier();
	tell_ready(user, text);
}

/* What waits for this connection ends now: unsent lookups too (C5). */
static void
on_link_down(void *user, struct scout__link *link, int error, const char *text)
{
	struct scout_client *c = user;
	uint32_t index, i, next;

	(void)text;
	scout__enter_courier();
	index = scout__link_index(link);
	for (i = c->deadline_head; i != SCOUT__NO_SLOT; i = next) {
		next = c->slots[i].deadline_next;
		fail(c, i, scout__reason_of(error), error, (int)index);
	}
}

static uint64_t
on_tick(void *user, uint64_t now_us)
{
	struct scout_client *c = user;

	scout__enter_courier();
	while (c->deadline_head != SCOUT__NO_SLOT) {
		uint32_t i = c->deadline_head;
		const struct scout__slot *slot = &c->slots[i];

		if (now_us < slot->deadline_us)
			return slot->deadline_us;
		fail(c, i, SCOUT_REASON_TIMEOUT, SCOUT_ERR_TIMEOUT, -1);
	}
	return UINT64_MAX;
}

static void
on_closing(void *user)
{
	struct scout_client *c = user;
	uint32_t i, next;

	scout__enter_courier();
	c->closing = true;
	for (i = c->deadline_head; i != SCOUT__NO_SLOT; i = next) {
		next = c->slots[i].deadline_next;
		fail(c, i, SCOUT_REASON_CLOSED, SCOUT_ERR_CLOSED, -1);
	}
	/* With a lease, its BYE ends every session at once; without, each is finished. */
	for (i = 0; i < c->n_slots; i++)
		for (uint32_t link = 0; link < c->n_links; link++)
			if (!scout__link_has_lease(scout__courier_link(c->courier, link)))
				lane_end(c, i, link);
}

const struct scout__courier_ops scout__lookup_ops = {
	.job = on_job,
	.flush = on_flush,
	.link_up = on_link_up,
	.link_going = on_link_going,
	.link_down = on_link_down,
	.ended = on_ended,
	.tick = on_tick,
	.closing = on_closing,
};
