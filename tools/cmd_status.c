/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "operator.h"
#include "say.h"
#include "sheet.h"
#include "show.h"
#include "snapshot.h"
#include "text.h"

/*
 * DESIGN
 *
 * kvscout status: STATUS in words, or as JSON under the names that STATUS has. Percentages and rates are over the time
 * since the server's start; with --watch, from the second sheet on, over the time since the sheet before.
 *
 * Threads: main.
 */

static void
print_namespaces(const struct snapshot *s, const struct snapshot *before)
{
	double limit = (double)snapshot_value(s, "l1.bytes_limit");

	for (uint32_t i = 0; i < s->n_ns; i++) {
		const char *ns = s->ns[i];
		double bytes = (double)snapshot_ns(s, ns, "bytes");
		double asked = (double)snapshot_ns_since(s, before, ns, "asked_chunks");
		double hit = (double)snapshot_ns_since(s, before, ns, "hit_chunks");
		double known = (double)snapshot_ns_since(s, before, ns, "known_chunks");
		char name[320], a[SHOWN], b[SHOWN + 1];

		say("namespace  %s\n", show_name(name, sizeof(name), ns, show_width(68)));
		say("           peers %" PRIu64 ", tenants %" PRIu64 "; %s (%s of the pool)\n",
		    snapshot_ns(s, ns, "peers"), snapshot_ns(s, ns, "tenants"), show_bytes(a, bytes),
		    show_percent(b, bytes, limit));
		say("           hits %s of at most %s", show_percent(a, hit, asked), sheet_ceiling(b, s, before, ns));
		if (known > hit)
			say("; four times the memory: %s or more", show_percent(a, known, asked));
		say("\n");
		if (snapshot_ns(s, ns, "bytes_kept"))
			say("           kept for requests that come back: %s\n",
			    show_bytes(a, (double)snapshot_ns(s, ns, "bytes_kept")));
	}
}

static void
print_words(const struct operator* op, const struct snapshot *s, const struct snapshot *before)
{
	char a[SHOWN], b[SHOWN];

	say("server     %s, up %s\n", op->client.endpoint, show_time(a, snapshot_value(s, "uptime_ms")));
	(void)sheet_lookups(s, before);
	(void)sheet_pool(s, before);
	say("peers      %s of %s; %" PRIu64 " requests live, %" PRIu64 " operations wait\n",
	    show_count(a, snapshot_value(s, "peers")), show_count(b, snapshot_value(s, "peers.limit")),
	    snapshot_value(s, "sessions"), snapshot_value(s, "ops.waiting"));
	(void)sheet_l2(s, before);
	print_namespaces(s, before);
	(void)sheet_attention(s, before);
}

static void
print_json(const struct operator* op, const struct snapshot *s)
{
	struct scout__text text = {NULL, 0, 0, false};

	scout__text_add(&text, "{\"endpoint\": \"");
	scout__text_json(&text, op->client.endpoint, strlen(op->client.endpoint));
	scout__text_add(&text, "\"");
	snapshot_json(s, &text);
	if (text.failed)
		die("the answer is too long");
	say("%.*s}\n", (int)text.len, text.p);
	scout__text_fini(&text);
}

int
cmd_status(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	struct snapshot now = {NULL}, before = {NULL};
	uint64_t count = UINT64_MAX;
	double watch = 0;
	bool json = false;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_SWITCH("json", &json, "counters by name, one object in one line"),
		CLI_FRACTION("watch", &watch, 0, 86400, "again after so many seconds; 0: once"),
		CLI_NUMBER("count", &count, 1, UINT64_MAX, "with --watch: end after so many times"),
	};
	const struct cli cli = {
		.tool = "kvscout status",
		.about =
			"Says how the server does, since its start; with --watch, since the time before. Exit status 3: no server.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 3,
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	status = operator_open(&op, &cli);
	for (uint64_t i = 0; status == 0 && i < (watch > 0 ? count : 1); i++) {
		if (i > 0) {
			operator_sleep(watch);
			snapshot_next(&now, &before);
			if (!json)
				say("\n");
		}
		status = snapshot_take(&op, &now);
		if (status == EXIT_NO_SERVER && i > 0)
			status = 0; /* it is stopped, or starts again: said, and asked again */
		else if (status == 0 && json)
			print_json(&op, &now);
		else if (status == 0)
			print_words(&op, &now, &before);
		say_flush();
	}
	snapshot_free(&now);
	snapshot_free(&before);
	operator_close(&op);
	return status;
}
