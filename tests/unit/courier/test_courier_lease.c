/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's end of the lease connection and of the channel that comes over it, with a server of which the test plays this part: late,
 * mistaken or malicious, it costs the client its shared memory at most, and no descriptors.
 */
#include "check_main.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvscout/worker.h>

#include "channel.h"
#include "client_rig.h"
#include "msg.h"
#include "own_use.h"

#define RING SCOUT_CHANNEL_MIN_BYTES
#define MAX_PASSED 8

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener, lease;

static struct scout__lease_msg
hear(void)
{
	struct pollfd ready = {.fd = lease, .events = POLLIN};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg msg;
	ssize_t n;

	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	n = recv(lease, buf, sizeof(buf), 0);
	ck_assert_msg(n > 0 && scout__get_lease(buf, (size_t)n, &msg), "the client closed its lease connection");
	return msg;
}

static void
say(const struct scout__lease_msg *m, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * MAX_PASSED)];
	} control;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct iovec part = {.iov_base = buf, .iov_len = scout__put_lease(buf, m)};
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};

	if (n > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int) * n), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, sizeof(int) * n);
	}
	ck_assert_int_eq(sendmsg(lease, &msg, MSG_NOSIGNAL), (ssize_t)part.iov_len);
}

/* The next lease connection, bound. */
static void
take_lease(void)
{
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	struct scout__lease_msg said;

	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	lease = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(lease, 0);
	said = hear();
	ck_assert_int_eq(said.type, SCOUT_LEASE_HELLO);
	ck_assert(said.secret.half[0] != 0); /* of the reply to HELLO */
	say(&(struct scout__lease_msg){.type = SCOUT_LEASE_OK, .word = fake_epoch(fake)}, NULL, 0);
}

static void
say_none(void)
{
	say(&(struct scout__lease_msg){.type = SCOUT_LEASE_CHANNEL}, NULL, 0);
}

static void
say_channel(const int *fds, size_t n)
{
	say(&(struct scout__lease_msg){.type = SCOUT_LEASE_CHANNEL, .request_bytes = RING, .reply_bytes = RING}, fds,
	    n);
}

/* A channel of ours; what it passes on is closed here. */
static void
give_channel(struct scout__channel *ch)
{
	int fds[SCOUT__CHANNEL_FDS];

	ck_assert_int_eq(scout__channel_create(ch, RING, RING, fds), 0);
	say_channel(fds, SCOUT__CHANNEL_FDS);
	(void)close(fds[SCOUT__CHANNEL_MEMORY]);
	(void)close(fds[SCOUT__CHANNEL_PEER_BELL]);
}

static void
listen_for_leases(void)
{
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s.lease", fake_endpoint(fake) + strlen("ipc://"));
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 8), 0);
	fake_set_lease(fake, address.sun_path);
}

static void
up(void)
{
	rig_up();
	scout_client_free(client);
	listen_for_leases();
	rig_client("heartbeat_ms", "20000"); /* what is noticed, is not by silence */
	take_lease();
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
}

static void
down(void)
{
	(void)close(lease);
	(void)close(listener);
	ck_assert_int_eq(unlink(address.sun_path), 0);
	rig_down();
}

static void
expect_answer(const char *id)
{
	fake_set_hit(fake, 1);
	ck_assert_uint_eq(rig_answer(id, 2).tokens, RIG_CHUNK);
}

CHECKED_FIXTURE(up, down);

/*
 * The question was not answered before the connection was lost (a server that stood still), and the lease connection stayed. Its answer
 * comes when the next question has been asked: what it brings, the server has closed meanwhile.
 */
START_TEST(the_answer_to_an_earlier_question_is_not_used)
{
	struct scout__channel dead;

	fake_unbind(fake);
	fake_bind(fake, false);
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
	give_channel(&dead);
	scout__channel_close(&dead);
	say_none();
	rig_ready();
	expect_answer("r");
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
}
END_TEST

/* Nobody asked, or all have been answered. */
START_TEST(a_channel_without_a_question_is_not_used)
{
	struct scout__channel dead;

	say_none();
	rig_ready();
	give_channel(&dead);
	expect_answer("r");
	ck_assert(!scout__channel_has_bytes(&dead));
	fake_unbind(fake);
	fake_bind(fake, false);
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
	say_none();
	rig_ready();
	expect_answer("s");
	scout__channel_close(&dead);
}
END_TEST

/* Descriptors that are something else, too few, too many. */
START_LOOP_TEST(wrong_descriptors_are_closed_and_the_socket_is_used, 0, 6)
{
	int before = count_fds();
	int fds[MAX_PASSED], n = 0, pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	fds[n++] = open("/", O_RDONLY | O_CLOEXEC);
	fds[n++] = pipes[0];
	fds[n++] = pipes[1];
	fds[n++] = memfd_create("test", MFD_CLOEXEC);
	fds[n++] = eventfd(0, EFD_CLOEXEC);
	say_channel(fds, (size_t)(_i < n ? _i : n));
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(close(fds[i]), 0);
	rig_ready();
	expect_answer("r");
	/* libzmq closes on a thread of its own: of the first client there may have been some left. */
	wait_until(count_fds() <= before)
		;
}
END_TEST

/* All else stays open, so nothing but the bell says it. */
START_TEST(a_channel_that_the_server_closes_is_the_end_of_the_connection)
{
	struct scout__channel ch;

	give_channel(&ch);
	rig_ready();
	scout__channel_close(&ch);
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL); /* it has come again */
	say_none();
	rig_ready();
	expect_answer("r");
}
END_TEST

/* Read what the client sends, for @ms, in pieces of a ring, one every 20 ms. */
static void
read_slowly(struct scout__channel *ch, uint8_t *frame, uint64_t ms)
{
	uint64_t end_us = scout__now_us() + 1000 * ms;

	for (uint64_t piece_us = 0; piece_us < end_us; piece_us = scout__now_us() + 20000) {
		wait_until(scout__now_us() >= piece_us)
			;
		if (scout__channel_begin(ch) > 0)
			ck_assert_msg(!scout__channel_fill(ch, frame), "the frame is too small for this test");
	}
}

/*
 * A frame of 3 MB through a ring of a few KiB: PING waits after it. A server that reads on is there; one that stops reading is silent. (The
 * operation waits for 150 ms, PING for 300.)
 */
START_TEST(a_server_that_reads_slowly_is_not_silent_until_it_stops_reading)
{
	struct scout_query q = rig_question("r", 3000000 / RIG_HASH);
	struct pollfd said = {.fd = lease, .events = POLLIN};
	uint8_t *frame = malloc(4u << 20), *hashes = calloc(q.n, RIG_HASH);
	struct scout__channel ch;
	struct scout_hit hit;

	q.hashes = hashes;
	q.timeout_ms = 60000;
	give_channel(&ch);
	rig_ready();
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	wait_until(scout__channel_has_bytes(&ch))
		;
	read_slowly(&ch, frame, 1500);
	ck_assert_msg(poll(&said, 1, 0) == 0, "the client has given the connection up");
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
	scout__channel_close(&ch);
	say_none();
	rig_ready();
	free(frame);
	free(hashes);
}
END_TEST

/* ---- a worker ---- */

static struct scout_worker *worker;

static void
up_worker(void)
{
	struct scout_worker_config cfg;
	char err[256] = "";

	fake = fake_start();
	listen_for_leases();
	scout_worker_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.heartbeat_ms = 20000;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	take_lease();
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
}

static void
down_worker(void)
{
	scout_worker_free(worker);
	(void)close(lease);
	(void)close(listener);
	ck_assert_int_eq(unlink(address.sun_path), 0);
	fake_stop(fake);
}

CHECKED_FIXTURE(up_worker, down_worker);

/*
 * So it looks where the worker's process has no descriptor left when a segment comes: before the channel's answer, or later. It is sent
 * once, so only a new lease connection brings it again.
 */
START_LOOP_TEST(a_segment_without_its_memory_is_asked_for_again, 0, 2)
{
	const struct scout__lease_msg segment = {.type = SCOUT_LEASE_SEGMENT,
						 .segment = 1,
						 .slots = 1,
						 .bytes = 8192,
						 .data_offset = 4096,
						 .slot_stride = 4096};
	struct pollfd ready = {.events = POLLIN};
	char c;

	if (_i == 1)
		say_none();
	say(&segment, NULL, 0);
	ready.fd = lease;
	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	while (recv(lease, &c, 1, 0) > 0) /* a goodbye, perhaps */
		;
	(void)close(lease);
	take_lease();
	ck_assert_int_eq(hear().type, SCOUT_LEASE_ASK_CHANNEL);
	say_none();
}
END_TEST
