/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_PROTOCOL_H
#define KVSCOUT_PROTOCOL_H

/*
 * The kvscout wire protocol, version 3. This file is the specification: a client in any language can be written
 * from it alone (protocol_local.h has what only peers on the server's machine need). It contains constants only;
 * nothing here is ever overlaid onto bytes.
 *
 * TRANSPORT
 *   ZeroMQ. The server binds a ROUTER, a client connects a DEALER. One protocol frame = one ZeroMQ message of one
 *   part (no empty delimiter). Client sockets should set ZMQ_IMMEDIATE=1 and ZMQ_LINGER=0, so that a request
 *   never reaches a server that was started after it was sent. A message of more parts than one is counted and
 *   dropped without an answer. A server with keys speaks ZeroMQ's CURVE: set the ZMQ_CURVE_* options, the rest is
 *   the same.
 *
 * NUMBERS
 *   All integers are unsigned and little-endian, without padding other than the reserved fields below. "bytes[n]"
 *   is n raw bytes. "str" is u16 length, then that many bytes of UTF-8 without a terminator. A namespace and a
 *   tenant are names: valid UTF-8 without control characters (U+0000..001F, U+007F..009F) and without U+2028 and
 *   U+2029, else RANGE. Other texts (of refusals, of `software`, names in STATUS) may hold anything: escape them
 *   before a terminal or a log gets them. lease_path is bytes, as the file system has them. Reserved fields are
 *   sent as zero and refused otherwise (BAD_RESERVED in headers, BAD_BODY in bodies).
 *
 * FRAME (SCOUT_FRAME_HEADER_BYTES = 32, then op_count operations back to back, nothing after the last)
 *   offset size field
 *    0     4    magic     SCOUT_WIRE_MAGIC, the bytes 'K' 'V' 'S' 'C'
 *    4     2    version   SCOUT_WIRE_VERSION
 *    6     2    reserved  0
 *    8     4    length    bytes of the whole frame with this header; equals the ZeroMQ message size
 *   12     4    op_count  1 .. SCOUT_MAX_OPS
 *   16     8    epoch     from the server: the random id of this server start, never 0.
 *                         from a client: the epoch of its last HELLO reply; 0 before the first one. Every
 *                         operation but HELLO, PING and STATUS is refused (SCOUT_WIRE_STALE_EPOCH) when this is
 *                         not the server's epoch.
 *   24     8    sent_us   sender's monotonic clock in microseconds when the frame was sent. The server keeps the
 *                         smallest difference to its own clock per peer, so it knows how long a frame waited in a
 *                         socket buffer (a stopped server that resumes must not execute what expired meanwhile).
 *                         0: the sender has no clock, and its frames never count as having waited. Frames of a
 *                         connection are sent in the order of their sent_us. When sent_us goes back by more than
 *                         5 s, the server forgets what it knew of this clock, and this frame has not waited: one
 *                         wrong number cannot make the operations after it expire. A number less far in the future
 *                         makes later frames count as waiting, for up to 2 minutes. A wrong clock harms only its
 *                         own peer.
 *
 * OPERATION (SCOUT_OP_HEADER_BYTES = 24, then the body)
 *    0     1    opcode    SCOUT_OP_*
 *    1     1    kind      0 request, 1 reply
 *    2     2    status    request: 0. reply: SCOUT_WIRE_*
 *    4     4    length    bytes of the body, without this header
 *    8     8    corr      correlation id: the client's choice, not 0, unique among its unanswered operations;
 *                         returned in the reply. The server does not compare: two operations with one corr get a
 *                         reply each, which the client cannot tell apart. For STORE and RETRIEVE corr names the
 *                         hold, and may not be the corr of another hold that is not done (STATE)
 *   16     4    budget_us request: microseconds that are left of the caller's deadline when the frame is sent, 0
 *                         = none. The server answers before it ends, and SCOUT_WIRE_EXPIRED if it ended before
 *                         the operation was read: EXPIRED means that it was not executed and changed nothing.
 *                         Send 0 with FINISH, STORE_DONE and RETRIEVE_DONE: they give back what would stay
 *                         pinned, and the server executes them whatever their budget says. reply: 0
 *   20     4    reserved  0
 *
 *   Every request gets exactly one reply with the same opcode and corr. Replies may be grouped, split over frames
 *   and reordered. A reply whose status is not 0 has, whatever its opcode, the body { str text }: a sentence for
 *   a person. A request with an opcode that the server does not know is answered with that opcode and
 *   SCOUT_WIRE_UNKNOWN_OP.
 *
 *   A frame that cannot be taken apart is answered by one operation SCOUT_OP_ERROR, kind 1, corr 0, with the
 *   first status that applies, in this order:
 *     version is not SCOUT_WIRE_VERSION                                             SCOUT_WIRE_BAD_VERSION (the reply
 *                         frame has the server's version; the text names it)
 *     longer than SCOUT_MAX_FRAME, or op_count 0 or over SCOUT_MAX_OPS              SCOUT_WIRE_TOO_LARGE
 *     length field and message size differ                                          SCOUT_WIRE_TRUNCATED
 *     the frame's reserved field is not 0                                           SCOUT_WIRE_BAD_RESERVED
 *     operation by operation: it reaches beyond the end                             SCOUT_WIRE_TRUNCATED
 *                             reserved, kind or status is not 0, or corr is 0       SCOUT_WIRE_BAD_RESERVED
 *     bytes are left after the last operation                                       SCOUT_WIRE_TRUNCATED
 *   None of the operations of such a frame is executed. A message whose magic is wrong, or that is shorter than a
 *   frame header, is counted and dropped without an answer: its sender does not speak this protocol.
 *
 * ORDER OF A CONVERSATION
 *   HELLO first: before it every operation but PING, STATUS and those of operators (PEERS, TENANTS, DROP) is
 *   refused with SCOUT_WIRE_NO_HELLO (even if the epoch is wrong, too). HELLO again after each
 *   reconnect (a DEALER that reconnects is a new peer for the ROUTER; `token` names the peer that it was, and `secret`
 *   proves it), and after every STALE_EPOCH. A peer without a lease connection that sends no frame for
 *   peer_timeout_ms (a key of the server, default 10 s), and for three of its heartbeats (at most half an hour), is
 *   forgotten within a second more: its sessions end, and its next operation is refused with NO_HELLO. So is a peer
 *   without a lease connection whose ZeroMQ connection ends, unless it says HELLO with its token and secret within
 *   SCOUT_RECONNECT_MS; until then it keeps what it had. Time in which
 *   the server did not run does not count. A peer with a lease connection lives as long as its process.
 *   Only the connection of the last HELLO is the peer's. Operations from another one are refused with NO_HELLO, also if
 *   a client chose a ZeroMQ identity and a later connection has the same one.
 *
 *   A server may give rights to keys and users: HELLO for some namespaces only, PEERS, TENANTS and DROP for operators only,
 *   in STATUS only own namespaces. All else is refused with SCOUT_WIRE_RIGHTS, at any time.
 *
 * WHO MAY SPEAK FOR A PEER
 *   The reply to a client's first HELLO has a secret, which the server draws for each peer. Keep it, and show it with
 *   every further HELLO and with LEASE_HELLO. A HELLO that repeats the token of a peer without its secret is refused
 *   with SCOUT_WIRE_SECRET and changes nothing; a LEASE_HELLO is answered with LEASE_GONE. A server that does not know
 *   the token does not look at the secret and draws a new one: take the secret from each reply. If the reply to a first
 *   HELLO is lost, the client has no secret: HELLO again is refused with SECRET. Then draw a new token and send zeroes as
 *   the secret: you are a new peer. The old one ends as after a crash.
 *   Everything else that names something of a peer counts only from that peer's connection: tickets (but a worker of
 *   the namespace that was told one may RETRIEVE and STORE with it), store_id and retrieve_id. Draw tickets and
 *   correlation ids at random, or let them begin at a random number. Logs and PEERS show a peer's `id`, from which
 *   neither token nor secret can be found.
 *
 * STOPPING
 *   A server that was told to stop refuses every operation but PING, STATUS, PEERS and TENANTS with
 *   SCOUT_WIRE_SHUTDOWN, and does not carry it out. Operations that wait for their answers then get them within 200 ms, or else SHUTDOWN. A RESET
 *   or CLEAR that was answered SHUTDOWN, or not at all, has to be sent to the next server, before any LOOKUP, STORE
 *   or RETRIEVE; so has one that was refused with SCOUT_WIRE_LIMIT. A hold needs no DONE any more: it ends with the
 *   server. HELLO to the next server carries the stamps of the last reply that was not refused.
 *
 * FLOW CONTROL
 *   Operations: a peer may have `credits` (of HELLO's reply) unanswered; one more is refused with
 *   SCOUT_WIRE_LIMIT. PING and STATUS need no credit, nor do PEERS, TENANTS and DROP. A frame may have one of
 *   STATUS, PEERS, TENANTS, DROP and FEED; each further one in it is refused with SCOUT_WIRE_LIMIT. Wait for the reply before
 *   the next of them: a reply may have several hundred KB.
 *   Bytes: read replies as they come. The server ends the connection of a peer that has more than SCOUT_MAX_UNREAD
 *   bytes of unread replies (on the ZeroMQ connection: bytes that its sockets could not pass on; in a channel:
 *   bytes that wait for room in the ring), and a connection without HELLO that has more than
 *   SCOUT_MAX_UNREAD_STRANGER. All peers together may have four times the first limit, all others sixteen times the
 *   second, and one connection at most the rest of that. The server takes back the grants of the lost replies; the
 *   peer stays known by its token, and HELLO on a new connection goes on.
 *
 * GROUPS
 *   A group is a set of layers whose KV is stored and needed alike. A namespace has 1..SCOUT_MAX_GROUPS of them,
 *   and a group's number is its place in HELLO. A model whose layers are all alike has one group, number 0, with
 *   SCOUT_POLICY_ALL. A prompt has one chain of hashes, one for every hash_tokens tokens: each covers the prompt
 *   from its first token on. The KV of unit_tokens tokens of one group is an object of that group. Objects lie at
 *   multiples of unit_tokens, and an object is named by its group and the hash at its end. Where the unit is
 *   chunk_tokens, an object is also called a chunk. Lengths and positions (skip, expect, hit, from, to, ...) are
 *   counted in hashes from the start of the prompt: a length of 3 is 3 * hash_tokens tokens. A length L is
 *   restorable if, on all KV ranks, each group has the objects that its policy needs:
 *     SCOUT_POLICY_ALL     all objects up to L, and L is a multiple of unit_tokens
 *     SCOUT_POLICY_WINDOW  the objects in which the span_tokens - 1 tokens before L lie: a sliding window of
 *                          span_tokens
 *     SCOUT_POLICY_LOCAL   the objects in which the tokens before L lie that share a run of span_tokens tokens
 *                          with the token at L (runs begin at multiples of span_tokens): chunked local attention.
 *                          No object if L begins such a run
 *     SCOUT_POLICY_STATE   the one object that ends at L: recurrent state
 *   With margin_tokens a group also needs the objects of so many tokens after L (draft heads look one unit
 *   further). These are the rules by which vLLM finds its own prefixes (the managers in
 *   vllm/v1/core/single_type_kv_cache_manager.py).
 *   kv_ranks * readers workers hold the KV. A group with another number of readers has kv_ranks * readers / its
 *   readers shards.
 *   At each server this must be a whole number, and at most SCOUT_MAX_RANKS; else HELLO is refused with
 *   SCOUT_WIRE_RANGE. A KV rank that registers no table of a group has no shard of it, and no length needs one.
 *   If no worker of a server has layers of a group, that group makes no length unrestorable.
 *   A server may refuse groups that it does not carry out with SCOUT_WIRE_UNSUPPORTED. This release carries out all.
 *
 * BODIES. Requests first, then the reply with status 0. Each is followed by nothing: a body that is longer or
 * shorter than its fields is refused with SCOUT_WIRE_BAD_BODY.
 *
 * HELLO          u64 token           random, not 0, the same until a HELLO is refused with SECRET: names the client.
 *                                    Tell it to nobody else
 *                u16 role            SCOUT_ROLE_*
 *                u16 hash_bytes      16..32, all hashes of this namespace
 *                u32 chunk_tokens    tokens in a chunk, not 0: the unit of groups that have no reason for another
 *                                    one
 *                u16 rank_first      first KV rank that this server holds (0 with one server)
 *                u16 rank_count      how many of the KV ranks this server holds, 1..SCOUT_MAX_RANKS
 *                u16 kv_ranks        KV ranks of the model, 1..SCOUT_MAX_RANKS; rank_first + rank_count <=
 *                                    kv_ranks
 *                u16 readers         workers that read each shard, 1..SCOUT_MAX_READERS
 *                u32 heartbeat_ms    how often the peer sends PING while idle, 1..600000; 0 = default 1000, more
 *                                    counts as 600000
 *                u32 hash_tokens     tokens from one hash of a prompt to the next, not 0
 *                u64 weights         version of the model weights; 0 = whatever the namespace has
 *                u64 joined          role worker: since when it is in the namespace, as a reply of this or an
 *                                    earlier server said; 0: the worker's first HELLO. Role client: 0
 *                u64 generation      the last CLEAR of this namespace that the peer has been told of: its name,
 *                u64 cleared         and its stamp; both 0: none. See CLEAR
 *                                    joined and cleared are microseconds since 1970, drawn by a server. A stamp
 *                                    more than SCOUT_MAX_STAMP_AHEAD_US ahead of this server's clock is refused
 *                                    with RANGE unless this server drew it: HELLO again with
 *                                    zeroes in all three, then CLEAR if the last one was this peer's. A stamp that a server handed out may
 *                                    always be repeated, in requests and to other servers with a right clock
 *                bytes[16] secret    of the last reply to HELLO; zeroes before the first one, and with a new token
 *                str namespace       1..255 bytes
 *                u16 n_groups        1..SCOUT_MAX_GROUPS; more: SCOUT_WIRE_GROUP_LIMIT
 *                u16 reserved        0
 *                n_groups * { u16 policy         SCOUT_POLICY_*
 *                             u16 readers        workers that read each shard of this group, 1..SCOUT_MAX_READERS
 *                             u32 unit_tokens    tokens of one object, a multiple of hash_tokens, not 0
 *                             u32 span_tokens    of WINDOW and LOCAL, not 0; of the others 0
 *                             u32 margin_tokens }
 *                The first HELLO of a namespace fixes its parameters; a later HELLO with other parameters is
 *                refused with SCOUT_WIRE_NAMESPACE, or with SCOUT_WIRE_GROUPS_DIFFER if the groups differ, and the
 *                text names the field. When all peers have left, a HELLO with other parameters makes the namespace
 *                anew, and its cached objects are lost (while sessions or holds of those peers are still being
 *                ended: LIMIT, try again). A HELLO that repeats a known token and shows its secret replaces the old
 *                connection of that client; its sessions stay. A peer that gave a version of the weights is refused with
 *                SCOUT_WIRE_WEIGHTS, at HELLO and at LOOKUP, FEED, STORE and RETRIEVE, while the namespace has another
 *                version; if all peers have left, the namespace changes to the new version. In a namespace without
 *                a version, the first version that a peer gives becomes that of all it has: if that could be of
 *                other weights than yours, give 0, look at the reply, and RESET.
 *                A server has room for a configured number of namespaces (max_namespaces, 256 unless set). For
 *                one more it drops a namespace that all peers have left, with all its objects: first one without
 *                chunks, then by the time since the last peer left; when all are in use, HELLO is refused with
 *                LIMIT.
 *                A second HELLO on one connection changes the version that this peer gave (and heartbeat_ms)
 *                from the next operation on, and nothing else; a refused HELLO changes nothing.
 *   reply:       u32 credits         operations that the client may have unanswered
 *                u32 max_frame       bytes; larger frames are refused
 *                u64 weights         the version that the namespace has
 *                u64 joined          role worker: since when this peer is in the namespace; send it in later
 *                                    HELLOs. Client: 0
 *                u64 generation      the last CLEAR that the server knows of, and
 *                u64 cleared         its stamp; send both in later HELLOs. Both 0: none
 *                bytes[16] secret    random, not all 0: show it in later HELLOs and in LEASE_HELLO
 *                u64 id              random: names this peer in the server's logs and in PEERS, and nothing else
 *                str software        for logs
 *                str lease_path      unix socket (SOCK_SEQPACKET) of the lease connection; empty when the server
 *                                    is not on this machine. For a server on ipc://PATH it is PATH.lease, so a
 *                                    peer in another mount namespace finds it by the PATH that it has itself
 *
 * PING           (empty)             The server answers it at once, however long it takes for other operations. A
 *                                    peer that waits for an answer sends one when nothing has come for a while
 *                                    (the library: 150 ms), and connects anew when no frame follows (300 ms). An
 *                                    idle peer sends one every heartbeat_ms
 *   reply:       (empty)
 *
 * LOOKUP         u64 ticket          random, not 0, new for every lookup: names the session that this opens
 *                u32 n               number of hashes, 1..SCOUT_MAX_CHUNKS
 *                u32 first           hashes of the prompt before the first one here: the client has that part
 *                                    itself, and does not name it; first + n <= SCOUT_MAX_CHUNKS
 *                u32 beyond          trailing hashes that no length counts: they are here for groups that need
 *                                    objects after a length; 0..n
 *                u32 skip            leading length that the GPU has already: it counts as present, is not looked
 *                                    at and not promised; first..first + n - beyond
 *                u32 expect          length that the caller expects to appear soon (key polling), 0 = none; at
 *                                    most first + n - beyond
 *                u32 poll_timeout_ms how long to re-ask for expected objects that are late, at most
 *                                    SCOUT_MAX_POLL_MS; 0 = one shot. It ends with budget_us, if that is sooner
 *                u32 poll_interval_ms how often to re-ask; 0 = one shot
 *                u16 more            how many restorable lengths to return in addition to the longest,
 *                                    below SCOUT_MAX_LENGTHS
 *                u16 flags           SCOUT_LOOKUP_*; all other bits are 0
 *                str tenant          0..255 bytes
 *                bytes[n * hash_bytes] the hashes, in order
 *   reply:       u32 hit             the longest restorable length (with the skipped part); what it needs is
 *                                    readable and promised. 0: none
 *                u32 l1              objects of the hit in host memory (skipped ones not counted)
 *                u32 l2              objects of the hit in L2 only; with one group l1 + l2 <= hit
 *                u32 limited         1: the hit was cut because max_promised is reached; else 0
 *                u32 n_more          other restorable lengths: at most `more` of the request
 *                n_more * u32        the lengths, the longest first, each below the one before it and below hit;
 *                                    what they need is promised too
 *                A session exists from now on, also for hit = 0, until FINISH, or until the client is gone.
 *   SCOUT_LOOKUP_AHEAD asks for each object, not for a length, if the client does not know yet what the GPU
 *   has.
 *                skip is `first`, and RENEW is not set (RANGE). The server goes on after a chunk that it does
 *                not have; it promises all that it has, as far as max_promised allows. hit, l1 and l2 of the
 *                reply are about the longest restorable length, and the reply goes on with
 *                u32 known           length that was looked at; the server has not looked further, because
 *                                    max_promised was reached (limited is 1) or the budget ended. hit..n
 *                u32 reserved        0
 *                then for each group, in the order of their numbers, m = known * hash_tokens / its unit_tokens,
 *                rounded down, and
 *                bytes[(m + 7) / 8]  a bit for each of its objects, the lowest of the first byte first: 1, it is
 *                                    there and promised
 *                bytes[(m + 7) / 8]  likewise: 1, it is one of these, and in L2 only
 *                Then ADMIT says which run is wanted (from: the chunks that the GPU has), and all others are
 *                given back. Only after that may the session be renewed, with a skip within that run, or with any
 *                skip if the run was empty. In the replies to such renewals l2 counts what renewals have found.
 *   SCOUT_LOOKUP_RENEW asks again in the session that an earlier, answered LOOKUP of this client
 *   opened.
 *                ticket, n, tenant and hashes are as in that LOOKUP (RANGE otherwise, as far as the server can
 *                tell: it compares n, and hash and tenant of the last chunk that the session promises); expect is
 *                0, and the server waits for nothing. skip is the same too; after an ADMIT whose range was not
 *                empty, any chunk from its `from` up to the end of what the session still promises. What the
 *                session promises stays promised and is not looked at again: the server goes on after it, and
 *                promises what it finds there. Nothing is touched, and the statistics of lookups do not count it a
 *                second time. Reply: as above, for the session as a whole, so within one session hit only grows; l1
 *                and l2 say where each chunk was when it was found.
 *                Refused with NO_SESSION when this client has no such session, with STATE while a LOOKUP or an
 *                ADMIT of the session is not answered and after a RETRIEVE from it. A refusal changes nothing:
 *                the session stays, with what it promised; so it does when the budget ends (EXPIRED). An ADMIT
 *                or RETRIEVE that arrives before the reply ends the renewal: the renewal is answered first, with
 *                what has been found so far.
 *
 *   SCOUT_LOOKUP_LOAD loads what the hit has in L2 only from now on, as the server's prefetch=on_lookup does. What has not
 *   begun to load when the session ends is not loaded.
 *
 * KEYS           u64 ticket          as in LOOKUP
 *                u16 n_parts         1..SCOUT_MAX_GROUPS
 *                u16 reserved        0
 *                str tenant          0..255 bytes
 *                n_parts * PART:
 *                  u16 group         larger than in the part before; not one of HELLO's: SCOUT_WIRE_GROUP
 *                  u16 reserved      0
 *                  u32 n             keys of the group, 1 or more; of all parts together at most SCOUT_MAX_KEYS, and
 *                                    n * unit_tokens / hash_tokens at most SCOUT_MAX_CHUNKS
 *                bytes[n * hash_bytes] for each part, in order: the hash at the end of each object
 *                Asks for objects by themselves: no key says anything of another key, and policies do not matter. A key
 *                that is named twice is promised twice. The server asks its L2 once about all keys that the pool does
 *                not have, and does not wait for objects that are being stored.
 *   reply:       u32 n               keys of the request
 *                u32 l1              hits that are in host memory
 *                u32 l2              hits that are in L2 only. If no worker of this server has layers of a group, all
 *                                    keys of the group are hits, and neither l1 nor l2 counts them
 *                u32 limited         1: max_promised is reached, or the pool has no room; else 0
 *                bytes[(n + 7) / 8]  `hits`: a bit for each key, in the order of the request, the lowest of the first
 *                                    byte first: 1, it is readable on all KV ranks of this server and promised
 *                bytes[(n + 7) / 8]  `later`: likewise: 1, the server could not say, because the budget ended first, or
 *                                    it is there and could not be promised (limited is 1). Ask again with a new ticket.
 *                                    If both bits are 0, it is not there
 *                A session exists from now on, as after LOOKUP, until FINISH, or until the client is gone. For RETRIEVE
 *                the i-th key of a group, from 0, is the group's object i of the session. ADMIT and LOOKUP with
 *                SCOUT_LOOKUP_RENEW are refused with STATE: all promises last until FINISH.
 *
 * ADMIT          u64 ticket
 *                u32 from            objects that a restore of [from, to) needs keep their promise, all others
 *                                    are given back
 *                u32 to              from >= to gives back everything; nothing is promised beyond the hit
 *   reply:       u32 kept            objects whose promise is left
 *                u32 reserved        0
 *
 * FINISH         u64 ticket          touches the objects that the session looked up and stored, gives back its
 *                                    promises, ends it
 *                u32 hint            SCOUT_FINISH_*: what the caller expects of the conversation
 *                u32 keep_ms         for how long the server keeps the objects that the session found and stored: nothing
 *                                    evicts them. 0: not at all; more than SCOUT_MAX_KEEP_MS counts as that. The time, a
 *                                    CLEAR, new weights, or the leaving of the namespace's last peer ends it; so does a
 *                                    FINISH with keep_ms, or with SCOUT_FINISH_UNLIKELY, of a prompt that goes on from
 *                                    this one or is the same
 *   reply:       u32 kept            leading hashes of the prompt that are kept; after KEYS, keys
 *                u32 outcome         SCOUT_OUTCOME_*: what became of keep_ms
 *                                    SCOUT_WIRE_NO_SESSION when there is none: harmless
 *
 * RESET          u64 weights         new version of the weights, not 0: all that is cached under another one is
 *                                    unreadable from the reply on, sessions of the namespace end. The version
 *                                    that the namespace has: no change. From then on this counts as the version
 *                                    that the client, or a worker that gave one, has given. A RESET from a worker
 *                                    that gave a version other than the namespace's is late: SCOUT_WIRE_WEIGHTS
 *   reply:       (empty)
 *
 * CLEAR          u64 generation      name of this clear: random, not 0; scout_clear() and scout_worker_clear() join
 *                                    a name whose low 16 bits are the high 16 bits of
 *                                    (name >> 16) * 0x9e3779b97f4a7c15. All that is cached in the namespace, in
 *                                    the pool and in the L2, is unreadable from the moment that the server reads
 *                                    this, sessions of the namespace end, and stores that are reserved or in
 *                                    flight are not committed. A name that the namespace has had (the server
 *                                    remembers the last 8) clears nothing again, so client and workers of one
 *                                    engine may send the same name in any order, and again after a lost reply.
 *                                    SCOUT_GENERATION_ANY, from a worker: clears nothing, but joins (below).
 *   reply:       u64 joined          all three as in HELLO's reply: the namespace's last clear. That is another
 *                                    clear if
 *                u64 generation      this one was late
 *                u64 cleared
 *                u32 stores          L2 stores that the server has
 *                u32 pending         of these, how many have not recorded this clear durably. The server neither
 *                                    reads nor writes such a store for this namespace until it has, and tries
 *                                    again for as long as it runs; if it ends before, what the store has comes
 *                                    back. The reply waits for the stores, at most for the server's
 *                                    l2_timeout_ms.
 *                Which workers are in. Stamps are microseconds since 1970 of a server's clock, and each server
 *                makes them grow: a clear's stamp is larger than any that the server has given or heard before. A
 *                worker that gave the namespace's version of the weights is always in. Any other worker is in
 *                while its `joined` is not less than the namespace's `cleared`, nor than the moment at which this
 *                server found that another server had just cleared the namespace. A worker that says HELLO with
 *                joined 0 joins with it. It also joins with each CLEAR that names the namespace's last clear, or
 *                SCOUT_GENERATION_ANY; not with a late one, which names an older clear. STORE and RETRIEVE of a
 *                worker that is not in are refused with SCOUT_WIRE_CLEARED: it may compute from KV that the clear
 *                should drop. A worker whose own CLEAR was answered may be out on the next server if the namespace
 *                has left that clear and come back to it: it says HELLO again, and the CLEAR again if the reply
 *                has that generation and a `cleared` above `joined`. Clients need not join. A HELLO whose `cleared`
 *                is larger than the namespace's tells a restarted server of a clear: the server then drops
 *                everything older, as if it had read the CLEAR.
 *                A CLEAR from a worker whose version is not the namespace's: SCOUT_WIRE_WEIGHTS, and nothing is
 *                cleared. Servers that share an L2 store learn of each other's clears from it: they read the
 *                record before they use the store for a namespace, when a peer says HELLO, and about once a
 *                second while the namespace has peers. What was stored before and after a clear has different
 *                names in the store in any case.
 *
 * REGISTER       (role worker)
 *                u16 kv_rank         within [rank_first, rank_first + rank_count)
 *                u16 reader          which of the readers, 0..readers-1
 *                u16 numa            NUMA node that the worker's pages are near to, plus 1; 0 = none. The pool's
 *                                    memory for this KV rank is taken from there if possible; the first REGISTER
 *                                    of the rank decides
 *                u16 n_tables        1..SCOUT_MAX_GROUPS; a table for each group that has layers on this worker
 *                n_tables * TABLE:
 *                  u16 group         larger than in the table before; not one of HELLO's: SCOUT_WIRE_GROUP
 *                  u16 dtype         0 opaque, 1 f16, 2 bf16, 3 f32, 4 f8_e4m3, 5 f8_e5m2, 6 i8
 *                  u32 block_tokens  tokens in an engine block; the group's unit_tokens is a multiple
 *                  u32 n_planes      not 0; of all tables together at most SCOUT_MAX_PLANES
 *                  str layout_tag    order of the elements in a block, in the engine's words: a name of 0..255
 *                                    bytes
 *                  n_planes * u64    bytes per block of each plane. A slot holds, plane by plane, the blocks of
 *                                    an object in token order: shard bytes = sum * unit_tokens / block_tokens
 *                The first REGISTER of a shard fixes its layout (all of a TABLE, tag included), or that the group has
 *                no layers there; another layout is refused with SCOUT_WIRE_SHARD_BYTES, unless it comes from the only
 *                worker left and nothing is held: then the pool starts anew. The shard of a worker in a group:
 *                (kv_rank * readers + reader) / readers of the group. SCOUT_WIRE_STATE without a lease connection: HELLO, then
 *                LEASE_HELLO and its LEASE_OK, then REGISTER.
 *   reply:       u32 segments        how many pool segments the lease connection has delivered or will deliver at
 *                                    once; 0 is usual at the start: the pool grows with the first STORE
 *                u16 n_tables        as in the request
 *                u16 reserved        0
 *                n_tables * { u64 shard_bytes
 *                             u64 slot_stride    bytes from one slot to the next, in segments for objects of that
 *                                                group }
 *
 * STORE          (role worker)
 *                u64 ticket          session that the keys belong to. 0 or an ended session is no error, except a
 *                                    session that a RESET or a CLEAR ended: SCOUT_WIRE_WEIGHTS, SCOUT_WIRE_CLEARED,
 *                                    because its KV is older than the RESET or CLEAR
 *                u32 n               objects, 1..SCOUT_MAX_CHUNKS
 *                u16 group           of all these objects; if this worker has registered no table of it:
 *                                    SCOUT_WIRE_GROUP
 *                u16 flags           SCOUT_STORE_DESCRIBED: descriptions follow; all other bits are 0
 *                str tenant          0..255 bytes
 *                bytes[n * hash_bytes] the hash at the end of each object
 *                n * { str description }  with the flag: 0..SCOUT_MAX_DESCRIPTION bytes for readers of FEED, which
 *                                    mean nothing to the server. It keeps the first that is not empty for as long
 *                                    as it keeps the object in host memory, and none beyond its feed_bytes.
 *   reply:       u64 store_id        the correlation id of this STORE, to be named in STORE_DONE; 0 when nothing
 *                                    was granted. While the store lives, no other STORE or RETRIEVE may use this
 *                                    id (STATE).
 *                u32 n
 *                u32 reserved        0
 *                n * GRANT           state GRANTED: write here. PRESENT: readable, or another store is writing
 *                                    it, or this one does (an object that is named twice), or its writer died
 *                                    and the slot is set aside for the server's dead_writer_ms; skip it.
 *                                    NO_ROOM: this one and all after it got no slot.
 *
 * STORE_DONE     u64 store_id
 *                u32 n               how many of its grants were GRANTED; or 0, with committed 0, from a worker
 *                                    that has not seen the reply (the connection was lost) and gives up whatever
 *                                    it granted
 *                u32 committed       how many GRANTED slots, in order, are completely written; the rest is given
 *                                    up. Send this only when no copy into any slot of this store is running any more.
 *   reply:       u32 readable        chunks that became a hit by this, because all other ranks had stored theirs
 *                u32 reserved        0
 *
 * RETRIEVE       (role worker)
 *                u64 ticket
 *                u16 n_parts         1..SCOUT_MAX_GROUPS
 *                u16 reserved        0
 *                n_parts * PART:
 *                  u16 group         larger than in the part before; without a registered table:
 *                                    SCOUT_WIRE_GROUP
 *                  u16 reserved      0
 *                  u32 from          the group's objects in [from, to) of the session; from <= to, both multiples
 *                                    of the unit
 *                  u32 to            at most n of its LOOKUP, else RANGE (of KEYS: what its largest part reaches
 *                                    to); of all parts together to - from at most SCOUT_MAX_CHUNKS. In a group
 *                                    with policy ALL the range need not be what ADMIT kept: an object whose
 *                                    promise was given back, or that the LOOKUP skipped, is granted if it is
 *                                    there. In other groups, objects that no length of the answer needs, or that
 *                                    ADMIT gave back, are MISSING; so are objects after the hit. from = to: none
 *                The promises of all parts become one hold, at once. Without an object: n = 0, and
 *                retrieve_id 0
 *   reply:       u64 retrieve_id     the correlation id of this RETRIEVE, to be named in RETRIEVE_DONE, even if
 *                                    the reply was never seen; 0 when nothing was granted
 *                u32 n               objects of all parts
 *                u32 reserved        0
 *                n * GRANT           part by part, in order. GRANTED: read here, it is held for this worker.
 *                                    MISSING: it is not there any more.
 *
 * RETRIEVE_DONE  u64 retrieve_id
 *                u32 mismatches      slots whose generation word changed under the copy, at most as many as were
 *                                    GRANTED (RANGE, and the hold stays): a bug, counted
 *                u32 n               0, or as many as were GRANTED (else RANGE, and the hold stays)
 *                bytes[n]            of a worker that has compared them with what it computed itself: 0: not this one;
 *                                    else SCOUT_FOUND_COMPARED, with SCOUT_FOUND_DIFFERS if it is other KV, plus how
 *                                    many of these its error, a part of the norm, is above: 0, 0.001, 0.003, 0.01,
 *                                    0.03, 0.1, 0.3, 1 (more than 8 counts as 8)
 *   reply:       (empty)             SCOUT_WIRE_NO_SESSION when this worker has no such hold: harmless, changes
 *                                    nothing
 *
 * STATUS         (empty)             one for each frame, see FLOW CONTROL
 *   reply:       u32 n, then n times { str name, u64 value }: counters by name, for example "l1.bytes_used".
 *                Names are only ever added.
 *
 * PEERS          (for operators, without HELLO, as TENANTS and DROP: the sender becomes no peer)
 *                u32 first           number of the first peer wanted; 0: from the start
 *                u32 reserved        0
 *   reply:       u32 next            `first` of the request that goes on; 0: these were the last
 *                u32 n               peers that follow, at most SCOUT_MAX_LISTED
 *                n * { u64 id              as in the reply to its HELLO
 *                      u16 role            SCOUT_ROLE_*
 *                      u16 kv_rank         that it has registered, plus 1; 0: none
 *                      u32 pid             0: unknown (no lease connection)
 *                      u64 unread_bytes    replies that wait for room in its channel: it does not read them
 *                      u32 silent_ms       since its last frame
 *                      u32 waiting         operations that it sent and that are not answered
 *                      u32 sessions        requests that it looked up and has not finished
 *                      u32 holds           retrieves and stores of it that are running
 *                      str namespace }
 *
 * TENANTS        str namespace       1..255 bytes; none of that name: SCOUT_WIRE_STATE
 *   reply:       u32 tenants         that have stored something
 *                u32 n               of these, those with most in host memory, the largest first; at most
 *                                    SCOUT_MAX_LISTED
 *                n * { u64 bytes     in host memory
 *                      str tenant }
 *
 * DROP           u64 generation      random, neither 0 nor 2^64 - 1: names this drop. With L2, a name that is known
 *                                    drops nothing, so that the DROP may be repeated
 *                u32 flags           SCOUT_DROP_TENANT: only what that tenant has stored; all other bits are 0
 *                u32 reserved        0
 *                str namespace       1..255 bytes; none of that name: SCOUT_WIRE_STATE
 *                str tenant          0..255 bytes; without the flag empty
 *                An operator drops what is cached, in host memory and in L2, as CLEAR does. But workers go on
 *                storing: the ones that are there count as joined after it, until this server ends. Of one tenant:
 *                only without L2 (otherwise SCOUT_WIRE_UNSUPPORTED, and nothing is dropped), and requests that
 *                were promised its objects before keep them
 *   reply:       u64 bytes           that were dropped from host memory; those that are being read leave when
 *                                    they have been
 *                u32 stores          L2 stores of the server
 *                u32 pending         of these, those that have not recorded the drop yet: repeat the DROP until it
 *                                    is 0
 *
 * FEED           what became a hit and what stopped being one on this server, in the peer's namespace
 *                u64 feed            0: start over. Otherwise as the last reply said
 *                u64 sequence        of the first event wanted: as the last reply said. 0 if feed is 0
 *                u64 cursor          as the last reply said, 0 if feed is 0
 *   reply:       u64 feed            names this feed until the server forgets its events: never 0
 *                u64 sequence        of the next event
 *                u64 cursor          0: the events are those from the sequence that was asked for on. Otherwise they
 *                                    are some of what is a hit now, and the next request goes on from here
 *                u32 flags           SCOUT_FEED_LOST: the server does not have what was asked for (any more): no
 *                                    events follow, forget all, and start over. SCOUT_FEED_MORE: there is more now
 *                u32 n               events that follow
 *                n * EVENT
 *                To start over, ask with zeroes, and then as each reply says. First come all hits in pages, those with
 *                descriptions after what comes before them in their prompts; the reply to the last of them has cursor
 *                0. Then come the events since the first page was asked for: an event may say again what a page has
 *                said. The server forgets the events of a namespace that no peer has read for a minute.
 *
 * EVENT          u16 kind            SCOUT_EVENT_*
 *                u16 medium          SCOUT_MEDIUM_*; 0 for CLEARED and DROPPED
 *                u16 group           0 for CLEARED and DROPPED
 *                u16 reserved        0
 *                str tenant          for CLEARED empty
 *                bytes[hash_bytes]   at the end of the object; for CLEARED and DROPPED zeroes
 *                str description     of STORED, as STORE gave it; empty: the server has none
 *                STORED: a hit, because all KV ranks of this server have it. REMOVED: no hit any more. CLEARED: so is
 *                all that the namespace had, on all media. DROPPED: so is all that the tenant had.
 *
 * GRANT (24 bytes)
 *                u32 segment         pool segment id, as named on the lease connection
 *                u16 state           SCOUT_GRANT_*; all other fields are 0 unless GRANTED
 *                u16 reserved        0
 *                u64 offset          of the slot's first byte in the segment
 *                u64 generation      what the slot's generation word holds now. The words lie at the start of the
 *                                    segment, one u64 for each slot: word i belongs to the slot at data_offset +
 *                                    i * slot_stride. Only the server writes them. A reader compares the word
 *                                    with this value before its copy and (acquire) after it: another value means
 *                                    that the bytes are not this chunk's. If data_offset leaves room for 24 bytes
 *                                    a slot, 16 for each slot follow all these words: u64 id of the worker that
 *                                    stored it (as in PEERS), u64 when, in Unix seconds; both 0: it came from L2, or is not
 *                                    known.
 */

/* Frame. */
#define SCOUT_WIRE_MAGIC 0x4353564bu /* "KVSC" */
#define SCOUT_WIRE_VERSION 3
#define SCOUT_FRAME_HEADER_BYTES 32
#define SCOUT_OP_HEADER_BYTES 24
#define SCOUT_GRANT_BYTES 24
#define SCOUT_SECRET_BYTES 16

/* Limits. */
#define SCOUT_MAX_FRAME 16777216u /* 16 MiB */
#define SCOUT_MAX_OPS 4096
#define SCOUT_MAX_CHUNKS 262144
#define SCOUT_MAX_KEYS 16384
#define SCOUT_MAX_RANKS 64
#define SCOUT_MAX_READERS 64
#define SCOUT_MAX_LISTED 256 /* peers or tenants in one reply */
#define SCOUT_MAX_DESCRIPTION 4096
#define SCOUT_MAX_PLANES 4096
#define SCOUT_MAX_GROUPS 32
#define SCOUT_MAX_LENGTHS 64
#define SCOUT_MAX_POLL_MS 3600000
#define SCOUT_RECONNECT_MS 10000                /* see ORDER OF A CONVERSATION */
#define SCOUT_MAX_NAME 255                      /* namespace, tenant, request id */
#define SCOUT_MAX_UNREAD 33554432u              /* 32 MiB of replies that a peer does not read */
#define SCOUT_MAX_UNREAD_STRANGER 2097152u      /* 2 MiB before HELLO */
#define SCOUT_MAX_STAMP (UINT64_MAX >> 1)       /* joined, cleared in replies */
#define SCOUT_MAX_HEARD_STAMP (UINT64_MAX >> 2) /* in requests, too: a server can always draw a larger one */
/* A stamp in a request may be so far ahead of the server's clock, unless that server drew it: a day, in us. */
#define SCOUT_MAX_STAMP_AHEAD_US (UINT64_C(24) * 3600 * 1000000)
#define SCOUT_GENERATION_ANY UINT64_MAX /* CLEAR: whatever the namespace has */
#define SCOUT_MIN_HASH 16
#define SCOUT_MAX_HASH 32

/* Opcodes: fixed for ever. */
#define SCOUT_OP_HELLO 1
#define SCOUT_OP_PING 2
#define SCOUT_OP_LOOKUP 3
#define SCOUT_OP_ADMIT 4
#define SCOUT_OP_FINISH 5
#define SCOUT_OP_RESET 6
#define SCOUT_OP_REGISTER 7
#define SCOUT_OP_STORE 8
#define SCOUT_OP_STORE_DONE 9
#define SCOUT_OP_RETRIEVE 10
#define SCOUT_OP_RETRIEVE_DONE 11
#define SCOUT_OP_STATUS 12
#define SCOUT_OP_ERROR 13
#define SCOUT_OP_CLEAR 14
#define SCOUT_OP_KEYS 15
#define SCOUT_OP_PEERS 16
#define SCOUT_OP_TENANTS 17
#define SCOUT_OP_DROP 18
#define SCOUT_OP_FEED 19
#define SCOUT_OP_LAST 19 /* libcommon/wire/msg.h lists what a new one needs */

#define SCOUT_KIND_REQUEST 0
#define SCOUT_KIND_REPLY 1

/* hint of FINISH: nothing is known; a later request will go on where this one ended; none will. */
#define SCOUT_FINISH_UNKNOWN 0
#define SCOUT_FINISH_LIKELY 1
#define SCOUT_FINISH_UNLIKELY 2

/*
 * What became of a wish: there was none; all of it is done; a part of it, or for a shorter time; nothing, for want of
 * room; nothing, because there was nothing to do it with.
 */
#define SCOUT_OUTCOME_NONE 0
#define SCOUT_OUTCOME_ACCEPTED 1
#define SCOUT_OUTCOME_CLIPPED 2
#define SCOUT_OUTCOME_REJECTED 3
#define SCOUT_OUTCOME_MISSING 4
#define SCOUT_OUTCOME_LAST 4

#define SCOUT_MAX_KEEP_MS 3600000u

/* Flags of LOOKUP. */
#define SCOUT_LOOKUP_RENEW 1u
#define SCOUT_LOOKUP_AHEAD 2u
#define SCOUT_LOOKUP_LOAD 4u
#define SCOUT_LOOKUP_FLAGS 7u /* all of them */

/* Flags of DROP. */
#define SCOUT_DROP_TENANT 1u

/* Flags of STORE. */
#define SCOUT_STORE_DESCRIBED 1u

/* In each byte of RETRIEVE_DONE. */
#define SCOUT_FOUND_COMPARED 0x80u
#define SCOUT_FOUND_DIFFERS 0x40u
#define SCOUT_FOUND_BOUNDS 8u /* in the bits below */

/* Flags in a reply of FEED; kinds and media of its events. */
#define SCOUT_FEED_LOST 1u
#define SCOUT_FEED_MORE 2u
#define SCOUT_EVENT_STORED 1
#define SCOUT_EVENT_REMOVED 2
#define SCOUT_EVENT_CLEARED 3
#define SCOUT_EVENT_DROPPED 4
#define SCOUT_EVENT_LAST 4
#define SCOUT_MEDIUM_L1 1 /* host memory */
#define SCOUT_MEDIUM_L2 2
#define SCOUT_MEDIUM_LAST 2

/* What a group needs for a length: see GROUPS. */
#define SCOUT_POLICY_ALL 0
#define SCOUT_POLICY_WINDOW 1
#define SCOUT_POLICY_LOCAL 2
#define SCOUT_POLICY_STATE 3
#define SCOUT_POLICY_LAST 3

#define SCOUT_ROLE_CLIENT 1
#define SCOUT_ROLE_WORKER 2

/* Status of a reply. Not the library's error codes: those are SCOUT_ERR_*. */
#define SCOUT_WIRE_OK 0
#define SCOUT_WIRE_TRUNCATED 1
#define SCOUT_WIRE_BAD_VERSION 2
#define SCOUT_WIRE_TOO_LARGE 3
#define SCOUT_WIRE_BAD_RESERVED 4
#define SCOUT_WIRE_BAD_BODY 5 /* the body is not as long as its fields say, or a reserved field in it is not 0 */
#define SCOUT_WIRE_UNKNOWN_OP 6
#define SCOUT_WIRE_NO_HELLO 7
#define SCOUT_WIRE_STALE_EPOCH 8
#define SCOUT_WIRE_EXPIRED 9
#define SCOUT_WIRE_NAMESPACE 10
#define SCOUT_WIRE_SHARD_BYTES 11
#define SCOUT_WIRE_NO_SESSION 12
#define SCOUT_WIRE_STATE 13         /* not legal in this state: a ticket in use, an ADMIT before the answer, no lease */
#define SCOUT_WIRE_LIMIT 14         /* a configured limit, or memory: sessions, peers, credits, operations that wait */
#define SCOUT_WIRE_NO_ROOM 15       /* the pool cannot hold one chunk of this namespace */
#define SCOUT_WIRE_WEIGHTS 16       /* the peer's weights version is not the namespace's */
#define SCOUT_WIRE_RANGE 17         /* a field is outside its range; the text names the field */
#define SCOUT_WIRE_SHUTDOWN 18      /* the server is draining */
#define SCOUT_WIRE_ROLE 19          /* not for this role, or this KV rank */
#define SCOUT_WIRE_CLEARED 20       /* a CLEAR dropped the objects named, or came after the worker joined */
#define SCOUT_WIRE_UNSUPPORTED 21   /* the protocol allows it, and this server does not carry it out */
#define SCOUT_WIRE_GROUPS_DIFFER 22 /* the namespace has other groups */
#define SCOUT_WIRE_GROUP 23         /* no such group, or this worker has registered no table of it */
#define SCOUT_WIRE_GROUP_LIMIT 24   /* more than SCOUT_MAX_GROUPS */
#define SCOUT_WIRE_SECRET 25        /* HELLO with the token of a peer, without its secret */
#define SCOUT_WIRE_RIGHTS 26        /* the sender's key or user may not do this, or not in this namespace */
#define SCOUT_WIRE_LAST 26

/* State of a grant. */
#define SCOUT_GRANT_GRANTED 1
#define SCOUT_GRANT_PRESENT 2
#define SCOUT_GRANT_NO_ROOM 3
#define SCOUT_GRANT_MISSING 4

#include <kvscout/protocol_local.h>

#endif
