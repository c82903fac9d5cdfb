/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>
#include <stddef.h>

#include "thread.h"

/*
 * Find kvscoutd: @given (the key server_program) if it is not NULL; else next to this library or extension, in the
 * folders of an installation around it (../bin, ../../bin, ../libexec, ../../libexec), then in PATH. @path has PATH_MAX
 * bytes and is written on success. Returns 0 or SCOUT_ERR_FORMAT; @err says where we looked.
 */
SCOUT_ON_ANY int scout__program_find(const char *given, char *path, char *err, size_t err_len);
