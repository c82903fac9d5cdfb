/* SPDX-License-Identifier: Apache-2.0 */
#include "pending_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ns.h"
#include "packet.h"
#include "peer.h"
#include "request_bytes.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * A pending operation was read and is not answered yet. It belongs to its peer, and keeps the message alive that it
 * points into. Its kind says how large it is, how the operation goes on, how it takes back what it has granted so far,
 * and what it frees at its end: so any room can refuse or cancel a pending operation, at any moment, without knowing
 * its kind.
 *
 * Pending operations that can go on when something happens to one chunk (it is stored, loaded, or given up) wait in a
 * bucket by the chunk's hash. Waking one for nothing costs a look and changes nothing.
 *
 * Threads: loop.
 */

/* No answer can reach the sender. Each step of the peer cancels some; one that is woken before that is cancelled then. */
SCOUT_ON_LOOP static bool
is_old(const struct scout__pending_op *pending)
{
	return pending->connection != pending->peer->connection;
}

SCOUT_ON_LOOP static void
step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__pending_op *pending = SCOUT__OWNER(item, struct scout__pending_op, run);

	if (is_old(pending))
		scout__pending_op_cancel(s, pending);
	else
		pending->kind->step(s, item);
}

void *
scout__pending_op_new(struct scout_server *s, const struct scout__pending_kind *kind, struct scout__peer *peer,
		      struct scout__packet *packet, const struct scout__op *op, uint64_t deadline_us)
{
	struct scout__pending_op *pending = calloc(1, kind->size);

	if (!pending) {
		s->count.out_of_memory++;
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return NULL;
	}
	pending->kind = kind;
	pending->run.step = step;
	pending->peer = peer;
	pending->connection = peer->connection;
	pending->ns = peer->ns;
	pending->weights_gen = peer->ns->weights_gen;
	pending->packet = packet;
	pending->opcode = op->opcode;
	pending->corr = op->corr;
	pending->arrived_us = s->now_us;
	pending->deadline_us = deadline_us;
	scout__packet_ref(packet);
	if (packet->n_pending++ == 0)
		scout__waiting_bytes_add(s, peer, scout__packet_bytes(packet));
	scout__pending_op_count(s, pending, kind->size);
	scout__list_init(&pending->waiting);
	scout__list_add(&peer->pending_ops, &pending->of_peer);
	peer->unanswered++;
	s->state->n_pending_ops++;
	return pending;
}

void
scout__pending_op_count(struct scout_server *s, struct scout__pending_op *pending, uint64_t bytes)
{
	pending->bytes += bytes;
	scout__waiting_bytes_add(s, pending->peer, bytes);
}

void
scout__pending_op_free(struct scout_server *s, struct scout__pending_op *pending)
{
	scout__timer_clear(s, &pending->run);
	scout__run_queue_remove(&pending->run);
	scout__list_del(&pending->of_peer);
	scout__list_del(&pending->waiting);
	if (pending->kind->end)
		pending->kind->end(s, pending);
	scout__waiting_bytes_sub(s, pending->peer, pending->bytes);
	if (--pending->packet->n_pending == 0)
		scout__waiting_bytes_sub(s, pending->peer, scout__packet_bytes(pending->packet));
	scout__packet_unref(s, pending->packet);
	if (!is_old(pending))
		pending->peer->unanswered--;
	s->state->n_pending_ops--;
	free(pending);
}

SCOUT_ON_LOOP static void
take_back(struct scout_server *s, struct scout__pending_op *pending)
{
	if (pending->kind->take_back)
		pending->kind->take_back(s, pending);
}

void
scout__pending_op_refuse(struct scout_server *s, struct scout__pending_op *pending, uint16_t status, const char *fmt,
			 ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	take_back(s, pending);
	if (!is_old(pending))
		scout__refuse(s, &pending->peer->dest, pending->opcode, pending->corr, status, "%s", text);
	scout__pending_op_free(s, pending);
}

void
scout__pending_op_cancel(struct scout_server *s, struct scout__pending_op *pending)
{
	take_back(s, pending);
	scout__pending_op_free(s, pending);
}

uint32_t
scout__pending_ops_cancel(struct scout_server *s, struct scout__peer *peer, uint32_t n)
{
	for (; n && !scout__list_empty(&peer->pending_ops); n--) {
		struct scout__pending_op *first =
			SCOUT__OWNER(peer->pending_ops.next, struct scout__pending_op, of_peer);

		if (!is_old(first))
			break;
		scout__pending_op_cancel(s, first);
	}
	return n;
}

void
scout__pending_ops_shut_down(struct scout_server *s)
{
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];
		struct scout__list *node;

		while (peer && (node = scout__list_pop(&peer->pending_ops)))
			scout__pending_op_refuse(s, SCOUT__OWNER(node, struct scout__pending_op, of_peer),
						 SCOUT_WIRE_SHUTDOWN, SCOUT__STOPPING_TEXT);
	}
}

void
scout__pending_ops_wake(struct scout_server *s, struct scout__list *waiters)
{
	struct scout__list *node;

	while ((node = scout__list_pop(waiters)))
		scout__run_queue_add(s, &SCOUT__OWNER(node, struct scout__pending_op, waiting)->run);
}

bool
scout__pending_ops_wake_outdated(struct scout_server *s, struct scout__ns *ns, uint32_t n)
{
	for (uint32_t i = 0; i < (1u << SCOUT__WAITER_BITS) + 2; i++) {
		struct scout__list *waiters = i == 0   ? &ns->pool_waiters
					      : i == 1 ? &ns->record_waiters
						       : &ns->chunk_waiters[i - 2];

		while (!scout__list_empty(waiters)) {
			struct scout__pending_op *pending =
				SCOUT__OWNER(waiters->next, struct scout__pending_op, waiting);

			if (pending->weights_gen == ns->weights_gen)
				break; /* as all behind it, which came later */
			if (n-- == 0)
				return true;
			scout__list_del(&pending->waiting);
			scout__run_queue_add(s, &pending->run);
		}
	}
	return false;
}

uint64_t
scout__pending_op_answer_by(const struct scout__pending_op *pending)
{
	uint64_t margin_us = (pending->deadline_us - pending->arrived_us) / 8;

	if (pending->deadline_us == UINT64_MAX)
		return UINT64_MAX;
	return pending->deadline_us - (margin_us < SCOUT__ANSWER_MARGIN_US ? margin_us : SCOUT__ANSWER_MARGIN_US);
}

/* ---- operations that wait for a chunk ---- */

static struct scout__list *
bucket(struct scout__ns *ns, const uint8_t *hash)
{
	uint64_t word;

	memcpy(&word, hash, sizeof(word));
	return &ns->chunk_waiters[(word * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - SCOUT__WAITER_BITS)];
}

void
scout__chunk_wait(struct scout__pending_op *pending, const uint8_t *hash)
{
	memcpy(pending->wait_hash, hash, pending->ns->hash_bytes);
	scout__list_add(bucket(pending->ns, hash), &pending->waiting);
}

void
scout__chunk_wake(struct scout_server *s, struct scout__ns *ns, const uint8_t *hash)
{
	struct scout__list *list = bucket(ns, hash);
	struct scout__list *node = list->next;

	while (node != list) {
		struct scout__pending_op *pending = SCOUT__OWNER(node, struct scout__pending_op, waiting);

		node = node->next;
		if (memcmp(pending->wait_hash, hash, ns->hash_bytes) != 0)
			continue;
		scout__list_del(&pending->waiting);
		scout__run_queue_add(s, &pending->run);
	}
}
