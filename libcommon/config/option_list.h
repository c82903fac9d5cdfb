/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "option.h"

/*
 * Lists, for all keys that hold one: blanks separate the items, and each further set of the key adds its items. Any thread.
 */

/*
 * The items of a list (NULL has none): *ret_items is an array of *ret_n, one allocation together with the text, for free().
 * Returns 0 or SCOUT_ERR_NOMEM.
 */
int scout__list_split(const char *list, const char ***ret_items, uint32_t *ret_n);

/* @list followed by the items of @more, for free(); NULL: no memory. @list may be NULL; @more without an item adds nothing. */
char *scout__list_join(const char *list, const char *more);

/*
 * Whether @list has 1 to option->max_items items and each of them is well-formed. The caller checks its length. Returns 0,
 * SCOUT_ERR_CONFIG_RANGE or option->too_many (number of items), SCOUT_ERR_CONFIG_SYNTAX or SCOUT_ERR_UNSUPPORTED (an item) or
 * SCOUT_ERR_NOMEM, with a sentence in @err.
 */
int scout__list_check(const struct scout__option *option, const char *list, char *err, size_t err_len);

/*
 * For option->check_item. They check an endpoint of a list, the only endpoint of a key, and the address on which a server listens. The
 * first two have no comma, the second no blank either. None is inproc://.
 */
int scout__list_check_endpoint(const char *key, const char *item, char *err, size_t err_len);
int scout__list_check_one_endpoint(const char *key, const char *item, char *err, size_t err_len);
int scout__list_check_listen(const char *key, const char *item, char *err, size_t err_len);

/*
 * For option->check_item: a URL may hold commas (redis://host:port,host:port is one), but no second URL after a comma. The message
 * does not repeat the item, which may hold a password.
 */
int scout__list_check_url(const char *key, const char *item, char *err, size_t err_len);
