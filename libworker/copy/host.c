/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the copy engine for plain memory.
 *
 * One thread copies, in the order of the starts; copy_queue.c says how the courier and this thread hand batches to each
 * other. A batch with layers is copied layer by layer: all items of one, then all of the next.
 *
 * Rejected: more than one copying thread (the engine needs its cores); stealing the courier's time for small copies
 * (start() must not block); own non-temporal stores. Such stores were measured with kvscout-copy on a Xeon of 2023: if
 * the destination is too large for the caches they are 1.2 times as fast as memcpy at pieces of 4 KiB and 1.4 times
 * from 64 KiB on; if it is cached 0.8 times, and at 256 bytes 0.3 times. The engine above decides which case it is, and
 * an engine that computes on this CPU reads its pages next.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "copy.h"
#include "copy_queue.h"
#include "log.h"

/* A caller's max_batches above this is refused, so the rings stay small. */
#define MAX_BATCHES (1u << 20)

/* How often a batch that waits at the gate looks again. Tests only. */
#define GATE_NS 50000

/* The pages of one table. */
struct host_table {
	struct scout__copy_layout layout;
	uint64_t *plane_at; /* where each plane begins in a slot */
};

struct host {
	struct host_table *tables;    /* const after open */
	uint32_t n_tables;            /* const after open */
	const struct scout__log *log; /* const after open; may be NULL */
	pthread_t thread;             /* const after open */
	struct scout__copy_queue queue;
	struct scout__copy_batch **held; /* copy thread: max_batches; ended batches, to be reported in reverse order */
	uint32_t n_held;                 /* copy thread */
};

/* The test aid. `on` avoids the mutex when no test uses it. */
static struct {
	pthread_mutex_t mu;
	atomic_bool on;
	struct scout__copy_faults set; /* G:mu */
} faults = {.mu = PTHREAD_MUTEX_INITIALIZER};

void
scout__copy_host_faults(const struct scout__copy_faults *wanted)
{
	static const struct scout__copy_faults none;

	pthread_mutex_lock(&faults.mu);
	faults.set = wanted ? *wanted : none;
	pthread_mutex_unlock(&faults.mu);
	atomic_store(&faults.on, wanted != NULL);
}

static struct scout__copy_faults
faults_get(void)
{
	struct scout__copy_faults set = {0};

	if (!atomic_load_explicit(&faults.on, memory_order_acquire))
		return set;
	pthread_mutex_lock(&faults.mu);
	set = faults.set;
	pthread_mutex_unlock(&faults.mu);
	return set;
}

/* Counts one item; true if it is the one that fails. */
static bool
faults_take_item(void)
{
	bool fails;

	if (!atomic_load_explicit(&faults.on, memory_order_acquire))
		return false;
	pthread_mutex_lock(&faults.mu);
	fails = faults.set.fail_item > 0 && --faults.set.fail_item == 0;
	pthread_mutex_unlock(&faults.mu);
	return fails;
}

/* Copy one plane of one slot; @part is where the plane begins in the slot. Returns the bytes copied. */
static uint64_t
copy_plane(const struct scout__copy_layout *layout, const struct scout__copy_plane *plane,
	   enum scout__copy_direction direction, const int64_t *ids, uint8_t *part)
{
	uint64_t bytes = 0, len;
	uint32_t n = layout->blocks_per_chunk, run;
	uint8_t *page;

	for (uint32_t i = 0; i < n; i += run) {
		run = scout__copy_run(plane, ids + i, n - i);
		len = run * plane->block_bytes;
		if (ids[i] >= 0) {
			SCOUT_DASSERT((uint64_t)ids[i] + run <= layout->n_blocks);
			page = plane->base + (uint64_t)ids[i] * plane->stride;
			if (direction == SCOUT__COPY_LOAD)
				memcpy(page, part, len);
			else
				memcpy(part, page, len);
			bytes += len;
		} else if (direction == SCOUT__COPY_SAVE) {
			/* A slot is compared and checksummed as a whole, so it must hold no stale bytes of other chunks. */
			memset(part, 0, len);
		}
		part += len;
	}
	return bytes;
}

/* Copy one layer of one slot. */
static uint64_t
copy_item(const struct host *host, const struct scout__copy_batch *batch, const struct scout__copy_item *item,
	  uint32_t layer)
{
	const struct host_table *table = &host->tables[item->table];
	const struct scout__copy_layout *layout = &table->layout;
	uint32_t first = scout__copy_table_plane(layout, batch, host->n_tables, item->table, layer);
	uint32_t end = scout__copy_table_plane(layout, batch, host->n_tables, item->table, layer + 1);
	uint64_t bytes = 0;

	for (uint32_t p = first; p < end; p++)
		bytes += copy_plane(layout, &layout->planes[p], batch->direction, item->block_ids,
				    item->slot + table->plane_at[p]);
	return bytes;
}

SCOUT_ON_COPY_THREAD static void
report_held(struct host *host)
{
	while (host->n_held > 0)
		scout__copy_queue_report(&host->queue, host->held[--host->n_held]);
}

/* Waits while the gate is shut. False: the engine is closing. */
SCOUT_ON_COPY_THREAD static bool
pass_gate(struct host *host)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	struct scout__copy_faults set;

	while (!scout__copy_queue_stopped(&host->queue)) {
		set = faults_get();
		if (!set.gate || !set.gate(set.user))
			return true;
		/* The test that shuts the gate may wait for batches that ended before: report them now. */
		report_held(host);
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Copy one item of one layer. False: the batch ends here. */
SCOUT_ON_COPY_THREAD static bool
run_item(struct host *host, struct scout__copy_batch *batch, uint32_t layer, uint32_t i)
{
	if (!pass_gate(host)) {
		batch->status = SCOUT_ERR_CLOSED;
		return false;
	}
	if (faults_take_item()) {
		batch->status = SCOUT_ERR_DEVICE;
		if (host->log)
			scout__log(host->log, SCOUT_LOG_DEBUG, "host copy: item %u of %u fails on demand", i, batch->n);
		return false;
	}
	batch->bytes += copy_item(host, batch, &batch->items[i], layer);
	return true;
}

SCOUT_ON_COPY_THREAD static void
run_batch(struct host *host, struct scout__copy_batch *batch)
{
	uint32_t n_layers = scout__copy_layers(batch);

	for (uint32_t l = 0; l < n_layers; l++) {
		for (uint32_t i = 0; i < batch->n; i++) {
			if (!run_item(host, batch, l, i))
				return;
			batch->n_done += l == n_layers - 1;
		}
		if (batch->progress) {
			atomic_store(&batch->progress->enqueued, l + 1);
			scout__copy_progress_copied(batch->progress, l + 1);
		}
	}
}

static void *
host_main(void *arg)
{
	struct host *host = arg;
	struct scout__copy_batch *batch;

	scout__enter_copy_thread();
	while (!scout__copy_queue_stopped(&host->queue)) {
		batch = scout__copy_queue_next(&host->queue);
		if (!batch) {
			report_held(host);
			scout__copy_queue_park(&host->queue, -1);
			continue;
		}
		run_batch(host, batch);
		if (faults_get().reverse) {
			host->held[host->n_held++] = batch;
		} else {
			report_held(host);
			scout__copy_queue_report(&host->queue, batch);
		}
	}
	return NULL;
}

/* Free what open allocates besides the thread; close and a failed open use this. */
static void
host_release(struct host *host)
{
	scout__copy_queue_fini(&host->queue);
	for (uint32_t t = 0; host->tables && t < host->n_tables; t++)
		free(host->tables[t].plane_at);
	free(host->tables);
	free(host->held);
	free(host);
}

static int
host_probe(int32_t device, char *err, size_t err_len)
{
	(void)device;
	(void)err;
	(void)err_len;
	return 0;
}

static bool
host_claims(const struct scout__copy_layout *layout)
{
	(void)layout;
	return true;
}

/* Copy one table. */
static int
take_table(struct host_table *table, const struct scout__copy_layout *layout)
{
	uint64_t at = 0;

	table->layout = *layout;
	table->plane_at = calloc(layout->n_planes, sizeof(*table->plane_at));
	if (!table->plane_at)
		return SCOUT_ERR_NOMEM;
	for (uint32_t p = 0; p < layout->n_planes; p++) {
		table->plane_at[p] = at;
		at += layout->blocks_per_chunk * layout->planes[p].block_bytes;
	}
	return 0;
}

static int
allocate(struct host *host, const struct scout__copy_config *cfg)
{
	int rc = 0;

	host->held = calloc(cfg->max_batches, sizeof(struct scout__copy_batch *));
	host->tables = calloc(host->n_tables, sizeof(*host->tables));
	if (!host->held || !host->tables)
		return SCOUT_ERR_NOMEM;
	for (uint32_t t = 0; t < host->n_tables && rc == 0; t++)
		rc = take_table(&host->tables[t], scout__copy_layout_of(cfg, t));
	return rc;
}

/* Whether this process can read the byte at @at. The kernel reads it, so a bad address raises no SIGSEGV. */
static bool
try_read(const int pipe_fds[2], const uint8_t *at)
{
	uint8_t byte;

	if (write(pipe_fds[1], at, 1) != 1)
		return errno != EFAULT;
	return read(pipe_fds[0], &byte, 1) == 1;
}

/*
 * Check that the first and the last byte of each plane are memory of this process. Pages of a GPU are not: an engine
 * on a GPU gets here when `auto` finds no device that this build can use (the driver may be older than the build's
 * runtime), and the first copy would kill the engine.
 */
static int
check_mapped(const struct scout__copy_layout *layout, uint32_t n_tables, char *err, size_t err_len)
{
	char name[SCOUT__COPY_NAME_BYTES];
	int fds[2], rc = 0;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "host copy engine: no pipe (%s)",
				   scout__errno_text(errno));
	scout__copy_name_table(layout, n_tables, name);
	for (uint32_t i = 0; i < layout->n_planes && rc == 0; i++) {
		const struct scout__copy_plane *plane = &layout->planes[i];
		const uint8_t *base = plane->base;
		const uint8_t *last = base + (layout->n_blocks - 1) * plane->stride + plane->block_bytes - 1;

		if (!try_read(fds, base) || !try_read(fds, last))
			rc = scout__fail(err, err_len, SCOUT_ERR_INVALID,
					 "%splanes[%" PRIu32
					 "]: %p to %p is not memory that this process can read: the "
					 "host backend copies plain memory only, no GPU's",
					 name, i, (const void *)base, (const void *)last);
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
	return rc;
}

static int
check_config(const struct scout__copy_config *cfg, char *err, size_t err_len)
{
	int rc = 0;

	for (uint32_t t = 0; t <= cfg->n_more && rc == 0; t++)
		rc = scout__copy_check_layout(scout__copy_layout_of(cfg, t), err, err_len);
	if (rc)
		return rc;
	if (cfg->max_batches == 0 || cfg->max_batches > MAX_BATCHES)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "host copy engine: max_batches is outside 1..%u",
				   MAX_BATCHES);
	for (uint32_t t = 0; t <= cfg->n_more && rc == 0; t++)
		rc = check_mapped(scout__copy_layout_of(cfg, t), cfg->n_more + 1, err, err_len);
	return rc;
}

static int
host_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	struct host *host;
	int rc = check_config(cfg, err, err_len);

	if (rc)
		return rc;
	host = calloc(1, sizeof(*host));
	if (!host)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "host copy engine: out of memory");
	host->n_tables = cfg->n_more + 1;
	host->log = cfg->log;
	rc = scout__copy_queue_init(&host->queue, cfg->max_batches, err, err_len);
	if (rc)
		goto err_release;
	rc = allocate(host, cfg);
	if (rc) {
		rc = scout__fail(err, err_len, rc, "host copy engine: out of memory");
		goto err_release;
	}
	rc = scout__thread_start(&host->thread, "scout-copy", host_main, host);
	if (rc) {
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "host copy engine: no thread (%s)",
				 scout__errno_text(rc));
		goto err_release;
	}
	*ret_engine = host;
	return 0;

err_release:
	host_release(host);
	return rc;
}

static void
host_close(void *engine)
{
	struct host *host = engine;
	struct scout__copy_batch *batch;

	scout__copy_queue_stop(&host->queue);
	pthread_join(host->thread, NULL);
	scout__enter_copy_thread(); /* the thread has ended: its part of the queue is ours */
	while ((batch = scout__copy_queue_next(&host->queue)) != NULL)
		batch->status = SCOUT_ERR_CLOSED;
	host_release(host);
}

/* Plain memory needs no registration. */
static int
host_add_memory(void *engine, const struct scout__copy_memory *memory)
{
	(void)engine;
	(void)memory;
	return 0;
}

static void
host_remove_memory(void *engine, void *base)
{
	(void)engine;
	(void)base;
}

SCOUT_ON_COURIER static int
host_start(void *engine, struct scout__copy_batch *batch)
{
	struct host *host = engine;

	SCOUT_DASSERT(batch->direction == SCOUT__COPY_LOAD || batch->direction == SCOUT__COPY_SAVE);
	SCOUT_DASSERT(!batch->after && !batch->event && !batch->layer_events);
	return scout__copy_queue_start(&host->queue, batch);
}

SCOUT_ON_COURIER static struct scout__copy_batch *
host_poll(void *engine)
{
	struct host *host = engine;

	return scout__copy_queue_poll(&host->queue);
}

static int
host_fd(void *engine)
{
	struct host *host = engine;

	return host->queue.over.fd;
}

const struct scout__copy_ops scout__copy_host = {
	.name = "host",
	.probe = host_probe,
	.claims = host_claims,
	.open = host_open,
	.close = host_close,
	.add_memory = host_add_memory,
	.remove_memory = host_remove_memory,
	.start = host_start,
	.poll = host_poll,
	.fd = host_fd,
};
