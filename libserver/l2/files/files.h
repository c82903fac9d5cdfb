/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "l2.h"

/* The files adapter, as the rooms above see it: fs:///path?options. See files.c for its design. */

extern const struct scout__l2_adapter scout__l2_files;

/* Option @i of a fs:// URL; SCOUT_ERR_INVALID after the last. */
int scout__files_options_row(size_t i, struct scout_config_row *ret_row);
