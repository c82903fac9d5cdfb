/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "thread.h"

struct scout_server;
struct scout__dest;
struct scout__lease;
struct scout__lease_msg;

/* What the transport reports of leases and channels: see struct scout__transport_hooks. */

SCOUT_ON_LOOP bool scout__lease_message(struct scout_server *s, struct scout__lease *lease,
					const struct scout__lease_msg *m);
SCOUT_ON_LOOP void scout__lease_ended(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__channel_broken(struct scout_server *s, struct scout__dest *dest);
