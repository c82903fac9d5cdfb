/* SPDX-License-Identifier: Apache-2.0 */
#include "mappings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doorbell.h"

/*
 * DESIGN
 *
 * Purpose: makes the memfds of the lease connection into addresses that the copy engine may use.
 *
 * Nothing in a message is trusted before it is checked against the memfd itself: its size, and the seal that keeps it
 * from shrinking under us (an access beyond the end of a mapped file is a SIGBUS in the engine's process).
 *
 * Segment ids are unique for one server start. When the server has been restarted, everything moves to `stale`:
 * grants of the new start never find it, and a batch that still runs on it keeps it mapped (its memory lives as long
 * as any mapping does). A segment that the server withdraws moves there, too, and on to `released` when it is
 * unmapped.
 *
 * A forked child gets none of the mappings: it does not need them, and would keep their memory.
 *
 * A mapping that goes is unpinned and unmapped on a thread of its own: a driver unpins a GiB in 50 to 100 ms, so after a restart of the
 * server the courier would stand still for seconds, and no heartbeat, cancel or end of a job would get through. The server hears that
 * a segment is released, and a restarted one gets our REGISTER, only when that thread is done: until then the memory is in use.
 *
 * Threads: the courier's, or the worker's maker before its start and after its end; the unmapping thread has what is in `leaving`.
 *
 * Rejected: a map from id to segment. Ids come in ascending order and there are some thousands at most: an ordered
 * array with the last hit remembered finds most of them at once and the rest in some ten steps.
 */

/* A server that sends more is broken. */
#define MAX_SEGMENTS (1u << 20)

int
scout__mappings_init(struct scout__mappings *mappings, const struct scout__log *log)
{
	memset(mappings, 0, sizeof(*mappings));
	mappings->log = log;
	mappings->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (mappings->fd < 0)
		return SCOUT_ERR_SYSTEM;
	mappings->is_open = true;
	(void)pthread_mutex_init(&mappings->mu, NULL); /* neither fails here */
	(void)pthread_cond_init(&mappings->cond, NULL);
	return 0;
}

/* Tell the engine of a segment; 0 if there is no engine yet. */
static int
introduce(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	const struct scout__copy_memory memory = {
		.base = mapping->base,
		.bytes = mapping->bytes,
		.first_slot = mapping->data_offset,
		.stride = mapping->stride,
	};
	int rc;

	if (!mappings->engine || !mapping->base || mapping->known)
		return 0;
	rc = mappings->copy->add_memory(mappings->engine, &memory);
	mapping->known = rc == 0;
	return rc;
}

static void
take_from_engine(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	if (mapping->known)
		mappings->copy->remove_memory(mappings->engine, mapping->base);
	mapping->known = false;
}

static void
unmap(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	take_from_engine(mappings, mapping);
	if (mapping->base)
		(void)munmap(mapping->base, mapping->bytes);
	mapping->base = NULL;
}

static void
free_list(struct scout__mappings *mappings, struct scout__mapping **list)
{
	while (*list) {
		struct scout__mapping *mapping = *list;

		*list = mapping->next_stale;
		unmap(mappings, mapping);
		free(mapping);
	}
}

/* ---- in the background ---- */

static void *
unmap_main(void *arg)
{
	struct scout__mappings *mappings = arg;

	(void)pthread_mutex_lock(&mappings->mu);
	for (;;) {
		struct scout__mapping *mapping = mappings->leaving;

		if (!mapping && mappings->stop)
			break;
		if (!mapping) {
			(void)pthread_cond_wait(&mappings->cond, &mappings->mu);
			continue;
		}
		mappings->leaving = mapping->next_stale;
		(void)pthread_mutex_unlock(&mappings->mu);
		unmap(mappings, mapping);
		(void)pthread_mutex_lock(&mappings->mu);
		mapping->next_stale = mappings->unmapped;
		mappings->unmapped = mapping;
		mappings->n_leaving--;
		scout__eventfd_raise(mappings->fd);
		(void)pthread_cond_broadcast(&mappings->cond);
	}
	(void)pthread_mutex_unlock(&mappings->mu);
	return NULL;
}

/* Unmapped: noted if its server waits for that. */
static void
gone(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	if (!mapping->withdrawn || mapping->era != mappings->era) {
		free(mapping);
		return;
	}
	mapping->next_stale = mappings->released;
	mappings->released = mapping;
}

void
scout__mappings_collect(struct scout__mappings *mappings)
{
	struct scout__mapping *mapping;

	if (!scout__eventfd_lower(mappings->fd))
		return;
	(void)pthread_mutex_lock(&mappings->mu);
	mapping = mappings->unmapped;
	mappings->unmapped = NULL;
	(void)pthread_mutex_unlock(&mappings->mu);
	while (mapping) {
		struct scout__mapping *next = mapping->next_stale;

		gone(mappings, mapping);
		mapping = next;
	}
}

bool
scout__mappings_are_leaving(struct scout__mappings *mappings)
{
	bool are;

	(void)pthread_mutex_lock(&mappings->mu);
	are = mappings->n_leaving > 0;
	(void)pthread_mutex_unlock(&mappings->mu);
	return are;
}

/* Until nothing is being unmapped. */
static void
settle(struct scout__mappings *mappings)
{
	(void)pthread_mutex_lock(&mappings->mu);
	while (mappings->n_leaving > 0)
		(void)pthread_cond_wait(&mappings->cond, &mappings->mu);
	(void)pthread_mutex_unlock(&mappings->mu);
}

/* Out of use and out of every list. */
static void
let_go(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	if (!mappings->has_thread && mapping->base)
		mappings->has_thread = scout__thread_start(&mappings->thread, "scout-unmap", unmap_main, mappings) == 0;
	if (!mappings->has_thread || !mapping->base) {
		unmap(mappings, mapping); /* without a thread the courier waits, as it must */
		gone(mappings, mapping);
		return;
	}
	(void)pthread_mutex_lock(&mappings->mu);
	mapping->next_stale = mappings->leaving;
	mappings->leaving = mapping;
	mappings->n_leaving++;
	(void)pthread_cond_broadcast(&mappings->cond);
	(void)pthread_mutex_unlock(&mappings->mu);
}

static void
end_thread(struct scout__mappings *mappings)
{
	if (!mappings->has_thread)
		return;
	(void)pthread_mutex_lock(&mappings->mu);
	mappings->stop = true;
	(void)pthread_cond_broadcast(&mappings->cond);
	(void)pthread_mutex_unlock(&mappings->mu);
	(void)pthread_join(mappings->thread, NULL);
}

void
scout__mappings_fini(struct scout__mappings *mappings)
{
	if (!mappings->is_open)
		return;
	end_thread(mappings);
	free_list(mappings, &mappings->unmapped);
	(void)close(mappings->fd);
	(void)pthread_cond_destroy(&mappings->cond);
	(void)pthread_mutex_destroy(&mappings->mu);
	for (size_t i = 0; i < mappings->n; i++) {
		unmap(mappings, mappings->list[i]);
		free(mappings->list[i]);
	}
	free_list(mappings, &mappings->stale);
	free_list(mappings, &mappings->released);
	free(mappings->list);
	memset(mappings, 0, sizeof(*mappings));
}

void
scout__mappings_attach(struct scout__mappings *mappings, const struct scout__copy_ops *copy, void *engine)
{
	mappings->copy = copy;
	mappings->engine = engine;
	for (size_t i = 0; i < mappings->n; i++) {
		if (introduce(mappings, mappings->list[i]) == 0)
			continue;
		scout__log(mappings->log, SCOUT_LOG_ERROR, "the copy engine does not take pool segment %u",
			   (unsigned)mappings->list[i]->id);
		unmap(mappings, mappings->list[i]);
	}
}

void
scout__mappings_detach(struct scout__mappings *mappings)
{
	for (size_t i = 0; i < mappings->n; i++)
		take_from_engine(mappings, mappings->list[i]);
	for (struct scout__mapping *mapping = mappings->stale; mapping; mapping = mapping->next_stale)
		take_from_engine(mappings, mapping);
	settle(mappings);
	mappings->engine = NULL;
}

static int
make_room(struct scout__mappings *mappings)
{
	struct scout__mapping **bigger;
	size_t want = mappings->cap ? mappings->cap * 2 : 16;

	if (mappings->n < mappings->cap)
		return 0;
	if (mappings->n >= MAX_SEGMENTS)
		return SCOUT_ERR_PROTOCOL;
	bigger = realloc(mappings->list, want * sizeof(struct scout__mapping *));
	if (!bigger)
		return SCOUT_ERR_NOMEM;
	mappings->list = bigger;
	mappings->cap = want;
	return 0;
}

/* The place of the first segment whose id is not below @id. */
static size_t
place_of(const struct scout__mappings *mappings, uint32_t id)
{
	size_t low = 0;
	size_t high = mappings->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (mappings->list[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct scout__mapping *
scout__mappings_find(struct scout__mappings *mappings, uint32_t id)
{
	size_t at;

	if (mappings->last && mappings->last->id == id)
		return mappings->last;
	at = place_of(mappings, id);
	if (at == mappings->n || mappings->list[at]->id != id)
		return NULL;
	mappings->last = mappings->list[at];
	return mappings->last;
}

/* The sentence that says what is wrong with the numbers of a segment, or NULL. */
static const char *
find_fault(const struct scout__lease_msg *msg, int fd)
{
	struct stat st;
	uint64_t words;
	uint64_t data;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "its memfd may shrink";
	if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size < msg->bytes)
		return "its memfd is shorter than it says";
	if (msg->slots == 0 || msg->bytes == 0 || msg->bytes > SIZE_MAX)
		return "it is empty or too large";
	words = (uint64_t)msg->slots * sizeof(uint64_t);
	if (words > msg->data_offset || msg->data_offset > msg->bytes)
		return "its slots and generation words overlap";
	if (__builtin_mul_overflow((uint64_t)msg->slots, msg->slot_stride, &data) || msg->slot_stride == 0 ||
	    data > msg->bytes - msg->data_offset)
		return "its slots do not fit";
	return NULL;
}

/* Map the segment and tell the engine. On error it stays without memory. */
static int
map(struct scout__mappings *mappings, struct scout__mapping *mapping, const struct scout__lease_msg *msg, int fd)
{
	const char *fault = find_fault(msg, fd);
	void *base;
	int rc;

	if (fault) {
		scout__log(mappings->log, SCOUT_LOG_ERROR, "pool segment %u refused: %s", (unsigned)msg->segment,
			   fault);
		return SCOUT_ERR_PROTOCOL;
	}
	base = mmap(NULL, (size_t)msg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		scout__log(mappings->log, SCOUT_LOG_ERROR, "pool segment %u: mmap of %llu bytes failed (%s)",
			   (unsigned)msg->segment, (unsigned long long)msg->bytes, scout__errno_text(errno));
		return SCOUT_ERR_SYSTEM;
	}
	(void)madvise(base, (size_t)msg->bytes, MADV_DONTFORK); /* advice; if it fails, a child has it too */
	mapping->base = base;
	rc = introduce(mappings, mapping);
	if (rc) {
		scout__log(mappings->log, SCOUT_LOG_ERROR, "the copy engine does not take pool segment %u: %s",
			   (unsigned)msg->segment, scout_strerror(rc));
		unmap(mappings, mapping);
	}
	return rc;
}

int
scout__mappings_add(struct scout__mappings *mappings, uint64_t epoch, const struct scout__lease_msg *msg, int fd)
{
	struct scout__mapping *mapping;
	size_t at = place_of(mappings, msg->segment);
	int rc = 0;

	/* The server sends it again on a new lease connection. */
	if (at < mappings->n && mappings->list[at]->id == msg->segment)
		goto out_close;
	rc = make_room(mappings);
	if (rc)
		goto out_close;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping) {
		rc = SCOUT_ERR_NOMEM;
		goto out_close;
	}
	mapping->epoch = epoch;
	mapping->id = msg->segment;
	mapping->slots = msg->slots;
	mapping->bytes = msg->bytes;
	mapping->data_offset = msg->data_offset;
	mapping->stride = msg->slot_stride;
	memmove(mappings->list + at + 1, mappings->list + at, (mappings->n - at) * sizeof(struct scout__mapping *));
	mappings->list[at] = mapping;
	mappings->n++;
	rc = map(mappings, mapping, msg, fd);
out_close:
	(void)close(fd);
	return rc;
}

static void
forget_stale(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	struct scout__mapping **at = &mappings->stale;

	while (*at != mapping)
		at = &(*at)->next_stale;
	*at = mapping->next_stale;
	let_go(mappings, mapping);
}

/* The segment is never found again: it is unmapped with its last user, or now. */
static void
make_stale(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	if (mapping->users == 0) {
		let_go(mappings, mapping);
		return;
	}
	mapping->stale = true;
	mapping->next_stale = mappings->stale;
	mappings->stale = mapping;
}

bool
scout__mappings_withdraw(struct scout__mappings *mappings, uint32_t id)
{
	size_t at = place_of(mappings, id);
	struct scout__mapping *mapping;

	if (at == mappings->n || mappings->list[at]->id != id)
		return false;
	mapping = mappings->list[at];
	mappings->n--;
	memmove(mappings->list + at, mappings->list + at + 1, (mappings->n - at) * sizeof(struct scout__mapping *));
	mappings->last = NULL;
	mapping->withdrawn = true;
	mapping->era = mappings->era;
	make_stale(mappings, mapping);
	return true;
}

uint32_t
scout__mappings_released(const struct scout__mappings *mappings)
{
	return mappings->released ? mappings->released->id : 0;
}

void
scout__mappings_told(struct scout__mappings *mappings)
{
	struct scout__mapping *mapping = mappings->released;

	mappings->released = mapping->next_stale;
	free(mapping);
}

void
scout__mappings_make_stale(struct scout__mappings *mappings)
{
	/* The server that waited to hear of the withdrawn ones is gone. */
	mappings->era++;
	free_list(mappings, &mappings->released);
	for (size_t i = 0; i < mappings->n; i++)
		make_stale(mappings, mappings->list[i]);
	mappings->n = 0;
	mappings->last = NULL;
}

void
scout__mapping_release(struct scout__mappings *mappings, struct scout__mapping *mapping)
{
	SCOUT_ASSERT(mapping->users > 0);
	if (--mapping->users == 0 && mapping->stale)
		forget_stale(mappings, mapping);
}

bool
scout__mapping_slot(const struct scout__mapping *mapping, uint64_t offset, uint64_t shard_bytes, uint8_t **ret_slot,
		    const _Atomic uint64_t **ret_word)
{
	uint64_t slot;

	if (offset < mapping->data_offset || (offset - mapping->data_offset) % mapping->stride != 0)
		return false;
	slot = (offset - mapping->data_offset) / mapping->stride;
	if (slot >= mapping->slots || shard_bytes > mapping->stride)
		return false;
	*ret_slot = mapping->base + offset;
	/* mmap returns whole pages, and the words are at the start of the segment: so they are aligned. */
	*ret_word = (const _Atomic uint64_t *)(const void *)mapping->base + slot;
	return true;
}

void
scout__mapping_writer(const struct scout__mapping *mapping, uint64_t offset, uint64_t *ret_id, uint64_t *ret_unix_s)
{
	const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)mapping->base;
	uint64_t slot = (offset - mapping->data_offset) / mapping->stride;
	bool has = (uint64_t)mapping->slots * 3 * sizeof(uint64_t) <= mapping->data_offset; /* not of an older server */

	*ret_id = has ? atomic_load_explicit(&words[mapping->slots + 2 * slot], memory_order_relaxed) : 0;
	*ret_unix_s = has ? atomic_load_explicit(&words[mapping->slots + 2 * slot + 1], memory_order_relaxed) : 0;
}
