/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"
#include "ns.h"
#include "peer.h"
#include "server_core.h"
#include "state.h"

/*
 * The groups of namespaces: which group has a chunk index, and which of its shards a worker has. Loop thread.
 */

uint32_t
scout__ns_count_chunks(const struct scout__ns *ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ns->groups.n; i++)
		n += ns->by_group[i].index ? ns->by_group[i].index->n_entries : 0;
	return n;
}

struct scout__ns_group *
scout__ns_group_of(const struct scout_server *s, const struct scout__chunk_index *index)
{
	for (uint32_t i = 0; index && i < s->state->n_ns; i++)
		for (uint32_t g = 0; g < s->state->ns[i]->groups.n; g++)
			if (s->state->ns[i]->by_group[g].index == index)
				return &s->state->ns[i]->by_group[g];
	return NULL;
}

/* Workers of this server by number: each KV rank has the namespace's readers. */
SCOUT_ON_LOOP static uint32_t
number_of(const struct scout__peer *worker)
{
	return (uint32_t)worker->rank * worker->ns->readers + worker->reader;
}

int32_t
scout__ns_group_rank(const struct scout__ns_group *group, const struct scout__peer *worker)
{
	if (worker->rank < 0 || !group->index || !(worker->tables >> group->number & 1))
		return -1;
	for (uint32_t i = 0; i < group->index->n_ranks; i++)
		if (group->ranks[i] == number_of(worker) / group->readers)
			return (int32_t)i;
	return -1;
}

uint32_t
scout__ns_group_reader(const struct scout__ns_group *group, const struct scout__peer *worker)
{
	return number_of(worker) % group->readers;
}

void
scout__ns_evicted(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout_server *s = index->l1->user;
	const struct scout__ns_group *group = index->user;
	const struct scout__ns *ns = group->ns;
	const struct scout__entry *e = &index->entries[entry];
	const struct scout__space *space;
	struct scout__str tenant;

	if (s->fetch || ns->groups.group[group->number].policy != SCOUT_POLICY_ALL || e->space < ns->space_floor)
		return;
	space = &ns->tenants->spaces[scout__ns_space_index(ns, e->space)];
	tenant = (struct scout__str){.p = space->tenant, .len = space->tenant_len};
	for (uint16_t g = 0; g < ns->groups.n; g++) {
		struct scout__chunk_index *other = ns->by_group[g].index;
		uint32_t lost;

		if (!other || ns->groups.group[g].policy == SCOUT_POLICY_ALL)
			continue;
		lost = scout__index_find(other, scout__ns_space(s, ns, &tenant, g), e->hash);
		if (lost != SCOUT__NO_ENTRY)
			scout__index_unneeded(other, lost);
	}
}
