/* SPDX-License-Identifier: Apache-2.0 */
#include "server_set.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doorbell.h"
#include "log.h"
#include "ns.h"
#include "server_core.h"
#include "share_list.h"
#include "state.h"

/*
 * DESIGN
 *
 * Keys that a running server takes: tenant_share and namespace_share. The caller's thread judges the text and leaves a
 * copy for the loop, which takes the newest: a second call before that replaces the first, and neither waits.
 *
 * Threads: scout_server_set() any; the rest the loop.
 */

static const char *const keys[SCOUT__SETTABLE] = {"tenant_share", "namespace_share"};

int
scout_server_set(struct scout_server *server, const char *key, const char *value, char *err, size_t err_len)
{
	struct scout__share_list shares = {0};
	uint32_t i = 0;
	char *copy;
	int rc;

	if (!server || !key || !value)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "server, key and value must not be NULL");
	if (server->pid != getpid())
		return scout__fail(err, err_len, SCOUT_ERR_FORKED, "the server runs in the parent of this process");
	while (i < SCOUT__SETTABLE && strcmp(key, keys[i]) != 0)
		i++;
	if (i == SCOUT__SETTABLE)
		return scout__fail(
			err, err_len, SCOUT_ERR_UNSUPPORTED,
			"%.64s cannot be changed while the server runs: only tenant_share and namespace_share can",
			key);
	rc = scout__shares_parse(key, value, &shares, err, err_len);
	if (rc)
		return rc;
	scout__shares_fini(&shares);
	copy = strdup(value);
	if (!copy)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	free(atomic_exchange(&server->set[i], copy));
	scout__eventfd_raise(server->told.fd);
	return 0;
}

void
scout__server_told(struct scout_server *s)
{
	struct scout__share_list *const lists[SCOUT__SETTABLE] = {&s->state->tenant_shares,
								  &s->state->namespace_shares};
	bool changed = false;

	for (uint32_t i = 0; i < SCOUT__SETTABLE; i++) {
		char *value = atomic_exchange(&s->set[i], NULL);
		struct scout__share_list shares = {0};
		char err[256] = "";

		if (!value)
			continue;
		if (scout__shares_parse(keys[i], value, &shares, err, sizeof(err)) != 0) {
			scout__log(&s->log, SCOUT_LOG_ERROR, "the shares stay as they were: %s", err);
		} else {
			scout__shares_fini(lists[i]);
			*lists[i] = shares;
			changed = true;
			scout__log(&s->log, SCOUT_LOG_INFO, "%s = %s", keys[i], *value ? value : "(none)");
		}
		free(value);
	}
	if (changed)
		scout__ns_reshare(s);
}

void
scout__server_untold(struct scout_server *s)
{
	for (uint32_t i = 0; i < SCOUT__SETTABLE; i++)
		free(atomic_exchange(&s->set[i], NULL));
}
