/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvscout/protocol.h>

/*
 * What a cache server must answer, worked out in the plainest way: arrays, searched from one end to the other. It knows
 * no index, no slots, no list of what is to be evicted, no jobs. One call is one operation: it returns the status of the
 * reply, and the reply itself when the status is OK.
 *
 * A chunk that nothing pins has a time: when it was last let go or touched. The one with the smallest time is evicted; but
 * for a session never one that it stored or retrieved itself, if nobody else did since. That gets a new time instead, once in
 * an operation. Before all of these goes what is unneeded: see model_unneeded.c.
 *
 * Namespace 0 has workers and memory; namespace 1 has clients only, so it never hits anything.
 *
 * Both have the same groups. A chunk is an object of one group, and each group has memory of its own, so it evicts its own. A
 * prompt is a chain of keys, one for every hash_tokens tokens; object i of a group is named by the key at its end.
 *
 * No pointers in here: a copy of the struct is a copy of the state.
 *
 * What test_server_model proves with it, of every operation of every game (the comparisons: model_rig.c):
 *
 *   S1  each operation has one reply, of its opcode, with the status that the model says
 *   hit  a LOOKUP's hit, its shorter lengths, what it was limited to, and, ahead, each object of each group, are the model's
 *   S2  only ADMIT, FINISH, RESET, the session's end and the peer's leaving withdraw a promise; only its worker's DONE or leaving ends a hold
 *   S3  a chunk is a hit once all its shards are committed, not before; of two stores of one shard the second is told
 *   S4  a RETRIEVE gets the slot that its STORE was granted, with the generation of that grant; each new grant has a higher one
 *   S7  no more bytes are promised than max_promised; a full pool evicts what nothing pins, in the model's order, or refuses
 *   S8  after a RESET nothing older is a hit, is granted or commits
 *   keeps  what FINISH with keep_ms keeps, and says of it; that nothing evicts it; that its time, a newer word or a RESET ends it
 *   books  after each frame STATUS has the model's sessions, peers, chunks, bytes, promises, holds, evictions and counters
 */

#define MODEL_NAMESPACES 2u
#define MODEL_PEERS 24u
#define MODEL_CHUNKS 256u
#define MODEL_GROUPS 5u
#define MODEL_RANKS 4u
#define MODEL_READERS 8u
#define MODEL_TENANTS 3u
#define MODEL_SESSIONS 24u
#define MODEL_HOLDS 192u
#define MODEL_RUN 40u    /* chunks that one operation may name */
#define MODEL_STORED 96u /* chunks that may be stored for one session */
#define MODEL_SHARD_BYTES 4096u
#define MODEL_KEEP_PART 4u /* of max_promised, for all keeps; each client has an equal part of that */

/* The keys that an operation names: a LOOKUP those of a prompt, a STORE those of objects. */
struct model_run {
	uint32_t tenant;
	uint32_t n;
	uint32_t keys[MODEL_RUN];
};

/* A LOOKUP of the prompt @run. All are counted in keys. */
struct model_ask {
	struct model_run run;
	uint32_t first;  /* leading keys that it does not name */
	uint32_t beyond; /* trailing ones that no length counts */
	uint32_t skip;
	uint32_t more;
	bool renews, ahead;
};

/* A RETRIEVE of the objects of some groups, by the keys at their ends. */
struct model_parts {
	uint32_t n;
	struct {
		uint32_t group, from, to;
	} of[MODEL_GROUPS];
};

struct model_group {
	uint32_t policy; /* SCOUT_POLICY_* */
	uint32_t unit, span, margin;
	uint32_t stride;   /* keys of one object */
	uint32_t capacity; /* chunks */
	uint32_t shard_bytes;
	bool vacant; /* no worker has layers of it */
};

enum model_shard {
	MODEL_ABSENT = 0,
	MODEL_WRITING,
	MODEL_READABLE
};

struct model_chunk {
	uint32_t serial; /* 0: there is none. Never used twice: what names an older chunk of the same key is over */
	uint32_t group, tenant, key;
	uint32_t era;      /* counts RESETs */
	uint32_t promises; /* units */
	uint32_t reads;    /* holds of retrieves */
	uint64_t time;
	uint64_t used_by; /* by which session's operations it was stored or retrieved last: its LOOKUP's number */
	uint64_t skipped; /* number of the operation that got another chunk in its place, last */
	bool unneeded;    /* no request that is known of needs it: the time is when that began, or when it was let go */
	uint32_t needed;  /* requests that needed it since it came, up to 3 */
	bool spoiled;     /* was seen to change under a copy: nobody gets it any more */
	uint8_t shard[MODEL_RANKS];
};

/* What a session has of one group. */
struct model_kept {
	uint32_t n;                  /* objects that it knows */
	uint32_t from, to;           /* what it promises lies in here; the rest was given back, or never promised */
	uint32_t serials[MODEL_RUN]; /* 0: not there when it was looked up */
	bool kept[MODEL_RUN];        /* promised and not withdrawn */
	uint32_t units[MODEL_RUN];   /* of these: bit rank * readers + reader is set until that worker retrieves */
	bool parts;                  /* the prompt leaves what others have stored behind the object with this key */
	uint32_t diverges_key;
};

/* What a session keeps after its end. Objects by their place: what it found of the group, then what it stored. */
struct model_keep {
	uint64_t bytes; /* 0: none */
	uint32_t peer;  /* that asked; MODEL_PEERS: gone */
	uint32_t n, tail;
	bool is_short; /* its time is over before the next frame */
	struct {
		uint32_t from, to, end;
		bool kept[MODEL_RUN + 2 * MODEL_STORED];
	} of[MODEL_GROUPS];
};

struct model_session {
	bool used;
	bool is_kept; /* it has ended, and is there for what it keeps only */
	uint32_t peer, ns;
	uint64_t ticket;
	uint64_t opened; /* number of the LOOKUP */
	struct model_ask ask;
	bool retrieved; /* something of what it promised */
	bool is_ahead;  /* what it promises is no length until an ADMIT */
	uint32_t n;
	uint32_t skip, hit; /* the length that it promises, and what of it the GPU has */
	struct model_kept of[MODEL_GROUPS];
	uint32_t n_stored;
	struct {
		uint32_t group, serial, key;
		bool present; /* it was there already */
	} stored[2 * MODEL_STORED];
	struct model_keep keep;
};

struct model_hold {
	bool used, write;
	uint32_t peer;
	uint64_t corr;
	uint64_t opened; /* number of the operation */
	uint32_t era, rank;
	uint32_t n;
	uint32_t serials[MODEL_GROUPS * MODEL_RUN];
};

struct model_peer {
	bool used, worker, lease;
	int32_t rank; /* -1: not registered */
	uint32_t reader, ns;
	uint64_t weights; /* 0: whatever the namespace has */
};

struct model_ns {
	uint64_t weights;
	uint32_t era;
	bool tenant_known[MODEL_TENANTS];
};

struct model {
	uint64_t max_promised; /* bytes */
	uint32_t ranks, readers, max_sessions;
	uint32_t n_groups, hash_tokens;
	struct model_group groups[MODEL_GROUPS];
	struct model_ns ns[MODEL_NAMESPACES];
	struct model_peer peers[MODEL_PEERS];
	struct model_chunk chunks[MODEL_CHUNKS];
	struct model_session sessions[MODEL_SESSIONS];
	struct model_hold holds[MODEL_HOLDS];
	uint64_t number; /* of the operation, in the order in which they were sent: set by the caller before each */
	uint32_t last_serial;
	uint64_t clock;
	uint32_t evicted_tenant[MODEL_GROUPS], evicted_key[MODEL_GROUPS]; /* the last one that was */
	uint64_t evicted[MODEL_GROUPS];
	uint64_t evictions, evictions_unneeded, refusals, promises_refused;
	uint64_t asked, hits, limited, mismatches;
	uint64_t refused; /* operations */
	uint64_t joined, left;
	uint64_t other_peers, other_chunks, other_bytes; /* of a namespace that only takes its part of the memory */
	uint64_t ops[SCOUT_OP_LAST + 1];
	uint64_t keeps[SCOUT_OUTCOME_LAST + 1];
};

/* What FINISH wishes, and what the reply says became of it. */
struct model_wish {
	uint32_t keep_ms;
	bool over; /* nothing continues the request */
	uint32_t kept, outcome;
};

struct model_hit {
	uint32_t hit, l1, limited;
	uint32_t n_more, more[MODEL_RUN];
	uint32_t known; /* ahead: */
	bool present[MODEL_GROUPS][MODEL_RUN];
};

struct model_grants {
	uint64_t id;
	uint32_t n;
	uint32_t n_granted;
	uint16_t states[MODEL_GROUPS * MODEL_RUN];
	uint16_t chunks[MODEL_GROUPS * MODEL_RUN]; /* index in chunks[] of what was granted, at this moment */
};

/* Clients and workers, but no groups yet. */
void model_init(struct model *m, uint64_t max_promised, uint32_t ranks, uint32_t readers, uint32_t max_sessions);
uint64_t model_chunk_bytes(const struct model *m, uint32_t group);

/* A peer has said HELLO with these properties. Returns its number. */
uint32_t model_join(struct model *m, const struct model_peer *peer);
/* HELLO of a peer that is known, with these weights. */
int model_hello(struct model *m, uint32_t peer, uint64_t weights);
void model_bye(struct model *m, uint32_t peer);

int model_lookup(struct model *m, uint32_t peer, uint64_t ticket, const struct model_ask *ask, struct model_hit *ret);
int model_admit(struct model *m, uint32_t peer, uint64_t ticket, uint32_t from, uint32_t to, uint32_t *ret_kept);
int model_finish(struct model *m, uint32_t peer, uint64_t ticket, const struct model_wish *wish,
		 struct model_wish *ret);
/* Of all namespaces or peers, if it is their number. */
uint64_t model_bytes_kept(const struct model *m, uint32_t ns, uint32_t peer);
/* Keeps of a short time end. */
void model_time_passes(struct model *m);
int model_reset(struct model *m, uint32_t peer, uint64_t weights);
int model_store(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, uint32_t group,
		const struct model_run *run, struct model_grants *ret);
int model_store_done(struct model *m, uint32_t peer, uint64_t id, uint32_t n, uint32_t committed,
		     uint32_t *ret_readable);
int model_retrieve(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, const struct model_parts *parts,
		   struct model_grants *ret);
int model_retrieve_done(struct model *m, uint32_t peer, uint64_t id, uint32_t mismatches);

/* The counters of STATUS, one by one; false: there are no more. */
struct model_item {
	char name[32];
	uint64_t value;
};
#define MODEL_ITEMS 56u
uint32_t model_status(const struct model *m, struct model_item *ret_items);

/* For whoever chooses what to ask next. */
uint32_t model_evictable(const struct model *m, uint32_t group);
/* Its lookups are answered from a list of chunks that is walked from the start, not by groups. */
bool model_is_run(const struct model *m, const struct model_ask *ask);
