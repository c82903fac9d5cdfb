/* SPDX-License-Identifier: Apache-2.0 */
/* SHA256_Init() and its like are deprecated, because programs should follow the host's choice of provider. Here there is no provider. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "sha256.h"

#include <stdbool.h>

/*
 * DESIGN
 *
 * Purpose: sha256.h for builds that carry SHA-256 with them, as the Python wheel does: its libcrypto holds the compression functions
 * of OpenSSL and the detection of the CPU, but no provider and no EVP (packaging/third-parties/meson.build). A whole libcrypto in the
 * wheel would add 3 MB, and a second configuration of OpenSSL to the process that loads it.
 *
 * docs/wheel.md compares its speed with sha256.c on the same CPU.
 *
 * Threads: as in sha256.h.
 */

int
scout__sha256_init(struct scout__sha256 *sha)
{
	return SHA256_Init(&sha->ctx) == 1 ? 0 : SCOUT_ERR_SYSTEM;
}

void
scout__sha256_fini(struct scout__sha256 *sha)
{
	*sha = (struct scout__sha256){0};
}

int
scout__sha256_digest(struct scout__sha256 *sha, const uint8_t *bytes, size_t len, uint8_t *ret_digest)
{
	bool ok = SHA256_Init(&sha->ctx) == 1 && SHA256_Update(&sha->ctx, bytes, len) == 1 &&
		  SHA256_Final(ret_digest, &sha->ctx) == 1;

	return ok ? 0 : SCOUT_ERR_SYSTEM;
}
