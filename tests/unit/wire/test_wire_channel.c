/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel by itself: both sides in this process, each with a mapping of its own. What one writes the other reads, whatever the sizes;
 * who sleeps is rung; and a side that writes nonsense into the shared words is found out without harm.
 */
#include "check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "channel.h"
#include "waiting.h"

#define SMALL 4096u

static struct scout__channel server, peer;

static void
open_both(uint32_t request_bytes, uint32_t reply_bytes)
{
	int fds[SCOUT__CHANNEL_FDS], copies[SCOUT__CHANNEL_FDS];

	ck_assert_int_eq(scout__channel_create(&server, request_bytes, reply_bytes, fds), 0);
	for (int i = 0; i < SCOUT__CHANNEL_FDS; i++)
		copies[i] = dup(fds[i]);
	ck_assert_int_eq(close(fds[SCOUT__CHANNEL_MEMORY]), 0);
	ck_assert_int_eq(close(fds[SCOUT__CHANNEL_PEER_BELL]), 0);
	ck_assert_int_eq(scout__channel_attach(&peer, copies, request_bytes, reply_bytes), 0);
}

static void
up(void)
{
	open_both(SMALL, SMALL);
}

static void
down(void)
{
	scout__channel_close(&server);
	scout__channel_close(&peer);
}

static uint8_t
byte_of(uint64_t frame, uint64_t i)
{
	return (uint8_t)(frame * 131 + i * 7 + (i >> 8));
}

static uint8_t *
frame_of(uint64_t number, size_t len)
{
	uint8_t *frame = malloc(len);

	ck_assert_ptr_nonnull(frame);
	for (size_t i = 0; i < len; i++)
		frame[i] = byte_of(number, i);
	return frame;
}

static int
send_number(struct scout__channel *ch, uint64_t number, size_t len)
{
	uint8_t *frame = frame_of(number, len);
	int rc = scout__channel_send(ch, frame, len);

	free(frame);
	return rc;
}

/* What has arrived of a frame so far. */
struct reading {
	uint8_t *bytes;
};

/* Read on. True: the frame is whole, and is number @number of @len bytes. */
static bool
read_number(struct scout__channel *ch, struct reading *r, uint64_t number, size_t len)
{
	size_t wrong = 0;

	uint32_t begun = scout__channel_begin(ch);

	if (begun == 0)
		return false;
	ck_assert_uint_eq(begun, len);
	if (!r->bytes)
		r->bytes = malloc(len);
	ck_assert_ptr_nonnull(r->bytes);
	if (!scout__channel_fill(ch, r->bytes))
		return false;
	for (size_t i = 0; i < len; i++) /* not an assertion for each: Check writes them down */
		wrong += r->bytes[i] != byte_of(number, i);
	ck_assert_uint_eq(wrong, 0);
	free(r->bytes);
	*r = (struct reading){0};
	return true;
}

/* Of the other side, since the last time: a number, or a byte for each. */
static uint64_t
rings_of(const struct scout__channel *ch)
{
	uint8_t rings[64];
	uint64_t n = 0;
	ssize_t got;

	if (ch == &server)
		return read(ch->bell_fd, &n, sizeof(n)) == (ssize_t)sizeof(n) ? n : 0;
	got = recv(ch->bell_fd, rings, sizeof(rings), MSG_DONTWAIT);
	return got > 0 ? (uint64_t)got : 0;
}

/* ---- bytes ---- */

CHECKED_FIXTURE(up, down);

START_TEST(frames_of_every_length_arrive_whole_and_in_order)
{
	struct reading r = {0};

	for (size_t len = 1; len <= 3 * SMALL; len += len < 80 ? 1 : 61) {
		ck_assert_int_eq(send_number(&peer, len, len), 0);
		while (!read_number(&server, &r, len, len))
			scout__channel_push(&peer);
		ck_assert_int_eq(send_number(&server, len + 1, len), 0);
		while (!read_number(&peer, &r, len + 1, len))
			scout__channel_push(&server);
	}
	ck_assert(!scout__channel_has_bytes(&server));
	ck_assert(!scout__channel_has_bytes(&peer));
}
END_TEST

START_TEST(what_finds_no_room_is_kept_and_written_later)
{
	struct reading r = {0};
	uint64_t sent = 0, got = 0;

	while (peer.backlog_bytes < 10 * SMALL)
		ck_assert_int_eq(send_number(&peer, sent++, 1000), 0);
	ck_assert_uint_gt(sent, 4);
	while (got < sent) {
		if (read_number(&server, &r, got, 1000)) {
			got++;
		} else {
			scout__channel_push(&peer);
			ck_assert(scout__channel_has_bytes(&server));
		}
	}
	ck_assert_uint_eq(peer.backlog_bytes, 0);
	ck_assert_ptr_null(peer.first);
	ck_assert_int_eq(send_number(&peer, 7, 8), 0);
	ck_assert(read_number(&server, &r, 7, 8));
}
END_TEST

/* ---- bells ---- */

START_TEST(who_looks_is_not_rung_and_who_sleeps_is_rung_once)
{
	struct reading r = {0};

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send_number(&peer, 1, 40), 0);
	ck_assert_uint_eq(rings_of(&server), 0);
	ck_assert(!scout__channel_sleep(&server)); /* there are bytes: nobody would ring */
	for (int i = 0; i < 3; i++)
		ck_assert(read_number(&server, &r, 1, 40));
	ck_assert(scout__channel_sleep(&server));
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(send_number(&peer, 2, 40), 0);
	ck_assert_uint_eq(rings_of(&server), 1);
	for (int i = 0; i < 3; i++)
		ck_assert(read_number(&server, &r, 2, 40));
	ck_assert(scout__channel_sleep(&server));
	scout__channel_wake(&server);
	ck_assert_int_eq(send_number(&peer, 3, 40), 0);
	ck_assert_uint_eq(rings_of(&server), 0);
}
END_TEST

START_TEST(who_waits_for_room_is_rung_when_there_is_some)
{
	struct reading r = {0};

	ck_assert_int_eq(send_number(&peer, 1, 2 * SMALL), 0);
	ck_assert_uint_gt(peer.backlog_bytes, 0);
	ck_assert_uint_eq(rings_of(&peer), 0);
	ck_assert(!read_number(&server, &r, 1, 2 * SMALL));
	ck_assert_uint_eq(rings_of(&peer), 1);
	scout__channel_push(&peer);
	ck_assert(!read_number(&server, &r, 1, 2 * SMALL));
	ck_assert_uint_eq(rings_of(&peer), 1);
	scout__channel_push(&peer);
	ck_assert(read_number(&server, &r, 1, 2 * SMALL));
	ck_assert_uint_eq(rings_of(&peer), 0); /* nothing waits any more */
}
END_TEST

/* ---- two threads ---- */

#define FRAMES 20000u
#define WINDOW 64u

static size_t
length_of(uint64_t number)
{
	return 1 + (size_t)((number * 2654435761u >> 7) % (number % 50 == 0 ? 3 * SMALL : 200));
}

static void
sleep_on(struct scout__channel *ch)
{
	struct pollfd bell = {.fd = ch->bell_fd, .events = POLLIN};

	if (!scout__channel_sleep(ch))
		return;
	ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1); /* a lost ring is a failure, not a delay */
	(void)rings_of(ch);
	scout__channel_wake(ch);
}

/* The server's side: sends each frame back. */
static void *
echo(void *arg)
{
	struct reading r = {0};

	(void)arg;
	for (uint64_t n = 0; n < FRAMES;) {
		scout__channel_push(&server);
		if (read_number(&server, &r, n, length_of(n))) {
			ck_assert_int_eq(send_number(&server, n, length_of(n)), 0);
			n++;
		} else {
			sleep_on(&server);
		}
	}
	while (server.first) {
		sleep_on(&server);
		scout__channel_push(&server);
	}
	return NULL;
}

START_TEST(two_threads_lose_no_frame_and_no_ring)
{
	struct reading r = {0};
	uint64_t sent = 0, got = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, echo, NULL), 0);
	while (got < FRAMES) {
		scout__channel_push(&peer);
		while (sent < FRAMES && sent - got < WINDOW && peer.backlog_bytes < 4 * SMALL) {
			ck_assert_int_eq(send_number(&peer, sent, length_of(sent)), 0);
			sent++;
		}
		if (read_number(&peer, &r, got, length_of(got)))
			got++;
		else
			sleep_on(&peer);
	}
	(void)pthread_join(thread, NULL);
}
END_TEST

/* ---- the other side breaks the rules ---- */

static void
set_word(const struct scout__channel *ch, size_t at, uint64_t value)
{
	memcpy((uint8_t *)ch->map + at, &value, sizeof(value));
}

START_LOOP_TEST(positions_that_cannot_be_break_the_channel, 0, 4)
{
	static const uint64_t tails[] = {SMALL + 8, 4, UINT64_MAX - 7, UINT64_C(1) << 63};

	set_word(&peer, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, tails[_i]);
	ck_assert_uint_eq(scout__channel_begin(&server), 0);
	ck_assert(server.broken);
	ck_assert(scout__channel_sleep(&server)); /* no turning in circles */
}
END_TEST

START_TEST(a_reader_ahead_of_the_writer_breaks_the_channel)
{
	set_word(&peer, SCOUT_CHANNEL_REPLIES + SCOUT_CHANNEL_HEAD, 64);
	ck_assert_int_eq(send_number(&server, 1, 40), EPIPE);
	ck_assert(server.broken);
}
END_TEST

START_LOOP_TEST(lengths_that_cannot_be_break_the_channel, 0, 4)
{
	static const uint64_t lengths[] = {0, (uint64_t)SCOUT_MAX_FRAME + 1, UINT32_MAX, UINT64_C(1) << 32 | 40};

	set_word(&peer, SCOUT_CHANNEL_DATA, lengths[_i]);
	set_word(&peer, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 64);
	ck_assert_uint_eq(scout__channel_begin(&server), 0);
	ck_assert(server.broken);
}
END_TEST

START_TEST(a_tail_that_moves_back_in_the_middle_of_a_frame_breaks_the_channel)
{
	uint8_t bytes[40];

	memset(bytes, 0x5a, sizeof(bytes));
	set_word(&peer, SCOUT_CHANNEL_DATA, 40);
	set_word(&peer, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 24);
	ck_assert_uint_eq(scout__channel_begin(&server), 40);
	ck_assert(!scout__channel_fill(&server, bytes));
	ck_assert_uint_eq(server.left, 24);
	ck_assert_uint_eq(bytes[15], 0);
	ck_assert_uint_eq(bytes[16], 0x5a);
	ck_assert_uint_eq(scout__channel_begin(&server), 40);
	set_word(&peer, SCOUT_CHANNEL_REQUESTS + SCOUT_CHANNEL_TAIL, 8);
	ck_assert(!scout__channel_fill(&server, bytes));
	ck_assert_uint_eq(server.left, 24);
	ck_assert(server.broken);
}
END_TEST

/* ---- memory that is not what it should be ---- */

static int
memory(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* A bell for the peer, as it should be; its other end is closed at once. */
static int
peer_bell(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(close(pair[0]), 0);
	return pair[1];
}

static void
expect_fds_refused(int memory_fd, int server_bell_fd, int peer_bell_fd, uint32_t request_bytes, uint32_t reply_bytes)
{
	int fds[] = {memory_fd, server_bell_fd, peer_bell_fd};
	struct scout__channel ch;

	ck_assert_int_eq(scout__channel_attach(&ch, fds, request_bytes, reply_bytes), SCOUT_ERR_PROTOCOL);
	ck_assert(!scout__channel_is_open(&ch));
	for (int i = 0; i < SCOUT__CHANNEL_FDS; i++) {
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), -1);
		ck_assert_int_eq(errno, EBADF);
	}
}

static void
expect_refused(int memory_fd, uint32_t request_bytes, uint32_t reply_bytes)
{
	expect_fds_refused(memory_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), peer_bell(), request_bytes, reply_bytes);
}

START_TEST(memory_that_can_shrink_or_has_another_size_is_refused)
{
	const size_t whole = SCOUT_CHANNEL_DATA + 2 * SMALL;
	int sockets[2];

	expect_refused(memory(whole, 0), SMALL, SMALL);
	expect_refused(memory(whole - 1, F_SEAL_SHRINK), SMALL, SMALL);
	expect_refused(memory(whole + 1, F_SEAL_SHRINK), SMALL, SMALL);
	expect_refused(memory(whole - 4, F_SEAL_SHRINK), SMALL - 4, SMALL);
	expect_refused(memory(whole - SMALL, F_SEAL_SHRINK), SMALL, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	expect_refused(sockets[0], SMALL, SMALL);
	(void)close(sockets[1]);
}
END_TEST

/* The courier would wait in them. */
START_TEST(bells_of_another_kind_are_refused)
{
	const size_t whole = SCOUT_CHANNEL_DATA + 2 * SMALL;
	int pipes[2][2];

	ck_assert_int_eq(pipe(pipes[0]), 0);
	ck_assert_int_eq(pipe2(pipes[1], O_NONBLOCK), 0);
	expect_fds_refused(memory(whole, F_SEAL_SHRINK), eventfd(0, 0), peer_bell(), SMALL, SMALL);
	expect_fds_refused(memory(whole, F_SEAL_SHRINK), pipes[0][1], peer_bell(), SMALL, SMALL);
	expect_fds_refused(memory(whole, F_SEAL_SHRINK), open("/", O_RDONLY), peer_bell(), SMALL, SMALL);
	expect_fds_refused(memory(whole, F_SEAL_SHRINK), eventfd(0, EFD_NONBLOCK), pipes[1][0], SMALL, SMALL);
	expect_fds_refused(memory(whole, F_SEAL_SHRINK), eventfd(0, EFD_NONBLOCK), open("/", O_RDONLY), SMALL, SMALL);
	(void)close(pipes[0][0]);
	(void)close(pipes[1][1]);
}
END_TEST

START_TEST(the_peer_hears_when_the_server_closes)
{
	struct pollfd bell = {.fd = peer.bell_fd, .events = POLLIN};

	ck_assert(scout__channel_sleep(&peer));
	ck_assert_int_eq(poll(&bell, 1, 0), 0);
	ck_assert(scout__channel_hear(&peer)); /* nothing yet */
	ck_assert_int_eq(send_number(&server, 1, 40), 0);
	ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1);
	ck_assert(scout__channel_hear(&peer));
	ck_assert_int_eq(poll(&bell, 1, 0), 0);
	scout__channel_close(&server);
	ck_assert_int_eq(poll(&bell, 1, wait_limit_ms()), 1);
	ck_assert(!scout__channel_hear(&peer));
}
END_TEST
