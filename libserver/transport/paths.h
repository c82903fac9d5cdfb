/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/* Files next to the endpoint (paths.c, paths_sweep.c); start and stop only. */

#define SCOUT__LEASE_SUFFIX ".lease"
#define SCOUT__LOCK_SUFFIX ".lock"
#define SCOUT__PRIVATE_PREFIX "kvscout-"
#define SCOUT__PRIVATE_SOCKET "kvscout.sock"
#define SCOUT__IPC_PATH_MAX 107 /* sun_path without its terminator */

/* The files next to an ipc endpoint; all strings are ours. Const after start. */
struct scout__paths {
	char *dir;    /* made by us, to be removed */
	char *made;   /* the folder of socket, if it was missing; it stays */
	char *socket; /* ipc path, else NULL */
	char *lease;
	char *lock;
	int lock_fd;
	uint32_t n_swept;      /* folders of dead servers that were removed */
	bool sockets_are_ours; /* nothing else is there under these names */
};

SCOUT_ON_ANY int scout__paths_open(struct scout__paths *paths, const char *listen, char **ret_bind, char *err,
				   size_t err_len);
/* Remove private folders of dead servers under @base; returns how many. */
SCOUT_ON_ANY uint32_t scout__paths_sweep(const char *base);
SCOUT_ON_ANY void scout__paths_close(struct scout__paths *paths);
