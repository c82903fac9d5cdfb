/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include <kvscout/worker.h>

#include "option.h"

#define SCOUT__MAX_JOBS 65536u /* the largest max_jobs */

extern const struct scout__option_table scout__worker_options;

/*
 * Take the user's configuration into @dst: defaults filled in, ranges checked, strings copied. On success @dst is
 * ended by scout_worker_config_fini(). Returns 0 or a code of scout_worker_new(), with a sentence in @err.
 */
int scout__worker_config_accept(struct scout_worker_config *dst, const struct scout_worker_config *src, char *err,
				size_t err_len);
