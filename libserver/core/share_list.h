/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The keys tenant_share and namespace_share: lists of NAME:PERCENT%. In tenant_share, an item without a name is for
 * requests without a tenant, and the name * for each tenant that has no item. Any thread; only the arguments are touched.
 */

#define SCOUT__SHARE_ITEMS 101u /* 100 of 1 %, and * */

struct scout__share {
	const char *name; /* not terminated */
	uint32_t name_len;
	uint32_t percent;
};

struct scout__share_list {
	struct scout__share *items; /* owned, with text; NULL: none */
	uint32_t n;
	uint32_t others; /* percent of the item *, which is not among them; 0: none */
	const char **text;
};

/* For option->check_item. Returns 0 or SCOUT_ERR_CONFIG_SYNTAX. */
int scout__share_check_item(const char *key, const char *item, char *err, size_t err_len);
/*
 * The shares of @list (NULL: none) for scout__shares_fini(). Returns 0, or with a sentence in @err: SCOUT_ERR_CONFIG_SYNTAX
 * (an item), SCOUT_ERR_CONFIG_RANGE (more than 100 % together, a name that occurs twice, too many items),
 * SCOUT_ERR_NOMEM.
 */
int scout__shares_parse(const char *key, const char *list, struct scout__share_list *ret, char *err, size_t err_len);
void scout__shares_fini(struct scout__share_list *shares);
/* The percentage of a name that has an item; 0: it has none. */
uint32_t scout__shares_find(const struct scout__share_list *shares, const char *name, size_t len);
