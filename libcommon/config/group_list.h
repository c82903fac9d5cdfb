/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>

#include "group.h"
#include "option.h"

/*
 * The keys `group` and `hash_tokens` of client and worker: the list of the model's groups, parsed and checked. Any thread.
 */

/* The keys that the groups refer to. */
struct scout__group_keys {
	uint32_t chunk_tokens;
	uint32_t hash_tokens; /* not 0 */
	uint32_t readers;
};

/* Whether one item of the list is well-formed. @key names the option in the sentence. Returns 0 or SCOUT_ERR_CONFIG_SYNTAX. */
int scout__group_check_item(const char *key, const char *item, char *err, size_t err_len);

/*
 * The groups of @list (NULL: one, with policy all), defaults filled in. Returns 0, or with a sentence in @err:
 * SCOUT_ERR_CONFIG_SYNTAX (an item is malformed), SCOUT_ERR_CONFIG_RANGE (a size that does not fit the other keys),
 * SCOUT_ERR_GROUP_LIMIT (more than SCOUT__GROUPS_MAX items).
 */
int scout__groups_parse(const char *list, const struct scout__group_keys *keys, struct scout__groups *ret, char *err,
			size_t err_len);

/* The groups of a configuration that scout__groups_accept() has accepted. */
void scout__groups_of(const char *list, const struct scout__group_keys *keys, struct scout__groups *ret);

/* Both on the values of one configuration. @hash_tokens: in and out, 0 becomes chunk_tokens. */
int scout__groups_accept(const char *list, uint32_t chunk_tokens, uint32_t *hash_tokens, uint32_t readers, char *err,
			 size_t err_len);

#define SCOUT__OPTION_GROUP                                                                                            \
	SCOUT__OPTION(                                                                                                 \
		LIST, group, .min = 1, .max = 4096, .max_items = SCOUT__GROUPS_MAX, .too_many = SCOUT_ERR_GROUP_LIMIT, \
		.check_item = scout__group_check_item,                                                                 \
		.doc = "Groups of layers of the model, numbered from 0: `POLICY[:SPAN][,unit=N][,margin=N][,readers=N]`, all numbers in tokens but readers. POLICY is all, window:SPAN, local:SPAN or state; unset: one group, all")

#define SCOUT__OPTION_HASH_TOKENS                                                                                      \
	SCOUT__OPTION(                                                                                                 \
		U32, hash_tokens, .max = 1048576, .def_text = "chunk_tokens",                                          \
		.doc = "Tokens from one hash of a prompt to the next; the units of all groups are multiples of it")
