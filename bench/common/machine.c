/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

/* The build system says which; a build by hand does not know. */
#ifdef SCOUT_BUILD_TYPE
#include "revision.h"
#else
#define SCOUT_GIT_REVISION "unknown"
#define SCOUT_BUILD_TYPE "unknown"
#endif

const char *
machine_cpu(char buf[MACHINE_TEXT])
{
	FILE *info = fopen("/proc/cpuinfo", "re");
	char line[512];
	char *value;

	(void)snprintf(buf, MACHINE_TEXT, "unknown");
	while (info && fgets(line, sizeof(line), info)) {
		value = strchr(line, ':');
		if (strncmp(line, "model name", 10) != 0 || !value)
			continue;
		value += 1 + strspn(value + 1, " \t");
		value[strcspn(value, "\n")] = '\0';
		(void)snprintf(buf, MACHINE_TEXT, "%s", value);
		break;
	}
	if (info)
		(void)fclose(info); /* only read */
	return buf;
}

const char *
machine_kernel(char buf[MACHINE_TEXT])
{
	struct utsname uts;

	(void)snprintf(buf, MACHINE_TEXT, "%s", uname(&uts) == 0 ? uts.release : "unknown");
	return buf;
}

const char *
machine_time(char buf[MACHINE_TEXT])
{
	time_t now = time(NULL);
	struct tm tm;

	if (!gmtime_r(&now, &tm) || !strftime(buf, MACHINE_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm))
		(void)snprintf(buf, MACHINE_TEXT, "unknown");
	return buf;
}

const char *
machine_revision(void)
{
	return SCOUT_GIT_REVISION;
}

const char *
machine_build_type(void)
{
	return SCOUT_BUILD_TYPE;
}
