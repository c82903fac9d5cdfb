/* SPDX-License-Identifier: Apache-2.0 */
#include "group_list.h"

#include <stdbool.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"
#include "thread.h"
#include "option_parse.h"

/*
 * DESIGN
 *
 * Purpose: the key `group`, from text to struct scout__groups.
 *
 * A list of words rather than an array of structures in the configuration: files, the environment and bindings of other
 * languages then need no code of their own, there is no array element whose size could change, and an engine writes one
 * snprintf() for each of its groups.
 *
 * Threads: any; nothing is shared.
 */

#define BLANKS " \t\r\n\f\v" /* between the items of a list */
#define MAX_TOKENS 1048576u  /* tokens of a unit, as of a chunk */
#define MAX_SPAN (1u << 30)
#define MAX_READERS 64u

static const char *const policies[] = {
	[SCOUT__POLICY_ALL] = "all",
	[SCOUT__POLICY_WINDOW] = "window",
	[SCOUT__POLICY_LOCAL] = "local",
	[SCOUT__POLICY_STATE] = "state",
};

static const char form[] = "all, window:SPAN, local:SPAN or state, then, as needed, ,unit=N ,margin=N ,readers=N";

/* A piece of the text, up to the next separator. */
struct piece {
	const char *p;
	size_t len;
};

/* The digits of @piece as a number of @min..@max. */
static bool
number_of(const struct piece *piece, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t n = 0;

	if (piece->len == 0 || piece->len > 10)
		return false;
	for (size_t i = 0; i < piece->len; i++) {
		if (piece->p[i] < '0' || piece->p[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(piece->p[i] - '0');
	}
	if (n < min || n > max)
		return false;
	*ret = (uint32_t)n;
	return true;
}

static bool
policy_of(const struct piece *word, uint16_t *ret)
{
	for (uint16_t i = 0; i <= SCOUT__POLICY_LAST; i++)
		if (word->len == strlen(policies[i]) && memcmp(word->p, policies[i], word->len) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

static bool
has_span(uint16_t policy)
{
	return policy == SCOUT__POLICY_WINDOW || policy == SCOUT__POLICY_LOCAL;
}

/* Parse "window:4096". The rest of the text goes to *ret_rest. */
static bool
parse_policy(const struct piece *item, struct scout__group *group, struct piece *ret_rest)
{
	struct piece head = {item->p, 0}, word, span = {NULL, 0};

	while (head.len < item->len && head.p[head.len] != ',')
		head.len++;
	word = (struct piece){head.p, 0};
	while (word.len < head.len && head.p[word.len] != ':')
		word.len++;
	if (word.len < head.len)
		span = (struct piece){head.p + word.len + 1, head.len - word.len - 1};
	if (!policy_of(&word, &group->policy) || has_span(group->policy) != (span.p != NULL))
		return false;
	if (span.p && !number_of(&span, 1, MAX_SPAN, &group->span_tokens))
		return false;
	*ret_rest = (struct piece){item->p + head.len, item->len - head.len};
	return true;
}

/* Parse "unit=16" and its like; each at most once. */
static bool
parse_attribute(const struct piece *text, struct scout__group *group, unsigned *seen)
{
	static const struct {
		const char *name;
		uint32_t min, max;
	} known[] = {{"unit=", 1, MAX_TOKENS}, {"margin=", 0, MAX_TOKENS}, {"readers=", 1, MAX_READERS}};
	uint32_t number = 0;
	unsigned i = 0;

	while (i < 3 &&
	       (text->len < strlen(known[i].name) || memcmp(text->p, known[i].name, strlen(known[i].name)) != 0))
		i++;
	if (i == 3 || (*seen & 1u << i))
		return false;
	*seen |= 1u << i;
	if (!number_of(&(struct piece){text->p + strlen(known[i].name), text->len - strlen(known[i].name)},
		       known[i].min, known[i].max, &number))
		return false;
	if (i == 0)
		group->unit_tokens = number;
	else if (i == 1)
		group->margin_tokens = number;
	else
		group->readers = (uint16_t)number;
	return true;
}

/* Parse one item; fields that it does not name stay 0. */
static bool
parse_item(const struct piece *item, struct scout__group *ret)
{
	struct scout__group group = {0};
	struct piece rest;
	unsigned seen = 0;

	if (!parse_policy(item, &group, &rest))
		return false;
	while (rest.len > 0) {
		struct piece one = {rest.p + 1, 0};

		while (one.len < rest.len - 1 && one.p[one.len] != ',')
			one.len++;
		if (!parse_attribute(&one, &group, &seen))
			return false;
		rest = (struct piece){one.p + one.len, rest.len - 1 - one.len};
	}
	*ret = group;
	return true;
}

static int
fail_item(const char *key, const struct piece *item, char *err, size_t err_len)
{
	char text[SCOUT__OPTION_TEXT], quoted[SCOUT__OPTION_TEXT];
	size_t n = item->len < sizeof(text) - 1 ? item->len : sizeof(text) - 1;

	memcpy(text, item->p, n);
	text[n] = '\0';
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_SYNTAX, "%s: \"%s\" is no group: must be %s", key,
			   scout__option_quote(quoted, text), form);
}

int
scout__group_check_item(const char *key, const char *item, char *err, size_t err_len)
{
	struct piece piece = {item, strlen(item)};
	struct scout__group unused;

	return parse_item(&piece, &unused) ? 0 : fail_item(key, &piece, err, err_len);
}

/* Fill in defaults, and check sizes against each other. */
static int
resolve(uint32_t number, struct scout__group *group, const struct scout__group_keys *keys, char *err, size_t err_len)
{
	if (!group->unit_tokens)
		group->unit_tokens = keys->chunk_tokens;
	if (!group->readers)
		group->readers = (uint16_t)keys->readers;
	if (group->unit_tokens % keys->hash_tokens != 0)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "group %u: unit=%u must be a multiple of hash_tokens = %u", (unsigned)number,
				   (unsigned)group->unit_tokens, (unsigned)keys->hash_tokens);
	return 0;
}

int
scout__groups_parse(const char *list, const struct scout__group_keys *keys, struct scout__groups *ret, char *err,
		    size_t err_len)
{
	const char *at = list ? list : "";

	*ret = (struct scout__groups){.n = 0};
	for (at += strspn(at, BLANKS); *at; at += strspn(at, BLANKS)) {
		struct piece item = {at, strcspn(at, BLANKS)};

		if (ret->n == SCOUT__GROUPS_MAX)
			return scout__fail(err, err_len, SCOUT_ERR_GROUP_LIMIT,
					   "group: more than %u groups: a model has at most %u", SCOUT__GROUPS_MAX,
					   SCOUT__GROUPS_MAX);
		if (!parse_item(&item, &ret->group[ret->n]))
			return fail_item("group", &item, err, err_len);
		ret->n++;
		at += item.len;
	}
	if (ret->n == 0)
		ret->n = 1; /* policy all, which is 0 */
	for (uint32_t i = 0; i < ret->n; i++) {
		int rc = resolve(i, &ret->group[i], keys, err, err_len);

		if (rc)
			return rc;
	}
	return 0;
}

void
scout__groups_of(const char *list, const struct scout__group_keys *keys, struct scout__groups *ret)
{
	int rc = scout__groups_parse(list, keys, ret, NULL, 0);

	SCOUT_ASSERT(rc == 0);
}

int
scout__groups_accept(const char *list, uint32_t chunk_tokens, uint32_t *hash_tokens, uint32_t readers, char *err,
		     size_t err_len)
{
	struct scout__group_keys keys = {
		.chunk_tokens = chunk_tokens,
		.hash_tokens = *hash_tokens ? *hash_tokens : chunk_tokens,
		.readers = readers,
	};
	struct scout__groups groups;
	int rc = scout__groups_parse(list, &keys, &groups, err, err_len);

	if (rc == 0)
		*hash_tokens = keys.hash_tokens;
	return rc;
}
