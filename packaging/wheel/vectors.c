/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the kind of instructions that XXH3 was compiled for, and a digest of its results for all lengths up to some stripes. */
#define XXH_INLINE_ALL
#include "xxhash.h"

#include <stdio.h>

#define BYTES 5000

int
main(void)
{
	static const char *const kinds[] = {"plain-C", "SSE2", "AVX2", "AVX-512", "NEON"};
	static unsigned char bytes[BYTES];
	unsigned random = 1;
	XXH64_hash_t sum = 0;

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
	for (size_t len = 0; len <= BYTES; len++) {
		XXH128_hash_t both = XXH3_128bits_withSeed(bytes, len, sum);

		sum = XXH3_64bits_withSeed(bytes, len, sum ^ both.high64 ^ both.low64);
	}
	printf("%s %016llx\n", kinds[XXH_VECTOR], (unsigned long long)sum);
	return 0;
}
