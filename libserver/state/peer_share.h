/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout_server_config;
struct scout__peer;

/* What peers share, each in its own unit (peer_share.c). */
enum scout__shared {
	SCOUT__SHARED_SESSIONS, /* of clients */
	SCOUT__SHARED_PROMISED, /* bytes, of clients */
	SCOUT__SHARED_HELD,     /* bytes, of workers; the limit and the reserve are in chunk_index.h */
	SCOUT__N_SHARED
};

struct scout__peer_shares {
	uint64_t most[SCOUT__N_SHARED];    /* for all peers together: the first to ask gets it */
	uint64_t reserve[SCOUT__N_SHARED]; /* beyond that, for peers within their shares */
	uint32_t n_clients, n_workers;     /* that are connected */
};

/* @shares of a server with @cfg. */
void scout__peer_shares_init(struct scout__peer_shares *shares, const struct scout_server_config *cfg);
/* Places in a table of @what. */
static inline uint32_t
scout__peer_shares_places(const struct scout__peer_shares *shares, enum scout__shared what)
{
	return (uint32_t)(shares->most[what] + shares->reserve[what]);
}
/* @peer has joined (1), or leaves (-1). */
SCOUT_ON_LOOP void scout__peer_shares_count(struct scout_server *s, const struct scout__peer *peer, int change);
/* What each peer is guaranteed now. */
SCOUT_ON_LOOP uint64_t scout__peer_share(const struct scout_server *s, enum scout__shared what);
/*
 * Whether @peer, which has @mine of the @all that are in use, may have @more: there is room for all, or @peer stays within
 * its share.
 */
SCOUT_ON_LOOP bool scout__peer_share_admits(const struct scout_server *s, const struct scout__peer *peer,
					    enum scout__shared what, uint64_t all, uint64_t mine, uint64_t more);

/* Promises are about to be made for @peer: tell the chunk indexes what is left of its share. */
SCOUT_ON_LOOP void scout__peer_share_promises(struct scout_server *s, const struct scout__peer *peer);
/*
 * A STORE of @peer is about to be granted a slot: tell them whether it holds little. A shard pins its whole chunk, the other shards of
 * the @n_ranks, too.
 */
SCOUT_ON_LOOP void scout__peer_share_holds(struct scout_server *s, const struct scout__peer *peer, uint32_t n_ranks);
