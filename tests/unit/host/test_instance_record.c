/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an instance's lock file: read back as written, and never half. */
#include "check_main.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "instance_record.h"

static struct scout__instance_record
example(void)
{
	return (struct scout__instance_record){
		.state = SCOUT__INSTANCE_SERVING,
		.pid = 4711,
		.wire = 7,
		.failures = 3,
		.since_ms = UINT64_C(1) << 40,
		.version = "1.2.3",
		.keys = "l1_bytes=64Gi l2=fs:///a l2=fs:///b",
	};
}

static int
file(void)
{
	int fd = memfd_create("record", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void
check_same(const struct scout__instance_record *a, const struct scout__instance_record *b)
{
	ck_assert_int_eq(a->state, b->state);
	ck_assert_int_eq(a->pid, b->pid);
	ck_assert_uint_eq(a->wire, b->wire);
	ck_assert_uint_eq(a->failures, b->failures);
	ck_assert_uint_eq(a->since_ms, b->since_ms);
	ck_assert_str_eq(a->version, b->version);
	ck_assert_str_eq(a->keys, b->keys);
}

START_TEST(what_was_written_is_read)
{
	struct scout__instance_record in = example(), out;
	int fd = file();

	ck_assert(scout__record_write(fd, &in));
	scout__record_read(fd, &out);
	check_same(&in, &out);
	/* A longer text before leaves nothing. */
	memset(in.keys, 'k', SCOUT__SERVER_KEYS_MAX);
	ck_assert(scout__record_write(fd, &in));
	scout__record_read(fd, &out);
	check_same(&in, &out);
	in = example();
	in.keys[0] = '\0';
	ck_assert(scout__record_write(fd, &in));
	scout__record_read(fd, &out);
	check_same(&in, &out);
	(void)close(fd);
}
END_TEST

START_TEST(a_text_that_is_cut_anywhere_says_nothing)
{
	struct scout__instance_record in = example(), out;
	int fd = file();
	off_t size;

	ck_assert(scout__record_write(fd, &in));
	size = lseek(fd, 0, SEEK_END);
	/* All but the last newline. */
	for (off_t cut = size - 2; cut >= 0; cut--) {
		ck_assert_int_eq(ftruncate(fd, cut), 0);
		scout__record_read(fd, &out);
		ck_assert_int_eq(out.state, SCOUT__INSTANCE_UNKNOWN);
	}
	(void)close(fd);
}
END_TEST

START_TEST(lines_of_a_later_version_are_passed_over)
{
	static const char text[] = "state = serving\ncolour = blue\nno value\npid = 12\nkeys = \nend\n";
	struct scout__instance_record out;
	int fd = file();

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	scout__record_read(fd, &out);
	ck_assert_int_eq(out.state, SCOUT__INSTANCE_SERVING);
	ck_assert_int_eq(out.pid, 12);
	ck_assert_str_eq(out.keys, "");
	(void)close(fd);
}
END_TEST
