/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"
#include "waiting.h"

/*
 * What happens to a file behind the adapter's back, where the catalogue, the pins or the scan have to notice (l2_stores has what a load
 * notices in any store): what is not good leaves the catalogue and the disk, and the same key can be stored again.
 */

#define OBJECT_BYTES 100u
#define FILE_BYTES (4096u + OBJECT_BYTES)

static struct rig rig;
static struct scout__l2_key key;
static char *path;
static uint8_t original[FILE_BYTES];

static void
put_file(const char *to, const void *bytes, size_t n)
{
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(close(fd), 0);
}

static void
setup(void)
{
	int fd;

	rig_init(&rig, true);
	rig_open(&rig, "?threads=1");
	key = rig_key(1);
	path = rig_path(&rig, &key);
	ck_assert_int_eq(rig_store(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(read(fd, original, FILE_BYTES), FILE_BYTES);
	ck_assert_int_eq(close(fd), 0);
}

static void
teardown(void)
{
	free(path);
	rig_fini(&rig);
}

/* Gone from disk and catalogue, and stored again it is as good as new. */
static void
check_gone_and_heals(void)
{
	ck_assert(!rig_exists(&rig, 1, false));
	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_ABSENT);
	ck_assert_uint_eq(rig_gauges(&rig).bytes, 0);
	ck_assert_int_eq(rig_store(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_file_deleted_between_exists_and_load_is_absent)
{
	ck_assert(rig_exists(&rig, 1, true));
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_ABSENT);
	check_gone_and_heals();
	/* The pin of the reader that saw the first one is not one of the second. */
	rig_unpin(&rig, 1);
	ck_assert_uint_eq(rig_gauges(&rig).pinned, 0);
}
END_TEST

START_TEST(a_pin_is_kept_apart_from_those_of_an_earlier_object)
{
	adapter_down(&rig.of);
	rig_open(&rig, "?threads=1&max_bytes=12Ki");
	ck_assert(rig_exists(&rig, 1, true)); /* reader A */
	ck_assert_int_eq(truncate(path, 10), 0);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_CORRUPT);
	ck_assert_int_eq(rig_store(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert(rig_exists(&rig, 1, true)); /* reader B */
	rig_unpin(&rig, 1);                   /* A */
	ck_assert_int_eq(rig_store(&rig, 2, OBJECT_BYTES), SCOUT__L2_FULL);
	ck_assert(rig_exists(&rig, 1, false));
	rig_unpin(&rig, 1); /* B */
	ck_assert_int_eq(rig_store(&rig, 2, OBJECT_BYTES), SCOUT__L2_OK);
}
END_TEST

START_LOOP_TEST(what_is_no_file_is_never_served, 0, 3)
{
	ck_assert_int_eq(unlink(path), 0);
	if (_i == 0)
		ck_assert_int_eq(symlink("/dev/zero", path), 0);
	else if (_i == 1)
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	else
		ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_CORRUPT);
	check_gone_and_heals();
}
END_TEST

/* The same, found by the scan. */
START_TEST(damage_that_is_found_at_the_start_is_removed_and_counted)
{
	static const char *const names[] = {"foreign.txt", "README", "ab", "tmp/foreign"};
	struct scout__l2_key second = rig_key(2), third = rig_key(3);
	char *second_path = rig_path(&rig, &second), *third_path = rig_path(&rig, &third), *text;
	struct scout__l2_gauges gauges;
	uint8_t bytes[FILE_BYTES];

	ck_assert_int_eq(rig_store(&rig, 2, 5000), SCOUT__L2_OK);
	ck_assert_int_eq(rig_store(&rig, 3, 5000), SCOUT__L2_OK);
	adapter_down(&rig.of);
	ck_assert_int_eq(truncate(second_path, 4096), 0);
	ck_assert_int_eq(truncate(third_path, 0), 0);
	/* A good object, but under a name that is not its own, in the right folder. */
	memcpy(bytes, original, sizeof(bytes));
	path[strlen(path) - 1] ^= 1;
	put_file(path, bytes, sizeof(bytes));
	path[strlen(path) - 1] ^= 1;
	/* And one under its own name in another's folder. */
	text = strdup(second_path);
	ck_assert_ptr_nonnull(text);
	memcpy(strrchr(text, '/') + 1, strrchr(path, '/') + 1, 32);
	put_file(text, bytes, sizeof(bytes));
	free(text);
	ck_assert_int_gt(asprintf(&text, "%s/tmp/0123456789abcdef-1f", rig.folder), 0);
	put_file(text, "half", 4);
	free(text);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_gt(asprintf(&text, "%s/%s", rig.folder, names[i]), 0);
		if (i == 2)
			(void)mkdir(text, 0700);
		else
			put_file(text, "not yours", 9);
		free(text);
	}
	ck_assert_int_gt(asprintf(&text, "%s/ab/notes", rig.folder), 0);
	put_file(text, "not yours", 9);
	rig_open(&rig, "");
	gauges = rig_gauges(&rig);
	ck_assert_uint_eq(gauges.recovered, 1);
	ck_assert_uint_eq(gauges.leftover, 5);
	ck_assert_uint_eq(gauges.objects, 1);
	ck_assert(adapter_logged(&rig.of, "was not made by kvscout; it stays in place"));
	ck_assert(adapter_logged(&rig.of, "1 objects of 0 MiB taken over, 5 leftovers of a crash removed, 4 foreign"));
	ck_assert_int_eq(access(text, F_OK), 0);
	ck_assert_int_eq(access(second_path, F_OK), -1);
	ck_assert_int_eq(access(third_path, F_OK), -1);
	ck_assert_int_eq(rig_load(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_store(&rig, 2, 5000), SCOUT__L2_OK);
	free(text);
	free(second_path);
	free(third_path);
}
END_TEST

START_TEST(a_flipped_bit_in_a_header_is_found_at_the_start)
{
	for (unsigned at = 0; at < SCOUT__L2_HEADER_BYTES; at += 3) {
		uint8_t bytes[FILE_BYTES];

		adapter_down(&rig.of);
		memcpy(bytes, original, sizeof(bytes));
		bytes[at] ^= (uint8_t)(1u << at % 8);
		put_file(path, bytes, sizeof(bytes));
		rig_open(&rig, "");
		ck_assert_uint_eq(rig_gauges(&rig).recovered, 0);
		ck_assert_uint_eq(rig_gauges(&rig).leftover, 1);
		rig_check_folder(&rig, 0);
		ck_assert_int_eq(rig_store(&rig, 1, OBJECT_BYTES), SCOUT__L2_OK);
	}
}
END_TEST

/* A file comes into the folder by hand under the name of an object that is then stored. */
START_TEST(a_store_that_meets_a_file_keeps_a_good_one_and_replaces_another)
{
	struct scout__l2_key other = rig_key(7);
	uint8_t data[OBJECT_BYTES], bytes[FILE_BYTES] = {0};
	char *other_path = rig_path(&rig, &other);

	/* So that the folders are there. */
	ck_assert_int_eq(rig_store(&rig, 7, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(unlink(other_path), 0);
	ck_assert_int_eq(rig_load(&rig, 7, OBJECT_BYTES), SCOUT__L2_ABSENT);
	put_file(other_path, "garbage", 7);
	ck_assert(!rig_exists(&rig, 7, false));
	ck_assert_int_eq(rig_store(&rig, 7, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_load(&rig, 7, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(unlink(other_path), 0);
	ck_assert_int_eq(rig_load(&rig, 7, OBJECT_BYTES), SCOUT__L2_ABSENT);
	object_fill(data, sizeof(data), 7);
	scout__l2_header_put(bytes, &other, sizeof(data), scout__l2_sum(data, sizeof(data)));
	memcpy(bytes + 4096, data, sizeof(data));
	put_file(other_path, bytes, sizeof(bytes));
	ck_assert_int_eq(rig_store(&rig, 7, OBJECT_BYTES), SCOUT__L2_PRESENT);
	ck_assert(rig_exists(&rig, 7, false));
	ck_assert_int_eq(rig_load(&rig, 7, OBJECT_BYTES), SCOUT__L2_OK);
	rig_check_folder(&rig, 2);
	free(other_path);
}
END_TEST

START_TEST(folders_that_somebody_removed_are_made_again)
{
	l2_folder_remove(rig.folder); /* all of it: what is open still is a folder, but not in any other */
	wait_until(rig_store(&rig, 2, OBJECT_BYTES) == SCOUT__L2_OK)
		;
	for (const char *const *name = (const char *const[]){"tmp", NULL}; *name; name++) {
		char *text;

		ck_assert_int_gt(asprintf(&text, "%s/%s", rig.folder, *name), 0);
		l2_folder_remove(text);
		free(text);
	}
	ck_assert_int_eq(rig_store(&rig, 3, OBJECT_BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_load(&rig, 3, OBJECT_BYTES), SCOUT__L2_OK);
}
END_TEST
