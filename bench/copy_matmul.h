/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_MATMUL_H
#define KVSCOUT_BENCH_COPY_MATMUL_H

#ifdef __cplusplus
extern "C" {
#endif

/* c = a * b, n x n floats of GPU memory, n a multiple of 64. Returns a cudaError_t. */
int copy_matmul_launch(const float *a, const float *b, float *c, int n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
