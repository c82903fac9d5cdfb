/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "block.h"
#include "feed.h"
#include "ns.h"
#include "server_core.h"

/*
 * The spaces of a namespace: each pair of tenant and group has a number under the present weights version, and the
 * chunk index knows only that number. Numbers are never used twice (see ns.c). Loop thread.
 */

SCOUT_ON_LOOP static uint64_t
space_key(const struct scout_server *s, const struct scout__str *tenant, uint16_t group)
{
	return XXH3_64bits_withSeed(tenant->p, tenant->len, s->seed) ^ ((uint64_t)group * UINT64_C(0x9e3779b97f4a7c15));
}

/* The index of (tenant, group), or SCOUT__MAP_NONE. *ret_taken: another pair with the same hash has the place. */
SCOUT_ON_LOOP static uint32_t
space_find(const struct scout_server *s, const struct scout__ns *ns, const struct scout__str *tenant, uint16_t group,
	   bool *ret_taken)
{
	uint32_t i = scout__map_get(&ns->tenants->map, space_key(s, tenant, group));
	const struct scout__space *space;

	*ret_taken = false;
	if (i == SCOUT__MAP_NONE)
		return i;
	space = &ns->tenants->spaces[i];
	if (space->group == group && space->tenant_len == tenant->len &&
	    (tenant->len == 0 || memcmp(space->tenant, tenant->p, tenant->len) == 0))
		return i;
	*ret_taken = true;
	return SCOUT__MAP_NONE;
}

/* The number of the space under the present weights; 0: it has none. */
SCOUT_ON_LOOP static uint32_t
number_of(const struct scout__ns *ns, uint32_t i)
{
	return i != SCOUT__MAP_NONE && ns->tenants->spaces[i].id >= ns->space_floor ? ns->tenants->spaces[i].id : 0;
}

uint32_t
scout__ns_space(const struct scout_server *s, const struct scout__ns *ns, const struct scout__str *tenant,
		uint16_t group)
{
	bool taken;

	return number_of(ns, space_find(s, ns, tenant, group, &taken));
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
	if (!scout__account_space(&ns->l1, ns->next_space, ns->tenants->spaces[i].account))
		return 0;
	ns->space_at[ns->n_space_at++] = i;
	ns->tenants->spaces[i].id = ns->next_space++;
	return ns->tenants->spaces[i].id;
}

SCOUT_ON_LOOP static bool
space_room(struct scout__tenants *t)
{
	uint32_t cap = t->cap_spaces ? t->cap_spaces * 2 : 16;
	struct scout__space *spaces;

	if (t->n_spaces < t->cap_spaces)
		return true;
	if (t->n_spaces == SCOUT__MAX_SPACES)
		return false;
	spaces = scout__block_resize(t->spaces, t->cap_spaces * sizeof(*spaces), cap * sizeof(*spaces));
	if (!spaces)
		return false;
	t->spaces = spaces;
	t->cap_spaces = cap;
	return true;
}

/* Give the space its tenant's account: a new one unless another group of the tenant has one. False: no memory. */
SCOUT_ON_LOOP static bool
take_account(const struct scout_server *s, struct scout__ns *ns, uint32_t i)
{
	const struct scout__str tenant = {.p = ns->tenants->spaces[i].tenant, .len = ns->tenants->spaces[i].tenant_len};
	bool taken;

	for (uint16_t group = 0; group < ns->groups.n; group++) {
		uint32_t other = space_find(s, ns, &tenant, group, &taken);

		if (other == SCOUT__MAP_NONE || other == i)
			continue;
		ns->tenants->spaces[i].account = ns->tenants->spaces[other].account;
		return true;
	}
	return scout__ns_account(s, ns, i);
}

const struct scout__account *
scout__ns_account_of(const struct scout_server *s, const struct scout__ns *ns, const struct scout__str *tenant)
{
	bool taken;

	for (uint16_t group = 0; group < ns->groups.n; group++) {
		uint32_t i = space_find(s, ns, tenant, group, &taken);

		if (i != SCOUT__MAP_NONE)
			return &ns->l1.accounts[ns->tenants->spaces[i].account];
	}
	return NULL;
}

uint32_t
scout__ns_space_make(struct scout_server *s, struct scout__ns *ns, const struct scout__str *tenant, uint16_t group)
{
	bool taken;
	uint32_t i = space_find(s, ns, tenant, group, &taken);
	uint64_t key;
	char *copy;

	if (number_of(ns, i))
		return number_of(ns, i);
	if (taken || ns->next_space == UINT32_MAX)
		return 0;
	if (i == SCOUT__MAP_NONE) {
		if (!space_room(ns->tenants))
			return 0;
		copy = malloc(tenant->len + (size_t)1);
		if (!copy)
			return 0;
		if (tenant->len)
			memcpy(copy, tenant->p, tenant->len);
		copy[tenant->len] = '\0';
		i = ns->tenants->n_spaces;
		key = space_key(s, tenant, group);
		if (!scout__map_put(&ns->tenants->map, key, i)) {
			free(copy);
			return 0;
		}
		ns->tenants->spaces[i] =
			(struct scout__space){.key = key, .tenant = copy, .tenant_len = tenant->len, .group = group};
		if (!take_account(s, ns, i)) {
			(void)scout__map_del(&ns->tenants->map, key);
			free(copy);
			return 0;
		}
		ns->tenants->n_spaces++;
	}
	return number_space(ns, i);
}

uint64_t
scout__ns_drop_tenant(struct scout_server *s, struct scout__ns *ns, const struct scout__str *tenant)
{
	const struct scout__account *account = scout__ns_account_of(s, ns, tenant);
	bool taken;

	scout__feed_dropped(ns, tenant);
	/* What it stores from now on is in spaces of other numbers. */
	for (uint16_t group = 0; group < ns->groups.n; group++) {
		uint32_t i = space_find(s, ns, tenant, group, &taken);

		if (i != SCOUT__MAP_NONE)
			ns->tenants->spaces[i].id = 0;
		ns->by_group[group].sweep_next = 0;
	}
	ns->has_dropped = true;
	scout__run_queue_add(s, &ns->sweep);
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\": tenant \"%.*s\" is cleared by an operator", ns->name, (int)tenant->len,
			   tenant->p);
	return account ? scout__account_bytes(&ns->l1, account) : 0;
}

struct scout__tenants *
scout__tenants_new(void)
{
	struct scout__tenants *t = calloc(1, sizeof(*t));

	/* Room for the most: a map that grows would stop the loop for milliseconds. */
	if (t && scout__map_init(&t->map, SCOUT__MAX_SPACES) != 0) {
		free(t);
		return NULL;
	}
	return t;
}

void
scout__tenants_free(struct scout__pool *pool, struct scout__chore *chore)
{
	struct scout__tenants *t = (struct scout__tenants *)chore;

	(void)pool;
	for (uint32_t i = 0; i < t->n_spaces; i++)
		free(t->spaces[i].tenant);
	scout__block_free(t->spaces, t->cap_spaces * sizeof(*t->spaces));
	scout__map_fini(&t->map);
	free(t);
}
