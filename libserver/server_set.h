/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "thread.h"

struct scout_server;

/* What scout_server_set() left for the loop. */

/* Take it. */
SCOUT_ON_LOOP void scout__server_told(struct scout_server *s);
/* Free what the loop has not taken. The loop does not run. */
SCOUT_ON_LOOP void scout__server_untold(struct scout_server *s);
