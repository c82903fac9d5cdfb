/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <stdio.h>
#include <string.h>

#include "fetch.h"
#include "hold.h"
#include "ns.h"
#include "rights.h"
#include "server_core.h"
#include "state.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Turns the server's own structures into one block of values (stats.h). This runs on the loop between two operations,
 * so it copies and adds, but formats nothing: 64 namespaces and 4 adapters take some 10 us. Peers may ask every second,
 * and many times.
 *
 * Threads: loop.
 */

#define TENANT_NAMES 512u /* names that are looked up at most: each takes some 50 ns */

SCOUT_ON_LOOP static void
take_server(const struct scout_server *s, struct scout__stats *t)
{
	t->taken_us = s->now_us;
	t->epoch = s->epoch;
	t->uptime_ms = (s->now_us - s->start_us) / 1000;
	t->draining = s->draining;
	t->namespaces = s->state->n_ns;
	t->namespaces_limit = s->cfg.max_namespaces;
	t->namespaces_abandoned = scout__ns_count_abandoned(s);
	t->peers = s->cfg.max_peers - s->state->n_free_peers;
	t->peers_limit = s->cfg.max_peers;
	t->connections = s->transport->n_conns;
	t->connections_limit = s->transport->conns_limit;
	t->channels = s->transport->n_channels;
	t->channels_backlog_bytes = s->transport->shm_backlog;
	t->replies_unsent_bytes = scout__unsent_bytes(s);
	t->leases = s->transport->n_leases;
	t->sessions = s->state->n_session_places - s->state->n_free_sessions - s->state->keeps.n;
	t->sessions_limit = s->cfg.max_sessions;
	t->sessions_bytes = s->state->session_bytes;
	t->requests_bytes = s->state->request_bytes;
	t->requests_bytes_limit = s->cfg.max_request_bytes;
	t->feeds_bytes = s->state->feed_bytes + s->state->l1.described;
	t->feeds_bytes_limit = s->cfg.feed_bytes * 9 / 4;
	t->ops_waiting = s->state->n_pending_ops;
	t->holds = SCOUT__MAX_HOLDS - s->state->n_free_holds;
	t->quarantine = s->state->n_quarantine;
	t->count = s->count;
}

SCOUT_ON_LOOP static void
add_index(struct scout__chunk_index *index, struct scout__stats_l1 *l1)
{
	scout__index_count_hints(index);
	l1->bytes_used += scout__index_used_bytes(index);
	l1->bytes_extents += scout__index_total_bytes(index);
	l1->bytes_index += scout__index_own_bytes(index);
	l1->bytes_held += index->pins.held_bytes;
	l1->chunks += index->n_entries;
	l1->slots += index->extents.n_slots;
	l1->extents += index->extents.n;
}

SCOUT_ON_LOOP static void
take_l1(const struct scout_server *s, struct scout__stats_l1 *l1)
{
	memset(l1, 0, sizeof(*l1));
	l1->bytes_limit = s->cfg.l1_bytes;
	l1->bytes_promised = s->state->l1.promised_bytes;
	l1->bytes_promised_limit = s->state->l1.max_promised;
	l1->extents_withdrawn = s->state->l1.extents_withdrawn;
	l1->extents_leaving = s->state->n_withdrawn;
	l1->extents_pinned = s->state->l1.extents_pinned;
	l1->bytes_pool = s->state->l1.pool.used_bytes;
	l1->extra_bytes = s->state->l1.pool.extra_bytes;
	l1->growth_failures = s->state->l1.pool.failures;
	l1->growth_errno = s->state->l1.pool.failed_errno;
	l1->evictions = s->state->l1.evictions;
	l1->evictions_unneeded = s->state->l1.evictions_unneeded;
	l1->refusals = s->state->l1.refusals;
	l1->promises_refused = s->state->l1.promises_refused;
	for (uint32_t i = 0; i < s->state->n_ns; i++) {
		for (uint32_t g = 0; g < s->state->ns[i]->groups.n; g++)
			if (s->state->ns[i]->by_group[g].index)
				add_index(s->state->ns[i]->by_group[g].index, l1);
	}
	l1->hints_wrong_chunks = s->state->l1.hinted.returned;
	l1->hints_right_chunks = s->state->l1.hinted.gone;
}

SCOUT_ON_LOOP static void
take_fetch(const struct scout__fetch *fetch, struct scout__stats_fetch *t)
{
	t->count = fetch->count;
	t->adapters = fetch->n;
	t->loads_queued = fetch->n_loads_queued;
	t->loads_running = fetch->n_loads_running;
	t->writes_waiting =
		fetch->n_writes_queued + fetch->n_writes_later + fetch->n_writes_again + fetch->n_writes_running;
	t->writes_bytes = fetch->write_bytes;
	t->writes_bytes_limit = fetch->max_write_bytes;
}

SCOUT_ON_LOOP static void
take_adapter(const struct scout__l2 *l2, uint32_t i, uint64_t now_us, struct scout__stats_l2 *a)
{
	const struct scout__l2_store *store = scout__l2_store_of(l2, i);
	struct scout__l2_health health;

	(void)snprintf(a->url, sizeof(a->url), "%.*s", (int)SCOUT__STATS_URL, store->name);
	a->scheme = store->scheme;
	a->count = store->counters;
	scout__l2_gauges_of(l2, i, &a->gauges);
	scout__l2_health_of(l2, i, now_us, &health);
	a->state = health.state;
	a->state_since_ms = health.since_ms;
	a->next_try_ms = health.retry_ms;
	(void)snprintf(a->words, sizeof(a->words), "%s", health.state >= SCOUT__L2_FAILING ? health.words : "");
	a->running = store->n_running;
	a->reads_breaker = scout__l2_breaker_of(l2, i, SCOUT__L2_READS);
	a->writes_breaker = scout__l2_breaker_of(l2, i, SCOUT__L2_WRITES);
	a->ready = health.state != SCOUT__L2_STARTING && a->gauges.ready && a->reads_breaker == SCOUT__L2_CLOSED;
}

SCOUT_ON_LOOP static void
take_ns(const struct scout__ns *ns, struct scout__stats_ns *t)
{
	memcpy(t->name, ns->name, ns->name_len);
	t->name[ns->name_len] = '\0';
	t->name_len = ns->name_len;
	t->peers = ns->n_peers;
	t->sessions = ns->n_sessions - ns->n_keeps;
	t->bytes_kept = ns->kept_bytes;
	t->holds = ns->n_holds;
	t->weights = ns->weights;
	t->tenants = scout__ns_count_tenants(ns);
	t->chunks = t->slots = 0;
	t->bytes = t->bytes_promised = t->bytes_held = t->bytes_extents = 0;
	for (uint32_t g = 0; g < ns->groups.n; g++) {
		const struct scout__chunk_index *index = ns->by_group[g].index;

		if (!index)
			continue;
		t->chunks += index->n_entries;
		t->slots += index->extents.n_slots;
		t->bytes += scout__index_used_bytes(index);
		t->bytes_promised += index->pins.promised_bytes;
		t->bytes_held += index->pins.held_bytes;
		t->bytes_extents += scout__index_total_bytes(index);
	}
	t->count = ns->count;
	t->ceiling_sample = ns->ceiling.mask + UINT64_C(1);
	if (!ns->ceiling.cells)
		t->ceiling_sample = t->count.ceiling_chunks = UINT64_MAX;
	t->chunks_set_aside = ns->l1.n_set_aside;
	t->chunk_tokens = ns->chunk_tokens;
	t->hash_tokens = ns->hash_tokens;
	t->hash_bytes = ns->hash_bytes;
	t->kv_ranks = ns->kv_ranks;
	t->rank_first = ns->rank_first;
	t->rank_count = ns->rank_count;
	t->readers = ns->readers;
	t->groups = ns->groups.n;
}

/* The groups of namespace @i, if there are several, as many as there is room for. */
SCOUT_ON_LOOP static void
take_groups(const struct scout__ns *ns, uint32_t i, struct scout__stats *ret)
{
	for (uint32_t g = 0; ns->groups.n > 1 && g < ns->groups.n && ret->n_groups < SCOUT__STATS_GROUPS; g++) {
		const struct scout__chunk_index *index = ns->by_group[g].index;
		const struct scout__group *group = &ns->groups.group[g];

		if (!index)
			continue;
		ret->groups[ret->n_groups++] = (struct scout__stats_group){
			.ns = i,
			.number = g,
			.bytes = scout__index_used_bytes(index),
			.bytes_extents = scout__index_total_bytes(index),
			.objects = index->n_entries,
			.unneeded = index->unneeded.n,
			.evictions = index->order.evictions,
			.hit_objects = ns->by_group[g].hit_objects,
			.policy = group->policy,
			.readers = group->readers,
			.unit_tokens = group->unit_tokens,
			.span_tokens = group->span_tokens,
			.margin_tokens = group->margin_tokens,
		};
	}
}

/* The tenants of namespace @i that have a share of their own. */
SCOUT_ON_LOOP static void
take_tenants(const struct scout_server *s, const struct scout__ns *ns, uint32_t i, uint32_t *left,
	     struct scout__stats *ret)
{
	const struct scout__share_list *shares = &s->state->tenant_shares;

	for (uint32_t j = 0; j<shares->n && * left> 0 && ret->n_tenants < SCOUT__STATS_TENANTS; j++, --*left) {
		const struct scout__share *share = &shares->items[j];
		const struct scout__str name = {share->name, (uint16_t)share->name_len};
		const struct scout__account *account = scout__ns_account_of(s, ns, &name);
		struct scout__stats_tenant *t = &ret->tenants[ret->n_tenants];

		if (!account || share->name_len > SCOUT_MAX_NAME)
			continue;
		t->ns = i;
		memcpy(t->name, share->name, share->name_len);
		t->name[share->name_len] = '\0';
		t->name_len = share->name_len;
		t->bytes = scout__account_bytes(&ns->l1, account);
		t->bytes_guaranteed = scout__account_bytes_guaranteed(&ns->l1, account);
		t->evicted_over_share = account->evicted_over;
		t->evicted_under_share = account->evicted_under;
		t->idle = scout__account_is_idle(&ns->l1, account);
		ret->n_tenants++;
	}
}

void
scout__stats_take(const struct scout_server *s, const struct scout__sender *reader, struct scout__stats *ret)
{
	uint32_t names = TENANT_NAMES;

	take_server(s, ret);
	take_l1(s, &ret->l1);
	ret->has_fetch = s->fetch != NULL;
	ret->n_l2 = s->fetch ? s->fetch->n : 0;
	if (s->fetch)
		take_fetch(s->fetch, &ret->fetch);
	for (uint32_t i = 0; i < ret->n_l2; i++)
		take_adapter(s->fetch->l2, i, s->now_us, &ret->l2[i]);
	ret->n_ns = ret->n_tenants = ret->n_groups = 0;
	for (uint32_t i = 0; i < s->state->n_ns && ret->n_ns < SCOUT__STATS_NS; i++) {
		const struct scout__ns *ns = s->state->ns[i];
		const struct scout__str name = {ns->name, ns->name_len};

		if (reader && scout__right_of(s, reader, &name) == SCOUT__RIGHT_NONE)
			continue;
		take_ns(ns, &ret->ns[ret->n_ns]);
		take_groups(ns, ret->n_ns, ret);
		ret->ns[ret->n_ns].bytes_guaranteed = s->cfg.l1_bytes / 100 * ns->l1.pool_percent;
		take_tenants(s, ns, ret->n_ns++, &names, ret);
	}
}
