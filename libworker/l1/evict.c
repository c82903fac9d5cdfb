/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"

#include <stddef.h>
#include <string.h>

static const struct scout__evict_ops *const policies[] = {
	&scout__evict_lru,
};

const struct scout__evict_ops *
scout__evict_find(const char *name)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
	return NULL;
}
