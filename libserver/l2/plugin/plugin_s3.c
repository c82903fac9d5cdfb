/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin_internal.h"

/*
 * s3://bucket/prefix: the plugin libkvscout-l2-s3.so, which lies beside the server, or where the libraries are installed. The
 * server does not link it, since it opens libcurl. Threads: the one that starts the server.
 */

#define LIBRARY "libkvscout-l2-s3.so"

static const char name[] = LIBRARY; /* a part of the file that the server is in */

int
scout__s3_url_parts(const struct scout__l2_url *url, struct scout_l2_option ret_options[SCOUT__S3_URL_PARTS],
		    uint32_t *ret_n, char *err, size_t err_len)
{
	if (url->password)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "s3 takes no user and password: keys come from the environment "
				   "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or from credentials=FILE");
	if (url->n_hosts != 1 || !url->hosts[0].name[0] || url->hosts[0].port)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "the bucket is missing: must be s3://bucket/prefix; a server that is not AWS is "
				   "the option endpoint=https://host:port");
	ret_options[0] = (struct scout_l2_option){"bucket", url->hosts[0].name};
	ret_options[1] = (struct scout_l2_option){"prefix", url->path + 1};
	*ret_n = strlen(url->path) > 1 ? 2 : 1;
	return 0;
}

/* The folder of @file, if the library is there. */
static bool
is_beside(const char *file, char ret_path[PATH_MAX])
{
	const char *end = strrchr(file, '/');

	/* A path that is not absolute begins in the working directory, where anybody may have put a library. */
	return file[0] == '/' && snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)(end - file), file, name) < PATH_MAX &&
	       access(ret_path, F_OK) == 0;
}

int
scout__s3_library(char **ret_path, char *err, size_t err_len)
{
	char program[PATH_MAX] = "", path[PATH_MAX];
	Dl_info self = {.dli_fname = ""};

	(void)dladdr(name, &self);
	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		program[0] = '\0';
	if (!is_beside(self.dli_fname ? self.dli_fname : "", path) && !is_beside(program, path) &&
	    !is_beside(SCOUT_LIBDIR "/", path))
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_RANGE,
			"there is no " LIBRARY " beside the server or in " SCOUT_LIBDIR
			": this kvscout was built without the headers of libcurl (Debian: libcurl4-openssl-dev), "
			"which -Ds3=enabled needs");
	*ret_path = strdup(path);
	return *ret_path ? 0 : scout__fail_no_memory(err, err_len);
}
