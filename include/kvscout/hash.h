/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_HASH_H
#define KVSCOUT_HASH_H

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Block and chunk hashes, byte for byte those of vLLM started with `--prefix-caching-hash-algo
 * sha256_cbor` (formed in vllm/v1/core/kv_cache_utils.py, digested in vllm/utils/hashing.py):
 *
 *   none_hash  = SHA-256(CBOR(seed as text string))
 *   block hash = SHA-256(CBOR([parent hash as byte string, [token ids], extra]))
 *
 * in canonical CBOR. The first block's parent hash is none_hash, every other block's the hash of
 * the block before it, so a hash stands for everything from the first token to the end of its
 * block. Only full blocks have one. The hash of a chunk is the hash of its last block.
 *
 * extra is null, or the array of the keys that the block has, in this order: the LoRA adapter,
 * each multimodal item in the block, the cache salt (first block only), the digest of the block's
 * prompt embeddings. An item's offset counts from the start of the block; it is negative if the
 * item began earlier. How a key is written depends on the engine's version, so a hasher speaks a
 * dialect:
 *
 *                        SCOUT_HASH_VLLM_0_30              SCOUT_HASH_VLLM_0_31
 *   engine versions      vLLM 0.20 to 0.30                 vLLM 0.31 and newer (checked up to 0.33)
 *   LoRA adapter         name                              ["lora", name, path]
 *   multimodal item      [identifier, offset]              ["mm", identifier, offset]
 *   cache salt           salt                              ["cache_salt", salt]
 *   prompt embeddings    digest                            ["prompt_embeds", digest]
 *
 * vLLM before 0.29 draws a random seed at each start unless PYTHONHASHSEED is set: set it there,
 * and give it as the seed. Requests without any of these keys have the same hashes in both
 * dialects. Two engines share cached KV only if they hash alike: put the dialect into the
 * namespace's name if both generations use one server.
 */

/* Dialects, for struct scout_hasher_config. */
#define SCOUT_HASH_VLLM_0_30 "vllm-0.30"
#define SCOUT_HASH_VLLM_0_31 "vllm-0.31"
#define SCOUT_HASH_DIALECT_DEFAULT SCOUT_HASH_VLLM_0_31

/* Length of one hash in bytes. With a shorter hash_bytes configured, use the leading bytes. */
#define SCOUT_SHA256_BYTES 32

/*
 * The seed if the caller gives none: vLLM's own for its SHA-256 algorithms if PYTHONHASHSEED is
 * not set.
 */
#define SCOUT_HASH_SEED_DEFAULT "vllm-none-hash"

#define SCOUT_HASH_BLOCK_TOKENS_DEFAULT 16
#define SCOUT_HASH_CHUNK_TOKENS_DEFAULT 256
#define SCOUT_HASH_BLOCK_TOKENS_MAX (1u << 16)
#define SCOUT_HASH_CHUNK_TOKENS_MAX (1u << 24)

/*
 * Longest seed, LoRA name, LoRA path, cache salt or identifier, in bytes without the terminating
 * NUL.
 */
#define SCOUT_HASH_TEXT_MAX 65535

/* Computes hashes; one thread at a time uses it. */
struct scout_hasher;

/* Set up by scout_hasher_config_init(). 0 or NULL means the default in every field. */
struct scout_hasher_config {
	uint32_t size;         /* sizeof of this structure as the caller was compiled */
	const char *seed;      /* UTF-8; "" is a seed of its own. What the engine has in PYTHONHASHSEED. */
	uint32_t block_tokens; /* tokens in a block, as in the engine */
	uint32_t chunk_tokens; /* tokens in a chunk; a multiple of block_tokens */
	const char *dialect;   /* SCOUT_HASH_VLLM_*; which engine's hashes these are */
};

/*
 * One image, audio clip or video. An element of an array, so the structure has no size field and
 * will never grow.
 */
struct scout_hash_mm_item {
	const char *identifier; /* UTF-8, not NULL; the engine's content hash of the item */
	uint32_t offset;        /* position of its first placeholder token in the prompt */
	uint32_t length;        /* number of its placeholder tokens */
};

/*
 * What else the KV of a request depends on. It describes the whole request, not one call: a request
 * passes the same values with each call as its tokens grow. Set up by scout_hash_extra_init();
 * every field is optional.
 */
struct scout_hash_extra {
	uint32_t size;         /* sizeof of this structure as the caller was compiled */
	const char *lora_name; /* UTF-8; NULL: no LoRA. "" is a name. */
	/* UTF-8, as the engine was given it; vllm-0.31: needed with lora_name. vllm-0.30 ignores it. */
	const char *lora_path;
	const char *cache_salt; /* UTF-8; NULL or "": no salt */
	/*
	 * Items sorted by offset. If items overlap, the engine's walk is followed exactly: an item
	 * that reaches past the end of a block hides the later ones from that block.
	 */
	const struct scout_hash_mm_item *mm_items;
	/*
	 * SHA-256 digests of the prompt embeddings, 32 bytes for each block, from block 0; the last
	 * block of the prompt has the digest of its rows. Later blocks, filled by decoding, count
	 * as the digest of no bytes.
	 */
	const uint8_t *embed_digests;
	uint32_t n_mm_items;
	uint32_t n_embed_digests; /* 0: the request has no prompt embeddings */
};

/**
 * Set @cfg to all defaults.
 *
 * @cfg      written.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  nothing.
 */
static inline void
scout_hasher_config_init(struct scout_hasher_config *cfg)
{
	cfg->size = (uint32_t)sizeof(*cfg);
	cfg->seed = NULL;
	cfg->block_tokens = 0;
	cfg->chunk_tokens = 0;
	cfg->dialect = NULL;
}

/**
 * Set @extra to "nothing else".
 *
 * @extra    written.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  nothing.
 */
static inline void
scout_hash_extra_init(struct scout_hash_extra *extra)
{
	extra->size = (uint32_t)sizeof(*extra);
	extra->lora_name = NULL;
	extra->lora_path = NULL;
	extra->cache_salt = NULL;
	extra->mm_items = NULL;
	extra->embed_digests = NULL;
	extra->n_mm_items = 0;
	extra->n_embed_digests = 0;
}

/**
 * Make a hasher. All memory and libcrypto objects that hashing needs are obtained here, except room
 * for extras that are longer than any before.
 *
 * @cfg         borrowed for the call; NULL: all defaults.
 * @ret_hasher  the new hasher, owned by the caller; written only on success.
 *
 * Thread:   any.
 * Blocks:   no (the first call in a process may load libcrypto's configuration file).
 * Returns:  0, or SCOUT_ERR_INVALID (@ret_hasher is NULL, the seed is no UTF-8 or too long, size is
 *           too small), SCOUT_ERR_CONFIG_RANGE (block_tokens or chunk_tokens above its maximum, or
 *           chunk_tokens no multiple of block_tokens), SCOUT_ERR_UNSUPPORTED (unknown fields or
 *           dialect; libcrypto has no SHA-256), SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM (libcrypto
 *           failed).
 */
SCOUT_API SCOUT_MUST_CHECK int scout_hasher_new(const struct scout_hasher_config *cfg,
						struct scout_hasher **ret_hasher);

/**
 * Free @hasher.
 *
 * @hasher   from scout_hasher_new(), or NULL.
 *
 * Thread:   any, when no other uses @hasher.
 * Blocks:   no.
 * Returns:  nothing.
 */
SCOUT_API void scout_hasher_free(struct scout_hasher *hasher);

/**
 * Hash the full blocks in @tokens, continuing a chain. Hashing a prompt in several calls, each with
 * the last hash of the one before as @parent, gives the same hashes as one call. A request that
 * grows by decoding keeps its last hash and its number of blocks, and nothing else.
 *
 * @hasher       used by this thread only, for the call.
 * @parent       hash of block @first_block - 1, SCOUT_SHA256_BYTES bytes, borrowed for the call;
 *               NULL exactly if @first_block is 0. It may lie in @ret_hashes.
 * @first_block  index in the request of the block that @tokens begins with.
 * @tokens       token ids from the first token of that block on, borrowed for the call. Ids are
 *               unsigned: engines that mark placeholders with negative ids replace them before they
 *               hash, and so must the caller. May be NULL if @n_tokens is 0.
 * @n_tokens     count of @tokens; those after the last full block are not looked at.
 * @extra        borrowed for the call; NULL: nothing else.
 * @ret_hashes   room for @max_hashes hashes of SCOUT_SHA256_BYTES bytes one after the other. May be
 *               NULL where @max_hashes is 0. Written only on success, except with SCOUT_ERR_SYSTEM,
 *               which leaves it undefined.
 * @max_hashes   count of hashes that fit.
 * @ret_n        the number of hashes written, 0 if there is no full block; written only on success.
 *
 * Thread:   any, one at a time for each hasher. Valid in a forked child.
 * Blocks:   no.
 * Returns:  0, or SCOUT_ERR_INVALID (a NULL that is not allowed; more full blocks than @max_hashes;
 *           items not sorted; a text that is no UTF-8 or too long; in vllm-0.31 a LoRA name without
 *           its path; token positions beyond 2^63), SCOUT_ERR_UNSUPPORTED (unknown fields in
 *           @extra), SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM (libcrypto failed).
 */
SCOUT_API SCOUT_MUST_CHECK int scout_hash_blocks(struct scout_hasher *hasher, const uint8_t *parent,
						 uint64_t first_block, const uint32_t *tokens, size_t n_tokens,
						 const struct scout_hash_extra *extra, uint8_t *ret_hashes,
						 size_t max_hashes, size_t *ret_n);

/**
 * Hash the full chunks of a prompt, from its first token. The hash of a chunk is the hash of its
 * last block, so it can be the parent with which scout_hash_blocks() continues.
 *
 * @hasher       used by this thread only, for the call.
 * @tokens       token ids of the prompt, borrowed for the call; see scout_hash_blocks(). May be
 *               NULL where @n_tokens is 0.
 * @n_tokens     count of @tokens; those after the last full chunk are not looked at.
 * @extra        borrowed for the call; NULL: nothing else.
 * @ret_hashes   room for @max_chunks hashes; as in scout_hash_blocks().
 * @max_chunks   count of hashes that fit.
 * @ret_n        the number of hashes written, 0 where there is no full chunk; written only on
 *               success.
 *
 * Thread:   any, one at a time for each hasher. Valid in a forked child.
 * Blocks:   no.
 * Returns:  as scout_hash_blocks().
 */
SCOUT_API SCOUT_MUST_CHECK int scout_hash_chunks(struct scout_hasher *hasher, const uint32_t *tokens, size_t n_tokens,
						 const struct scout_hash_extra *extra, uint8_t *ret_hashes,
						 size_t max_chunks, size_t *ret_n);

#ifdef __cplusplus
}
#endif

#endif
