/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include <kvscout/server.h>

#include "option.h"

#define SCOUT__L2_STORES_MAX 4u /* URLs of the key l2 */

extern const struct scout__option_table scout__server_options;

/*
 * Take the user's configuration into @dst: defaults filled in, ranges checked, strings copied. On success @dst is
 * ended by scout_server_config_fini(). Returns 0 or a code of scout_server_start(), with a sentence in @err.
 */
int scout__server_config_accept(struct scout_server_config *dst, const struct scout_server_config *src, char *err,
				size_t err_len);
