/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "instance_starter.h"
#include "log.h"
#include "msg.h"
#include "ring.h"
#include "thread.h"

/*
 * The courier: the one background thread that owns the sockets of a client or of a worker.
 *
 * What the caller asks for comes as 64-bit words through a ring (the caller pushes, the courier pops). The user of the courier (client or worker) gives a
 * word its meaning and brings results back to the caller, through the callbacks below; all of them run on the courier thread. Nothing
 * else ever touches a socket.
 *
 *   caller                                courier thread
 *   scout__courier_push(word) ──ring──▶   ops->word(word) ... ops->flush()
 *                                          scout__link_op_begin/_end  ──▶ DEALER
 *                                          ops->ended(cookie, reply)  ◀── DEALER
 *
 * The doorbell (doorbell.h) is rung only when the courier is parked in poll: the courier stores parked = 1, fences, and
 * looks at the ring again before it parks; the caller pushes, fences, and reads parked. One of the two sees the other.
 */

struct scout__courier;
struct scout__link;

struct scout__courier_ops {
	/* One word from the ring. */
	void (*word)(void *user, uint64_t word, uint64_t now_us);
	/* The ring is empty: the user can put what it has collected into the links' frames now. Also called after
	   replies and link changes, when credits may have come back. May be NULL. */
	void (*flush)(void *user, uint64_t now_us);
	/* HELLO was accepted; operations may be sent. new_epoch: another server start than we knew before (also true
	   for the first time): the server knows nothing of us any more. */
	void (*link_up)(void *user, struct scout__link *link, bool new_epoch);
	/* As link_down, but before the operations in flight are ended: code that learns that an operation has ended
	   must find the link marked as down already. May be NULL. */
	void (*link_going)(void *user, struct scout__link *link, int error, const char *text);
	/* The connection is lost, silent, or HELLO was refused: @error, and @text for a person. All its operations in
	   flight have been ended before. Called once for each change; also for a link that never came up. */
	void (*link_down)(void *user, struct scout__link *link, int error, const char *text);
	/* Exactly once for each operation that was begun: with its reply (op->status may be an error), or with @op NULL
	   and @error when the connection was lost. */
	void (*ended)(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error);
	/* A pool segment arrived on the lease connection; takes @fd. NULL: not wanted (closed). */
	void (*segment)(void *user, struct scout__link *link, const struct scout__lease_msg *msg, int fd);
	/* The server takes a segment away: answer by scout__link_released() once it is unmapped. NULL: answered at once. */
	void (*withdraw)(void *user, struct scout__link *link, uint32_t segment);
	/* The lease connection is a new one: all segments will come again; those of an older connection are void. May be NULL. */
	void (*lease_new)(void *user, struct scout__link *link);
	/* The user's own descriptor (scout__courier_config.user_fd) is readable. */
	void (*user_ready)(void *user);
	/* Whether the user waits for the answer to an operation in flight. While it waits for none, answers may be read
	   late: at the next word or timer. Asked before each sleep. NULL: always. */
	bool (*is_awaited)(void *user);
	/* Timers: do what is due, return when to be called again (monotonic us), UINT64_MAX for never. */
	uint64_t (*tick)(void *user, uint64_t now_us);
	/* The courier is about to stop: last chance to send (give back what is promised), and to complete open operations. */
	void (*closing)(void *user);
	/* Asked after `closing` until it returns true: only then the thread ends. NULL: at once. */
	bool (*drained)(void *user);
};

struct scout__courier_config {
	const struct scout__courier_ops *ops;
	void *user;
	const char *name; /* of the thread, at most 15 bytes */
	const struct scout__log *log;
	uint32_t ring_words;
	int user_fd; /* -1: none */
	uint32_t spin_us;
	uint32_t heartbeat_ms;
	uint32_t connect_timeout_ms;
	/* One link for each endpoint. Strings are copied. With `instance` set there is one link, to the server of this
	   host, which the courier starts if need be. */
	const struct scout__starter_config *instance;
	const char *const *endpoints;
	uint32_t n_links;
	const struct scout__hello *hello; /* n_links of them; tokens are drawn here. name_space is copied. */
	/* CURVE: both or none. The file is read here. */
	const char *curve_secret_file;
	const char *curve_server_key;
	bool shm; /* ask for channels */
};

/* *ret_courier is set before the thread starts, since the callbacks need it; NULL on error. Returns 0,
   SCOUT_ERR_INVALID (an endpoint or a key that zmq refuses; @err names it), _NOMEM, _SYSTEM; the codes of
   scout__starter_new(); for the key file SCOUT_ERR_FORMAT, _PERMISSION; SCOUT_ERR_UNSUPPORTED (a libzmq without CURVE). */
int scout__courier_new(const struct scout__courier_config *cfg, struct scout__courier **ret_courier, char *err,
		       size_t err_len);
/*
 * Ends all operations in flight, runs `closing`, joins, frees. In a forked child: frees nothing, closes nothing.
 */
void scout__courier_free(struct scout__courier *courier) SCOUT_ON_CALLER;

/* Queue one word (not 0). False when the ring is full. @ring_now: also scout__courier_ring(). */
bool scout__courier_push(struct scout__courier *courier, uint64_t word) SCOUT_ON_CALLER;
/* Ring the doorbell if the courier is parked. Returns whether it was rung. */
bool scout__courier_ring(struct scout__courier *courier) SCOUT_ON_CALLER;

/* Whether we are in a child of the process that made the courier: then nothing may be used. One load, no system call. */
bool scout__courier_forked(const struct scout__courier *courier) SCOUT_ON_ANY;

/* Counters, written by the courier only, read by any thread. */
struct scout__courier_stats {
	atomic_uint_fast64_t frames_sent, frames_received, reconnects, epochs, protocol_errors, late_replies;
	atomic_uint servers_up; /* counted before link_up is called, and until link_down has returned */
};
const struct scout__courier_stats *scout__courier_counts(const struct scout__courier *courier);

/* ---- links: courier thread only ---- */

uint32_t scout__link_index(const struct scout__link *link) SCOUT_ON_COURIER;
struct scout__link *scout__courier_link(struct scout__courier *courier, uint32_t index) SCOUT_ON_COURIER;
bool scout__link_is_up(const struct scout__link *link) SCOUT_ON_COURIER;
/* Whether the link is down, and the connect timeout of the first connection is over: expect no answer. */
bool scout__link_is_unreachable(const struct scout__link *link) SCOUT_ON_COURIER;
/* Whether an operation could begin now: the link is up, has a credit left, and not too much waits to be written. */
bool scout__link_has_room(const struct scout__link *link) SCOUT_ON_COURIER;
/* Why the link is not up, SCOUT_ERR_*; 0 while it is not unreachable. */
int scout__link_error(const struct scout__link *link) SCOUT_ON_COURIER;
const char *scout__link_endpoint(const struct scout__link *link);
uint64_t scout__link_epoch(const struct scout__link *link) SCOUT_ON_COURIER;
bool scout__link_has_lease(const struct scout__link *link) SCOUT_ON_COURIER;

/*
 * Append one operation to the link's next frame. Returns the writer for its body, or NULL when the link is not up, has no
 * credit left, or @body_bytes do not fit into a frame. Every begin is followed by _end on the same link before anything else.
 * The frame leaves when the courier has nothing more to do in this turn.
 */
struct scout__writer *scout__link_op_begin(struct scout__link *link, uint8_t opcode, uint32_t budget_us,
					   uint64_t cookie, size_t body_bytes) SCOUT_ON_COURIER;
void scout__link_op_end(struct scout__link *link) SCOUT_ON_COURIER;
/* The correlation id of the last begun operation. Never used twice on a link. */
uint64_t scout__link_last_corr(const struct scout__link *link) SCOUT_ON_COURIER;

/* Answer a withdraw. False: not now, the socket is full. True also without a lease connection: then the server did not ask. */
bool scout__link_released(struct scout__link *link, uint32_t segment) SCOUT_ON_COURIER;

/* Change what later HELLOs say about the weights version. */
void scout__link_set_weights(struct scout__link *link, uint64_t weights) SCOUT_ON_COURIER;
/*
 * Say HELLO once more on the present connection, with this weights version: it changes only the version that the server has from
 * us. An operation like any other; false: not now. Later HELLOs say what scout__link_set_weights() was given.
 */
bool scout__link_hello_again(struct scout__link *link, uint64_t weights, uint64_t cookie) SCOUT_ON_COURIER;
/* End the pause before the next attempt to connect: our next HELLO says something else. */
void scout__link_try_now(struct scout__link *link) SCOUT_ON_COURIER;

/*
 * Drop the connection and connect anew, as if it had been lost (a peer that breaks the protocol). Operations in flight end.
 */
void scout__link_reset(struct scout__link *link, int error, const char *why) SCOUT_ON_COURIER;
/*
 * Whether a RESET or CLEAR that got this answer has to be sent to another server, or to this one later. If so, the connection is over:
 * later operations on it must follow the change.
 */
bool scout__link_puts_off(struct scout__link *link, unsigned status) SCOUT_ON_COURIER;
/* Note what a server has said of the namespace's last clear: later HELLOs repeat it. */
void scout__link_note_clear(struct scout__link *link, const struct scout__clear_state *clear) SCOUT_ON_COURIER;
/* Whether the link has forgotten all clears since the last call: who made the last one sends it again. */
bool scout__link_lost_stamps(struct scout__link *link) SCOUT_ON_COURIER;
/* Whether the last clear is @generation and the server says that this worker joined before it. */
bool scout__link_is_before_clear(const struct scout__link *link, uint64_t generation) SCOUT_ON_COURIER;
/* Draw a name for a new clear. False: there is no entropy yet, at boot. Any thread. */
bool scout__draw_generation(uint64_t *ret_generation);
/* A name with the upper bits of @n. A number that is not its own name was not drawn here or by a peer: protocol.h, CLEAR. */
static inline uint64_t
scout__generation_of(uint64_t n)
{
	return (n & ~UINT64_C(0xffff)) | (n >> 16) * UINT64_C(0x9e3779b97f4a7c15) >> 48;
}
