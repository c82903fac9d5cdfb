/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "msg.h"
#include "waiting.h"

/*
 * A bare peer of the protocol: one DEALER, one lease connection, every operation as one call that waits for its reply.
 * It does nothing by itself - no heartbeat, no reconnect, no check of what the test asks for - so a test can be as
 * wrong as it likes. Waiting has a deadline; when it passes the process ends with a message, also in a forked child.
 */

#define WIRE_SEGMENTS 64

struct wire_segment {
	uint32_t id, slots;
	int fd;
	uint64_t bytes, data_offset, stride;
	uint8_t *map; /* NULL until wire_slot() asks */
};

struct wire_reply {
	uint64_t corr;
	uint64_t order; /* counts all replies of this peer, from 1 */
	uint64_t epoch;
	uint8_t opcode;
	uint16_t status;
	uint32_t length;
	uint8_t *body;
	struct wire_reply *next;
};

struct wire_peer {
	void *zctx;
	void *dealer;
	struct scout__hello
		hello; /* sent by wire_hello(), with one group if it names none; a test may change it before */
	char lease_path[128];
	uint64_t epoch;   /* of the last HELLO reply; sent in every frame */
	uint64_t weights; /* likewise, of the namespace */
	uint64_t id;      /* likewise; hello.secret is of the last reply, too */
	struct scout__clear_state
		clear; /* of the last reply to HELLO or CLEAR; hello.clear is what the next HELLO says */
	uint32_t credits;
	int64_t sent_us_shift;    /* added to the clock that frames carry */
	bool no_clock;            /* frames carry 0 instead */
	uint32_t budget_us;       /* of every operation */
	struct scout__str tenant; /* of every lookup and store that names none */
	uint64_t last_corr;
	int lease_fd;
	struct scout__channel channel; /* open: frames travel through it */
	struct wire_segment segments[WIRE_SEGMENTS];
	uint32_t n_segments;
	struct scout__writer out;
	uint32_t n_ops;
	size_t op_at;
	uint64_t n_replies;
	struct wire_reply *replies; /* received and not yet taken, oldest first */
	struct wire_reply *answer;  /* to the last call of wire_ops.c */
	char text[512];             /* of the last refusal */
};

/* Connects; a client of namespace "test" with 1 rank, 1 reader, 16-byte hashes, 16 tokens a chunk. */
void wire_open(struct wire_peer *p, const char *endpoint);
/* With room for that many frames that were not read. */
void wire_open_hwm(struct wire_peer *p, const char *endpoint, int rcvhwm);
/* With CURVE keys, with a ZeroMQ identity; NULL: without. */
struct wire_keys {
	char server[41], public[41], secret[41];
};
void wire_open_as(struct wire_peer *p, const char *endpoint, const struct wire_keys *keys, const char *identity);
/* Closes everything without a goodbye. */
void wire_close(struct wire_peer *p);

/* Operations by hand: add any number, flush, then wait for each. wire_begin() returns the writer of the body. */
struct scout__writer *wire_begin(struct wire_peer *p, uint8_t opcode);
/* Ends the operation; returns its corr. */
uint64_t wire_end(struct wire_peer *p);
void wire_flush(struct wire_peer *p);
void wire_raw(struct wire_peer *p, const void *data, size_t len, bool more);
/* The reply to @corr (0: a frame error); free it with wire_reply_free(). Notes its text if it is a refusal. */
struct wire_reply *wire_wait(struct wire_peer *p, uint64_t corr);
void wire_reply_free(struct wire_reply *reply);
/* Waits for it until @end_us. False: it has not come. */
bool wire_comes(struct wire_peer *p, uint64_t corr, uint64_t end_us);
/* Whether a reply to @corr has arrived by now, without waiting. */
bool wire_has(struct wire_peer *p, uint64_t corr);

/* The next HELLO is that of the peer that said @hello. */
void wire_as(struct wire_peer *p, const struct scout__hello *hello);

/* One operation, one reply. All return the status; results only when it is OK. */
int wire_hello(struct wire_peer *p);
int wire_ping(struct wire_peer *p);
int wire_simple(struct wire_peer *p, uint8_t opcode, uint64_t word); /* FINISH, RESET */
int wire_finish(struct wire_peer *p, const struct scout__finish_msg *m, struct scout__finish_reply *ret);
int wire_clear(struct wire_peer *p, uint64_t generation, struct scout__clear_reply *ret);
int wire_lookup(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t skip,
		struct scout__lookup_reply *ret);
/* The same again, in the session that wire_lookup() opened. */
int wire_renew(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t skip,
	       struct scout__lookup_reply *ret);
/* What is there of each chunk: @ret_present[i] is 0, 1 or, in L2 only, 2. */
int wire_ahead(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, struct scout__ahead_reply *ret,
	       uint8_t *ret_present);
int wire_admit(struct wire_peer *p, uint64_t ticket, uint32_t from, uint32_t to, uint32_t *ret_kept);
int wire_register(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint64_t shard_bytes);
struct wire_grants {
	uint64_t id;
	uint32_t n;
	uint32_t n_granted;
	struct scout__grant *grants; /* free() it */
};
int wire_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, struct wire_grants *ret);
int wire_store_done(struct wire_peer *p, uint64_t id, uint32_t n, uint32_t committed, uint32_t *ret_readable);
int wire_retrieve(struct wire_peer *p, uint64_t ticket, uint32_t from, uint32_t to, struct wire_grants *ret);
int wire_retrieve_done(struct wire_peer *p, uint64_t id, uint32_t mismatches);
/* Of a worker that has compared what it was granted. */
int wire_found(struct wire_peer *p, uint64_t id, const uint8_t *found, uint32_t n);
/* A counter of STATUS; UINT64_MAX when there is none of that name. */
uint64_t wire_status(struct wire_peer *p, const char *name);
/* The same in two steps: ask, and read the reply. */
uint64_t wire_ask_status(struct wire_peer *p);
uint64_t wire_read_status(struct wire_peer *p, uint64_t corr, const char *name);
/* Ask for it until it has this value. */
void wire_wait_status(struct wire_peer *p, const char *name, uint64_t value);

/* A lookup to be added to a frame; returns its corr. */
uint64_t wire_add_lookup(struct wire_peer *p, const struct scout__lookup_msg *m, uint64_t first_key);

/* Any operation that only lists or drops, likewise; @number: a generation or version. */
uint64_t wire_add_plain(struct wire_peer *p, uint8_t opcode, uint64_t number);
/* A store, likewise. */
uint64_t wire_add_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n);

/*
 * Lease: connect and LEASE_HELLO. Returns the type of the answer (SCOUT_LEASE_OK, SCOUT_LEASE_GONE), or 0 for the end.
 */
int wire_lease(struct wire_peer *p);
/* Ask for a channel. From then on frames travel through it; false: there is none to be had. */
bool wire_channel(struct wire_peer *p);
void wire_lease_bye(struct wire_peer *p);
void wire_lease_close(struct wire_peer *p);
/* Receive segments until there is one with this id; the mapped bytes of the grant's slot. */
uint8_t *wire_slot(struct wire_peer *p, const struct scout__grant *grant);
/* The generation word of the grant's slot, now. */
uint64_t wire_generation(struct wire_peer *p, const struct scout__grant *grant);

/* The hash of key number @key. */
void wire_hash(uint8_t *hash, unsigned hash_bytes, uint64_t key);

/* What an operation returns: a failure names both statuses. */
#define assert_wire(call, expected)                                                                                    \
	do {                                                                                                           \
		int status_ = (call);                                                                                  \
                                                                                                                       \
		ck_assert_msg(status_ == (expected), "%s is %s, not %s", #call, scout__wire_name((unsigned)status_),   \
			      scout__wire_name(expected));                                                             \
	} while (0)
