/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Its checks of types are macros around the functions, which are not called by their names here. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/*
 * The host's libcurl, opened when the first store is: a build needs its headers only, and a Python wheel runs on hosts with
 * and without it. The functions keep their names, less "curl_".
 */

#define SCOUT__S3_CURL(X)                                                                                              \
	X(global_init)                                                                                                 \
	X(easy_init)                                                                                                   \
	X(easy_cleanup)                                                                                                \
	X(easy_setopt)                                                                                                 \
	X(easy_getinfo)                                                                                                \
	X(easy_strerror)                                                                                               \
	X(multi_init)                                                                                                  \
	X(multi_cleanup)                                                                                               \
	X(multi_setopt)                                                                                                \
	X(multi_add_handle)                                                                                            \
	X(multi_remove_handle)                                                                                         \
	X(multi_perform)                                                                                               \
	X(multi_poll)                                                                                                  \
	X(multi_info_read)                                                                                             \
	X(slist_append)                                                                                                \
	X(slist_free_all)                                                                                              \
	X(getdate)

#define SCOUT__S3_CURL_FIELD(name) __typeof__(&curl_##name) name;
struct scout__s3_curl {
	SCOUT__S3_CURL(SCOUT__S3_CURL_FIELD)
};

/* Const after scout__s3_curl_open(). */
extern struct scout__s3_curl scout__s3_curl;

/* Open libcurl, once for the process; it stays. False and a sentence in @err (may be NULL): not there, or older than 7.66. Any thread. */
bool scout__s3_curl_open(char *err, size_t err_len);
