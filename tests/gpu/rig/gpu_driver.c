/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_driver.h"

#include <dlfcn.h>

#include "gpu_test.h"

#define NO_DRIVER 500 /* CUDA_ERROR_NOT_FOUND */

struct gpu_driver gpu;

static bool
load(void *library, const char *name, void *ret_function)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	memcpy(ret_function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

/* Once; a driver that lacks one of the functions is none. */
static int
load_driver(void)
{
	void *library = gpu.init ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (gpu.init)
		return 0;
#define LOAD(field, name, parameters)                                                                                  \
	if (!load(library, #name, &gpu.field))                                                                         \
		return NO_DRIVER;
	GPU_FUNCTIONS(LOAD)
	SCOUT__CUDA_FUNCTIONS(LOAD)
#undef LOAD
	return gpu.init(0);
}

int
gpu_enter(void)
{
	static bool is_entered;
	CUcontext context = NULL;
	CUdevice device = 0;
	int rc;

	if (is_entered)
		return 0;
	rc = load_driver();
	rc = rc ? rc : gpu.device(&device, 0);
	rc = rc ? rc : gpu.context_retain(&context, device);
	rc = rc ? rc : gpu.context_set(context);
	is_entered = rc == 0;
	return rc;
}

const char *
gpu_error_name(int error)
{
	const char *name = "no driver of CUDA's";

	if (gpu.error_name && gpu.error_name(error, &name) != 0)
		name = "an error without a name";
	return name;
}

const char *
gpu_why_not(void)
{
	int n = 0, rc = load_driver();

	rc = rc ? rc : gpu.device_count(&n);
	return rc ? gpu_error_name(rc) : n > 0 ? NULL : "no CUDA device";
}

int
gpu_copy(void *to, const void *from, size_t bytes, CUstream stream)
{
	return gpu.copy_inside(GPU(to), GPU(from), bytes, stream);
}

int
gpu_fill(void *p, int byte, size_t bytes, CUstream stream)
{
	return gpu.fill(GPU(p), (unsigned char)byte, bytes, stream);
}

int
gpu_write(void *to, const void *from, size_t bytes)
{
	int rc = gpu.copy_to_device(GPU(to), from, bytes, GPU_LEGACY);

	return rc ? rc : gpu.stream_sync(GPU_LEGACY);
}

int
gpu_read(void *to, const void *from, size_t bytes)
{
	int rc = gpu.copy_to_host(to, GPU(from), bytes, GPU_LEGACY);

	return rc ? rc : gpu.stream_sync(GPU_LEGACY);
}

int
gpu_set(void *p, int byte, size_t bytes)
{
	int rc = gpu_fill(p, byte, bytes, GPU_LEGACY);

	return rc ? rc : gpu.stream_sync(GPU_LEGACY);
}

void *
plain_alloc(uint64_t bytes)
{
	CUdeviceptr p = 0;

	CUDA(gpu.mem_alloc(&p, bytes));
	return (void *)(uintptr_t)p;
}

CUstream
new_stream(void)
{
	CUstream stream = NULL;

	CUDA(gpu.stream_new(&stream, SCOUT__CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

CUevent
new_event(void)
{
	CUevent event = NULL;

	CUDA(gpu.event_new(&event, SCOUT__CU_EVENT_NO_TIMING));
	return event;
}

void
keep_busy(CUstream stream)
{
	static void *big;

	if (!big)
		big = plain_alloc(1 << 30);
	for (int n = 0; n < 40; n++)
		CUDA(gpu_fill(big, n, 1 << 30, stream));
}

void *
vmm_alloc(uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = GPU_PINNED, .location = {.type = GPU_ON_DEVICE, .id = 0}};
	CUmemAccessDesc access = {.location = {.type = GPU_ON_DEVICE, .id = 0}, .flags = GPU_READ_WRITE};
	CUmemGenericAllocationHandle handle;
	size_t granule = 0, span;
	CUdeviceptr base = 0;

	CUDA(gpu.granularity(&granule, &prop, 0));
	span = (bytes + granule - 1) / granule * granule;
	CUDA(gpu.reserve(&base, span, 0, 0, 0));
	for (size_t at = 0; at < span; at += granule) {
		int rc = gpu.create(&handle, granule, &prop, 0);

		if (rc == GPU_NOT_SUPPORTED) {
			printf("# this device has no virtual memory management\n");
			fflush(stdout);
			_exit(GPU_SKIP);
		}
		CUDA(rc);
		CUDA(gpu.map(base + at, granule, 0, handle, 0));
	}
	CUDA(gpu.set_access(base, span, &access, 1));
	return (void *)(uintptr_t)base;
}
