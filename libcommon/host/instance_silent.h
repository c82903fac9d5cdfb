/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "instance_paths.h"
#include "thread.h"

/*
 * Write @what, then which server of @instance it is about, its state, and what to do. False: no server serves there, and @text
 * is as it was. Reads two small files.
 */
SCOUT_ON_ANY bool scout__instance_explain(const struct scout__instance *instance, const char *what, char *text,
					  size_t len);
