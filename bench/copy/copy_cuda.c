/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of kvscout-copy, on CUDA: see copy_gpu.h. */
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "copy_gpu.h"
#include "copy_kernels.h"
#include "copy_backends.h"
#include "cuda_api.h"
#include "say.h"

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
read_link(int device, char *buf, size_t len)
{
	char bus[32], path[96], speed[32], width[16];

	buf[0] = 0;
	if (cudaDeviceGetPCIBusId(bus, sizeof(bus), device) != cudaSuccess)
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

static int
gpu_info(int device, struct copy_gpu_info *ret_info)
{
	struct copy_gpu_info info = {.driver = 0};
	struct cudaDeviceProp properties;
	size_t free_bytes = 0, total_bytes = 0;
	int rc = (int)cudaSetDevice(device);

	rc = rc ? rc : (int)cudaGetDeviceProperties(&properties, device);
	rc = rc ? rc : (int)cudaMemGetInfo(&free_bytes, &total_bytes);
	rc = rc ? rc : (int)cudaDriverGetVersion(&info.driver);
	rc = rc ? rc : (int)cudaRuntimeGetVersion(&info.runtime);
	if (rc)
		return rc;
	(void)snprintf(info.name, sizeof(info.name), "%.120s", properties.name);
	read_link(device, info.link, sizeof(info.link));
	info.n_sms = properties.multiProcessorCount;
	info.has_batch = scout__cuda_runtime.has_batch();
	info.free_bytes = free_bytes;
	info.total_bytes = total_bytes;
	*ret_info = info;
	return 0;
}

static int
gpu_host_alloc(void **ret_p, size_t bytes)
{
	return (int)cudaHostAlloc(ret_p, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

static void
gpu_host_free(void *p)
{
	(void)cudaFreeHost(p); /* fails only where the device has failed */
}

static int
gpu_timer_new(void **ret_event)
{
	cudaEvent_t event;
	int rc = (int)cudaEventCreate(&event);

	if (rc == 0)
		*ret_event = event;
	return rc;
}

static int
gpu_elapsed_ms(float *ret_ms, void *begin, void *end)
{
	return (int)cudaEventElapsedTime(ret_ms, begin, end);
}

/* ---- the work beside ---- */

struct gpu_load {
	enum copy_load kind;
	struct copy_load_size size;
	float *a, *b, *c; /* GPU */
	uint32_t *stop;   /* host; NULL: none */
	uint32_t *stop_on_gpu;
	int n_sms;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
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
		(void)cudaGraphExecDestroy(load->exec); /* of no more use, whatever it says */
	if (load->graph)
		(void)cudaGraphDestroy(load->graph);
	(void)cudaFree(load->a); /* NULL is nothing */
	(void)cudaFree(load->b);
	(void)cudaFree(load->c);
	if (load->stop)
		(void)cudaFreeHost(load->stop);
	free(load);
}

static int
make_graph(struct gpu_load *load, cudaStream_t stream)
{
	/* Once outside of the capture: a kernel is loaded by its first launch. */
	int rc = copy_small_launch(load->c, load->n_sms, stream), end;

	rc = rc ? rc : (int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
	if (rc)
		return rc;
	for (unsigned int i = 0; i < load->size.graph_kernels && rc == 0; i++)
		rc = copy_small_launch(load->c, load->n_sms, stream);
	end = (int)cudaStreamEndCapture(stream, &load->graph);
	rc = rc ? rc : end;
	rc = rc ? rc : (int)cudaGraphInstantiateWithFlags(&load->exec, load->graph, 0);
	return rc ? rc : (int)cudaGraphUpload(load->exec, stream);
}

static int
make_stop_word(struct gpu_load *load)
{
	void *word = NULL, *on_gpu = NULL;
	int rc = (int)cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped);

	if (rc)
		return rc;
	load->stop = word;
	*load->stop = 0;
	rc = (int)cudaHostGetDevicePointer(&on_gpu, word, 0);
	load->stop_on_gpu = on_gpu;
	return rc;
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
		return (uint64_t)load->n_sms * 1024 * sizeof(float);
	}
}

static int
make_load(struct gpu_load *load, cudaStream_t stream)
{
	uint64_t bytes;
	int device = 0, rc = (int)cudaGetDevice(&device);

	rc = rc ? rc : (int)cudaDeviceGetAttribute(&load->n_sms, cudaDevAttrMultiProcessorCount, device);
	bytes = array_bytes(load);
	rc = rc ? rc : (int)cudaMalloc((void **)&load->a, bytes);
	rc = rc ? rc : (int)cudaMalloc((void **)&load->b, bytes);
	rc = rc ? rc : (int)cudaMalloc((void **)&load->c, bytes);
	rc = rc ? rc : (int)cudaMemsetAsync(load->a, 0, bytes, stream);
	rc = rc ? rc : (int)cudaMemsetAsync(load->b, 0, bytes, stream);
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
		return (int)cudaErrorMemoryAllocation;
	load->kind = kind;
	load->size = *size;
	rc = make_load(load, stream);
	if (rc) {
		load_free(load);
		(void)cudaGetLastError(); /* or the next launch reports it */
		return rc;
	}
	*ret_load = load;
	return 0;
}

static int
load_launch(void *arg, void *stream)
{
	struct gpu_load *load = arg;

	switch (load->kind) {
	case COPY_GEMM:
		return copy_matmul_launch(load->a, load->b, load->c, load->size.matmul_n, stream);
	case COPY_MEMORY:
		return copy_stream_launch(load->a, load->b, load->c, load->size.stream_floats, stream);
	case COPY_PERSISTENT:
		return copy_persistent_launch(load->c, load->n_sms, load->size.persistent_rounds, load->stop_on_gpu,
					      stream);
	default:
		return (int)cudaGraphLaunch(load->exec, stream);
	}
}

const struct copy_gpu copy_gpu_cuda = {
	.api = &scout__cuda_runtime,
	.ops = &scout__copy_cuda,
	.info = gpu_info,
	.host_alloc = gpu_host_alloc,
	.host_free = gpu_host_free,
	.timer_new = gpu_timer_new,
	.elapsed_ms = gpu_elapsed_ms,
	.flat = copy_flat_launch,
	.pages = copy_pages_launch,
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

/* The runtime says "driver too old" also where there is none; the version tells the two apart. */
int
copy_cuda_devices(void)
{
	struct cudaDeviceProp properties;
	int driver = 0, runtime = 0, n = 0, rc;

	(void)cudaRuntimeGetVersion(&runtime); /* fails never */
	if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
		say("no CUDA device: there is no driver\n");
		return EXIT_NOT_HERE;
	}
	rc = (int)cudaGetDeviceCount(&n);
	if (rc == cudaErrorNoDevice || (rc == 0 && n == 0)) {
		say("no CUDA device: the driver finds none\n");
		return EXIT_NOT_HERE;
	}
	for (int i = 0; i < n && rc == 0; i++) {
		rc = (int)cudaGetDeviceProperties(&properties, i);
		if (rc == 0)
			say("device %d: %s, compute capability %d.%d, %zu MiB\n", i, properties.name, properties.major,
			    properties.minor, properties.totalGlobalMem >> 20);
	}
	say("driver %d.%d, runtime %d.%d\n", driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	if (rc == 0)
		return 0;
	say("the driver cannot be used: %s\n", cudaGetErrorName((cudaError_t)rc));
	return EXIT_WRONG;
}
