/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "thread.h"

struct scout_server;

enum scout__watch_kind {
	SCOUT__WATCH_STOP = 1,
	SCOUT__WATCH_TIMER,
	SCOUT__WATCH_POOL,
	SCOUT__WATCH_LISTENER,
	SCOUT__WATCH_LEASE,
	SCOUT__WATCH_PROCESS, /* a pidfd */
	SCOUT__WATCH_L2,
	SCOUT__WATCH_METRICS,
	SCOUT__WATCH_SHM,
	SCOUT__WATCH_TOLD
};

/* A watched descriptor. Each epoll event points to it. */
struct scout__watch {
	enum scout__watch_kind kind;
	int fd;
	void *owner; /* for LEASE its lease, for PROCESS its peer, for SHM its dest; else unused */
};

/* Watch @watch from now on. Returns 0, or -1 and errno. May be called before the loop runs. */
int scout__watch_add(struct scout_server *s, struct scout__watch *watch);
/* Stop watching @watch, and close its descriptor. */
SCOUT_ON_LOOP void scout__watch_end(struct scout_server *s, struct scout__watch *watch);
