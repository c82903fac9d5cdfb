/* SPDX-License-Identifier: Apache-2.0 */
#include "operator.h"

#include <inttypes.h>
#include <stdlib.h>

#include "paint.h"
#include "peer_list.h"
#include "say.h"
#include "show.h"
#include "text.h"

/* kvscout peers: who is connected, and what each peer holds and has queued. Main thread. */

#define PEERS_MOST 65536u

/* What needs an operator comes first: replies that are not read, then operations that wait, then silence. */
static int
compare(const void *a, const void *b)
{
	const struct peer_row *x = a, *y = b;

	if (x->unread_bytes != y->unread_bytes)
		return x->unread_bytes < y->unread_bytes ? 1 : -1;
	if (x->waiting != y->waiting)
		return x->waiting < y->waiting ? 1 : -1;
	return x->silent_ms < y->silent_ms ? 1 : x->silent_ms > y->silent_ms ? -1 : 0;
}

static void
add(struct peer_list *list, const struct scout__peer_item *item)
{
	struct peer_row *row;

	if ((list->n & (list->n - 1)) == 0) { /* at each power of two */
		struct peer_row *rows = realloc(list->rows, (list->n ? (size_t)list->n * 2 : 1) * sizeof(*rows));

		if (!rows)
			die("out of memory");
		list->rows = rows;
	}
	row = &list->rows[list->n++];
	*row = (struct peer_row){.id = item->id,
				 .role = item->role,
				 .kv_rank = item->kv_rank,
				 .pid = item->pid,
				 .unread_bytes = item->unread_bytes,
				 .silent_ms = item->silent_ms,
				 .waiting = item->waiting,
				 .sessions = item->sessions,
				 .holds = item->holds};
	(void)snprintf(row->name_space, sizeof(row->name_space), "%.*s", (int)item->name_space.len, item->name_space.p);
}

int
peers_take(struct operator* op, struct peer_list *ret)
{
	struct scout__list_reply m = {.head = 0};
	struct scout__peer_item item;
	struct scout__op reply;
	const char *field = "";
	uint32_t before;
	int rc;

	*ret = (struct peer_list){NULL, 0};
	do {
		before = m.head;
		scout__put_peers(scout__status_client_begin(&op->client, SCOUT_OP_PEERS), m.head);
		rc = operator_ask(op, &reply);
		if (rc)
			return rc;
		/* A page that is not the last one has a peer; no server has more than max_peers may be. */
		if (scout__get_peers_reply(&reply, &m, &field) != SCOUT_WIRE_OK ||
		    (m.head && (m.head <= before || m.n == 0)) || m.n > PEERS_MOST - ret->n)
			return operator_bad_reply(op);
		for (uint32_t i = 0; i < m.n && scout__get_peer_item(&m.items, &item); i++)
			add(ret, &item);
	} while (m.head);
	if (ret->n > 0)
		qsort(ret->rows, ret->n, sizeof(*ret->rows), compare);
	return 0;
}

void
peers_print(const struct peer_list *list, uint32_t most)
{
	char pid[16], rank[8], unread[SHOWN], silent[SHOWN], name[128];

	paint(PAINT_HEAD);
	say("ROLE   PID     RANK SESSIONS HOLDS WAITING     UNREAD      SILENT  NAMESPACE\n");
	paint(PAINT_NONE);
	for (uint32_t i = 0; i < list->n && i < most; i++) {
		const struct peer_row *row = &list->rows[i];

		(void)snprintf(pid, sizeof(pid), "%u", (unsigned)row->pid);
		(void)snprintf(rank, sizeof(rank), "%u", (unsigned)row->kv_rank - 1);
		say("%-6s %-7s %4s %8u %5u %7u %10s %11s  %s\n", row->role == SCOUT_ROLE_WORKER ? "worker" : "client",
		    row->pid ? pid : "-", row->kv_rank ? rank : "-", (unsigned)row->sessions, (unsigned)row->holds,
		    (unsigned)row->waiting, show_bytes(unread, (double)row->unread_bytes),
		    show_time(silent, row->silent_ms), show_name(name, sizeof(name), row->name_space, 13));
	}
	if (list->n > most)
		say("and %u more\n", (unsigned)(list->n - most));
}

void
peers_json(const struct peer_list *list, uint32_t most, struct scout__text *text)
{
	scout__text_add(text, "[");
	for (uint32_t i = 0; i < list->n && i < most; i++) {
		const struct peer_row *row = &list->rows[i];

		scout__text_add(text, "%s{\"role\": \"%s\", \"id\": \"%016" PRIx64 "\", \"namespace\": \"",
				i ? ",\n " : "", row->role == SCOUT_ROLE_WORKER ? "worker" : "client", row->id);
		scout__text_json(text, row->name_space, strlen(row->name_space));
		scout__text_add(text, "\", \"pid\": %u, \"kv_rank\": %d, \"sessions\": %u, \"holds\": %u, ",
				(unsigned)row->pid, (int)row->kv_rank - 1, (unsigned)row->sessions,
				(unsigned)row->holds);
		scout__text_add(text, "\"waiting\": %u, \"unread_bytes\": %" PRIu64 ", \"silent_ms\": %u}",
				(unsigned)row->waiting, row->unread_bytes, (unsigned)row->silent_ms);
	}
	scout__text_add(text, "]");
}

static void
print_json(const struct peer_list *list)
{
	struct scout__text text = {NULL, 0, 0, false};

	peers_json(list, UINT32_MAX, &text);
	if (text.failed)
		die("the list is too long");
	say("%.*s\n", (int)text.len, text.p);
	scout__text_fini(&text);
}

int
cmd_peers(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	struct peer_list list = {NULL, 0};
	bool json = false;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_SWITCH("json", &json, "as an array of objects; pid 0 and kv_rank -1: unknown, none"),
	};
	const struct cli cli = {
		.tool = "kvscout peers",
		.about =
			"Lists clients and workers; those that do not read their replies come first, then those that wait.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 1,
		.notes =
			"SESSIONS: requests that were looked up and are not finished. HOLDS: retrieves and stores that run.\n"
			"WAITING: operations that are not answered. UNREAD: replies that the peer does not read. SILENT: since\n"
			"its last message; an idle peer sends one each second. The pid is known of peers on the server's machine.\n",
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	status = operator_open(&op, &cli);
	if (status == 0)
		status = peers_take(&op, &list);
	if (status == 0 && json)
		print_json(&list);
	else if (status == 0)
		peers_print(&list, UINT32_MAX);
	free(list.rows);
	operator_close(&op);
	return status;
}
