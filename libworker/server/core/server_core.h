/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_SERVER_H
#define SCOUT_SERVER_SERVER_H

#include <pthread.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <zmq.h>

#include <kvscout/server.h>

#include "chunk_index.h"
#include "channel.h"
#include "clock.h"
#include "latency.h"
#include "log.h"
#include "map.h"
#include "msg.h"
#include "thread.h"

/*
 * The cache server's private structures. One loop thread owns all of it, so nothing here has a lock; start and stop
 * touch it only before the thread exists and after it is joined. Fields are the loop's unless they say otherwise.
 *
 * Who owns whom:
 *
 *   server ─ namespaces ─ chunk index (l1), spaces, layouts
 *          ─ peers ─ sessions (what lookups promised), holds (what retrieves read and stores write), pending operations (read, and
 *                    are not answered yet), lease (unix socket), pidfd
 *
 * Long work is done in slices by run items. A run item is in the run queue or it is not; its step does at most
 * SCOUT__SLICE_CHUNKS chunks and queues itself again while anything is left. Pending operations, ended sessions, ended
 * holds, leaving peers and the sweep of a namespace are run items. What is ended is unreachable at once (no map names
 * it); only the giving back takes turns.
 */

#define SCOUT__SLICE_CHUNKS 512u   /* chunks that one step may touch */
#define SCOUT__INLINE_CHUNKS 4096u /* chunks that the operations of one turn may touch before they have to queue */
#define SCOUT__STEP_US 200u        /* no step and no handler is to take longer */
#define SCOUT__TURN_US 500u        /* after this long, answers go out before anything else is read or run */
#define SCOUT__MAX_SPACES 65536u   /* tenants of one namespace */
#define SCOUT__MAX_HOLDS 262144u   /* retrieves and stores that are not done, of all workers */
#define SCOUT__MAX_SESSION_BYTES (UINT64_C(1) << 30)     /* of all sessions together: handles and bitmaps */
#define SCOUT__MAX_GRANT_BYTES (UINT64_C(1) << 28)       /* of all grant lists that are being built */
#define SCOUT__UNSENT_MAX ((size_t)SCOUT_MAX_UNREAD)     /* bytes of replies that one peer has not taken */
#define SCOUT__UNSENT_ALL ((size_t)4 * SCOUT_MAX_UNREAD) /* and of all of them */
#define SCOUT__LEASE_SUFFIX ".lease"
#define SCOUT__LOCK_SUFFIX ".lock"
#define SCOUT__PRIVATE_PREFIX "kvscout-"
#define SCOUT__PRIVATE_SOCKET "kvscout.sock"
#define SCOUT__IPC_PATH_MAX 107 /* sun_path without its terminator */
#define SCOUT__LOG_INTERVAL_US 1000000u
#define SCOUT__WARN_INTERVAL_US 10000000u /* of what lasts until an operator mends it */
#define SCOUT__LOG_BURST 31u      /* lines beyond the first for each SCOUT__LOG_INTERVAL_US, where peers come and go */
#define SCOUT__OLD_GENERATIONS 7u /* names of clears that are remembered besides the last */
#define SCOUT__WAITER_BITS 7u     /* buckets of pending operations that wait for a chunk, for each namespace */

struct scout_server;
struct scout__peer;
struct scout__lease;
struct scout__pending_op;
struct scout__hold;
struct scout__session;
struct scout__fetch;
struct scout__records;
struct scout__ask;
struct scout__expected;
struct scout__l2_fingerprint;
struct scout__stats;
struct scout__unsent;
struct scout__stranger;
struct scout__metrics;

/* Something that goes on in steps. */
struct scout__run_item {
	struct scout__run_item *prev, *next;
	void (*step)(struct scout_server *s, struct scout__run_item *item);
	bool queued;
};

/* Intrusive circular list. */
struct scout__list {
	struct scout__list *prev, *next;
};

#define SCOUT__OWNER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void
scout__list_init(struct scout__list *list)
{
	list->prev = list;
	list->next = list;
}

static inline bool
scout__list_empty(const struct scout__list *list)
{
	return list->next == list;
}

static inline void
scout__list_add(struct scout__list *list, struct scout__list *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

/* Take the first one out; NULL if there is none. */
static inline struct scout__list *
scout__list_pop(struct scout__list *list)
{
	struct scout__list *node = list->next;

	if (node == list)
		return NULL;
	list->next = node->next;
	list->next->prev = list;
	scout__list_init(node);
	return node;
}

/* Also for a node that is in no list, if it was initialised as one. */
static inline void
scout__list_del(struct scout__list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	scout__list_init(node);
}

/* A received message. Pending operations keep views into it, so it lives as long as the last of them. */
struct scout__packet {
	zmq_msg_t msg;
	uint32_t refs;
};

/* The frame in hand: one with very many operations is executed over several turns. */
struct scout__inbox {
	struct scout__packet *packet; /* NULL: none */
	struct scout__frame frame;
	struct scout__reader ops;
	uint64_t read_us;
	uint64_t waited_us; /* before it was read */
	bool has_status;    /* a STATUS of it was answered: the next one is refused */
};

/* If a reply cannot be sent, what it granted is taken back: the id of a session, store or retrieve. */
struct scout__undo {
	uint8_t opcode;
	uint64_t id;
	uint64_t arrived_us; /* of the operation; LOOKUP only */
};

/* Where replies go, and those of this turn. */
struct scout__dest {
	uint8_t identity[255];
	uint8_t identity_len;
	bool dirty; /* in server.dirty */
	struct scout__list dirty_node;
	struct scout__writer w; /* frame in the making; len 0 when empty */
	uint32_t n_ops;
	struct scout__undo *undo;
	uint32_t n_undo, cap_undo;
	/* Of the ROUTER's connection, see unsent.c. */
	struct scout__unsent *unsent; /* NULL: nothing was sent yet */
	int fd;                       /* -1: unknown */
	uint64_t fd_inode;            /* of the socket that fd was when its first frame came */
	bool is_dropped;              /* it did not read, and its connection ends */
};

/* Replies on their way through libzmq, see unsent.c. */
struct scout__unsent_table {
	struct scout__unsent *peers_all, *strangers_all;
	struct scout__stranger *strangers; /* n_places */
	uint32_t n_places, n_strangers, free_place, hand;
	struct scout__map by_key; /* of an identity */
};

enum scout__watch_kind {
	SCOUT__WATCH_STOP = 1,
	SCOUT__WATCH_TIMER,
	SCOUT__WATCH_POOL,
	SCOUT__WATCH_LISTENER,
	SCOUT__WATCH_LEASE,
	SCOUT__WATCH_PROCESS,
	SCOUT__WATCH_L2,
	SCOUT__WATCH_METRICS,
	SCOUT__WATCH_SHM
};

/* What the epoll descriptor names. */
struct scout__watch {
	enum scout__watch_kind kind;
	int fd;
	void *owner; /* lease or peer */
};

struct scout__layout {
	bool known;
	uint32_t block_tokens;
	uint16_t dtype;
	uint32_t n_planes;
	uint64_t *plane_bytes;
	uint64_t shard_bytes;
	uint16_t numa; /* node of the worker that registered first, plus 1; 0: any */
};

/* (tenant, group) of a namespace: the index knows only its number. */
struct scout__space {
	char *tenant;
	uint16_t tenant_len;
	uint16_t group;
	uint32_t id;
};

struct scout__ns {
	struct scout__run_item sweep; /* drops what an older weights version left */
	uint32_t sweep_next;
	char name[SCOUT_MAX_NAME + 1];
	uint16_t name_len;
	uint16_t hash_bytes;
	uint32_t chunk_tokens;
	uint16_t rank_first, rank_count, kv_ranks, readers;
	uint64_t weights;                       /* version; 0: no peer has given one */
	uint64_t generation;                    /* name of the last CLEAR; 0: none. See clear.c */
	uint64_t cleared;                       /* and its stamp; 0: none */
	uint64_t in_since;                      /* workers that joined earlier are out */
	uint64_t older[SCOUT__OLD_GENERATIONS]; /* names of the clears before, newest first */
	uint64_t weights_gen;                   /* counts RESETs and CLEARs: what belongs to an older one is over */
	uint16_t ended_by;                      /* which of both it was: SCOUT_WIRE_WEIGHTS or SCOUT_WIRE_CLEARED */
	struct scout__layout layouts[SCOUT_MAX_RANKS];
	struct scout__chunk_index *index; /* NULL until every rank of this server is registered */
	struct scout__space *spaces;
	uint32_t n_spaces, cap_spaces;
	struct scout__map space_map; /* hash of tenant and group -> index */
	uint32_t next_space;         /* never used twice, so an old number can never name new chunks */
	uint32_t space_floor;        /* entries of lower spaces are unreachable */
	uint32_t *space_at;          /* index of each space number that was given since space_first */
	uint32_t space_first, n_space_at, cap_space_at;
	struct scout__list pool_waiters; /* pending operations */
	struct scout__list
		chunk_waiters[1u << SCOUT__WAITER_BITS]; /* pending operations, by the hash that they wait for */
	/* Of L2, see fetch.h; NULL: without. */
	struct scout__expected **expected;          /* of each entry */
	struct scout__l2_fingerprint *fingerprints; /* of each rank of the chunk index */
	struct scout__records *records;             /* of the last CLEAR, see l2_records.c */
	struct scout__list record_waiters;          /* pending operations */
	uint32_t n_moving;                          /* shards that are loaded or written now: their slots are in use */
	struct scout__list sessions;
	uint32_t n_peers, n_sessions, n_holds;
	uint32_t n_leaving; /* peers that left and have something left to give back */
	uint64_t left_us;   /* when the last peer left */
	struct {
		uint64_t lookups;
		uint64_t asked_chunks, hit_chunks;
		uint64_t asked_tokens, hit_tokens;
	} count; /* of what was answered; what is skipped is not asked for */
};

enum scout__op_wait {
	SCOUT__OP_WAIT_RUN = 0,
	SCOUT__OP_WAIT_POOL,
	SCOUT__OP_WAIT_LEASE,
	SCOUT__OP_WAIT_ANSWER,
	SCOUT__OP_WAIT_LOADS /* LOOKUP: the walk is over, loads arrive */
};

/* An operation that is not answered yet. */
struct scout__pending_op {
	struct scout__run_item run;
	struct scout__list of_peer;
	struct scout__list waiting; /* in ns.pool_waiters, ns.chunk_waiters, peer.lease_waiters or fetch.ask_waiters */
	struct scout__peer *peer;
	struct scout__ns *ns;
	struct scout__packet *packet;
	uint8_t opcode;
	uint8_t state; /* enum scout__op_wait: what it waits for */
	uint64_t corr;
	uint64_t weights_gen; /* of the namespace when it came */
	uint64_t arrived_us;
	uint64_t deadline_us; /* UINT64_MAX: none */
	uint64_t wake_us;
	size_t heap_pos;                /* 0: no timer */
	struct scout__session *session; /* LOOKUP: its own. Never NULL while the pending operation lives */
	uint64_t ticket;
	uint64_t serial; /* of the session that ADMIT and RETRIEVE name */
	const uint8_t *hashes;
	struct scout__str tenant;
	uint16_t group;
	uint32_t n, next, skip, expect;
	uint32_t first; /* LOOKUP: chunk that the walk begins with, behind what is skipped or promised already */
	uint32_t space;
	uint32_t from, to;
	uint32_t limited;
	bool renews;         /* LOOKUP: of a session that was answered before */
	bool ahead;          /* LOOKUP: goes on behind what is not there */
	uint32_t first_hole; /* LOOKUP ahead: the first of these; UINT32_MAX: none yet */
	uint8_t *present; /* LOOKUP ahead: a bit for each chunk that is there, then one for each that is in no pool */
	struct scout__user user; /* STORE: its session */
	uint64_t poll_end_us;
	uint64_t poll_interval_us;
	uint64_t poll_next_us; /* L2 is asked again then */
	uint64_t wait_end_us;  /* RETRIEVE: loads are waited for until then */
	uint32_t n_rounds;     /* LOOKUP: questions to L2 */
	uint32_t l2;           /* LOOKUP: chunks of the hit that were not in the pool */
	uint32_t load_next; /* RETRIEVE: loads of the chunks before are under way. LOOKUP: chunks before have arrived */
	uint8_t *from_l2;   /* LOOKUP: a bit for each chunk, while loads come before the answer */
	struct scout__ask *ask;            /* LOOKUP */
	uint8_t wait_hash[SCOUT_MAX_HASH]; /* of the chunk that it waits for */
	struct scout__hold *hold;          /* STORE and RETRIEVE: what was granted so far */
	struct scout__writer reply;        /* STORE and RETRIEVE: a frame of its own */
	size_t reply_op;
};

/* What the server holds for one ticket. */
struct scout__session {
	struct scout__run_item run; /* giving back, after the end */
	struct scout__list of_peer;
	struct scout__list of_ns;
	struct scout__peer *peer; /* NULL once ended and the peer is gone */
	struct scout__ns *ns;
	uint64_t ticket;
	uint64_t serial;
	uint64_t weights_gen;
	uint32_t slot;
	bool ended;
	bool touch;                       /* ended by FINISH */
	struct scout__pending_op *lookup; /* while it is not answered */
	uint64_t finish_corr;             /* FINISH to be answered when all is given back; 0: none */
	uint32_t finish_connection;       /* of the peer, when it came */
	uint32_t n;                       /* as asked */
	uint32_t skip;
	uint32_t hit;                  /* so far, while the lookup is not answered */
	uint32_t l2;                   /* of the hit: chunks that were not in the pool when they were found */
	uint32_t n_holes;              /* kept chunks that were not there: a lookup ahead goes on behind them */
	uint32_t n_admits;             /* ADMITs that are not answered */
	uint32_t kept_from, kept_to;   /* chunks whose units are promised, but for those that a bitmap marks as used */
	struct scout__handle *handles; /* hit of them */
	uint32_t cap_handles;
	struct scout__handle *stored; /* in the order of the stores; top bit of entry: not stored by this session */
	uint32_t n_stored, cap_stored;
	uint64_t **used_rows; /* [rank * readers + reader] -> bits of chunks; NULL until a RETRIEVE */
	uint16_t *used_count; /* bits of each chunk in all rows */
	uint32_t n_used;      /* chunks that the bits and counts have room for */
};

#define SCOUT__STORED_PRESENT 0x80000000u

enum scout__hold_kind {
	SCOUT__HOLD_READ = 1,
	SCOUT__HOLD_WRITE
};

enum scout__hold_end {
	SCOUT__END_NONE = 0,
	SCOUT__END_RELEASE,    /* reading is over */
	SCOUT__END_COMMIT,     /* writing is over: the first n_commit are complete, the rest is given up */
	SCOUT__END_QUARANTINE, /* the writer died */
	SCOUT__END_EXPIRED     /* the quarantine is over */
};

/* What one RETRIEVE or STORE was granted. */
struct scout__hold {
	struct scout__run_item run; /* giving back, after the end */
	struct scout__list of_peer; /* later: server.quarantine */
	struct scout__peer *peer;   /* NULL when the peer is gone */
	struct scout__ns *ns;
	uint64_t id;   /* in server.by_hold: of (peer, corr) */
	uint64_t corr; /* of the operation that asked: what the worker calls it */
	uint64_t weights_gen;
	uint64_t due_us; /* quarantine */
	uint32_t slot;
	uint32_t rank; /* of the chunk index */
	uint8_t kind;
	uint8_t end;
	uint8_t done_opcode;
	bool told;          /* the worker was answered: it may be copying */
	bool spoiled;       /* it saw slots change under its copy */
	uint64_t done_corr; /* operation to be answered when all is given back; 0: none */
	uint32_t done_connection;
	uint32_t n_commit, n_readable;
	uint32_t next;
	uint32_t n;
	uint32_t entries[];
};

/* A peer's channel through shared memory, see shm.c. */
struct scout__shm {
	struct scout__watch watch; /* its bell; fd -1: there is none */
	struct scout__channel channel;
	struct scout__list node;      /* in server.shm_hot or .shm_warm; alone: asleep */
	struct scout__packet *packet; /* the frame that arrives; NULL: between two */
	size_t filled;                /* of it */
	bool is_used;                 /* a frame has come: answers go there */
	bool is_deaf;                 /* its peer does not read: it ends where channels are read */
	bool was_asked;               /* for one, since the last HELLO */
};

struct scout__peer {
	struct scout__dest dest;    /* its peer is found from it: scout__peer_who() */
	struct scout__run_item run; /* leaving */
	uint32_t slot;
	uint64_t identity_key;
	uint64_t token;
	uint16_t role;
	uint16_t reader;
	int32_t rank; /* of the chunk index; -1: not registered */
	struct scout__ns *ns;
	uint64_t weights; /* as it said; 0: follows */
	uint64_t joined;  /* a worker's, see clear.c */
	uint32_t heartbeat_ms;
	uint64_t seen_us;
	uint64_t sent_us;     /* by its clock: of the frame that it sent last */
	int64_t offset_us[2]; /* smallest (our clock - its clock): in this window and the one before */
	uint64_t window_us;   /* start of this window; 0: no frame yet */
	uint32_t connection;  /* counts HELLOs from a new identity: answers to an older one are dropped */
	uint32_t unanswered;
	uint32_t n_holds;
	uint32_t
		segments_sent; /* first segment id of the last extent that the lease connection has delivered; 0: none */
	bool leaving;
	bool died;
	struct scout__lease *lease;
	pid_t pid;                   /* 0: unknown */
	struct scout__watch process; /* pidfd, -1: none */
	struct scout__list pending_ops, sessions, holds, lease_waiters;
	struct scout__shm shm;
};

/* Tickets that a new weights version or a clear ended, see stale_tickets.c. */
struct scout__stale_tickets {
	struct scout__map map;
	uint64_t *tickets; /* ring, oldest at next once it is full; NULL: none yet */
	uint32_t n, cap, next;
};

struct scout__lease {
	struct scout__watch watch;
	struct scout__list node;  /* in server.leases or server.unbound */
	struct scout__peer *peer; /* NULL until its HELLO, and when the peer has left */
	bool is_bound;            /* it has said its HELLO */
	pid_t pid;
	uint64_t accepted_us;
};

struct scout__counters {
	uint64_t frames_received, frames_sent, frames_dropped, frames_bad;
	uint64_t shm_frames_received, shm_frames_sent; /* of these, through shared memory */
	uint64_t ops[SCOUT_OP_LAST + 1], ops_unknown, ops_expired, ops_refused;
	uint64_t refused[SCOUT_WIRE_LAST + 1]; /* the same as ops_refused, by status */
	uint64_t asked_chunks, hit_chunks, lookups_limited, lookups_renewed;
	uint64_t lookups_full, lookups_partial, lookups_none; /* answered: all, some, nothing of what was asked for */
	uint64_t replies_undone, out_of_memory;
	uint64_t mismatches;
	uint64_t clears;
	uint64_t conns_refused, curve_refused;
	uint64_t peers_joined, peers_left, peers_died, peers_forgotten, peers_dropped, leases_refused;
	uint64_t namespaces_reused;
	uint64_t turns;
	uint64_t steps;      /* of run items, frames, and looks at what L2 has done */
	uint64_t longest_us; /* of one of them */
	uint64_t slow_steps; /* that took longer than SCOUT__STEP_US */
	/* From when its frame was taken to when its answer was given to libzmq. */
	struct scout__latency lookup_time;
	/* How much longer a frame was on its way than the fastest of its peer. */
	struct scout__latency frame_wait;
};

/* The files beside an ipc endpoint; all strings are ours. Const after start. */
struct scout__paths {
	char *dir;    /* made by us, to be removed */
	char *socket; /* ipc path, else NULL */
	char *lease;
	char *lock;
	int lock_fd;
	uint32_t n_swept;      /* folders of dead servers that were removed */
	bool sockets_are_ours; /* nothing else is there under these names */
};

struct scout_server {
	struct scout_server_config cfg; /* const after start */
	struct scout__log log;          /* const after start */
	struct scout__log_gate log_gate;
	uint64_t epoch;    /* const after start */
	uint64_t seed;     /* const after start: of the hashes of what peers choose */
	uint64_t start_us; /* const after start */
	char *endpoint;    /* const after start */
	struct scout__paths paths;
	struct scout__inproc *inproc; /* NULL unless it listens there; then zctx is shared */
	void *zctx;
	void *router;
	void *monitor;                /* of the router: connections that come and go */
	uint32_t n_conns;             /* that it has */
	uint32_t conns_limit;         /* const after start */
	void *zap;                    /* who may connect is asked here; NULL: everybody may */
	uint8_t (*curve_clients)[32]; /* their public keys; const after start */
	uint32_t n_curve_clients;     /* const after start */
	int epoll_fd;
	struct scout__watch stop, timer, pool_ready, listener;
	bool listener_paused; /* no descriptors left: try again later */
	uint64_t timer_us;    /* what the timer is set to; UINT64_MAX: off */
	pthread_t thread;
	struct scout__l1 l1;
	bool l1_ready;
	struct scout__fetch *fetch; /* NULL: there is none */
	bool hangs;                 /* a thread of it did not end and may use all that it knows: this structure stays */
	struct scout_server *next_hanging;

	uint64_t now_us;
	bool draining;
	uint64_t drain_end_us;
	uint32_t inline_left;             /* chunks, this turn */
	struct scout__run_item queue;     /* head of the run queue */
	struct scout__run_item turn_mark; /* no run item: behind the last one of this turn, while it runs */
	struct scout__pending_op **heap;  /* [1 .. heap_n], by wake_us */
	size_t heap_n, heap_cap;
	uint32_t n_pending_ops;
	struct scout__list dirty;    /* destinations with a frame to send */
	struct scout__dest stranger; /* of the frame in hand, when its sender has not said HELLO */
	struct scout__inbox inbox;
	struct scout__unsent_table unsent;
	bool sender_is_local;                 /* the sender of the frame in hand is on this machine */
	struct scout__list shm_hot, shm_warm; /* channels, see shm.c */
	uint32_t n_channels;
	size_t shm_backlog; /* bytes that wait in all of them */
	bool shm_first;     /* this turn reads channels before the socket */
	bool look;          /* a socket was called, or may have something: only zmq_poll() can tell */

	struct scout__ns **ns; /* max_namespaces places */
	uint32_t n_ns;
	struct scout__peer **peers; /* max_peers slots */
	uint32_t *free_peers;
	uint32_t n_free_peers;
	uint64_t next_tick_us;
	uint64_t last_tick_us;
	uint32_t tick_peer; /* slot of the first that the next tick looks at */
	struct scout__map by_identity, by_token;
	struct scout__session **sessions; /* max_sessions slots */
	uint32_t *free_sessions;
	uint32_t n_free_sessions;
	uint32_t n_releasing; /* sessions that ended and have something left to give back */
	uint64_t next_serial;
	uint64_t last_stamp; /* see clear.c */
	uint64_t session_bytes;
	uint64_t grant_bytes;
	struct scout__map by_ticket;
	struct scout__stale_tickets stale_tickets;
	struct scout__hold **holds;
	uint32_t *free_holds;
	uint32_t n_free_holds;
	struct scout__map by_hold;
	struct scout__list quarantine; /* holds, by due_us */
	uint32_t n_quarantine;
	struct scout__list leases;  /* connections that have said who they are */
	struct scout__list unbound; /* those that have not, oldest first */
	uint32_t n_leases;          /* both */
	uint32_t n_unbound;
	struct scout__list withdrawn; /* extents that workers have yet to unmap, see withdraw.c */
	uint32_t n_withdrawn;
	struct scout__run_item share; /* takes extents from one namespace for another */
	struct scout__list grave;     /* leases that ended: freed after the batch of events that may still name them */
	struct scout__log_limit limit_refused, limit_full, limit_mismatch, limit_bad, limit_memory, limit_undo,
		limit_conns, limit_curve, limit_lease, limit_shm, limit_bug, limit_names;
	struct scout__log_limit limit_join, limit_leave, limit_died, limit_ns, limit_clear; /* with SCOUT__LOG_BURST */
	struct scout__counters count;
	struct scout__stats *stats;     /* room for STATUS */
	struct scout__metrics *metrics; /* const after start; NULL: there is no HTTP endpoint */
};

/* A step that began at @before_us is over: look at the clock, and remember how long it took. */
static inline void
scout__note_step(struct scout_server *s, uint64_t before_us)
{
	uint64_t took_us;

	s->now_us = scout__now_us();
	took_us = s->now_us - before_us;
	s->count.steps++;
	if (took_us > s->count.longest_us)
		s->count.longest_us = took_us;
	s->count.slow_steps += took_us > SCOUT__STEP_US;
}

#endif
