/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/hash.h>

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cbor.h"
#include "sha256.h"
#include "sized.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * Purpose: vLLM's sha256_cbor block hashes at the speed of SHA-256 itself. The format comes from vLLM's
 * vllm/v1/core/kv_cache_utils.py (hash_block_tokens, generate_block_hash_extra_keys, _gen_mm_extra_hash_keys,
 * _gen_lora_extra_hash_keys, _gen_prompt_embeds_extra_hash_keys, init_none_hash) and vllm/utils/hashing.py (sha256_cbor). vLLM
 * 0.31 put a word in front of each extra key ("tags"), because keys of two kinds could have the same bytes, and added the
 * adapter's path. The two dialects differ in nothing else.
 *
 * Each block is encoded into one scratch buffer, whose front stays the same, except the parent's hash:
 *
 *   83            array of 3
 *   58 20 ..      the parent's hash, a byte string of 32 bytes
 *   8x or 9x ..   array of block_tokens
 *   ..            the tokens, then null or the array of extra keys
 *
 * The digest is written over the parent's hash, so the next block of the chain finds it in place.
 *
 * Invariants: the caller's arguments are checked, and all memory is allocated, before the first hash is written. The
 * scratch buffer holds the longest block of the call.
 *
 * Threads: none of its own; a hasher belongs to the thread that calls.
 *
 * Rejected: EVP_sha256() (looked up again at each init, three times as slow as a fetched EVP_MD); two tokens encoded at
 * once, or each with a single store of eight bytes (no faster); blocks encoded ahead of the digest (slower: the processor
 * already overlaps a block's encoding with the digest of the block before); the position in the list of multimodal items
 * kept between calls (it follows from the block's position, so a request keeps only its last hash). When decoding
 * completes a block, vLLM up to 0.30 looks only at the last item. If two items share that block, its hash then differs
 * from vLLM's own hash of the same tokens given as one prompt. Here both are the hash of the whole prompt, as another
 * request asks for it.
 */

/* The tags of extra keys; each is shorter than 24 bytes, so its head is one byte. */
#define TAG_MAX 14
#define TAG_LORA "lora"
#define TAG_ITEM "mm"
#define TAG_SALT "cache_salt"
#define TAG_EMBEDS "prompt_embeds"

#define PARENT_AT 3 /* offset of the parent's hash in the scratch buffer */
#define TOKENS_HEAD_AT (PARENT_AT + SCOUT_SHA256_BYTES)

struct scout_hasher {
	struct scout__sha256 sha;                 /* caller */
	uint8_t *scratch;                         /* caller */
	size_t scratch_bytes;                     /* caller */
	size_t tokens_at;                         /* const after new: offset of the first token in scratch */
	uint32_t block_tokens;                    /* const after new */
	uint32_t chunk_tokens;                    /* const after new */
	bool has_tags;                            /* const after new: the dialect puts a word before each extra key */
	uint8_t none_hash[SCOUT_SHA256_BYTES];    /* const after new */
	uint8_t empty_digest[SCOUT_SHA256_BYTES]; /* const after new: SHA-256 of no bytes */
};

/* The input of one call. On the stack, the caller's thread only. */
struct hash_run {
	const uint32_t *tokens;
	size_t n_blocks;
	uint64_t first_block;
	uint64_t first_token; /* position of tokens[0] in the request */
	bool has_extra;
	struct scout_hash_extra extra;
	size_t lora_len;
	size_t path_len;
	size_t salt_len;
	size_t mm_next; /* all items before this one end at or before the current block's start */
};

/* The items of one block. */
struct mm_span {
	size_t first; /* candidates are [first, end); items that ended before the block do not count */
	size_t end;
	size_t count; /* how many count */
};

static int
check_text(const char *text, size_t *ret_len)
{
	size_t len = strnlen(text, (size_t)SCOUT_HASH_TEXT_MAX + 1);

	if (len > SCOUT_HASH_TEXT_MAX || !scout__utf8_is_valid(text, len))
		return SCOUT_ERR_INVALID;
	*ret_len = len;
	return 0;
}

/* Room for the longest block without extra keys, with the null in their place. */
static size_t
plain_bytes(const struct scout_hasher *h)
{
	return h->tokens_at + (size_t)h->block_tokens * SCOUT_CBOR_TOKEN_MAX + 1;
}

static int
reserve(struct scout_hasher *h, size_t bytes)
{
	uint8_t *scratch;

	if (bytes <= h->scratch_bytes)
		return 0;
	scratch = realloc(h->scratch, bytes);
	if (!scratch)
		return SCOUT_ERR_NOMEM;
	h->scratch = scratch;
	h->scratch_bytes = bytes;
	return 0;
}

/* Allocate the scratch buffer and write its constant front. */
static int
init_scratch(struct scout_hasher *h)
{
	uint8_t front[TOKENS_HEAD_AT + SCOUT_CBOR_HEAD_MAX] = {0};
	uint8_t *at;
	int rc;

	at = scout__cbor_put_head(front, SCOUT_CBOR_ARRAY, 3);
	(void)scout__cbor_put_head(at, SCOUT_CBOR_BYTES, SCOUT_SHA256_BYTES); /* it ends at PARENT_AT */
	at = scout__cbor_put_head(front + TOKENS_HEAD_AT, SCOUT_CBOR_ARRAY, h->block_tokens);
	h->tokens_at = (size_t)(at - front);
	rc = reserve(h, plain_bytes(h));
	if (rc)
		return rc;
	memcpy(h->scratch, front, h->tokens_at);
	return 0;
}

static int
init_digests(struct scout_hasher *h, const char *seed, size_t seed_len)
{
	uint8_t *buffer, *end;
	int rc;

	rc = scout__sha256_init(&h->sha);
	if (rc)
		return rc;
	rc = scout__sha256_digest(&h->sha, (const uint8_t *)"", 0, h->empty_digest);
	if (rc)
		return rc;

	buffer = malloc(SCOUT_CBOR_HEAD_MAX + seed_len);
	if (!buffer)
		return SCOUT_ERR_NOMEM;
	end = scout__cbor_put_string(buffer, SCOUT_CBOR_TEXT, seed, seed_len);
	rc = scout__sha256_digest(&h->sha, buffer, (size_t)(end - buffer), h->none_hash);
	free(buffer);
	return rc;
}

static int
init_sizes(struct scout_hasher *h, const struct scout_hasher_config *cfg)
{
	h->block_tokens = cfg->block_tokens ? cfg->block_tokens : SCOUT_HASH_BLOCK_TOKENS_DEFAULT;
	h->chunk_tokens = cfg->chunk_tokens ? cfg->chunk_tokens : SCOUT_HASH_CHUNK_TOKENS_DEFAULT;
	if (h->block_tokens > SCOUT_HASH_BLOCK_TOKENS_MAX || h->chunk_tokens > SCOUT_HASH_CHUNK_TOKENS_MAX ||
	    h->chunk_tokens % h->block_tokens)
		return SCOUT_ERR_CONFIG_RANGE;
	return 0;
}

static int
init_dialect(struct scout_hasher *h, const char *dialect)
{
	if (!dialect)
		dialect = SCOUT_HASH_DIALECT_DEFAULT;
	h->has_tags = strcmp(dialect, SCOUT_HASH_VLLM_0_31) == 0;
	return h->has_tags || strcmp(dialect, SCOUT_HASH_VLLM_0_30) == 0 ? 0 : SCOUT_ERR_UNSUPPORTED;
}

int
scout_hasher_new(const struct scout_hasher_config *cfg, struct scout_hasher **ret_hasher)
{
	struct scout_hasher_config defaults, own;
	struct scout_hasher *h;
	const char *seed;
	size_t seed_len;
	int rc;

	scout_hasher_config_init(&defaults);
	if (!cfg)
		cfg = &defaults;
	if (!ret_hasher)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_hasher_config, dialect), cfg,
			       cfg->size);
	if (rc)
		return rc;
	cfg = &own;
	seed = cfg->seed ? cfg->seed : SCOUT_HASH_SEED_DEFAULT;
	rc = check_text(seed, &seed_len);
	if (rc)
		return rc;

	h = calloc(1, sizeof(*h));
	if (!h)
		return SCOUT_ERR_NOMEM;
	rc = init_dialect(h, cfg->dialect);
	if (!rc)
		rc = init_sizes(h, cfg);
	if (!rc)
		rc = init_digests(h, seed, seed_len);
	if (!rc)
		rc = init_scratch(h);
	if (rc) {
		scout_hasher_free(h);
		return rc;
	}
	*ret_hasher = h;
	return 0;
}

void
scout_hasher_free(struct scout_hasher *hasher)
{
	if (!hasher)
		return;
	scout__sha256_fini(&hasher->sha);
	free(hasher->scratch);
	free(hasher);
}

static uint64_t
item_end(const struct scout_hash_mm_item *item)
{
	return (uint64_t)item->offset + item->length;
}

/* Check the items, and add to @bytes the room that items within the run may need. */
static int
check_items(const struct hash_run *run, uint64_t end_token, size_t *bytes)
{
	const struct scout_hash_mm_item *items = run->extra.mm_items;
	size_t i, len;
	int rc;

	for (i = 0; i < run->extra.n_mm_items; i++) {
		if (!items[i].identifier || (i > 0 && items[i].offset < items[i - 1].offset))
			return SCOUT_ERR_INVALID;
		if (item_end(&items[i]) <= run->first_token || items[i].offset >= end_token)
			continue;
		rc = check_text(items[i].identifier, &len);
		if (rc)
			return rc;
		/* The array's head, the tag, the identifier, the offset. Below 2^32 items of 64 KiB: no overflow. */
		*bytes += (size_t)3 * SCOUT_CBOR_HEAD_MAX + TAG_MAX + len;
	}
	return 0;
}

static int
check_lora(const struct scout_hasher *h, struct hash_run *run)
{
	const struct scout_hash_extra *extra = &run->extra;
	int rc;

	if (!extra->lora_name)
		return 0;
	rc = check_text(extra->lora_name, &run->lora_len);
	if (rc || !h->has_tags)
		return rc;
	/* Without the path the hash would differ from the engine's: never a hit, and no message says why. */
	return extra->lora_path ? check_text(extra->lora_path, &run->path_len) : SCOUT_ERR_INVALID;
}

/* Check and copy @extra, and make room for the longest block that it can make. */
static int
take_extra(struct scout_hasher *h, struct hash_run *run, const struct scout_hash_extra *extra)
{
	/* The heads of the array of keys, of three keys, and of their texts: name, path, salt, digest. */
	size_t bytes = (size_t)8 * SCOUT_CBOR_HEAD_MAX + (size_t)3 * TAG_MAX + SCOUT_SHA256_BYTES;
	int rc;

	rc = scout__sized_read(&run->extra, sizeof(run->extra),
			       SCOUT__SIZE_UP_TO(struct scout_hash_extra, n_embed_digests), extra, extra->size);
	if (rc)
		return rc;
	extra = &run->extra;
	if ((extra->n_mm_items && !extra->mm_items) || (extra->n_embed_digests && !extra->embed_digests))
		return SCOUT_ERR_INVALID;
	run->has_extra = true;
	rc = check_lora(h, run);
	if (rc)
		return rc;
	if (extra->cache_salt) {
		rc = check_text(extra->cache_salt, &run->salt_len);
		if (rc)
			return rc;
	}
	bytes += run->lora_len + run->path_len + run->salt_len;
	rc = check_items(run, run->first_token + run->n_blocks * h->block_tokens, &bytes);
	if (rc)
		return rc;
	return reserve(h, plain_bytes(h) + bytes);
}

/*
 * The items that belong to the block [@start, @end), as vLLM walks them: in order, past items that ended, up to the
 * first item that begins at or after the block's end, or that reaches past it. Nothing counts once the last item of
 * the list has ended, even if an earlier and longer item still covers the block.
 */
static struct mm_span
find_items(struct hash_run *run, uint64_t start, uint64_t end)
{
	const struct scout_hash_mm_item *items = run->extra.mm_items;
	size_t n = run->extra.n_mm_items;
	struct mm_span span = {0, 0, 0};
	size_t i;

	if (!n || item_end(&items[n - 1]) <= start)
		return span;
	while (run->mm_next < n && item_end(&items[run->mm_next]) <= start)
		run->mm_next++;
	span.first = run->mm_next;
	for (i = span.first; i < n && items[i].offset < end; i++) {
		if (item_end(&items[i]) <= start)
			continue;
		span.count++;
		if (item_end(&items[i]) > end) {
			i++;
			break;
		}
	}
	span.end = i;
	return span;
}

/* Begin an extra key of @n_values: in a tagged dialect an array with the tag in front, else an array only if needed. */
static uint8_t *
put_key(uint8_t *at, const struct scout_hasher *h, const char *tag, uint64_t n_values)
{
	if (h->has_tags) {
		at = scout__cbor_put_head(at, SCOUT_CBOR_ARRAY, n_values + 1);
		return scout__cbor_put_string(at, SCOUT_CBOR_TEXT, tag, strlen(tag));
	}
	return n_values > 1 ? scout__cbor_put_head(at, SCOUT_CBOR_ARRAY, n_values) : at;
}

static uint8_t *
put_lora(uint8_t *at, const struct scout_hasher *h, const struct hash_run *run)
{
	at = put_key(at, h, TAG_LORA, h->has_tags ? 2 : 1);
	at = scout__cbor_put_string(at, SCOUT_CBOR_TEXT, run->extra.lora_name, run->lora_len);
	if (h->has_tags)
		at = scout__cbor_put_string(at, SCOUT_CBOR_TEXT, run->extra.lora_path, run->path_len);
	return at;
}

static uint8_t *
put_items(uint8_t *at, const struct scout_hasher *h, const struct hash_run *run, const struct mm_span *span,
	  uint64_t start)
{
	const struct scout_hash_mm_item *item;
	size_t i;

	for (i = span->first; i < span->end; i++) {
		item = &run->extra.mm_items[i];
		if (item_end(item) <= start)
			continue;
		at = put_key(at, h, TAG_ITEM, 2);
		at = scout__cbor_put_string(at, SCOUT_CBOR_TEXT, item->identifier, strlen(item->identifier));
		at = scout__cbor_put_int(at, (int64_t)item->offset - (int64_t)start);
	}
	return at;
}

/* Append the extra keys of block @block, which begins at token @start. */
static uint8_t *
put_extra(uint8_t *at, const struct scout_hasher *h, struct hash_run *run, uint64_t block, uint64_t start)
{
	const struct scout_hash_extra *extra = &run->extra;
	struct mm_span span = find_items(run, start, start + h->block_tokens);
	bool has_salt = run->salt_len > 0 && start == 0, has_embeds = extra->n_embed_digests > 0;
	size_t count = (extra->lora_name ? 1u : 0u) + span.count + has_salt + has_embeds;
	const uint8_t *embeds = h->empty_digest;

	if (!count) {
		*at++ = SCOUT_CBOR_NULL;
		return at;
	}
	at = scout__cbor_put_head(at, SCOUT_CBOR_ARRAY, count);
	if (extra->lora_name)
		at = put_lora(at, h, run);
	at = put_items(at, h, run, &span, start);
	if (has_salt) {
		at = put_key(at, h, TAG_SALT, 1);
		at = scout__cbor_put_string(at, SCOUT_CBOR_TEXT, extra->cache_salt, run->salt_len);
	}
	if (has_embeds) {
		at = put_key(at, h, TAG_EMBEDS, 1);
		if (block < extra->n_embed_digests)
			embeds = extra->embed_digests + block * SCOUT_SHA256_BYTES;
		at = scout__cbor_put_string(at, SCOUT_CBOR_BYTES, embeds, SCOUT_SHA256_BYTES);
	}
	return at;
}

/* Hash block @i of the run; its parent's hash is in the scratch buffer, its own hash replaces it. */
static int
hash_block(struct scout_hasher *h, struct hash_run *run, size_t i)
{
	const uint32_t *token = run->tokens + i * h->block_tokens, *end = token + h->block_tokens;
	uint8_t *at = h->scratch + h->tokens_at;

	while (token < end)
		at = scout__cbor_put_token(at, *token++);
	if (run->has_extra)
		at = put_extra(at, h, run, run->first_block + i, run->first_token + i * h->block_tokens);
	else
		*at++ = SCOUT_CBOR_NULL;
	return scout__sha256_digest(&h->sha, h->scratch, (size_t)(at - h->scratch), h->scratch + PARENT_AT);
}

/* Hash the run, and write out the hash of every @stride-th block. */
static int
hash_all(struct scout_hasher *h, struct hash_run *run, const uint8_t *parent, size_t stride, uint8_t *ret_hashes)
{
	size_t i, left = stride;
	int rc;

	memcpy(h->scratch + PARENT_AT, parent, SCOUT_SHA256_BYTES);
	for (i = 0; i < run->n_blocks; i++) {
		rc = hash_block(h, run, i);
		if (rc)
			return rc;
		if (--left == 0) {
			memcpy(ret_hashes, h->scratch + PARENT_AT, SCOUT_SHA256_BYTES);
			ret_hashes += SCOUT_SHA256_BYTES;
			left = stride;
		}
	}
	return 0;
}

int
scout_hash_blocks(struct scout_hasher *hasher, const uint8_t *parent, uint64_t first_block, const uint32_t *tokens,
		  size_t n_tokens, const struct scout_hash_extra *extra, uint8_t *ret_hashes, size_t max_hashes,
		  size_t *ret_n)
{
	struct hash_run run = {.tokens = tokens, .first_block = first_block};
	uint64_t end;
	int rc;

	if (!hasher || !ret_n || (n_tokens && !tokens) || !parent != (first_block == 0) || (max_hashes && !ret_hashes))
		return SCOUT_ERR_INVALID;
	run.n_blocks = n_tokens / hasher->block_tokens;
	if (run.n_blocks > max_hashes || __builtin_mul_overflow(first_block, hasher->block_tokens, &run.first_token) ||
	    __builtin_add_overflow(run.first_token, n_tokens, &end) || end > INT64_MAX)
		return SCOUT_ERR_INVALID;
	if (extra) {
		rc = take_extra(hasher, &run, extra);
		if (rc)
			return rc;
	}
	rc = hash_all(hasher, &run, parent ? parent : hasher->none_hash, 1, ret_hashes);
	if (rc)
		return rc;
	*ret_n = run.n_blocks;
	return 0;
}

int
scout_hash_chunks(struct scout_hasher *hasher, const uint32_t *tokens, size_t n_tokens,
		  const struct scout_hash_extra *extra, uint8_t *ret_hashes, size_t max_chunks, size_t *ret_n)
{
	struct hash_run run = {.tokens = tokens};
	size_t n_chunks, stride;
	int rc;

	if (!hasher || !ret_n || (n_tokens && !tokens) || (max_chunks && !ret_hashes) || n_tokens > INT64_MAX)
		return SCOUT_ERR_INVALID;
	n_chunks = n_tokens / hasher->chunk_tokens;
	if (n_chunks > max_chunks)
		return SCOUT_ERR_INVALID;
	stride = hasher->chunk_tokens / hasher->block_tokens;
	run.n_blocks = n_chunks * stride;
	if (extra) {
		rc = take_extra(hasher, &run, extra);
		if (rc)
			return rc;
	}
	rc = hash_all(hasher, &run, hasher->none_hash, stride, ret_hashes);
	if (rc)
		return rc;
	*ret_n = n_chunks;
	return 0;
}
