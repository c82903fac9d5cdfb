/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <errno.h>

#include "model_rig.h"

/* Draws operations that clients and workers may ask, legal ones for the most part. */

#define STORE_RUN 16u /* a STORE of more may be executed in two pieces */

#define PEER_HOLDS 16u /* of one group, so that a BYE is executed in one turn */

#define PLAYERS 16u

#define WEIGHTS 7u /* of the first HELLO */

extern struct player players[PLAYERS];
extern struct scout_server *server;
extern const char *endpoint;
extern uint64_t last_ticket;
extern uint64_t random_state;
extern uint32_t prompts, depth; /* how many there are, of how many chunks at most */
extern uint32_t focus;          /* the prompt that most ask for at this time */
uint32_t draw(uint32_t below);
bool one_in(uint32_t n);

/* The first chunks of a prompt are those of others, too. */
uint32_t key_of(uint32_t prompt, uint32_t i);
void draw_run(struct model_run *run, uint32_t max);
/* Objects of @group of a prompt, at most @max. */
void draw_objects(struct model_run *run, uint32_t group, uint32_t max);
uint32_t draw_group(void);

/* A session: mostly of this peer, sometimes of anybody, sometimes none. NULL: none. */
const struct model_session *draw_session(uint32_t peer, bool of_anybody);
uint32_t holds_of(uint32_t peer);
/* How many a peer may have. */
uint32_t peer_holds(void);
const struct model_hold *draw_hold(uint32_t peer);
uint64_t new_ticket(void);

/* Mostly what can be done, seldom what is refused. */
void ask_as_client(struct player *p);
void ask_as_worker(struct player *p);

/* Something of this player's model peer, to be ended. False: there is nothing. */
bool ask_end(struct player *p);
