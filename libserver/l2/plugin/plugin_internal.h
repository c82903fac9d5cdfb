/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/l2_plugin.h>

#include "blocking.h"
#include "log.h"
#include "url.h"

/* A store in a shared library; internal to plugin*.c. */

struct scout__plugin {
	/* Const after open. */
	struct scout__blocking blocking;
	const struct scout__log *log;
	char *path;       /* of the library */
	char *name;       /* of the store, in log lines */
	const char *hint; /* what may help if the library cannot be loaded, or "" */
	uint32_t tries;   /* how often one call may move an object */
	void *library;
	struct scout_l2_plugin of; /* a copy; calls that the library is too old for are NULL */
	void *store;
	pthread_t closer; /* of the stop: ends the store */
};

/* What a question thread and a transfer thread do: plugin_calls.c. */
extern const struct scout__blocking_calls scout__plugin_calls;

/* ---- plugin_s3.c ---- */

#define SCOUT__S3_URL_PARTS 2u
#define SCOUT__S3_HINT " (s3:// needs libcrypto of OpenSSL 3 on this host; Debian and Ubuntu: libssl3)"

/* What stands before the query of s3://bucket/prefix, as options of the plugin. Returns 0 or SCOUT_ERR_CONFIG_RANGE. */
int scout__s3_url_parts(const struct scout__l2_url *url, struct scout_l2_option ret_options[SCOUT__S3_URL_PARTS],
			uint32_t *ret_n, char *err, size_t err_len);
/* Find libkvscout-l2-s3.so. The caller frees *ret_path. Returns 0, SCOUT_ERR_CONFIG_RANGE or _NOMEM. */
int scout__s3_library(char **ret_path, char *err, size_t err_len);
