/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * A record is text, so that an operator reads it with cat, and a later version may add lines. A file that shrinks waits for its
 * page to be written back, on a busy disk for seconds: a shorter record ends in empty lines. Torn reads: a reader that finds no
 * "end" treats the record as not written yet; one that finds half of each record believes in a server that it must see twice.
 *
 * Times are CLOCK_BOOTTIME: the folder may outlive a boot (in /tmp), and the wall clock may jump. A time in the
 * future comes from another boot; the reader decides.
 *
 * Threads: any; no state.
 */
#include "instance_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

#define FILE_BYTES (SCOUT__SERVER_KEYS_MAX + 512u)

static const char *const states[] = {
	[SCOUT__INSTANCE_UNKNOWN] = "unknown",
	[SCOUT__INSTANCE_STARTING] = "starting",
	[SCOUT__INSTANCE_SERVING] = "serving",
	[SCOUT__INSTANCE_STOPPED] = "stopped",
};

static void
take(struct scout__instance_record *r, const char *key, const char *value)
{
	if (strcmp(key, "state") == 0) {
		for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
			if (strcmp(value, states[i]) == 0)
				r->state = (enum scout__instance_state)i;
	} else if (strcmp(key, "pid") == 0) {
		r->pid = strtol(value, NULL, 10);
	} else if (strcmp(key, "wire") == 0) {
		r->wire = (uint32_t)strtoul(value, NULL, 10);
	} else if (strcmp(key, "failures") == 0) {
		r->failures = (uint32_t)strtoul(value, NULL, 10);
	} else if (strcmp(key, "since_ms") == 0) {
		r->since_ms = strtoull(value, NULL, 10);
	} else if (strcmp(key, "version") == 0) {
		(void)snprintf(r->version, sizeof(r->version), "%s", value);
	} else if (strcmp(key, "keys") == 0) {
		(void)snprintf(r->keys, sizeof(r->keys), "%s", value);
	}
}

void
scout__record_read(int fd, struct scout__instance_record *ret_record)
{
	char text[FILE_BYTES + 1], *rest = text, *line;
	ssize_t n = pread(fd, text, FILE_BYTES, 0);
	bool has_end = false;

	memset(ret_record, 0, sizeof(*ret_record));
	text[n > 0 ? n : 0] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		char *value = strstr(line, " = ");

		has_end |= strcmp(line, "end") == 0;
		if (!value)
			continue;
		*value = '\0';
		take(ret_record, line, value + 3);
	}
	if (!has_end)
		ret_record->state = SCOUT__INSTANCE_UNKNOWN;
}

bool
scout__record_write(int fd, const struct scout__instance_record *r)
{
	struct stat st = {0};
	char text[FILE_BYTES];
	int n = snprintf(text, sizeof(text),
			 "state = %s\npid = %ld\nversion = %s\nwire = %" PRIu32 "\nsince_ms = %" PRIu64
			 "\nfailures = %" PRIu32 "\nkeys = %s\nend\n",
			 states[r->state], r->pid, r->version, r->wire, r->since_ms, r->failures, r->keys);

	if (n < 0 || n >= (int)sizeof(text)) {
		errno = E2BIG;
		return false;
	}
	if (fstat(fd, &st) == 0 && st.st_size > n && st.st_size <= (off_t)sizeof(text)) {
		memset(text + n, '\n', (size_t)(st.st_size - n));
		n = (int)st.st_size;
	}
	return pwrite(fd, text, (size_t)n, 0) == n;
}

uint64_t
scout__boot_ms(void)
{
	return scout__clock_ns(CLOCK_BOOTTIME) / 1000000;
}
