/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * scout_server_config_check(): what start would refuse, by the functions that start itself calls, so that the two cannot
 * differ. A program that starts the server in the background asks here first, because it cannot wait for the server's log.
 *
 * Threads: any; no state.
 */
#include <stdlib.h>

#include <kvscout/server.h>

#include "evict.h"
#include "l2.h"
#include "l2_adapters.h"
#include "log.h"
#include "option_list.h"
#include "pool.h"
#include "server_config.h"

static int
check_stores(const char *l2, char *err, size_t err_len)
{
	const char **urls;
	uint32_t n;
	int rc;

	if (!l2 || !*l2)
		return 0;
	rc = scout__list_split(l2, &urls, &n);
	if (rc)
		return scout__fail(err, err_len, rc, "l2: out of memory");
	rc = scout__l2_check(scout__l2_adapters, urls, n, err, err_len);
	free(urls);
	return rc;
}

int
scout_server_config_check(const struct scout_server_config *cfg, char *err, size_t err_len)
{
	const struct scout__log silent = {0};
	struct scout__evict_args args;
	struct scout_server_config accepted;
	int rc;

	if (!cfg)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "cfg must not be NULL");
	rc = scout__server_config_accept(&accepted, cfg, err, err_len);
	if (rc)
		return rc;
	if (!scout__evict_parse(accepted.eviction, &args, err, err_len))
		rc = SCOUT_ERR_CONFIG_RANGE;
	if (rc == 0)
		rc = scout__pool_check_size(accepted.l1_bytes, &silent, err, err_len);
	if (rc == 0)
		rc = scout__pool_check_huge_pages(accepted.l1_bytes, accepted.l1_huge_pages, err, err_len);
	if (rc == 0)
		rc = check_stores(accepted.l2, err, err_len);
	scout_server_config_fini(&accepted);
	return rc;
}
