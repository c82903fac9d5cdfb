/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The CPUs of our threads: the key `cpus` of client, worker and server. See the DESIGN comment of cpus.c. Any thread.
 */

/* The mask before scout__cpus_enter(). */
struct scout__cpus_scope {
	cpu_set_t before;
	bool is_changed;
};

/*
 * Until scout__cpus_leave() on the same thread, it runs on the CPUs that @text names, and each thread that it starts inherits
 * them. @text: "auto", "inherit" or a list as "0-3,8". @prefer: for "auto", use only these CPUs, if there are any; NULL: all.
 *
 * Returns 0, or for a list SCOUT_ERR_CONFIG_RANGE (@text is no list, or names a CPU that this process may not use),
 * SCOUT_ERR_SYSTEM; @err has a sentence, and scout__cpus_leave() is not needed.
 */
int scout__cpus_enter(struct scout__cpus_scope *scope, const char *text, const cpu_set_t *prefer, char *err,
		      size_t err_len);
void scout__cpus_leave(const struct scout__cpus_scope *scope);

/* Read the list in a file under @root ("": /). False: there is none. */
bool scout__cpus_read(const char *root, const char *path, cpu_set_t *ret_set);
