/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes_rig.h"

#include "check_main.h"
#include "l2_folder.h"

/* Two servers over one folder of files, as two nodes over a parallel file system: one writes, the other one waits for it. */

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

CHECKED_FIXTURE(setup, teardown);

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

	node_up(&writer, url);
	node_up(&reader, url);
	corr = wire_add_lookup(&reader.rig.client, &m, 1);
	wire_flush(&reader.rig.client);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(!wire_has(&reader.rig.client, corr));
		node_write(&writer, order[i]);
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
	node_read(&reader, 1, 1, 8);
	rig_finish(&reader.rig.client, 1);
	wire_wait_status(&reader.rig.client, "l2.0.pinned", 0);
	rig_down(&reader.rig);
	rig_down(&writer.rig);
}
END_TEST

START_LOOP_TEST(a_decode_scheduler_gets_what_a_prefill_node_writes_late_and_out_of_order, 0, 2)
{
	nodes_wait_for_late_keys(url, _i != 0);
}
END_TEST

START_TEST(a_server_that_restarts_finds_what_it_had_written)
{
	struct node node;
	struct scout__lookup_reply hit;

	node_up(&node, url);
	for (uint64_t key = 1; key <= 8; key++)
		node_write(&node, key);
	rig_down(&node.rig);
	(void)snprintf(url, sizeof(url), "fs://%s/kv", folder);
	node_up(&node, url);
	ck_assert_uint_eq(wire_status(&node.rig.client, "l2.0.recovered"), 8);
	ck_assert_int_eq(wire_lookup(&node.rig.client, 1, 1, 9, 0, &hit), SCOUT_WIRE_OK);
	ck_assert_uint_eq(hit.l1, 0);
	ck_assert_uint_eq(hit.l2, 8);
	node_read(&node, 1, 1, 8);
	rig_finish(&node.rig.client, 1);
	wire_wait_status(&node.rig.client, "l2.0.pinned", 0);
	rig_down(&node.rig);
}
END_TEST
