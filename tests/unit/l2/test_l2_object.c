/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "l2_old_object.h"

/*
 * The stored form may never drift: other nodes and later versions read it. The golden bytes were put together by a program
 * of its own, with the digests of the xxhsum tool.
 */
#define GOLDEN_FINGERPRINT "a3b926cec9191ab3084dd8fae556ba40"
#define GOLDEN_KEY                                                                                                     \
	"0200" GOLDEN_FINGERPRINT "8877665544332211"                                                                   \
	"02010200"                                                                                                     \
	"20000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"                                           \
	"0a006d616e64616e742dc3a4"
#define GOLDEN_DIGEST "c1c4bb1ddb66ad6df666013636bee138"
#define GOLDEN_HEAD                                                                                                    \
	"4b5653434f555432"                                                                                             \
	"02004b0000000000e803000000000000"                                                                             \
	"30c826442630ad106dd7dada9c22eeab" GOLDEN_KEY
#define GOLDEN_CHECK "7a155e348ecc7a46"

static const uint64_t planes[] = {16384, 16384, 128};
static const struct scout__l2_layout layout = {
	.name_space = "llama-70b",
	.name_len = 9,
	.unit_tokens = 256,
	.block_tokens = 16,
	.hash_bytes = 32,
	.kv_ranks = 4,
	.rank = 2,
	.dtype = SCOUT_DTYPE_BF16,
	.n_planes = 3,
	.plane_bytes = planes,
	.layout_tag = "NHD",
};

static struct scout__l2_key key;
static uint8_t payload[1000];
static uint8_t header[SCOUT__L2_HEADER_BYTES];

static void
hex(const uint8_t *bytes, size_t n, char *text)
{
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void
make_key(struct scout__l2_key *ret_key, uint64_t weights, const char *tenant)
{
	struct scout__l2_fingerprint fingerprint;
	uint8_t hash[32];

	for (uint8_t i = 0; i < 32; i++)
		hash[i] = i;
	scout__l2_fingerprint_of(&layout, &fingerprint);
	scout__l2_key_make(ret_key, &fingerprint, weights, 0x0102, 2, hash, 32, tenant, (uint16_t)strlen(tenant));
}

static void
setup(void)
{
	for (unsigned i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7);
	make_key(&key, UINT64_C(0x1122334455667788), "mandant-\xc3\xa4");
	scout__l2_header_put(header, &key, sizeof(payload), scout__l2_sum(payload, sizeof(payload)));
}

CHECKED_FIXTURE(setup, NULL);

START_TEST(key_and_header_are_the_golden_bytes)
{
	struct scout__l2_fingerprint fingerprint;
	char text[2 * SCOUT__L2_HEADER_BYTES + 1];
	size_t head = strlen(GOLDEN_HEAD);

	scout__l2_fingerprint_of(&layout, &fingerprint);
	hex(fingerprint.bytes, 16, text);
	ck_assert_str_eq(text, GOLDEN_FINGERPRINT);
	ck_assert_uint_eq(key.len, strlen(GOLDEN_KEY) / 2);
	hex(key.bytes, key.len, text);
	ck_assert_str_eq(text, GOLDEN_KEY);
	scout__l2_digest_text(key.digest, text);
	ck_assert_str_eq(text, GOLDEN_DIGEST);
	hex(header, sizeof(header), text);
	ck_assert_int_eq(strncmp(text, GOLDEN_HEAD, head), 0);
	ck_assert_uint_eq(strspn(text + head, "0"), 2 * SCOUT__L2_HEADER_BYTES - head - 16);
	ck_assert_str_eq(text + 2 * SCOUT__L2_HEADER_BYTES - 16, GOLDEN_CHECK);
}
END_TEST

START_TEST(each_part_of_the_layout_changes_the_fingerprint)
{
	static const uint64_t other_planes[] = {16384, 16384, 129};
	struct scout__l2_fingerprint first, seen[14];
	struct scout__l2_layout other[14];
	size_t n = 0;

	for (size_t i = 0; i < 14; i++)
		other[i] = layout;
	other[n++].name_space = "llama-71b";
	other[n++].name_len = 8;
	other[n++].unit_tokens = 512;
	other[n++].layout_tag = "HND";
	other[n++].layout_tag = "";
	other[n++].block_tokens = 32;
	other[n++].hash_bytes = 16;
	other[n++].kv_ranks = 8;
	other[n++].rank = 1;
	other[n++].dtype = SCOUT_DTYPE_F16;
	other[n++].n_planes = 2;
	other[n++].plane_bytes = other_planes;
	scout__l2_fingerprint_of(&layout, &first);
	for (size_t i = 0; i < n; i++) {
		scout__l2_fingerprint_of(&other[i], &seen[i]);
		ck_assert_mem_ne(&seen[i], &first, sizeof(first));
		for (size_t j = 0; j < i; j++)
			ck_assert_mem_ne(&seen[i], &seen[j], sizeof(first));
	}
}
END_TEST

START_TEST(each_part_of_a_key_changes_its_digest)
{
	struct scout__l2_fingerprint fingerprint;
	struct scout__l2_key a, b;
	uint8_t hash[32] = {1};

	scout__l2_fingerprint_of(&layout, &fingerprint);
	scout__l2_key_make(&a, &fingerprint, 1, 0, 0, hash, 16, "", 0);
	for (unsigned i = 0; i < 6; i++) {
		struct scout__l2_fingerprint other = fingerprint;

		hash[0] = i == 0 ? 2 : 1;
		other.bytes[15] ^= i == 1 ? 1 : 0;
		scout__l2_key_make(&b, &other, i == 2 ? 2 : 1, i == 3 ? 1 : 0, i == 4 ? 1 : 0, hash, 16, "t",
				   i == 5 ? 1 : 0);
		ck_assert(a.digest.lo != b.digest.lo || a.digest.hi != b.digest.hi);
	}
	hash[0] = 1;
	scout__l2_key_make(&b, &fingerprint, 1, 0, 0, hash, 16, NULL, 0);
	ck_assert_mem_eq(&a.digest, &b.digest, sizeof(a.digest));
}
END_TEST

START_TEST(a_header_says_what_was_put)
{
	struct scout__l2_header got;
	struct scout__l2_digest sum;

	ck_assert_int_eq(scout__l2_header_get(header, &got), SCOUT__L2_HEADER_OK);
	ck_assert_uint_eq(got.bytes, sizeof(payload));
	ck_assert_uint_eq(got.key.len, key.len);
	ck_assert_mem_eq(got.key.bytes, key.bytes, key.len);
	ck_assert_mem_eq(&got.key.digest, &key.digest, sizeof(key.digest));
	ck_assert_int_eq(scout__l2_header_check(header, &key, sizeof(payload), &sum), SCOUT__L2_HEADER_OK);
	ck_assert_mem_eq(&sum, &got.sum, sizeof(sum));
	sum = scout__l2_sum(payload, sizeof(payload));
	ck_assert_mem_eq(&sum, &got.sum, sizeof(sum));
}
END_TEST

START_TEST(the_longest_key_fits)
{
	struct scout__l2_fingerprint fingerprint;
	struct scout__l2_digest sum;
	char tenant[SCOUT_MAX_NAME];
	uint8_t hash[SCOUT_MAX_HASH];

	memset(tenant, 'x', sizeof(tenant));
	memset(hash, 0xff, sizeof(hash));
	memset(&fingerprint, 0xff, sizeof(fingerprint));
	scout__l2_key_make(&key, &fingerprint, UINT64_MAX, UINT16_MAX, UINT16_MAX, hash, sizeof(hash), tenant,
			   sizeof(tenant));
	scout__l2_header_put(header, &key, UINT64_MAX, scout__l2_sum(NULL, 0));
	ck_assert_int_eq(scout__l2_header_check(header, &key, UINT64_MAX, &sum), SCOUT__L2_HEADER_OK);
}
END_TEST

/* What the release before has written is known for what it is, and damage of ours is not taken for it. */
START_TEST(an_object_of_the_former_format_is_of_another_format)
{
	static const uint8_t later_check[] = {0xbb, 0x9c, 0xac, 0xb0, 0x0f, 0x65, 0x26, 0xcd};
	uint8_t old[OLD_OBJECT_HEADER];
	struct scout__l2_digest sum;
	struct scout__l2_header ret;

	old_object_header(old);
	ck_assert_int_eq(scout__l2_header_get(old, &ret), SCOUT__L2_HEADER_VERSION);
	ck_assert_int_eq(scout__l2_header_check(old, &key, sizeof(payload), &sum), SCOUT__L2_HEADER_VERSION);
	ck_assert(scout__l2_header_is_other_format(old));
	old[100] ^= 1;
	ck_assert(!scout__l2_header_is_other_format(old));
	ck_assert(!scout__l2_header_is_other_format(header));
	header[8] = 1; /* its sum is not that of such a header */
	ck_assert(!scout__l2_header_is_other_format(header));
	/* Of a later release: the same with version 3, and the sum of that. */
	old_object_header(old);
	old[8] = 3;
	ck_assert(!scout__l2_header_is_other_format(old));
	memcpy(old + sizeof(old) - sizeof(later_check), later_check, sizeof(later_check));
	ck_assert(scout__l2_header_is_other_format(old));
	old[0] = 'k';
	ck_assert(!scout__l2_header_is_other_format(old));
}
END_TEST

/* Every single bit, in every byte: magic, version, lengths, sums, key, padding and the header's own sum. */
START_TEST(a_flipped_bit_anywhere_in_a_header_is_found)
{
	struct scout__l2_header got;
	struct scout__l2_digest sum;

	for (unsigned bit = 0; bit < 8 * SCOUT__L2_HEADER_BYTES; bit++) {
		enum scout__l2_header_error expected = bit < 64   ? SCOUT__L2_HEADER_MAGIC
						       : bit < 80 ? SCOUT__L2_HEADER_VERSION
								  : SCOUT__L2_HEADER_DAMAGED;

		header[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(scout__l2_header_get(header, &got), expected);
		ck_assert_int_eq(scout__l2_header_check(header, &key, sizeof(payload), &sum), expected);
		header[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}
END_TEST

START_TEST(a_header_of_another_object_is_told_apart)
{
	struct scout__l2_digest sum = {7, 7};
	struct scout__l2_key other;

	make_key(&other, UINT64_C(0x1122334455667789), "mandant-\xc3\xa4");
	ck_assert_int_eq(scout__l2_header_check(header, &other, sizeof(payload), &sum), SCOUT__L2_HEADER_KEY);
	make_key(&other, UINT64_C(0x1122334455667788), "mandant-");
	ck_assert_int_eq(scout__l2_header_check(header, &other, sizeof(payload), &sum), SCOUT__L2_HEADER_KEY);
	/* Two keys with one digest. */
	other = key;
	other.bytes[other.len - 1] ^= 1;
	ck_assert_int_eq(scout__l2_header_check(header, &other, sizeof(payload), &sum), SCOUT__L2_HEADER_KEY);
	ck_assert_int_eq(scout__l2_header_check(header, &key, sizeof(payload) + 1, &sum), SCOUT__L2_HEADER_LENGTH);
	ck_assert_int_eq(scout__l2_header_check(header, &key, 0, &sum), SCOUT__L2_HEADER_LENGTH);
	ck_assert_uint_eq(sum.lo, 7);
}
END_TEST

/* A header whose sums are right and whose key is none: a foreign writer, or a later format of keys. */
START_TEST(a_key_that_is_none_is_damage)
{
	static const struct {
		uint16_t at;
		uint8_t value;
	} wrong[] = {
		{0, 1},   /* format */
		{30, 15}, /* hash_len below, above, and not what the rest says */
		{30, 33}, {30, 31}, {63, 11}, {64, 1},
	};
	struct scout__l2_header got;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct scout__l2_key bad = key;

		bad.bytes[wrong[i].at] = wrong[i].value;
		scout__l2_header_put(header, &bad, 1, (struct scout__l2_digest){1, 2});
		ck_assert_int_eq(scout__l2_header_get(header, &got), SCOUT__L2_HEADER_DAMAGED);
		bad = key;
		bad.len--;
		scout__l2_header_put(header, &bad, 1, (struct scout__l2_digest){1, 2});
		ck_assert_int_eq(scout__l2_header_get(header, &got), SCOUT__L2_HEADER_DAMAGED);
	}
}
END_TEST

/* All lengths agree, but one is beyond what the protocol has. */
START_TEST(a_key_with_a_hash_too_long_is_damage)
{
	struct scout__l2_header got;
	struct scout__l2_key bad = key;

	memmove(bad.bytes + 64, bad.bytes + 63, key.len - 63u);
	bad.bytes[30] = 33;
	bad.len++;
	scout__l2_header_put(header, &bad, 1, (struct scout__l2_digest){1, 2});
	ck_assert_int_eq(scout__l2_header_get(header, &got), SCOUT__L2_HEADER_DAMAGED);
}
END_TEST

START_TEST(a_flipped_bit_anywhere_in_a_payload_changes_its_sum)
{
	struct scout__l2_digest sum = scout__l2_sum(payload, sizeof(payload));

	for (unsigned bit = 0; bit < 8 * sizeof(payload); bit++) {
		struct scout__l2_digest other;

		payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
		other = scout__l2_sum(payload, sizeof(payload));
		ck_assert(other.lo != sum.lo || other.hi != sum.hi);
		payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}
END_TEST

START_TEST(digests_have_one_spelling)
{
	static const char *const wrong[] = {
		"",
		"406061ce4c6432b4fa012e7480e8af1",
		"406061ce4c6432b4fa012e7480e8af145",
		"406061CE4c6432b4fa012e7480e8af14",
		"406061ce4c6432b4fa012e7480e8af1g",
		" 06061ce4c6432b4fa012e7480e8af14",
		"406061ce4c6432b4fa012e7480e8af1\xc3\xa4",
	};
	struct scout__l2_digest digest = {0, 0};
	char text[33];

	ck_assert(scout__l2_digest_parse(GOLDEN_DIGEST, &digest));
	ck_assert_mem_eq(&digest, &key.digest, sizeof(digest));
	scout__l2_digest_text(digest, text);
	ck_assert_str_eq(text, GOLDEN_DIGEST);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert(!scout__l2_digest_parse(wrong[i], &digest));
	ck_assert_mem_eq(&digest, &key.digest, sizeof(digest));
}
END_TEST
