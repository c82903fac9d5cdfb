/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"

#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "pending_op.h"
#include "segments.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * A namespace says which KV bytes are interchangeable. Its first HELLO fixes how prompts are cut and hashed, the first
 * REGISTER of each KV rank how a shard is laid out; when all ranks of this server are known, the namespace gets its
 * chunk index. Until then lookups hit nothing and stores get no room.
 *
 * Weights: the chunk index names an entry by a space number besides its hash. RESET and CLEAR forget which numbers the
 * pairs of tenant and group had, and numbers are never used twice: so everything old is unreachable at once, whatever
 * still runs. Its memory comes back in steps: the sweep ends the old sessions and drops every entry that nothing pins;
 * scout__ns_unpinned() drops the others when their last pin is given back.
 *
 * A HELLO with other parameters for a name that no peer uses any more makes the namespace anew (scout__ns_remake).
 * ns_reuse.c finds a place for one more name.
 *
 * Threads: loop.
 */

#define SWEEP_ENTRIES 1024u
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

SCOUT_ON_LOOP static void
set_parameters(struct scout__ns *ns, const struct scout__hello *hello)
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
}

/* In the next free place of the table. */
SCOUT_ON_LOOP static struct scout__ns *
ns_new(struct scout_server *s)
{
	struct scout__ns *ns = calloc(1, sizeof(*ns));

	if (!ns)
		return NULL;
	if (scout__map_init(&ns->space_map, SCOUT__MAX_SPACES) != 0) {
		free(ns);
		return NULL;
	}
	ns->sweep.step = sweep_step;
	ns->next_space = 1;
	ns->space_first = 1;
	scout__list_init(&ns->pool_waiters);
	scout__list_init(&ns->record_waiters);
	for (uint32_t i = 0; i < 1u << SCOUT__WAITER_BITS; i++)
		scout__list_init(&ns->chunk_waiters[i]);
	scout__list_init(&ns->sessions);
	ns->ended_by = SCOUT_WIRE_WEIGHTS;
	s->state->ns[s->state->n_ns++] = ns;
	return ns;
}

struct scout__ns *
scout__ns_make(struct scout_server *s, const struct scout__hello *hello)
{
	struct scout__ns *ns =
		s->state->n_ns < s->cfg.max_namespaces ? ns_new(s) : scout__ns_reuse(s, &hello->name_space);

	if (!ns)
		return NULL;
	ns->name_len = hello->name_space.len;
	memcpy(ns->name, hello->name_space.p, hello->name_space.len);
	ns->left_us = s->now_us; /* until its peer is there */
	set_parameters(ns, hello);
	scout__ns_warn(s, ns);
	return ns;
}

SCOUT_ON_LOOP static void
forget_layouts(struct scout__ns *ns)
{
	for (uint32_t i = 0; i < SCOUT_MAX_RANKS; i++) {
		free(ns->layouts[i].plane_bytes);
		memset(&ns->layouts[i], 0, sizeof(ns->layouts[i]));
	}
}

void
scout__ns_note_use(struct scout__ns *ns)
{
	if (ns->index)
		ns->index->idle = ns->n_peers == 0;
}

void
scout__ns_drop_index(struct scout_server *s, struct scout__ns *ns)
{
	SCOUT_ASSERT(ns->n_moving == 0);
	s->state->hooks->index_closed(ns);
	scout__index_free(ns->index);
	ns->index = NULL;
	ns->sweep_next = 0;
	scout__run_queue_remove(&ns->sweep);
	forget_layouts(ns);
}

void
scout__ns_empty(struct scout_server *s, struct scout__ns *ns)
{
	scout__ns_outdate(s, ns, SCOUT_WIRE_WEIGHTS);
	scout__ns_drop_index(s, ns);
	s->state->hooks->closed(ns);
}

void
scout__ns_remake(struct scout_server *s, struct scout__ns *ns, const struct scout__hello *hello)
{
	uint64_t weights = hello->weights ? hello->weights : ns->weights;

	scout__ns_empty(s, ns);
	set_parameters(ns, hello);
	/* The version is what users say; a HELLO that says none has not gone back to "none". */
	ns->weights = weights;
}

void
scout__ns_free(struct scout_server *s, struct scout__ns *ns)
{
	scout__ns_drop_index(s, ns);
	s->state->hooks->closed(ns);
	for (uint32_t i = 0; i < ns->n_spaces; i++)
		free(ns->spaces[i].tenant);
	free(ns->spaces);
	free(ns->space_at);
	scout__map_fini(&ns->space_map);
	free(ns);
}

/* ---- what a new weights version or a clear ended ---- */

void
scout__ns_outdate(struct scout_server *s, struct scout__ns *ns, uint16_t status)
{
	ns->weights_gen++;
	ns->ended_by = status;
	ns->space_floor = ns->space_first = ns->next_space;
	ns->n_space_at = 0;
	for (uint32_t i = 0; i < ns->n_spaces; i++)
		ns->spaces[i].id = 0;
	ns->sweep_next = 0;
	scout__pending_ops_wake(s, &ns->pool_waiters);
	scout__pending_ops_wake(s, &ns->record_waiters);
	for (uint32_t i = 0; i < 1u << SCOUT__WAITER_BITS; i++)
		scout__pending_ops_wake(s, &ns->chunk_waiters[i]);
	scout__run_queue_add(s, &ns->sweep);
	s->state->hooks->outdated(s);
}

const char *
scout__ns_ended_text(const struct scout__ns *ns)
{
	return ns->ended_by == SCOUT_WIRE_CLEARED ? "the namespace was cleared" : "the weights version changed";
}

void
scout__ns_unpinned(struct scout__ns *ns, uint32_t entry)
{
	const struct scout__entry *e = &ns->index->entries[entry];

	if (e->in_use && e->space < ns->space_floor)
		(void)scout__index_drop(ns->index, entry); /* where another pin is left, its end drops it */
}

SCOUT_ON_LOOP static void
sweep_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__ns *ns = SCOUT__OWNER(item, struct scout__ns, sweep);
	uint32_t end;

	for (uint32_t i = 0; i < SWEEP_SESSIONS && !scout__list_empty(&ns->sessions); i++) {
		struct scout__session *session = SCOUT__OWNER(ns->sessions.next, struct scout__session, of_ns);

		/* Sessions are in the order of their making. */
		if (session->weights_gen == ns->weights_gen)
			break;
		scout__session_end(s, session, false);
		if (i + 1 == SWEEP_SESSIONS) {
			scout__run_queue_add(s, item);
			return;
		}
	}
	if (!ns->index)
		return;
	end = ns->index->next_fresh;
	if (end - ns->sweep_next > SWEEP_ENTRIES)
		end = ns->sweep_next + SWEEP_ENTRIES;
	for (; ns->sweep_next < end; ns->sweep_next++)
		scout__ns_unpinned(ns, ns->sweep_next);
	if (ns->sweep_next < ns->index->next_fresh)
		scout__run_queue_add(s, item);
}

/* ---- extents ---- */

SCOUT_ON_LOOP static void
deliver_to_workers(struct scout_server *s, const struct scout__ns *ns)
{
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (peer && !peer->leaving && peer->ns == ns && peer->rank >= 0 && peer->lease)
			(void)scout__segments_deliver(s, peer); /* the tick tries again where the socket is full */
	}
}

void
scout__ns_pool_ready(struct scout_server *s)
{
	struct scout__extent *extent;

	while ((extent = scout__pool_ready(&s->state->l1.pool)) != NULL) {
		struct scout__ns *ns = NULL;

		for (uint32_t i = 0; i < s->state->n_ns; i++) {
			if (s->state->ns[i]->index && s->state->ns[i]->index == extent->owner)
				ns = s->state->ns[i];
		}
		if (!ns) {
			scout__extent_free(&s->state->l1.pool, extent);
			continue;
		}
		if (scout__index_grow(ns->index, extent)) {
			scout__log(&s->log, SCOUT_LOG_DEBUG, "namespace \"%s\": room for %u chunks", ns->name,
				   (unsigned)ns->index->n_slots);
			deliver_to_workers(s, ns);
		}
		scout__pending_ops_wake(s, &ns->pool_waiters);
	}
}
