/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "nodes_rig.h"

/* A clear, and keys 1 to 4 before and after it. */

#define CLEAR_X UINT64_C(0xc1ea0001)
#define CLEAR_Y UINT64_C(0xc1ea0002)

/* Carried out, and recorded in every store. */
struct scout__clear_reply clear_by(struct wire_peer *p, uint64_t generation);

/* The hit of keys 1 to 4 and where it is; leaves nothing behind. */
struct scout__lookup_reply clear_look(struct wire_peer *p);
void clear_write(struct node *node);

/* Until the other server has looked at the store again. */
void clear_wait_gone(struct wire_peer *p);
