/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client_internal.h"

/*
 * What the files of the client's courier half share. Each calls only files after it in this list: lookup.c -> lookup_answer.c
 * -> lookup_todo.c, lookup_deadlines.c, lookup_give_back.c, lookup_broadcast.c -> answer_word.c, reason.c.
 */

/* Cookies of operations: kind and slot. */
enum lookup_cookie {
	COOKIE_LOOKUP = 1,
	COOKIE_ADMIT,
	COOKIE_FINISH,
	COOKIE_GIVE_BACK,
	COOKIE_BROADCAST,
	COOKIE_RENEW,
	COOKIE_FEED
};
#define COOKIE(kind, slot) ((uint64_t)(kind) << 32 | (slot))

static inline void
scout__count_n(atomic_uint_fast64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- lookup_todo.c ---- */

/* The slot has something new to send. The slot may be waiting already. */
void scout__todo_add(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* The slot has nothing to send any more. */
void scout__todo_remove(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* The slot was removed and tried; the rest of it waits for a link. */
void scout__todo_block(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* Try all blocked slots again, before the slots that came later. */
void scout__todo_unblock(struct scout_client *c) SCOUT_ON_COURIER;
/* A mark: what is held may be sent. */
void scout__todo_end_step(struct scout_client *c) SCOUT_ON_COURIER;

/* ---- lookup_give_back.c ---- */

/* Send FINISH now. False: the link has no room. */
bool scout__send_finish(struct scout__link *link, const struct scout__finish_msg *m, uint64_t cookie) SCOUT_ON_COURIER;
/* Send FINISH for @ticket once its server is there again. */
void scout__give_back_later(struct scout_client *c, uint32_t link, uint64_t ticket) SCOUT_ON_COURIER;
/* Send what waits, as far as there is room. */
void scout__give_back_send(struct scout_client *c, uint32_t index) SCOUT_ON_COURIER;
/* One FINISH of the give-back ring has ended: answered, or lost with the connection. */
void scout__give_back_ended(struct scout_client *c, uint32_t index, bool lost) SCOUT_ON_COURIER;

/* ---- lookup_deadlines.c ---- */

/* Initialise; before the courier runs. */
void scout__deadlines_init(struct scout_client *c);
/* Add a pending lookup; its slot's deadline_us and timeout_ms stay as they are until it is removed. */
void scout__deadlines_add(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* Remove a lookup; does nothing if it is not there. */
void scout__deadlines_remove(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* The pending lookup whose deadline is the nearest; SCOUT__NO_SLOT: none is pending. */
uint32_t scout__deadlines_first(const struct scout_client *c) SCOUT_ON_COURIER;

/* ---- lookup_answer.c ---- */

/* Note which objects of a lookup ahead one server has. 0 or SCOUT_ERR_PROTOCOL. */
int scout__ahead_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
			    struct scout__lookup_reply *ret) SCOUT_ON_COURIER;
/* The SETTLE word came. */
void scout__apply_settle(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* On the courier, or on the thread that destroys the client. */
void scout__ahead_free(struct scout__lookup_slot *slot);
void scout__lengths_free(struct scout__lookup_slot *slot);
/* Send KEYS now. False: the link has no room. */
bool scout__keys_send(struct scout_client *c, uint32_t i, struct scout__link *link, uint32_t budget_us)
	SCOUT_ON_COURIER;
/* Note what one server says of the keys. 0, SCOUT_ERR_PROTOCOL or SCOUT_ERR_NOMEM. */
int scout__keys_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
			   struct scout__lookup_reply *ret) SCOUT_ON_COURIER;

/* The RENEW word came. True: it opens a session, so the caller starts a lookup. */
bool scout__renew_start(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* ADMIT or FINISH came: end the renewal that is under way. */
void scout__renew_stop(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* The connection of a lane was lost: a renewal that is under way ends without news. */
void scout__renew_lost(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* A lane's answer to a renewal. Its lookup may have ended already. */
void scout__renew_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op) SCOUT_ON_COURIER;

/* Store in the lane what its server answered. */
void scout__lane_take(struct scout__lookup_lane *lane, const struct scout__lookup_reply *reply) SCOUT_ON_COURIER;
/* Take the lengths below the longest from an answer, or from a newer one. False: more than were asked for. */
bool scout__take_lengths(struct scout__lookup_slot *slot, const struct scout__lookup_reply *reply, bool is_newer)
	SCOUT_ON_COURIER;

/* Answer 0 tokens, and give back what any server may have promised. Does nothing if there is an answer already. */
void scout__lookup_fail(struct scout_client *c, uint32_t i, int reason, int error, int endpoint) SCOUT_ON_COURIER;
/* All lanes have answered: the hit is their minimum. */
void scout__lookup_all_answered(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;
/* End what the server has or may have for this slot. */
void scout__lane_end(struct scout_client *c, uint32_t i, uint32_t link) SCOUT_ON_COURIER;
/* The slot goes back to the caller when it is finished and nothing names it any more. */
void scout__slot_release_if_done(struct scout_client *c, uint32_t i) SCOUT_ON_COURIER;

/* ---- feed.c ---- */

/* Send what the caller asks for, if there is anything and the link has room. */
void scout__feed_send(struct scout_client *c) SCOUT_ON_COURIER;
/* The request was answered; @op NULL: it was lost, or cannot be sent, because of @error. */
void scout__feed_reply(struct scout_client *c, const struct scout__op *op, int error) SCOUT_ON_COURIER;

/* ---- lookup_broadcast.c ---- */

/* The caller has left a number to send. */
void scout__broadcast_start(struct scout_client *c, uint32_t what) SCOUT_ON_COURIER;
/* The server of @link knows nothing of our last clear, if there was one. */
void scout__broadcast_clear_again(struct scout_client *c, uint32_t link) SCOUT_ON_COURIER;
/* Whether a broadcast has to be sent on this link before any lookup. */
bool scout__broadcast_is_due(const struct scout_client *c, uint32_t link) SCOUT_ON_COURIER;
/* Whether anything is to be sent or not answered. */
bool scout__broadcast_is_open(const struct scout_client *c) SCOUT_ON_COURIER;
/* Whether anything was sent. */
bool scout__broadcast_send(struct scout_client *c) SCOUT_ON_COURIER;
/* A broadcast was answered; @op NULL: its connection was lost. */
void scout__broadcast_reply(struct scout_client *c, uint32_t what, uint32_t index, const struct scout__op *op)
	SCOUT_ON_COURIER;
