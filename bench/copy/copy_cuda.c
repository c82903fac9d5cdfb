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

/* ---- what of the driver only a measurement needs, as in cuda_driver.h ---- */

typedef void *CUgraph;
typedef void *CUgraphExec;

enum {
	OUT_OF_MEMORY = 2,    /* CUDA_ERROR_OUT_OF_MEMORY */
	NO_DEVICE = 100,      /* CUDA_ERROR_NO_DEVICE */
	NOT_FOUND = 500,      /* CUDA_ERROR_NOT_FOUND */
	N_SMS = 16,           /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
	CAPTURE_THREAD = 1,   /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
	HOST_ALLOC_SHARED = 3 /* CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP */
};

#define TOOL_FUNCTIONS(X)                                                                                              \
	X(name, cuDeviceGetName, (char *ret_name, int len, CUdevice device))                                           \
	X(total, cuDeviceTotalMem_v2, (size_t * ret_bytes, CUdevice device))                                           \
	X(mem_info, cuMemGetInfo_v2, (size_t * ret_free, size_t * ret_total))                                          \
	X(host_alloc, cuMemHostAlloc, (void **ret_p, size_t bytes, unsigned int flags))                                \
	X(host_free, cuMemFreeHost, (void *p))                                                                         \
	X(fill, cuMemsetD8Async, (CUdeviceptr p, unsigned char byte, size_t bytes, CUstream stream))                   \
	X(elapsed, cuEventElapsedTime, (float *ret_ms, CUevent begin, CUevent end))                                    \
	X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                         \
	X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * ret_graph))                                     \
	X(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec * ret_exec, CUgraph graph, unsigned long long)) \
	X(graph_upload, cuGraphUpload, (CUgraphExec exec, CUstream stream))                                            \
	X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                            \
	X(exec_free, cuGraphExecDestroy, (CUgraphExec exec))                                                           \
	X(graph_free, cuGraphDestroy, (CUgraph graph))

/* The tool has one thread that calls CUDA, and one device. */
static struct {
	TOOL_FUNCTIONS(SCOUT__CUDA_FIELD)
	CUmodule kernels;
	int n_sms;
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
	rc = rc ? rc : driver()->device_attribute(&tool.n_sms, N_SMS, device);
	rc = rc ? rc : tool.mem_info(&free_bytes, &total_bytes);
	if (rc)
		return rc;
	read_link(device, info.link, sizeof(info.link));
	info.n_sms = tool.n_sms;
	info.has_batch = scout__cuda_api.has_batch();
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

static int
gpu_timer_new(void **ret_event)
{
	return driver()->event_new(ret_event, 0);
}

static int
gpu_elapsed_ms(float *ret_ms, void *begin, void *end)
{
	return tool.elapsed(ret_ms, begin, end);
}

/* ---- the work beside ---- */

struct gpu_load {
	enum copy_load kind;
	struct copy_load_size size;
	void *a, *b, *c; /* GPU */
	uint32_t *stop;  /* host; NULL: none */
	void *stop_on_gpu;
	CUgraph graph;
	CUgraphExec exec;
};

static void
load_stop(void *arg)
{
	struct gpu_load *load = arg;

	if (load->stop)
		*(volatile uint32_t *)load->stop = 1; /* the GPU reads it as it runs */
}

static void
load_free(void *arg)
{
	struct gpu_load *load = arg;

	load_stop(load);
	if (load->exec)
		(void)tool.exec_free(load->exec); /* of no more use, whatever it says */
	if (load->graph)
		(void)tool.graph_free(load->graph);
	if (load->a)
		scout__cuda_api.free(load->a);
	if (load->b)
		scout__cuda_api.free(load->b);
	if (load->c)
		scout__cuda_api.free(load->c);
	if (load->stop)
		(void)tool.host_free(load->stop);
	free(load);
}

static int
small_launch(struct gpu_load *load, void *stream)
{
	void *arguments[] = {&load->c};

	return launch("copy_small", (unsigned int)tool.n_sms, 1, COPY_SMALL_THREADS, stream, arguments);
}

static int
make_graph(struct gpu_load *load, void *stream)
{
	/* Once outside of the capture: a kernel is loaded by its first launch. */
	int rc = small_launch(load, stream), end;

	rc = rc ? rc : tool.capture_begin(stream, CAPTURE_THREAD);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < load->size.graph_kernels && rc == 0; i++)
		rc = small_launch(load, stream);
	end = tool.capture_end(stream, &load->graph);
	rc = rc ? rc : end;
	rc = rc ? rc : tool.graph_instantiate(&load->exec, load->graph, 0);
	return rc ? rc : tool.graph_upload(load->exec, stream);
}

static int
make_stop_word(struct gpu_load *load)
{
	void *word = NULL;
	int rc = gpu_host_alloc(&word, sizeof(uint32_t));

	if (rc)
		return rc;
	load->stop = word;
	*load->stop = 0;
	return scout__cuda_api.host_device_pointer(&load->stop_on_gpu, word);
}

/* Bytes of each of the arrays a, b and c. */
static uint64_t
array_bytes(const struct gpu_load *load)
{
	switch (load->kind) {
	case COPY_GEMM:
		return (uint64_t)load->size.matmul_n * (uint64_t)load->size.matmul_n * sizeof(float);
	case COPY_MEMORY:
		return load->size.stream_floats * sizeof(float);
	default:
		return (uint64_t)tool.n_sms * COPY_PERSISTENT_THREADS * sizeof(float);
	}
}

static int
make_load(struct gpu_load *load, void *stream)
{
	uint64_t bytes = array_bytes(load);
	int rc = scout__cuda_api.malloc(&load->a, bytes);

	rc = rc ? rc : scout__cuda_api.malloc(&load->b, bytes);
	rc = rc ? rc : scout__cuda_api.malloc(&load->c, bytes);
	rc = rc ? rc : tool.fill((uintptr_t)load->a, 0, bytes, stream);
	rc = rc ? rc : tool.fill((uintptr_t)load->b, 0, bytes, stream);
	if (rc == 0 && load->kind == COPY_PERSISTENT)
		rc = make_stop_word(load);
	if (rc == 0 && load->kind == COPY_GRAPH)
		rc = make_graph(load, stream);
	return rc;
}

static int
load_new(enum copy_load kind, const struct copy_load_size *size, void *stream, void **ret_load)
{
	struct gpu_load *load = calloc(1, sizeof(*load));
	int rc;

	if (!load)
		return OUT_OF_MEMORY;
	load->kind = kind;
	load->size = *size;
	rc = make_load(load, stream);
	if (rc) {
		load_free(load);
		return rc;
	}
	*ret_load = load;
	return 0;
}

static int
matmul_launch(struct gpu_load *load, void *stream)
{
	uint32_t n = (uint32_t)load->size.matmul_n;
	unsigned int blocks = n / COPY_MATMUL_TILE;
	void *arguments[] = {&load->a, &load->b, &load->c, &n};

	return launch("copy_matmul", blocks, blocks, COPY_MATMUL_THREADS, stream, arguments);
}

static int
stream_launch(struct gpu_load *load, void *stream)
{
	uint64_t n = load->size.stream_floats / 4;
	void *arguments[] = {&load->a, &load->b, &load->c, &n};

	return launch("copy_stream", COPY_STREAM_BLOCKS, 1, COPY_STREAM_THREADS, stream, arguments);
}

static int
persistent_launch(struct gpu_load *load, void *stream)
{
	void *arguments[] = {&load->c, &load->size.persistent_rounds, &load->stop_on_gpu};

	return launch("copy_persistent", (unsigned int)tool.n_sms, 1, COPY_PERSISTENT_THREADS, stream, arguments);
}

static int
load_launch(void *arg, void *stream)
{
	struct gpu_load *load = arg;

	switch (load->kind) {
	case COPY_GEMM:
		return matmul_launch(load, stream);
	case COPY_MEMORY:
		return stream_launch(load, stream);
	case COPY_PERSISTENT:
		return persistent_launch(load, stream);
	default:
		return tool.graph_launch(load->exec, stream);
	}
}

const struct copy_gpu copy_gpu_cuda = {
	.api = &scout__cuda_api,
	.ops = &scout__copy_cuda,
	.info = gpu_info,
	.host_alloc = gpu_host_alloc,
	.host_free = gpu_host_free,
	.timer_new = gpu_timer_new,
	.elapsed_ms = gpu_elapsed_ms,
	.flat = flat_launch,
	.pages = pages_launch,
	.load_new = load_new,
	.load_launch = load_launch,
	.load_stop = load_stop,
	.load_free = load_free,
};

int
copy_cuda_run(const struct copy_options *opt)
{
	return copy_run(opt, &copy_gpu_cuda, NULL);
}

/* Whether there is a driver and nothing for it to drive. */
static bool
is_empty(void)
{
	int n = 0, rc = scout__cuda_api.device_count(&n);

	return rc == NO_DEVICE || (rc == 0 && n == 0);
}

int
copy_cuda_devices(void)
{
	int version = scout__cuda_driver_version(), n = 0, rc, major = 0, minor = 0;
	char name[128] = "", err[300];
	size_t total = 0;
	CUdevice device;

	if (scout__cuda_probe(&scout__cuda_api, -1, err, sizeof(err)) != 0) {
		say("%s\n", err);
		return version == 0 || is_empty() ? EXIT_NOT_HERE : EXIT_WRONG;
	}
	rc = scout__cuda_api.device_count(&n);
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
	say("the driver cannot be used: %s\n", scout__cuda_api.error_name(rc));
	return EXIT_WRONG;
}
