/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/worker.h>

#include "copy.h"
#include "copy_backends.h"
#include "cuda_engine.h"
#include "cuda_api.h"

/*
 * A GPU for machines without one: the product's own calls of the driver (cuda_api.c), and below them the stand-in for libcuda.so.1
 * (cuda_driver/), which executes what was enqueued on a thread, streams in order, different streams in any order, and fails on demand.
 * It shows that the engine asks for the right things in the right order and survives their failing. Whether CUDA does what it is asked
 * is shown by the programs in tests/gpu alone.
 *
 * "GPU memory" is what was announced by fake_cuda_device_range() or allocated through the driver. A violation is what the stand-in's rules
 * forbid: addresses of nobody's, wrong calls, streams that were drawn into a capture, and more copies of plain memory than the one that
 * each engine makes as it opens.
 */

enum {
	FAKE_CUDA_OUT_OF_MEMORY = 2,
	FAKE_CUDA_NO_DEVICE = 100,
	FAKE_CUDA_INVALID_HANDLE = 400,
	FAKE_CUDA_ILLEGAL_ADDRESS = 700,
	FAKE_CUDA_NOT_SUPPORTED = 801,
	FAKE_CUDA_CAPTURE_ISOLATION = 905,
	FAKE_CUDA_CAPTURE_IMPLICIT = 906,
	FAKE_CUDA_CAPTURED_EVENT = 907
};

struct fake_cuda_options {
	int n_devices;
	int device;            /* that has the memory; a call from a thread that entered another one is a violation */
	const char *bus_id;    /* of that device; NULL: CUDA does not say */
	const void *elsewhere; /* is memory of the device behind that one */
	int driver_version;    /* 0: 12080; negative: there is no driver */
	int count_error;       /* of device_count */
	int refuse_kernel;     /* the driver refuses the kernel with this error; 0: no */
	bool no_batch;         /* the driver has no batch copies */
	int refuse_batch;      /* ... has them, and refuses each with this error; 0: no */
	uint64_t alias;        /* pinned memory has this much higher addresses on the GPU; 0: the host's */
	uint64_t seed;         /* of the order in which streams go on; 0: the oldest first */
	uint64_t fail_call;    /* the n-th enqueuing or allocating call fails, once; 0: none */
	int fail_error;
	uint64_t break_op; /* from the n-th executed operation on, everything fails with break_error; 0: never */
	int break_error;
	uint64_t fail_pin;            /* the n-th host_register fails; 0: none */
	bool pageable;                /* copies from and to memory that is not pinned are no violations */
	bool (*gate)(void *user);     /* while true, nothing is executed; on the executing thread */
	bool (*pin_gate)(void *user); /* while true, host_register does not return */
	void *user;
};

struct fake_cuda_counts {
	uint64_t calls, ops, copies, batch_calls, refused, launches, threads, pins, unpins, queries, violations;
	uint64_t inits,
		looks; /* calls that initialise CUDA in the process, if nothing has before; those that only look */
	uint64_t most_pending; /* copies and launches that were enqueued and not executed at once */
	uint64_t live;         /* allocations, streams and events that were not freed, pins that were not undone */
};

/* One at a time; the calling thread enters the device, as the application's does. stop() tells what has been counted. */
void fake_cuda_start(const struct fake_cuda_options *options);
struct fake_cuda_counts fake_cuda_counts(void);
struct fake_cuda_counts fake_cuda_stop(void);
/* From now on, the n-th call fails, once. 0: none. */
void fake_cuda_fail_call(uint64_t n, int error);
/* The n-th operation from now on, and all behind it, fail. */
void fake_cuda_break_at(uint64_t n, int error);
/* Copies and launches that are enqueued and not executed. */
uint64_t fake_cuda_pending(void);
void fake_cuda_device_range(const void *p, size_t bytes);
/* Whether an event's last record has been executed. */
bool fake_cuda_event_over(void *event);
/* Whether anybody has recorded it. */
bool fake_cuda_event_recorded(void *event);
/* Enqueue something that stands still until it is released; the oldest of a stream first. */
void fake_cuda_hold(void *stream);
void fake_cuda_release(void *stream);
/*
 * Capture a stream, as for a graph: what is enqueued in it is not executed. @blocking: it would order itself with the legacy
 * stream, which cannot be used meanwhile. End: whether the capture is good; what CUDA forbids in one breaks it.
 */
void fake_cuda_begin_capture(void *stream, bool blocking);
bool fake_cuda_end_capture(void *stream);
