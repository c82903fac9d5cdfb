/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_CONNS_H
#define SCOUT_SERVER_CONNS_H

#include <stddef.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;

/* How many connections there are (conns.c). */

/* Count the router's connections from now on. Before it is bound. @reserved: descriptors that others will need. */
int scout__conns_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len);
void scout__conns_close(struct scout_server *s);
/* Read some of the monitor's events; zmq_poll() finds the rest for the next turn. */
SCOUT_ON_LOOP void scout__conns_read(struct scout_server *s);

#endif
