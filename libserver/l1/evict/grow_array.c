/* SPDX-License-Identifier: Apache-2.0 */
#include "grow_array.h"

#include <stddef.h>
#include <sys/mman.h>

void *
scout__grow_array(void *p, uint64_t old, uint64_t bytes)
{
	if (bytes > SIZE_MAX)
		return NULL;
	if (old == 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	else
		p = mremap(p, old, bytes, MREMAP_MAYMOVE);
	return p == MAP_FAILED ? NULL : p;
}
