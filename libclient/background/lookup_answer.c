/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a lookup ends: each LOOKUP word is published exactly once, from whichever comes first of all replies, a refusal, a lost
 * connection, the deadline and closing. Courier thread only. What servers have promised beyond the answer is given back from here;
 * the slot returns to the caller when it is finished and no operation names it.
 */
#include "lookup_internal.h"

#include "answer_word.h"
#include "clock.h"
#include "doorbell.h"

/* ---- lanes ---- */

/* A lane that waited to send its LOOKUP does so no more. */
static void SCOUT_ON_COURIER
lane_unsend(struct scout_client *c, struct scout__lookup_slot *slot, struct scout__lookup_lane *lane)
{
	lane->state = SCOUT__LANE_NONE;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
}

void
scout__lane_unrenew(struct scout_client *c, struct scout__lookup_slot *slot, struct scout__lookup_lane *lane)
{
	if (!lane->want_renew)
		return;
	lane->want_renew = false;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
}

/* End what the server has or may have for this slot. */
void
scout__lane_end(struct scout_client *c, uint32_t i, uint32_t link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[link];

	lane->want_admit = false;
	scout__lane_unrenew(c, slot, lane);
	if (lane->state == SCOUT__LANE_WAIT) {
		lane_unsend(c, slot, lane);
	} else if (lane->state == SCOUT__LANE_ASKED || lane->state == SCOUT__LANE_OPEN) {
		lane->state = SCOUT__LANE_ENDING;
		lane->want_finish = true;
		scout__todo_add(c, i);
	}
}

/* The slot goes back to the caller when it is finished and nothing names it any more. */
void
scout__slot_release_if_done(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (!slot->finished || slot->in_todo)
		return;
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->lanes[link].state != SCOUT__LANE_NONE || slot->lanes[link].in_flight)
			return;
	slot->finished = false;
	scout__ahead_free(slot);
	scout__lengths_free(slot);
	c->n_finishing--;
	SCOUT_ASSERT(scout__ring_push(&c->freed, (uint64_t)i + 1)); /* as large as there are slots */
}

/* ---- answers ---- */

static void SCOUT_ON_COURIER
count_answer(struct scout_client *c, const struct scout_hit *hit, bool is_ahead)
{
	scout__count_n(&c->counts.answers, 1);
	switch (hit->reason) {
	case SCOUT_REASON_HIT:
	case SCOUT_REASON_LIMITED:
		if (is_ahead)
			break; /* how many count is known when it is asked for: client_ahead.c */
		scout__count_n(&c->counts.hits, hit->tokens > 0);
		scout__count_n(&c->counts.hit_tokens, hit->tokens);
		break;
	case SCOUT_REASON_TIMEOUT:
		scout__count_n(&c->counts.timeouts, 1);
		break;
	case SCOUT_REASON_UNREACHABLE:
		scout__count_n(&c->counts.unreachable, 1);
		break;
	case SCOUT_REASON_REFUSED:
		scout__count_n(&c->counts.refused, 1);
		break;
	default:
		break;
	}
}

void
scout__renew_publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->newer = *hit;
	slot->newer.ticket = slot->ticket;
	slot->newer_epochs = atomic_load_explicit(&c->epochs, memory_order_relaxed);
	atomic_store_explicit(&slot->answer, SCOUT__RENEWED, memory_order_release);
}

/* Exactly once for each LOOKUP word. */
static void SCOUT_ON_COURIER
publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	SCOUT_DASSERT(!slot->ended);
	slot->ended = true;
	scout__deadlines_remove(c, i);
	if (slot->again) {
		slot->again = false;
		scout__renew_publish(c, i, hit);
		return;
	}
	count_answer(c, hit, slot->ahead);
	slot->hit = *hit;
	slot->hit.ticket = slot->ticket;
	slot->landed_us = scout__now_us();
	slot->epochs = atomic_load_explicit(&c->epochs, memory_order_relaxed);
	if (c->stamps_answers)
		slot->landed_ns = scout__now_ns();
	atomic_store_explicit(&slot->answer, SCOUT__ANSWERED, memory_order_release);
	scout__answer_wake(slot);
	if (atomic_load_explicit(&c->event_armed, memory_order_relaxed))
		scout__eventfd_raise(c->event_fd); /* full: readable anyway */
}

/* Answer 0 tokens, and give back what any server may have promised. */
void
scout__lookup_fail(struct scout_client *c, uint32_t i, int reason, int error, int endpoint)
{
	struct scout_hit hit = {.reason = reason, .error = error, .endpoint = endpoint};

	if (c->slots[i].ended)
		return;
	publish(c, i, &hit);
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_end(c, i, link);
}

void
scout__lane_take(struct scout__lookup_lane *lane, const struct scout__lookup_reply *reply)
{
	lane->hit = reply->hit;
	lane->l1 = reply->l1;
	lane->l2 = reply->l2;
	lane->limited = reply->limited;
}

bool
scout__take_lengths(struct scout__lookup_slot *slot, const struct scout__lookup_reply *reply, bool is_newer)
{
	uint32_t room = slot->lengths ? slot->want - 1u : 0;

	if (reply->n_more > room)
		return false;
	for (uint32_t i = 0; i < reply->n_more; i++)
		slot->lengths[is_newer ? room + i : i] = scout__more_at(reply, i);
	*(is_newer ? &slot->n_newer : &slot->n_lengths) = reply->n_more;
	return true;
}

/* Whether each server's longest length is one that the others can restore, too, as far as they have told. */
static bool SCOUT_ON_COURIER
lanes_agree(const struct scout_client *c, const struct scout__lookup_slot *slot)
{
	/* A lookup ahead knows all objects; of groups with policy all only, each length holds the shorter ones. */
	if (c->is_run || slot->ahead)
		return true;
	for (uint32_t link = 1; link < c->n_links; link++)
		if (slot->lanes[link].hit != slot->lanes[0].hit)
			return false;
	return true;
}

/* Servers that promise more than @length give that back. */
static void SCOUT_ON_COURIER
cut_lanes(struct scout_client *c, uint32_t i, uint32_t length)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->lanes[link].hit > length) {
			slot->lanes[link].hit = length;
			slot->lanes[link].want_admit = true;
			scout__todo_add(c, i);
		}
}

bool
scout__lookup_minimum(struct scout_client *c, uint32_t i, struct scout_hit *ret_hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	const struct scout__lookup_lane *least = &slot->lanes[0];
	bool limited = true;
	uint64_t tokens;

	if (!lanes_agree(c, slot)) {
		if (slot->again)
			slot->least = 0;
		cut_lanes(c, i, slot->least);
		return false;
	}

	for (uint32_t link = 1; link < c->n_links; link++)
		if (slot->lanes[link].hit < least->hit)
			least = &slot->lanes[link];
	/* It could be longer only if none of those that end here has nothing more. */
	for (uint32_t link = 0; link < c->n_links; link++)
		limited &= slot->lanes[link].hit > least->hit || slot->lanes[link].limited;
	tokens = (uint64_t)least->hit * c->cfg.hash_tokens;
	*ret_hit = (struct scout_hit){
		.tokens = tokens < slot->prompt_tokens ? tokens : slot->prompt_tokens - 1,
		.chunks = (uint32_t)(tokens / c->cfg.chunk_tokens),
		.l1_chunks = c->is_plain && (slot->base_l2 || slot->base)
				     ? least->hit - slot->base - slot->base_l2 - least->l2
				     : least->l1,
		.l2_chunks = slot->base_l2 + least->l2,
		.reason = limited      ? SCOUT_REASON_LIMITED
			  : least->hit ? SCOUT_REASON_HIT
				       : SCOUT_REASON_MISS,
		.endpoint = -1,
	};
	slot->least = least->hit;
	if (!slot->ahead) /* else what is to be given back is known when it is settled */
		cut_lanes(c, i, slot->least);
	return true;
}

void
scout__lookup_all_answered(struct scout_client *c, uint32_t i)
{
	struct scout_hit hit = {.reason = SCOUT_REASON_MISS, .endpoint = -1};

	if (c->slots[i].n_parts)
		scout__keys_hit(c, i, &hit);
	else
		(void)scout__lookup_minimum(c, i, &hit);
	publish(c, i, &hit);
}
