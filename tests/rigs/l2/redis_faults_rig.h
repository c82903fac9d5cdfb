/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_REDIS_FAULTS_RIG_H
#define KVSCOUT_TESTS_REDIS_FAULTS_RIG_H

#include "redis.h"
#include "redis_internal.h"

#include <stdio.h>

#include "adapter_rig.h"
#include "redis_rig.h"

/* One adapter, one object, and whatever it is connected to: for what goes wrong between them. */

#define MIB (UINT64_C(1) << 20)
#define LATE_US 3000000u /* how much later than its deadline an operation may end on an overloaded machine */

static struct redis_server server;
static struct adapter_rig rig;
static struct adapter_object object;
static char url[512];

static inline void
set_up(void)
{
	server = (struct redis_server){.pid = 0};
	rig = (struct adapter_rig){.vt = &scout__l2_redis, .timeout_ms = 300};
	object_init(&object, 1, 5000);
}

static inline void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_kill(&server);
	object_fini(&object);
}

static inline void
url_of(const char *before, uint16_t port, const char *after)
{
	(void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%u%s", before, port, after);
}

static inline uint64_t
counter(const atomic_uint_fast64_t *value)
{
	return atomic_load(value);
}
#define COUNTER(name) counter(&scout__redis_counters(rig.adapter)->name)

/* The operation that was begun ends by its deadline. */
static inline enum scout__l2_result
end_in_time(struct adapter_object *o)
{
	enum scout__l2_result result = object_end(o);

	ck_assert_uint_lt(scout__now_us(), o->due_us + LATE_US);
	return result;
}

#endif
