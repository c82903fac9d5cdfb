/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "kvmem.h"

/* The tools' claim "wrong bytes: 0" is worth what these tests say: that a wrong byte would have been counted. */

#define BLOCKS 8u

/* Whole words, a tail, less than a word, one byte. */
static const uint64_t planes[] = {4096, 1001, 7, 1};
#define N_PLANES ((uint32_t)(sizeof(planes) / sizeof(planes[0])))
#define BLOCK_BYTES (4096u + 1001u + 7u + 1u)

static struct kvmem mem;
static uint8_t hash[32];

static void
setup(void)
{
	ck_assert_int_eq(kvmem_init(&mem, 1, planes, N_PLANES, BLOCKS), 0);
	memset(hash, 0x5a, sizeof(hash));
}

static void
teardown(void)
{
	kvmem_fini(&mem);
}

static struct kvmem_key
key(uint32_t block)
{
	return (struct kvmem_key){.hash = hash, .block = block};
}

static uint8_t *
byte_at(uint32_t plane, uint64_t id, uint64_t offset)
{
	return (uint8_t *)mem.planes[plane].base + id * mem.planes[plane].stride + offset;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(what_was_filled_is_right)
{
	ck_assert_uint_eq(kvmem_block_bytes(&mem), BLOCK_BYTES);
	for (uint32_t id = 0; id < BLOCKS; id++)
		kvmem_fill(&mem, id, key(id));
	for (uint32_t id = 0; id < BLOCKS; id++)
		ck_assert_uint_eq(kvmem_wrong(&mem, id, key(id)), 0);
}
END_TEST

START_TEST(every_byte_of_a_scrubbed_page_is_wrong)
{
	kvmem_fill(&mem, 3, key(0));
	kvmem_scrub(&mem, 3, key(0));
	ck_assert_uint_eq(kvmem_wrong(&mem, 3, key(0)), BLOCK_BYTES);
}
END_TEST

START_TEST(every_single_byte_counts)
{
	kvmem_fill(&mem, 2, key(5));
	for (uint32_t plane = 0; plane < N_PLANES; plane++) {
		for (uint64_t i = 0; i < planes[plane]; i++) {
			*byte_at(plane, 2, i) ^= 0x10;
			ck_assert_uint_eq(kvmem_wrong(&mem, 2, key(5)), 1);
			*byte_at(plane, 2, i) ^= 0x10;
		}
	}
	ck_assert_uint_eq(kvmem_wrong(&mem, 2, key(5)), 0);
}
END_TEST

START_TEST(writing_behind_a_block_counts)
{
	kvmem_fill(&mem, 2, key(5));
	for (uint32_t plane = 0; plane < N_PLANES; plane++) {
		*byte_at(plane, 2, planes[plane]) ^= 1;
		*byte_at(plane, 2, planes[plane] + KVMEM_GUARD - 1) ^= 1;
		ck_assert_uint_eq(kvmem_wrong(&mem, 2, key(5)), 2);
		*byte_at(plane, 2, planes[plane]) ^= 1;
		*byte_at(plane, 2, planes[plane] + KVMEM_GUARD - 1) ^= 1;
	}
}
END_TEST

/* A byte is right by chance once in 256. */
static void
assert_mostly_wrong(uint64_t wrong)
{
	ck_assert_uint_gt(wrong, BLOCK_BYTES - BLOCK_BYTES / 32);
}

START_TEST(bytes_of_another_block_chunk_or_rank_are_wrong)
{
	struct kvmem other;

	ck_assert_int_eq(kvmem_init(&other, 0, planes, N_PLANES, BLOCKS), 0);
	kvmem_fill(&mem, 0, key(1));
	assert_mostly_wrong(kvmem_wrong(&mem, 0, key(0)));
	ck_assert_uint_eq(other.bytes, mem.bytes);
	memcpy(other.base, mem.base, mem.bytes);
	assert_mostly_wrong(kvmem_wrong(&other, 0, key(1)));
	for (size_t i = 0; i < sizeof(hash); i++) {
		hash[i] ^= 1;
		assert_mostly_wrong(kvmem_wrong(&mem, 0, key(1)));
		hash[i] ^= 1;
	}
	ck_assert_uint_eq(kvmem_wrong(&mem, 0, key(1)), 0);
	kvmem_fini(&other);
}
END_TEST

START_TEST(bytes_of_another_plane_are_wrong)
{
	static const uint64_t twins[] = {512, 512};
	struct kvmem two;

	ck_assert_int_eq(kvmem_init(&two, 0, twins, 2, 1), 0);
	kvmem_fill(&two, 0, key(0));
	memcpy(two.planes[1].base, two.planes[0].base, 512);
	ck_assert_uint_gt(kvmem_wrong(&two, 0, key(0)), 480);
	kvmem_fini(&two);
}
END_TEST

START_TEST(a_page_that_was_never_filled_is_wrong)
{
	assert_mostly_wrong(kvmem_wrong(&mem, 7, key(0)));
}
END_TEST

START_TEST(sizes_that_overflow_are_refused)
{
	static const uint64_t huge[] = {UINT64_MAX / 2, UINT64_MAX / 2};
	static const uint64_t none[] = {64, 0};
	struct kvmem refused;

	ck_assert_int_eq(kvmem_init(&refused, 0, huge, 2, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(kvmem_init(&refused, 0, huge, 1, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(kvmem_init(&refused, 0, none, 2, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(kvmem_init(&refused, 0, planes, N_PLANES, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(kvmem_init(&refused, 0, planes, 0, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(kvmem_init(&refused, 0, huge, 1, 1), SCOUT_ERR_NOMEM);
}
END_TEST
