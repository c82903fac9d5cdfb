/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_CLIENT_INTERNAL_H
#define SCOUT_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

#include "arena.h"
#include "courier.h"
#include "log.h"

/*
 * The client: a table of slots between the caller and the courier.
 *
 *   caller                                        courier (lookup*.c)
 *   id -> slot (client_table.c)
 *   fills the slot's question, copies hashes
 *   into the arena, pushes a word  ──ring──▶      LOOKUP to every link
 *   reads slot->answer  ◀───────────────────      writes slot->hit, then answer = ANSWERED (release)
 *   ADMIT, FINISH words  ──ring──▶                sends them, waits for the replies
 *   RENEW word  ──ring──▶                         asks anew (client_answer.c, lookup_answer.c)
 *   takes slot->newer  ◀────────────────────      writes it, then answer = RENEWED (release)
 *   takes the slot from `freed`  ◀──ring──        the slot again, when nothing in flight names it
 *
 * A slot belongs to one lookup generation of one request. scout_finish() forgets the id at once; the slot itself comes
 * back through `freed` when the courier is done with it. So an answer that lands late finds a slot without a reader,
 * never that of a later request of the same id. There are twice as many slots as live requests.
 *
 * The files of the caller's half; each calls only those after it: client_life.c, client_keys.c, client_ask.c -> client_answer.c ->
 * client_step.c, client_table.c -> answer_word.c, reason.c. lookup_internal.h has the courier's half.
 *
 * Room in the ring: a slot causes at most LOOKUP, SETTLE, RENEW, ADMIT and FINISH, each with at most one END of a step;
 * a second RENEW only when the first was answered. The ring holds that for all slots and for one BROADCAST of each
 * kind, so no push can fail, and finish and admit need no error path.
 */

#define SCOUT__NO_SLOT UINT32_MAX
#define SCOUT__CACHE_LINE 64

enum scout__word_op {
	SCOUT__WORD_LOOKUP = 1,
	SCOUT__WORD_ADMIT,
	SCOUT__WORD_FINISH,
	SCOUT__WORD_BROADCAST, /* the "slot" is what: enum scout__broadcast_what */
	SCOUT__WORD_STEP_END,
	SCOUT__WORD_RENEW,
	SCOUT__WORD_SETTLE
};
/* A word of the ring: operation, whether it is part of a step (then nothing is sent before STEP_END), slot. */
#define SCOUT__WORD_OP(word) ((word)&15u)
#define SCOUT__WORD_HELD (1u << 4)
#define SCOUT__WORD(op, slot) ((uint64_t)(op) | (uint64_t)(slot) << 8)
#define SCOUT__WORD_SLOT(word) ((uint32_t)((word) >> 8))
#define SCOUT__WORDS_PER_SLOT 10u
/* One word, so that it is read whole: which endpoint, and why. */
#define SCOUT__DOWN(endpoint, error) ((uint32_t)((endpoint) + 1) | (uint32_t) - (error) << 16)
#define SCOUT__DOWN_ENDPOINT(down) ((int)((down)&0xffff) - 1)
#define SCOUT__DOWN_ERROR(down) (-(int)((down) >> 16))
#define SCOUT__TICKET_BATCH 256u

enum scout__answer {
	SCOUT__PENDING = 0,
	SCOUT__ANSWERED = 1,
	SCOUT__RENEWED = 2 /* and slot->newer says what was found when it was asked anew */
};

/* What the courier does with one slot on one link. */
enum scout__lookup_lane_state {
	SCOUT__LANE_NONE = 0, /* the server knows nothing of it */
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

/*
 * The order of the fields follows from which thread reads and writes them: a request that waits is asked for in every
 * step, and what that touches - `hot`, and the id behind it - must not lie in a cache line that the courier writes
 * meanwhile.
 */
struct scout__lookup_slot {
	/* hot: one cache line; caller, but for `answer` */
	uint64_t id_hash;
	/* courier writes (release), caller reads (acquire); also a futex */
	atomic_uint answer;
	uint32_t next_in_bucket; /* slot plus 1; 0: the last one */
	uint32_t next_asked;     /* the slot that the caller asked for after this one, last time; a guess */
	uint32_t skip;           /* all lengths of a slot are in hashes from the start of the prompt */
	uint32_t n;              /* the hashes reach so far */
	uint8_t id_len;          /* 0: not in the table */
	uint8_t tenant_len;
	bool submitted; /* the courier knows it */
	bool admitted : 1;
	bool unasked : 1; /* a lookup ahead that no step has asked for yet */
	bool is_keys : 1; /* a question for keys: n of them, and no lengths */
	uint8_t last_hash[SCOUT_MAX_HASH];
	char id[SCOUT_MAX_NAME + 1]; /* stays when the slot leaves the table: the courier may name it in its log */
	char tenant[SCOUT_MAX_NAME + 1];

	/* caller; const for the courier between the LOOKUP word and the return through `freed` */
	uint32_t next_free;
	uint32_t first;      /* the hashes begin behind so many */
	uint32_t at_most;    /* no longer one is asked for: n, or less; see lengths_allowed() in client_ask.c */
	uint32_t expect;     /* length that the server waits for when parts of it are late */
	uint8_t want;        /* how many lengths the caller wants to hear of, 1 at least */
	uint8_t n_parts;     /* a question for keys: groups that it names; else 0 */
	uint32_t timeout_ms; /* what deadline_us was made from */
	/* caller writes: it sleeps on `answer` */
	atomic_uint sleeping;
	uint64_t prompt_tokens;
	uint64_t deadline_us;
	uint64_t ticket; /* the courier's with the RENEW word of an answer without a session */
	uint64_t arena_pos;
	uint64_t keys_digest; /* caller: of all keys */
	/* caller, before the ADMIT word */
	uint32_t admit_from, admit_to;
	/* caller, before the FINISH word; read meanwhile where the courier ends a lookup by itself */
	atomic_uchar finish_hint; /* enum scout_hint */
	/* caller, see client_step.c; in the list of its step if that number is the client's */
	uint32_t step_no, step_prev, step_next;
	/* caller, see client_answer.c; before the LOOKUP word, and before the SETTLE word */
	bool ahead; /* and the answer was not read yet */
	uint32_t settle_from, settle_to, settle_l2;
	bool settle_keeps; /* nothing is given back yet */
	/* caller, see client_answer.c */
	bool renewing;         /* asked anew, and no news yet */
	uint64_t renewed_us;   /* when that ended last; 0: never */
	uint64_t renew_ticket; /* before the RENEW word: of a new session; 0: in that of the answer */

	/* courier until ANSWERED, then the caller's */
	_Alignas(SCOUT__CACHE_LINE) struct scout_hit hit;
	uint64_t landed_us; /* when it was published */
	uint32_t epochs;    /* of the client, likewise */
	uint64_t landed_ns; /* the same, if the client stamps answers */
	/* courier from the RENEW word until RENEWED, then the caller's */
	struct scout_hit newer; /* reason NONE: no news */
	uint32_t newer_epochs;
	/* courier until the answer, of a lookup ahead: then the caller's until the SETTLE word */
	uint8_t *present; /* by group a bit for each object, then one for each that is in L2; NULL: no memory. Of a
			     question for keys the maps of lookup_answer.c */
	uint32_t known;   /* length that the bits are about */
	bool known_limited;
	/* The writer of the answer: restorable lengths below it, want - 1 at most, the longest first; NULL: none. Where
	   all policies are `all` they follow from the longest. There is room for twice as many: those of `newer` are
	   behind the others. */
	uint32_t *lengths;
	uint32_t n_lengths;
	uint32_t n_newer;

	/* courier */
	bool ended;    /* answered in some way */
	bool finished; /* FINISH word came */
	bool admit_came;
	bool was_renewed;       /* servers may promise more than they have told */
	bool again;             /* a lookup in place of an answer without a session: its answer goes to `newer` */
	uint16_t renew_left;    /* lanes that have not answered a renewal; 0: none is under way */
	uint32_t least;         /* chunks that all servers promise */
	uint32_t base, base_l2; /* of a lookup ahead that was settled: the first of them, and those in L2 */
	bool in_todo;
	bool in_deadlines;
	uint16_t unanswered;                                   /* lanes */
	uint16_t unsent;                                       /* lanes that need the arena's bytes */
	uint32_t todo_prev, todo_next;                         /* in whichever list it is */
	uint32_t deadline_prev, deadline_next, deadline_child; /* lookup_deadlines.c */
	struct scout__lookup_lane *lanes;                      /* n_links */
};
_Static_assert(offsetof(struct scout__lookup_slot, id) == SCOUT__CACHE_LINE, "what is hot fills one cache line");
_Static_assert(SCOUT_MAX_NAME <= UINT8_MAX, "lengths of ids and tenants are bytes");

/* In the arena, the keys of one group of a question, groups ascending; the hashes of all follow, group by group. */
struct scout__keys_part {
	uint32_t group, n;
};

/* Slots, through their todo_prev and todo_next. */
struct scout__lookup_list {
	uint32_t head, tail; /* SCOUT__NO_SLOT: empty */
};

/* Tickets to give back once a server is there again (same epoch). Courier. */
struct scout__give_back {
	uint64_t *tickets; /* ring of cap */
	uint32_t cap, first, n;
	uint32_t sent;      /* the first of them are on their way */
	uint32_t in_flight; /* operations; more than `sent` when a full ring has dropped some */
};

/* What goes to every server and ends everything, see client_life.c. */
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
	/* courier */
	uint64_t latest;
	struct scout__broadcast_link *links; /* n_links */
};

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
	uint32_t stride;     /* in hashes: where objects of all such groups end together */
	bool stamps_answers; /* set before the first lookup; for the latency tool */

	/* caller */
	struct scout__lookup_slot *slots;
	struct scout__lookup_lane *lanes; /* n_slots * n_links; courier's content */
	uint32_t *buckets;                /* each a slot plus 1; 0: empty */
	uint32_t n_buckets;               /* in use: about as many as there are live requests */
	uint32_t bucket_mask;             /* the least 2^k - 1 that is not below n_buckets - 1 */
	uint32_t last_asked;              /* slot, in the table or not */
	uint32_t free_head;               /* of the slots that were used before */
	uint32_t n_fresh;                 /* slots from this one on were never used */
	uint32_t n_live;
	bool in_step;
	bool step_dirty;             /* a word was pushed in this step */
	uint32_t step_no, step_head; /* see client_step.c */
	uint32_t step_left_us;       /* of step_wait_us, in this step */
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
	atomic_uint epochs;       /* courier writes: counts server starts seen. What was answered before is over */
	int event_fd;             /* scout_client_fd(); made at start */
	atomic_uint event_armed;
	pthread_mutex_t ready_mu;  /* wait_ready only */
	pthread_cond_t ready_cond; /* G:ready_mu: the four below */
	uint32_t ready_up;
	int ready_error;
	char ready_text[512];

	/* courier; on lines of its own, for it writes them all the time */
	/*
	 * A slot with something unsent is in one of these: not looked at yet, and what could not be sent when it was.
	 */
	_Alignas(SCOUT__CACHE_LINE) struct scout__lookup_list todo;
	struct scout__lookup_list blocked;
	bool may_unblock; /* something has changed since: a credit, a connection, a reset */
	uint32_t deadline_head, deadline_tail, deadline_root; /* lookup_deadlines.c */
	struct scout__log_limit timeout_limit;
	uint32_t n_seen;      /* slots from this one on never came in a word: what walks over all slots ends here */
	uint32_t n_renewals;  /* slots whose renew_left is not 0 */
	uint32_t n_finishing; /* slots that are finished and not given back to the caller */
	bool held;            /* inside a step: nothing is sent */
	bool closing;
	struct scout__give_back *give_back;                    /* n_links */
	struct scout__broadcast broadcasts[SCOUT__BROADCASTS]; /* shared: `number` and `queued` */
	struct {
		atomic_uint_fast64_t answers, dropped, hits, timeouts, unreachable, refused, late, hit_tokens, hit_keys;
	} counts;
};

/* ---- client_table.c: caller ---- */
int scout__table_init(struct scout_client *client);
void scout__table_fini(struct scout_client *client);
/* Whether the id is legal; its length. */
bool scout__id_ok(const char *id, size_t *ret_len);
uint64_t scout__id_hash(const char *id, size_t len);
uint32_t scout__table_find(const struct scout_client *client, const char *id, size_t len, uint64_t hash);
/*
 * A live slot; SCOUT__NO_SLOT: none. To forget all: call it with the same @bucket, UINT32_MAX at first, and forget what
 * it returns, until there is none.
 */
uint32_t scout__table_any(const struct scout_client *client, uint32_t *bucket);
/* The caller has just asked for this one. */
void scout__table_asked(struct scout_client *client, uint32_t slot);
/* A slot for a new request id, in the table; SCOUT__NO_SLOT when there is none. */
uint32_t scout__table_add(struct scout_client *client, const char *id, size_t len, uint64_t hash);
/* Forget the id. The slot stays taken. */
void scout__table_forget(struct scout_client *client, uint32_t slot);
/* The slot is free again. */
void scout__table_release(struct scout_client *client, uint32_t slot);
/* From now on note when answers are published. Before the first lookup only. */
void scout__client_stamp_answers(struct scout_client *client);
/* When the answer to @id was published, on the clock of clock.h; 0 while there is none, or without stamps. */
uint64_t scout__client_landed_ns(const struct scout_client *client, const char *id);

/* ---- client_step.c: caller ---- */

/* The slot was submitted by an ask, or is a lookup ahead that is asked for the first time and pending. */
void scout__step_add(struct scout_client *client, uint32_t slot);
/* It has landed, or is over. */
void scout__step_remove(struct scout_client *client, uint32_t slot);
/* One word to the courier; outside of a step it is woken. There is always room, see above. */
void scout__client_push(struct scout_client *client, uint64_t word);
/* Inside a step: what was pushed is sent now all the same, because the caller is about to wait. */
void scout__client_push_on(struct scout_client *client);

/* A random ticket; 0: no entropy yet, at boot. */
uint64_t scout__client_ticket(struct scout_client *client);

/* ---- client_answer.c: caller ---- */

/* Of what length the answer of a slot is. */
uint32_t scout__slot_hit(const struct scout_client *client, const struct scout__lookup_slot *slot);

/* Where the bits of group @g lie in slot->present, and how many bytes one map of it has; the other one follows. */
size_t scout__present_at(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t g,
			 size_t *ret_bytes);

/* The answer to a lookup ahead is asked for the first time. */
void scout__request_settle(struct scout_client *client, uint32_t slot, uint64_t computed_tokens);

/* An answered, unadmitted slot is asked for: take over what is newer. Whether its answer is old, and is to be asked anew now. */
bool scout__renew_look(struct scout_client *client, uint32_t slot);
/* It is, by @q. */
void scout__renew_ask(struct scout_client *client, uint32_t slot, const struct scout_query *q);
/* The slot is admitted or forgotten: a renewal of it has no reader any more. */
void scout__renew_forget(struct scout_client *client, struct scout__lookup_slot *slot);

/* ---- client_ask.c: caller ---- */

/* scout_try_lookup() and scout_lookup_ahead() with structures of this version; pointers may be NULL. */
int scout__client_ask(struct scout_client *client, const struct scout_query *q, struct scout_hit *ret_hit);
int scout__client_ask_ahead(struct scout_client *client, const struct scout_query *q);
/* scout_poll_lookup() likewise. */
int scout__client_poll(struct scout_client *client, const char *id, uint64_t computed_tokens,
		       struct scout_hit *ret_hit);

/* What a new question of any kind begins with. */
void scout__slot_begin(struct scout__lookup_slot *slot);
/* A server is known to be gone, as client->down says: the answer of a new slot. */
void scout__answer_unreachable(struct scout_client *client, struct scout__lookup_slot *slot, unsigned down);

/*
 * Around every call that touches the caller's fields. A build with SCOUT_DEBUG aborts when two threads are in one
 * client at once.
 */
static inline void
scout__client_enter(struct scout_client *client)
{
#ifdef SCOUT_DEBUG
	SCOUT_ASSERT(atomic_exchange(&client->busy_check, 1) == 0);
#else
	(void)client;
#endif
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

/* The request is over; a later one of its id finds nothing of it. */
void scout__client_forget(struct scout_client *client, uint32_t slot);
/* The slot of a request that has its answer and was not admitted. 0, SCOUT_ERR_REQUEST_ID, SCOUT_ERR_STATE. */
int scout__client_answered(const struct scout_client *client, const char *id, uint32_t *ret_slot);

/* ---- reason.c: any thread ---- */

/* enum scout_reason of an answer that failed with SCOUT_ERR_*. */
int scout__reason_of(int error);

/* ---- lookup.c: courier ---- */
extern const struct scout__courier_ops scout__lookup_ops;

#endif
