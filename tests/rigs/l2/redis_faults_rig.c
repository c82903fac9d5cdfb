/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_faults_rig.h"

struct redis_server server;

struct adapter_rig rig;

struct adapter_object object;

char url[512];

void
set_up(void)
{
	server = (struct redis_server){.pid = 0};
	rig = (struct adapter_rig){.vt = &scout__l2_redis, .timeout_ms = 5000};
	object_init(&object, 1, 5000);
}

void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_kill(&server);
	object_fini(&object);
}

void
url_of(const char *before, uint16_t port, const char *after)
{
	(void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%u%s", before, port, after);
}

uint64_t
counter(const atomic_uint_fast64_t *value)
{
	return atomic_load(value);
}
