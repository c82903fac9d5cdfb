/* SPDX-License-Identifier: Apache-2.0 */
#include "own_memory.h"

uint64_t
anonymous_bytes(void)
{
	char line[256];
	unsigned long long kib = UINT64_MAX;
	FILE *f = fopen("/proc/self/status", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
			break;
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_uint_ne(kib, UINT64_MAX);
	return kib * 1024;
}
