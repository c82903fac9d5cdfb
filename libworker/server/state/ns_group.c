/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"
#include "peer.h"
#include "server_core.h"
#include "state.h"

/*
 * The groups of namespaces: which one has a chunk index, and which of its shards a worker has. Loop thread.
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
