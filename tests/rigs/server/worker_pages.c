/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_pages.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void
rig_pages_init(struct rig_pages *pages, uint32_t n_planes, const uint64_t *block_bytes, const uint64_t *padding,
	       uint64_t n_blocks)
{
	pages->n_planes = n_planes;
	pages->n_blocks = n_blocks;
	for (uint32_t i = 0; i < n_planes; i++) {
		struct scout_plane *plane = &pages->planes[i];

		plane->block_bytes = block_bytes[i];
		plane->stride = block_bytes[i] + padding[i];
		plane->base = malloc((size_t)(plane->stride * n_blocks));
		ck_assert_ptr_nonnull(plane->base);
		memset(plane->base, RIG_CANARY, (size_t)(plane->stride * n_blocks));
	}
}

void
rig_pages_wipe(struct rig_pages *pages)
{
	for (uint32_t i = 0; i < pages->n_planes; i++)
		memset(pages->planes[i].base, RIG_CANARY, (size_t)(pages->planes[i].stride * pages->n_blocks));
}

void
rig_pages_fini(struct rig_pages *pages)
{
	for (uint32_t i = 0; i < pages->n_planes; i++)
		free(pages->planes[i].base);
	pages->n_planes = 0;
}

#define PERIOD 65521u /* of a block's bytes: large blocks are filled fast, and no power of two is a multiple */

uint8_t
rig_byte(uint32_t prompt, uint32_t rank, uint64_t block, uint32_t plane, uint64_t offset)
{
	uint64_t x = prompt * UINT64_C(0x9e3779b97f4a7c15) + rank * UINT64_C(0xbf58476d1ce4e5b9);

	x += block * UINT64_C(0x94d049bb133111eb) + plane * UINT64_C(0x2545f4914f6cdd1d) +
	     offset % PERIOD * 1099511628211u;
	x ^= x >> 29;
	x *= UINT64_C(0xd6e8feb86659fd93);
	return (uint8_t)(x >> 56);
}

uint8_t *
rig_page(const struct rig_pages *pages, uint32_t plane, int64_t id)
{
	return (uint8_t *)pages->planes[plane].base + (uint64_t)id * pages->planes[plane].stride;
}

void
rig_fill(const struct rig_pages *pages, int64_t id, uint32_t prompt, uint32_t rank, uint64_t block)
{
	for (uint32_t p = 0; p < pages->n_planes; p++) {
		uint8_t *page = rig_page(pages, p, id);
		uint64_t bytes = pages->planes[p].block_bytes;

		for (uint64_t o = 0; o < bytes && o < PERIOD; o++)
			page[o] = rig_byte(prompt, rank, block, p, o);
		for (uint64_t o = PERIOD; o < bytes; o += PERIOD)
			memcpy(page + o, page, bytes - o < PERIOD ? bytes - o : PERIOD);
	}
}

bool
rig_page_is(const struct rig_pages *pages, int64_t id, uint32_t prompt, uint32_t rank, uint64_t block)
{
	for (uint32_t p = 0; p < pages->n_planes; p++) {
		const uint8_t *page = rig_page(pages, p, id);
		uint64_t bytes = pages->planes[p].block_bytes;

		for (uint64_t o = 0; o < bytes && o < PERIOD; o++)
			if (page[o] != rig_byte(prompt, rank, block, p, o))
				return false;
		if (bytes > PERIOD && memcmp(page + PERIOD, page, bytes - PERIOD) != 0)
			return false;
	}
	return true;
}

bool
rig_page_untouched(const struct rig_pages *pages, int64_t id)
{
	for (uint32_t p = 0; p < pages->n_planes; p++)
		for (uint64_t o = 0; o < pages->planes[p].block_bytes; o++)
			if (rig_page(pages, p, id)[o] != RIG_CANARY)
				return false;
	return true;
}

bool
rig_gaps_untouched(const struct rig_pages *pages)
{
	for (uint32_t p = 0; p < pages->n_planes; p++)
		for (uint64_t b = 0; b < pages->n_blocks; b++)
			for (uint64_t o = pages->planes[p].block_bytes; o < pages->planes[p].stride; o++)
				if (rig_page(pages, p, (int64_t)b)[o] != RIG_CANARY)
					return false;
	return true;
}

uint8_t *
rig_hashes(uint32_t prompt, size_t n)
{
	uint8_t *hashes = calloc(n + 1, RIG_HASH);

	ck_assert_ptr_nonnull(hashes);
	for (size_t i = 0; i < n; i++)
		for (size_t b = 0; b < RIG_HASH; b++)
			hashes[i * RIG_HASH + b] = rig_byte(prompt, 77, i, 0, b);
	return hashes;
}

int64_t *
rig_ids(int64_t first, int64_t step, size_t n)
{
	int64_t *ids = calloc(n + 1, sizeof(*ids));

	ck_assert_ptr_nonnull(ids);
	for (size_t i = 0; i < n; i++)
		ids[i] = first + (int64_t)i * step;
	return ids;
}
