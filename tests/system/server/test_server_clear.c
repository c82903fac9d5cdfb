/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "assert_rc.h"
#include "check_main.h"
#include "clear_rig.h"
#include "l2.h"
#include "l2_fault.h"
#include "l2_folder.h"
#include "wall_clock.h"

/* CLEAR: what it drops, who is in afterwards, and what the stores of L2 know of it. */

/* ---- without L2 ---- */

static struct rig rig;

static void
rig_teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, rig_teardown);

START_TEST(clear_makes_everything_older_unreadable)
{
	struct scout__clear_reply m;

	rig_up_promised(&rig, 8, 4);
	m = clear_by(&rig.client, CLEAR_X);
	ck_assert_uint_eq(m.clear.generation, CLEAR_X);
	ck_assert_uint_gt(m.clear.cleared, 0);
	ck_assert_uint_eq(m.clear.joined, 0); /* clients need not */
	ck_assert_uint_eq(m.stores, 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "clears"), 1);
}
END_TEST

START_TEST(what_was_cleared_would_hit_in_no_cache)
{
	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 8), 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 8), 8); /* in place of the others */
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 10), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_chunks"), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.known_chunks"), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_sample"), 1);
	(void)clear_by(&rig.worker, CLEAR_X);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 10), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 10), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_chunks"), 8 + 4);
	/* A sample that has become smaller begins with all chunks again. */
	for (uint64_t key = 1000; key < 30000 && wire_status(&rig.client, "ns.test.ceiling_sample") == 1; key += 8)
		ck_assert_uint_eq(rig_store(&rig.worker, 0, key, 8), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_sample"), 2);
	(void)clear_by(&rig.worker, CLEAR_Y);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_sample"), 1);
}
END_TEST

START_TEST(one_name_clears_once_whoever_sends_it)
{
	struct scout__clear_reply first, again;

	rig_up(&rig, 8);
	first = clear_by(&rig.worker, CLEAR_X);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	again = clear_by(&rig.client, CLEAR_X);
	ck_assert_uint_eq(again.clear.cleared, first.clear.cleared);
	(void)clear_by(&rig.worker, CLEAR_X);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "clears"), 1);
}
END_TEST

/* A name that was left does not come back: that of one that was asleep over a later clear. */
START_TEST(a_late_clear_clears_nothing_and_does_not_join)
{
	struct scout__clear_reply m;
	struct wire_grants g;

	rig_up(&rig, 8);
	(void)clear_by(&rig.client, CLEAR_X);
	(void)clear_by(&rig.client, CLEAR_Y);
	m = clear_by(&rig.worker, CLEAR_X);
	ck_assert_uint_eq(m.clear.generation, CLEAR_Y);
	ck_assert_uint_lt(m.clear.joined, m.clear.cleared);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 1, 1, &g), SCOUT_WIRE_CLEARED);
	m = clear_by(&rig.worker, CLEAR_Y);
	ck_assert_uint_ge(m.clear.joined, m.clear.cleared);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 1), 1);
}
END_TEST

/* Of one peer's clears the later one wins, also where another peer has said it before the earlier one came. @_i: who is late. */
START_LOOP_TEST(a_clear_that_overtakes_another_on_its_way_wins, 0, 2)
{
	struct wire_peer *ahead, *late;
	struct scout__clear_reply m;

	rig_up(&rig, 8);
	ahead = _i ? &rig.client : &rig.worker;
	late = _i ? &rig.worker : &rig.client;
	(void)clear_by(ahead, CLEAR_Y);
	if (_i == 0)
		ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2);
	ck_assert_uint_eq(clear_by(late, CLEAR_X).clear.generation, CLEAR_X);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 2), 0);
	m = clear_by(late, CLEAR_Y);
	ck_assert_uint_eq(m.clear.generation, CLEAR_Y);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2); /* it is in */
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 2), 2);
	/* Once more is no news. */
	ck_assert_uint_eq(clear_by(ahead, CLEAR_Y).clear.cleared, m.clear.cleared);
	ck_assert_uint_eq(clear_by(late, CLEAR_Y).clear.cleared, m.clear.cleared);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 2), 2);
}
END_TEST

/* Late is its clear, not what it computes: it is in as soon as the namespace has that name again. */
START_TEST(a_worker_whose_clear_was_overtaken_is_in_when_its_name_comes_back)
{
	struct wire_peer late;
	struct wire_grants g;

	rig_up(&rig, 8);
	rig_worker(&late, rig.endpoint);
	(void)clear_by(&rig.client, CLEAR_Y);
	(void)clear_by(&rig.worker, CLEAR_X);
	ck_assert_uint_eq(clear_by(&late, CLEAR_Y).clear.generation, CLEAR_X);
	ck_assert_int_eq(wire_store(&late, 0, 1, 1, &g), SCOUT_WIRE_CLEARED);
	ck_assert_uint_eq(clear_by(&rig.worker, CLEAR_Y).clear.generation, CLEAR_Y);
	ck_assert_uint_eq(rig_store(&late, 0, 1, 1), 1);
	wire_close(&late);
}
END_TEST

/* Two engines: one loads new weights and clears; what the other has computed must not get in. */
START_TEST(a_worker_that_has_not_joined_neither_stores_nor_loads)
{
	struct wire_peer other;
	struct wire_grants g;
	uint32_t readable;
	uint64_t id;

	rig_up_promised(&rig, 16, 4);
	rig_worker(&other, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&other, 0, 5, 4, &id), 4);
	(void)clear_by(&rig.worker, CLEAR_X);
	/* In flight at the clear: not committed. */
	ck_assert_int_eq(wire_store_done(&other, id, 4, 4, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 5, 4), 0);
	ck_assert_int_eq(wire_store(&other, 0, 1, 4, &g), SCOUT_WIRE_CLEARED);
	ck_assert_msg(strstr(other.text, "CLEAR"), "%s", other.text);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 10, 1, 4), 4);
	ck_assert_int_eq(wire_retrieve(&other, 10, 0, 4, &g), SCOUT_WIRE_CLEARED);
	/* A ticket of before, in a worker that has joined. */
	ck_assert_int_eq(wire_store(&rig.worker, 9, 1, 4, &g), SCOUT_WIRE_CLEARED);
	(void)clear_by(&other, SCOUT_GENERATION_ANY);
	ck_assert_int_eq(wire_retrieve(&other, 10, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	free(g.grants);
	ck_assert_uint_eq(rig_store(&other, 0, 5, 4), 4);
	wire_close(&other);
}
END_TEST

START_TEST(a_worker_that_names_the_weights_is_always_in)
{
	struct wire_peer other;
	struct wire_grants g;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	rig.worker.hello.weights = 7;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	rig_worker(&other, rig.endpoint); /* names none */
	(void)clear_by(&rig.client, CLEAR_X);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2);
	ck_assert_int_eq(wire_store(&other, 0, 3, 1, &g), SCOUT_WIRE_CLEARED);
	other.hello.weights = 7;
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&other, 0, 3, 1), 1);
	/* Of other weights by now: that is what it must be told, for CLEAR would not help it. */
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 8), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 5, 1, &g), SCOUT_WIRE_WEIGHTS);
	wire_close(&other);
}
END_TEST

START_TEST(a_worker_that_comes_after_a_clear_is_in)
{
	struct wire_peer late;

	rig_up(&rig, 8);
	(void)clear_by(&rig.client, CLEAR_X);
	rig_worker(&late, rig.endpoint);
	ck_assert_uint_eq(late.clear.generation, CLEAR_X);
	ck_assert_uint_eq(rig_store(&late, 0, 1, 2), 2);
	wire_close(&late);
}
END_TEST

/* A new server without L2 knows nothing; the first peer that does tells it, and who was out stays out. */
START_TEST(a_restarted_server_learns_of_a_clear_from_its_peers)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer out, fresh;
	struct scout__clear_state knows, missed;
	struct wire_grants g;

	rig_up(&rig, 8);
	missed = rig.worker.clear; /* joined before */
	ck_assert_uint_gt(missed.joined, 0);
	ck_assert_uint_eq(missed.cleared, 0);
	knows = clear_by(&rig.worker, CLEAR_X).clear;
	rig_down(&rig);

	rig_up_with(&rig, &cfg); /* these peers are new */
	wire_open(&out, rig.endpoint);
	out.hello.role = SCOUT_ROLE_WORKER;
	out.hello.clear = missed;
	ck_assert_int_eq(wire_hello(&out), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&out), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&out, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&out, 0, 1, 4), 4); /* nobody here knows better yet */
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 4);
	rig_worker_unregistered(&fresh, rig.endpoint, 1, 1);
	fresh.hello.clear = knows;
	ck_assert_int_eq(wire_hello(&fresh), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_int_eq(wire_store(&out, 0, 1, 4, &g), SCOUT_WIRE_CLEARED);
	ck_assert_int_eq(wire_register(&fresh, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&fresh, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 5, 1), 1); /* it said HELLO after the clear */
	wire_close(&out);
	wire_close(&fresh);
}
END_TEST

START_TEST(a_clear_ends_a_lookup_that_is_not_answered)
{
	const struct scout__lookup_msg m = {
		.ticket = 5, .n = 2, .expect = 2, .poll_timeout_ms = 60000, .poll_interval_ms = 1000};
	struct wire_peer other;
	struct wire_reply *reply;
	uint64_t corr;

	rig_up(&rig, 8);
	rig_client(&other, rig.endpoint);
	corr = wire_add_lookup(&other, &m, 1);
	wire_flush(&other);
	wire_wait_status(&rig.client, "sessions", 1);
	(void)clear_by(&rig.client, CLEAR_X);
	reply = wire_wait(&other, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_CLEARED);
	wire_reply_free(reply);
	wire_close(&other);
}
END_TEST

START_TEST(clears_that_make_no_sense_are_refused)
{
	struct scout__clear_reply m;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_clear(&rig.client, 0, &m), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_clear(&rig.client, SCOUT_GENERATION_ANY, &m), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	rig.worker.hello.weights = 7;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_RESET, 8), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_clear(&rig.worker, CLEAR_X, &m), SCOUT_WIRE_WEIGHTS);
	ck_assert_uint_eq(wire_status(&rig.client, "clears"), 0);
}
END_TEST

#define YEAR_S (366L * 24 * 3600)

static uint64_t
wall_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* A stamp that no clock draws is refused, and leaves no trace; what the server hands out, it takes back. */
START_TEST(a_stamp_far_ahead_of_the_clock_is_refused)
{
	uint64_t far[] = {SCOUT_MAX_HEARD_STAMP, wall_us() + SCOUT_MAX_STAMP_AHEAD_US + 60000000};
	uint64_t near_us = wall_us() + SCOUT_MAX_STAMP_AHEAD_US - 60000000;
	struct wire_peer other;

	rig_up(&rig, 8);
	for (int i = 0; i < 2; i++) {
		wire_open(&other, rig.endpoint);
		other.hello.role = SCOUT_ROLE_WORKER;
		other.hello.clear = (struct scout__clear_state){.joined = far[i]};
		ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_RANGE);
		other.hello.clear = (struct scout__clear_state){.generation = CLEAR_X, .cleared = far[i]};
		ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_RANGE);
		other.hello.clear = (struct scout__clear_state){.joined = 0};
		ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
		ck_assert_uint_le(other.clear.joined, wall_us());
		wire_close(&other);
	}
	/* The largest that is taken, and those that are drawn after it. */
	wire_open(&other, rig.endpoint);
	other.hello.role = SCOUT_ROLE_WORKER;
	other.hello.clear = (struct scout__clear_state){.generation = CLEAR_X, .cleared = near_us};
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	for (int i = 0; i < 100; i++) {
		(void)clear_by(&other, i % 2 ? CLEAR_X : CLEAR_Y);
		other.hello.clear = clear_by(&other, i % 2 ? CLEAR_X : CLEAR_Y).clear;
		ck_assert_uint_gt(other.hello.clear.joined, near_us);
		ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	}
	wire_close(&other);
}
END_TEST

/* A stamp within the allowance moves the clock of its own namespace alone. */
START_TEST(a_stamp_of_one_namespace_is_no_clock_of_another)
{
	struct wire_peer one, other;

	rig_up(&rig, 8);
	wire_open(&one, rig.endpoint);
	one.hello.role = SCOUT_ROLE_WORKER;
	one.hello.clear = (struct scout__clear_state){.joined = wall_us() + SCOUT_MAX_STAMP_AHEAD_US - 60000000};
	assert_wire(wire_hello(&one), SCOUT_WIRE_OK);
	wire_open(&other, rig.endpoint);
	other.hello.role = SCOUT_ROLE_WORKER;
	other.hello.name_space = (struct scout__str){"another", 7};
	assert_wire(wire_hello(&other), SCOUT_WIRE_OK);
	ck_assert_uint_le(other.clear.joined, wall_us());
	wire_close(&one);
	wire_close(&other);
}
END_TEST

/* Its server's clock was days ahead. The next server's is right: no process has to be started anew. */
START_TEST(a_client_with_stamps_that_are_refused_joins_anew_and_clears_again)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_client_counters stats = {0};
	struct scout_client_config client_cfg;
	struct scout_client *client;
	struct scout_server *server;
	char listen[64], err[256];
	struct wire_peer watcher;

	(void)snprintf(listen, sizeof(listen), "ipc:///tmp/kvscout-clear-%d.sock", (int)getpid());
	cfg.listen = listen;
	wall_clock_jump(3L * 24 * 3600);
	server = rig_start(&cfg);
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = listen;
	assert_ok(scout_client_new(&client_cfg, &client, err, sizeof(err)));
	assert_ok(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)));
	assert_ok(scout_clear(client, 0, NULL));
	do
		assert_ok(scout_client_stats(client, &stats));
	while (stats.servers_untold > 0);
	scout_server_stop(server);
	wall_clock_jump(0);
	server = rig_start(&cfg);
	wire_open(&watcher, listen);
	wire_wait_status(&watcher, "clears", 1);
	assert_ok(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)));
	wire_close(&watcher);
	scout_client_free(client);
	scout_server_stop(server);
}
END_TEST

/* ---- files ---- */

static char url[256], faulty_url[600];
static char *folder;

static void
setup(void)
{
	folder = l2_folder_make(false);
	(void)snprintf(url, sizeof(url), "fs://%s/kv", folder);
}

/* What faulty_url names: the store of url, behind faults. */
static struct l2_fault_control *
faulty_control(void)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/control", folder);
	(void)snprintf(faulty_url, sizeof(faulty_url), "fault+fs://%s/kv?control=%s", folder, path);
	return l2_fault_map(path);
}

static void
teardown(void)
{
	l2_folder_remove(folder);
	free(folder);
}

CHECKED_FIXTURE(setup, teardown);

/* The first HELLO tells the next server of an older clear than the record: who joined the later one is in all the same. */
START_TEST(a_record_later_than_what_the_first_peer_knows_puts_nobody_out)
{
	struct scout__clear_state older, latest;
	struct wire_peer first;
	struct node node;

	node_up(&node, url);
	older = clear_by(&node.rig.worker, CLEAR_X).clear;
	latest = clear_by(&node.rig.worker, CLEAR_Y).clear;
	clear_write(&node);
	rig_down(&node.rig);
	rig.server = rig_start(&node.cfg);
	rig.endpoint = scout_server_endpoint(rig.server);
	wire_open(&first, rig.endpoint);
	wire_wait_status(&first, "l2.0.ready", 1);
	first.hello.clear = older;
	ck_assert_int_eq(wire_hello(&first), SCOUT_WIRE_OK);
	wire_open(&rig.worker, rig.endpoint);
	rig.worker.hello.role = SCOUT_ROLE_WORKER;
	rig.worker.hello.clear = latest;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&rig.worker), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&rig.worker, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 9, 1), 1);
	ck_assert_uint_eq(clear_look(&first).l2, 4);
	wire_close(&first);
	wire_close(&rig.worker);
	scout_server_stop(rig.server);
}
END_TEST

/* Its first HELLO tells a server of an older clear than the record that it cannot read yet: the record stays. */
START_TEST(a_record_that_could_not_be_read_is_not_written_over)
{
	struct l2_fault_control *control = faulty_control();
	struct l2_fault_rule *reads = &control->ops[SCOUT__L2_RECORD_READ];
	struct scout__clear_state older;
	struct wire_peer first;
	struct node node;

	node_up(&node, url);
	older = clear_by(&node.rig.worker, CLEAR_X).clear;
	(void)clear_by(&node.rig.worker, CLEAR_Y);
	clear_write(&node);
	rig_down(&node.rig);
	reads->fail = 1 + SCOUT__L2_ERROR;
	node.cfg.l2 = faulty_url;
	rig.server = rig_start(&node.cfg);
	rig.endpoint = scout_server_endpoint(rig.server);
	wire_open(&first, rig.endpoint);
	first.hello.clear = older;
	ck_assert_int_eq(wire_hello(&first), SCOUT_WIRE_OK);
	wait_until(reads->hits >= 2)
		;
	reads->fail = 0;
	wait_until(first.clear.generation == CLEAR_Y)
		ck_assert_int_eq(wire_hello(&first), SCOUT_WIRE_OK);
	ck_assert_uint_eq(control->ops[SCOUT__L2_RECORD_WRITE].passed, 0);
	wire_close(&first);
	scout_server_stop(rig.server);
}
END_TEST

/* The path of the one record in the folder. */
static void
record_path(const char *store, char *path, size_t len)
{
	char command[512];
	FILE *p;

	(void)snprintf(command, sizeof(command), "ls -d %s/%s/record-*", folder, store);
	p = popen(command, "r");
	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_nonnull(fgets(path, (int)len, p));
	ck_assert_int_eq(pclose(p), 0);
	path[strcspn(path, "\n")] = '\0';
}

/* A folder in the record's place: it cannot be written, not even by root. */
static void
block_record(const char *path)
{
	char inside[600];

	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	(void)snprintf(inside, sizeof(inside), "%s/x", path);
	ck_assert_int_eq(mkdir(inside, 0700), 0);
}

static void
unblock_record(const char *path)
{
	char inside[600];

	(void)snprintf(inside, sizeof(inside), "%s/x", path);
	ck_assert_int_eq(rmdir(inside), 0);
	ck_assert_int_eq(rmdir(path), 0);
}

/* The bytes of keys 1 to 4 from the store are those that were written. */
static void
node_read_back(struct node *node)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(&node->rig.client, 5, 1, 4, 0, &m), SCOUT_WIRE_OK);
	node_read(node, 5, 1, 4);
	rig_finish(&node->rig.client, 5);
}

START_TEST(a_store_that_cannot_record_a_clear_is_told_and_not_used)
{
	struct scout__clear_reply m;
	struct node node;
	char path[512];

	node_up(&node, url);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	record_path("kv", path, sizeof(path));
	block_record(path);
	ck_assert_int_eq(wire_clear(&node.rig.client, CLEAR_Y, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.stores, 1);
	ck_assert_uint_eq(m.pending, 1);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	/* What is stored now is in the pool only, until the store is used again. */
	ck_assert_int_eq(wire_clear(&node.rig.worker, CLEAR_Y, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.pending, 1);
	for (uint64_t key = 5; key <= 8; key++)
		node_write(&node, key);
	ck_assert_uint_eq(wire_status(&node.rig.client, "l2.writes.waiting"), 4);
	/* It is tried again by itself; from then on the store serves, and a restart brings nothing of before the clear back. */
	unblock_record(path);
	wait_until(m.pending == 0)
		ck_assert_int_eq(wire_clear(&node.rig.worker, CLEAR_Y, &m), SCOUT_WIRE_OK);
	wire_wait_status(&node.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(wire_status(&node.rig.client, "l2.writes.done"), 8);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	rig_down(&node.rig);
}
END_TEST

/* Of two stores one cannot record it: the other one serves, and a restart brings nothing back from either. */
START_TEST(each_store_has_a_record_of_its_own)
{
	struct scout__clear_reply m;
	struct node node;
	char urls[600], path[512];

	(void)snprintf(urls, sizeof(urls), "fs://%s/one fs://%s/two", folder, folder);
	node_up(&node, urls);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	record_path("two", path, sizeof(path));
	block_record(path);
	ck_assert_int_eq(wire_clear(&node.rig.worker, CLEAR_Y, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.stores, 2);
	ck_assert_uint_eq(m.pending, 1);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	clear_write(&node);
	rig_down(&node.rig);
	/* The second has the record of no clear: it learns from the first, and never serves what it has. */
	unblock_record(path);
	node_up(&node, urls);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	node_read_back(&node);
	(void)clear_by(&node.rig.client, CLEAR_Y);
	rig_down(&node.rig);
	(void)snprintf(urls, sizeof(urls), "fs://%s/two", folder);
	node_up(&node, urls);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	rig_down(&node.rig);
}
END_TEST

/* What a damaged record belongs to cannot be known: the store is not used until there is a new one. */
START_LOOP_TEST(a_store_whose_record_is_damaged_is_not_used, 12, 14)
{
	struct node node;
	char path[512];
	FILE *f;

	node_up(&node, url);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	rig_down(&node.rig);
	record_path("kv", path, sizeof(path));
	f = fopen(path, "r+");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, _i, SEEK_SET), 0);
	ck_assert_int_ne(fputc(0x5a, f), EOF);
	ck_assert_int_eq(fclose(f), 0);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	(void)clear_by(&node.rig.worker, CLEAR_Y);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	rig_down(&node.rig);
}
END_TEST

/* The clock of the server that cleared was wrong: the next one goes by the clear, and records it with a stamp of its own. */
START_TEST(a_record_with_a_stamp_far_ahead_is_healed)
{
	struct l2_fault_control *control = faulty_control();
	uint64_t healed = 0;
	struct wire_grants g;
	struct node node;

	wall_clock_jump(2 * YEAR_S);
	node_up(&node, url);
	clear_write(&node);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	rig_down(&node.rig);
	wall_clock_jump(0);
	for (int i = 0; i < 3; i++) {
		/* First a server that cannot write the record: what the store has is of that clear, and is served all the same. */
		control->disk.write_errno = i == 0 ? EIO : 0;
		node_up(&node, faulty_url);
		ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
		ck_assert_int_eq(wire_hello(&node.rig.client), SCOUT_WIRE_OK);
		ck_assert_uint_eq(node.rig.client.clear.generation, CLEAR_X);
		ck_assert_uint_le(node.rig.client.clear.cleared, wall_us());
		ck_assert(healed == 0 || node.rig.client.clear.cleared == healed);
		healed = i == 0 ? 0 : node.rig.client.clear.cleared;
		/* Its workers are in. */
		ck_assert_int_eq(wire_store(&node.rig.worker, 0, 9, 1, &g), SCOUT_WIRE_OK);
		free(g.grants);
		rig_down(&node.rig);
	}
}
END_TEST
