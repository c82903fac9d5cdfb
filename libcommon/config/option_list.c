/* SPDX-License-Identifier: Apache-2.0 */
#include "option_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"
#include "option_parse.h"

/*
 * Lists as text. Blanks separate, because a comma is part of some items: the hosts of one Redis Cluster, the settings of one group.
 * A path with a blank in it cannot be an item. Any thread; only the arguments are touched.
 */

#define BLANKS " \t\r\n\f\v"
#define ENDPOINTS                                                                                                      \
	"allowed are ipc:///path, tcp://host:port and auto; for a server in this process, write what "                 \
	"scout_server_endpoint() returns"

int
scout__list_split(const char *list, const char ***ret_items, uint32_t *ret_n)
{
	size_t length = list ? strlen(list) : 0;
	/* Each item but the last has a blank behind it. */
	size_t room = length / 2 + 1;
	const char **items = malloc(room * sizeof(*items) + length + 1);
	uint32_t n = 0;
	char *at;

	if (!items)
		return SCOUT_ERR_NOMEM;
	at = (char *)(items + room);
	memcpy(at, list ? list : "", length + 1);
	for (at += strspn(at, BLANKS); *at; at += strspn(at, BLANKS)) {
		items[n++] = at;
		at += strcspn(at, BLANKS);
		if (*at)
			*at++ = '\0';
	}
	*ret_items = items;
	*ret_n = n;
	return 0;
}

char *
scout__list_join(const char *list, const char *more)
{
	size_t length, room;
	char *joined;

	list = list ? list : "";
	more += strspn(more, BLANKS);
	length = strlen(list);
	room = length + 1 + strlen(more) + 1;
	joined = malloc(room);
	if (joined)
		(void)snprintf(joined, room, "%s%s%s", list, length && *more ? " " : "", more); /* it fits */
	return joined;
}

int
scout__list_check(const struct scout__option *option, const char *list, char *err, size_t err_len)
{
	const char **items;
	uint32_t n;
	int rc = scout__list_split(list, &items, &n);

	if (rc)
		return scout__fail(err, err_len, rc, "%s: out of memory", option->name);
	if (n == 0 || n > option->max_items)
		rc = scout__fail(err, err_len, n && option->too_many ? option->too_many : SCOUT_ERR_CONFIG_RANGE,
				 "%s has %u items: must have 1..%u, with blanks between them", option->name,
				 (unsigned)n, (unsigned)option->max_items);
	for (uint32_t i = 0; !rc && option->check_item && i < n; i++)
		rc = option->check_item(option->name, items[i], err, err_len);
	free(items);
	return rc;
}

/* libzmq knows inproc:// within one context, and each client, worker and server has its own. */
static int
refuse_inproc(const char *key, const char *item, const char *allowed, char *err, size_t err_len)
{
	static const char scheme[] = "inproc:";
	char shown[SCOUT__OPTION_TEXT];

	if (strncmp(item, scheme, sizeof(scheme) - 1) != 0)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED, "%s = \"%s\": must not be inproc://; %s", key,
			   scout__option_quote(shown, item), allowed);
}

int
scout__list_check_endpoint(const char *key, const char *item, char *err, size_t err_len)
{
	char shown[SCOUT__OPTION_TEXT];

	if (!strchr(item, ','))
		return refuse_inproc(key, item, ENDPOINTS, err, err_len);
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s = \"%s\": must hold no comma; write several endpoints with blanks between them, or give the key "
		"once for each",
		key, scout__option_quote(shown, item));
}

int
scout__list_check_one_endpoint(const char *key, const char *item, char *err, size_t err_len)
{
	char shown[SCOUT__OPTION_TEXT];

	if (!item[strcspn(item, "," BLANKS)])
		return refuse_inproc(key, item, ENDPOINTS, err, err_len);
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s = \"%s\": must be one endpoint, without blanks and commas; several servers are for clients only",
		key, scout__option_quote(shown, item));
}

int
scout__list_check_listen(const char *key, const char *item, char *err, size_t err_len)
{
	return refuse_inproc(
		key, item,
		"allowed are ipc:///path and tcp://host:port; where it is not set, the server listens on ipc in "
		"a private folder, and scout_server_endpoint() returns the endpoint",
		err, err_len);
}

int
scout__list_check_url(const char *key, const char *item, char *err, size_t err_len)
{
	const char *comma = strchr(item, ',');

	if (!comma || !strstr(comma, "://"))
		return 0;
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s: must hold no second URL behind a comma; write several URLs with blanks between them, or give the key "
		"once for each",
		key);
}
