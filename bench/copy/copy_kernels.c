/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kvscout-copy: they make and check the data on the GPU, and they are the work beside which copies are
 * measured. None of the latter is fast as such things go, and none need be: only their change is reported.
 *
 * Only scripts/kernels.sh compiles this file, for the GPU, into the PTX text copy_kernels.ptx beside it.
 */
#include "copy_kernels.h"

#define GLOBAL __attribute__((address_space(1)))
#define SHARED static __attribute__((address_space(3)))
#define KERNEL __attribute__((nvptx_kernel)) void

#define TILE 64 /* of the result of the matrix product, for one block */
#define DEPTH 16
#define EACH 4 /* results of one thread, in each direction */
#define SIDE (TILE / EACH)
/* Registers of a thread: the engine's kernel finds no room beside them. */
#define SUMS 40
/*
 * Rounds of the persistent kernel between two looks at its stop word, some 0.7 ms: a look waits for the link, which
 * copies keep busy.
 */
#define LOOK_ROUNDS 4000u

typedef float vector4 __attribute__((vector_size(16)));

_Static_assert(TILE == COPY_MATMUL_TILE && SIDE * SIDE == COPY_MATMUL_THREADS, "copy_kernels.h");

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

static inline uint64_t
now_ns(void)
{
	return (uint64_t)__nvvm_read_ptx_sreg_globaltimer();
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

KERNEL
copy_matmul(const GLOBAL float *a, const GLOBAL float *b, GLOBAL float *c, uint32_t n)
{
	SHARED float as[DEPTH][TILE + 1];
	SHARED float bs[DEPTH][TILE];
	uint32_t row = __nvvm_read_ptx_sreg_ctaid_y() * TILE, column = __nvvm_read_ptx_sreg_ctaid_x() * TILE;
	uint32_t thread = __nvvm_read_ptx_sreg_tid_x(), x = thread % SIDE, y = thread / SIDE;
	float results[EACH][EACH] = {{0}};

	for (uint32_t k = 0; k < n; k += DEPTH) {
		for (uint32_t i = thread; i < TILE * DEPTH; i += SIDE * SIDE) {
			as[i % DEPTH][i / DEPTH] = a[(uint64_t)(row + i / DEPTH) * n + k + i % DEPTH];
			bs[i / TILE][i % TILE] = b[(uint64_t)(k + i / TILE) * n + column + i % TILE];
		}
		__syncthreads();
#pragma unroll
		for (uint32_t d = 0; d < DEPTH; d++)
#pragma unroll
			for (uint32_t i = 0; i < EACH; i++)
#pragma unroll
				for (uint32_t j = 0; j < EACH; j++)
					results[i][j] += as[d][y * EACH + i] * bs[d][x * EACH + j];
		__syncthreads();
	}
#pragma unroll
	for (uint32_t i = 0; i < EACH; i++)
#pragma unroll
		for (uint32_t j = 0; j < EACH; j++)
			c[(uint64_t)(row + y * EACH + i) * n + column + x * EACH + j] = results[i][j];
}

KERNEL
copy_stream(const GLOBAL vector4 *a, const GLOBAL vector4 *b, GLOBAL vector4 *c, uint64_t n)
{
	for (uint64_t i = thread_id(); i < n; i += n_threads())
		c[i] = a[i] + 3 * b[i];
}

KERNEL
copy_persistent(GLOBAL float *out, uint64_t rounds, const volatile GLOBAL uint32_t *stop)
{
	uint32_t thread = __nvvm_read_ptx_sreg_tid_x();
	uint64_t until = now_ns() + (uint64_t)COPY_WATCHDOG_MS * 1000000;
	float sum[SUMS], total = 0, factor = 1.0f - 1e-6f * (float)thread;
	int over = 0;

#pragma unroll
	for (uint32_t i = 0; i < SUMS; i++)
		sum[i] = (float)(thread + i);
	for (uint64_t round = 0; round < rounds && !over; round += LOOK_ROUNDS) {
#pragma nounroll
		for (uint32_t k = 0; k < LOOK_ROUNDS; k++) {
#pragma unroll
			for (uint32_t i = 0; i < SUMS; i++)
				sum[i] = sum[i] * factor + 0.5f;
		}
		/* One thread looks over the link; all of the block leave together. */
		over = __nvvm_bar0_or(thread == 0 && (now_ns() > until || *stop != 0));
	}
#pragma unroll
	for (uint32_t i = 0; i < SUMS; i++)
		total += sum[i];
	out[thread_id()] = total;
}

KERNEL
copy_small(GLOBAL float *out)
{
	float sum = (float)__nvvm_read_ptx_sreg_tid_x();

#pragma nounroll
	for (int k = 0; k < 256; k++)
		sum = sum * 0.999f + 0.5f;
	out[thread_id()] = sum;
}
