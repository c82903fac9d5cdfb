/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the table of cuda_api.h on the real runtime.
 *
 * The runtime is linked statically and finds the driver by itself, so a program with this in it runs on
 * machines without one. What the runtime cannot say without making a context, and the batch copy that older
 * toolkits do not know, come from the driver, if the process has loaded it (a look at some pages must not: a
 * process that forks later has no CUDA in its children otherwise), by the names under which it exports them:
 * cuMemcpyBatchAsync is the call of CUDA 12.8 (with the index of a failed copy), cuMemcpyBatchAsync_v2 that
 * of 13.0. The driver's structure is declared here, so any toolkit will do.
 *
 * Source access order. In a batch from the GPU the sources are pages that kernels before it in the stream
 * write, so it says STREAM: with ANY the copy engine may read them before those kernels are done. In a batch
 * to the GPU the sources are slots that were complete before the call and are held until the batch has ended:
 * ANY lets it read ahead.
 *
 * Batches prefer to overlap with kernels: since 13.1 that means the copy engines, where the driver would also take the
 * multiprocessors, which are the model's.
 */
#include <dlfcn.h>
#include <pthread.h>

#include <cuda_runtime_api.h>

#include "cuda_api.h"
#include "cuda_kernels.h"

_Static_assert(SCOUT__CUDA_OK == cudaSuccess && SCOUT__CUDA_NOT_READY == cudaErrorNotReady &&
		       SCOUT__CUDA_OLD_DRIVER == cudaErrorInsufficientDriver,
	       "numbers of cuda_api.h");

/* ---- the driver ---- */

enum {
	DRIVER_OK = 0,
	MEMORY_TYPE = 2, /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
	DEVICE_ORDINAL = 9,
	MEMORY_TYPE_DEVICE = 2,
	ORDER_STREAM = 1, /* CU_MEMCPY_SRC_ACCESS_ORDER_* */
	ORDER_ANY = 3,
	PREFER_OVERLAP = 1 /* CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: a hint */
};

/* CUmemcpyAttributes_v1 */
struct batch_attributes {
	int source_order;
	int source_hint[2];
	int target_hint[2];
	unsigned int flags;
};

typedef uint64_t device_ptr;

static struct {
	void *library;
	int (*context_state)(int device, unsigned int *flags, int *active);
	int (*pointer_attribute)(void *data, int attribute, device_ptr p);
	int (*batch_12)(device_ptr *to, device_ptr *from, size_t *sizes, size_t n, struct batch_attributes *attributes,
			size_t *indices, size_t n_attributes, size_t *failed, void *stream);
	int (*batch_13)(device_ptr *to, device_ptr *from, size_t *sizes, size_t n, struct batch_attributes *attributes,
			size_t *indices, size_t n_attributes, void *stream);
} driver; /* G:driver_mu; const after `library` was set */

static pthread_mutex_t driver_mu = PTHREAD_MUTEX_INITIALIZER;

static void
load(void *library, const char *name, void *ret_function, size_t size)
{
	void *symbol = dlsym(library, name);

	/* POSIX: a pointer from dlsym() holds a function. */
	__builtin_memcpy(ret_function, &symbol, size);
}

static void
load_functions(void *library)
{
	load(library, "cuDevicePrimaryCtxGetState", &driver.context_state, sizeof(driver.context_state));
	load(library, "cuPointerGetAttribute", &driver.pointer_attribute, sizeof(driver.pointer_attribute));
	load(library, "cuMemcpyBatchAsync", &driver.batch_12, sizeof(driver.batch_12));
	load(library, "cuMemcpyBatchAsync_v2", &driver.batch_13, sizeof(driver.batch_13));
}

/*
 * Take up the driver, if the process has loaded it; it stays then. False: it has not. Its functions fail until it is
 * initialised.
 */
static bool
find_driver(void)
{
	bool found;

	(void)pthread_mutex_lock(&driver_mu);
	if (!driver.library) {
		driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		if (driver.library)
			load_functions(driver.library);
	}
	found = driver.library != NULL;
	(void)pthread_mutex_unlock(&driver_mu);
	return found;
}

/* ---- devices and memory ---- */

static int
api_device_count(int *ret_n)
{
	int rc = (int)cudaGetDeviceCount(ret_n);

	(void)cudaGetLastError();
	return rc;
}

static bool
api_is_in_use(int device)
{
	unsigned int flags;
	int active = 0;

	return find_driver() && driver.context_state && driver.context_state(device, &flags, &active) == DRIVER_OK &&
	       active;
}

static int
api_device_of(const void *p)
{
	unsigned int type = 0;
	int device = -1;

	if (!find_driver() || !driver.pointer_attribute)
		return -1;
	if (driver.pointer_attribute(&type, MEMORY_TYPE, (uintptr_t)p) != DRIVER_OK || type != MEMORY_TYPE_DEVICE)
		return -1;
	return driver.pointer_attribute(&device, DEVICE_ORDINAL, (uintptr_t)p) == DRIVER_OK ? device : -1;
}

static int
api_bus_id(char *ret_id, int len, int device)
{
	int rc = (int)cudaDeviceGetPCIBusId(ret_id, len, device);

	(void)cudaGetLastError();
	return rc;
}

static int
api_enter_thread(int device)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int rc = (int)cudaSetDevice(device);

	return rc ? rc : (int)cudaThreadExchangeStreamCaptureMode(&mode);
}

static void
api_clear_error(void)
{
	(void)cudaGetLastError();
}

static const char *
api_error_name(int error)
{
	return cudaGetErrorName((cudaError_t)error);
}

static int
api_malloc(void **ret_p, size_t bytes)
{
	return (int)cudaMalloc(ret_p, bytes);
}

static void
api_free(void *p)
{
	(void)cudaFree(p); /* fails only where the device has failed, and then there is nothing to give back */
}

static int
api_host_register(void *base, size_t bytes)
{
	return (int)cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
}

static int
api_host_unregister(void *base)
{
	return (int)cudaHostUnregister(base);
}

static int
api_host_device_pointer(void **ret_p, void *host)
{
	return (int)cudaHostGetDevicePointer(ret_p, host, 0);
}

/* ---- streams and events ---- */

static int
api_stream_new(void **ret_stream, int priority)
{
	cudaStream_t stream;
	int lowest = 0, highest = 0;
	int rc = (int)cudaDeviceGetStreamPriorityRange(&lowest, &highest);

	if (rc)
		return rc;
	/* Larger numbers are lower priorities: lowest is 0 or above highest. */
	priority = priority > lowest ? lowest : priority;
	priority = priority < highest ? highest : priority;
	rc = (int)cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority);
	if (rc == 0)
		*ret_stream = stream;
	return rc;
}

static void
api_stream_free(void *stream)
{
	(void)cudaStreamDestroy(stream);
}

static int
api_stream_sync(void *stream)
{
	return (int)cudaStreamSynchronize(stream);
}

static int
api_stream_wait(void *stream, void *event)
{
	return (int)cudaStreamWaitEvent(stream, event, 0);
}

static bool
api_is_capturing(void *stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t rc = cudaStreamIsCapturing(stream, &status);

	/* An error: the legacy stream, while a stream is captured that orders itself with it. */
	if (rc != cudaSuccess)
		(void)cudaGetLastError();
	return rc != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

static int
api_event_new(void **ret_event)
{
	cudaEvent_t event;
	int rc = (int)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);

	if (rc == 0)
		*ret_event = event;
	return rc;
}

static void
api_event_free(void *event)
{
	(void)cudaEventDestroy(event);
}

static int
api_event_record(void *event, void *stream)
{
	return (int)cudaEventRecord(event, stream);
}

static int
api_event_query(void *event)
{
	return (int)cudaEventQuery(event);
}

/* ---- copies ---- */

static int
api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream)
{
	return (int)cudaMemcpyAsync(to, from, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
				    stream);
}

static bool
api_has_batch(void)
{
	return find_driver() && (driver.batch_12 || driver.batch_13);
}

static int
api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream)
{
	struct batch_attributes attributes = {.source_order = to_device ? ORDER_ANY : ORDER_STREAM,
					      .flags = PREFER_OVERLAP};
	size_t index = 0, failed = 0;

	_Static_assert(sizeof(device_ptr) == sizeof(void *), "the driver's pointers are ours");
	/* The driver's errors have the runtime's numbers. */
	if (driver.batch_13)
		return driver.batch_13((device_ptr *)to, (device_ptr *)from, bytes, n, &attributes, &index, 1, stream);
	return driver.batch_12((device_ptr *)to, (device_ptr *)from, bytes, n, &attributes, &index, 1, &failed, stream);
}

const struct scout__cuda_api scout__cuda_runtime = {
	.runtime_version = CUDART_VERSION,
	.device_count = api_device_count,
	.is_in_use = api_is_in_use,
	.device_of = api_device_of,
	.bus_id = api_bus_id,
	.enter_thread = api_enter_thread,
	.clear_error = api_clear_error,
	.error_name = api_error_name,
	.malloc = api_malloc,
	.free = api_free,
	.host_register = api_host_register,
	.host_unregister = api_host_unregister,
	.host_device_pointer = api_host_device_pointer,
	.stream_new = api_stream_new,
	.stream_free = api_stream_free,
	.stream_sync = api_stream_sync,
	.stream_wait = api_stream_wait,
	.is_capturing = api_is_capturing,
	.event_new = api_event_new,
	.event_free = api_event_free,
	.event_record = api_event_record,
	.event_query = api_event_query,
	.copy = api_copy,
	.has_batch = api_has_batch,
	.copy_batch = api_copy_batch,
	.load_kernel = scout__cuda_load_tiles,
	.launch = scout__cuda_launch_tiles,
};
