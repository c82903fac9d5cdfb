/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

#include "arena.h"
#include "courier.h"
#include "log.h"
#include "lookup_slot.h"
#include "msg.h"

/*
 * The client: a table of slots between the caller and the courier.
 *
 *   caller                                        courier (lookup*.c)
 *   id -> slot (client_table.c)
 *   fills the slot's question, copies hashes
 *   into the arena, pushes a word  ──ring──▶      LOOKUP to every link
 *   reads slot->answer  ◀───────────────────      writes slot->landed, then answer = ANSWERED (release)
 *   ADMIT, FINISH words  ──ring──▶                sends them, waits for the replies
 *   RENEW word  ──ring──▶                         asks anew (client_answer.c, lookup_answer.c)
 *   takes slot->newer  ◀────────────────────      writes it, then answer = RENEWED (release)
 *   takes the slot from `freed`  ◀──ring──        the slot again, when nothing in flight names it
 *
 * A slot belongs to one lookup generation of one request. scout_finish() forgets the id at once; the slot itself comes
 * back through `freed` when the courier is done with it. So an answer that lands late finds a slot without a reader,
 * never the slot of a later request with the same id. There are twice as many slots as live requests.
 *
 * The files of the caller's half; each calls only files after it in this list: client_life.c, client_keys.c, client_ask.c ->
 * client_answer.c -> client_step.c, client_table.c -> answer_word.c, reason.c. lookup_internal.h has the courier's half.
 *
 * Room in the ring: a slot pushes at most LOOKUP, SETTLE, RENEW, ADMIT and FINISH, each with at most one END of a step;
 * a second RENEW only when the first was answered. The ring has room for these words of all slots, for one BROADCAST
 * of each kind and for one FEED, so no push can fail, and finish and admit need no error path.
 */

enum scout__word_op {
	SCOUT__WORD_LOOKUP = 1,
	SCOUT__WORD_ADMIT,
	SCOUT__WORD_FINISH,
	SCOUT__WORD_BROADCAST, /* in place of the slot: enum scout__broadcast_what */
	SCOUT__WORD_STEP_END,
	SCOUT__WORD_RENEW,
	SCOUT__WORD_SETTLE,
	SCOUT__WORD_FEED
};
/* A word of the ring: operation, whether it is part of a step (then it is not sent before STEP_END), slot. */
#define SCOUT__WORD_OP(word) ((word)&15u)
#define SCOUT__WORD_HELD (1u << 4)
#define SCOUT__WORD(op, slot) ((uint64_t)(op) | (uint64_t)(slot) << 8)
#define SCOUT__WORD_SLOT(word) ((uint32_t)((word) >> 8))
#define SCOUT__WORDS_PER_SLOT 10u
/* Which endpoint is down, and why: in one word, so that a reader always gets a matching pair. */
#define SCOUT__DOWN(endpoint, error) ((uint32_t)((endpoint) + 1) | (uint32_t) - (error) << 16)
#define SCOUT__DOWN_ENDPOINT(down) ((int)((down)&0xffff) - 1)
#define SCOUT__DOWN_ERROR(down) (-(int)((down) >> 16))
#define SCOUT__TICKET_BATCH 256u

enum scout__answer {
	SCOUT__PENDING = 0,
	SCOUT__ANSWERED = 1,
	SCOUT__RENEWED = 2 /* and slot->newer says what a renewal found */
};

/* Slots, through their todo_prev and todo_next. */
struct scout__lookup_list {
	uint32_t head, tail; /* SCOUT__NO_SLOT: empty */
};

/* Tickets to give back once a server is there again (same epoch). Courier. */
struct scout__give_back {
	uint64_t *tickets; /* ring of cap */
	uint32_t cap, first, n;
	uint32_t sent;      /* so many, from the first, are on their way */
	uint32_t in_flight; /* operations; more than `sent` when a full ring has dropped some */
};

/* What is sent to every server and ends all requests, see client_life.c. */
enum scout__broadcast_what {
	SCOUT__BROADCAST_RESET = 0, /* number: version of the weights */
	SCOUT__BROADCAST_CLEAR,     /* number: generation */
	SCOUT__BROADCASTS
};

struct scout__broadcast_link {
	uint64_t todo;      /* number to send, 0 = none */
	uint32_t in_flight; /* sent and not answered */
};

struct scout__broadcast {
	atomic_uint_fast64_t number; /* caller -> courier: the latest */
	atomic_bool queued;          /* a word for it is in the ring */
	/* Servers that have not carried out the latest; L2 stores that had not recorded it when theirs did. */
	atomic_uint untold, behind;
	/* courier */
	uint64_t latest;
	struct scout__broadcast_link *links; /* n_links */
};

enum scout__feed_state {
	SCOUT__FEED_IDLE = 0, /* the caller may ask */
	SCOUT__FEED_ASKED,    /* the courier's: it sends `ask`, and fills `pages[filling]` or `error` */
	SCOUT__FEED_ANSWERED  /* the caller's */
};

/* The caller reads one page while the courier fills the other: see client_feed.c. */
struct scout__feed_reader {
	atomic_uint state; /* enum scout__feed_state, says whose the fields below are */
	struct scout__feed_msg ask;
	struct {
		uint8_t *body;
		size_t len, cap;
	} pages[2];
	uint32_t filling;
	int error;
	/* courier */
	bool unsent, in_flight;
	/* caller: the page that is being read */
	struct scout__reader events;
	uint32_t n_left;
	bool starts_over; /* START_OVER is to be told before them */
	bool is_behind;   /* CAUGHT_UP has not been told since */
	bool catches_up;  /* CAUGHT_UP is to be told after them */
};

#define SCOUT__KEPT_PROMPTS 64u

struct scout_client {
	/* const after start */
	struct scout_client_config cfg; /* own copy */
	struct scout__log log;
	struct scout__log_gate log_gate; /* of log */
	struct scout__courier *courier;
	uint32_t n_links;
	uint32_t n_slots;
	struct scout__groups groups;
	bool is_plain;       /* one group with policy all, an object for each hash, no margin */
	bool is_run;         /* all groups have policy all: any shorter length in strides is restorable, too */
	uint32_t stride;     /* in hashes: objects of all groups with policy all end together at its multiples */
	bool stamps_answers; /* set before the first lookup; for the latency tool */

	/* caller */
	struct scout__lookup_slot *slots;
	struct scout__lookup_lane *lanes; /* n_slots * n_links; courier's content */
	uint32_t *buckets;                /* each a slot plus 1; 0: empty */
	uint32_t n_buckets;               /* buckets in use: about as many as there are live requests */
	uint32_t bucket_mask;             /* the smallest 2^k - 1 that is at least n_buckets - 1 */
	uint32_t last_asked;              /* slot, in the table or not */
	uint32_t free_head;               /* list of the free slots that were used before: slot plus 1; 0: empty */
	uint32_t n_fresh;                 /* slots from this one on were never used */
	uint32_t n_live;
	bool in_step;
	bool step_dirty;             /* a word was pushed in this step */
	uint32_t step_no, step_head; /* see client_step.c */
	uint32_t step_left_us;       /* what is left of step_wait_us in this step */
	uint32_t n_renewing;         /* see client_answer.c */
	uint32_t renew_tokens;
	uint64_t renew_refill_us;
	uint64_t tickets[SCOUT__TICKET_BATCH]; /* random words drawn ahead: one system call for many lookups */
	uint32_t n_tickets;
	struct scout_client_counters stats; /* the caller's part */
	atomic_uint busy_check;             /* debug: a call is in progress */

	/* shared */
	struct scout__arena arena;
	struct scout__ring freed; /* courier -> caller: slot + 1 */
	atomic_uint down;         /* courier writes: 0, or SCOUT__DOWN() of a server that is not there */
	atomic_uint epochs;       /* courier writes: counts server starts seen. An answer with an older count is void */
	int event_fd;             /* scout_client_fd(); made at start */
	atomic_uint event_armed;
	pthread_mutex_t ready_mu;  /* wait_ready only */
	pthread_cond_t ready_cond; /* G:ready_mu: the four below */
	uint32_t ready_up;
	int ready_error;
	char ready_text[512];
	struct scout__log_limit wrong[6]; /* caller; client_wrong.c */

	/* courier; in cache lines of their own, because the courier writes them all the time */
	/*
	 * A slot with something unsent is in one of three lists: `held` until its step ends, `todo` before the
	 * courier looks at it, `blocked` if its links then had no room.
	 */
	_Alignas(SCOUT__CACHE_LINE) struct scout__lookup_list todo;
	struct scout__lookup_list blocked, held;
	bool may_unblock; /* a credit, a connection or a reset came since slots were blocked */
	uint32_t deadline_head, deadline_tail, deadline_root; /* lookup_deadlines.c */
	struct scout__log_limit timeout_limit;
	struct scout__log_limit refusal_limit;
	uint32_t n_seen; /* no word has named a slot from this one on: a walk over all slots ends here */
	struct {
		uint64_t last; /* of its last hash and its tenant */
		uint32_t n;    /* hashes */
		uint8_t outcome;
	} kept[SCOUT__KEPT_PROMPTS]; /* the last prompts that were finished with keep_ms; a ring */
	uint32_t n_kept;             /* so many were */
	uint32_t n_renewals;         /* slots whose renew_left is not 0 */
	uint32_t n_finishing;        /* slots that are finished and not yet returned to the caller */
	bool is_held;                /* the word that is being handled belongs to the open step */
	bool closing;
	struct scout__give_back *give_back;                    /* n_links */
	struct scout__broadcast broadcasts[SCOUT__BROADCASTS]; /* shared: `number` and `queued` */
	struct scout__feed_reader feed;
	struct {
		atomic_uint_fast64_t answers, dropped, hits, timeouts, unreachable, refused, late, hit_tokens, hit_keys;
		atomic_uint_fast64_t keeps[SCOUT_OUTCOME_LAST + 1], kept_tokens; /* by outcome, of each server */
	} counts;
};

/* ---- client_table.c: caller ---- */
int scout__table_init(struct scout_client *client);
void scout__table_fini(struct scout_client *client);
/* Whether the id is legal; @ret_len: its length. */
bool scout__id_ok(const char *id, size_t *ret_len);
uint32_t scout__id_hash(const char *id, size_t len);
uint32_t scout__table_find(const struct scout_client *client, const char *id, size_t len, uint32_t hash);
/* The slot of a request by its id alone; SCOUT__NO_SLOT: there is none. 0 or SCOUT_ERR_REQUEST_ID. */
int scout__table_find_id(const struct scout_client *client, const char *id, uint32_t *ret_slot);
/*
 * A live slot; SCOUT__NO_SLOT: none. To forget all slots, start with UINT32_MAX in @bucket, and forget each slot that
 * is returned until there is none.
 */
uint32_t scout__table_any(const struct scout_client *client, uint32_t *bucket);
/* The caller has just asked for this slot. */
void scout__table_asked(struct scout_client *client, uint32_t slot);
/* A slot for a new request id, in the table; SCOUT__NO_SLOT when there is none. */
uint32_t scout__table_add(struct scout_client *client, const char *id, size_t len, uint32_t hash);
/* Forget the id. The slot stays taken. */
void scout__table_forget(struct scout_client *client, uint32_t slot);
/* The slot is free again. */
void scout__table_release(struct scout_client *client, uint32_t slot);
/* From now on note when answers are published. Before the first lookup only. */
void scout__client_stamp_answers(struct scout_client *client);
/* When the answer to @id was published, on the clock of clock.h; 0 while there is none, or without stamps. */
uint64_t scout__client_landed_ns(const struct scout_client *client, const char *id);

/* ---- client_step.c: caller ---- */

/* The slot was submitted by an ask, or is a pending lookup ahead that is asked for the first time. */
void scout__step_add(struct scout_client *client, uint32_t slot);
/* The slot's answer has landed, or its request is over. */
void scout__step_remove(struct scout_client *client, uint32_t slot);
/* Push one word to the courier; outside of a step wake it, too. There is always room, see above. */
void scout__client_push(struct scout_client *client, uint64_t word);
/* Inside a step: send now what was pushed, because the caller is about to wait. */
void scout__client_push_on(struct scout_client *client);

/* A random ticket; 0: no entropy yet, at boot. */
uint64_t scout__client_ticket(struct scout_client *client);

/* ---- client_answer.c: caller ---- */

/* The two maps of group @g in slot->objects.bits, which is not NULL. A bit for each object. */
struct scout__group_maps {
	uint8_t *there;
	uint8_t *in_l2;
};
struct scout__group_maps scout__group_maps(const struct scout_client *client, const struct scout__lookup_slot *slot,
					   uint32_t g);

/* The answer to a lookup ahead is asked for the first time. */
void scout__request_settle(struct scout_client *client, uint32_t slot, uint64_t computed_tokens);

/* An answered, unadmitted slot is asked for: take over a newer answer. Returns whether the answer is old, and should be renewed now. */
bool scout__renew_look(struct scout_client *client, uint32_t slot);
/* Renew the slot's answer, with the hashes of @q. */
void scout__renew_ask(struct scout_client *client, uint32_t slot, const struct scout_query *q);
/* The slot is admitted or forgotten: nobody will read its renewal any more. */
void scout__renew_forget(struct scout_client *client, struct scout__lookup_slot *slot);

/* ---- client_ask.c: caller ---- */

/* A server is known to be gone, as client->down says: write the answer of a new slot. */
void scout__answer_unreachable(struct scout_client *client, struct scout__lookup_slot *slot, unsigned down);

/*
 * These two enclose every call that touches the caller's fields. A build with SCOUT_DEBUG aborts when two threads are
 * in one client at once. False: this process is a child of the client's.
 */
static inline bool
scout__client_enter(struct scout_client *client)
{
	if (scout__courier_forked(client->courier))
		return false;
#ifdef SCOUT_DEBUG
	SCOUT_ASSERT(atomic_exchange(&client->busy_check, 1) == 0);
#endif
	return true;
}

static inline int
scout__client_leave(struct scout_client *client, int rc)
{
#ifdef SCOUT_DEBUG
	atomic_store(&client->busy_check, 0);
#else
	(void)client;
#endif
	return rc;
}

/* The request is over; a later one with the same id finds nothing of it. */
void scout__client_forget(struct scout_client *client, uint32_t slot);

/* ---- reason.c: any thread ---- */

/* The enum scout_reason of an answer that failed with @error, a SCOUT_ERR_*. */
int scout__reason_of(int error);

/* ---- lookup.c: courier ---- */
extern const struct scout__courier_ops scout__lookup_ops;
