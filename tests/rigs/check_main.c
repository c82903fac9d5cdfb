/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

int
main(void)
{
	SRunner *runner;
	int failed;

	/* A limit for what hangs. Check's own, four seconds, is one that a busy machine reaches. */
	(void)setenv("CK_DEFAULT_TIMEOUT", "120", 0);
	runner = srunner_create(suite_of_this_file());

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
