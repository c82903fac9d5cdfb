/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are strangers, leave, fall silent or do not read. */
#include "check_main.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "server_rig.h"

static struct rig rig;

static void
rig_teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, rig_teardown);

START_TEST(a_lease_of_an_unknown_token_is_refused)
{
	struct wire_peer p;

	rig_up(&rig, 8);
	wire_open(&p, rig.endpoint);
	memcpy(p.lease_path, rig.client.lease_path, sizeof(p.lease_path));
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_GONE);
	wire_close(&p);
}
END_TEST

START_TEST(garbage_on_the_lease_connection_ends_it)
{
	char byte;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	ck_assert_int_eq(send(rig.client.lease_fd, "nonsense", 8, MSG_NOSIGNAL), 8);
	ck_assert_int_eq(recv(rig.client.lease_fd, &byte, 1, 0), 0);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
}
END_TEST

START_TEST(goodbye_frees_sessions_and_holds_at_once)
{
	struct wire_peer watcher;
	struct wire_grants g;
	uint64_t id;

	rig_up(&rig, 8);
	wire_open(&watcher, rig.endpoint);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 2, &id), 2);
	wire_lease_bye(&rig.client);
	wire_wait_status(&watcher, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&watcher, "holds"), 2);
	wire_lease_bye(&rig.worker);
	wire_wait_status(&watcher, "holds", 0);
	ck_assert_uint_eq(wire_status(&watcher, "quarantine"), 0);
	wire_wait_status(&watcher, "peers", 0);
	ck_assert_uint_eq(wire_status(&watcher, "l1.chunks"), 4);
	free(g.grants);
	wire_close(&watcher);
}
END_TEST

START_TEST(a_living_process_keeps_its_holds_without_a_connection)
{
	struct scout_server_config cfg = rig_config(4);
	struct wire_peer other, again;
	struct wire_grants g;
	struct scout__hello was;
	uint64_t id;

	cfg.peer_timeout_ms = 100;
	rig_up_with(&rig, &cfg);
	rig.worker.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	was = rig.worker.hello;
	rig_store(&rig.worker, 0, 1, 4);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	wire_close(&rig.worker);
	/* A client of the same heartbeat, silent since later, is forgotten: so the worker would have been too. */
	wire_open(&other, rig.endpoint);
	other.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "peers.forgotten", 1);
	wire_close(&other);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	rig_worker(&other, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 0);
	/* It comes back and ends its retrieve itself; its segments are sent anew. */
	wire_open(&again, rig.endpoint);
	again.hello.role = SCOUT_ROLE_WORKER;
	wire_as(&again, &was);
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&again), SCOUT_LEASE_OK);
	ck_assert_uint_eq(wire_generation(&again, &g.grants[0]), g.grants[0].generation);
	ck_assert_int_eq(wire_retrieve_done(&again, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 4);
	free(g.grants);
	wire_close(&again);
	wire_close(&other);
	wire_close(&rig.client);
	scout_server_stop(rig.server);
	rig.server = NULL;
}
END_TEST

START_TEST(what_an_unsendable_answer_promised_is_taken_back)
{
	struct scout__lookup_msg m = {
		.ticket = 9, .n = 5, .expect = 5, .poll_timeout_ms = 60000, .poll_interval_ms = 60000};
	struct wire_peer gone, watcher;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open(&gone, rig.endpoint);
	gone.hello.heartbeat_ms = 600000; /* silence will not end it */
	ck_assert_int_eq(wire_hello(&gone), SCOUT_WIRE_OK);
	(void)wire_add_lookup(&gone, &m, 1);
	wire_flush(&gone);
	wire_wait_status(&watcher, "ops.waiting", 1);
	wire_wait_status(&watcher, "connections", 4);
	wire_close(&gone);
	wire_wait_status(&watcher, "connections", 3);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 5, 1), 1); /* what it waits for: now it is answered */
	wire_wait_status(&watcher, "replies.undone", 1);
	ck_assert_uint_eq(wire_status(&watcher, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "peers"), 3);
	wire_close(&watcher);
}
END_TEST

static uint64_t
refused_strangers(struct wire_peer *watcher)
{
	uint64_t n = wire_status(watcher, "refused.no_hello");

	return n == UINT64_MAX ? 0 : n; /* what has not happened is not listed */
}

START_TEST(a_peer_that_does_not_read_loses_what_it_was_not_told)
{
	enum {
		BATCH = 200,
		MOST = 20000
	};
	struct scout_server_config cfg = rig_config(4);
	struct wire_peer deaf, watcher;
	uint64_t ticket = 0;
	uint32_t frames = 0;

	/* Few replies fit into its queue, so many of its lookups cannot be answered. */
	cfg.credits = 1;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open_hwm(&deaf, rig.endpoint, 1);
	ck_assert_int_eq(wire_hello(&deaf), SCOUT_WIRE_OK);
	/* Answers as large as they get, until no buffer on the way takes any more: then its connection ends. */
	do {
		for (uint32_t i = 0; i < BATCH; i++) {
			(void)wire_begin(&deaf, SCOUT_OP_STATUS);
			(void)wire_end(&deaf);
			(void)wire_add_lookup(&deaf, &(struct scout__lookup_msg){.ticket = ++ticket, .n = 4}, 1);
			wire_flush(&deaf);
		}
		frames += BATCH;
		wait_until(wire_status(&watcher, "ops.lookup") >= frames || wire_status(&watcher, "peers.dropped") > 0)
			;
	} while (wire_status(&watcher, "peers.dropped") == 0 && frames < MOST);
	ck_assert_uint_gt(wire_status(&watcher, "replies.undone"), 0);
	/*
	 * Exactly the sessions whose answers are on their way are left, once the loop has come to undo the others. What came later
	 * came over a new connection, which has not said HELLO.
	 */
	wait_until(wire_status(&watcher, "sessions") + wire_status(&watcher, "replies.undone") +
			   refused_strangers(&watcher) ==
		   wire_status(&watcher, "ops.lookup"))
		;
	wire_close(&deaf);
	wire_close(&watcher);
}
END_TEST

/* ---- who may use what names something of another peer: the table of docs/security.md, row by row ---- */

enum {
	IPC,
	TCP,
	CURVE,
	N_TRANSPORTS
};
enum {
	STRANGER, /* without HELLO; the others are workers */
	OTHER_NAMESPACE,
	SAME_NAMESPACE,
	N_THIEVES
};
#define FEED_LOST (-2)

static struct {
	pthread_mutex_t mu;
	char text[65536]; /* G:mu */
} heard = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void
listen_in(void *user, int level, const char *text)
{
	size_t len;

	(void)user;
	(void)level;
	(void)pthread_mutex_lock(&heard.mu);
	len = strlen(heard.text);
	(void)snprintf(heard.text + len, sizeof(heard.text) - len, "%s\n", text);
	(void)pthread_mutex_unlock(&heard.mu);
}

static unsigned
times_heard(const char *what)
{
	unsigned n = 0;

	(void)pthread_mutex_lock(&heard.mu);
	for (const char *at = heard.text; (at = strstr(at, what)) != NULL; at++)
		n++;
	(void)pthread_mutex_unlock(&heard.mu);
	return n;
}

/* The worker writes keys 101 and 102 and reads keys 1 and 2; the client has keys 1 to 4 promised, ticket 9. */
static struct {
	struct scout_server *server;
	const char *endpoint;
	struct wire_keys keys[2]; /* of victims, of thieves */
	struct wire_peer client, worker, thief;
	struct scout__grant slot;
	uint64_t store, retrieve;
	struct scout__feed_msg feed;
	bool has_keys;
} scene;

static void
make_key_file(char *path, const char *text)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static void
start_scene_server(int transport)
{
	char secret_file[] = "/tmp/kvscout-peers-XXXXXX", clients_file[] = "/tmp/kvscout-peers-XXXXXX";
	struct scout_server_config cfg = rig_config(8);
	char server_secret[41], list[128];

	cfg.log = listen_in;
	cfg.feed_bytes = 1 << 20;
	if (transport != IPC)
		cfg.listen = "tcp://127.0.0.1:*";
	scene.has_keys = transport == CURVE;
	if (scene.has_keys) {
		ck_assert_int_eq(zmq_curve_keypair(scene.keys[0].server, server_secret), 0);
		memcpy(scene.keys[1].server, scene.keys[0].server, sizeof(scene.keys[0].server));
		for (int i = 0; i < 2; i++)
			ck_assert_int_eq(zmq_curve_keypair(scene.keys[i].public, scene.keys[i].secret), 0);
		(void)snprintf(list, sizeof(list), "%s\n%s\n", scene.keys[0].public, scene.keys[1].public);
		make_key_file(secret_file, server_secret);
		make_key_file(clients_file, list);
		cfg.curve_secret_file = secret_file;
		cfg.curve_clients_file = clients_file;
	}
	scene.server = rig_start(&cfg);
	scene.endpoint = scout_server_endpoint(scene.server);
	if (scene.has_keys)
		ck_assert(unlink(secret_file) == 0 && unlink(clients_file) == 0);
}

static void
open_peer(struct wire_peer *p, bool is_thief, uint16_t role, const char *name_space)
{
	wire_open_as(p, scene.endpoint, scene.has_keys ? &scene.keys[is_thief] : NULL, NULL);
	p->hello.role = role;
	p->hello.name_space = (struct scout__str){name_space, (uint16_t)strlen(name_space)};
}

static void
open_worker(struct wire_peer *p, bool is_thief, const char *name_space)
{
	open_peer(p, is_thief, SCOUT_ROLE_WORKER, name_space);
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
	assert_wire(wire_register(p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
}

/* FEED from @next on; FEED_LOST, or -1 if it got events. */
static int
feed(struct wire_peer *p, struct scout__feed_msg *next)
{
	struct scout__feed_reply m = {.n = 0};
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	int status;

	scout__put_feed(wire_begin(p, SCOUT_OP_FEED), next);
	(void)wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, p->last_corr);
	op = (struct scout__op){.opcode = SCOUT_OP_FEED, .body = reply->body, .length = reply->length};
	status = reply->status;
	if (status == 0)
		ck_assert_int_eq(scout__get_feed_reply(&op, 16, &m, &field), SCOUT_WIRE_OK);
	*next = m.next;
	wire_reply_free(reply);
	return m.flags & SCOUT_FEED_LOST ? FEED_LOST : m.n > 0 ? -1 : status;
}

static void
open_scene(int transport, int thief)
{
	struct wire_grants g;

	start_scene_server(transport);
	open_peer(&scene.client, false, SCOUT_ROLE_CLIENT, "test");
	assert_wire(wire_hello(&scene.client), SCOUT_WIRE_OK);
	open_worker(&scene.worker, false, "test");
	ck_assert_uint_eq(rig_store(&scene.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_hit(&scene.client, 9, 1, 4), 4);
	assert_wire(wire_retrieve(&scene.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	scene.retrieve = g.id;
	scene.slot = g.grants[0];
	free(g.grants);
	ck_assert_uint_eq(rig_granted(&scene.worker, 9, 101, 2, &scene.store), 2);
	scene.feed = (struct scout__feed_msg){0};
	do
		(void)feed(&scene.client, &scene.feed);
	while (scene.feed.cursor != 0);
	if (thief == STRANGER)
		open_peer(&scene.thief, true, SCOUT_ROLE_WORKER, "test");
	else
		open_worker(&scene.thief, true, thief == SAME_NAMESPACE ? "test" : "other");
	scene.thief.epoch = scene.worker.epoch; /* PING tells it to anybody */
	memcpy(scene.thief.lease_path, scene.worker.lease_path, sizeof(scene.thief.lease_path));
}

static int
say_hello_as(const struct wire_peer *victim, struct scout__secret secret)
{
	struct scout__hello own = scene.thief.hello;
	int status;

	scene.thief.hello = victim->hello;
	scene.thief.hello.secret = secret;
	status = wire_hello(&scene.thief);
	scene.thief.hello = own;
	return status;
}

static int
lease_as(const struct wire_peer *victim, struct scout__secret secret)
{
	struct wire_peer p = {.lease_fd = -1, .epoch = scene.thief.epoch, .hello.token = victim->hello.token};
	int type;

	memcpy(p.lease_path, scene.worker.lease_path, sizeof(p.lease_path));
	p.hello.secret = secret;
	type = wire_lease(&p);
	wire_lease_close(&p);
	return type;
}

/* Workers of the namespace get tickets from their engine. What one of them reads is its own hold. */
static int
retrieve(void)
{
	struct wire_grants g = {.id = 0};
	int status = wire_retrieve(&scene.thief, 9, 2, 4, &g);

	if (status == SCOUT_WIRE_OK)
		assert_wire(wire_retrieve_done(&scene.thief, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	return status;
}

/* Nobody sends a slot. RELEASED names a segment, and counts for the sender alone. */
static int
release(void)
{
	const struct scout__lease_msg m = {.type = SCOUT_LEASE_RELEASED, .segment = scene.slot.segment};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	if (scene.thief.lease_fd >= 0)
		ck_assert_int_eq(send(scene.thief.lease_fd, buf, len, MSG_NOSIGNAL), (ssize_t)len);
	return wire_ping(&scene.thief);
}

/* The public id is no token: who says HELLO with it is just another peer. */
static int
commit_as_public_id(void)
{
	struct wire_peer p;
	uint32_t n;
	int status;

	open_peer(&p, true, SCOUT_ROLE_WORKER, "test");
	p.hello.token = scene.worker.id;
	assert_wire(wire_hello(&p), SCOUT_WIRE_OK);
	status = wire_store_done(&p, scene.store, 2, 2, &n);
	wire_close(&p);
	return status;
}

/* @call, and its answer to a sender without HELLO, to a worker of another namespace, and to one of the same. */
#define attack(call, ...)                                                                                              \
	do {                                                                                                           \
		static const int is_[N_THIEVES] = {__VA_ARGS__};                                                       \
		int got_ = (call);                                                                                     \
                                                                                                                       \
		ck_assert_msg(got_ == is_[thief], "%s is answered %d", #call, got_);                                   \
	} while (0)

static void
try_attacks(int thief)
{
	struct scout__secret none = {{0}}, own = scene.thief.hello.secret, near = scene.worker.hello.secret;
	struct scout__feed_msg next = scene.feed;
	struct scout__lookup_reply m;
	struct wire_peer *p = &scene.thief;
	uint32_t n;

	near.half[1] ^= UINT64_C(1) << 63;
	/* token */
	attack(say_hello_as(&scene.worker, none), SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET);
	attack(say_hello_as(&scene.client, own), SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET);
	attack(say_hello_as(&scene.worker, near), SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET, SCOUT_WIRE_SECRET);
	attack(lease_as(&scene.client, own), SCOUT_LEASE_GONE, SCOUT_LEASE_GONE, SCOUT_LEASE_GONE);
	attack(lease_as(&scene.worker, none), SCOUT_LEASE_GONE, SCOUT_LEASE_GONE, SCOUT_LEASE_GONE);
	/* ticket */
	attack(wire_simple(p, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION);
	attack(wire_admit(p, 9, 0, 0, &n), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION);
	attack(wire_renew(p, 9, 1, 4, 0, &m), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION);
	attack(wire_lookup(p, 9, 1, 4, 0, &m), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_STATE, SCOUT_WIRE_STATE);
	attack(retrieve(), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_OK);
	/* store and retrieve, and each in place of the other */
	for (int i = 0; i < 2; i++) {
		uint64_t id = i ? scene.retrieve : scene.store;

		attack(wire_store_done(p, id, 2, 2, &n), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION,
		       SCOUT_WIRE_NO_SESSION);
		attack(wire_store_done(p, id, 0, 0, &n), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION,
		       SCOUT_WIRE_NO_SESSION);
		attack(wire_retrieve_done(p, id, 1), SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION);
	}
	/* slot, feed position, public id */
	attack(release(), SCOUT_WIRE_OK, SCOUT_WIRE_OK, SCOUT_WIRE_OK);
	attack(feed(p, &next), SCOUT_WIRE_NO_HELLO, FEED_LOST, SCOUT_WIRE_OK);
	attack(commit_as_public_id(), SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION, SCOUT_WIRE_NO_SESSION);
}

/* Whether PEERS has these eight bytes. */
static bool
peers_say(uint64_t number)
{
	struct wire_reply *reply;
	bool found;

	scout__put_peers(wire_begin(&scene.thief, SCOUT_OP_PEERS), 0);
	(void)wire_end(&scene.thief);
	wire_flush(&scene.thief);
	reply = wire_wait(&scene.thief, scene.thief.last_corr);
	found = memmem(reply->body, reply->length, &number, sizeof(number)) != NULL;
	wire_reply_free(reply);
	return found;
}

/* The log and PEERS know the peer by its id alone. */
static void
expect_known_by_id(const struct wire_peer *victim)
{
	const uint64_t untold[] = {victim->hello.token, victim->hello.secret.half[0], victim->hello.secret.half[1]};
	char text[32];

	for (size_t i = 0; i < sizeof(untold) / sizeof(untold[0]); i++) {
		(void)snprintf(text, sizeof(text), "%llx", (unsigned long long)untold[i]);
		ck_assert_uint_eq(times_heard(text), 0);
		ck_assert(!peers_say(untold[i]));
	}
	(void)snprintf(text, sizeof(text), "%016llx joined", (unsigned long long)victim->id);
	ck_assert_uint_eq(times_heard(text), 1);
	ck_assert(peers_say(victim->id));
}

START_LOOP_TEST(what_names_something_of_another_peer_is_of_no_use, 0, N_TRANSPORTS *N_THIEVES)
{
	struct scout__lookup_reply m;
	uint32_t readable = 0;

	open_scene(_i / N_THIEVES, _i % N_THIEVES);
	try_attacks(_i % N_THIEVES);
	/* Counted, and told once for each kind. */
	ck_assert_uint_eq(wire_status(&scene.client, "refused.secret"), 3);
	ck_assert_uint_ge(wire_status(&scene.client, "leases.refused"), 2);
	ck_assert_uint_eq(times_heard("not its secret"), 1);
	ck_assert_uint_eq(times_heard("does not show the secret"), 1);
	expect_known_by_id(&scene.client);
	expect_known_by_id(&scene.worker);
	/* Nothing was committed, given back or moved, and the peers go on. */
	assert_wire(wire_lookup(&scene.client, 10, 101, 2, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 0);
	ck_assert_uint_eq(wire_status(&scene.client, "holds"), 2);
	assert_wire(wire_store_done(&scene.worker, scene.store, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
	ck_assert_uint_eq(wire_generation(&scene.worker, &scene.slot), scene.slot.generation);
	assert_wire(wire_retrieve_done(&scene.worker, scene.retrieve, 0), SCOUT_WIRE_OK);
	rig_finish(&scene.client, 9);
	assert_wire(wire_hello(&scene.worker), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&scene.client, "bugs.mismatches"), 0);
	wire_close(&scene.thief);
	wire_close(&scene.client);
	wire_close(&scene.worker);
	scout_server_stop(scene.server);
}
END_TEST

/* A client may choose its ZeroMQ identity, and when its connection has ended, so may another one choose the same. */
START_TEST(the_identity_of_a_peer_that_is_gone_makes_no_peer)
{
	struct wire_peer chosen, thief;
	struct scout__hello was;
	uint32_t readable = 0;
	uint64_t id;

	rig_up(&rig, 8);
	wire_open_as(&chosen, rig.endpoint, NULL, "chosen");
	chosen.hello.role = SCOUT_ROLE_WORKER;
	assert_wire(wire_hello(&chosen), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&chosen), SCOUT_LEASE_OK);
	assert_wire(wire_register(&chosen, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&chosen, 0, 101, 2, &id), 2);
	was = chosen.hello;
	wire_close(&chosen);
	wire_wait_status(&rig.client, "connections", 2);
	wire_open_as(&thief, rig.endpoint, NULL, "chosen");
	thief.epoch = rig.client.epoch;
	assert_wire(wire_store_done(&thief, id, 2, 2, &readable), SCOUT_WIRE_NO_HELLO);
	wire_close(&thief);
	wire_wait_status(&rig.client, "connections", 2);
	/* Its own next connection says HELLO and goes on. */
	wire_open_as(&chosen, rig.endpoint, NULL, "chosen");
	chosen.epoch = rig.client.epoch;
	assert_wire(wire_store_done(&chosen, id, 2, 2, &readable), SCOUT_WIRE_NO_HELLO);
	chosen.hello.role = SCOUT_ROLE_WORKER;
	wire_as(&chosen, &was);
	assert_wire(wire_hello(&chosen), SCOUT_WIRE_OK);
	assert_wire(wire_store_done(&chosen, id, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
	wire_close(&chosen);
}
END_TEST

START_TEST(after_a_lost_reply_to_its_first_hello_a_client_is_a_new_peer)
{
	struct scout_server_config cfg = rig_config(4);
	struct wire_peer lost, again;
	struct scout__hello was;

	cfg.peer_timeout_ms = 100;
	rig_up_with(&rig, &cfg);
	wire_open(&lost, rig.endpoint);
	lost.hello.heartbeat_ms = 10;
	scout__hello_one_group(&lost.hello);
	was = lost.hello;
	scout__put_hello(wire_begin(&lost, SCOUT_OP_HELLO), &lost.hello);
	(void)wire_end(&lost);
	wire_flush(&lost);
	wire_wait_status(&rig.client, "peers", 3);
	wire_close(&lost);
	wire_open(&again, rig.endpoint);
	wire_as(&again, &was);
	assert_wire(wire_hello(&again), SCOUT_WIRE_SECRET);
	ck_assert_msg(strstr(again.text, "say HELLO with a new token"), "%s", again.text);
	again.hello.token++;
	assert_wire(wire_hello(&again), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "peers.forgotten", 1); /* the old one ends as after a crash */
	ck_assert_uint_eq(wire_status(&rig.client, "peers"), 3);
	wire_close(&again);
}
END_TEST

#define UNANSWERED 1024u

/* By the work, not by the time: 64 operations in a step, and a turn has a step of it. */
START_LOOP_TEST(what_nobody_can_be_answered_is_cancelled_in_steps, 0, 2)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.n = 4};
	struct wire_peer again;
	uint64_t turns;

	cfg.reply_delay_us = 60000000;
	cfg.credits = UNANSWERED;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	for (m.ticket = 1; m.ticket <= UNANSWERED; m.ticket++)
		(void)wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	wire_wait_status(&rig.worker, "ops.waiting", UNANSWERED);
	turns = wire_status(&rig.worker, "loop.turns");
	wire_open(&again, rig.endpoint);
	if (_i == 0) {
		wire_lease_bye(&rig.client);
		wire_wait_status(&rig.worker, "peers", 1);
	} else {
		wire_as(&again, &rig.client.hello);
		ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
		/* They do not count: the peer may send as many again. */
		(void)wire_add_lookup(&again, &m, 1);
		wire_flush(&again);
		wire_wait_status(&rig.worker, "ops.waiting", 1);
		ck_assert(!wire_has(&again, again.last_corr) && !again.replies);
	}
	ck_assert_uint_ge(wire_status(&rig.worker, "loop.turns") - turns, UNANSWERED / 64);
	ck_assert_uint_eq(wire_status(&rig.worker, "ops.waiting"), _i);
	ck_assert_uint_eq(wire_status(&rig.worker, "l1.bytes_promised"), _i * 4 * SHARD_BYTES);
	wire_close(&again);
}
END_TEST
