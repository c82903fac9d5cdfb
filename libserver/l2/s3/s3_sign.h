/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "s3_text.h"

/*
 * AWS Signature, version 4, as S3 takes it: the path is encoded once, and each request names the hash of its payload.
 * Threads: any. Nothing here blocks.
 */

#define SCOUT__S3_MAX_PAIRS 16u
#define SCOUT__S3_HASH_TEXT 65u /* SHA-256 in hex digits, and NUL */
#define SCOUT__S3_DATE_TEXT 17u /* 20130524T000000Z, and NUL */

struct scout__s3_pair {
	const char *name, *value;
};

struct scout__s3_to_sign {
	const char *method;
	const char *path;  /* encoded, from its first slash on */
	const char *query; /* as scout__s3_query() wrote it; "": none */
	uint32_t n_headers;
	struct scout__s3_pair
		headers[SCOUT__S3_MAX_PAIRS]; /* all that are signed, host too; lower-case names; sorted here */
	const char *payload;                  /* hash in hex digits, or UNSIGNED-PAYLOAD */
	const char *region;
	const char *date; /* of SCOUT__S3_DATE_TEXT */
};

/* Append @pairs as a query, encoded and sorted by name: as one signs it, and sends it. Sorts @pairs. */
void scout__s3_query(struct scout__s3_text *text, struct scout__s3_pair *pairs, uint32_t n);
/* Put the value of the header Authorization. False: libcrypto failed, or it did not fit. Sorts the headers. */
bool scout__s3_sign(struct scout__s3_to_sign *what, const char *access_key, const char *secret_key,
		    struct scout__s3_text *ret_value);
/* SHA-256 of @n parts as hex digits. False: libcrypto failed. */
bool scout__s3_hash(const struct iovec *parts, uint32_t n, char ret_text[SCOUT__S3_HASH_TEXT]);
/* Seconds since 1970 as 20130524T000000Z. */
void scout__s3_date(int64_t seconds, char ret_text[SCOUT__S3_DATE_TEXT]);
