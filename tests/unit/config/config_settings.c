/* SPDX-License-Identifier: Apache-2.0 */
#include "config_settings.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
check_setting(const void *cfg, const struct setting *s)
{
	const char *field = (const char *)cfg + s->offset;
	const char *text;
	uint64_t number = 0;

	if (s->width == 0) {
		memcpy(&text, field, sizeof(text));
		ck_assert_pstr_eq(text, s->text);
		return;
	}
	memcpy(&number, field, s->width);
	if (s->width == sizeof(uint32_t))
		ck_assert_msg(number == (uint32_t)s->number, "%s is %u", s->key, (unsigned)number);
	else
		ck_assert_msg(number == s->number, "%s is %llu", s->key, (unsigned long long)number);
}

void
check_settings(const void *cfg, const struct setting *settings, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check_setting(cfg, &settings[i]);
}

const char *
file_with(const void *text, size_t n)
{
	static char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/tmp/kvscout-test-config-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
	ck_assert_int_eq(close(fd), 0);
	return path;
}

void
check_names(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n && words[i]; i++)
		ck_assert_msg(strstr(text, words[i]) != NULL, "no \"%s\" in: %s", words[i], text);
}
