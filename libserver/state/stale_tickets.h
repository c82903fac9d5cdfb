/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "map.h"
#include "thread.h"

struct scout_server;
struct scout__ns;

/* Tickets of sessions that a new weights version or a clear ended (stale_tickets.c). */

/* Tickets that a new weights version or a clear ended, see stale_tickets.c. */
struct scout__stale_tickets {
	struct scout__map map;
	uint64_t *tickets; /* ring, oldest at next once it is full; NULL: none yet */
	uint32_t n, cap, next;
};

/* @status: what ended the session. */
SCOUT_ON_LOOP void scout__stale_tickets_add(struct scout_server *s, uint64_t ticket, uint16_t status);
/* What ended the session of @ticket; 0: neither a new version nor a clear. */
SCOUT_ON_LOOP uint16_t scout__stale_tickets_find(const struct scout_server *s, const struct scout__ns *ns,
						 uint64_t ticket);
SCOUT_ON_LOOP void scout__stale_tickets_fini(struct scout__stale_tickets *stale);
