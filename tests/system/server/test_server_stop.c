/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server_rig.h"

/* A server that is told to stop while lookups wait for their answers, also where its I/O thread gets no CPU. */

#define WAITING 400u /* lookups of one peer */
#define STARVED_US 120000

static atomic_bool starves, stops_spinning;
static atomic_int first_io; /* the thread that sends the server's replies: libzmq's first one here */

/* Where all may compete that share this case's first CPU. */
static void
pin(void)
{
	cpu_set_t all, one;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

static void *
spin(void *arg)
{
	pin();
	while (!atomic_load(&stops_spinning))
		;
	return arg;
}

static bool
is_first_io(void)
{
	char name[16];
	int none = 0;

	if (prctl(PR_GET_NAME, name) != 0 || strncmp(name, "ZMQbg/IO", strlen("ZMQbg/IO")) != 0)
		return false;
	return atomic_compare_exchange_strong(&first_io, &none, gettid()) || none == gettid();
}

/* As on a machine with too much to do: whenever the server's I/O thread has found something to do, it gets a CPU STARVED_US later. */
int
epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms)
{
	int (*real)(int epoll, struct epoll_event *events, int n, int timeout_ms);
	bool is_io = is_first_io();
	int rc;

	*(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
	rc = real(epoll, events, n, timeout_ms);
	if (is_io && atomic_load(&starves)) {
		uint64_t until_us = scout__now_us() + STARVED_US;

		pin();
		(void)setpriority(PRIO_PROCESS, 0, 19);
		while (scout__now_us() < until_us)
			(void)sched_yield();
	}
	return rc;
}

/* So little room in the sockets of @endpoint, which are in this process, that a reply leaves them in parts. */
static void
narrow(const char *endpoint)
{
	struct sockaddr_un address;

	for (int fd = 0; fd < 256; fd++) {
		socklen_t len = sizeof(address);

		memset(&address, 0, sizeof(address));
		if (getsockname(fd, (struct sockaddr *)&address, &len) == 0 && address.sun_family == AF_UNIX &&
		    strcmp(address.sun_path, strchr(endpoint, '/') + 2) == 0)
			ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)), 0);
	}
}

/*
 * Polling lookups have far more time than a server that is told to stop: each gets its one reply all the same. _i: also when the server's
 * I/O thread waits for a CPU.
 */
START_LOOP_TEST(what_waits_at_a_stop_is_answered, 0, 2)
{
	pthread_t spinner;
	const struct scout__lookup_msg m = {
		.ticket = 5, .n = 2, .expect = 2, .poll_timeout_ms = 60000, .poll_interval_ms = 1000};
	struct wire_reply *reply;
	uint64_t corr[WAITING];
	struct rig rig;

	rig_up(&rig, 8);
	for (uint64_t i = 0; i < WAITING; i++) {
		struct scout__lookup_msg one = m;

		one.ticket += i;
		corr[i] = wire_add_lookup(&rig.client, &one, 1 + i);
	}
	wire_flush(&rig.client);
	wire_wait_status(&rig.client, "sessions", WAITING);
	if (_i) {
		narrow(rig.endpoint);
		ck_assert_int_eq(pthread_create(&spinner, NULL, spin, NULL), 0);
	}
	atomic_store(&starves, _i != 0);
	scout_server_stop(rig.server);
	atomic_store(&starves, false);
	atomic_store(&stops_spinning, true);
	if (_i)
		ck_assert_int_eq(pthread_join(spinner, NULL), 0);
	for (uint64_t i = 0; i < WAITING; i++) {
		reply = wire_wait(&rig.client, corr[i]);
		ck_assert_int_eq(reply->status, SCOUT_WIRE_SHUTDOWN);
		wire_reply_free(reply);
	}
	wire_close(&rig.client);
	wire_close(&rig.worker);
}
END_TEST
