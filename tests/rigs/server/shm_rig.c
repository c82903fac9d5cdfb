/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_rig.h"

struct scout_server *server;

struct wire_peer watcher;

void
up_with(const char *key, const char *value)
{
	struct scout_server_config cfg = rig_config(CHUNKS);
	char err[256] = "";

	if (key)
		ck_assert_int_eq(scout_server_config_set(&cfg, key, value, err, sizeof(err)), 0);
	server = rig_start(&cfg);
	rig_client(&watcher, scout_server_endpoint(server));
}

void
up(void)
{
	up_with(NULL, NULL);
}

void
down(void)
{
	wire_close(&watcher);
	scout_server_stop(server);
}

uint64_t
status(const char *name)
{
	return wire_status(&watcher, name);
}

void
open_peer(struct wire_peer *p)
{
	rig_client(p, scout_server_endpoint(server));
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
	ck_assert(wire_channel(p));
}

void
open_worker(struct wire_peer *p)
{
	rig_worker_unregistered(p, scout_server_endpoint(server), 1, 1);
	ck_assert(wire_channel(p));
	assert_wire(wire_register(p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
}
