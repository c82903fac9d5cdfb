/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "l2.h"

/*
 * What the files adapter knows of its folder: digest -> disk bytes, pins, recency. Memory only; no function here
 * touches a disk, so none is ever slow. All are for any thread.
 *
 * An object is in one of four states. AWAITED: a store of it has its turn, but not its name yet. PRESENT: there is a file of that name, and it counts. BUSY: one thread has
 * claimed the name (it writes, removes or examines the file) and no other thread touches it until that thread publishes
 * or drops it. GONE: no file, but pins of readers that saw an earlier file; kept so that their UNPINs do not count as
 * those of later readers.
 */

#define SCOUT__CAT_SHARDS 256u
#define SCOUT__CAT_NONE UINT32_MAX
#define SCOUT__CAT_CUT (UINT32_MAX - 1)

struct scout__cat_shard {
	struct scout__cat_cell *cells; /* a power of two; NULL before the first use */
	uint32_t mask;
	uint32_t n;
};

struct scout__cat {
	pthread_mutex_t mu;
	pthread_cond_t unclaimed; /* a claim has ended, or stopping */
	uint64_t max_bytes;       /* const after init */
	/* The rest is under mu. */
	struct scout__cat_shard shards[SCOUT__CAT_SHARDS];
	struct scout__cat_entry **slabs;
	uint32_t n_slabs, slabs_cap;
	uint32_t free;           /* list through `older` */
	uint32_t newest, oldest; /* PRESENT and not pinned */
	uint64_t used;           /* bytes of objects that are PRESENT or reserved by a claim */
	uint64_t versions;
	uint32_t waiters;
	bool stopping;
	/* Written under mu, read by any thread. */
	_Atomic uint64_t n_objects, n_pinned, bytes;
};

/* One state of one object, to find out later whether the object is still in it. */
struct scout__cat_ref {
	uint32_t entry;
	uint64_t version;
};

/* An object that was claimed in order to evict it. */
struct scout__cat_victim {
	uint32_t entry;
	uint64_t bytes;
	struct scout__l2_digest digest;
};

enum scout__cat_claim {
	SCOUT__CAT_CLAIMED,
	SCOUT__CAT_PRESENT,
	SCOUT__CAT_TIMEOUT, /* another thread's claim lasted beyond the deadline */
	SCOUT__CAT_STOPPED,
	SCOUT__CAT_NOMEM
};

enum scout__cat_room {
	SCOUT__CAT_FITS,
	SCOUT__CAT_VICTIM,
	SCOUT__CAT_STUCK,  /* everything that is left is pinned or claimed */
	SCOUT__CAT_IN_VAIN /* what the asker would be found by has gone, or would go next */
};

/* Returns 0 or SCOUT_ERR_NOMEM. @max_bytes UINT64_MAX: no limit. */
int scout__cat_init(struct scout__cat *cat, uint64_t max_bytes);
void scout__cat_fini(struct scout__cat *cat);
/* From now on no thread waits for a claim: waiting threads get STOPPED. */
void scout__cat_stop(struct scout__cat *cat);

/*
 * Find which of @digests are PRESENT. With @pin each of these gets one pin, and counts as used when it loses the pin.
 * Returns how many are PRESENT.
 */
uint32_t scout__cat_exists(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n, bool pin,
			   uint8_t *ret_found);
/* Pin @digests whether they are known or not, as long as there is memory. Returns how many are pinned. */
uint32_t scout__cat_pin(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n);
/* Take one pin of each of @digests away, if it has any. @only: unless NULL, only digests for which @only has a 0. */
void scout__cat_unpin(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n, const uint8_t *only);

/* Make the name mine, unless the object is PRESENT (which counts as a use of it). Waits for another's claim to end. */
enum scout__cat_claim scout__cat_try_claim(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t deadline_us,
					   uint32_t *ret_entry);
/* Make the name mine if the object is PRESENT and still what @ref saw. Its bytes stay counted. */
bool scout__cat_claim_ref(struct scout__cat *cat, struct scout__cat_ref ref);
/*
 * The object @digest, which will be claimed, comes after @before in a prompt (zeros: it is the first). Takes effect with
 * publish, and for room that is made for it.
 */
void scout__cat_await(struct scout__cat *cat, struct scout__l2_digest digest, struct scout__l2_digest before);
/* Mine: something before it in its prompt is not there. */
bool scout__cat_is_cut(struct scout__cat *cat, uint32_t entry);
/* Mine: count @bytes instead of what was counted for it. False, and nothing changes: @bytes are more than max_bytes. */
bool scout__cat_reserve(struct scout__cat *cat, uint32_t entry, uint64_t bytes);
/*
 * Mine: the file is there. It is the most recently used, or just less recently than what it follows. False: what it
 * follows was evicted meanwhile; it still is mine.
 */
bool scout__cat_publish(struct scout__cat *cat, uint32_t entry);
/* Mine: the file was there before this start and was not used since: the least recently used, until sorted. */
void scout__cat_adopt(struct scout__cat *cat, uint32_t entry, uint64_t bytes);
/* Mine: there is no file of that name. */
void scout__cat_drop(struct scout__cat *cat, uint32_t entry);

/*
 * FITS: no more than max_bytes are in use. Else the least recently used object is claimed, and its bytes count no more.
 * With @even_if_it_fits one object is claimed in any case. @entry: mine, that needs the room; NONE: nothing does.
 */
enum scout__cat_room scout__cat_evict(struct scout__cat *cat, bool even_if_it_fits, uint32_t entry,
				      struct scout__cat_victim *ret_victim);
/* @victim could not be removed: it is PRESENT again, and the last to be tried. */
void scout__cat_keep(struct scout__cat *cat, const struct scout__cat_victim *victim);

/*
 * Begin a load: whether the object is PRESENT; counts as a use. *@ret_is_stale: its recency on disk was written more
 * than a minute before @now_us, and now counts as written.
 */
bool scout__cat_use(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t now_us,
		    struct scout__cat_ref *ret_ref, bool *ret_is_stale);

/* The files are gone: no object is PRESENT. What is claimed is its claimer's. Returns how many were. */
uint64_t scout__cat_clear(struct scout__cat *cat);

/* Put the @n entries that were adopted and not used since after all others; the last one is the first to be evicted. */
void scout__cat_order(struct scout__cat *cat, const uint32_t *entries, size_t n);
