/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A bound on time, judged by the time that the machine gave: elapsed time less the time for which the threads of the judged processes
 * were ready to run and waited for a CPU (the second field of /proc/PID/task/TID/schedstat).
 *
 *   struct given_time t;
 *
 *   given_time_begin(&t);                      // the threads of this process
 *   given_time_of(&t, f.server);               // and those of the server
 *   ...
 *   given_time_within(&t, 500000, "a lookup at a frozen server");
 *
 * Programs that judge time are in suite `timing`, which runs last and in series.
 */
#define GIVEN_TIME_PROCESSES 8

struct given_time {
	uint64_t begin_us;
	unsigned n_processes;
	struct {
		pid_t pid;
		uint64_t delay_us;
	} processes[GIVEN_TIME_PROCESSES];
};

void given_time_begin(struct given_time *t);
/* Count out what the threads of process @pid wait for a CPU from now on. */
void given_time_of(struct given_time *t, pid_t pid);

struct given_time_result {
	uint64_t elapsed_us;
	uint64_t delay_us; /* of all threads together, at most elapsed_us */
};
/* For the best of several rounds; may be called more than once. */
struct given_time_result given_time_end(const struct given_time *t);

/* What the threads of process @pid, all or those with this @name, have waited for a CPU since they began. */
uint64_t given_time_delay_us(pid_t pid, const char *name);
/* Whether a thread of this process has the name; its folder in /proc. */
bool thread_named(const char *name, char ret_folder[64]);

enum given_time_verdict {
	GIVEN_TIME_KEPT, /* by the elapsed time, or by what is left of it without the delay */
	GIVEN_TIME_BROKEN,
	GIVEN_TIME_NOT_GIVEN /* the delay alone is longer than the bound, and than what was given: nothing can be said */
};
enum given_time_verdict given_time_verdict(struct given_time_result r, uint64_t bound_us);

/*
 * Fail if @bound_us was broken. If the time was not given, the case goes on and is counted as skipped, with the figure; false then.
 */
bool given_time_judge(struct given_time_result r, uint64_t bound_us, const char *what);
bool given_time_within(const struct given_time *t, uint64_t bound_us, const char *what);
