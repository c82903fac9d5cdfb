/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "ns.h"
#include "peer.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * The table of namespaces has max_namespaces places, and a name stays in it when its last peer leaves: its chunks wait
 * for a peer that comes back. When a new name finds no place, it gets the place of a namespace that all peers have left
 * and in which nothing runs any more: the one left first of those without chunks, else the one left first. HELLO is
 * refused only if every namespace is in use.
 *
 * What no peer uses and no chunk needs is freed without a new name: an empty chunk index keeps its extents, and address
 * space for all that the pool can hold. A worker that comes back registers and gets a new one. The tick looks, since the
 * last chunk may go long after the last peer, to another namespace.
 *
 * The structure is emptied, not freed: loads and writes that still point to it see another weights_gen, as after a
 * RESET.
 *
 * Rejected: forgetting a namespace some time after its last peer left. An engine that is away for a night finds its
 * chunks again.
 *
 * Threads: loop.
 */

/* All peers have left, and nothing that they held is still being ended, moved or set aside. */
SCOUT_ON_LOOP static bool
is_abandoned(const struct scout__ns *ns)
{
	return ns->n_peers == 0 && ns->n_leaving == 0 && ns->n_sessions == 0 && ns->n_holds == 0 && ns->n_moving == 0;
}

SCOUT_ON_LOOP static bool
is_empty(const struct scout__ns *ns)
{
	return scout__ns_count_chunks(ns) == 0;
}

/* Whether @a is to be reused rather than @b, which may be NULL. */
SCOUT_ON_LOOP static bool
is_better(const struct scout__ns *a, const struct scout__ns *b)
{
	if (!b || is_empty(a) != is_empty(b))
		return !b || is_empty(a);
	return a->left_us < b->left_us;
}

struct scout__ns *
scout__ns_reuse(struct scout_server *s, const struct scout__str *name)
{
	struct scout__ns *best = NULL;
	struct scout__tenants *none;
	uint32_t n_chunks;

	for (uint32_t i = 0; i < s->state->n_ns; i++)
		if (is_abandoned(s->state->ns[i]) && is_better(s->state->ns[i], best))
			best = s->state->ns[i];
	none = best ? scout__tenants_new() : NULL;
	if (!none)
		return NULL;
	n_chunks = scout__ns_count_chunks(best);
	s->count.namespaces_reused++;
	scout__log_limited(
		&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, n_chunks ? SCOUT_LOG_WARN : SCOUT_LOG_INFO,
		"namespace \"%.*s\" takes the place of \"%s\", which all peers left %llu s ago: max_namespaces = "
		"%u are there; %u chunks are dropped",
		(int)name->len, name->p, best->name, (unsigned long long)((s->now_us - best->left_us) / 1000000),
		(unsigned)s->cfg.max_namespaces, (unsigned)n_chunks);
	scout__ns_empty(s, best);
	best->generation = best->cleared = best->in_since = 0;
	memset(best->older, 0, sizeof(best->older));
	scout__pool_do(&s->state->l1.pool, &best->tenants->chore, scout__tenants_free);
	best->tenants = none;
	scout__l1_ns_fini(&best->l1);
	scout__l1_ns_init(&best->l1, best->next_space);
	memset(best->name, 0, sizeof(best->name));
	memset(&best->count, 0, sizeof(best->count));
	return best;
}

/* Free the chunk indexes of a namespace that all peers have left and that has no chunk. */
SCOUT_ON_LOOP static void
drop_unused(struct scout_server *s, struct scout__ns *ns)
{
	bool has_index = false;

	for (uint32_t i = 0; i < ns->groups.n; i++)
		has_index |= ns->by_group[i].index != NULL;
	if (has_index && is_abandoned(ns) && is_empty(ns))
		scout__ns_drop_indexes(s, ns);
}

void
scout__ns_tick(struct scout_server *s)
{
	for (uint32_t left = scout__tick_share(s->state->n_ns); left; left--) {
		s->state->tick_ns = (s->state->tick_ns + 1) % s->state->n_ns;
		scout__feed_tick(s, s->state->ns[s->state->tick_ns]);
		drop_unused(s, s->state->ns[s->state->tick_ns]);
	}
}

void
scout__ns_warn(struct scout_server *s, const struct scout__ns *fresh)
{
	uint32_t n = 0, max = s->cfg.max_namespaces;

	for (uint32_t i = 0; i < s->state->n_ns; i++)
		n += s->state->ns[i] == fresh || !is_abandoned(s->state->ns[i]) || !is_empty(s->state->ns[i]);
	/* An operator who allows only a handful knows it. */
	if (max < 5 || (uint64_t)n * 5 < (uint64_t)max * 4)
		return;
	scout__log_limited(
		&s->log, &s->limit_names, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
		"%u of max_namespaces = %u namespaces have peers or chunks; one that all peers have left is dropped "
		"for a new one, and when there is none, HELLO is refused",
		(unsigned)n, (unsigned)max);
}

uint32_t
scout__ns_count_abandoned(const struct scout_server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->state->n_ns; i++)
		n += is_abandoned(s->state->ns[i]);
	return n;
}
