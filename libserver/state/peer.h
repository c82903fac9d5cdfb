/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvscout/protocol.h>

#include "list.h"
#include "reply.h"
#include "rights.h"
#include "run_queue.h"
#include "thread.h"
#include "watch.h"

struct scout_server;
struct scout__lease;
struct scout__ns;

struct scout__peer {
	struct scout__dest dest;    /* its peer is found from it: scout__peer_who() */
	struct scout__run_item run; /* cancels what came on earlier connections; leaves */
	uint32_t number;
	uint64_t identity_key;
	uint64_t token;
	uint64_t source;             /* of its first HELLO, see scout__conns_source() */
	struct scout__secret secret; /* of this peer and the server alone, as the token is */
	uint64_t id;                 /* what logs and PEERS call it */
	struct scout__sender sender;
	uint32_t judged; /* transport.n_rights when its rights in ns were last looked up */
	uint16_t role;
	uint16_t reader;
	int32_t rank;    /* KV rank less the namespace's rank_first; -1: not registered */
	uint32_t tables; /* groups (bits) for which it has registered tables */
	struct scout__ns *ns;
	uint64_t weights;    /* version that it said; 0: it follows the namespace */
	uint64_t joined;     /* stamp at which a worker joined, see clears.c */
	uint64_t clear_said; /* the generation of its last CLEAR; 0: none */
	uint32_t heartbeat_ms;
	uint64_t seen_us;
	uint64_t sent_us;       /* when it sent its last frame, by its own clock */
	int64_t offset_us[2];   /* smallest (our clock - its clock): in this window and the last */
	uint64_t window_us;     /* start of this window; 0: no frame yet */
	uint64_t ended_us;      /* when its connection ended, as it seems; 0: it has one */
	uint32_t connection;    /* counts HELLOs from a new identity: answers to an older one are dropped */
	uint32_t unanswered;    /* operations of this connection */
	uint64_t waiting_bytes; /* of its operations that wait, see request_bytes.h */
	uint32_t n_holds;
	uint64_t held_bytes;     /* by its holds */
	uint32_t n_sessions;     /* that have not ended */
	uint64_t session_bytes;  /* of these sessions, see request_bytes.h */
	uint64_t promised_bytes; /* by these sessions */
	uint64_t kept_bytes;     /* by sessions that have ended, see keep.c */
	/* For each group: first segment id of the last extent that the lease connection has delivered; 0: none. */
	uint32_t segments_sent[SCOUT_MAX_GROUPS];
	bool leaving;
	bool died;
	struct scout__lease *lease;
	pid_t pid;                   /* 0: unknown */
	struct scout__watch process; /* pidfd, -1: none */
	struct scout__run_lane polls;
	struct scout__list pending_ops, sessions, holds, lease_waiters;
};

SCOUT_ON_LOOP struct scout__peer *scout__peer_by_identity(struct scout_server *s, const void *identity, size_t len);
SCOUT_ON_LOOP struct scout__peer *scout__peer_by_token(struct scout_server *s, uint64_t token);
/* Note a frame of @peer. Returns how many microseconds longer it was on its way than the fastest frame. */
SCOUT_ON_LOOP uint64_t scout__peer_heard(struct scout_server *s, struct scout__peer *peer, uint64_t sent_us);
/* Name the peer of @dest for log lines: "worker 0123456789abcdef (pid 12)". */
SCOUT_ON_LOOP void scout__peer_who(const struct scout_server *s, struct scout__dest *dest, char who[SCOUT__WHO_BYTES]);
/*
 * Whether the process, or address, of the frame in hand has all the peers that one may have; *ret_most is how many that are. Peers whose
 * connection has ended count until they are forgotten.
 */
SCOUT_ON_LOOP bool scout__peers_of_source_full(struct scout_server *s, uint32_t *ret_most);
/* The sender of the frame in hand becomes a peer of @ns. NULL: no place, or no memory. */
SCOUT_ON_LOOP struct scout__peer *scout__peer_new(struct scout_server *s, struct scout__ns *ns, uint64_t token,
						  uint16_t role);
/*
 * @peer has another connection, on which the frame in hand came: what was not answered on the old one is cancelled.
 * False: nothing reaches the peer until its next HELLO.
 */
SCOUT_ON_LOOP bool scout__peer_move(struct scout_server *s, struct scout__peer *peer);
/* The ZeroMQ identity of @peer, whose connection has ended, is another connection's: what comes from it is not the peer's. */
SCOUT_ON_LOOP void scout__peer_lose_identity(struct scout_server *s, struct scout__peer *peer);
/* The hook of the transport: the connection of the peer of @dest has ended, as it seems. */
SCOUT_ON_LOOP void scout__peer_conn_ended(struct scout_server *s, struct scout__dest *dest);
/* @peer said goodbye, was forgotten, or died (@died: slots that it was writing are set aside). */
SCOUT_ON_LOOP void scout__peer_leave(struct scout_server *s, struct scout__peer *peer, bool died);
/* How many of @n peers or leases one tick looks at: the next ticks look at the rest. */
uint32_t scout__tick_share(uint32_t n);
/* Look at some of the peers, and forget those that have been silent for too long. */
SCOUT_ON_LOOP void scout__peers_tick(struct scout_server *s);
/* Free all peers. After the loop. */
SCOUT_ON_LOOP void scout__peers_fini(struct scout_server *s);
