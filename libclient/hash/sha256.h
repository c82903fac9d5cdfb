/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef SCOUT_SHA256_ALONE
#include <openssl/sha.h>
#else
#include <openssl/core_dispatch.h>
#include <openssl/evp.h>
#endif

#include <kvscout/hash.h>

/*
 * SHA-256 of many short messages, by libcrypto: through its providers (sha256.c), or by its SHA256_*() functions, if a build has
 * only these (sha256_alone.c, the option sha256=libcrypto-sha256).
 *
 * Threads: none of its own; belongs to the thread that calls.
 */
struct scout__sha256 {
#ifdef SCOUT_SHA256_ALONE
	SHA256_CTX ctx; /* caller */
#else
	EVP_MD *md;      /* const after init; keeps the provider loaded */
	EVP_MD_CTX *evp; /* caller; NULL if the provider's own functions are used */
	void *ctx;       /* caller: the provider's context, or NULL */

	/* const after init */
	OSSL_FUNC_digest_init_fn *init;
	OSSL_FUNC_digest_update_fn *update;
	OSSL_FUNC_digest_final_fn *final;
	OSSL_FUNC_digest_newctx_fn *newctx;
	OSSL_FUNC_digest_freectx_fn *freectx;
#endif
};

/* The caller's queue of libcrypto errors stays as it was. 0, SCOUT_ERR_NOMEM, SCOUT_ERR_UNSUPPORTED (no provider has it), SCOUT_ERR_SYSTEM. Call scout__sha256_fini() even after an error. */
int scout__sha256_init(struct scout__sha256 *sha);
void scout__sha256_fini(struct scout__sha256 *sha);
/* @ret_digest may lie within @bytes. 0, or SCOUT_ERR_SYSTEM. */
int scout__sha256_digest(struct scout__sha256 *sha, const uint8_t *bytes, size_t len, uint8_t *ret_digest);
