/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "msg.h"
#include "thread.h"
#include "copy.h"

/*
 * The pool's memory as this worker sees it: one mapping for each memfd that came on the lease connection.
 */
struct scout__mapping {
	uint64_t epoch;
	uint32_t id;
	uint32_t slots;
	uint64_t bytes, data_offset, stride;
	uint8_t *base;  /* NULL: the segment cannot be used; grants in it are refused */
	uint32_t users; /* how many items of running batches use it */
	bool known;     /* the copy engine was told of it */
	bool stale;     /* from an earlier connection, or withdrawn: unmapped with its last user */
	bool withdrawn; /* the server waits to hear that it is unmapped */
	uint32_t era;   /* withdrawn: scout__mappings.era then */
	struct scout__mapping *next_stale;
};

/* All fields but those of the unmapping thread: courier; before its start and after its end the thread that frees the worker. */
struct scout__mappings {
	struct scout__mapping **list; /* of the current epoch, ascending by id */
	size_t n, cap;
	struct scout__mapping *last;        /* found last */
	struct scout__mapping *stale;       /* from earlier connections, or withdrawn: still used by a batch */
	struct scout__mapping *released;    /* withdrawn and unmapped; the server has to be told */
	const struct scout__copy_ops *copy; /* of the engine */
	void *engine;                       /* NULL: none is open */
	const struct scout__log *log;
	uint32_t era; /* connections of the lease so far: who withdrew in an earlier one is not told */

	/* what is unpinned and unmapped in the background */
	bool is_open;       /* const after init: fd, mu and cond are there */
	int fd;             /* const after init: readable while there is something to collect */
	bool has_thread;    /* courier: from the first unmapping on */
	pthread_t thread;   /* courier */
	pthread_mutex_t mu; /* for the fields below */
	pthread_cond_t cond;
	struct scout__mapping *leaving;  /* G:mu: to be unmapped */
	struct scout__mapping *unmapped; /* G:mu: to be collected */
	uint32_t n_leaving;              /* G:mu: in `leaving`, or being unmapped */
	bool stop;                       /* G:mu: the thread ends when `leaving` is empty */
};

/* 0 or SCOUT_ERR_SYSTEM. */
int scout__mappings_init(struct scout__mappings *mappings, const struct scout__log *log);
/* Unmap everything, and wait for that. No batch runs any more. Also of one that is zero or whose init failed. */
void scout__mappings_fini(struct scout__mappings *mappings);

/* An engine was opened, or is about to be closed: tell it of all memory. detach() waits until the engine has let go of all. */
void scout__mappings_attach(struct scout__mappings *mappings, const struct scout__copy_ops *copy, void *engine)
	SCOUT_ON_COURIER;
void scout__mappings_detach(struct scout__mappings *mappings) SCOUT_ON_COURIER;

/*
 * Map a segment that arrived; takes @fd. A segment that cannot be mapped is kept as unusable, so that jobs need not
 * wait for it. A segment that is here already is not mapped twice. Returns 0, or SCOUT_ERR_PROTOCOL, _SYSTEM, _NOMEM
 * or the engine's error (logged).
 */
int scout__mappings_add(struct scout__mappings *mappings, uint64_t epoch, const struct scout__lease_msg *msg, int fd)
	SCOUT_ON_COURIER;

/* Find a segment of the current epoch by its id; NULL: it has not come yet. */
struct scout__mapping *scout__mappings_find(struct scout__mappings *mappings, uint32_t id) SCOUT_ON_COURIER;

/*
 * The server was restarted, or the lease connection is a new one: everything there is belongs to the past.
 * What no batch uses is unmapped in the background; the rest goes with its last user.
 */
void scout__mappings_make_stale(struct scout__mappings *mappings) SCOUT_ON_COURIER;

/* Take back what has been unmapped in the background. */
void scout__mappings_collect(struct scout__mappings *mappings) SCOUT_ON_COURIER;
/* Something is still being unmapped: `fd` will be readable. */
bool scout__mappings_are_leaving(struct scout__mappings *mappings) SCOUT_ON_COURIER;

/*
 * The server takes a segment away. From now on it is not found. It is unmapped in the background, at once or when its last user is
 * done; then scout__mappings_released() names it. False: it is not known here, so tell the server at once.
 */
bool scout__mappings_withdraw(struct scout__mappings *mappings, uint32_t id) SCOUT_ON_COURIER;
/* The next id of which the server has to be told, 0: none; and: the server was told. */
uint32_t scout__mappings_released(const struct scout__mappings *mappings) SCOUT_ON_COURIER;
void scout__mappings_told(struct scout__mappings *mappings) SCOUT_ON_COURIER;

static inline void
scout__mapping_use(struct scout__mapping *mapping)
{
	mapping->users++;
}
void scout__mapping_release(struct scout__mappings *mappings, struct scout__mapping *mapping) SCOUT_ON_COURIER;

/*
 * Find the slot at @offset, if there is one and @shard_bytes fit in it, and its generation word. False: the server
 * granted something that is not a slot.
 */
bool scout__mapping_slot(const struct scout__mapping *mapping, uint64_t offset, uint64_t shard_bytes,
			 uint8_t **ret_slot, const _Atomic uint64_t **ret_word);

/* Who stored the slot at @offset, which is one, and when: as in struct scout_verified. */
void scout__mapping_writer(const struct scout__mapping *mapping, uint64_t offset, uint64_t *ret_id,
			   uint64_t *ret_unix_s);
