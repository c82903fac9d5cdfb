/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator asks without HELLO: PEERS, TENANTS, DROP. */
#include "check_main.h"

#include <unistd.h>

#include "clear_rig.h"
#include "l2_folder.h"

#define DROP_X UINT64_C(0xd20b0001)
#define DROP_Y UINT64_C(0xd20b0002)
#define STEPS 32u

static const struct scout__str name_space = {"test", 4};

static struct rig rig;

static void
rig_teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

/* Ask; *ret_op is valid until the next call. */
static int
ask(struct wire_peer *p, struct scout__op *ret_op)
{
	uint64_t corr = wire_end(p);

	wire_flush(p);
	if (p->answer)
		wire_reply_free(p->answer);
	p->answer = wire_wait(p, corr);
	*ret_op = (struct scout__op){.opcode = p->answer->opcode,
				     .kind = SCOUT_KIND_REPLY,
				     .length = p->answer->length,
				     .body = p->answer->body};
	return p->answer->status;
}

static struct scout__list_reply
ask_peers(struct wire_peer *p, uint32_t first)
{
	struct scout__list_reply m;
	struct scout__op op;
	const char *field;

	scout__put_peers(wire_begin(p, SCOUT_OP_PEERS), first);
	assert_wire(ask(p, &op), SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__get_peers_reply(&op, &m, &field), SCOUT_WIRE_OK);
	return m;
}

static struct scout__list_reply
ask_tenants(struct wire_peer *p)
{
	struct scout__list_reply m;
	struct scout__op op;
	const char *field;

	scout__put_tenants(wire_begin(p, SCOUT_OP_TENANTS), &name_space);
	assert_wire(ask(p, &op), SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__get_tenants_reply(&op, &m, &field), SCOUT_WIRE_OK);
	return m;
}

/* @tenant NULL: the whole namespace. */
static int
try_drop(struct wire_peer *p, uint64_t generation, const char *tenant, struct scout__drop_reply *ret)
{
	struct scout__op op;
	const char *field;
	int status;

	scout__put_drop(wire_begin(p, SCOUT_OP_DROP),
			&(struct scout__drop_msg){.generation = generation,
						  .flags = tenant ? SCOUT_DROP_TENANT : 0,
						  .name_space = name_space,
						  .tenant = {tenant, tenant ? (uint16_t)strlen(tenant) : 0}});
	status = ask(p, &op);
	if (status == SCOUT_WIRE_OK)
		ck_assert_int_eq(scout__get_drop_reply(&op, ret, &field), SCOUT_WIRE_OK);
	return status;
}

static uint64_t
drop(struct wire_peer *p, uint64_t generation, const char *tenant)
{
	struct scout__drop_reply m;

	assert_wire(try_drop(p, generation, tenant, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.stores, 0);
	ck_assert_uint_eq(m.pending, 0);
	return m.bytes;
}

static void
set_tenant(struct wire_peer *p, const char *tenant)
{
	p->tenant = (struct scout__str){tenant, (uint16_t)strlen(tenant)};
}

CHECKED_FIXTURE(NULL, rig_teardown);

START_TEST(peers_are_listed_with_what_they_hold)
{
	struct scout__list_reply m;
	struct scout__peer_item client, worker;
	struct wire_peer operator;
	struct wire_grants g;

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	wire_open(&operator, rig.endpoint);
	m = ask_peers(&operator, 0);
	ck_assert_uint_eq(m.n, 2);
	ck_assert_uint_eq(m.head, 0);
	ck_assert(scout__get_peer_item(&m.items, &worker) && scout__get_peer_item(&m.items, &client));
	if (worker.role == SCOUT_ROLE_CLIENT) {
		struct scout__peer_item other = worker;

		worker = client;
		client = other;
	}
	ck_assert_uint_eq(client.id, rig.client.id);
	ck_assert_uint_eq(client.role, SCOUT_ROLE_CLIENT);
	ck_assert_uint_eq(client.kv_rank, 0);
	ck_assert_uint_eq(client.pid, 0);
	ck_assert_uint_eq(client.sessions, 1);
	ck_assert_uint_eq(client.holds, 0);
	ck_assert_uint_eq(worker.id, rig.worker.id);
	ck_assert_uint_eq(worker.role, SCOUT_ROLE_WORKER);
	ck_assert_uint_eq(worker.kv_rank, 1);
	ck_assert_uint_eq(worker.pid, (uint32_t)getpid());
	ck_assert_uint_eq(worker.sessions, 0);
	ck_assert_uint_eq(worker.holds, 1);
	ck_assert_uint_eq(worker.waiting, 0);
	ck_assert_uint_eq(worker.unread_bytes, 0);
	ck_assert_uint_eq(worker.name_space.len, 4);
	ck_assert_mem_eq(worker.name_space.p, "test", 4);
	/* The operator has made no peer. */
	ck_assert_uint_eq(wire_status(&operator, "peers"), 2);
	rig_finish(&rig.client, 9);
	m = ask_peers(&operator, 1);
	ck_assert_uint_eq(m.n, 1);
	ck_assert_uint_eq(ask_peers(&operator, UINT32_MAX).n, 0);
	m = ask_peers(&operator, 0);
	while (scout__get_peer_item(&m.items, &client))
		ck_assert_uint_eq(client.sessions, 0);
	free(g.grants);
	wire_close(&operator);
}
END_TEST

START_TEST(more_peers_than_a_reply_holds_are_listed_in_several)
{
	enum {
		MANY = SCOUT_MAX_LISTED + 2
	};
	static struct wire_peer peers[MANY];
	struct scout_server_config cfg = rig_config(8);
	struct scout__list_reply first, rest;
	struct wire_peer operator;
	struct scout_server *server;

	cfg.max_peers = MANY + 10;
	server = rig_start(&cfg);
	wire_open(&operator, scout_server_endpoint(server));
	for (int i = 0; i < MANY; i++) {
		wire_open(&peers[i], scout_server_endpoint(server));
		peers[i].hello.heartbeat_ms = 600000; /* none of them says anything until all are there */
		ck_assert_int_eq(wire_hello(&peers[i]), 0);
	}
	first = ask_peers(&operator, 0);
	ck_assert_uint_eq(first.n, SCOUT_MAX_LISTED);
	ck_assert_uint_eq(first.head, SCOUT_MAX_LISTED);
	rest = ask_peers(&operator, first.head);
	ck_assert_uint_eq(rest.n, MANY - SCOUT_MAX_LISTED);
	ck_assert_uint_eq(rest.head, 0);
	for (int i = 0; i < MANY; i++)
		wire_close(&peers[i]);
	wire_close(&operator);
	scout_server_stop(server);
}
END_TEST

/* Whoever floods: the second of a kind in a frame costs a refusal, and the next frame may have one again. */
START_TEST(a_frame_lists_or_drops_once)
{
	static const uint8_t opcodes[] = {SCOUT_OP_STATUS, SCOUT_OP_PEERS, SCOUT_OP_TENANTS, SCOUT_OP_DROP,
					  SCOUT_OP_FEED,   SCOUT_OP_RESET, SCOUT_OP_CLEAR};

	rig_up(&rig, 8);
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned k = 0; k < 14;
		     k++) /* the five reports, another one first each time, and the two others; twice */
			(void)wire_add_plain(&rig.client, opcodes[k % 7 < 5 ? (k % 7 + i) % 5 : k % 7], i + 1);
		wire_flush(&rig.client);
		for (unsigned k = 0; k < 14; k++) {
			struct wire_reply *reply = wire_wait(&rig.client, rig.client.last_corr - 13 + k);

			assert_wire(reply->status, k == 0 || k == 5 || k == 6 ? SCOUT_WIRE_OK : SCOUT_WIRE_LIMIT);
			wire_reply_free(reply);
		}
	}
}
END_TEST

/* By the work, not by the time: so many chunks in a step, and so many bytes. A ping takes a turn, and each turn a step of it. */
START_TEST(what_is_dropped_is_given_back_in_steps)
{
	struct scout__lookup_msg m = {.ticket = 1, .n = STEPS * 8192};
	struct wire_peer stranger;

	rig_up(&rig, STEPS * 128);
	wire_open(&stranger, rig.endpoint);
	stranger.hello.hash_bytes = 32;
	for (uint64_t i = 0; i < STEPS * 128; i += 512)
		rig_store(&rig.worker, 0, 1 + i, 512);
	for (unsigned what = 0; what < 2; what++) {
		uint64_t steps = wire_status(&rig.client, "loop.steps");

		if (what)
			(void)wire_add_lookup(&stranger, &m, 1);
		else
			(void)wire_add_plain(&stranger, SCOUT_OP_DROP, DROP_X);
		wire_flush(&stranger);
		wire_reply_free(wire_wait(&stranger, stranger.last_corr));
		for (unsigned i = 0; i < STEPS; i++)
			assert_wire(wire_ping(&rig.client), SCOUT_WIRE_OK);
		ck_assert_uint_ge(wire_status(&rig.client, "loop.steps") - steps, 2 * STEPS - 1);
		ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_used"), 0);
	}
	wire_close(&stranger);
}
END_TEST

START_TEST(tenants_are_listed_the_largest_first)
{
	struct scout__tenant_item item;
	struct scout__list_reply m;

	rig_up(&rig, 16);
	ck_assert_uint_eq(ask_tenants(&rig.client).n, 0);
	set_tenant(&rig.worker, "small");
	rig_store(&rig.worker, 0, 1, 1);
	set_tenant(&rig.worker, "large");
	rig_store(&rig.worker, 0, 1, 5);
	set_tenant(&rig.worker, "");
	rig_store(&rig.worker, 0, 1, 3);
	m = ask_tenants(&rig.client);
	ck_assert_uint_eq(m.head, 3);
	ck_assert_uint_eq(m.n, 3);
	for (int i = 0; i < 3; i++) {
		static const struct {
			const char *name;
			uint32_t chunks;
		} rows[] = {{"large", 5}, {"", 3}, {"small", 1}};

		ck_assert(scout__get_tenant_item(&m.items, &item));
		ck_assert_uint_eq(item.tenant.len, strlen(rows[i].name));
		ck_assert_mem_eq(item.tenant.p, rows[i].name, item.tenant.len);
		ck_assert_uint_eq(item.bytes, (uint64_t)rows[i].chunks * SHARD_BYTES);
	}
}
END_TEST

START_TEST(a_namespace_that_is_not_there_is_named)
{
	struct scout__op op;
	const struct scout__str none = {"none", 4};

	rig_up(&rig, 8);
	scout__put_tenants(wire_begin(&rig.client, SCOUT_OP_TENANTS), &none);
	ck_assert_int_eq(ask(&rig.client, &op), SCOUT_WIRE_STATE);
	ck_assert_str_eq(rig.client.text, "this server has no namespace \"none\"");
	scout__put_drop(wire_begin(&rig.client, SCOUT_OP_DROP),
			&(struct scout__drop_msg){.generation = 1, .name_space = none});
	ck_assert_int_eq(ask(&rig.client, &op), SCOUT_WIRE_STATE);
}
END_TEST

START_TEST(a_drop_ends_what_was_cached_and_the_worker_stores_on)
{
	struct wire_peer operator;

	rig_up_promised(&rig, 8, 4);
	wire_open(&operator, rig.endpoint);
	ck_assert_uint_eq(drop(&operator, DROP_X, NULL), 4 * SHARD_BYTES);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	wire_wait_status(&operator, "l1.chunks", 0);
	ck_assert_uint_eq(wire_status(&operator, "clears"), 1);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	wire_close(&operator);
}
END_TEST

START_TEST(a_drop_of_one_tenant_leaves_the_others)
{
	rig_up(&rig, 16);
	rig_store(&rig.worker, 0, 1, 3);
	set_tenant(&rig.worker, "gone");
	set_tenant(&rig.client, "gone");
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 2), 2);
	ck_assert_uint_eq(drop(&rig.client, DROP_X, "gone"), 4 * SHARD_BYTES);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	/* What was promised stays until the request has ended. */
	wire_wait_status(&rig.client, "l1.chunks", 3 + 2);
	rig_finish(&rig.client, 9);
	wire_wait_status(&rig.client, "l1.chunks", 3);
	ck_assert_uint_eq(ask_tenants(&rig.client).n, 1);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	set_tenant(&rig.client, "");
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 3), 3);
	/* A tenant that has nothing. */
	ck_assert_uint_eq(drop(&rig.client, DROP_Y, "unknown"), 0);
}
END_TEST

/* ---- with L2 ---- */

static char url[256], shared_url[256];
static char *folder;

static void
setup(void)
{
	folder = l2_folder_make(false);
	(void)snprintf(url, sizeof(url), "fs://%s/kv", folder);
	(void)snprintf(shared_url, sizeof(shared_url), "fs://%s/shared?shared=1", folder);
}

static void
teardown(void)
{
	l2_folder_remove(folder);
	free(folder);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_drop_empties_l2_too_and_the_worker_stores_on)
{
	struct scout__drop_reply m = {.pending = 1};
	struct node node;

	node_up(&node, url);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	assert_wire(try_drop(&node.rig.client, DROP_X, NULL, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.bytes, 4 * SHARD_BYTES);
	ck_assert_uint_eq(m.stores, 1);
	wait_until(m.pending == 0) {
		assert_wire(try_drop(&node.rig.client, DROP_X, NULL, &m), SCOUT_WIRE_OK);
		ck_assert_uint_eq(m.bytes, 0);
	}
	ck_assert_uint_eq(wire_status(&node.rig.client, "clears"), 1);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).l1, 4);
	/* An older name is no news. */
	assert_wire(try_drop(&node.rig.client, DROP_Y, NULL, &m), SCOUT_WIRE_OK);
	clear_write(&node);
	assert_wire(try_drop(&node.rig.client, DROP_X, NULL, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	rig_down(&node.rig);
	/* The next server has only what was stored since. */
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	rig_down(&node.rig);
}
END_TEST

/* The record may be another one than the first HELLO will ask for: the operator knows the name alone. */
START_TEST(a_namespace_that_no_peer_has_named_since_the_start_is_dropped_in_l2)
{
	struct scout__drop_reply m = {.pending = 1};
	struct scout_server_config cfg;
	struct wire_peer operator;
	struct scout_server *server;
	struct node node;

	node_up(&node, url);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	cfg = node.cfg;
	rig_down(&node.rig);
	server = rig_start(&cfg);
	wire_open(&operator, scout_server_endpoint(server));
	wait_until(m.pending == 0)
		assert_wire(try_drop(&operator, DROP_X, NULL, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.stores, 1);
	wire_close(&operator);
	scout_server_stop(server);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	rig_down(&node.rig);
}
END_TEST

START_TEST(servers_that_drop_at_once_reach_the_one_that_has_the_namespace)
{
	struct scout__drop_reply m[2] = {{.pending = 1}, {.pending = 1}};
	struct scout_server *server[2];
	struct wire_peer operator[2];
	struct node node;

	node_up(&node, shared_url);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	for (int i = 0; i < 2; i++) {
		server[i] = rig_start(&node.cfg);
		wire_open(&operator[i], scout_server_endpoint(server[i]));
	}
	wait_until(m[0].pending == 0 && m[1].pending == 0)
		for (int i = 0; i < 2; i++)
			assert_wire(try_drop(&operator[i], i ? DROP_Y : DROP_X, NULL, &m[i]), SCOUT_WIRE_OK);
	/* The living one learns of it by itself. */
	wire_wait_status(&node.rig.client, "l1.chunks", 0);
	for (int i = 0; i < 2; i++) {
		wire_close(&operator[i]);
		scout_server_stop(server[i]);
	}
	rig_down(&node.rig);
}
END_TEST

START_TEST(a_worker_that_a_clear_put_out_stays_out)
{
	struct scout__drop_reply m;
	struct wire_grants g;
	struct node node;

	node_up(&node, url);
	(void)clear_by(&node.rig.client, CLEAR_X);
	assert_wire(try_drop(&node.rig.client, DROP_X, NULL, &m), SCOUT_WIRE_OK);
	assert_wire(wire_store(&node.rig.worker, 0, 1, 1, &g), SCOUT_WIRE_CLEARED);
	rig_down(&node.rig);
}
END_TEST

START_TEST(a_tenant_is_not_dropped_where_l2_would_bring_it_back)
{
	struct scout__drop_reply m;
	struct node node;

	node_up(&node, url);
	clear_write(&node);
	assert_wire(try_drop(&node.rig.client, DROP_X, "", &m), SCOUT_WIRE_UNSUPPORTED);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	rig_down(&node.rig);
}
END_TEST
