/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/hash.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "cbor.h"
#include "hash_vectors.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * The expected hashes come from hash_vectors.py, which shares nothing with the library. Tokens, digests and outputs are
 * heap copies of exactly the right size, so that the address sanitizer sees an access one element too far.
 */

#define N_VECTORS ((int)(sizeof(hash_vectors) / sizeof(hash_vectors[0])))
#define H SCOUT_SHA256_BYTES

/* A vector made ready to be hashed. */
struct fixture {
	struct scout_hasher *hasher;
	struct scout_hash_extra extra;
	uint32_t *tokens;
	size_t n_tokens;
	uint8_t *embeds;
	uint8_t *expected;
	size_t n_expected;
};

static void *
alloc(size_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static uint8_t *
from_hex(const char *const *lines, size_t n)
{
	uint8_t *bytes = alloc(n, H);
	size_t i, k;

	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(strlen(lines[i]), 2 * H);
		for (k = 0; k < H; k++) {
			char pair[3] = {lines[i][2 * k], lines[i][2 * k + 1], 0};

			bytes[i * H + k] = (uint8_t)strtoul(pair, NULL, 16);
		}
	}
	return bytes;
}

static struct scout_hasher *
make_hasher_of(const char *dialect, const char *seed, uint32_t block_tokens, uint32_t chunk_tokens)
{
	struct scout_hasher_config cfg;
	struct scout_hasher *hasher = NULL;

	scout_hasher_config_init(&cfg);
	cfg.dialect = dialect;
	cfg.seed = seed;
	cfg.block_tokens = block_tokens;
	cfg.chunk_tokens = chunk_tokens;
	ck_assert_int_eq(scout_hasher_new(&cfg, &hasher), 0);
	ck_assert_ptr_nonnull(hasher);
	return hasher;
}

static struct scout_hasher *
make_hasher(const char *seed, uint32_t block_tokens, uint32_t chunk_tokens)
{
	return make_hasher_of(NULL, seed, block_tokens, chunk_tokens);
}

static struct fixture
set_up(const struct hash_vector *v)
{
	struct fixture f = {0};

	f.hasher = make_hasher_of(v->dialect, v->seed, v->block_tokens, v->chunk_tokens);
	f.tokens = alloc(v->n_tokens, sizeof(*f.tokens));
	f.n_tokens = v->n_tokens;
	for (size_t i = 0; i < v->n_tokens; i++)
		f.tokens[i] = i < v->n_fill ? v->fill : v->tokens[i - v->n_fill];
	f.embeds = from_hex(v->embeds, v->n_embeds);
	f.expected = from_hex(v->hashes, v->n_hashes);
	f.n_expected = v->n_hashes;
	scout_hash_extra_init(&f.extra);
	f.extra.lora_name = v->lora_name;
	f.extra.lora_path = v->lora_path;
	f.extra.cache_salt = v->cache_salt;
	f.extra.mm_items = v->items;
	f.extra.n_mm_items = (uint32_t)v->n_items;
	f.extra.embed_digests = f.embeds;
	f.extra.n_embed_digests = (uint32_t)v->n_embeds;
	return f;
}

static void
tear_down(struct fixture *f)
{
	scout_hasher_free(f->hasher);
	free(f->tokens);
	free(f->embeds);
	free(f->expected);
}

START_LOOP_TEST(every_vector_gives_its_block_hashes, 0, N_VECTORS)
{
	const struct hash_vector *v = &hash_vectors[_i];
	struct fixture f = set_up(v);
	uint8_t *got = alloc(f.n_expected, H);
	size_t n = 999;
	int rc;

	rc = scout_hash_blocks(f.hasher, NULL, 0, f.tokens, f.n_tokens, &f.extra, got, f.n_expected, &n);
	ck_assert_msg(rc == 0, "%s: %d", v->name, rc);
	ck_assert_uint_eq(n, f.n_expected);
	ck_assert_msg(memcmp(got, f.expected, n * H) == 0, "%s: other hashes", v->name);
	free(got);
	tear_down(&f);
}
END_TEST

START_LOOP_TEST(every_chunk_hash_is_that_of_its_last_block, 0, N_VECTORS)
{
	const struct hash_vector *v = &hash_vectors[_i];
	struct fixture f = set_up(v);
	size_t stride = v->chunk_tokens / v->block_tokens, n_chunks = f.n_expected / stride, n = 999, i;
	uint8_t *got = alloc(n_chunks, H);
	int rc;

	rc = scout_hash_chunks(f.hasher, f.tokens, f.n_tokens, &f.extra, got, n_chunks, &n);
	ck_assert_msg(rc == 0, "%s: %d", v->name, rc);
	ck_assert_uint_eq(n, n_chunks);
	for (i = 0; i < n; i++) {
		const uint8_t *last = f.expected + ((i + 1) * stride - 1) * H;

		ck_assert_msg(memcmp(got + i * H, last, H) == 0, "%s: chunk %zu", v->name, i);
	}
	free(got);
	tear_down(&f);
}
END_TEST

/* Each way to cut a request in two, and block by block, with the parent read from the output itself. */
START_LOOP_TEST(every_vector_in_several_calls_is_the_same, 0, N_VECTORS)
{
	const struct hash_vector *v = &hash_vectors[_i];
	struct fixture f = set_up(v);
	uint8_t *got = alloc(f.n_expected, H);
	size_t cut, n, i;

	for (cut = 1; cut < f.n_expected; cut++) {
		size_t at = cut * v->block_tokens;

		memset(got, 0, f.n_expected * H);
		ck_assert_int_eq(scout_hash_blocks(f.hasher, NULL, 0, f.tokens, at + v->block_tokens / 2, &f.extra, got,
						   f.n_expected, &n),
				 0);
		ck_assert_uint_eq(n, cut);
		ck_assert_int_eq(scout_hash_blocks(f.hasher, got + (cut - 1) * H, cut, f.tokens + at, f.n_tokens - at,
						   &f.extra, got + cut * H, f.n_expected - cut, &n),
				 0);
		ck_assert_uint_eq(n, f.n_expected - cut);
		ck_assert_msg(memcmp(got, f.expected, f.n_expected * H) == 0, "%s: cut at block %zu", v->name, cut);
	}
	memset(got, 0, f.n_expected * H);
	for (i = 0; i < f.n_expected; i++) {
		ck_assert_int_eq(scout_hash_blocks(f.hasher, i ? got + (i - 1) * H : NULL, i,
						   f.tokens + i * v->block_tokens, v->block_tokens, &f.extra,
						   got + i * H, 1, &n),
				 0);
		ck_assert_uint_eq(n, 1);
	}
	ck_assert_msg(memcmp(got, f.expected, f.n_expected * H) == 0, "%s: block by block", v->name);
	free(got);
	tear_down(&f);
}
END_TEST

START_TEST(one_hasher_serves_requests_in_any_order)
{
	struct scout_hasher *hasher = make_hasher(NULL, 16, 32);
	int round, i;
	size_t n;

	for (round = 0; round < 2; round++) {
		for (i = N_VECTORS - 1; i >= 0; i--) {
			const struct hash_vector *v = &hash_vectors[i];
			struct fixture f;
			uint8_t *got;

			if (v->seed || v->block_tokens != 16 ||
			    (v->dialect && strcmp(v->dialect, SCOUT_HASH_VLLM_0_31)))
				continue;
			f = set_up(v);
			got = alloc(f.n_expected, H);
			ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, f.tokens, f.n_tokens, &f.extra, got,
							   f.n_expected, &n),
					 0);
			ck_assert_msg(memcmp(got, f.expected, f.n_expected * H) == 0, "%s", v->name);
			free(got);
			tear_down(&f);
		}
	}
	scout_hasher_free(hasher);
}
END_TEST

START_TEST(defaults_are_blocks_of_16_and_chunks_of_256)
{
	struct scout_hasher *plain = NULL, *spelled = make_hasher(SCOUT_HASH_SEED_DEFAULT, 16, 256);
	uint32_t tokens[600];
	uint8_t a[2 * H], b[2 * H];
	size_t i, n = 0;

	for (i = 0; i < 600; i++)
		tokens[i] = (uint32_t)(i * 2654435761u);
	ck_assert_int_eq(scout_hasher_new(NULL, &plain), 0);
	ck_assert_int_eq(scout_hash_chunks(plain, tokens, 600, NULL, a, 2, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(scout_hash_chunks(spelled, tokens, 600, NULL, b, 2, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_mem_eq(a, b, sizeof(a));
	ck_assert_mem_ne(a, a + H, H);
	scout_hasher_free(plain);
	scout_hasher_free(spelled);
}
END_TEST

/* In the first position of "vllm-0.30" a salt and a LoRA name spell the same key. */
START_TEST(a_salt_is_not_a_lora_in_the_tagged_dialect)
{
	uint32_t tokens[16] = {1, 2, 3};
	uint8_t lora[H], salt[H];
	struct scout_hash_extra extra;
	size_t n;

	for (int tagged = 0; tagged < 2; tagged++) {
		struct scout_hasher *hasher =
			make_hasher_of(tagged ? SCOUT_HASH_VLLM_0_31 : SCOUT_HASH_VLLM_0_30, NULL, 16, 16);

		scout_hash_extra_init(&extra);
		extra.lora_name = "x";
		extra.lora_path = "";
		ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 16, &extra, lora, 1, &n), 0);
		scout_hash_extra_init(&extra);
		extra.cache_salt = "x";
		ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 16, &extra, salt, 1, &n), 0);
		ck_assert_int_eq(memcmp(lora, salt, H) != 0, tagged);
		scout_hasher_free(hasher);
	}
}
END_TEST

START_TEST(a_lora_needs_its_path_in_the_tagged_dialect_only)
{
	struct scout_hasher *untagged = make_hasher_of(SCOUT_HASH_VLLM_0_30, NULL, 16, 16);
	struct scout_hash_extra extra;
	uint32_t tokens[16] = {0};
	uint8_t a[H], b[H];
	size_t n = 0;

	scout_hash_extra_init(&extra);
	extra.lora_name = "sql";
	ck_assert_int_eq(scout_hash_blocks(untagged, NULL, 0, tokens, 16, &extra, a, 1, &n), 0);
	extra.lora_path = "/adapters/sql";
	ck_assert_int_eq(scout_hash_blocks(untagged, NULL, 0, tokens, 16, &extra, b, 1, &n), 0);
	ck_assert_mem_eq(a, b, H);
	scout_hasher_free(untagged);
}
END_TEST

START_TEST(no_extra_and_an_empty_extra_are_the_same)
{
	struct scout_hasher *hasher = make_hasher(NULL, 16, 16);
	struct scout_hash_extra extra;
	uint32_t tokens[16] = {1, 2, 3};
	uint8_t a[H], b[H];
	size_t n;

	scout_hash_extra_init(&extra);
	ck_assert_int_eq(scout_hash_chunks(hasher, tokens, 16, NULL, a, 1, &n), 0);
	ck_assert_int_eq(scout_hash_chunks(hasher, tokens, 16, &extra, b, 1, &n), 0);
	ck_assert_mem_eq(a, b, H);
	scout_hasher_free(hasher);
}
END_TEST

START_TEST(nothing_to_hash_is_success_with_no_hashes)
{
	struct scout_hasher *hasher = make_hasher(NULL, 16, 32);
	uint32_t tokens[31] = {0};
	size_t n = 7;

	ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, NULL, 0, NULL, NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	n = 7;
	ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 15, NULL, NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	n = 7;
	ck_assert_int_eq(scout_hash_chunks(hasher, NULL, 0, NULL, NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	n = 7;
	ck_assert_int_eq(scout_hash_chunks(hasher, tokens, 31, NULL, NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	scout_hasher_free(hasher);
}
END_TEST

/* A call that must be refused with @want and write nothing. */
static void
refused(int want, struct scout_hasher *hasher, const uint8_t *parent, uint64_t first_block, const uint32_t *tokens,
	size_t n_tokens, const struct scout_hash_extra *extra, bool has_output, size_t max)
{
	uint8_t out[4 * H], untouched[4 * H];
	size_t n = 77;

	memset(out, 0xa5, sizeof(out));
	memset(untouched, 0xa5, sizeof(untouched));
	ck_assert_int_eq(scout_hash_blocks(hasher, parent, first_block, tokens, n_tokens, extra,
					   has_output ? out : NULL, max, &n),
			 want);
	if (!parent && !first_block)
		ck_assert_int_eq(scout_hash_chunks(hasher, tokens, n_tokens, extra, has_output ? out : NULL, max, &n),
				 want);
	ck_assert_uint_eq(n, 77);
	ck_assert_mem_eq(out, untouched, sizeof(out));
}

START_TEST(bad_arguments_are_refused_and_nothing_is_written)
{
	struct scout_hasher *hasher = make_hasher(NULL, 16, 16);
	uint32_t tokens[64] = {0};
	uint8_t parent[H] = {0}, out[4 * H];
	size_t n = 77;

	refused(SCOUT_ERR_INVALID, NULL, NULL, 0, tokens, 64, NULL, true, 4);
	refused(SCOUT_ERR_INVALID, hasher, NULL, 0, NULL, 64, NULL, true, 4);
	refused(SCOUT_ERR_INVALID, hasher, NULL, 0, tokens, 64, NULL, false, 4);
	refused(SCOUT_ERR_INVALID, hasher, NULL, 0, tokens, 64, NULL, true, 3);
	refused(SCOUT_ERR_INVALID, hasher, NULL, 0, tokens, 64, NULL, false, 0);
	refused(SCOUT_ERR_INVALID, hasher, NULL, 1, tokens, 64, NULL, true, 4);
	refused(SCOUT_ERR_INVALID, hasher, parent, 0, tokens, 64, NULL, true, 4);
	refused(SCOUT_ERR_INVALID, hasher, parent, UINT64_MAX / 16 + 1, tokens, 64, NULL, true, 4);
	refused(SCOUT_ERR_INVALID, hasher, parent, INT64_MAX / 16, tokens, 64, NULL, true, 4);
	ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 64, NULL, out, 4, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_hash_chunks(hasher, tokens, 64, NULL, out, 4, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_hash_blocks(hasher, parent, INT64_MAX / 16 - 4, tokens, 64, NULL, out, 4, &n), 0);
	ck_assert_uint_eq(n, 4);
	scout_hasher_free(hasher);
}
END_TEST

START_TEST(bad_extras_are_refused_and_nothing_is_written)
{
	static const struct scout_hash_mm_item unsorted[] = {{"a", 9, 2}, {"b", 8, 2}};
	static const struct scout_hash_mm_item unnamed[] = {{"a", 1, 2}, {NULL, 100, 2}};
	static const struct scout_hash_mm_item garbled[] = {{"a", 1, 2}, {"\xff", 63, 2}};
	struct scout_hasher *hasher = make_hasher(NULL, 16, 16);
	struct scout_hash_extra good, bad;
	struct {
		struct scout_hash_extra extra;
		uint32_t newer;
	} future = {.newer = 0};
	uint32_t tokens[64] = {0};
	uint8_t out[4 * H];
	size_t n;

#define REFUSED(want, field, value)                                                                                    \
	do {                                                                                                           \
		bad = good;                                                                                            \
		bad.field = (value);                                                                                   \
		refused(want, hasher, NULL, 0, tokens, 64, &bad, true, 4);                                             \
	} while (0)

	scout_hash_extra_init(&good);
	REFUSED(SCOUT_ERR_UNSUPPORTED, size, 0);
	REFUSED(SCOUT_ERR_UNSUPPORTED, size, good.size - 1);
	REFUSED(SCOUT_ERR_INVALID, n_mm_items, 1);
	REFUSED(SCOUT_ERR_INVALID, n_embed_digests, 1);
	REFUSED(SCOUT_ERR_INVALID, lora_name, "\xc3(");
	REFUSED(SCOUT_ERR_INVALID, lora_name, "a name without its path");
	good.lora_name = "a name";
	REFUSED(SCOUT_ERR_INVALID, lora_path, "\xc3(");
	good.lora_name = NULL;
	REFUSED(SCOUT_ERR_INVALID, cache_salt, "cut \xe2\x82");
	good.n_mm_items = 2;
	REFUSED(SCOUT_ERR_INVALID, mm_items, unsorted);
	REFUSED(SCOUT_ERR_INVALID, mm_items, unnamed);
	REFUSED(SCOUT_ERR_INVALID, mm_items, garbled);
#undef REFUSED

	scout_hash_extra_init(&future.extra);
	future.extra.size = (uint32_t)(offsetof(__typeof__(future), newer) + sizeof(future.newer));
	ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 64, &future.extra, out, 4, &n), 0);
	future.newer = 1;
	refused(SCOUT_ERR_UNSUPPORTED, hasher, NULL, 0, tokens, 64, &future.extra, true, 4);
	scout_hasher_free(hasher);
}
END_TEST

START_TEST(texts_are_limited_to_their_maximum)
{
	struct scout_hasher *hasher = make_hasher(NULL, 16, 16), *none = NULL;
	struct scout_hasher_config cfg;
	struct scout_hash_extra extra;
	uint32_t tokens[16] = {0};
	char *text = alloc(SCOUT_HASH_TEXT_MAX + 2, 1);
	uint8_t out[H];
	size_t n = 77;

	memset(text, 'x', SCOUT_HASH_TEXT_MAX);
	scout_hash_extra_init(&extra);
	scout_hasher_config_init(&cfg);
	cfg.seed = extra.lora_name = extra.lora_path = extra.cache_salt = text;
	ck_assert_int_eq(scout_hash_blocks(hasher, NULL, 0, tokens, 16, &extra, out, 1, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(scout_hasher_new(&cfg, &none), 0);
	scout_hasher_free(none);
	none = NULL;
	text[SCOUT_HASH_TEXT_MAX] = 'x';
	refused(SCOUT_ERR_INVALID, hasher, NULL, 0, tokens, 16, &extra, true, 1);
	ck_assert_int_eq(scout_hasher_new(&cfg, &none), SCOUT_ERR_INVALID);
	ck_assert_ptr_null(none);
	scout_hasher_free(hasher);
	free(text);
}
END_TEST

static void
config_refused(int want, const struct scout_hasher_config *cfg)
{
	struct scout_hasher *hasher = NULL;

	ck_assert_int_eq(scout_hasher_new(cfg, &hasher), want);
	ck_assert_ptr_null(hasher);
}

START_TEST(bad_configurations_are_refused)
{
	struct scout_hasher_config good, bad;
	struct {
		struct scout_hasher_config cfg;
		uint64_t newer;
	} future = {.newer = 0};
	struct scout_hasher *hasher = NULL;

#define REFUSED(want, field, value)                                                                                    \
	do {                                                                                                           \
		bad = good;                                                                                            \
		bad.field = (value);                                                                                   \
		config_refused(want, &bad);                                                                            \
	} while (0)

	scout_hasher_config_init(&good);
	REFUSED(SCOUT_ERR_UNSUPPORTED, size, good.size - 1);
	REFUSED(SCOUT_ERR_INVALID, seed, "\xed\xa0\x80");
	REFUSED(SCOUT_ERR_UNSUPPORTED, dialect, "vllm-0.29");
	REFUSED(SCOUT_ERR_UNSUPPORTED, dialect, "");
	REFUSED(SCOUT_ERR_CONFIG_RANGE, block_tokens, SCOUT_HASH_BLOCK_TOKENS_MAX + 1);
	REFUSED(SCOUT_ERR_CONFIG_RANGE, block_tokens, 300); /* no divisor of the default chunk */
	REFUSED(SCOUT_ERR_CONFIG_RANGE, chunk_tokens, 8);   /* shorter than the default block */
	REFUSED(SCOUT_ERR_CONFIG_RANGE, chunk_tokens, SCOUT_HASH_CHUNK_TOKENS_MAX + 16);
#undef REFUSED
	ck_assert_int_eq(scout_hasher_new(&good, NULL), SCOUT_ERR_INVALID);

	scout_hasher_config_init(&future.cfg);
	future.cfg.size = (uint32_t)sizeof(future);
	ck_assert_int_eq(scout_hasher_new(&future.cfg, &hasher), 0);
	scout_hasher_free(hasher);
	future.newer = 1;
	config_refused(SCOUT_ERR_UNSUPPORTED, &future.cfg);
	scout_hasher_free(NULL);
}
END_TEST

START_TEST(a_refused_call_leaves_the_hasher_usable)
{
	const struct hash_vector *v = &hash_vectors[N_VECTORS - 1];
	struct fixture f = set_up(v);
	struct scout_hash_extra bad = f.extra;
	uint8_t *got = alloc(f.n_expected, H);
	size_t n;

	bad.cache_salt = "\x80";
	ck_assert_int_eq(scout_hash_blocks(f.hasher, NULL, 0, f.tokens, f.n_tokens, &bad, got, f.n_expected, &n),
			 SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_hash_blocks(f.hasher, NULL, 0, f.tokens, f.n_tokens, &f.extra, got, f.n_expected, &n),
			 0);
	ck_assert_mem_eq(got, f.expected, f.n_expected * H);
	free(got);
	tear_down(&f);
}
END_TEST

START_TEST(utf8_is_told_from_other_bytes)
{
	static const char *const good[] = {"",
					   "ascii",
					   "\x7f",
					   "\xc2\x80",
					   "\xdf\xbf",
					   "\xe0\xa0\x80",
					   "\xed\x9f\xbf",
					   "\xee\x80\x80",
					   "\xef\xbf\xbf",
					   "\xf0\x90\x80\x80",
					   "\xf4\x8f\xbf\xbf"};
	static const char *const bad[] = {"\x80",
					  "\xbf",
					  "\xc0\x80",
					  "\xc1\xbf",
					  "\xc2",
					  "\xc2!",
					  "\xe0\x9f\xbf",
					  "\xe2\x82",
					  "\xed\xa0\x80",
					  "\xed\xbf\xbf",
					  "\xf0\x8f\xbf\xbf",
					  "\xf4\x90\x80\x80",
					  "\xf5\x80\x80\x80",
					  "\xf0\x90\x80",
					  "\xff",
					  "a\xe2\x28\xa1"};
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(scout__utf8_is_valid(good[i], strlen(good[i])), "good %zu", i);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		size_t len = strlen(bad[i]);
		char *exact = alloc(len, 1);

		memcpy(exact, bad[i], len);
		ck_assert_msg(!scout__utf8_is_valid(exact, len), "bad %zu", i);
		free(exact);
	}
}
END_TEST
