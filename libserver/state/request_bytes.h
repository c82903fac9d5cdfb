/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__peer;

/*
 * Memory that live requests take besides the pool, within max_request_bytes: sessions, operations that wait with their
 * messages and lists, and questions to L2. Who allocates takes the bytes first, and gives them back when they are freed.
 */

/* @bytes more, if the limit has room. */
SCOUT_ON_LOOP bool scout__request_bytes_take(struct scout_server *s, uint64_t bytes);
SCOUT_ON_LOOP void scout__request_bytes_give(struct scout_server *s, uint64_t bytes);
/*
 * Whether @peer may have @bytes more. In the last quarter of the limit only peers may whose sessions and operations that wait have
 * less than an equal part of the limit, and less than a quarter: no peer can take it all from the others.
 */
SCOUT_ON_LOOP bool scout__request_bytes_fit(const struct scout_server *s, const struct scout__peer *peer,
					    uint64_t bytes);
/* Of an operation of @peer that waits: counted in any case, since they are allocated already. */
SCOUT_ON_LOOP void scout__waiting_bytes_add(struct scout_server *s, struct scout__peer *peer, uint64_t bytes);
SCOUT_ON_LOOP void scout__waiting_bytes_sub(struct scout_server *s, struct scout__peer *peer, uint64_t bytes);
