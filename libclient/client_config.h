/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include <kvscout/client.h>

#include "option.h"

#define SCOUT__ENDPOINTS_MAX 64u /* servers of one client */

extern const struct scout__option_table scout__client_options;

/*
 * Take the user's configuration into @dst: defaults filled in, ranges checked, strings copied. On success @dst is
 * ended by scout_client_config_fini(). Returns 0 or a code of scout_client_new(), with a sentence in @err.
 */
int scout__client_config_accept(struct scout_client_config *dst, const struct scout_client_config *src, char *err,
				size_t err_len);
