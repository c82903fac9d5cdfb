/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/provider.h>
#include <openssl/sha.h>

#include "check_main.h"
#include "sha256.h"

/*
 * DESIGN
 *
 * libcrypto's default provider, and providers of our own that stand for what others may do: one whose contexts serve for one
 * digest only, one that is not recognised. They compute with the default provider of a library context of theirs.
 */

#define N SCOUT_SHA256_BYTES
#define MESSAGE_MAX 300

/* ---- a provider ---- */

struct odd {
	EVP_MD_CTX *evp;
	bool is_used;
};

static struct {
	OSSL_LIB_CTX *lib;
	EVP_MD *md;
	bool only_once; /* a context refuses to start over */
	const OSSL_ALGORITHM *digests;
	int n_contexts; /* that live */
} world;

static void *
odd_newctx(void *provctx)
{
	struct odd *odd = calloc(1, sizeof(*odd));

	(void)provctx;
	ck_assert_ptr_nonnull(odd);
	odd->evp = EVP_MD_CTX_new();
	world.n_contexts++;
	return odd;
}

static void
odd_freectx(void *ctx)
{
	struct odd *odd = ctx;

	EVP_MD_CTX_free(odd->evp);
	free(odd);
	world.n_contexts--;
}

static int
odd_init(void *ctx, const OSSL_PARAM params[])
{
	struct odd *odd = ctx;

	(void)params;
	if (odd->is_used && world.only_once)
		return 0;
	odd->is_used = true;
	return EVP_DigestInit_ex2(odd->evp, world.md, NULL);
}

static int
odd_update(void *ctx, const unsigned char *bytes, size_t len)
{
	struct odd *odd = ctx;

	return EVP_DigestUpdate(odd->evp, bytes, len);
}

static int
odd_final(void *ctx, unsigned char *ret_digest, size_t *ret_len, size_t size)
{
	struct odd *odd = ctx;

	*ret_len = N;
	return size >= N && EVP_DigestFinal_ex(odd->evp, ret_digest, NULL);
}

static int
odd_get_params(OSSL_PARAM params[])
{
	OSSL_PARAM *size = OSSL_PARAM_locate(params, OSSL_DIGEST_PARAM_SIZE);
	OSSL_PARAM *block = OSSL_PARAM_locate(params, OSSL_DIGEST_PARAM_BLOCK_SIZE);

	return (!size || OSSL_PARAM_set_size_t(size, N)) && (!block || OSSL_PARAM_set_size_t(block, 64));
}

static const OSSL_DISPATCH odd_functions[] = {
	{OSSL_FUNC_DIGEST_NEWCTX, (void (*)(void))odd_newctx},
	{OSSL_FUNC_DIGEST_FREECTX, (void (*)(void))odd_freectx},
	{OSSL_FUNC_DIGEST_INIT, (void (*)(void))odd_init},
	{OSSL_FUNC_DIGEST_UPDATE, (void (*)(void))odd_update},
	{OSSL_FUNC_DIGEST_FINAL, (void (*)(void))odd_final},
	{OSSL_FUNC_DIGEST_GET_PARAMS, (void (*)(void))odd_get_params},
	{0, NULL},
};
static const OSSL_ALGORITHM usual_names[] = {
	{"SHA2-256:SHA256", "provider=odd", odd_functions, NULL},
	{NULL, NULL, NULL, NULL},
};
static const OSSL_ALGORITHM long_name[] = {
	{"THE-SECURE-HASH-ALGORITHM-OF-TWO-HUNDRED-AND-FIFTY-SIX-BITS-OF-FIPS-180-4:SHA256", "provider=odd",
	 odd_functions, NULL},
	{NULL, NULL, NULL, NULL},
};

static const OSSL_ALGORITHM *
odd_query(void *provctx, int operation, int *no_cache)
{
	(void)provctx;
	*no_cache = 0;
	return operation == OSSL_OP_DIGEST ? world.digests : NULL;
}

static int
odd_provider(const OSSL_CORE_HANDLE *core, const OSSL_DISPATCH *in, const OSSL_DISPATCH **ret_out, void **ret_provctx)
{
	static const OSSL_DISPATCH out[] = {
		{OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))odd_query},
		{0, NULL},
	};

	(void)core;
	(void)in;
	*ret_out = out;
	*ret_provctx = &world;
	return 1;
}

/* From here on SHA256 is what the odd provider makes of it. */
static OSSL_PROVIDER *
be_odd(const OSSL_ALGORITHM *digests, bool only_once)
{
	OSSL_PROVIDER *provider;

	world.lib = OSSL_LIB_CTX_new();
	world.md = EVP_MD_fetch(world.lib, "SHA256", NULL);
	world.digests = digests;
	world.only_once = only_once;
	ck_assert_ptr_nonnull(world.md);
	ck_assert_int_eq(OSSL_PROVIDER_add_builtin(NULL, "odd", odd_provider), 1);
	provider = OSSL_PROVIDER_load(NULL, "odd");
	ck_assert_ptr_nonnull(provider);
	return provider;
}

static void
end_odd(OSSL_PROVIDER *provider)
{
	ck_assert_int_eq(world.n_contexts, 0);
	ck_assert_int_eq(OSSL_PROVIDER_unload(provider), 1);
	EVP_MD_free(world.md);
	OSSL_LIB_CTX_free(world.lib);
}

/* ---- cases ---- */

/* "abc", of FIPS 180-4. */
static const uint8_t of_abc[N] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
				  0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
				  0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};

static void
assert_digests(struct scout__sha256 *sha)
{
	uint8_t digest[N];

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(scout__sha256_digest(sha, (const uint8_t *)"what comes between", 18, digest), 0);
		ck_assert_int_eq(scout__sha256_digest(sha, (const uint8_t *)"abc", 3, digest), 0);
		ck_assert_mem_eq(digest, of_abc, N);
	}
}

START_TEST(every_length_gives_the_digest_of_libcrypto)
{
	struct scout__sha256 sha;
	uint8_t got[N], expected[N];

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	assert_digests(&sha);
	for (size_t len = 0; len <= MESSAGE_MAX; len++) {
		uint8_t *message = malloc(len ? len : 1); /* exactly as long, for the address sanitizer */

		ck_assert_ptr_nonnull(message);
		for (size_t i = 0; i < len; i++)
			message[i] = (uint8_t)(i * 31 + len);
		ck_assert_int_eq(scout__sha256_digest(&sha, message, len, got), 0);
		ck_assert_ptr_nonnull(SHA256(message, len, expected));
		ck_assert_mem_eq(got, expected, N);
		free(message);
	}
	scout__sha256_fini(&sha);
}
END_TEST

START_TEST(the_default_provider_is_called_directly)
{
	struct scout__sha256 sha;

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	ck_assert_ptr_nonnull(sha.ctx);
	ck_assert_ptr_null(sha.evp);
	scout__sha256_fini(&sha);
}
END_TEST

START_TEST(a_digest_may_lie_within_its_message)
{
	struct scout__sha256 sha;
	uint8_t message[MESSAGE_MAX], expected[N];

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	memset(message, 7, sizeof(message));
	ck_assert_ptr_nonnull(SHA256(message, sizeof(message), expected));
	ck_assert_int_eq(scout__sha256_digest(&sha, message, sizeof(message), message + 3), 0);
	ck_assert_mem_eq(message + 3, expected, N);
	scout__sha256_fini(&sha);
}
END_TEST

START_TEST(another_provider_is_called_directly_too)
{
	OSSL_PROVIDER *provider = be_odd(usual_names, false);
	struct scout__sha256 sha;

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	ck_assert_ptr_nonnull(sha.ctx);
	ck_assert_int_eq(world.n_contexts, 1);
	assert_digests(&sha);
	scout__sha256_fini(&sha);
	end_odd(provider);
}
END_TEST

START_TEST(a_context_that_does_not_start_over_is_left_to_libcrypto)
{
	struct scout__sha256 sha;
	OSSL_PROVIDER *provider;

	/* Later versions start contexts over themselves: with them, such a provider does not work at all. */
	if (OpenSSL_version_num() >= 0x30100000UL)
		return;
	provider = be_odd(usual_names, true);
	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	ck_assert_ptr_null(sha.ctx);
	assert_digests(&sha);
	scout__sha256_fini(&sha);
	end_odd(provider);
}
END_TEST

START_TEST(a_digest_that_is_not_recognised_is_left_to_libcrypto)
{
	OSSL_PROVIDER *provider = be_odd(long_name, false);
	struct scout__sha256 sha;

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	ck_assert_ptr_null(sha.ctx);
	assert_digests(&sha);
	scout__sha256_fini(&sha);
	end_odd(provider);
}
END_TEST

START_TEST(without_the_digest_it_is_unsupported)
{
	OSSL_PROVIDER *provider = OSSL_PROVIDER_load(NULL, "null");
	struct scout__sha256 sha;

	ck_assert_ptr_nonnull(provider);
	ck_assert_int_eq(scout__sha256_init(&sha), SCOUT_ERR_UNSUPPORTED);
	scout__sha256_fini(&sha);
	ck_assert_int_eq(OSSL_PROVIDER_unload(provider), 1);
}
END_TEST
