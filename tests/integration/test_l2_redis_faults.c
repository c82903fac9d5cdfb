/* SPDX-License-Identifier: Apache-2.0 */
#include "redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter_rig.h"
#include "redis_rig.h"

/*
 * What goes wrong between the adapter and a server: real servers that are stopped, killed, full of clients or that want
 * another password; and for what no Redis does, a peer that sends what it is told to.
 */

#define MIB (UINT64_C(1) << 20)
#define LATE_US 3000000u /* how much later than its deadline an operation may end on an overloaded machine */

static struct redis_server server;
static struct adapter_rig rig;
static struct adapter_object object;
static char url[512];

static void
set_up(void)
{
	server = (struct redis_server){.pid = 0};
	rig = (struct adapter_rig){.vt = &scout__l2_redis, .timeout_ms = 300};
	object_init(&object, 1, 5000);
}

static void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_kill(&server);
	object_fini(&object);
}

static void
url_of(const char *before, uint16_t port, const char *after)
{
	(void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%u%s", before, port, after);
}

static void
real_server(const char *const *extra)
{
	redis_start(&server, extra);
	url_of("", server.port, "");
}

static uint64_t
counter(const atomic_uint_fast64_t *value)
{
	return atomic_load(value);
}
#define COUNTER(name) counter(&scout__redis_counters(rig.adapter)->name)

/* The operation that was begun ends by its deadline. */
static enum scout__l2_result
end_in_time(struct adapter_object *o)
{
	enum scout__l2_result result = object_end(o);

	ck_assert_uint_lt(scout__now_us(), o->op.deadline_us + LATE_US);
	return result;
}

/* ---- who may come in ---- */

START_TEST(a_password_and_a_user_are_sent)
{
	static const char *const extra[] = {"requirepass", "s3cret/@:", NULL};

	server.password = "s3cret/@:";
	real_server(extra);
	url_of(":s3cret%2F%40%3A@", server.port, "");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	adapter_down(&rig);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get +set +exists +del +watch +unwatch +multi +exec");
	url_of("kv:pass2@", server.port, "");
	adapter_up(&rig, url);
	/* Neither PING nor CLUSTER SLOTS nor CLIENT SETNAME: not needed. */
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	ck_assert_int_eq(object_remove(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(adapter_logged(&rig, "s3cret") + adapter_logged(&rig, "pass2"), 0);
}
END_TEST

/* Nothing works, the log says once why, without the password; then it works by itself. */
static void
check_refused(const char *says, const char *secret)
{
	rig.timeout_ms = 10000; /* that the machine is slow is not to be told */
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ERROR);
	/* Tried again and again, but told once. */
	adapter_wait(COUNTER(auth_refused) >= 4);
	ck_assert_uint_eq(adapter_logged(&rig, says), 1);
	ck_assert_uint_eq(adapter_logged(&rig, "trying again"), 1);
	ck_assert_uint_eq(adapter_logged(&rig, secret), 0);
	ck_assert(!atomic_load(&scout__redis_counters(rig.adapter)->ready));
}

START_TEST(a_wrong_password_is_told_once_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};

	server.password = "right";
	real_server(extra);
	url_of(":wrongsecret@", server.port, "");
	check_refused("refuses the user or password", "wrongsecret");
	redis_ok(&server, "CONFIG SET requirepass wrongsecret");
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
	ck_assert_uint_eq(adapter_logged(&rig, "works again"), 1);
}
END_TEST

START_TEST(a_wrong_user_is_told_once_and_heals)
{
	real_server(NULL);
	url_of("nobody:secret7@", server.port, "");
	check_refused("refuses the user or password", "secret7");
	redis_ok(&server, "ACL SETUSER nobody on >secret7 ~* +@all");
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
}
END_TEST

START_TEST(a_missing_password_is_told_once_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};

	server.password = "right";
	real_server(extra);
	check_refused("wants a password, and the URL has none", "right");
	redis_ok(&server, "CONFIG SET requirepass %s", "");
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
}
END_TEST

START_TEST(a_password_that_nobody_asked_for_is_refused)
{
	real_server(NULL);
	url_of(":unasked1@", server.port, "");
	check_refused("has it a password at all?", "unasked1");
}
END_TEST

START_TEST(a_password_that_was_put_in_while_connected_is_noticed)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_ok(&server, "CONFIG SET requirepass late");
	/* Connections that are in stay in; new ones are refused. */
	(void)redis_number(&server, "CLIENT KILL TYPE normal SKIPME yes");
	adapter_wait(object_load(&rig, &object) == SCOUT__L2_ERROR && COUNTER(auth_refused) > 0);
	adapter_wait_logged(&rig, "wants a password");
	redis_ok(&server, "CONFIG SET requirepass %s", "");
	adapter_wait(object_load(&rig, &object) == SCOUT__L2_OK);
}
END_TEST

START_TEST(a_user_without_rights_gets_errors_and_no_storm_of_lines)
{
	real_server(NULL);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get");
	url_of("kv:pass2@", server.port, "");
	adapter_up(&rig, url);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ABSENT);
	ck_assert_uint_eq(adapter_logged(&rig, "NOPERM"), 1);
}
END_TEST

START_TEST(nothing_is_removed_without_a_watch)
{
	char key[SCOUT__REDIS_KEY_BYTES + 1];

	real_server(NULL);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get +set +del +multi +exec +unwatch");
	url_of("kv:pass2@", server.port, "");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	scout__redis_key(object.key.digest, key);
	(void)redis_number(&server, "SETRANGE %s 600 damaged", key);
	/* Somebody may store it anew between the look and the removal. */
	ck_assert_int_eq(object_remove(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key), 1);
	redis_ok(&server, "ACL SETUSER kv +watch");
	ck_assert_int_eq(object_remove(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key), 0);
}
END_TEST

START_TEST(a_server_without_room_for_clients_is_told_and_heals)
{
	real_server(NULL);
	redis_ok(&server, "CONFIG SET maxclients 1"); /* ours */
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	adapter_wait_logged(&rig, "no room for another client");
	redis_ok(&server, "CONFIG SET maxclients 100");
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
}
END_TEST

/* ---- nobody there ---- */

START_TEST(a_server_that_accepts_and_never_answers_holds_up_nobody)
{
	struct adapter_object more[4];
	uint64_t begun_us;
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < 4; i++)
		object_init(&more[i], 10 + i, 5000);
	object_begin(&rig, &more[0], SCOUT__L2_LOAD, 200);
	object_begin(&rig, &more[1], SCOUT__L2_STORE, 200);
	object_begin(&rig, &more[2], SCOUT__L2_REMOVE, 200);
	object_begin_exists(&rig, &more[3], more, 4, 200);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(end_in_time(&more[i]), SCOUT__L2_TIMEOUT);
	/* By then it is known, and what comes does not wait at all. */
	adapter_wait(COUNTER(stalled) > 0);
	adapter_wait_logged(&rig, "does not answer");
	begun_us = scout__now_us();
	for (int i = 0; i < 40; i++) {
		object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
		ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	}
	ck_assert_uint_lt(scout__now_us() - begun_us, LATE_US);
	for (uint32_t i = 0; i < 4; i++)
		object_fini(&more[i]);
	(void)close(fd);
}
END_TEST

START_TEST(a_port_that_nobody_listens_on_is_an_error_at_once_and_heals)
{
	real_server(NULL);
	redis_kill(&server);
	adapter_up(&rig, url);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	ck_assert_uint_eq(adapter_logged(&rig, "cannot be reached"), 1);
	redis_restart(&server);
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
	ck_assert_uint_eq(adapter_logged(&rig, "cannot be reached"), 1);
	ck_assert_uint_eq(adapter_logged(&rig, "works again"), 1);
	ck_assert(atomic_load(&scout__redis_counters(rig.adapter)->ready));
}
END_TEST

START_TEST(a_stopped_server_holds_up_nobody_and_heals)
{
	struct adapter_object large;

	real_server(NULL);
	adapter_up(&rig, url);
	object_init(&large, 2, 64 * MIB);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	memset(object.slot, 0xee, object.bytes);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 200);
	object_begin(&rig, &large, SCOUT__L2_STORE, 200);
	ck_assert_int_eq(end_in_time(&object), SCOUT__L2_TIMEOUT);
	ck_assert_int_eq(end_in_time(&large), SCOUT__L2_TIMEOUT);
	/* Half of the large one is on its way. Its memory is somebody else's now. */
	memset(large.slot, 0x77, large.bytes);
	memset(object.slot, 0x77, object.bytes);
	adapter_wait(COUNTER(stalled) > 0);
	redis_thaw(&server);
	rig.timeout_ms = 5000;
	adapter_wait(object_load(&rig, &large) == SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	object_fini(&large);
}
END_TEST

START_TEST(a_store_that_ends_half_sent_is_never_completed_with_other_bytes)
{
	struct adapter_object large;

	real_server(NULL);
	rig.timeout_ms = 20000; /* nobody takes the server for dead */
	adapter_up(&rig, url);
	object_init(&large, 2, 64 * MIB);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	object_begin(&rig, &large, SCOUT__L2_STORE, 300);
	ck_assert_int_eq(end_in_time(&large), SCOUT__L2_TIMEOUT);
	memset(large.slot, 0x77, large.bytes);
	redis_thaw(&server);
	/* Stores are done one after the other, so this one would come after the rest of that one. */
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_PRESENT);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 1);
	ck_assert_uint_eq(COUNTER(stalled), 0);
	object_fini(&large);
}
END_TEST

START_TEST(a_server_that_hangs_for_less_than_the_timeout_loses_nothing)
{
	static struct adapter_object many[50];

	real_server(NULL);
	rig.timeout_ms = 8000;
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	for (uint32_t i = 0; i < 50; i++) {
		object_init(&many[i], 100 + i, 100000);
		object_begin(&rig, &many[i], SCOUT__L2_STORE, 9000);
	}
	/* A lookup's question does not wait that long. Its reply, when it comes, is nobody else's. */
	object_begin_exists(&rig, &object, many, 50, 50);
	ck_assert_int_eq(end_in_time(&object), SCOUT__L2_TIMEOUT);
	redis_thaw(&server);
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_int_eq(object_end(&many[i]), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &many[50 - 1], 1), 1);
	ck_assert_uint_eq(COUNTER(reconnects), 0);
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(object_load(&rig, &many[i]), SCOUT__L2_OK);
		object_fini(&many[i]);
	}
}
END_TEST

START_TEST(a_server_that_comes_back_empty_is_believed)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_restart(&server);
	/* Whatever the connections have learnt so far: nothing is found, and it works again. */
	adapter_wait(object_load(&rig, &object) == SCOUT__L2_ABSENT);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 0);
	adapter_wait(object_store(&rig, &object) == SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_ge(COUNTER(reconnects), 1);
}
END_TEST

START_TEST(connections_that_the_server_closes_are_made_anew_without_an_error)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	(void)poll(NULL, 0, 150); /* connections that break young count as a failure of the server */
	(void)redis_number(&server, "CLIENT KILL TYPE normal SKIPME yes");
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_PRESENT);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	adapter_wait(COUNTER(reconnects) >= 3);
	ck_assert_uint_eq(adapter_logged(&rig, "trying again"), 0);
}
END_TEST

START_TEST(a_stop_ends_what_runs_at_once)
{
	static struct adapter_object many[60];
	uint64_t begun_us;

	real_server(NULL);
	rig.timeout_ms = 60000;
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	for (uint32_t i = 0; i < 60; i++) {
		object_init(&many[i], 100 + i, i % 10 == 0 ? 8 * MIB : 1000);
		object_begin(&rig, &many[i],
			     i % 3 == 0   ? SCOUT__L2_STORE
			     : i % 3 == 1 ? SCOUT__L2_LOAD
					  : SCOUT__L2_REMOVE,
			     60000);
	}
	object_begin_exists(&rig, &object, many, 60, 60000);
	begun_us = scout__now_us();
	adapter_down(&rig);
	ck_assert_uint_lt(scout__now_us() - begun_us, LATE_US);
	for (uint32_t i = 0; i < 60; i++) {
		ck_assert_int_eq(object_end(&many[i]), SCOUT__L2_CANCELLED);
		object_fini(&many[i]);
	}
	ck_assert_int_eq(object_end(&object), SCOUT__L2_CANCELLED);
	redis_thaw(&server);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_a_server_that_is_being_connected)
{
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	rig.timeout_ms = 60000;
	adapter_up(&rig, url);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
	adapter_down(&rig);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_CANCELLED);
	(void)close(fd);
}
END_TEST

/* ---- a peer that sends what it is told ---- */

struct peer {
	int listener;
	uint16_t port;
	int fd; /* the connection of the lane that is used */
	char in[65536];
	size_t len;
};

static void
peer_start(struct peer *p)
{
	p->port = redis_deaf_listener(&p->listener);
	url_of("", p->port, "?cluster=no");
	rig.timeout_ms = 2000;
	adapter_up(&rig, url);
}

static void
peer_stop(struct peer *p)
{
	adapter_down(&rig);
	(void)close(p->listener);
}

static void
say(int fd, const void *bytes, size_t len)
{
	ck_assert_int_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void
say_text(int fd, const char *text)
{
	say(fd, text, strlen(text));
}

/* Read until what came has this in it; all that came. */
static const char *
hear(int fd, const char *what)
{
	static char text[1 << 20];
	size_t len = 0;

	for (;;) {
		struct pollfd item = {.fd = fd, .events = POLLIN};
		ssize_t n;

		text[len] = '\0';
		if (strstr(text, what))
			return text;
		ck_assert_msg(poll(&item, 1, 20000) == 1, "never heard %s", what);
		n = recv(fd, text + len, sizeof(text) - 1 - len, 0);
		ck_assert_msg(n > 0, "it has left before %s", what);
		len += (size_t)n;
	}
}

/* Accept connections and their handshake until one brings @what. */
static int
peer_accept(struct peer *p)
{
	int fd = accept(p->listener, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	(void)hear(fd, "SETNAME");
	say_text(fd, "+PONG\r\n+OK\r\n");
	return fd;
}

/* Until the other side has closed it. */
static void
hear_the_end(int fd)
{
	char byte[4096];

	while (recv(fd, byte, sizeof(byte), 0) > 0)
		;
	(void)close(fd);
}

START_TEST(a_value_that_stops_halfway_never_touches_the_slot_again)
{
	struct peer p;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	int ask, load;

	peer_start(&p);
	ask = peer_accept(&p);
	memset(object.slot, 0xee, object.bytes);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 300);
	load = peer_accept(&p);
	(void)hear(load, "GET");
	scout__l2_header_put(header, &object.key, object.bytes, scout__l2_sum(object.data, object.bytes));
	say_text(load, "$5512\r\n");
	say(load, header, sizeof(header));
	say(load, object.data, 2000);
	ck_assert_int_eq(end_in_time(&object), SCOUT__L2_TIMEOUT);
	memset(object.slot, 0x77, object.bytes);
	/* The rest, which may still be sent, goes nowhere: the connection is closed. */
	(void)send(load, object.data + 2000, 3000, MSG_NOSIGNAL);
	hear_the_end(load);
	for (uint64_t i = 0; i < object.bytes; i++)
		ck_assert_uint_eq(object.slot[i], 0x77);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

/* One "WATCH" after the other: EXEC ends all watches of a connection. */
START_TEST(a_removal_waits_for_the_one_before_it)
{
	struct adapter_object other;
	struct peer p;
	int ask, load;
	const char *text;

	object_init(&other, 2, 5000);
	peer_start(&p);
	ask = peer_accept(&p);
	object_begin(&rig, &object, SCOUT__L2_REMOVE, 10000);
	object_begin(&rig, &other, SCOUT__L2_REMOVE, 10000);
	load = peer_accept(&p);
	for (int i = 0; i < 2; i++) {
		text = strstr(hear(load, "GET"), "WATCH");
		ck_assert_ptr_nonnull(text);
		ck_assert_ptr_null(strstr(text + 5, "WATCH"));
		say_text(load, "+OK\r\n$3\r\nbad\r\n");
		ck_assert_ptr_null(strstr(hear(load, "EXEC"), "WATCH"));
		/* The first is damaged and goes, the second was stored anew meanwhile. */
		say_text(load, "+OK\r\n+QUEUED\r\n");
		say_text(load, i == 0 ? "*1\r\n:1\r\n" : "*-1\r\n");
	}
	ck_assert_int_eq(object_end(&object), SCOUT__L2_OK);
	ck_assert_int_eq(object_end(&other), SCOUT__L2_OK);
	(void)close(load);
	(void)close(ask);
	peer_stop(&p);
	object_fini(&other);
}
END_TEST

START_TEST(what_a_lost_connection_had_is_done_again_from_its_beginning_but_not_for_ever)
{
	struct peer p;
	int ask, load;

	peer_start(&p);
	ask = peer_accept(&p);
	object_begin(&rig, &object, SCOUT__L2_REMOVE, 20000);
	load = peer_accept(&p);
	for (int lost = 0; lost < 3; lost++) {
		/* Every time the watch first: that of the connection before is gone with it. */
		const char *text = hear(load, "GET");

		ck_assert_ptr_nonnull(strstr(text, "WATCH"));
		ck_assert_ptr_null(strstr(text, "EXEC"));
		say_text(load, "+OK\r\n$3\r\nbad\r\n");
		(void)hear(load, "EXEC");
		(void)poll(NULL, 0, 150); /* one that breaks young counts as a failure of the server */
		ck_assert_uint_eq(atomic_load(&object.ended), 0);
		(void)close(load);
		if (lost < 2)
			load = peer_accept(&p);
	}
	ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

START_TEST(a_late_reply_is_nobody_elses)
{
	struct adapter_object other;
	struct peer p;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	int ask, load;

	object_init(&other, 2, 5000);
	peer_start(&p);
	ask = peer_accept(&p);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 200);
	load = peer_accept(&p);
	(void)hear(load, "GET");
	ck_assert_int_eq(end_in_time(&object), SCOUT__L2_TIMEOUT);
	memset(other.slot, 0xee, other.bytes);
	object_begin(&rig, &other, SCOUT__L2_LOAD, 10000);
	(void)hear(load, "GET");
	/* First what was asked for first, damaged at that; then the other. */
	say_text(load, "$5512\r\n");
	memset(header, 0x55, sizeof(header));
	say(load, header, sizeof(header));
	say(load, object.data, 5000);
	say_text(load, "\r\n");
	scout__l2_header_put(header, &other.key, other.bytes, scout__l2_sum(other.data, other.bytes));
	say_text(load, "$5512\r\n");
	say(load, header, sizeof(header));
	say(load, other.data, 5000);
	say_text(load, "\r\n");
	ck_assert_int_eq(object_end(&other), SCOUT__L2_OK);
	ck_assert_mem_eq(other.slot, other.data, other.bytes);
	ck_assert_uint_eq(COUNTER(dropped_values), 1);
	(void)close(load);
	(void)close(ask);
	peer_stop(&p);
	object_fini(&other);
}
END_TEST

START_TEST(a_value_in_pieces_of_one_byte_is_whole)
{
	struct peer p;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	char line[] = "$5512\r\n", end[] = "\r\n";
	int ask, load;

	peer_start(&p);
	ask = peer_accept(&p);
	memset(object.slot, 0xee, object.bytes);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 20000);
	load = peer_accept(&p);
	(void)hear(load, "GET");
	scout__l2_header_put(header, &object.key, object.bytes, scout__l2_sum(object.data, object.bytes));
	for (size_t i = 0; i < 7; i++)
		say(load, line + i, 1);
	for (size_t i = 0; i < sizeof(header); i++)
		say(load, header + i, 1);
	for (size_t i = 0; i < 4990; i += 499)
		say(load, object.data + i, 499);
	for (size_t i = 4990; i < 5000; i++)
		say(load, object.data + i, 1);
	say(load, end, 1);
	say(load, end + 1, 1);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_OK);
	ck_assert_mem_eq(object.slot, object.data, object.bytes);
	(void)close(load);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

/* What no Redis says: the connection goes, the operation ends as an error, nothing is kept of it. */
static const char *const nonsense[] = {
	"hello\r\n",
	"$600000000000\r\n",
	"$536870913\r\n",
	"$-5\r\n",
	"$x\r\n",
	"*999999999\r\n",
	"*1\r\n$3\r\nabc\r\n",
	":1\r\n",
	"+OK\r\n",
	"$5\r\nabcdefg\r\n",
	"\r\n",
	"-LOADING Redis is loading the dataset in memory\r\n",
};

START_TEST(nonsense_ends_the_connection_and_the_operation)
{
	struct peer p;
	int ask, load;

	peer_start(&p);
	ask = peer_accept(&p);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 10000);
	load = peer_accept(&p);
	(void)hear(load, "GET");
	say_text(load, nonsense[_i]);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	hear_the_end(load);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

START_TEST(a_reply_without_an_end_is_cut_off)
{
	static char block[1 << 16];
	struct peer p;
	size_t sent = 0;
	int ask;

	memset(block, 'x', sizeof(block));
	peer_start(&p);
	ask = peer_accept(&p);
	object_begin_exists(&rig, &object, &object, 1, 10000);
	(void)hear(ask, "EXISTS");
	say_text(ask, "+");
	while (send(ask, block, sizeof(block), MSG_NOSIGNAL) > 0) {
		sent += sizeof(block);
		ck_assert_uint_lt(sent, 64 * MIB); /* the limit, and what the sockets hold */
	}
	ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

START_TEST(what_comes_unasked_ends_the_connection)
{
	struct peer p;
	int ask;

	peer_start(&p);
	ask = peer_accept(&p);
	adapter_wait(atomic_load(&scout__redis_counters(rig.adapter)->ready));
	say_text(ask, ":1\r\n");
	hear_the_end(ask);
	/* And it is tried again. */
	ask = peer_accept(&p);
	object_begin_exists(&rig, &object, &object, 1, 10000);
	(void)hear(ask, "EXISTS");
	say_text(ask, ":1\r\n");
	ck_assert_int_eq(object_end(&object), SCOUT__L2_OK);
	ck_assert_uint_eq(object.op.found[0], 1);
	(void)close(ask);
	peer_stop(&p);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("l2_redis_faults");
	TCase *tc = tcase_create("faults");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 40);
	tcase_add_test(tc, a_password_and_a_user_are_sent);
	tcase_add_test(tc, a_wrong_password_is_told_once_and_heals);
	tcase_add_test(tc, a_wrong_user_is_told_once_and_heals);
	tcase_add_test(tc, a_missing_password_is_told_once_and_heals);
	tcase_add_test(tc, a_password_that_nobody_asked_for_is_refused);
	tcase_add_test(tc, a_password_that_was_put_in_while_connected_is_noticed);
	tcase_add_test(tc, a_user_without_rights_gets_errors_and_no_storm_of_lines);
	tcase_add_test(tc, nothing_is_removed_without_a_watch);
	tcase_add_test(tc, a_server_without_room_for_clients_is_told_and_heals);
	tcase_add_test(tc, a_server_that_accepts_and_never_answers_holds_up_nobody);
	tcase_add_test(tc, a_port_that_nobody_listens_on_is_an_error_at_once_and_heals);
	tcase_add_test(tc, a_stopped_server_holds_up_nobody_and_heals);
	tcase_add_test(tc, a_store_that_ends_half_sent_is_never_completed_with_other_bytes);
	tcase_add_test(tc, a_server_that_hangs_for_less_than_the_timeout_loses_nothing);
	tcase_add_test(tc, a_server_that_comes_back_empty_is_believed);
	tcase_add_test(tc, connections_that_the_server_closes_are_made_anew_without_an_error);
	tcase_add_test(tc, a_stop_ends_what_runs_at_once);
	tcase_add_test(tc, a_stop_does_not_wait_for_a_server_that_is_being_connected);
	tcase_add_test(tc, a_value_that_stops_halfway_never_touches_the_slot_again);
	tcase_add_test(tc, a_removal_waits_for_the_one_before_it);
	tcase_add_test(tc, what_a_lost_connection_had_is_done_again_from_its_beginning_but_not_for_ever);
	tcase_add_test(tc, a_late_reply_is_nobody_elses);
	tcase_add_test(tc, a_value_in_pieces_of_one_byte_is_whole);
	tcase_add_loop_test(tc, nonsense_ends_the_connection_and_the_operation, 0,
			    (int)(sizeof(nonsense) / sizeof(nonsense[0])));
	tcase_add_test(tc, a_reply_without_an_end_is_cut_off);
	tcase_add_test(tc, what_comes_unasked_ends_the_connection);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return redis_rig_main(suite());
}
