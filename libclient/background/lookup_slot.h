/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

/*
 * The slot of one lookup generation of one request. Each part is a struct with one writer at a time: the caller's
 * thread, or the courier. A word of the ring, or `answer`, hands a part over; client_internal.h has the picture.
 *
 *   part      | the caller writes                  | the courier
 *   ----------|------------------------------------|-----------------------------------------------
 *   entry     | at any time                        | never looks
 *   question  | before LOOKUP; skip, ahead: SETTLE | reads from LOOKUP on
 *   terms     | before LOOKUP                      | reads from LOOKUP on
 *   ask       | before LOOKUP and before RENEW     | reads; sets the ticket of a renewal
 *   admit     | before ADMIT                       | reads from ADMIT on
 *   settle    | before SETTLE                      | reads at SETTLE
 *   step      | at any time                        | never looks
 *   renewal   | before RENEW                       | reads the ticket at RENEW
 *   landed    | before LOOKUP, from ANSWERED on    | writes from LOOKUP to ANSWERED
 *   newer     | never; reads from RENEWED on       | writes from RENEW to RENEWED
 *   objects   | never; reads from ANSWERED on      | writes from LOOKUP to ANSWERED, frees
 *   work      | before LOOKUP; reads `least` until | writes from LOOKUP to the return through `freed`
 *             | SETTLE                             |
 */

#define SCOUT__NO_SLOT UINT32_MAX
#define SCOUT__CACHE_LINE 64

/* Caller: the slot's place in the table, and how far its request is. */
struct scout__slot_entry {
	uint32_t id_hash;
	uint32_t next;       /* in its bucket, or in the list of free slots: slot plus 1; 0: the last one */
	uint32_t next_asked; /* a guess: the slot that the caller asked for next, last time */
	uint8_t id_len;      /* 0: not in the table */
	bool submitted;      /* the courier knows the slot */
	bool admitted;
	bool unasked; /* a lookup ahead that no step has asked for yet */
};

/* What is asked. All lengths of a slot are in hashes from the start of the prompt. */
struct scout__slot_question {
	uint32_t n;    /* the length up to which there are hashes */
	uint32_t skip; /* the length that the GPU has; of a lookup ahead known when it is settled */
	bool ahead;    /* a lookup ahead whose answer was not read yet */
	uint8_t want;  /* how many lengths the caller wants to hear of, 1 at least */
	uint8_t tenant_len;
	uint8_t n_parts; /* 0: a lookup; else a question for n keys, of so many groups, and no lengths */
	uint8_t last_hash[SCOUT_MAX_HASH];
};

/* The rest of the question: what an ask for a pending answer does not look at. */
struct scout__slot_terms {
	uint64_t prompt_tokens;
	uint64_t keys_digest; /* of all keys, for the caller */
	uint32_t first;       /* the length at which the hashes begin */
	uint32_t at_most;     /* longest length that may be asked for, at most n; lengths_allowed() in client_ask.c */
	uint32_t expect;      /* length that the server waits for if some chunks are late */
	uint32_t timeout_ms : 31;
	uint32_t loads : 1; /* SCOUT_QUERY_LOAD */
};

/* What one LOOKUP word or RENEW word hands over. */
struct scout__slot_ask {
	uint64_t ticket; /* the courier's, once RENEW was pushed for an answer without a session */
	uint64_t deadline_us;
	uint64_t arena_pos; /* of the hashes */
};

/* The range that is admitted. */
struct scout__slot_admit {
	uint32_t from, to;
};

/* How a lookup ahead was settled, see client_answer.c. */
struct scout__slot_settle {
	uint32_t from, to, l2;
	bool keeps; /* nothing is given back yet */
};

/* Caller, see client_step.c: in the list of its step if no is the client's. */
struct scout__slot_step {
	uint32_t no, prev, next;
};

/* Caller, see client_answer.c. */
struct scout__slot_renewal {
	uint64_t ticket;   /* of a new session; 0: renew in the answer's session */
	uint64_t ended_us; /* when the last renewal ended; 0: never */
	bool is_open;      /* a renewal is asked for, and its answer was not read yet */
};

struct scout__slot_answer {
	struct scout_hit hit; /* of `newer`: reason NONE: no news */
	uint32_t epochs;      /* client->epochs when it landed */
	uint8_t n_lengths;    /* in slot->lengths */
	uint8_t kept;         /* enum scout_keep */
};

/* What the servers have of a lookup ahead, or of a question for keys. */
struct scout__slot_objects {
	uint8_t *bits;  /* by group a bit for each object, then a bit for each object in L2; NULL: no memory. For a
			   question for keys: the maps of lookup_answer.c */
	uint32_t known; /* length that the bits are about */
	bool known_limited;
};

/* What the courier does with one slot on one link. */
enum scout__lookup_lane_state {
	SCOUT__LANE_NONE = 0, /* the server knows nothing of the slot */
	SCOUT__LANE_WAIT,     /* LOOKUP waits for credit or for the connection */
	SCOUT__LANE_ASKED,    /* LOOKUP is sent; the server may have a session */
	SCOUT__LANE_OPEN,     /* the server answered: it has a session */
	SCOUT__LANE_ENDING    /* FINISH waits or is in flight */
};

struct scout__lookup_lane {
	uint8_t state;
	bool want_admit;
	bool want_finish;
	bool want_renew;
	uint8_t in_flight; /* operations of this slot on this link */
	bool limited;
	uint32_t hit, l1, l2;
};

/* Courier: how far it is. scout__slot_begin() resets it before the LOOKUP word. */
struct scout__slot_work {
	struct scout__lookup_lane *lanes;                      /* n_links; const after the slot's first use */
	uint32_t todo_prev, todo_next;                         /* in one of the lists of lookup_todo.c */
	uint32_t deadline_prev, deadline_next, deadline_child; /* lookup_deadlines.c */
	uint32_t least;                                        /* chunks that all servers promise */
	uint32_t base, base_l2; /* of a settled lookup ahead: the first of these chunks, and how many are in L2 */
	uint16_t unanswered;    /* lanes */
	uint16_t unsent;        /* lanes that still need the slot's bytes in the arena */
	uint16_t renew_left;    /* lanes that have not answered a renewal; 0: none is under way */
	bool in_todo;
	bool in_deadlines;
	bool ended;    /* answered in some way */
	bool finished; /* the FINISH word came */
	bool admit_came;
	bool was_renewed; /* servers may promise more than they have told */
	bool again;       /* a lookup that renews an answer without a session: its answer goes to `newer` */
};

/*
 * The order of the parts follows from which thread reads and writes them: the caller asks in every step for a request
 * that waits, and what it reads then (the first cache line, and the id after it) must not lie in a line that the
 * courier writes meanwhile. The static asserts below say which parts share a line.
 */
struct scout__lookup_slot {
	struct scout__slot_entry entry;
	/* enum scout__answer: courier writes (release), caller reads (acquire); also a futex */
	atomic_uint answer;
	struct scout__slot_question question;
	/* caller, as the question; the id stays when the slot leaves the table: the courier may name it in its log */
	char id[SCOUT_MAX_NAME + 1];
	char tenant[SCOUT_MAX_NAME + 1];

	struct scout__slot_terms terms;
	struct scout__slot_ask ask;
	atomic_uint sleeping; /* caller writes: 1 while it sleeps on `answer` */

	_Alignas(SCOUT__CACHE_LINE) struct scout__slot_renewal renewal;
	struct scout__slot_settle settle;
	struct scout__slot_step step;
	struct scout__slot_admit admit;
	/* enum scout_hint, and keep_ms * SCOUT__HINTS: caller, before the FINISH word; the courier reads it earlier if it ends a
	   lookup by itself */
	atomic_uint finish;

	_Alignas(SCOUT__CACHE_LINE) struct scout__slot_answer landed;
	uint64_t landed_us; /* when it was published */
	uint64_t landed_ns; /* the same in nanoseconds, if the client stamps answers */

	_Alignas(SCOUT__CACHE_LINE) struct scout__slot_work work;
	/*
	 * Restorable lengths below the longest: room for want - 1 of `landed`, then as many of `newer`, each owned by
	 * the writer of that answer, the longest first. The caller allocates, the courier frees. NULL: none, as when
	 * all policies are `all`: then they follow from the longest.
	 */
	uint32_t *lengths;

	struct scout__slot_answer newer;
	struct scout__slot_objects objects;
};
#define SCOUT__HINTS 4u
#define SCOUT__LINE_OF(part) (offsetof(struct scout__lookup_slot, part) / SCOUT__CACHE_LINE)
_Static_assert(offsetof(struct scout__lookup_slot, id) == SCOUT__CACHE_LINE, "what an ask reads fills one line");
_Static_assert(SCOUT__LINE_OF(terms) == SCOUT__LINE_OF(sleeping), "a submit's line, which the courier reads");
_Static_assert(SCOUT__LINE_OF(renewal) == SCOUT__LINE_OF(finish), "the caller's own line");
_Static_assert(SCOUT__LINE_OF(landed) == SCOUT__LINE_OF(landed_ns), "an answer is read from one line");
_Static_assert(SCOUT__LINE_OF(work) == SCOUT__LINE_OF(lengths), "the courier works in one line");
_Static_assert(sizeof(struct scout__lookup_slot) == 14 * SCOUT__CACHE_LINE, "no line of gaps");
_Static_assert(SCOUT_MAX_NAME <= UINT8_MAX, "lengths of ids and tenants are bytes");
_Static_assert(SCOUT_MAX_LENGTHS <= UINT8_MAX, "numbers of lengths are bytes");

/* In the arena, the keys of one group of a question, groups ascending; the hashes of all follow, group by group. */
struct scout__keys_part {
	uint32_t group, n;
};
