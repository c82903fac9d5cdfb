/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_fault.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_main.h"
#include "clock.h"
#include "l2.h"
#include "l2_adapters.h"
#include "object.h"
#include "waiting.h"

/* The layer of faults over the files adapter and a real folder: each rule does what it says, and only that. */

#define BYTES 100000u

static char home[64];
static struct l2_fault_control *control;
static struct scout__l2 *l2;
static uint8_t data[BYTES], loaded[BYTES];
static struct scout__l2_key keys[8];
static struct scout__l2_op op;
static uint8_t found;
static bool is_done;

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void
setup(void)
{
	struct scout__l2_fingerprint fingerprint = {{1}};
	static const struct scout__log log;
	char url[512], path[256], err[512] = "";
	const char *urls[] = {url};

	snprintf(home, sizeof(home), "/tmp/kvscout-test-l2-fault-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(home));
	snprintf(path, sizeof(path), "%s/control", home);
	control = l2_fault_map(path);
	snprintf(url, sizeof(url), "fault+fs://%s/l2?threads=1&control=%s", home, path);
	scout__enter_loop();
	ck_assert_msg(scout__l2_new(scout__l2_adapters, urls, 1, 1000, 8, &log, &l2, err, sizeof(err)) == 0, "%s", err);
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	for (uint8_t i = 0; i < 8; i++) {
		uint8_t hash[32] = {i};

		scout__l2_key_make(&keys[i], &fingerprint, 1, 0, 0, hash, 32, NULL, 0);
	}
}

static void
teardown(void)
{
	scout__enter_loop();
	ck_assert(scout__l2_stop(l2, 5000));
	scout__l2_free(l2);
	ck_assert_int_eq(nftw(home, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void
on_done(void *user, struct scout__l2_op *ended)
{
	(void)user;
	(void)ended;
	is_done = true;
}

static void
begin(enum scout__l2_what what, unsigned key)
{
	scout__enter_loop();
	is_done = false;
	memset(loaded, 0, sizeof(loaded));
	op = (struct scout__l2_op){
		.what = (uint8_t)what,
		.timeout_us = wait_limit_ms() * UINT64_C(1000),
		.n = 1,
		.digests = &keys[key].digest,
		.found = &found,
		.key = &keys[key],
		.data = what == SCOUT__L2_STORE ? data : loaded,
		.bytes = BYTES,
		.done = on_done,
	};
	scout__l2_submit(l2, 0, &op, scout__now_us());
}

static enum scout__l2_result
finish(void)
{
	struct pollfd fd = {.fd = scout__l2_fd(l2), .events = POLLIN};

	scout__enter_loop();
	while (!is_done) {
		ck_assert_int_eq(poll(&fd, 1, wait_limit_ms()), 1);
		(void)scout__l2_reap(l2, 8, scout__now_us());
	}
	return (enum scout__l2_result)op.result;
}

static enum scout__l2_result
one(enum scout__l2_what what, unsigned key)
{
	begin(what, key);
	return finish();
}

static void
check_round_trip(unsigned key)
{
	ck_assert_int_eq(one(SCOUT__L2_STORE, key), SCOUT__L2_OK);
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, key), SCOUT__L2_OK);
	ck_assert_uint_eq(found, 1);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, key), SCOUT__L2_OK);
	ck_assert_mem_eq(data, loaded, BYTES);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(without_rules_everything_passes)
{
	check_round_trip(0);
	ck_assert_uint_eq(control->ops[SCOUT__L2_LOAD].passed, 1);
	ck_assert_uint_eq(control->ops[SCOUT__L2_LOAD].hits, 0);
	ck_assert_uint_eq(control->disk.hits, 0);
}
END_TEST

START_TEST(operations_are_late_fail_or_hang)
{
	struct l2_fault_rule *rule = &control->ops[SCOUT__L2_LOAD];
	uint64_t begin_us;

	check_round_trip(0);
	rule->delay_ms = 30;
	begin_us = scout__now_us();
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_OK);
	ck_assert_uint_ge(scout__now_us() - begin_us, 29000);
	rule->delay_ms = 0;
	rule->fail = 1 + SCOUT__L2_ERROR;
	rule->detail = EIO;
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_ERROR);
	ck_assert_int_eq(op.detail, EIO);
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, 0), SCOUT__L2_OK);
	rule->fail = 0;
	rule->hang = 1;
	begin(SCOUT__L2_LOAD, 0);
	wait_until(rule->hits >= 3)
		;
	ck_assert_uint_eq(rule->passed, 2);
	rule->hang = 0;
	ck_assert_int_eq(finish(), SCOUT__L2_OK);
	/* What hangs when all stops is cancelled. */
	rule->hang = 1;
	begin(SCOUT__L2_LOAD, 0);
}
END_TEST

START_TEST(a_disk_that_cannot_be_read_brings_nothing)
{
	check_round_trip(0);
	control->disk.read_errno = EIO;
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_ERROR);
	ck_assert_int_eq(op.detail, EIO);
	ck_assert_uint_gt(control->disk.hits, 0);
	control->disk.read_errno = 0;
	check_round_trip(1);
}
END_TEST

START_TEST(a_disk_that_brings_less_or_other_bytes_is_noticed)
{
	static const uint64_t flips[] = {1, 100, 512, 4097, 50000, 4096 + BYTES};

	check_round_trip(0);
	control->disk.read_end = 1 + 5000;
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_CORRUPT);
	control->disk.read_end = 0;
	for (unsigned i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
		uint64_t hits = control->disk.hits;

		check_round_trip(1 + i);
		control->disk.read_flip = flips[i];
		ck_assert_int_eq(one(SCOUT__L2_LOAD, 1 + i), SCOUT__L2_CORRUPT);
		ck_assert_uint_gt(control->disk.hits, hits);
		control->disk.read_flip = 0;
	}
}
END_TEST

START_TEST(a_disk_that_lands_other_bytes_is_noticed)
{
	control->disk.write_flip = 1 + 60000;
	ck_assert_int_eq(one(SCOUT__L2_STORE, 0), SCOUT__L2_OK);
	ck_assert_uint_gt(control->disk.hits, 0);
	control->disk.write_flip = 0;
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_CORRUPT);
	check_round_trip(1);
}
END_TEST

START_TEST(a_disk_that_is_full_in_the_middle_keeps_nothing)
{
	control->disk.write_errno = ENOSPC;
	control->disk.write_room = 50000;
	ck_assert_int_eq(one(SCOUT__L2_STORE, 0), SCOUT__L2_FULL);
	ck_assert_int_eq(op.detail, ENOSPC);
	ck_assert_uint_gt(control->disk.hits, 0);
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, 0), SCOUT__L2_OK);
	ck_assert_uint_eq(found, 0);
	control->disk.write_errno = 0;
	check_round_trip(0);
}
END_TEST

START_TEST(a_folder_that_is_read_only_is_still_read)
{
	check_round_trip(0);
	control->disk.change_errno = EROFS;
	ck_assert_int_eq(one(SCOUT__L2_STORE, 1), SCOUT__L2_ERROR);
	ck_assert_int_eq(op.detail, EROFS);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, 0), SCOUT__L2_OK);
	control->disk.change_errno = 0;
	check_round_trip(1);
}
END_TEST
