/* SPDX-License-Identifier: Apache-2.0 */
/* Groups at the server's door, from peers that do not check anything themselves; and peers of the protocol version before. */
#include <pthread.h>
#include <string.h>

#include "check_main.h"
#include "groups_rig.h"

/* A HELLO of protocol version 2, as a client of that release sent it. */
static const uint8_t old_hello[] = {
	0x4b, 0x56, 0x53, 0x43, 0x02, 0x00, 0x00, 0x00, 0xa1, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x88, 0x77,
	0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x40, 0x42, 0x0f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
	0x69, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0x4b, 0x4c, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x02, 0x00, 0x10, 0x00, 0x00, 0x01, 0x02, 0x03,
	0x02, 0x00, 0x03, 0x00, 0x08, 0x00, 0x04, 0x00, 0x0d, 0x0c, 0x0b, 0x0a, 0x10, 0x00, 0x00, 0x00, 0x08, 0x07,
	0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x48, 0x47, 0x46, 0x45,
	0x44, 0x43, 0x42, 0x41, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x03, 0x00, 0x6e, 0x73, 0x31, 0x02,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x01, 0x02, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x01, 0x00, 0x05, 0x00, 0x30, 0x00, 0x00, 0x00, 0x74, 0x73, 0x72, 0x71, 0x84, 0x83, 0x82, 0x81,
};

/* A peer of namespace "test" that has said nothing yet. */
static void
open_peer(struct wire_peer *p, const struct rig *rig, const char *name_space)
{
	wire_open(p, rig->endpoint);
	p->hello.name_space = (struct scout__str){name_space, (uint16_t)strlen(name_space)};
	scout__hello_one_group(&p->hello);
}

START_TEST(a_group_whose_readers_leave_no_whole_shards_is_refused)
{
	static const struct {
		uint16_t kv_ranks, rank_count, readers, group_readers;
	} cases[] = {{1, 1, 1, 2}, {4, 2, 1, 4}, {3, 3, 2, 4}, {64, 64, 2, 1}};
	struct wire_peer p;
	struct rig rig;

	rig_up(&rig, 8);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_peer(&p, &rig, "alone");
		p.hello.kv_ranks = cases[i].kv_ranks;
		p.hello.rank_count = cases[i].rank_count;
		p.hello.readers = cases[i].readers;
		p.hello.groups.group[0].readers = cases[i].group_readers;
		ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_RANGE);
		ck_assert_msg(strstr(p.text, "group 0 has readers") && strstr(p.text, "at most 64 shards"), "%s",
			      p.text);
		wire_close(&p);
	}
	/* The refusals have made no namespace: the next HELLO decides. */
	open_peer(&p, &rig, "alone");
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

START_TEST(groups_that_differ_between_peers_are_refused_with_both_values)
{
	struct wire_peer p;
	struct rig rig;

	rig_up(&rig, 8);
	open_peer(&p, &rig, "test");
	p.hello.groups.group[0] = (struct scout__group){SCOUT_POLICY_WINDOW, 1, 16, 64, 0};
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_GROUPS_DIFFER);
	ck_assert_msg(strstr(p.text, "policy = 0 in group 0") && strstr(p.text, "HELLO says 1"), "%s", p.text);
	p.hello.groups.group[0] = (struct scout__group){SCOUT_POLICY_ALL, 1, 32, 0, 0};
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_GROUPS_DIFFER);
	ck_assert_msg(strstr(p.text, "unit_tokens = 16") && strstr(p.text, "HELLO says 32"), "%s", p.text);
	p.hello.groups.group[0] = (struct scout__group){SCOUT_POLICY_ALL, 1, 16, 0, 32};
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_GROUPS_DIFFER);
	ck_assert_msg(strstr(p.text, "margin_tokens") != NULL, "%s", p.text);
	p.hello.groups.n = 32;
	for (int i = 0; i < 32; i++)
		p.hello.groups.group[i] = (struct scout__group){SCOUT_POLICY_ALL, 1, 16, 0, 0};
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_GROUPS_DIFFER);
	ck_assert_msg(strstr(p.text, "1 groups") && strstr(p.text, "HELLO says 32"), "%s", p.text);
	p.hello.groups.n = 1;
	p.hello.hash_tokens = 8;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_NAMESPACE);
	ck_assert_msg(strstr(p.text, "hash_tokens") != NULL, "%s", p.text);
	p.hello.hash_tokens = 16;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

START_TEST(the_33rd_group_is_over_the_limit)
{
	struct scout__writer *w;
	struct wire_reply *reply;
	struct wire_peer p;
	struct rig rig;
	size_t at;

	rig_up(&rig, 8);
	open_peer(&p, &rig, "many");
	w = wire_begin(&p, SCOUT_OP_HELLO);
	scout__put_hello(w, &p.hello);
	at = w->len - 16 - 4; /* n_groups, before the one group */
	w->buf[at] = 33;
	for (int i = 1; i < 33; i++)
		scout__put_bytes(w, w->buf + at + 4, 16);
	(void)wire_end(&p);
	wire_flush(&p);
	reply = wire_wait(&p, p.last_corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_GROUP_LIMIT);
	ck_assert_msg(strstr(p.text, "n_groups must be 1..32") != NULL, "%s", p.text);
	wire_reply_free(reply);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

/* Ends the operation that was begun; the status of its reply. */
static int
status_of(struct wire_peer *p)
{
	struct wire_reply *reply;
	int status;

	(void)wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, p->last_corr);
	status = reply->status;
	wire_reply_free(reply);
	return status;
}

START_TEST(a_group_that_the_namespace_does_not_have_is_refused)
{
	const struct scout__register_msg reg = {.n_tables = 1};
	const struct scout__table_msg table = {.group = 1, .block_tokens = 16, .n_planes = 1};
	const uint64_t shard_bytes = SHARD_BYTES;
	struct scout__retrieve_msg retrieve = scout__retrieve_of(9, 0, 1);
	struct scout__store_msg store = {.n = 1, .group = 1, .hashes = (const uint8_t *)"0123456789abcdef"};
	struct wire_peer second;
	struct scout__writer *w;
	struct rig rig;

	rig_up_promised(&rig, 8, 4);
	rig_worker_unregistered(&second, rig.endpoint, 1, 1);
	w = wire_begin(&second, SCOUT_OP_REGISTER);
	scout__put_register(w, &reg);
	scout__put_table(w, &table, &shard_bytes);
	ck_assert_int_eq(status_of(&second), SCOUT_WIRE_GROUP);
	ck_assert_msg(strstr(second.text, "group 1") && strstr(second.text, "below 1"), "%s", second.text);
	scout__put_store(wire_begin(&rig.worker, SCOUT_OP_STORE), &store, 16);
	ck_assert_int_eq(status_of(&rig.worker), SCOUT_WIRE_GROUP);
	ck_assert_msg(strstr(rig.worker.text, "group = 1") != NULL, "%s", rig.worker.text);
	retrieve.parts[0].group = 7;
	scout__put_retrieve(wire_begin(&rig.worker, SCOUT_OP_RETRIEVE), &retrieve);
	ck_assert_int_eq(status_of(&rig.worker), SCOUT_WIRE_GROUP);
	ck_assert_msg(strstr(rig.worker.text, "group = 7") != NULL, "%s", rig.worker.text);
	/* Of two parts none is granted. */
	retrieve = scout__retrieve_of(9, 0, 1);
	retrieve.n_parts = 2;
	retrieve.parts[1] = retrieve.parts[0];
	retrieve.parts[1].group = 1;
	scout__put_retrieve(wire_begin(&rig.worker, SCOUT_OP_RETRIEVE), &retrieve);
	ck_assert_int_eq(status_of(&rig.worker), SCOUT_WIRE_GROUP);
	ck_assert_uint_eq(rig_promised(&rig), 4);
	wire_close(&second);
	rig_down(&rig);
}
END_TEST

/* REGISTER of a table with @tag. */
static int
register_tagged(struct wire_peer *p, const char *tag)
{
	const struct scout__register_msg reg = {.n_tables = 1};
	const struct scout__table_msg table = {
		.block_tokens = 16, .n_planes = 1, .layout_tag = {tag, (uint16_t)strlen(tag)}};
	const uint64_t shard_bytes = SHARD_BYTES;
	struct scout__writer *w = wire_begin(p, SCOUT_OP_REGISTER);

	scout__put_register(w, &reg);
	scout__put_table(w, &table, &shard_bytes);
	return status_of(p);
}

START_TEST(equal_sizes_in_another_order_are_another_layout)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer first, second;

	rig_worker_unregistered(&first, scout_server_endpoint(server), 1, 1);
	rig_worker_unregistered(&second, scout_server_endpoint(server), 1, 1);
	ck_assert_int_eq(register_tagged(&first, "NHD"), SCOUT_WIRE_OK);
	ck_assert_int_eq(register_tagged(&second, "HND"), SCOUT_WIRE_SHARD_BYTES);
	ck_assert_msg(strstr(second.text, "\"NHD\"") && strstr(second.text, "\"HND\""), "%s", second.text);
	ck_assert_int_eq(register_tagged(&second, "NH"), SCOUT_WIRE_SHARD_BYTES);
	ck_assert_int_eq(register_tagged(&second, ""), SCOUT_WIRE_SHARD_BYTES);
	ck_assert_int_eq(register_tagged(&second, "NHD"), SCOUT_WIRE_OK);
	wire_close(&first);
	wire_close(&second);
	scout_server_stop(server);
}
END_TEST

/* ---- the version before ---- */

static pthread_mutex_t lines_mu = PTHREAD_MUTEX_INITIALIZER;
static char about_version[512]; /* G:lines_mu */

static void
note_line(void *user, int level, const char *text)
{
	rig_log(user, level, text);
	(void)pthread_mutex_lock(&lines_mu);
	if (level == SCOUT_LOG_WARN && strstr(text, "protocol version"))
		(void)snprintf(about_version, sizeof(about_version), "%d %s", level, text);
	(void)pthread_mutex_unlock(&lines_mu);
}

START_TEST(a_peer_of_the_version_before_is_told_in_one_sentence)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_reply *reply;
	struct wire_peer p;
	struct rig rig;

	cfg.log = note_line;
	rig_up_with(&rig, &cfg);
	wire_open(&p, rig.endpoint);
	wire_raw(&p, old_hello, sizeof(old_hello), false);
	reply = wire_wait(&p, 0);
	ck_assert_int_eq(reply->opcode, SCOUT_OP_ERROR);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_BAD_VERSION);
	ck_assert_str_eq(p.text, "the frame is of protocol version 2, this server speaks version 3: upgrade the peer");
	wire_reply_free(reply);
	(void)pthread_mutex_lock(&lines_mu);
	ck_assert_msg(strncmp(about_version, "2 ", 2) == 0 && strstr(about_version, "protocol version 2") &&
			      strstr(about_version, "version 3: upgrade the peer"),
		      "%s", about_version);
	(void)pthread_mutex_unlock(&lines_mu);
	/* The server goes on with those of its own. */
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

/* Keys of a tenant lie in each group by themselves; it is one tenant all the same. */
START_TEST(a_tenant_counts_once_in_whatever_groups_it_stores)
{
	const struct scout__groups groups = {2, {{SCOUT_POLICY_ALL, 1, 16, 0, 0}, {SCOUT_POLICY_STATE, 1, 16, 0, 0}}};
	struct groups_rig rig;

	groups_up(&rig, 8, &groups, 16);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenants"), 0);
	groups_store(&rig.worker, 0, 0, 4);
	groups_store(&rig.worker, 1, 3, 4);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenants"), 1);
	rig.worker.tenant = (struct scout__str){"other", 5};
	groups_store(&rig.worker, 1, 3, 4);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenants"), 2);
	groups_down(&rig);
}
END_TEST

/* A worker that does not check what it registers. */
START_TEST(a_table_of_no_group_or_of_blocks_that_fill_no_unit_is_refused)
{
	static const struct scout__groups groups = {
		.n = 2, .group = {{.readers = 1, .unit_tokens = 16}, {.readers = 1, .unit_tokens = 32}}};
	struct groups_rig rig;

	groups_up(&rig, 8, &groups, 16);
	rig.worker.hello.groups.n = 3;
	rig.worker.hello.groups.group[2] = groups.group[0];
	ck_assert_int_eq(groups_register(&rig.worker, 0, 0, 7, SHARD_BYTES), SCOUT_WIRE_GROUP);
	ck_assert_msg(strstr(rig.worker.text, "a table names group 2: must be below 2") != NULL, "%s", rig.worker.text);
	rig.worker.hello.groups = groups;
	rig.worker.hello.groups.group[1].unit_tokens = 24;
	ck_assert_int_eq(groups_register(&rig.worker, 0, 0, 3, SHARD_BYTES), SCOUT_WIRE_RANGE);
	ck_assert_msg(strstr(rig.worker.text, "block_tokens = 24 does not divide the unit of group 1, 32 tokens") !=
			      NULL,
		      "%s", rig.worker.text);
	rig.worker.hello.groups = groups;
	ck_assert_int_eq(groups_register(&rig.worker, 0, 0, 3, SHARD_BYTES), SCOUT_WIRE_OK);
	groups_down(&rig);
}
END_TEST

/* S6: by the work, not by the time that this machine takes for it. A step prepares 2048 objects of all groups together. */
START_LOOP_TEST(the_longest_lookup_takes_its_turn_after_every_2048_objects, 0, 2)
{
	struct scout__lookup_msg m = {.ticket = 7, .n = 262000};
	struct scout__groups groups = {.n = SCOUT_MAX_GROUPS};
	struct groups_answer answer;
	struct groups_rig rig;
	uint64_t steps;

	for (uint16_t g = 0; g < groups.n; g++)
		groups.group[g] = (struct scout__group){SCOUT_POLICY_ALL, 1, 16, 0, 0};
	if (_i == 1) /* each length is judged by itself */
		groups = (struct scout__groups){.n = 1, .group[0] = {SCOUT_POLICY_WINDOW, 1, 16, 4096, 0}};
	groups_up(&rig, 256, &groups, 16);
	steps = wire_status(&rig.client, "loop.steps");
	assert_wire(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 0);
	ck_assert_uint_ge(wire_status(&rig.client, "loop.steps") - steps,
			  (uint64_t)groups.n * m.n / 2048 + (_i == 1 ? m.n / 4096 : 0));
	groups_down(&rig);
}
END_TEST
