/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_URL_H
#define SCOUT_L2_URL_H

#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/*
 * URLs of the second tier:
 *
 *   fs:///path?max_bytes=N&threads=N&direct=0|1&sync=0|1&shared=0|1
 *   redis://[user:password@]host:port,host:port...[?ttl=S&cluster=auto]
 *
 * Parsed in two steps: the form here (percent-decoding, hosts, brackets for IPv6, query), what the options mean in the
 * adapter, through an option table, so that a wrong value is told as everywhere else.
 */

#define SCOUT__L2_MAX_HOSTS 64u

struct scout__l2_host {
	char *name;    /* without brackets */
	uint16_t port; /* 0: none was given */
};

struct scout__l2_url {
	char *scheme;
	char *user, *password; /* NULL: not given */
	uint32_t n_hosts;
	struct scout__l2_host *hosts;
	char *path; /* decoded; "" if none */
	uint32_t n_options;
	struct scout__l2_url_option {
		char *name, *value; /* decoded */
	} * options;
	char *shown; /* as given, with the password replaced by *** */
};

/* Returns 0, SCOUT_ERR_CONFIG_RANGE (@err says which part is wrong and what is allowed), SCOUT_ERR_NOMEM. */
SCOUT_ON_ANY int scout__l2_url_parse(const char *text, struct scout__l2_url *ret_url, char *err, size_t err_len);
SCOUT_ON_ANY void scout__l2_url_fini(struct scout__l2_url *url);

#endif
