/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <stdlib.h>

#include "server_core.h"

/*
 * The memory of the transport room (struct scout__transport); sockets, channels and leases are opened in their own files.
 *
 * Threads: the starting one, before the loop.
 */

struct scout__transport *
scout__transport_new(struct scout_server *s, const struct scout__transport_hooks *hooks)
{
	struct scout__transport *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->hooks = hooks;
	t->paths.lock_fd = -1;
	t->listener = (struct scout__watch){SCOUT__WATCH_LISTENER, -1, s};
	scout__list_init(&t->dirty);
	scout__list_init(&t->leases);
	scout__list_init(&t->unbound);
	scout__list_init(&t->grave);
	scout__list_init(&t->shm_hot);
	scout__list_init(&t->shm_warm);
	scout__dest_init(&t->unknown_sender);
	return t;
}
