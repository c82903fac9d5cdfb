/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_GPU_VMM_H
#define KVSCOUT_TESTS_GPU_VMM_H

#include <stdint.h>

#include <cuda_runtime_api.h>

/* What the programs on a GPU take of CUDA. */
void *plain_alloc(uint64_t bytes);
cudaStream_t new_stream(void);
cudaEvent_t new_event(void);

/* Some 20 ms of work. */
void keep_busy(cudaStream_t stream);

/*
 * GPU memory as torch's expandable segments take it: one range of addresses with memory of its own for each granule, so that planes
 * and blocks lie across their borders.
 */
void *vmm_alloc(uint64_t bytes);

#endif
