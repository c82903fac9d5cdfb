/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "operator.h"
#include "paint.h"
#include "peer_list.h"
#include "say.h"
#include "sheet.h"
#include "show.h"
#include "snapshot.h"

/*
 * DESIGN
 *
 * kvscout top: one screen of 80 columns or more, drawn anew every few seconds. Ratios and rates are over the time since the screen
 * before; the first one is since the server's start. On a terminal a screen replaces the one before it (two escape
 * sequences that every terminal knows); elsewhere screens follow each other. A terminal that paints shows how hits and lookups went, and how full the pool is. The tables at its end have
 * the lines that the terminal has left, tenants first to go, so that the lines at its beginning stay in sight.
 *
 * A server that does not answer at first ends it, with the exit status that says so. One that stops later, or is started anew, is
 * asked again.
 *
 * Threads: main.
 */

#define NAMESPACES 6 /* the largest, where there is no terminal with lines for more */
#define TENANTS 3    /* of each, the largest */
#define PEERS 5      /* the slowest, likewise */
#define ROWS 32      /* of a table at most */
#define SMALL_SCREEN 23

/* What the screens before have shown. */
struct trends {
	struct trend hits, lookups;
};

/* Lines that a screen may have: the last one of a terminal has the cursor. */
static int
lines_of_screen(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2)
		return INT_MAX;
	return size.ws_row - 1;
}

/* At most *room lines, which it takes from there. A namespace without tenants is not split. */
static int
print_tenants(struct operator* op, const char *ns, double limit, int *room)
{
	struct scout__tenant_item item;
	struct scout__list_reply m;
	int rc = operator_tenants(op, ns, &m);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < m.n && i<TENANTS && * room> 0 && scout__get_tenant_item(&m.items, &item); i++) {
		char text[SCOUT_MAX_NAME + 1], tenant[128], a[SHOWN], b[SHOWN];

		(void)snprintf(text, sizeof(text), "%.*s", (int)item.tenant.len, item.tenant.p);
		if (m.head == 1 && !text[0])
			return 0;
		(*room)--;
		say("  %-29s %11s %8s\n", text[0] ? show_name(tenant, sizeof(tenant), text, 29) : "(no tenant)",
		    show_bytes(a, (double)item.bytes), show_percent(b, (double)item.bytes, limit));
	}
	if (m.head > TENANTS && *room > 0) {
		say("  and %u more tenants\n", (unsigned)(m.head - TENANTS));
		(*room)--;
	}
	return 0;
}

/* Indexes of the namespaces with most bytes, the largest first. Returns their number. */
static uint32_t
largest(const struct snapshot *s, uint32_t of[ROWS])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_ns; i++) {
		uint64_t bytes = snapshot_ns(s, s->ns[i], "bytes");
		uint32_t at = n < ROWS ? n : ROWS;

		while (at > 0 && snapshot_ns(s, s->ns[of[at - 1]], "bytes") < bytes)
			at--;
		if (at == ROWS)
			continue;
		n += n < ROWS;
		memmove(&of[at + 1], &of[at], (n - 1 - at) * sizeof(of[0]));
		of[at] = i;
	}
	return n;
}

/* Lines of a table: a blank one, its head, and one for what is not shown. */
static int
table_lines(uint32_t all, uint32_t shown)
{
	return 2 + (int)shown + (all > shown);
}

/* How many rows of @all, at most @most, a table of @lines shows: one at least. */
static uint32_t
table_rows(uint32_t all, uint32_t most, int lines)
{
	uint32_t n = all < most ? all : most;

	while (n > 1 && table_lines(all, n) > lines)
		n--;
	return n;
}

static int
print_namespaces(struct operator* op, const struct snapshot *s, const struct snapshot *before, int lines)
{
	double limit = (double)snapshot_value(s, "l1.bytes_limit"), seconds = snapshot_seconds(s, before);
	uint32_t of[ROWS], most = largest(s, of);
	uint32_t n = table_rows(s->n_ns, lines < INT_MAX / 2 || most < NAMESPACES ? most : NAMESPACES, lines);
	int rc = 0, room = lines - table_lines(s->n_ns, n);

	say("\n");
	paint(PAINT_HEAD);
	say("%-31s %11s %8s %9s %7s %8s\n", "NAMESPACE, tenants", "MEMORY", "OF POOL", "LOOKUPS", "HITS", "AT MOST");
	paint(PAINT_NONE);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const char *ns = s->ns[of[i]];
		double bytes = (double)snapshot_ns(s, ns, "bytes");
		double asked = (double)snapshot_ns_since(s, before, ns, "asked_tokens");
		double hit = (double)snapshot_ns_since(s, before, ns, "hit_tokens");
		char name[192], a[SHOWN], b[SHOWN], c[SHOWN], d[SHOWN], e[SHOWN + 1];

		say("%-31s %11s %8s %9s %7s %8s\n", show_name(name, sizeof(name), ns, 31), show_bytes(a, bytes),
		    show_percent(b, bytes, limit),
		    show_rate(c, (double)snapshot_ns_since(s, before, ns, "lookups"), seconds),
		    show_percent(d, hit, asked), sheet_ceiling(e, s, before, ns));
		if (snapshot_ns(s, ns, "tenants") > 0)
			rc = print_tenants(op, ns, limit, &room);
	}
	if (s->n_ns > n)
		say("and %u more namespaces\n", (unsigned)(s->n_ns - n));
	return rc;
}

static int
by_id(const void *a, const void *b)
{
	const struct peer_row *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* How many peers there is room for: those that five lines for namespaces leave, and what all namespaces leave. */
static uint32_t
peer_rows(const struct snapshot *s, uint32_t n_peers, int lines)
{
	uint32_t n = table_rows(n_peers, PEERS, lines - 5), more;

	if (lines >= INT_MAX / 2)
		return n;
	more = table_rows(n_peers, ROWS, lines - table_lines(s->n_ns, s->n_ns < ROWS ? s->n_ns : ROWS));
	return more > n ? more : n;
}

/* Both tables, in @lines. The slowest peers are shown, each in the line that it had before as long as the same are. */
static int
print_tables(struct operator* op, const struct snapshot *s, const struct snapshot *before, int lines)
{
	struct peer_list list;
	int rc = peers_take(op, &list);
	uint32_t n;

	if (rc == 0) {
		n = peer_rows(s, list.n, lines);
		if (n > 0)
			qsort(list.rows, n, sizeof(*list.rows), by_id);
		rc = print_namespaces(op, s, before, lines - table_lines(list.n, n));
	}
	if (rc == 0) {
		say("\n");
		peers_print(&list, n);
	}
	free(list.rows);
	return rc;
}

/* How the numbers went, and how full the pool is. Returns the lines. */
static int
print_trends(const struct snapshot *s, const struct snapshot *before, struct trends *trends)
{
	double asked = (double)snapshot_since(s, before, "lookups.asked_chunks");
	double limit = (double)snapshot_value(s, "l1.bytes_limit"), seconds = snapshot_seconds(s, before);
	double lookups = (double)snapshot_since(s, before, "lookups.full") +
			 (double)snapshot_since(s, before, "lookups.partial") +
			 (double)snapshot_since(s, before, "lookups.none");
	char a[PAINTED], b[PAINTED];
	unsigned width = show_width(68);

	if (!paint_is_on() || lines_of_screen() < SMALL_SCREEN)
		return 0;
	trend_add(&trends->hits, asked > 0 ? (double)snapshot_since(s, before, "lookups.hit_chunks") / asked : 0);
	trend_add(&trends->lookups, seconds > 0 ? lookups / seconds : 0);
	say("hits %s  lookups %s\n", trend_paint(a, &trends->hits, 1), trend_paint(b, &trends->lookups, 0));
	say("pool %s\n\n", paint_bar(a, limit > 0 ? (double)snapshot_value(s, "l1.bytes_used") / limit : 0,
				     width < 150 ? width : 150));
	return 3;
}

static int
print_screen(struct operator* op, const struct snapshot *s, const struct snapshot *before, struct trends *trends)
{
	char up[SHOWN], interval[SHOWN];
	int lines = lines_of_screen() - 3;

	paint(PAINT_HEAD);
	say("%s, up %s\n", op->client.endpoint, show_time(up, snapshot_value(s, "uptime_ms")));
	paint(PAINT_NONE);
	say("%s%s\n\n", before->n ? "numbers of the last " : "numbers since the start",
	    before->n ? show_time(interval, (uint64_t)(snapshot_seconds(s, before) * 1000)) : "");
	lines -= print_trends(s, before, trends);
	lines -= sheet_lookups(s, before);
	lines -= sheet_pool(s, before);
	lines -= sheet_l2(s, before);
	lines -= sheet_attention(s, before);
	return print_tables(op, s, before, lines);
}

int
cmd_top(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	struct snapshot now = {NULL}, before = {NULL};
	struct trends trends = {.hits.n = 0};
	uint64_t count = UINT64_MAX;
	double interval = 2;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_FRACTION("interval", &interval, 0.1, 3600, "seconds from one screen to the next"),
		CLI_NUMBER("count", &count, 1, UINT64_MAX, "end after so many screens"),
	};
	const struct cli cli = {
		.tool = "kvscout top",
		.about = "Shows hits, times, memory, L2 and the slowest peers, again and again. Ctrl-C ends it.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 2,
		.notes =
			"The first screen is about the time since the server's start, each other one about the time since the one\n"
			"before. What four times the memory would hit is shown where that is more than the hits.\n"
			"AT MOST is what a cache without end would hit.\n",
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	status = operator_open(&op, &cli);
	for (uint64_t i = 0; status == 0 && i < count; i++) {
		if (i > 0) {
			operator_sleep(interval);
			snapshot_next(&now, &before);
		}
		status = snapshot_take(&op, &now);
		if (status == EXIT_NO_SERVER && i > 0) {
			status = 0;
			continue;
		}
		if (status)
			break;
		if (isatty(STDOUT_FILENO))
			say("\033[H\033[J");
		else if (i > 0)
			say("\n");
		status = print_screen(&op, &now, &before, &trends);
		if (status == EXIT_NO_SERVER)
			status = 0; /* in the middle */
		say_flush();
	}
	snapshot_free(&now);
	snapshot_free(&before);
	operator_close(&op);
	return status;
}
