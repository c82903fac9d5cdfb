/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "server_rig.h"

/* A server as one is that was built without libmicrohttpd: this program has metrics_none.c, whatever the library has. */

START_TEST(the_key_is_refused_and_the_message_says_how_to_get_it)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[512] = "";

	ck_assert_int_eq(scout_server_config_set(&cfg, "metrics", "127.0.0.1:0", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_server_start(&cfg, &server, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_ptr_null(server);
	ck_assert_msg(strstr(err, "metrics") && strstr(err, "libmicrohttpd-dev") && strstr(err, "-Dmetrics=enabled"),
		      "%s", err);
	scout_server_config_fini(&cfg);
}
END_TEST

START_TEST(all_else_works)
{
	struct rig rig;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.full"), 1);
	rig_down(&rig);
}
END_TEST
