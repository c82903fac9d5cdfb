/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/version.h>

/*
 * DESIGN
 *
 * One block of values as Prometheus' text format 0.0.4, and as JSON. The format wants all lines of a name together, so
 * each row of a table is written for all adapters or namespaces before the next row. Counters are there from the start,
 * even if nothing has happened yet: a counter that appears with its first event has no rate for that event.
 *
 * Numbers are written as integers or with a point of our own: printf's %f follows the locale of the host program.
 *
 * Threads: any; HTTP thread.
 */

#define PREFIX "kvscout_"

static void
family(struct scout__text *text, const char *name, enum scout__stats_kind kind, const char *help)
{
	static const char *const kinds[] = {"", "counter", "gauge", "histogram"};

	scout__text_add(text, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, kinds[kind]);
}

/* NAME{A,B}, followed by a blank; A, B or both may be empty. */
static void
series(struct scout__text *text, const char *name, const char *suffix, const struct scout__text *a, const char *b)
{
	size_t len = a && !a->failed ? a->len : 0;

	scout__text_add(text, PREFIX "%s%s", name, suffix);
	if (len || *b)
		scout__text_add(text, "{%.*s%s%s}", (int)len, len ? a->p : "", len && *b ? "," : "", b);
	scout__text_add(text, " ");
}

static void
sample(struct scout__text *text, const char *name, const struct scout__text *a, const char *b, uint64_t value,
       uint32_t per_unit)
{
	series(text, name, "", a, b);
	scout__text_number(text, value, per_unit);
	scout__text_add(text, "\n");
}

/* A metric of one value without labels. */
static void
alone(struct scout__text *text, const char *name, enum scout__stats_kind kind, const char *help, uint64_t value,
      uint32_t per_unit)
{
	if (value == UINT64_MAX)
		return;
	family(text, name, kind, help);
	sample(text, name, NULL, "", value, per_unit);
}

/* Of @n structures of @size bytes from @of on. @labels: of each, before those of the row; NULL: none. */
static void
table(struct scout__text *text, const struct scout__stats_table *t, const struct scout__text *labels, const void *of,
      size_t size, uint32_t n)
{
	char name[SCOUT__METRIC_BYTES], label[SCOUT__METRIC_BYTES];

	for (size_t i = 0; i < t->n && n > 0; i++) {
		const struct scout__stats_item *item = &t->items[i];

		if (!item->help && !item->label)
			continue;
		scout__stats_metric(t, item, name, label);
		if (item->help)
			family(text, name, item->kind, item->help);
		for (uint32_t j = 0; j < n; j++) {
			uint64_t value = scout__stats_value(item, (const char *)of + j * size);

			if (!item->unknown_is_max || value != UINT64_MAX)
				sample(text, name, labels ? &labels[j] : NULL, label, value, item->per_unit);
		}
	}
}

/* One series of a histogram whose HELP and TYPE are written already. */
static void
histogram(struct scout__text *text, const char *name, const struct scout__text *a, const char *b,
	  const struct scout__latency *latency)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i <= SCOUT__LATENCY_BOUNDS; i++) {
		struct scout__text bound = {0};
		char labels[128];

		sum += latency->counts[i];
		if (i < SCOUT__LATENCY_BOUNDS)
			scout__text_number(&bound, scout__latency_bounds_us[i], 1000000);
		else
			scout__text_add(&bound, "+Inf");
		(void)snprintf(labels, sizeof(labels), "%s%sle=\"%.*s\"", b, *b ? "," : "", (int)bound.len,
			       bound.p ? bound.p : "");
		text->failed |= bound.failed;
		scout__text_fini(&bound);
		series(text, name, "_bucket", a, labels);
		scout__text_add(text, "%" PRIu64 "\n", sum);
	}
	series(text, name, "_sum", a, b);
	scout__text_number(text, latency->sum_us, 1000000);
	scout__text_add(text, "\n");
	series(text, name, "_count", a, b);
	scout__text_add(text, "%" PRIu64 "\n", sum);
}

/* ---- what is known without the loop ---- */

static void
info(const struct scout__stats *stats, const struct scout__metrics_facts *facts, struct scout__text *text)
{
	family(text, "build_info", SCOUT__GAUGE, "What is running; always 1.");
	scout__text_add(text,
			PREFIX "build_info{version=\"%s\",protocol=\"%d\",build_type=\"%s\",sanitizers=\"%s\"} 1\n",
			scout_version(), SCOUT_WIRE_VERSION, SCOUT_BUILD_TYPE, SCOUT_SANITIZE);
	family(text, "server_info", SCOUT__GAUGE,
	       "This start of the server, and how it is configured; always 1. Another epoch: it was restarted.");
	scout__text_add(text, PREFIX "server_info{epoch=\"%016" PRIx64 "\",endpoint=\"", stats->epoch);
	scout__text_label(text, facts->endpoint, strlen(facts->endpoint));
	scout__text_add(text, "\",eviction=\"");
	scout__text_label(text, facts->eviction, strlen(facts->eviction));
	scout__text_add(text, "\",prefetch=\"%s\",l2_objects=\"%s\"} 1\n", facts->prefetch, facts->l2_objects);
}

static void
health(const struct scout__metrics_facts *facts, struct scout__text *text)
{
	alone(text, "up", SCOUT__GAUGE, "1 when /healthz is 200: the loop turns and the server is not stopping.",
	      facts->healthy, 1);
	alone(text, "start_time_seconds", SCOUT__GAUGE, "When the server started, in Unix time.", facts->start_time_s,
	      1);
	alone(text, "loop_heartbeat_age_seconds", SCOUT__GAUGE, "Since the loop turned last.", facts->heartbeat_age_us,
	      1000000);
	alone(text, "snapshot_age_seconds", SCOUT__GAUGE, "Since these values were taken.", facts->snapshot_age_us,
	      1000000);
	alone(text, "loop_cpu_seconds_total", SCOUT__COUNTER, "Processor time of the loop's thread.",
	      facts->loop_cpu_us, 1000000);
	alone(text, "process_cpu_seconds_total", SCOUT__COUNTER, "Processor time of the process.",
	      facts->process_cpu_us, 1000000);
	alone(text, "process_resident_memory_bytes", SCOUT__GAUGE, "Memory of the process.", facts->resident_bytes, 1);
	alone(text, "process_open_fds", SCOUT__GAUGE, "Open descriptors of the process.", facts->open_fds, 1);
	alone(text, "process_max_fds", SCOUT__GAUGE, "Descriptors that the process may have.", facts->max_fds, 1);
}

/* ---- what comes from arrays ---- */

static void
server_arrays(const struct scout__stats *stats, struct scout__text *text)
{
	char name[64], labels[96];

	family(text, "ops_total", SCOUT__COUNTER, "Operations that arrived.");
	for (unsigned i = 1; i <= SCOUT_OP_LAST; i++) {
		if (i == SCOUT_OP_ERROR)
			continue;
		scout__stats_op_name(i, name, sizeof(name));
		(void)snprintf(labels, sizeof(labels), "operation=\"%s\"", name);
		sample(text, "ops_total", NULL, labels, stats->count.ops[i], 1);
	}
	family(text, "refused_total", SCOUT__COUNTER,
	       "Operations and frames that were refused, by the status of the reply.");
	for (unsigned i = 0; i <= SCOUT_WIRE_LAST; i++) {
		scout__stats_refusal_name(i, name, sizeof(name));
		(void)snprintf(labels, sizeof(labels), "reason=\"%s\"", name);
		sample(text, "refused_total", NULL, labels, stats->count.refused[i], 1);
	}
	family(text, "lookup_duration_seconds", SCOUT__HISTOGRAM,
	       "From when the loop took a lookup's frame to when it gave the answer to the socket.");
	histogram(text, "lookup_duration_seconds", NULL, "", &stats->count.lookup_time);
	family(text, "frame_wait_seconds", SCOUT__HISTOGRAM,
	       "How much longer frames were on their way to the loop than the fastest of their peer.");
	histogram(text, "frame_wait_seconds", NULL, "", &stats->count.frame_wait);
}

static void
adapter_results(const struct scout__stats *stats, const struct scout__text *labels, struct scout__text *text)
{
	char more[96];

	family(text, "l2_operations_total", SCOUT__COUNTER, "Operations on a store that ended.");
	for (uint32_t i = 0; i < stats->n_l2; i++) {
		for (unsigned what = SCOUT__L2_EXISTS; what < SCOUT__L2_WHATS; what++) {
			for (unsigned result = 0; result < SCOUT__L2_RESULTS; result++) {
				(void)snprintf(more, sizeof(more), "operation=\"%s\",result=\"%s\"",
					       scout__l2_what_name((uint8_t)what),
					       scout__l2_result_name((uint8_t)result));
				sample(text, "l2_operations_total", &labels[i], more,
				       stats->l2[i].count.results[what][result], 1);
			}
		}
	}
}

static void
adapter_times(const struct scout__stats *stats, const struct scout__text *labels, struct scout__text *text)
{
	static const uint8_t kinds[] = {SCOUT__L2_EXISTS, SCOUT__L2_LOAD, SCOUT__L2_STORE, SCOUT__L2_REMOVE};
	char more[64];

	family(text, "l2_operation_duration_seconds", SCOUT__HISTOGRAM,
	       "How long the store had an operation that it was given, whatever came of it.");
	for (uint32_t i = 0; i < stats->n_l2; i++) {
		for (size_t j = 0; j < sizeof(kinds); j++) {
			(void)snprintf(more, sizeof(more), "operation=\"%s\"", scout__l2_what_name(kinds[j]));
			histogram(text, "l2_operation_duration_seconds", &labels[i], more,
				  &stats->l2[i].count.took[kinds[j]]);
		}
	}
}

/* ---- many of a kind ---- */

static void
adapters(const struct scout__stats *stats, struct scout__text *text)
{
	struct scout__text labels[SCOUT__L2_MAX_ADAPTERS] = {{0}};

	family(text, "l2_info", SCOUT__GAUGE, "Which store has which number; always 1. Without its password.");
	for (uint32_t i = 0; i < stats->n_l2; i++) {
		const struct scout__stats_l2 *a = &stats->l2[i];

		scout__text_add(&labels[i], "adapter=\"%u\",scheme=\"%s\"", (unsigned)i, a->scheme);
		text->failed |= labels[i].failed;
		scout__text_add(text, PREFIX "l2_info{adapter=\"%u\",scheme=\"%s\",url=\"", (unsigned)i, a->scheme);
		scout__text_label(text, a->url, strlen(a->url));
		scout__text_add(text, "\"} 1\n");
	}
	table(text, &scout__stats_l2, labels, stats->l2, sizeof(stats->l2[0]), stats->n_l2);
	adapter_results(stats, labels, text);
	adapter_times(stats, labels, text);
	for (uint32_t i = 0; i < stats->n_l2; i++)
		scout__text_fini(&labels[i]);
}

static void
namespaces(const struct scout__stats *stats, struct scout__text *text)
{
	struct scout__text labels[SCOUT__STATS_NS];
	char weights[48];

	if (stats->n_ns == 0)
		return;
	family(text, "namespace_info", SCOUT__GAUGE, "Version of the weights that a namespace is for; always 1.");
	for (uint32_t i = 0; i < stats->n_ns; i++) {
		const struct scout__stats_ns *ns = &stats->ns[i];

		labels[i] = (struct scout__text){0};
		scout__text_add(&labels[i], "namespace=\"");
		scout__text_label(&labels[i], ns->name, ns->name_len);
		scout__text_add(&labels[i], "\"");
		text->failed |= labels[i].failed;
		(void)snprintf(weights, sizeof(weights), "weights_version=\"%" PRIu64 "\"", ns->weights);
		sample(text, "namespace_info", &labels[i], weights, 1, 1);
	}
	table(text, &scout__stats_ns, labels, stats->ns, sizeof(stats->ns[0]), stats->n_ns);
	for (uint32_t i = 0; i < stats->n_ns; i++)
		scout__text_fini(&labels[i]);
}

static void
groups(const struct scout__stats *stats, struct scout__text *text)
{
	struct scout__text labels[SCOUT__STATS_GROUPS];

	for (uint32_t i = 0; i < stats->n_groups; i++) {
		const struct scout__stats_group *group = &stats->groups[i];
		const struct scout__stats_ns *ns = &stats->ns[group->ns];

		labels[i] = (struct scout__text){0};
		scout__text_add(&labels[i], "namespace=\"");
		scout__text_label(&labels[i], ns->name, ns->name_len);
		scout__text_add(&labels[i], "\",group=\"%u\"", (unsigned)group->number);
		text->failed |= labels[i].failed;
	}
	table(text, &scout__stats_group, labels, stats->groups, sizeof(stats->groups[0]), stats->n_groups);
	for (uint32_t i = 0; i < stats->n_groups; i++)
		scout__text_fini(&labels[i]);
}

static void
tenants(const struct scout__stats *stats, struct scout__text *text)
{
	struct scout__text labels[SCOUT__STATS_TENANTS];

	for (uint32_t i = 0; i < stats->n_tenants; i++) {
		const struct scout__stats_tenant *tenant = &stats->tenants[i];
		const struct scout__stats_ns *ns = &stats->ns[tenant->ns];

		labels[i] = (struct scout__text){0};
		scout__text_add(&labels[i], "namespace=\"");
		scout__text_label(&labels[i], ns->name, ns->name_len);
		scout__text_add(&labels[i], "\",tenant=\"");
		scout__text_label(&labels[i], tenant->name, tenant->name_len);
		scout__text_add(&labels[i], "\"");
		text->failed |= labels[i].failed;
	}
	table(text, &scout__stats_tenant, labels, stats->tenants, sizeof(stats->tenants[0]), stats->n_tenants);
	for (uint32_t i = 0; i < stats->n_tenants; i++)
		scout__text_fini(&labels[i]);
}

void
scout__metrics_text(const struct scout__stats *stats, const struct scout__metrics_facts *facts,
		    struct scout__text *text)
{
	info(stats, facts, text);
	health(facts, text);
	table(text, &scout__stats_server, NULL, stats, 0, 1);
	server_arrays(stats, text);
	if (stats->has_fetch) {
		table(text, &scout__stats_fetch, NULL, stats, 0, 1);
		adapters(stats, text);
	}
	namespaces(stats, text);
	groups(stats, text);
	tenants(stats, text);
}

void
scout__metrics_health(const struct scout__stats *stats, struct scout__text *text)
{
	scout__text_add(text, "ok\n");
	for (uint32_t i = 0; i < stats->n_l2; i++)
		if (stats->l2[i].state >= SCOUT__L2_FAILING)
			scout__text_add(text, "L2 %u %s: %s: %s\n", (unsigned)i, stats->l2[i].url,
					stats->l2[i].state == SCOUT__L2_OFF ? "off" : "failing", stats->l2[i].words);
}

/* ---- JSON ---- */

struct json {
	struct scout__text *text;
	bool has_one;
};

static void
json_item(void *user, const char *name, uint64_t value)
{
	struct json *json = user;

	scout__text_add(json->text, "%s\n\t\t\"", json->has_one ? "," : "");
	json->has_one = true;
	scout__text_json(json->text, name, strlen(name));
	/* A string, as in the log: a program would round a number. */
	if (strcmp(name, "epoch") == 0)
		scout__text_add(json->text, "\": \"%016" PRIx64 "\"", value);
	else
		scout__text_add(json->text, "\": %" PRIu64, value);
}

void
scout__metrics_json(const struct scout__stats *stats, const struct scout__metrics_facts *facts,
		    struct scout__text *text)
{
	struct json json = {text, false};

	scout__text_add(
		text,
		"{\n\t\"version\": \"%s\",\n\t\"protocol\": %d,\n\t\"build_type\": \"%s\",\n\t\"sanitizers\": \"%s\",\n"
		"\t\"endpoint\": \"",
		scout_version(), SCOUT_WIRE_VERSION, SCOUT_BUILD_TYPE, SCOUT_SANITIZE);
	scout__text_json(text, facts->endpoint, strlen(facts->endpoint));
	scout__text_add(text, "\",\n\t\"epoch\": \"%016" PRIx64 "\",\n\t\"healthy\": %s,\n\t\"reason\": \"",
			stats->epoch, facts->healthy ? "true" : "false");
	scout__text_json(text, facts->reason, strlen(facts->reason));
	scout__text_add(text,
			"\",\n\t\"start_time_s\": %" PRIu64 ",\n\t\"heartbeat_age_us\": %" PRIu64
			",\n\t\"snapshot_age_us\": %" PRIu64 ",\n\t\"loop_cpu_us\": %" PRIu64 ",\n\t\"status\": {",
			facts->start_time_s, facts->heartbeat_age_us, facts->snapshot_age_us, facts->loop_cpu_us);
	(void)scout__stats_each(stats, json_item, &json);
	scout__text_add(text, "\n\t}\n}\n");
}
