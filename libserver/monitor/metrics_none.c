/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"
#include "server_core.h"

/*
 * Replaces the other metrics_*.c in a build without libmicrohttpd: the key is refused, server.metrics is always NULL.
 */

int
scout__metrics_open(struct scout_server *s, char *err, size_t err_len)
{
	if (!s->cfg.metrics)
		return 0;
	return scout__fail(
		err, err_len, SCOUT_ERR_UNSUPPORTED,
		"metrics = %s: this build has no HTTP server; install libmicrohttpd (Debian: libmicrohttpd-dev) and "
		"build with -Dmetrics=enabled, or leave the key out (STATUS has the same values)",
		s->cfg.metrics);
}

void
scout__metrics_close(struct scout_server *s)
{
	(void)s;
}

void
scout__metrics_serve(struct scout_server *s)
{
	(void)s;
}

void
scout__metrics_beat(struct scout_server *s)
{
	(void)s;
}

void
scout__metrics_enter(struct scout_server *s, enum scout__metrics_phase phase)
{
	(void)s;
	(void)phase;
}

void
scout__metrics_asked(struct scout_server *s)
{
	(void)s;
}
