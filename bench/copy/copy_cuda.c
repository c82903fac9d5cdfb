/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of kvscout-copy, on CUDA's driver: see copy_gpu.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "copy_backends.h"
#include "copy_gpu.h"
#include "copy_kernels.h"
#include "cuda_api.h"
#include "cuda_driver.h"
#include "cuda_engine.h"
#include "cuda_image.h"
#include "say.h"

#define POINT_LIMIT_S 90u

/* ---- what of the driver only a measurement needs, as in cuda_driver.h ---- */

enum {
	NO_DEVICE = 100,      /* CUDA_ERROR_NO_DEVICE */
	NOT_FOUND = 500,      /* CUDA_ERROR_NOT_FOUND */
	HOST_ALLOC_SHARED = 3 /* CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP */
};

#define TOOL_FUNCTIONS(X)                                                                                              \
	X(name, cuDeviceGetName, (char *ret_name, int len, CUdevice device))                                           \
	X(total, cuDeviceTotalMem_v2, (size_t * ret_bytes, CUdevice device))                                           \
	X(mem_info, cuMemGetInfo_v2, (size_t * ret_free, size_t * ret_total))                                          \
	X(host_alloc, cuMemHostAlloc, (void **ret_p, size_t bytes, unsigned int flags))                                \
	X(host_free, cuMemFreeHost, (void *p))

/* The tool has one thread that calls CUDA, and one device. */
static struct {
	TOOL_FUNCTIONS(SCOUT__CUDA_FIELD)
	CUmodule kernels;
} tool;

static const struct scout__cuda_image kernel_images[] = {
#include "copy_kernels_image.inc"
};

static const struct scout__cuda_driver *
driver(void)
{
	return scout__cuda_driver_get();
}

static int
load_functions(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol;

#define LOAD(field, name, parameters)                                                                                  \
	symbol = library ? dlsym(library, #name) : NULL;                                                               \
	if (!symbol)                                                                                                   \
		return NOT_FOUND;                                                                                      \
	memcpy(&tool.field, &symbol, sizeof(symbol));
	TOOL_FUNCTIONS(LOAD)
#undef LOAD
	return 0;
}

static int
load_kernels(CUdevice device)
{
	int major = 0, minor = 0;
	int rc = driver()->device_attribute(&major, SCOUT__CU_CAPABILITY_MAJOR, device);

	rc = rc ? rc : driver()->device_attribute(&minor, SCOUT__CU_CAPABILITY_MINOR, device);
	rc = rc ? rc : driver()->module_load(&tool.kernels, scout__cuda_image_for(kernel_images, major, minor)->code);
	/* As the engine does: what the driver refuses, it compiles. */
	return rc ? driver()->module_load(&tool.kernels, scout__cuda_image_for(kernel_images, 0, 0)->code) : 0;
}

static int
launch(const char *name, unsigned int blocks_x, unsigned int blocks_y, unsigned int threads, void *stream,
       void **arguments)
{
	CUfunction function = NULL;
	int rc = driver()->module_function(&function, tool.kernels, name);

	return rc ? rc : driver()->launch(function, blocks_x, blocks_y, 1, threads, 1, 1, 0, stream, arguments, NULL);
}

static int
flat_launch(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream)
{
	uint32_t how = mode;
	uint64_t words = bytes / 8;
	void *arguments[] = {&how, &memory, &words, &first, &wrong};

	return launch("copy_flat", COPY_DATA_BLOCKS, 1, COPY_DATA_THREADS, stream, arguments);
}

static int
pages_launch(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
	     void *stream)
{
	uint32_t how = mode;
	struct copy_pages copy = *pages;
	void *arguments[] = {&how, &copy, &first, &end, &wrong};

	return launch("copy_pages", COPY_DATA_BLOCKS, 1, COPY_DATA_THREADS, stream, arguments);
}

/* ---- the device ---- */

/* One line of a file in /sys, or "". */
static void
read_line(const char *path, char *buf, size_t len)
{
	FILE *in = fopen(path, "re");

	buf[0] = 0;
	if (!in)
		return;
	if (!fgets(buf, (int)len, in))
		buf[0] = 0;
	buf[strcspn(buf, "\n")] = 0;
	(void)fclose(in); /* only read */
}

/* Virtual machines often do not show it. */
static void
read_link(CUdevice device, char *buf, size_t len)
{
	char bus[32], path[96], speed[32], width[16];

	buf[0] = 0;
	if (driver()->bus_id(bus, sizeof(bus), device) != 0)
		return;
	for (char *c = bus; *c; c++)
		if (*c >= 'A' && *c <= 'F')
			*c = (char)(*c - 'A' + 'a');
	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/current_link_speed", bus);
	read_line(path, speed, sizeof(speed));
	(void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/current_link_width", bus);
	read_line(path, width, sizeof(width));
	if (speed[0])
		(void)snprintf(buf, len, "%s x%s", speed, width);
}

/* The thread has entered the device. */
static int
gpu_info(int ordinal, struct copy_gpu_info *ret_info)
{
	struct copy_gpu_info info = {.driver = scout__cuda_driver_version()};
	size_t free_bytes = 0, total_bytes = 0;
	CUdevice device = 0;
	int rc = load_functions();

	rc = rc ? rc : driver()->device(&device, ordinal);
	rc = rc ? rc : load_kernels(device);
	rc = rc ? rc : tool.name(info.name, sizeof(info.name), device);
	rc = rc ? rc : tool.mem_info(&free_bytes, &total_bytes);
	if (rc)
		return rc;
	read_link(device, info.link, sizeof(info.link));
	info.has_batch = scout__cuda_api_has_batch();
	info.free_bytes = free_bytes;
	info.total_bytes = total_bytes;
	*ret_info = info;
	return 0;
}

static int
gpu_host_alloc(void **ret_p, size_t bytes)
{
	return tool.host_alloc(ret_p, bytes, HOST_ALLOC_SHARED);
}

static void
gpu_host_free(void *p)
{
	(void)tool.host_free(p); /* fails only where the device has failed */
}

const struct copy_gpu copy_gpu_cuda = {
	.ops = &scout__copy_cuda,
	.info = gpu_info,
	.host_alloc = gpu_host_alloc,
	.host_free = gpu_host_free,
	.flat = flat_launch,
	.pages = pages_launch,
};

int
copy_cuda_run(const struct copy_options *opt)
{
	return copy_run(opt, &copy_gpu_cuda, POINT_LIMIT_S);
}

/* Whether there is a driver and nothing for it to drive. */
static bool
is_empty(void)
{
	int n = 0, rc = scout__cuda_api_device_count(&n);

	return rc == NO_DEVICE || (rc == 0 && n == 0);
}

int
copy_cuda_devices(void)
{
	int version = scout__cuda_driver_version(), n = 0, rc, major = 0, minor = 0;
	char name[128] = "", err[300];
	size_t total = 0;
	CUdevice device;

	if (scout__cuda_probe(-1, err, sizeof(err)) != 0) {
		say("%s\n", err);
		return version == 0 || is_empty() ? EXIT_NOT_HERE : EXIT_WRONG;
	}
	rc = scout__cuda_api_device_count(&n);
	rc = rc ? rc : load_functions();
	for (int i = 0; i < n && rc == 0; i++) {
		rc = driver()->device(&device, i);
		rc = rc ? rc : tool.name(name, sizeof(name), device);
		rc = rc ? rc : tool.total(&total, device);
		rc = rc ? rc : driver()->device_attribute(&major, SCOUT__CU_CAPABILITY_MAJOR, device);
		rc = rc ? rc : driver()->device_attribute(&minor, SCOUT__CU_CAPABILITY_MINOR, device);
		if (rc == 0)
			say("device %d: %s, compute capability %d.%d, %zu MiB\n", i, name, major, minor, total >> 20);
	}
	say("driver: CUDA %d.%d\n", version / 1000, version % 1000 / 10);
	if (rc == 0)
		return 0;
	say("the driver cannot be used: %s\n", scout__cuda_api_error_name(rc));
	return EXIT_WRONG;
}
