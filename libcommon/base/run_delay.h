/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * How long the threads that carry a server's answer were ready to run but got no CPU: its loop, and libzmq's I/O threads on both
 * sides. The kernel tells this in /proc/PID/task; for a process that the kernel does not show, the delay is 0.
 */
#define SCOUT__RUN_DELAY_THREADS 8u

struct scout__run_delay {
	uint64_t since_us; /* 0: nothing is measured */
	uint32_t n_threads;
	struct scout__run_delay_thread {
		pid_t pid, tid;
		uint64_t ran_ns, delay_ns; /* at since_us */
	} threads[SCOUT__RUN_DELAY_THREADS];
};

/*
 * Measure from @now_us on: the threads of this process, if @own_threads, and those of process @server_pid (0: none). Reads a file for each
 * thread of the process: about 10 us each.
 */
void scout__run_delay_begin(struct scout__run_delay *d, pid_t server_pid, bool own_threads, uint64_t now_us);
/* The delay since then, the sum over all these threads (one waits for the other), at most the time that has passed. */
uint64_t scout__run_delay_us(const struct scout__run_delay *d, uint64_t now_us);
/* Whether all these threads sleep: they have done what they were told to, and wait for more. */
bool scout__run_delay_all_sleep(const struct scout__run_delay *d);
