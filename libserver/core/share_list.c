/* SPDX-License-Identifier: Apache-2.0 */
#include "share_list.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/protocol.h>

#include "log.h"
#include "option_list.h"
#include "option_parse.h"
#include "utf8.h"

/* Fair shares as text, see share_list.h. Any thread. */

/* The number in @item, after the last colon and before the percent sign. 0: there is none from 1 to 100. */
static uint32_t
percent_of(const char *item)
{
	const char *at = strrchr(item, ':');
	uint32_t percent = 0;

	if (!at || at[1] < '1' || at[1] > '9')
		return 0;
	for (at++; *at >= '0' && *at <= '9' && percent <= 100; at++)
		percent = percent * 10 + (uint32_t)(*at - '0');
	return percent <= 100 && strcmp(at, "%") == 0 ? percent : 0;
}

static bool
is_for_tenants(const char *key)
{
	return strcmp(key, "tenant_share") == 0;
}

int
scout__share_check_item(const char *key, const char *item, char *err, size_t err_len)
{
	const char *colon = strrchr(item, ':');
	char shown[SCOUT__OPTION_TEXT];

	if (percent_of(item) == 0)
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
			"%s = \"%s\": must be NAME:PERCENT%% with a whole number from 1 to 100, as in chat:20%%", key,
			scout__option_quote(shown, item));
	if (colon - item > SCOUT_MAX_NAME || !scout__utf8_is_name(item, (size_t)(colon - item)))
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
			"%s = \"%s\": no request can have this name: must be printable UTF-8 of at most %d bytes", key,
			scout__option_quote(shown, item), SCOUT_MAX_NAME);
	if (is_for_tenants(key) || (item[0] != ':' && strncmp(item, "*:", 2) != 0))
		return 0;
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s = \"%s\": must name a namespace; namespaces without an item share what is left in equal parts", key,
		scout__option_quote(shown, item));
}

static bool
is_named(const struct scout__share *share, const char *name, size_t len)
{
	return share->name_len == len && memcmp(share->name, name, len) == 0;
}

static int
take_items(const char *key, const char **text, uint32_t n, struct scout__share_list *shares, char *err, size_t err_len)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		const char *colon = strrchr(text[i], ':');
		struct scout__share share = {.name = text[i], .percent = percent_of(text[i])};
		char shown[SCOUT__OPTION_TEXT];
		bool is_others, twice;
		int rc = scout__share_check_item(key, text[i], err, err_len);

		if (rc)
			return rc;
		share.name_len = (uint32_t)(colon - text[i]);
		is_others = is_named(&share, "*", 1);
		twice = is_others ? shares->others > 0 : scout__shares_find(shares, share.name, share.name_len) > 0;
		if (twice)
			return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
					   "%s = \"%s\": the name already has a share, and can have only one", key,
					   scout__option_quote(shown, text[i]));
		if (is_others) {
			shares->others = share.percent;
			continue;
		}
		sum += share.percent;
		shares->items[shares->n++] = share;
	}
	if (sum <= 100)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "%s: the shares add up to %u%%: must be 100%% or less",
			   key, (unsigned)sum);
}

int
scout__shares_parse(const char *key, const char *list, struct scout__share_list *ret, char *err, size_t err_len)
{
	struct scout__share_list shares = {0};
	uint32_t n = 0;
	int rc = scout__list_split(list, &shares.text, &n);

	if (rc == 0 && n > SCOUT__SHARE_ITEMS) {
		free(shares.text);
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "%s has %u items: must have 1..%u, with blanks between them", key, (unsigned)n,
				   SCOUT__SHARE_ITEMS);
	}
	if (rc == 0)
		shares.items = calloc(n + 1, sizeof(*shares.items));
	if (rc || !shares.items) {
		free(shares.text);
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s: out of memory", key);
	}
	rc = take_items(key, shares.text, n, &shares, err, err_len);
	if (rc)
		scout__shares_fini(&shares);
	else
		*ret = shares;
	return rc;
}

void
scout__shares_fini(struct scout__share_list *shares)
{
	free(shares->items);
	free(shares->text);
	memset(shares, 0, sizeof(*shares));
}

uint32_t
scout__shares_find(const struct scout__share_list *shares, const char *name, size_t len)
{
	for (uint32_t i = 0; i < shares->n; i++)
		if (is_named(&shares->items[i], name, len))
			return shares->items[i].percent;
	return 0;
}
