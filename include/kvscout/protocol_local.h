/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_PROTOCOL_LOCAL_H
#define KVSCOUT_PROTOCOL_LOCAL_H

/*
 * The second part of the kvscout wire protocol, for peers on the server's machine: the lease connection, which each
 * worker there needs, and the channel, which is optional. The words are those of <kvscout/protocol.h>, which includes
 * this file.
 *
 * LEASE CONNECTION
 *   A SOCK_SEQPACKET unix socket next to the ZeroMQ one, for peers on the same machine; workers must have it.
 *   Messages are little-endian like the rest, "version" is SCOUT_LEASE_VERSION (3):
 *   client -> server  LEASE_HELLO  u32 SCOUT_LEASE_MAGIC, u16 type 1, u16 version, u64 token (that of HELLO), bytes[16]
 *                                  secret (of the reply to it)
 *                     LEASE_BYE    u32 magic, u16 type 2, u16 version, u64 token: this peer is leaving and has no
 *                                  copy running. Its sessions end and its holds are free at once.
 *                     LEASE_RELEASED u32 magic, u16 type 7, u16 version, u32 segment: answer to LEASE_WITHDRAW:
 *                                  it is unmapped, or was never mapped. For a segment that was not withdrawn
 *                                  this changes nothing.
 *                     LEASE_ASK_CHANNEL u32 magic, u16 type 8, u16 version, u64 reserved: asks for a channel
 *                     (below). After
 *                                  LEASE_OK; once for each HELLO that was said from a new ZeroMQ identity:
 *                                  any further question is answered with no channel. Each is answered, in
 *                                  order.
 *   server -> client  LEASE_OK     u32 magic, u16 type 3, u16 version, u64 epoch: bound to the peer of that token
 *                     LEASE_SEGMENT u32 magic, u16 type 4, u16 version, u32 segment, u32 slots, u64 bytes (of the
 *                                  memfd), u64 data_offset, u64 slot_stride, with one sealed memfd as SCM_RIGHTS. Sent
 *                                  to a worker for each segment of its KV rank, before the first grant in it; a
 *                                  worker that finds an unknown segment in a grant reads on here. A new lease
 *                                  connection gets all segments again, under the same numbers.
 *                                  The worker then unmaps the segments of the earlier connection, when the last
 *                                  copy in them has ended.
 *                     LEASE_WITHDRAW u32 magic, u16 type 6, u16 version, u32 segment: the server takes this
 *                                  segment away from the worker's namespace. No grant in it is open and none
 *                                  will follow. The worker unmaps it and answers LEASE_RELEASED; until then its
 *                                  bytes count as used. No time limit.
 *                     LEASE_GONE   u32 magic, u16 type 5, u16 version, u64 reserved: the server refuses this
 *                                  lease (no HELLO with this token, not its secret, another process's token, another
 *                                  user, too many) and closes
 *                     LEASE_CHANNEL u32 magic, u16 type 9, u16 version, u32 request_bytes, u32 reply_bytes, with
 *                                  three descriptors as SCM_RIGHTS: a sealed memfd, the server's doorbell (an eventfd),
 *                                  the peer's (one end of a stream socket pair), both non-blocking. Answers
 *                                  LEASE_ASK_CHANNEL; without descriptors and with both sizes 0: there is no
 *                                  channel.
 *   The server closes the connection on a message that is malformed, of another version or out of turn, without
 *   an answer. LEASE_HELLO comes first, within SCOUT_LEASE_HELLO_MS of the connect; a connection without it is
 *   closed then (LEASE_GONE), or before, the oldest first, when there are more than SCOUT_LEASE_MAX_UNBOUND of
 *   them. A second lease connection of a token, from the same process, takes the place of the first, which the
 *   server closes without a word; from another process it is refused. A second LEASE_HELLO on one connection is
 *   refused, and that connection closed.
 *   LEASE_SEGMENT may come before or after the reply to REGISTER, which travels another way; but a grant in a
 *   segment is answered only when the segment has been sent.
 *   The server reads the peer's pid and uid from the kernel (SO_PEERCRED) and watches the process by pidfd. While
 *   the process lives, what its workers hold stays held, however silent it is.
 *
 * CHANNEL
 *   Optional: frames through shared memory instead of the ZeroMQ socket, for peers with a lease connection. The
 *   same frames in the same order; what follows only says how their bytes travel. A peer that asks gets a new
 *   channel for each connection (each HELLO that it said from a new ZeroMQ identity ends the one before, with all
 *   that is in it). It asks when nothing is in flight; once it has the channel, all its frames travel there. The
 *   server answers there as soon as a first frame has come; a peer that does not use its channel just never
 *   writes to it. The ZeroMQ connection stays: its end, or the end of the lease connection, ends the
 *   channel.
 *
 *   The memory: a ring of request_bytes (peer to server) and one of reply_bytes (server to peer), both multiples
 *   of 8. Words are in host order, each in a cache line of its own:
 *     at SCOUT_CHANNEL_REQUESTS and at SCOUT_CHANNEL_REPLIES, the words of the two rings:
 *       + SCOUT_CHANNEL_TAIL           u64 bytes written since the start; the writer's
 *       + SCOUT_CHANNEL_HEAD           u64 bytes read since the start; the reader's
 *       + SCOUT_CHANNEL_READER_SLEEPS  u32 1: the reader wants its doorbell rung when tail moves
 *       + SCOUT_CHANNEL_WRITER_WAITS   u32 1: the writer wants its doorbell rung when head moves
 *     at SCOUT_CHANNEL_DATA the bytes of the request ring, then those of the reply ring; byte n is at n mod its
 *     size.
 *   A record: u32 length of the frame (1 .. SCOUT_MAX_FRAME), u32 0, the frame, padding to a multiple of 8. Tail
 *   and head move by multiples of 8, at any place in a record: one may be longer than the ring, and is written as
 *   it is read.
 *   To move an end: store it (release), full fence, read the other side's word; if it is 1, exchange it with 0,
 *   and if it was still 1, ring the other side: the peer adds 1 to the server's eventfd, the server sends a byte
 *   to the peer's socket. To sleep: store 1 in its own word, full fence, look at the other end once more. A
 *   reader that expects nothing urgent may sleep without this: the bytes stay until it reads. On a ring: drain
 *   the doorbell (the server's needs no reading), then look at the rings. End of file on the peer's socket: the
 *   server has closed the channel. A channel that breaks these rules ends the lease connection (by the server),
 *   or the connection (by the peer).
 */

/* Lease connection. */
#define SCOUT_LEASE_MAGIC 0x4c53564bu /* "KVSL" */
#define SCOUT_LEASE_VERSION 3
#define SCOUT_LEASE_HELLO_MS 10000
#define SCOUT_LEASE_MAX_UNBOUND 256 /* connections that have not said LEASE_HELLO */
#define SCOUT_LEASE_HELLO 1
#define SCOUT_LEASE_BYE 2
#define SCOUT_LEASE_OK 3
#define SCOUT_LEASE_SEGMENT 4
#define SCOUT_LEASE_GONE 5
#define SCOUT_LEASE_WITHDRAW 6
#define SCOUT_LEASE_RELEASED 7
#define SCOUT_LEASE_ASK_CHANNEL 8
#define SCOUT_LEASE_CHANNEL 9

/* Channel: offsets in its memory. */
#define SCOUT_CHANNEL_REQUESTS 0
#define SCOUT_CHANNEL_REPLIES 256
#define SCOUT_CHANNEL_TAIL 0
#define SCOUT_CHANNEL_HEAD 64
#define SCOUT_CHANNEL_READER_SLEEPS 128
#define SCOUT_CHANNEL_WRITER_WAITS 192
#define SCOUT_CHANNEL_DATA 4096
#define SCOUT_CHANNEL_MIN_BYTES 4096u

#endif
