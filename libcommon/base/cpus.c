/* SPDX-License-Identifier: Apache-2.0 */
#include "cpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

/*
 * DESIGN
 *
 * Purpose: the CPUs that our threads run on. No state of its own: the caller holds the scope. Threads: any.
 *
 * A thread inherits the mask of the thread that starts it, and engines pin their threads, often to one CPU: each of our
 * threads would then take turns with a loop that never sleeps. So the mask is changed around each start of threads, and
 * changed back. That covers all threads, also those that libzmq, libmicrohttpd and a GPU driver start by themselves; threads
 * that ours start later inherit the mask from them.
 *
 * "auto" is all CPUs that the process may use. The masks of its threads do not tell which: the main thread is often the
 * pinned one, the others are the engine's. The kernel knows the limit (the cgroup's cpuset), and cuts a mask of all CPUs down
 * to it; nothing has to be read. CPUs that were isolated at boot are left out, since a thread that is placed there stays
 * there. An operator who limits an engine with taskset instead of a cpuset uses "inherit" or a list.
 *
 * Rejected: pthread_attr_setaffinity_np() in scout__thread_start(). Threads of other libraries stay pinned, and each of our
 * parts would have to pass the mask down. Rejected: the union over the threads of the process. With one thread that is no
 * gain. Rejected: the mask at the time that the library was loaded. A plugin is loaded after the engine has pinned itself.
 *
 * Machines with more CPUs than a cpu_set_t has bits: "auto" leaves everything as it is.
 */

#define ISOLATED "/sys/devices/system/cpu/isolated"

/* Parse a number below CPU_SETSIZE; *at moves past it. */
static bool
parse_cpu(const char **at, unsigned *ret_cpu)
{
	unsigned cpu = 0;
	const char *p = *at;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		cpu = cpu * 10 + (unsigned)(*p - '0');
		if (cpu >= CPU_SETSIZE)
			return false;
	}
	*at = p;
	*ret_cpu = cpu;
	return true;
}

/* Parse a list as the kernel writes it: "0-3,8", perhaps with a line's end. False: the text is no list, or empty. */
static bool
parse_list(const char *text, cpu_set_t *ret_set)
{
	cpu_set_t set;
	unsigned first, last;

	CPU_ZERO(&set);
	for (;;) {
		if (!parse_cpu(&text, &first))
			return false;
		last = first;
		if (*text == '-' && (text++, !parse_cpu(&text, &last)))
			return false;
		if (last < first)
			return false;
		for (unsigned cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, &set);
		if (*text != ',')
			break;
		text++;
	}
	if (strcmp(text, "") != 0 && strcmp(text, "\n") != 0)
		return false;
	*ret_set = set;
	return true;
}

bool
scout__cpus_read(const char *root, const char *path, cpu_set_t *ret_set)
{
	char line[4096] = "", full[512];
	FILE *file;

	if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full))
		return false;
	file = fopen(full, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	(void)fclose(file); /* only read */
	return parse_list(line, ret_set);
}

static cpu_set_t
all_cpus(void)
{
	cpu_set_t set, isolated;
	bool has_isolated = scout__cpus_read("", ISOLATED, &isolated);

	CPU_ZERO(&set);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (!has_isolated || !CPU_ISSET(cpu, &isolated))
			CPU_SET(cpu, &set);
	return set;
}

static void
enter_auto(struct scout__cpus_scope *scope, const cpu_set_t *prefer)
{
	cpu_set_t set = all_cpus(), near;

	if (prefer) {
		CPU_AND(&near, &set, prefer);
		scope->is_changed = sched_setaffinity(0, sizeof(near), &near) == 0;
	}
	/* If the kernel refuses (a cpuset of isolated CPUs, a seccomp filter), the mask stays as it is. */
	if (!scope->is_changed)
		scope->is_changed = sched_setaffinity(0, sizeof(set), &set) == 0;
}

static int
enter_list(struct scout__cpus_scope *scope, const char *text, char *err, size_t err_len)
{
	cpu_set_t wanted, got;

	if (!parse_list(text, &wanted))
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "cpus = \"%s\": must be auto, inherit or a list as 0-3,8 of CPUs below %d", text,
				   CPU_SETSIZE);
	if (sched_setaffinity(0, sizeof(wanted), &wanted) != 0)
		return scout__fail(
			err, err_len, errno == EINVAL ? SCOUT_ERR_CONFIG_RANGE : SCOUT_ERR_SYSTEM,
			"cpus = \"%s\": this process may not run there (%s); Cpus_allowed_list of /proc/self/status says where it may",
			text, scout__errno_text(errno));
	scope->is_changed = true;
	CPU_ZERO(&got);
	if (sched_getaffinity(0, sizeof(got), &got) == 0 && CPU_EQUAL(&got, &wanted))
		return 0;
	scout__cpus_leave(scope);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &wanted) && !CPU_ISSET(cpu, &got))
			return scout__fail(
				err, err_len, SCOUT_ERR_CONFIG_RANGE,
				"cpus = \"%s\": this process may not use CPU %u; Cpus_allowed_list of /proc/self/status says which",
				text, cpu);
	return scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
			   "cpus = \"%s\": the kernel took another set of CPUs; use auto or inherit", text);
}

int
scout__cpus_enter(struct scout__cpus_scope *scope, const char *text, const cpu_set_t *prefer, char *err, size_t err_len)
{
	bool is_auto = strcmp(text, "auto") == 0;

	scope->is_changed = false;
	if (strcmp(text, "inherit") == 0)
		return 0;
	if (sched_getaffinity(0, sizeof(scope->before), &scope->before) != 0)
		return is_auto ? 0
			       : scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
					     "cpus = \"%s\": sched_getaffinity fails (%s); use auto or inherit", text,
					     scout__errno_text(errno));
	if (!is_auto)
		return enter_list(scope, text, err, err_len);
	enter_auto(scope, prefer);
	return 0;
}

void
scout__cpus_leave(const struct scout__cpus_scope *scope)
{
	/* This fails only if the process lost all of these CPUs meanwhile: then the thread stays where it is. */
	if (scope->is_changed)
		(void)sched_setaffinity(0, sizeof(scope->before), &scope->before);
}
