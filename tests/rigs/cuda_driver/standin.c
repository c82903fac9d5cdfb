/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: a library that takes the place of libcuda.so.1 on a machine without a GPU, so that the file that calls the driver, and the
 * wheel that has it, run there. "Device memory" is memory of this process; a kernel is the C that the real one is compiled from; a
 * stream is a thread. The rules that a caller has to keep are the driver's: contexts, registered memory, captures, errors that stay.
 *
 * What it does not show: PTX and what a device makes of it, speeds, and what a driver does against its own documentation.
 *
 * This file: knobs, faults, counts, and what each call begins and ends with. It is controlled by the environment alone where the
 * program is not ours, or by the functions of standin_control.h.
 *
 * A process that is killed tells nothing at its end, so counts are also written when the devices have gone idle.
 */

#define STATS_NS 100000000

struct standin standin = {
	.mu = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
	.knobs = {.devices = 1, .driver = STANDIN_DRIVER, .memory = UINT64_C(80) << 30, .capability = 90, .seed = 1},
};
_Thread_local struct standin_thread standin_thread;

#define NAME_OF(name) #name,
static const char *const entry_names[] = {STANDIN_ENTRIES(NAME_OF)};
static const char *const count_names[] = {STANDIN_COUNTS(NAME_OF)};

int64_t
standin_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- knobs ---- */

/* A number, and then @end. */
static bool
read_number(const char **text, const char *ends, int64_t *ret_n)
{
	char *end;

	errno = 0;
	*ret_n = strtoll(*text, &end, 10);
	if (errno || end == *text || (*end && !strchr(ends, *end)))
		return false;
	*text = end;
	return true;
}

/* "NAME:N:CODE" or "NAME:N+:CODE". */
static bool
read_fault(const char **text, struct standin_fault *ret_fault)
{
	size_t len = strcspn(*text, ":");
	int64_t n, code;

	for (int i = 0; i <= N_ENTRIES; i++) {
		const char *name = i < N_ENTRIES ? entry_names[i] : "any";

		if (strncmp(name, *text, len) != 0 || name[len] || (*text)[len] != ':')
			continue;
		*text += len + 1;
		if (!read_number(text, "+:", &n) || n < 1)
			return false;
		ret_fault->onward = **text == '+';
		*text += ret_fault->onward;
		if (*(*text)++ != ':' || !read_number(text, ",", &code) || code < 1)
			return false;
		ret_fault->entry = (enum standin_entry)i;
		ret_fault->n = (uint64_t)n;
		ret_fault->code = (int)code;
		return true;
	}
	return false;
}

static bool
set_faults(const char *text)
{
	struct standin_fault faults[MAX_FAULTS] = {{0}};
	int n = 0;

	while (*text) {
		if (n == MAX_FAULTS || !read_fault(&text, &faults[n++]))
			return false;
		text += *text == ',';
	}
	memcpy(standin.knobs.faults, faults, sizeof(faults));
	return true;
}

static bool
set_sticky(const char *text)
{
	int64_t n, code = DRIVER_LAUNCH_FAILED;

	if (!read_number(&text, ":", &n) || n < 0)
		return false;
	if (*text && (text++, !read_number(&text, "", &code) || code < 1))
		return false;
	standin.knobs.sticky = n ? standin.counts[COUNT_operations] + (uint64_t)n : 0;
	standin.knobs.sticky_code = (int)code;
	return true;
}

static bool
set_number(const char *knob, int64_t n)
{
	struct standin_knobs *knobs = &standin.knobs;

	if (strcmp(knob, "ALL") == 0)
		knobs->all = n != 0;
	else if (strcmp(knob, "ALIAS") == 0)
		knobs->alias = n != 0;
	else if (strcmp(knob, "SAY") == 0)
		knobs->say = n != 0;
	else if (strcmp(knob, "DEVICES") == 0 && n >= 0 && n <= MAX_DEVICES)
		knobs->devices = (int)n;
	else if (strcmp(knob, "DRIVER") == 0)
		knobs->driver = (int)n;
	else if (strcmp(knob, "CAPABILITY") == 0)
		knobs->capability = (int)n;
	else if (strcmp(knob, "MEMORY") == 0)
		knobs->memory = (uint64_t)n;
	else if (strcmp(knob, "DELAY_US") == 0 && n >= 0 && n <= 1000000)
		knobs->delay_us = (uint64_t)n;
	else if (strcmp(knob, "SEED") == 0)
		knobs->seed = (uint64_t)n;
	else
		return false;
	return true;
}

static bool
set_text(char *field, size_t size, const char *text)
{
	return snprintf(field, size, "%s", text) < (int)size;
}

/* With the lock. */
static bool
set_knob(const char *knob, const char *text)
{
	int64_t n;

	if (strcmp(knob, "FAULT") == 0)
		return set_faults(text);
	if (strcmp(knob, "STICKY") == 0)
		return set_sticky(text);
	if (strcmp(knob, "BUS") == 0)
		return set_text(standin.knobs.bus, sizeof(standin.knobs.bus), text);
	if (strcmp(knob, "STATS") == 0)
		return set_text(standin.knobs.stats, sizeof(standin.knobs.stats), text);
	return read_number(&text, "", &n) && set_number(knob, n);
}

STANDIN_EXPORT int
standin_set(const char *knob, const char *text)
{
	bool good;

	(void)pthread_mutex_lock(&standin.mu);
	good = set_knob(knob, text);
	(void)pthread_cond_broadcast(&standin.cond);
	(void)pthread_mutex_unlock(&standin.mu);
	return good ? 0 : -1;
}

STANDIN_EXPORT void
standin_gate(bool (*shut)(void *user), bool (*shut_pins)(void *user), void *user)
{
	(void)pthread_mutex_lock(&standin.mu);
	standin.gate = shut;
	standin.pin_gate = shut_pins;
	standin.gate_user = user;
	(void)pthread_cond_broadcast(&standin.cond);
	(void)pthread_mutex_unlock(&standin.mu);
}

/* A knob that nobody can read must not pass for one that does nothing. */
static void
read_environment(void)
{
	static const char *const names[] = {"ALL",      "DEVICES", "DRIVER", "BUS",    "CAPABILITY", "MEMORY", "ALIAS",
					    "DELAY_US", "SEED",    "FAULT",  "STICKY", "SAY",        "STATS"};
	char variable[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text;

		(void)snprintf(variable, sizeof(variable), "KVSCOUT_STANDIN_CUDA_%s", names[i]);
		text = getenv(variable);
		if (text && !set_knob(names[i], text)) {
			(void)fprintf(stderr, "stand-in for libcuda.so.1: %s=%s cannot be read\n", variable, text);
			abort();
		}
	}
}

/* ---- counts ---- */

STANDIN_EXPORT uint64_t
standin_count(const char *name)
{
	uint64_t n = UINT64_MAX;

	(void)pthread_mutex_lock(&standin.mu);
	for (int i = 0; i < N_ENTRIES; i++)
		if (strcmp(entry_names[i], name) == 0)
			n = standin.calls[i];
	for (int i = 0; i < N_COUNTS; i++)
		if (strcmp(count_names[i], name) == 0)
			n = standin.counts[i];
	(void)pthread_mutex_unlock(&standin.mu);
	return n;
}

STANDIN_EXPORT uint64_t
standin_pending(void)
{
	uint64_t n;

	(void)pthread_mutex_lock(&standin.mu);
	n = standin.pending;
	(void)pthread_mutex_unlock(&standin.mu);
	return n;
}

void
standin_write_stats(bool at_once)
{
	char path[600], part[640];
	int64_t now_ns = standin_now_ns();
	FILE *file;

	/* Of a program's many children most never look at a device. */
	if (!standin.knobs.stats[0] || standin.forked || !standin.used ||
	    (!at_once && now_ns - standin.stats_ns < STATS_NS))
		return;
	standin.stats_ns = now_ns;
	(void)snprintf(path, sizeof(path), "%s.%ld", standin.knobs.stats, (long)getpid());
	(void)snprintf(part, sizeof(part), "%s.part", path);
	file = fopen(part, "we");
	if (!file)
		return; /* its reader will miss it */
	for (int i = 0; i < N_ENTRIES; i++)
		(void)fprintf(file, "%s %llu\n", entry_names[i], (unsigned long long)standin.calls[i]);
	for (int i = 0; i < N_COUNTS; i++)
		(void)fprintf(file, "%s %llu\n", count_names[i], (unsigned long long)standin.counts[i]);
	if (fclose(file) == 0)
		(void)rename(part, path);
}

/* ---- each call ---- */

/* A call that makes or enqueues something. */
static bool
is_working(enum standin_entry entry)
{
	switch (entry) {
	case ENTRY_cuCtxSetCurrent:
	case ENTRY_cuMemAlloc_v2:
	case ENTRY_cuStreamCreateWithPriority:
	case ENTRY_cuStreamSynchronize:
	case ENTRY_cuStreamWaitEvent:
	case ENTRY_cuEventCreate:
	case ENTRY_cuEventRecord:
	case ENTRY_cuMemcpyHtoDAsync_v2:
	case ENTRY_cuMemcpyDtoHAsync_v2:
	case ENTRY_cuMemcpyBatchAsync:
	case ENTRY_cuMemcpyBatchAsync_v2:
	case ENTRY_cuModuleLoadData:
	case ENTRY_cuLaunchKernel:
		return true;
	default:
		return false;
	}
}

/* The code that a knob has for this call; 0: none. */
static int
planned_fault(enum standin_entry entry)
{
	int code = 0;

	for (int i = 0; i < MAX_FAULTS; i++) {
		struct standin_fault *fault = &standin.knobs.faults[i];

		if (fault->n == 0 || (fault->entry != entry && (fault->entry != N_ENTRIES || !is_working(entry))))
			continue;
		if (fault->n > 1) {
			fault->n--;
			continue;
		}
		code = fault->code;
		fault->n = fault->onward;
		standin_add(COUNT_faults, 1);
	}
	return code;
}

int
standin_enter(enum standin_entry entry, unsigned needs)
{
	const struct standin_device *device;
	int rc;

	(void)pthread_mutex_lock(&standin.mu);
	standin.calls[entry]++;
	standin_add(COUNT_working, is_working(entry));
	standin_thread.entry = entry;
	standin_thread.planned = false;
	if (standin.closed)
		return DRIVER_DEINITIALIZED;
	if (standin.forked)
		return DRIVER_NOT_INITIALIZED;
	rc = planned_fault(entry);
	standin_thread.planned = rc != 0;
	if (rc)
		return rc;
	if ((needs & NEEDS_INIT) && !standin.initialized)
		return DRIVER_NOT_INITIALIZED;
	if ((needs & NEEDS_CONTEXT) == NEEDS_CONTEXT) {
		device = standin_current();
		if (!device)
			return DRIVER_INVALID_CONTEXT;
		if (device->refs == 0)
			return DRIVER_CONTEXT_IS_DESTROYED;
		if (device->broken)
			return device->broken;
	}
	return needs & IS_UNSAFE ? standin_capture_guard() : 0;
}

/* A code that says that the caller is wrong. Some calls are questions, which may be answered so. */
static bool
is_misuse(int rc)
{
	if (standin_thread.planned || standin_thread.entry == ENTRY_cuPointerGetAttribute)
		return false;
	return rc == DRIVER_INVALID_VALUE || rc == DRIVER_INVALID_CONTEXT || rc == DRIVER_INVALID_HANDLE ||
	       rc == DRIVER_CONTEXT_IS_DESTROYED || rc == DRIVER_ALREADY_REGISTERED || rc == DRIVER_NOT_REGISTERED;
}

CUresult
standin_leave(int rc)
{
	standin_add(COUNT_misused, is_misuse(rc));
	if (standin.knobs.say && (is_misuse(rc) || standin_thread.planned))
		(void)fprintf(stderr, "stand-in for libcuda.so.1: %s returns %d\n", entry_names[standin_thread.entry],
			      rc);
	(void)pthread_mutex_unlock(&standin.mu);
	return (CUresult)rc;
}

/* ---- the process ---- */

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&standin.mu);
}

static void
after_fork_parent(void)
{
	(void)pthread_mutex_unlock(&standin.mu);
}

static void
after_fork_child(void)
{
	standin.forked |= standin.used;
	(void)pthread_mutex_unlock(&standin.mu);
}

__attribute__((constructor)) static void
begin_process(void)
{
	(void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
	(void)pthread_mutex_lock(&standin.mu);
	read_environment();
	standin_device_start();
	(void)pthread_mutex_unlock(&standin.mu);
}

__attribute__((destructor)) static void
end_process(void)
{
	(void)pthread_mutex_lock(&standin.mu);
	standin_write_stats(true);
	standin.closed = true;
	if (!standin.forked) {
		standin_stream_end_all(NULL);
		standin_module_end_all(NULL);
		standin_graph_end_all();
		standin_memory_end(NULL);
	}
	(void)pthread_mutex_unlock(&standin.mu);
}
