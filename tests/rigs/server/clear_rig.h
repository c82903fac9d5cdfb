/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "nodes_rig.h"

/* A clear and what an L2 store knows of it: the same for files and for Redis. */

#define CLEAR_X UINT64_C(0xc1ea0001)
#define CLEAR_Y UINT64_C(0xc1ea0002)

/* Carried out, and recorded in every store. */
struct scout__clear_reply clear_by(struct wire_peer *p, uint64_t generation);

/* The hit of keys 1 to 4 and where it is; leaves nothing behind. */
struct scout__lookup_reply clear_look(struct wire_peer *p);
void clear_write(struct node *node);

/* Pool and store have all four; then a clear, and neither has any. */
void clear_drops_both_tiers(const char *url);

/* Peers that know nothing of it, on a server that knows nothing of it: only the store does. */
void clear_outlives_the_server(const char *url);

/* Until the other server has looked at the store again. */
void clear_wait_gone(struct wire_peer *p);
void clear_reaches_another_server(const char *url);
