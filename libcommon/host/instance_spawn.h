/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "instance_paths.h"

/*
 * Start @program as the server of @instance, with @keys ("key=value key=value", or NULL) and the lock @lock_fd, which is not
 * SCOUT__INSTANCE_LOCK_FD. *ret_pid is a process that ends as soon as it has put the server into the background; the caller takes
 * its status by waitpid(). Waits until the program was loaded (some 1 ms), not for the server. Returns 0, SCOUT_ERR_NOMEM,
 * SCOUT_ERR_SYSTEM; @err says why.
 */
SCOUT_ON_ANY int scout__spawn_server(const struct scout__instance *instance, const char *program, const char *keys,
				     int lock_fd, pid_t *ret_pid, char *err, size_t err_len);

/* Whether @keys are words KEY=VALUE of keys that such a server may get: 0; else the code, and @err names the word. */
SCOUT_ON_ANY int scout__server_keys_check(const char *keys, char *err, size_t err_len);
