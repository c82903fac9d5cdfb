/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_SERVER_SIZED_H
#define KVSCOUT_SERVER_SIZED_H

/*
 * What the inline calls of <kvscout/server.h> call: functions that take the sizes of their structures. That header
 * includes this one. C and C++ use the inline calls. A language that has none calls these, with the sizes of its own
 * copies of the structures. The comment of an inline call holds for its function here, too; the head of client.h
 * says which sizes are legal.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_config_row;
struct scout_server_config;

SCOUT_API void scout_server_config_init_sized(struct scout_server_config *cfg, uint32_t size);
SCOUT_API SCOUT_MUST_CHECK int scout_server_config_help_sized(size_t i, struct scout_config_row *ret_row, size_t size);

#ifdef __cplusplus
}
#endif

#endif
