/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"

#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "peer.h"
#include "pending_op.h"
#include "segments.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * A namespace says which KV bytes are interchangeable. Its first HELLO fixes how prompts are cut and hashed, and which
 * groups of layers there are; the first REGISTER of each KV rank fixes the layout of a shard of each group. When all
 * ranks of this server are known, each group gets its chunk index: groups differ in the size and the number of their
 * shards. Until then lookups hit nothing and stores get no room.
 *
 * Weights: a chunk index names an entry by a space number besides its hash. RESET and CLEAR forget which numbers the
 * pairs of tenant and group had, and numbers are never used twice: so everything old is unreachable at once, whatever
 * still runs and however many tenants there are. Old memory comes back in steps: the sweep wakes the old operations that
 * wait, ends the old sessions and drops what nothing pins; scout__ns_unpinned() drops the rest with its last pin.
 *
 * A HELLO with other parameters, for a name that no peer uses any more, makes the namespace anew (scout__ns_remake).
 * ns_reuse.c finds a place for one more name.
 *
 * Threads: loop.
 */

#define SWEEP_LOOKS 1024u /* at entries, in one step */
#define SWEEP_DROP 8u     /* so many looks cost as much as dropping an entry */
#define SWEEP_SESSIONS 64u

SCOUT_ON_LOOP static void sweep_step(struct scout_server *s, struct scout__run_item *item);

struct scout__ns *
scout__ns_find(struct scout_server *s, const struct scout__str *name)
{
	for (uint32_t i = 0; i < s->state->n_ns; i++) {
		if (s->state->ns[i]->name_len == name->len && memcmp(s->state->ns[i]->name, name->p, name->len) == 0)
			return s->state->ns[i];
	}
	return NULL;
}

/* The groups of the namespace, with neither layouts nor chunk indexes. */
SCOUT_ON_LOOP static void
set_groups(struct scout__ns *ns, struct scout__ns_group *by_group)
{
	for (uint32_t i = 0; i < ns->groups.n; i++) {
		const struct scout__group *said = &ns->groups.group[i];
		struct scout__ns_group *group = &by_group[i];

		group->ns = ns;
		group->number = (uint16_t)i;
		group->readers = said->readers;
		group->rank_first = (uint16_t)((uint32_t)ns->rank_first * ns->readers / said->readers);
		group->rank_count = (uint16_t)((uint32_t)ns->rank_count * ns->readers / said->readers);
		group->kv_ranks = (uint16_t)((uint32_t)ns->kv_ranks * ns->readers / said->readers);
		group->stride = said->unit_tokens / ns->hash_tokens;
	}
	free(ns->by_group);
	ns->by_group = by_group;
}

SCOUT_ON_LOOP static void
set_parameters(struct scout__ns *ns, const struct scout__hello *hello, struct scout__ns_group *by_group)
{
	ns->hash_bytes = hello->hash_bytes;
	ns->chunk_tokens = hello->chunk_tokens;
	ns->hash_tokens = hello->hash_tokens;
	ns->groups = hello->groups;
	ns->rank_first = hello->rank_first;
	ns->rank_count = hello->rank_count;
	ns->kv_ranks = hello->kv_ranks;
	ns->readers = hello->readers;
	ns->weights = hello->weights;
	set_groups(ns, by_group);
}

/* Make a namespace in the next free place of the table. */
SCOUT_ON_LOOP static struct scout__ns *
ns_new(struct scout_server *s)
{
	struct scout__ns *ns = calloc(1, sizeof(*ns));

	if (!ns)
		return NULL;
	ns->tenants = scout__tenants_new();
	if (!ns->tenants) {
		free(ns);
		return NULL;
	}
	ns->sweep.step = sweep_step;
	ns->next_space = 1;
	ns->space_first = 1;
	scout__l1_ns_init(&ns->l1, 1);
	scout__ceiling_init(&ns->ceiling, &s->state->ceiling_left);
	scout__list_init(&ns->pool_waiters);
	scout__list_init(&ns->record_waiters);
	for (uint32_t i = 0; i < 1u << SCOUT__WAITER_BITS; i++)
		scout__list_init(&ns->chunk_waiters[i]);
	scout__list_init(&ns->sessions);
	scout__list_init(&ns->keeps);
	ns->ended_by = SCOUT_WIRE_WEIGHTS;
	s->state->ns[s->state->n_ns++] = ns;
	return ns;
}

struct scout__ns *
scout__ns_make(struct scout_server *s, const struct scout__hello *hello)
{
	struct scout__ns_group *by_group = calloc(hello->groups.n, sizeof(*by_group));
	struct scout__ns *ns;

	if (!by_group)
		return NULL;
	ns = s->state->n_ns < s->cfg.max_namespaces ? ns_new(s) : scout__ns_reuse(s, &hello->name_space);
	if (!ns) {
		free(by_group);
		return NULL;
	}
	ns->name_len = hello->name_space.len;
	memcpy(ns->name, hello->name_space.p, hello->name_space.len);
	ns->left_us = s->now_us; /* until its peer joins */
	set_parameters(ns, hello, by_group);
	scout__ns_take_share(s, ns);
	scout__ns_warn(s, ns);
	return ns;
}

SCOUT_ON_LOOP static void
forget_layouts(struct scout__ns_group *group)
{
	for (uint32_t i = 0; i < SCOUT_MAX_RANKS; i++) {
		free(group->layouts[i].plane_bytes);
		memset(&group->layouts[i], 0, sizeof(group->layouts[i]));
	}
}

void
scout__ns_note_use(struct scout__ns *ns)
{
	for (uint32_t i = 0; i < ns->groups.n; i++)
		if (ns->by_group[i].index)
			ns->by_group[i].index->idle = ns->n_peers == 0;
}

void
scout__ns_drop_indexes(struct scout_server *s, struct scout__ns *ns)
{
	SCOUT_ASSERT(ns->n_moving == 0);
	for (uint32_t i = 0; i < ns->groups.n; i++) {
		struct scout__ns_group *group = &ns->by_group[i];

		s->state->hooks->index_closed(s, group);
		scout__index_free(group->index);
		group->index = NULL;
		group->sweep_next = 0;
		group->heard = 0;
		forget_layouts(group);
	}
	ns->complete = false;
	/* All chunks are gone, and a namespace that takes this place is another one: readers find another feed, and start over. */
	scout__feed_end(s, ns);
}

void
scout__ns_empty(struct scout_server *s, struct scout__ns *ns)
{
	scout__ns_outdate(s, ns, SCOUT_WIRE_WEIGHTS);
	scout__ns_drop_indexes(s, ns);
	s->state->hooks->closed(ns);
}

bool
scout__ns_remake(struct scout_server *s, struct scout__ns *ns, const struct scout__hello *hello)
{
	uint64_t weights = hello->weights ? hello->weights : ns->weights;
	struct scout__ns_group *by_group = calloc(hello->groups.n, sizeof(*by_group));

	if (!by_group)
		return false;
	scout__ns_empty(s, ns);
	set_parameters(ns, hello, by_group);
	/* Users say the version; a HELLO without one has not gone back to "none". */
	ns->weights = weights;
	return true;
}

void
scout__ns_free(struct scout_server *s, struct scout__ns *ns)
{
	scout__run_queue_remove(&ns->sweep);
	scout__ns_drop_indexes(s, ns);
	s->state->hooks->closed(ns);
	scout__tenants_free(NULL, &ns->tenants->chore);
	scout__l1_ns_fini(&ns->l1);
	free(ns->ceiling.cells);
	free(ns->space_at);
	free(ns->by_group);
	free(ns);
}

/* ---- what a new weights version or a clear ended ---- */

void
scout__ns_outdate(struct scout_server *s, struct scout__ns *ns, uint16_t status)
{
	uint64_t bytes = 0;

	scout__feed_cleared(ns);
	scout__ceiling_clear(&ns->ceiling);
	ns->weights_gen++;
	ns->ended_by = status;
	ns->space_floor = ns->space_first = ns->next_space;
	ns->has_dropped = false;
	ns->n_space_at = 0;
	for (uint32_t i = 0; i < ns->groups.n; i++) {
		const struct scout__chunk_index *index = ns->by_group[i].index;

		bytes += index ? index->n_entries * index->chunk_bytes : 0;
		ns->by_group[i].sweep_next = 0;
	}
	scout__accounts_outdate(&ns->l1, ns->next_space, bytes);
	scout__run_queue_add(s, &ns->sweep);
	s->state->hooks->outdated(s);
}

const char *
scout__ns_ended_text(const struct scout__ns *ns)
{
	return ns->ended_by == SCOUT_WIRE_CLEARED ? "the namespace was cleared" : "the weights version changed";
}

void
scout__ns_unpinned(struct scout__ns_group *group, uint32_t entry)
{
	const struct scout__entry *e = &group->index->entries[entry];
	const struct scout__ns *ns = group->ns;

	if (e->in_use && (e->space < ns->space_floor ||
			  (ns->has_dropped && ns->tenants->spaces[scout__ns_space_index(ns, e->space)].id != e->space)))
		(void)scout__index_drop(group->index, entry); /* if another pin is left, its end drops the entry */
}

/* Drop some of what is out of date in @group. True: there is more. */
SCOUT_ON_LOOP static bool
sweep_group(struct scout__ns_group *group)
{
	uint32_t left = SWEEP_LOOKS;

	if (!group->index)
		return false;
	while (left >= SWEEP_DROP && group->sweep_next < group->index->slots.next_fresh) {
		uint32_t n = group->index->n_entries;

		scout__ns_unpinned(group, group->sweep_next++);
		left -= group->index->n_entries < n ? SWEEP_DROP : 1;
	}
	return group->sweep_next < group->index->slots.next_fresh;
}

SCOUT_ON_LOOP static void
sweep_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__ns *ns = SCOUT__OWNER(item, struct scout__ns, sweep);

	if (scout__pending_ops_wake_outdated(s, ns, SCOUT__SLICE_CHUNKS)) {
		scout__run_queue_add(s, item);
		return;
	}
	for (uint32_t i = 0; i < SWEEP_SESSIONS && !scout__list_empty(&ns->sessions); i++) {
		struct scout__session *session = SCOUT__OWNER(ns->sessions.next, struct scout__session, of_ns);

		/* The list has the oldest session first. */
		if (session->weights_gen == ns->weights_gen)
			break;
		scout__session_end(s, session, false);
		if (i + 1 == SWEEP_SESSIONS) {
			scout__run_queue_add(s, item);
			return;
		}
	}
	if (scout__sessions_unkeep(s, ns, ns->n_peers == 0, SWEEP_SESSIONS)) {
		scout__run_queue_add(s, item);
		return;
	}
	/* One group after the other: earlier groups are done, and what was stored in them since is new. */
	for (uint32_t i = 0; i < ns->groups.n; i++) {
		bool is_swept =
			ns->by_group[i].index && ns->by_group[i].sweep_next == ns->by_group[i].index->slots.next_fresh;

		if (!is_swept && sweep_group(&ns->by_group[i])) {
			scout__run_queue_add(s, item);
			return;
		}
	}
}

/* ---- extents ---- */

SCOUT_ON_LOOP static void
deliver_to_workers(struct scout_server *s, const struct scout__ns *ns)
{
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (peer && !peer->leaving && peer->ns == ns && peer->rank >= 0 && peer->lease)
			(void)scout__segments_deliver(s, peer); /* the tick tries again if the socket is full */
	}
}

void
scout__ns_pool_ready(struct scout_server *s)
{
	struct scout__extent *extent;

	while ((extent = scout__pool_ready(&s->state->l1.pool)) != NULL) {
		struct scout__ns_group *group = scout__ns_group_of(s, extent->owner);
		uint32_t first = extent->first, n = extent->fresh;

		if (!group) {
			scout__extent_free(&s->state->l1.pool, extent);
			continue;
		}
		if (scout__index_grow(group->index, extent)) {
			scout__log(&s->log, SCOUT_LOG_DEBUG, "namespace \"%s\", group %u: room for %u chunks",
				   group->ns->name, (unsigned)group->number, (unsigned)group->index->extents.n_slots);
			deliver_to_workers(s, group->ns);
			s->state->hooks->slots_came(s, group, first, n);
		}
		scout__pending_ops_wake(s, &group->ns->pool_waiters);
	}
	scout__ns_grow_ahead(s);
}

void
scout__ns_grow_ahead(struct scout_server *s)
{
	if (s->cfg.prealloc && !s->draining)
		scout__l1_grow_ahead(&s->state->l1);
}
