/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "mask.h"
#include "secret.h"

/* What of a text with passwords is shown, and which files of secrets are accepted. */

static const struct {
	const char *text, *shown;
} masks[] = {
	{"", ""},
	{"no url", "no url"},
	{"redis://u:secret@h:1,i:2?ttl=1", "redis://u:***@h:1,i:2?ttl=1"},
	{"redis://:s@h", "redis://:***@h"},
	{"redis://secret@h", "redis://***@h"},
	{"redis://u:secret/secret@secret@h", "redis://u:***@h"},
	{"redis://h:1,[::1]:2,i", "redis://h:1,[::1]:2,i"},
	{"fs:///a:b@c", "fs:///a:b@c"},
	{"l2=redis://u:secret@h l1_bytes=1 l2=rediss://u:secret@i metrics=h:1",
	 "l2=redis://u:***@h l1_bytes=1 l2=rediss://u:***@i metrics=h:1"},
	{"[\"redis://u:secret@h\",\"redis://u:secret@i\"]", "[\"redis://u:***@i\"]"},
	{"tcp://h:1\nredis://u:secret@h", "tcp://h:1\nredis://u:***@h"},
};

START_LOOP_TEST(a_password_is_not_shown, 0, sizeof(masks) / sizeof(masks[0]))
{
	char buf[256], small[12];

	scout__mask(masks[_i].text, buf, sizeof(buf));
	ck_assert_str_eq(buf, masks[_i].shown);
	scout__mask(masks[_i].text, small, sizeof(small)); /* cut, and terminated */
	ck_assert_int_eq(strncmp(small, masks[_i].shown, sizeof(small) - 1), 0);
	ck_assert_uint_lt(strlen(small), sizeof(small));
}
END_TEST

static char path[64], err[512];

static void
make_file(void)
{
	FILE *file;

	(void)snprintf(path, sizeof(path), "/tmp/kvscout-secret-%d", (int)getpid());
	(void)unlink(path);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fclose(file), 0);
}

static void
remove_file(void)
{
	(void)unlink(path);
}

/* As SCOUT_ERR_*, or 0. */
static int
judge(void)
{
	int fd = scout__secret_open("the file", path, SCOUT_ERR_FORMAT, err, sizeof(err));

	if (fd < 0)
		return fd;
	ck_assert_int_eq(close(fd), 0);
	return 0;
}

CHECKED_FIXTURE(make_file, remove_file);

START_TEST(others_have_no_rights_on_a_secret)
{
	static const mode_t bad[] = {0604, 0601, 0602, 0644, 0666}, good[] = {0600, 0400, 0700};

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_int_eq(chmod(path, good[i]), 0);
		ck_assert_int_eq(judge(), 0);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(chmod(path, bad[i]), 0);
		ck_assert_int_eq(judge(), SCOUT_ERR_PERMISSION);
	}
	ck_assert_ptr_nonnull(strstr(err, "has mode 0666, owner "));
	ck_assert_ptr_nonnull(strstr(err, "chmod 600"));
}
END_TEST

/* Kubernetes mounts root:fsGroup 0440, with the group among the process's, through a link. */
START_TEST(a_group_has_rights_if_the_process_is_in_it)
{
	const gid_t own = 54321;
	char link[80];

	if (geteuid() != 0) {
		printf("# SKIP only root can give a file to another group\n");
		return;
	}
	ck_assert_int_eq(chmod(path, 0440), 0);
	ck_assert_int_eq(chown(path, 0, own), 0);
	ck_assert_int_eq(judge(), SCOUT_ERR_PERMISSION);
	ck_assert_int_eq(setgroups(1, &own), 0);
	(void)snprintf(link, sizeof(link), "%s-link", path);
	ck_assert_int_eq(symlink(path, link), 0);
	ck_assert_int_eq(seteuid(12345), 0);
	ck_assert_int_eq(judge(), 0);
	(void)snprintf(path, sizeof(path), "/tmp/kvscout-secret-%d-link", (int)getpid());
	ck_assert_int_eq(judge(), 0);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chown(path, 12346, own), 0);
	ck_assert_int_eq(judge(), SCOUT_ERR_PERMISSION); /* of another user */
	remove_file();
	(void)snprintf(path, sizeof(path), "/tmp/kvscout-secret-%d", (int)getpid());
}
END_TEST

START_TEST(what_is_no_file_is_refused_at_once)
{
	static const char *const odd[] = {"/dev/zero", "/tmp", "/tmp/kvscout-secret-nowhere"};

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(scout__regular_open("key file", odd[i], SCOUT_ERR_FORMAT, err, sizeof(err)),
				 SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, "key file /tmp/kvscout-secret-nowhere cannot be read (No such file"));
	remove_file();
	ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes: it would be waited for */
	ck_assert_int_eq(judge(), SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, "must be a regular file"));
}
END_TEST
