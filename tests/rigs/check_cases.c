/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct check_entry entries[256];
static size_t n_entries;

/* Constructors run in the order that the compiler likes: here entries get that of the text. */
void
check_register(const struct check_entry *entry)
{
	size_t at = n_entries++;

	if (n_entries > sizeof(entries) / sizeof(entries[0])) {
		(void)fputs("more cases than check_cases.c has entries\n", stderr);
		abort();
	}
	for (; at > 0 && strcmp(entries[at - 1].file, entry->file) == 0 && entries[at - 1].line > entry->line; at--)
		entries[at] = entries[at - 1];
	entries[at] = *entry;
}

static void
enter(TCase *tcase, const struct check_entry *e)
{
	if (e->test)
		_tcase_add_test(tcase, e->test, e->signal, 0, e->from, e->to);
	if (e->setup || e->teardown)
		tcase_add_checked_fixture(tcase, e->setup, e->teardown);
	if (e->unchecked_setup)
		tcase_add_unchecked_fixture(tcase, e->unchecked_setup, e->unchecked_teardown);
	if (e->timeout_s > 0)
		tcase_set_timeout(tcase, e->timeout_s);
}

__attribute__((weak)) Suite *
suite_of_this_file(void)
{
	const char *name = program_invocation_short_name;
	Suite *suite = suite_create(name);
	TCase *tcase = NULL;

	for (size_t i = 0; i < n_entries; i++) {
		/* What holds from here on is a case of Check's of its own, once there are cases above it. */
		if (!tcase || (!entries[i].test && entries[i - 1].test)) {
			tcase = tcase_create(name);
			suite_add_tcase(suite, tcase);
		}
		enter(tcase, &entries[i]);
	}
	return suite;
}

/* ---- running them ---- */

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

/* A limit for what hangs, before a case is made. Check's own, four seconds, is one that a busy machine reaches. */
__attribute__((constructor)) static void
set_timeout(void)
{
	(void)setenv("CK_DEFAULT_TIMEOUT", "120", 0);
}

int
run_suite(Suite *suite)
{
	SRunner *runner;
	int failed;

	runner = srunner_create(suite);
	runner_of_cases = srunner_fork_status(runner) == CK_FORK ? getpid() : 0;
	if (pthread_atfork(NULL, NULL, leave_checks_file) != 0)
		abort();

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
