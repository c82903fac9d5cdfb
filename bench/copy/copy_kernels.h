/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_KERNELS_H
#define KVSCOUT_BENCH_COPY_KERNELS_H

#include "copy_pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Kernels of kvscout-copy. Each function enqueues on @stream (a cudaStream_t) and returns a cudaError_t. Counters of
 * wrong bytes lie in GPU memory and are added to.
 */

/* Words [first, first + bytes / 8) in plain memory. */
int copy_flat_launch(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream);
/* Words [first, end) of the items' pages. */
int copy_pages_launch(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end,
		      uint64_t *wrong, void *stream);

/* c = a * b, n x n floats, n a multiple of 64. */
int copy_matmul_launch(const float *a, const float *b, float *c, int n, void *stream);
/* c = a + 3 b; a multiple of 4 floats, aligned to 16 bytes. */
int copy_stream_launch(const float *a, const float *b, float *c, uint64_t n, void *stream);
/*
 * One block on each of @n_sms multiprocessors, which has no room for another one, for @rounds rounds. Ends earlier
 * when *stop (memory of the host, as the GPU sees it) is not 0, or after COPY_WATCHDOG_MS.
 */
int copy_persistent_launch(float *out, int n_sms, uint64_t rounds, const uint32_t *stop, void *stream);
#define COPY_WATCHDOG_MS 3000u
/* A few microseconds of work. */
int copy_small_launch(float *out, int n_blocks, void *stream);

#ifdef __cplusplus
}
#endif

#endif
