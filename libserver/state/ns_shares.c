/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"
#include "server_core.h"
#include "share_list.h"
#include "state.h"

/*
 * DESIGN
 *
 * Fair shares by name: tenant_share and namespace_share give an account or a namespace its percentage (shares.h), when
 * either is made and when an operator changes the keys. A change goes through all tenants of all namespaces in steps; a
 * tenant keeps its old percentage until the change reaches it.
 *
 * Threads: loop.
 */

#define STEP_SPACES 64u /* a step compares each with at most SCOUT__SHARE_ITEMS names */

/* Set the percentage of the tenant of ns.spaces[@i]. */
SCOUT_ON_LOOP static void
guarantee(const struct scout_server *s, struct scout__ns *ns, uint32_t i)
{
	const struct scout__space *space = &ns->tenants->spaces[i];
	uint32_t own = scout__shares_find(&s->state->tenant_shares, space->tenant, space->tenant_len);
	bool is_other = own == 0 && s->state->tenant_shares.others > 0;

	scout__account_guarantee(&ns->l1, space->account, is_other ? s->state->tenant_shares.others : own, is_other);
}

bool
scout__ns_account(const struct scout_server *s, struct scout__ns *ns, uint32_t i)
{
	ns->tenants->spaces[i].account = scout__account_new(&ns->l1);
	if (!ns->tenants->spaces[i].account)
		return false;
	guarantee(s, ns, i);
	return true;
}

uint32_t
scout__ns_count_tenants(const struct scout__ns *ns)
{
	/* A tenant has a space for each group that it stores in, but one account. Account 0 belongs to no tenant. */
	return ns->l1.n_accounts > 0 ? ns->l1.n_accounts - 1 : 0;
}

void
scout__ns_take_share(const struct scout_server *s, struct scout__ns *ns)
{
	ns->l1.pool_percent = scout__shares_find(&s->state->namespace_shares, ns->name, ns->name_len);
}

SCOUT_ON_LOOP void
scout__ns_reshare_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__state *state = s->state;
	uint32_t left = STEP_SPACES;

	for (; state->reshare_ns < state->n_ns; state->reshare_ns++, state->reshare_space = 0) {
		struct scout__ns *ns = state->ns[state->reshare_ns];

		if (state->reshare_space == 0)
			scout__ns_take_share(s, ns);
		for (; left > 0 && state->reshare_space < ns->tenants->n_spaces; left--)
			guarantee(s, ns, state->reshare_space++);
		if (left == 0) {
			scout__run_queue_add(s, item);
			return;
		}
		left--;
	}
}

void
scout__ns_reshare(struct scout_server *s)
{
	s->state->reshare_ns = s->state->reshare_space = 0;
	scout__run_queue_add(s, &s->state->reshare);
}
