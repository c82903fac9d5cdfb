/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/error.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "msg_recode.h"
#include "msg_golden.h"
#include "body_rig.h"

/*
 * Every body against its golden bytes, in both directions: what a put writes, and what a get understands. Then the
 * names and errors of the protocol's numbers.
 */

START_TEST(hello_request)
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
		.clear = {.joined = 0x2122232425262728,
			  .generation = 0x4142434445464748,
			  .cleared = 0x3132333435363738},
		.name_space = str("ns1"),
		.hash_tokens = 16,
		.groups = {.n = 2,
			   .group = {{.policy = SCOUT_POLICY_ALL, .readers = 4, .unit_tokens = 0x03020100},
				     {SCOUT_POLICY_WINDOW, 5, 48, 0x71727374, 0x81828384}}},
	};
	struct scout__hello got;

	begin(SCOUT_OP_HELLO, SCOUT_KIND_REQUEST);
	scout__put_hello(&f.w, &m);
	ck_assert_int_eq(scout__get_hello(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.token, m.token);
	ck_assert_uint_eq(got.role, m.role);
	ck_assert_uint_eq(got.hash_bytes, m.hash_bytes);
	ck_assert_uint_eq(got.chunk_tokens, m.chunk_tokens);
	ck_assert_uint_eq(got.rank_first, m.rank_first);
	ck_assert_uint_eq(got.rank_count, m.rank_count);
	ck_assert_uint_eq(got.kv_ranks, m.kv_ranks);
	ck_assert_uint_eq(got.readers, m.readers);
	ck_assert_uint_eq(got.heartbeat_ms, m.heartbeat_ms);
	ck_assert_uint_eq(got.weights, m.weights);
	ck_assert_uint_eq(got.clear.joined, m.clear.joined);
	ck_assert_uint_eq(got.clear.generation, m.clear.generation);
	ck_assert_uint_eq(got.clear.cleared, m.clear.cleared);
	check_str(got.name_space, "ns1");
	ck_assert_uint_eq(got.hash_tokens, 16);
	ck_assert_uint_eq(got.groups.n, 2);
	for (int g = 0; g < 2; g++) {
		ck_assert_uint_eq(got.groups.group[g].policy, m.groups.group[g].policy);
		ck_assert_uint_eq(got.groups.group[g].readers, m.groups.group[g].readers);
		ck_assert_uint_eq(got.groups.group[g].unit_tokens, m.groups.group[g].unit_tokens);
		ck_assert_uint_eq(got.groups.group[g].span_tokens, m.groups.group[g].span_tokens);
		ck_assert_uint_eq(got.groups.group[g].margin_tokens, m.groups.group[g].margin_tokens);
	}
	end();
}
END_TEST

START_TEST(hello_reply)
{
	const struct scout__hello_reply m = {
		.credits = 0x01020304,
		.max_frame = 0x00fffe01,
		.weights = 0x1112131415161718,
		.clear = {.joined = 0x2122232425262728,
			  .generation = 0x4142434445464748,
			  .cleared = 0x3132333435363738},
		.software = str("kvscout"),
		.lease_path = str("/run/l"),
	};
	struct scout__hello_reply got;

	begin(SCOUT_OP_HELLO, SCOUT_KIND_REPLY);
	scout__put_hello_reply(&f.w, &m);
	ck_assert_int_eq(scout__get_hello_reply(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.credits, m.credits);
	ck_assert_uint_eq(got.max_frame, m.max_frame);
	ck_assert_uint_eq(got.weights, m.weights);
	ck_assert_uint_eq(got.clear.joined, m.clear.joined);
	ck_assert_uint_eq(got.clear.generation, m.clear.generation);
	ck_assert_uint_eq(got.clear.cleared, m.clear.cleared);
	check_str(got.software, "kvscout");
	check_str(got.lease_path, "/run/l");
	end();
}
END_TEST

START_TEST(lookup_request)
{
	const struct scout__lookup_msg m = {
		.ticket = 0x2122232425262728,
		.n = 2,
		.first = 3,
		.beyond = 1,
		.skip = 4,
		.expect = 2,
		.more = 63,
		.poll_timeout_ms = 0x11121314,
		.poll_interval_ms = 0x21222324,
		.tenant = str("te"),
		.hashes = golden_lookup + 44,
	};
	struct scout__lookup_msg got;

	begin(SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST);
	scout__put_lookup(&f.w, &m, GOLDEN_HASH_BYTES);
	ck_assert_int_eq(scout__get_lookup(&f.op, GOLDEN_HASH_BYTES, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.ticket, m.ticket);
	ck_assert_uint_eq(got.n, m.n);
	ck_assert_uint_eq(got.skip, m.skip);
	ck_assert_uint_eq(got.expect, m.expect);
	ck_assert_uint_eq(got.poll_timeout_ms, m.poll_timeout_ms);
	ck_assert_uint_eq(got.poll_interval_ms, m.poll_interval_ms);
	ck_assert_uint_eq(got.first, m.first);
	ck_assert_uint_eq(got.beyond, m.beyond);
	ck_assert_uint_eq(got.more, m.more);
	ck_assert_uint_eq(got.flags, 0);
	check_str(got.tenant, "te");
	ck_assert_ptr_eq(got.hashes, f.body + 44);
	end();
}
END_TEST

START_TEST(lookup_request_with_hashes_put_later)
{
	const struct scout__lookup_msg m = {
		.ticket = 0x2122232425262728,
		.n = 2,
		.first = 3,
		.beyond = 1,
		.skip = 4,
		.expect = 2,
		.more = 63,
		.poll_timeout_ms = 0x11121314,
		.poll_interval_ms = 0x21222324,
		.tenant = str("te"),
	};

	begin(SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST);
	scout__put_lookup(&f.w, &m, GOLDEN_HASH_BYTES);
	ck_assert_uint_eq(f.w.len, 44);
	scout__put_bytes(&f.w, golden_lookup + 44, 2 * GOLDEN_HASH_BYTES);
	end();
}
END_TEST

START_TEST(lookup_reply)
{
	static const uint8_t more[] = {0x00, 0x02, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00};
	const struct scout__lookup_reply m = {
		.hit = 0x030201, .l1 = 0x020504, .l2 = 0x0706, .limited = 1, .n_more = 2, .more = more};
	struct scout__lookup_reply got;

	begin(SCOUT_OP_LOOKUP, SCOUT_KIND_REPLY);
	scout__put_lookup_reply(&f.w, &m);
	ck_assert_int_eq(scout__get_lookup_reply(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.hit, m.hit);
	ck_assert_uint_eq(got.l1, m.l1);
	ck_assert_uint_eq(got.l2, m.l2);
	ck_assert_uint_eq(got.limited, m.limited);
	ck_assert_uint_eq(got.n_more, 2);
	ck_assert_uint_eq(scout__more_at(&got, 0), 0x030200);
	ck_assert_uint_eq(scout__more_at(&got, 1), 1);
	end();
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

START_TEST(admit_request)
{
	/* From beyond to is legal: it gives back everything. */
	const struct scout__admit_msg m = {.ticket = 0x3132333435363738, .from = 0xa1a2a3a4, .to = 0xb1b2b3b4};
	struct scout__admit_msg got;

	begin(SCOUT_OP_ADMIT, SCOUT_KIND_REQUEST);
	scout__put_admit(&f.w, &m);
	ck_assert_int_eq(scout__get_admit(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.ticket, m.ticket);
	ck_assert_uint_eq(got.from, m.from);
	ck_assert_uint_eq(got.to, m.to);
	end();
}
END_TEST

START_TEST(admit_reply)
{
	uint32_t kept = 0;

	begin(SCOUT_OP_ADMIT, SCOUT_KIND_REPLY);
	scout__put_admit_reply(&f.w, 0x012345);
	ck_assert_int_eq(scout__get_admit_reply(&f.op, &kept, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 0x012345);
	end();
}
END_TEST

START_TEST(finish_request)
{
	struct scout__finish_msg m = {0};

	begin(SCOUT_OP_FINISH, SCOUT_KIND_REQUEST);
	scout__put_finish(&f.w, &(struct scout__finish_msg){0x4142434445464748, SCOUT_FINISH_UNLIKELY});
	ck_assert_int_eq(scout__get_finish(&f.op, &m, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.ticket, 0x4142434445464748);
	ck_assert_uint_eq(m.hint, SCOUT_FINISH_UNLIKELY);
	end();
}
END_TEST

START_TEST(reset_request)
{
	uint64_t weights = 0;

	begin(SCOUT_OP_RESET, SCOUT_KIND_REQUEST);
	scout__put_one_u64(&f.w, 0x5152535455565758);
	ck_assert_int_eq(scout__get_one_u64(&f.op, &weights, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(weights, 0x5152535455565758);
	end();
}
END_TEST

START_TEST(keys_request)
{
	const struct scout__keys_msg m = {
		.ticket = 0x2122232425262728,
		.n = 3,
		.n_parts = 2,
		.parts = {{0, 1}, {0x0304, 2}},
		.tenant = str("te"),
		.hashes = golden_keys + 32,
	};
	struct scout__keys_msg got;

	begin(SCOUT_OP_KEYS, SCOUT_KIND_REQUEST);
	scout__put_keys(&f.w, &m, GOLDEN_HASH_BYTES);
	ck_assert_int_eq(scout__get_keys(&f.op, GOLDEN_HASH_BYTES, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.ticket, m.ticket);
	ck_assert_uint_eq(got.n, m.n);
	ck_assert_uint_eq(got.n_parts, m.n_parts);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(got.parts[i].group, m.parts[i].group);
		ck_assert_uint_eq(got.parts[i].n, m.parts[i].n);
	}
	check_str(got.tenant, "te");
	ck_assert_ptr_eq(got.hashes, f.body + 32);
	ck_assert_uint_eq(f.op.length, SCOUT__KEYS_BYTES(2) + 2 + 3 * GOLDEN_HASH_BYTES);
	end();
}
END_TEST

START_TEST(keys_reply)
{
	static const uint8_t hits[] = {0xb5, 0x04}, later[] = {0x02, 0x03};
	const struct scout__keys_reply m = {.n = 11, .l1 = 4, .l2 = 2, .limited = 1, .hit = hits, .later = later};
	struct scout__keys_reply got;

	begin(SCOUT_OP_KEYS, SCOUT_KIND_REPLY);
	scout__put_keys_reply(&f.w, &m);
	ck_assert_int_eq(scout__get_keys_reply(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.n, m.n);
	ck_assert_uint_eq(got.l1, m.l1);
	ck_assert_uint_eq(got.l2, m.l2);
	ck_assert_uint_eq(got.limited, m.limited);
	ck_assert_ptr_eq(got.hit, f.body + 16);
	ck_assert_ptr_eq(got.later, f.body + 18);
	ck_assert_uint_eq(f.op.length, SCOUT__KEYS_REPLY_BYTES(11));
	end();
}
END_TEST

START_TEST(clear_request)
{
	uint64_t generation = 0;

	begin(SCOUT_OP_CLEAR, SCOUT_KIND_REQUEST);
	scout__put_one_u64(&f.w, 0x6162636465666768);
	ck_assert_int_eq(scout__get_one_u64(&f.op, &generation, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(generation, 0x6162636465666768);
	end();
}
END_TEST

START_TEST(clear_reply)
{
	const struct scout__clear_reply m = {
		.clear = {.joined = 0x2122232425262728,
			  .generation = 0x4142434445464748,
			  .cleared = 0x3132333435363738},
		.stores = 0x01020304,
		.pending = 0x01020303,
	};
	struct scout__clear_reply got;

	begin(SCOUT_OP_CLEAR, SCOUT_KIND_REPLY);
	scout__put_clear_reply(&f.w, &m);
	ck_assert_int_eq(scout__get_clear_reply(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.clear.joined, m.clear.joined);
	ck_assert_uint_eq(got.clear.generation, m.clear.generation);
	ck_assert_uint_eq(got.clear.cleared, m.clear.cleared);
	ck_assert_uint_eq(got.stores, m.stores);
	ck_assert_uint_eq(got.pending, m.pending);
	end();
}
END_TEST

static const struct {
	uint8_t opcode, kind;
} empty_bodies[] = {
	{SCOUT_OP_PING, SCOUT_KIND_REQUEST},        {SCOUT_OP_PING, SCOUT_KIND_REPLY},
	{SCOUT_OP_FINISH, SCOUT_KIND_REPLY},        {SCOUT_OP_RESET, SCOUT_KIND_REPLY},
	{SCOUT_OP_RETRIEVE_DONE, SCOUT_KIND_REPLY}, {SCOUT_OP_STATUS, SCOUT_KIND_REQUEST},
};

START_TEST(bodies_that_are_empty)
{
	begin(empty_bodies[_i].opcode, empty_bodies[_i].kind);
	ck_assert_int_eq(scout__get_empty(&f.op, &f.field), SCOUT_WIRE_OK);
	end();
}
END_TEST

START_TEST(status_reply)
{
	struct scout__reader items;
	struct scout__str name;
	uint64_t value = 0;
	uint32_t n = 0;

	begin(SCOUT_OP_STATUS, SCOUT_KIND_REPLY);
	scout__put_u32(&f.w, 2);
	scout__put_status_item(&f.w, "l1", 0x6263646566676869);
	scout__put_status_item(&f.w, "drops", 1);
	ck_assert_int_eq(scout__get_status(&f.op, &n, &items, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(n, 2);
	ck_assert(scout__get_status_item(&items, &name, &value));
	check_str(name, "l1");
	ck_assert_uint_eq(value, 0x6263646566676869);
	ck_assert(scout__get_status_item(&items, &name, &value));
	check_str(name, "drops");
	ck_assert_uint_eq(value, 1);
	ck_assert(!scout__get_status_item(&items, &name, &value));
	end();
}
END_TEST

START_TEST(text_of_an_error)
{
	struct scout__str text;

	begin(SCOUT_OP_ERROR, SCOUT_KIND_REPLY);
	scout__put_text(&f.w, "nope");
	ck_assert_int_eq(scout__get_text(&f.op, &text), SCOUT_WIRE_OK);
	check_str(text, "nope");
	end();
}
END_TEST

START_TEST(every_body_has_golden_bytes_and_a_codec)
{
	uint8_t buf[256];

	ck_assert_int_eq(N_GOLDENS, N_MSG_CODECS);
	for (int i = 0; i < N_MSG_CODECS; i++) {
		const struct msg_codec *codec = &msg_codecs[i];
		const struct golden *g = golden_of(codec->opcode, codec->kind);
		struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
		struct scout__op op = {.opcode = codec->opcode, .kind = codec->kind};
		const char *field;

		ck_assert_msg(g != NULL, "%s", codec->name);
		op.body = g->body;
		op.length = g->len;
		ck_assert_int_eq(codec->recode(&op, GOLDEN_HASH_BYTES, &w, &field), SCOUT_WIRE_OK);
		ck_assert(!w.bad);
		ck_assert_uint_eq(w.len, g->len);
		ck_assert_mem_eq(buf, g->body, g->len);
	}
	/* Each opcode goes both ways, but ERROR only to the client. */
	for (uint8_t opcode = 1; opcode <= SCOUT_OP_LAST; opcode++) {
		ck_assert_ptr_nonnull(golden_of(opcode, SCOUT_KIND_REPLY));
		ck_assert(opcode == SCOUT_OP_ERROR || golden_of(opcode, SCOUT_KIND_REQUEST));
	}
}
END_TEST

START_TEST(operations_have_names)
{
	static const char *const names[] = {"op 0",   "HELLO",    "PING",  "LOOKUP",     "ADMIT",    "FINISH",
					    "RESET",  "REGISTER", "STORE", "STORE_DONE", "RETRIEVE", "RETRIEVE_DONE",
					    "STATUS", "ERROR",    "CLEAR", "KEYS"};

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
	{25, "unknown status", SCOUT_ERR_PROTOCOL},
	{65535, "unknown status", SCOUT_ERR_PROTOCOL},
};

START_TEST(statuses_have_names_and_errors)
{
	ck_assert_str_eq(scout__wire_name(statuses[_i].status), statuses[_i].name);
	ck_assert_int_eq(scout__wire_error(statuses[_i].status), statuses[_i].error);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("wire_bodies");
	TCase *golden = tcase_create("golden bytes");
	TCase *names = tcase_create("names");

	tcase_add_test(golden, hello_request);
	tcase_add_test(golden, hello_reply);
	tcase_add_test(golden, lookup_request);
	tcase_add_test(golden, lookup_request_with_hashes_put_later);
	tcase_add_test(golden, lookup_reply);
	tcase_add_test(golden, lookup_ahead_reply);
	tcase_add_test(golden, admit_request);
	tcase_add_test(golden, admit_reply);
	tcase_add_test(golden, finish_request);
	tcase_add_test(golden, reset_request);
	tcase_add_test(golden, keys_request);
	tcase_add_test(golden, keys_reply);
	tcase_add_test(golden, clear_request);
	tcase_add_test(golden, clear_reply);
	tcase_add_loop_test(golden, bodies_that_are_empty, 0, sizeof(empty_bodies) / sizeof(empty_bodies[0]));
	tcase_add_test(golden, status_reply);
	tcase_add_test(golden, text_of_an_error);
	tcase_add_test(golden, every_body_has_golden_bytes_and_a_codec);
	tcase_add_test(names, operations_have_names);
	tcase_add_loop_test(names, statuses_have_names_and_errors, 0, sizeof(statuses) / sizeof(statuses[0]));
	suite_add_tcase(suite, golden);
	suite_add_tcase(suite, names);
	return suite;
}
