/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tile.h"

/*
 * All CUDA functions that the backend uses; cuda_api.c calls the driver. This header needs no header of CUDA's, so the engine is compiled
 * and tested everywhere.
 *
 * Functions return a CUresult as a number. Streams and events are CUDA's handles.
 */
#define SCOUT__CUDA_OK 0
#define SCOUT__CUDA_NOT_READY 600
#define SCOUT__CUDA_OLDEST 12000 /* the driver must implement this version of CUDA: driver 525 */

#define SCOUT__CUDA_KERNEL "scout__cuda_move_tiles"

/* The most blocks of a launch, and the threads of each: a multiple of a warp's 32. */
#define SCOUT__CUDA_BLOCKS 128u
#define SCOUT__CUDA_THREADS 128u

/* The kernel, loaded on one device. */
struct scout__cuda_kernel {
	void *module;
	void *function;
	bool is_machine_code; /* false: the driver compiled it */
};

/* Call once, before anything else; may return SCOUT__CUDA_OK with *ret_n == 0. */
int scout__cuda_api_device_count(int *ret_n);
/*
 * Whether this process uses the device already, and in which device's memory @p lies (-1: in none). Neither
 * initialises anything: if the process has not initialised CUDA, no memory belongs to a device.
 */
bool scout__cuda_api_is_in_use(int device);
int scout__cuda_api_device_of(const void *p);
/* PCI address of a device in use: "0000:3B:00.0". */
int scout__cuda_api_bus_id(char *ret_id, int len, int device);

/* For the calling thread, for ever: set its device, and let its calls disturb no stream capture elsewhere in the process. */
int scout__cuda_api_enter_thread(int device);
/* Likewise for some calls on a thread of the application, which may use another device. After an error do not call leave. */
int scout__cuda_api_enter(int device);
void scout__cuda_api_leave(void);
const char *scout__cuda_api_error_name(int error);

int scout__cuda_api_malloc(void **ret_p, size_t bytes);
void scout__cuda_api_free(void *p);
int scout__cuda_api_host_register(void *base, size_t bytes);
int scout__cuda_api_host_unregister(void *base);
int scout__cuda_api_host_device_pointer(void **ret_p, void *host);

int scout__cuda_api_stream_new(void **ret_stream); /* of the default priority, which is the lowest */
void scout__cuda_api_stream_free(void *stream);
int scout__cuda_api_stream_sync(void *stream);
int scout__cuda_api_stream_wait(void *stream, void *event);
/* True: only work for its graph may be enqueued in the stream. True also if CUDA cannot tell. */
bool scout__cuda_api_is_capturing(void *stream);
int scout__cuda_api_event_new(void **ret_event);
void scout__cuda_api_event_free(void *event);
int scout__cuda_api_event_record(void *event, void *stream);
int scout__cuda_api_event_query(void *event); /* SCOUT__CUDA_OK, SCOUT__CUDA_NOT_READY or an error */

/* @to_device: from host memory to the GPU's; else the other way round. */
int scout__cuda_api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream);
/*
 * @n copies in no particular order; host memory is named by the GPU's address of it. False if one call cannot
 * do that (then the engine calls copy() for each).
 */
bool scout__cuda_api_has_batch(void);
int scout__cuda_api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream);
/* For the device of the calling thread. An error means: this driver cannot load the kernel for this device. */
int scout__cuda_api_load_kernel(int device, struct scout__cuda_kernel *ret_kernel);
void scout__cuda_api_free_kernel(const struct scout__cuda_kernel *kernel);
/* Move a span; its planes are in GPU memory. A span without tiles is legal. */
int scout__cuda_api_launch(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span, void *stream);
