/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2.h"

/* The Redis adapter, as the rooms above see it: redis://host:port,host:port...?options. See redis.c for its design. */

extern const struct scout__l2_adapter scout__l2_redis;
/* The same over TLS; only in a build with libssl. */
extern const struct scout__l2_adapter scout__l2_rediss;
