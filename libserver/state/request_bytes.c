/* SPDX-License-Identifier: Apache-2.0 */
#include "request_bytes.h"

#include "number.h"
#include "peer.h"
#include "server_core.h"
#include "state.h"

bool
scout__request_bytes_take(struct scout_server *s, uint64_t bytes)
{
	struct scout__state *state = s->state;

	if (state->request_bytes > s->cfg.max_request_bytes || bytes > s->cfg.max_request_bytes - state->request_bytes)
		return false;
	state->request_bytes += bytes;
	return true;
}

void
scout__request_bytes_give(struct scout_server *s, uint64_t bytes)
{
	s->state->request_bytes -= bytes;
}

bool
scout__request_bytes_fit(const struct scout_server *s, const struct scout__peer *peer, uint64_t bytes)
{
	uint64_t limit = s->cfg.max_request_bytes;
	uint64_t n_peers = s->cfg.max_peers - s->state->n_free_peers;
	uint64_t used = s->state->request_bytes + bytes, mine = peer->waiting_bytes + peer->session_bytes + bytes;

	/* Also of a peer that is alone: those that come later find the last quarter. */
	return used <= limit - limit / 4 || (used <= limit && mine <= limit / scout__max(n_peers, 4));
}

void
scout__waiting_bytes_add(struct scout_server *s, struct scout__peer *peer, uint64_t bytes)
{
	s->state->request_bytes += bytes;
	peer->waiting_bytes += bytes;
}

void
scout__waiting_bytes_sub(struct scout_server *s, struct scout__peer *peer, uint64_t bytes)
{
	s->state->request_bytes -= bytes;
	peer->waiting_bytes -= bytes;
}
