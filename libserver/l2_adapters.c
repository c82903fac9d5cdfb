/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_adapters.h"

#include <stddef.h>

#include "files.h"
#include "plugin.h"
#ifdef HAVE_HIREDIS
#include "redis.h"
#endif

/* See l2_adapters.h. Threads: any; nothing here changes. */

const struct scout__l2_adapter *const scout__l2_adapters[] = {
	&scout__l2_files,
	&scout__l2_plugin,
	&scout__l2_s3,
#ifdef HAVE_HIREDIS
	&scout__l2_redis,
#endif
#ifdef HAVE_LIBSSL
	&scout__l2_rediss,
#endif
	NULL,
};
