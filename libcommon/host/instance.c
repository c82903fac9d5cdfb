/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * scout_ensure_server(): looks until there is a server, or a reason why there is none, or the time is over. It starts no thread,
 * and leaves nothing but the server.
 *
 * Threads: the caller's.
 */
#include <kvscout/instance.h>

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "instance_paths.h"
#include "instance_starter.h"
#include "log.h"
#include "sized.h"

#define TIMEOUT_MS 5000u
#define REAP_MS 1000u /* time that the process which puts the server into the background needs to end */

static void
pause_us(uint64_t us)
{
	(void)poll(NULL, 0, (int)((us + 999) / 1000));
}

/* Take the status of the process that put the server into the background: it ends in a moment. */
static void
reap(struct scout__starter *starter)
{
	uint64_t end_us = scout__now_us() + REAP_MS * UINT64_C(1000);

	while (!scout__starter_reap(starter) && scout__now_us() < end_us)
		pause_us(1000);
}

static int
wait_for_server(struct scout__starter *starter, uint32_t timeout_ms, char *err, size_t err_len)
{
	uint64_t end_us = scout__now_us() + timeout_ms * UINT64_C(1000), now_us, next_us;
	int rc;

	for (;;) {
		now_us = scout__now_us();
		rc = scout__starter_look(starter, now_us, &next_us);
		if (rc < 0)
			return scout__fail(err, err_len, rc, "%s", scout__starter_text(starter));
		if (rc == 0 && scout__starter_listens(starter))
			return 0;
		if (now_us >= end_us)
			return scout__fail(err, err_len, SCOUT_ERR_TIMEOUT,
					   "%s: no server serves in time; the log of kvscoutd is %s",
					   scout__starter_endpoint(starter), scout__starter_log_path(starter));
		pause_us((next_us < end_us ? next_us : end_us) - now_us);
	}
}

static int
accept_config(struct scout_instance_config *own, const struct scout_instance_config *cfg, char *err, size_t err_len)
{
	memset(own, 0, sizeof(*own));
	if (cfg && scout__sized_read(own, sizeof(*own), SCOUT__SIZE_UP_TO(struct scout_instance_config, log_user), cfg,
				     cfg->size) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				   "struct scout_instance_config of %u bytes: call scout_instance_config_init()",
				   (unsigned)cfg->size);
	if (!own->timeout_ms)
		own->timeout_ms = TIMEOUT_MS;
	if (scout__instance_is_auto(own->endpoint))
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_INVALID, "endpoint \"%s\": must be auto or auto:///FOLDER",
			   own->endpoint);
}

int
scout_ensure_server(const struct scout_instance_config *cfg, char *ret_endpoint, size_t endpoint_len, char *err,
		    size_t err_len)
{
	struct scout_instance_config own;
	struct scout__starter *starter;
	struct scout__log log;
	int rc;

	if (!ret_endpoint)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "ret_endpoint must not be NULL");
	rc = accept_config(&own, cfg, err, err_len);
	if (rc)
		return rc;
	log = (struct scout__log){.fn = own.log, .user = own.log_user, .who = "ensure_server"};
	rc = scout__starter_new(
		&(struct scout__starter_config){own.endpoint, own.server_program, own.server_keys, &log}, &starter, err,
		err_len);
	if (rc)
		return rc;
	if (strlen(scout__starter_endpoint(starter)) >= endpoint_len)
		rc = scout__fail(err, err_len, SCOUT_ERR_INVALID, "endpoint_len = %zu: %s needs %zu bytes",
				 endpoint_len, scout__starter_endpoint(starter),
				 strlen(scout__starter_endpoint(starter)) + 1);
	if (rc == 0)
		rc = wait_for_server(starter, own.timeout_ms, err, err_len);
	if (rc == 0)
		(void)snprintf(ret_endpoint, endpoint_len, "%s", scout__starter_endpoint(starter));
	reap(starter);
	scout__starter_free(starter);
	return rc;
}
