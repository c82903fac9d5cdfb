/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stand-in for libcuda.so.1 (tests/rigs/cuda_driver), loaded into a test: the driver's calls and the test's own by dlsym(), as the
 * product finds them. KVSCOUT_STANDIN_CUDA is the folder that has it.
 */
#include "driver_types.h"
#include "standin_control.h"

#define STANDIN_CALLS(X)                                                                                               \
	X(cuInit, (unsigned int flags))                                                                                \
	X(cuDriverGetVersion, (int *version))                                                                          \
	X(cuDeviceGetCount, (int *count))                                                                              \
	X(cuDeviceGetPCIBusId, (char *id, int len, CUdevice device))                                                   \
	X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                            \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                             \
	X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active))                             \
	X(cuCtxSetCurrent, (CUcontext context))                                                                        \
	X(cuCtxGetCurrent, (CUcontext * context))                                                                      \
	X(cuCtxPushCurrent_v2, (CUcontext context))                                                                    \
	X(cuCtxPopCurrent_v2, (CUcontext * context))                                                                   \
	X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                                             \
	X(cuGetErrorName, (CUresult error, const char **name))                                                         \
	X(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes))                                                              \
	X(cuMemFree_v2, (CUdeviceptr p))                                                                               \
	X(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned int flags))                                           \
	X(cuMemHostUnregister, (void *p))                                                                              \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr * device, void *p, unsigned int flags))                           \
	X(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr p))                           \
	X(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority))                           \
	X(cuStreamDestroy_v2, (CUstream stream))                                                                       \
	X(cuStreamSynchronize, (CUstream stream))                                                                      \
	X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                                     \
	X(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                                      \
	X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                                        \
	X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                      \
	X(cuEventCreate, (CUevent * event, unsigned int flags))                                                        \
	X(cuEventDestroy_v2, (CUevent event))                                                                          \
	X(cuEventRecord, (CUevent event, CUstream stream))                                                             \
	X(cuEventQuery, (CUevent event))                                                                               \
	X(cuEventSynchronize, (CUevent event))                                                                         \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                     \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
	X(cuMemcpyBatchAsync,                                                                                          \
	  (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t n, CUmemcpyAttributes * attributes,            \
	   size_t * indices, size_t n_attributes, size_t * failed, CUstream stream))                                   \
	X(cuMemcpyBatchAsync_v2,                                                                                       \
	  (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t n, CUmemcpyAttributes * attributes,            \
	   size_t * indices, size_t n_attributes, CUstream stream))                                                    \
	X(cuModuleLoadData, (CUmodule * module, const void *image))                                                    \
	X(cuModuleUnload, (CUmodule module))                                                                           \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                             \
	X(cuLaunchKernel, (CUfunction function, unsigned int x, unsigned int y, unsigned int z, unsigned int threads,  \
			   unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes, CUstream stream, \
			   void **parameters, void **extra))

/* Calls that the loaded driver does not have are NULL. */
struct standin_calls {
#define STANDIN_CALL(name, parameters) CUresult(*name) parameters;
	STANDIN_CALLS(STANDIN_CALL)
#undef STANDIN_CALL
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
