/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter_rig.h"
#include "files.h"
#include "l2_folder.h"
#include "object.h"

/* The files adapter in a folder of its own, as adapter_rig.h has it. Objects are those of adapter_rig.h, by their numbers. */

struct rig {
	char *folder; /* removed by rig_fini() */
	struct adapter_rig of;
	char err[512];
};

void rig_init(struct rig *rig, bool in_memory);
/* @query: "" or "?threads=1..." */
int rig_try_open(struct rig *rig, const char *query);
struct scout__l2_gauges rig_gauges(const struct rig *rig);
void rig_open(struct rig *rig, const char *query);
void rig_fini(struct rig *rig);

struct scout__l2_key rig_key(uint32_t i);
char *rig_path(const struct rig *rig, const struct scout__l2_key *key);

/* Bytes of the test's. */
enum scout__l2_result rig_transfer(struct rig *rig, enum scout__l2_what what, const struct scout__l2_key *key,
				   uint8_t *data, uint64_t bytes);
enum scout__l2_result rig_store(struct rig *rig, uint32_t i, uint64_t bytes);
enum scout__l2_result rig_load(struct rig *rig, uint32_t i, uint64_t bytes);
bool rig_exists(struct rig *rig, uint32_t i, bool pin);
void rig_unpin(struct rig *rig, uint32_t i);

/* Nothing but whole objects, @n of them. */
void rig_check_folder(const struct rig *rig, uint32_t n);
