/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_CHECK_MAIN_H
#define KVSCOUT_TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

/*
 * The main() of every test binary. The binary defines `suite_of_this_file`; meson reads the TAP that Check writes to
 * stdout (CK_TAP_LOG_FILE_NAME=-), so each case is counted by name.
 */
Suite *suite_of_this_file(void);

int
main(void)
{
	SRunner *runner;
	int failed;

	/* A limit for what hangs. Check's own, four seconds, is one that a busy machine reaches. */
	(void)setenv("CK_DEFAULT_TIMEOUT", "60", 0);
	runner = srunner_create(suite_of_this_file());

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
