/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_share.h"

#include <kvscout/protocol.h>

#include "peer.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * Purpose: a peer that takes all there is of something costs the other peers nothing that they were guaranteed.
 *
 * What is shared here cannot be taken back: a session's answer stays readable until ADMIT or FINISH (C3), a promise
 * ends with its session (S2), a hold with DONE or the death of the worker (S5). So the guarantee is a reserve. The
 * configured limit (max_sessions ...) is for all peers, and the first to ask gets it: no peer is refused while there is
 * room. RESERVE_PART of the limit comes on top. When the limit is reached, only a peer that stays within its share gets
 * more, from that reserve; all others get a refusal that names the share.
 *
 * The share is the reserve divided by the number of connected clients, and at least by SHARE_PEERS; a worker has none. While
 * there are no more, the guarantee is strict: a peer above its share takes nothing of the reserve, and as many peers as
 * there are shares cannot take more than the reserve together. When more peers join, shares shrink; a peer that has more
 * than its new share keeps it, and gets no more; the newcomers' shares are whole as soon as such peers end some. With two
 * peers, one that takes all it gets has 8/9 and its neighbour is sure of 1/36 (of what there is).
 *
 * Held bytes are another case: the pool cannot grow by a reserve. A worker that never says DONE keeps what it was granted,
 * and what it turned from promises into holds makes room for more promises; at the end the whole pool would be pinned, and
 * no neighbour could store or promise anything. So while there are two workers, a STORE gets of the last eighth of the pool
 * (l1.store_reserve) only while its worker holds less than an eighth: whoever hangs, a neighbour stores up to an eighth at a time.
 * (An equal part of the reserve, a 64th of the pool, was less than one prompt: that neighbour's stores ended with NO_ROOM.)
 * Promises of clients above their shares do not pin that eighth either, others only half of it (l1.pin_reserve); a pool of fewer
 * than 256 chunks does without both, as a client's share would hardly be a chunk. One worker alone may pin all of the pool; one
 * that joins then has to wait for the first DONE. A RETRIEVE is never refused for that, since what it holds was promised, and
 * so was pinned before (S2): a client and a worker that never says DONE can pin more together, as what the worker retrieved
 * counts no more for the client. Chunks that nothing pins use the reserve, so the cache is no smaller.
 *
 * Cost: an eighth more places in tables (8 to 16 bytes each), and an eighth more of the pool that promises may pin, as far as
 * there is more pool than max_promised.
 *
 * Rejected: to keep the reserve within the limit (a lone client would be refused with room left); shares of the whole
 * limit by the number of peers (strict only if what is unused is kept free, which is a cap); to end the sessions of the
 * peer above its share (breaks C3 and S2).
 *
 * tenant_share and namespace_share (l1/shares.c) do not stand on this: cached bytes are not owned by a peer, and can be
 * taken back by eviction, so they need no reserve.
 *
 * Threads: loop.
 */

#define RESERVE_PART 8u
#define SHARE_PEERS 4u

void
scout__peer_shares_init(struct scout__peer_shares *shares, const struct scout_server_config *cfg)
{
	uint64_t spare = cfg->l1_bytes > cfg->max_promised ? cfg->l1_bytes - cfg->max_promised : 0;

	shares->most[SCOUT__SHARED_SESSIONS] = cfg->max_sessions;
	shares->most[SCOUT__SHARED_PROMISED] = cfg->max_promised;
	shares->most[SCOUT__SHARED_HELD] = cfg->l1_bytes / 2;
	for (int i = 0; i < SCOUT__N_SHARED; i++)
		shares->reserve[i] = shares->most[i] / RESERVE_PART;
	/* Of what max_promised leaves of the pool: what it allows, one client alone may have. */
	for (int i = SCOUT__SHARED_PROMISED; i <= SCOUT__SHARED_HELD; i++)
		if (shares->reserve[i] > spare / 2)
			shares->reserve[i] = spare / 2;
}

void
scout__peer_shares_count(struct scout_server *s, const struct scout__peer *peer, int change)
{
	struct scout__peer_shares *shares = &s->state->shares;

	*(peer->role == SCOUT_ROLE_CLIENT ? &shares->n_clients : &shares->n_workers) += (uint32_t)change;
	s->state->l1.pin_reserve = shares->n_workers > 1 ? 2 * shares->reserve[SCOUT__SHARED_HELD] : 0;
	s->state->l1.store_reserve = shares->n_workers > 1 ? s->cfg.l1_bytes / RESERVE_PART : 0;
}

uint64_t
scout__peer_share(const struct scout_server *s, enum scout__shared what)
{
	const struct scout__peer_shares *shares = &s->state->shares;
	uint32_t n = shares->n_clients;

	return shares->reserve[what] / (n > SHARE_PEERS ? n : SHARE_PEERS);
}

bool
scout__peer_share_admits(const struct scout_server *s, const struct scout__peer *peer, enum scout__shared what,
			 uint64_t all, uint64_t mine, uint64_t more)
{
	const struct scout__peer_shares *shares = &s->state->shares;

	if (all + more <= shares->most[what])
		return true;
	return peer->role == SCOUT_ROLE_CLIENT && mine + more <= scout__peer_share(s, what) &&
	       all + more <= shares->most[what] + shares->reserve[what];
}

void
scout__peer_share_promises(struct scout_server *s, const struct scout__peer *peer)
{
	uint64_t share = peer->role == SCOUT_ROLE_CLIENT ? scout__peer_share(s, SCOUT__SHARED_PROMISED) : 0;

	s->state->l1.promised_share = share > peer->promised_bytes ? share - peer->promised_bytes : 0;
}

void
scout__peer_share_holds(struct scout_server *s, const struct scout__peer *peer, uint32_t n_ranks)
{
	s->state->l1.storer_holds_little = peer->held_bytes * n_ranks < s->cfg.l1_bytes / RESERVE_PART;
}
