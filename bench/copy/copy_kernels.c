/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kvscout-copy: they make and check the data on the GPU.
 *
 * Only scripts/kernels.sh compiles this file, for the GPU, into the PTX text copy_kernels.ptx beside it.
 */
#include "copy_kernels.h"

#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((nvptx_kernel)) void

static inline uint64_t
thread_id(void)
{
	return (uint64_t)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

static inline uint64_t
n_threads(void)
{
	return (uint64_t)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}

static inline void
add_wrong(GLOBAL uint64_t *wrong, uint64_t count)
{
	if (count)
		(void)__scoped_atomic_fetch_add(wrong, count, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

KERNEL
copy_flat(uint32_t mode, GLOBAL uint64_t *memory, uint64_t words, uint64_t first, GLOBAL uint64_t *wrong)
{
	uint64_t count = 0;

	for (uint64_t i = thread_id(); i < words; i += n_threads())
		count += copy_pattern_do((enum copy_mode)mode, memory + i, first + i);
	add_wrong(wrong, count);
}

KERNEL
copy_pages(uint32_t mode, const struct copy_pages pages, uint64_t first, uint64_t end, GLOBAL uint64_t *wrong)
{
	uint64_t count = 0;

	for (uint64_t i = first + thread_id(); i < end; i += n_threads())
		count += copy_pattern_do((enum copy_mode)mode, copy_pages_word(&pages, i), pages.first_word + i);
	add_wrong(wrong, count);
}
