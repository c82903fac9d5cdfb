/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kvscout/server.h>

#include "instance_paths.h"
#include "log_queue.h"

/*
 * kvscoutd as the server of this host (libcommon/host). An operator starts it without --listen; or a client or worker with
 * endpoint=auto does, by `kvscoutd --instance FOLDER [--KEY=VALUE]...`, with the lock of that folder as descriptor 3.
 */
#define SCOUT__INSTANCE_EXIT_IN_USE 4 /* exit status: a server is there already */

struct scout__instance_server {
	struct scout__instance paths;
	char listen[SCOUT__INSTANCE_PATH + 8];
	char keys[4097]; /* options that it was started with, as peers compare them */
	int lock_fd;
	bool is_spawned; /* by an engine */
	struct scout__log_file log;
};

/* FOLDER, if the options say so; else NULL. */
const char *scout__instance_option(int argc, char **argv);
/*
 * First of all in main(): leave the process that started us, and take over the lock. In the process that goes on,
 * returns 0, and @cfg has such a server's defaults: the path, idle_exit_s, 0 as l1_bytes. Else 1, after printing why.
 */
int scout__instance_begin(struct scout__instance_server *in, const char *folder, struct scout_server_config *cfg);
/*
 * An operator started it without a path: take the one where engines look, and its lock. Returns 0, or an exit status after
 * printing why.
 */
int scout__instance_claim(struct scout__instance_server *in, struct scout_server_config *cfg);
/* One of the options. */
void scout__instance_note_key(struct scout__instance_server *in, const char *key, const char *value);
/* After the options: choose the size of the pool, if none was given. @text is empty or says which size and why. */
void scout__instance_size_pool(struct scout_server_config *cfg, char *text, size_t len);
/* Tell peers that it serves (if is_spawned, stdout is not used from then on), or ended in good order. 0, or errno: peers wait. */
int scout__instance_serves(const struct scout__instance_server *in);
void scout__instance_ended(const struct scout__instance_server *in);
