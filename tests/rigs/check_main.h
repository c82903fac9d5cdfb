/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * check_main.c has the main() of every test program; meson reads the TAP that Check writes to stdout (CK_TAP_LOG_FILE_NAME=-), so each case is
 * counted by name.
 *
 * A case is part of its program where it stands, without a list: START_TEST(name) runs once, START_LOOP_TEST(name, from, to) once for each
 * `_i` from @from to below @to, START_SIGNAL_TEST(name, signal) has to end by @signal. A fixture or a limit of time (in seconds) holds for the
 * cases below it, up to the next CHECKED_FIXTURE. A program whose cases do not follow from its text has a suite_of_this_file() of its own.
 */
Suite *suite_of_this_file(void);
/* What main() returns: a program that first needs a server, say, has a main() of its own. */
int run_suite(Suite *suite);

struct check_entry {
	const char *file;
	int line;
	const TTest *test; /* NULL: no case */
	int signal, from, to;
	SFun setup, teardown; /* a checked fixture */
	SFun unchecked_setup, unchecked_teardown;
	double timeout_s;
};

void check_register(const struct check_entry *entry);

#define CHECK_PASTE(a, b) a##b
#define CHECK_NAME(line) CHECK_PASTE(enter_line_, line)
#define CHECK_ENTRY(...)                                                                                               \
	__attribute__((constructor)) static void CHECK_NAME(__LINE__)(void)                                            \
	{                                                                                                              \
		check_register(&(struct check_entry){.file = __FILE__, .line = __LINE__, __VA_ARGS__});                \
	}

#define CHECK_CASE(name, ...)                                                                                          \
	static void name##_fn(int _i);                                                                                 \
	static const TTest name##_ttest = {#name, name##_fn, __FILE__, __LINE__};                                      \
	static const TTest *name CK_ATTRIBUTE_UNUSED = &name##_ttest;                                                  \
	CHECK_ENTRY(.test = &name##_ttest, __VA_ARGS__)                                                                \
	static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

#undef START_TEST
#define START_TEST(name) CHECK_CASE(name, .to = 1)
#define START_LOOP_TEST(name, first, end) CHECK_CASE(name, .from = (int)(first), .to = (int)(end))
#define START_SIGNAL_TEST(name, number) CHECK_CASE(name, .signal = (number), .to = 1)
/* The declaration at the end takes the semicolon. */
#define CHECKED_FIXTURE(up, down) CHECK_ENTRY(.setup = (up), .teardown = (down)) struct check_entry
#define UNCHECKED_FIXTURE(up, down)                                                                                    \
	CHECK_ENTRY(.unchecked_setup = (up), .unchecked_teardown = (down)) struct check_entry
#define CASE_TIMEOUT(seconds) CHECK_ENTRY(.timeout_s = (seconds)) struct check_entry

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
