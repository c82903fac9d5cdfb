/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_FILES_H
#define SCOUT_L2_FILES_H

#include <stddef.h>

#include "l2.h"

/* The files adapter, as the rooms above see it: fs:///path?options. See files.c for its design. */

extern const struct scout__l2_adapter scout__l2_files;

/* The options of a fs:// URL as a Markdown table; returns the full length as snprintf() does. */
size_t scout__files_options_help(char *buf, size_t len);

#endif
