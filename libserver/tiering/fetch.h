/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "chunk_index.h"
#include "l2.h"
#include "log.h"
#include "map.h"
#include "msg.h"
#include "ns.h"
#include "object.h"
#include "run_queue.h"
#include "list.h"
#include "thread.h"
#include "watch.h"

struct scout_server;
struct scout__lookup_op;
struct scout__pending_op;

/*
 * L2 in the server. What the adapters do is behind l2.h; here is what the server remembers of it. All of it is the
 * loop's.
 *
 *   l2_tier.c    start, stop, what comes back, what is unpinned
 *   l2_keys.c    which object a shard is; what is expected of an entry; keys that proved bad; who waits for which chunk
 *   l2_lookup.c  existence questions of lookups
 *   l2_load.c    L2 -> pool
 *   l2_records.c what each store knows of a namespace's last clear
 *   l2_write.c   pool -> L2
 */

#define SCOUT__ASK_OPS 1024u /* existence questions that adapters have at once, each */
#define SCOUT__LOAD_OPS 64u  /* loads that run at once, at most: see load_ops */
#define SCOUT__PROMPTS 1024u
#define SCOUT__WRITES_LATER 16384u               /* writes that wait without their slots */
#define SCOUT__WRITE_OPS 32u                     /* chunks that are written at once */
#define SCOUT__OTHER_OPS 512u                    /* removals, and what of unpinning does not wait in l2_submit */
#define SCOUT__SLICE_KEYS 1024u                  /* keys that one step may hash */
#define SCOUT__MAX_ASK_BYTES (UINT64_C(1) << 28) /* of all questions that are not over */
#define SCOUT__BAD_KEYS 65536u                   /* remembered at once */
#define SCOUT__POLL_WINDOW 64u                   /* chunks that a lookup asks for when it asks again */

/* What L2 has of one shard of an entry. */
struct scout__expected_shard {
	struct scout__l2_digest digest;
	uint64_t weights;         /* of the key */
	struct scout__load *load; /* queued or running */
	uint8_t pinned;           /* adapters (bits) that have it, pinned once in each */
};

/* And of an entry. It lives as long as something pins the entry. */
struct scout__expected {
	uint32_t space;                        /* index in ns.spaces */
	struct scout__expected_shard shards[]; /* of each rank of the chunk index */
};

/* One chunk of a question. */
struct scout__ask_chunk {
	uint64_t ranks; /* those that were asked for */
	uint32_t first; /* key of the lowest of them */
};

/* One existence question of a lookup: all adapters, all keys. */
struct scout__ask {
	struct scout__run_item run;       /* giving back what was found and is not needed */
	struct scout__lookup_op *pending; /* NULL: nobody waits any more */
	struct scout_server *server;
	uint64_t weights;
	uint64_t end_us;   /* nobody waits longer */
	uint64_t bytes;    /* of memory */
	uint32_t first, n; /* objects of the lookup */
	uint32_t n_built;  /* of them */
	uint32_t n_keys, n_found;
	uint32_t n_running;  /* operations */
	uint32_t given_back; /* keys */
	bool sent;
	bool over; /* what is known now is the answer */
	bool late; /* a store gave up before it had one */
	struct scout__ask_chunk *chunks;
	struct scout__l2_digest *digests;
	uint8_t *where; /* of each key: adapters that have it, and have pinned it for us */
	uint8_t *found; /* n_keys for each adapter */
	struct scout__l2_op *ops;
};

/* A shard on its way from an adapter into its slot. */
struct scout__load {
	struct scout__list node; /* in loads_queued or loads_bare, while it waits there */
	struct scout_server *server;
	struct scout__ns_group *group;
	struct scout__expected *expected; /* of the entry, and as long-lived */
	uint64_t weights_gen;
	uint32_t entry, rank;
	uint8_t known; /* adapters that said they have it */
	uint8_t left;  /* those that may be tried yet */
	bool running;
	bool late;
	bool is_bad;         /* the key, since it was late */
	bool a_store_failed; /* one of those that were tried */
	struct scout__l2_key key;
	struct scout__l2_op op;
};

/* And the other way: what waits of the prompts whose tickets fall in one place: as good as always one. */
struct scout__prompt {
	struct scout__list node;   /* in prompts_queued, while something waits: in the order of their first chunks */
	struct scout__list writes; /* in the queue, from its beginning on */
	struct scout__list later;  /* after these, beyond the queue: their slots may be used for others */
	uint64_t ticket, born;
	struct scout__l2_digest last; /* of this ticket, that was to be written; zeros: none */
	bool is_cut;                  /* of this ticket no more is written */
};

struct scout__write {
	struct scout__list node;      /* in writes_queued or writes_again, while it waits there */
	struct scout__list of_prompt; /* in its writes or later */
	struct scout__prompt *prompt;
	struct scout_server *server;
	struct scout__ns_group *group;
	uint64_t weights_gen;
	struct scout__handle handle;
	struct scout__l2_digest after; /* as of its operations */
	uint32_t rank;
	uint32_t n_running; /* adapters */
	uint64_t again_us;  /* put off: not to be tried before */
	uint8_t todo;       /* adapters (bits) that may take it yet */
	uint8_t failures;   /* times that one of them failed */
	bool kept;          /* one of them has it */
	bool late;          /* one of them does not get on with it */
	bool told;          /* the feed knows that one has it, as far as this shard goes */
	struct scout__l2_key *key;
	struct scout__l2_op *ops; /* one for each adapter, with the key behind them, while it runs */
};

struct scout__bad_key {
	struct scout__l2_digest digest;
	uint64_t since_us, until_us;
};

struct scout__fetch_counters {
	uint64_t lookups;         /* questions of lookups */
	uint64_t lookups_late;    /* that were answered without all of what adapters know */
	uint64_t lookups_skipped; /* lookups that asked nobody, as no adapter is usable */
	uint64_t lookups_refused; /* or as there was no memory for the question */
	uint64_t hit_chunks;      /* chunks that counted and were not in the pool */
	uint64_t loads, loads_done, loads_failed, loads_late, loads_cancelled;
	uint64_t writes, writes_done, writes_failed, writes_dropped, writes_outdated, writes_late;
	uint64_t bad_keys;
};

struct scout__fetch {
	struct scout__l2 *l2;
	uint32_t n; /* adapters */
	bool stopping;
	bool hangs; /* an adapter did not stop: memory stays as it is */
	struct scout__watch ready;
	uint64_t timeout_us;        /* without progress, of loads */
	uint64_t drain_us;          /* for writes to end when the server stops */
	uint64_t lookup_timeout_us; /* of a question, and how long a lookup waits for its answer */
	uint64_t bad_us;
	bool temporary;
	bool load_at_lookup;
	bool load_before_answer;
	uint32_t n_ask_ops; /* of the adapter that has most: each gets as many */
	uint64_t ask_bytes;
	struct scout__list ask_waiters; /* lookups whose question is built and has to wait for others */
	struct scout__list loads_queued;
	struct scout__list loads_bare; /* wait for the memory of their slots; counted as queued */
	uint32_t n_loads_queued, n_loads_running;
	uint32_t n_loads_late; /* of those that run */
	uint32_t load_ops;     /* so many others run at once; const after start */
	struct scout__list writes_queued, prompts_queued;
	/* Put off, without their slots: by the adapter that is owed one which another one has; last: what none has. */
	struct scout__list writes_again[SCOUT__L2_MAX_ADAPTERS + 1];
	struct scout__prompt prompts[SCOUT__PROMPTS]; /* by their tickets */
	uint64_t n_born;
	uint32_t n_writes_queued, n_writes_later, n_writes_again, n_writes_running;
	uint64_t write_bytes, max_write_bytes; /* queued and running */
	struct scout__run_item write_sweep;    /* drops what is of older weights */
	uint32_t sweep_left;
	struct scout__log_limit limit_dropped;
	struct {
		struct scout__l2_digest *digests;
		uint32_t n;
	} unpins[SCOUT__L2_MAX_ADAPTERS];
	struct scout__bad_key *bad; /* SCOUT__BAD_KEYS, a ring in the order of time */
	uint32_t bad_first, n_bad;
	struct scout__map bad_map;  /* -> place in the ring */
	struct scout__list records; /* of all namespaces */
	uint64_t records_at_us;     /* when to look at them; 0: to be found out */
	struct scout__fetch_counters count;
};

/* ---- l2_tier.c ---- */

/* What L2 does when something happens to a namespace; without L2 each of them does nothing. */
extern const struct scout__state_hooks scout__fetch_hooks;

/* Opens the adapters of the configuration; none: server.fetch stays NULL. On the starting thread. */
int scout__fetch_start(struct scout_server *s, const struct scout__l2_adapter *const *adapters, char *err,
		       size_t err_len);
/* What the adapters have ended, deadlines, retries. */
SCOUT_ON_LOOP void scout__fetch_turn(struct scout_server *s);
/* Before the answers of a turn leave: what was unpinned in it. */
SCOUT_ON_LOOP void scout__fetch_flush(struct scout_server *s);
/* A pin of each of @adapters (bits) goes back. */
SCOUT_ON_LOOP void scout__fetch_unpin(struct scout_server *s, struct scout__l2_digest digest, uint8_t adapters);
/* When scout__fetch_turn() has something to do next by itself. */
SCOUT_ON_LOOP uint64_t scout__fetch_next_us(const struct scout_server *s);
/* Nothing waits to be written. */
SCOUT_ON_LOOP bool scout__fetch_is_idle(const struct scout_server *s);
/* An object was found damaged. */
SCOUT_ON_LOOP void scout__fetch_remove(struct scout_server *s, uint32_t adapter, const struct scout__l2_key *key);
/* All peers are gone: stop the adapters. False: one hangs, and the pool must stay mapped. */
SCOUT_ON_LOOP bool scout__fetch_stop(struct scout_server *s);
/* After the last chunk index; not when an adapter hangs. */
SCOUT_ON_LOOP void scout__fetch_free(struct scout_server *s);
static inline bool
scout__same_digest(struct scout__l2_digest a, struct scout__l2_digest b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

/* ---- l2_keys.c ---- */

/* The group has a chunk index: fingerprints and the side table. Without memory for them it has no L2; logged. */
SCOUT_ON_LOOP void scout__fetch_open_group(struct scout_server *s, struct scout__ns_group *group);
SCOUT_ON_LOOP void scout__fetch_close_group(struct scout_server *s, struct scout__ns_group *group);
/* ns.generation is another one. */
SCOUT_ON_LOOP void scout__fetch_refingerprint(struct scout__ns *ns);
/* The object of (tenant, group, hash) of @rank of the group's chunk index under @weights. */
SCOUT_ON_LOOP void scout__key_of(const struct scout__ns_group *group, uint32_t rank, uint64_t weights,
				 const struct scout__str *tenant, const uint8_t *hash, struct scout__l2_key *ret_key);
/* The same, of an entry. */
SCOUT_ON_LOOP void scout__key_of_entry(const struct scout__ns_group *group, uint32_t entry, uint32_t rank,
				       uint64_t weights, uint32_t space, struct scout__l2_key *ret_key);
/* What is expected of @entry, which is promised; made if need be. NULL: no memory. */
SCOUT_ON_LOOP struct scout__expected *scout__expected_make(struct scout__ns_group *group, uint32_t entry);
static inline struct scout__expected *
scout__expected_of(const struct scout__ns_group *group, uint32_t entry)
{
	return group->expected ? group->index->owned[entry] : NULL;
}
/* struct scout__l1.let_go */
SCOUT_ON_LOOP void scout__expected_let_go(struct scout__chunk_index *index, uint32_t entry);
/* A worker stores the shard itself: nothing is expected of L2 any more. */
SCOUT_ON_LOOP void scout__expected_replaced(struct scout_server *s, struct scout__ns_group *group, uint32_t entry,
					    uint32_t rank);
/* @is_store_s: perhaps it was the store's fault, and not the object's. */
SCOUT_ON_LOOP void scout__bad_add(struct scout_server *s, struct scout__l2_digest digest, bool is_store_s);
/* It was written anew. */
SCOUT_ON_LOOP void scout__bad_end(struct scout_server *s, struct scout__l2_digest digest);
SCOUT_ON_LOOP bool scout__bad_is(const struct scout_server *s, struct scout__l2_digest digest);

/* ---- l2_lookup.c ---- */

enum scout__asked {
	SCOUT__ASKED_TAKEN = 1, /* the chunk counts and is promised: lookup_op.next has moved */
	SCOUT__ASKED_MORE,      /* a slice is used up: go on in the next turn */
	SCOUT__ASKED_WAIT,      /* the pending operation is woken when there is something new */
	SCOUT__ASKED_GAP,       /* the hit ends here, as far as anybody knows */
	SCOUT__ASKED_LIMITED    /* there is no room for more */
};
/* The chunk lookup_op.next of a lookup is not in the pool: take it from L2, after a question to L2 if there is none. */
SCOUT_ON_LOOP enum scout__asked scout__l2_take_next(struct scout_server *s, struct scout__lookup_op *pending);
/*
 * One question about @n objects of a lookup, with at most @n_keys shards: TAKEN when it is over, GAP when none can be asked,
 * MORE and WAIT as above.
 */
SCOUT_ON_LOOP enum scout__asked scout__ask_all(struct scout_server *s, struct scout__lookup_op *pending, uint32_t n,
					       uint64_t n_keys);
/* The question is over: whether object @number can be had, from L2 alone or from the pool and L2 together. */
SCOUT_ON_LOOP bool scout__ask_found(const struct scout_server *s, const struct scout__lookup_op *pending,
				    uint32_t number);
/* Promise object @number of the question, with what it found. TAKEN: *ret_entry is promised. Else GAP, WAIT or LIMITED. */
SCOUT_ON_LOOP enum scout__asked scout__ask_take(struct scout_server *s, struct scout__lookup_op *pending,
						uint32_t number, uint32_t *ret_entry);
/* The lookup needs no answer any more, or has got it. */
SCOUT_ON_LOOP void scout__ask_drop(struct scout_server *s, struct scout__lookup_op *pending);

/* ---- l2_load.c ---- */

/* See that an expected shard gets loaded. */
SCOUT_ON_LOOP void scout__load_want(struct scout_server *s, struct scout__ns_group *group, uint32_t entry,
				    uint32_t rank);
/* And all of an entry. */
SCOUT_ON_LOOP void scout__load_want_all(struct scout_server *s, struct scout__ns_group *group, uint32_t entry);
/* struct scout__state_hooks.slots_came: their loads can be queued. */
SCOUT_ON_LOOP void scout__loads_go_on(struct scout_server *s, struct scout__ns_group *group, uint32_t first,
				      uint32_t n);
/* A queued one is not needed any more. */
SCOUT_ON_LOOP void scout__load_cancel(struct scout_server *s, struct scout__load *load);
/* Some of those that are queued; the next turn goes on while more can. */
SCOUT_ON_LOOP void scout__loads_start(struct scout_server *s);
SCOUT_ON_LOOP bool scout__loads_can_start(const struct scout_server *s);

/* ---- l2_records.c ---- */

/* The namespace is made, or has other parameters: read its records. */
SCOUT_ON_LOOP void scout__records_open(struct scout_server *s, struct scout__ns *ns);
SCOUT_ON_LOOP void scout__records_close(struct scout__ns *ns);
/* ns.generation is another one: every store is to record it. */
SCOUT_ON_LOOP void scout__records_changed(struct scout_server *s, struct scout__ns *ns);
/* Read them again now. */
SCOUT_ON_LOOP void scout__records_look(struct scout_server *s, struct scout__ns *ns);
/* The stores (bits) that may be used for the namespace; and those that may be before its next clear. */
SCOUT_ON_LOOP uint8_t scout__records_stores(const struct scout__ns *ns);
SCOUT_ON_LOOP uint8_t scout__records_hoped(const struct scout_server *s, const struct scout__ns *ns);
/* Whether each store has said what it has, or is not waited for any more. */
SCOUT_ON_LOOP bool scout__records_known(const struct scout__ns *ns);
/* True: that is not so, and @pending was put to sleep until it is, or until it has to be answered. */
SCOUT_ON_LOOP bool scout__records_wait(struct scout_server *s, struct scout__pending_op *pending);
/* Whether a store may have the last clear recorded soon. */
SCOUT_ON_LOOP bool scout__records_are_written_now(const struct scout__ns *ns);
/* How many stores have not. */
SCOUT_ON_LOOP uint32_t scout__records_pending(const struct scout_server *s, const struct scout__ns *ns);
SCOUT_ON_LOOP void scout__records_tick(struct scout_server *s);
SCOUT_ON_LOOP uint64_t scout__records_next_us(const struct scout_server *s);

/* ---- l2_write.c ---- */

/* What holds the queue back may be over, or one that was put off is due. */
SCOUT_ON_LOOP void scout__writes_go_on(struct scout_server *s);
/* When the next one that was put off is due. */
SCOUT_ON_LOOP uint64_t scout__writes_next_us(const struct scout_server *s);

/* The shard was stored by a worker for the prompt of @ticket, after those before it: write it through. */
SCOUT_ON_LOOP void scout__write_queue(struct scout_server *s, struct scout__ns_group *group, uint32_t entry,
				      uint32_t rank, uint64_t ticket);
/* What waits of the namespace without its slot, of all if NULL, is not written. Returns how many that is. */
SCOUT_ON_LOOP uint32_t scout__writes_forget(struct scout__fetch *t, const struct scout__ns *ns);
/* Weights have changed, or the chunk index is to go: drop what is queued and outdated, in steps. */
SCOUT_ON_LOOP void scout__writes_sweep(struct scout_server *s);
/* All that is queued, for @ns or (NULL) for all; returns how many. */
SCOUT_ON_LOOP uint32_t scout__writes_drop(struct scout_server *s, const struct scout__ns *ns);
SCOUT_ON_LOOP void scout__write_sweep_step(struct scout_server *s, struct scout__run_item *item);
