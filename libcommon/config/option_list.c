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
	/* A blank follows each item but the last. */
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

/* The port of tcp://host:port; -1: there is none, or it is no number of up to five digits. */
static long
port_of(const char *item)
{
	const char *port = strrchr(item, ':') + 1; /* the colon of the scheme at least */
	size_t digits = strspn(port, "0123456789");

	return digits == 0 || digits > 5 || port[digits] ? -1 : strtol(port, NULL, 10);
}

/*
 * What libzmq takes and means otherwise: inproc:// (each client, worker and server has a context of its own), a path that hangs on the
 * folder of the process, and a port that is cut to 16 bits. @lowest: of a port; 0: "*" is allowed, too.
 */
static int
check_form(const char *key, const char *item, long lowest, const char *allowed, char *err, size_t err_len)
{
	char shown[SCOUT__OPTION_TEXT];
	const char *wrong = NULL;
	int code = SCOUT_ERR_CONFIG_RANGE;

	if (strncmp(item, "inproc:", 7) == 0) {
		wrong = "must not be inproc://";
		code = SCOUT_ERR_UNSUPPORTED;
	} else if (strncmp(item, "ipc://", 6) == 0 && item[6] != '/') {
		wrong = "the path must begin with /";
	} else if (strncmp(item, "tcp://", 6) == 0 && (lowest > 0 || strcmp(strrchr(item, ':'), ":*") != 0) &&
		   (port_of(item) < lowest || port_of(item) > 65535)) {
		wrong = lowest ? "the port must be 1..65535" : "the port must be 0..65535 (0: the kernel chooses)";
	}
	return wrong ? scout__fail(err, err_len, code, "%s = \"%s\": %s; %s", key, scout__option_quote(shown, item),
				   wrong, allowed)
		     : 0;
}

int
scout__list_check_endpoint(const char *key, const char *item, char *err, size_t err_len)
{
	char shown[SCOUT__OPTION_TEXT];

	if (!strchr(item, ','))
		return check_form(key, item, 1, ENDPOINTS, err, err_len);
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
		return check_form(key, item, 1, ENDPOINTS, err, err_len);
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s = \"%s\": must be one endpoint, without blanks and commas; several servers are for clients only",
		key, scout__option_quote(shown, item));
}

int
scout__list_check_listen(const char *key, const char *item, char *err, size_t err_len)
{
	return check_form(
		key, item, 0,
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
		"%s: must hold no second URL after a comma; write several URLs with blanks between them, or give the key "
		"once for each",
		key);
}
