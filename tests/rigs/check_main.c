/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pid_t runner_of_cases; /* 0: no process is forked for a case */

/*
 * A case tells Check's runner how far it is in a file that whatever it forks inherits, and each ck_assert() writes there. A child that is
 * killed in the middle of that leaves half a message, at which the runner ends ("Bad message type"). So children write into /dev/null; their
 * parents learn by a status or a pipe what became of them.
 */
static void
leave_checks_file(void)
{
	char path[32], name[128];
	int null;

	if (getppid() == runner_of_cases)
		return; /* this is a case */
	for (int fd = STDERR_FILENO + 1; fd < 256; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		memset(name, 0, sizeof(name));
		if (readlink(path, name, sizeof(name) - 1) <= 0 || !strstr(name, "/check_"))
			continue;
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		(void)dup2(null, fd);
		(void)close(null);
	}
}

int
main(void)
{
	SRunner *runner;
	int failed;

	/* A limit for what hangs. Check's own, four seconds, is one that a busy machine reaches. */
	(void)setenv("CK_DEFAULT_TIMEOUT", "120", 0);
	runner = srunner_create(suite_of_this_file());
	runner_of_cases = srunner_fork_status(runner) == CK_FORK ? getpid() : 0;
	if (pthread_atfork(NULL, NULL, leave_checks_file) != 0)
		abort();

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
