/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_faults_rig.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_main.h"

/* For what no Redis does: a peer that sends what it is told to. No redis-server is needed. */

#define MASTER "*1\r\n$6\r\nmaster\r\n" /* the answer to ROLE */

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
		ck_assert_msg(poll(&item, 1, wait_limit_ms()) == 1, "never heard %s", what);
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
	say_text(fd, MASTER "+PONG\r\n+OK\r\n");
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

CHECKED_FIXTURE(set_up, tear_down);

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
	ck_assert_int_eq(object_end(&object), SCOUT__L2_TIMEOUT);
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

START_TEST(what_a_lost_connection_had_is_done_again_but_not_for_ever)
{
	struct peer p;
	int ask, load;

	peer_start(&p);
	ask = peer_accept(&p);
	object_begin(&rig, &object, SCOUT__L2_REMOVE, 20000);
	load = peer_accept(&p);
	for (int lost = 0; lost < 3; lost++) {
		(void)hear(load, "UNLINK");
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

/* They are sent again on the next connection, like everything else. */
START_TEST(records_survive_a_lost_connection)
{
	static const struct {
		enum scout__l2_what what;
		const char *says, *reply;
	} cases[] = {{SCOUT__L2_RECORD_READ, "GET", MASTER "$-1\r\n"}, {SCOUT__L2_RECORD_WRITE, "SET", "+OK\r\n"}};
	uint8_t found;
	struct peer p;
	int ask;

	peer_start(&p);
	ask = peer_accept(&p);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		object.op = (struct scout__l2_op){.what = (uint8_t)cases[i].what,
						  .n = 1,
						  .digests = &object.key.digest,
						  .found = &found,
						  .data = object.slot,
						  .bytes = 8,
						  .timeout_us = UINT64_C(20000000)};
		adapter_submit(&rig, &object.op, &object.ended);
		(void)hear(ask, cases[i].says);
		(void)poll(NULL, 0, 150); /* one that breaks young counts as a failure of the server */
		(void)close(ask);
		ask = peer_accept(&p);
		(void)hear(ask, cases[i].says);
		say_text(ask, cases[i].reply);
		ck_assert_int_eq(object_end(&object), SCOUT__L2_OK);
	}
	object.op.found = NULL; /* object_fini() would free it */
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
	ck_assert_int_eq(object_end(&object), SCOUT__L2_TIMEOUT);
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

START_LOOP_TEST(nonsense_ends_the_connection_and_the_operation, 0, (sizeof(nonsense) / sizeof(nonsense[0])))
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
	wait_until(atomic_load(&scout__redis_counters(rig.adapter)->ready))
		;
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
