/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "thread.h"

struct scout_server;
struct scout__peer;

/* Segments of the pool on their way to the workers (segments.c). */

/* Send @peer every segment that it does not have yet. False: the socket is full; try again later. */
SCOUT_ON_LOOP bool scout__segments_deliver(struct scout_server *s, struct scout__peer *peer);
/* Try blocked deliveries again, of some of the leases by turns. */
SCOUT_ON_LOOP void scout__segments_tick(struct scout_server *s);
