/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be known from outside of a server of this host that does not answer: its record, and the state of its process in
 * /proc. The pid is checked by the name of the process, because the server may be in another pid namespace.
 *
 * Threads: any; no state.
 */
#include "instance_silent.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "instance_record.h"

#define YOUNG_MS 10000u /* a server so young may still be opening its stores: nobody should kill it */

/* The state of the process @pid as in /proc/PID/stat; 0: there is no kvscoutd of this pid here. */
static char
state_of(long pid)
{
	static const char name[] = "(kvscoutd) ";
	char path[64], text[256];
	const char *at;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, name);
	return at ? at[sizeof(name) - 1] : '\0';
}

bool
scout__instance_explain(const struct scout__instance *instance, const char *what, char *text, size_t len)
{
	int fd = open(instance->lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct scout__instance_record server;
	uint64_t served_ms;
	char state;
	int n;

	if (fd < 0)
		return false;
	scout__record_read(fd, &server);
	(void)close(fd);
	if (server.state != SCOUT__INSTANCE_SERVING)
		return false;
	state = state_of(server.pid);
	served_ms = scout__boot_ms() - server.since_ms;
	n = snprintf(text, len, "%s: the server of this host (pid %ld, ipc://%s, serving for %" PRIu64 " s) ", what,
		     server.pid, instance->socket, served_ms / 1000);
	if (n < 0 || (size_t)n >= len)
		return true;
	if (state == 'T' || state == 't')
		(void)snprintf(
			text + n, len - (size_t)n,
			"is stopped, by a signal or a debugger: `kill -CONT %ld` lets it go on; `kill -KILL %ld` "
			"ends it, and a peer starts the next one",
			server.pid, server.pid);
	else if (state && served_ms < YOUNG_MS)
		(void)snprintf(text + n, len - (size_t)n, "has just started: ask again; its log is %s", instance->log);
	else if (state)
		(void)snprintf(
			text + n, len - (size_t)n,
			"is in state %c (see ps(1)): its log is %s; if it does not answer again, `kill -KILL %ld` "
			"ends it, and a peer starts the next one",
			state, instance->log, server.pid);
	else
		(void)snprintf(
			text + n, len - (size_t)n,
			"has no process that can be seen from here: it has ended, or is in another container; its "
			"log is %s",
			instance->log);
	return true;
}
