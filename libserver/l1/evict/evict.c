/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"

#include <stdbool.h>
#include <string.h>

#include "log.h"
#include "number.h"
#include "thread.h"

/* Policies by their text, NAME[:SHARE]. Any thread. */

#define MAX_SHARE 99u

static const struct scout__evict_ops *const policies[] = {&scout__evict_hdc, &scout__evict_lru, &scout__evict_s3fifo};

#define N_POLICIES (sizeof(policies) / sizeof(policies[0]))

static const struct scout__evict_ops *
find(const char *name, size_t len)
{
	for (size_t i = 0; i < N_POLICIES; i++)
		if (strlen(policies[i]->name) == len && memcmp(policies[i]->name, name, len) == 0)
			return policies[i];
	return NULL;
}

static bool
take_args(const struct scout__evict_ops *policy, const char *text, struct scout__evict_args *args)
{
	*args = policy->defaults;
	if (*text != ':' || policy->n_args == 0)
		return *text == '\0';
	text++;
	return *text != '0' && scout__take_number(&text, MAX_SHARE, &args->share) && *text == '\0';
}

const struct scout__evict_ops *
scout__evict_parse(const char *text, struct scout__evict_args *ret_args, char *err, size_t err_len)
{
	size_t len = strcspn(text, ":");
	const struct scout__evict_ops *policy = find(text, len);
	struct scout__evict_args args;
	char all[256] = "";
	size_t used = 0;

	if (policy && take_args(policy, text + len, &args)) {
		*ret_args = args;
		return policy;
	}
	for (size_t i = 0; i < N_POLICIES; i++) {
		const char *usage = policies[i]->usage;
		size_t usage_len = strlen(usage);

		SCOUT_ASSERT(used + usage_len + 3 <= sizeof(all));
		if (used) {
			memcpy(all + used, ", ", 3);
			used += 2;
		}
		memcpy(all + used, usage, usage_len + 1);
		used += usage_len;
	}
	(void)scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
			  "eviction: \"%s\" is none of %s (SHARE: 1 to %u percent)", text, all, MAX_SHARE);
	return NULL;
}
