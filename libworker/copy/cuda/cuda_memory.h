/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "cuda_api.h"
#include "log.h"

/*
 * The pool's memory as the GPU knows it: each mapping is pinned (cudaHostRegister) by a thread of its own, part by part. See
 * the DESIGN comment of cuda_memory.c.
 */

enum scout__cuda_pinning {
	SCOUT__CUDA_UNKNOWN = 0, /* no such memory */
	SCOUT__CUDA_PINNING,     /* not all of it yet */
	SCOUT__CUDA_PINNED,
	SCOUT__CUDA_PAGEABLE /* could not be pinned, which was logged, and is tried again */
};

/* Some memory of the pool, all in one state. Pinned: by one call, and the GPU finds it at `device`. */
struct scout__cuda_found {
	const uint8_t *from;
	uint64_t bytes; /* 0: nothing was found */
	uint64_t device;
	enum scout__cuda_pinning state;
};

struct scout__cuda_region;

struct scout__cuda_memory {
	const struct scout__log *log; /* const after init; may be NULL */
	int device;                   /* const after init */
	uint64_t part_bytes;          /* const after init: what one call pins, about */
	uint32_t n_pinning;           /* const after init: workers that pin on this host, this one counted */
	void (*ready)(void *user);    /* const after init: a region's state has changed; on the pinning thread */
	void *user;                   /* const after init */
	pthread_t thread;             /* const after init */
	pthread_mutex_t mu;
	pthread_cond_t cond;                 /* something to do, or a region is gone */
	struct scout__cuda_region **regions; /* G:mu; ascending by address */
	size_t n, cap;                       /* G:mu */
	uint64_t n_wanted;                   /* G:mu: how many regions a copy has come to wait for, so far */
	bool stop;                           /* G:mu */
	uint64_t rest_until_us;              /* the pinning thread's */
};

/* Start the thread. Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM. */
int scout__cuda_memory_init(struct scout__cuda_memory *memory, int device, uint64_t part_bytes, uint32_t n_pinning,
			    void (*ready)(void *), void *user, const struct scout__log *log);
/* Unpin all, end the thread. Nothing on the GPU uses the memory any more. */
void scout__cuda_memory_fini(struct scout__cuda_memory *memory);

/* Begin to pin a mapping. Returns 0 or SCOUT_ERR_NOMEM. */
int scout__cuda_memory_add(struct scout__cuda_memory *memory, const struct scout__copy_memory *added);
/* Unpin a mapping; returns when that is done. Waits at most for one call that pins or unpins. */
void scout__cuda_memory_remove(struct scout__cuda_memory *memory, const void *base);

/*
 * What @slot lies in. Where @slot lies in *@found, that stays as it is, and costs no lock: so a caller who goes through slots begins with an
 * empty one, and forgets it before the memory may go. Any thread.
 */
void scout__cuda_memory_find(struct scout__cuda_memory *memory, const void *slot, struct scout__cuda_found *found);

/* Whether all memory is pinned, and no copy has to ask for its own. Any thread. */
bool scout__cuda_memory_is_pinned(struct scout__cuda_memory *memory);

/* Whether a copy of @slot has to wait until its memory is pinned; that is then done next. Any thread. */
bool scout__cuda_memory_wait_for(struct scout__cuda_memory *memory, const void *slot);

/* Where the part that begins at offset @at of a mapping ends: on a page, and on the boundary of two slots if one lies there. */
uint64_t scout__cuda_part_end(const struct scout__copy_memory *of, uint64_t at, uint64_t part_bytes);
