/* SPDX-License-Identifier: Apache-2.0 */
#include "sha256.h"

#include <stdbool.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/provider.h>

/*
 * DESIGN
 *
 * Purpose: a digest of a hundred bytes at little more than the cost of its two compressions.
 *
 * libcrypto 3.0, which Debian 12 and Ubuntu 24.04 have, frees the provider's context and allocates a new one whenever an
 * EVP_MD_CTX is initialised again: this takes a third of the time of such a digest. 3.1 and later keep the context, and only call
 * the provider's init again. We do the same with every version: EVP_MD_fetch() chooses the provider as the host has configured it
 * (FIPS or not), and OSSL_PROVIDER_query_operation() names its functions.
 *
 * Later versions rely on every provider's context starting over after its final, but no document promises this. So we try it
 * out: a provider whose context does not start over, or that hides a function, is used through EVP.
 *
 * Rejected: SHA256_Update() and its like (deprecated, and they ignore the host's choice of provider); EVP_MD_CTX_copy_ex() of an
 * initialised context (allocates, too).
 */

#define NAME_MAX_BYTES 64
#define TRIAL_BYTES 200

static bool
direct(struct scout__sha256 *sha, const uint8_t *bytes, size_t len, uint8_t *ret_digest)
{
	size_t n = 0;

	return sha->init(sha->ctx, NULL) == 1 && sha->update(sha->ctx, bytes, len) == 1 &&
	       sha->final(sha->ctx, ret_digest, &n, SCOUT_SHA256_BYTES) == 1 && n == SCOUT_SHA256_BYTES;
}

static bool
through_evp(struct scout__sha256 *sha, const uint8_t *bytes, size_t len, uint8_t *ret_digest)
{
	/* If no digest is named, init keeps the context's digest: nothing is looked up. */
	return EVP_DigestInit_ex2(sha->evp, NULL, NULL) == 1 && EVP_DigestUpdate(sha->evp, bytes, len) == 1 &&
	       EVP_DigestFinal_ex(sha->evp, ret_digest, NULL) == 1;
}

/* Whether one of the names, separated by colons, is the digest's. The first match will do: a provider lists each digest once. */
static bool
is_ours(const struct scout__sha256 *sha, const char *names)
{
	char name[NAME_MAX_BYTES];
	size_t len = strcspn(names, ":");

	if (len >= sizeof(name))
		return false;
	memcpy(name, names, len);
	name[len] = '\0';
	return EVP_MD_is_a(sha->md, name) == 1;
}

static void
take_functions(struct scout__sha256 *sha, const OSSL_DISPATCH *functions)
{
	for (; functions->function_id != 0; functions++) {
		switch (functions->function_id) {
		case OSSL_FUNC_DIGEST_NEWCTX:
			sha->newctx = OSSL_FUNC_digest_newctx(functions);
			break;
		case OSSL_FUNC_DIGEST_FREECTX:
			sha->freectx = OSSL_FUNC_digest_freectx(functions);
			break;
		case OSSL_FUNC_DIGEST_INIT:
			sha->init = OSSL_FUNC_digest_init(functions);
			break;
		case OSSL_FUNC_DIGEST_UPDATE:
			sha->update = OSSL_FUNC_digest_update(functions);
			break;
		case OSSL_FUNC_DIGEST_FINAL:
			sha->final = OSSL_FUNC_digest_final(functions);
			break;
		default:
			break;
		}
	}
}

/* Whether the provider names all functions that we need. */
static bool
find_functions(struct scout__sha256 *sha, const OSSL_PROVIDER *provider)
{
	const OSSL_ALGORITHM *all, *one;
	int no_cache;

	all = OSSL_PROVIDER_query_operation(provider, OSSL_OP_DIGEST, &no_cache);
	for (one = all; one && one->algorithm_names; one++) {
		if (is_ours(sha, one->algorithm_names)) {
			take_functions(sha, one->implementation);
			break;
		}
	}
	OSSL_PROVIDER_unquery_operation(provider, OSSL_OP_DIGEST, all);
	return sha->newctx && sha->freectx && sha->init && sha->update && sha->final;
}

/* Whether the provider's context gives EVP's digests when it is used again, after a longer and after a shorter message. */
static bool
starts_over(struct scout__sha256 *sha)
{
	static const size_t lengths[] = {TRIAL_BYTES, 1, TRIAL_BYTES - 1, 0, 64};
	uint8_t message[TRIAL_BYTES], expected[SCOUT_SHA256_BYTES], got[SCOUT_SHA256_BYTES];

	for (size_t i = 0; i < sizeof(message); i++)
		message[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		if (!through_evp(sha, message, lengths[i], expected) || !direct(sha, message, lengths[i], got) ||
		    memcmp(expected, got, sizeof(got)) != 0)
			return false;
	}
	return true;
}

static void
drop_ctx(struct scout__sha256 *sha)
{
	if (sha->ctx)
		sha->freectx(sha->ctx);
	sha->ctx = NULL;
}

/* Use the provider's own functions if that works. */
static int
go_direct(struct scout__sha256 *sha)
{
	const OSSL_PROVIDER *provider = EVP_MD_get0_provider(sha->md);

	if (!provider || !find_functions(sha, provider))
		return 0;
	sha->ctx = sha->newctx(OSSL_PROVIDER_get0_provider_ctx(provider));
	if (!sha->ctx)
		return SCOUT_ERR_NOMEM;
	if (starts_over(sha)) {
		EVP_MD_CTX_free(sha->evp);
		sha->evp = NULL;
	} else {
		drop_ctx(sha);
	}
	return 0;
}

static int
fetch(struct scout__sha256 *sha)
{
	sha->evp = EVP_MD_CTX_new();
	if (!sha->evp)
		return SCOUT_ERR_NOMEM;
	sha->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!sha->md)
		return SCOUT_ERR_UNSUPPORTED;
	if (EVP_DigestInit_ex2(sha->evp, sha->md, NULL) != 1)
		return SCOUT_ERR_SYSTEM;
	return go_direct(sha);
}

int
scout__sha256_init(struct scout__sha256 *sha)
{
	int rc;

	*sha = (struct scout__sha256){0};
	/* The code returned says what failed. libcrypto's own error entries must not stay in a queue that the caller's code may read. */
	(void)ERR_set_mark();
	rc = fetch(sha);
	(void)ERR_pop_to_mark();
	return rc;
}

void
scout__sha256_fini(struct scout__sha256 *sha)
{
	drop_ctx(sha);
	EVP_MD_CTX_free(sha->evp);
	EVP_MD_free(sha->md);
	*sha = (struct scout__sha256){0};
}

int
scout__sha256_digest(struct scout__sha256 *sha, const uint8_t *bytes, size_t len, uint8_t *ret_digest)
{
	bool ok = sha->ctx ? direct(sha, bytes, len, ret_digest) : through_evp(sha, bytes, len, ret_digest);

	return ok ? 0 : SCOUT_ERR_SYSTEM;
}
