/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "groups_rig.h"
#include "model_play.h"

/* A run: who plays, and how it starts. */

/* ---- model_players.c ---- */
struct player *draw_player(void);
/* A registered one. */
struct player *draw_worker(void);
void join(struct player *p, const struct model_peer *peer);
/* A goodbye, and somebody of the same kind instead. */
void replace(struct player *p);
/* The connection is lost, and the same peer comes back: it has all that it had. */
void reconnect(struct player *p);
/* HELLO again: some other version of the weights, that of now, or none. */
void hello_again(struct player *p);

/* ---- model_start.c ---- */
extern struct wire_peer
	rest_of_pool; /* of the namespace that only takes its part of the memory, if there are several groups */
/* A server with these many groups, with players, and full. */
void start(uint32_t n_groups);
