/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of this host that cannot be started or cannot be used: what the caller is told, and that it is not tried too often.
 */
#include "check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/protocol.h>

#include "checked_fork.h"
#include "clock.h"
#include "instance_rig.h"
#include "instance_silent.h"
#include "waiting.h"

static struct place place;

static void
teardown(void)
{
	if (place.folder[0])
		place_down(&place);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_program_that_is_not_there_is_named)
{
	char err[1024] = "";

	place_up(&place);
	place.program = "/nonexistent/kvscoutd";
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_msg(strstr(err, "/nonexistent/kvscoutd"), "%s", err);
	/* Nor is one in this build beside the library or this test. */
	place.program = NULL;
	ck_assert_int_eq(unsetenv("PATH"), 0);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_msg(strstr(err, "server_program"), "%s", err);
}
END_TEST

START_TEST(a_program_in_path_is_found)
{
	char path[512], err[1024] = "";

	place_up(&place);
	(void)snprintf(path, sizeof(path), "relative:%.*s", (int)(strrchr(place.program, '/') - place.program),
		       place.program);
	ck_assert_int_eq(setenv("PATH", path, 1), 0);
	place.program = NULL;
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(setenv("PATH", "/bin:/usr/bin", 1), 0);
}
END_TEST

START_TEST(a_program_that_cannot_be_executed_is_told)
{
	char path[96], err[1024] = "";
	int fd;

	place_up(&place);
	(void)snprintf(path, sizeof(path), "%s/empty", place.folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
	ck_assert_int_eq(write(fd, "\177ELF", 4), 4);
	(void)close(fd);
	place.program = path;
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_SYSTEM);
	ck_assert_msg(strstr(err, path) && strstr(err, "cannot be started"), "%s", err);
}
END_TEST

/* Its own words reach the caller, and the number of tries is bounded, whoever tries. */
START_TEST(a_server_that_ends_at_once_is_told_and_tried_more_slowly)
{
	char err[1024] = "";
	uint64_t begin_us = scout__now_us();
	unsigned n = 0, tries = 0;

	place_up(&place);
	wait_until(n >= 50 && tries >= 2) {
		err[0] = '\0';
		ck_assert_int_eq(place_ensure(&place, "eviction=nonsense", err, sizeof(err)), SCOUT_ERR_UNREACHABLE);
		ck_assert_msg(strstr(err, "nonsense") && strstr(err, place.paths.log), "%s", err);
		tries = count_words(place_server_log(&place), "kvscoutd: eviction");
		n++;
	}
	ck_assert_uint_le(tries, place_most_starts(begin_us));
	/* Other keys are not made to wait for those. */
	ck_assert_msg(place_ensure(&place, "eviction=lru", err, sizeof(err)) == 0, "%s", err);
}
END_TEST

START_TEST(a_key_that_kvscoutd_does_not_know_is_told_by_its_name)
{
	char err[1024] = "";

	place_up(&place);
	wait_until(strstr(err, "it says")) /* the first failure may be that of a killed starter, and is not told */
		ck_assert_int_eq(place_ensure(&place, "l1_byte=5", err, sizeof(err)), SCOUT_ERR_UNREACHABLE);
	ck_assert_msg(strstr(err, "l1_byte"), "%s", err);
}
END_TEST

/* A person who is told of a process in state S, and how to kill it, kills a server that opens its stores. */
START_TEST(a_server_that_has_just_started_is_not_to_be_killed)
{
	char text[1024] = "", err[1024] = "";

	place_up(&place);
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert(scout__instance_explain(&place.paths, "silent", text, sizeof(text)));
	ck_assert_msg(strstr(text, "has just started") && !strstr(text, "KILL"), "%s", text);
}
END_TEST

START_TEST(a_server_that_has_no_memory_says_so)
{
	char err[1024] = "";

	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, "l1_bytes=512Ti", err, sizeof(err)), SCOUT_ERR_UNREACHABLE);
	ck_assert_msg(strstr(err, "l1_bytes"), "%s", err);
}
END_TEST

START_TEST(keys_that_cannot_be_given_are_refused_before_anything_is_started)
{
	static const struct {
		const char *keys, *named;
		int code;
	} cases[] = {
		{"l1_bytes", "l1_bytes", SCOUT_ERR_CONFIG_SYNTAX},
		{"eviction=lru --help", "--help", SCOUT_ERR_CONFIG_SYNTAX},
		{"=1", "=1", SCOUT_ERR_CONFIG_SYNTAX},
		{"listen=tcp://0.0.0.0:1", "listen", SCOUT_ERR_CONFIG_KEY},
		{"instance=/tmp", "instance", SCOUT_ERR_CONFIG_KEY},
	};
	char err[1024];

	place_up(&place);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		err[0] = '\0';
		ck_assert_int_eq(place_ensure(&place, cases[i].keys, err, sizeof(err)), cases[i].code);
		ck_assert_msg(strstr(err, cases[i].named), "%s", err);
	}
	ck_assert_str_eq(place_server_log(&place), "");
}
END_TEST

START_TEST(a_file_of_keys_cannot_move_the_server)
{
	char path[96], keys[128], err[1024] = "";
	FILE *file;

	place_up(&place);
	(void)snprintf(path, sizeof(path), "%s/keys", place.folder);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	(void)fputs("listen = ipc:///tmp/elsewhere\n", file);
	(void)fclose(file);
	(void)snprintf(keys, sizeof(keys), "config=%s", path);
	ck_assert_int_eq(place_ensure(&place, keys, err, sizeof(err)), SCOUT_ERR_UNREACHABLE);
	ck_assert_msg(strstr(place_server_log(&place), "listen cannot be set"), "%s", place_server_log(&place));
}
END_TEST

/* ---- a server that is not quite ours ---- */

/* This test holds the lock as a server would that says this. */
static int
stand_in(enum scout__instance_state state, const char *version, uint32_t wire)
{
	struct scout__instance_record record = {
		.state = state,
		.pid = 4711,
		.wire = wire,
		.since_ms = scout__boot_ms(),
	};
	int fd = place_lock(&place);

	(void)snprintf(record.version, sizeof(record.version), "%s", version);
	ck_assert(scout__record_write(fd, &record));
	return fd;
}

START_TEST(a_server_of_another_version_is_refused)
{
	char err[1024] = "";
	int fd;

	place_up(&place);
	fd = stand_in(SCOUT__INSTANCE_SERVING, "9.9.9", SCOUT_WIRE_VERSION);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_VERSION);
	ck_assert_msg(strstr(err, "9.9.9") && strstr(err, scout_version()) && strstr(err, "4711"), "%s", err);
	(void)close(fd);
	fd = stand_in(SCOUT__INSTANCE_SERVING, scout_version(), SCOUT_WIRE_VERSION + 1);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_VERSION);
	(void)close(fd);
	/* Once it has ended, ours is started. */
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
}
END_TEST

START_TEST(a_server_with_other_keys_is_joined_with_one_warning)
{
	char err[1024] = "";

	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, "l1_bytes=48Mi eviction=lru", err, sizeof(err)), 0);
	/* The same keys, fewer keys: nothing to tell. */
	ck_assert_int_eq(place_ensure(&place, "eviction=lru  l1_bytes=48Mi", err, sizeof(err)), 0);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), 0);
	ck_assert_msg(place.n_warnings == 0, "%s", place.warnings);
	ck_assert_int_eq(place_ensure(&place, "l1_bytes=64Mi eviction=lru credits=9", err, sizeof(err)), 0);
	ck_assert_uint_eq(place.n_warnings, 1);
	ck_assert_msg(strstr(place.warnings, "l1_bytes is 48Mi, wanted 64Mi"), "%s", place.warnings);
	ck_assert_msg(strstr(place.warnings, "credits is not set, wanted 9"), "%s", place.warnings);
	ck_assert_msg(!strstr(place.warnings, "eviction"), "%s", place.warnings);
}
END_TEST

START_TEST(a_server_that_starts_for_too_long_is_told)
{
	struct scout_instance_config cfg;
	char endpoint[256], err[1024] = "";
	int fd;

	place_up(&place);
	fd = stand_in(SCOUT__INSTANCE_STARTING, "", 0);
	scout_instance_config_init(&cfg);
	cfg.endpoint = place.endpoint;
	cfg.timeout_ms = 100;
	ck_assert_int_eq(scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, place.paths.log), "%s", err);
	(void)close(fd);
}
END_TEST

/* Started by hand on the very path: it is the server, and no second one is started. */
START_TEST(a_server_that_was_started_by_hand_there_is_joined)
{
	char listen[300], err[1024] = "";
	pid_t pid;
	int status;

	place_up(&place);
	(void)snprintf(listen, sizeof(listen), "ipc://%s", place.paths.socket);
	pid = checked_fork();
	if (pid == 0) {
		(void)dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		(void)execl(place.program, "kvscoutd", "--listen", listen, "--l1_bytes", "16Mi", "--log-level", "error",
			    NULL);
		_exit(1);
	}
	wait_until(scout__instance_listens(&place.paths))
		ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert_str_eq(place_server_log(&place), "");
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}
END_TEST

/* ---- whose folder ---- */

START_TEST(a_folder_that_others_control_is_refused)
{
	struct scout__instance paths;
	char link[96], endpoint[128], err[1024] = "";

	place_up(&place);
	ck_assert_int_eq(chmod(place.folder, 0770), 0);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_PERMISSION);
	ck_assert_msg(strstr(err, place.folder) && strstr(err, "chmod 700"), "%s", err);
	ck_assert_int_eq(chmod(place.folder, 0700), 0);
	(void)snprintf(link, sizeof(link), "%s.link", place.folder);
	ck_assert_int_eq(symlink(place.folder, link), 0);
	(void)snprintf(endpoint, sizeof(endpoint), "auto://%s", link);
	ck_assert_int_eq(scout__instance_find(endpoint, &paths, err, sizeof(err)), SCOUT_ERR_PERMISSION);
	ck_assert_int_eq(unlink(link), 0);
	/* Another user's: /usr is root's; root gives its own away. */
	if (geteuid() != 0) {
		ck_assert_int_eq(scout__instance_find("auto:///usr", &paths, err, sizeof(err)), SCOUT_ERR_PERMISSION);
	} else {
		ck_assert_int_eq(chown(place.folder, 12345, 12345), 0);
		ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), SCOUT_ERR_PERMISSION);
		ck_assert_msg(strstr(err, "12345"), "%s", err);
		ck_assert_int_eq(chown(place.folder, 0, 0), 0);
	}
}
END_TEST

START_TEST(the_folder_is_that_of_the_user_and_the_ipc_namespace)
{
	struct scout__instance a, b;
	char want[128], boot[9] = "", err[1024] = "";
	struct stat st;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	place_up(&place);
	ck_assert_int_eq(stat("/proc/self/ns/ipc", &st), 0);
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(boot, sizeof(boot), file));
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", place.folder, 1), 0);
	ck_assert_msg(scout__instance_find(NULL, &a, err, sizeof(err)) == 0, "%s", err);
	(void)snprintf(want, sizeof(want), "%s/kvscout/ipc-%llu-%s", place.folder, (unsigned long long)st.st_ino, boot);
	ck_assert_str_eq(a.folder, want);
	ck_assert_int_eq(scout__instance_find("auto", &b, err, sizeof(err)), 0);
	ck_assert_str_eq(a.folder, b.folder);
	/* One of another user's, as su leaves it, does not count; it is what any other folder is that is not ours. */
	ck_assert_int_eq(chmod(place.folder, 0777), 0);
	ck_assert_msg(scout__instance_find("auto", &b, err, sizeof(err)) == 0, "%s", err);
	(void)snprintf(want, sizeof(want), "/tmp/kvscout-%u/ipc-%llu-%s", (unsigned)geteuid(),
		       (unsigned long long)st.st_ino, boot);
	ck_assert_str_eq(b.folder, want);
	/* Where it holds nothing of the user's own server. */
	if (rmdir(want) == 0) {
		*strrchr(want, '/') = '\0';
		(void)rmdir(want);
	}
	ck_assert_int_eq(chmod(place.folder, 0700), 0);
	ck_assert_int_eq(scout__instance_find("auto://relative", &b, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__instance_find("auto:///", &b, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__instance_find("auto:///no-such-kvscout", &b, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "/no-such-kvscout"), "%s", err);
	ck_assert_int_eq(access("/no-such-kvscout", F_OK), -1);
	ck_assert_int_eq(scout__instance_find("auto:///tmp/kvscout-a/b", &b, err, sizeof(err)), SCOUT_ERR_SYSTEM);
}
END_TEST

/* Processes that cannot share memory the way a host's do must not meet, though they see the same files. */
START_TEST(another_ipc_namespace_has_another_server)
{
	struct scout__instance paths;
	char err[1024] = "";

	place_up(&place);
	/* Without the right to make one (no root), a namespace of its own is not to be had, and this proves nothing. */
	if (unshare(CLONE_NEWIPC) == 0) {
		ck_assert_msg(scout__instance_find(place.endpoint, &paths, err, sizeof(err)) == 0, "%s", err);
		ck_assert_str_ne(paths.folder, place.paths.folder);
		ck_assert_int_eq(strncmp(paths.folder, place.folder, strlen(place.folder)), 0);
	} else {
		ck_assert_int_eq(errno, EPERM);
	}
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct scout_instance_config cfg;
	char endpoint[256] = "untouched", err[256];

	scout_instance_config_init(&cfg);
	ck_assert_int_eq(scout_ensure_server(&cfg, NULL, 0, err, sizeof(err)), SCOUT_ERR_INVALID);
	cfg.endpoint = "ipc:///tmp/x";
	ck_assert_int_eq(scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err)), SCOUT_ERR_INVALID);
	scout_instance_config_init(&cfg);
	cfg.size = 8;
	ck_assert_int_eq(scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err)),
			 SCOUT_ERR_UNSUPPORTED);
	scout_instance_config_init(&cfg);
	ck_assert_int_eq(scout_ensure_server(&cfg, endpoint, 9, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_str_eq(endpoint, "untouched");
}
END_TEST
