/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the pattern is a counter through a mixing function, eight bytes at a time, keyed by everything that says
 * where a byte belongs. So a byte from another chunk, rank, plane, block or position is wrong with probability
 * 255/256, a whole block with certainty; and it costs about as much as the copy that it checks, not more.
 */
#include "kvmem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kvscout/error.h>

#include "mix.h"

#define GUARD_BYTE 0xc5

int
kvmem_init(struct kvmem *mem, uint32_t kv_rank, const uint64_t *plane_bytes, uint32_t n_planes, uint64_t n_blocks)
{
	size_t total = 0, plane_total, stride;
	uint8_t *base;

	*mem = (struct kvmem){.kv_rank = kv_rank, .n_planes = n_planes, .n_blocks = n_blocks};
	for (uint32_t i = 0; i < n_planes; i++) {
		if (plane_bytes[i] == 0 || __builtin_add_overflow(plane_bytes[i], KVMEM_GUARD, &stride) ||
		    __builtin_mul_overflow(stride, n_blocks, &plane_total) ||
		    __builtin_add_overflow(total, plane_total, &total))
			return SCOUT_ERR_INVALID;
	}
	if (total == 0)
		return SCOUT_ERR_INVALID;
	mem->planes = calloc(n_planes, sizeof(*mem->planes));
	if (!mem->planes)
		return SCOUT_ERR_NOMEM;
	base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED) {
		free(mem->planes);
		mem->planes = NULL;
		return SCOUT_ERR_NOMEM;
	}
	/* Guards and first contents alike: what was never computed is wrong. Touches every page, as engines do. */
	memset(base, GUARD_BYTE, total);
	mem->base = base;
	mem->bytes = total;
	for (uint32_t i = 0; i < n_planes; i++) {
		stride = plane_bytes[i] + KVMEM_GUARD;
		mem->planes[i] = (struct scout_plane){.base = base, .stride = stride, .block_bytes = plane_bytes[i]};
		base += stride * n_blocks;
	}
	return 0;
}

void
kvmem_fini(struct kvmem *mem)
{
	if (mem->base)
		munmap(mem->base, mem->bytes);
	free(mem->planes);
	*mem = (struct kvmem){0};
}

static uint64_t
block_seed(const struct kvmem *mem, uint32_t plane, struct kvmem_key key)
{
	uint64_t seed = mix64((uint64_t)mem->kv_rank << 32 | plane) + key.block;
	uint64_t word;

	for (size_t i = 0; i < 32; i += sizeof(word)) {
		memcpy(&word, key.hash + i, sizeof(word));
		seed = mix64(seed + MIX_STEP) ^ word;
	}
	return mix64(seed);
}

static uint8_t *
block_at(const struct kvmem *mem, uint32_t plane, int64_t id)
{
	const struct scout_plane *p = &mem->planes[plane];

	return (uint8_t *)p->base + (uint64_t)id * p->stride;
}

/* Pattern xor @flip. */
static void
write_block(uint8_t *to, uint64_t bytes, uint64_t seed, uint64_t flip)
{
	uint64_t state = seed, word, at;

	for (at = 0; at + sizeof(word) <= bytes; at += sizeof(word)) {
		word = mix_next(&state) ^ flip;
		memcpy(to + at, &word, sizeof(word));
	}
	word = mix_next(&state) ^ flip;
	memcpy(to + at, &word, bytes - at);
}

static uint64_t
count_nonzero_bytes(uint64_t x)
{
	uint64_t n = 0;

	for (; x; x >>= 8)
		n += (x & 0xff) != 0;
	return n;
}

static uint64_t
wrong_in_block(const uint8_t *from, uint64_t bytes, uint64_t seed)
{
	uint64_t state = seed, wrong = 0, word, at;
	uint8_t tail[sizeof(word)];

	for (at = 0; at + sizeof(word) <= bytes; at += sizeof(word)) {
		memcpy(&word, from + at, sizeof(word));
		word ^= mix_next(&state);
		if (__builtin_expect(word != 0, 0))
			wrong += count_nonzero_bytes(word);
	}
	word = mix_next(&state);
	memcpy(tail, &word, sizeof(tail));
	for (unsigned i = 0; at + i < bytes; i++)
		wrong += from[at + i] != tail[i];
	for (unsigned i = 0; i < KVMEM_GUARD; i++)
		wrong += from[bytes + i] != GUARD_BYTE;
	return wrong;
}

static void
write_page(struct kvmem *mem, int64_t id, struct kvmem_key key, uint64_t flip)
{
	for (uint32_t plane = 0; plane < mem->n_planes; plane++)
		write_block(block_at(mem, plane, id), mem->planes[plane].block_bytes, block_seed(mem, plane, key),
			    flip);
}

void
kvmem_fill(struct kvmem *mem, int64_t id, struct kvmem_key key)
{
	write_page(mem, id, key, 0);
}

void
kvmem_scrub(struct kvmem *mem, int64_t id, struct kvmem_key key)
{
	write_page(mem, id, key, UINT64_MAX);
}

uint64_t
kvmem_wrong(const struct kvmem *mem, int64_t id, struct kvmem_key key)
{
	uint64_t wrong = 0;

	for (uint32_t plane = 0; plane < mem->n_planes; plane++)
		wrong += wrong_in_block(block_at(mem, plane, id), mem->planes[plane].block_bytes,
					block_seed(mem, plane, key));
	return wrong;
}

uint64_t
kvmem_block_bytes(const struct kvmem *mem)
{
	uint64_t bytes = 0;

	for (uint32_t plane = 0; plane < mem->n_planes; plane++)
		bytes += mem->planes[plane].block_bytes;
	return bytes;
}
