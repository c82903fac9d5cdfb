/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "redis.h"
#include "redis_internal.h"

#include <stdio.h>

#include "adapter_rig.h"
#include "redis_rig.h"

/* One adapter, one object, and whatever it is connected to: for what goes wrong between them. */

#define MIB (UINT64_C(1) << 20)
#define IMPATIENT_MS 1000 /* timeout_ms where a server that stands still is to be noticed */

extern struct redis_server server;
extern struct adapter_rig rig;
extern struct adapter_object object;
extern char url[512];
void set_up(void);
void tear_down(void);
void url_of(const char *before, uint16_t port, const char *after);
uint64_t counter(const atomic_uint_fast64_t *value);

#define COUNTER(name) counter(&scout__redis_counters(rig.adapter)->name)
