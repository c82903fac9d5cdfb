/* SPDX-License-Identifier: Apache-2.0 */
#include "server_rig.h"

#include "check_main.h"
#include "l2_folder.h"

/* Two servers over one folder of files, as two nodes over a parallel file system: one writes, the other one waits for it. */

struct node {
	struct scout_server_config cfg;
	struct rig rig;
};

static char url[256];
static char *folder;

static void
setup(void)
{
	folder = l2_folder_make(false);
	(void)snprintf(url, sizeof(url), "fs://%s/kv?shared=1&threads=2", folder);
}

static void
teardown(void)
{
	l2_folder_remove(folder);
	free(folder);
}

static void
node_up(struct node *node)
{
	node->cfg = rig_config(64);
	node->cfg.l2 = url;
	node->cfg.l2_timeout_ms = 20000;
	rig_up_with(&node->rig, &node->cfg);
	wire_wait_status(&node->rig.client, "l2.0.ready", 1);
}

static void
fill(uint8_t *slot, uint64_t key)
{
	for (uint32_t i = 0; i < SHARD_BYTES; i++)
		slot[i] = (uint8_t)(key * 59 + i * 3 + (i >> 9));
}

static void
write_one(struct node *node, uint64_t key)
{
	struct wire_peer *p = &node->rig.worker;
	struct wire_grants g;
	uint32_t readable;

	ck_assert_int_eq(wire_store(p, 0, key, 1, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 1);
	fill(wire_slot(p, &g.grants[0]), key);
	ck_assert_int_eq(wire_store_done(p, g.id, 1, 1, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	wire_wait_status(&node->rig.client, "l2.writes.waiting", 0);
}

static void
read_all(struct node *node, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct wire_peer *p = &node->rig.worker;
	struct wire_grants g;

	ck_assert_int_eq(wire_retrieve(p, ticket, 0, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t expected[SHARD_BYTES];

		fill(expected, first_key + i);
		ck_assert_mem_eq(wire_slot(p, &g.grants[i]), expected, SHARD_BYTES);
	}
	ck_assert_int_eq(wire_retrieve_done(p, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
}

START_TEST(a_node_waits_for_what_another_writes_late_and_out_of_order)
{
	static const uint64_t order[] = {6, 2, 8, 1, 4, 3, 7, 5};
	const struct scout__lookup_msg m = {
		.ticket = 1, .n = 8, .expect = 8, .poll_timeout_ms = 20000, .poll_interval_ms = 5};
	struct node writer, reader;
	struct scout__lookup_reply hit;
	struct wire_reply *reply;
	const char *field = "";
	struct scout__op op;
	uint64_t corr;

	node_up(&writer);
	node_up(&reader);
	corr = wire_add_lookup(&reader.rig.client, &m, 1);
	wire_flush(&reader.rig.client);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(!wire_has(&reader.rig.client, corr));
		write_one(&writer, order[i]);
	}
	reply = wire_wait(&reader.rig.client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = SCOUT_OP_LOOKUP,
				.kind = SCOUT_KIND_REPLY,
				.corr = corr,
				.body = reply->body,
				.length = reply->length};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &hit, &field), 0);
	wire_reply_free(reply);
	ck_assert_uint_eq(hit.hit, 8);
	ck_assert_uint_eq(hit.l2, 8);
	read_all(&reader, 1, 1, 8);
	rig_finish(&reader.rig.client, 1);
	wire_wait_status(&reader.rig.client, "l2.0.pinned", 0);
	rig_down(&reader.rig);
	rig_down(&writer.rig);
}
END_TEST

START_TEST(a_server_that_restarts_finds_what_it_had_written)
{
	struct node node;
	struct scout__lookup_reply hit;

	node_up(&node);
	for (uint64_t key = 1; key <= 8; key++)
		write_one(&node, key);
	rig_down(&node.rig);
	(void)snprintf(url, sizeof(url), "fs://%s/kv", folder);
	node_up(&node);
	ck_assert_uint_eq(wire_status(&node.rig.client, "l2.0.recovered"), 8);
	ck_assert_int_eq(wire_lookup(&node.rig.client, 1, 1, 9, 0, &hit), SCOUT_WIRE_OK);
	ck_assert_uint_eq(hit.l1, 0);
	ck_assert_uint_eq(hit.l2, 8);
	read_all(&node, 1, 1, 8);
	rig_finish(&node.rig.client, 1);
	wire_wait_status(&node.rig.client, "l2.0.pinned", 0);
	rig_down(&node.rig);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_l2_nodes");
	TCase *tc = tcase_create("nodes");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_node_waits_for_what_another_writes_late_and_out_of_order);
	tcase_add_test(tc, a_server_that_restarts_finds_what_it_had_written);
	suite_add_tcase(suite, tc);
	return suite;
}
