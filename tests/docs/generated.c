/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the parts of docs/ that come from the code: the option tables, the error table and the metrics. tests/docs/pages.sh
 * compares them with the pages, and with --write puts them there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/error.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "files.h"
#include "stats.h"

static const char *const scopes[] = {"", "call", "request", "connection", "client", "device"};

static void
print_rows(int (*row_of)(size_t i, struct scout_config_row *ret_row))
{
	struct scout_config_row row;

	printf("| Key | Default | Range | Meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; row_of(i, &row) == 0; i++) {
		printf("| `%s` | %s | %s | %s", row.name, row.def, row.range, row.meaning);
		if (row.alias)
			printf(" (also spelt `%s`)", row.alias);
		printf(" |\n");
	}
}

static void
print_errors(void)
{
	printf("| number | name | scope | retriable | meaning |\n|---|---|---|---|---|\n");
#define ROW(name, number, scope, retriable, text)                                                                      \
	printf("| %d | `SCOUT_ERR_%s` | %s | %s | %s |\n", number, #name, scopes[SCOUT_SCOPE_##scope],                 \
	       (retriable) ? "yes" : "no", text);
	SCOUT_ERROR_TABLE(ROW)
#undef ROW
}

static void
print_metrics(void)
{
	static const struct scout__stats_table *const tables[] = {&scout__stats_server, &scout__stats_fetch,
								  &scout__stats_l2,     &scout__stats_ns,
								  &scout__stats_group,  &scout__stats_tenant};
	char name[SCOUT__METRIC_BYTES], label[SCOUT__METRIC_BYTES];

	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (size_t i = 0; i < tables[t]->n; i++) {
			const struct scout__stats_item *item = &tables[t]->items[i];

			if (!item->help)
				continue;
			scout__stats_metric(tables[t], item, name, label);
			printf("* `kvscout_%s` (%s): %s\n", name, item->kind == SCOUT__COUNTER ? "counter" : "gauge",
			       item->help);
		}
}

int
main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "client") == 0)
		print_rows(scout_client_config_help);
	else if (strcmp(what, "server") == 0)
		print_rows(scout_server_config_help);
	else if (strcmp(what, "worker") == 0)
		print_rows(scout_worker_config_help);
	else if (strcmp(what, "fs") == 0)
		print_rows(scout__files_options_row);
	else if (strcmp(what, "errors") == 0)
		print_errors();
	else if (strcmp(what, "metrics") == 0)
		print_metrics();
	else
		return 2;
	return 0;
}
