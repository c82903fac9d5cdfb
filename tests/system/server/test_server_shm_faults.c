/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of the shared memory that write nonsense, die, flood or do not read: what it costs them, and no other. */
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

#include "checked_fork.h"
#include "server_rig.h"
#include "shm_rig.h"

static void
set_word(const struct wire_peer *p, size_t at, uint64_t value)
{
	memcpy((uint8_t *)p->channel.map + at, &value, sizeof(value));
}

static void
ring(const struct wire_peer *p)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(p->channel.other_bell_fd, &one, sizeof(one)), sizeof(one));
}

/* The lease of @p ends, and nothing else. */
static void
expect_thrown_out(struct wire_peer *p, struct wire_peer *other)
{
	struct pollfd lease = {.fd = p->lease_fd, .events = POLLIN};
	struct pollfd bell = {.fd = p->channel.bell_fd, .events = POLLIN};
	char c;

	ck_assert_int_eq(poll(&lease, 1, wait_limit_ms()), 1);
	ck_assert_int_eq(read(p->lease_fd, &c, 1), 0);
	ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1); /* nobody else has its other end, so it says the same */
	while (recv(p->channel.bell_fd, &c, 1, MSG_DONTWAIT) > 0)
		;
	ck_assert(!scout__channel_hear(&p->channel));
	ck_assert_int_eq(wire_ping(other), SCOUT_WIRE_OK);
	wire_wait_status(&watcher, "channels", 1);
	wire_close(p);
	wire_close(other);
}

CHECKED_FIXTURE(up, down);

START_LOOP_TEST(nonsense_in_the_shared_words_ends_the_lease_of_that_peer_alone, 0, 3)
{
	static const struct {
		size_t at;
		uint64_t value;
	} nonsense[] = {
		{SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, UINT64_C(1) << 40},
		{SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 3},
		{SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 0}, /* back, after frames */
	};
	struct wire_peer bad, good;

	open_peer(&good);
	open_peer(&bad);
	ck_assert_int_eq(wire_ping(&bad), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_ping(&good), SCOUT_WIRE_OK);
	set_word(&bad, nonsense[_i].at, nonsense[_i].value);
	ring(&bad);
	expect_thrown_out(&bad, &good);
}
END_TEST

START_TEST(a_frame_of_impossible_length_ends_the_lease)
{
	struct wire_peer bad, good;

	open_peer(&good);
	open_peer(&bad);
	set_word(&bad, SCOUT_CHANNEL_DATA, (uint64_t)SCOUT_MAX_FRAME + 1);
	set_word(&bad, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 64);
	ring(&bad);
	expect_thrown_out(&bad, &good);
}
END_TEST

/* Nothing rings for it: the server finds it when it writes an answer that was held back. */
START_TEST(a_position_that_cannot_be_ends_the_lease_when_an_answer_finds_it)
{
	const struct scout__lookup_msg m = {
		.ticket = 77, .n = 1, .expect = 1, .poll_timeout_ms = 60000, .poll_interval_ms = 60000};
	struct wire_peer bad, good, worker;
	struct wire_grants grants;
	uint32_t readable;

	rig_worker(&worker, scout_server_endpoint(server));
	open_peer(&good);
	open_peer(&bad);
	ck_assert_int_eq(wire_store(&worker, 1, 0, 1, &grants), SCOUT_WIRE_OK);
	(void)wire_add_lookup(&bad, &m, 0);
	wire_flush(&bad);
	wire_wait_status(&watcher, "frames.received_shm", 1);
	set_word(&bad, SCOUT_CHANNEL_REPLIES + SCOUT_CHANNEL_HEAD, 64);
	ck_assert_int_eq(wire_store_done(&worker, grants.id, 1, 1, &readable), SCOUT_WIRE_OK); /* what it waits for */
	expect_thrown_out(&bad, &good);
	free(grants.grants);
	wire_close(&worker);
}
END_TEST

/*
 * The open file behind a bell is shared, and so is its O_NONBLOCK: a peer clears it, fills up what the server rings, and asks to be rung
 * again and again. The server must neither wait for it nor count it as one that does not read.
 */
START_TEST(a_peer_whose_bell_is_full_and_would_block_holds_up_nobody)
{
	const uint64_t most = UINT64_MAX - 1;
	struct wire_peer bad, good;

	open_peer(&good);
	open_peer(&bad);
	ck_assert_int_eq(fcntl(bad.channel.bell_fd, F_SETFL, 0), 0);
	ck_assert_int_eq(write(bad.channel.bell_fd, &most, sizeof(most)), sizeof(most));
	for (unsigned i = 0; i < 1000; i++) {
		uint8_t frame[256];
		uint32_t len;

		ck_assert(scout__channel_sleep(&bad.channel));
		(void)wire_begin(&bad, SCOUT_OP_PING);
		(void)wire_end(&bad);
		wire_flush(&bad);
		/* Its bell is not read. */
		wait_until((len = scout__channel_begin(&bad.channel)) != 0)
			;
		ck_assert_uint_le(len, sizeof(frame));
		ck_assert(scout__channel_fill(&bad.channel, frame));
	}
	ck_assert_int_eq(wire_ping(&good), SCOUT_WIRE_OK);
	ck_assert_uint_eq(status("frames.dropped"), 0);
	wire_close(&good);
	wire_close(&bad);
}
END_TEST

/* What is no frame is judged as on the socket: dropped or refused, and counted; the channel lives. */
START_TEST(bytes_that_are_no_frame_are_counted)
{
	struct wire_peer p;
	uint64_t dropped;

	open_peer(&p);
	dropped = status("frames.dropped");
	wire_raw(&p, "no frame", 8, false);
	ck_assert_int_eq(wire_ping(&p), SCOUT_WIRE_OK);
	ck_assert_uint_eq(status("frames.dropped"), dropped + 1);
	wire_close(&p);
}
END_TEST

/*
 * It has a frame begun and dies: what it holds comes back as of any that dies. Its process is made before this one has threads, and reads
 * from a pipe where the server is.
 */
static pid_t doomed;
static int doomed_fd;

static void
die_in_the_middle(int fd)
{
	char endpoint[256];
	ssize_t len = read(fd, endpoint, sizeof(endpoint) - 1);
	struct wire_peer p;

	if (len <= 0)
		_exit(1);
	endpoint[len] = '\0';
	rig_client(&p, endpoint);
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_OK);
	ck_assert(wire_channel(&p));
	ck_assert_uint_eq(rig_hit(&p, 9, 0, 8), 8);
	set_word(&p, SCOUT_CHANNEL_DATA + p.channel.out.at % p.channel.out.size, 1000);
	set_word(&p, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, p.channel.out.at + 64);
	ring(&p);
	_exit(0);
}

static void
up_doomed(void)
{
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);
	doomed = checked_fork();
	if (doomed == 0) {
		(void)close(fds[1]);
		die_in_the_middle(fds[0]);
	}
	(void)close(fds[0]);
	doomed_fd = fds[1];
	up();
}

CHECKED_FIXTURE(up_doomed, down);

START_TEST(a_peer_that_dies_in_the_middle_of_a_frame_leaves_nothing)
{
	const char *endpoint = scout_server_endpoint(server);
	struct wire_peer worker;
	int how;

	open_worker(&worker);
	ck_assert_uint_eq(rig_store(&worker, 1, 0, 8), 8);
	ck_assert_int_eq(write(doomed_fd, endpoint, strlen(endpoint)), (ssize_t)strlen(endpoint));
	(void)close(doomed_fd);
	ck_assert_int_eq(waitpid(doomed, &how, 0), doomed);
	ck_assert_int_eq(how, 0);
	wire_wait_status(&watcher, "channels", 1);
	wire_wait_status(&watcher, "sessions", 0);
	wire_wait_status(&watcher, "l1.bytes_promised", 0);
	wire_close(&worker);
}
END_TEST

CHECKED_FIXTURE(up, down);

/*
 * A frame of a thousand operations that are refused, with a sentence each; the answer is not read. False: the server has ended the
 * channel.
 */
static bool
ask_much(struct wire_peer *p)
{
	struct pollfd bell = {.fd = p->channel.bell_fd, .events = POLLIN};

	for (unsigned i = 0; i < 1000; i++) {
		(void)wire_begin(p, 200);
		(void)wire_end(p);
	}
	wire_flush(p);
	for (scout__channel_push(&p->channel); p->channel.first; scout__channel_push(&p->channel)) {
		ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1);
		if (!scout__channel_hear(&p->channel))
			return false;
	}
	return true;
}

/* Up to a limit, then it counts as one that never reads: what a lost answer has promised is taken back, and its channel ends. */
START_TEST(a_peer_that_does_not_read_is_limited)
{
	struct wire_peer worker, deaf;
	uint64_t asked = 0;
	bool lives = true;

	open_worker(&worker);
	ck_assert_uint_eq(rig_store(&worker, 1, 0, 4), 4);
	open_peer(&deaf);
	while (lives && status("replies.undone") == 0) {
		const struct scout__lookup_msg m = {.ticket = 100 + asked++, .n = 4};

		ck_assert_uint_lt(asked, 2000);
		(void)wire_add_lookup(&deaf, &m, 0);
		lives = ask_much(&deaf);
		ck_assert_int_eq(wire_ping(&worker), SCOUT_WIRE_OK);
	}
	wire_wait_status(&watcher, "peers.dropped", 1);
	wire_wait_status(&watcher, "channels", 1);
	wire_wait_status(&watcher, "leases", 1);
	ck_assert_uint_ge(status("frames.dropped"), 1);
	ck_assert_uint_lt(status("sessions"), asked);
	/* Its process lives, so it is still known. */
	ck_assert_uint_eq(status("peers"), 3); /* with the worker and the watcher */
	wire_close(&deaf);
	wire_close(&worker);
}
END_TEST

static atomic_bool flood_ends;

/* Frames as fast as they go, of which the answers are not read. */
static void *
flood_frames(void *arg)
{
	struct wire_peer *p = arg;

	while (!atomic_load(&flood_ends)) {
		for (unsigned i = 0; i < 1000; i++) {
			(void)wire_begin(p, SCOUT_OP_PING);
			(void)wire_end(p);
		}
		wire_flush(p);
		while (p->channel.first && !atomic_load(&flood_ends))
			scout__channel_push(&p->channel);
	}
	return NULL;
}

/* Lease messages as fast as they go. */
static void *
flood_lease(void *arg)
{
	const struct scout__lease_msg m = {.type = SCOUT_LEASE_RELEASED, .segment = 1};
	const struct wire_peer *p = arg;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	while (!atomic_load(&flood_ends) && send(p->lease_fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len)
		;
	return NULL;
}

/* Lease connections that say nothing. */
static void *
flood_connections(void *arg)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct wire_peer *p = arg;

	memcpy(address.sun_path, p->lease_path, strlen(p->lease_path) + 1);
	while (!atomic_load(&flood_ends)) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		(void)connect(fd, (const struct sockaddr *)&address, sizeof(address));
		(void)close(fd);
	}
	return NULL;
}

START_LOOP_TEST(floods_keep_nobody_waiting, 0, 3)
{
	void *(*const floods[])(void *) = {flood_frames, flood_lease, flood_connections};
	pthread_t threads[2];
	struct wire_peer bad[2], good;

	open_peer(&good);
	for (unsigned i = 0; i < 2; i++) {
		open_peer(&bad[i]);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, floods[_i], &bad[i]), 0);
	}
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(wire_ping(&good), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_ping(&watcher), SCOUT_WIRE_OK);
	}
	atomic_store(&flood_ends, true);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		wire_close(&bad[i]);
	}
	wire_close(&good);
}
END_TEST

START_TEST(answers_that_are_not_read_share_a_limit_and_leave_room_for_others)
{
	enum {
		DEAF = 6,
		GOOD = 20
	};
	struct wire_peer deaf[DEAF], good;
	bool lives[DEAF];
	uint64_t most = 0, dropped;
	unsigned left = DEAF;

	for (unsigned i = 0; i < DEAF; i++) {
		open_peer(&deaf[i]);
		lives[i] = true;
	}
	open_peer(&good);
	for (unsigned round = 0; left > 0; round++) {
		ck_assert_uint_lt(round, 2000);
		for (unsigned i = 0; i < DEAF; i++) {
			if (!lives[i] || ask_much(&deaf[i]))
				continue;
			lives[i] = false;
			left--;
		}
		ck_assert_int_eq(wire_ping(&good), SCOUT_WIRE_OK);
		if (status("channels.backlog_bytes") > most)
			most = status("channels.backlog_bytes");
	}
	ck_assert_uint_le(most, (uint64_t)8 * SCOUT_MAX_FRAME);
	ck_assert_uint_ge(most, (uint64_t)4 * SCOUT_MAX_FRAME); /* it was needed */
	wire_wait_status(&watcher, "peers.dropped", DEAF);
	wire_wait_status(&watcher, "channels.backlog_bytes", 0);
	dropped = status("frames.dropped");
	ck_assert_uint_gt(dropped, 0);
	for (unsigned i = 0; i < GOOD; i++)
		ck_assert(ask_much(&good));
	for (unsigned i = 0; i < GOOD * 1000; i++)
		wire_reply_free(wire_wait(&good, good.last_corr - GOOD * 1000 + 1 + i));
	ck_assert_uint_eq(status("frames.dropped"), dropped);
	for (unsigned i = 0; i < DEAF; i++)
		wire_close(&deaf[i]);
	wire_close(&good);
}
END_TEST
