/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/protocol.h>

#include "ceiling.h"
#include "list.h"
#include "map.h"
#include "msg.h"
#include "pool.h"
#include "run_queue.h"
#include "shares.h"
#include "thread.h"

struct scout_server;
struct scout__chunk_index;
struct scout__feed;
struct scout__l2_fingerprint;
struct scout__peer;
struct scout__records;

#define SCOUT__MAX_SPACES 65536u  /* tenants of one namespace */
#define SCOUT__OLD_GENERATIONS 7u /* earlier names of clears that are remembered */
#define SCOUT__STORERS 8u         /* whose chunks are counted one by one where they are compared */
#define SCOUT__WAITER_BITS 7u     /* buckets of pending operations that wait for a chunk, for each namespace */

struct scout__layout {
	bool known;
	uint32_t block_tokens;
	uint16_t dtype;
	uint32_t n_planes;
	uint64_t *plane_bytes;
	uint64_t shard_bytes;
	const char *layout_tag; /* in the memory of plane_bytes */
	uint16_t numa;          /* node of the worker that registered first, plus 1; 0: any */
};

/* A pair of tenant and group of a namespace: the chunk index knows only its number. */
struct scout__space {
	uint64_t key; /* in the map of tenants */
	char *tenant;
	uint16_t tenant_len;
	uint16_t group;
	uint32_t id;      /* below scout__ns.space_floor: none under the present weights */
	uint32_t account; /* the tenant's account: one for all of its groups */
};

/* A namespace has them until it gives its place to another. */
struct scout__tenants {
	struct scout__chore chore; /* its end */
	struct scout__space *spaces;
	uint32_t n_spaces, cap_spaces;
	struct scout__map map; /* hash of tenant and group -> index */
};

/*
 * One group of a namespace: where its objects are. A namespace has one for each group that HELLO named, until it is
 * emptied. Holds, loads and writes point to the group; while there are any, the namespace is not remade.
 *
 * A chunk index numbers its ranks from 0, and has only ranks with layers of the group: `ranks` says which. A group has
 * the ranks of the namespace, unless the group's readers differ: then worker w of this server (kv_rank * readers +
 * reader) has shard w / group readers.
 */
struct scout__ns_group {
	struct scout__ns *ns;
	uint16_t number;
	uint16_t readers, rank_first, rank_count, kv_ranks; /* as in struct scout__ns, in ranks of the group */
	uint32_t stride;                                    /* hashes from one object to the next */
	struct scout__layout layouts[SCOUT_MAX_RANKS];      /* of each rank; unknown: no layers of the group */
	uint64_t heard;                                     /* ranks (bits) that some worker has registered */
	struct scout__chunk_index *index;                   /* NULL until every rank of this server is registered */
	uint8_t ranks[SCOUT_MAX_RANKS];                     /* of each rank of the chunk index */
	uint32_t sweep_next;
	uint64_t hit_objects; /* objects that hits needed; only with several groups */
	/* Of L2, see fetch.h; NULL: without. */
	bool expected;                              /* chunk_index.owned is a struct scout__expected * for each entry */
	struct scout__l2_fingerprint *fingerprints; /* of each rank of the chunk index */
};

struct scout__ns_counters {
	uint64_t lookups; /* answered; here and below without the chunks that they skip */
	uint64_t asked_chunks, hit_chunks;
	uint64_t known_chunks,
		ceiling_chunks; /* that four times the pool, or a cache without end, would hit; estimated */
	uint64_t asked_tokens, hit_tokens;
	uint64_t verified_hits, n_replaced;
	/* By the worker that stored compared chunks. The first: not known, from L2, or of workers that made room for later ones. */
	struct scout__storer {
		uint64_t id, chunks[SCOUT_FOUND_BOUNDS + 2]; /* by bounds that their error is above; last: mismatches */
	} by[SCOUT__STORERS];
};

struct scout__ns {
	struct scout__run_item sweep; /* drops what an older weights version left */
	char name[SCOUT_MAX_NAME + 1];
	uint16_t name_len;
	uint16_t hash_bytes;
	uint32_t chunk_tokens, hash_tokens;
	struct scout__groups groups;
	uint16_t rank_first, rank_count, kv_ranks, readers;
	uint64_t weights;                       /* version; 0: no peer has given one */
	uint64_t generation;                    /* name of the last CLEAR; 0: none. See clears.c */
	uint64_t cleared;                       /* and its stamp; 0: none */
	uint64_t last_stamp;                    /* drawn or heard, see clears.c */
	uint64_t in_since;                      /* workers that joined earlier are out */
	uint64_t older[SCOUT__OLD_GENERATIONS]; /* names of the earlier clears, newest first */
	uint64_t weights_gen;                   /* counts RESETs and CLEARs: anything with an older count is over */
	uint16_t ended_by;                      /* what ended the last: SCOUT_WIRE_WEIGHTS or SCOUT_WIRE_CLEARED */
	struct scout__ns_group *by_group;       /* groups.n of them */
	bool complete;                          /* every rank of every group has registered: there are chunk indexes */
	struct scout__l1_ns l1;                 /* what its chunk indexes hold together, and the tenants' accounts */
	struct scout__tenants *tenants;
	uint32_t next_space;  /* never used twice, so an old number can never name new chunks */
	uint32_t space_floor; /* entries of lower spaces are unreachable */
	bool has_dropped;     /* so are entries of some spaces above: of tenants that an operator has dropped */
	uint32_t *space_at;   /* index of each space number that was given since space_first */
	uint32_t space_first, n_space_at, cap_space_at;
	struct scout__list pool_waiters;                            /* pending operations */
	struct scout__list chunk_waiters[1u << SCOUT__WAITER_BITS]; /* likewise, by the hash that they wait for */
	struct scout__records *records;    /* of the last CLEAR in L2, see l2_records.c; NULL: no L2 */
	struct scout__list record_waiters; /* pending operations */
	struct scout__feed *feed;          /* NULL: nobody reads it, see feed.c */
	uint32_t n_moving;                 /* shards that are loaded or written now: their slots are in use */
	struct scout__list sessions;
	struct scout__list keeps; /* sessions that have ended and keep what they had, see keep.c */
	uint32_t n_keeps;
	uint64_t kept_bytes;
	uint32_t n_peers, n_sessions, n_holds;
	uint32_t n_leaving; /* peers that left and still have something to give back */
	uint64_t left_us;   /* when the last peer left */
	struct scout__ceiling ceiling;
	struct scout__ns_counters count;
};

SCOUT_ON_ANY struct scout__tenants *scout__tenants_new(void); /* NULL: no memory */
scout__chore_fn scout__tenants_free;
/* NULL: there is no namespace of this name. */
SCOUT_ON_LOOP struct scout__ns *scout__ns_find(struct scout_server *s, const struct scout__str *name);
/* A namespace of the name and the parameters of @hello. NULL: no place, or no memory. */
SCOUT_ON_LOOP struct scout__ns *scout__ns_make(struct scout_server *s, const struct scout__hello *hello);
/*
 * Drop all that @ns has cached, and give @ns the parameters of @hello. No session, hold or transfer of L2 may point
 * into @ns. False: no memory, nothing has changed.
 */
SCOUT_ON_LOOP bool scout__ns_remake(struct scout_server *s, struct scout__ns *ns, const struct scout__hello *hello);
/* Everything that @ns has cached is unreachable from here on. @status: SCOUT_WIRE_WEIGHTS or SCOUT_WIRE_CLEARED. */
SCOUT_ON_LOOP void scout__ns_outdate(struct scout_server *s, struct scout__ns *ns, uint16_t status);
/* scout__ns.ended_by as text for people. */
SCOUT_ON_LOOP const char *scout__ns_ended_text(const struct scout__ns *ns);
/* A pin of @entry has just been given back: drop the entry if it belongs to older weights. */
SCOUT_ON_LOOP void scout__ns_unpinned(struct scout__ns_group *group, uint32_t entry);
/* Give the extents that the pool has grown to the chunk indexes that asked for them. */
SCOUT_ON_LOOP void scout__ns_pool_ready(struct scout_server *s);
/* prealloc: let the pool grow without need. Again with each tick, for growing may have failed. */
SCOUT_ON_LOOP void scout__ns_grow_ahead(struct scout_server *s);
/* Peers joined or left @ns: a namespace without peers is the first to give up memory. */
SCOUT_ON_LOOP void scout__ns_note_use(struct scout__ns *ns);
/* Free the chunk indexes and forget the layouts. No session, hold or transfer of L2 may point into one. */
SCOUT_ON_LOOP void scout__ns_drop_indexes(struct scout_server *s, struct scout__ns *ns);
/* scout__ns_drop_indexes(), and drop the records: the namespace may get another name or other parameters. */
SCOUT_ON_LOOP void scout__ns_empty(struct scout_server *s, struct scout__ns *ns);
SCOUT_ON_LOOP void scout__ns_free(struct scout_server *s, struct scout__ns *ns);

/* ---- ns_group.c ---- */

/* The number of chunks of all groups. */
SCOUT_ON_LOOP uint32_t scout__ns_count_chunks(const struct scout__ns *ns);
/* The group whose chunk index this is; NULL: none has it. */
SCOUT_ON_LOOP struct scout__ns_group *scout__ns_group_of(const struct scout_server *s,
							 const struct scout__chunk_index *index);
/* The rank of the chunk index of @group that @worker reads and writes, -1: none. */
SCOUT_ON_LOOP int32_t scout__ns_group_rank(const struct scout__ns_group *group, const struct scout__peer *worker);
/*
 * For struct scout__l1.evicted: objects of windows and states with the same hash are unneeded from now on, since no
 * length needs them without the object of policy all. Not so with L2, which may have that object.
 */
SCOUT_ON_LOOP void scout__ns_evicted(struct scout__chunk_index *index, uint32_t entry);
/* Which of the readers of that rank @worker is. */
SCOUT_ON_LOOP uint32_t scout__ns_group_reader(const struct scout__ns_group *group, const struct scout__peer *worker);

/* ---- spaces.c ---- */

/* The number of (tenant, group); 0: nothing was ever stored there. */
SCOUT_ON_LOOP uint32_t scout__ns_space(const struct scout_server *s, const struct scout__ns *ns,
				       const struct scout__str *tenant, uint16_t group);
/* The number of (tenant, group), which it gets if it has none. 0: no room for one more. */
SCOUT_ON_LOOP uint32_t scout__ns_space_make(struct scout_server *s, struct scout__ns *ns,
					    const struct scout__str *tenant, uint16_t group);
/* The index in ns.spaces of a space number that was given under the present weights. */
static inline SCOUT_ON_LOOP uint32_t
scout__ns_space_index(const struct scout__ns *ns, uint32_t id)
{
	SCOUT_ASSERT(id - ns->space_first < ns->n_space_at);
	return ns->space_at[id - ns->space_first];
}

/*
 * An operator drops what the tenant has stored. Returns its bytes in the pool; chunks that are promised or held leave when
 * they have been given back.
 */
SCOUT_ON_LOOP uint64_t scout__ns_drop_tenant(struct scout_server *s, struct scout__ns *ns,
					     const struct scout__str *tenant);

/* ---- ns_shares.c ---- */

/* The tenant of ns.spaces[@i] is new: give it an account, with its guaranteed share. False: no memory. */
SCOUT_ON_LOOP bool scout__ns_account(const struct scout_server *s, struct scout__ns *ns, uint32_t i);
/* The account of a tenant that has stored something; NULL: the tenant has stored nothing. */
SCOUT_ON_LOOP const struct scout__account *scout__ns_account_of(const struct scout_server *s,
								const struct scout__ns *ns,
								const struct scout__str *tenant);
/* The number of tenants that have stored something, in any group. */
SCOUT_ON_LOOP uint32_t scout__ns_count_tenants(const struct scout__ns *ns);
/* The namespace has its name: take its share of the pool from the list. */
SCOUT_ON_LOOP void scout__ns_take_share(const struct scout_server *s, struct scout__ns *ns);
/* The lists of shares have changed: apply them to everything that there is, in steps. */
SCOUT_ON_LOOP void scout__ns_reshare(struct scout_server *s);
/* One of these steps. */
SCOUT_ON_LOOP void scout__ns_reshare_step(struct scout_server *s, struct scout__run_item *item);

/* ---- ns_reuse.c ---- */

/*
 * Empty a namespace that all peers have left, so that the caller can give it @name and new parameters. NULL: every
 * namespace is in use.
 */
SCOUT_ON_LOOP struct scout__ns *scout__ns_reuse(struct scout_server *s, const struct scout__str *name);
/* Look at some of the namespaces, and free chunk indexes that no peer uses and that have no chunk. */
SCOUT_ON_LOOP void scout__ns_tick(struct scout_server *s);
/* @fresh was just made, and its peer has not joined yet: warn the operator if there are too many namespaces. */
SCOUT_ON_LOOP void scout__ns_warn(struct scout_server *s, const struct scout__ns *fresh);
SCOUT_ON_LOOP uint32_t scout__ns_count_abandoned(const struct scout_server *s);
