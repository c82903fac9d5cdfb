/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_stand.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Swift in a process of its own: see s3_stand.h and swift.py. */

static char why_not[256];

const char *
swift_start(struct swift *swift)
{
	int to[2], from[2];
	char line[256] = "";
	FILE *answer;

	(void)snprintf(swift->folder, sizeof(swift->folder), "/tmp/kvscout-swift-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(swift->folder));
	ck_assert_int_eq(rmdir(swift->folder), 0);
	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	swift->pid = fork();
	ck_assert_int_ge(swift->pid, 0);
	if (swift->pid == 0) {
		(void)dup2(to[0], 0);
		(void)dup2(from[1], 1);
		(void)close(to[1]);
		(void)close(from[0]);
		(void)execl(PYTHON, PYTHON, SWIFT_PY, SWIFT_VENV, swift->folder, (char *)NULL);
		_exit(127);
	}
	(void)close(to[0]);
	(void)close(from[1]);
	swift->to = to[1];
	answer = fdopen(from[0], "r");
	ck_assert_ptr_nonnull(answer);
	if (!fgets(line, sizeof(line), answer) || sscanf(line, "ready %hu", &swift->port) != 1) {
		(void)snprintf(why_not, sizeof(why_not), "%.200s", strncmp(line, "skip ", 5) == 0 ? line + 5 : "");
		why_not[strcspn(why_not, "\n")] = '\0';
		/* What cannot be installed is skipped; what does not start fails. */
		ck_assert_msg(*why_not, "swift does not start: %s/log", swift->folder);
		return why_not;
	}
	return NULL;
}

void
swift_stop(struct swift *swift)
{
	char command[128];

	(void)close(swift->to);
	ck_assert_int_eq(waitpid(swift->pid, NULL, 0), swift->pid);
	(void)snprintf(command, sizeof(command), "rm -rf %s", swift->folder);
	ck_assert_int_eq(system(command), 0);
}
