/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"
#include "l2_old_object.h"

/*
 * A folder that holds objects of the release before: none is served, none is removed without its owner's wish, and where room is
 * short they go first.
 */

#define FILE_BYTES (4096u + OLD_OBJECT_PAYLOAD)

static struct rig rig;
static char *old_path;

static void
put_file(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(close(fd), 0);
}

/* The old object, in the folder that an adapter has made. @flip: a byte of it that is damaged; -1: none. */
static void
put_old(int flip)
{
	uint8_t bytes[FILE_BYTES] = {0};
	char *folder;

	old_object_header(bytes);
	old_object_payload(bytes + 4096);
	if (flip >= 0)
		bytes[flip] ^= 1;
	ck_assert_int_gt(asprintf(&folder, "%s/%.2s", rig.folder, OLD_OBJECT_DIGEST), 0);
	ck_assert(mkdir(folder, 0700) == 0 || errno == EEXIST);
	free(folder);
	ck_assert_int_gt(asprintf(&folder, "%s/%.2s/%.2s", rig.folder, OLD_OBJECT_DIGEST, &OLD_OBJECT_DIGEST[2]), 0);
	ck_assert(mkdir(folder, 0700) == 0 || errno == EEXIST);
	ck_assert_int_gt(asprintf(&old_path, "%s/" OLD_OBJECT_DIGEST, folder), 0);
	free(folder);
	put_file(old_path, bytes, sizeof(bytes));
}

static void
setup(void)
{
	rig_init(&rig, true);
	rig_open(&rig, "");
	adapter_down(&rig.of);
}

static void
teardown(void)
{
	free(old_path);
	rig_fini(&rig);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(an_object_of_the_former_format_stays_and_is_not_served)
{
	const struct scout__l2_key new_key = rig_key(1);
	struct stat before, after;
	char *new_path;

	put_old(-1);
	ck_assert_int_eq(stat(old_path, &before), 0);
	for (int start = 0; start < 2; start++) {
		rig_open(&rig, "");
		ck_assert_msg(adapter_logged(&rig.of, "1 objects of 0 MiB are of another format"), "%s", rig.of.text);
		ck_assert_msg(adapter_logged(&rig.of, "set remove_old=1"), "%s", rig.of.text);
		/* Its space counts. */
		ck_assert_uint_ge(rig_gauges(&rig).bytes, FILE_BYTES);
		ck_assert(!rig_exists(&rig, 1, false));
		ck_assert_int_eq(rig_load(&rig, 2, 100), SCOUT__L2_ABSENT);
		ck_assert_int_eq(rig_store(&rig, 1, 100), SCOUT__L2_OK);
		ck_assert_int_eq(rig_load(&rig, 1, 100), SCOUT__L2_OK);
		adapter_down(&rig.of);
		ck_assert_int_eq(stat(old_path, &after), 0);
		ck_assert(before.st_ino == after.st_ino && before.st_size == after.st_size);
		ck_assert_mem_eq(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
		new_path = rig_path(&rig, &new_key);
		ck_assert_int_eq(unlink(new_path), 0);
		free(new_path);
	}
}
END_TEST

START_TEST(where_room_is_short_it_goes_first)
{
	put_old(-1);
	/* Newer than all that is stored: a format that cannot be read is the oldest all the same. */
	rig_open(&rig, "");
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_store(&rig, i, 100), SCOUT__L2_OK);
	adapter_down(&rig.of);
	ck_assert_int_eq(utimensat(AT_FDCWD, old_path, NULL, 0), 0);
	rig_open(&rig, "?max_bytes=40Ki"); /* four of 8 KiB, and the old one of 8 */
	ck_assert_int_eq(access(old_path, F_OK), 0);
	ck_assert_int_eq(rig_store(&rig, 4, 100), SCOUT__L2_OK);
	ck_assert_int_ne(access(old_path, F_OK), 0);
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(rig_load(&rig, i, 100), SCOUT__L2_OK);
	rig_check_folder(&rig, 5);
}
END_TEST

START_TEST(its_owner_may_have_it_removed)
{
	put_old(-1);
	rig_open(&rig, "?remove_old=1");
	ck_assert_msg(adapter_logged(&rig.of, "are of another format, as an upgrade leaves them: removed"), "%s",
		      rig.of.text);
	ck_assert_int_ne(access(old_path, F_OK), 0);
	ck_assert_uint_eq(rig_gauges(&rig).bytes, 0);
	rig_check_folder(&rig, 0);
}
END_TEST

/* What a crash has left of it is no object of another format. */
START_TEST(a_damaged_one_is_a_leftover)
{
	put_old(60);
	rig_open(&rig, "");
	ck_assert_int_ne(access(old_path, F_OK), 0);
	ck_assert(0 == adapter_logged(&rig.of, "another format"));
	rig_check_folder(&rig, 0);
}
END_TEST
