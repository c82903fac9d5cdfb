/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The floor under many clients of one server (kvscout-latency --mode async --clients N --inflight M): what waking the
 * same threads takes, when nothing else is done.
 *
 * A scheduler - main - walks N clients and never sleeps. Each client is a thread that sleeps in read() on an eventfd.
 * A question goes from main to the client's thread and on to one server thread, the answer back to the client's
 * thread and to main; then main gives back what was answered, through the client's thread to the server, which does
 * not answer that. As in the tool, all that a client is told in one step is told with one wake, and a question is not
 * asked in the step that gives its predecessor back.
 *
 * A question is a number that grows. There are no frames, no hashes, no index, no deadlines, no connection that can
 * be lost, and the threads share one list of clients with news, which processes that do not trust each other cannot.
 * Only a sleeping thread is rung, and a ring is one write() and one read(): threads that sleep cannot do with less.
 *
 * Threads: main, one for each client, the server.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "cli.h"
#include "clock.h"
#include "doorbell.h"
#include "say.h"
#include "thread.h"
#include "thread_cpu.h"

#define CLIENTS_MAX 1000u
#define STACK_BYTES ((size_t)128 * 1024)
#define LINE 64

struct crowd;

/* Numbers that grow: how many were asked, given back, answered. */
struct crowd_client {
	_Alignas(LINE) atomic_uint_fast64_t asked, given;   /* main */
	_Alignas(LINE) atomic_uint_fast64_t sent, returned; /* client, for the server */
	atomic_uint_fast64_t seen;                          /* client, for main: answered */
	_Alignas(LINE) atomic_uint_fast64_t answered;       /* server */
	_Alignas(LINE) atomic_bool is_listed;               /* in crowd.ready */
	struct crowd_client *next_ready;
	_Alignas(LINE) struct scout__doorbell bell; /* the client sleeps on it */
	struct crowd *crowd;
	pthread_t thread;
	/* main */
	uint64_t n_asked, n_given;
};

struct crowd {
	uint64_t n, inflight, requests;
	struct crowd_client clients[CLIENTS_MAX];
	atomic_bool stop;
	struct scout__doorbell bell;                         /* the server sleeps on it */
	_Alignas(LINE) _Atomic(struct crowd_client *) ready; /* clients -> server: a stack, taken whole */
	pthread_t thread;
};

/* ---- clients and server ---- */

/* Hand on what is new, in both directions. False: there was nothing. */
static bool
carry(struct crowd_client *c)
{
	uint64_t asked = atomic_load_explicit(&c->asked, memory_order_acquire);
	uint64_t given = atomic_load_explicit(&c->given, memory_order_acquire);
	uint64_t answered = atomic_load_explicit(&c->answered, memory_order_acquire);
	bool is_new = asked != atomic_load_explicit(&c->sent, memory_order_relaxed) ||
		      given != atomic_load_explicit(&c->returned, memory_order_relaxed);
	bool is_answer = answered != atomic_load_explicit(&c->seen, memory_order_relaxed);

	if (is_answer)
		atomic_store_explicit(&c->seen, answered, memory_order_release);
	if (!is_new)
		return is_answer;
	atomic_store_explicit(&c->sent, asked, memory_order_relaxed);
	atomic_store_explicit(&c->returned, given, memory_order_release);
	if (!atomic_exchange(&c->is_listed, true)) {
		c->next_ready = atomic_load(&c->crowd->ready);
		while (!atomic_compare_exchange_weak(&c->crowd->ready, &c->next_ready, c))
			;
		(void)scout__doorbell_ring(&c->crowd->bell);
	}
	return true;
}

static void *
client_main(void *arg)
{
	const struct sched_param no_priority = {.sched_priority = 0};
	struct crowd_client *c = arg;

	(void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &no_priority); /* as couriers are */
	while (!atomic_load(&c->crowd->stop)) {
		if (carry(c))
			continue;
		scout__park(&c->bell.parked);
		if (!carry(c) && !atomic_load(&c->crowd->stop))
			(void)scout__eventfd_lower(c->bell.fd); /* blocks until rung */
		scout__awake(&c->bell.parked);
	}
	return NULL;
}

/* False: no client had news. */
static bool
serve(struct crowd *crowd)
{
	struct crowd_client *c = atomic_exchange(&crowd->ready, NULL), *next;
	bool any = c != NULL;

	for (; c; c = next) {
		uint64_t sent;

		next = c->next_ready;
		atomic_store(&c->is_listed, false); /* before looking: what comes after lists it again */
		sent = atomic_load(&c->sent);
		if (sent == atomic_load_explicit(&c->answered, memory_order_relaxed))
			continue;
		atomic_store_explicit(&c->answered, sent, memory_order_release);
		(void)scout__doorbell_ring(&c->bell);
	}
	return any;
}

static void *
server_main(void *arg)
{
	struct crowd *crowd = arg;

	while (!atomic_load(&crowd->stop)) {
		if (serve(crowd))
			continue;
		scout__park(&crowd->bell.parked);
		if (!serve(crowd) && !atomic_load(&crowd->stop))
			(void)scout__eventfd_lower(crowd->bell.fd);
		scout__awake(&crowd->bell.parked);
	}
	return NULL;
}

/* ---- the scheduler ---- */

/* One step of one client. Returns how many requests ended. */
static uint64_t
step(struct crowd_client *c, uint64_t inflight, uint64_t *left)
{
	uint64_t seen = atomic_load_explicit(&c->seen, memory_order_acquire);
	uint64_t ended = seen - c->n_given, room = inflight - (c->n_asked - c->n_given);
	uint64_t asks = room < *left ? room : *left;

	if (!asks && !ended)
		return 0;
	*left -= asks;
	c->n_asked += asks;
	c->n_given = seen;
	atomic_store_explicit(&c->given, c->n_given, memory_order_relaxed);
	atomic_store_explicit(&c->asked, c->n_asked, memory_order_release);
	(void)scout__doorbell_ring(&c->bell);
	return ended;
}

static void
run(struct crowd *crowd, uint64_t requests)
{
	uint64_t left = requests, done = 0;

	while (done < requests)
		for (uint64_t i = 0; i < crowd->n; i++)
			done += step(&crowd->clients[i], crowd->inflight, &left);
}

/* Not as scout__doorbell_open(): read() is to block. */
static int
open_bell(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	if (fd < 0)
		die("eventfd: no descriptor is left");
	return fd;
}

static void
start(struct crowd *crowd)
{
	pthread_attr_t attr;
	int error;

	crowd->bell.fd = open_bell();
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	error = scout__thread_start(&crowd->thread, "crowd-server", server_main, crowd);
	for (uint64_t i = 0; i < crowd->n && !error; i++) {
		crowd->clients[i].crowd = crowd;
		crowd->clients[i].bell.fd = open_bell();
		error = pthread_create(&crowd->clients[i].thread, &attr, client_main, &crowd->clients[i]);
	}
	(void)pthread_attr_destroy(&attr);
	if (error)
		die("start: no thread is left");
}

static void
stop(struct crowd *crowd)
{
	atomic_store(&crowd->stop, true);
	scout__eventfd_raise(crowd->bell.fd);
	(void)pthread_join(crowd->thread, NULL);
	scout__doorbell_close(&crowd->bell);
	for (uint64_t i = 0; i < crowd->n; i++) {
		scout__eventfd_raise(crowd->clients[i].bell.fd);
		(void)pthread_join(crowd->clients[i].thread, NULL);
		scout__doorbell_close(&crowd->clients[i].bell);
	}
}

static uint64_t
switches(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage); /* cannot fail */
	return (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
}

static void
measure(struct crowd *crowd)
{
	int server = thread_cpu_find("crowd-server");
	uint64_t start_ns, wall_ns, before, server_ns;

	run(crowd, crowd->requests / 10 + 1); /* warm-up */
	server_ns = thread_cpu_ns(server);
	before = switches();
	start_ns = scout__now_ns();
	run(crowd, crowd->requests);
	wall_ns = scout__now_ns() - start_ns;
	server_ns = thread_cpu_ns(server) - server_ns;
	say("%" PRIu64 " clients, %" PRIu64 " waiting each: %.0f lookups/s, %.2f switches per lookup, "
	    "%.0f lookups per second of the server's CPU (n %" PRIu64 ")\n",
	    crowd->n, crowd->inflight, (double)crowd->requests * 1e9 / (double)wall_ns,
	    (double)(switches() - before) / (double)crowd->requests,
	    (double)crowd->requests * 1e9 / (double)(server_ns ? server_ns : 1), crowd->requests);
}

int
main(int argc, char **argv)
{
	static struct crowd crowd;
	const struct cli_option options[] = {
		CLI_NUMBER("clients", &crowd.n, 1, CLIENTS_MAX, "threads between the scheduler and the server"),
		CLI_NUMBER("inflight", &crowd.inflight, 1, 4096, "requests that wait at once, of each client"),
		CLI_NUMBER("requests", &crowd.requests, 1, 100000000, "in all"),
	};
	const struct cli cli = {
		.tool = "micro_crowd",
		.about = "The floor under many clients: what waking as many threads takes.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	crowd.n = 1;
	crowd.inflight = 1;
	crowd.requests = 40000;
	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	start(&crowd);
	measure(&crowd);
	stop(&crowd);
	return EXIT_SUCCESS;
}
