/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/*
 * Where the one server of this user on this host has its files: a folder of its own for each IPC namespace, in
 * $XDG_RUNTIME_DIR/kvscout, /tmp/kvscout-UID, or the FOLDER of auto:///FOLDER.
 */

#define SCOUT__INSTANCE_PATH 256u /* bytes of a path in it, with the terminator */
#define SCOUT__INSTANCE_LOCK_FD 3 /* descriptor of the lock in a kvscoutd that was started here */
#define SCOUT__INSTANCE_IDLE_EXIT_S 60u
#define SCOUT__INSTANCE_LOG_BYTES (UINT64_C(4) << 20) /* most bytes of each of its two files */

struct scout__instance {
	char folder[SCOUT__INSTANCE_PATH];
	char socket[SCOUT__INSTANCE_PATH];
	char lock[SCOUT__INSTANCE_PATH]; /* held by the server for its life, before by the process that starts it */
	char log[SCOUT__INSTANCE_PATH];
	char old_log[SCOUT__INSTANCE_PATH];
};

/* Whether @endpoint, which may be NULL, asks for the server of this host. */
SCOUT_ON_ANY bool scout__instance_is_auto(const char *endpoint);

/*
 * The paths of @endpoint, "auto", "auto:///FOLDER" or NULL. The folder is made if it is not there, and refused if others
 * could change what is in it. Waits only for the file system. Returns 0, SCOUT_ERR_INVALID (@endpoint),
 * SCOUT_ERR_PERMISSION, SCOUT_ERR_SYSTEM; @err says why.
 */
SCOUT_ON_ANY int scout__instance_find(const char *endpoint, struct scout__instance *ret_instance, char *err,
				      size_t err_len);
/* The same without making anything: SCOUT_ERR_PERMISSION if the folder is not there. */
SCOUT_ON_ANY int scout__instance_look(const char *endpoint, struct scout__instance *ret_instance, char *err,
				      size_t err_len);
/* The paths in @folder, which is one that scout__instance_find() has made. The same codes. */
SCOUT_ON_ANY int scout__instance_open(const char *folder, struct scout__instance *ret_instance, char *err,
				      size_t err_len);

/* Why nobody can be asked at the Unix socket @path: an errno, or 0. Does not wait. */
SCOUT_ON_ANY int scout__socket_error(const char *path);
/* Whether a server accepts connections on its socket. */
SCOUT_ON_ANY bool scout__instance_listens(const struct scout__instance *instance);
