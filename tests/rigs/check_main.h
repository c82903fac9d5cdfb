/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_CHECK_MAIN_H
#define KVSCOUT_TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

/*
 * check_main.c has the main() of every test program. The program defines `suite_of_this_file`; meson reads the TAP that Check
 * writes to stdout (CK_TAP_LOG_FILE_NAME=-), so each case is counted by name.
 */
Suite *suite_of_this_file(void);

#endif
