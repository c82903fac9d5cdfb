/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_GPU_VMM_H
#define KVSCOUT_TESTS_GPU_VMM_H

#include <stdint.h>

/*
 * GPU memory as torch's expandable segments take it: one range of addresses with memory of its own for each granule, so that planes
 * and blocks lie across their borders.
 */
void *vmm_alloc(uint64_t bytes);

#endif
