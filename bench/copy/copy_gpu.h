/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_GPU_H
#define KVSCOUT_BENCH_COPY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "copy_pattern.h"
#include "copy_plan.h"
#include "cuda_api.h"

/*
 * What kvscout-copy needs of a GPU: the engine and its table of the driver's functions, and what only a measurement
 * needs. The one in copy_cuda.c is CUDA; a test puts its stand-in in the place, so that all of the tool but CUDA
 * itself runs on a machine without a GPU. Functions return a CUresult as a number.
 */

struct copy_gpu_info {
	char name[128];
	char link[64]; /* "32.0 GT/s PCIe x16", or "" */
	int driver;    /* CUDA's version that it implements */
	int n_sms;
	bool has_batch;
	uint64_t free_bytes, total_bytes; /* of GPU memory */
};

/* Parameters of the loads; small ones make a test short. */
struct copy_load_size {
	int matmul_n;
	uint64_t stream_floats;
	uint64_t persistent_rounds;
	unsigned int graph_kernels;
	double window_ms;           /* how long a load runs */
	unsigned int point_limit_s; /* of a point that says nothing */
};

struct copy_gpu {
	const struct scout__cuda_api *api;
	const struct scout__copy_ops *ops;
	int (*info)(int device, struct copy_gpu_info *ret_info);
	/* Pinned memory, as the driver likes it best. */
	int (*host_alloc)(void **ret_p, size_t bytes);
	void (*host_free)(void *p);
	/* Events that know the time. */
	int (*timer_new)(void **ret_event);
	int (*elapsed_ms)(float *ret_ms, void *begin, void *end);
	int (*flat)(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream);
	int (*pages)(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
		     void *stream);
	/* The work beside which copies run: make it, enqueue one unit, end what runs, free it. */
	int (*load_new)(enum copy_load load, const struct copy_load_size *size, void *stream, void **ret_load);
	int (*load_launch)(void *load, void *stream);
	void (*load_stop)(void *load);
	void (*load_free)(void *load);
};

extern const struct copy_gpu copy_gpu_cuda;

/*
 * Measure and report on @gpu; what copy_cuda_run() does. @size: NULL: as for a data center's GPU. Returns the exit
 * status.
 */
int copy_run(const struct copy_options *opt, const struct copy_gpu *gpu, const struct copy_load_size *size);

#endif
