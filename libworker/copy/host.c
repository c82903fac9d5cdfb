/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the copy engine for plain memory.
 *
 * One thread copies; the courier feeds it. Batches go to the thread through one ring and come back through another,
 * in the order of their start. Both rings have room for max_batches and start() counts what is in flight, so no push
 * can fail and nothing is allocated after open.
 *
 * Waking the thread. It parks by: parked = 1, look at the ring again, read the eventfd. start() does: push, take
 * parked, write the eventfd if it was 1. Both sides touch `parked` with a read-modify-write, so one of the two comes
 * first: if it is the thread's, start() sees 1 and writes; if it is start()'s, the thread has synchronized with it
 * and its second look finds the batch. That is what a full fence on both sides gives, in a form that ThreadSanitizer
 * understands. Whoever takes the 1 writes, so there is one write for each time the thread parks, and none while it is
 * busy.
 *
 * Waking the courier. `signalled` says that ended_fd is readable or is about to be. The thread does: push, set
 * signalled, write if it was 0. poll() that finds the ring empty does: read the eventfd, clear signalled, look again.
 * Three cases:
 *   - The read finds nothing (EAGAIN): the thread stands between setting and writing. signalled stays 1 and the
 *     write is still to come; the descriptor is then readable once for nothing, and the next poll() clears it.
 *     Clearing signalled here would leave a readable descriptor that no poll() clears: a caller's event loop would
 *     spin.
 *   - A batch was pushed between the read and the clearing: nobody wrote for it, but the second look finds it, for
 *     the same reason as above. If there are more behind it, poll() makes the descriptor readable again itself.
 *   - Pushed after the clearing: the thread sees 0 and writes.
 * So the descriptor is readable while the ring has something, and at rest it is not. A poll() with nothing to do
 * makes no system call.
 *
 * The bytes: they are written before the push (release) and whoever polls has popped (acquire). memcpy orders its own
 * non-temporal stores.
 *
 * Rejected: more than one copying thread (the engine needs its cores); stealing the courier's time for small copies
 * (start() must not block); own non-temporal stores. Those were measured with kvscout-copy on a Xeon of 2023: where the
 * destination is too large for the caches they are 1.2 times as fast as memcpy at pieces of 4 KiB and 1.4 times from
 * 64 KiB on, where it is cached 0.8 times, and at 256 bytes 0.3 times. Which case it is depends on the engine above,
 * and an engine that computes on this CPU reads its pages next.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "copy.h"
#include "log.h"
#include "ring.h"
#include "thread.h"

/* More is a mistake of the caller's; the rings stay small. */
#define MAX_BATCHES (1u << 20)

/* How often a batch that waits at the gate looks again. Tests only. */
#define GATE_NS 50000

/* The thread's role: declared only, see thread.h. */
extern struct scout__role scout__copy_role;
#define ON_COPY_THREAD SCOUT_TSA(requires_capability(scout__copy_role))

static inline void
enter_copy_thread(void) SCOUT_TSA(assert_capability(scout__copy_role))
{
}

struct host {
	struct scout__copy_layout layout; /* const after open */
	uint32_t max_batches;             /* const after open */
	const struct scout__log *log;     /* const after open; may be NULL */
	pthread_t thread;                 /* const after open */
	int wake_fd;                      /* const after open; the thread blocks in reading it */
	int ended_fd;                     /* const after open; non-blocking */
	uint32_t in_flight;               /* courier: started, not yet polled */
	struct scout__ring todo;          /* courier -> copy thread */
	struct scout__ring ended;         /* copy thread -> courier */
	atomic_bool parked;               /* atomic: the thread sleeps or is about to */
	atomic_bool signalled;            /* atomic: ended_fd is readable or is about to be */
	atomic_bool stop;                 /* atomic: set once by close */
	struct scout__copy_batch **held;  /* copy thread: max_batches; ended, to be reported in reverse order */
	uint32_t n_held;                  /* copy thread */
};

/* The test aid. `on` keeps the mutex out of the way of those who do not use it. */
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

/* NULL when empty. */
static struct scout__copy_batch *
pop_batch(struct scout__ring *ring)
{
	/* A ring carries pointers as words. NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return (struct scout__copy_batch *)(uintptr_t)scout__ring_pop(ring);
}

static void
signal_fd(int fd)
{
	const uint64_t one = 1;

	/* It fails otherwise only where the counter is full, and a full one is readable as well. */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* How many blocks from ids[0] on move in one go: neighbours in a plane without gaps, or a row of null blocks. */
static uint32_t
run_length(const struct scout__copy_plane *plane, const int64_t *ids, uint32_t n)
{
	uint32_t run = 1;

	if (ids[0] < 0) {
		while (run < n && ids[run] < 0)
			run++;
	} else if (plane->stride == plane->block_bytes) {
		while (run < n && ids[run] == ids[0] + run)
			run++;
	}
	return run;
}

/* One plane of one slot; @part is where the plane begins in the slot. Returns the bytes copied. */
static uint64_t
copy_plane(const struct scout__copy_layout *layout, const struct scout__copy_plane *plane,
	   enum scout__copy_direction direction, const int64_t *ids, uint8_t *part)
{
	uint64_t bytes = 0, len;
	uint32_t n = layout->blocks_per_chunk, run;
	uint8_t *page;

	for (uint32_t i = 0; i < n; i += run) {
		run = run_length(plane, ids + i, n - i);
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
			/* A slot is compared and checksummed as a whole: no stale bytes of other chunks in it. */
			memset(part, 0, len);
		}
		part += len;
	}
	return bytes;
}

static uint64_t
copy_item(const struct scout__copy_layout *layout, enum scout__copy_direction direction,
	  const struct scout__copy_item *item)
{
	uint8_t *part = item->slot;
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < layout->n_planes; p++) {
		bytes += copy_plane(layout, &layout->planes[p], direction, item->block_ids, part);
		part += layout->blocks_per_chunk * layout->planes[p].block_bytes;
	}
	return bytes;
}

ON_COPY_THREAD static void
report(struct host *host, struct scout__copy_batch *batch)
{
	bool pushed = scout__ring_push(&host->ended, (uintptr_t)batch);

	SCOUT_ASSERT(pushed);
	if (!atomic_exchange(&host->signalled, true))
		signal_fd(host->ended_fd);
}

ON_COPY_THREAD static void
report_held(struct host *host)
{
	while (host->n_held > 0)
		report(host, host->held[--host->n_held]);
}

/* Waits while the gate is shut. False: the engine is closing. */
ON_COPY_THREAD static bool
pass_gate(struct host *host)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	struct scout__copy_faults set;

	while (!atomic_load(&host->stop)) {
		set = faults_get();
		if (!set.gate || !set.gate(set.user))
			return true;
		/* Whoever shuts the gate may wait for what has ended before it. */
		report_held(host);
		nanosleep(&pause, NULL);
	}
	return false;
}

ON_COPY_THREAD static void
run_batch(struct host *host, struct scout__copy_batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		if (!pass_gate(host)) {
			batch->status = SCOUT_ERR_CLOSED;
			return;
		}
		if (faults_take_item()) {
			batch->status = SCOUT_ERR_DEVICE;
			if (host->log)
				scout__log(host->log, SCOUT_LOG_DEBUG, "host copy: item %u of %u fails on demand", i,
					   batch->n);
			return;
		}
		batch->bytes += copy_item(&host->layout, batch->direction, &batch->items[i]);
		batch->n_done++;
	}
}

/* Sleeps until there may be something to do. */
ON_COPY_THREAD static void
park(struct host *host)
{
	uint64_t count;

	/* Not a plain store: see "Waking the thread". */
	(void)atomic_exchange(&host->parked, true);
	if (scout__ring_empty(&host->todo) && !atomic_load(&host->stop)) {
		/* A failed read is a spurious wakeup, and so is one for a batch that the second look had found. */
		(void)!read(host->wake_fd, &count, sizeof(count));
	}
	atomic_store(&host->parked, false);
}

static void *
host_main(void *arg)
{
	struct host *host = arg;
	struct scout__copy_batch *batch;

	enter_copy_thread();
	while (!atomic_load(&host->stop)) {
		batch = pop_batch(&host->todo);
		if (!batch) {
			report_held(host);
			park(host);
			continue;
		}
		run_batch(host, batch);
		if (faults_get().reverse) {
			host->held[host->n_held++] = batch;
		} else {
			report_held(host);
			report(host, batch);
		}
	}
	return NULL;
}

/* NULL, or what is wrong. */
static const char *
layout_fault(const struct scout__copy_layout *layout)
{
	const struct scout__copy_plane *plane;
	uint64_t span;

	if (!layout->planes || layout->n_planes == 0)
		return "the layout has no planes";
	if (layout->blocks_per_chunk == 0)
		return "blocks_per_chunk is 0";
	if (layout->n_blocks == 0 || layout->n_blocks > INT64_MAX)
		return "n_blocks is outside 1..2^63-1";
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		plane = &layout->planes[i];
		if (!plane->base || plane->block_bytes == 0)
			return "a plane has no base or no bytes";
		if (plane->stride < plane->block_bytes)
			return "a plane's stride is smaller than its block";
		if (__builtin_mul_overflow(plane->stride, layout->n_blocks, &span) ||
		    span > UINTPTR_MAX - (uintptr_t)plane->base)
			return "a plane ends beyond the address space";
	}
	if (scout__copy_shard_bytes(layout) == 0)
		return "a shard does not fit 64 bits";
	return NULL;
}

/* What open allocates besides the thread; close and a failed open give back the same. */
static void
host_release(struct host *host)
{
	if (host->ended_fd >= 0)
		close(host->ended_fd);
	if (host->wake_fd >= 0)
		close(host->wake_fd);
	scout__ring_fini(&host->ended);
	scout__ring_fini(&host->todo);
	free(host->held);
	free(host);
}

static int
host_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	const char *fault = layout_fault(&cfg->layout);
	struct host *host;
	int rc;

	if (fault)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "host copy engine: %s", fault);
	if (cfg->max_batches == 0 || cfg->max_batches > MAX_BATCHES)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "host copy engine: max_batches is outside 1..%u",
				   MAX_BATCHES);
	host = calloc(1, sizeof(*host));
	if (!host)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "host copy engine: out of memory");
	host->layout = cfg->layout;
	host->max_batches = cfg->max_batches;
	host->log = cfg->log;
	host->ended_fd = -1;
	host->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (host->wake_fd >= 0)
		host->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (host->ended_fd < 0) {
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "host copy engine: eventfd fails (errno %d)", errno);
		goto err_release;
	}
	host->held = calloc(cfg->max_batches, sizeof(struct scout__copy_batch *));
	if (!host->held || scout__ring_init(&host->todo, cfg->max_batches) ||
	    scout__ring_init(&host->ended, cfg->max_batches)) {
		rc = scout__fail(err, err_len, SCOUT_ERR_NOMEM, "host copy engine: out of memory");
		goto err_release;
	}
	rc = scout__thread_start(&host->thread, "scout-copy", host_main, host);
	if (rc) {
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "host copy engine: no thread (errno %d)", rc);
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

	atomic_store(&host->stop, true);
	signal_fd(host->wake_fd);
	pthread_join(host->thread, NULL);
	while ((batch = pop_batch(&host->todo)) != NULL)
		batch->status = SCOUT_ERR_CLOSED;
	host_release(host);
}

/* Plain memory needs no registration. */
static int
host_add_memory(void *engine, void *base, uint64_t bytes)
{
	(void)engine;
	(void)base;
	(void)bytes;
	return 0;
}

static void
host_remove_memory(void *engine, void *base, uint64_t bytes)
{
	(void)engine;
	(void)base;
	(void)bytes;
}

SCOUT_ON_COURIER static int
host_start(void *engine, struct scout__copy_batch *batch)
{
	struct host *host = engine;
	bool pushed;

	SCOUT_DASSERT(batch->direction == SCOUT__COPY_LOAD || batch->direction == SCOUT__COPY_SAVE);
	SCOUT_DASSERT(!batch->event);
	if (host->in_flight == host->max_batches)
		return SCOUT_ERR_BUSY;
	host->in_flight++;
	batch->status = 0;
	batch->n_done = 0;
	batch->bytes = 0;
	pushed = scout__ring_push(&host->todo, (uintptr_t)batch);
	SCOUT_ASSERT(pushed);
	if (atomic_exchange(&host->parked, false))
		signal_fd(host->wake_fd);
	return 0;
}

/* The ring looked empty: make ended_fd say so. Returns a batch that came in between, or NULL. */
SCOUT_ON_COURIER static struct scout__copy_batch *
clear_and_look_again(struct host *host)
{
	struct scout__copy_batch *batch;
	uint64_t count;

	if (!atomic_load(&host->signalled))
		return NULL;
	if (read(host->ended_fd, &count, sizeof(count)) < 0)
		return NULL;
	(void)atomic_exchange(&host->signalled, false);
	batch = pop_batch(&host->ended);
	if (batch && !scout__ring_empty(&host->ended) && !atomic_exchange(&host->signalled, true))
		signal_fd(host->ended_fd);
	return batch;
}

SCOUT_ON_COURIER static struct scout__copy_batch *
host_poll(void *engine)
{
	struct host *host = engine;
	struct scout__copy_batch *batch;

	batch = pop_batch(&host->ended);
	if (!batch)
		batch = clear_and_look_again(host);
	if (batch)
		host->in_flight--;
	return batch;
}

static int
host_fd(void *engine)
{
	struct host *host = engine;

	return host->ended_fd;
}

const struct scout__copy_ops scout__copy_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.add_memory = host_add_memory,
	.remove_memory = host_remove_memory,
	.start = host_start,
	.poll = host_poll,
	.fd = host_fd,
};
