/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvscout/server.h>

#include "clock.h"
#include "doorbell.h"
#include "lazy.h"
#include "log.h"
#include "memory.h"
#include "number.h"
#include "page.h"

/*
 * DESIGN
 *
 * Purpose: hand out host memory in extents, with exact accounting, and without the loop ever waiting for the kernel to
 * find pages.
 *
 * Threads: the loop calls everything below but the functions of the grower (marked). An extent belongs to the grower
 * from the push into `chores` until the loop has popped it from `ready`; meanwhile the loop touches only its owner,
 * next, first and fresh, which the grower never reads. Counters, ids and log lines are the loop's.
 *
 * Invariants: used_bytes is the sum of slot_bytes of all extents, also of those being grown; used_bytes <= l1_bytes.
 * n_growing <= MAX_GROWING, so a push into `ready` cannot fail.
 *
 * The grower also frees what the loop is done with: a GiB of pages takes it 0.2 s. It does its chores in the order in which
 * they were given, so memory is free again before the loop's next extent needs it.
 *
 * Memory is allocated in steps, so that stopping waits for one step at most. The grower looks at what the machine has
 * left before it takes more: when memory is short fallocate() does not fail, the out-of-memory killer runs.
 *
 * Rejected: shm_open() (a name that others can open, and that outlives a crash), mmap(MAP_SHARED|MAP_ANONYMOUS)
 * (cannot be passed to a worker), MAP_POPULATE in the server (maps what it never reads), one memfd for the whole pool
 * (a worker would have to map, and register with the device, the slots of other ranks).
 */

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26) /* log2 of the size, as the kernel takes it; not in every libc */
#endif

#ifndef MPOL_PREFERRED
#define MPOL_PREFERRED 1 /* <numaif.h> would need libnuma to be installed */
#endif
#define MAX_NODES 1024u /* more than any kernel is configured for */
#define BITS_PER_LONG (8 * sizeof(long))

#define MAX_GROWING 1024u
#define MAX_CHORES 16384u /* more than there are extents */
#define MAX_SLOTS (1u << 31)
#define MIN_BYTES (UINT64_C(64) << 20) /* of an extent whose size the user leaves to us */
#define MIN_SLOTS 16u
#define PARTS 64u /* of a pool that is too small for so many extents of MIN_BYTES: each namespace takes one at least */
#define MIN_EXTENTS 8u /* namespaces share the pool by extents: of a small one there must be some, too */
#define STEP_BYTES (UINT64_C(64) << 20)
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
/* Left to the rest of the machine when an extent is grown. */
#define SPARE_BYTES (UINT64_C(16) << 20)
#define PROGRESS_US UINT64_C(2000000)
#define PROGRESS_BYTES (UINT64_C(64) << 20) /* a small pool is there at once */
#define GIB ((double)(UINT64_C(1) << 30))

static uint64_t
round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

uint64_t
scout__slot_stride(uint64_t shard_bytes)
{
	if (shard_bytes > INT64_MAX)
		return UINT64_MAX;
	if (shard_bytes == 0)
		return SCOUT__SLOT_ALIGN;
	return round_up(shard_bytes, shard_bytes < SCOUT__SLOT_ALIGN_PAGE ? SCOUT__SLOT_ALIGN : SCOUT__SLOT_ALIGN_PAGE);
}

/* Grower, and loop: undo what the grower did, as far as it came. */
static void
segments_close(struct scout__extent *extent)
{
	for (uint32_t rank = 0; rank < extent->n_ranks; rank++) {
		struct scout__segment *segment = &extent->segments[rank];

		scout__lazy_free(segment->words, segment->words_bytes);
		if (segment->fd >= 0)
			(void)close(segment->fd);
		segment->words = NULL;
		segment->fd = -1;
	}
}

/* Grower. Note the failed call of @extent; errno is its. */
static int
failed(struct scout__extent *extent, const char *call)
{
	extent->system_error = errno;
	extent->error = errno == ENOMEM || errno == ENOSPC ? SCOUT_ERR_NOMEM : SCOUT_ERR_SYSTEM;
	extent->failed = call;
	return extent->error;
}

/* Grower. All pages of @segment, step by step. */
static int
allocate(struct scout__pool *pool, struct scout__extent *extent, struct scout__segment *segment)
{
	uint64_t done = 0;

	while (done < segment->bytes) {
		uint64_t step = segment->bytes - done < STEP_BYTES ? segment->bytes - done : STEP_BYTES;

		if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) {
			errno = ECANCELED;
			return failed(extent, "stop");
		}
		if (fallocate(segment->fd, 0, (off_t)done, (off_t)step) == 0)
			done += step;
		else if (errno != EINTR)
			return failed(extent, "fallocate");
	}
	return 0;
}

/*
 * Grower. Prefer the node that the workers of this rank run on. A memfd keeps the policy by itself, so a mapping that
 * lives for this call is enough. Without the node the pool still works, only slower: no failure.
 */
static void
bind_to_node(struct scout__extent *extent, const struct scout__segment *segment)
{
	unsigned long mask[MAX_NODES / BITS_PER_LONG] = {0};
	unsigned node = segment->numa - 1u;
	void *p;

	if (segment->numa == 0)
		return;
	if (node >= MAX_NODES) {
		extent->not_bound = true;
		return;
	}
	mask[node / BITS_PER_LONG] = 1ul << node % BITS_PER_LONG;
	p = mmap(NULL, segment->bytes, PROT_NONE, MAP_SHARED, segment->fd, 0);
	if (p == MAP_FAILED) {
		extent->not_bound = true;
		return;
	}
	/* The kernel takes one bit less than it is told of. */
	if (syscall(SYS_mbind, p, segment->bytes, MPOL_PREFERRED, mask, MAX_NODES + 1ul, 0u) != 0)
		extent->not_bound = true;
	(void)munmap(p, segment->bytes);
}

/* Grower. One memfd with pages of @page_bytes. On failure the caller closes what is open. */
static int
segment_open(struct scout__pool *pool, struct scout__extent *extent, struct scout__segment *segment,
	     uint64_t page_bytes)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	void *words;

	if (page_bytes == HUGE_PAGE_BYTES)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	segment->page_bytes = page_bytes;
	segment->bytes = round_up(segment->data_offset + extent->slots * segment->stride, page_bytes);
	segment->words_bytes = pool->map_slots ? segment->bytes : round_up(segment->data_offset, page_bytes);
	segment->fd = memfd_create("kvscout", flags);
	if (segment->fd < 0)
		return failed(extent, "memfd_create");
	if (ftruncate(segment->fd, (off_t)segment->bytes) < 0)
		return failed(extent, "ftruncate");
	bind_to_node(extent, segment);
	if (allocate(pool, extent, segment) < 0)
		return extent->error;
	if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return failed(extent, "fcntl(F_ADD_SEALS)");
	words = mmap(NULL, segment->words_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
	if (words == MAP_FAILED)
		return failed(extent, "mmap");
	/*
	 * A forked child has no use for it, and must not keep the memory. Advice: a kernel that refuses it is no error.
	 */
	(void)madvise(words, segment->words_bytes, MADV_DONTFORK);
	segment->words = words;
	segment->slots = pool->map_slots ? (uint8_t *)words + segment->data_offset : NULL;
	return 0;
}

/* Grower. All memfds of @extent with pages of @page_bytes, or none. */
static int
segments_open(struct scout__pool *pool, struct scout__extent *extent, uint64_t page_bytes)
{
	int err = 0;

	for (uint32_t rank = 0; rank < extent->n_ranks && !err; rank++)
		err = segment_open(pool, extent, &extent->segments[rank], page_bytes);
	if (err)
		segments_close(extent);
	return err;
}

/* Bytes of all memfds with pages of @page_bytes. Cannot overflow: slot_bytes <= l1_bytes <= memory. */
static uint64_t
extent_total(const struct scout__extent *extent, uint64_t page_bytes)
{
	uint64_t total = 0;

	for (uint32_t rank = 0; rank < extent->n_ranks; rank++) {
		const struct scout__segment *segment = &extent->segments[rank];

		total += round_up(segment->data_offset + extent->slots * segment->stride, page_bytes);
	}
	return total;
}

/* Grower. */
static void
grow(struct scout__pool *pool, struct scout__extent *extent)
{
	struct scout__memory memory;
	uint64_t small = extent_total(extent, scout__page_bytes());
	uint64_t huge = extent_total(extent, HUGE_PAGE_BYTES);

	scout__memory_read("", &memory);
	if (pool->huge_pages == SCOUT_HUGE_PAGES_REQUIRE) {
		(void)segments_open(pool, extent, HUGE_PAGE_BYTES);
		return;
	}
	/* Huge pages when they are there and rounding up to them wastes less than an eighth. */
	if (pool->huge_pages == SCOUT_HUGE_PAGES_TRY && memory.huge_page == HUGE_PAGE_BYTES &&
	    memory.huge_available >= huge && huge - small < small / 8) {
		if (!segments_open(pool, extent, HUGE_PAGE_BYTES))
			return;
		/* Somebody was faster, or may not use them: ordinary pages will do. */
		extent->error = 0;
	}
	if (memory.available != UINT64_MAX && memory.available < small + SPARE_BYTES) {
		errno = ENOMEM;
		extent->available_bytes = memory.available;
		(void)failed(extent, "fallocate");
		return;
	}
	(void)segments_open(pool, extent, scout__page_bytes());
}

/* Grower. */
static void
do_grow(struct scout__pool *pool, struct scout__chore *chore)
{
	if (atomic_load_explicit(&pool->stop, memory_order_acquire))
		return;
	grow(pool, (struct scout__extent *)chore);
	SCOUT_ASSERT(scout__ring_push(&pool->ready, (uintptr_t)chore));
	scout__eventfd_raise(pool->ready_fd);
}

/* Grower, and loop. */
static void
do_close(struct scout__pool *pool, struct scout__chore *chore)
{
	(void)pool;
	segments_close((struct scout__extent *)chore);
	free(chore);
}

/* A word of a ring. */
static void *
to_pointer(uint64_t word)
{
	return (void *)(uintptr_t)word; // NOLINT(performance-no-int-to-ptr): it was one
}

/*
 * Grower. Sleeps in read() until the loop rings. The loop pushes before it rings and this reads the bell before it
 * pops, so a chore is never left lying.
 */
static void *
grower_main(void *arg)
{
	struct scout__pool *pool = arg;
	struct scout__chore *chore;
	uint64_t count;
	bool stop;

	do {
		if (read(pool->wake_fd, &count, sizeof(count)) < 0 && errno != EINTR)
			break;
		(void)atomic_exchange(&pool->rung, false);
		stop = atomic_load_explicit(&pool->stop, memory_order_acquire);
		while ((chore = to_pointer(scout__ring_pop(&pool->chores))))
			chore->run(pool, chore);
	} while (!stop);
	return NULL;
}

/* Give the grower a chore. False: it has very many. */
SCOUT_ON_LOOP static bool
give(struct scout__pool *pool, struct scout__chore *chore, scout__chore_fn *run)
{
	chore->run = run;
	if (!scout__ring_push(&pool->chores, (uintptr_t)chore))
		return false;
	if (!atomic_exchange(&pool->rung, true))
		scout__eventfd_raise(pool->wake_fd);
	return true;
}

void
scout__pool_do(struct scout__pool *pool, struct scout__chore *chore, scout__chore_fn *run)
{
	if (!pool->grower_started || !give(pool, chore, run))
		run(pool, chore);
}

int
scout__pool_check_size(uint64_t l1_bytes, const struct scout__log *log, char *err, size_t err_len)
{
	struct scout__memory memory;

	scout__memory_read("", &memory);
	if (l1_bytes > memory.total)
		return scout__fail(err, err_len, SCOUT_ERR_POOL_SIZE,
				   "l1_bytes = %" PRIu64 " (%.2f GiB) is larger than the memory of this machine: "
				   "MemTotal %" PRIu64 " (%.2f GiB), MemAvailable %" PRIu64 " (%.2f GiB)",
				   l1_bytes, (double)l1_bytes / GIB, memory.total, (double)memory.total / GIB,
				   memory.available, (double)memory.available / GIB);
	if (l1_bytes > memory.cgroup_limit)
		return scout__fail(err, err_len, SCOUT_ERR_POOL_SIZE,
				   "l1_bytes = %" PRIu64 " (%.2f GiB) is larger than the memory limit of this cgroup: "
				   "%" PRIu64 " (%.2f GiB)",
				   l1_bytes, (double)l1_bytes / GIB, memory.cgroup_limit,
				   (double)memory.cgroup_limit / GIB);
	if (l1_bytes > memory.available && l1_bytes > memory.huge_available)
		scout__log(log, SCOUT_LOG_WARN,
			   "l1_bytes = %" PRIu64 " (%.2f GiB), but only %" PRIu64 " (%.2f GiB) are available now; "
			   "the pool grows as far as memory allows",
			   l1_bytes, (double)l1_bytes / GIB, memory.available, (double)memory.available / GIB);
	return 0;
}

int
scout__pool_check_huge_pages(uint64_t l1_bytes, uint32_t huge_pages, char *err, size_t err_len)
{
	struct scout__memory memory;
	uint64_t pages = l1_bytes / HUGE_PAGE_BYTES + l1_bytes / HUGE_PAGE_BYTES / 8 + MIN_EXTENTS, free_bytes;

	scout__memory_read("", &memory);
	free_bytes = memory.huge_page == HUGE_PAGE_BYTES ? memory.huge_available : 0;
	if (huge_pages != SCOUT_HUGE_PAGES_REQUIRE || free_bytes >= l1_bytes)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_POOL_SIZE,
			   "l1_huge_pages = require, but of the %" PRIu64 " bytes of l1_bytes %" PRIu64
			   " are free in huge pages of 2 MiB: reserve %" PRIu64
			   " more of them (sysctl vm.nr_hugepages)",
			   l1_bytes, free_bytes, pages - free_bytes / HUGE_PAGE_BYTES);
}

static int
open_fds(struct scout__pool *pool, char *err, size_t err_len)
{
	pool->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (pool->wake_fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "eventfd: %s", scout__errno_text(errno));
	pool->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->ready_fd < 0) {
		int code = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "eventfd: %s", scout__errno_text(errno));

		(void)close(pool->wake_fd);
		return code;
	}
	return 0;
}

int
scout__pool_init(struct scout__pool *pool, uint64_t l1_bytes, uint64_t extent_bytes, const struct scout__log *log,
		 char *err, size_t err_len)
{
	int code;
	int system_error;

	code = scout__pool_check_size(l1_bytes, log, err, err_len);
	if (code)
		return code;
	memset(pool, 0, sizeof(*pool));
	pool->l1_bytes = l1_bytes;
	pool->extent_bytes = extent_bytes;
	scout__pool_limits_read("", &pool->limits);
	pool->max_segments = scout__pool_max_segments(&pool->limits);
	pool->next_segment = 1;
	pool->told_us = scout__now_us();
	pool->log = log;
	atomic_init(&pool->stop, false);
	atomic_init(&pool->rung, false);
	code = scout__ring_init(&pool->chores, MAX_CHORES);
	if (!code)
		code = scout__ring_init(&pool->ready, MAX_GROWING);
	if (code)
		(void)scout__fail(err, err_len, code, "out of memory");
	else
		code = open_fds(pool, err, err_len);
	if (code)
		goto err_free_rings;
	system_error = scout__thread_start(&pool->grower, "scout-grower", grower_main, pool);
	if (system_error) {
		code = scout__fail_thread(err, err_len, system_error);
		goto err_close_fds;
	}
	pool->grower_started = true;
	return 0;

err_close_fds:
	(void)close(pool->ready_fd);
	(void)close(pool->wake_fd);
err_free_rings:
	scout__ring_fini(&pool->ready);
	scout__ring_fini(&pool->chores);
	return code;
}

void
scout__pool_stop(struct scout__pool *pool)
{
	if (!pool->grower_started)
		return;
	atomic_store_explicit(&pool->stop, true, memory_order_release);
	scout__eventfd_raise(pool->wake_fd);
	(void)pthread_join(pool->grower, NULL); /* cannot fail: started, joined once, and not by itself */
	pool->grower_started = false;
	(void)close(pool->ready_fd);
	(void)close(pool->wake_fd);
	scout__ring_fini(&pool->ready);
	scout__ring_fini(&pool->chores);
}

void
scout__pool_fini(struct scout__pool *pool)
{
	if (!pool->grower_started)
		return;
	scout__pool_stop(pool);
	while (pool->growing) {
		struct scout__extent *extent = pool->growing;

		pool->growing = extent->next;
		scout__extent_free(pool, extent);
	}
	SCOUT_ASSERT(pool->used_bytes == 0 && pool->extra_bytes == 0);
}

/* Slots of an extent whose size the user leaves to us. l1_bytes is at most 2^50, and n_ranks 64: no overflow. */
static uint64_t
slots_needed(const struct scout__pool *pool, uint64_t slot_bytes, uint32_t n_ranks)
{
	uint64_t most = pool->l1_bytes / MIN_EXTENTS / slot_bytes;
	uint64_t part = pool->l1_bytes / PARTS;
	uint64_t bytes = scout__max(scout__min(MIN_BYTES, part), pool->l1_bytes * n_ranks / pool->max_segments);
	uint64_t slots = scout__max(scout__min(MIN_SLOTS, part / slot_bytes), round_up(bytes, slot_bytes) / slot_bytes);

	return slots < most ? slots : most;
}

uint64_t
scout__pool_extent_slots(const struct scout__pool *pool, uint64_t slot_bytes, uint32_t n_ranks)
{
	uint64_t slots = pool->extent_bytes ? pool->extent_bytes / slot_bytes : slots_needed(pool, slot_bytes, n_ranks);

	if (slots == 0)
		return 1;
	return slots < MAX_SLOTS ? slots : MAX_SLOTS;
}

/* How many slots of @slot_bytes the next extent has. */
static uint32_t
next_slots(const struct scout__pool *pool, uint64_t slot_bytes, uint32_t n_ranks, uint32_t max_slots)
{
	uint64_t slots = scout__pool_extent_slots(pool, slot_bytes, n_ranks);
	uint64_t left = (pool->l1_bytes - pool->used_bytes) / slot_bytes;

	if (slots > left)
		slots = left;
	return (uint32_t)(slots < max_slots ? slots : max_slots);
}

/* NULL: no memory for it. */
static struct scout__extent *
extent_new(struct scout__pool *pool, const uint64_t *strides, const uint16_t *nodes, uint32_t n_ranks, uint32_t slots)
{
	struct scout__extent *extent = calloc(1, sizeof(*extent) + n_ranks * sizeof(extent->segments[0]));

	if (!extent)
		return NULL;
	extent->slots = slots;
	extent->n_ranks = n_ranks;
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		struct scout__segment *segment = &extent->segments[rank];

		extent->slot_bytes += slots * strides[rank];
		segment->id = pool->next_segment++;
		segment->fd = -1;
		segment->stride = strides[rank];
		segment->numa = nodes ? nodes[rank] : 0;
		segment->data_offset = round_up(slots * 3 * sizeof(*segment->words), scout__page_bytes());
	}
	return extent;
}

int
scout__pool_want(struct scout__pool *pool, void *owner, const uint64_t *strides, const uint16_t *nodes,
		 uint32_t n_ranks, uint32_t max_slots)
{
	struct scout__extent *extent;
	uint64_t slot_bytes = 0;
	uint32_t slots;

	SCOUT_ASSERT(n_ranks > 0);
	for (uint32_t rank = 0; rank < n_ranks; rank++)
		if (__builtin_add_overflow(slot_bytes, strides[rank], &slot_bytes))
			return 0;
	slots = next_slots(pool, slot_bytes, n_ranks, max_slots);
	if (slots == 0)
		return 0;
	if (pool->n_growing == MAX_GROWING)
		return SCOUT_ERR_NOMEM;
	extent = extent_new(pool, strides, nodes, n_ranks, slots);
	if (!extent)
		return SCOUT_ERR_NOMEM;
	extent->owner = owner;
	if (!give(pool, &extent->chore, do_grow)) {
		free(extent);
		return SCOUT_ERR_NOMEM;
	}
	pool->used_bytes += extent->slot_bytes;
	extent->next = pool->growing;
	pool->growing = extent;
	pool->n_growing++;
	return 1;
}

static struct scout__extent *
pop_ready(struct scout__pool *pool)
{
	uint64_t word = scout__ring_pop(&pool->ready);

	if (!word) {
		/* Silence the bell, then look again: what was pushed before the bell rang is seen now. */
		(void)scout__eventfd_lower(pool->ready_fd);
		word = scout__ring_pop(&pool->ready);
	}
	return to_pointer(word);
}

int
scout__pool_try(struct scout__pool *pool, char *err, size_t err_len)
{
	const uint64_t stride = SCOUT__SLOT_ALIGN_PAGE;
	uint64_t slots = scout__min(scout__pool_extent_slots(pool, stride, 1), pool->l1_bytes / stride);
	struct pollfd ready = {.fd = pool->ready_fd, .events = POLLIN};
	struct scout__extent *extent;
	int rc = 0;

	if (slots == 0)
		return 0;
	extent = extent_new(pool, &stride, NULL, 1, (uint32_t)slots);
	if (!extent || !give(pool, &extent->chore, do_grow)) {
		free(extent);
		return scout__fail_no_memory(err, err_len);
	}
	while (!pop_ready(pool))
		(void)poll(&ready, 1, -1);
	if (extent->error == SCOUT_ERR_SYSTEM)
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
				 "the pool has no memory: %s of %" PRIu64 " bytes: errno %d, %s%s", extent->failed,
				 extent_total(extent, scout__page_bytes()), extent->system_error,
				 scout__errno_text(extent->system_error),
				 extent->system_error == EFBIG ? ": raise the limit of a file's size (ulimit -f)" : "");
	pool->next_segment = 1;
	scout__pool_do(pool, &extent->chore, do_close);
	return rc;
}

/* The first failure is an error, those that follow without a success between are not worth a line each. */
static void
log_failure(struct scout__pool *pool, const struct scout__extent *extent)
{
	int level = pool->failing ? SCOUT_LOG_DEBUG : SCOUT_LOG_ERROR;
	const char *text = scout__errno_text(extent->system_error);
	uint64_t bytes = extent_total(extent, scout__page_bytes());

	pool->failing = true;
	pool->failures++;
	pool->failed_errno = (uint64_t)extent->system_error;
	if (extent->available_bytes)
		scout__log(pool->log, level,
			   "growing the pool failed: %" PRIu64 " bytes (%.2f GiB) are needed, %" PRIu64
			   " (%.2f GiB) available; stores evict instead",
			   bytes, (double)bytes / GIB, extent->available_bytes, (double)extent->available_bytes / GIB);
	else
		scout__log(pool->log, level,
			   "growing the pool by %" PRIu64 " bytes (%.2f GiB) failed: %s: errno %d, %s; "
			   "stores evict instead",
			   bytes, (double)bytes / GIB, extent->failed, extent->system_error, text);
}

/* Once in a tenth of the pool, or in two seconds: filling a large one takes minutes, and somebody watches. */
static void
tell_progress(struct scout__pool *pool, uint64_t page_bytes)
{
	uint64_t now_us = scout__now_us();
	uint64_t more = pool->used_bytes > pool->logged_bytes ? pool->used_bytes - pool->logged_bytes : 0;

	if ((more < pool->l1_bytes / 10 || more < PROGRESS_BYTES) && now_us - pool->told_us < PROGRESS_US)
		return;
	pool->logged_bytes = pool->used_bytes;
	pool->told_us = now_us;
	scout__log(pool->log, SCOUT_LOG_INFO,
		   "the pool has grown to %" PRIu64 " of %" PRIu64 " bytes (%u %%), pages of %" PRIu64 " bytes%s",
		   pool->used_bytes, pool->l1_bytes,
		   (unsigned)((double)pool->used_bytes * 100 / (double)pool->l1_bytes), page_bytes,
		   page_bytes == HUGE_PAGE_BYTES ? " (huge pages)" : "");
}

static void
note_success(struct scout__pool *pool, struct scout__extent *extent)
{
	uint64_t page_bytes = extent->segments[0].page_bytes;

	pool->failing = false;
	pool->failed_errno = 0;
	if (extent->not_bound && !pool->told_not_bound)
		scout__log(pool->log, SCOUT_LOG_WARN,
			   "the pool's memory cannot be bound to the NUMA node of the workers; copies may be slower");
	pool->told_not_bound |= extent->not_bound;
	extent->extra_bytes = extent_total(extent, page_bytes) - extent->slot_bytes;
	pool->extra_bytes += extent->extra_bytes;
	if (pool->page_bytes != page_bytes)
		scout__log(pool->log, SCOUT_LOG_INFO, "the pool grows in pages of %" PRIu64 " bytes%s", page_bytes,
			   page_bytes == HUGE_PAGE_BYTES ? " (huge pages)" : "");
	pool->page_bytes = page_bytes;
	tell_progress(pool, page_bytes);
}

struct scout__extent *
scout__pool_ready(struct scout__pool *pool)
{
	struct scout__extent *extent;
	struct scout__extent **at;

	while ((extent = pop_ready(pool))) {
		for (at = &pool->growing; *at != extent; at = &(*at)->next)
			;
		*at = extent->next;
		extent->next = NULL;
		pool->n_growing--;
		if (extent->error)
			log_failure(pool, extent);
		else
			note_success(pool, extent);
		if (extent->owner)
			return extent;
		scout__extent_free(pool, extent);
	}
	return NULL;
}

void
scout__pool_disown(struct scout__pool *pool, const void *owner)
{
	for (struct scout__extent *extent = pool->growing; extent; extent = extent->next)
		if (extent->owner == owner)
			extent->owner = NULL;
}

void
scout__extent_free(struct scout__pool *pool, struct scout__extent *extent)
{
	pool->used_bytes -= extent->slot_bytes;
	pool->extra_bytes -= extent->extra_bytes;
	/* Those that a failed one had reserved were never there to be had. */
	if (!extent->error)
		pool->returns++;
	scout__pool_do(pool, &extent->chore, do_close);
}
