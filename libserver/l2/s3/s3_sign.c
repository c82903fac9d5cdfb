/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_sign.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef SCOUT_SHA256_ALONE
/* Deprecated, because programs should follow the host's choice of provider. Such a build has no providers. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#else
#include <openssl/evp.h>
#endif

/*
 * DESIGN
 *
 * Purpose: the signature by hand. libcurl signs too (CURLOPT_AWS_SIGV4), but that of Debian 12 sends no
 * x-amz-content-sha256, which S3 wants, and does not sort the query.
 *
 * All texts are built in buffers of fixed size: a request of ours has a key of some hundred bytes, a dozen headers and a
 * session token. What does not fit is not signed.
 */

#define CANONICAL_BYTES 24576u
#define HASH_BYTES 32u
#define BLOCK_BYTES 64u /* of SHA-256 */

static int
by_name(const void *a, const void *b)
{
	return strcmp(((const struct scout__s3_pair *)a)->name, ((const struct scout__s3_pair *)b)->name);
}

void
scout__s3_query(struct scout__s3_text *text, struct scout__s3_pair *pairs, uint32_t n)
{
	qsort(pairs, n, sizeof(*pairs), by_name);
	for (uint32_t i = 0; i < n; i++) {
		scout__s3_printf(text, "%s", i ? "&" : "");
		scout__s3_put_encoded(text, pairs[i].name, false);
		scout__s3_put(text, "=", 1);
		scout__s3_put_encoded(text, pairs[i].value, false);
	}
}

#ifdef SCOUT_SHA256_ALONE
static bool
digest(const struct iovec *parts, uint32_t n, uint8_t ret[HASH_BYTES])
{
	SHA256_CTX ctx;
	bool is_good = SHA256_Init(&ctx) == 1;

	for (uint32_t i = 0; i < n && is_good; i++)
		is_good = SHA256_Update(&ctx, parts[i].iov_base, parts[i].iov_len) == 1;
	return is_good && SHA256_Final(ret, &ctx) == 1;
}
#else
static bool
digest(const struct iovec *parts, uint32_t n, uint8_t ret[HASH_BYTES])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool is_good = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;

	for (uint32_t i = 0; i < n && is_good; i++)
		is_good = EVP_DigestUpdate(ctx, parts[i].iov_base, parts[i].iov_len) == 1;
	is_good = is_good && EVP_DigestFinal_ex(ctx, ret, NULL) == 1;
	EVP_MD_CTX_free(ctx);
	return is_good;
}
#endif

bool
scout__s3_hash(const struct iovec *parts, uint32_t n, char ret_text[SCOUT__S3_HASH_TEXT])
{
	struct scout__s3_text text = scout__s3_text_in(ret_text, SCOUT__S3_HASH_TEXT);
	uint8_t hash[HASH_BYTES];
	bool is_good = digest(parts, n, hash);

	if (is_good)
		scout__s3_put_hex(&text, hash, sizeof(hash));
	return is_good;
}

void
scout__s3_date(int64_t seconds, char ret_text[SCOUT__S3_DATE_TEXT])
{
	time_t at = (time_t)seconds;
	struct tm tm;

	ret_text[0] = '\0';
	if (gmtime_r(&at, &tm))
		(void)strftime(ret_text, SCOUT__S3_DATE_TEXT, "%Y%m%dT%H%M%SZ", &tm);
}

/* RFC 2104. A secret key may be longer than a block; the keys that are derived from it are not. */
static bool
hmac(const uint8_t *key, size_t key_len, const char *text, size_t len, uint8_t ret[HASH_BYTES])
{
	uint8_t inner[BLOCK_BYTES] = {0}, outer[BLOCK_BYTES], hash[HASH_BYTES];
	const struct iovec long_key = {(void *)(uintptr_t)key, key_len};
	const struct iovec first[] = {{inner, sizeof(inner)}, {(void *)(uintptr_t)text, len}};
	const struct iovec second[] = {{outer, sizeof(outer)}, {hash, sizeof(hash)}};

	if (key_len > sizeof(inner) && !digest(&long_key, 1, inner))
		return false;
	if (key_len <= sizeof(inner))
		memcpy(inner, key, key_len);
	for (size_t i = 0; i < sizeof(inner); i++) {
		outer[i] = inner[i] ^ 0x5c;
		inner[i] ^= 0x36;
	}
	return digest(first, 2, hash) && digest(second, 2, ret);
}

static void
put_names(struct scout__s3_text *text, const struct scout__s3_to_sign *what)
{
	for (uint32_t i = 0; i < what->n_headers; i++)
		scout__s3_printf(text, "%s%s", i ? ";" : "", what->headers[i].name);
}

/* The request as both sides write it before they hash it. */
static void
put_canonical(struct scout__s3_text *text, const struct scout__s3_to_sign *what)
{
	scout__s3_printf(text, "%s\n%s\n%s\n", what->method, what->path, what->query);
	for (uint32_t i = 0; i < what->n_headers; i++)
		scout__s3_printf(text, "%s:%s\n", what->headers[i].name, what->headers[i].value);
	scout__s3_put(text, "\n", 1);
	put_names(text, what);
	scout__s3_printf(text, "\n%s", what->payload);
}

/* The key of a day, a region and a service. */
static bool
derive(const struct scout__s3_to_sign *what, const char *secret_key, uint8_t ret[HASH_BYTES])
{
	char first[260];
	struct scout__s3_text text = scout__s3_text_in(first, sizeof(first));
	uint8_t a[HASH_BYTES], b[HASH_BYTES];
	bool is_good;

	scout__s3_printf(&text, "AWS4%s", secret_key);
	is_good = !text.is_cut && hmac((const uint8_t *)first, text.len, what->date, 8, a) &&
		  hmac(a, sizeof(a), what->region, strlen(what->region), b) && hmac(b, sizeof(b), "s3", 2, a) &&
		  hmac(a, sizeof(a), "aws4_request", 12, ret);
	explicit_bzero(first, sizeof(first));
	explicit_bzero(a, sizeof(a));
	explicit_bzero(b, sizeof(b));
	return is_good;
}

bool
scout__s3_sign(struct scout__s3_to_sign *what, const char *access_key, const char *secret_key,
	       struct scout__s3_text *ret_value)
{
	char *canonical = malloc(CANONICAL_BYTES), hash[SCOUT__S3_HASH_TEXT], string[512];
	struct scout__s3_text to_sign = scout__s3_text_in(string, sizeof(string));
	struct scout__s3_text text;
	uint8_t key[HASH_BYTES], signature[HASH_BYTES];
	bool is_good;

	if (!canonical)
		return false;
	text = scout__s3_text_in(canonical, CANONICAL_BYTES);
	qsort(what->headers, what->n_headers, sizeof(what->headers[0]), by_name);
	put_canonical(&text, what);
	is_good = !text.is_cut && scout__s3_hash(&(struct iovec){canonical, text.len}, 1, hash);
	free(canonical);
	if (!is_good)
		return false;
	scout__s3_printf(&to_sign, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/s3/aws4_request\n%s", what->date, what->date,
			 what->region, hash);
	if (to_sign.is_cut || !derive(what, secret_key, key) || !hmac(key, sizeof(key), string, to_sign.len, signature))
		return false;
	explicit_bzero(key, sizeof(key));
	scout__s3_printf(ret_value, "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/aws4_request,SignedHeaders=", access_key,
			 what->date, what->region);
	put_names(ret_value, what);
	scout__s3_put(ret_value, ",Signature=", 11);
	scout__s3_put_hex(ret_value, signature, sizeof(signature));
	if (ret_value->is_cut)
		ret_value->at[0] = '\0';
	return !ret_value->is_cut;
}
