/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "breaker.h"
#include "doorbell.h"
#include "l2.h"
#include "ring.h"
#include "url.h"

/*
 * The structures that only this room uses, between l2.c (life and death), l2_submit.c (operations), lateness.c (their
 * clocks), switching.c (breakers) and store_state.c (how a store does).
 */

/* The trial of reads: the operation that failed last before the breaker opened, once more, into memory of its own. */
struct scout__l2_trial {
	struct scout__l2_op op;
	struct scout__l2_key key;
	struct scout__l2_digest digest;
	uint8_t found;
	uint8_t what;
	uint8_t record[8];               /* of a probe */
	struct scout__l2_digest nothing; /* name of a record that no namespace has: zeros */
	uint64_t bytes, timeout_us;
	uint8_t *buffer; /* for a LOAD; kept for the next */
	uint64_t buffer_bytes;
	bool is_running;
};

/* How the store does: store_state.c. */
struct scout__l2_seen {
	enum scout__l2_state state, told; /* `told`: in the last line of the log */
	uint8_t failing;               /* kinds (bits of enum scout__l2_what) that failed and have not worked since */
	uint64_t failed_us, worked_us; /* last; 0: never */
	uint64_t since_ms;             /* Unix time of the state */
	uint64_t told_us, words_us, probe_us;
	char words[SCOUT__L2_WHY_BYTES]; /* of a failure; "" while it works */
};

/* One adapter. All fields are the loop's unless they say otherwise. */
struct scout__l2_port {
	struct scout__l2 *l2;
	const struct scout__l2_adapter *ops;
	void *adapter;
	struct scout__l2_url url;
	struct scout__l2_store store;
	pthread_mutex_t mu;            /* adapter's threads: pushing into done */
	struct scout__ring done;       /* operations that have ended: adapter's threads to the loop */
	struct scout__list running;    /* newest first */
	uint32_t n_given[2];           /* running LOADs, and STOREs and REMOVEs, by enum scout__l2_side */
	struct scout__list waiting[2]; /* until n_given is below store.at_once; empty unless the breaker is closed */
	uint32_t n_waiting;
	uint32_t n_late;           /* of running */
	uint64_t due_us;           /* nothing that runs can be late before */
	uint64_t ended_us[2];      /* when a question, or a disk operation, came back last: see lateness.c */
	struct scout__list unpins; /* wait for room */
	uint64_t unpins_us;        /* when to try them again, if nothing ends first */
	struct scout__l2_switch sides[2];
	struct scout__l2_trial trial;     /* the trial of reads */
	struct scout__l2_op *write_trial; /* a STORE of the server; compared only */
	bool doubts_questions;            /* they had reads switched off, and none of the server's has worked since */
	struct scout__l2_op *question;    /* the only one that runs while they are in doubt; compared only */
	struct scout__l2_seen seen;
	struct scout__log_limit limit;
	bool hangs; /* did not stop */
};

struct scout__l2 {
	const struct scout__l2_adapter *const *adapters; /* until all are open */
	const struct scout__log *log;
	uint64_t timeout_us;
	uint32_t max_ops;
	uint32_t n;
	struct scout__doorbell bell; /* adapters -> loop, which stays parked */
	struct scout__list ended;    /* operations that no adapter had: refused, or after the stop */
	uint32_t turn;               /* whose ring comes first in the next reap */
	bool is_stopped;
	struct scout__l2_port ports[SCOUT__L2_MAX_ADAPTERS];
};

#define SCOUT__L2_OP(list_node) SCOUT__OWNER(list_node, struct scout__l2_op, node)

/* Take the first operation out of @list; NULL: there is none. */
static inline struct scout__l2_op *
scout__l2_pop(struct scout__list *list)
{
	struct scout__list *node = scout__list_pop(list);

	return node ? SCOUT__L2_OP(node) : NULL;
}

static inline enum scout__l2_side
scout__l2_side_of(const struct scout__l2_op *op)
{
	return op->what == SCOUT__L2_STORE || op->what == SCOUT__L2_REMOVE ? SCOUT__L2_WRITES : SCOUT__L2_READS;
}

static inline bool
scout__l2_is_of_record(const struct scout__l2_op *op)
{
	return op->what == SCOUT__L2_RECORD_READ || op->what == SCOUT__L2_RECORD_WRITE;
}

/* Whether separate threads or connections answer @op: it does not wait for the disk, nor the disk for it. */
static inline bool
scout__l2_is_question(const struct scout__l2_op *op)
{
	return op->what == SCOUT__L2_EXISTS || op->what == SCOUT__L2_UNPIN;
}

/* Whether @op waits for its turn when the adapter has enough of its side. */
static inline bool
scout__l2_needs_a_turn(const struct scout__l2_op *op)
{
	return op->what == SCOUT__L2_LOAD || op->what == SCOUT__L2_STORE || op->what == SCOUT__L2_REMOVE;
}

/* The files in their order, below l2_submit.c and l2.c: each calls only those above it here. */

/* ---- l2_port.c ---- */

/* @op ends with @result without having been an adapter's. */
SCOUT_ON_LOOP void scout__l2_end(struct scout__l2 *l2, struct scout__l2_op *op, enum scout__l2_result result);
/* End all operations that wait for their turn at the adapter in this way. */
SCOUT_ON_LOOP void scout__l2_end_waiting(struct scout__l2_port *port, enum scout__l2_side side,
					 enum scout__l2_result result);
/* Give @op to the adapter. False: it does not take it. */
SCOUT_ON_LOOP bool scout__l2_give(struct scout__l2_port *port, struct scout__l2_op *op, uint64_t now_us);

/* ---- store_state.c ---- */

/* Find the state, and log it if it has changed or lasts. */
SCOUT_ON_LOOP void scout__l2_look_at_state(struct scout__l2_port *port, uint64_t now_us);
/* @op worked, or failed: with @words, or (NULL) with what it says itself. */
SCOUT_ON_LOOP void scout__l2_note(struct scout__l2_port *port, const struct scout__l2_op *op, const char *words,
				  bool worked, uint64_t now_us);
/* A trial has shown that @side works. */
SCOUT_ON_LOOP void scout__l2_side_works(struct scout__l2_port *port, enum scout__l2_side side);
/* Whether to read a record, to see whether the store works; at most every few seconds. */
SCOUT_ON_LOOP bool scout__l2_wants_probe(struct scout__l2_port *port, uint64_t now_us);

/* ---- switching.c ---- */

/* Judge the store by @op, which has ended or is late. */
SCOUT_ON_LOOP void scout__l2_judge(struct scout__l2_port *port, const struct scout__l2_op *op,
				   enum scout__l2_verdict verdict, uint64_t now_us);
/* Nothing of @side moves; @op is one that waits. */
SCOUT_ON_LOOP void scout__l2_hangs(struct scout__l2_port *port, enum scout__l2_side side, const struct scout__l2_op *op,
				   uint64_t now_us);
SCOUT_ON_LOOP void scout__l2_begin_trial(struct scout__l2_port *port, enum scout__l2_side side);
/* Try reads again that are switched off, if a trial is due, or see whether a store that does not work does again. */
SCOUT_ON_LOOP void scout__l2_try_reads(struct scout__l2_port *port, uint64_t now_us);

/* ---- lateness.c ---- */

/* Find what is late. */
SCOUT_ON_LOOP void scout__l2_look_at_clocks(struct scout__l2_port *port, uint64_t now_us);
