/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_CHECK_MAIN_H
#define KVSCOUT_TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * check_main.c has the main() of every test program. The program defines `suite_of_this_file`; meson reads the TAP that Check
 * writes to stdout (CK_TAP_LOG_FILE_NAME=-), so each case is counted by name.
 */
Suite *suite_of_this_file(void);

/*
 * KVSCOUT_LONG=1: a program that repeats what depends on chance, or waits for what takes long, does so in full. `./dev check release`
 * runs all programs in this form; the short one is for each change.
 */
static inline bool
is_long(void)
{
	const char *text = getenv("KVSCOUT_LONG");

	return text && strcmp(text, "1") == 0;
}

#endif
