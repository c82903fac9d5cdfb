/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_PLUGIN_INTERNAL_H
#define SCOUT_L2_PLUGIN_INTERNAL_H

#include <pthread.h>

#include <kvscout/l2_plugin.h>

#include "blocking.h"
#include "log.h"

/* A store in a shared library; internal to plugin*.c. */

struct scout__plugin {
	/* Const after open. */
	struct scout__blocking blocking;
	const struct scout__log *log;
	char *path;
	void *library;
	struct scout_l2_plugin of; /* a copy; calls that the library is too old for are NULL */
	void *store;
	pthread_mutex_t mu;
	struct scout__log_limit limit; /* G:mu */
};

/* What a question thread and a transfer thread do: plugin_calls.c. */
extern const struct scout__blocking_calls scout__plugin_calls;

#endif
