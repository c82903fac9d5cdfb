/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "thread.h"

struct scout_server;
struct scout__transport_hooks;

/* From frames to the handlers of operations (dispatch.c). */

/* What the transport calls. */
extern const struct scout__transport_hooks scout__dispatch_hooks;
/* Go on with the frame in hand, if there is one. */
SCOUT_ON_LOOP void scout__dispatch_resume(struct scout_server *s);
