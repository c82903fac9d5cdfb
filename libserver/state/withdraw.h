/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__ns;
struct scout__peer;

/* Memory that moves between namespaces (withdraw.c). */

/* The step of state.rebalance. */
SCOUT_ON_LOOP void scout__withdraw_rebalance(struct scout_server *s, struct scout__run_item *item);
/* The chunk indexes of the namespace of @peer, its only worker, are about to be freed: tell it to unmap all of their memory. */
SCOUT_ON_LOOP void scout__withdraw_indexes(struct scout_server *s, const struct scout__peer *peer);
/* @peer answered with LEASE_RELEASED. */
SCOUT_ON_LOOP void scout__withdraw_released(struct scout_server *s, const struct scout__peer *peer, uint32_t segment);
/* @peer leaves, or has a new lease connection: it no longer maps what was withdrawn. */
SCOUT_ON_LOOP void scout__withdraw_gone(struct scout_server *s, const struct scout__peer *peer);
/* Tell the workers whose sockets were full. */
SCOUT_ON_LOOP void scout__withdraw_tick(struct scout_server *s);
/* After the last peer has gone. */
SCOUT_ON_LOOP void scout__withdraw_fini(struct scout_server *s);
