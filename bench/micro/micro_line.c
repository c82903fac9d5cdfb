/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How long a cache line takes from one CPU to another and back: two threads, each pinned to a CPU, write one word by
 * turns. This is the floor of every hand-over between two threads, so it says on which machine the other figures of a
 * run were measured. On a virtual machine it may change from one second to the next, as the host moves the CPUs.
 *
 * Threads: main, on the first CPU that this process may use; one on the second.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cli.h"
#include "clock.h"
#include "say.h"

struct micro_line {
	_Alignas(64) atomic_uint turn; /* 0: main's, 1: the other's */
	_Alignas(64) uint64_t trips;
	cpu_set_t cpus[2];
};

static void
wait_for(struct micro_line *l, unsigned turn)
{
	while (atomic_load_explicit(&l->turn, memory_order_acquire) != turn) {
	}
}

static void *
other_main(void *arg)
{
	struct micro_line *l = arg;

	for (uint64_t i = 0; i < l->trips; i++) {
		wait_for(l, 1);
		atomic_store_explicit(&l->turn, 0, memory_order_release);
	}
	return NULL;
}

static void
find_cpus(struct micro_line *l)
{
	cpu_set_t all;
	int n = 0;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		die("CPUs: sched_getaffinity failed");
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			CPU_ZERO(&l->cpus[n]);
			CPU_SET(cpu, &l->cpus[n++]);
		}
	if (n < 2)
		die("CPUs: this process may use one only: at least 2 are needed");
}

static uint64_t
trip_ns(struct micro_line *l)
{
	pthread_attr_t attr;
	pthread_t other;
	uint64_t start_ns;

	(void)pthread_attr_init(&attr);
	if (pthread_attr_setaffinity_np(&attr, sizeof(l->cpus[1]), &l->cpus[1]) != 0 ||
	    pthread_create(&other, &attr, other_main, l) != 0)
		die("start: no thread is left");
	(void)pthread_attr_destroy(&attr);
	start_ns = scout__now_ns();
	for (uint64_t i = 0; i < l->trips; i++) {
		atomic_store_explicit(&l->turn, 1, memory_order_release);
		wait_for(l, 0);
	}
	start_ns = scout__now_ns() - start_ns;
	(void)pthread_join(other, NULL);
	return start_ns / (l->trips ? l->trips : 1);
}

int
main(int argc, char **argv)
{
	static struct micro_line l;
	uint64_t rounds = 5;
	const struct cli_option options[] = {
		CLI_NUMBER("trips", &l.trips, 1, 1000000000, "there and back, in each round"),
		CLI_NUMBER("rounds", &rounds, 1, 1000000, "one figure for each"),
	};
	const struct cli cli = {
		.tool = "micro_line",
		.about = "How long a cache line takes to another CPU and back.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	l.trips = 200000;
	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	find_cpus(&l);
	if (sched_setaffinity(0, sizeof(l.cpus[0]), &l.cpus[0]) != 0)
		die("CPUs: sched_setaffinity failed");
	for (uint64_t i = 0; i < rounds; i++)
		say("a cache line there and back: %" PRIu64 " ns\n", trip_ns(&l));
	return EXIT_SUCCESS;
}
