/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * The floor of micro_l2 beside the files adapter: plain files and XXH3. Objects lie one after the other in one
 * buffer. A call does all of one round, and its caller takes the time. On an error it prints what failed and ends the
 * process.
 */
#define L2_FLOOR_NAME "write + rename; read + XXH3-128 (page cache)"

void l2_floor_begin(const char *path, uint32_t n, uint64_t bytes);
/* A round has objects of its own: @round tells them apart. */
void l2_floor_store(uint32_t round, const uint8_t *data);
void l2_floor_load(uint32_t round, uint8_t *data);
void l2_floor_end(void);
