/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/worker.h>

/*
 * Pages of host memory. A page's bytes follow from (prompt, rank, block of the prompt, plane, offset); whatever is not a page that
 * was filled holds CANARY, the gaps between blocks too.
 */

#define RIG_MAX_PLANES 122
#define RIG_CANARY 0xa5
#define RIG_HASH 32

struct rig_pages {
	uint32_t n_planes;
	uint64_t n_blocks;
	struct scout_plane planes[RIG_MAX_PLANES];
};

void rig_pages_init(struct rig_pages *pages, uint32_t n_planes, const uint64_t *block_bytes, const uint64_t *padding,
		    uint64_t n_blocks);
void rig_pages_wipe(struct rig_pages *pages);
void rig_pages_fini(struct rig_pages *pages);
uint8_t rig_byte(uint32_t prompt, uint32_t rank, uint64_t block, uint32_t plane, uint64_t offset);
uint8_t *rig_page(const struct rig_pages *pages, uint32_t plane, int64_t id);

/* Write what block @block of @prompt holds into page @id. */
void rig_fill(const struct rig_pages *pages, int64_t id, uint32_t prompt, uint32_t rank, uint64_t block);
bool rig_page_is(const struct rig_pages *pages, int64_t id, uint32_t prompt, uint32_t rank, uint64_t block);
bool rig_page_untouched(const struct rig_pages *pages, int64_t id);

/* The gaps between the blocks hold what they held. */
bool rig_gaps_untouched(const struct rig_pages *pages);

uint8_t *rig_hashes(uint32_t prompt, size_t n);

/* Ids first, first + step, ... */
int64_t *rig_ids(int64_t first, int64_t step, size_t n);
