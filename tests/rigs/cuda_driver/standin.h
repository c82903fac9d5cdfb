/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The insides of the stand-in for libcuda.so.1. One lock for all state; copies and kernels run without it, each stream on a thread of
 * its own, so that a sanitizer sees two streams touch the same bytes where their order is wrong.
 *
 *   standin.c          the process: knobs, faults, counts, what each call begins with
 *   standin_device.c   devices, contexts, error names
 *   standin_memory.c   which address is what
 *   standin_stream.c   streams, events, captures
 *   standin_copy.c     what is enqueued: copies, kernels, modules
 *   standin_graph.c    what was captured, and is launched again
 *   standin_gpu.c      threads that execute it
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_types.h"
#include "standin_control.h"
#include "tile.h"

#ifndef STANDIN_DRIVER
#define STANDIN_DRIVER 13000
#endif

#define STANDIN_ENTRIES(X)                                                                                             \
	X(cuInit)                                                                                                      \
	X(cuDriverGetVersion)                                                                                          \
	X(cuDeviceGetCount)                                                                                            \
	X(cuDeviceGet)                                                                                                 \
	X(cuDeviceGetName)                                                                                             \
	X(cuDeviceTotalMem_v2)                                                                                         \
	X(cuDeviceGetPCIBusId)                                                                                         \
	X(cuDeviceGetAttribute)                                                                                        \
	X(cuDevicePrimaryCtxRetain)                                                                                    \
	X(cuDevicePrimaryCtxRelease_v2)                                                                                \
	X(cuDevicePrimaryCtxGetState)                                                                                  \
	X(cuCtxSetCurrent)                                                                                             \
	X(cuCtxGetCurrent)                                                                                             \
	X(cuCtxPushCurrent_v2)                                                                                         \
	X(cuCtxPopCurrent_v2)                                                                                          \
	X(cuCtxGetStreamPriorityRange)                                                                                 \
	X(cuThreadExchangeStreamCaptureMode)                                                                           \
	X(cuGetErrorName)                                                                                              \
	X(cuGetErrorString)                                                                                            \
	X(cuMemAlloc_v2)                                                                                               \
	X(cuMemFree_v2)                                                                                                \
	X(cuMemGetInfo_v2)                                                                                             \
	X(cuMemHostAlloc)                                                                                              \
	X(cuMemFreeHost)                                                                                               \
	X(cuMemHostRegister_v2)                                                                                        \
	X(cuMemHostUnregister)                                                                                         \
	X(cuMemHostGetDevicePointer_v2)                                                                                \
	X(cuMemGetAllocationGranularity)                                                                               \
	X(cuMemAddressReserve)                                                                                         \
	X(cuMemCreate)                                                                                                 \
	X(cuMemMap)                                                                                                    \
	X(cuMemSetAccess)                                                                                              \
	X(cuIpcGetMemHandle)                                                                                           \
	X(cuIpcOpenMemHandle_v2)                                                                                       \
	X(cuIpcCloseMemHandle)                                                                                         \
	X(cuPointerGetAttribute)                                                                                       \
	X(cuStreamCreateWithPriority)                                                                                  \
	X(cuStreamDestroy_v2)                                                                                          \
	X(cuStreamSynchronize)                                                                                         \
	X(cuStreamWaitEvent)                                                                                           \
	X(cuStreamIsCapturing)                                                                                         \
	X(cuStreamBeginCapture_v2)                                                                                     \
	X(cuStreamEndCapture)                                                                                          \
	X(cuEventCreate)                                                                                               \
	X(cuEventDestroy_v2)                                                                                           \
	X(cuEventRecord)                                                                                               \
	X(cuEventRecordWithFlags)                                                                                      \
	X(cuEventQuery)                                                                                                \
	X(cuEventSynchronize)                                                                                          \
	X(cuEventElapsedTime)                                                                                          \
	X(cuMemcpyHtoDAsync_v2)                                                                                        \
	X(cuMemcpyDtoHAsync_v2)                                                                                        \
	X(cuMemcpyDtoDAsync_v2)                                                                                        \
	X(cuMemsetD8Async)                                                                                             \
	X(cuMemcpyBatchAsync)                                                                                          \
	X(cuMemcpyBatchAsync_v2)                                                                                       \
	X(cuModuleLoadData)                                                                                            \
	X(cuModuleUnload)                                                                                              \
	X(cuModuleGetFunction)                                                                                         \
	X(cuLaunchKernel)                                                                                              \
	X(cuGraphInstantiateWithFlags)                                                                                 \
	X(cuGraphLaunch)

/*
 * What is counted beside calls. `operations` that were executed. Copies by where their bytes went; `pageable`: copies whose host memory was not registered, which the
 * driver makes the caller wait for; `read_early`: sources of a batch that were read before its turn, as it allowed; `faults`: calls
 * that a knob failed; `misused`: calls that failed because they are wrong; `working`: calls that make or enqueue something; `captures_broken`, `drawn_in`: captures that a call has invalidated, streams that a wait has drawn into one;
 * `live`: allocations, registrations, streams, events, modules that were not given back.
 */
#define STANDIN_COUNTS(X)                                                                                              \
	X(operations)                                                                                                  \
	X(to_device)                                                                                                   \
	X(to_host)                                                                                                     \
	X(inside)                                                                                                      \
	X(bytes_to_device)                                                                                             \
	X(bytes_to_host)                                                                                               \
	X(bytes_inside)                                                                                                \
	X(pageable)                                                                                                    \
	X(read_early)                                                                                                  \
	X(kernels)                                                                                                     \
	X(threads)                                                                                                     \
	X(tiles)                                                                                                       \
	X(bytes_by_kernels)                                                                                            \
	X(most_pending)                                                                                                \
	X(faults)                                                                                                      \
	X(refused)                                                                                                     \
	X(bad_addresses)                                                                                               \
	X(misused)                                                                                                     \
	X(working)                                                                                                     \
	X(captures_broken)                                                                                             \
	X(drawn_in)                                                                                                    \
	X(live)

#define STANDIN_ENTRY_OF(name) ENTRY_##name,
enum standin_entry {
	STANDIN_ENTRIES(STANDIN_ENTRY_OF) N_ENTRIES
};
#define STANDIN_COUNT_OF(name) COUNT_##name,
enum standin_count {
	STANDIN_COUNTS(STANDIN_COUNT_OF) N_COUNTS
};

#define MAX_DEVICES 8
#define MAX_CAPTURES 16
#define MAX_FAULTS 16
#define MAX_STACK 16
#define QUEUE_OPS 1024u /* of one stream; then a call waits */
#define ALIAS (UINT64_C(1) << 46)

/* One record of an event; whoever waits for it holds a reference. */
struct standin_record {
	unsigned refs;
	bool done;
	int64_t at_ns;
};

struct standin_capture {
	bool in_use, invalid;
	enum driver_capture_mode mode;
	pthread_t thread;
	struct standin_stream *origin;
	struct standin_graph *graph;
};

struct standin_event {
	struct standin_event *next;
	struct standin_device *device;
	struct standin_record *last;      /* NULL: never recorded, or last in a capture */
	bool in_capture;                  /* last recorded in one ... */
	struct standin_capture *captured; /* ... which has not ended */
	struct standin_stream *from;      /* the stream of that */
	bool timed;
};

enum standin_kind {
	KIND_COPY,
	KIND_FILL,
	KIND_KERNEL,
	KIND_RECORD,
	KIND_WAIT,
	KIND_HOLD
};

struct standin_launch {
	struct scout__tile_span span;
	uint32_t blocks, threads;
};

struct standin_op {
	struct standin_op *next;
	enum standin_kind kind;
	uint64_t number; /* in the order of calls */
	uintptr_t to, from;
	size_t bytes;
	bool by_host_address;          /* its host side is given by the host's address */
	bool to_device, from_device;   /* what the call said it is; both false: the addresses tell */
	void *owned;                   /* bytes that were read early */
	struct standin_launch *launch; /* KERNEL */
	struct standin_record *record; /* RECORD, WAIT */
	CUevent event;                 /* RECORD, WAIT, of a graph */
	unsigned char byte;            /* FILL */
	bool released;                 /* HOLD */
};

struct standin_stream {
	struct standin_stream *next;
	struct standin_device *device;
	bool blocking; /* orders itself with the legacy stream */
	bool started, busy, dying, ended;
	pthread_t thread;
	struct standin_op *first, **end; /* the first stays here while it is executed */
	uint32_t n;
	struct standin_capture *capture; /* that it is part of */
	bool joined;                     /* the capture's origin waits for it */
	uint64_t seed;
};

struct standin_device {
	int ordinal;
	unsigned refs; /* of the primary context */
	int broken;    /* each call of the context returns it */
	bool failing;  /* nothing more begins, and when all that runs is over, it is broken */
	uint64_t allocated;
	struct standin_stream legacy, per_thread;
};

enum standin_range_kind {
	RANGE_ALLOCATED,
	RANGE_DECLARED,
	RANGE_HOST,      /* allocated by us */
	RANGE_REGISTERED /* the caller's */
};

struct standin_range {
	uintptr_t base;
	size_t bytes;
	enum standin_range_kind kind;
	int device;
};

struct standin_fault {
	enum standin_entry entry; /* N_ENTRIES: any that makes or enqueues something */
	uint64_t n;               /* 0: free */
	bool onward;
	int code;
};

struct standin_knobs {
	bool all, alias, say;
	int devices, driver, capability;
	char bus[32];
	uint64_t memory, delay_us, seed;
	struct standin_fault faults[MAX_FAULTS];
	uint64_t sticky; /* 0: none */
	int sticky_code;
	char stats[512];
};

/* All of it: G:mu. */
struct standin {
	pthread_mutex_t mu;
	pthread_cond_t cond; /* whatever has changed */
	bool initialized, closed;
	bool forked; /* a child of a process that used the device: as with the driver, nothing works */
	bool used;
	struct standin_knobs knobs;
	bool (*gate)(void *user), (*pin_gate)(void *user);
	void *gate_user;
	uint64_t calls[N_ENTRIES], counts[N_COUNTS];
	uint64_t number;
	uint64_t pending; /* copies and kernels */
	int64_t stats_ns;
	struct standin_device devices[MAX_DEVICES];
	struct standin_stream *streams; /* those that were created */
	struct standin_stream *ending;  /* that were destroyed and whose threads have not been joined */
	struct standin_event *events;
	struct standin_module *modules;
	struct standin_graph *graphs;
	struct standin_capture captures[MAX_CAPTURES];
	struct standin_range *ranges;
	size_t n_ranges, cap_ranges;
};
extern struct standin standin;

/* Of a thread. */
struct standin_thread {
	struct standin_device *stack[MAX_STACK]; /* of current contexts */
	int depth;
	enum driver_capture_mode mode;
	enum standin_entry entry; /* that it is in */
	bool planned;             /* a knob fails the call */
};
extern _Thread_local struct standin_thread standin_thread;

/* ---- standin.c ---- */

/* What a call needs, and what it may disturb. */
enum standin_needs {
	NEEDS_INIT = 1,
	NEEDS_CONTEXT = 3,
	IS_UNSAFE = 4 /* while a stream is captured, for threads in another mode than relaxed */
};

/* Each call begins with enter(), which takes the lock, also where it fails, and ends with leave(). */
int standin_enter(enum standin_entry entry, unsigned needs);
CUresult standin_leave(int rc);
static inline void
standin_add(enum standin_count count, uint64_t n)
{
	standin.counts[count] += n;
}
void standin_write_stats(bool at_once);
int64_t standin_now_ns(void);

/* ---- the rest: all with the lock ---- */

void standin_device_start(void);
/* Of the thread; NULL: none. */
struct standin_device *standin_current(void);

struct standin_range *standin_range_find(uintptr_t p);
/* Where this process finds @bytes that a device knows by @address, as memory of that device or registered; 0: nowhere. */
uintptr_t standin_resolve(uintptr_t address, size_t bytes, const struct standin_device *device, bool *ret_is_host);
bool standin_is_registered(uintptr_t host, size_t bytes);
bool standin_is_mapped(uintptr_t p, size_t bytes);
/* Give back what was allocated and registered in the context; NULL: in all. */
void standin_memory_end(const struct standin_device *device);

/* NULL: no such stream of the current context, and *ret_rc says so. */
struct standin_stream *standin_stream_of(CUstream handle, int *ret_rc);
/* Before something is enqueued in it: 0, or what a capture makes of it. *ret_captured: it only goes into a graph. */
int standin_stream_take(struct standin_stream *stream, bool *ret_captured);
void standin_record_drop(struct standin_record *record);
/* Record an external event of a graph that is launched, or wait for it. */
int standin_event_of_graph(CUevent handle, struct standin_stream *stream, bool is_record);
/* What an unsafe call does to captures: 0, or that it is forbidden. */
int standin_capture_guard(void);
/* End what was made in the context; NULL: in all. The first drops the lock. */
void standin_stream_end_all(struct standin_device *device);
void standin_module_end_all(const struct standin_device *device);

/* ---- standin_graph.c ---- */

struct standin_graph *standin_graph_new(void);
/* Takes over what @op points at, if it returns 0. */
int standin_graph_add(struct standin_graph *graph, const struct standin_op *op);
void standin_graph_end_all(void);

/* ---- standin_gpu.c ---- */

void standin_stream_init(struct standin_stream *stream, struct standin_device *device, bool blocking);
/* Takes over what @op points at. Waits while the queue is full. Returns 0 or a code. */
int standin_push(struct standin_stream *stream, const struct standin_op *op);
/* Wait until all that is in the stream now is over. Returns 0, or how the device has failed. */
int standin_drain(struct standin_stream *stream);
int standin_drain_device(struct standin_device *device);
/* Whether something that is enqueued or executed touches the host memory. */
bool standin_in_flight(uintptr_t host, size_t bytes);
/* Let the thread end when its queue is empty; for a stream that is in no list. */
void standin_stream_stop(struct standin_stream *stream);
/* Join those that have been stopped: those that have ended, or @all. Drops the lock. */
void standin_join_ended(bool all);
/* Likewise for a default stream, which can be used again then. */
void standin_stream_restart(struct standin_stream *stream);
