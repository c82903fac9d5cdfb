/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_engine.h"
#include "copy_backends.h"
#include "cuda_driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "log.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: the CUDA backend's life, its thread, and its fence.
 *
 * One thread makes all CUDA calls except pinning: it sets the device up, enqueues, looks at events, and tears down.
 * So we never change the context, the device or the error state of the engine's threads. The thread's calls are in
 * relaxed capture mode: they disturb no stream capture in the process.
 *
 * The thread polls events instead of waiting for one, because it serves several lanes and new batches. Between two
 * looks with nothing to do it sleeps, 20 us at first and up to an eighth of the time that it has waited, at most
 * 0.25 ms: some 8 spans are in flight, of some 40 us each on a fast link, so the streams do not run dry, and the end of a
 * span is seen soon. A new batch wakes the thread at once; with nothing in flight it sleeps until then.
 *
 * Fence. scout__cuda_fence() runs on the caller's thread. It takes the lock under which spans are enqueued; batches
 * whose stop was set before then enqueue nothing more, and the caller's stream is made to wait for the events of the
 * spans in flight that touch the caller's pages. No CPU waits for a copy. A stream that is being captured must not wait for an event
 * from outside of its capture: that would invalidate the capture. So the engine asks first, and says that such a stream
 * cannot wait. A default stream means the one of the pages' device.
 *
 * Locks: `mu` is held while one span is enqueued, and while spans are taken off; a fence gets the lock between two spans. A CUDA call
 * under `mu` may take a while (a batch of 128 pieces some 0.1 ms), but only the handling of a failed device waits for the GPU
 * under it: outstanding copies fit the streams' queues. Copies of memory that is not pinned wait, too (cuda_memory.c).
 *
 * Rejected: a thread for each direction (the driver's own lock makes them take turns); host functions in the
 * streams (cudaLaunchHostFunc) to wake the thread: they cost the stream some 10 us each, and are not called
 * when a device fails.
 */

#define MAX_BATCHES (1u << 20)
#define FIRST_NAP_NS 20000
#define LONGEST_NAP_NS 250000
#define PART_BYTES (UINT64_C(32) << 20)

/* ---- what there is ---- */

#define INSTALL "install NVIDIA's driver 525 or newer, and in a container pass it in (docker run --gpus all)"

int
scout__cuda_check_driver(char *err, size_t err_len)
{
	int version = scout__cuda_driver_version();

	if (version == 0)
		return scout__fail(err, err_len, SCOUT_ERR_DEVICE,
				   "no CUDA device: this process finds no driver (libcuda.so.1); " INSTALL);
	if (version < SCOUT__CUDA_OLDEST)
		return scout__fail(
			err, err_len, SCOUT_ERR_DEVICE,
			"no CUDA device: the driver is for CUDA %d.%d and older, and one for %d.%d is needed; " INSTALL,
			version / 1000, version % 1000 / 10, SCOUT__CUDA_OLDEST / 1000, SCOUT__CUDA_OLDEST % 1000 / 10);
	return 0;
}

int
scout__cuda_probe(int32_t device, char *err, size_t err_len)
{
	int n = 0, rc = scout__cuda_check_driver(err, err_len);

	if (rc)
		return rc;
	rc = scout__cuda_api_device_count(&n);
	if (rc)
		return scout__fail(
			err, err_len, SCOUT_ERR_DEVICE,
			"no CUDA device (%s): may this user open /dev/nvidia*, and does CUDA_VISIBLE_DEVICES hide it?",
			scout__cuda_api_error_name(rc));
	if (n == 0)
		return scout__fail(err, err_len, SCOUT_ERR_DEVICE,
				   "no CUDA device: the driver finds none; does CUDA_VISIBLE_DEVICES hide it?");
	if (device >= n)
		return scout__fail(err, err_len, SCOUT_ERR_DEVICE,
				   "device = %d: no such CUDA device, there are %d, from 0 on", (int)device, n);
	return 0;
}

bool
scout__cuda_bus_id(const struct scout__copy_layout *layout, char *ret_id, size_t len)
{
	if (scout__cuda_api_bus_id(ret_id, (int)len, scout__cuda_api_device_of(layout->planes[0].base)) !=
	    SCOUT__CUDA_OK)
		return false;
	/* /sys has small letters. */
	for (char *c = ret_id; *c; c++)
		*c = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
	return true;
}

/* The device to work on: the one on which the pages lie. */
static int
find_device(const struct scout__copy_config *cfg, int *ret_device, char *err, size_t err_len)
{
	char name[SCOUT__COPY_NAME_BYTES];

	*ret_device = scout__cuda_api_device_of(cfg->layout.planes[0].base);
	if (*ret_device >= 0)
		return 0;
	scout__copy_name_table(&cfg->layout, cfg->n_more + 1, name);
	return scout__fail(
		err, err_len, SCOUT_ERR_INVALID,
		"%splanes[0] is not memory of a CUDA device: for pages in host memory take backend host or auto", name);
}

bool
scout__cuda_claims(const struct scout__copy_layout *layout)
{
	int device = layout->n_planes > 0 ? scout__cuda_api_device_of(layout->planes[0].base) : -1;

	return device >= 0 && scout__cuda_api_is_in_use(device);
}

/* ---- setting up, on the thread ---- */

/* Check that the planes of table @t lie on the device, from their first byte to their last. */
static int
check_planes(struct scout__cuda *cuda, uint32_t t)
{
	const struct scout__copy_layout *layout = &cuda->tables[t].layout;
	char name[SCOUT__COPY_NAME_BYTES];

	for (uint32_t i = 0; i < layout->n_planes; i++) {
		const struct scout__copy_plane *plane = &layout->planes[i];
		const uint8_t *last = plane->base + (layout->n_blocks - 1) * plane->stride + plane->block_bytes - 1;
		int device = scout__cuda_api_device_of(plane->base);

		scout__copy_name_table(layout, cuda->n_tables, name);
		if (device >= 0 && device != cuda->device)
			return scout__fail(
				cuda->text, sizeof(cuda->text), SCOUT_ERR_INVALID,
				"%splanes[%u] is memory of CUDA device %d, the first plane of device %d: a worker copies "
				"for one device",
				name, (unsigned)i, device, cuda->device);
		if (device < 0 || scout__cuda_api_device_of(last) != device)
			return scout__fail(cuda->text, sizeof(cuda->text), SCOUT_ERR_INVALID,
					   "%splanes[%u] is not memory of CUDA device %d from end to end", name,
					   (unsigned)i, cuda->device);
	}
	return 0;
}

static int
set_up_lane(struct scout__cuda_lane *lane)
{
	int rc = scout__cuda_api_stream_new(&lane->dma);

	rc = rc ? rc : scout__cuda_api_stream_new(&lane->kernel);
	for (uint32_t i = 0; i < SCOUT__CUDA_SPANS && rc == 0; i++) {
		struct scout__cuda_span *span = &lane->spans[i];

		rc = scout__cuda_api_event_new(&span->done);
		rc = rc ? rc : scout__cuda_api_event_new(&span->other);
	}
	return rc;
}

/*
 * Load the kernel, and launch it once without work: the driver may load a kernel only at its first launch, and then waits for all that
 * runs on the device. Without a kernel the device's copy engines move all bytes. Returns a CUDA error of the device.
 */
static int
set_up_kernel(struct scout__cuda *cuda)
{
	struct scout__tile_span nothing;
	int rc = scout__cuda_api_load_kernel(cuda->device, &cuda->kernel);

	scout__tile_begin(&nothing, false);
	rc = rc ? rc : scout__cuda_api_launch(&cuda->kernel, &nothing, cuda->lanes[0].kernel);
	if (rc == 0)
		return scout__cuda_api_stream_sync(cuda->lanes[0].kernel);
	if (cuda->kernel.module)
		scout__cuda_api_free_kernel(&cuda->kernel);
	cuda->kernel.module = NULL; /* so that the log does not name a kernel */
	cuda->method = SCOUT__CUDA_BATCH;
	if (cuda->log)
		scout__log(
			cuda->log, SCOUT_LOG_WARN,
			"CUDA device %d: the driver cannot use the copy kernel (%s), so copies are made by method batch; small "
			"pieces are slower",
			cuda->device, scout__cuda_api_error_name(rc));
	return 0;
}

/* Make everything on the device. Returns a CUDA error; tear_down() frees what was made. */
static int
set_up_device(struct scout__cuda *cuda)
{
	size_t plane_bytes = cuda->n_planes * sizeof(*cuda->planes);
	void *planes = NULL;
	int rc = scout__cuda_take_stages(cuda, &cuda->lanes[0]);

	rc = rc ? rc : scout__cuda_take_stages(cuda, &cuda->lanes[1]);
	rc = rc ? rc : scout__cuda_api_malloc(&planes, plane_bytes);
	cuda->planes_on_gpu = planes;
	for (uint32_t t = 0; t < cuda->n_tables && rc == 0; t++)
		cuda->tables[t].planes_on_gpu = cuda->planes_on_gpu + (cuda->tables[t].planes - cuda->planes);
	for (uint32_t l = 0; l < SCOUT__CUDA_LANES && rc == 0; l++)
		rc = set_up_lane(&cuda->lanes[l]);
	rc = rc ? rc : set_up_kernel(cuda);
	rc = rc ? rc : scout__cuda_api_copy(cuda->planes_on_gpu, cuda->planes, plane_bytes, true, cuda->lanes[0].dma);
	return rc ? rc : scout__cuda_api_stream_sync(cuda->lanes[0].dma);
}

static void
tear_down(struct scout__cuda *cuda)
{
	for (uint32_t l = 0; l < SCOUT__CUDA_LANES; l++) {
		struct scout__cuda_lane *lane = &cuda->lanes[l];

		/* If setting up failed, the upload of the planes or the first launch may still be running. */
		if (lane->dma)
			(void)scout__cuda_api_stream_sync(lane->dma);
		if (lane->kernel)
			(void)scout__cuda_api_stream_sync(lane->kernel);
		for (uint32_t i = 0; i < SCOUT__CUDA_SPANS; i++) {
			if (lane->spans[i].done)
				scout__cuda_api_event_free(lane->spans[i].done);
			if (lane->spans[i].other)
				scout__cuda_api_event_free(lane->spans[i].other);
		}
		if (lane->kernel)
			scout__cuda_api_stream_free(lane->kernel);
		if (lane->dma)
			scout__cuda_api_stream_free(lane->dma);
		if (lane->stages)
			scout__cuda_api_free(lane->stages);
	}
	if (cuda->kernel.module)
		scout__cuda_api_free_kernel(&cuda->kernel);
	if (cuda->planes_on_gpu)
		scout__cuda_api_free(cuda->planes_on_gpu);
}

static int
set_up(struct scout__cuda *cuda)
{
	int rc = scout__cuda_api_enter_thread(cuda->device);

	if (rc)
		return scout__fail(cuda->text, sizeof(cuda->text), SCOUT_ERR_DEVICE,
				   "CUDA device %d cannot be used: %s", cuda->device, scout__cuda_api_error_name(rc));
	for (uint32_t t = 0; t < cuda->n_tables && rc == 0; t++)
		rc = check_planes(cuda, t);
	if (rc)
		return rc;
	cuda->has_batch = scout__cuda_api_has_batch();
	rc = set_up_device(cuda);
	if (rc)
		return scout__fail(
			cuda->text, sizeof(cuda->text), SCOUT_ERR_DEVICE,
			"CUDA device %d: %s while taking %llu bytes of staging memory (stage_bytes), streams and events",
			cuda->device, scout__cuda_api_error_name(rc),
			(unsigned long long)(2 * scout__cuda_stages_bytes(cuda)));
	if (cuda->log)
		scout__log(cuda->log, SCOUT_LOG_INFO, "CUDA device %d: method %s, kernel %s, batch copies %s",
			   cuda->device, scout__cuda_method_name(cuda->method),
			   !cuda->kernel.module           ? "none"
			   : cuda->kernel.is_machine_code ? "of this build"
							  : "compiled by the driver",
			   cuda->has_batch ? "in one call" : "one by one");
	return 0;
}

/* ---- the thread ---- */

SCOUT_ON_COPY_THREAD static bool
step(struct scout__cuda *cuda, bool *ret_in_flight)
{
	struct scout__copy_batch *batch;
	bool moved = false;

	while ((batch = scout__copy_queue_next(&cuda->queue)) != NULL)
		scout__cuda_lane_add(cuda, batch);
	(void)pthread_mutex_lock(&cuda->mu);
	moved |= scout__cuda_lane_let_pass(cuda, SCOUT__COPY_LOAD);
	moved |= scout__cuda_lane_let_pass(cuda, SCOUT__COPY_SAVE);
	*ret_in_flight = false;
	for (uint32_t l = 0; l < SCOUT__CUDA_LANES; l++) {
		moved |= scout__cuda_lane_step(cuda, &cuda->lanes[l]);
		*ret_in_flight |= cuda->lanes[l].n > 0 || cuda->lanes[l].first != NULL;
	}
	(void)pthread_mutex_unlock(&cuda->mu);
	return moved;
}

SCOUT_ON_COPY_THREAD static void
serve(struct scout__cuda *cuda)
{
	int64_t waited_ns = 0, nap_ns;
	bool in_flight;

	while (!scout__copy_queue_stopped(&cuda->queue)) {
		if (step(cuda, &in_flight)) {
			waited_ns = 0;
			continue;
		}
		nap_ns = waited_ns / 8;
		nap_ns = nap_ns < FIRST_NAP_NS ? FIRST_NAP_NS : nap_ns;
		nap_ns = nap_ns > LONGEST_NAP_NS ? LONGEST_NAP_NS : nap_ns;
		scout__copy_queue_park(&cuda->queue, in_flight ? nap_ns : -1);
		waited_ns += nap_ns;
	}
	(void)pthread_mutex_lock(&cuda->mu);
	for (uint32_t l = 0; l < SCOUT__CUDA_LANES; l++)
		scout__cuda_lane_end(cuda, &cuda->lanes[l]);
	(void)pthread_mutex_unlock(&cuda->mu);
}

static void *
cuda_main(void *arg)
{
	struct scout__cuda *cuda = arg;
	int rc = set_up(cuda);

	scout__enter_copy_thread();
	/* Naps are short; if the kernel makes them longer, the end of a copy is seen a little later. */
	(void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
	(void)pthread_mutex_lock(&cuda->mu);
	cuda->opened = rc;
	(void)pthread_cond_broadcast(&cuda->cond);
	(void)pthread_mutex_unlock(&cuda->mu);
	if (rc == 0)
		serve(cuda);
	tear_down(cuda);
	return NULL;
}

/* ---- open and close ---- */

/* Free everything except what the thread owns; for a half-opened engine, too. */
static void
release(struct scout__cuda *cuda)
{
	scout__copy_queue_fini(&cuda->queue);
	(void)pthread_cond_destroy(&cuda->cond);
	(void)pthread_mutex_destroy(&cuda->mu);
	free(cuda->piece_to);
	free(cuda->piece_from);
	free(cuda->piece_host);
	free(cuda->piece_bytes);
	free(cuda->planes);
	free(cuda->tables);
	free(cuda);
}

static int
check_config(const struct scout__copy_config *cfg, enum scout__cuda_method *ret_method, char *err, size_t err_len)
{
	int rc = 0;

	for (uint32_t t = 0; t <= cfg->n_more && rc == 0; t++) {
		const struct scout__copy_layout *layout = scout__copy_layout_of(cfg, t);
		char name[SCOUT__COPY_NAME_BYTES];

		scout__copy_name_table(layout, cfg->n_more + 1, name);
		rc = scout__copy_check_layout(layout, err, err_len);
		if (rc == 0 && layout->n_blocks > INT32_MAX)
			rc = scout__fail(err, err_len, SCOUT_ERR_INVALID, "CUDA copy engine: %smore than %d blocks",
					 name, INT32_MAX);
	}
	if (rc)
		return rc;
	if (cfg->max_batches == 0 || cfg->max_batches > MAX_BATCHES)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "CUDA copy engine: max_batches is outside 1..%u",
				   MAX_BATCHES);
	if (!scout__cuda_method_find(cfg->method ? cfg->method : "auto", ret_method))
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "CUDA copy engine: method \"%s\" is none of auto, batch, staged", cfg->method);
	return 0;
}

/* Copy the tables; their planes go into one array, as they will on the GPU. */
static int
take_tables(struct scout__cuda *cuda, const struct scout__copy_config *cfg)
{
	size_t at = 0;

	cuda->n_tables = cfg->n_more + 1;
	for (uint32_t t = 0; t < cuda->n_tables; t++)
		cuda->n_planes += (size_t)scout__copy_layout_of(cfg, t)->n_planes + 1;
	cuda->tables = calloc(cuda->n_tables, sizeof(*cuda->tables));
	cuda->planes = calloc(cuda->n_planes, sizeof(*cuda->planes));
	if (!cuda->tables || !cuda->planes)
		return SCOUT_ERR_NOMEM;
	for (uint32_t t = 0; t < cuda->n_tables; t++) {
		struct scout__cuda_table *table = &cuda->tables[t];
		const struct scout__copy_layout *layout = scout__copy_layout_of(cfg, t);

		table->layout = *layout;
		table->planes = cuda->planes + at;
		scout__tile_table(layout, table->planes);
		for (uint32_t p = 0; p < layout->n_planes; p++) {
			table->block_bytes += layout->planes[p].block_bytes;
			table->n_dense += layout->planes[p].stride == layout->planes[p].block_bytes;
		}
		at += (size_t)layout->n_planes + 1;
	}
	return 0;
}

static int
allocate(struct scout__cuda *cuda, const struct scout__copy_config *cfg, char *err, size_t err_len)
{
	int rc = scout__copy_queue_init(&cuda->queue, cfg->max_batches, err, err_len);

	if (rc)
		return rc;
	cuda->piece_to = calloc(SCOUT__CUDA_PIECES, sizeof(void *));
	cuda->piece_from = calloc(SCOUT__CUDA_PIECES, sizeof(void *));
	cuda->piece_host = calloc(SCOUT__CUDA_PIECES, sizeof(*cuda->piece_host));
	cuda->piece_bytes = calloc(SCOUT__CUDA_PIECES, sizeof(*cuda->piece_bytes));
	if (!cuda->piece_to || !cuda->piece_from || !cuda->piece_host || !cuda->piece_bytes ||
	    take_tables(cuda, cfg) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "CUDA copy engine: out of memory");
	return 0;
}

/* Memory became usable, or never will: the courier may try again. */
static void
on_memory(void *user)
{
	struct scout__cuda *cuda = user;

	scout__copy_queue_nudge(&cuda->queue);
}

/* Start the thread and wait until it has set the device up, or failed. */
static int
start_thread(struct scout__cuda *cuda, char *err, size_t err_len)
{
	int rc = scout__thread_start(&cuda->thread, "scout-cuda", cuda_main, cuda);

	if (rc)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "CUDA copy engine: no thread (%s)",
				   scout__errno_text(rc));
	(void)pthread_mutex_lock(&cuda->mu);
	while (cuda->opened == SCOUT_NOT_YET)
		(void)pthread_cond_wait(&cuda->cond, &cuda->mu);
	rc = cuda->opened;
	(void)pthread_mutex_unlock(&cuda->mu);
	if (rc == 0)
		return 0;
	(void)pthread_join(cuda->thread, NULL);
	return scout__fail(err, err_len, rc, "%s", cuda->text);
}

static void
stop_thread(struct scout__cuda *cuda)
{
	struct scout__copy_batch *batch;

	scout__copy_queue_stop(&cuda->queue);
	(void)pthread_join(cuda->thread, NULL);
	scout__enter_copy_thread(); /* the thread has ended: its part of the queue is ours */
	while ((batch = scout__copy_queue_next(&cuda->queue)) != NULL)
		batch->status = SCOUT_ERR_CLOSED;
}

int
scout__cuda_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	enum scout__cuda_method method = SCOUT__CUDA_AUTO;
	/* Two lanes to each direction. */
	uint64_t stage_bytes = (cfg->stage_bytes ? cfg->stage_bytes : SCOUT__CUDA_STAGE_BYTES) / 2 / SCOUT__CUDA_SPANS;
	int rc = check_config(cfg, &method, err, err_len), device = 0;
	struct scout__cuda *cuda;

	rc = rc ? rc : scout__cuda_probe(-1, err, err_len);
	rc = rc ? rc : find_device(cfg, &device, err, err_len);
	if (rc)
		return rc;
	cuda = calloc(1, sizeof(*cuda));
	if (!cuda)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "CUDA copy engine: out of memory");
	cuda->log = cfg->log;
	cuda->device = device;
	cuda->method = method;
	cuda->stage_bytes = stage_bytes < SCOUT__CUDA_STAGE_MIN ? SCOUT__CUDA_STAGE_MIN : stage_bytes / 256 * 256;
	cuda->opened = SCOUT_NOT_YET;
	(void)pthread_mutex_init(&cuda->mu, NULL); /* neither fails here */
	(void)pthread_cond_init(&cuda->cond, NULL);
	rc = allocate(cuda, cfg, err, err_len);
	rc = rc ? rc : start_thread(cuda, err, err_len);
	if (rc)
		goto err_release;
	rc = scout__cuda_memory_init(&cuda->memory, device, PART_BYTES, cfg->n_pinning, on_memory, cuda, cfg->log);
	if (rc) {
		rc = scout__fail(err, err_len, rc, "CUDA copy engine: no thread for pinning");
		goto err_stop;
	}
	*ret_engine = cuda;
	return 0;

err_stop:
	stop_thread(cuda);
err_release:
	release(cuda);
	return rc;
}

void
scout__cuda_close(void *engine)
{
	struct scout__cuda *cuda = engine;

	stop_thread(cuda);
	scout__cuda_memory_fini(&cuda->memory);
	release(cuda);
}

/* ---- for the courier ---- */

int
scout__cuda_add_memory(void *engine, const struct scout__copy_memory *memory)
{
	struct scout__cuda *cuda = engine;

	return scout__cuda_memory_add(&cuda->memory, memory);
}

void
scout__cuda_remove_memory(void *engine, void *base)
{
	struct scout__cuda *cuda = engine;

	scout__cuda_memory_remove(&cuda->memory, base);
}

int
scout__cuda_start(void *engine, struct scout__copy_batch *batch)
{
	struct scout__cuda *cuda = engine;
	bool waits = false;

	batch->is_pinned = scout__cuda_memory_is_pinned(&cuda->memory);
	for (uint32_t i = 0; i < batch->n && !batch->is_pinned; i++)
		waits |= scout__cuda_memory_wait_for(&cuda->memory, batch->items[i].slot);
	return waits ? SCOUT_ERR_BUSY : scout__copy_queue_start(&cuda->queue, batch);
}

/* All memory is pinned, so no item that comes later can find its slot in other memory. */
bool
scout__cuda_may_grow(void *engine)
{
	struct scout__cuda *cuda = engine;

	return scout__cuda_memory_is_pinned(&cuda->memory);
}

void
scout__cuda_grew(void *engine)
{
	struct scout__cuda *cuda = engine;

	(void)scout__doorbell_ring(&cuda->queue.wake);
}

struct scout__copy_batch *
scout__cuda_poll(void *engine)
{
	struct scout__cuda *cuda = engine;

	return scout__copy_queue_poll(&cuda->queue);
}

int
scout__cuda_fd(void *engine)
{
	struct scout__cuda *cuda = engine;

	return cuda->queue.over.fd;
}

/* ---- fence ---- */

static bool
touches(const struct scout__cuda *cuda, const struct scout__cuda_span *span, const struct scout__copy_pages *pages)
{
	for (uint32_t i = span->first_item; i < span->end_item; i++) {
		const struct scout__copy_item *item = &span->batch->items[i];

		if (!pages)
			return true;
		if (item->table != pages->table)
			continue;
		for (uint32_t b = 0; b < cuda->tables[item->table].layout.blocks_per_chunk; b++) {
			int64_t id = item->block_ids[b];

			if (id >= 0 && (pages->marks[id / 64] >> (id % 64) & 1))
				return true;
		}
	}
	return false;
}

/* With the lock: @stream waits for what touches the pages in one lane. Returns a CUDA error. */
static int
await_spans(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane, void *stream,
	    const struct scout__copy_pages *pages)
{
	int rc = 0;

	for (uint32_t i = 0; i < lane->n && rc == 0; i++) {
		const struct scout__cuda_span *span = &lane->spans[(lane->head + i) % SCOUT__CUDA_SPANS];

		if (!touches(cuda, span, pages))
			continue;
		rc = scout__cuda_api_stream_wait(stream, span->done);
		if (rc == 0 && span->await_other)
			rc = scout__cuda_api_stream_wait(stream, span->other);
	}
	return rc;
}

int
scout__cuda_fence(void *engine, void *stream, const struct scout__copy_pages *pages)
{
	struct scout__cuda *cuda = engine;
	int rc = 0;

	if (scout__cuda_api_enter(cuda->device) != 0)
		return SCOUT_ERR_DEVICE;
	if (scout__cuda_api_is_capturing(stream)) {
		scout__cuda_api_leave();
		return SCOUT_ERR_DEVICE;
	}
	atomic_fetch_add(&cuda->fences, 1);
	(void)pthread_mutex_lock(&cuda->mu);
	for (uint32_t l = 0; l < SCOUT__CUDA_LANES && rc == 0; l++)
		rc = await_spans(cuda, &cuda->lanes[l], stream, pages);
	if (rc && cuda->log)
		scout__log(cuda->log, SCOUT_LOG_DEBUG, "the stream of a fence cannot wait: %s",
			   scout__cuda_api_error_name(rc));
	rc = rc || cuda->failed ? SCOUT_ERR_DEVICE : 0;
	if (atomic_fetch_sub(&cuda->fences, 1) == 1)
		(void)pthread_cond_broadcast(&cuda->cond);
	(void)pthread_mutex_unlock(&cuda->mu);
	scout__cuda_api_leave();
	return rc;
}

/* Threads: as struct scout__copy_ops says. */
const struct scout__copy_ops scout__copy_cuda = {
	.name = "cuda",
	.probe = scout__cuda_probe,
	.claims = scout__cuda_claims,
	.bus_id = scout__cuda_bus_id,
	.open = scout__cuda_open,
	.close = scout__cuda_close,
	.add_memory = scout__cuda_add_memory,
	.remove_memory = scout__cuda_remove_memory,
	.start = scout__cuda_start,
	.may_grow = scout__cuda_may_grow,
	.grew = scout__cuda_grew,
	.poll = scout__cuda_poll,
	.fd = scout__cuda_fd,
	.fence = scout__cuda_fence,
};
