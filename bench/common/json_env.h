/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "hist.h"

/*
 * JSON that all tools share. Functions that make a value return a new reference, NULL when memory is out; jansson's
 * setters take NULL and fail, so one check at the end is enough: json_write_file() refuses NULL.
 */

/*
 * What a number depends on: version, revision, build type, sanitizer, compiler, kernel, CPU, cores, governor, time.
 * Strings that cannot be found out are "unknown".
 */
json_t *json_env(void);

/* The same for one line of a picture: revision, build, CPU, kernel, time. */
void json_env_line(char *buf, size_t len);

/* {n, min, p50, p90, p99, p999, max}; all but n are null while it is empty. */
json_t *json_hist(const struct scout__hist *hist);

/*
 * Whether this build's numbers mean nothing: not optimised, with assertions of a debug build, or with a sanitizer.
 * *ret_why is static.
 */
bool json_env_is_slow_build(const char **ret_why);

/* To a file, or to standard output for "-". Takes the reference. Returns 0, or -1 and a sentence in @err. */
int json_write_file(json_t *value, const char *path, char *err, size_t err_len);
