/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters.h"

#include <stddef.h>

const struct scout__l2_adapter *const scout__l2_adapters[] = {
	&scout__l2_files,
#ifdef HAVE_HIREDIS
	&scout__l2_redis,
#endif
	NULL,
};
