/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"
#include "waiting.h"

/* shared=1: two adapters on one folder, as two nodes on a parallel file system. */

#define BYTES 4096u /* 8 KiB on disk */

static struct rig rig, other;

static void
setup(void)
{
	rig_init(&rig, false);
	memset(&other, 0, sizeof(other));
	other.folder = rig.folder;
}

static void
teardown(void)
{
	if (other.of.adapter)
		adapter_down(&other.of);
	rig_fini(&rig);
}

static void
open_both(const char *query)
{
	rig_open(&rig, query);
	rig_open(&other, query);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(what_one_stores_another_finds)
{
	open_both("?shared=1");
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert(!rig_exists(&other, i, true));
		ck_assert_int_eq(rig_store(&rig, i, BYTES + i), SCOUT__L2_OK);
		ck_assert(rig_exists(&other, i, true));
		ck_assert_int_eq(rig_load(&other, i, BYTES + i), SCOUT__L2_OK);
		ck_assert_int_eq(rig_store(&other, i, BYTES + i), SCOUT__L2_PRESENT);
	}
	ck_assert_uint_eq(rig_gauges(&rig).objects, UINT64_MAX);
	rig_check_folder(&rig, 50);
}
END_TEST

START_TEST(a_file_that_another_removed_is_absent_and_can_be_stored_again)
{
	struct scout__l2_key key = rig_key(1);
	char *path = rig_path(&rig, &key);

	for (unsigned with_limit = 0; with_limit < 2; with_limit++) {
		open_both(with_limit ? "?shared=1&max_bytes=1Mi" : "?shared=1");
		ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
		ck_assert(rig_exists(&rig, 1, true));
		ck_assert_int_eq(unlink(path), 0);
		ck_assert_int_eq(rig_load(&rig, 1, BYTES), SCOUT__L2_ABSENT);
		ck_assert(!rig_exists(&rig, 1, false));
		ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
		/* Not asked for in between: the catalogue believes in it, the file system is believed. */
		ck_assert_int_eq(unlink(path), 0);
		ck_assert(!rig_exists(&rig, 1, false));
		ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
		ck_assert_int_eq(rig_load(&other, 1, BYTES), SCOUT__L2_OK);
		ck_assert_int_eq(unlink(path), 0);
		adapter_down(&rig.of);
		adapter_down(&other.of);
	}
	free(path);
}
END_TEST

START_TEST(what_is_damaged_is_removed_for_all)
{
	struct scout__l2_key key = rig_key(1);
	char *path = rig_path(&rig, &key);

	open_both("?shared=1");
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(truncate(path, BYTES), 0);
	ck_assert_int_eq(rig_load(&other, 1, BYTES), SCOUT__L2_CORRUPT);
	ck_assert(!rig_exists(&rig, 1, false));
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_load(&other, 1, BYTES), SCOUT__L2_OK);
	free(path);
}
END_TEST

START_TEST(nothing_is_evicted_without_a_limit_and_only_its_own_with_one)
{
	open_both("?shared=1");
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_store(&other, i, BYTES), SCOUT__L2_OK);
	adapter_down(&rig.of);
	rig_open(&rig, "?shared=1&max_bytes=32Ki&threads=1");
	for (uint32_t i = 10; i < 14; i++)
		ck_assert_int_eq(rig_store(&rig, i, BYTES), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).evictions, 0);
	ck_assert(rig_exists(&rig, 10, true));
	ck_assert(rig_exists(&rig, 0, true)); /* another's: counts as well, though it is not ours to evict */
	ck_assert_int_eq(rig_store(&rig, 14, BYTES), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).evictions, 1);
	ck_assert(!rig_exists(&other, 11, false));
	ck_assert(rig_exists(&other, 10, false));
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_load(&other, i, BYTES), SCOUT__L2_OK);
	rig_unpin(&rig, 10);
	rig_unpin(&rig, 0);
	ck_assert_uint_eq(rig_gauges(&rig).pinned, 0);
	rig_check_folder(&rig, 8);
}
END_TEST

START_TEST(a_long_question_is_answered_key_by_key)
{
	enum {
		N = 1000
	};
	static struct scout__l2_digest digests[N];
	static uint8_t found[N];
	struct scout__l2_op op = {.what = SCOUT__L2_EXISTS, .n = N, .digests = digests, .found = found, .pin = true};

	open_both("?shared=1&max_bytes=1Gi&threads=5");
	for (uint32_t i = 0; i < N; i++)
		digests[i] = rig_key(i).digest;
	for (uint32_t i = 0; i < N; i += 3)
		ck_assert_int_eq(rig_store(&other, i, 100), SCOUT__L2_OK);
	memset(found, 7, sizeof(found));
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_uint_eq(found[i], i % 3 == 0);
	ck_assert_uint_eq(rig_gauges(&rig).pinned, (N + 2) / 3);
	op.what = SCOUT__L2_UNPIN;
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).pinned, 0);
	op = (struct scout__l2_op){.what = SCOUT__L2_EXISTS, .digests = digests, .found = found};
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK); /* no keys at all */
}
END_TEST

START_TEST(stopping_answers_all_questions)
{
	enum {
		N = 100,
		KEYS = 500
	};
	static struct scout__l2_digest digests[KEYS];
	static uint8_t found[N][KEYS];
	static struct scout__l2_op ops[N];
	static atomic_uint done[N];

	for (uint32_t i = 0; i < KEYS; i++)
		digests[i] = rig_key(i).digest;
	for (unsigned round = 0; round < 10; round++) {
		rig_open(&rig, "?shared=1&max_bytes=1Gi&threads=2");
		for (unsigned i = 0; i < N; i++) {
			ops[i] = (struct scout__l2_op){.what = SCOUT__L2_EXISTS,
						       .n = KEYS,
						       .digests = digests,
						       .found = found[i],
						       .pin = true};
			adapter_submit(&rig.of, &ops[i], &done[i]);
		}
		adapter_down(&rig.of);
		for (unsigned i = 0; i < N; i++)
			ck_assert(done[i] && (ops[i].result == SCOUT__L2_OK || ops[i].result == SCOUT__L2_CANCELLED));
	}
}
END_TEST

START_TEST(temporary_files_of_others_stay_until_they_are_old)
{
	char *fresh, *old;
	struct timespec long_ago[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};

	/* It makes the folders; its scan is over when it is closed. */
	rig_open(&other, "?shared=1");
	adapter_down(&other.of);
	ck_assert_int_gt(asprintf(&fresh, "%s/tmp/0000000000000001-1", rig.folder), 0);
	ck_assert_int_gt(asprintf(&old, "%s/tmp/0000000000000001-2", rig.folder), 0);
	ck_assert_int_eq(close(open(fresh, O_CREAT | O_WRONLY, 0600)), 0);
	ck_assert_int_eq(close(open(old, O_CREAT | O_WRONLY, 0600)), 0);
	ck_assert_int_eq(utimensat(AT_FDCWD, old, long_ago, 0), 0);
	rig_open(&rig, "?shared=1");
	wait_until(rig_gauges(&rig).leftover >= 1)
		;
	adapter_down(&rig.of); /* the scan is over */
	ck_assert_int_eq(access(fresh, F_OK), 0);
	ck_assert_int_eq(access(old, F_OK), -1);
	free(fresh);
	free(old);
}
END_TEST
