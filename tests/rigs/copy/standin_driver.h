/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stand-in for libcuda.so.1 (tests/rigs/cuda_driver), loaded into a test: the driver's calls and the test's own by dlsym(), as the
 * product finds them. KVSCOUT_STANDIN_CUDA is the folder that has it.
 */
#include "driver_types.h"
#define SCOUT__CUDA_OWN_TYPES
#include "cuda_driver.h"
#include "standin_control.h"

/* Calls of the tests alone. */
#define STANDIN_MORE(X)                                                                                                \
	X(, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                           \
	X(, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                                      \
	X(, cuStreamEndCapture, (CUstream stream, CUgraph * graph))

/* By the driver's names. Calls that the loaded driver does not have are NULL. */
#define STANDIN_CALL(field, symbol, parameters) CUresult(*symbol) parameters;
struct standin_calls {
	SCOUT__CUDA_FUNCTIONS(STANDIN_CALL)
	SCOUT__CUDA_BATCH_12(STANDIN_CALL)
	SCOUT__CUDA_BATCH_13(STANDIN_CALL)
	STANDIN_MORE(STANDIN_CALL)
};
extern struct standin_calls cu;

/* Of standin_control.h. */
struct standin_tests {
	int (*set)(const char *knob, const char *text);
	uint64_t (*count)(const char *name);
	void (*declare)(const void *p, size_t bytes, int device);
	void (*hold)(void *stream);
	void (*release)(void *stream);
	uint64_t (*pending)(void);
	int (*event_over)(void *event);
	void (*gate)(bool (*shut)(void *user), bool (*shut_pins)(void *user), void *user);
	void (*make_blocking)(void *stream, bool blocking);
};
extern struct standin_tests standin_test;

/* Load it once for the process; @variant: "" for the newest, or "driver_12_8", "driver_12_2". */
void standin_load(const char *variant);
/* A device that works: loaded, initialised, the primary context of device 0 current in this thread. */
void standin_begin(const char *variant);
/* In this thread. */
void standin_enter_device(int device);
