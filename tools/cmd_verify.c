/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "operator.h"
#include "say.h"
#include "show.h"
#include "snapshot.h"

/*
 * kvscout verify: what workers found that compared hits. STATUS has a row for each error that was found in the chunks of each worker
 * that stored some; the rows of a worker follow each other (docs/metrics.md). Main thread.
 */

#define STORERS 64 /* more than any server tells */
#define ERRORS 9
#define FOUND (ERRORS + 1)

static const char *const rows[FOUND] = {"error_ppm.0",     "error_ppm.1000",   "error_ppm.3000",   "error_ppm.10000",
					"error_ppm.30000", "error_ppm.100000", "error_ppm.300000", "error_ppm.1000000",
					"error_ppm.more",  "mismatches"};
static const char *const errors[ERRORS] = {"0",         "up to 0.001", "up to 0.003", "up to 0.01", "up to 0.03",
					   "up to 0.1", "up to 0.3",   "up to 1",     "more than 1"};

struct storer {
	char id[17];
	uint64_t n[FOUND + 1]; /* the last: chunks, of all errors */
};

/* Adds up all of the namespace in the first of @ret, and lists its storers after it. Returns how many there are with the first. */
static uint32_t
collect(const struct snapshot *s, const char *name_space, struct storer ret[STORERS])
{
	char prefix[320];
	size_t len = (size_t)snprintf(prefix, sizeof(prefix), "ns.%s.verify.by.", name_space);
	uint32_t n = 1;

	memset(ret, 0, STORERS * sizeof(*ret));
	for (uint32_t i = 0; i < s->n * FOUND; i++) {
		const struct snapshot_item *item = &s->items[i / FOUND];
		uint32_t f = i % FOUND;

		if (strncmp(item->name, prefix, len) != 0 || strlen(item->name) < len + 17 ||
		    strcmp(item->name + len + 17, rows[f]) != 0)
			continue;
		if (strncmp(ret[n - 1].id, item->name + len, 16) != 0 && n < STORERS)
			memcpy(ret[n++].id, item->name + len, 16);
		for (struct storer *to = ret; to < ret + n; to += n - 1) {
			to->n[f] += item->value;
			to->n[FOUND] += f < ERRORS ? item->value : 0;
		}
	}
	return n;
}

static void
print(const struct snapshot *s, const char *name_space)
{
	char name[320], a[SHOWN], b[SHOWN], c[SHOWN];
	struct storer storers[STORERS];
	uint32_t n = collect(s, name_space, storers);

	say("namespace  %s\n", show_name(name, sizeof(name), name_space, 68));
	say("compared   %s hits, %s chunks; of these %s are other KV\n",
	    show_count(a, snapshot_ns(s, name_space, "verify.hits")), show_count(b, storers->n[FOUND]),
	    show_count(c, storers->n[ERRORS]));
	for (uint32_t f = 0; f < ERRORS && storers->n[FOUND] > 0; f++)
		say("%-10s %-11s %14s %9s\n", f == 0 ? "error" : "", errors[f], show_count(a, storers->n[f]),
		    show_percent(b, (double)storers->n[f], (double)storers->n[FOUND]));
	for (uint32_t i = 1; i < n; i++)
		say("%-10s %-16s %9s chunks, %s other KV\n", i == 1 ? "stored by" : "",
		    show_name(name, sizeof(name), strspn(storers[i].id, "0") == 16 ? "L2, or not known" : storers[i].id,
			      16),
		    show_count(a, storers[i].n[FOUND]), show_count(b, storers[i].n[ERRORS]));
}

int
cmd_verify(int argc, char **argv)
{
	struct operator op = OPERATOR_DEFAULTS;
	struct snapshot now = {NULL};
	const char *name_space = NULL;
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&op),
		CLI_TEXT("namespace", "NAME", &name_space, "this one alone, as kvscout status names it"),
	};
	const struct cli cli = {
		.tool = "kvscout verify",
		.about =
			"Says what engines found that computed hits themselves and compared them, since the server's start.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 1,
		.notes =
			"A hit counts once for each worker of its engine. The error is the norm of the difference, as a part of the norm\n"
			"of what was computed. kvscout peers --json lists the ids of workers.\n",
	};
	bool known = false;
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	status = operator_open(&op, &cli);
	if (status == 0)
		status = snapshot_take(&op, &now);
	for (uint32_t i = 0; status == 0 && i < now.n_ns; i++) {
		if (name_space && strcmp(name_space, now.ns[i]) != 0)
			continue;
		print(&now, now.ns[i]);
		known = true;
	}
	if (status == 0 && !known && name_space) {
		complain("the server lists no namespace of this name; kvscout status shows them");
		status = EXIT_FAILED;
	}
	snapshot_free(&now);
	operator_close(&op);
	return status;
}
