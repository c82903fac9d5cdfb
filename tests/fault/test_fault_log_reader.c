/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* kvscoutd whose standard error is a pipe that nobody reads, or reads late. */

#define JOINS 3000u
#define PIPE_BYTES 4096

static struct fault f;
static int log_pipe[2];

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
	ck_assert_int_eq(pipe2(log_pipe, O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(log_pipe[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
	f.log_fd = log_pipe[1];
}

/* One connection that joins and leaves as new peers. */
static void
join_and_leave(struct wire_peer *p, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		p->hello.token++;
		ck_assert_int_eq(wire_hello(p), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
		wire_lease_bye(p);
	}
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(a_log_that_nobody_reads_stops_neither_the_service_nor_the_end)
{
	struct wire_peer peer;

	fault_up(&f);
	wire_open(&peer, f.endpoint);
	join_and_leave(&peer, JOINS);
	fault_wait(&f, "peers.left", JOINS);
	/* The pipe is full by now: what waits for its reader does not wait in the server's loop. */
	ck_assert_int_eq(wire_ping(&peer), SCOUT_WIRE_OK);
	wire_close(&peer);
	fault_down(&f); /* SIGTERM, and exit status 0 */
	(void)close(log_pipe[0]);
	(void)close(log_pipe[1]);
}
END_TEST

/* All that the server wrote; its end is the end of the pipe. */
static size_t
read_log(char *text, size_t len)
{
	size_t at = 0;
	ssize_t n;

	while (at < len - 1 && (n = read(log_pipe[0], text + at, len - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = '\0';
	return at;
}

static unsigned
count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

START_TEST(thousands_of_joins_are_some_lines_with_their_number)
{
	static char text[1 << 20];
	struct wire_peer peer;
	uint64_t begin_us;
	unsigned joined;

	ck_assert_int_ge(fcntl(log_pipe[1], F_SETPIPE_SZ, 1 << 20), 1 << 20);
	fault_up(&f);
	begin_us = scout__now_us();
	wire_open(&peer, f.endpoint);
	join_and_leave(&peer, JOINS);
	wire_close(&peer);
	begin_us = scout__now_us() - begin_us;
	fault_down(&f);
	(void)close(log_pipe[1]);
	(void)read_log(text, sizeof(text));
	joined = count(text, " joined namespace ");
	ck_assert_uint_ge(joined, 32);
	ck_assert_uint_le(joined, 32 * (unsigned)(begin_us / 1000000 + 2));
	ck_assert_uint_eq(count(text, "stopped"), 1);
	(void)close(log_pipe[0]);
}
END_TEST
