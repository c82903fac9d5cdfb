/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "thread.h"

struct scout_server;

/* Keys, and which clients may connect (server_curve.c). */

/* Set the router's keys, if any are configured. Call this before the router is bound. */
int scout__curve_open(struct scout_server *s, char *err, size_t err_len);
/* After the router is closed. */
void scout__curve_close(struct scout_server *s);
/* Log a warning if the endpoint is open to others. */
void scout__curve_warn(const struct scout_server *s);
SCOUT_ON_LOOP void scout__curve_answer(struct scout_server *s);
