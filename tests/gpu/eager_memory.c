/* SPDX-License-Identifier: Apache-2.0 */
/* The eager runtime of eager_cuda.c: devices, errors, memory. */
#include "eager_cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#undef cudaGetDeviceProperties

#define GRANULE (UINT64_C(2) << 20)

pthread_mutex_t eager_mu = PTHREAD_MUTEX_INITIALIZER;
struct eager_stream *eager_streams[MAX_STREAMS];
int eager_n_streams;
atomic_bool eager_is_initialised;
int eager_sticky;
_Thread_local int eager_last_error;
_Thread_local enum cudaStreamCaptureMode eager_thread_mode;

static struct eager_range eager_ranges[MAX_RANGES];

int
eager_fail(int error)
{
	eager_last_error = error;
	return error;
}

/* ---- memory ---- */

struct eager_range *
eager_range_of(uintptr_t p)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (eager_ranges[i].bytes && p >= eager_ranges[i].base &&
		    p - eager_ranges[i].base < eager_ranges[i].bytes)
			return &eager_ranges[i];
	return NULL;
}

void
eager_range_add(const void *p, size_t bytes, int fd, bool is_host)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (eager_ranges[i].bytes == 0) {
			eager_ranges[i] = (struct eager_range){(uintptr_t)p, bytes, fd, is_host};
			return;
		}
	abort();
}

/* Whether all of it is the GPU's to touch; it may lie in several eager_ranges side by side. */
bool
eager_is_known(uintptr_t p, size_t bytes)
{
	while (bytes > 0) {
		const struct eager_range *range = eager_range_of(p);
		size_t here = range ? range->base + range->bytes - p : 0;

		if (!range)
			return false;
		here = here < bytes ? here : bytes;
		p += here;
		bytes -= here;
	}
	return true;
}

int
eager_unsafe_call(void)
{
	bool breaks = false;

	for (int i = 0; i < eager_n_streams && eager_thread_mode == cudaStreamCaptureModeGlobal; i++)
		if (eager_streams[i]->is_capturing && eager_streams[i]->mode == cudaStreamCaptureModeGlobal) {
			eager_streams[i]->is_invalid = true;
			breaks = true;
		}
	return breaks ? eager_fail(cudaErrorStreamCaptureUnsupported) : 0;
}

/* ---- the runtime: devices, errors, memory ---- */

cudaError_t
cudaGetDeviceCount(int *count)
{
	eager_is_initialised = true;
	*count = 1;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetPCIBusId(char *ret_id, int len, int device)
{
	(void)snprintf(ret_id, (size_t)len, "0000:3B:%02X.0", (unsigned)device);
	return cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
	eager_is_initialised = true;
	return device == 0 ? cudaSuccess : eager_fail(cudaErrorInvalidDevice);
}

cudaError_t
cudaGetLastError(void)
{
	int error = eager_last_error;

	eager_last_error = eager_sticky;
	return error;
}

const char *
cudaGetErrorName(cudaError_t error)
{
	static _Thread_local char name[32];

	(void)snprintf(name, sizeof(name), "error %d", (int)error);
	return name;
}

cudaError_t
cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t
cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	(void)attribute;
	(void)device;
	*value = 1;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	(void)device;
	memset(prop, 0, sizeof(*prop));
	(void)snprintf(prop->name, sizeof(prop->name), "no GPU, tests/gpu/eager_cuda.c");
	return cudaSuccess;
}

cudaError_t
cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	enum cudaStreamCaptureMode before = eager_thread_mode;

	eager_thread_mode = *mode;
	*mode = before;
	return cudaSuccess;
}

cudaError_t
cudaMalloc(void **p, size_t bytes)
{
	int fd, rc;

	pthread_mutex_lock(&eager_mu);
	eager_is_initialised = true;
	rc = eager_unsafe_call();
	if (rc == 0) {
		fd = memfd_create("eager", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
			abort();
		*p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (*p == MAP_FAILED)
			abort();
		eager_range_add(*p, bytes, fd, false);
	}
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

/* It stays mapped: who touches it afterwards is told so by an error, as on a GPU. */
cudaError_t
cudaFree(void *p)
{
	struct eager_range *range;
	int rc = 0;

	pthread_mutex_lock(&eager_mu);
	eager_is_initialised = true;
	range = p ? eager_range_of((uintptr_t)p) : NULL;
	if (p)
		rc = eager_unsafe_call();
	if (rc == 0 && range) {
		(void)close(range->fd);
		range->bytes = 0;
	}
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaHostRegister(void *p, size_t bytes, unsigned int flags)
{
	int rc;

	(void)flags;
	pthread_mutex_lock(&eager_mu);
	rc = eager_unsafe_call();
	if (rc == 0 && eager_range_of((uintptr_t)p))
		rc = eager_fail(cudaErrorHostMemoryAlreadyRegistered);
	else if (rc == 0)
		eager_range_add(p, bytes, -1, true);
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaHostUnregister(void *p)
{
	struct eager_range *range;
	int rc;

	pthread_mutex_lock(&eager_mu);
	rc = eager_unsafe_call();
	range = eager_range_of((uintptr_t)p);
	if (rc == 0 && range && range->base == (uintptr_t)p)
		range->bytes = 0;
	else if (rc == 0)
		rc = eager_fail(cudaErrorHostMemoryNotRegistered);
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
	(void)flags;
	*device = host;
	return cudaSuccess;
}

/* ---- the runtime: other processes ---- */

cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
	const struct eager_range *range;

	pthread_mutex_lock(&eager_mu);
	range = eager_range_of((uintptr_t)p);
	(void)snprintf(handle->reserved, sizeof(handle->reserved), "%zu /proc/%d/fd/%d", range->bytes, (int)getpid(),
		       range->fd);
	pthread_mutex_unlock(&eager_mu);
	return cudaSuccess;
}

cudaError_t
cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned int flags)
{
	char *path = NULL;
	size_t bytes = strtoull(handle.reserved, &path, 10);
	int fd = open(path + 1, O_RDWR | O_CLOEXEC);

	(void)flags;
	eager_is_initialised = true;
	if (fd < 0)
		return eager_fail(cudaErrorMapBufferObjectFailed);
	*p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*p == MAP_FAILED)
		abort();
	pthread_mutex_lock(&eager_mu);
	eager_range_add(*p, bytes, fd, false);
	pthread_mutex_unlock(&eager_mu);
	return cudaSuccess;
}

cudaError_t
cudaIpcCloseMemHandle(void *p)
{
	(void)p;
	return cudaSuccess;
}

/* ---- the driver ---- */

CUresult
cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	(void)device;
	(void)flags;
	*active = eager_is_initialised;
	return eager_is_initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult
cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
	const struct eager_range *range;
	CUresult rc = eager_is_initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;

	pthread_mutex_lock(&eager_mu);
	range = eager_range_of((uintptr_t)p);
	if (rc == CUDA_SUCCESS && !range)
		rc = CUDA_ERROR_INVALID_VALUE;
	else if (rc == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned int *)data = range->is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	else if (rc == CUDA_SUCCESS)
		*(int *)data = 0;
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

CUresult
cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
			      CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*granularity = GRANULE;
	return CUDA_SUCCESS;
}

CUresult
cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags)
{
	void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)alignment;
	(void)at;
	(void)flags;
	*p = (uintptr_t)base;
	return base == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult
cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
	    unsigned long long flags)
{
	(void)prop;
	(void)flags;
	*handle = bytes;
	return CUDA_SUCCESS;
}

CUresult
cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	void *base = mmap((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	(void)offset;
	(void)handle;
	(void)flags;
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&eager_mu);
	eager_range_add(base, bytes, -1, false);
	pthread_mutex_unlock(&eager_mu);
	return CUDA_SUCCESS;
}

CUresult
cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *desc, size_t n)
{
	(void)p;
	(void)bytes;
	(void)desc;
	(void)n;
	return CUDA_SUCCESS;
}
