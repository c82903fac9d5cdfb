/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "copy_pattern.h"
#include "copy_plan.h"
#include "cuda_api.h"

/*
 * What kvscout-copy needs of a GPU: the engine, and what only a measurement
 * needs. The one in copy_cuda.c is CUDA; a test puts its stand-in in the place, so that all of the tool but CUDA
 * itself runs on a machine without a GPU. Functions return a CUresult as a number.
 */

struct copy_gpu_info {
	char name[128];
	char link[64]; /* "32.0 GT/s PCIe x16", or "" */
	int driver;    /* CUDA's version that it implements */
	bool has_batch;
	uint64_t free_bytes, total_bytes; /* of GPU memory */
};

struct copy_gpu {
	const struct scout__copy_ops *ops;
	int (*info)(int device, struct copy_gpu_info *ret_info);
	/* Pinned memory, as the driver likes it best. */
	int (*host_alloc)(void **ret_p, size_t bytes);
	void (*host_free)(void *p);
	int (*flat)(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream);
	int (*pages)(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
		     void *stream);
};

extern const struct copy_gpu copy_gpu_cuda;

/*
 * Measure and report on @gpu; what copy_cuda_run() does. @point_limit_s: after so long a point that says nothing is ended. Returns the exit
 * status.
 */
int copy_run(const struct copy_options *opt, const struct copy_gpu *gpu, unsigned int point_limit_s);
