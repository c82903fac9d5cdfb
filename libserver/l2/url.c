/* SPDX-License-Identifier: Apache-2.0 */
#include "url.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"
#include "mask.h"

/*
 * DESIGN
 *
 * A URL is cut at its separators first and decoded after that, so that an encoded separator is data. URLs stand in
 * command lines, config files and logs, so a URL is printable text without blanks and '#'. It may hold a password.
 *
 * The password of a wrong URL is hidden, too, though nothing says which part was meant as one: if a ':' or an '@'
 * follows the scheme, only the scheme is shown. For the same reason messages repeat only scheme, option and host names.
 *
 * Threads: any; nothing is shared.
 */

#define AUTHORITY_END "/?"

/* A part of the text; not terminated. */
struct url_part {
	const char *p;
	size_t len;
};

#define WRONG(...) scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, __VA_ARGS__)

static bool
is_digits(struct url_part part)
{
	for (size_t i = 0; i < part.len; i++) {
		if (part.p[i] < '0' || part.p[i] > '9')
			return false;
	}
	return true;
}

static int
hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Cut *rest at the first @separator: returns what is before it, *rest is what is after; all and nothing without one. */
static struct url_part
cut(struct url_part *rest, char separator, bool *ret_found)
{
	const char *at = rest->len ? memchr(rest->p, separator, rest->len) : NULL;
	struct url_part head = {rest->p, at ? (size_t)(at - rest->p) : rest->len};

	*ret_found = at != NULL;
	rest->p += head.len + (at ? 1 : 0);
	rest->len -= head.len + (at ? 1 : 0);
	return head;
}

/* ---- decoding ---- */

/* A decoded copy. @what: "the path", for messages. */
static int
decode(struct url_part part, const char *what, char **ret_text, char *err, size_t err_len)
{
	char *text = malloc(part.len + 1);
	char *out = text;

	if (!text)
		return scout__fail_no_memory(err, err_len);
	for (size_t i = 0; i < part.len; i++) {
		int high = i + 1 < part.len ? hex_of(part.p[i + 1]) : -1;
		int low = i + 2 < part.len ? hex_of(part.p[i + 2]) : -1;

		if (part.p[i] != '%') {
			*out++ = part.p[i];
			continue;
		}
		if (high < 0 || low < 0 || (high == 0 && low == 0)) {
			free(text);
			return high == 0 && low == 0 ? WRONG("%s has a NUL (%%00)", what)
						     : WRONG("%s has a '%%' without two hexadecimal digits after it; "
							     "'%%' itself is written %%25",
							     what);
		}
		*out++ = (char)(high * 16 + low);
		i += 2;
	}
	*out = '\0';
	*ret_text = text;
	return 0;
}

static int
take_scheme(struct url_part *rest, struct scout__l2_url *url, char *err, size_t err_len)
{
	bool found;
	struct url_part scheme = cut(rest, ':', &found);

	if (!found || rest->len < 2 || memcmp(rest->p, "//", 2) != 0)
		return WRONG(
			"not a URL: must be SCHEME://..., such as fs:///var/cache/kvscout or redis://localhost:6379");
	for (size_t i = 0; i < scheme.len; i++) {
		char c = scheme.p[i];

		if (!((c >= 'a' && c <= 'z') || (i && (c == '+' || c == '-' || c == '.' || (c >= '0' && c <= '9')))))
			return WRONG("the scheme is lower-case letters, then also digits, '+', '-' and '.'");
	}
	if (!scheme.len)
		return WRONG("the scheme is missing: must be SCHEME://...");
	rest->p += 2;
	rest->len -= 2;
	url->scheme = strndup(scheme.p, scheme.len);
	return url->scheme ? 0 : scout__fail_no_memory(err, err_len);
}

/* ---- authority ---- */

static int
take_user(struct url_part user, struct scout__l2_url *url, char *err, size_t err_len)
{
	bool has_password;
	struct url_part name = cut(&user, ':', &has_password);
	int rc;

	if (memchr(name.p, '@', name.len) || (user.len && memchr(user.p, '@', user.len)))
		return WRONG("'@' in a user or password is written %%40");
	if (!has_password || !user.len)
		return WRONG("the user has no password: must be user:password@ or :password@");
	if (name.len) {
		rc = decode(name, "the user", &url->user, err, err_len);
		if (rc)
			return rc;
	}
	return decode(user, "the password", &url->password, err, err_len);
}

static bool
is_host_name(struct url_part name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
		      c == '-' || c == '_'))
			return false;
	}
	return name.len <= 253;
}

static int
take_port(struct url_part port, uint32_t number, uint16_t *ret_port, char *err, size_t err_len)
{
	uint32_t value = 0;

	for (size_t i = 0; i < port.len && value <= UINT16_MAX && is_digits(port); i++)
		value = value * 10 + (uint32_t)(port.p[i] - '0');
	if (!is_digits(port) || value == 0 || value > UINT16_MAX)
		return WRONG("the port of host %u is not a number from 1 to 65535", number);
	*ret_port = (uint16_t)value;
	return 0;
}

/* "[...]": the name without brackets; *rest is what comes after. */
static int
take_bracket(struct url_part *rest, uint32_t number, struct url_part *ret_name, char *err, size_t err_len)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;
	bool found;

	rest->p++;
	rest->len--;
	*ret_name = cut(rest, ']', &found);
	if (!found)
		return WRONG("host %u has a '[' that is not closed", number);
	if (ret_name->len < sizeof(text)) {
		memcpy(text, ret_name->p, ret_name->len);
		text[ret_name->len] = '\0';
		if (inet_pton(AF_INET6, text, &address) == 1)
			return 0;
	}
	return WRONG("host %u has no IPv6 address between its brackets", number);
}

/* Host @number, from 1. */
static int
take_host(struct url_part text, uint32_t number, struct scout__l2_host *ret_host, char *err, size_t err_len)
{
	bool has_port;
	struct url_part name;
	int rc;

	ret_host->name = NULL;
	ret_host->port = 0;
	if (text.len && text.p[0] == '[') {
		rc = take_bracket(&text, number, &name, err, err_len);
		if (rc)
			return rc;
		if (text.len && text.p[0] != ':')
			return WRONG("host %u has something other than ':' after its ']'", number);
		has_port = text.len > 0;
		text.p += has_port ? 1 : 0;
		text.len -= has_port ? 1 : 0;
	} else {
		name = cut(&text, ':', &has_port);
		if (!name.len)
			return WRONG("host %u is empty", number);
		if (text.len && memchr(text.p, ':', text.len))
			return WRONG("host %u has more than one ':'; an IPv6 address is written in brackets", number);
		if (!is_host_name(name))
			return WRONG("host %u is not a name: letters, digits, '.', '-' and '_', at most 253", number);
	}
	if (has_port) {
		rc = take_port(text, number, &ret_host->port, err, err_len);
		if (rc)
			return rc;
	}
	ret_host->name = strndup(name.p, name.len);
	return ret_host->name ? 0 : scout__fail_no_memory(err, err_len);
}

static int
take_authority(struct url_part authority, struct scout__l2_url *url, char *err, size_t err_len)
{
	const char *at = authority.len ? memrchr(authority.p, '@', authority.len) : NULL;
	bool more = true;
	int rc;

	if (at) {
		rc = take_user((struct url_part){authority.p, (size_t)(at - authority.p)}, url, err, err_len);
		if (rc)
			return rc;
		authority.len -= (size_t)(at + 1 - authority.p);
		authority.p = at + 1;
	} else if (!authority.len) {
		return 0;
	}
	url->hosts = calloc(SCOUT__L2_MAX_HOSTS, sizeof(*url->hosts));
	if (!url->hosts)
		return scout__fail_no_memory(err, err_len);
	while (more) {
		struct url_part host = cut(&authority, ',', &more);

		if (url->n_hosts == SCOUT__L2_MAX_HOSTS)
			return WRONG("more than %u hosts", SCOUT__L2_MAX_HOSTS);
		rc = take_host(host, url->n_hosts + 1, &url->hosts[url->n_hosts], err, err_len);
		if (rc)
			return rc;
		url->n_hosts++;
	}
	return 0;
}

/* ---- query ---- */

static int
take_option(struct url_part value, struct scout__l2_url *url, char *err, size_t err_len)
{
	bool has_value;
	struct url_part name = cut(&value, '=', &has_value);
	struct scout__l2_url_option *option;
	int rc;

	if (!name.len)
		return WRONG("option %u is empty: must be NAME=VALUE", url->n_options + 1);
	if (url->n_options == SCOUT__L2_MAX_URL_OPTIONS)
		return WRONG("more than %u options", SCOUT__L2_MAX_URL_OPTIONS);
	option = &url->options[url->n_options];
	rc = decode(name, "an option's name", &option->name, err, err_len);
	if (rc)
		return rc;
	url->n_options++;
	if (!has_value || !value.len)
		return WRONG("option %.64s has no value: must be NAME=VALUE", option->name);
	for (uint32_t i = 0; i + 1 < url->n_options; i++) {
		if (strcmp(url->options[i].name, option->name) == 0)
			return WRONG("option %.64s is given twice", option->name);
	}
	return decode(value, "an option's value", &option->value, err, err_len);
}

static int
take_options(struct url_part query, struct scout__l2_url *url, char *err, size_t err_len)
{
	bool more = true;
	int rc;

	url->options = calloc(SCOUT__L2_MAX_URL_OPTIONS, sizeof(*url->options));
	if (!url->options)
		return scout__fail_no_memory(err, err_len);
	while (more) {
		rc = take_option(cut(&query, '&', &more), url, err, err_len);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- */

static int
check_text(const char *text, char *err, size_t err_len)
{
	size_t len = strnlen(text, SCOUT__L2_URL_MAX + 1);

	if (len > SCOUT__L2_URL_MAX)
		return WRONG("longer than %u bytes", SCOUT__L2_URL_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c <= 0x20 || c == 0x7f)
			return WRONG("byte %zu is a blank or a control character: write it as %%%02x", i + 1, c);
		if (c == '#')
			return WRONG("byte %zu is a '#', which begins a comment in a config file: write it as %%23",
				     i + 1);
	}
	return 0;
}

static int
parse(const char *text, struct scout__l2_url *url, char *err, size_t err_len)
{
	struct url_part rest = {text, strlen(text)};
	struct url_part authority;
	bool has_options;
	int rc;

	rc = take_scheme(&rest, url, err, err_len);
	if (rc)
		return rc;
	authority = (struct url_part){rest.p, strcspn(rest.p, AUTHORITY_END)};
	rest.p += authority.len;
	rest.len -= authority.len;
	rc = take_authority(authority, url, err, err_len);
	if (rc)
		return rc;
	rc = decode(cut(&rest, '?', &has_options), "the path", &url->path, err, err_len);
	if (!rc && has_options)
		rc = take_options(rest, url, err, err_len);
	return rc;
}

/* @text without its password. NULL: out of memory. */
static char *
hide_password(const char *text)
{
	size_t len = strlen(text) + SCOUT__MASK_ROOM;
	char *shown = malloc(len);

	if (shown)
		scout__mask(text, shown, len);
	return shown;
}

int
scout__l2_url_parse(const char *text, struct scout__l2_url *ret_url, char *err, size_t err_len)
{
	struct scout__l2_url url = {.scheme = NULL};
	int rc = check_text(text, err, err_len);

	if (!rc)
		rc = parse(text, &url, err, err_len);
	if (!rc) {
		url.shown = hide_password(text);
		if (!url.shown)
			rc = scout__fail_no_memory(err, err_len);
	}
	if (rc) {
		scout__l2_url_fini(&url);
		return rc;
	}
	*ret_url = url;
	return 0;
}

char *
scout__l2_url_mask(const char *text)
{
	const char *behind = strstr(text, "://");
	struct scout__l2_url url;
	char *shown;

	if (scout__l2_url_parse(text, &url, NULL, 0) == 0) {
		shown = url.shown;
		url.shown = NULL;
		scout__l2_url_fini(&url);
		return shown;
	}
	behind = behind ? behind + strlen("://") : text;
	if (memchr(text, '@', (size_t)(behind - text)))
		behind = text;
	if (!strpbrk(behind, ":@"))
		return strdup(text);
	return asprintf(&shown, "%.*s***", (int)(behind - text), text) < 0 ? NULL : shown;
}

void
scout__l2_url_fini(struct scout__l2_url *url)
{
	for (uint32_t i = 0; i < url->n_hosts; i++)
		free(url->hosts[i].name);
	for (uint32_t i = 0; i < url->n_options; i++) {
		free(url->options[i].name);
		free(url->options[i].value);
	}
	free(url->hosts);
	free(url->options);
	free(url->scheme);
	free(url->user);
	free(url->password);
	free(url->path);
	free(url->shown);
	*url = (struct scout__l2_url){.scheme = NULL};
}

int
scout__l2_url_need_folder(const struct scout__l2_url *url, char *err, size_t err_len)
{
	if (url->n_hosts || url->password)
		return WRONG("%s takes no host, and its path is absolute: must be %s:///path with three slashes",
			     url->scheme, url->scheme);
	if (!url->path[0])
		return WRONG("the path is missing: must be %s:///path", url->scheme);
	if (url->path[strspn(url->path, "/")] == '\0')
		return WRONG("the path is the root folder: must be %s:///path", url->scheme);
	return 0;
}

int
scout__l2_url_need_hosts(const struct scout__l2_url *url, char *err, size_t err_len)
{
	if (url->path[0] && strcmp(url->path, "/") != 0)
		return WRONG("%s takes no path; a '/' in a password is written %%2F", url->scheme);
	if (!url->n_hosts)
		return WRONG("the host is missing: must be %s://host:port, or several with ',' between them",
			     url->scheme);
	return 0;
}

int
scout__l2_url_options(const struct scout__l2_url *url, const struct scout__option_table *table, void *cfg, char *err,
		      size_t err_len)
{
	scout__options_init(table, cfg, (uint32_t)table->struct_size);
	for (uint32_t i = 0; i < url->n_options; i++) {
		const char *name = url->options[i].name, *value = url->options[i].value;
		char text[384];
		int rc = scout__options_set(table, cfg, name, value, text, sizeof(text));

		if (rc) {
			scout__options_fini(table, cfg);
			return scout__fail(err, err_len, rc, "option %u: %s", i + 1, text);
		}
	}
	return 0;
}
