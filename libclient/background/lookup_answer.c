/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a lookup ends: each LOOKUP word gets exactly one answer, by what comes first: all replies, a refusal, a lost connection, the
 * deadline, or closing. Courier thread only. This file gives back what servers have promised beyond the answer; the slot returns
 * to the caller when it is finished and no operation names it.
 *
 * Lookups ahead. The slot keeps bitmaps of the objects that the servers have; if there are several servers, of the objects that all
 * of them have. The bitmaps are made with the first reply and freed with the SETTLE word or with the slot. If there is no memory for
 * them, only the leading run is known, and settling the answer gives back the rest.
 *
 * Questions for keys (client_keys.c). A lane sends KEYS in place of LOOKUP. Deadlines, lost connections and giving back are handled
 * as for lookups. The slot keeps two maps: keys that all servers promise, and keys that no server has called a miss. A key in the
 * first map is a hit; a key in the second map alone is a retry; any other key is a miss. So one server without the key makes a miss,
 * and one that cannot say makes a retry. The maps are made with the first reply and freed with the slot. A key that one server
 * promises and another one does not have stays promised until FINISH.
 *
 * Renewals (client_answer.c asks for them). Each RENEW word is answered once in slot->newer, with news or without, unless ADMIT or
 * FINISH comes first: then nobody reads the answer. If all servers have the session, every lane sends LOOKUP with SCOUT_LOOKUP_RENEW;
 * the new hit is the minimum, and lanes that promised more give the rest back. A lane that refuses, or whose answer is lost, counts
 * with its earlier hit. Without a session a renewal is a lookup like the first one, under a new ticket; its answer goes to `newer`.
 *
 * A lane with anything in flight is left alone: an ADMIT that trims it and a renewal that extends it would meet in the server.
 *
 * A renewal has no deadline of its own: a live server answers within the budget that it is sent, and the end of a connection ends
 * what is in flight on it. From the first renewal on servers may promise more than the answer says, so every ADMIT is sent.
 */
#include "lookup_internal.h"

#include <stdlib.h>
#include <string.h>

#include "answer_word.h"
#include "clock.h"
#include "doorbell.h"

/* ---- lanes ---- */

/* The lane no longer waits to send its LOOKUP. */
static void SCOUT_ON_COURIER
lane_unsend(struct scout_client *c, struct scout__lookup_slot *slot, struct scout__lookup_lane *lane)
{
	lane->state = SCOUT__LANE_NONE;
	if (--slot->work.unsent == 0)
		scout__arena_give(&c->arena, slot->ask.arena_pos);
}

static void SCOUT_ON_COURIER
lane_unrenew(struct scout_client *c, struct scout__lookup_slot *slot, struct scout__lookup_lane *lane)
{
	if (!lane->want_renew)
		return;
	lane->want_renew = false;
	if (--slot->work.unsent == 0)
		scout__arena_give(&c->arena, slot->ask.arena_pos);
}

/* End what the server has or may have for this slot. */
void
scout__lane_end(struct scout_client *c, uint32_t i, uint32_t link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[link];

	lane->want_admit = false;
	lane_unrenew(c, slot, lane);
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

	if (!slot->work.finished || slot->work.in_todo)
		return;
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->work.lanes[link].state != SCOUT__LANE_NONE || slot->work.lanes[link].in_flight)
			return;
	slot->work.finished = false;
	scout__ahead_free(slot);
	scout__lengths_free(slot);
	c->n_finishing--;
	SCOUT_ASSERT(scout__ring_push(&c->freed, (uint64_t)i + 1)); /* the ring has room for all slots */
}

/* ---- single objects: lookups ahead ---- */

/* Bytes of one map of group @g. */
static size_t
group_map_bytes(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t g)
{
	return ((uint64_t)slot->question.n * client->cfg.hash_tokens / client->groups.group[g].unit_tokens + 7) / 8;
}

/* Bytes of both maps of all groups before @end. */
static size_t
maps_bytes(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t end)
{
	size_t bytes = 0;

	for (uint32_t g = 0; g < end; g++)
		bytes += 2 * group_map_bytes(client, slot, g);
	return bytes;
}

struct scout__group_maps
scout__group_maps(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t g)
{
	uint8_t *there = slot->objects.bits + maps_bytes(client, slot, g);

	return (struct scout__group_maps){.there = there, .in_l2 = there + group_map_bytes(client, slot, g)};
}

/* What the first server has. */
static void SCOUT_ON_COURIER
first_reply(const struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__ahead_groups *reply)
{
	size_t bytes = maps_bytes(c, slot, c->groups.n);

	slot->objects.known = reply->known;
	slot->objects.known_limited = reply->lookup.limited;
	slot->objects.bits = calloc(bytes > 0 ? bytes : 1, 1);
	for (uint32_t g = 0; slot->objects.bits && g < c->groups.n; g++) {
		struct scout__group_maps maps = scout__group_maps(c, slot, g);

		memcpy(maps.there, reply->of[g].present, ((size_t)reply->of[g].n + 7) / 8);
		memcpy(maps.in_l2, reply->of[g].in_l2, ((size_t)reply->of[g].n + 7) / 8);
	}
}

/* Remove what another server does not have. */
static void SCOUT_ON_COURIER
next_reply(const struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__ahead_groups *reply)
{
	if (reply->known == slot->objects.known)
		slot->objects.known_limited &= reply->lookup.limited;
	else if (reply->known < slot->objects.known)
		slot->objects.known_limited = reply->lookup.limited;
	if (reply->known < slot->objects.known)
		slot->objects.known = reply->known;
	for (uint32_t g = 0; slot->objects.bits && g < c->groups.n; g++) {
		struct scout__group_maps maps = scout__group_maps(c, slot, g);

		for (size_t i = 0; i < ((size_t)reply->of[g].n + 7) / 8; i++) {
			maps.there[i] &= reply->of[g].present[i];
			maps.in_l2[i] |= reply->of[g].in_l2[i];
		}
	}
}

int
scout__ahead_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
			struct scout__lookup_reply *ret)
{
	struct scout__ahead_groups reply;
	const char *field;

	if (scout__get_ahead_groups(op, &c->groups, c->cfg.hash_tokens, &reply, &field) != SCOUT_WIRE_OK ||
	    reply.lookup.n_more > 0 || reply.known > slot->question.n)
		return SCOUT_ERR_PROTOCOL;
	if (slot->work.unanswered == c->n_links)
		first_reply(c, slot, &reply);
	else
		next_reply(c, slot, &reply);
	*ret = reply.lookup;
	return 0;
}

void
scout__ahead_free(struct scout__lookup_slot *slot)
{
	free(slot->objects.bits);
	slot->objects.bits = NULL;
}

void
scout__lengths_free(struct scout__lookup_slot *slot)
{
	free(slot->lengths);
	slot->lengths = NULL;
}

void
scout__apply_settle(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->work.base = slot->settle.from;
	slot->work.base_l2 = slot->settle.l2;
	slot->work.least = slot->settle.to;
	slot->work.was_renewed = true; /* so that every ADMIT is sent: servers may promise more than the caller knows */
	scout__ahead_free(slot);
	for (uint32_t link = 0; link < c->n_links; link++) {
		struct scout__lookup_lane *lane = &slot->work.lanes[link];

		lane->hit = slot->settle.to;
		lane->l2 = 0;
		lane->want_admit = lane->state == SCOUT__LANE_OPEN && !slot->settle.keeps;
	}
	scout__todo_add(c, i);
}

/* ---- single objects: keys ---- */

static size_t
map_bytes(const struct scout__lookup_slot *slot)
{
	return ((size_t)slot->question.n + 7) / 8;
}

bool
scout__keys_send(struct scout_client *c, uint32_t i, struct scout__link *link, uint32_t budget_us)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	const uint8_t *region = scout__arena_at(&c->arena, slot->ask.arena_pos);
	const struct scout__keys_part *parts = (const struct scout__keys_part *)(const void *)region;
	struct scout__keys_msg msg = {
		.ticket = slot->ask.ticket,
		.n = slot->question.n,
		.n_parts = slot->question.n_parts,
		.tenant = {slot->tenant, slot->question.tenant_len},
		.hashes = region + slot->question.n_parts * sizeof(*parts),
	};
	size_t room = SCOUT__KEYS_BYTES(slot->question.n_parts) + slot->question.tenant_len +
		      (size_t)slot->question.n * c->cfg.hash_bytes;
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_KEYS, budget_us, COOKIE(COOKIE_LOOKUP, i), room);

	if (!w)
		return false;
	for (uint32_t part = 0; part < slot->question.n_parts; part++) {
		msg.parts[part].group = (uint16_t)parts[part].group;
		msg.parts[part].n = parts[part].n;
	}
	scout__put_keys(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	return true;
}

int
scout__keys_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
		       struct scout__lookup_reply *ret)
{
	struct scout__keys_reply reply;
	size_t bytes = map_bytes(slot);
	bool is_first = slot->work.unanswered == c->n_links;
	const char *field;

	if (scout__get_keys_reply(op, &reply, &field) != SCOUT_WIRE_OK || reply.n != slot->question.n)
		return SCOUT_ERR_PROTOCOL;
	if (is_first)
		slot->objects.bits = malloc(2 * bytes);
	if (!slot->objects.bits)
		return SCOUT_ERR_NOMEM;
	for (size_t i = 0; i < bytes; i++) {
		uint8_t not_miss = reply.hit[i] | reply.later[i];

		slot->objects.bits[i] = is_first ? reply.hit[i] : slot->objects.bits[i] & reply.hit[i];
		slot->objects.bits[bytes + i] = is_first ? not_miss : slot->objects.bits[bytes + i] & not_miss;
	}
	*ret = (struct scout__lookup_reply){.l1 = reply.l1, .l2 = reply.l2, .limited = reply.limited};
	return 0;
}

static void SCOUT_ON_COURIER
keys_hit(struct scout_client *c, uint32_t i, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &c->slots[i];
	uint32_t n_hits = 0, n_not_miss = 0, l2 = 0;
	size_t bytes = map_bytes(slot);
	bool limited = false;

	for (size_t at = 0; at < bytes; at++) {
		n_hits += (uint32_t)__builtin_popcount(slot->objects.bits[at]);
		n_not_miss += (uint32_t)__builtin_popcount(slot->objects.bits[bytes + at]);
	}
	for (uint32_t link = 0; link < c->n_links; link++) {
		l2 = slot->work.lanes[link].l2 > l2 ? slot->work.lanes[link].l2 : l2;
		limited |= slot->work.lanes[link].limited;
	}
	*ret_hit = (struct scout_hit){
		.chunks = n_hits,
		.l2_chunks = l2 < n_hits ? l2 : n_hits,
		.reason = limited && n_not_miss > n_hits ? SCOUT_REASON_LIMITED
			  : n_hits > 0                   ? SCOUT_REASON_HIT
			  : n_not_miss > 0               ? SCOUT_REASON_TIMEOUT
							 : SCOUT_REASON_MISS,
		.endpoint = -1,
	};
	scout__count_n(&c->counts.hits, n_hits > 0);
	scout__count_n(&c->counts.hit_keys, n_hits);
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
			break; /* its hit tokens are counted when the caller asks: client_answer.c */
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

static void SCOUT_ON_COURIER
renew_publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->newer.hit = *hit;
	slot->newer.hit.ticket = slot->ask.ticket;
	slot->newer.epochs = atomic_load_explicit(&c->epochs, memory_order_relaxed);
	atomic_store_explicit(&slot->answer, SCOUT__RENEWED, memory_order_release);
}

/* Exactly once for each LOOKUP word. */
static void SCOUT_ON_COURIER
publish(struct scout_client *c, uint32_t i, const struct scout_hit *hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	SCOUT_DASSERT(!slot->work.ended);
	slot->work.ended = true;
	scout__deadlines_remove(c, i);
	if (slot->work.again) {
		slot->work.again = false;
		renew_publish(c, i, hit);
		return;
	}
	count_answer(c, hit, slot->question.ahead);
	slot->landed.hit = *hit;
	slot->landed.hit.ticket = slot->ask.ticket;
	slot->landed_us = scout__now_us();
	slot->landed.epochs = atomic_load_explicit(&c->epochs, memory_order_relaxed);
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

	if (c->slots[i].work.ended)
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
	uint32_t room = slot->lengths ? slot->question.want - 1u : 0;

	if (reply->n_more > room)
		return false;
	for (uint32_t i = 0; i < reply->n_more; i++)
		slot->lengths[is_newer ? room + i : i] = scout__more_at(reply, i);
	(is_newer ? &slot->newer : &slot->landed)->n_lengths = (uint8_t)reply->n_more;
	return true;
}

/* Whether the other servers can also restore each server's longest length, as far as their replies say. */
static bool SCOUT_ON_COURIER
lanes_agree(const struct scout_client *c, const struct scout__lookup_slot *slot)
{
	/* A lookup ahead knows all objects; if all groups have policy all, a length includes all shorter ones. */
	if (c->is_run || slot->question.ahead)
		return true;
	for (uint32_t link = 1; link < c->n_links; link++)
		if (slot->work.lanes[link].hit != slot->work.lanes[0].hit)
			return false;
	return true;
}

/* Servers that promise more than @length give the rest back. */
static void SCOUT_ON_COURIER
cut_lanes(struct scout_client *c, uint32_t i, uint32_t length)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->work.lanes[link].hit > length) {
			slot->work.lanes[link].hit = length;
			slot->work.lanes[link].want_admit = true;
			scout__todo_add(c, i);
		}
}

/* The lane with the shortest hit: no longer one can be restored from all servers. */
static const struct scout__lookup_lane *SCOUT_ON_COURIER
shortest_lane(const struct scout_client *c, const struct scout__lookup_slot *slot)
{
	const struct scout__lookup_lane *least = &slot->work.lanes[0];

	for (uint32_t link = 1; link < c->n_links; link++)
		if (slot->work.lanes[link].hit < least->hit)
			least = &slot->work.lanes[link];
	return least;
}

/* Whether max_promised cut each server whose hit ends at @length: only then could the hit be longer. */
static bool SCOUT_ON_COURIER
is_limited(const struct scout_client *c, const struct scout__lookup_slot *slot, uint32_t length)
{
	for (uint32_t link = 0; link < c->n_links; link++)
		if (slot->work.lanes[link].hit <= length && !slot->work.lanes[link].limited)
			return false;
	return true;
}

/* What the caller reads of a hit that ends where @least ends. */
static void SCOUT_ON_COURIER
write_hit(const struct scout_client *c, const struct scout__lookup_slot *slot, const struct scout__lookup_lane *least,
	  struct scout_hit *ret_hit)
{
	uint64_t tokens = (uint64_t)least->hit * c->cfg.hash_tokens;
	bool is_settled = slot->work.base_l2 || slot->work.base; /* a lookup ahead */

	*ret_hit = (struct scout_hit){
		.tokens = tokens < slot->terms.prompt_tokens ? tokens : slot->terms.prompt_tokens - 1,
		.chunks = (uint32_t)(tokens / c->cfg.chunk_tokens),
		.l1_chunks = c->is_plain && is_settled ? least->hit - slot->work.base - slot->work.base_l2 - least->l2
						       : least->l1,
		.l2_chunks = slot->work.base_l2 + least->l2,
		.reason = is_limited(c, slot, least->hit) ? SCOUT_REASON_LIMITED
			  : least->hit                    ? SCOUT_REASON_HIT
							  : SCOUT_REASON_MISS,
		.endpoint = -1,
	};
}

/*
 * Each lane has its server's hit: the answer is the shortest one, and servers that promise more give the rest back.
 * False: the servers have no length in common that is known to be restorable; they give back all since the last answer.
 */
static bool SCOUT_ON_COURIER
agree_on_hit(struct scout_client *c, uint32_t i, struct scout_hit *ret_hit)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	const struct scout__lookup_lane *least;

	if (!lanes_agree(c, slot)) {
		if (slot->work.again)
			slot->work.least = 0;
		cut_lanes(c, i, slot->work.least);
		return false;
	}
	least = shortest_lane(c, slot);
	write_hit(c, slot, least, ret_hit);
	slot->work.least = least->hit;
	if (!slot->question.ahead) /* a lookup ahead gives back when it is settled */
		cut_lanes(c, i, slot->work.least);
	return true;
}

void
scout__lookup_all_answered(struct scout_client *c, uint32_t i)
{
	struct scout_hit hit = {.reason = SCOUT_REASON_MISS, .endpoint = -1};

	if (c->slots[i].question.n_parts)
		keys_hit(c, i, &hit);
	else
		(void)agree_on_hit(c, i, &hit);
	publish(c, i, &hit);
}

/* ---- renewals ---- */

static void SCOUT_ON_COURIER
no_news(struct scout_client *c, uint32_t i)
{
	renew_publish(c, i, &(struct scout_hit){.reason = SCOUT_REASON_NONE, .endpoint = -1});
}

/* Stop the renewal under way: send nothing more, and wait for no reply. False: there is none. */
static bool SCOUT_ON_COURIER
stop(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (slot->work.renew_left == 0)
		return false;
	slot->work.renew_left = 0;
	c->n_renewals--;
	for (uint32_t link = 0; link < c->n_links; link++)
		lane_unrenew(c, slot, &slot->work.lanes[link]);
	return true;
}

void
scout__renew_lost(struct scout_client *c, uint32_t i)
{
	if (stop(c, i))
		no_news(c, i);
}

void
scout__renew_stop(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	(void)stop(c, i);
	if (!slot->work.again)
		return;
	slot->work.again = false;
	slot->work.ended = true;
	scout__deadlines_remove(c, i);
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_end(c, i, link);
}

/* Whether all lanes are in @state, and nothing is in flight. */
static bool SCOUT_ON_COURIER
lanes_are(const struct scout_client *c, const struct scout__lookup_slot *slot, enum scout__lookup_lane_state state)
{
	for (uint32_t link = 0; link < c->n_links; link++) {
		const struct scout__lookup_lane *lane = &slot->work.lanes[link];

		if (lane->state != state || lane->in_flight || lane->want_admit || lane->want_finish ||
		    !scout__link_is_up(scout__courier_link(c->courier, link)))
			return false;
	}
	return true;
}

bool
scout__renew_start(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	bool opens = slot->renewal.ticket != 0;

	slot->newer.n_lengths = 0;
	scout__arena_see(&c->arena, slot->ask.arena_pos);
	if (c->closing || !lanes_are(c, slot, opens ? SCOUT__LANE_NONE : SCOUT__LANE_OPEN)) {
		scout__arena_give(&c->arena, slot->ask.arena_pos);
		no_news(c, i);
		return false;
	}
	slot->work.was_renewed = true;
	if (opens) {
		slot->ask.ticket = slot->renewal.ticket;
		slot->work.again = true;
		slot->work.ended = false;
		return true;
	}
	c->n_renewals++;
	slot->work.renew_left = slot->work.unsent = (uint16_t)c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->work.lanes[link].want_renew = true;
	scout__todo_add(c, i);
	return false;
}

void
scout__renew_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->work.lanes[link];
	struct scout__lookup_reply reply;
	struct scout_hit hit;
	const char *field;
	uint32_t before = slot->work.least;

	bool is_news = op->status == SCOUT_WIRE_OK && lane->state == SCOUT__LANE_OPEN &&
		       scout__get_lookup_reply(op, &reply, &field) == SCOUT_WIRE_OK &&
		       reply.hit <= slot->terms.at_most && reply.hit >= lane->hit;

	if (slot->work.renew_left == 0) { /* the renewal was ended: an ADMIT or FINISH gives back what it promised */
		if (is_news && reply.n_more == 0)
			scout__lane_take(lane, &reply);
		return;
	}
	is_news = is_news && scout__take_lengths(slot, &reply, true);
	if (is_news)
		scout__lane_take(lane, &reply);
	if (--slot->work.renew_left > 0)
		return;
	c->n_renewals--;
	/* Without news the lengths stay what they were. */
	if ((!is_news && c->n_links == 1) || !agree_on_hit(c, i, &hit)) {
		no_news(c, i);
		return;
	}
	renew_publish(c, i, &hit);
	if (slot->work.least > before && atomic_load_explicit(&c->event_armed, memory_order_relaxed))
		scout__eventfd_raise(c->event_fd); /* full: readable anyway */
}
