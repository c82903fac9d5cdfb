/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_COPY_CUDA_API_H
#define SCOUT_COPY_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tile.h"

/*
 * All CUDA functions that the backend uses, in one table. The table in cuda_api.c calls the driver; tests put another
 * table in its place, so that they reach all states of the engine on a machine without a GPU. This header needs no
 * header of CUDA's, so the engine is compiled and tested everywhere.
 *
 * Functions return a CUresult as a number. Streams and events are CUDA's handles.
 */
#define SCOUT__CUDA_OK 0
#define SCOUT__CUDA_NOT_READY 600
#define SCOUT__CUDA_OLDEST 12000 /* the driver must implement this version of CUDA: driver 525 */

#define SCOUT__CUDA_KERNEL "scout__cuda_move_tiles"

/* The most blocks of a launch, and the threads of each: a multiple of a warp's 32. */
struct scout__cuda_grid {
	uint32_t blocks, threads;
};

/* The kernel, loaded on one device. */
struct scout__cuda_kernel {
	void *module;
	void *function;
	bool is_machine_code; /* false: the driver compiled it */
};

struct scout__cuda_api {
	/* CUDA's version that the driver implements (12020 is 12.2); 0: there is no driver. Initialises nothing. */
	int (*driver_version)(void);
	/* Call once, before anything else; may return SCOUT__CUDA_OK with *ret_n == 0. */
	int (*device_count)(int *ret_n);
	/*
	 * Whether this process uses the device already, and in which device's memory @p lies (-1: in none). Neither
	 * initialises anything: if the process has not initialised CUDA, no memory belongs to a device.
	 */
	bool (*is_in_use)(int device);
	int (*device_of)(const void *p);
	/* PCI address of a device in use: "0000:3B:00.0". */
	int (*bus_id)(char *ret_id, int len, int device);

	/* For the calling thread, for ever: set its device, and let its calls disturb no stream capture elsewhere in the process. */
	int (*enter_thread)(int device);
	/* Likewise for some calls on a thread of the application, which may use another device. After an error do not call leave. */
	int (*enter)(int device);
	void (*leave)(void);
	const char *(*error_name)(int error);

	int (*malloc)(void **ret_p, size_t bytes);
	void (*free)(void *p);
	int (*host_register)(void *base, size_t bytes);
	int (*host_unregister)(void *base);
	int (*host_device_pointer)(void **ret_p, void *host);

	/* @priority is clamped to the device's range. */
	int (*stream_new)(void **ret_stream, int priority);
	void (*stream_free)(void *stream);
	int (*stream_sync)(void *stream);
	int (*stream_wait)(void *stream, void *event);
	/* True: only work for its graph may be enqueued in the stream. True also if CUDA cannot tell. */
	bool (*is_capturing)(void *stream);
	int (*event_new)(void **ret_event);
	void (*event_free)(void *event);
	int (*event_record)(void *event, void *stream);
	int (*event_query)(void *event); /* SCOUT__CUDA_OK, SCOUT__CUDA_NOT_READY or an error */

	/* @to_device: from host memory to the GPU's; else the other way round. */
	int (*copy)(void *to, const void *from, size_t bytes, bool to_device, void *stream);
	/*
	 * @n copies in no particular order; host memory is named by the GPU's address of it. False if one call cannot
	 * do that (then the engine calls copy() for each).
	 */
	bool (*has_batch)(void);
	int (*copy_batch)(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream);
	/* For the device of the calling thread. An error means: this driver cannot load the kernel for this device. */
	int (*load_kernel)(int device, struct scout__cuda_kernel *ret_kernel);
	void (*free_kernel)(const struct scout__cuda_kernel *kernel);
	/* Move a span; its planes are in GPU memory. A span without tiles is legal. */
	int (*launch)(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span,
		      struct scout__cuda_grid grid, void *stream);
};

extern const struct scout__cuda_api scout__cuda_api;

#endif
