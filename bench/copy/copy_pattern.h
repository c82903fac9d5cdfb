/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The data that kvscout-copy copies: word i is a hash of i, so that the CPU and the GPU can each make and check any
 * part of it. Compiled for both.
 */

#include <stdint.h>

#ifdef __NVPTX__
#define COPY_PATTERN_GLOBAL __attribute__((address_space(1)))
#else
#define COPY_PATTERN_GLOBAL
#endif

enum copy_mode {
	COPY_FILL,  /* with the right words */
	COPY_SPOIL, /* with their complements: every byte is wrong */
	COPY_CHECK  /* count the wrong bytes */
};

/*
 * Pages of one group, as the kernels of this tool walk them: plane behind plane, n_blocks pages of @piece bytes in
 * each.
 */
struct copy_pages {
	COPY_PATTERN_GLOBAL uint8_t *base;
	const COPY_PATTERN_GLOBAL int64_t *ids; /* blocks_per_chunk for each item; readable where it is worked on */
	uint64_t piece;                         /* a multiple of 8 */
	uint64_t n_planes;
	uint64_t n_blocks;
	uint64_t blocks_per_chunk;
	uint64_t first_word; /* of item 0 */
};

static inline uint64_t
copy_pattern_word(uint64_t i)
{
	uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/*
 * Where word @i of the items lies. Words count through the items as slots hold them: plane after plane, block after
 * block.
 */
static inline COPY_PATTERN_GLOBAL uint64_t *
copy_pages_word(const struct copy_pages *pages, uint64_t i)
{
	uint64_t words = pages->piece / 8;
	uint64_t in_piece = i % words, at = i / words;
	uint64_t block = at % pages->blocks_per_chunk;
	uint64_t plane, item;
	int64_t id;

	at /= pages->blocks_per_chunk;
	plane = at % pages->n_planes;
	item = at / pages->n_planes;
	id = pages->ids[item * pages->blocks_per_chunk + block];
	/* cuMemAlloc and mmap align the base, and pieces are whole words. */
	return (COPY_PATTERN_GLOBAL uint64_t *)(COPY_PATTERN_GLOBAL void *)(pages->base +
									    (plane * pages->n_blocks + (uint64_t)id) *
										    pages->piece) +
	       in_piece;
}

/* Do @mode to one word; returns its wrong bytes. */
static inline uint32_t
copy_pattern_do(enum copy_mode mode, COPY_PATTERN_GLOBAL uint64_t *word, uint64_t i)
{
	uint64_t right = copy_pattern_word(i), differ;
	uint32_t wrong = 0;

	if (mode == COPY_CHECK) {
		for (differ = *word ^ right; differ; differ >>= 8)
			wrong += (differ & 0xff) != 0;
		return wrong;
	}
	*word = mode == COPY_FILL ? right : ~right;
	return 0;
}
