/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "l2.h"

/*
 * Keys, and the header that stands before the payload of every stored object (file or Redis value). All integers are
 * little-endian, written field by field.
 *
 * Key, canonical bytes:   u16 format (2), u8[16] fingerprint, u64 weights, u16 group, u16 KV rank, u8 hash_len, hash,
 *                         u16 tenant_len, tenant
 *
 * The fingerprint says which KV bytes of a group are interchangeable for this shard: XXH3-128 over, as u64 each, the length of
 * the namespace's name, unit_tokens of the group, block_tokens, hash_bytes, the number of shards of an object (kv_ranks), KV
 * rank, dtype, the number of planes of that rank and the length of the layout tag; then the name, the tag, and the bytes of each
 * plane as u64; and, if the namespace was ever cleared, the name of its last clear as u64. A digest as bytes is its lo, then
 * its hi.
 *
 * Header, SCOUT__L2_HEADER_BYTES, zero-padded:
 *   0 u8[8] magic "KVSCOUT2"   8 u16 version (2)   10 u16 key_len   12 u32 0   16 u64 payload bytes
 *   24 u8[16] XXH3-128 of the payload (lo, hi)     40 key   ...   last 8 bytes: XXH3-64 of all before
 * Magic, version and that sum keep their place in each format to come.
 *
 * Former formats: version 1 had key format 1, and a fingerprint without the layout tag. Its keys name other files and other Redis
 * keys, so such an object is a miss; it stays until its owner removes it.
 */

#define SCOUT__L2_HEADER_BYTES 512u

struct scout__l2_layout {
	const char *name_space;
	uint16_t name_len;
	uint32_t unit_tokens, block_tokens;  /* of the group */
	uint16_t hash_bytes, kv_ranks, rank; /* rank: among all kv_ranks, not among this server's */
	uint16_t dtype;
	uint32_t n_planes;
	const uint64_t *plane_bytes;
	const char *layout_tag; /* "": none */
	uint64_t generation;    /* name of the namespace's last clear; 0: none */
};

struct scout__l2_fingerprint {
	uint8_t bytes[16];
};

SCOUT_ON_ANY void scout__l2_fingerprint_of(const struct scout__l2_layout *layout, struct scout__l2_fingerprint *ret);

/* Aborts if @tenant_len or @hash_len is more than the protocol allows: the caller has checked them. */
SCOUT_ON_ANY void scout__l2_key_make(struct scout__l2_key *ret_key, const struct scout__l2_fingerprint *fingerprint,
				     uint64_t weights, uint16_t group, uint16_t rank, const uint8_t *hash,
				     uint16_t hash_len, const char *tenant, uint16_t tenant_len);

/* XXH3-128 of a payload. */
SCOUT_ON_ANY struct scout__l2_digest scout__l2_sum(const uint8_t *data, uint64_t bytes);

SCOUT_ON_ANY void scout__l2_header_put(uint8_t header[SCOUT__L2_HEADER_BYTES], const struct scout__l2_key *key,
				       uint64_t bytes, struct scout__l2_digest sum);

enum scout__l2_header_error {
	SCOUT__L2_HEADER_OK = 0,
	SCOUT__L2_HEADER_MAGIC,
	SCOUT__L2_HEADER_VERSION,
	SCOUT__L2_HEADER_DAMAGED, /* its own checksum, or a field out of range */
	SCOUT__L2_HEADER_KEY,     /* the object has another key */
	SCOUT__L2_HEADER_LENGTH   /* the payload has another length */
};

/* What the header itself says; for rebuilding a catalogue. Written only by a get that returns OK. */
struct scout__l2_header {
	uint64_t bytes;
	struct scout__l2_digest sum;
	struct scout__l2_key key; /* digest computed from the bytes */
};
SCOUT_ON_ANY enum scout__l2_header_error scout__l2_header_get(const uint8_t header[SCOUT__L2_HEADER_BYTES],
							      struct scout__l2_header *ret_header);
/* Whether @header is something else altogether. A header of ours that is damaged, or of which only a part came (zeros), is not. */
SCOUT_ON_ANY bool scout__l2_header_is_foreign(const uint8_t header[SCOUT__L2_HEADER_BYTES]);
/* Whether @header is an object's header in another format than this version writes. A damaged header of ours is not. */
SCOUT_ON_ANY bool scout__l2_header_is_other_format(const uint8_t header[SCOUT__L2_HEADER_BYTES]);
/* Compare the header with what is wanted. */
SCOUT_ON_ANY enum scout__l2_header_error scout__l2_header_check(const uint8_t header[SCOUT__L2_HEADER_BYTES],
								const struct scout__l2_key *key, uint64_t bytes,
								struct scout__l2_digest *ret_sum);

/* As text, for file names and Redis keys: 32 lower-case hex digits, hi before lo, and NUL. Nothing else is parsed. */
SCOUT_ON_ANY void scout__l2_digest_text(struct scout__l2_digest digest, char ret_text[33]);
SCOUT_ON_ANY bool scout__l2_digest_parse(const char *text, struct scout__l2_digest *ret_digest);
