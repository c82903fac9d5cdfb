/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the functions of cuda_api.h, on the driver.
 *
 * Contexts. We use the primary context of the device, as CUDA's runtime and PyTorch do. It is retained once for each
 * device and never released, like in the runtime: if the context ended while a failed device may still write, the memory
 * would vanish under the copy. Our own threads make it current once. On a thread of the application it is current only
 * during a call: the application's own context is pushed down and comes back. Errors: the driver returns each call's own
 * error, but a device that failed says so in every later call.
 *
 * Source access order. In a batch from the GPU the sources are pages that earlier kernels in the stream write, so the
 * batch says STREAM: with ANY the copy engine may read pages before those kernels are done. In a batch to the GPU the
 * sources are slots that were complete before the call and are held until the batch has ended: ANY lets the copy
 * engine read ahead.
 *
 * Batches prefer to overlap with kernels: since 13.1 the driver then uses the copy engines alone; else it may also use
 * the multiprocessors, which belong to the model.
 */
#include <pthread.h>

#include "cuda_api.h"
#include "cuda_driver.h"
#include "cuda_image.h"

#define MAX_DEVICES 64
#define NOT_INITIALIZED 3  /* CUDA_ERROR_NOT_INITIALIZED */
#define INVALID_DEVICE 101 /* CUDA_ERROR_INVALID_DEVICE */

/* After device_count() has succeeded, no call need check that there is a driver. */
static const struct scout__cuda_driver *
driver(void)
{
	return scout__cuda_driver_get();
}

/* The driver takes addresses as numbers. */
static void *
as_pointer(CUdeviceptr p)
{
	return (void *)(uintptr_t)p; /* NOLINT(performance-no-int-to-ptr) */
}

static CUdeviceptr
as_address(const void *p)
{
	return (uintptr_t)p;
}

/* ---- devices and memory ---- */

int
scout__cuda_api_device_count(int *ret_n)
{
	const struct scout__cuda_driver *loaded = scout__cuda_driver_load();
	int rc = loaded ? loaded->init(0) : NOT_INITIALIZED;

	return rc ? rc : loaded->device_count(ret_n);
}

bool
scout__cuda_api_is_in_use(int device)
{
	unsigned int flags;
	int active = 0;
	CUdevice handle;

	return driver() && driver()->device(&handle, device) == SCOUT__CUDA_OK &&
	       driver()->context_state(handle, &flags, &active) == SCOUT__CUDA_OK && active;
}

int
scout__cuda_api_device_of(const void *p)
{
	unsigned int type = 0;
	int device = -1;

	if (!driver() || driver()->pointer(&type, SCOUT__CU_POINTER_MEMORY_TYPE, as_address(p)) != SCOUT__CUDA_OK ||
	    type != SCOUT__CU_MEMORY_DEVICE)
		return -1;
	return driver()->pointer(&device, SCOUT__CU_POINTER_DEVICE, as_address(p)) == SCOUT__CUDA_OK ? device : -1;
}

int
scout__cuda_api_bus_id(char *ret_id, int len, int device)
{
	CUdevice handle;
	int rc = driver() ? driver()->device(&handle, device) : NOT_INITIALIZED;

	return rc ? rc : driver()->bus_id(ret_id, len, handle);
}

/* The primary context of a device. */
static int
find_context(int device, CUcontext *ret_context)
{
	static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	static CUcontext contexts[MAX_DEVICES]; /* G:mu */
	CUdevice handle;
	int rc = 0;

	if (device < 0 || device >= MAX_DEVICES)
		return INVALID_DEVICE;
	(void)pthread_mutex_lock(&mu);
	if (!contexts[device]) {
		rc = driver()->device(&handle, device);
		rc = rc ? rc : driver()->context_retain(&contexts[device], handle);
	}
	*ret_context = contexts[device];
	(void)pthread_mutex_unlock(&mu);
	return rc;
}

int
scout__cuda_api_enter_thread(int device)
{
	CUstreamCaptureMode mode = SCOUT__CU_CAPTURE_RELAXED;
	CUcontext context = NULL;
	int rc = find_context(device, &context);

	rc = rc ? rc : driver()->context_set(context);
	return rc ? rc : driver()->capture_mode(&mode);
}

int
scout__cuda_api_enter(int device)
{
	CUcontext context = NULL;
	int rc = find_context(device, &context);

	return rc ? rc : driver()->context_push(context);
}

void
scout__cuda_api_leave(void)
{
	CUcontext context;

	(void)driver()->context_pop(&context); /* our context was pushed, so there is one to pop */
}

const char *
scout__cuda_api_error_name(int error)
{
	const char *name = NULL;

	if (!driver() || driver()->error_name(error, &name) != SCOUT__CUDA_OK || !name)
		return "CUDA does not name the error";
	return name;
}

int
scout__cuda_api_malloc(void **ret_p, size_t bytes)
{
	CUdeviceptr p = 0;
	int rc = driver()->mem_alloc(&p, bytes);

	if (rc == 0)
		*ret_p = as_pointer(p);
	return rc;
}

void
scout__cuda_api_free(void *p)
{
	(void)driver()->mem_free(
		as_address(p)); /* fails only if the device has failed: then there is nothing to give back */
}

int
scout__cuda_api_host_register(void *base, size_t bytes)
{
	return driver()->host_register(base, bytes, SCOUT__CU_REGISTER_PORTABLE | SCOUT__CU_REGISTER_MAPPED);
}

int
scout__cuda_api_host_unregister(void *base)
{
	return driver()->host_unregister(base);
}

int
scout__cuda_api_host_device_pointer(void **ret_p, void *host)
{
	CUdeviceptr p = 0;
	int rc = driver()->host_device_pointer(&p, host, 0);

	if (rc == 0)
		*ret_p = as_pointer(p);
	return rc;
}

/* ---- streams and events ---- */

int
scout__cuda_api_stream_new(void **ret_stream)
{
	return driver()->stream_new(ret_stream, SCOUT__CU_STREAM_NON_BLOCKING, 0);
}

void
scout__cuda_api_stream_free(void *stream)
{
	(void)driver()->stream_free(stream);
}

int
scout__cuda_api_stream_sync(void *stream)
{
	return driver()->stream_sync(stream);
}

int
scout__cuda_api_stream_wait(void *stream, void *event)
{
	return driver()->stream_wait(stream, event, 0);
}

bool
scout__cuda_api_is_capturing(void *stream)
{
	CUstreamCaptureStatus status = SCOUT__CU_CAPTURE_NONE;

	/* An error means: this is the legacy stream, and a stream that synchronises with it is being captured. */
	return driver()->stream_capturing(stream, &status) != SCOUT__CUDA_OK || status != SCOUT__CU_CAPTURE_NONE;
}

int
scout__cuda_api_event_new(void **ret_event)
{
	return driver()->event_new(ret_event, SCOUT__CU_EVENT_NO_TIMING);
}

void
scout__cuda_api_event_free(void *event)
{
	(void)driver()->event_free(event);
}

int
scout__cuda_api_event_record(void *event, void *stream)
{
	return driver()->event_record(event, stream);
}

int
scout__cuda_api_event_query(void *event)
{
	return driver()->event_query(event);
}

/* ---- copies ---- */

int
scout__cuda_api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream)
{
	if (to_device)
		return driver()->copy_to_device(as_address(to), from, bytes, stream);
	return driver()->copy_to_host(to, as_address(from), bytes, stream);
}

bool
scout__cuda_api_has_batch(void)
{
	return driver()->batch_12 || driver()->batch_13;
}

int
scout__cuda_api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream)
{
	CUmemcpyAttributes attributes = {.srcAccessOrder =
						 to_device ? SCOUT__CU_SOURCE_ORDER_ANY : SCOUT__CU_SOURCE_ORDER_STREAM,
					 .flags = SCOUT__CU_BATCH_PREFER_OVERLAP};
	size_t index = 0, failed = 0;

	_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "the driver's pointers are ours");
	if (driver()->batch_13)
		return driver()->batch_13((CUdeviceptr *)to, (CUdeviceptr *)from, bytes, n, &attributes, &index, 1,
					  stream);
	return driver()->batch_12((CUdeviceptr *)to, (CUdeviceptr *)from, bytes, n, &attributes, &index, 1, &failed,
				  stream);
}

/* ---- the kernel ---- */

static int
load_image(const struct scout__cuda_image *image, struct scout__cuda_kernel *ret_kernel)
{
	struct scout__cuda_kernel kernel = {.is_machine_code = image->major != 0};
	int rc = driver()->module_load(&kernel.module, image->code);

	if (rc)
		return rc;
	rc = driver()->module_function(&kernel.function, kernel.module, SCOUT__CUDA_KERNEL);
	if (rc == 0)
		*ret_kernel = kernel;
	else
		(void)driver()->module_unload(kernel.module); /* rc says what failed */
	return rc;
}

/* Load this build's machine code for the device; if there is none, or the driver refuses it, what the driver compiles. */
int
scout__cuda_api_load_kernel(int device, struct scout__cuda_kernel *ret_kernel)
{
	const struct scout__cuda_image *image;
	int major = 0, minor = 0;
	CUdevice handle;
	int rc = driver()->device(&handle, device);

	rc = rc ? rc : driver()->device_attribute(&major, SCOUT__CU_CAPABILITY_MAJOR, handle);
	rc = rc ? rc : driver()->device_attribute(&minor, SCOUT__CU_CAPABILITY_MINOR, handle);
	if (rc)
		return rc;
	image = scout__cuda_image_for(scout__cuda_images, major, minor);
	rc = load_image(image, ret_kernel);
	if (rc == 0 || image->major == 0)
		return rc;
	return load_image(scout__cuda_image_for(image, 0, 0), ret_kernel); /* the PTX text */
}

void
scout__cuda_api_free_kernel(const struct scout__cuda_kernel *kernel)
{
	(void)driver()->module_unload(kernel->module); /* fails only if the device has failed */
}

int
scout__cuda_api_launch(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span, void *stream)
{
	_Static_assert(sizeof(*span) <= 4096, "parameters of a launch");
	uint32_t groups = SCOUT__CUDA_THREADS / SCOUT__TILE_LANES;
	uint64_t blocks = (span->n_tiles + groups - 1) / groups;
	void *arguments[] = {as_pointer((uintptr_t)span)}; /* read within the call */

	blocks = blocks < SCOUT__CUDA_BLOCKS ? blocks : SCOUT__CUDA_BLOCKS;
	return driver()->launch(kernel->function, blocks ? (unsigned int)blocks : 1, 1, 1, SCOUT__CUDA_THREADS, 1, 1, 0,
				stream, arguments, NULL);
}
