/* SPDX-License-Identifier: Apache-2.0 */
#include "clears.h"
#include "state.h"

#include <stdlib.h>

#include "hold.h"
#include "ns.h"
#include "server_core.h"
#include "withdraw.h"

/*
 * The memory of the state room (struct scout__state) and its tables.
 *
 * Threads: the starting one, before the loop and after it.
 */

/* A list of the numbers 0 .. n - 1; the lowest is taken first. */
static uint32_t *
free_list(uint32_t n)
{
	uint32_t *list = calloc(n, sizeof(*list));

	if (!list)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		list[i] = n - 1 - i;
	return list;
}

struct scout__state *
scout__state_new(struct scout_server *s, const struct scout__state_hooks *hooks)
{
	struct scout__state *state = calloc(1, sizeof(*state));

	if (!state)
		return NULL;
	state->hooks = hooks;
	state->ceiling_left = SCOUT__CEILING_BYTES;
	state->pool_ready = (struct scout__watch){SCOUT__WATCH_POOL, -1, s};
	state->last_tick_us = s->now_us;
	state->rebalance.step = scout__withdraw_rebalance;
	state->reshare.step = scout__ns_reshare_step;
	scout__list_init(&state->quarantine);
	scout__list_init(&state->withdrawn);
	state->first_stamp = scout__wall_us();
	return state;
}

int
scout__state_make_tables(struct scout__state *state, const struct scout_server_config *cfg)
{
	uint32_t peers = cfg->max_peers;
	uint32_t sessions;

	scout__peer_shares_init(&state->shares, cfg);
	sessions = state->n_session_places = scout__peer_shares_places(&state->shares, SCOUT__SHARED_SESSIONS);
	state->ns = calloc(cfg->max_namespaces, sizeof(struct scout__ns *));
	state->peers = calloc(peers, sizeof(struct scout__peer *));
	state->free_peers = free_list(peers);
	state->sessions = calloc(sessions, sizeof(struct scout__session *));
	state->free_sessions = free_list(sessions);
	state->holds = calloc(SCOUT__MAX_HOLDS, sizeof(struct scout__hold *));
	state->free_holds = free_list(SCOUT__MAX_HOLDS);
	if (!state->ns || !state->peers || !state->free_peers || !state->sessions || !state->free_sessions ||
	    !state->holds || !state->free_holds)
		return SCOUT_ERR_NOMEM;
	state->n_free_peers = peers;
	state->n_free_sessions = sessions;
	state->n_free_holds = SCOUT__MAX_HOLDS;
	if (scout__map_init(&state->by_identity, peers) || scout__map_init(&state->by_token, peers) ||
	    scout__map_init(&state->by_source, peers) || scout__map_init(&state->by_ticket, sessions) ||
	    scout__map_init(&state->by_hold, SCOUT__MAX_HOLDS) || scout__map_init(&state->keeps.by_tail, sessions))
		return SCOUT_ERR_NOMEM;
	/* Both lists were checked when the configuration was accepted. */
	if (scout__shares_parse("tenant_share", cfg->tenant_share, &state->tenant_shares, NULL, 0) ||
	    scout__shares_parse("namespace_share", cfg->namespace_share, &state->namespace_shares, NULL, 0))
		return SCOUT_ERR_NOMEM;
	return 0;
}

void
scout__state_free_tables(struct scout__state *state)
{
	scout__shares_fini(&state->tenant_shares);
	scout__shares_fini(&state->namespace_shares);
	free(state->ns);
	free(state->peers);
	free(state->free_peers);
	free(state->sessions);
	free(state->free_sessions);
	free(state->holds);
	free(state->free_holds);
	scout__map_fini(&state->by_identity);
	scout__map_fini(&state->by_token);
	scout__map_fini(&state->by_source);
	scout__map_fini(&state->by_ticket);
	scout__map_fini(&state->by_hold);
	scout__map_fini(&state->keeps.by_tail);
	scout__stale_tickets_fini(&state->stale_tickets);
}
