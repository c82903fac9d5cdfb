/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server_rig.h"

/* What protocol.h says about names, clocks, budgets, ranges and the lease connection, asked of a server. */

/* ---- names ---- */

static const struct {
	const char *bytes;
	uint16_t len;
	bool good;
} names[] = {
	{"plain", 5, true},
	{"two words", 9, true},
	{"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 11, true},
	{"a\nforged 1", 10, false},
	{"\x1b[2J", 4, false},
	{"a\0b", 3, false},
	{"\x7f", 1, false},
	{"\xc2\x9b"
	 "2J",
	 4, false},
	{"\xe2\x80\xa8", 3, false},
	{"\xff", 1, false},
	{"cut \xc3", 5, false},
};

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, teardown);

START_LOOP_TEST(a_name_is_utf8_without_control_characters, 0, sizeof(names) / sizeof(names[0]))
{
	const struct scout__str name = {names[_i].bytes, names[_i].len};
	const int want = names[_i].good ? SCOUT_WIRE_OK : SCOUT_WIRE_RANGE;
	struct scout__lookup_msg m = {.ticket = 3, .n = 1, .tenant = name};
	struct wire_reply *reply;
	struct wire_peer peer;

	rig_up(&rig, 8);
	wire_open(&peer, rig.endpoint);
	peer.hello.name_space = name;
	ck_assert_int_eq(wire_hello(&peer), want);
	if (!names[_i].good)
		ck_assert_ptr_nonnull(strstr(
			peer.text, "HELLO: namespace must be UTF-8 text without control characters, 1..255 bytes"));
	ck_assert_uint_eq(wire_status(&peer, "namespaces"), names[_i].good ? 2 : 1);
	(void)wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, rig.client.last_corr);
	ck_assert_int_eq(reply->status, want);
	if (!names[_i].good)
		ck_assert_ptr_nonnull(strstr(
			rig.client.text, "LOOKUP: tenant must be UTF-8 text without control characters, 0..255 bytes"));
	wire_reply_free(reply);
	wire_close(&peer);
}
END_TEST

START_TEST(any_heartbeat_is_taken_and_a_long_one_is_capped)
{
	struct wire_peer peer;

	rig_up(&rig, 8);
	wire_open(&peer, rig.endpoint);
	peer.hello.heartbeat_ms = UINT32_MAX; /* ten of them do not fit into 32 bits */
	ck_assert_int_eq(wire_hello(&peer), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_ping(&peer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&peer, "peers"), 3);
	ck_assert_uint_eq(wire_status(&peer, "peers.forgotten"), 0);
	wire_close(&peer);
}
END_TEST

/* ---- budgets and clocks ---- */

START_TEST(operations_with_one_corr_get_a_reply_each)
{
	uint64_t corr;

	rig_up(&rig, 8);
	(void)wire_begin(&rig.client, SCOUT_OP_PING);
	corr = wire_end(&rig.client);
	rig.client.last_corr--;
	(void)wire_begin(&rig.client, SCOUT_OP_PING);
	ck_assert_uint_eq(wire_end(&rig.client), corr);
	wire_flush(&rig.client);
	for (int i = 0; i < 2; i++) {
		struct wire_reply *reply = wire_wait(&rig.client, corr);

		ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
		wire_reply_free(reply);
	}
}
END_TEST

START_TEST(what_gives_back_is_executed_whatever_its_budget)
{
	struct scout__lookup_reply m;
	struct wire_grants g;
	uint32_t readable = 0;
	uint64_t id;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 100, 2, &id), 2);
	/* As if they had waited for two seconds. */
	rig.client.budget_us = rig.worker.budget_us = 1000;
	rig.client.sent_us_shift = rig.worker.sent_us_shift = -2000000;
	ck_assert_int_eq(wire_lookup(&rig.client, 10, 1, 4, 0, &m), SCOUT_WIRE_EXPIRED);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 2, 2, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 2);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_OK);
	rig.client.budget_us = 0;
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ops.expired"), 1);
	free(g.grants);
}
END_TEST

/* One frame with this shift of the clock, whatever becomes of it; then honest ones. */
static const int64_t lies[] = {6000000,   -6000000,      3600000000,    -3600000000, INT64_MAX,
			       INT64_MIN, INT64_MAX / 2, INT64_MIN / 2, -1,          INT64_MIN + 100};

START_LOOP_TEST(one_wrong_clock_reading_harms_no_later_operation, 0, sizeof(lies) / sizeof(lies[0]))
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig.client.budget_us = 4000000;
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	rig.client.sent_us_shift = lies[_i];
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	rig.client.sent_us_shift = 0;
	for (uint64_t i = 2; i < 6; i++)
		ck_assert_int_eq(wire_lookup(&rig.client, i, 1, 1, 0, &m), SCOUT_WIRE_OK);
	/* And what waited is still known. */
	rig.client.sent_us_shift = -2000000;
	rig.client.budget_us = 1000000;
	ck_assert_int_eq(wire_lookup(&rig.client, 6, 1, 1, 0, &m), SCOUT_WIRE_EXPIRED);
	/* Others have their own clocks. */
	rig.worker.budget_us = 4000000;
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 1), 1);
}
END_TEST

START_TEST(a_peer_without_a_clock_never_waited)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig.client.budget_us = 60000000;
	rig.client.no_clock = true;
	for (uint64_t i = 1; i < 4; i++)
		ck_assert_int_eq(wire_lookup(&rig.client, i, 1, 1, 0, &m), SCOUT_WIRE_OK);
}
END_TEST

/* ---- RETRIEVE ---- */

START_TEST(a_retrieve_has_the_range_of_its_lookup)
{
	struct scout__lookup_reply m;
	struct wire_grants g;
	uint32_t kept;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	/* Six asked for, one skipped, four there. */
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 6, 1, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 4);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 1, 2, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 1);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 7, &g), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 3, 2, &g), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, SCOUT_MAX_CHUNKS + 1, &g), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 6, 6, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 0);
	ck_assert_uint_eq(g.id, 0);
	free(g.grants);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 6, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 6);
	for (unsigned i = 0; i < 4; i++) /* skipped, admitted, given back: all are still there */
		ck_assert_uint_eq(g.grants[i].state, SCOUT_GRANT_GRANTED);
	for (unsigned i = 4; i < 6; i++) /* behind the hit */
		ck_assert_uint_eq(g.grants[i].state, SCOUT_GRANT_MISSING);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
}
END_TEST

START_TEST(an_admit_beyond_the_hit_means_its_end)
{
	uint32_t kept;

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 2, UINT32_MAX, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 2);
	rig_finish(&rig.client, 9);
}
END_TEST

/* ---- the lease connection ---- */

static int
lease_connect(const struct wire_peer *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(p->lease_path), sizeof(address.sun_path));
	memcpy(address.sun_path, p->lease_path, strlen(p->lease_path) + 1);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void
lease_say(int fd, uint16_t version, const struct wire_peer *p)
{
	const struct scout__lease_msg m = {
		.type = SCOUT_LEASE_HELLO, .word = p->hello.token, .secret = p->hello.secret};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	buf[6] = (uint8_t)version;
	buf[7] = (uint8_t)(version >> 8);
	ck_assert_int_eq(send(fd, buf, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* The type of the next message; 0: the end. */
static int
lease_hear(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg m;
	ssize_t len;

	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	len = recv(fd, buf, sizeof(buf), 0);
	if (len <= 0)
		return 0;
	ck_assert(scout__get_lease(buf, (size_t)len, &m));
	return m.type;
}

START_TEST(the_number_in_the_version_field_of_a_lease_is_its_version)
{
	const uint16_t wrong[] = {0, SCOUT_LEASE_VERSION - 1, SCOUT_LEASE_VERSION + 1, SCOUT_LEASE_VERSION << 8,
				  UINT16_MAX};
	int fd;

	ck_assert_int_eq(SCOUT_LEASE_VERSION, 3);
	rig_up(&rig, 8);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fd = lease_connect(&rig.client);
		lease_say(fd, wrong[i], &rig.client);
		ck_assert_int_eq(lease_hear(fd), 0);
		(void)close(fd);
	}
	fd = lease_connect(&rig.client);
	lease_say(fd, SCOUT_LEASE_VERSION, &rig.client);
	ck_assert_int_eq(lease_hear(fd), SCOUT_LEASE_OK);
	(void)close(fd);
}
END_TEST

START_TEST(a_second_lease_of_a_token_takes_the_place_of_the_first)
{
	uint64_t id;
	int second, type;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 1, 2, &id), 2);
	second = lease_connect(&rig.worker);
	lease_say(second, SCOUT_LEASE_VERSION, &rig.worker);
	ck_assert_int_eq(lease_hear(second), SCOUT_LEASE_OK);
	/* It gets all segments again; the first ends without a word behind what it had been sent. */
	ck_assert_int_eq(lease_hear(second), SCOUT_LEASE_SEGMENT);
	while (lease_hear(rig.worker.lease_fd) == SCOUT_LEASE_SEGMENT)
		;
	ck_assert_uint_eq(wire_status(&rig.client, "leases"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "peers.died"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	/* A second hello on one connection ends that. */
	lease_say(second, SCOUT_LEASE_VERSION, &rig.worker);
	while ((type = lease_hear(second)) == SCOUT_LEASE_SEGMENT)
		;
	ck_assert_int_eq(type, SCOUT_LEASE_GONE);
	ck_assert_int_eq(lease_hear(second), 0);
	(void)close(second);
}
END_TEST

START_TEST(connections_that_do_not_say_who_they_are_make_room_and_hinder_nobody)
{
	enum {
		SILENT = SCOUT_LEASE_MAX_UNBOUND + 40
	};
	struct wire_peer late;
	int fds[SILENT];

	rig_up(&rig, 8);
	for (unsigned i = 0; i < SILENT; i++)
		fds[i] = lease_connect(&rig.client);
	wire_open(&late, rig.endpoint);
	ck_assert_int_eq(wire_hello(&late), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&late), SCOUT_LEASE_OK);
	for (unsigned i = 0; i < SILENT - SCOUT_LEASE_MAX_UNBOUND; i++) { /* the oldest */
		ck_assert_int_eq(lease_hear(fds[i]), SCOUT_LEASE_GONE);
		ck_assert_int_eq(lease_hear(fds[i]), 0);
	}
	/* The worker's and the late one's are bound. */
	ck_assert_uint_le(wire_status(&rig.client, "leases"), SCOUT_LEASE_MAX_UNBOUND + 2);
	ck_assert_uint_gt(wire_status(&rig.client, "leases"), SCOUT_LEASE_MAX_UNBOUND);
	for (unsigned i = 0; i < SILENT; i++)
		(void)close(fds[i]);
	wire_wait_status(&rig.client, "leases", 2);
	wire_close(&late);
}
END_TEST

START_TEST(a_connection_that_says_nothing_is_closed_in_time)
{
	uint64_t begin_us;
	int fd;

	rig_up(&rig, 8);
	begin_us = scout__now_us();
	fd = lease_connect(&rig.client);
	ck_assert_int_eq(lease_hear(fd), SCOUT_LEASE_GONE);
	ck_assert_uint_ge(scout__now_us() - begin_us, SCOUT_LEASE_HELLO_MS * UINT64_C(1000));
	ck_assert_int_eq(lease_hear(fd), 0);
	(void)close(fd);
}
END_TEST

START_TEST(segments_come_on_their_own_way_whenever_register_is_answered)
{
	struct scout__register_msg m = {.kv_rank = 0, .n_tables = 1};
	struct scout__table_msg table = {.block_tokens = 16, .n_planes = 1};
	struct scout__writer *w;
	const uint64_t shard_bytes = SHARD_BYTES;
	struct wire_peer second;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4); /* the pool has an extent */
	rig_worker_unregistered(&second, rig.endpoint, 1, 1);
	w = wire_begin(&second, SCOUT_OP_REGISTER);
	scout__put_register(w, &m);
	scout__put_table(w, &table, &shard_bytes);
	(void)wire_end(&second);
	wire_flush(&second);
	/* Before the reply was read. */
	ck_assert_int_eq(lease_hear(second.lease_fd), SCOUT_LEASE_SEGMENT);
	wire_reply_free(wire_wait(&second, second.last_corr));
	wire_close(&second);
}
END_TEST
