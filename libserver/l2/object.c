/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* a streaming state on the stack */
#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif

#include "wire.h"

/*
 * DESIGN
 *
 * Purpose: keys, fingerprints and the header of stored objects, as bytes (object.h).
 *
 * The stored form is the same on every machine, because other nodes read it and because it outlives this build:
 * everything is little-endian and written field by field, and every digest covers such bytes, seedless. A test compares
 * with golden bytes.
 *
 * XXH3 proves that bytes are what was written, not who wrote them: a store that untrusted hosts can write needs its own
 * lock.
 *
 * Threads: any; nothing is shared.
 */

#define KEY_FORMAT 2u
#define HEADER_VERSION 2u
#define VERSION_OFFSET 8u
#define KEY_OFFSET 40u
#define CHECK_OFFSET (SCOUT__L2_HEADER_BYTES - 8u)
#define KEY_FIXED_BYTES (2u + 16u + 8u + 2u + 2u + 1u + 2u)

static const uint8_t magic[8] = {'K', 'V', 'S', 'C', 'O', 'U', 'T', '2'};

_Static_assert(KEY_FIXED_BYTES + SCOUT_MAX_HASH + SCOUT_MAX_NAME <= SCOUT__L2_KEY_BYTES_MAX, "a key fits");
_Static_assert(KEY_OFFSET + SCOUT__L2_KEY_BYTES_MAX <= CHECK_OFFSET, "a key fits into the header");

/* XXH3 with the widest instructions that this CPU has, where the library brings them: 2-4 times the build's baseline. */
struct scout__l2_digest
scout__l2_sum(const uint8_t *data, uint64_t bytes)
{
#ifdef HAVE_XXH_DISPATCH
	XXH128_hash_t hash = XXH3_128bits_dispatch(data, bytes);
#else
	XXH128_hash_t hash = XXH3_128bits(data, bytes);
#endif

	return (struct scout__l2_digest){.lo = hash.low64, .hi = hash.high64};
}

static void
hash_numbers(XXH3_state_t *state, const uint64_t *numbers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t number = htole64(numbers[i]);

		(void)XXH3_128bits_update(state, &number, sizeof(number));
	}
}

void
scout__l2_fingerprint_of(const struct scout__l2_layout *layout, struct scout__l2_fingerprint *ret)
{
	size_t tag_len = strlen(layout->layout_tag);
	const uint64_t fixed[] = {
		layout->name_len,   layout->unit_tokens, layout->block_tokens,
		layout->hash_bytes, layout->kv_ranks,    layout->rank,
		layout->dtype,      layout->n_planes,    tag_len,
	};
	struct scout__writer w = {.buf = ret->bytes, .cap = sizeof(ret->bytes)};
	XXH128_hash_t hash;
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	(void)XXH3_128bits_reset(&state);
	hash_numbers(&state, fixed, sizeof(fixed) / sizeof(fixed[0]));
	(void)XXH3_128bits_update(&state, layout->name_space, layout->name_len);
	(void)XXH3_128bits_update(&state, layout->layout_tag, tag_len);
	hash_numbers(&state, layout->plane_bytes, layout->n_planes);
	if (layout->generation)
		hash_numbers(&state, &layout->generation, 1);
	hash = XXH3_128bits_digest(&state);
	scout__put_u64(&w, hash.low64);
	scout__put_u64(&w, hash.high64);
}

void
scout__l2_key_make(struct scout__l2_key *ret_key, const struct scout__l2_fingerprint *fingerprint, uint64_t weights,
		   uint16_t group, uint16_t rank, const uint8_t *hash, uint16_t hash_len, const char *tenant,
		   uint16_t tenant_len)
{
	struct scout__writer w = {.buf = ret_key->bytes, .cap = sizeof(ret_key->bytes)};

	SCOUT_ASSERT(hash_len >= SCOUT_MIN_HASH && hash_len <= SCOUT_MAX_HASH && tenant_len <= SCOUT_MAX_NAME);
	scout__put_u16(&w, KEY_FORMAT);
	scout__put_bytes(&w, fingerprint->bytes, sizeof(fingerprint->bytes));
	scout__put_u64(&w, weights);
	scout__put_u16(&w, group);
	scout__put_u16(&w, rank);
	scout__put_u8(&w, (uint8_t)hash_len);
	scout__put_bytes(&w, hash, hash_len);
	scout__put_u16(&w, tenant_len);
	scout__put_bytes(&w, tenant, tenant_len);
	SCOUT_ASSERT(!w.bad);
	ret_key->len = (uint16_t)w.len;
	ret_key->digest = scout__l2_sum(ret_key->bytes, w.len);
}

void
scout__l2_header_put(uint8_t header[SCOUT__L2_HEADER_BYTES], const struct scout__l2_key *key, uint64_t bytes,
		     struct scout__l2_digest sum)
{
	struct scout__writer w = {.buf = header, .cap = CHECK_OFFSET};
	struct scout__writer check = {.buf = header + CHECK_OFFSET, .cap = 8};

	scout__put_bytes(&w, magic, sizeof(magic));
	scout__put_u16(&w, HEADER_VERSION);
	scout__put_u16(&w, key->len);
	scout__put_u32(&w, 0);
	scout__put_u64(&w, bytes);
	scout__put_u64(&w, sum.lo);
	scout__put_u64(&w, sum.hi);
	scout__put_bytes(&w, key->bytes, key->len);
	SCOUT_ASSERT(!w.bad && key->len <= SCOUT__L2_KEY_BYTES_MAX);
	memset(header + w.len, 0, CHECK_OFFSET - w.len);
	scout__put_u64(&check, XXH3_64bits(header, CHECK_OFFSET));
}

/* Whether @key is one that scout__l2_key_make() could have made. */
static bool
is_key(const uint8_t *bytes, uint16_t len)
{
	struct scout__reader r = scout__reader_of(bytes, len);
	uint8_t hash_len;
	uint16_t tenant_len;

	if (scout__get_u16(&r) != KEY_FORMAT)
		return false;
	(void)scout__get_bytes(&r, 16 + 8 + 2 + 2);
	hash_len = scout__get_u8(&r);
	(void)scout__get_bytes(&r, hash_len);
	tenant_len = scout__get_u16(&r);
	(void)scout__get_bytes(&r, tenant_len);
	return scout__reader_done(&r) && hash_len >= SCOUT_MIN_HASH && hash_len <= SCOUT_MAX_HASH &&
	       tenant_len <= SCOUT_MAX_NAME;
}

/* The magic first, to tell foreign from damaged bytes; the version before the sum, so that another one is named. */
static enum scout__l2_header_error
read_header(const uint8_t header[SCOUT__L2_HEADER_BYTES], uint16_t *ret_key_len, uint64_t *ret_bytes,
	    struct scout__l2_digest *ret_sum)
{
	struct scout__reader r = scout__reader_of(header, SCOUT__L2_HEADER_BYTES);
	uint32_t reserved;
	uint16_t key_len;

	if (memcmp(scout__get_bytes(&r, sizeof(magic)), magic, sizeof(magic)) != 0)
		return SCOUT__L2_HEADER_MAGIC;
	if (scout__get_u16(&r) != HEADER_VERSION)
		return SCOUT__L2_HEADER_VERSION;
	if (XXH3_64bits(header, CHECK_OFFSET) != scout__load_u64(header + CHECK_OFFSET))
		return SCOUT__L2_HEADER_DAMAGED;
	key_len = scout__get_u16(&r);
	reserved = scout__get_u32(&r);
	if (reserved != 0 || key_len > SCOUT__L2_KEY_BYTES_MAX || !is_key(header + KEY_OFFSET, key_len))
		return SCOUT__L2_HEADER_DAMAGED;
	*ret_key_len = key_len;
	*ret_bytes = scout__get_u64(&r);
	ret_sum->lo = scout__get_u64(&r);
	ret_sum->hi = scout__get_u64(&r);
	return SCOUT__L2_HEADER_OK;
}

/* Magic, version and sum have the same place in each format: so a damaged version is not mistaken for another. */
bool
scout__l2_header_is_foreign(const uint8_t header[SCOUT__L2_HEADER_BYTES])
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(magic); i++)
		n += header[i] != 0 && header[i] != (uint8_t)magic[i];
	return n >= sizeof(magic) / 2;
}

bool
scout__l2_header_is_other_format(const uint8_t header[SCOUT__L2_HEADER_BYTES])
{
	uint16_t version = scout__load_u16(header + VERSION_OFFSET);

	if (memcmp(header, magic, sizeof(magic)) != 0 || version == 0 || version == HEADER_VERSION)
		return false;
	return XXH3_64bits(header, CHECK_OFFSET) == scout__load_u64(header + CHECK_OFFSET);
}

enum scout__l2_header_error
scout__l2_header_get(const uint8_t header[SCOUT__L2_HEADER_BYTES], struct scout__l2_header *ret_header)
{
	uint16_t key_len;
	enum scout__l2_header_error rc = read_header(header, &key_len, &ret_header->bytes, &ret_header->sum);

	if (rc)
		return rc;
	memcpy(ret_header->key.bytes, header + KEY_OFFSET, key_len);
	ret_header->key.len = key_len;
	ret_header->key.digest = scout__l2_sum(ret_header->key.bytes, key_len);
	return SCOUT__L2_HEADER_OK;
}

enum scout__l2_header_error
scout__l2_header_check(const uint8_t header[SCOUT__L2_HEADER_BYTES], const struct scout__l2_key *key, uint64_t bytes,
		       struct scout__l2_digest *ret_sum)
{
	struct scout__l2_digest sum;
	uint64_t its_bytes;
	uint16_t key_len;
	enum scout__l2_header_error rc = read_header(header, &key_len, &its_bytes, &sum);

	if (rc)
		return rc;
	if (key_len != key->len || memcmp(header + KEY_OFFSET, key->bytes, key_len) != 0)
		return SCOUT__L2_HEADER_KEY;
	if (its_bytes != bytes)
		return SCOUT__L2_HEADER_LENGTH;
	*ret_sum = sum;
	return SCOUT__L2_HEADER_OK;
}

void
scout__l2_digest_text(struct scout__l2_digest digest, char ret_text[33])
{
	static const char digits[] = "0123456789abcdef";

	for (unsigned i = 0; i < 16; i++) {
		ret_text[i] = digits[digest.hi >> (60 - 4 * i) & 15];
		ret_text[16 + i] = digits[digest.lo >> (60 - 4 * i) & 15];
	}
	ret_text[32] = '\0';
}

bool
scout__l2_digest_parse(const char *text, struct scout__l2_digest *ret_digest)
{
	uint64_t halves[2] = {0, 0};

	for (unsigned i = 0; i < 32; i++) {
		char c = text[i];
		unsigned digit;

		/* Only one spelling: a file is found by its name. */
		if (c >= '0' && c <= '9')
			digit = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			digit = (unsigned)(c - 'a') + 10;
		else
			return false;
		halves[i / 16] = halves[i / 16] << 4 | digit;
	}
	if (text[32])
		return false;
	*ret_digest = (struct scout__l2_digest){.lo = halves[1], .hi = halves[0]};
	return true;
}
