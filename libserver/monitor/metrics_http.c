/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/*
 * What the endpoint answers. The HTTP thread never touches what the loop owns; it waits only for the snapshot of metrics_snapshot.c, for a
 * bounded time.
 */

static void
get_healthz(const struct scout__metrics_facts *facts, const struct scout__stats *stats,
	    struct scout__http_answer *answer)
{
	if (!facts->healthy) {
		answer->status = 503;
		scout__text_add(&answer->text, "%s\n", facts->reason);
		return;
	}
	/* A store that fails is no reason to end the server, which serves from memory. */
	scout__metrics_health(stats, &answer->text);
}

/*
 * Whether the request means this server. A web page in an operator's browser can have its own name resolve to this address, and would
 * read the answers; it cannot make the browser send another name. So a name has to be ours: the machine's, with any domain, or localhost.
 * An address needs no resolver, and what sends no Host is no browser.
 */
static bool
is_for_us(const char *host)
{
	char own[HOST_NAME_MAX + 1] = "";
	struct in_addr address;
	char name[256];
	size_t own_len;

	if (!host || *host == '[') /* an IPv6 address */
		return true;
	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, ":"), host);
	if (inet_pton(AF_INET, name, &address) == 1 || strcasecmp(name, "localhost") == 0)
		return true;
	(void)gethostname(own, sizeof(own) - 1);
	own_len = strcspn(own, ".");
	return own_len > 0 && strncasecmp(name, own, own_len) == 0 && (!name[own_len] || name[own_len] == '.');
}

void
scout__metrics_get(void *user, const char *path, const char *host, struct scout__http_answer *answer)
{
	bool is_metrics = strcmp(path, "/metrics") == 0, is_status = strcmp(path, "/status") == 0;
	struct scout__metrics_facts facts;
	const struct scout__stats *stats;

	if (!is_for_us(host)) {
		answer->status = 421;
		scout__text_add(&answer->text, "the Host of this request is none of this server's names: its address, "
					       "localhost, or the machine's name with any domain\n");
		return;
	}
	if (!is_metrics && !is_status && strcmp(path, "/healthz") != 0) {
		answer->status = 404;
		scout__text_add(&answer->text, "there are /metrics, /healthz and /status\n");
		return;
	}
	stats = scout__metrics_look(user, &facts);
	if (is_metrics) {
		answer->type = "text/plain; version=0.0.4; charset=utf-8";
		scout__metrics_text(stats, &facts, &answer->text);
	} else if (is_status) {
		answer->type = "application/json";
		scout__metrics_json(stats, &facts, &answer->text);
	} else {
		get_healthz(&facts, stats, answer);
	}
}
