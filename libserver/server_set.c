/* SPDX-License-Identifier: Apache-2.0 */
#include "server_set.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doorbell.h"
#include "log.h"
#include "ns.h"
#include "rights.h"
#include "server_core.h"
#include "share_list.h"
#include "state.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Keys that a running server takes. The caller's thread judges the text, of the value or of curve_rights_file, and leaves a
 * copy for the loop, which takes the newest: a second call before that replaces the first, and neither waits.
 *
 * Threads: scout_server_set() any; the rest the loop.
 */

#define RIGHTS 2u
static const char *const keys[SCOUT__SETTABLE] = {"tenant_share", "namespace_share", [RIGHTS] = "curve_rights_file"};

int
scout_server_set(struct scout_server *server, const char *key, const char *value, char *err, size_t err_len)
{
	struct scout__share_list shares = {0};
	uint32_t i = 0;
	char *copy = NULL;
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
			"%.64s cannot be changed while the server runs: only tenant_share, namespace_share and curve_rights_file can",
			key);
	rc = i == RIGHTS && *value ? scout__rights_read(value, &copy, err, err_len)
				   : scout__shares_parse(key, value, &shares, err, err_len);
	if (rc)
		return rc;
	scout__shares_fini(&shares);
	copy = copy ? copy : strdup(value);
	if (!copy)
		return scout__fail_no_memory(err, err_len);
	free(atomic_exchange(&server->set[i], copy));
	scout__eventfd_raise(server->told.fd);
	return 0;
}

void
scout__server_told(struct scout_server *s)
{
	struct scout__share_list *const lists[RIGHTS] = {&s->state->tenant_shares, &s->state->namespace_shares};
	bool changed = false;

	char *rights = atomic_exchange(&s->set[RIGHTS], NULL);

	for (uint32_t i = 0; i < RIGHTS; i++) {
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
	if (!rights)
		return;
	free(s->transport->rights);
	s->transport->rights = rights;
	s->transport->n_rights++;
	scout__log(&s->log, SCOUT_LOG_INFO, "curve_rights_file: read again");
}

void
scout__server_untold(struct scout_server *s)
{
	for (uint32_t i = 0; i < SCOUT__SETTABLE; i++)
		free(atomic_exchange(&s->set[i], NULL));
}
