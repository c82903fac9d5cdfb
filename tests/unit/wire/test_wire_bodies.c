/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/error.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "body_rig.h"

/*
 * Every body against its golden bytes, in both directions. What a get understands is not compared field by field: the put of a sample
 * gives the golden bytes, so each field has its place, and get and put of the golden bytes give them again, so the get finds it there.
 * Then bodies as large as they may be, and the names and errors of the protocol's numbers.
 */

/* What the golden body says, put by the codec. */
static void
put_hello(struct scout__writer *w)
{
	const struct scout__hello m = {
		.token = 0x1122334455667788,
		.role = SCOUT_ROLE_WORKER,
		.hash_bytes = 16,
		.chunk_tokens = 0x03020100,
		.rank_first = 2,
		.rank_count = 3,
		.kv_ranks = 8,
		.readers = 4,
		.heartbeat_ms = 0x0a0b0c0d,
		.weights = 0x0102030405060708,
		.clear = {0x2122232425262728, 0x4142434445464748, 0x3132333435363738},
		.secret = {{0x58595a5b5c5d5e5f, 0x5051525354555657}},
		.name_space = str("ns1"),
		.hash_tokens = 16,
		.groups = {.n = 2,
			   .group = {{.policy = SCOUT_POLICY_ALL, .readers = 4, .unit_tokens = 0x03020100},
				     {SCOUT_POLICY_WINDOW, 5, 48, 0x71727374, 0x81828384}}},
	};

	scout__put_hello(w, &m);
}

static void
put_hello_reply(struct scout__writer *w)
{
	const struct scout__hello_reply m = {
		.credits = 0x01020304,
		.max_frame = 0x00fffe01,
		.weights = 0x1112131415161718,
		.clear = {0x2122232425262728, 0x4142434445464748, 0x3132333435363738},
		.secret = {{0x58595a5b5c5d5e5f, 0x5051525354555657}},
		.id = 0x6162636465666768,
		.software = str("kvscout"),
		.lease_path = str("/run/l"),
	};

	scout__put_hello_reply(w, &m);
}

/* The hashes are put later. */
static void
put_lookup(struct scout__writer *w)
{
	const struct scout__lookup_msg m = {
		.ticket = 0x2122232425262728,
		.n = 2,
		.first = 3,
		.beyond = 1,
		.skip = 4,
		.expect = 2,
		.more = 63,
		.poll_timeout_ms = 0x121314,
		.poll_interval_ms = 0x21222324,
		.tenant = str("te"),
	};

	scout__put_lookup(w, &m, GOLDEN_HASH_BYTES);
	scout__put_bytes(w, codec_of(SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST)->golden + 44, 2 * GOLDEN_HASH_BYTES);
}

static void
put_lookup_reply(struct scout__writer *w)
{
	static const uint8_t more[] = {0x00, 0x02, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00};
	const struct scout__lookup_reply m = {
		.hit = 0x030201, .l1 = 0x020504, .l2 = 0x0706, .limited = 1, .n_more = 2, .more = more};

	scout__put_lookup_reply(w, &m);
	ck_assert_uint_eq(scout__more_at(&m, 0), 0x030200);
	ck_assert_uint_eq(scout__more_at(&m, 1), 1);
}

/* From beyond to is legal: it gives back everything. */
static void
put_admit(struct scout__writer *w)
{
	scout__put_admit(w, &(struct scout__admit_msg){0x3132333435363738, .from = 0xa1a2a3a4, .to = 0xb1b2b3b4});
}

static void
put_admit_reply(struct scout__writer *w)
{
	scout__put_admit_reply(w, 0x012345);
}

static void
put_finish_reply(struct scout__writer *w)
{
	scout__put_finish_reply(w, &(struct scout__finish_reply){5, SCOUT_OUTCOME_CLIPPED});
}

static void
put_finish(struct scout__writer *w)
{
	scout__put_finish(w, &(struct scout__finish_msg){0x4142434445464748, SCOUT_FINISH_UNLIKELY, 0x51525354});
}

static void
put_reset(struct scout__writer *w)
{
	scout__put_one_u64(w, 0x5152535455565758);
}

static void
put_clear(struct scout__writer *w)
{
	scout__put_one_u64(w, 0x6162636465666768);
}

static void
put_clear_reply(struct scout__writer *w)
{
	const struct scout__clear_reply m = {
		.clear = {0x2122232425262728, 0x4142434445464748, 0x3132333435363738},
		.stores = 0x01020304,
		.pending = 0x01020303,
	};

	scout__put_clear_reply(w, &m);
}

static void
put_register(struct scout__writer *w)
{
	static const uint64_t planes[] = {0x6162636465666768, 0x7172737475767778}, last = 0x7172737475767779;
	const struct scout__register_msg m = {.kv_rank = 5, .reader = 6, .numa = 0x0102, .n_tables = 2};
	const struct scout__table_msg tables[2] = {
		{.dtype = SCOUT_DTYPE_BF16, .block_tokens = 0x10111213, .n_planes = 2, .layout_tag = str("NHD")},
		{.group = 0x0304, .block_tokens = 0x20212223, .n_planes = 1, .layout_tag = str("")},
	};

	scout__put_register(w, &m);
	scout__put_table(w, &tables[0], planes);
	scout__put_table(w, &tables[1], &last);
}

static void
put_register_reply(struct scout__writer *w)
{
	const struct scout__register_reply m = {
		.segments = 0xc1c2c3c4,
		.n_tables = 2,
		.tables = {{0x8182838485868788, 0x9192939495969798}, {0x8182838485868789, 0x9192939495969799}},
	};

	ck_assert_uint_eq(SCOUT__REGISTER_REPLY_BYTES(2), codec_of(SCOUT_OP_REGISTER, SCOUT_KIND_REPLY)->golden_len);
	scout__put_register_reply(w, &m);
}

static void
put_store(struct scout__writer *w)
{
	const struct scout__store_msg m = {
		.ticket = 0xa1a2a3a4a5a6a7a8,
		.n = 1,
		.group = 0x021f,
		.tenant = str("t"),
		.hashes = codec_of(SCOUT_OP_STORE, SCOUT_KIND_REQUEST)->golden + 19,
		.described = true,
	};

	scout__put_store(w, &m, GOLDEN_HASH_BYTES);
	scout__put_str(w, "de", 2);
}

static void
put_store_reply(struct scout__writer *w)
{
	scout__put_grants_head(w, 0xb1b2b3b4b5b6b7b8, 3);
	scout__put_grant(
		w, &(struct scout__grant){0xd1d2d3d4, SCOUT_GRANT_GRANTED, 0xc1c2c3c4c5c6c7c8, 0xe1e2e3e4e5e6e7e8});
	scout__put_grant(w, &(struct scout__grant){.state = SCOUT_GRANT_PRESENT});
	scout__put_grant(w, &(struct scout__grant){.state = SCOUT_GRANT_NO_ROOM});
}

static void
put_store_done(struct scout__writer *w)
{
	scout__put_store_done(w,
			      &(struct scout__store_done_msg){0xf1f2f3f4f5f6f7f8, .n = 0x010203, .committed = 0x0506});
}

static void
put_store_done_reply(struct scout__writer *w)
{
	scout__put_store_done_reply(w, 0x010203);
}

static void
put_retrieve(struct scout__writer *w)
{
	const struct scout__retrieve_msg m = {0x1213141516171819, .n_parts = 2,
					      .parts = {{.from = 0x0506, .to = 0x010203}, {0x0304, 7, 8}}};

	scout__put_retrieve(w, &m);
}

static void
put_retrieve_reply(struct scout__writer *w)
{
	scout__put_grants_head(w, 0x2223242526272829, 2);
	scout__put_grant(w, &(struct scout__grant){.state = SCOUT_GRANT_MISSING});
	scout__put_grant(
		w, &(struct scout__grant){0xd2d3d4d5, SCOUT_GRANT_GRANTED, 0x3233343536373839, 0x4243444546474849});
}

static void
put_retrieve_done(struct scout__writer *w)
{
	static const uint8_t found[] = {SCOUT_FOUND_COMPARED | SCOUT_FOUND_DIFFERS | SCOUT_FOUND_BOUNDS, 0};

	scout__put_retrieve_done(w, &(struct scout__retrieve_done_msg){0x5253545556575859, 0x61626364, 2, found});
}

static void
put_status_reply(struct scout__writer *w)
{
	scout__put_u32(w, 2);
	scout__put_status_item(w, "l1", 0x6263646566676869);
	scout__put_status_item(w, "drops", 1);
}

static void
put_error(struct scout__writer *w)
{
	scout__put_text(w, "nope");
}

static void
put_keys(struct scout__writer *w)
{
	const struct scout__keys_msg m = {
		.ticket = 0x2122232425262728,
		.n = 3,
		.n_parts = 2,
		.parts = {{0, 1}, {0x0304, 2}},
		.tenant = str("te"),
		.hashes = codec_of(SCOUT_OP_KEYS, SCOUT_KIND_REQUEST)->golden + SCOUT__KEYS_BYTES(2) + 2,
	};

	scout__put_keys(w, &m, GOLDEN_HASH_BYTES);
}

static void
put_keys_reply(struct scout__writer *w)
{
	static const uint8_t hits[] = {0xb5, 0x04}, later[] = {0x02, 0x03};
	const struct scout__keys_reply m = {.n = 11, .l1 = 4, .l2 = 2, .limited = 1, .hit = hits, .later = later};

	ck_assert_uint_eq(SCOUT__KEYS_REPLY_BYTES(11), codec_of(SCOUT_OP_KEYS, SCOUT_KIND_REPLY)->golden_len);
	scout__put_keys_reply(w, &m);
}

static void
put_peers(struct scout__writer *w)
{
	scout__put_peers(w, 0x01020304);
}

static void
put_peers_reply(struct scout__writer *w)
{
	const struct scout__peer_item items[] = {
		{0x2122232425262728, SCOUT_ROLE_WORKER, 64, 0x31323334, 0x4142434445464748, 0x51525354, 0x61626364,
		 0x71727374, 0x81828384, str("ns")},
		{0x3132333435363738, SCOUT_ROLE_CLIENT, 0, 0, 0, 1, 2, 3, 4, str("m")},
	};

	scout__put_list_head(w, 0x11121314, 2);
	scout__put_peer_item(w, &items[0]);
	ck_assert_uint_eq(w->len, 8 + SCOUT__PEER_ITEM_BYTES + 2);
	scout__put_peer_item(w, &items[1]);
}

static void
put_tenants(struct scout__writer *w)
{
	const struct scout__str name = str("ns1");

	scout__put_tenants(w, &name);
}

static void
put_tenants_reply(struct scout__writer *w)
{
	scout__put_list_head(w, 0x01020304, 2);
	scout__put_tenant_item(w, &(struct scout__tenant_item){0x2122232425262728, str("te")});
	ck_assert_uint_eq(w->len, 8 + SCOUT__TENANT_ITEM_BYTES + 2);
	scout__put_tenant_item(w, &(struct scout__tenant_item){0x1112131415161718, str("")});
}

static void
put_drop(struct scout__writer *w)
{
	scout__put_drop(w, &(struct scout__drop_msg){0x6162636465666768, SCOUT_DROP_TENANT, str("ns"), str("te")});
}

static void
put_drop_reply(struct scout__writer *w)
{
	scout__put_drop_reply(w, &(struct scout__drop_reply){0x2122232425262728, 0x01020304, 0x01020303});
	ck_assert_uint_eq(w->len, SCOUT__DROP_REPLY_BYTES);
}

static const struct scout__feed_msg feed_msg = {0x2122232425262728, 0x3132333435363738, 0x4142434445464748};

static void
put_feed(struct scout__writer *w)
{
	scout__put_feed(w, &feed_msg);
}

static void
put_feed_reply(struct scout__writer *w)
{
	const struct scout__feed_reply m = {.next = feed_msg, .flags = SCOUT_FEED_LOST | SCOUT_FEED_MORE, .n = 2};
	const struct scout__feed_event stored = {
		.kind = SCOUT_EVENT_STORED,
		.medium = SCOUT_MEDIUM_L2,
		.group = 0x021f,
		.tenant = str("t"),
		.hash = codec_of(SCOUT_OP_STORE, SCOUT_KIND_REQUEST)->golden + 19,
		.description = str("de"),
	};

	scout__put_feed_head(w, &m);
	ck_assert_uint_eq(w->len, SCOUT__FEED_HEAD_BYTES);
	scout__put_feed_event(w, &stored, GOLDEN_HASH_BYTES);
	scout__put_feed_event(w, &(struct scout__feed_event){.kind = SCOUT_EVENT_CLEARED}, GOLDEN_HASH_BYTES);
}

/* The bodies that are not empty. */
#define REQUEST(op) SCOUT_OP_##op, SCOUT_KIND_REQUEST
#define REPLY(op) SCOUT_OP_##op, SCOUT_KIND_REPLY
static const struct sample {
	uint8_t opcode, kind;
	void (*put)(struct scout__writer *w);
} samples[] = {
	{REQUEST(HELLO), put_hello},
	{REPLY(HELLO), put_hello_reply},
	{REQUEST(LOOKUP), put_lookup},
	{REPLY(LOOKUP), put_lookup_reply},
	{REQUEST(ADMIT), put_admit},
	{REPLY(ADMIT), put_admit_reply},
	{REQUEST(FINISH), put_finish},
	{REPLY(FINISH), put_finish_reply},
	{REQUEST(RESET), put_reset},
	{REQUEST(CLEAR), put_clear},
	{REPLY(CLEAR), put_clear_reply},
	{REQUEST(REGISTER), put_register},
	{REPLY(REGISTER), put_register_reply},
	{REQUEST(STORE), put_store},
	{REPLY(STORE), put_store_reply},
	{REQUEST(STORE_DONE), put_store_done},
	{REPLY(STORE_DONE), put_store_done_reply},
	{REQUEST(RETRIEVE), put_retrieve},
	{REPLY(RETRIEVE), put_retrieve_reply},
	{REQUEST(RETRIEVE_DONE), put_retrieve_done},
	{REPLY(STATUS), put_status_reply},
	{REPLY(ERROR), put_error},
	{REQUEST(KEYS), put_keys},
	{REPLY(KEYS), put_keys_reply},
	{REQUEST(PEERS), put_peers},
	{REPLY(PEERS), put_peers_reply},
	{REQUEST(TENANTS), put_tenants},
	{REPLY(TENANTS), put_tenants_reply},
	{REQUEST(DROP), put_drop},
	{REPLY(DROP), put_drop_reply},
	{REQUEST(FEED), put_feed},
	{REPLY(FEED), put_feed_reply},
};
#define N_SAMPLES (sizeof(samples) / sizeof(samples[0]))

START_LOOP_TEST(each_body_is_put_as_its_golden_bytes, 0, N_MSG_CODECS)
{
	const struct msg_codec *codec = &msg_codecs[_i];
	uint8_t buf[256];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	size_t i = 0;

	while (i < N_SAMPLES && (samples[i].opcode != codec->opcode || samples[i].kind != codec->kind))
		i++;
	ck_assert_msg(i < N_SAMPLES || codec->golden_len == 0, "no sample of %s", codec->name);
	if (i < N_SAMPLES)
		samples[i].put(&w);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, codec->golden_len);
	ck_assert_mem_eq(buf, codec->golden, w.len);
}
END_TEST

START_LOOP_TEST(each_golden_body_is_read_and_put_again, 0, N_MSG_CODECS)
{
	const struct msg_codec *codec = &msg_codecs[_i];
	const char *field = "";

	ck_assert_msg(body_status(codec, codec->golden, codec->golden_len, GOLDEN_HASH_BYTES, &field) == SCOUT_WIRE_OK,
		      "%s: %s", codec->name, field);
}
END_TEST

START_TEST(each_opcode_goes_both_ways_but_error)
{
	for (uint8_t opcode = 1; opcode <= SCOUT_OP_LAST; opcode++) {
		ck_assert_ptr_nonnull(codec_of(opcode, SCOUT_KIND_REPLY));
		ck_assert(opcode == SCOUT_OP_ERROR || codec_of(opcode, SCOUT_KIND_REQUEST));
	}
}
END_TEST

START_TEST(an_event_of_the_feed_carries_a_hash_of_each_length)
{
	const uint8_t hash[] = "0123456789abcdefghijklmnopqrstuv";
	uint8_t buf[64];

	for (unsigned n = SCOUT_MIN_HASH; n <= SCOUT_MAX_HASH; n++) {
		const struct scout__feed_event m = {.tenant = str("t"), .hash = hash, .description = str("de")};
		struct scout__writer w = {.buf = buf, .cap = 11 + n + 4}, small = {.buf = buf, .cap = 11 + n + 3};

		scout__put_feed_event(&w, &m, n);
		ck_assert(!w.bad && w.len == w.cap);
		ck_assert_mem_eq(buf + 11, hash, n);
		ck_assert_mem_eq(buf + 11 + n, "\2\0de", 4);
		scout__put_feed_event(&small, &m, n);
		ck_assert(small.bad);
	}
}
END_TEST

/* Bodies with as many parts as there may be, each part with other numbers. */
static void
put_largest_hello(struct scout__writer *w)
{
	struct scout__hello m = {.token = 1,
				 .role = SCOUT_ROLE_WORKER,
				 .hash_bytes = SCOUT_MAX_HASH,
				 .chunk_tokens = UINT32_MAX,
				 .rank_first = SCOUT_MAX_RANKS - 1,
				 .rank_count = 1,
				 .kv_ranks = SCOUT_MAX_RANKS,
				 .readers = SCOUT_MAX_READERS,
				 .hash_tokens = 16,
				 .name_space = str("n"),
				 .groups.n = SCOUT_MAX_GROUPS};

	for (uint32_t i = 0; i < SCOUT_MAX_GROUPS; i++)
		m.groups.group[i] = (struct scout__group){SCOUT_POLICY_LOCAL, (uint16_t)(1 + i), 16 * (1 + i), 1000 + i,
							  UINT32_MAX - i};
	scout__put_hello(w, &m);
}

static void
put_largest_lookup_reply(struct scout__writer *w)
{
	uint8_t lengths[SCOUT_MAX_LENGTHS * sizeof(uint32_t)];
	struct scout__writer more = {.buf = lengths, .cap = sizeof(lengths)};
	const struct scout__lookup_reply m = {
		.hit = SCOUT_MAX_CHUNKS, .l1 = 1, .l2 = 2, .n_more = SCOUT_MAX_LENGTHS - 1, .more = lengths};

	for (uint32_t i = 1; i < SCOUT_MAX_LENGTHS; i++)
		scout__put_u32(&more, SCOUT_MAX_CHUNKS - 1000 * i);
	scout__put_lookup_reply(w, &m);
}

/* All planes that there may be. */
static void
put_largest_register(struct scout__writer *w)
{
	const uint32_t n_planes = SCOUT_MAX_PLANES / SCOUT_MAX_GROUPS;
	const struct scout__register_msg m = {.kv_rank = SCOUT_MAX_RANKS - 1,
					      .reader = SCOUT_MAX_READERS - 1,
					      .numa = UINT16_MAX,
					      .n_tables = SCOUT_MAX_GROUPS};
	uint64_t planes[SCOUT_MAX_PLANES];

	scout__put_register(w, &m);
	for (uint32_t t = 0; t < SCOUT_MAX_GROUPS; t++) {
		const struct scout__table_msg table = {.group = (uint16_t)(1000 * t),
						       .dtype = SCOUT_DTYPE_LAST,
						       .block_tokens = UINT32_MAX - t,
						       .n_planes = n_planes,
						       .layout_tag = str("tag")};

		for (uint32_t i = 0; i < n_planes; i++)
			planes[i] = UINT64_MAX - t * n_planes - i;
		scout__put_table(w, &table, planes);
	}
}

static void
put_largest_register_reply(struct scout__writer *w)
{
	struct scout__register_reply m = {.segments = UINT32_MAX, .n_tables = SCOUT_MAX_GROUPS};

	for (uint32_t i = 0; i < SCOUT_MAX_GROUPS; i++) {
		m.tables[i].shard_bytes = UINT64_MAX - i;
		m.tables[i].slot_stride = i;
	}
	scout__put_register_reply(w, &m);
}

/* All chunks that there may be, in parts. */
static void
put_largest_retrieve(struct scout__writer *w)
{
	struct scout__retrieve_msg m = {.ticket = UINT64_MAX, .n_parts = SCOUT_MAX_GROUPS};

	for (uint32_t i = 0; i < SCOUT_MAX_GROUPS; i++) {
		m.parts[i].group = (uint16_t)(1000 * i);
		m.parts[i].from = i;
		m.parts[i].to = i + SCOUT_MAX_CHUNKS / SCOUT_MAX_GROUPS;
	}
	scout__put_retrieve(w, &m);
}

static void
put_hashes(struct scout__writer *w, uint32_t n)
{
	for (uint32_t i = 0; i < n * SCOUT_MAX_HASH; i++)
		scout__put_bytes(w, &(uint8_t){(uint8_t)(i * 7)}, 1);
}

static void
put_largest_keys(struct scout__writer *w)
{
	struct scout__keys_msg m = {
		.ticket = UINT64_MAX, .n = SCOUT_MAX_KEYS, .n_parts = SCOUT_MAX_GROUPS, .tenant = str("tenant")};

	for (uint32_t i = 0; i < SCOUT_MAX_GROUPS; i++) {
		m.parts[i].group = (uint16_t)(1000 * i);
		m.parts[i].n = SCOUT_MAX_KEYS / SCOUT_MAX_GROUPS;
	}
	scout__put_keys(w, &m, SCOUT_MAX_HASH);
	put_hashes(w, SCOUT_MAX_KEYS);
}

static void
put_largest_lookup(struct scout__writer *w)
{
	scout__put_lookup(w, &(struct scout__lookup_msg){.ticket = 1, .n = SCOUT_MAX_CHUNKS}, SCOUT_MAX_HASH);
	put_hashes(w, SCOUT_MAX_CHUNKS);
}

static const struct sample largest[] = {
	{REQUEST(HELLO), put_largest_hello},
	{REQUEST(LOOKUP), put_largest_lookup},
	{REPLY(LOOKUP), put_largest_lookup_reply},
	{REQUEST(REGISTER), put_largest_register},
	{REPLY(REGISTER), put_largest_register_reply},
	{REQUEST(RETRIEVE), put_largest_retrieve},
	{REQUEST(KEYS), put_largest_keys},
};

START_LOOP_TEST(the_largest_bodies_are_read_and_put_again, 0, sizeof(largest) / sizeof(largest[0]))
{
	const struct msg_codec *codec = codec_of(largest[_i].opcode, largest[_i].kind);
	const size_t cap = (size_t)SCOUT_MAX_CHUNKS * SCOUT_MAX_HASH + 4096;
	struct scout__writer w = {.buf = malloc(cap), .cap = cap};
	const char *field = "";

	ck_assert_ptr_nonnull(w.buf);
	largest[_i].put(&w);
	ck_assert(!w.bad);
	ck_assert_msg(body_status(codec, w.buf, (uint32_t)w.len, SCOUT_MAX_HASH, &field) == SCOUT_WIRE_OK, "%s: %s",
		      codec->name, field);
	free(w.buf);
}
END_TEST

/* No golden body is behind it, for it is the other reply of an opcode: these are all of its bytes. */
START_TEST(lookup_ahead_reply)
{
	static const uint8_t bytes[] = {2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1,    0, 0,    0,
					0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x83, 1, 0x02, 1};
	const uint8_t present[] = {0x83, 1}, in_l2[] = {0x02, 1};
	const struct scout__ahead_reply m = {
		.lookup = {.hit = 2, .l1 = 1, .l2 = 1, .limited = 1}, .known = 9, .present = present, .in_l2 = in_l2};
	uint8_t buf[64];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	struct scout__op op = {.body = buf, .length = sizeof(bytes)};
	struct scout__ahead_reply got;
	const char *field;

	scout__put_ahead_reply(&w, &m);
	ck_assert_uint_eq(w.len, sizeof(bytes));
	ck_assert_uint_eq(SCOUT__AHEAD_REPLY_BYTES(9), sizeof(bytes));
	ck_assert_mem_eq(buf, bytes, sizeof(bytes));
	ck_assert_int_eq(scout__get_ahead_reply(&op, &got, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.lookup.hit, 2);
	ck_assert_uint_eq(got.lookup.limited, 1);
	ck_assert_uint_eq(got.known, 9);
	ck_assert_mem_eq(got.present, present, 2);
	ck_assert_mem_eq(got.in_l2, in_l2, 2);
	for (op.length = 0; op.length < sizeof(bytes); op.length++)
		ck_assert_int_ne(scout__get_ahead_reply(&op, &got, &field), SCOUT_WIRE_OK);
	buf[24] = 1;
	ck_assert_int_eq(scout__get_ahead_reply(&op, &got, &field), SCOUT_WIRE_BAD_BODY);
	buf[24] = 0;
	buf[20] = 1; /* fewer than the hit */
	ck_assert_int_eq(scout__get_ahead_reply(&op, &got, &field), SCOUT_WIRE_RANGE);
	ck_assert_str_eq(field, "known");
}
END_TEST

START_TEST(operations_have_names)
{
	static const char *const names[] = {"op 0",     "HELLO",         "PING",     "LOOKUP", "ADMIT",
					    "FINISH",   "RESET",         "REGISTER", "STORE",  "STORE_DONE",
					    "RETRIEVE", "RETRIEVE_DONE", "STATUS",   "ERROR",  "CLEAR",
					    "KEYS",     "PEERS",         "TENANTS",  "DROP",   "FEED"};

	_Static_assert(sizeof(names) / sizeof(names[0]) == SCOUT_OP_LAST + 1, "a new operation needs its name here");
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_str_eq(scout__op_name(i), names[i]);
	for (unsigned i = SCOUT_OP_LAST + 1; i <= 255; i++) {
		char expected[16];

		(void)snprintf(expected, sizeof(expected), "op %u", i);
		ck_assert_str_eq(scout__op_name(i), expected);
	}
	ck_assert_str_eq(scout__op_name(256), "op ?");
	ck_assert_str_eq(scout__op_name(UINT32_MAX), "op ?");
}
END_TEST

static const struct {
	unsigned status;
	const char *name;
	int error;
} statuses[] = {
	{0, "OK", 0},
	{1, "TRUNCATED", SCOUT_ERR_PROTOCOL},
	{2, "BAD_VERSION", SCOUT_ERR_VERSION},
	{3, "TOO_LARGE", SCOUT_ERR_PROTOCOL},
	{4, "BAD_RESERVED", SCOUT_ERR_PROTOCOL},
	{5, "BAD_BODY", SCOUT_ERR_PROTOCOL},
	{6, "UNKNOWN_OP", SCOUT_ERR_PROTOCOL},
	{7, "NO_HELLO", SCOUT_ERR_EPOCH},
	{8, "STALE_EPOCH", SCOUT_ERR_EPOCH},
	{9, "EXPIRED", SCOUT_ERR_TIMEOUT},
	{10, "NAMESPACE", SCOUT_ERR_NAMESPACE},
	{11, "SHARD_BYTES", SCOUT_ERR_SHARD_BYTES},
	{12, "NO_SESSION", SCOUT_ERR_NO_SESSION},
	{13, "STATE", SCOUT_ERR_STATE},
	{14, "LIMIT", SCOUT_ERR_LIMIT},
	{15, "NO_ROOM", SCOUT_ERR_NO_ROOM},
	{16, "WEIGHTS", SCOUT_ERR_WEIGHTS},
	{17, "RANGE", SCOUT_ERR_PROTOCOL},
	{18, "SHUTDOWN", SCOUT_ERR_UNREACHABLE},
	{19, "ROLE", SCOUT_ERR_PROTOCOL},
	{20, "CLEARED", SCOUT_ERR_CLEARED},
	{21, "UNSUPPORTED", SCOUT_ERR_UNSUPPORTED},
	{22, "GROUPS_DIFFER", SCOUT_ERR_GROUPS_DIFFER},
	{23, "GROUP", SCOUT_ERR_GROUP},
	{24, "GROUP_LIMIT", SCOUT_ERR_GROUP_LIMIT},
	{25, "SECRET", SCOUT_ERR_PERMISSION},
	{26, "RIGHTS", SCOUT_ERR_PERMISSION},
	{27, "unknown status", SCOUT_ERR_PROTOCOL},
	{65535, "unknown status", SCOUT_ERR_PROTOCOL},
};

START_LOOP_TEST(statuses_have_names_and_errors, 0, sizeof(statuses) / sizeof(statuses[0]))
{
	ck_assert_str_eq(scout__wire_name(statuses[_i].status), statuses[_i].name);
	ck_assert_int_eq(scout__wire_error(statuses[_i].status), statuses[_i].error);
}
END_TEST
