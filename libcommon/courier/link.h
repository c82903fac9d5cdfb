/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "channel.h"
#include "courier.h"
#include "keys.h"
#include "run_delay.h"

/*
 * One connection to one server: DEALER socket, its monitor, the lease connection, the channel, HELLO, heartbeat, credits, and the
 * table of operations in flight. Private to the courier; every field is touched by the courier thread only.
 *
 *   IDLE ──try──▶ CONNECTING ──writable──▶ GREETING ──HELLO ok──▶ LEASING ──lease, channel, or none──▶ UP
 *    ▲                                                                                                 │
 *    └──────────── lost, silent, refused, protocol broken: socket closed, new one after a pause ───────┘
 *
 * A lost connection is never reused: a fresh DEALER cannot deliver messages that the old one still had queued.
 */

enum scout__link_state {
	SCOUT__LINK_IDLE = 0, /* no socket; waits for next_try_us */
	SCOUT__LINK_CONNECTING,
	SCOUT__LINK_GREETING, /* HELLO is in flight */
	SCOUT__LINK_LEASING,
	SCOUT__LINK_UP
};

#define SCOUT__LINK_MAX_INFLIGHT 4096u
#define SCOUT__LINK_SPARE 2u /* for HELLO and PING, beyond the credits */
#define SCOUT__LINK_SLOTS (SCOUT__LINK_MAX_INFLIGHT + SCOUT__LINK_SPARE)
#define SCOUT__LINK_NO_SLOT UINT32_MAX
#define SCOUT__LINK_BACKLOG ((size_t)1 << 20) /* bytes that wait for the channel before operations find no credit */
#define SCOUT__LINK_UNREAD 32u         /* answers that may wait unread: the smallest ring has room for a frame each */
#define SCOUT__LINK_PAUSE_FIRST_MS 10u /* pause before the first new try after a lost connection */
#define SCOUT__LINK_OUT_INITIAL ((size_t)64 * 1024) /* room for a frame at the start */

/*
 * How long we have waited for something, counting only time in which this thread looked. Time in which it did not run (a stopped
 * process, a machine without a free core) does not count as silence of the server.
 */
struct scout__patience {
	uint64_t looked_us; /* when the thread looked last */
	uint64_t waited_us;
};
#define SCOUT__PATIENCE_PIECES 6u /* a limit is counted in so many pieces, one for each look */
#define SCOUT__PATIENCE_PIECE_MAX_US UINT64_C(500000)

/* Look once more. True: @limit_us is over. If not, *ret_next_us is when to look again. */
static inline bool
scout__patience_look(struct scout__patience *p, uint64_t limit_us, uint64_t now_us, uint64_t *ret_next_us)
{
	uint64_t piece_us = limit_us / SCOUT__PATIENCE_PIECES + 1, gone_us, left_us;

	if (piece_us > SCOUT__PATIENCE_PIECE_MAX_US)
		piece_us = SCOUT__PATIENCE_PIECE_MAX_US;
	if (now_us > p->looked_us) {
		gone_us = now_us - p->looked_us;
		p->waited_us += gone_us < piece_us ? gone_us : piece_us;
		p->looked_us = now_us;
	}
	if (p->waited_us >= limit_us)
		return true;
	left_us = limit_us - p->waited_us;
	*ret_next_us = now_us + (left_us < piece_us ? left_us : piece_us);
	return false;
}

/* @us of the time waited do not count after all. */
static inline void
scout__patience_give_back(struct scout__patience *p, uint64_t us)
{
	p->waited_us -= us < p->waited_us ? us : p->waited_us;
}

/* The parts of the courier that its links use; passed to each at its start, const from then on. */
struct scout__link_env {
	const struct scout__courier_ops *ops; /* called with `user` */
	void *user;
	void *zmq;
	const struct scout__log *log;
	struct scout__courier_stats *stats;
	uint32_t heartbeat_ms;
	uint32_t connect_timeout_ms;
	const struct scout__curve_keys *curve; /* NULL: none */
	bool shm;
	struct scout__starter *starter; /* NULL, or finds and starts the server of the one link */
};

struct scout__in_flight {
	uint64_t cookie;
	uint64_t answer_by_us; /* UINT64_MAX: may take as long as it likes */
	uint32_t gen;          /* upper half of the correlation id, before corr_key */
	uint32_t next;         /* free list */
	uint8_t opcode;
	bool used;
	bool internal; /* HELLO and PING, which are the link's own */
};

struct scout__link {
	const struct scout__link_env *env;
	uint32_t index;
	char *endpoint;
	char *name_space;
	int ipv6; /* const after start: ZMQ_IPV6 of its sockets */
	struct scout__hello hello;
	bool lost_stamps; /* the server refused those in hello.clear, and link_up has not asked since */

	enum scout__link_state state;
	void *sock;
	void *monitor;
	uint64_t state_since_us;
	uint64_t next_try_us;
	uint32_t pause_ms; /* before the next try; doubles up to a limit */
	bool ever_up;
	bool told_down;       /* link_down was called since the last link_up */
	bool must_reset;      /* reset the connection after the current frame, or at the next tick */
	int reset_error;      /* why */
	char reset_text[512]; /* the reason as a sentence; empty: the error's own text */
	int error;            /* why the link is not up; 0 = no reason yet */
	int start_error;      /* error of the starter's last look; 0: none */
	bool greeting_failed; /* the security handshake ended without a reason, at least once */
	uint64_t epoch;       /* epoch of the present server; 0 before HELLO */
	uint64_t peer_id;     /* what the server's log calls us */
	uint64_t known_epoch; /* epoch of the last link_up */

	int lease_fd;
	bool lease_bound;
	bool goes_silently; /* closes without BYE: its holds at the server stay while this process lives */
	uint64_t lease_epoch;

	uint32_t channel_asks;         /* questions on this lease connection that were not answered */
	struct scout__channel channel; /* if open, all frames travel through it */
	uint8_t *in_buf;               /* the frame that arrives in the channel */
	size_t in_cap;

	struct scout__patience first; /* for the first connection */
	uint64_t last_rx_us;
	uint64_t busy_since_us;          /* when an operation was begun while none was in flight */
	uint64_t ping_sent_us;           /* 0: none in flight */
	struct scout__patience silence;  /* since the last PING or the begin of the state; each frame starts it anew */
	uint64_t progress;               /* of the channel, when silence was looked at last */
	struct scout__run_delay starved; /* from the middle of a silence on */
	uint64_t next_scan_us;           /* for operations that were never answered */

	uint32_t credits;
	uint32_t n_in_flight; /* without internal ones */
	uint32_t free_head;
	struct scout__in_flight *in_flight; /* SCOUT__LINK_MAX_INFLIGHT + SPARE */

	struct scout__writer out;
	uint32_t out_ops;
	size_t op_offset;
	uint64_t op_corr; /* of the last begun operation */
	uint64_t corr_key;
	bool op_open;
};

/*
 * The files of a link, from the top; each calls only files after it in this list: link.c -> link_receive.c -> link_lease.c ->
 * link_channel.c -> link_connect.c -> link_state.c -> link_ops.c -> link_socket.c.
 */

/* ---- link.c: life and timers ---- */

/* Before the courier's thread runs. 0 or SCOUT_ERR_NOMEM. */
int scout__link_init(struct scout__link *link, const struct scout__link_env *env, uint32_t index, const char *endpoint,
		     const struct scout__hello *hello);
void scout__link_fini(struct scout__link *link, int linger_ms) SCOUT_ON_COURIER;
/* Do what is due: connect, heartbeat, silence. Returns when to be called again. */
uint64_t scout__link_tick(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
/* When a PING is due if nothing is heard until then; UINT64_MAX: no PING is due. */
uint64_t scout__link_ping_due(const struct scout__link *link) SCOUT_ON_COURIER;
/* Whether the link itself waits for an answer, or has too many unread, even while its user waits for none. */
bool scout__link_awaits(const struct scout__link *link) SCOUT_ON_COURIER;
/* Tell the server that this peer leaves with nothing running. */
void scout__link_bye(struct scout__link *link) SCOUT_ON_COURIER;

/* ---- link_receive.c ---- */

/* Read up to @max frames from the socket. Returns how many were read. */
unsigned scout__link_receive(struct scout__link *link, unsigned max) SCOUT_ON_COURIER;
/* As scout__link_receive(), from the channel; also writes frames that waited for room. */
unsigned scout__link_channel_receive(struct scout__link *link, unsigned max) SCOUT_ON_COURIER;
/* The same, after the channel's bell. The bell may say that the server has closed the channel: then the connection is over. */
void scout__link_channel_rang(struct scout__link *link, unsigned max) SCOUT_ON_COURIER;

/* ---- link_lease.c ---- */

bool scout__link_lease_connect(struct scout__link *link, const struct scout__str *path) SCOUT_ON_COURIER;
void scout__link_lease_close(struct scout__link *link) SCOUT_ON_COURIER;
/* The server's process; 0: there is no lease connection, or the process is in another pid namespace. */
pid_t scout__link_server_pid(const struct scout__link *link) SCOUT_ON_COURIER;
void scout__link_lease_ready(struct scout__link *link) SCOUT_ON_COURIER;

/* ---- link_channel.c ---- */

/* The lease is bound: ask for a channel; if there is none to ask for, the link is up. */
void scout__link_bound(struct scout__link *link) SCOUT_ON_COURIER;
/* The answer to the question for a channel; takes @fds. */
void scout__link_channel_take(struct scout__link *link, const struct scout__lease_msg *msg,
			      const int fds[SCOUT__CHANNEL_FDS]) SCOUT_ON_COURIER;
/* Read on. True: in_buf has a whole frame of channel.frame_len bytes. Ends the connection if there is no memory for it. */
bool scout__link_channel_read(struct scout__link *link) SCOUT_ON_COURIER;

/* ---- link_connect.c ---- */

void scout__link_connect(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
/* The socket is writable (matters only while CONNECTING). */
void scout__link_writable(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
void scout__link_monitor_ready(struct scout__link *link) SCOUT_ON_COURIER;

/* ---- link_state.c ---- */

/* Lease and channel are there, or never will be. */
void scout__link_leased(struct scout__link *link) SCOUT_ON_COURIER;
/* The connection is over: everything in flight ends with @error, and a new one is tried after a pause. */
void scout__link_lost(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
/* The server refuses something that we need, HELLO for example: as scout__link_lost(), with a pause of a second. */
void scout__link_refused(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
/* Carry out a reset that was only noted before (must_reset). */
void scout__link_run_reset(struct scout__link *link) SCOUT_ON_COURIER;
/* Mark the link as down, end what is in flight, tell the user: in this order, see courier.h. */
void scout__link_tell_down(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;

/* ---- link_ops.c ---- */

void scout__link_ops_init(struct scout__link *link) SCOUT_ON_COURIER;
/* End all that is in flight. */
void scout__link_ops_end(struct scout__link *link, int error) SCOUT_ON_COURIER;
/* The slot that a reply belongs to, or SCOUT__LINK_NO_SLOT. */
uint32_t scout__link_op_find(const struct scout__link *link, uint64_t corr) SCOUT_ON_COURIER;
void scout__link_op_drop(struct scout__link *link, uint32_t slot) SCOUT_ON_COURIER;
/* True: an operation should have been answered long ago. */
bool scout__link_find_overdue(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
/* Send the frame that was collected, if any. */
void scout__link_send(struct scout__link *link) SCOUT_ON_COURIER;
/* Send HELLO or PING at once. */
void scout__link_send_own(struct scout__link *link, uint8_t opcode) SCOUT_ON_COURIER;

/* ---- link_socket.c ---- */

/* Make a socket that connects, and its monitor. False: failed; errors other than a lack of sockets were logged. */
bool scout__link_open(struct scout__link *link, int timeout_ms) SCOUT_ON_COURIER;
/* Close socket, monitor and channel; the unsent frame is dropped. */
void scout__link_close(struct scout__link *link, int linger_ms) SCOUT_ON_COURIER;

static inline void
scout__count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}
