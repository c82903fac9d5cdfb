/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "s3_stand.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Swift in a process of its own: see s3_stand.h and swift.py. */

static char why_not[256];

/* Outside a case, too, where Check's assertions cannot be used. */
static void
must(bool is_so, const char *what)
{
	if (is_so)
		return;
	(void)fprintf(stderr, "swift: %s\n", what);
	abort();
}

const char *
swift_start(struct swift *swift)
{
	int to[2], from[2];
	char line[256] = "";
	FILE *answer;

	(void)snprintf(swift->folder, sizeof(swift->folder), "/tmp/kvscout-swift-XXXXXX");
	must(mkdtemp(swift->folder) != NULL, swift->folder);
	must(rmdir(swift->folder) == 0, swift->folder);
	/* No other process holds them, so that it ends with this one. */
	must(pipe2(to, O_CLOEXEC) == 0, "no pipe");
	must(pipe2(from, O_CLOEXEC) == 0, "no pipe");
	swift->pid = fork();
	must(swift->pid >= 0, "no process");
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
	must(answer != NULL, "no memory or folder");
	if (!fgets(line, sizeof(line), answer) || sscanf(line, "ready %hu", &swift->port) != 1) {
		(void)snprintf(why_not, sizeof(why_not), "%.200s", strncmp(line, "skip ", 5) == 0 ? line + 5 : "");
		why_not[strcspn(why_not, "\n")] = '\0';
		/* What cannot be installed is skipped; what does not start fails. */
		must(*why_not, "it does not start, see the file log in its folder in /tmp");
		return why_not;
	}
	return NULL;
}

void
swift_stop(struct swift *swift)
{
	char command[128];

	(void)close(swift->to);
	must(waitpid(swift->pid, NULL, 0) == swift->pid, "it is nobody's child");
	(void)snprintf(command, sizeof(command), "rm -rf %s", swift->folder);
	must(system(command) == 0, swift->folder);
}

const char *
swift_bucket(void)
{
	static char name[32];

	(void)snprintf(name, sizeof(name), "case-%d", (int)getpid());
	return name;
}

int
swift_main(struct swift *swift, Suite *suite)
{
	const char *missing = swift_start(swift);
	int rc;

	if (missing) {
		(void)printf("1..0 # SKIP %s\n", missing);
		return EXIT_SUCCESS;
	}
	(void)setenv("AWS_ACCESS_KEY_ID", "test:tester", 1);
	(void)setenv("AWS_SECRET_ACCESS_KEY", "testing", 1);
	rc = run_suite(suite);
	swift_stop(swift);
	return rc;
}
