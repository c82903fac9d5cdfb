/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The part of CUDA's driver (libcuda.so.1) that we call, declared without a header of CUDA's, so that every build has it. The types
 * have CUDA's names and sizes; if cuda.h is at hand, tests/abi/cuda_declarations.c compiles this list with CUDA's own types in their
 * place. Source: the CUDA Driver API, docs.nvidia.com/cuda/cuda-driver-api; all of it but the batches since CUDA 12.0.
 */
#ifndef SCOUT__CUDA_OWN_TYPES /* the check uses the types of cuda.h */
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext;
typedef void *CUstream;
typedef void *CUevent;
typedef void *CUmodule;
typedef void *CUfunction;
typedef int CUpointer_attribute;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef struct {
	int type, id;
} CUmemLocation;
typedef struct {
	int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;
_Static_assert(sizeof(CUmemcpyAttributes) == 24 && offsetof(CUmemcpyAttributes, flags) == 20, "CUDA's");
#endif

/* The numbers of CUDA's enumerations that are used. */
enum {
	SCOUT__CU_CAPABILITY_MAJOR = 75,    /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
	SCOUT__CU_CAPABILITY_MINOR = 76,    /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
	SCOUT__CU_POINTER_MEMORY_TYPE = 2,  /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
	SCOUT__CU_POINTER_DEVICE = 9,       /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
	SCOUT__CU_MEMORY_DEVICE = 2,        /* CU_MEMORYTYPE_DEVICE */
	SCOUT__CU_CAPTURE_RELAXED = 2,      /* CU_STREAM_CAPTURE_MODE_RELAXED */
	SCOUT__CU_CAPTURE_NONE = 0,         /* CU_STREAM_CAPTURE_STATUS_NONE */
	SCOUT__CU_STREAM_NON_BLOCKING = 1,  /* CU_STREAM_NON_BLOCKING */
	SCOUT__CU_EVENT_NO_TIMING = 2,      /* CU_EVENT_DISABLE_TIMING */
	SCOUT__CU_REGISTER_PORTABLE = 1,    /* CU_MEMHOSTREGISTER_PORTABLE */
	SCOUT__CU_REGISTER_MAPPED = 2,      /* CU_MEMHOSTREGISTER_DEVICEMAP */
	SCOUT__CU_SOURCE_ORDER_STREAM = 1,  /* CU_MEMCPY_SRC_ACCESS_ORDER_STREAM */
	SCOUT__CU_SOURCE_ORDER_ANY = 3,     /* CU_MEMCPY_SRC_ACCESS_ORDER_ANY */
	SCOUT__CU_BATCH_PREFER_OVERLAP = 1, /* CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: a hint */
	SCOUT__CU_ATTRIBUTES_BYTES = 24,    /* of CUmemcpyAttributes */
	SCOUT__CU_ATTRIBUTES_FLAGS_AT = 20
};

/* X(field, the driver's symbol, parameters): every driver from 525 (CUDA 12.0) on has these. */
#define SCOUT__CUDA_FUNCTIONS(X)                                                                                       \
	X(version, cuDriverGetVersion, (int *ret_version))                                                             \
	X(init, cuInit, (unsigned int flags))                                                                          \
	X(error_name, cuGetErrorName, (CUresult error, const char **ret_name))                                         \
	X(device_count, cuDeviceGetCount, (int *ret_n))                                                                \
	X(device, cuDeviceGet, (CUdevice * ret_device, int ordinal))                                                   \
	X(device_attribute, cuDeviceGetAttribute, (int *ret_value, CUdevice_attribute attribute, CUdevice device))     \
	X(bus_id, cuDeviceGetPCIBusId, (char *ret_id, int len, CUdevice device))                                       \
	X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * ret_context, CUdevice device))                        \
	X(context_state, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *ret_flags, int *ret_active))      \
	X(context_set, cuCtxSetCurrent, (CUcontext context))                                                           \
	X(context_push, cuCtxPushCurrent_v2, (CUcontext context))                                                      \
	X(context_pop, cuCtxPopCurrent_v2, (CUcontext * ret_context))                                                  \
	X(capture_mode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                               \
	X(pointer, cuPointerGetAttribute, (void *ret_data, CUpointer_attribute attribute, CUdeviceptr p))              \
	X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * ret_p, size_t bytes))                                               \
	X(mem_free, cuMemFree_v2, (CUdeviceptr p))                                                                     \
	X(host_register, cuMemHostRegister_v2, (void *base, size_t bytes, unsigned int flags))                         \
	X(host_unregister, cuMemHostUnregister, (void *base))                                                          \
	X(host_device_pointer, cuMemHostGetDevicePointer_v2, (CUdeviceptr * ret_p, void *host, unsigned int flags))    \
	X(stream_new, cuStreamCreateWithPriority, (CUstream * ret_stream, unsigned int flags, int priority))           \
	X(stream_free, cuStreamDestroy_v2, (CUstream stream))                                                          \
	X(stream_sync, cuStreamSynchronize, (CUstream stream))                                                         \
	X(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                        \
	X(stream_capturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * ret_status))                \
	X(event_new, cuEventCreate, (CUevent * ret_event, unsigned int flags))                                         \
	X(event_free, cuEventDestroy_v2, (CUevent event))                                                              \
	X(event_record, cuEventRecord, (CUevent event, CUstream stream))                                               \
	X(event_query, cuEventQuery, (CUevent event))                                                                  \
	X(copy_to_device, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))     \
	X(copy_to_host, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))             \
	X(module_load, cuModuleLoadData, (CUmodule * ret_module, const void *image))                                   \
	X(module_unload, cuModuleUnload, (CUmodule module))                                                            \
	X(module_function, cuModuleGetFunction, (CUfunction * ret_function, CUmodule module, const char *name))        \
	X(launch, cuLaunchKernel,                                                                                      \
	  (CUfunction function, unsigned int blocks_x, unsigned int blocks_y, unsigned int blocks_z,                   \
	   unsigned int threads_x, unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes,          \
	   CUstream stream, void **arguments, void **extra))

/* Batches of copies: one name and signature since CUDA 12.8, another since 13.0. A driver may have both, one or neither. */
#define SCOUT__CUDA_BATCH_12(X)                                                                                        \
	X(batch_12, cuMemcpyBatchAsync,                                                                                \
	  (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t n, CUmemcpyAttributes * attributes,            \
	   size_t * indices, size_t n_attributes, size_t * ret_failed, CUstream stream))
#define SCOUT__CUDA_BATCH_13(X)                                                                                        \
	X(batch_13, cuMemcpyBatchAsync_v2,                                                                             \
	  (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t n, CUmemcpyAttributes * attributes,            \
	   size_t * indices, size_t n_attributes, CUstream stream))

#define SCOUT__CUDA_FIELD(field, symbol, parameters) CUresult(*field) parameters;
struct scout__cuda_driver {
	SCOUT__CUDA_FUNCTIONS(SCOUT__CUDA_FIELD)
	SCOUT__CUDA_BATCH_12(SCOUT__CUDA_FIELD)
	SCOUT__CUDA_BATCH_13(SCOUT__CUDA_FIELD)
};

/*
 * The driver's functions, if this process has loaded the driver already, or (_load) by loading it now; NULL: there is none, or a
 * function is missing. Nothing is initialised: all functions but version and error_name fail until init. Any thread; does not wait for
 * a GPU.
 */
const struct scout__cuda_driver *scout__cuda_driver_get(void);
const struct scout__cuda_driver *scout__cuda_driver_load(void);

/* CUDA's version that the machine's driver implements (12020 is 12.2); 0: there is no driver. Loads the driver, initialises nothing. */
int scout__cuda_driver_version(void);
