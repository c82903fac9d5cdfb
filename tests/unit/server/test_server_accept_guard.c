/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvscoutd's accept4(): what libzmq's listeners would abort on, or turn in circles on, becomes a connection that went away. Each case
 * runs in a process of its own, so the limit of descriptors and the filter of system calls go with it.
 */
#include "check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "accept_guard.h"

#define LIMIT 64
#define WAITING 3

static int listener, waiting[WAITING], fill[LIMIT], n_fill;

/* Connections wait in the queue of a listener whose name nobody else can have. */
static void
up(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(address);

	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(listener, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address.sun_family)), 0); /* autobind */
	ck_assert_int_eq(listen(listener, WAITING), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	for (int i = 0; i < WAITING; i++) {
		waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(waiting[i], (struct sockaddr *)&address, len), 0);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Sanitizers need some to end. */
static void
down(void)
{
	while (n_fill > 0)
		(void)close(fill[--n_fill]);
}

static void
use_up_descriptors(void)
{
	while (n_fill < LIMIT && (fill[n_fill] = fcntl(listener, F_DUPFD_CLOEXEC, 0)) >= 0)
		n_fill++;
	ck_assert_int_eq(errno, EMFILE);
}

static int
take(void)
{
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void
expect_went_away(void)
{
	ck_assert_int_eq(take(), -1);
	ck_assert_int_eq(errno, ECONNABORTED);
}

/* Whether the other end of that connection was closed. */
static bool
is_closed(int i)
{
	struct pollfd item = {.fd = waiting[i], .events = POLLIN};

	return poll(&item, 1, 0) == 1 && (item.revents & POLLHUP);
}

CHECKED_FIXTURE(up, down);

START_TEST(with_descriptors_it_is_the_usual_accept)
{
	int fd;

	scout__accept_guard_init();
	for (int i = 0; i < WAITING; i++) {
		fd = take();
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		ck_assert(!is_closed(i));
	}
	ck_assert_int_eq(take(), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(without_descriptors_connections_are_taken_and_closed)
{
	scout__accept_guard_init();
	use_up_descriptors();
	for (int i = 0; i < WAITING; i++) {
		expect_went_away();
		ck_assert(is_closed(i));
	}
	ck_assert_int_eq(take(), -1);
	ck_assert_int_eq(errno, ECONNABORTED); /* there is no knowing without a descriptor */
}
END_TEST

/* As when another thread takes the place of the spare descriptor while it is given up. */
START_TEST(a_spare_descriptor_that_was_lost_comes_back)
{
	use_up_descriptors();
	scout__accept_guard_init(); /* there is none for it */
	expect_went_away();
	ck_assert(!is_closed(0)); /* it waits */
	ck_assert_int_eq(close(fill[--n_fill]), 0);
	for (int i = 0; i < WAITING; i++) {
		expect_went_away();
		ck_assert(is_closed(i));
	}
}
END_TEST

static void
fail_accept4(uint32_t error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_LOOP_TEST(what_listeners_do_not_bear_is_a_connection_that_went_away, 0, 4)
{
	static const struct {
		int is, becomes;
	} errors[] = {{ENOMEM, ECONNABORTED}, {ENOBUFS, ECONNABORTED}, {ENFILE, ENFILE}, {EINTR, EINTR}};

	scout__accept_guard_init();
	fail_accept4((uint32_t)errors[_i].is);
	ck_assert_int_eq(take(), -1);
	ck_assert_int_eq(errno, errors[_i].becomes);
}
END_TEST
