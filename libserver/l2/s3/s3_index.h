/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "s3_store.h"

/*
 * The names that a bucket has, in memory (lookup=index): a lookup costs no request. Filled by listing, one request for each
 * 1,000 objects; by this server's own stores at once; listed anew with a period. What others store is a miss until
 * the next listing. What the bucket's lifecycle removes is found until then, and shows at the load, as a miss.
 *
 * A store that lists late (Swift) may leave out what was stored just before a listing: own stores count until they had two listings to
 * appear in.
 *
 * 16 bytes a name, in a table that is at most three quarters full and doubles: 21 to 43 bytes an object, twice while a listing runs.
 * Threads: any, except that one at a time lists. Only the listing blocks.
 */

struct scout__s3_name {
	uint64_t hi, lo; /* both 0: none. The name of 32 zeros is never there */
};

struct scout__s3_set {
	struct scout__s3_name *at;
	size_t n, size; /* size: 0 or a power of two */
};

#define SCOUT__S3_INDEX_NAMES ((size_t)16 << 20) /* half a GiB, and as much again while the bucket is listed */

struct scout__s3_index {
	pthread_mutex_t mu;
	struct scout__s3_set names;  /* G:mu */
	struct scout__s3_set own[2]; /* G:mu; stored since the last listing began, and since the one before */
	uint32_t page;               /* names that one request lists; const while it lists */
	size_t max;                  /* names; others are left out, and so misses. Const while it lists */
	_Atomic uint64_t n_listed;   /* names of the last whole listing */
	atomic_bool is_listed;       /* once at least */
};

/* Returns whether there was memory. */
bool scout__s3_index_init(struct scout__s3_index *index);
void scout__s3_index_fini(struct scout__s3_index *index);
/* found[i] is 1 or 0 for each of @n names. */
void scout__s3_index_exists(struct scout__s3_index *index, const char *const *names, uint32_t n, uint8_t *found);
/* After a store, or a load that found nothing. Without memory a name is left out, and so a miss. */
void scout__s3_index_add(struct scout__s3_index *index, const char *name);
void scout__s3_index_remove(struct scout__s3_index *index, const char *name);
/* List the bucket, then put what it has in the place of what was there. A listing that fails changes nothing; @why as in s3_store.h. */
enum scout_l2_outcome scout__s3_index_list(struct scout__s3_index *index, struct scout__s3_client *client,
					   struct scout__s3_watch *watch, char *why);
