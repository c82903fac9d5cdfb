/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/protocol.h>
#include <kvscout/types.h>

#include "group.h"
#include "wire.h"

/*
 * The codec of <kvscout/protocol.h>: one structure, one put and one get for every body. A get checks all that can be
 * checked without knowing the server's state: exact length, reserved fields, counts and ranges. Pointers in decoded
 * structures are views into the frame. A get returns SCOUT_WIRE_OK and writes *ret, or SCOUT_WIRE_BAD_BODY or
 * SCOUT_WIRE_RANGE and sets *ret_field (static) to the name of the field that is wrong, spelled as in protocol.h;
 * "length" when the body is longer or shorter than its fields say. It looks neither at the opcode (except for
 * one_u64) nor at the status: the caller has dispatched.
 *
 * Frames and names: msg.c. Bodies: msg_peer.c, msg_lookup.c, msg_keys.c, msg_transfer.c, msg_feed.c, msg_operator.c. Lease connection:
 * msg_lease.c.
 *
 * A new operation needs, in this order:
 *   its opcode and bodies                 include/kvscout/protocol.h (with SCOUT_OP_LAST)
 *   its name                              msg.c
 *   structure, put and get of each body   here and in one of the msg_*.c
 *   what each field allows, as text       msg_rules.c
 *   golden bytes and codec, both ways     tests/rigs/wire/msg_golden.h, msg_recode.c
 *   name, and a put of the golden bytes   tests/unit/wire/test_wire_bodies.c
 *   limits and reserved fields            tests/unit/wire/test_wire_strict.c
 *   inputs for the fuzzer                 tests/fuzz/corpus/msg
 *   its handler, scout__serve_NAME()      libserver/ops/NAME.c, in ops/meson.build and ops/ops_internal.h
 *   its row: handler, what takes back     libserver/ops/dispatch.c
 *   a call that sends it                  tests/rigs/wire/wire_ops.c (and fake_server.c, where clients or workers are tested with it)
 *   behaviour of the server               a test in tests/system/server; test_server.c sends each opcode
 */

struct scout__str {
	const char *p;
	uint16_t len;
};

struct scout__frame {
	uint64_t epoch;
	uint64_t sent_us;
	uint32_t op_count;
	uint16_t version;
	uint32_t length;
};

struct scout__op {
	uint8_t opcode;
	uint8_t kind;
	uint16_t status;
	uint32_t length; /* of the body */
	uint32_t budget_us;
	uint64_t corr;
	const uint8_t *body; /* decoded: view */
};

/*
 * Check a whole frame: header, every operation header, exact length. @requests: a server reads, and every operation
 * must have kind request, status 0 and a corr; else a client reads, and they must have kind reply, budget 0 and a
 * corr (0 is legal for SCOUT_OP_ERROR). Opcodes are not looked at. Returns SCOUT_WIRE_OK, or the status of the table
 * in protocol.h, or -1 for "drop without an answer" (magic, too short). Only after OK is *ret_frame written and may
 * scout__frame_next() be used.
 */
int scout__frame_check(const void *data, size_t len, bool requests, struct scout__frame *ret_frame);
/* The version in a frame whose check returned SCOUT_WIRE_BAD_VERSION. */
unsigned scout__frame_version(const void *data);

/* Reader over the operations of a checked frame. */
struct scout__reader scout__frame_ops(const void *data, size_t len);
/* The next operation; false at the end. */
bool scout__frame_next(struct scout__reader *ops, struct scout__op *ret_op);

/*
 * Build a frame: begin (on an empty writer), ops, end. op_begin returns the offset to give to op_end, which fills in
 * the length. A writer that ends with `bad` set holds no frame: no room, longer than SCOUT_MAX_FRAME, or op_count not
 * in 1..SCOUT_MAX_OPS. To take back an operation that did not fit, set len to its offset and bad to false.
 */
void scout__frame_begin(struct scout__writer *w);
size_t scout__op_begin(struct scout__writer *w, uint8_t opcode, uint8_t kind, uint16_t status, uint64_t corr,
		       uint32_t budget_us);
void scout__op_end(struct scout__writer *w, size_t op_offset);
void scout__frame_end(struct scout__writer *w, uint32_t op_count, uint64_t epoch, uint64_t sent_us);

/* Body of a reply whose status is not 0. */
void scout__put_text(struct scout__writer *w, const char *text);
int scout__get_text(const struct scout__op *op, struct scout__str *ret_text);

/*
 * What a peer knows of clears. In a HELLO: the peer's own view; in a reply: the namespace's state. Stamps are
 * microseconds since 1970 that the server makes grow.
 */
struct scout__clear_state {
	uint64_t joined;     /* for a worker: since when it is in; 0: new, or a client */
	uint64_t generation; /* the last clear's name; 0: none */
	uint64_t cleared;    /* the last clear's stamp; 0: none */
};

/* What proves that a sender is the peer whose token it says; the server draws it. All 0: none. */
struct scout__secret {
	uint64_t half[SCOUT_SECRET_BYTES / 8];
};
/* Takes equally long for any two: a stranger learns nothing from the time. */
static inline bool
scout__secret_equal(const struct scout__secret *a, const struct scout__secret *b)
{
	return ((a->half[0] ^ b->half[0]) | (a->half[1] ^ b->half[1])) == 0;
}
static inline void
scout__put_secret(struct scout__writer *w, const struct scout__secret *m)
{
	scout__put_u64(w, m->half[0]);
	scout__put_u64(w, m->half[1]);
}
static inline void
scout__get_secret(struct scout__reader *r, struct scout__secret *ret)
{
	ret->half[0] = scout__get_u64(r);
	ret->half[1] = scout__get_u64(r);
}

struct scout__hello {
	uint64_t token;
	uint16_t role;
	uint16_t hash_bytes;
	uint32_t chunk_tokens;
	uint16_t rank_first, rank_count, kv_ranks, readers;
	uint32_t heartbeat_ms;
	uint32_t hash_tokens;
	uint64_t weights;
	struct scout__clear_state clear;
	struct scout__secret secret;
	struct scout__str name_space;
	struct scout__groups groups;
};
/* One group with policy all, whose objects are chunks: sets hash_tokens and groups by chunk_tokens and readers. */
static inline void
scout__hello_one_group(struct scout__hello *m)
{
	m->hash_tokens = m->chunk_tokens;
	m->groups.n = 1;
	m->groups.group[0] = (struct scout__group){
		.policy = SCOUT_POLICY_ALL, .readers = m->readers, .unit_tokens = m->chunk_tokens};
}
void scout__put_hello(struct scout__writer *w, const struct scout__hello *m);
int scout__get_hello(const struct scout__op *op, struct scout__hello *ret, const char **ret_field);

struct scout__hello_reply {
	uint32_t credits;
	uint32_t max_frame;
	uint64_t weights;
	struct scout__clear_state clear;
	struct scout__secret secret;
	uint64_t id;
	struct scout__str software;
	struct scout__str lease_path;
};
void scout__put_hello_reply(struct scout__writer *w, const struct scout__hello_reply *m);
int scout__get_hello_reply(const struct scout__op *op, struct scout__hello_reply *ret, const char **ret_field);

/*
 * hash_bytes is the namespace's, known from HELLO. A put copies the hashes when m->hashes is not NULL; else the
 * caller puts n * hash_bytes bytes itself.
 */
struct scout__lookup_msg {
	uint64_t ticket;
	uint32_t n, first, beyond, skip, expect, poll_timeout_ms, poll_interval_ms;
	uint16_t more;
	uint16_t flags; /* SCOUT_LOOKUP_* */
	struct scout__str tenant;
	const uint8_t *hashes;
};
void scout__put_lookup(struct scout__writer *w, const struct scout__lookup_msg *m, unsigned hash_bytes);
int scout__get_lookup(const struct scout__op *op, unsigned hash_bytes, struct scout__lookup_msg *ret,
		      const char **ret_field);

struct scout__lookup_reply {
	uint32_t hit, l1, l2, limited;
	uint32_t n_more;
	const uint8_t *more; /* n_more little-endian u32; read with scout__more_at() */
};
#define SCOUT__LOOKUP_REPLY_BYTES 20u /* without further lengths */
void scout__put_lookup_reply(struct scout__writer *w, const struct scout__lookup_reply *m);
int scout__get_lookup_reply(const struct scout__op *op, struct scout__lookup_reply *ret, const char **ret_field);
uint32_t scout__more_at(const struct scout__lookup_reply *m, uint32_t i);

/* The reply to a LOOKUP with SCOUT_LOOKUP_AHEAD, for one group whose unit is hash_tokens. Both maps have (known + 7) / 8 bytes. */
struct scout__ahead_reply {
	struct scout__lookup_reply lookup;
	uint32_t known;
	const uint8_t *present, *in_l2;
};
#define SCOUT__AHEAD_REPLY_BYTES(known) (SCOUT__LOOKUP_REPLY_BYTES + 8 + 2 * (((size_t)(known) + 7) / 8))
void scout__put_ahead_reply(struct scout__writer *w, const struct scout__ahead_reply *m);
int scout__get_ahead_reply(const struct scout__op *op, struct scout__ahead_reply *ret, const char **ret_field);

/* The same for any groups: each map of a group has (n + 7) / 8 bytes. */
struct scout__ahead_groups {
	struct scout__lookup_reply lookup;
	uint32_t known;
	struct {
		uint32_t n; /* objects */
		const uint8_t *present, *in_l2;
	} of[SCOUT__GROUPS_MAX];
};
int scout__get_ahead_groups(const struct scout__op *op, const struct scout__groups *groups, uint32_t hash_tokens,
			    struct scout__ahead_groups *ret, const char **ret_field);

/* Decoded: groups ascend, no part is empty, and n is the sum over all parts, at most SCOUT_MAX_KEYS. */
struct scout__keys_msg {
	uint64_t ticket;
	uint32_t n;
	uint16_t n_parts;
	struct {
		uint16_t group;
		uint32_t n;
	} parts[SCOUT_MAX_GROUPS];
	struct scout__str tenant;
	const uint8_t *hashes; /* part by part */
};
#define SCOUT__KEYS_BYTES(n_parts) (14 + 8 * (size_t)(n_parts)) /* without tenant and hashes */
void scout__put_keys(struct scout__writer *w, const struct scout__keys_msg *m, unsigned hash_bytes);
int scout__get_keys(const struct scout__op *op, unsigned hash_bytes, struct scout__keys_msg *ret,
		    const char **ret_field);

/* Both maps have (n + 7) / 8 bytes. */
struct scout__keys_reply {
	uint32_t n, l1, l2, limited;
	const uint8_t *hit, *later;
};
#define SCOUT__KEYS_REPLY_BYTES(n) (16 + 2 * (((size_t)(n) + 7) / 8))
void scout__put_keys_reply(struct scout__writer *w, const struct scout__keys_reply *m);
int scout__get_keys_reply(const struct scout__op *op, struct scout__keys_reply *ret, const char **ret_field);

struct scout__admit_msg {
	uint64_t ticket;
	uint32_t from, to;
};
void scout__put_admit(struct scout__writer *w, const struct scout__admit_msg *m);
int scout__get_admit(const struct scout__op *op, struct scout__admit_msg *ret, const char **ret_field);
void scout__put_admit_reply(struct scout__writer *w, uint32_t kept);
int scout__get_admit_reply(const struct scout__op *op, uint32_t *ret_kept, const char **ret_field);

struct scout__finish_msg {
	uint64_t ticket;
	uint32_t hint; /* SCOUT_FINISH_* */
	uint32_t keep_ms;
};
#define SCOUT__FINISH_BYTES 16u
void scout__put_finish(struct scout__writer *w, const struct scout__finish_msg *m);
int scout__get_finish(const struct scout__op *op, struct scout__finish_msg *ret, const char **ret_field);

struct scout__finish_reply {
	uint32_t kept, outcome; /* SCOUT_OUTCOME_* */
};
#define SCOUT__FINISH_REPLY_BYTES 8u
void scout__put_finish_reply(struct scout__writer *w, const struct scout__finish_reply *m);
int scout__get_finish_reply(const struct scout__op *op, struct scout__finish_reply *ret, const char **ret_field);

/*
 * RESET: u64 weights, CLEAR: u64 generation, which must not be 0 (told apart by
 * op->opcode).
 */
void scout__put_one_u64(struct scout__writer *w, uint64_t v);
int scout__get_one_u64(const struct scout__op *op, uint64_t *ret, const char **ret_field);

struct scout__clear_reply {
	struct scout__clear_state clear;
	uint32_t stores;  /* L2 stores of the server */
	uint32_t pending; /* of these: have not recorded the clear yet */
};
void scout__put_clear_reply(struct scout__writer *w, const struct scout__clear_reply *m);
int scout__get_clear_reply(const struct scout__op *op, struct scout__clear_reply *ret, const char **ret_field);

/* PING, and all empty replies. */
int scout__get_empty(const struct scout__op *op, const char **ret_field);

/* A page table in REGISTER. */
struct scout__table_msg {
	uint16_t group, dtype;
	uint32_t block_tokens, n_planes;
	struct scout__str layout_tag;
	const uint8_t *plane_bytes; /* decoded: n_planes little-endian u64; read with scout__plane_bytes() */
};
uint64_t scout__plane_bytes(const struct scout__table_msg *m, uint32_t plane);

struct scout__register_msg {
	uint16_t kv_rank, reader, numa;
	uint16_t n_tables;
	struct scout__table_msg tables[SCOUT_MAX_GROUPS]; /* a put ignores them */
};
/* The fixed fields; then each table by scout__put_table(), @plane_bytes: host integers. */
void scout__put_register(struct scout__writer *w, const struct scout__register_msg *m);
void scout__put_table(struct scout__writer *w, const struct scout__table_msg *m, const uint64_t *plane_bytes);
int scout__get_register(const struct scout__op *op, struct scout__register_msg *ret, const char **ret_field);

struct scout__register_reply {
	uint32_t segments;
	uint16_t n_tables;
	struct {
		uint64_t shard_bytes, slot_stride;
	} tables[SCOUT_MAX_GROUPS];
};
#define SCOUT__REGISTER_REPLY_BYTES(n_tables) (8 + 16 * (size_t)(n_tables))
void scout__put_register_reply(struct scout__writer *w, const struct scout__register_reply *m);
int scout__get_register_reply(const struct scout__op *op, struct scout__register_reply *ret, const char **ret_field);

struct scout__store_msg {
	uint64_t ticket;
	uint32_t n;
	uint16_t group;
	struct scout__str tenant;
	const uint8_t *hashes;
	struct scout__reader descriptions; /* left empty by a put; a get: n of them, as strings, if @described */
	bool described;                    /* a put: the caller puts n strings behind it */
};
void scout__put_store(struct scout__writer *w, const struct scout__store_msg *m, unsigned hash_bytes);
int scout__get_store(const struct scout__op *op, unsigned hash_bytes, struct scout__store_msg *ret,
		     const char **ret_field);

struct scout__grant {
	uint32_t segment;
	uint16_t state;
	uint64_t offset;
	uint64_t generation;
};
void scout__put_grant(struct scout__writer *w, const struct scout__grant *g);

/* Reply of STORE and RETRIEVE: id, n, reserved, then the grants one by one. */
struct scout__grants {
	uint64_t id;
	uint32_t n;
	const uint8_t *grants;
};
void scout__put_grants_head(struct scout__writer *w, uint64_t id, uint32_t n);
int scout__get_grants(const struct scout__op *op, struct scout__grants *ret, const char **ret_field);
/* Grant @i of a decoded reply; its state is checked: an unknown one comes back as all zeroes. */
struct scout__grant scout__grant_at(const struct scout__grants *m, uint32_t i);

struct scout__store_done_msg {
	uint64_t store_id;
	uint32_t n, committed;
};
void scout__put_store_done(struct scout__writer *w, const struct scout__store_done_msg *m);
int scout__get_store_done(const struct scout__op *op, struct scout__store_done_msg *ret, const char **ret_field);
void scout__put_store_done_reply(struct scout__writer *w, uint32_t readable);
int scout__get_store_done_reply(const struct scout__op *op, uint32_t *ret_readable, const char **ret_field);

/* Decoded: groups ascend, from <= to <= SCOUT_MAX_CHUNKS, and all parts together have at most SCOUT_MAX_CHUNKS hashes. */
struct scout__retrieve_msg {
	uint64_t ticket;
	uint16_t n_parts;
	struct {
		uint16_t group;
		uint32_t from, to;
	} parts[SCOUT_MAX_GROUPS];
};
#define SCOUT__RETRIEVE_BYTES(n_parts) (12 + 12 * (size_t)(n_parts))
/* For a namespace with one group. */
static inline struct scout__retrieve_msg
scout__retrieve_of(uint64_t ticket, uint32_t from, uint32_t to)
{
	return (struct scout__retrieve_msg){.ticket = ticket, .n_parts = 1, .parts[0] = {.from = from, .to = to}};
}
void scout__put_retrieve(struct scout__writer *w, const struct scout__retrieve_msg *m);
int scout__get_retrieve(const struct scout__op *op, struct scout__retrieve_msg *ret, const char **ret_field);

struct scout__retrieve_done_msg {
	uint64_t retrieve_id;
	uint32_t mismatches, n;
	const uint8_t *found; /* n */
};
void scout__put_retrieve_done(struct scout__writer *w, const struct scout__retrieve_done_msg *m);
int scout__get_retrieve_done(const struct scout__op *op, struct scout__retrieve_done_msg *ret, const char **ret_field);

/* STATUS reply: put the count, then each pair. */
void scout__put_status_item(struct scout__writer *w, const char *name, uint64_t value);
/* Checks all items; then the reader returns *ret_n items. */
int scout__get_status(const struct scout__op *op, uint32_t *ret_n, struct scout__reader *ret_items,
		      const char **ret_field);
bool scout__get_status_item(struct scout__reader *items, struct scout__str *ret_name, uint64_t *ret_value);

/* ---- FEED ---- */

struct scout__feed_msg {
	uint64_t feed, sequence, cursor;
};
void scout__put_feed(struct scout__writer *w, const struct scout__feed_msg *m);
int scout__get_feed(const struct scout__op *op, struct scout__feed_msg *ret, const char **ret_field);

struct scout__feed_event {
	uint16_t kind, medium, group;
	struct scout__str tenant;
	const uint8_t *hash; /* a put: NULL for zeroes */
	struct scout__str description;
};
#define SCOUT__FEED_EVENT_MAX (12u + SCOUT_MAX_NAME + SCOUT_MAX_HASH + SCOUT_MAX_DESCRIPTION)
/* Inline, and it copies the hash without a loop: while somebody reads the feed, the server calls it for each stored chunk. */
static inline void
scout__put_feed_event(struct scout__writer *w, const struct scout__feed_event *m, unsigned hash_bytes)
{
	uint64_t head = htole64(m->kind | (uint64_t)m->medium << 16 | (uint64_t)m->group << 32);
	uint16_t tenant_len = htole16(m->tenant.len), described = htole16(m->description.len);
	uint8_t *at = scout__writer_take(w, 12 + (size_t)m->tenant.len + hash_bytes + m->description.len);

	if (!at)
		return;
	at = mempcpy(at, &head, sizeof(head));
	at = mempcpy(at, &tenant_len, sizeof(tenant_len));
	if (m->tenant.len > 0)
		at = mempcpy(at, m->tenant.p, m->tenant.len);
	if (m->hash) { /* its first and its last bytes: they meet */
		memcpy(at, m->hash, SCOUT_MIN_HASH);
		memcpy(at + hash_bytes - SCOUT_MIN_HASH, m->hash + hash_bytes - SCOUT_MIN_HASH, SCOUT_MIN_HASH);
	} else {
		memset(at, 0, hash_bytes);
	}
	at = mempcpy(at + hash_bytes, &described, sizeof(described));
	if (m->description.len > 0)
		memcpy(at, m->description.p, m->description.len);
}
_Static_assert(SCOUT_MAX_HASH <= 2 * SCOUT_MIN_HASH, "scout__put_feed_event");
/* The next event of a checked reply; false at the end. */
bool scout__get_feed_event(struct scout__reader *events, unsigned hash_bytes, struct scout__feed_event *ret);

/* A reply of FEED: put the head, then the events. A get checks all events. */
struct scout__feed_reply {
	struct scout__feed_msg next;
	uint32_t flags, n;
	struct scout__reader events; /* a get */
};
#define SCOUT__FEED_HEAD_BYTES 32u
void scout__put_feed_head(struct scout__writer *w, const struct scout__feed_reply *m);
int scout__get_feed_reply(const struct scout__op *op, unsigned hash_bytes, struct scout__feed_reply *ret,
			  const char **ret_field);

/* ---- operations of operators ---- */

void scout__put_peers(struct scout__writer *w, uint32_t first);
int scout__get_peers(const struct scout__op *op, uint32_t *ret_first, const char **ret_field);

/* Replies of PEERS and TENANTS: put the head, then each item. A get checks all items; then the reader returns m.n of them. */
struct scout__list_reply {
	uint32_t head; /* PEERS: next; TENANTS: tenants */
	uint32_t n;
	struct scout__reader items;
};
void scout__put_list_head(struct scout__writer *w, uint32_t head, uint32_t n);

struct scout__peer_item {
	uint64_t id;
	uint16_t role, kv_rank;
	uint32_t pid;
	uint64_t unread_bytes;
	uint32_t silent_ms, waiting, sessions, holds;
	struct scout__str name_space;
};
#define SCOUT__PEER_ITEM_BYTES 42u /* without the namespace */
void scout__put_peer_item(struct scout__writer *w, const struct scout__peer_item *m);
int scout__get_peers_reply(const struct scout__op *op, struct scout__list_reply *ret, const char **ret_field);
bool scout__get_peer_item(struct scout__reader *items, struct scout__peer_item *ret);

void scout__put_tenants(struct scout__writer *w, const struct scout__str *name_space);
int scout__get_tenants(const struct scout__op *op, struct scout__str *ret_name_space, const char **ret_field);
struct scout__tenant_item {
	uint64_t bytes;
	struct scout__str tenant;
};
#define SCOUT__TENANT_ITEM_BYTES 10u /* without the tenant */
void scout__put_tenant_item(struct scout__writer *w, const struct scout__tenant_item *m);
int scout__get_tenants_reply(const struct scout__op *op, struct scout__list_reply *ret, const char **ret_field);
bool scout__get_tenant_item(struct scout__reader *items, struct scout__tenant_item *ret);

struct scout__drop_msg {
	uint64_t generation;
	uint32_t flags; /* SCOUT_DROP_* */
	struct scout__str name_space, tenant;
};
void scout__put_drop(struct scout__writer *w, const struct scout__drop_msg *m);
int scout__get_drop(const struct scout__op *op, struct scout__drop_msg *ret, const char **ret_field);
struct scout__drop_reply {
	uint64_t bytes;
	uint32_t stores, pending;
};
#define SCOUT__DROP_REPLY_BYTES 16u
void scout__put_drop_reply(struct scout__writer *w, const struct scout__drop_reply *m);
int scout__get_drop_reply(const struct scout__op *op, struct scout__drop_reply *ret, const char **ret_field);

/* Lease connection messages, little-endian, fixed sizes. */
#define SCOUT__LEASE_SHORT_BYTES 16
#define SCOUT__LEASE_HELLO_BYTES 32
#define SCOUT__LEASE_WITHDRAW_BYTES 12
#define SCOUT__LEASE_SEGMENT_BYTES 40
struct scout__lease_msg {
	uint16_t type;
	uint64_t word;               /* HELLO, BYE: token; OK: epoch */
	struct scout__secret secret; /* HELLO */
	uint32_t segment, slots;
	uint64_t bytes, data_offset, slot_stride;
	uint32_t request_bytes, reply_bytes; /* CHANNEL */
};
/* @buf has SCOUT__LEASE_SEGMENT_BYTES. Returns the length; 0 for an unknown type. */
size_t scout__put_lease(uint8_t *buf, const struct scout__lease_msg *m);
/*
 * False when it is not a valid lease message (magic, version, type, length, reserved). Fields of other types come
 * back as 0.
 */
bool scout__get_lease(const void *buf, size_t len, struct scout__lease_msg *ret);

/* Names for logs, static: "LOOKUP", "op 77" (over 255: "op ?"); "BAD_BODY", "unknown status". */
const char *scout__op_name(unsigned opcode);

/* "must be 1..64": the rule for the field that the get of @op's body named. Static; NULL for a name that no get returns. */
const char *scout__field_rule(const struct scout__op *op, const char *field);

const char *scout__wire_name(unsigned status);
/* The library's error for a wire status: SCOUT_ERR_*; 0 for OK. */
int scout__wire_error(unsigned status);
