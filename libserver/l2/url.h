/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "option.h"
#include "thread.h"

/*
 * URLs of L2:
 *
 *   fs:///path?max_bytes=N&threads=N&direct=0|1&sync=0|1&shared=0|1
 *   plugin:///path/lib.so?threads=N&...   (others: the plugin's)
 *   s3://bucket/prefix?threads=N&...       (others: the plugin's)
 *   redis://[user:password@]host:port,host:port...[?ttl=S&cluster=auto]
 *
 * timeout_ms=N may stand in each of them: l2.c takes it out.
 *
 * Parsing has two steps: the form here (percent-decoding, hosts, brackets for IPv6, query); the options in the adapter,
 * by an option table (scout__l2_url_options), so that a wrong value is reported as everywhere else.
 *
 * Messages are sentences about a part of the URL. None contains anything that could be a password; l2.c puts the URL
 * before them, as scout__l2_url_mask() shows it.
 */

#define SCOUT__L2_URL_MAX 4096u
#define SCOUT__L2_MAX_HOSTS 64u
#define SCOUT__L2_MAX_URL_OPTIONS 32u

struct scout__l2_host {
	char *name;    /* without brackets */
	uint16_t port; /* 0: none was given */
};

struct scout__l2_url_option {
	char *name, *value; /* decoded */
};

struct scout__l2_url {
	char *scheme;
	char *user, *password; /* decoded; NULL: not given. A user always has a password; ":password@" has no user */
	uint32_t n_hosts;
	struct scout__l2_host *hosts;
	char *path; /* decoded; "" if none */
	uint32_t n_options;
	struct scout__l2_url_option *options;
	char *shown; /* as given, with the password replaced by *** */
};

/* Returns 0, SCOUT_ERR_CONFIG_RANGE (@err says which part is wrong and what is allowed), SCOUT_ERR_NOMEM. */
SCOUT_ON_ANY int scout__l2_url_parse(const char *text, struct scout__l2_url *ret_url, char *err, size_t err_len);
SCOUT_ON_ANY void scout__l2_url_fini(struct scout__l2_url *url);

/*
 * @text, right or wrong, with *** in place of a password and of all that may be one. Freed by the caller; NULL: no
 * memory.
 */
SCOUT_ON_ANY char *scout__l2_url_mask(const char *text);

/* For an adapter's open(): check what stands before the query. Returns 0 or SCOUT_ERR_CONFIG_RANGE. */
SCOUT_ON_ANY int scout__l2_url_need_folder(const struct scout__l2_url *url, char *err, size_t err_len);
SCOUT_ON_ANY int scout__l2_url_need_hosts(const struct scout__l2_url *url, char *err, size_t err_len);

/*
 * For an adapter's open(): initialise @cfg (a structure of @table: a leading u32 size, an owned list) and set what the
 * URL says. Returns 0 (then scout__options_fini(table, cfg) in the end), or SCOUT_ERR_CONFIG_KEY, _CONFIG_SYNTAX,
 * _CONFIG_RANGE, _NOMEM.
 */
SCOUT_ON_ANY int scout__l2_url_options(const struct scout__l2_url *url, const struct scout__option_table *table,
				       void *cfg, char *err, size_t err_len);
