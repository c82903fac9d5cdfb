/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "chunk_index_parts.h"
#include "entry.h"
#include "evict.h"
#include "pool.h"
#include "shares.h"
#include "thread.h"

/*
 * One namespace's chunks in host memory: index, slots, pins, eviction. Owned by the server's loop thread: no locks.
 *
 * An entry is one chunk and owns slot `entry` of every KV rank for as long as it exists, so an entry's number is also
 * its slot number, shards are evicted together, and there is nothing to keep in step. Entries are 64 bytes, one cache
 * line. The index over them is a flat open-addressing table of (tag, entry) words, sized for l1_bytes at the start and
 * never rehashed; deletion shifts back, there are no tombstones. Keys are compared in full: space (tenant and group
 * and weights version, interned by the caller) and hash.
 *
 * A shard (entry, rank) is  ABSENT -> WRITING (one owner) -> READABLE  and back to ABSENT with the entry.
 * A chunk is a hit when all shards are READABLE.
 *
 * L2: a shard that is known to be there, and not in the slot, may be EXPECTED while its chunk is promised: the
 * slot is room for it. EXPECTED -> LOADING (held, L2 writes the slot) -> READABLE, or back to ABSENT. A
 * chunk counts for a hit when each shard is READABLE, EXPECTED or LOADING. When nothing pins the entry any more,
 * nothing is expected of it either. A chunk may be temporary: it came from L2 and is the first to go when
 * nothing pins it; the policy never hears of it. What is being written to L2 (`saving`) stays where it is
 * but keeps its place in the order: only when it would be evicted it leaves the order, until it is written.
 *
 * Such a chunk may be promised before there is memory for it: its slot is one of an extent that is being grown, and the
 * entry is `bare` until that has come. Nothing is loaded, stored or read there before. If the extent fails, nothing is
 * expected of the entry any more; it is spoiled, and its slot's number is used again when the last promise is over.
 *
 * Pins: `promises` counts (session, rank, reader) units, `holds` counts running retrieves and reserved stores. While
 * any is not 0 the entry is out of the eviction order and stays where it is. When both have fallen to 0 it goes into
 * the order, or, when no shard of it is readable (its only store was given up), away at once. promised_bytes counts a
 * chunk once while promises > 0, and never exceeds max_promised and promised_reserve.
 *
 * Room: fresh slots in order, then the free list, then another extent, then one of another chunk index
 * (rebalance.c), and only when none is to be had or while it is on its way, eviction. The next extent, the
 * pool's or another chunk index's, is asked for when less than a quarter of the last one is free, so stores
 * rarely wait. After an extent failed, stores evict; growing is tried again after a while, or when the pool
 * gets bytes back. Nothing is evicted of a tenant that has no more than its guarantee (shares.h), as long as there is
 * something else.
 *
 * The generation word of a shard's slot (in shared memory) is bumped before a store is granted the slot, and when the
 * shard is discarded. Readers compare.
 */

enum scout__shard_state {
	SCOUT__SHARD_ABSENT = 0,
	SCOUT__SHARD_WRITING = 1,
	SCOUT__SHARD_READABLE = 2,
	SCOUT__SHARD_QUARANTINE = 3, /* its writer died; the slot may not be used yet. Counts as a hold. */
	SCOUT__SHARD_EXPECTED = 4,   /* in L2; nothing is in the slot */
	SCOUT__SHARD_LOADING = 5     /* L2 writes the slot. Counts as a hold. */
};

struct scout__handle {
	uint32_t entry;
	uint32_t gen;
};

/* An extent that is being taken from a chunk index: see rebalance.c. One at a time. */
struct scout__rebalance {
	uint8_t phase;                    /* 0: none */
	struct scout__chunk_index *taker; /* for it */
	struct scout__chunk_index *giver; /* from it */
	struct scout__extent *best;       /* without pins, fewest entries in use, of those looked at */
	uint32_t best_in_use;
	uint32_t look_from, look_at; /* entry numbers: where looking began, and is */
	uint32_t in_use;             /* of the extent that is looked at */
	bool pinned;                 /* it has a pinned entry */
	bool wrapped;                /* looking has passed the end of the chunk index */
	uint32_t n_found;            /* extents without pins */
};

#define SCOUT__PIN_RESERVE_FROM 256u /* chunks in the pool: in a smaller one a share of the reserve is hardly a chunk */

struct scout__l1 {
	struct scout__pool pool;
	const struct scout__evict_ops *policy;
	struct scout__evict_args policy_args;
	uint64_t max_promised;
	uint64_t promised_bytes;
	uint64_t promised_reserve; /* beyond max_promised, const after start */
	uint64_t pinned_bytes;     /* of chunks that are promised or held, each counted once */
	uint64_t pin_reserve;      /* of l1_bytes, for askers within their shares; 0: none, as with one worker */
	uint64_t store_reserve;    /* of l1_bytes, for workers that hold little; 0: none, as with one worker */
	bool storer_holds_little;  /* its owner sets it before each chunk of a STORE */
	uint64_t promised_share;   /* what of this the asker may have; its owner sets it before each walk of a lookup */
	uint64_t evictions;        /* entries evicted to make room */
	uint64_t evictions_unneeded;      /* of these, objects that nothing needed */
	uint64_t refusals;                /* stores that got no room */
	struct scout__hint_counts hinted; /* see scout__index_count_hints() */
	uint64_t promises_refused;        /* promises refused */
	uint64_t regrow_us; /* a failed extent is tried again after this time (default 1 s); tests shorten it */
	struct scout__chunk_index *indexes; /* all of them */
	uint32_t n_wanting;                 /* chunk indexes that wait for an extent of another one */
	uint64_t extents_withdrawn;         /* taken from a chunk index for another one */
	uint64_t extents_pinned;            /* times that no chunk index had an extent to give: everything was pinned */
	uint64_t last_serial;
	uint64_t counting;      /* of rebalance_rule.c */
	uint64_t described;     /* bytes of all descriptions; at most */
	uint64_t max_described; /* ... these. Set by the owner */
	/* Nothing pins a tracked entry any more; it is about to go into the order, or away. Set by the owner. */
	void (*let_go)(struct scout__chunk_index *index, uint32_t entry);
	/* NULL, or: an object of a namespace with several groups is about to be evicted. Set by the owner. */
	void (*evicted)(struct scout__chunk_index *index, uint32_t entry);
	/* In a namespace that is watched, a chunk has become a hit, or is about to be none. Set by the owner before that. */
	void (*hit_changed)(struct scout__chunk_index *index, uint32_t entry, bool is_hit);
	void *user; /* the owner's */
	struct scout__rebalance rebalance;
};

#define SCOUT__USER_BITS 24
#define SCOUT__TURN_BITS 38 /* at 10000 stores a second, ten months */
#define SCOUT__NEEDED_BITS 2

/* The user that stored or retrieved a chunk last; 0: none that gave a number. */
struct scout__used {
	uint64_t number : SCOUT__USER_BITS;
	uint64_t turn : SCOUT__TURN_BITS;     /* of the newest user when it was skipped last */
	uint64_t needed : SCOUT__NEEDED_BITS; /* see scout__index_needed() */
};

struct scout__chunk_index {
	struct scout__chore chore; /* its end */
	/* Const after start. */
	struct scout__l1 *l1;
	struct scout__l1_ns *l1_ns; /* the namespace that it belongs to; NULL: it is alone, and has no accounts */
	uint32_t n_ranks;
	uint32_t readers;
	uint32_t hash_bytes;
	uint32_t max_entries;
	uint64_t chunk_bytes;            /* sum of strides */
	uint64_t *strides;               /* n_ranks */
	uint16_t nodes[SCOUT_MAX_RANKS]; /* NUMA node of each rank plus 1, 0: any */
	/* The owner's. */
	void *user;
	bool idle;            /* no peer is there to use it */
	uint64_t token_bytes; /* of an object, for as many tokens as an object of its l1_ns has */
	/* Of each entry below cap_entries, mapped lazily: each part writes what it says in entry.h. */
	uint32_t cap_entries; /* chunk_index_arrays.c */
	struct scout__entry *entries;
	uint8_t *shard_state;        /* [entry * n_ranks + rank] */
	uint32_t *slot_gen;          /* likewise: what the generation word holds (low 32 bits of a counter, never 0) */
	struct scout__used *used_by; /* [entry] */
	void **owned;                /* [entry]: the owner's, NULL at first */
	struct scout__description **descriptions; /* [entry], of max_entries: chunk_index_describe.c; NULL: none yet */
	uint64_t *told; /* with descriptions: a bit for each entry, of each of SCOUT__TOLD_WALKS walks (ops/feed.c) */
	uint64_t turn;  /* users so far */
	uint32_t n_entries; /* in use; chunk_index_entry.c */
	struct scout__index_table table;
	struct scout__index_slots slots;
	struct scout__index_extents extents;
	struct scout__index_growth growth;
	struct scout__index_pins pins;
	struct scout__index_order order;
	struct scout__index_unneeded unneeded;
	struct scout__index_l2 l2;
	struct scout__index_member member;
	struct scout__index_moves moves;
};

/*
 * @eviction: a policy as in evict.h. Returns 0, SCOUT_ERR_CONFIG_RANGE (no such policy), or as scout__pool_init();
 * @err has the text.
 */
SCOUT_ON_LOOP int scout__l1_init(struct scout__l1 *l1, uint64_t l1_bytes, uint64_t extent_bytes, uint64_t max_promised,
				 const char *eviction, const struct scout__log *log, char *err, size_t err_len);
/* Every chunk index is gone already. */
SCOUT_ON_LOOP void scout__l1_fini(struct scout__l1 *l1);

/*
 * A chunk index for shards of @shard_bytes[rank], with the NUMA node of each rank plus 1 (0: any; NULL: any for all), and with the
 * namespace that it belongs to: see scout__index_belongs(). NULL: it is alone. Returns 0, SCOUT_ERR_NO_ROOM (one chunk does not fit in
 * l1_bytes), SCOUT_ERR_NOMEM. Asks for the first extent at once.
 */
SCOUT_ON_LOOP int scout__index_new(struct scout__l1 *l1, struct scout__l1_ns *ns, const uint64_t *shard_bytes,
				   const uint16_t *nodes, uint32_t n_ranks, uint32_t readers, uint32_t hash_bytes,
				   struct scout__chunk_index **ret_index);
/*
 * Right after it was made: it is one of the chunk indexes of @ns, which outlives it. With several groups an extent is not
 * larger than half of an equal part of the pool, so that each of them gets one.
 */
SCOUT_ON_LOOP void scout__index_belongs(struct scout__chunk_index *index, struct scout__l1_ns *ns);
SCOUT_ON_LOOP void scout__index_free(struct scout__chunk_index *index);
/*
 * Right before scout__index_free(), as often as it returns one: an extent that workers may still map. It stays counted
 * until scout__rebalance_freed() frees it. NULL: there is none left.
 */
SCOUT_ON_LOOP struct scout__extent *scout__index_surrender(struct scout__chunk_index *index);

/*
 * Take an extent that scout__pool_ready() returned for this chunk index: add its slots, or note its failure (the error
 * has been logged), and let go of the bare entries in it. True when there are new slots.
 */
SCOUT_ON_LOOP bool scout__index_grow(struct scout__chunk_index *index, struct scout__extent *extent);

/*
 * Before anything needs it: if nothing is being grown, ask for one extent, for the chunk index in use that has memory for
 * the fewest tokens. No namespace gets more than its share this way, nor one that waits less.
 */
SCOUT_ON_LOOP void scout__l1_grow_ahead(struct scout__l1 *l1);

/* The entry of a key, or SCOUT__NO_ENTRY. Does not pin. */
SCOUT_ON_LOOP uint32_t scout__index_find(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash);
/*
 * The same for @n keys at once (@hashes: n * hash_bytes), several times faster than one after another because their
 * cache misses overlap. Writes the entries up to the first key that has none; returns their number.
 */
SCOUT_ON_LOOP uint32_t scout__index_find_run(const struct scout__chunk_index *index, uint32_t space,
					     const uint8_t *hashes, uint32_t n, uint32_t *ret_entries);
/*
 * @later is the entry of the chunk AHEAD places behind the one of @earlier, where both were just stored: a lookup will
 * guess so. scout__index_find_run() notes it by itself. No more than a guess: entries may go, and others follow.
 */
#define SCOUT__AHEAD 24u
static inline SCOUT_ON_LOOP void
scout__index_follows(const struct scout__chunk_index *index, uint32_t earlier, uint32_t later)
{
	if (index->entries[earlier].ahead != later + 1)
		index->entries[earlier].ahead = (later + 1) & (INT32_MAX >> 1);
}
#define SCOUT__TOLD_WALKS 32u
#define SCOUT__TOLD_WORDS(index) ((index)->max_entries / 64u + 1)
/* What a STORE said of an object for readers of the feed. */
struct scout__description {
	uint8_t before[SCOUT_MAX_HASH]; /* the hash of the object before it in its prompt; zeroes: not known */
	uint16_t len;
	char bytes[];
};
/*
 * Keep a copy of @bytes with @entry, unless it has a description already. @before: a hash, or NULL if the store does not
 * know it. False: there are as many bytes of them as there may be, or there is no memory.
 */
SCOUT_ON_LOOP bool scout__index_describe(struct scout__chunk_index *index, uint32_t entry, const uint8_t *before,
					 const char *bytes, uint16_t len);
/* The description of @entry; NULL: it has none. */
static inline SCOUT_ON_LOOP const struct scout__description *
scout__index_description(const struct scout__chunk_index *index, uint32_t entry)
{
	return index->entries[entry].described ? index->descriptions[entry] : NULL;
}
/* Start loading the table cell of a key that will be asked for soon. */
SCOUT_ON_LOOP void scout__index_prefetch(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash);
/* All shards readable, and to be believed. */
static inline SCOUT_ON_LOOP bool
scout__index_is_hit(const struct scout__chunk_index *index, uint32_t entry)
{
	return index->entries[entry].readable == index->n_ranks && !index->entries[entry].spoiled;
}
/* All shards readable or to be had from L2. */
static inline SCOUT_ON_LOOP bool
scout__index_counts(const struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];

	return (uint32_t)e->readable + e->expected == index->n_ranks && !e->spoiled;
}
static inline SCOUT_ON_LOOP enum scout__shard_state
scout__index_state(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	return (enum scout__shard_state)index->shard_state[(uint64_t)entry * index->n_ranks + rank];
}
static inline SCOUT_ON_LOOP struct scout__handle
scout__index_handle(const struct scout__chunk_index *index, uint32_t entry)
{
	return (struct scout__handle){entry, index->entries[entry].gen};
}
static inline SCOUT_ON_LOOP bool
scout__index_valid(const struct scout__chunk_index *index, struct scout__handle h)
{
	return index->entries[h.entry].in_use && index->entries[h.entry].gen == h.gen;
}

/* Pin with n_ranks * readers units. False when max_promised does not allow it (counted). */
SCOUT_ON_LOOP bool scout__index_promise(struct scout__chunk_index *index, uint32_t entry);
/* Of what the asker may have of the reserve, one chunk is promised. */
static inline SCOUT_ON_LOOP void
scout__index_take_share(struct scout__chunk_index *index)
{
	uint64_t left = index->l1->promised_share;

	index->l1->promised_share = left > index->chunk_bytes ? left - index->chunk_bytes : 0;
}
/* Withdraw @units <= what is promised. */
SCOUT_ON_LOOP void scout__index_unpromise(struct scout__chunk_index *index, uint32_t entry, uint32_t units);

/*
 * A retrieve: hold the readable shard of @rank. False when it is not readable, or held 65535 times. The caller
 * withdraws its promise unit apart.
 */
SCOUT_ON_LOOP bool scout__index_hold(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
SCOUT_ON_LOOP void scout__index_unhold(struct scout__chunk_index *index, uint32_t entry);

enum scout__reserve {
	SCOUT__RESERVE_GRANTED = 1, /* shard is WRITING now, held, its generation bumped */
	SCOUT__RESERVE_PRESENT,     /* readable, being written, or in quarantine */
	SCOUT__RESERVE_NO_ROOM,     /* everything is pinned (counted) */
	SCOUT__RESERVE_WAIT,        /* an extent is being grown: ask again when it has come */
	SCOUT__RESERVE_AGAIN        /* looked for a victim for long enough: ask again, after others (only for a user) */
};

/*
 * For whom slots are reserved. What scout__index_used() noted for the same number is not evicted for it: who stores the
 * tail of a prompt in place of its head has stored nothing. When it is the next to go, it becomes the newest instead,
 * once in a turn, and the next one goes; if the policy names it again, the policy has nothing that should rather go,
 * and there is no room. What is temporary may go: it is in L2 as well.
 */
struct scout__user {
	uint32_t number; /* 0: none */
	uint32_t skips;  /* how many may be skipped until AGAIN; counts down */
	uint64_t turn;
};

/* @ret_entry is written for GRANTED and PRESENT. For a @user, or NULL: never one of its own goes. */
SCOUT_ON_LOOP enum scout__reserve scout__index_reserve(struct scout__chunk_index *index, uint32_t space,
						       const uint8_t *hash, uint32_t rank, struct scout__user *user,
						       uint32_t *ret_entry);
/* The caller names its users by numbers; only the low 24 bits count. A turn is one STORE. */
static inline SCOUT_ON_LOOP struct scout__user
scout__index_user(struct scout__chunk_index *index, uint64_t number)
{
	return (struct scout__user){.number = number & ((1u << SCOUT__USER_BITS) - 1), .turn = ++index->turn};
}
/* Note that user @number stored or read the chunk. */
static inline SCOUT_ON_LOOP void
scout__index_used(struct scout__chunk_index *index, uint32_t entry, uint64_t number)
{
	index->used_by[entry].number = number & ((1u << SCOUT__USER_BITS) - 1);
}
/*
 * The shard is completely written; the hold of the reserve ends. Returns whether the chunk has become readable as a
 * whole (all ranks).
 */
SCOUT_ON_LOOP bool scout__index_commit(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/* Given up by a living writer with no copy running, or the quarantine is over: ABSENT, the hold ends. */
SCOUT_ON_LOOP void scout__index_abort(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/* The writer died. The caller keeps time and calls _abort() later. */
SCOUT_ON_LOOP void scout__index_quarantine(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);

/* Drop an unpinned entry now. False when it is pinned. */
SCOUT_ON_LOOP bool scout__index_drop(struct scout__chunk_index *index, uint32_t entry);
/*
 * Its bytes are not to be believed: from now on it is no hit and may not be read; it is dropped with its last pin.
 */
SCOUT_ON_LOOP void scout__index_spoil(struct scout__chunk_index *index, uint32_t entry);

/* Where a shard lies. */
struct scout__place {
	uint32_t segment;
	uint64_t offset;
	uint64_t slot_gen;        /* what the generation word of the slot holds */
	_Atomic uint64_t *writer; /* in shared memory: id of the peer that stored it, and when, in Unix seconds */
};
/* Its id is 0 if L2 loaded the slot. */
SCOUT_ON_LOOP static inline void
scout__place_note_writer(const struct scout__place *place, uint64_t peer, uint64_t unix_s)
{
	atomic_store_explicit(&place->writer[0], peer, memory_order_relaxed);
	atomic_store_explicit(&place->writer[1], unix_s, memory_order_relaxed);
}

SCOUT_ON_LOOP struct scout__place scout__index_place(const struct scout__chunk_index *index, uint32_t entry,
						     uint32_t rank);

/* ---- chunk_index_use.c: what the eviction policy learns from ---- */

/* A lookup asks for @n chunks of @space. */
SCOUT_ON_LOOP void scout__index_asked(struct scout__chunk_index *index, uint32_t space, uint32_t n);
/*
 * Of @n keys, those before @from are cached: how many of the leading ones were cached, or evicted lately? A binary
 * search, because the head of a prompt stays longest: at most 2 * log2(@n) keys are looked at.
 */
SCOUT_ON_LOOP uint32_t scout__index_known_run(const struct scout__chunk_index *index, uint32_t space,
					      const uint8_t *hashes, uint32_t from, uint32_t n);
/* The same for hashes that lie @apart bytes from one to the next. */
SCOUT_ON_LOOP uint32_t scout__index_known_apart(const struct scout__chunk_index *index, uint32_t space,
						const uint8_t *hashes, size_t apart, uint32_t from, uint32_t n);
/*
 * Of @n keys, those before @from are a hit: how many of the others are cached and yet no hit, because the one at @from
 * is not? An estimate from LOOKS of them at most, exact where there are no more; 0 when there is no such gap.
 */
SCOUT_ON_LOOP uint32_t scout__index_behind_gap(const struct scout__chunk_index *index, uint32_t space,
					       const uint8_t *hashes, uint32_t from, uint32_t n);
/*
 * A request that waits will ask for these @n keys, at most SCOUT__KEEP_RECENT, and no promise keeps them: those of the leading
 * ones that are in the order become the newest of their queues, the last key first. Nothing is learned from it; the
 * touch comes when the request is over. Returns how many they were.
 */
#define SCOUT__KEEP_RECENT 256u
SCOUT_ON_LOOP uint32_t scout__index_keep_recent(struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes,
						uint32_t n);
/* The same for one entry that was found. Returns whether it was in the order. */
SCOUT_ON_LOOP bool scout__index_keep_recent_entry(struct scout__chunk_index *index, uint32_t entry);
/* Bring l1.hinted up to date. */
SCOUT_ON_LOOP void scout__index_count_hints(struct scout__chunk_index *index);
/* Finish: move in the eviction order, if it is in it. */
SCOUT_ON_LOOP void scout__index_touch(struct scout__chunk_index *index, uint32_t entry, struct scout__touch *touch);

/* ---- chunk_index_unneeded.c: objects that nothing needs ---- */

/*
 * Nothing that is known of needs the object: while nothing pins it, it leaves before all that the policy orders and
 * whatever its tenant is guaranteed, until it is promised, held or touched. No-op while it is promised.
 */
SCOUT_ON_LOOP void scout__index_unneeded(struct scout__chunk_index *index, uint32_t entry);
/* One more request needs it. Returns how many did since it came, at most 3. */
SCOUT_ON_LOOP uint32_t scout__index_needed(struct scout__chunk_index *index, uint32_t entry);

/* ---- chunk_index_l2.c: L2 ---- */

/*
 * Promise the chunk of @space and @hash, with an entry that is made if there is none: GRANTED, WAIT, or NO_ROOM
 * (everything is pinned, or max_promised does not allow it). @temporary: what to call a new entry. It may be bare: up
 * to l1_bytes, room that is not grown yet is room.
 */
SCOUT_ON_LOOP enum scout__reserve scout__index_expect(struct scout__chunk_index *index, uint32_t space,
						      const uint8_t *hash, bool temporary, uint32_t *ret_entry);
/* ABSENT -> EXPECTED, of a chunk that is promised; and back. */
SCOUT_ON_LOOP void scout__index_expect_shard(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
SCOUT_ON_LOOP void scout__index_unexpect_shard(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/*
 * EXPECTED -> LOADING, of an entry that is not bare: held, its generation bumped. Ends with scout__index_commit() or scout__index_abort(). False:
 * held 65535 times.
 */
SCOUT_ON_LOOP bool scout__index_load(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/* LOADING -> WRITING: it takes too long and does not count any more. Commit and abort are as before. */
SCOUT_ON_LOOP void scout__index_load_late(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/* A readable shard is being written to L2: its slot stays as it is until _saved(). False: too often. */
SCOUT_ON_LOOP bool scout__index_save(struct scout__chunk_index *index, uint32_t entry);
/* It takes too long: stores do not wait for its slot any more. */
SCOUT_ON_LOOP void scout__index_save_late(struct scout__chunk_index *index, uint32_t entry);
SCOUT_ON_LOOP void scout__index_saved(struct scout__chunk_index *index, uint32_t entry);
/* Where the bytes of a shard lie in this process; the pool must have been told to map them. */
SCOUT_ON_LOOP uint8_t *scout__index_data(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank);

/* Bytes of slots in use, and of all slots, for STATUS. */
SCOUT_ON_LOOP uint64_t scout__index_used_bytes(const struct scout__chunk_index *index);
SCOUT_ON_LOOP uint64_t scout__index_total_bytes(const struct scout__chunk_index *index);
/* Bytes of the slots in a memfd of the pool, on the average of the KV ranks. */
SCOUT_ON_LOOP uint64_t scout__index_segment_bytes(const struct scout__chunk_index *index);
/* Resident bytes that index and state cost when all max_entries are used. */
SCOUT_ON_LOOP uint64_t scout__index_own_bytes(const struct scout__chunk_index *index);

/* ---- rebalance.c: what chunk indexes take from each other ---- */

enum scout__rebalance_result {
	SCOUT__REBALANCE_IDLE = 0, /* nothing to do now */
	SCOUT__REBALANCE_MORE,     /* call again */
	SCOUT__REBALANCE_TAKEN,    /* an extent is out of its chunk index: see that no worker maps it, then _freed() */
	SCOUT__REBALANCE_NOTHING   /* a chunk index gets none, everything is pinned: tell the stores that wait */
};
/*
 * Some of the work for chunk indexes that wait for an extent: at most @entries entries are touched. *ret_index: for
 * TAKEN the chunk index that lost it, for NOTHING the one that gets none.
 */
SCOUT_ON_LOOP enum scout__rebalance_result scout__rebalance_step(struct scout__l1 *l1, uint32_t entries,
								 uint64_t now_us, struct scout__extent **ret_extent,
								 struct scout__chunk_index **ret_index);
/* Whether _step() may have something to do. */
static inline SCOUT_ON_LOOP bool
scout__rebalance_is_due(const struct scout__l1 *l1)
{
	return l1->n_wanting > 0 || l1->rebalance.phase != 0;
}
/* Give the bytes of a taken extent back to the pool; the chunk indexes that wait ask for them at once. */
SCOUT_ON_LOOP void scout__rebalance_freed(struct scout__l1 *l1, struct scout__extent *extent);

/* Debug and tests: every invariant above, by a full walk. Aborts with a message. */
SCOUT_ON_LOOP void scout__index_check(const struct scout__chunk_index *index);
