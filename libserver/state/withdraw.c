/* SPDX-License-Identifier: Apache-2.0 */
#include "withdraw.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "lease.h"
#include "ns.h"
#include "peer.h"
#include "pending_op.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * Extents move between namespaces. rebalance.c takes one out of a chunk index, slice by slice; then every worker
 * that was sent its segment gets LEASE_WITHDRAW, unmaps it, and answers LEASE_RELEASED. After the last answer the bytes
 * return to the pool, and a chunk index that waits for them grows.
 *
 * Nothing in the extent is pinned when it leaves, so no worker reads or writes in it, and the server grants nothing in
 * it any more: the server waits only for the memory, which the kernel keeps while any process maps it. A worker that
 * died, said goodbye or was forgotten no longer counts as mapping it. Nor does a worker with a new lease connection,
 * since it unmaps what an older connection brought. A stopped worker delays just these extents.
 *
 * Threads: loop.
 */

/* An extent that is out of its chunk index and that workers may still map. */
struct scout__withdrawn {
	struct scout__list node; /* in state.withdrawn */
	struct scout__extent *extent;
	uint32_t n; /* workers that have yet to answer */
	struct {
		struct scout__peer *peer;
		uint32_t segment;
		bool told;
	} of[];
};

/* Whether the lease connection of @peer has delivered the segment of @extent. */
SCOUT_ON_LOOP static bool
has_segment(const struct scout__peer *peer, const struct scout__ns_group *group, const struct scout__extent *extent)
{
	return peer && !peer->leaving && peer->ns == group->ns && scout__ns_group_rank(group, peer) >= 0 &&
	       peer->segments_sent[group->number] >= extent->segments[0].id;
}

SCOUT_ON_LOOP static void
free_if_released(struct scout_server *s, struct scout__withdrawn *w)
{
	if (w->n)
		return;
	scout__list_del(&w->node);
	s->state->n_withdrawn--;
	scout__rebalance_freed(&s->state->l1, w->extent);
	free(w);
}

#define TELL 256u /* extents of which workers are told at a time */

/* The tick sends what a full socket does not take now; epoll reports a broken socket. */
SCOUT_ON_LOOP static void
tell(struct scout__withdrawn *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct scout__lease_msg m = {.type = SCOUT_LEASE_WITHDRAW, .segment = w->of[i].segment};
		const struct scout__lease *lease = w->of[i].peer->lease;
		uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
		size_t len;

		if (w->of[i].told || !lease)
			continue;
		len = scout__put_lease(buf, &m);
		w->of[i].told = send(lease->watch.fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
	}
}

/* @extent has left the chunk index of @group. Only the @n_peers peers from number @first on may map it. */
SCOUT_ON_LOOP static void
withdraw(struct scout_server *s, const struct scout__ns_group *group, struct scout__extent *extent, uint32_t first,
	 uint32_t n_peers)
{
	struct scout__withdrawn *w;
	uint32_t n = 0;

	for (uint32_t i = first; i < first + n_peers; i++)
		n += has_segment(s->state->peers[i], group, extent);
	w = calloc(1, sizeof(*w) + n * sizeof(w->of[0]));
	if (!w) {
		/* The workers keep the extent mapped until they end, unused: the machine only has less memory. */
		s->count.out_of_memory++;
		scout__rebalance_freed(&s->state->l1, extent);
		return;
	}
	w->extent = extent;
	scout__list_add(&s->state->withdrawn, &w->node);
	s->state->n_withdrawn++;
	for (uint32_t i = first; w->n < n; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (!has_segment(peer, group, extent))
			continue;
		w->of[w->n].peer = peer;
		w->of[w->n++].segment = extent->segments[scout__ns_group_rank(group, peer)].id;
	}
	if (s->state->n_withdrawn <= TELL)
		tell(w); /* else the tick does */
	free_if_released(s, w);
}

void
scout__withdraw_indexes(struct scout_server *s, const struct scout__peer *peer)
{
	for (uint32_t i = 0; i < peer->ns->groups.n; i++) {
		const struct scout__ns_group *group = &peer->ns->by_group[i];
		struct scout__extent *extent;

		while (group->index && (extent = scout__index_surrender(group->index)))
			withdraw(s, group, extent, peer->number, 1);
	}
}

/* @segment 0: all segments. */
SCOUT_ON_LOOP static void
release(struct scout_server *s, const struct scout__peer *peer, uint32_t segment)
{
	struct scout__list *node = s->state->withdrawn.next;

	while (node != &s->state->withdrawn) {
		struct scout__withdrawn *w = SCOUT__OWNER(node, struct scout__withdrawn, node);

		node = node->next;
		for (uint32_t i = 0; i < w->n; i++) {
			if (w->of[i].peer != peer || (segment && w->of[i].segment != segment))
				continue;
			w->of[i] = w->of[--w->n];
			break;
		}
		free_if_released(s, w);
	}
}

void
scout__withdraw_released(struct scout_server *s, const struct scout__peer *peer, uint32_t segment)
{
	if (segment)
		release(s, peer, segment);
}

void
scout__withdraw_gone(struct scout_server *s, const struct scout__peer *peer)
{
	release(s, peer, 0);
}

void
scout__withdraw_tick(struct scout_server *s)
{
	uint32_t left = s->state->n_withdrawn < TELL ? s->state->n_withdrawn : TELL;

	for (; left; left--) {
		struct scout__list *node = scout__list_pop(&s->state->withdrawn);

		scout__list_add(&s->state->withdrawn, node);
		tell(SCOUT__OWNER(node, struct scout__withdrawn, node));
	}
}

void
scout__withdraw_fini(struct scout_server *s)
{
	while (!scout__list_empty(&s->state->withdrawn)) {
		struct scout__withdrawn *w = SCOUT__OWNER(s->state->withdrawn.next, struct scout__withdrawn, node);

		w->n = 0;
		free_if_released(s, w);
	}
}

void
scout__withdraw_rebalance(struct scout_server *s, struct scout__run_item *item)
{
	const struct scout__chunk_index *giver = s->state->l1.rebalance.phase ? s->state->l1.rebalance.giver : NULL;
	bool was_leaving = giver && giver->extents.leaving;
	struct scout__extent *extent = NULL;
	struct scout__chunk_index *index = NULL;
	enum scout__rebalance_result what;

	if (s->draining)
		return;
	what = scout__rebalance_step(&s->state->l1, SCOUT__SLICE_CHUNKS, s->now_us, &extent, &index);
	/* Stores of the giver may have waited for the fate of the extent. */
	if (was_leaving && !giver->extents.leaving)
		scout__pending_ops_wake(s, &scout__ns_group_of(s, giver)->ns->pool_waiters);
	if (what == SCOUT__REBALANCE_TAKEN) {
		const struct scout__ns_group *group = scout__ns_group_of(s, index);

		scout__log(&s->log, SCOUT_LOG_DEBUG, "namespace \"%s\", group %u, gives up %u of its chunks' slots",
			   group->ns->name, (unsigned)group->number, (unsigned)extent->slots);
		withdraw(s, group, extent, 0, s->cfg.max_peers);
	} else if (what == SCOUT__REBALANCE_NOTHING) {
		scout__pending_ops_wake(s, &scout__ns_group_of(s, index)->ns->pool_waiters);
	}
	if (what != SCOUT__REBALANCE_IDLE)
		scout__run_queue_add(s, item);
}
