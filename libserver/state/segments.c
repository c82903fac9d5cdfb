/* SPDX-License-Identifier: Apache-2.0 */
#include "segments.h"

#include "lease.h"
#include "ns.h"
#include "peer.h"
#include "pending_op.h"
#include "server_core.h"
#include "state.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Segments: each connection is sent every segment of its worker's KV rank, in the order of the ids; a new connection of
 * the same process gets all segments again. withdraw.c withdraws them.
 *
 * Threads: loop.
 */

/* False: it cannot be sent now. */
SCOUT_ON_LOOP static bool
send_segment(int fd, const struct scout__segment *segment, uint32_t slots)
{
	const struct scout__lease_msg m = {
		.type = SCOUT_LEASE_SEGMENT,
		.segment = segment->id,
		.slots = slots,
		.bytes = segment->bytes,
		.data_offset = segment->data_offset,
		.slot_stride = segment->stride,
	};

	return scout__lease_send(fd, &m, &segment->fd, 1);
}

/* The first place in index->extents.by_age of an extent after the one that has segment @sent. */
SCOUT_ON_LOOP static uint32_t
first_unsent(const struct scout__chunk_index *index, uint32_t sent)
{
	uint32_t low = 0;
	uint32_t high = index->extents.n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index->extents.by_age[middle]->segments[0].id <= sent)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Send the segments of @group. False: some are unsent. */
SCOUT_ON_LOOP static bool
deliver(struct scout__peer *peer, const struct scout__ns_group *group)
{
	const struct scout__chunk_index *index = group->index;
	uint32_t *sent = &peer->segments_sent[group->number];
	int32_t rank = scout__ns_group_rank(group, peer);

	if (rank < 0)
		return true;
	if (!peer->lease)
		return false;
	for (uint32_t i = first_unsent(index, *sent); i < index->extents.n; i++) {
		const struct scout__extent *extent = index->extents.by_age[i];

		/* A full socket, or too many descriptors on their way; epoll reports a broken socket. */
		if (!send_segment(peer->lease->watch.fd, &extent->segments[rank], extent->slots))
			return false;
		*sent = extent->segments[0].id;
	}
	return true;
}

bool
scout__segments_deliver(struct scout_server *s, struct scout__peer *peer)
{
	(void)s;
	for (uint32_t i = 0; i < peer->ns->groups.n; i++)
		if (!deliver(peer, &peer->ns->by_group[i]))
			return false;
	return true;
}

/* Whether all segments of the groups of @peer were sent. */
SCOUT_ON_LOOP static bool
is_served(const struct scout__peer *peer)
{
	for (uint32_t i = 0; i < peer->ns->groups.n; i++) {
		const struct scout__ns_group *group = &peer->ns->by_group[i];

		if (scout__ns_group_rank(group, peer) >= 0 &&
		    first_unsent(group->index, peer->segments_sent[i]) < group->index->extents.n)
			return false;
	}
	return true;
}

/* Deliver what was not delivered yet. */
SCOUT_ON_LOOP static void
tick(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	if (!is_served(peer) && scout__segments_deliver(s, peer))
		scout__pending_ops_wake(s, &peer->lease_waiters);
}

void
scout__segments_tick(struct scout_server *s)
{
	struct scout__list *workers = &s->transport->of_workers, *first = workers->next, *node;
	uint32_t left = scout__tick_share(s->transport->n_leases);

	/* By turns, as with peers, and each once. Clients get no segments. */
	while (left-- && (node = scout__list_pop(workers))) {
		scout__list_add(workers, node);
		tick(s, SCOUT__OWNER(node, struct scout__lease, node));
		if (workers->next == first)
			break;
	}
}
