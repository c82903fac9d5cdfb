/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_COPY_CUDA_API_H
#define SCOUT_COPY_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tile.h"

/*
 * All of CUDA that the backend uses, behind one table of functions. The one in cuda_api.c calls the driver;
 * tests put another one in its place, so the engine's states can be walked on a machine without a GPU.
 * Nothing in here needs a header of CUDA's, so the engine is compiled and tested everywhere.
 *
 * Functions return a CUresult as a number. Streams and events are CUDA's handles.
 */
#define SCOUT__CUDA_OK 0
#define SCOUT__CUDA_NOT_READY 600
#define SCOUT__CUDA_OLDEST 12000 /* the driver must implement this version of CUDA: driver 525 */

/* The kernel's name, and the shape of its blocks: what it is compiled with, and what it is launched with. */
#define SCOUT__CUDA_KERNEL "scout__cuda_move_tiles"
#define SCOUT__CUDA_THREADS 512u
#define SCOUT__CUDA_GROUPS (SCOUT__CUDA_THREADS / SCOUT__TILE_LANES) /* of lanes, in one block */

/* The kernel, loaded on one device. */
struct scout__cuda_kernel {
	void *module;
	void *function;
	bool is_machine_code; /* else the driver compiled it */
};

struct scout__cuda_api {
	/* CUDA's version that the driver implements (12020 is 12.2); 0: there is no driver. Initialises nothing. */
	int (*driver_version)(void);
	/* Once, before anything else; may say SCOUT__CUDA_OK with *ret_n == 0. */
	int (*device_count)(int *ret_n);
	/*
	 * Whether this process uses the device already, and in memory of which device @p lies (-1: of none).
	 * They initialise nothing: where the process has not, no memory is a device's.
	 */
	bool (*is_in_use)(int device);
	int (*device_of)(const void *p);
	/* PCI address of a device in use: "0000:3B:00.0". */
	int (*bus_id)(char *ret_id, int len, int device);

	/* Of the calling thread, for ever: its device, and that its calls disturb no stream capture elsewhere in the process. */
	int (*enter_thread)(int device);
	/* Likewise for some calls on a thread of the application's, which may have another device. After an error no leave. */
	int (*enter)(int device);
	void (*leave)(void);
	const char *(*error_name)(int error);

	int (*malloc)(void **ret_p, size_t bytes);
	void (*free)(void *p);
	int (*host_register)(void *base, size_t bytes);
	int (*host_unregister)(void *base);
	int (*host_device_pointer)(void **ret_p, void *host);

	/* @priority is clamped to what the device has. */
	int (*stream_new)(void **ret_stream, int priority);
	void (*stream_free)(void *stream);
	int (*stream_sync)(void *stream);
	int (*stream_wait)(void *stream, void *event);
	/* True: nothing may be enqueued in it that is not meant for its graph. True also where CUDA cannot tell. */
	bool (*is_capturing)(void *stream);
	int (*event_new)(void **ret_event);
	void (*event_free)(void *event);
	int (*event_record)(void *event, void *stream);
	int (*event_query)(void *event); /* SCOUT__CUDA_OK, SCOUT__CUDA_NOT_READY or an error */

	/* @to_device: from host memory to the GPU's; else the other way round. */
	int (*copy)(void *to, const void *from, size_t bytes, bool to_device, void *stream);
	/*
	 * @n copies in no particular order, of host memory by the GPU's address of it; whether one call can
	 * do that (else the engine calls copy() for each).
	 */
	bool (*has_batch)(void);
	int (*copy_batch)(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream);
	/* For the device of the calling thread. An error: this driver cannot have the kernel for this device. */
	int (*load_kernel)(int device, struct scout__cuda_kernel *ret_kernel);
	void (*free_kernel)(const struct scout__cuda_kernel *kernel);
	/* Move a span; its planes are in GPU memory. @n_groups: groups of lanes that share the tiles. A span without tiles is legal. */
	int (*launch)(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span, uint32_t n_groups,
		      void *stream);
};

extern const struct scout__cuda_api scout__cuda_api;

#endif
