/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fetch.h"
#include "lease.h"
#include "peer.h"
#include "pending_op.h"
#include "run_queue.h"
#include "server_core.h"
#include "list.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * A namespace says which KV bytes are interchangeable. Its first HELLO fixes how prompts are cut and hashed, the first
 * REGISTER of each KV rank how a shard is laid out; when all ranks of this server are known, there is a index. Until
 * then lookups hit nothing and stores get no room.
 *
 * Weights: an index entry is named by a space number besides its hash. RESET forgets which numbers (tenant, group) had,
 * and numbers are never given twice: so everything old is unreachable in the moment of the RESET, whatever is still
 * running. Its memory comes back in steps: the sweep ends the old sessions and drops what nothing pins; what is pinned
 * is dropped when its last pin goes (scout__ns_unpinned).
 *
 * Other parameters for a name that nobody uses any more: the namespace is made anew. A place for one more name:
 * ns_reuse.c.
 *
 * Threads: loop.
 */

#define SWEEP_ENTRIES 1024u
#define SWEEP_SESSIONS 64u

SCOUT_ON_LOOP static void sweep_step(struct scout_server *s, struct scout__run_item *item);

SCOUT_ON_LOOP static struct scout__ns *
ns_find(struct scout_server *s, const struct scout__str *name)
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

/* A namespace of this name; NULL: no place, or no memory. */
SCOUT_ON_LOOP static struct scout__ns *
ns_make(struct scout_server *s, const struct scout__hello *hello)
{
	struct scout__ns *ns =
		s->state->n_ns < s->cfg.max_namespaces ? ns_new(s) : scout__ns_reuse(s, &hello->name_space);

	if (!ns)
		return NULL;
	ns->name_len = hello->name_space.len;
	memcpy(ns->name, hello->name_space.p, hello->name_space.len);
	ns->left_us = s->now_us; /* until its peer is there */
	set_parameters(ns, hello);
	scout__records_open(s, ns);
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

/* Which parameter of @hello is not the namespace's, with both values; false: all agree. */
SCOUT_ON_LOOP static bool
mismatch(const struct scout__ns *ns, const struct scout__hello *hello, char *text, size_t len)
{
	const struct {
		const char *name;
		uint32_t here, there;
	} fields[] = {
		{"hash_bytes", ns->hash_bytes, hello->hash_bytes},
		{"chunk_tokens", ns->chunk_tokens, hello->chunk_tokens},
		{"kv_ranks", ns->kv_ranks, hello->kv_ranks},
		{"rank_first", ns->rank_first, hello->rank_first},
		{"rank_count", ns->rank_count, hello->rank_count},
		{"readers", ns->readers, hello->readers},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].here == fields[i].there)
			continue;
		(void)snprintf(text, len, "namespace \"%s\" has %s = %u, this HELLO says %u", ns->name, fields[i].name,
			       (unsigned)fields[i].here, (unsigned)fields[i].there);
		return true;
	}
	return false;
}

SCOUT_ON_LOOP static bool
weights_differ(const struct scout__ns *ns, const struct scout__hello *hello)
{
	return hello->weights && ns->weights && hello->weights != ns->weights;
}

/* Other parameters for a namespace: only when nobody is there. */
SCOUT_ON_LOOP static bool
rebuild(struct scout_server *s, struct scout__ns *ns, const struct scout__hello *hello, uint16_t *ret_status,
	char *text, size_t text_len)
{
	uint32_t n_chunks;
	uint64_t weights;

	if (ns->n_peers) {
		*ret_status = SCOUT_WIRE_NAMESPACE; /* mismatch() has written the text */
		return false;
	}
	(void)scout__writes_drop(s, ns);
	if (ns->n_sessions || ns->n_holds || ns->n_moving) {
		*ret_status = SCOUT_WIRE_LIMIT;
		(void)snprintf(
			text, text_len,
			"namespace \"%s\" has other parameters, and %u sessions, %u holds and %u transfers of the "
			"second tier that are not over; try again",
			ns->name, (unsigned)ns->n_sessions, (unsigned)ns->n_holds, (unsigned)ns->n_moving);
		return false;
	}
	n_chunks = ns->index ? ns->index->n_entries : 0;
	scout__log_limited(
		&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, n_chunks ? SCOUT_LOG_WARN : SCOUT_LOG_INFO,
		"%s, and no other peer is in it: it is made anew, %u chunks are dropped", text, (unsigned)n_chunks);
	weights = hello->weights ? hello->weights : ns->weights;
	scout__ns_empty(s, ns);
	set_parameters(ns, hello);
	scout__records_open(s, ns);
	/* The version is what users say; a HELLO that says none has not gone back to "none". */
	ns->weights = weights;
	return true;
}

struct scout__ns *
scout__ns_hello(struct scout_server *s, const struct scout__hello *hello, const struct scout__peer *known,
		uint16_t *ret_status, char *text, size_t text_len)
{
	struct scout__ns *ns = ns_find(s, &hello->name_space);

	if (known && known->ns != ns) {
		*ret_status = SCOUT_WIRE_NAMESPACE;
		(void)snprintf(text, text_len, "this token is in namespace \"%s\"", known->ns->name);
		return NULL;
	}
	if (!ns) {
		ns = ns_make(s, hello);
		if (!ns) {
			*ret_status = SCOUT_WIRE_LIMIT;
			(void)snprintf(text, text_len,
				       "no place for one more namespace: %u are in use, max_namespaces is %u",
				       (unsigned)s->state->n_ns, (unsigned)s->cfg.max_namespaces);
		}
		return ns;
	}
	if (mismatch(ns, hello, text, text_len))
		return rebuild(s, ns, hello, ret_status, text, text_len) ? ns : NULL;
	if (weights_differ(ns, hello)) {
		if (ns->n_peers) {
			*ret_status = SCOUT_WIRE_WEIGHTS;
			(void)snprintf(text, text_len,
				       "namespace \"%s\" has weights version %llu, this HELLO says %llu", ns->name,
				       (unsigned long long)ns->weights, (unsigned long long)hello->weights);
			return NULL;
		}
		scout__ns_reset(s, ns, hello->weights);
	}
	if (!ns->weights)
		ns->weights = hello->weights;
	return ns;
}

/* ---- spaces ---- */

SCOUT_ON_LOOP static uint64_t
space_key(const struct scout_server *s, const struct scout__str *tenant, uint16_t group)
{
	return XXH3_64bits_withSeed(tenant->p, tenant->len, s->seed) ^ ((uint64_t)group * UINT64_C(0x9e3779b97f4a7c15));
}

/* The index of (tenant, group), or SCOUT__MAP_NONE. *ret_taken: by another one with the same hash. */
SCOUT_ON_LOOP static uint32_t
space_find(const struct scout_server *s, const struct scout__ns *ns, const struct scout__str *tenant, uint16_t group,
	   bool *ret_taken)
{
	uint32_t i = scout__map_get(&ns->space_map, space_key(s, tenant, group));
	const struct scout__space *space;

	*ret_taken = false;
	if (i == SCOUT__MAP_NONE)
		return i;
	space = &ns->spaces[i];
	if (space->group == group && space->tenant_len == tenant->len &&
	    (tenant->len == 0 || memcmp(space->tenant, tenant->p, tenant->len) == 0))
		return i;
	*ret_taken = true;
	return SCOUT__MAP_NONE;
}

uint32_t
scout__ns_space(const struct scout_server *s, const struct scout__ns *ns, const struct scout__str *tenant,
		uint16_t group)
{
	bool taken;
	uint32_t i = space_find(s, ns, tenant, group, &taken);

	return i == SCOUT__MAP_NONE ? 0 : ns->spaces[i].id;
}

uint32_t
scout__ns_space_index(const struct scout__ns *ns, uint32_t id)
{
	SCOUT_ASSERT(id - ns->space_first < ns->n_space_at);
	return ns->space_at[id - ns->space_first];
}

/* Give the space a number. */
SCOUT_ON_LOOP static uint32_t
number_space(struct scout__ns *ns, uint32_t i)
{
	uint32_t cap = ns->cap_space_at ? ns->cap_space_at * 2 : 16;

	if (ns->n_space_at == ns->cap_space_at) {
		uint32_t *space_at = realloc(ns->space_at, cap * sizeof(*space_at));

		if (!space_at)
			return 0;
		ns->space_at = space_at;
		ns->cap_space_at = cap;
	}
	ns->space_at[ns->n_space_at++] = i;
	ns->spaces[i].id = ns->next_space++;
	return ns->spaces[i].id;
}

SCOUT_ON_LOOP static bool
space_room(struct scout__ns *ns)
{
	uint32_t cap = ns->cap_spaces ? ns->cap_spaces * 2 : 16;
	struct scout__space *spaces;

	if (ns->n_spaces < ns->cap_spaces)
		return true;
	if (ns->n_spaces == SCOUT__MAX_SPACES)
		return false;
	spaces = realloc(ns->spaces, cap * sizeof(*spaces));
	if (!spaces)
		return false;
	ns->spaces = spaces;
	ns->cap_spaces = cap;
	return true;
}

uint32_t
scout__ns_space_make(struct scout_server *s, struct scout__ns *ns, const struct scout__str *tenant, uint16_t group)
{
	bool taken;
	uint32_t i = space_find(s, ns, tenant, group, &taken);
	char *copy;

	if (i != SCOUT__MAP_NONE && ns->spaces[i].id)
		return ns->spaces[i].id;
	if (taken || ns->next_space == UINT32_MAX)
		return 0;
	if (i == SCOUT__MAP_NONE) {
		if (!space_room(ns))
			return 0;
		copy = malloc(tenant->len + (size_t)1);
		if (!copy)
			return 0;
		if (tenant->len)
			memcpy(copy, tenant->p, tenant->len);
		copy[tenant->len] = '\0';
		i = ns->n_spaces;
		if (!scout__map_put(&ns->space_map, space_key(s, tenant, group), i)) {
			free(copy);
			return 0;
		}
		ns->spaces[i] = (struct scout__space){copy, tenant->len, group, 0};
		ns->n_spaces++;
	}
	return number_space(ns, i);
}

/* ---- weights ---- */

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
scout__ns_reset(struct scout_server *s, struct scout__ns *ns, uint64_t weights)
{
	if (weights == ns->weights)
		return;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\": weights version %llu, was %llu", ns->name, (unsigned long long)weights,
			   (unsigned long long)ns->weights);
	if (s->fetch && !ns->weights)
		scout__log_limited(
			&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			"namespace \"%s\": what was written to the second tier before is of no version, and can be hit "
			"after a restart by who says none; set weights_version in every client and worker",
			ns->name);
	ns->weights = weights;
	scout__ns_outdate(s, ns, SCOUT_WIRE_WEIGHTS);
}

void
scout__ns_unpinned(struct scout__ns *ns, uint32_t entry)
{
	const struct scout__entry *e = &ns->index->entries[entry];

	if (e->in_use && e->space < ns->space_floor)
		(void)scout__index_drop(ns->index, entry); /* pinned by somebody else: dropped when that pin goes */
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
			(void)scout__lease_deliver(s, peer); /* what is blocked is tried again by the tick */
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
