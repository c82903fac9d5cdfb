/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "log.h"
#include "option_parse.h"
#include "secret.h"

/*
 * DESIGN
 *
 * Purpose: options from a file and from the environment. Both are strings for scout__options_set(), which checks
 * them; a message begins with the place where the string came from.
 *
 * The file is not trusted: a line is at most LINE_BYTES, a NUL byte ends the reading, and a path that names no such file (a
 * folder, a device, nothing) gives SCOUT_ERR_FORMAT.
 *
 * A variable that begins as ours do and misspells a key is an error, as the key is in a file. One that is close to no key
 * is not ours: Kubernetes sets KVSCOUT_PORT and KVSCOUT_SERVICE_HOST in each container beside a service named kvscout.
 *
 * Threads: any that may call getenv(). Rejected: sections, quotes and continued lines. No value needs them.
 */

#define LINE_BYTES 8192
#define MESSAGE_BYTES 512

struct option_reader {
	FILE *file;
	const char *path;
	unsigned line_number;
	char line[LINE_BYTES];
};

static int
fail_errno(const char *path, int number, char *err, size_t err_len)
{
	char text[128];

	/* The GNU strerror_r(): returns the text, in our buffer or in a constant. */
	return scout__fail(err, err_len, SCOUT_ERR_FORMAT, "%s: %s", path, strerror_r(number, text, sizeof(text)));
}

static int
fail_line(const struct option_reader *reader, int code, const char *what, char *err, size_t err_len)
{
	return scout__fail(err, err_len, code, "%s:%u: %s", reader->path, reader->line_number, what);
}

/* Read the next line, without its end. 1: there is one; 0: end of the file; else an error. */
static int
next_line(struct option_reader *reader, char *err, size_t err_len)
{
	size_t n = 0;
	int c;

	reader->line_number++;
	while ((c = getc(reader->file)) != EOF && c != '\n') {
		if (c == '\0')
			return fail_line(reader, SCOUT_ERR_FORMAT, "the line has a NUL byte: the file must be text",
					 err, err_len);
		if (n == LINE_BYTES - 1)
			return fail_line(reader, SCOUT_ERR_FORMAT,
					 "the line is too long: must have less than 8192 bytes", err, err_len);
		reader->line[n++] = (char)c;
	}
	if (ferror(reader->file))
		return fail_errno(reader->path, errno, err, err_len);
	reader->line[n] = '\0';
	return c == '\n' || n > 0;
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* Cut blanks at both ends. */
static char *
trim(char *text)
{
	size_t n;

	while (is_blank(*text))
		text++;
	n = strlen(text);
	while (n && is_blank(text[n - 1]))
		n--;
	text[n] = '\0';
	return text;
}

/* A comment begins at a '#' that is the first character or follows a blank: a CURVE key may hold a '#', and so may a path. */
static void
cut_comment(char *line)
{
	for (char *c = line; *c; c++)
		if (*c == '#' && (c == line || is_blank(c[-1]))) {
			*c = '\0';
			return;
		}
}

/* Whether @value is a URL with a user's password: then the file keeps the rule of secret.h. */
static bool
has_password(const char *value)
{
	const char *user = strstr(value, "://"), *end = user ? strrchr(user, '@') : NULL;

	return end && memchr(user + 3, ':', (size_t)(end - user - 3));
}

static int
apply_line(const struct scout__option_table *table, void *cfg, struct option_reader *reader, char *err, size_t err_len)
{
	char message[MESSAGE_BYTES];
	char *equals, *key, *value;
	int rc;

	cut_comment(reader->line);
	key = trim(reader->line);
	if (!*key)
		return 0;
	equals = strchr(key, '=');
	if (!equals)
		return fail_line(reader, SCOUT_ERR_FORMAT,
				 "the line has no '=': must be `key = value`, or begin with #", err, err_len);
	*equals = '\0';
	key = trim(key);
	if (!*key)
		return fail_line(reader, SCOUT_ERR_FORMAT, "no key before '=': must be `key = value`, or begin with #",
				 err, err_len);
	value = trim(equals + 1);
	rc = has_password(value) ? scout__secret_judge(fileno(reader->file), "a URL with a password stands in",
						       reader->path, message, sizeof(message))
				 : 0;
	if (rc == 0)
		rc = scout__options_set(table, cfg, key, value, message, sizeof(message));
	return rc ? fail_line(reader, rc, message, err, err_len) : 0;
}

int
scout__options_load(const struct scout__option_table *table, void *cfg, const char *path, char *err, size_t err_len)
{
	struct option_reader reader = {.path = path};
	int rc;

	if (!cfg || !path)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the configuration or the path is NULL");
	reader.file = fopen(path, "re");
	if (!reader.file)
		return fail_errno(path, errno, err, err_len);
	do {
		rc = next_line(&reader, err, err_len);
		if (rc > 0) {
			int failed = apply_line(table, cfg, &reader, err, err_len);

			rc = failed ? failed : rc;
		}
	} while (rc > 0);
	/* The file was only read: closing cannot lose anything. */
	(void)fclose(reader.file);
	return rc;
}

/* "KVSCOUT_" and the key in capitals. False if that does not fit; our keys are far shorter. */
static bool
variable_name(const char *prefix, const char *key, char buf[SCOUT__OPTION_TEXT])
{
	int n = snprintf(buf, SCOUT__OPTION_TEXT, "%s%s", prefix, key);

	if (n < 0 || n >= SCOUT__OPTION_TEXT)
		return false;
	for (char *at = buf; *at; at++) {
		if (*at >= 'a' && *at <= 'z')
			*at = (char)(*at - ('a' - 'A'));
	}
	return true;
}

static int
apply_variable(const struct scout__option_table *table, void *cfg, const char *key, char *err, size_t err_len)
{
	char message[MESSAGE_BYTES];
	char name[SCOUT__OPTION_TEXT];
	const char *value;
	int rc;

	if (!key || !variable_name(table->env_prefix, key, name))
		return 0;
	value = secure_getenv(name);
	if (!value)
		return 0;
	rc = scout__options_set(table, cfg, key, value, message, sizeof(message));
	return rc ? scout__fail(err, err_len, rc, "%s: %s", name, message) : 0;
}

/* @entry: NAME=VALUE. */
static int
check_spelling(const struct scout__option_table *table, const char *entry, char *err, size_t err_len)
{
	size_t prefix_len = strlen(table->env_prefix), len = strcspn(entry, "=");
	char name[SCOUT__OPTION_TEXT], key[SCOUT__OPTION_TEXT];
	const char *closest;
	char meant[SCOUT__OPTION_TEXT];

	if (len >= sizeof(name) || strncmp(entry, table->env_prefix, prefix_len) != 0)
		return 0;
	(void)snprintf(name, sizeof(name), "%.*s", (int)len, entry);
	(void)snprintf(key, sizeof(key), "%s", name + prefix_len);
	for (char *at = key; *at; at++)
		if (*at >= 'A' && *at <= 'Z')
			*at = (char)(*at + ('a' - 'A'));
	closest = scout__options_closest(table, key);
	if (!closest || !variable_name(table->env_prefix, closest, meant) || !secure_getenv(name))
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_KEY, "%s names no configuration key; did you mean %s?", name,
			   meant);
}

int
scout__options_load_env(const struct scout__option_table *table, void *cfg, char *err, size_t err_len)
{
	int rc = 0;

	if (!cfg)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the configuration is NULL");
	if (!table->env_prefix)
		return 0;
	for (char **entry = environ; entry && *entry && !rc; entry++)
		rc = check_spelling(table, *entry, err, err_len);
	for (size_t i = 0; i < table->n && !rc; i++) {
		/* The alias first: if both are set, the proper name wins. */
		rc = apply_variable(table, cfg, table->options[i].alias, err, err_len);
		if (!rc)
			rc = apply_variable(table, cfg, table->options[i].name, err, err_len);
	}
	return rc;
}
