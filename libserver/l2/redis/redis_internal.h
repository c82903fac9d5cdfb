/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* puts the widest instructions behind the names of xxhash.h */
#endif

#include "clock.h"
#include "log.h"
#include "object.h"
#include "l2_queue.h"
#include "redis_dns.h"
#include "redis_resp.h"
#include "thread.h"
#include "url.h"

/*
 * The inside of the Redis adapter. See redis.c for the design.
 *
 *   job       one operation of L2; has one command, EXISTS one for each key
 *   command   one Redis command, waiting for its turn (queue) or for its reply (sent) on one connection
 *   link      one connection to one node; each node has one for each lane
 *   lane      what kind of work a link does: small questions never wait for megabytes
 *   node      one server
 */

extern struct scout__role scout__redis_role;
#define SCOUT_ON_REDIS SCOUT_TSA(requires_capability(scout__redis_role))

static inline void
scout__enter_redis(void) SCOUT_TSA(assert_capability(scout__redis_role))
{
}

#define SCOUT__REDIS_PORT 6379u
#define SCOUT__REDIS_MAX_COMMANDS 16384u      /* commands of EXISTS at once; other keys wait in their operation */
#define SCOUT__REDIS_WINDOW_BYTES (16u << 20) /* bytes of values asked for, or sent, and not answered; on each link */
#define SCOUT__REDIS_BUFFER_BYTES (32u << 10) /* of each link, in and out */
#define SCOUT__REDIS_REPLY_BYTES (4u << 20)   /* of one reply that is no value: a slot map of 16384 ranges */
#define SCOUT__REDIS_MAX_TRIES 6u             /* redirects and TRYAGAINs of one command */
#define SCOUT__REDIS_MAX_LOSSES 2u            /* connections that one command may lose */
#define SCOUT__REDIS_MAX_NODES 1024u
#define SCOUT__REDIS_SLICE_BYTES (2u << 20)     /* hashed, or read from one link, before others get their turn */
#define SCOUT__REDIS_PROGRESS_BYTES (64u << 10) /* of a value, within l2_timeout_ms: less is no progress */
#define SCOUT__REDIS_TRYAGAIN_US 20000u
#define SCOUT__REDIS_REFRESH_US 100000u /* at most one question for the slot map in this time */
#define SCOUT__REDIS_BACKOFF_MS_MIN 20u
#define SCOUT__REDIS_BACKOFF_MS_MAX 1000u

struct redis;
struct redis_node;
struct redisReader;
struct redisReply;

enum redis_lane {
	REDIS_ASK = 0, /* EXISTS, CLUSTER SLOTS */
	REDIS_LOAD,    /* GET, UNLINK */
	REDIS_STORE,   /* SET */
	REDIS_LANES
};

enum redis_kind {
	REDIS_EXISTS = 1,
	REDIS_GET,
	REDIS_SET,
	REDIS_UNLINK,
	REDIS_RECORD_GET,
	REDIS_RECORD_SET,
	/* A connection's own; no job. */
	REDIS_AUTH,
	REDIS_ROLE,
	REDIS_PING,
	REDIS_NAME,
	REDIS_ASKING,
	REDIS_SLOTS
};

struct redis_job {
	struct scout__l2_op *op; /* NULL: free */
	struct redis_job *next;  /* in the free list, or the one list that it waits in */
	struct scout__list live; /* all jobs that have an op */
	uint32_t issued;         /* commands made */
	uint32_t left;           /* keys (or the one command) not yet answered */
	uint32_t answered;       /* keys that a server has answered */
	uint8_t result;          /* worst of its parts: enum scout__l2_result */
	bool expired;            /* no progress, or being cancelled: about to be finished */
	uint64_t moved_us;       /* when it made progress last: see redis_job.c; 0: it waits */
	int32_t detail;
	uint16_t slot;
	uint64_t hashed; /* STORE: bytes */
	char key[SCOUT__REDIS_KEY_BYTES + 1];
	uint8_t header[SCOUT__L2_HEADER_BYTES]; /* STORE */
};

struct redis_command {
	struct redis_command *next;
	struct redis_job *job; /* NULL: the operation has ended */
	uint64_t since_us;     /* when it was sent, or when it may be tried again */
	uint64_t bytes;        /* bytes that count in the window */
	uint32_t index;        /* EXISTS: which key */
	uint16_t slot;
	uint8_t kind; /* enum redis_kind */
	uint8_t tries, losses;
	bool asking; /* to be sent after ASKING */
};

struct redis_jobs {
	struct redis_job *head, **tail;
};

struct redis_queue {
	struct redis_command *head, **tail;
};

enum redis_link_state {
	REDIS_IDLE = 0, /* no socket */
	REDIS_RESOLVING,
	REDIS_CONNECTING,
	REDIS_HANDSHAKE, /* of TLS */
	REDIS_HELLO,     /* connected; AUTH and PING are on their way */
	REDIS_READY
};

/* A value that is being received, straight into its slot. */
struct redis_value {
	bool active;
	bool dropped;   /* bytes are read and thrown away, until the header is found right */
	uint8_t result; /* so far */
	uint64_t total; /* bytes of the bulk string: header and payload */
	uint64_t at;    /* received, with the line end after it */
	uint8_t *data;  /* where the payload goes; NULL: nowhere */
	struct scout__l2_digest want;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
};

struct redis_link {
	struct redis_node *node; /* const */
	uint8_t lane;            /* const; enum redis_lane */
	uint8_t state;           /* enum redis_link_state */
	bool dirty;              /* in the adapter's list of links to look at */
	uint32_t events;         /* events that epoll watches */
	int fd;                  /* -1: none */
	struct ssl_st *ssl;      /* NULL: no TLS, or none yet */
	uint32_t address;        /* which of the node's addresses is tried */
	struct redis_link *next_dirty;
	bool was_ready; /* once at least */
	struct redis_queue queue, sent;
	uint64_t sent_bytes;
	uint64_t progress_us; /* when the server last showed life, or began to owe a reply */
	uint64_t trickle;     /* bytes of a value that moved since then */
	uint64_t ready_us;
	/* Out: buffer[at..split), then the payload, then buffer[split..len). */
	uint8_t *out;
	size_t out_at, out_split, out_len;
	uint8_t *payload;
	uint64_t payload_left;
	struct redis_job *writing; /* the job whose payload it is */
	/* In. */
	uint8_t *in;
	size_t in_at, in_len;
	struct redisReader *reader;
	size_t fed; /* bytes of a reply that is not whole */
	struct redis_value value;
	XXH3_state_t *sum;
};

enum redis_why { /* why a node cannot be used; each reason is logged once */
	REDIS_FINE = 0,
	REDIS_UNREACHABLE,
	REDIS_SILENT,
	REDIS_REFUSED, /* AUTH */
	REDIS_REPLICA,
	REDIS_UNTRUSTED, /* its certificate, or it found ours wrong */
	REDIS_BROKEN,    /* it spoke nonsense, or is not ready */
};

/* What went wrong with a connection. */
struct redis_trouble {
	enum redis_why why; /* FINE: it is closed on purpose */
	int error;          /* errno, for the log */
	const char *text;   /* NULL: nothing did */
};

struct redis_node {
	char *host;
	uint16_t port;
	bool seed;   /* named in the URL */
	bool serves; /* has slots, or is the only one */
	bool down;   /* failed: not used until a connection was made again */
	bool resolving;
	uint8_t why; /* enum redis_why; the last that was logged */
	uint32_t id;
	uint32_t backoff_ms;
	uint64_t retry_us; /* while down */
	uint64_t failed_us, used_us;
	struct scout__redis_addresses addresses;
	struct redis_link links[REDIS_LANES];
};

/* The options of rediss://; NULL: not given. */
struct redis_tls_options {
	const char *ca_file, *cert_file, *key_file;
};

/*
 * TLS between a link and its socket (redis_tls.c). A build without libssl has none, and opens no rediss://. Errors are errno
 * values: EAGAIN is to be tried again when the socket is ready, EPROTO has its sentence in r->tls_text.
 */
struct redis_tls_calls {
	/* Reads the files. Returns 0, SCOUT_ERR_CONFIG_RANGE, _PERMISSION or _NOMEM. */
	int (*open)(const struct redis_tls_options *options, void **ret_ctx, char *err, size_t err_len);
	void (*close)(void *ctx);
	/* On the link's connected socket. */
	int (*begin)(struct redis *r, struct redis_link *link);
	int (*handshake)(struct redis *r, struct redis_link *link, bool *ret_wants_write);
	/* As writev() and readv(). */
	ssize_t (*write)(struct redis *r, struct redis_link *link, const struct iovec *iov, size_t n);
	ssize_t (*read)(struct redis *r, struct redis_link *link, const struct iovec *iov, size_t n);
	/* More can be read, and epoll does not know. */
	bool (*has_pending)(struct redis_link *link);
	void (*end)(struct redis_link *link);
};
extern const struct redis_tls_calls scout__redis_tls;

enum redis_mode {
	REDIS_UNKNOWN = 0, /* no server has said yet */
	REDIS_SINGLE,
	REDIS_CLUSTER
};

/* Read by any thread. */
struct redis_counters {
	atomic_uint_fast64_t reconnects, moved, ask, tryagain, auth_refused, stalled, refreshes, dropped_values;
	atomic_bool ready;
};

struct redis {
	/* Const after start. */
	struct scout__l2_port *port;
	const struct scout__log *log;
	char *user, *shown;
	char *password_file; /* NULL: none */
	uint32_t max_ops;
	uint64_t timeout_us, write_timeout_us;
	uint64_t ttl_ms; /* 0: none */
	bool may_be_cluster, must_be_cluster, may_be_replica;
	const struct redis_tls_calls *tls; /* NULL: redis:// */
	void *tls_ctx;
	char *tls_name; /* that all nodes' certificates must have; NULL: each its own */
	pthread_t thread;
	/* Between the threads. */
	struct scout__l2_queue queue; /* loop pushes */
	bool stopped;                 /* loop */
	struct redis_counters counters;
	/* The adapter's thread. */
	char *password;   /* NULL: none */
	bool was_refused; /* AUTH: the file of the password is to be read again */
	int epoll_fd;
	uint8_t mode;     /* enum redis_mode */
	bool unreachable; /* the last round of questions for the slot map failed everywhere */
	struct scout__redis_dns *dns;
	struct redis_node *nodes[SCOUT__REDIS_MAX_NODES];
	uint32_t n_nodes;
	uint32_t n_seeds; /* the first nodes, which the URL names */
	uint32_t next_id;
	bool urgent;     /* come back before sleeping */
	uint16_t *slots; /* index into nodes, UINT16_MAX: none */
	struct {
		bool wanted;
		struct redis_node *node; /* asked now */
		uint32_t next, tried;
		uint64_t not_before_us;
		uint32_t backoff_ms;
	} refresh;
	struct redis_job *jobs; /* max_ops */
	struct redis_job *free_jobs;
	struct scout__list live;                /* newest first */
	struct redis_jobs waiting[REDIS_LANES]; /* for commands, or for a server to ask */
	struct redis_jobs hashing;
	uint64_t earliest_us; /* no live job can be expired before */
	struct redis_command *free_commands;
	uint32_t n_exists;          /* commands of EXISTS */
	struct redis_queue delayed; /* TRYAGAIN */
	struct redis_link *dirty;
	XXH3_state_t *sum; /* of hashing.head */
	uint64_t now_us;
	uint64_t random;
	uint64_t sweep_us; /* when to look for stalled links */
	char tls_text[160];
	char words[SCOUT__L2_WHY_BYTES]; /* why a node failed, or refused a command, last */
	int words_of;                    /* the detail of operations that failed over it */
	struct scout__log_limit too_large, refused_limit, moved_limit, slots_limit;
};

static inline void
scout__redis_count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Ask for the slot map, soon. */
static inline void
scout__redis_refresh(struct redis *r) SCOUT_ON_REDIS
{
	r->refresh.wanted = true;
}

/* The node that was asked for the map gave none: the next tick asks another. */
static inline void
scout__redis_refresh_failed(struct redis *r) SCOUT_ON_REDIS
{
	r->refresh.node = NULL;
	r->urgent = true;
}

static inline enum redis_lane
scout__redis_lane_of(enum redis_kind kind)
{
	if (kind == REDIS_GET || kind == REDIS_UNLINK)
		return REDIS_LOAD;
	return kind == REDIS_SET ? REDIS_STORE : REDIS_ASK;
}

/* The files in their order: each calls only those above it here. */

/* Whether the server must be asked if it is a master: the master's name may lead to a replica by now. */
static inline bool
scout__redis_needs_role(const struct redis *r)
{
	return r->mode == REDIS_SINGLE && !r->may_be_replica;
}

/* ---- redis_job.c ---- */
/* @node failed, or refused a command, over @text and @more: operations that end with @detail, or find it down, say so. */
void scout__redis_say(struct redis *r, const struct redis_node *node, int detail, const char *text,
		      const char *more) SCOUT_ON_REDIS;
void scout__redis_job_begin(struct redis *r, struct scout__l2_op *op) SCOUT_ON_REDIS;
/* Compute a slice of checksums of values to be stored. */
void scout__redis_jobs_hash(struct redis *r) SCOUT_ON_REDIS;
/* End all jobs that wait for commands as ERROR. */
void scout__redis_jobs_fail_waiting(struct redis *r, int detail) SCOUT_ON_REDIS;
/* A command's part of its job has ended; the command is the caller's to free. */
void scout__redis_job_part(struct redis *r, struct redis_job *job, uint32_t index, bool found,
			   enum scout__l2_result result, int detail) SCOUT_ON_REDIS;
/* @job ends as a whole; no command has it any more. */
void scout__redis_job_finish(struct redis *r, struct redis_job *job, enum scout__l2_result result,
			     int detail) SCOUT_ON_REDIS;
/* How many commands the job takes, and which. */
uint32_t scout__redis_job_parts(const struct redis_job *job);
enum redis_kind scout__redis_job_kind(const struct redis_job *job);
struct redis_job *scout__redis_jobs_pop(struct redis_jobs *list);

/* ---- redis_command.c ---- */
void scout__redis_queue_init(struct redis_queue *queue);
void scout__redis_queue_push(struct redis_queue *queue, struct redis_command *command);
void scout__redis_queue_push_front(struct redis_queue *queue, struct redis_command *command);
struct redis_command *scout__redis_queue_pop(struct redis_queue *queue);
/* NULL: no memory. */
struct redis_command *scout__redis_command_new(struct redis *r, enum redis_kind kind,
					       struct redis_job *job) SCOUT_ON_REDIS;
void scout__redis_command_free(struct redis *r, struct redis_command *command) SCOUT_ON_REDIS;
/* Tell its job, or the question for the slot map, that @command failed. Frees it. */
void scout__redis_command_fail(struct redis *r, struct redis_command *command, enum scout__l2_result result,
			       int detail) SCOUT_ON_REDIS;
/* Write @command into the link's buffer, which has room. False: no memory. */
bool scout__redis_command_write(struct redis *r, struct redis_link *link, struct redis_command *command) SCOUT_ON_REDIS;
#define SCOUT__REDIS_COMMAND_BYTES 1024u /* no command takes more of the buffer; a password may, in AUTH */

/* ---- redis_link.c ---- */
void scout__redis_link_init(struct redis_link *link, struct redis_node *node, enum redis_lane lane);
/* Mark @link as having something to do: connect, write, watch other events. */
void scout__redis_link_touch(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* Do what the link was touched for. */
struct redis_trouble scout__redis_link_flush(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* The socket has ended connecting, well or not. */
struct redis_trouble scout__redis_link_connected(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* Go on with the handshake of TLS. */
struct redis_trouble scout__redis_link_shake(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* Close the socket; `queue` and `sent` stay. */
void scout__redis_link_close(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* @n bytes of the connection have moved. */
void scout__redis_link_moved(struct redis *r, struct redis_link *link, uint64_t n) SCOUT_ON_REDIS;
/* Take jobs that are `expired` off. True: one was in the middle of a value, so the connection must be closed. */
bool scout__redis_link_forget(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;

/* ---- redis_receive.c ---- */

enum redis_event_what {
	REDIS_EVENT_NONE = 0,
	REDIS_EVENT_REPLY,
	REDIS_EVENT_VALUE, /* a value has arrived whole, or is nil (ABSENT) */
	REDIS_EVENT_TROUBLE
};

struct redis_event {
	enum redis_event_what what;
	struct redis_command *command; /* REPLY, VALUE: what it answers; was the oldest in `sent`, now the caller's */
	enum scout__l2_result result;  /* VALUE */
	struct redisReply *reply;      /* REPLY; the caller's to free */
	struct redis_trouble trouble;
};

/* Read what is there, a slice at most. */
struct redis_trouble scout__redis_link_receive(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* The next event in what was read; NONE: no more. The link must still be open. */
struct redis_event scout__redis_link_next(struct redis_link *link);

/* ---- redis_node.c ---- */
struct redis_node *scout__redis_node_get(struct redis *r, const char *host, uint16_t port) SCOUT_ON_REDIS;
void scout__redis_node_free(struct redis *r, struct redis_node *node) SCOUT_ON_REDIS;
/* The index in r->nodes; UINT16_MAX: not there. */
uint16_t scout__redis_node_index(const struct redis *r, const struct redis_node *node);
/* Close all links of @node, fail their commands, and try the node again after a while. */
void scout__redis_node_failed(struct redis *r, struct redis_node *node, enum redis_why why, int error,
			      const char *text) SCOUT_ON_REDIS;
/*
 * The connection is lost or must be closed. Its commands are sent again (each at most SCOUT__REDIS_MAX_LOSSES times),
 * because all of them may be repeated. If the link was still connecting, the node has failed.
 */
void scout__redis_node_lost(struct redis *r, struct redis_link *link, struct redis_trouble trouble) SCOUT_ON_REDIS;
/* The name of @node has been looked up: it has addresses, or none. */
void scout__redis_node_resolved(struct redis *r, struct redis_node *node) SCOUT_ON_REDIS;
/* The handshake of @link is over: its node works. */
void scout__redis_node_connected(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;
/* Do what all links were touched for. */
void scout__redis_nodes_flush(struct redis *r) SCOUT_ON_REDIS;
/* Look at back-offs and stalled links. Returns when to be called again. */
uint64_t scout__redis_nodes_tick(struct redis *r) SCOUT_ON_REDIS;
/* The next back-off: doubled, up to the longest. Returns how long to wait: up to a half more of it. */
uint64_t scout__redis_back_off_us(struct redis *r, uint32_t *backoff_ms) SCOUT_ON_REDIS;
/* Set the counter that says whether there is a node to ask. */
void scout__redis_tell_ready(struct redis *r) SCOUT_ON_REDIS;

/* ---- redis_slots.c ---- */
/* @node serves this slot, as another node has said. */
void scout__redis_slots_moved(struct redis *r, struct redis_node *node, uint16_t slot) SCOUT_ON_REDIS;
/* The store is no cluster: the first host is all there is. */
void scout__redis_single(struct redis *r) SCOUT_ON_REDIS;
/* @node answers CLUSTER SLOTS. */
void scout__redis_refresh_done(struct redis *r, struct redis_node *node, const struct redisReply *reply) SCOUT_ON_REDIS;
/* Ask for the slot map if it is wanted. Returns when to be called again. */
uint64_t scout__redis_slots_tick(struct redis *r) SCOUT_ON_REDIS;

/* ---- redis_route.c ---- */
/* Give @command to this node. */
void scout__redis_command_send_to(struct redis *r, struct redis_command *command,
				  struct redis_node *node) SCOUT_ON_REDIS;
/* Route @command after a while. */
void scout__redis_route_later(struct redis *r, struct redis_command *command) SCOUT_ON_REDIS;
uint64_t scout__redis_route_tick(struct redis *r) SCOUT_ON_REDIS;
/* Make commands of waiting jobs, as far as there is room for them and a server to ask. */
void scout__redis_jobs_issue(struct redis *r) SCOUT_ON_REDIS;

/* ---- redis_expire.c ---- */
/* Jobs without progress (or @all: every one, as CANCELLED) let go of everything and end. */
void scout__redis_jobs_expire(struct redis *r, bool all) SCOUT_ON_REDIS;

/* ---- redis_reply.c ---- */
/* Read what @link has, and do what it says. May lose the link. */
void scout__redis_reply(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS;

/* ---- for tests ---- */
const struct redis_counters *scout__redis_counters(const void *adapter);
