/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__clear_state;
struct scout__ns;
struct scout__peer;
struct scout__state;

/* The names and stamps of clears, and which workers are in (clears.c). */

/*
 * 0: a peer of @ns (NULL: not made yet) or a store may say this stamp. Else the number of days that it is ahead of the wall clock,
 * too many.
 */
SCOUT_ON_LOOP uint64_t scout__clears_days_ahead(const struct scout__ns *ns, uint64_t stamp);
/* A stamp that is later than all that this server has drawn or heard of in @ns. */
SCOUT_ON_LOOP uint64_t scout__clears_draw_stamp(struct scout__ns *ns);
/*
 * @peer clears its namespace under the name @generation, or joins that clear. A known name clears nothing, unless the
 * peer goes on to this name from the generation that the peer said before.
 */
SCOUT_ON_LOOP void scout__clears_add(struct scout_server *s, struct scout__peer *peer, uint64_t generation);
/*
 * An operator clears @ns under the name @generation; workers that are in stay in. False: the name is known, and nothing
 * was cleared.
 */
SCOUT_ON_LOOP bool scout__clears_drop(struct scout_server *s, struct scout__ns *ns, uint64_t generation);
/*
 * There was a CLEAR: carry it out here if it is later than the last one. Returns whether it is. @older: the earlier
 * names, SCOUT__OLD_GENERATIONS; NULL: not known. @asks: questions to L2 may be under way.
 */
SCOUT_ON_LOOP bool scout__clears_learn(struct scout_server *s, struct scout__ns *ns, uint64_t generation,
				       uint64_t cleared, const uint64_t *older, bool asks);
/*
 * The namespace was cleared just now, by another server, whose clock may be slower than the one by which our workers
 * joined: all workers are out.
 */
SCOUT_ON_LOOP void scout__clears_all_out(struct scout__ns *ns);
/* @peer said in its HELLO which clear it knows. */
SCOUT_ON_LOOP void scout__clears_hear(struct scout_server *s, struct scout__peer *peer,
				      const struct scout__clear_state *m, bool asks);
/* Whether @peer may store and load. */
SCOUT_ON_LOOP bool scout__peer_is_in(const struct scout__peer *peer);
/* The clear that @peer is to know. */
SCOUT_ON_LOOP struct scout__clear_state scout__clears_state_of(const struct scout__peer *peer);
