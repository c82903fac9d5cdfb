/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"
#include "waiting.h"

#include <sys/wait.h>

/* What the adapter says to URLs and folders that it cannot work with, and that it leaves those folders as they are. */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig, false);
}

static void
teardown(void)
{
	rig_fini(&rig);
}

static char *
inside(const char *name)
{
	char *path;

	ck_assert_int_gt(asprintf(&path, "%s/%s", rig.folder, name), 0);
	return path;
}

static void
put_text(const char *name, const char *text)
{
	char *path = inside(name);
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	free(path);
}

static bool
is_there(const char *name)
{
	char *path = inside(name);
	bool there = access(path, F_OK) == 0;

	free(path);
	return there;
}

/* ---- options ---- */

static const struct {
	const char *query;
	int code;
	const char *says;
} bad_options[] = {
	{"?max_bytes=-1", SCOUT_ERR_CONFIG_RANGE, "max_bytes"},
	{"?max_bytes=10q", SCOUT_ERR_CONFIG_SYNTAX, "max_bytes"},
	{"?max_bytes=", SCOUT_ERR_CONFIG_RANGE, "max_bytes"},
	{"?threads=0", SCOUT_ERR_CONFIG_RANGE, "1..64"},
	{"?threads=65", SCOUT_ERR_CONFIG_RANGE, "1..64"},
	{"?threads=many", SCOUT_ERR_CONFIG_SYNTAX, "threads"},
	{"?direct=2", SCOUT_ERR_CONFIG_SYNTAX, "direct"},
	{"?sync=maybe", SCOUT_ERR_CONFIG_SYNTAX, "sync"},
	{"?shared=yes%20please", SCOUT_ERR_CONFIG_SYNTAX, "shared"},
	{"?ttl=5", SCOUT_ERR_CONFIG_KEY, "ttl"},
	{"?max_byte=5", SCOUT_ERR_CONFIG_KEY, "max_byte"},
};

#define N_BAD_OPTIONS ((int)(sizeof(bad_options) / sizeof(bad_options[0])))

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(a_wrong_option_is_told_and_makes_nothing, 0, N_BAD_OPTIONS)
{
	int code = rig_try_open(&rig, bad_options[_i].query);

	ck_assert_msg(code == bad_options[_i].code, "%s: %d, %s", bad_options[_i].query, code, rig.err);
	ck_assert_msg(strstr(rig.err, bad_options[_i].says), "%s: %s", bad_options[_i].query, rig.err);
	ck_assert(!is_there("kvscout-l2"));
}
END_TEST

static const char *const bad_paths[] = {"fs://host/path", "fs://", "fs://user:secret@/tmp", "fs:///"};

START_LOOP_TEST(a_wrong_path_is_told, 0, 4)
{
	int code = adapter_try(&rig.of, bad_paths[_i], rig.err, sizeof(rig.err));

	ck_assert_msg(code == SCOUT_ERR_CONFIG_RANGE, "%s: %d, %s", bad_paths[_i], code, rig.err);
	ck_assert_uint_gt(strlen(rig.err), 10);
	ck_assert_ptr_null(strstr(rig.err, "secret"));
}
END_TEST

/* ---- folders ---- */

START_TEST(a_folder_that_is_not_ours_is_not_touched)
{
	struct stat before, after;

	put_text("letters.txt", "dear friend");
	ck_assert_int_eq(stat(rig.folder, &before), 0);
	ck_assert_int_eq(rig_try_open(&rig, ""), SCOUT_ERR_CONFIG_RANGE);
	ck_assert(strstr(rig.err, "letters.txt") && strstr(rig.err, "not empty"));
	ck_assert_int_eq(rig_try_open(&rig, "?shared=1"), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(stat(rig.folder, &after), 0);
	ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
	ck_assert(is_there("letters.txt") && !is_there("tmp") && !is_there("kvscout-l2"));
}
END_TEST

START_LOOP_TEST(a_marker_that_is_not_ours_is_not_touched, 0, 7)
{
	static const struct {
		const char *text, *says;
	} markers[] = {
		{"", "damaged or of another program"},
		{"kvscout", "damaged or of another program"},
		{"my own notes on kvscout\n", "damaged or of another program"},
		{"kvscout L2 files 2\nid 0123456789abcdef0123456789abcdef\npid 1\n", "format 2"},
		{"kvscout L2 files 1\nid 0123456789abcdef0123456789abcdeX\npid 1\n", "damaged"},
		{"kvscout L2 files 1\nid 0123\n", "damaged"},
		{"kvscout L2 files x\n", "damaged"},
	};

	put_text("kvscout-l2", markers[_i].text);
	ck_assert_int_eq(rig_try_open(&rig, ""), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(rig.err, markers[_i].says), "%s", rig.err);
	ck_assert(!is_there("tmp"));
}
END_TEST

START_TEST(an_absent_folder_is_made_but_not_its_parents)
{
	char *plain = rig.folder;
	struct stat st;

	rig.folder = inside("a/b");
	ck_assert_int_eq(rig_try_open(&rig, ""), SCOUT_ERR_CONFIG_RANGE);
	ck_assert(strstr(rig.err, "does not exist"));
	free(rig.folder);
	rig.folder = plain;
	rig.folder = inside("a");
	rig_open(&rig, "");
	ck_assert_int_eq(stat(rig.folder, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	ck_assert_int_eq(rig_store(&rig, 1, 100), SCOUT__L2_OK);
	adapter_down(&rig.of);
	free(rig.folder);
	rig.folder = plain;
}
END_TEST

START_TEST(a_file_is_no_folder)
{
	char *plain = rig.folder;

	put_text("file", "");
	rig.folder = inside("file");
	ck_assert_int_eq(rig_try_open(&rig, ""), SCOUT_ERR_CONFIG_RANGE);
	ck_assert(strstr(rig.err, "is not a folder"));
	free(rig.folder);
	rig.folder = plain;
}
END_TEST

START_TEST(the_root_of_a_new_file_system_and_an_interrupted_set_up_count_as_empty)
{
	char *path = inside("lost+found");

	ck_assert_int_eq(mkdir(path, 0700), 0);
	free(path);
	put_text("kvscout-l2.0123456789abcdef", "kvscout L2 fi");
	rig_open(&rig, "");
	ck_assert(is_there("lost+found") && !is_there("kvscout-l2.0123456789abcdef"));
	ck_assert(0 == adapter_logged(&rig.of, "is not of kvscout's"));
	ck_assert_uint_eq(rig_gauges(&rig).leftover, 1);
}
END_TEST

/* ---- a folder without its marker ---- */

static void
remove_all(const char *what)
{
	char *command;

	ck_assert_int_gt(asprintf(&command, "rm -rf %s%s", rig.folder, what), 0);
	ck_assert_int_eq(system(command), 0); // NOLINT(cert-env33-c): a folder of this test's own
	free(command);
}

START_TEST(a_folder_with_nothing_but_our_objects_is_ours)
{
	static const char name[] = "ab/cd/abcd0123456789abcdef0123456789ab",
			  misplaced[] = "ab/cd/00000000000000000000000000000000";
	char *path;

	rig_open(&rig, "");
	ck_assert_int_eq(rig_store(&rig, 1, 100), SCOUT__L2_OK);
	adapter_down(&rig.of);
	path = inside("kvscout-l2");
	ck_assert_int_eq(unlink(path), 0);
	free(path);
	/* Another program may have names like ours. */
	path = inside("ab");
	(void)mkdir(path, 0700);
	free(path);
	path = inside("ab/cd");
	(void)mkdir(path, 0700);
	free(path);
	put_text(name, "not made by kvscout");
	put_text(misplaced, "nor this");
	rig_open(&rig, "");
	wait_until(rig_gauges(&rig).ready)
		;
	ck_assert_int_eq(rig_load(&rig, 1, 100), SCOUT__L2_OK);
	ck_assert(is_there("kvscout-l2") && is_there(name) && is_there(misplaced));
}
END_TEST

static const char *const removed[] = {"/*", "", "/kvscout-l2"};

START_LOOP_TEST(a_folder_that_is_emptied_in_use_is_set_up_anew, 0, 3)
{
	struct rig second = {.folder = rig.folder};
	bool has_objects = _i == 2;

	rig_open(&rig, "");
	for (uint32_t i = 0; i < 10; i++)
		ck_assert_int_eq(rig_store(&rig, i, 100), SCOUT__L2_OK);
	ck_assert(rig_exists(&rig, 3, true));
	remove_all(removed[_i]);
	if (!has_objects)
		ck_assert_int_eq(rig_load(&rig, 1, 100), SCOUT__L2_ABSENT);
	wait_until(adapter_logged(&rig.of, "objects are forgotten, and it is set up anew") && rig_gauges(&rig).ready)
		;
	ck_assert_uint_eq(rig_gauges(&rig).objects, (has_objects ? 10u : 0u));
	ck_assert_int_eq(rig_exists(&rig, 2, false), has_objects);
	rig_unpin(&rig, 3);
	ck_assert_int_eq(rig_try_open(&second, ""), SCOUT_ERR_SYSTEM);
	ck_assert_int_eq(rig_store(&rig, 20, 100), SCOUT__L2_OK);
	adapter_down(&rig.of);
	rig_open(&rig, "");
	wait_until(rig_gauges(&rig).ready)
		;
	ck_assert_int_eq(rig_load(&rig, 20, 100), SCOUT__L2_OK);
	rig_check_folder(&rig, has_objects ? 11 : 1);
}
END_TEST

START_TEST(an_emptied_folder_that_another_has_taken_is_left_to_it)
{
	struct rig second = {.folder = rig.folder};
	struct scout__l2_key key = rig_key(2);
	uint8_t data[100] = {0};
	struct scout__l2_op op = {.what = SCOUT__L2_STORE, .key = &key, .data = data, .bytes = sizeof(data)};

	rig_open(&rig, "");
	ck_assert_int_eq(rig_store(&rig, 1, 100), SCOUT__L2_OK);
	remove_all("/*");
	rig_open(&second, "");
	ck_assert_int_eq(rig_load(&rig, 1, 100), SCOUT__L2_ABSENT);
	wait_until(adapter_logged(&rig.of, "cannot be used again"))
		;
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_ERROR);
	ck_assert_msg(strstr(op.why, "is in use by process"), "%s", op.why);
	ck_assert(!rig_exists(&rig, 1, false));
	adapter_down(&second.of);
	/* It looks again every few seconds. */
	wait_until(adapter_run(&rig.of, &op) == SCOUT__L2_OK)
		;
}
END_TEST

/* ---- in use ---- */

START_TEST(a_second_user_is_refused_and_told_the_pid_of_the_first)
{
	struct rig second = {.folder = rig.folder};
	char pid[32];
	pid_t child;
	int status;

	rig_open(&rig, "");
	(void)snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
	ck_assert_int_eq(rig_try_open(&second, ""), SCOUT_ERR_SYSTEM); /* this very process */
	ck_assert_msg(strstr(second.err, pid), "%s", second.err);
	ck_assert_int_eq(rig_try_open(&second, "?shared=1"), SCOUT_ERR_SYSTEM);
	child = fork();
	if (child == 0)
		_exit(rig_try_open(&second, "") == SCOUT_ERR_SYSTEM && strstr(second.err, pid) ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	adapter_down(&rig.of);
	rig_open(&rig, "");
}
END_TEST

START_TEST(a_forked_child_does_not_keep_the_folder)
{
	int gate[2], here[2];
	pid_t child;
	char byte;

	rig_open(&rig, "");
	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(pipe(here), 0);
	child = fork();
	if (child == 0) {
		(void)close(gate[1]);
		if (write(here[1], "x", 1) != 1)
			_exit(1);
		_exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
	}
	/* It gives up what it inherited before fork() returns to it. */
	ck_assert_int_eq(read(here[0], &byte, 1), 1);
	adapter_down(&rig.of);
	rig_open(&rig, "");
	ck_assert_int_eq(close(gate[1]), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_eq(close(gate[0]), 0);
}
END_TEST

START_TEST(shared_users_do_not_exclude_each_other_but_a_private_one)
{
	struct rig second = {.folder = rig.folder}, third = {.folder = rig.folder};

	rig_open(&rig, "?shared=1");
	rig_open(&second, "?shared=1");
	ck_assert_int_eq(rig_try_open(&third, ""), SCOUT_ERR_SYSTEM);
	ck_assert(strstr(third.err, "shared=1"));
	adapter_down(&second.of);
}
END_TEST

/* ---- rights ---- */

START_TEST(a_folder_that_cannot_be_written_is_told)
{
	char *plain = rig.folder;
	int code;

	rig.folder = inside("theirs");
	ck_assert_int_eq(mkdir(rig.folder, 0755), 0);
	ck_assert_int_eq(chmod(plain, 0755), 0);
	/* Root may write everything. */
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	else
		ck_assert_int_eq(chmod(rig.folder, 0555), 0);
	code = rig_try_open(&rig, "");
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_msg(code == SCOUT_ERR_PERMISSION, "%d: %s", code, rig.err);
	ck_assert(strstr(rig.err, rig.folder));
	free(rig.folder);
	rig.folder = plain;
}
END_TEST
