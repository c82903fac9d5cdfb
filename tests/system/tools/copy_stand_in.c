/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvscout-copy with the stand-in for the CUDA driver (standin_control.h) in the place of a GPU: all of the tool but CUDA itself runs. The
 * engine is the real one; "GPU memory" is plain memory, and the tool's kernels run on the CPU.
 *
 * STAND_IN in the environment says what goes wrong:
 *   none    there is no device
 *   pin     the engine's slots cannot be pinned
 *   batch   the measuring process is killed where it opens an engine of that method
 *   wrong   a byte of a page changes before it is checked
 *   crash   the measuring process is killed where it copies by layers
 *   hang    ... and where it stands still
 *   error   pages that were copied by layers cannot be checked
 * At the end it says what was not freed, and what a GPU would have refused.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy_backends.h"
#include "copy_gpu.h"
#include "copy_tool.h"
#include "driver_types.h"
#include "say.h"
#include "standin_control.h"

static uint64_t n_checks;
static struct scout__copy_ops ops;
static bool by_layers; /* the last copy */

static bool
is_mode(const char *name)
{
	const char *mode = getenv("STAND_IN"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */

	return mode && strcmp(mode, name) == 0;
}

static uint64_t (*count)(const char *name);

/* In the measuring process: the stand-in has threads. The engine then finds what is loaded here. */
static int
stand_in_probe(int32_t device, char *err, size_t err_len)
{
	char path[1024];
	void *library;
	int (*set)(const char *knob, const char *text);

	/* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets it */
	(void)snprintf(path, sizeof(path), "%s/libcuda.so.1", getenv("KVSCOUT_STANDIN_CUDA"));
	library = dlopen(path, RTLD_NOW);
	if (!library)
		abort();
	*(void **)&count = dlsym(library, "standin_count");
	*(void **)&set = dlsym(library, "standin_set");
	(void)set("DEVICES", is_mode("none") ? "0" : "1");
	/* Behind the tool's own. */
	(void)set("FAULT", is_mode("pin") ? "cuMemHostRegister_v2:4:2" : "");
	return scout__copy_cuda.probe(device, err, err_len);
}

static int
stand_in_info(int device, struct copy_gpu_info *ret_info)
{
	(void)device;
	*ret_info = (struct copy_gpu_info){.name = "stand-in \"GPU\"",
					   .driver = 12080,
					   .has_batch = true,
					   .free_bytes = 64 << 20,
					   .total_bytes = 64 << 20};
	return 0;
}

static int
stand_in_host_alloc(void **ret_p, size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		return DRIVER_OUT_OF_MEMORY;
	*ret_p = p;
	return scout__cuda_api_host_register(p, bytes);
}

/* The last of all is memory of the host. */
static void
stand_in_host_free(void *p)
{
	uint64_t violations;

	(void)scout__cuda_api_host_unregister(p);
	free(p);
	if (count("live") != 0)
		return;
	/* Each engine copies once from plain memory, as it opens; the tool never does. */
	violations = count("bad_addresses") + count("misused") + count("drawn_in");
	violations += count("pageable") > count("cuModuleLoadData");
	(void)fprintf(stderr, "stand-in: all is freed, %llu violations\n", (unsigned long long)violations);
}

/* ---- kernels ---- */

static int
stand_in_flat(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream)
{
	int rc = scout__cuda_api_stream_sync(stream);

	for (uint64_t i = 0; i < bytes / 8 && rc == 0; i++)
		*wrong += copy_pattern_do(mode, (uint64_t *)memory + i, first + i);
	return rc;
}

static int
stand_in_pages(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
	       void *stream)
{
	int rc = by_layers && is_mode("error") ? DRIVER_ILLEGAL_ADDRESS : scout__cuda_api_stream_sync(stream);

	if (mode == COPY_CHECK && end > first && is_mode("wrong") && n_checks++ == 2)
		*copy_pages_word(pages, first) ^= 0xff00;
	for (uint64_t i = first; i < end && rc == 0; i++)
		*wrong += copy_pattern_do(mode, copy_pages_word(pages, i), pages->first_word + i);
	return rc;
}

/* ---- the engine ---- */

static int
stand_in_start(void *engine, struct scout__copy_batch *batch)
{
	by_layers = batch->n_layers > 0;
	if (by_layers && is_mode("crash"))
		abort();
	while (by_layers && is_mode("hang"))
		(void)pause();
	return scout__copy_cuda.start(engine, batch);
}

static int
stand_in_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	if (is_mode("batch") && strcmp(cfg->method, "batch") == 0)
		abort();
	return scout__copy_cuda.open(cfg, ret_engine, err, err_len);
}

int
main(int argc, char **argv)
{
	static struct copy_gpu gpu = {
		.ops = &ops,
		.info = stand_in_info,
		.host_alloc = stand_in_host_alloc,
		.host_free = stand_in_host_free,
		.flat = stand_in_flat,
		.pages = stand_in_pages,
	};
	/* Short where a hang is to be waited for; otherwise a machine that is busy is no hang. */
	unsigned int point_limit_s = is_mode("hang") ? 5 : 60;
	struct copy_options opt;
	int status;

	if (!copy_options_parse(&opt, argc, argv, &status))
		return status;
	ops = scout__copy_cuda;
	ops.probe = stand_in_probe;
	ops.open = stand_in_open;
	ops.start = stand_in_start;
	return copy_run(&opt, &gpu, point_limit_s);
}

/* The options' parser knows it; there are no devices to print. */
int
copy_cuda_devices(void)
{
	return EXIT_NOT_HERE;
}
