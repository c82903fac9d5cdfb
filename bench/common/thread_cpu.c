/* SPDX-License-Identifier: Apache-2.0 */
#include "thread_cpu.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
thread_cpu_find(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	char path[320], text[64];
	int found = 0;

	while (dir && (entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
		int tid = (int)strtol(entry->d_name, NULL, 10);
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
		if (tid <= 0 || !(file = fopen(path, "re")))
			continue;
		if (fgets(text, sizeof(text), file) && strncmp(text, name, strlen(name)) == 0)
			found = tid;
		(void)fclose(file); /* only read */
	}
	if (dir)
		(void)closedir(dir);
	return found;
}

uint64_t
thread_cpu_ns(int tid)
{
	char path[64], text[128] = "";
	uint64_t ns = UINT64_MAX;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid);
	file = fopen(path, "re");
	if (!file)
		return UINT64_MAX;
	if (fgets(text, sizeof(text), file))
		ns = strtoull(text, NULL, 10);
	(void)fclose(file); /* only read */
	return ns;
}
