/* SPDX-License-Identifier: Apache-2.0 */
#include "segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: from a memfd of the lease connection to addresses that the copy engine may use.
 *
 * Nothing that a message says is believed before it was compared with the memfd itself: its size, and the seal that
 * keeps it from shrinking under us (an access beyond the end of a mapped file is a SIGBUS in the engine's process).
 *
 * Segment ids are unique for one server start. When the server has been restarted, everything moves to `retired`:
 * grants of the new start never find it, and a batch that still runs on it keeps it mapped (its memory lives as long
 * as any mapping does). A segment that the server withdraws goes the same way, and on to `released` when it is unmapped.
 *
 * A forked child gets none of the mappings: it has no use for them, and would keep their memory.
 *
 * Threads: the courier's only; the worker's maker before its start and after its end.
 *
 * Rejected: a map from id to segment. Ids come in ascending order and there is one for each 64 MiB or so: an ordered
 * array with the last hit remembered finds most of them at once and the rest in some ten steps.
 */

/* More means a server that has lost its mind. */
#define MAX_SEGMENTS (1u << 20)

void
scout__segments_init(struct scout__segments *segs, const struct scout__log *log)
{
	memset(segs, 0, sizeof(*segs));
	segs->log = log;
}

/* Tell the engine; 0 if there is none yet. */
static int
introduce(struct scout__segments *segs, struct scout__segment *seg)
{
	const struct scout__copy_memory memory = {
		.base = seg->base,
		.bytes = seg->bytes,
		.first_slot = seg->data_offset,
		.stride = seg->stride,
	};
	int rc;

	if (!segs->engine || !seg->base || seg->known)
		return 0;
	rc = segs->copy->add_memory(segs->engine, &memory);
	seg->known = rc == 0;
	return rc;
}

static void
withdraw(struct scout__segments *segs, struct scout__segment *seg)
{
	if (seg->known)
		segs->copy->remove_memory(segs->engine, seg->base);
	seg->known = false;
}

static void
unmap(struct scout__segments *segs, struct scout__segment *seg)
{
	withdraw(segs, seg);
	if (seg->base)
		(void)munmap(seg->base, seg->bytes);
	seg->base = NULL;
}

static void
free_list(struct scout__segments *segs, struct scout__segment **list)
{
	while (*list) {
		struct scout__segment *seg = *list;

		*list = seg->next_retired;
		unmap(segs, seg);
		free(seg);
	}
}

void
scout__segments_fini(struct scout__segments *segs)
{
	for (size_t i = 0; i < segs->n; i++) {
		unmap(segs, segs->list[i]);
		free(segs->list[i]);
	}
	free_list(segs, &segs->retired);
	free_list(segs, &segs->released);
	free(segs->list);
	memset(segs, 0, sizeof(*segs));
}

void
scout__segments_attach(struct scout__segments *segs, const struct scout__copy_ops *copy, void *engine)
{
	segs->copy = copy;
	segs->engine = engine;
	for (size_t i = 0; i < segs->n; i++) {
		if (introduce(segs, segs->list[i]) == 0)
			continue;
		scout__log(segs->log, SCOUT_LOG_ERROR, "the copy engine does not take pool segment %u",
			   (unsigned)segs->list[i]->id);
		unmap(segs, segs->list[i]);
	}
}

void
scout__segments_detach(struct scout__segments *segs)
{
	for (size_t i = 0; i < segs->n; i++)
		withdraw(segs, segs->list[i]);
	for (struct scout__segment *seg = segs->retired; seg; seg = seg->next_retired)
		withdraw(segs, seg);
	segs->engine = NULL;
}

static int
make_room(struct scout__segments *segs)
{
	struct scout__segment **bigger;
	size_t want = segs->cap ? segs->cap * 2 : 16;

	if (segs->n < segs->cap)
		return 0;
	if (segs->n >= MAX_SEGMENTS)
		return SCOUT_ERR_PROTOCOL;
	bigger = realloc(segs->list, want * sizeof(struct scout__segment *));
	if (!bigger)
		return SCOUT_ERR_NOMEM;
	segs->list = bigger;
	segs->cap = want;
	return 0;
}

/* The place of the first segment whose id is not below @id. */
static size_t
place_of(const struct scout__segments *segs, uint32_t id)
{
	size_t low = 0;
	size_t high = segs->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (segs->list[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct scout__segment *
scout__segments_find(struct scout__segments *segs, uint32_t id)
{
	size_t at;

	if (segs->last && segs->last->id == id)
		return segs->last;
	at = place_of(segs, id);
	if (at == segs->n || segs->list[at]->id != id)
		return NULL;
	segs->last = segs->list[at];
	return segs->last;
}

/* What is wrong with the numbers of a segment, or NULL. */
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

/* Map and tell the engine. On error the segment stays without memory. */
static int
map(struct scout__segments *segs, struct scout__segment *seg, const struct scout__lease_msg *msg, int fd)
{
	const char *fault = find_fault(msg, fd);
	void *base;
	int rc;

	if (fault) {
		scout__log(segs->log, SCOUT_LOG_ERROR, "pool segment %u refused: %s", (unsigned)msg->segment, fault);
		return SCOUT_ERR_PROTOCOL;
	}
	base = mmap(NULL, (size_t)msg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) {
		scout__log(segs->log, SCOUT_LOG_ERROR, "pool segment %u: mmap of %llu bytes failed (%s)",
			   (unsigned)msg->segment, (unsigned long long)msg->bytes, scout__errno_text(errno));
		return SCOUT_ERR_SYSTEM;
	}
	(void)madvise(base, (size_t)msg->bytes, MADV_DONTFORK); /* advice; without it a child has it too */
	seg->base = base;
	rc = introduce(segs, seg);
	if (rc) {
		scout__log(segs->log, SCOUT_LOG_ERROR, "the copy engine does not take pool segment %u: %s",
			   (unsigned)msg->segment, scout_strerror(rc));
		unmap(segs, seg);
	}
	return rc;
}

int
scout__segments_add(struct scout__segments *segs, uint64_t epoch, const struct scout__lease_msg *msg, int fd)
{
	struct scout__segment *seg;
	size_t at = place_of(segs, msg->segment);
	int rc = 0;

	/* Sent again after the lease connection was made anew. */
	if (at < segs->n && segs->list[at]->id == msg->segment)
		goto out_close;
	rc = make_room(segs);
	if (rc)
		goto out_close;
	seg = calloc(1, sizeof(*seg));
	if (!seg) {
		rc = SCOUT_ERR_NOMEM;
		goto out_close;
	}
	seg->epoch = epoch;
	seg->id = msg->segment;
	seg->slots = msg->slots;
	seg->bytes = msg->bytes;
	seg->data_offset = msg->data_offset;
	seg->stride = msg->slot_stride;
	memmove(segs->list + at + 1, segs->list + at, (segs->n - at) * sizeof(struct scout__segment *));
	segs->list[at] = seg;
	segs->n++;
	rc = map(segs, seg, msg, fd);
out_close:
	(void)close(fd);
	return rc;
}

/* Out of use and out of every list: unmap, and note it where the server waits for that. */
static void
let_go(struct scout__segments *segs, struct scout__segment *seg)
{
	unmap(segs, seg);
	if (!seg->withdrawn) {
		free(seg);
		return;
	}
	seg->next_retired = segs->released;
	segs->released = seg;
}

static void
forget_retired(struct scout__segments *segs, struct scout__segment *seg)
{
	struct scout__segment **at = &segs->retired;

	while (*at != seg)
		at = &(*at)->next_retired;
	*at = seg->next_retired;
	let_go(segs, seg);
}

/* Never found again: it waits for its last user, or goes now. */
static void
retire(struct scout__segments *segs, struct scout__segment *seg)
{
	if (seg->users == 0) {
		let_go(segs, seg);
		return;
	}
	seg->retired = true;
	seg->next_retired = segs->retired;
	segs->retired = seg;
}

bool
scout__segments_withdraw(struct scout__segments *segs, uint32_t id)
{
	size_t at = place_of(segs, id);
	struct scout__segment *seg;

	if (at == segs->n || segs->list[at]->id != id)
		return false;
	seg = segs->list[at];
	segs->n--;
	memmove(segs->list + at, segs->list + at + 1, (segs->n - at) * sizeof(struct scout__segment *));
	segs->last = NULL;
	seg->withdrawn = true;
	retire(segs, seg);
	return true;
}

uint32_t
scout__segments_released(const struct scout__segments *segs)
{
	return segs->released ? segs->released->id : 0;
}

void
scout__segments_told(struct scout__segments *segs)
{
	struct scout__segment *seg = segs->released;

	segs->released = seg->next_retired;
	free(seg);
}

void
scout__segments_retire(struct scout__segments *segs)
{
	/* Whoever waited to hear of the withdrawn ones is gone. */
	for (struct scout__segment *seg = segs->retired; seg; seg = seg->next_retired)
		seg->withdrawn = false;
	free_list(segs, &segs->released);
	for (size_t i = 0; i < segs->n; i++)
		retire(segs, segs->list[i]);
	segs->n = 0;
	segs->last = NULL;
}

void
scout__segment_release(struct scout__segments *segs, struct scout__segment *seg)
{
	SCOUT_ASSERT(seg->users > 0);
	if (--seg->users == 0 && seg->retired)
		forget_retired(segs, seg);
}

bool
scout__segment_slot(const struct scout__segment *seg, uint64_t offset, uint64_t shard_bytes, uint8_t **ret_slot,
		    const _Atomic uint64_t **ret_word)
{
	uint64_t slot;

	if (offset < seg->data_offset || (offset - seg->data_offset) % seg->stride != 0)
		return false;
	slot = (offset - seg->data_offset) / seg->stride;
	if (slot >= seg->slots || shard_bytes > seg->stride)
		return false;
	*ret_slot = seg->base + offset;
	/* mmap gives pages, and the words stand at the start of the segment: aligned. */
	*ret_word = (const _Atomic uint64_t *)(const void *)seg->base + slot;
	return true;
}
