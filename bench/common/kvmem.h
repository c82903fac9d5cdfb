/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvscout/worker.h>

/*
 * The paged KV memory of one KV rank, and the pattern in it. Behind every block lies a guard of KVMEM_GUARD bytes
 * that no copy may write.
 */

#define KVMEM_GUARD 64u

struct kvmem {
	uint32_t kv_rank;
	uint32_t n_planes;
	uint64_t n_blocks;
	struct scout_plane *planes;
	uint8_t *base; /* of plane 0: one mapping for all planes */
	size_t bytes;
};

/* Returns 0, SCOUT_ERR_NOMEM, or SCOUT_ERR_INVALID (sizes that overflow). */
int kvmem_init(struct kvmem *mem, uint32_t kv_rank, const uint64_t *plane_bytes, uint32_t n_planes, uint64_t n_blocks);
void kvmem_fini(struct kvmem *mem);

/* Which block of which chunk: what the pattern follows from, besides KV rank, plane and position. */
struct kvmem_key {
	const uint8_t *hash; /* 32 bytes */
	uint32_t block;      /* of the chunk */
};

/* Write the pattern, or its complement, into page @id of every plane. */
void kvmem_fill(struct kvmem *mem, int64_t id, struct kvmem_key key);
void kvmem_scrub(struct kvmem *mem, int64_t id, struct kvmem_key key);

/* Bytes of page @id and of the guards behind it that are not what they must be. */
uint64_t kvmem_wrong(const struct kvmem *mem, int64_t id, struct kvmem_key key);

/* Bytes of one block over all planes. */
uint64_t kvmem_block_bytes(const struct kvmem *mem);
