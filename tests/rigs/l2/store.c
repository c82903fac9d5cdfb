/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_main.h"
#include "files.h"
#include "l2_folder.h"
#include "object.h"
#include "plugin.h"

/* The table of store.h, and the stores that are folders. Threads: the test's. */

static char *folder;

static void
start_files(char ret_url[STORE_URL])
{
	folder = l2_folder_make(true);
	(void)snprintf(ret_url, STORE_URL, "fs://%s", folder);
}

static void
start_plugin(char ret_url[STORE_URL])
{
	folder = l2_folder_make(true);
	(void)snprintf(ret_url, STORE_URL, "plugin://%s?folder=%s", getenv("KVSCOUT_FOLDER_STORE"), folder);
}

static void
stop(void)
{
	l2_folder_remove(folder);
	free(folder);
}

/* The adapter of files has two levels of folders, the plugin none. */
static const char *
path_of(struct scout__l2_digest digest)
{
	static char path[STORE_URL];
	char name[33];

	scout__l2_digest_text(digest, name);
	if (store_of_this_run()->adapter == &scout__l2_files)
		(void)snprintf(path, sizeof(path), "%s/%.2s/%.2s/%s", folder, name, name + 2, name);
	else
		(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static int64_t
get(struct scout__l2_digest digest, uint8_t *bytes, size_t size)
{
	int fd = open(path_of(digest), O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, bytes, size);
	ck_assert(n >= 0 && (size_t)n < size);
	(void)close(fd);
	return n;
}

static void
put(struct scout__l2_digest digest, const uint8_t *bytes, size_t n)
{
	int fd = open(path_of(digest), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(close(fd), 0);
}

#define STORE_FOLDER                                                                                                   \
	.each = 7, .many = 1000, .is_atomic = true, .sees_gaps = true, .run = run_suite, .stop = stop, .get = get,     \
	.put = put

static const struct test_store store_files = {.name = "files",
					      .adapter = &scout__l2_files,
					      .payload_at = 4096,
					      .looks_again = true,
					      .shared = "?shared=1&threads=2",
					      .start = start_files,
					      STORE_FOLDER};

static const struct test_store store_plugin = {.name = "plugin",
					       .adapter = &scout__l2_plugin,
					       .payload_at = SCOUT__L2_HEADER_BYTES,
					       .keeps_formats = true,
					       .shared = "",
					       .start = start_plugin,
					       STORE_FOLDER};

/* ---- the table ---- */

static const struct test_store *const stores[] = {
	&store_files,  &store_plugin,
#ifdef HAVE_HIREDIS
	&store_redis,
#endif
#ifdef HAVE_LIBSSL
	&store_rediss,
#endif
#ifdef HAVE_S3
	&store_s3,
#endif
};

const struct test_store *
store_of_this_run(void)
{
	const char *name = getenv("KVSCOUT_STORE");

	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
		if (strcmp(stores[i]->name, name ? name : "files") == 0)
			return stores[i];
	(void)printf("1..0 # SKIP built without %s\n", name);
	exit(EXIT_SUCCESS);
}

int
store_main(void)
{
	return store_of_this_run()->run(suite_of_this_file());
}
