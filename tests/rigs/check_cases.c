/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <errno.h>
#include <stdio.h>

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
