/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "host_gate.h"
#include "worker_internal.h"
#include "worker_rig.h"

/* A worker with pages of five planes, which jobs copy in three layers. */

#define PLANES 5u

#define CHUNKS 3u

#define BLOCKS (CHUNKS * 4u)

/* Three layers of the five planes. */
extern const uint32_t layers[3];
extern const uint32_t layer_begin[4];
extern struct rig rig;
void setup(void);
void teardown(void);
int progress_of(uint64_t job, struct scout_progress *ret);

/* What plane @p of page @id holds: the block of the prompt, or nothing yet. */
bool plane_is(int64_t id, uint32_t p, uint32_t prompt, uint64_t block);

/* The layers below @n are there in all pages, of the others nothing is. */
void assert_layers(const int64_t *ids, uint32_t prompt, uint32_t n);
