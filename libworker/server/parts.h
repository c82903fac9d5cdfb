/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_PARTS_H
#define SCOUT_SERVER_PARTS_H

#include "server_core.h"

/* What the server's source files call of each other. All of it on the loop thread unless it says otherwise. */

/* ---- reply.c: answers, and frames on their way out ---- */

/*
 * Begin a reply of at most @body_bytes. Returns NULL when there is no memory for it (counted and logged): then nothing
 * is sent, and the caller takes back what the reply would have granted.
 */
SCOUT_ON_LOOP struct scout__writer *scout__reply_begin(struct scout_server *s, struct scout__dest *dest, uint8_t opcode,
						       uint16_t status, uint64_t corr, size_t body_bytes,
						       size_t *ret_op);
SCOUT_ON_LOOP void scout__reply_end(struct scout_server *s, struct scout__dest *dest, size_t op);
SCOUT_ON_LOOP void scout__reply_empty(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t corr);
/* A refusal. Counted, logged at debug. */
SCOUT_ON_LOOP __attribute__((format(printf, 6, 7))) void scout__refuse(struct scout_server *s, struct scout__dest *dest,
								       uint8_t opcode, uint64_t corr, uint16_t status,
								       const char *fmt, ...);
/*
 * The reply just ended granted something: take it back if the frame cannot be sent. @arrived_us: when a LOOKUP came, of
 * which the time is taken when the frame has left.
 */
SCOUT_ON_LOOP void scout__reply_grants(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t id,
				       uint64_t arrived_us);
/* Send a frame that was built apart; takes @buf (malloc). */
SCOUT_ON_LOOP void scout__reply_frame(struct scout_server *s, struct scout__dest *dest, uint8_t *buf, size_t len,
				      uint8_t opcode, uint64_t id);
SCOUT_ON_LOOP void scout__dest_init(struct scout__dest *dest);
SCOUT_ON_LOOP void scout__dest_flush(struct scout_server *s, struct scout__dest *dest);
SCOUT_ON_LOOP void scout__dest_drop(struct scout_server *s, struct scout__dest *dest);
SCOUT_ON_LOOP void scout__flush_all(struct scout_server *s);

/* ---- unsent.c: replies that libzmq has, and the kernel has not ---- */

/* After scout__conns_open(). Returns 0 or SCOUT_ERR_NOMEM. */
int scout__unsent_init(struct scout_server *s);
void scout__unsent_fini(struct scout_server *s);
/*
 * Send a frame through the ROUTER: @buf is copied, or @owned (malloc) taken in every case. Returns 0 or an errno value:
 * EAGAIN, the connection does not read and is being ended; EHOSTUNREACH, it has ended.
 */
SCOUT_ON_LOOP int scout__unsent_send(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf,
				     uint8_t *owned, size_t len);
/* The descriptor that frames of @dest come from; -1: none. */
SCOUT_ON_LOOP void scout__unsent_note_fd(struct scout__dest *dest, int fd);
/* @dest has another connection from now on, or none. */
SCOUT_ON_LOOP void scout__unsent_forget(struct scout__dest *dest);
/* Bytes that all connections have unsent. */
SCOUT_ON_LOOP size_t scout__unsent_bytes(const struct scout_server *s);
/* How many more bytes peers may have unsent, on both transports together. */
SCOUT_ON_LOOP size_t scout__unsent_left(const struct scout_server *s);
SCOUT_ON_LOOP void scout__unsent_tick(struct scout_server *s);

/* ---- conns.c: how many connections there are ---- */

/* Count the router's connections from now on. Before it is bound. */
int scout__conns_open(struct scout_server *s, char *err, size_t err_len);
void scout__conns_close(struct scout_server *s);
SCOUT_ON_LOOP void scout__conns_read(struct scout_server *s);

/* ---- curve.c: who may connect ---- */

/* Set the router's keys, if it is to have any. Before it is bound. */
int scout__curve_open(struct scout_server *s, char *err, size_t err_len);
/* After the router is closed. */
void scout__curve_close(struct scout_server *s);
/* Tell if the endpoint is open to others. */
void scout__curve_warn(const struct scout_server *s);
SCOUT_ON_LOOP void scout__curve_answer(struct scout_server *s);

/* ---- packet.c: what arrives ---- */

SCOUT_ON_LOOP void scout__packet_ref(struct scout__packet *packet);
SCOUT_ON_LOOP void scout__packet_unref(struct scout__packet *packet);
/*
 * Receive and execute what is there, for at most about SCOUT__TURN_US. Returns whether there may be more. @has_socket:
 * the ROUTER is readable.
 */
SCOUT_ON_LOOP bool scout__receive(struct scout_server *s, bool has_socket);

SCOUT_ON_LOOP struct scout__packet *scout__packet_new(size_t len);
/* A frame of @peer that did not come through the socket. Takes it. */
SCOUT_ON_LOOP void scout__packet_take(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet);

/* ---- shm.c: frames through shared memory ---- */

SCOUT_ON_LOOP void scout__shm_init(struct scout__peer *peer);
/* A new channel for this peer, or the answer that there is none. It has a lease connection. */
SCOUT_ON_LOOP void scout__shm_open(struct scout_server *s, struct scout__peer *peer);
/* With all that is in it. */
SCOUT_ON_LOOP void scout__shm_close(struct scout_server *s, struct scout__peer *peer);
SCOUT_ON_LOOP void scout__shm_rang(struct scout_server *s, struct scout__peer *peer);
/* Execute what is there, until @end_us. Returns whether there may be more. */
SCOUT_ON_LOOP bool scout__shm_receive(struct scout_server *s, uint64_t end_us);
/* While spinning: find those that have something. */
SCOUT_ON_LOOP void scout__shm_look(struct scout_server *s);
/* Before the loop sleeps: all are to ring. False: one has something, do not sleep. */
SCOUT_ON_LOOP bool scout__shm_park(struct scout_server *s);
/* 0 or an errno: EAGAIN, the peer does not read. */
SCOUT_ON_LOOP int scout__shm_send(struct scout_server *s, struct scout__peer *peer, const uint8_t *buf, size_t len);

/* ---- run item.c: work in steps, and timers ---- */

SCOUT_ON_LOOP void scout__run_queue_add(struct scout_server *s, struct scout__run_item *item);
SCOUT_ON_LOOP void scout__run_queue_remove(struct scout__run_item *item);
/* One round of the run queue, or as much as fits into SCOUT__TURN_US. */
SCOUT_ON_LOOP void scout__run_queue_run(struct scout_server *s);
SCOUT_ON_LOOP bool scout__run_queue_empty(const struct scout_server *s);
/* Whether a run item other than the one that runs is in the run queue. */
SCOUT_ON_LOOP bool scout__run_queue_wait(const struct scout_server *s);
/* Run the step now if this turn may touch @chunks more, else queue it. */
SCOUT_ON_LOOP void scout__run_queue_start(struct scout_server *s, struct scout__run_item *item, uint32_t chunks);
/* Wake @pending (queue its run item) at @wake_us, or before. */
SCOUT_ON_LOOP void scout__timer_set(struct scout_server *s, struct scout__pending_op *pending, uint64_t wake_us);
SCOUT_ON_LOOP void scout__timer_clear(struct scout_server *s, struct scout__pending_op *pending);
SCOUT_ON_LOOP uint64_t scout__timers_next(const struct scout_server *s);
SCOUT_ON_LOOP void scout__timers_run(struct scout_server *s);

/* ---- pending_op.c: operations that are not answered yet ---- */

/* NULL: no memory, already answered. */
SCOUT_ON_LOOP struct scout__pending_op *scout__pending_op_new(struct scout_server *s, struct scout__peer *peer,
							      struct scout__packet *packet, const struct scout__op *op,
							      uint64_t deadline_us);
/* Free without an answer; what it granted stays with its session and hold. */
SCOUT_ON_LOOP void scout__pending_op_free(struct scout_server *s, struct scout__pending_op *pending);
/* Refuse and free. */
SCOUT_ON_LOOP __attribute__((format(printf, 4, 5))) void scout__pending_op_refuse(struct scout_server *s,
										  struct scout__pending_op *pending,
										  uint16_t status, const char *fmt,
										  ...);
/* Nobody waits for the answer any more: take back what was granted, free. */
SCOUT_ON_LOOP void scout__pending_op_cancel(struct scout_server *s, struct scout__pending_op *pending);
/* The peer's connection or the peer itself is gone: cancel all. */
SCOUT_ON_LOOP void scout__pending_ops_cancel(struct scout_server *s, struct scout__peer *peer);
/* Wake all pending operations of a list of waiters. */
SCOUT_ON_LOOP void scout__pending_ops_wake(struct scout_server *s, struct scout__list *waiters);

/* Put @pending in wait for the chunk of this hash; it is woken once, see below. */
SCOUT_ON_LOOP void scout__chunk_wait(struct scout__pending_op *pending, const uint8_t *hash);
/* Something happened to the chunk: it is readable now, or is not going to be. */
SCOUT_ON_LOOP void scout__chunk_wake(struct scout_server *s, struct scout__ns *ns, const uint8_t *hash);
/* By when an operation is to be answered: a little before its budget ends, for the way back. */
SCOUT_ON_LOOP uint64_t scout__pending_op_answer_by(const struct scout__pending_op *pending);

/* ---- peer.c ---- */

SCOUT_ON_LOOP struct scout__peer *scout__peer_by_identity(struct scout_server *s, const void *identity, size_t len);
/* What maps name a connection by: a hash of its identity that peers cannot choose. */
SCOUT_ON_LOOP uint64_t scout__peer_identity_key(const struct scout_server *s, const void *identity, size_t len);
SCOUT_ON_LOOP struct scout__peer *scout__peer_by_token(struct scout_server *s, uint64_t token);
/* Note a frame of @peer; returns for how many microseconds it had waited somewhere. */
SCOUT_ON_LOOP uint64_t scout__peer_heard(struct scout_server *s, struct scout__peer *peer, uint64_t sent_us);
#define SCOUT__WHO_BYTES 64
/* Whose destination it is, for log lines: "worker 0123456789abcdef (pid 12)". */
SCOUT_ON_LOOP void scout__peer_who(const struct scout_server *s, struct scout__dest *dest, char who[SCOUT__WHO_BYTES]);
/* HELLO. Returns the peer of the sender from now on: NULL when it was refused and was none. */
SCOUT_ON_LOOP struct scout__peer *scout__peer_hello(struct scout_server *s, struct scout__peer *peer,
						    const struct scout__op *op, uint64_t sent_us);
/* Whether its version of the weights is the namespace's; else @op is refused. */
SCOUT_ON_LOOP bool scout__peer_weights_fit(struct scout_server *s, struct scout__peer *peer,
					   const struct scout__op *op);
/* It said goodbye, was forgotten, or died (@died: what it was writing is set aside). */
SCOUT_ON_LOOP void scout__peer_leave(struct scout_server *s, struct scout__peer *peer, bool died);
/* Of @n peers or leases, how many a tick looks at: the rest have their turn at the next ones. */
uint32_t scout__tick_share(uint32_t n);
/* Look at some of the peers: who has been silent for too long? */
SCOUT_ON_LOOP void scout__peers_tick(struct scout_server *s);
/* Free all. After the loop. */
SCOUT_ON_LOOP void scout__peers_fini(struct scout_server *s);

/* ---- ns.c ---- */

/* The namespace of a HELLO, made or rebuilt if need be; NULL: refused, @text says why and *ret_status how. */
SCOUT_ON_LOOP struct scout__ns *scout__ns_hello(struct scout_server *s, const struct scout__hello *hello,
						const struct scout__peer *known, uint16_t *ret_status, char *text,
						size_t text_len);
SCOUT_ON_LOOP void scout__ns_register(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
/* Everything that is cached is unreachable from here on. @status: why, SCOUT_WIRE_WEIGHTS or SCOUT_WIRE_CLEARED. */
SCOUT_ON_LOOP void scout__ns_outdate(struct scout_server *s, struct scout__ns *ns, uint16_t status);
/* What a person reads about scout__ns.ended_by. */
SCOUT_ON_LOOP const char *scout__ns_ended_text(const struct scout__ns *ns);
/* RESET: another version of the weights; no-op if it is the same. */
SCOUT_ON_LOOP void scout__ns_reset(struct scout_server *s, struct scout__ns *ns, uint64_t weights);
/* The number of (tenant, group); 0: nothing was ever stored there. */
SCOUT_ON_LOOP uint32_t scout__ns_space(const struct scout_server *s, const struct scout__ns *ns,
				       const struct scout__str *tenant, uint16_t group);
/* As before, but makes it. 0: no room for one more. */
SCOUT_ON_LOOP uint32_t scout__ns_space_make(struct scout_server *s, struct scout__ns *ns,
					    const struct scout__str *tenant, uint16_t group);
/* The index in ns.spaces of a space number that was given under the present weights. */
SCOUT_ON_LOOP uint32_t scout__ns_space_index(const struct scout__ns *ns, uint32_t id);
/* A pin of @entry has just been given back: drop it if it is left over from older weights. */
SCOUT_ON_LOOP void scout__ns_unpinned(struct scout__ns *ns, uint32_t entry);
/* Extents that have come, for whichever chunk index asked. */
SCOUT_ON_LOOP void scout__ns_pool_ready(struct scout_server *s);
/* Its peers have changed: a namespace without any gives its memory first. */
SCOUT_ON_LOOP void scout__ns_note_use(struct scout__ns *ns);
/* No session and no hold points into it. Forgets the layouts too. */
SCOUT_ON_LOOP void scout__ns_drop_index(struct scout__ns *ns);
SCOUT_ON_LOOP void scout__ns_free(struct scout_server *s, struct scout__ns *ns);

/* ---- ns_reuse.c ---- */

/*
 * One that all peers have left, emptied, for @name: the caller gives it that and its parameters. NULL: there is none.
 */
SCOUT_ON_LOOP struct scout__ns *scout__ns_reuse(struct scout_server *s, const struct scout__str *name);
/* @fresh is one more, of which the peer is still to join: tell the operator if they become too many. */
SCOUT_ON_LOOP void scout__ns_warn(struct scout_server *s, const struct scout__ns *fresh);
SCOUT_ON_LOOP uint32_t scout__ns_count_abandoned(const struct scout_server *s);

/* ---- clear.c ---- */

SCOUT_ON_LOOP void scout__clear(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				const struct scout__op *op, uint64_t deadline_us);
/*
 * There was a CLEAR: carry it out here if it is later than the last one. Returns whether it is. @older: the names
 * before it, SCOUT__OLD_GENERATIONS; NULL: not known.
 */
SCOUT_ON_LOOP bool scout__ns_learn(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared,
				   const uint64_t *older);
/*
 * The namespace was cleared just now, by another server, whose clock may be behind the one by which our workers joined:
 * all of them are out.
 */
SCOUT_ON_LOOP void scout__clear_all_out(struct scout_server *s, struct scout__ns *ns);
/* Whether @peer may store and load. */
SCOUT_ON_LOOP bool scout__clear_is_in(const struct scout__peer *peer);
/* @peer said HELLO with @m. */
SCOUT_ON_LOOP void scout__clear_hello(struct scout_server *s, struct scout__peer *peer,
				      const struct scout__clear_state *m);
SCOUT_ON_LOOP struct scout__clear_state scout__clear_state_of(const struct scout__peer *peer);

/* ---- session.c ---- */

/* Living sessions only: not one that has ended and is still giving back. */
SCOUT_ON_LOOP struct scout__session *scout__session_find(struct scout_server *s, const struct scout__ns *ns,
							 uint64_t ticket);
/* A session for @n chunks. NULL and *ret_status, *ret_text when it is refused. */
SCOUT_ON_LOOP struct scout__session *scout__session_new(struct scout_server *s, struct scout__peer *peer,
							uint64_t ticket, uint32_t n, uint16_t *ret_status,
							const char **ret_text);
/* Room for @n handles of the hit; what is beyond is given back to the heap. False: no memory. */
SCOUT_ON_LOOP bool scout__session_resize(struct scout_server *s, struct scout__session *session, uint32_t n);
/* Give back the last chunk that is promised, while the lookup is not answered. */
SCOUT_ON_LOOP void scout__session_shorten(struct scout__session *session);
/* Chunk @i, promised or the next to be looked at, is not there; of a lookup ahead that is not answered. */
SCOUT_ON_LOOP void scout__session_hole(struct scout__session *session, uint32_t i);
/* End it: unreachable now, promises given back in steps. @touch: by FINISH. */
SCOUT_ON_LOOP void scout__session_end(struct scout_server *s, struct scout__session *session, bool touch,
				      uint64_t finish_corr);
/* What @peer's retrieve of chunk @i may use: marks its unit as used; the caller holds first. */
SCOUT_ON_LOOP void scout__session_use(struct scout_server *s, struct scout__session *session, uint32_t i, uint32_t row);
/* Remember what it stores, to be touched at its end. @present: somebody else stored it. */
SCOUT_ON_LOOP void scout__session_stored(struct scout_server *s, struct scout__session *session,
					 struct scout__handle handle, bool present);
/* ---- stale_tickets.c: tickets of sessions that a new weights version or a clear ended ---- */

/* @status: what ended it. */
SCOUT_ON_LOOP void scout__stale_tickets_add(struct scout_server *s, uint64_t ticket, uint16_t status);
/* What ended the session of @ticket; 0: neither. */
SCOUT_ON_LOOP uint16_t scout__stale_tickets_find(const struct scout_server *s, const struct scout__ns *ns,
						 uint64_t ticket);
SCOUT_ON_LOOP void scout__stale_tickets_fini(struct scout_server *s);

SCOUT_ON_LOOP void scout__session_admit(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
					const struct scout__op *op, uint64_t deadline_us);
SCOUT_ON_LOOP void scout__session_finish(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);

/* ---- lookup.c ---- */

SCOUT_ON_LOOP void scout__lookup(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				 const struct scout__op *op, uint64_t deadline_us);
/* Answer a renewal now, with what it has found so far. */
SCOUT_ON_LOOP void scout__lookup_cut(struct scout_server *s, struct scout__pending_op *pending);

/* ---- renew.c ---- */

/*
 * The session of @ticket, for @pending to go on with from pending_op.next, which is set. NULL and *ret_status,
 * *ret_text when it is refused: then the session is as it was.
 */
SCOUT_ON_LOOP struct scout__session *scout__renew(struct scout_server *s, struct scout__peer *peer,
						  struct scout__pending_op *pending, uint64_t ticket,
						  uint16_t *ret_status, const char **ret_text);

/* ---- transfer.c ---- */

SCOUT_ON_LOOP void scout__store(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				const struct scout__op *op, uint64_t deadline_us);
SCOUT_ON_LOOP void scout__retrieve(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				   const struct scout__op *op, uint64_t deadline_us);

/* ---- hold.c ---- */

/* Room for @n entries. NULL: no memory or too many. */
SCOUT_ON_LOOP struct scout__hold *scout__hold_new(struct scout_server *s, struct scout__peer *peer, uint8_t kind,
						  uint32_t n, uint64_t corr);
/* Whether a living hold of this worker has the name. */
SCOUT_ON_LOOP bool scout__hold_name_taken(struct scout_server *s, const struct scout__peer *peer, uint64_t corr);
/* Of this peer only. */
SCOUT_ON_LOOP struct scout__hold *scout__hold_find(struct scout_server *s, const struct scout__peer *peer, uint64_t id,
						   uint8_t kind);
SCOUT_ON_LOOP void scout__hold_end(struct scout_server *s, struct scout__hold *hold, enum scout__hold_end how,
				   uint32_t n_commit);
/* It was never told to anybody: nobody reads or writes. */
SCOUT_ON_LOOP void scout__hold_undo(struct scout_server *s, struct scout__hold *hold);
SCOUT_ON_LOOP void scout__store_done(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
SCOUT_ON_LOOP void scout__retrieve_done(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
SCOUT_ON_LOOP void scout__quarantine_run(struct scout_server *s);

/* ---- lease.c ---- */

/* Before the loop. */
int scout__lease_listen(struct scout_server *s, char *err, size_t err_len);
int scout__watch_add(struct scout_server *s, struct scout__watch *watch);
SCOUT_ON_LOOP void scout__lease_accept(struct scout_server *s);
SCOUT_ON_LOOP void scout__lease_readable(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__process_ended(struct scout_server *s, struct scout__peer *peer);
/* Send @peer every segment that it does not have yet. False: the socket is full; try again later. */
SCOUT_ON_LOOP bool scout__lease_deliver(struct scout_server *s, struct scout__peer *peer);
/* One message, with @n descriptors, to the connection @fd. False: it could not be sent now. */
SCOUT_ON_LOOP bool scout__lease_send(int fd, const struct scout__lease_msg *m, const int *fds, size_t n);
/* As if the peer had closed it. */
SCOUT_ON_LOOP void scout__lease_end(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__lease_close(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__process_unwatch(struct scout_server *s, struct scout__peer *peer);
/* Close connections that never said who they are; try blocked deliveries again. */
SCOUT_ON_LOOP void scout__leases_tick(struct scout_server *s);
/* After each batch of events. */
SCOUT_ON_LOOP void scout__graves_free(struct scout_server *s);

/* ---- withdraw.c: memory that moves between namespaces ---- */

/* The step of server.share. */
SCOUT_ON_LOOP void scout__share_job(struct scout_server *s, struct scout__run_item *item);
/* The chunk index of @ns goes: its workers are told to let go of all of it. */
SCOUT_ON_LOOP void scout__withdraw_bank(struct scout_server *s, const struct scout__ns *ns);
/* LEASE_RELEASED. */
SCOUT_ON_LOOP void scout__withdraw_released(struct scout_server *s, const struct scout__peer *peer, uint32_t segment);
/* @peer leaves, or has a new lease connection: it maps nothing any more that was withdrawn. */
SCOUT_ON_LOOP void scout__withdraw_gone(struct scout_server *s, const struct scout__peer *peer);
/* Tell those whose sockets were full. */
SCOUT_ON_LOOP void scout__withdraw_tick(struct scout_server *s);
/* After the last peer. */
SCOUT_ON_LOOP void scout__withdraw_fini(struct scout_server *s);

/* ---- status.c ---- */

SCOUT_ON_LOOP void scout__status(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op);

/* ---- paths.c: files beside the endpoint; start and stop only ---- */

SCOUT_ON_ANY int scout__paths_open(struct scout__paths *paths, const char *listen, char **ret_bind, char *err,
				   size_t err_len);
/* Remove private folders of dead servers under @base; returns how many. */
SCOUT_ON_ANY uint32_t scout__paths_sweep(const char *base);
SCOUT_ON_ANY void scout__paths_close(struct scout__paths *paths);

/* ---- loop.c ---- */

SCOUT_ON_ANY void *scout__loop_main(void *arg);

#endif
