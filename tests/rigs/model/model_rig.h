/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>

#include "model.h"
#include "server_rig.h"

/*
 * Ask the server and the model the same, and compare: frames of many operations of one peer. The server executes the
 * operations of a frame in their order as long as they touch less than a turn's share of chunks (INLINE), with one
 * exception: a STORE that finds the clock too far on goes on later. So the model executes in the order of the answers,
 * if that is another one. Each operation must be small enough to be executed in one piece. The LOOKUP of a namespace with several groups
 * is not: it looks, then promises, and what lies behind it in its frame is executed between these. So it ends its frame.
 */

#define FRAME_OPS 96u
#define INLINE 4096u /* as SCOUT__INLINE_CHUNKS */
#define HISTORY 20u

_Static_assert(MODEL_SHARD_BYTES == SHARD_BYTES, "one size");

struct op {
	uint8_t opcode;
	uint64_t number; /* in the order in which they are sent */
	uint64_t corr;
	uint64_t ticket;        /* or the id of a store or retrieve, or weights */
	uint32_t a, b;          /* from, to; n, committed; mismatches */
	struct model_wish wish; /* of FINISH; in `done` what became of it */
	struct model_ask ask;   /* of a STORE: run only */
	uint32_t group;
	struct model_parts parts;
	/* What the model says. */
	int status;
	uint32_t count; /* kept, readable */
	struct model_wish done;
	struct model_hit hit;
	struct model_grants grants;
	uint32_t n_items;
	struct model_item items[MODEL_ITEMS];
	struct wire_reply *reply;
};

struct player {
	bool used;
	uint32_t peer; /* number in the model */
	struct wire_peer wire;
};

struct slot {
	struct scout__grant grant; /* the last one for it */
	bool ended;                /* what was stored there is gone, and the generation is what it was set to then */
};

extern struct model m, before;
extern struct scout__groups groups; /* of the model, as HELLO names them */
extern struct op ops[FRAME_OPS];
extern uint32_t n_ops;
extern uint64_t n_done; /* operations */
extern uint64_t n_reordered;
extern uint32_t seed, limit;
extern struct slot slots[MODEL_RANKS][MODEL_CHUNKS];

extern struct slot *places[MODEL_CHUNKS][MODEL_RANKS]; /* of the last STORE granted of each chunk */

/* ---- failure ---- */

void differ(const struct op *op, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void expect(const struct op *op, const char *what, uint64_t got, uint64_t expected);

/* ---- what comes back ---- */

struct slot *slot_of(const struct op *op, const struct scout__grant *grant, uint32_t rank);
void check_grants(const struct op *op, uint32_t rank);

/* ---- a frame ---- */

void execute(struct op *op, uint32_t peer);
void frame_begin(void);
bool frame_has_room(void);
/* Chunks that one operation touches at most. */
uint32_t ending(void);

/* Add @op to the frame. @corr 0: a new one. Returns it, with the model's answer. */
const struct op *add(struct player *p, const struct op *op, uint64_t corr);

/* Send, wait for all answers, compare. */
void frame_exchange(struct player *p);

/* With STATUS behind all others, and a look at the memory. */
void frame_end(struct player *p);
