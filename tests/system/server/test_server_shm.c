/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames through shared memory, between a real server and peers: bare ones, which may be as wrong as they like, and the library's own
 * client. That a worker's jobs work through it is shown by the worker's tests, which use it by default.
 */
#include "check_main.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "server_rig.h"
#include "shm_rig.h"

/* ---- bare peers ---- */

CHECKED_FIXTURE(up, down);

START_TEST(operations_are_answered_the_way_they_came)
{
	struct wire_peer worker, client;

	open_worker(&worker);
	open_peer(&client);
	ck_assert_uint_eq(status("channels"), 2);
	ck_assert_uint_eq(rig_store(&worker, 1, 100, 16), 16);
	ck_assert_uint_eq(rig_hit(&client, 2, 100, 20), 16);
	rig_finish(&client, 2);
	ck_assert_int_eq(wire_ping(&client), SCOUT_WIRE_OK);
	ck_assert_int_ne(wire_simple(&client, SCOUT_OP_RESET, 0), SCOUT_WIRE_OK); /* refusals, too */
	ck_assert_uint_ge(status("frames.received_shm"), 7);
	ck_assert_uint_eq(status("frames.received_shm"), status("frames.sent_shm"));
	wire_close(&client);
	wire_close(&worker);
	wire_wait_status(&watcher, "channels", 0);
}
END_TEST

/* Before its first frame a channel is nobody's: who got one and does not use it is answered on the socket. */
START_TEST(a_channel_that_is_not_used_changes_nothing)
{
	struct scout__channel unused;
	struct wire_peer p;

	open_peer(&p);
	unused = p.channel;
	memset(&p.channel, 0, sizeof(p.channel));
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_peek(&p, 5, 3), 0);
	ck_assert_uint_eq(status("frames.received_shm"), 0);
	p.channel = unused;
	p.channel.last = &p.channel.first;
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK);
	ck_assert_uint_eq(status("frames.received_shm"), 1);
	wire_close(&p);
}
END_TEST

START_TEST(frames_larger_than_the_ring_pass)
{
	struct scout__lookup_reply m;
	struct wire_peer worker, client;
	uint64_t corr[4000];

	open_worker(&worker);
	open_peer(&client);
	ck_assert_uint_eq(rig_store(&worker, 1, 0, CHUNKS), CHUNKS);
	ck_assert_int_eq(wire_lookup(&client, 2, 0, 40000, 0, &m), SCOUT_WIRE_OK); /* 640 KB through 256 */
	ck_assert_uint_eq(m.hit, CHUNKS);
	rig_finish(&client, 2);
	for (unsigned i = 0; i < 4000; i++) { /* many answers: the way back is smaller still */
		(void)wire_begin(&client, SCOUT_OP_PING);
		corr[i] = wire_end(&client);
	}
	wire_flush(&client);
	for (unsigned i = 0; i < 4000; i++)
		wire_reply_free(wire_wait(&client, corr[i]));
	ck_assert_uint_eq(status("frames.dropped"), 0);
	wire_close(&client);
	wire_close(&worker);
}
END_TEST

/* A HELLO from a new connection is the end of the channel before it, and of what was not read from it. */
START_TEST(a_new_connection_ends_the_old_channel)
{
	struct wire_peer old, again;

	open_peer(&old);
	ck_assert_int_eq(wire_ping(&old), SCOUT_WIRE_OK);
	wire_open(&again, scout_server_endpoint(server));
	wire_as(&again, &old.hello);
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_uint_eq(status("channels"), 0);
	(void)wire_begin(&old, SCOUT_OP_PING);
	(void)wire_end(&old);
	wire_flush(&old); /* into memory that nobody reads */
	ck_assert_int_eq(wire_ping(&again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&again), SCOUT_LEASE_OK);
	ck_assert(wire_channel(&again));
	ck_assert_int_eq(wire_ping(&again), SCOUT_WIRE_OK);
	ck_assert_uint_eq(status("channels"), 1);
	ck_assert_uint_eq(status("frames.received_shm"), 2);
	wire_close(&old);
	wire_close(&again);
}
END_TEST

START_TEST(who_asks_again_is_told_that_there_is_none)
{
	struct scout__channel first;
	struct wire_peer p;

	open_peer(&p);
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK);
	first = p.channel;
	memset(&p.channel, 0, sizeof(p.channel));
	for (unsigned i = 0; i < 200; i++)
		ck_assert(!wire_channel(&p));
	p.channel = first;
	p.channel.last = &p.channel.first;
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK); /* the one that it has goes on */
	ck_assert_uint_eq(status("channels"), 1);
	wire_close(&p);
}
END_TEST

/* ---- peers that break the rules ---- */

/* Write on until all has found room. */
static void
push_all(struct wire_peer *p)
{
	struct pollfd bell = {.fd = p->channel.bell_fd, .events = POLLIN};

	for (scout__channel_push(&p->channel); p->channel.first; scout__channel_push(&p->channel)) {
		ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1);
		ck_assert(scout__channel_hear(&p->channel));
	}
}

START_TEST(answers_wait_for_a_peer_that_reads_late)
{
	enum {
		LOOKUPS = 400
	};
	struct wire_peer late;
	uint64_t first;

	open_peer(&late);
	first = late.last_corr + 1;
	for (uint64_t i = 0; i < LOOKUPS; i++) {
		const struct scout__lookup_msg m = {.ticket = 100 + i, .n = 4};

		(void)wire_add_lookup(&late, &m, 0);
		wire_flush(&late);
		push_all(&late);
	}
	wire_wait_status(&watcher, "sessions", LOOKUPS);
	for (uint64_t i = 0; i < LOOKUPS; i++)
		wire_reply_free(wire_wait(&late, first + i));
	ck_assert_uint_eq(status("replies.undone"), 0);
	wire_close(&late);
}
END_TEST

/* ---- floods ---- */

/* ---- the library's client ---- */

static struct scout_client *
client_new(const char *key, const char *value)
{
	struct scout_client_config cfg;
	struct scout_client *client = NULL;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 30000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = scout_server_endpoint(server);
	cfg.chunk_tokens = 16;
	if (key)
		ck_assert_int_eq(scout_client_config_set(&cfg, key, value, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	return client;
}

static struct scout_hit
ask(struct scout_client *client, size_t n)
{
	uint8_t *hashes = calloc(n, 32);
	struct scout_query q = {.id = "r", .hashes = hashes, .hash_len = 32, .n = n, .prompt_tokens = n * 16 + 1};
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_finish(client, "r"), 0);
	free(hashes);
	return hit;
}

START_TEST(a_client_of_this_machine_uses_it)
{
	struct scout_client *client = client_new(NULL, NULL);
	struct scout_client *other = client_new("local_transport", "socket");

	ck_assert_int_eq(ask(client, 100000).reason, SCOUT_REASON_MISS); /* 3.2 MB */
	ck_assert_uint_eq(status("channels"), 1);
	ck_assert_uint_ge(status("frames.received_shm"), 1);
	ck_assert_int_eq(ask(other, 100000).reason, SCOUT_REASON_MISS);
	scout_client_free(client);
	scout_client_free(other);
	wire_wait_status(&watcher, "channels", 0);
}
END_TEST

static void
up_socket(void)
{
	up_with("local_transport", "socket");
}

CHECKED_FIXTURE(up_socket, down);

START_TEST(a_server_that_has_none_is_used_through_the_socket)
{
	struct scout_client *client = client_new(NULL, NULL);

	ck_assert_int_eq(ask(client, 8).reason, SCOUT_REASON_MISS);
	ck_assert_uint_eq(status("channels"), 0);
	ck_assert_uint_eq(status("frames.received_shm"), 0);
	scout_client_free(client);
}
END_TEST
