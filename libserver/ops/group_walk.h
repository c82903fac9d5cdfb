/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvscout/protocol.h>

#include "bits.h"
#include "chunk_index.h"
#include "lookup_op.h"
#include "restorable.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__keys_msg;
struct scout__lookup_msg;
struct scout__ns_group;

/*
 * What a lookup of several groups knows about one of them. Objects are counted from the start of the prompt; with KEYS,
 * in the order in which they are named.
 */
struct scout__walk_group {
	struct scout__ns_group *group;
	uint32_t space;
	uint32_t base;              /* number of object 0 among the objects of all groups */
	uint32_t named;             /* objects before have no hash in the lookup */
	uint32_t from, n;           /* objects [from, n) are asked for: earlier ones are on the GPU */
	uint8_t *present;           /* a bit for each object (bits.h): it is there, on all ranks */
	uint8_t *in_l2;             /* likewise: it is present in L2 only */
	uint8_t *wanted;            /* likewise: the lengths of the answer need it */
	uint8_t *promised;          /* likewise: the session promises it */
	struct scout__handle *seen; /* of each object that was found in the pool */
	uint32_t low, high;         /* wanted objects are in [low, high) */
};

/*
 * The work of a walk, by which it takes turns: to test an object's bit is 1, whether a group allows a length
 * SCOUT__WORK_LOOK, to fill in an object's handles SCOUT__WORK_FILL (they cost page faults), to look for it or to
 * promise it SCOUT__WORK_OBJECT. One step may do SCOUT__WORK_STEP.
 */
#define SCOUT__WORK_LOOK 8u
#define SCOUT__WORK_FILL 16u
#define SCOUT__WORK_OBJECT 64u
#define SCOUT__WORK_STEP (SCOUT__SLICE_CHUNKS * SCOUT__WORK_OBJECT)

struct scout__group_walk {
	struct scout__run_item run;           /* to free it in steps */
	uint32_t left;                        /* work that this step may do yet */
	uint8_t stage;                        /* enum stage of lookup_groups.c */
	uint32_t g, i;                        /* how far the stage has come */
	uint32_t first, skip, total, at_most; /* in hashes from the start of the prompt */
	uint32_t floor;                       /* RENEW: the length that the session has */
	uint32_t diverges_at; /* all groups with policy all have their objects up to here; 0: not known */
	uint32_t known;       /* AHEAD: the server has looked so far */
	bool has_asked;       /* has asked L2 since the last SCAN */
	bool by_key;          /* KEYS: each object counts by itself, and there are no lengths */
	bool is_known;        /* KEYS: what is not present is nowhere; false: the budget ended first */
	uint32_t want_more;
	uint32_t hit, n_more;
	uint32_t more[SCOUT_MAX_LENGTHS];
	uint32_t n_groups;
	uint32_t n_objects;               /* of all groups */
	uint64_t bytes;                   /* of memory */
	struct scout__restorable lengths; /* of EVALUATE, which goes on where the last step ended */
	struct scout__presence presence[SCOUT__GROUPS_MAX];
	struct scout__walk_group of[];
};

/* Whether no worker of this server has layers of the group: then all of it counts as present. */
SCOUT_ON_LOOP bool scout__group_is_vacant(const struct scout__ns_group *group);
/* A walk for the lookup @m. NULL: no memory. */
SCOUT_ON_LOOP struct scout__group_walk *scout__group_walk_new(struct scout_server *s,
							      const struct scout__lookup_op *pending,
							      const struct scout__lookup_msg *m);
/* A walk for KEYS @m. NULL: no memory. */
SCOUT_ON_LOOP struct scout__group_walk *scout__group_walk_new_keys(struct scout_server *s,
								   const struct scout__lookup_op *pending,
								   const struct scout__keys_msg *m);
/* Free it, in steps if it is large. */
SCOUT_ON_LOOP void scout__group_walk_free(struct scout_server *s, struct scout__group_walk *walk);
/* @n of work is done. False: no more of it in this step. */
static inline SCOUT_ON_LOOP bool
scout__work(struct scout__group_walk *walk, uint32_t n)
{
	walk->left -= walk->left < n ? walk->left : n;
	return walk->left > 0;
}
/* Make room for what the session keeps of each group. False: no memory. */
SCOUT_ON_LOOP bool scout__group_walk_make_room(struct scout_server *s, const struct scout__lookup_op *pending);

/* ---- stages, each as far as this step may work. True: the stage is over ---- */

/* Prepare what the session keeps of each group, so that each object that is asked for may be promised by itself. */
SCOUT_ON_LOOP bool scout__group_walk_open(const struct scout__lookup_op *pending);
/* Look for the objects in the pool. */
SCOUT_ON_LOOP bool scout__group_walk_scan(struct scout_server *s, struct scout__lookup_op *pending);
/* Take what L2 has found for the question that is over. */
SCOUT_ON_LOOP bool scout__group_walk_take_found(struct scout_server *s, const struct scout__lookup_op *pending);
/* Work out, from what is present, the lengths of the answer. */
SCOUT_ON_LOOP bool scout__group_walk_evaluate(const struct scout__lookup_op *pending);
/* Mark the objects that these lengths need. */
SCOUT_ON_LOOP bool scout__group_walk_want(const struct scout__lookup_op *pending);
/* Give back the room of what no length needs: [low, high) of each group has all that is promised. */
SCOUT_ON_LOOP bool scout__group_walk_trim(struct scout_server *s, const struct scout__lookup_op *pending);

/* ---- what it knows ---- */

SCOUT_ON_LOOP const uint8_t *scout__group_walk_hash(const struct scout__lookup_op *pending, uint32_t g, uint32_t i);
/* A scout__lookup_op.object. */
SCOUT_ON_LOOP struct scout__object scout__group_walk_object(const struct scout__lookup_op *pending, uint32_t number);
/* The objects of @wg that @length needs and that may be promised; none: from = to. */
SCOUT_ON_LOOP struct scout__need scout__group_walk_need(const struct scout__group_walk *walk,
							const struct scout__walk_group *wg, uint32_t length);
/* Shards that a question to L2 about all objects has at most. */
SCOUT_ON_LOOP uint64_t scout__group_walk_count_shards(const struct scout__group_walk *walk);
/* Only what the session promises counts as present from here on. */
SCOUT_ON_LOOP void scout__group_walk_settle(struct scout__lookup_op *pending);
/* How many objects the hit needs, and in *ret_l2 how many of them were in L2 only. */
SCOUT_ON_LOOP uint32_t scout__group_walk_count(const struct scout__lookup_op *pending, uint32_t *ret_l2);

/* ---- group_walk_answer.c ---- */

/* Answer with walk.hit and walk.more; the pending operation is gone. */
SCOUT_ON_LOOP void scout__group_walk_answer(struct scout_server *s, struct scout__lookup_op *pending);

/* Answer KEYS with what is promised by now; the pending operation is gone. */
SCOUT_ON_LOOP void scout__keys_answer(struct scout_server *s, struct scout__lookup_op *pending);
