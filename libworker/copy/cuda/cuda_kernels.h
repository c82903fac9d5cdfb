/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_COPY_CUDA_KERNELS_H
#define SCOUT_COPY_CUDA_KERNELS_H

#include "tile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernel. Returns a cudaError_t. */
int scout__cuda_load_tiles(void);
/* Launch the kernel on @stream (a cudaStream_t). Returns a cudaError_t. */
int scout__cuda_launch_tiles(const struct scout__tile_span *span, uint32_t n_groups, void *stream);

#ifdef __cplusplus
}
#endif

#endif
