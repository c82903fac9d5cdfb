/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "nodes_rig.h"

#include "redis_rig.h"

/* Two servers on one real redis-server. */

CASE_TIMEOUT(300);

/* @_i: the scheduler says what it expects, or waits for the chunks of every lookup. */
START_LOOP_TEST(a_decode_scheduler_gets_what_a_prefill_node_writes_late_and_out_of_order, 0, 2)
{
	struct redis_server server;
	char url[64];

	memset(&server, 0, sizeof(server));
	redis_start(&server, NULL);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", server.port);
	nodes_wait_for_late_keys(url, _i != 0);
	redis_kill(&server);
}
END_TEST

int
main(void)
{
	return redis_rig_main(suite_of_this_file());
}
