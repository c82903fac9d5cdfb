/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "cuda_driver.h"

/*
 * What the programs on a GPU call of CUDA's driver: what the engine calls, and the rest as in cuda_driver.h. The first CUDA() of a process
 * loads the driver and makes the primary context of device 0 the calling thread's, so that a process may fork before.
 */
#ifndef SCOUT__CUDA_OWN_TYPES
typedef void *CUgraph;
typedef void *CUgraphExec;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef int CUmemAllocationGranularity_flags;
typedef struct {
	char reserved[64];
} CUipcMemHandle;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;
typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;
_Static_assert(sizeof(CUmemAllocationProp) == 32 && sizeof(CUmemAccessDesc) == 12, "CUDA's");
#endif

enum {
	GPU_NOT_SUPPORTED = 801,     /* CUDA_ERROR_NOT_SUPPORTED */
	GPU_N_SMS = 16,              /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
	GPU_N_COPY_ENGINES = 40,     /* CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT */
	GPU_READS_PAGEABLE = 88,     /* CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS */
	GPU_HAS_HOST_ADDRESSES = 91, /* CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
	GPU_CAPTURE_GLOBAL = 0,      /* CU_STREAM_CAPTURE_MODE_GLOBAL */
	GPU_EXTERNAL = 1,            /* CU_EVENT_WAIT_EXTERNAL, CU_EVENT_RECORD_EXTERNAL */
	GPU_IPC_LAZY = 1,            /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
	GPU_PINNED = 1,              /* CU_MEM_ALLOCATION_TYPE_PINNED */
	GPU_ON_DEVICE = 1,           /* CU_MEM_LOCATION_TYPE_DEVICE */
	GPU_READ_WRITE = 3,          /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
	GPU_PROP_BYTES = 32,         /* of CUmemAllocationProp */
	GPU_ACCESS_BYTES = 12        /* of CUmemAccessDesc */
};

#define GPU_FUNCTIONS(X)                                                                                               \
	X(device_name, cuDeviceGetName, (char *ret_name, int len, CUdevice device))                                    \
	X(fill, cuMemsetD8Async, (CUdeviceptr p, unsigned char byte, size_t bytes, CUstream stream))                   \
	X(copy_inside, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))        \
	X(event_record_with, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags))             \
	X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                         \
	X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * ret_graph))                                     \
	X(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec * ret_exec, CUgraph graph, unsigned long long)) \
	X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                            \
	X(granularity, cuMemGetAllocationGranularity,                                                                  \
	  (size_t * ret_bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags which))               \
	X(reserve, cuMemAddressReserve,                                                                                \
	  (CUdeviceptr * ret_p, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags))             \
	X(create, cuMemCreate,                                                                                         \
	  (CUmemGenericAllocationHandle * ret_handle, size_t bytes, const CUmemAllocationProp *prop,                   \
	   unsigned long long flags))                                                                                  \
	X(map, cuMemMap,                                                                                               \
	  (CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
	X(set_access, cuMemSetAccess, (CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access, size_t n))          \
	X(ipc_show, cuIpcGetMemHandle, (CUipcMemHandle * ret_handle, CUdeviceptr p))                                   \
	X(ipc_open, cuIpcOpenMemHandle_v2, (CUdeviceptr * ret_p, CUipcMemHandle handle, unsigned int flags))           \
	X(ipc_close, cuIpcCloseMemHandle, (CUdeviceptr p))

struct gpu_driver {
	SCOUT__CUDA_FUNCTIONS(SCOUT__CUDA_FIELD)
	GPU_FUNCTIONS(SCOUT__CUDA_FIELD)
};
extern struct gpu_driver gpu; /* filled by the first CUDA() */

/* Memory by the driver's name for it, and CUDA's default streams. */
#define GPU(p) ((CUdeviceptr)(uintptr_t)(p))
#define GPU_LEGACY ((CUstream)(uintptr_t)1)
#define GPU_PER_THREAD ((CUstream)(uintptr_t)2)

#define CUDA(call)                                                                                                     \
	do {                                                                                                           \
		int cuda_rc = gpu_enter();                                                                             \
                                                                                                                       \
		cuda_rc = cuda_rc ? cuda_rc : (int)(call);                                                             \
		if (cuda_rc)                                                                                           \
			gpu_fail(__FILE__, __LINE__, #call, gpu_error_name(cuda_rc));                                  \
	} while (0)

int gpu_enter(void);
const char *gpu_error_name(int error);
/* NULL: there is a device; else why there is none. Makes no context. */
const char *gpu_why_not(void);

/* Enqueued: inside of the device. */
int gpu_copy(void *to, const void *from, size_t bytes, CUstream stream);
int gpu_fill(void *p, int byte, size_t bytes, CUstream stream);
/* In the legacy stream, and over when they return. */
int gpu_write(void *to, const void *from, size_t bytes);
int gpu_read(void *to, const void *from, size_t bytes);
int gpu_set(void *p, int byte, size_t bytes);

void *plain_alloc(uint64_t bytes);
CUstream new_stream(void);
CUevent new_event(void);

/* Some 20 ms of work. */
void keep_busy(CUstream stream);

/*
 * GPU memory as torch's expandable segments take it: one range of addresses with memory of its own for each granule, so that planes
 * and blocks lie across their borders.
 */
void *vmm_alloc(uint64_t bytes);
