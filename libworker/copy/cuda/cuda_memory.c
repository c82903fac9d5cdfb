/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "page.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: pin the pool's memory while no thread waits.
 *
 * Pinning takes some 0.1 to 0.5 s for a GiB, so a thread of its own does it, and copies and the courier's heartbeats go on
 * meanwhile. Memory is pinned in parts of part_bytes: a removal waits for one part at most, and the log shows progress. A
 * part ends where a page and a slot end, so no page is pinned twice and every slot has one device address. A pool whose
 * slots never end on a page becomes one part.
 *
 * A pool of hundreds of GiB that is there already takes a minute or more: what a copy waits for is pinned first, in the order of the
 * first such copies, then the rest by address. While no copy waits, the thread rests after each part as long as that part took,
 * times the workers that pin on this host: page-locking holds locks of the driver that other calls of CUDA wait for, in all
 * processes (TensorRT-LLM's pull request 17773 tells of it), and the workers of a pool all pin at the same time.
 *
 * Memory that cannot be pinned is said with what to raise, and is tried again, after 1 s at first and after a minute at last. Until
 * then it is copied as it is (pageable): at a fraction of the speed, and the copying thread waits for it. What is pinned of it stays
 * pinned: a DMA may be running there. No copy meets the end of what is pinned, for slots end there, too.
 *
 * Who waits: scout__cuda_memory_remove(), on the courier. The mapping ends after that call, and the driver must have let go
 * of it.
 *
 * Threads: regions belong to the mutex; the pinning thread drops it around calls of CUDA. Only that thread removes a
 * region, so the region that it works on stays.
 */

#define PROGRESS_US 1000000u
#define RETRY_US UINT64_C(1000000) /* after the first failure; doubled with each further one */
#define RETRY_MAX_US UINT64_C(60000000)

struct pin_part {
	uint64_t at; /* offset of its first byte in the mapping */
	uint64_t end;
	uint64_t device; /* address of its first byte on the GPU */
};

/* All fields: G:mu; but while a region is being pinned or unpinned, parts and n_parts belong to the pinning thread. */
struct scout__cuda_region {
	struct scout__copy_memory of;
	enum scout__cuda_pinning state;
	bool drop;       /* somebody waits for its end */
	uint64_t wanted; /* its place among those that copies wait for; 0: no copy does */
	/* pageable: when it is tried again, and how long after that one more time; else 0 */
	uint64_t retry_us, pause_us;
	struct pin_part *parts;
	uint64_t n_parts, max_parts;
};

uint64_t
scout__cuda_part_end(const struct scout__copy_memory *of, uint64_t at, uint64_t part_bytes)
{
	uint64_t page = scout__page_bytes(), slots, end;

	if (of->stride == 0 || of->bytes - at <= part_bytes || at + part_bytes <= of->first_slot)
		return of->bytes;
	slots = (at + part_bytes - of->first_slot + of->stride - 1) / of->stride;
	/* The offsets of slot ends within a page repeat after at most as many slots as a page has bytes. */
	for (uint32_t i = 0; i < page; i++) {
		end = of->first_slot + (slots + i) * of->stride;
		if (end >= of->bytes)
			break;
		if (end % page == 0)
			return end;
	}
	return of->bytes;
}

/* ---- looking up ---- */

/* The number of regions that begin at or below @address. */
static size_t
count_below(const struct scout__cuda_memory *memory, uintptr_t address)
{
	size_t low = 0, high = memory->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if ((uintptr_t)memory->regions[middle]->of.base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct scout__cuda_region *
find_region(const struct scout__cuda_memory *memory, const void *p)
{
	size_t below = count_below(memory, (uintptr_t)p);
	struct scout__cuda_region *region;

	if (below == 0)
		return NULL;
	region = memory->regions[below - 1];
	return (uintptr_t)p - (uintptr_t)region->of.base < region->of.bytes ? region : NULL;
}

static const struct pin_part *
part_of(const struct scout__cuda_region *region, uint64_t at)
{
	uint64_t low = 0, high = region->n_parts;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (region->parts[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	return &region->parts[low];
}

void
scout__cuda_memory_find(struct scout__cuda_memory *memory, const void *slot, struct scout__cuda_found *found)
{
	struct scout__cuda_region *region;
	const struct pin_part *part;

	if ((uintptr_t)slot - (uintptr_t)found->from < found->bytes)
		return;
	*found = (struct scout__cuda_found){.bytes = 0};
	(void)pthread_mutex_lock(&memory->mu);
	region = find_region(memory, slot);
	if (region && !region->drop)
		*found = (struct scout__cuda_found){
			.from = region->of.base, .bytes = region->of.bytes, .state = region->state};
	if (found->state == SCOUT__CUDA_PINNED) {
		part = part_of(region, (uintptr_t)slot - (uintptr_t)region->of.base);
		found->from += part->at;
		found->bytes = part->end - part->at;
		found->device = part->device;
	}
	(void)pthread_mutex_unlock(&memory->mu);
}

bool
scout__cuda_memory_is_pinned(struct scout__cuda_memory *memory)
{
	size_t n = 0;
	bool is_pinned;

	(void)pthread_mutex_lock(&memory->mu);
	while (n < memory->n && memory->regions[n]->state == SCOUT__CUDA_PINNED && !memory->regions[n]->drop)
		n++;
	is_pinned = n == memory->n;
	(void)pthread_mutex_unlock(&memory->mu);
	return is_pinned;
}

bool
scout__cuda_memory_wait_for(struct scout__cuda_memory *memory, const void *slot)
{
	struct scout__cuda_region *region;
	bool waits;

	(void)pthread_mutex_lock(&memory->mu);
	region = find_region(memory, slot);
	waits = region && !region->drop && region->state == SCOUT__CUDA_PINNING;
	if (waits && region->wanted == 0) {
		region->wanted = ++memory->n_wanted;
		(void)pthread_cond_broadcast(&memory->cond);
	}
	(void)pthread_mutex_unlock(&memory->mu);
	return waits;
}

/* ---- the pinning thread ---- */

static void
say(const struct scout__cuda_memory *memory, int level, const char *text)
{
	if (memory->log)
		scout__log(memory->log, level, "%s", text);
}

static void
say_unpinnable(const struct scout__cuda_memory *memory, uint64_t bytes, int error)
{
	struct rlimit limit = {0};
	char now[32] = "unlimited", text[480];

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		(void)snprintf(now, sizeof(now), "%" PRIu64 " KiB", (uint64_t)limit.rlim_cur / 1024);
	(void)snprintf(
		text, sizeof(text),
		"cannot pin %" PRIu64
		" MiB of the pool for the GPU (%s): raise the memory limit of the container or make l1_bytes smaller, and if that "
		"does not help, raise RLIMIT_MEMLOCK (now %s; ulimit -l, LimitMEMLOCK= of a systemd unit, --ulimit memlock=-1 of a "
		"container); confidential computing forbids pinning; until it can be pinned, copies of chunks in this memory are slow",
		bytes >> 20, scout__cuda_api_error_name(error), now);
	say(memory, SCOUT_LOG_WARN, text);
}

/* Pin the next part of a region. Returns a CUDA error. The lock is not held. */
static int
pin_next_part(struct scout__cuda_memory *memory, struct scout__cuda_region *region)
{
	struct pin_part *part = &region->parts[region->n_parts];
	uint8_t *base;
	void *device = NULL;
	int rc;

	part->at = region->n_parts ? part[-1].end : 0;
	part->end = scout__cuda_part_end(&region->of, part->at, memory->part_bytes);
	base = region->of.base + part->at;
	rc = scout__cuda_api_host_register(base, part->end - part->at);
	if (rc)
		return rc;
	rc = scout__cuda_api_host_device_pointer(&device, base);
	if (rc) {
		(void)scout__cuda_api_host_unregister(base); /* rc says what failed */
		return rc;
	}
	part->device = (uintptr_t)device;
	return 0;
}

static int
pin_part_timed(struct scout__cuda_memory *memory, struct scout__cuda_region *region)
{
	uint64_t begin_us = scout__now_us();
	int rc = pin_next_part(memory, region);

	uint64_t end_us = scout__now_us();

	memory->rest_until_us = end_us + (end_us - begin_us) * memory->n_pinning;
	return rc;
}

/* The lock is not held. */
static void
unpin(struct scout__cuda_region *region)
{
	while (region->n_parts > 0) {
		region->n_parts--;
		/* Fails only if the device has failed; then the driver lets go of the pages with the process. */
		(void)scout__cuda_api_host_unregister(region->of.base + region->parts[region->n_parts].at);
	}
}

/* Regions to drop come first, then those that copies wait for, then what is tried again now. The lock is held. */
static struct scout__cuda_region *
find_work(const struct scout__cuda_memory *memory)
{
	struct scout__cuda_region *first = NULL, *again = NULL;
	uint64_t now_us = scout__now_us();

	for (size_t i = 0; i < memory->n; i++) {
		struct scout__cuda_region *region = memory->regions[i];

		if (region->drop)
			return region;
		if (region->state == SCOUT__CUDA_PAGEABLE && region->retry_us <= now_us)
			again = region;
		if (region->state != SCOUT__CUDA_PINNING)
			continue;
		if (!first || (region->wanted && (!first->wanted || region->wanted < first->wanted)))
			first = region;
	}
	return first ? first : again;
}

static void
forget(struct scout__cuda_memory *memory, struct scout__cuda_region *region)
{
	size_t at = count_below(memory, (uintptr_t)region->of.base) - 1;

	memory->n--;
	memmove(memory->regions + at, memory->regions + at + 1, (memory->n - at) * sizeof(struct scout__cuda_region *));
	free(region->parts);
	free(region);
	(void)pthread_cond_broadcast(&memory->cond);
}

/* How many bytes are pinned, and how many will be, over all regions; the lock is held. */
static void
say_progress(const struct scout__cuda_memory *memory, uint64_t *last_us)
{
	uint64_t now_us = scout__now_us(), done = 0, all = 0;
	char text[100];

	if (now_us - *last_us < PROGRESS_US)
		return;
	*last_us = now_us;
	for (size_t i = 0; i < memory->n; i++) {
		const struct scout__cuda_region *region = memory->regions[i];

		all += region->of.bytes;
		done += region->n_parts ? region->parts[region->n_parts - 1].end : 0;
	}
	(void)snprintf(text, sizeof(text), "pinned %" PRIu64 " of %" PRIu64 " MiB of the pool for the GPU", done >> 20,
		       all >> 20);
	say(memory, SCOUT_LOG_INFO, text);
}

/* One step of work on a region: pin a part, or unpin all. The lock is held, and dropped in between. */
static void
work_on(struct scout__cuda_memory *memory, struct scout__cuda_region *region, uint64_t *last_us)
{
	bool drop = region->drop;
	bool changed = false, was_slow;
	int rc = 0;

	if (drop)
		region->state = SCOUT__CUDA_PINNING; /* no other thread looks at its parts now */
	(void)pthread_mutex_unlock(&memory->mu);
	if (drop)
		unpin(region);
	else
		rc = pin_part_timed(memory, region);
	if (rc && region->pause_us == 0)
		say_unpinnable(memory, region->of.bytes, rc);
	(void)pthread_mutex_lock(&memory->mu);
	if (drop) {
		forget(memory, region);
		return;
	}
	if (rc) {
		changed = region->state == SCOUT__CUDA_PINNING;
		region->state = SCOUT__CUDA_PAGEABLE;
		region->pause_us = region->pause_us ? region->pause_us * 2 : RETRY_US;
		region->pause_us = region->pause_us < RETRY_MAX_US ? region->pause_us : RETRY_MAX_US;
		region->retry_us = scout__now_us() + region->pause_us;
	} else if (region->parts[region->n_parts++].end == region->of.bytes) {
		region->state = SCOUT__CUDA_PINNED;
		changed = true;
	}
	was_slow = region->state == SCOUT__CUDA_PINNED && region->pause_us > 0;
	say_progress(memory, last_us);
	(void)pthread_mutex_unlock(&memory->mu);
	if (was_slow)
		say(memory, SCOUT_LOG_INFO, "memory of the pool that could not be pinned is pinned now");
	if (changed)
		memory->ready(memory->user);
	(void)pthread_mutex_lock(&memory->mu);
}

/* When a region is tried again; UINT64_MAX: there is none. The lock is held. */
static uint64_t
find_retry(const struct scout__cuda_memory *memory)
{
	uint64_t first_us = UINT64_MAX;

	for (size_t i = 0; i < memory->n; i++)
		if (memory->regions[i]->state == SCOUT__CUDA_PAGEABLE && memory->regions[i]->retry_us < first_us)
			first_us = memory->regions[i]->retry_us;
	return first_us;
}

static void *
pin_main(void *arg)
{
	struct scout__cuda_memory *memory = arg;
	struct scout__cuda_region *region;
	uint64_t last_us = scout__now_us();

	/* If this fails, so will every later call, and that call reports it. */
	(void)scout__cuda_api_enter_thread(memory->device);
	(void)pthread_mutex_lock(&memory->mu);
	for (;;) {
		region = find_work(memory);
		if (region && !region->drop && !region->wanted && scout__now_us() < memory->rest_until_us)
			(void)scout__cond_wait_until(&memory->cond, &memory->mu, memory->rest_until_us);
		else if (region)
			work_on(memory, region, &last_us);
		else if (memory->stop)
			break;
		else if (find_retry(memory) != UINT64_MAX)
			(void)scout__cond_wait_until(&memory->cond, &memory->mu, find_retry(memory));
		else
			(void)pthread_cond_wait(&memory->cond, &memory->mu);
	}
	(void)pthread_mutex_unlock(&memory->mu);
	return NULL;
}

/* ---- for the engine ---- */

int
scout__cuda_memory_init(struct scout__cuda_memory *memory, int device, uint64_t part_bytes, uint32_t n_pinning,
			void (*ready)(void *), void *user, const struct scout__log *log)
{
	memset(memory, 0, sizeof(*memory));
	memory->log = log;
	memory->device = device;
	memory->part_bytes = part_bytes;
	memory->n_pinning = n_pinning ? n_pinning : 1;
	memory->ready = ready;
	memory->user = user;
	(void)pthread_mutex_init(&memory->mu, NULL); /* does not fail here */
	scout__cond_init(&memory->cond);
	if (scout__thread_start(&memory->thread, "scout-pin", pin_main, memory) == 0)
		return 0;
	(void)pthread_cond_destroy(&memory->cond);
	(void)pthread_mutex_destroy(&memory->mu);
	return SCOUT_ERR_SYSTEM;
}

void
scout__cuda_memory_fini(struct scout__cuda_memory *memory)
{
	(void)pthread_mutex_lock(&memory->mu);
	memory->stop = true;
	for (size_t i = 0; i < memory->n; i++)
		memory->regions[i]->drop = true;
	(void)pthread_cond_broadcast(&memory->cond);
	(void)pthread_mutex_unlock(&memory->mu);
	(void)pthread_join(memory->thread, NULL);
	(void)pthread_cond_destroy(&memory->cond);
	(void)pthread_mutex_destroy(&memory->mu);
	free(memory->regions);
}

static struct scout__cuda_region *
region_new(const struct scout__copy_memory *added, uint64_t part_bytes)
{
	struct scout__cuda_region *region = calloc(1, sizeof(*region));
	uint64_t at = 0;

	if (!region)
		return NULL;
	region->of = *added;
	region->state = SCOUT__CUDA_PINNING;
	while (at < added->bytes) {
		at = scout__cuda_part_end(added, at, part_bytes);
		region->max_parts++;
	}
	region->parts = calloc(region->max_parts, sizeof(*region->parts));
	if (region->parts)
		return region;
	free(region);
	return NULL;
}

/* The lock is held. */
static int
make_room(struct scout__cuda_memory *memory)
{
	size_t want = memory->cap ? memory->cap * 2 : 16;
	struct scout__cuda_region **bigger;

	if (memory->n < memory->cap)
		return 0;
	bigger = realloc(memory->regions, want * sizeof(struct scout__cuda_region *));
	if (!bigger)
		return SCOUT_ERR_NOMEM;
	memory->regions = bigger;
	memory->cap = want;
	return 0;
}

int
scout__cuda_memory_add(struct scout__cuda_memory *memory, const struct scout__copy_memory *added)
{
	struct scout__cuda_region *region = region_new(added, memory->part_bytes);
	size_t at;
	int rc;

	if (!region)
		return SCOUT_ERR_NOMEM;
	(void)pthread_mutex_lock(&memory->mu);
	rc = make_room(memory);
	if (rc == 0) {
		at = count_below(memory, (uintptr_t)added->base);
		memmove(memory->regions + at + 1, memory->regions + at,
			(memory->n - at) * sizeof(struct scout__cuda_region *));
		memory->regions[at] = region;
		memory->n++;
		(void)pthread_cond_broadcast(&memory->cond);
	}
	(void)pthread_mutex_unlock(&memory->mu);
	if (rc) {
		free(region->parts);
		free(region);
	}
	return rc;
}

void
scout__cuda_memory_remove(struct scout__cuda_memory *memory, const void *base)
{
	struct scout__cuda_region *region;

	(void)pthread_mutex_lock(&memory->mu);
	region = find_region(memory, base);
	if (region) {
		region->drop = true;
		(void)pthread_cond_broadcast(&memory->cond);
	}
	/* The region is gone when nothing is found any more: addresses are not mapped again before this returns. */
	while (region && find_region(memory, base))
		(void)pthread_cond_wait(&memory->cond, &memory->mu);
	(void)pthread_mutex_unlock(&memory->mu);
}
