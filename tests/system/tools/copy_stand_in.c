/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvscout-copy with the stand-in for CUDA (fake_cuda.h) in the place of a GPU: all of the tool but CUDA itself runs. The
 * engine is the real one; "GPU memory" is plain memory, the tool's kernels run on the CPU, and a load is a stretch of time.
 *
 * STAND_IN in the environment says what goes wrong:
 *   none    there is no device
 *   pin     the engine's slots cannot be pinned
 *   batch   the measuring process is killed where it opens an engine of that method
 *   wrong   a byte of a page changes before it is checked
 *   crash   the measuring process is killed where it makes the memory-bound load
 *   hang    ... and where it stands still
 *   error   making the memory-bound load fails
 *   waits   copies beside the persistent load wait for its end
 * At the end it says what was not freed, and what a GPU would have refused.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "copy_gpu.h"
#include "copy_tool.h"
#include "fake_cuda.h"
#include "say.h"

#define UNIT_NS UINT64_C(2000000) /* of a load */
#define MAX_TIMERS 256

/* An event that knows when it is reached: when the loads before it are over. */
struct timer {
	uint64_t at_ns;
};

static struct timer timers[MAX_TIMERS];
static unsigned int n_timers;
static uint64_t busy_until_ns;
static uint64_t n_checks;
static struct scout__cuda_api api;
static struct scout__copy_ops ops;
static int load_kind;

static bool
is_mode(const char *name)
{
	const char *mode = getenv("STAND_IN"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */

	return mode && strcmp(mode, name) == 0;
}

/* In the measuring process: the stand-in has a thread. */
static int
stand_in_probe(int32_t device, char *err, size_t err_len)
{
	struct fake_cuda_options options = {.n_devices = is_mode("none") ? 0 : 1, .seed = 1};

	options.fail_pin = is_mode("pin") ? 4 : 0; /* behind the tool's own */
	fake_cuda_start(&options);
	return fake_cuda_ops.probe(device, err, err_len);
}

/* The last of all: GPU memory is freed at the very end. */
static void
stand_in_free(void *p)
{
	struct fake_cuda_counts counts;

	fake_cuda.free(p);
	counts = fake_cuda_counts();
	if (counts.live == 0)
		(void)fprintf(stderr, "stand-in: all is freed, %llu violations, %llu launches of %llu threads\n",
			      (unsigned long long)counts.violations, (unsigned long long)counts.launches,
			      (unsigned long long)(counts.launches ? counts.threads / counts.launches : 0));
}

static int
stand_in_info(int device, struct copy_gpu_info *ret_info)
{
	(void)device;
	*ret_info = (struct copy_gpu_info){.name = "stand-in \"GPU\"",
					   .driver = 12080,
					   .n_sms = 2,
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
		return FAKE_CUDA_OUT_OF_MEMORY;
	*ret_p = p;
	return fake_cuda.host_register(p, bytes);
}

static void
stand_in_host_free(void *p)
{
	(void)fake_cuda.host_unregister(p);
	free(p);
}

/* ---- time ---- */

static bool
is_timer(const void *event)
{
	return (const struct timer *)event >= timers && (const struct timer *)event < timers + MAX_TIMERS;
}

static int
stand_in_timer_new(void **ret_event)
{
	if (n_timers == MAX_TIMERS)
		return FAKE_CUDA_OUT_OF_MEMORY;
	*ret_event = &timers[n_timers++];
	return 0;
}

static void
stand_in_event_free(void *event)
{
	if (is_timer(event))
		n_timers--;
	else
		fake_cuda.event_free(event);
}

static int
stand_in_event_record(void *event, void *stream)
{
	uint64_t now_ns = scout__now_ns();

	if (!is_timer(event))
		return fake_cuda.event_record(event, stream);
	((struct timer *)event)->at_ns = busy_until_ns > now_ns ? busy_until_ns : now_ns;
	return 0;
}

static int
stand_in_event_query(void *event)
{
	if (!is_timer(event))
		return fake_cuda.event_query(event);
	return scout__now_ns() >= ((struct timer *)event)->at_ns ? SCOUT__CUDA_OK : SCOUT__CUDA_NOT_READY;
}

static int
stand_in_elapsed_ms(float *ret_ms, void *begin, void *end)
{
	*ret_ms = (float)((double)(((struct timer *)end)->at_ns - ((struct timer *)begin)->at_ns) / 1e6);
	return 0;
}

/* ---- kernels ---- */

static int
stand_in_flat(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream)
{
	int rc = fake_cuda.stream_sync(stream);

	for (uint64_t i = 0; i < bytes / 8 && rc == 0; i++)
		*wrong += copy_pattern_do(mode, (uint64_t *)memory + i, first + i);
	return rc;
}

static int
stand_in_pages(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
	       void *stream)
{
	int rc = fake_cuda.stream_sync(stream);

	if (mode == COPY_CHECK && end > first && is_mode("wrong") && n_checks++ == 2)
		*copy_pages_word(pages, first) ^= 0xff00;
	for (uint64_t i = first; i < end && rc == 0; i++)
		*wrong += copy_pattern_do(mode, copy_pages_word(pages, i), pages->first_word + i);
	return rc;
}

/* ---- loads ---- */

static int
stand_in_load_new(enum copy_load load, const struct copy_load_size *size, void *stream, void **ret_load)
{
	(void)size;
	(void)stream;
	if (load == COPY_MEMORY && is_mode("crash"))
		abort();
	while (load == COPY_MEMORY && is_mode("hang"))
		(void)pause();
	if (load == COPY_MEMORY && is_mode("error"))
		return FAKE_CUDA_ILLEGAL_ADDRESS;
	load_kind = (int)load;
	*ret_load = &load_kind;
	return 0;
}

static int
stand_in_load_launch(void *load, void *stream)
{
	uint64_t now_ns = scout__now_ns();

	(void)load;
	(void)stream;
	busy_until_ns = (busy_until_ns > now_ns ? busy_until_ns : now_ns) + UNIT_NS;
	return 0;
}

static void
stand_in_load_stop(void *load)
{
	(void)load;
}

/* A copy whose kernel finds no room. */
static int
stand_in_start(void *engine, struct scout__copy_batch *batch)
{
	if (is_mode("waits") && load_kind == COPY_PERSISTENT)
		while (scout__now_ns() < busy_until_ns)
			;
	return fake_cuda_ops.start(engine, batch);
}

static int
stand_in_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	if (is_mode("batch") && strcmp(cfg->method, "batch") == 0)
		abort();
	return fake_cuda_ops.open(cfg, ret_engine, err, err_len);
}

int
main(int argc, char **argv)
{
	static struct copy_gpu gpu = {
		.api = &api,
		.ops = &ops,
		.info = stand_in_info,
		.host_alloc = stand_in_host_alloc,
		.host_free = stand_in_host_free,
		.timer_new = stand_in_timer_new,
		.elapsed_ms = stand_in_elapsed_ms,
		.flat = stand_in_flat,
		.pages = stand_in_pages,
		.load_new = stand_in_load_new,
		.load_launch = stand_in_load_launch,
		.load_stop = stand_in_load_stop,
		.load_free = stand_in_load_stop,
	};
	/* Short where a hang is to be waited for; otherwise a machine that is busy is no hang. */
	const struct copy_load_size size = {.window_ms = 10, .point_limit_s = is_mode("hang") ? 5 : 60};
	struct copy_options opt;
	int status;

	if (!copy_options_parse(&opt, argc, argv, &status))
		return status;
	api = fake_cuda;
	api.free = stand_in_free;
	api.event_free = stand_in_event_free;
	api.event_record = stand_in_event_record;
	api.event_query = stand_in_event_query;
	ops = fake_cuda_ops;
	ops.probe = stand_in_probe;
	ops.open = stand_in_open;
	ops.start = stand_in_start;
	return copy_run(&opt, &gpu, &size);
}

/* The options' parser knows it; there are no devices to print. */
int
copy_cuda_devices(void)
{
	return EXIT_NOT_HERE;
}
