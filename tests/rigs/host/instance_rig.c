/* SPDX-License-Identifier: Apache-2.0 */
#include "instance_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "clock.h"
#include "waiting.h"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

void
place_up(struct place *place)
{
	char err[512] = "";

	memset(place, 0, sizeof(*place));
	(void)snprintf(place->folder, sizeof(place->folder), "/tmp/kvscout-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place->folder));
	(void)snprintf(place->endpoint, sizeof(place->endpoint), "auto://%s", place->folder);
	ck_assert_msg(scout__instance_find(place->endpoint, &place->paths, err, sizeof(err)) == 0, "%s", err);
	place->program = getenv("KVSCOUT_KVSCOUTD");
	ck_assert_ptr_nonnull(place->program);
}

void
place_down(struct place *place)
{
	char command[128];
	int fd;

	/* One that a starter which was killed has left starting ends as well: it serves before it reads the signal. */
	wait_until(!place_is_locked(place)) {
		struct scout__instance_record record = place_record(place);

		if (record.state == SCOUT__INSTANCE_SERVING)
			(void)kill((pid_t)record.pid, SIGTERM);
	}
	fd = place_lock(place);
	(void)close(fd);
	(void)snprintf(command, sizeof(command), "rm -rf %s", place->folder);
	ck_assert_int_eq(system(command), 0);
	place->folder[0] = '\0';
}

void
place_log(void *user, int level, const char *text)
{
	struct place *place = user;
	size_t n;

	if (level > SCOUT_LOG_WARN)
		return;
	(void)pthread_mutex_lock(&log_lock);
	n = strlen(place->warnings);
	place->n_warnings++;
	(void)snprintf(place->warnings + n, sizeof(place->warnings) - n, "%s\n", text);
	(void)pthread_mutex_unlock(&log_lock);
}

void
place_wait_warned(struct place *place, const char *word)
{
	uint64_t end_us = wait_begin();

	for (bool is_there = false; !is_there;) {
		(void)pthread_mutex_lock(&log_lock);
		is_there = strstr(place->warnings, word) != NULL;
		ck_assert_msg(is_there || scout__now_us() < end_us, "no warning has \"%s\": %s", word, place->warnings);
		(void)pthread_mutex_unlock(&log_lock);
		(void)poll(NULL, 0, 1);
	}
}

int
place_ensure(struct place *place, const char *keys, char *err, size_t err_len)
{
	struct scout_instance_config cfg;
	char endpoint[256], want[300];
	int rc;

	scout_instance_config_init(&cfg);
	cfg.endpoint = place->endpoint;
	cfg.server_program = place->program;
	cfg.server_keys = keys;
	cfg.timeout_ms = wait_limit_ms();
	cfg.log = place_log;
	cfg.log_user = place;
	rc = scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, err_len);
	if (rc == 0) {
		(void)snprintf(want, sizeof(want), "ipc://%s", place->paths.socket);
		ck_assert_str_eq(endpoint, want);
	}
	return rc;
}

static int
open_lock(const struct place *place)
{
	int fd = open(place->paths.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

struct scout__instance_record
place_record(const struct place *place)
{
	struct scout__instance_record record;
	int fd = open_lock(place);

	scout__record_read(fd, &record);
	(void)close(fd);
	return record;
}

bool
place_is_locked(const struct place *place)
{
	int fd = open_lock(place);
	bool is_locked = flock(fd, LOCK_EX | LOCK_NB) != 0;

	(void)close(fd);
	return is_locked;
}

int
place_lock(const struct place *place)
{
	int fd = open_lock(place);

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	return fd;
}

pid_t
place_server(const struct place *place)
{
	struct scout__instance_record record = place_record(place);

	ck_assert(place_is_locked(place));
	ck_assert_int_eq(record.state, SCOUT__INSTANCE_SERVING);
	ck_assert(scout__instance_listens(&place->paths));
	return (pid_t)record.pid;
}

void
place_kill(const struct place *place)
{
	ck_assert_int_eq(kill(place_server(place), SIGKILL), 0);
	(void)close(place_lock(place));
}

static const char *
file_text(const char *path)
{
	static char text[65536];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = 0, one;

	while (fd >= 0 && n < (ssize_t)sizeof(text) - 1 && (one = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
		n += one;
	if (fd >= 0)
		(void)close(fd);
	text[n] = '\0';
	for (char *c = text; n > 0 && (c = memchr(c, '\0', (size_t)(text + n - c))); c++)
		*c = ' '; /* between the words of a command line */
	return text;
}

const char *
place_server_log(const struct place *place)
{
	return file_text(place->paths.log);
}

unsigned
place_most_starts(uint64_t since_us)
{
	uint64_t us = scout__now_us() - since_us + 5000; /* the pauses are taken in whole milliseconds */
	unsigned n = 1;

	for (uint64_t pause_us = 100000, at_us = 100000; at_us <= us; at_us += pause_us) {
		n++;
		pause_us *= 2;
	}
	return n;
}

unsigned
count_words(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

const char *
proc_text(pid_t pid, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return file_text(path);
}
