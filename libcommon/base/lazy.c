/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Threads: any; no state, the memory is the caller's. An anonymous private mapping. MAP_NORESERVE: a limit is no forecast of use,
 * so the mapping must not count against the machine's memory. Rejected: calloc(), which maps large blocks as well, but takes memory
 * from the heap, and clears it, once a larger block was freed before (glibc's threshold moves), and leaves the choice of huge pages
 * to the machine.
 */
#include "lazy.h"

#include <stdint.h>
#include <sys/mman.h>

#define PIECE_BYTES ((size_t)4 << 20) /* of whole huge pages; while one is freed, no other thread can map anything */

void *
scout__lazy_alloc(size_t bytes)
{
	void *memory;

	if (bytes == 0)
		return NULL;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	(void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* a kernel without huge pages refuses, and needs no advice */
	return memory;
}

void
scout__lazy_free(void *memory, size_t bytes)
{
	for (size_t done = 0; memory && done < bytes; done += PIECE_BYTES)
		(void)munmap((uint8_t *)memory + done, bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
}
