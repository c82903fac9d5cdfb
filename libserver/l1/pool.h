/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "log.h"
#include "pool_limits.h"
#include "ring.h"
#include "thread.h"

/*
 * The host memory (L1): extents of sealed memfds, one memfd for each KV rank of an extent.
 *
 * An extent holds the same number of slots for every KV rank that this server holds, so slot i of all its memfds
 * belong to one chunk. A memfd begins with one u64 generation word for each slot, then two u64 that say who stored it, and
 * when; then, page-aligned, the slots.
 * fallocate() of an extent takes tens of milliseconds, so a thread of the pool (the grower) does it; the loop asks,
 * and is told through a ring and an eventfd. The loop thread owns everything else in here.
 *
 * An extent's pages are allocated before it is used, so a machine without memory is an error here and no SIGBUS later.
 * huge_pages says whether its memfds have huge pages; the log says once which pages they have.
 *
 * l1_bytes bounds the bytes of the slots (stride * slots, all ranks); the pages of these words come on top (at
 * most 24 bytes a slot, rounded up to a page for each memfd) and are counted apart.
 */

#define SCOUT__SLOT_ALIGN 64u /* slots below a page */
#define SCOUT__SLOT_ALIGN_PAGE                                                                                         \
	4096u /* of slots of so many bytes and more: direct I/O and DMA like it, whatever a page is */

struct scout__pool;
struct scout__chore;
typedef void scout__chore_fn(struct scout__pool *pool, struct scout__chore *chore);
/* What the grower is to do with the structure that begins with this. */
struct scout__chore {
	scout__chore_fn *run;
};

struct scout__segment {
	uint32_t id;          /* unique for the life of the server */
	int fd;               /* memfd, sealed against resizing; owned by the extent */
	uint64_t bytes;       /* of the memfd */
	uint64_t data_offset; /* of slot 0 */
	uint64_t stride;
	uint64_t page_bytes;     /* the machine's, or that of huge pages; bytes is a multiple */
	uint64_t words_bytes;    /* how much of it is mapped at words: all, or only those */
	_Atomic uint64_t *words; /* generations, then pairs of who and when; mapped; only the loop writes them */
	uint8_t *slots;          /* of slot 0 on, mapped; NULL unless the pool maps slots */
	uint16_t numa;           /* NUMA node that its memory should be of, plus 1; 0: any */
};

struct scout__extent {
	struct scout__chore chore;
	uint32_t slots;
	uint32_t n_ranks;
	uint64_t slot_bytes;              /* counted against l1_bytes: slots * sum of strides */
	uint64_t extra_bytes;             /* words and rounding */
	void *owner;                      /* the chunk index that asked; loop only */
	struct scout__extent *next;       /* loop: those that are being grown */
	uint32_t first;                   /* loop: number of its first slot in the chunk index */
	uint32_t fresh;                   /* loop: slots from here on were never used since it came */
	uint64_t taken_from, taken_for;   /* loop: serials of chunk indexes, see rebalance.c */
	bool not_bound;                   /* grower: the node could not be asked for */
	int error;                        /* grower: 0 or SCOUT_ERR_*; then nothing is allocated */
	int system_error;                 /* the errno behind it */
	const char *failed;               /* the call that failed, static */
	uint64_t available_bytes;         /* what the machine had left when it failed for want of memory; else 0 */
	struct scout__segment segments[]; /* n_ranks */
};

struct scout__pool {
	uint64_t l1_bytes;                /* const after start */
	uint64_t extent_bytes;            /* const after start; 0: what l1_bytes and the KV ranks need */
	uint32_t max_segments;            /* const after start: memfds that all extents together should not exceed */
	struct scout__pool_limits limits; /* const after start: what was left at the start */
	uint32_t huge_pages;              /* const after start: enum scout_huge_pages */
	bool map_slots;        /* const after start: map the slots too, for L2 that reads and writes them here */
	uint64_t used_bytes;   /* loop: slot bytes of all extents, also those being grown */
	uint64_t extra_bytes;  /* loop */
	uint64_t returns;      /* loop: times that bytes came back; who was refused may ask again when it moved */
	uint32_t next_segment; /* loop */
	uint32_t n_growing;    /* loop */
	bool failing;          /* loop: the last extent failed, which was logged */
	uint64_t failures;     /* loop: extents that could not be made */
	uint64_t failed_errno; /* loop: why the last one could not; 0: it could */
	bool told_not_bound;   /* loop: that memory cannot be bound to a node, which was logged */
	uint64_t logged_bytes; /* loop: used_bytes when progress was logged last */
	uint64_t told_us;      /* loop: and when that was */
	uint64_t page_bytes;   /* loop: of the last extent, 0 before the first */
	struct scout__extent *growing; /* loop: asked for, not yet taken from pool_ready() */
	const struct scout__log *log;
	pthread_t grower;
	bool grower_started;
	atomic_bool stop;
	int wake_fd;               /* loop -> grower: eventfd */
	int ready_fd;              /* grower -> loop: eventfd; the loop polls it */
	struct scout__ring chores; /* loop -> grower: struct scout__chore * */
	struct scout__ring ready;  /* grower -> loop */
	atomic_bool rung;          /* wake_fd was raised, and the grower has not looked yet */
};

/* Bytes from one slot to the next for shards of @shard_bytes; UINT64_MAX when no pool could hold one. */
SCOUT_ON_ANY uint64_t scout__slot_stride(uint64_t shard_bytes);

/*
 * Whether l1_bytes fits into the memory of this machine and its cgroup: 0, or SCOUT_ERR_POOL_SIZE, and @err has the
 * numbers. More than is available now is only logged.
 */
SCOUT_ON_ANY int scout__pool_check_size(uint64_t l1_bytes, const struct scout__log *log, char *err, size_t err_len);

/* Whether a pool that requires huge pages finds enough: 0, or SCOUT_ERR_POOL_SIZE, and @err says how many to reserve. */
SCOUT_ON_ANY int scout__pool_check_huge_pages(uint64_t l1_bytes, uint32_t huge_pages, char *err, size_t err_len);

/*
 * Check l1_bytes against the machine's memory and start the grower. More than MemTotal or a cgroup limit is refused.
 * More than MemAvailable is only warned of: after a restart the workers of the old epoch still map the old pool, and
 * the new one grows as they let go. @log outlives the pool. Returns 0, SCOUT_ERR_POOL_SIZE (@err has the numbers),
 * SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM.
 */
SCOUT_ON_LOOP int scout__pool_init(struct scout__pool *pool, uint64_t l1_bytes, uint64_t extent_bytes,
				   const struct scout__log *log, char *err, size_t err_len);
/*
 * Make the first extent and give it back: a system that refuses it will refuse all (RLIMIT_FSIZE, a filter of system calls).
 * Want of memory is no error: see above. Returns 0, SCOUT_ERR_SYSTEM or SCOUT_ERR_NOMEM.
 */
SCOUT_ON_LOOP int scout__pool_try(struct scout__pool *pool, char *err, size_t err_len);
/* Ends the grower, in bounded time, and frees what is its own; the memory stays: for a pool that must stay mapped. */
SCOUT_ON_LOOP void scout__pool_stop(struct scout__pool *pool);
/* Stops the grower, in bounded time. Every chunk index is gone already. */
SCOUT_ON_LOOP void scout__pool_fini(struct scout__pool *pool);

/*
 * Ask for one more extent of slots with these strides: as many as scout__pool_extent_slots() says, or what is left of
 * l1_bytes, but no more than @max_slots. @nodes: the NUMA node of each rank plus 1, 0 for any; or NULL. The
 * bytes are reserved at once. Returns 1 (asked), 0 (l1_bytes does not allow one more slot), or SCOUT_ERR_NOMEM (also
 * when very many are being grown already).
 */
SCOUT_ON_LOOP int scout__pool_want(struct scout__pool *pool, void *owner, const uint64_t *strides,
				   const uint16_t *nodes, uint32_t n_ranks, uint32_t max_slots);
/*
 * How many slots of @slot_bytes, of all @n_ranks, an extent has while l1_bytes leaves room for them: as many as
 * extent_bytes holds. Without extent_bytes: 64 MiB and 16 slots or more, or a 64th of l1_bytes if that is less, and so many that all of l1_bytes takes
 * max_segments memfds at most; but no more than an eighth of l1_bytes. At least one.
 */
SCOUT_ON_ANY uint64_t scout__pool_extent_slots(const struct scout__pool *pool, uint64_t slot_bytes, uint32_t n_ranks);

/* The next extent that is ready or failed (look at ->error), or NULL. Call until NULL when ready_fd is readable. */
SCOUT_ON_LOOP struct scout__extent *scout__pool_ready(struct scout__pool *pool);

/* @owner goes away: what is being grown for it is freed when it comes. */
SCOUT_ON_LOOP void scout__pool_disown(struct scout__pool *pool, const void *owner);

/* Give the bytes back; the grower unmaps and closes. Also for a failed one. */
SCOUT_ON_LOOP void scout__extent_free(struct scout__pool *pool, struct scout__extent *extent);
/* Let the grower free what would take the loop too long: it runs @run, before what is asked of it later. Without a grower: at once. */
SCOUT_ON_LOOP void scout__pool_do(struct scout__pool *pool, struct scout__chore *chore, scout__chore_fn *run);
