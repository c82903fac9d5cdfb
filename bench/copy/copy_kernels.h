/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_KERNELS_H
#define KVSCOUT_BENCH_COPY_KERNELS_H

#include "copy_pattern.h"

/*
 * What the kernels of kvscout-copy and their launches (copy_cuda.c) agree on.
 *
 *   copy_flat        words [first, first + n) in plain memory; counters of wrong bytes lie in GPU memory and are added to
 *   copy_pages       words [first, end) of the items' pages
 *   copy_matmul      c = a * b, n x n floats, n a multiple of COPY_MATMUL_TILE
 *   copy_stream      c = a + 3 b; n vectors of 4 floats
 *   copy_persistent  one block on each multiprocessor, which has no room for another one, for so many rounds; ends earlier when *stop
 *                    (memory of the host, as the GPU sees it) is not 0, or after COPY_WATCHDOG_MS
 *   copy_small       a few microseconds of work
 */
#define COPY_DATA_THREADS 256u
#define COPY_DATA_BLOCKS 2048u
#define COPY_STREAM_THREADS 512u
#define COPY_STREAM_BLOCKS 4096u
#define COPY_PERSISTENT_THREADS 1024u
#define COPY_SMALL_THREADS 256u
#define COPY_MATMUL_TILE 64
#define COPY_MATMUL_THREADS 256u
#define COPY_WATCHDOG_MS 3000u

#endif
