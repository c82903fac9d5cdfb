/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the worker's operations: their bytes, written and read. */
#include <kvscout/error.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "msg_recode.h"
#include "msg_golden.h"
#include "body_rig.h"

START_TEST(register_request)
{
	static const uint64_t planes[] = {0x6162636465666768, 0x7172737475767778};
	static const uint64_t last = 0x7172737475767779;
	const struct scout__register_msg m = {.kv_rank = 5, .reader = 6, .numa = 0x0102, .n_tables = 2};
	const struct scout__table_msg tables[2] = {
		{.dtype = SCOUT_DTYPE_BF16, .block_tokens = 0x10111213, .n_planes = 2, .layout_tag = str("NHD")},
		{.group = 0x0304, .block_tokens = 0x20212223, .n_planes = 1, .layout_tag = str("")},
	};
	struct scout__register_msg got;

	begin(SCOUT_OP_REGISTER, SCOUT_KIND_REQUEST);
	scout__put_register(&f.w, &m);
	scout__put_table(&f.w, &tables[0], planes);
	scout__put_table(&f.w, &tables[1], &last);
	ck_assert_int_eq(scout__get_register(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.kv_rank, m.kv_rank);
	ck_assert_uint_eq(got.reader, m.reader);
	ck_assert_uint_eq(got.numa, m.numa);
	ck_assert_uint_eq(got.n_tables, 2);
	for (int t = 0; t < 2; t++) {
		ck_assert_uint_eq(got.tables[t].group, tables[t].group);
		ck_assert_uint_eq(got.tables[t].dtype, tables[t].dtype);
		ck_assert_uint_eq(got.tables[t].block_tokens, tables[t].block_tokens);
		ck_assert_uint_eq(got.tables[t].n_planes, tables[t].n_planes);
	}
	check_str(got.tables[0].layout_tag, "NHD");
	check_str(got.tables[1].layout_tag, "");
	ck_assert_uint_eq(scout__plane_bytes(&got.tables[0], 0), planes[0]);
	ck_assert_uint_eq(scout__plane_bytes(&got.tables[0], 1), planes[1]);
	ck_assert_uint_eq(scout__plane_bytes(&got.tables[1], 0), last);
	end();
}
END_TEST

START_TEST(register_reply)
{
	const struct scout__register_reply m = {
		.segments = 0xc1c2c3c4,
		.n_tables = 2,
		.tables = {{0x8182838485868788, 0x9192939495969798}, {0x8182838485868789, 0x9192939495969799}},
	};
	struct scout__register_reply got;

	begin(SCOUT_OP_REGISTER, SCOUT_KIND_REPLY);
	scout__put_register_reply(&f.w, &m);
	ck_assert_int_eq(scout__get_register_reply(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.segments, m.segments);
	ck_assert_uint_eq(got.n_tables, 2);
	for (int t = 0; t < 2; t++) {
		ck_assert_uint_eq(got.tables[t].shard_bytes, m.tables[t].shard_bytes);
		ck_assert_uint_eq(got.tables[t].slot_stride, m.tables[t].slot_stride);
	}
	end();
}
END_TEST

START_TEST(store_request)
{
	const struct scout__store_msg m = {
		.ticket = 0xa1a2a3a4a5a6a7a8,
		.n = 1,
		.group = 0x021f,
		.tenant = str("t"),
		.hashes = golden_store + 19,
	};
	struct scout__store_msg got;

	begin(SCOUT_OP_STORE, SCOUT_KIND_REQUEST);
	scout__put_store(&f.w, &m, GOLDEN_HASH_BYTES);
	ck_assert_int_eq(scout__get_store(&f.op, GOLDEN_HASH_BYTES, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.ticket, m.ticket);
	ck_assert_uint_eq(got.n, 1);
	ck_assert_uint_eq(got.group, m.group);
	check_str(got.tenant, "t");
	ck_assert_ptr_eq(got.hashes, f.body + 19);
	end();
}
END_TEST

/* Put @grants as a reply, and find the same ones in the golden reply. */
static void
check_grants(uint64_t id, const struct scout__grant *grants, uint32_t n)
{
	struct scout__grants got;

	scout__put_grants_head(&f.w, id, n);
	for (uint32_t i = 0; i < n; i++)
		scout__put_grant(&f.w, &grants[i]);
	ck_assert_int_eq(scout__get_grants(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.id, id);
	ck_assert_uint_eq(got.n, n);
	for (uint32_t i = 0; i < n; i++) {
		struct scout__grant g = scout__grant_at(&got, i);

		ck_assert_uint_eq(g.segment, grants[i].segment);
		ck_assert_uint_eq(g.state, grants[i].state);
		ck_assert_uint_eq(g.offset, grants[i].offset);
		ck_assert_uint_eq(g.generation, grants[i].generation);
	}
}

START_TEST(store_reply)
{
	static const struct scout__grant grants[] = {
		{0xd1d2d3d4, SCOUT_GRANT_GRANTED, 0xc1c2c3c4c5c6c7c8, 0xe1e2e3e4e5e6e7e8},
		{.state = SCOUT_GRANT_PRESENT},
		{.state = SCOUT_GRANT_NO_ROOM},
	};

	begin(SCOUT_OP_STORE, SCOUT_KIND_REPLY);
	check_grants(0xb1b2b3b4b5b6b7b8, grants, 3);
	end();
}
END_TEST

START_TEST(store_done_request)
{
	const struct scout__store_done_msg m = {.store_id = 0xf1f2f3f4f5f6f7f8, .n = 0x010203, .committed = 0x0506};
	struct scout__store_done_msg got;

	begin(SCOUT_OP_STORE_DONE, SCOUT_KIND_REQUEST);
	scout__put_store_done(&f.w, &m);
	ck_assert_int_eq(scout__get_store_done(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.store_id, m.store_id);
	ck_assert_uint_eq(got.n, m.n);
	ck_assert_uint_eq(got.committed, m.committed);
	end();
}
END_TEST

START_TEST(store_done_reply)
{
	uint32_t readable = 0;

	begin(SCOUT_OP_STORE_DONE, SCOUT_KIND_REPLY);
	scout__put_store_done_reply(&f.w, 0x010203);
	ck_assert_int_eq(scout__get_store_done_reply(&f.op, &readable, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 0x010203);
	end();
}
END_TEST

START_TEST(retrieve_request)
{
	const struct scout__retrieve_msg m = {.ticket = 0x1213141516171819,
					      .n_parts = 2,
					      .parts = {{.from = 0x0506, .to = 0x010203}, {0x0304, 7, 8}}};
	struct scout__retrieve_msg got;

	begin(SCOUT_OP_RETRIEVE, SCOUT_KIND_REQUEST);
	scout__put_retrieve(&f.w, &m);
	ck_assert_int_eq(scout__get_retrieve(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.ticket, m.ticket);
	ck_assert_uint_eq(got.n_parts, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(got.parts[i].group, m.parts[i].group);
		ck_assert_uint_eq(got.parts[i].from, m.parts[i].from);
		ck_assert_uint_eq(got.parts[i].to, m.parts[i].to);
	}
	end();
}
END_TEST

START_TEST(retrieve_reply)
{
	static const struct scout__grant grants[] = {
		{.state = SCOUT_GRANT_MISSING},
		{0xd2d3d4d5, SCOUT_GRANT_GRANTED, 0x3233343536373839, 0x4243444546474849},
	};

	begin(SCOUT_OP_RETRIEVE, SCOUT_KIND_REPLY);
	check_grants(0x2223242526272829, grants, 2);
	end();
}
END_TEST

START_TEST(retrieve_done_request)
{
	const struct scout__retrieve_done_msg m = {.retrieve_id = 0x5253545556575859, .mismatches = 0x61626364};
	struct scout__retrieve_done_msg got;

	begin(SCOUT_OP_RETRIEVE_DONE, SCOUT_KIND_REQUEST);
	scout__put_retrieve_done(&f.w, &m);
	ck_assert_int_eq(scout__get_retrieve_done(&f.op, &got, &f.field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(got.retrieve_id, m.retrieve_id);
	ck_assert_uint_eq(got.mismatches, m.mismatches);
	end();
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("wire_bodies_worker");
	TCase *golden = tcase_create("golden bytes");

	tcase_add_test(golden, register_request);
	tcase_add_test(golden, register_reply);
	tcase_add_test(golden, store_request);
	tcase_add_test(golden, store_reply);
	tcase_add_test(golden, store_done_request);
	tcase_add_test(golden, store_done_reply);
	tcase_add_test(golden, retrieve_request);
	tcase_add_test(golden, retrieve_reply);
	tcase_add_test(golden, retrieve_done_request);
	suite_add_tcase(suite, golden);
	return suite;
}
