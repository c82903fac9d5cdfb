/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "metrics_rig.h"
#include "waiting.h"
#include "server_l2_rig.h"

/* What /metrics and /status say: that it can be read, that it is what STATUS says, and that counters only grow. */

static struct page page, before;
static char different[512]; /* the last series that was not what STATUS says */

/* ---- each line ---- */

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

static void
hello_as(struct wire_peer *p, const char *endpoint, const char *name, size_t len)
{
	wire_open(p, endpoint);
	p->hello.name_space = (struct scout__str){name, len};
	ck_assert_int_eq(wire_hello(p), SCOUT_WIRE_OK);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(every_line_can_be_read_whatever_a_namespace_is_called)
{
	/* Whatever is UTF-8 without control characters; other names are refused at HELLO. */
	static const char *const names[] = {"a\"b",         "c\\d",        "e,f", "g{h=\"i\"} 1",
					    "\xe7\x94\xbb", "caf\xc3\xa9", "k v"};
	struct l2_rig r = l2_rig_of(8);
	struct wire_peer peers[7];

	r.cfg.metrics = "127.0.0.1:0";
	l2_up(&r);
	for (size_t i = 0; i < 7; i++)
		hello_as(&peers[i], r.rig.endpoint, names[i], strlen(names[i]));
	l2_store(&r.rig.worker, 1, 4);
	page_wait(&page, metrics_address(r.rig.server), "kvscout_namespaces", 8);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"test\"}") == 2);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"a\\\"b\"}") == 1);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"c\\\\d\"}") == 1);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"\xe7\x94\xbb\"}") == 1);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"caf\xc3\xa9\"}") == 1);
	ck_assert(page_value(&page, "kvscout_l2_info{adapter=\"0\",scheme=\"memory\",url=\"memory://a\"}") == 1);
	for (size_t i = 0; i < 7; i++)
		wire_close(&peers[i]);
	l2_down(&r);
}
END_TEST

START_TEST(namespaces_beyond_the_limit_are_counted_and_not_listed)
{
	struct wire_peer peers[SCOUT__STATS_NS + 4];
	char name[32];

	metrics_up(&rig, 8);
	for (unsigned i = 0; i < SCOUT__STATS_NS + 4; i++) {
		(void)snprintf(name, sizeof(name), "ns-%u", i);
		hello_as(&peers[i], rig.endpoint, name, strlen(name));
	}
	page_wait(&page, metrics_address(rig.server), "kvscout_namespaces", SCOUT__STATS_NS + 5);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"ns-62\"}") == 1);
	ck_assert(page_value(&page, "kvscout_namespace_peers{namespace=\"ns-63\"}") == -1);
	for (unsigned i = 0; i < SCOUT__STATS_NS + 4; i++)
		wire_close(&peers[i]);
}
END_TEST

/* A value has one name; what /metrics does not have is told by STATUS alone, and these are the only ones. */
START_TEST(each_value_is_in_both)
{
	static const char *const only[] = {"epoch",    "weights",     "chunk_tokens", "hash_tokens",  "hash_bytes",
					   "kv_ranks", "rank_first",  "rank_count",   "readers",      "groups",
					   "policy",   "unit_tokens", "span_tokens",  "margin_tokens"};
	const struct scout__stats_table *const tables[] = {&scout__stats_server, &scout__stats_fetch,
							   &scout__stats_l2,     &scout__stats_ns,
							   &scout__stats_group,  &scout__stats_tenant};

	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		for (size_t i = 0; i < tables[t]->n; i++) {
			const struct scout__stats_item *item = &tables[t]->items[i];
			bool is_allowed = false;

			for (size_t j = 0; j < sizeof(only) / sizeof(only[0]); j++)
				is_allowed |= strcmp(item->name, only[j]) == 0;
			ck_assert_msg(is_allowed || item->help || item->label, "%s", item->name);
		}
	}
}
END_TEST

/* ---- the name that /metrics makes of it ---- */

START_TEST(names_in_metrics_follow_those_of_status)
{
	static const struct {
		const char *name, *label, *family, *of;
		uint32_t per_unit;
		uint8_t kind;
	} cases[] = {
		{"peers.died", NULL, "p_peers_died_total", "", 0, SCOUT__COUNTER},
		{"l1.bytes_used", NULL, "p_l1_bytes_used", "", 0, SCOUT__GAUGE},
		{"uptime_ms", NULL, "p_uptime_seconds", "", 1000, SCOUT__GAUGE},
		{"lookups.full", "result", "p_lookups_total", "result=\"full\"", 0, SCOUT__COUNTER},
		{"breaker.reads", "side", "p_breaker", "side=\"reads\"", 0, SCOUT__GAUGE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct scout__stats_item item = {.name = cases[i].name,
						       .label = cases[i].label,
						       .kind = cases[i].kind,
						       .per_unit = cases[i].per_unit};
		const struct scout__stats_table table = {&item, 1, "p_"};
		char family[SCOUT__METRIC_BYTES], label[SCOUT__METRIC_BYTES];

		scout__stats_metric(&table, &item, family, label);
		ck_assert_str_eq(family, cases[i].family);
		ck_assert_str_eq(label, cases[i].of);
	}
}
END_TEST

/* ---- the same as STATUS ---- */

/* What changes by asking, and with time. */
static bool
changes(const char *status)
{
	static const char *const names[] = {"uptime_ms",       "frames.received", "frames.sent", "loop.longest_us",
					    "loop.slow_steps", "loop.steps",      "loop.turns"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(status, names[i]) == 0)
			return true;
	return false;
}

/* Rows that differ between /metrics and STATUS, both asked now. */
static unsigned
differences(struct wire_peer *p, const struct scout__stats_table *table, const char *prefix, const char *labels)
{
	unsigned n = 0;

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__stats_item *item = &table->items[i];
		char status[320], series[512], family[SCOUT__METRIC_BYTES], label[SCOUT__METRIC_BYTES];
		double value;
		uint64_t want;

		if ((!item->help && !item->label) || changes(item->name))
			continue;
		scout__stats_metric(table, item, family, label);
		(void)snprintf(status, sizeof(status), "%s%s", prefix, item->name);
		(void)snprintf(series, sizeof(series), "kvscout_%s%s%s%s%s%s", family, *labels || *label ? "{" : "",
			       labels, *labels && *label ? "," : "", label, *labels || *label ? "}" : "");
		value = page_value(&page, series);
		want = wire_status(p, status);
		if (want == UINT64_MAX ? value == -1 : value * (item->per_unit ? item->per_unit : 1) == (double)want)
			continue;
		(void)snprintf(different, sizeof(different), "%s", series);
		n++;
	}
	return n;
}

START_TEST(values_are_those_of_status)
{
	struct l2_rig r = l2_rig_of(64);
	struct wire_peer *p = &r.rig.client;
	unsigned n = 1;

	r.cfg.metrics = "127.0.0.1:0";
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_lookup(p, 11, 1, 8, 8, 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 11, 1, 0, 8), 8);
	wait_until(n == 0) {
		page_get(&page, metrics_address(r.rig.server));
		n = differences(p, &scout__stats_server, "", "");
		n += differences(p, &scout__stats_fetch, "", "");
		n += differences(p, &scout__stats_l2, "l2.0.", "adapter=\"0\",scheme=\"memory\"");
		n += differences(p, &scout__stats_ns, "ns.test.", "namespace=\"test\"");
	}
	l2_down(&r);
}
END_TEST

/* What an operator's lookup needs, so that its HELLO does not change the namespace. */
START_TEST(status_tells_the_parameters_and_the_times_of_lookups)
{
	uint64_t n = 0;

	rig_up(&rig, 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.chunk_tokens"), rig.client.hello.chunk_tokens);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.hash_tokens"), rig.client.hello.chunk_tokens);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.hash_bytes"), 16);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.kv_ranks"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.rank_first"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.rank_count"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.readers"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.groups"), 1);
	for (uint32_t i = 0; i < 3; i++)
		(void)rig_peek(&rig.client, 1, 4);
	for (uint32_t i = 0; i <= SCOUT__LATENCY_BOUNDS; i++) {
		char name[64] = "lookups.time_us.longer";

		if (i < SCOUT__LATENCY_BOUNDS)
			(void)snprintf(name, sizeof(name), "lookups.time_us.%u", (unsigned)scout__latency_bounds_us[i]);
		n += wire_status(&rig.client, name);
	}
	ck_assert_uint_eq(n, 3);
}
END_TEST

START_TEST(values_are_what_happened)
{
	struct scout__lookup_reply m;
	uint32_t kept;

	metrics_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	ck_assert_uint_eq(rig_hit(&rig.client, 1, 1, 6), 6);
	ck_assert_uint_eq(rig_hit(&rig.client, 2, 1, 8), 6);
	ck_assert_uint_eq(rig_hit(&rig.client, 3, 101, 5), 0);
	ck_assert_int_eq(wire_lookup(&rig.client, 4, 1, 6, 2, &m), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_admit(&rig.client, 99, 0, 1, &kept), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_simple(&rig.client, 77, 0), SCOUT_WIRE_UNKNOWN_OP);
	rig_finish(&rig.client, 1);
	page_wait(&page, metrics_address(rig.server), "kvscout_ops_total{operation=\"finish\"}", 1);
	ck_assert(page_value(&page, "kvscout_up") == 1);
	ck_assert(page_value(&page, "kvscout_ops_total{operation=\"lookup\"}") == 4);
	ck_assert(page_value(&page, "kvscout_lookups_total{result=\"full\"}") == 2);
	ck_assert(page_value(&page, "kvscout_lookups_total{result=\"partial\"}") == 1);
	ck_assert(page_value(&page, "kvscout_lookups_total{result=\"none\"}") == 1);
	ck_assert(page_value(&page, "kvscout_lookups_asked_chunks_total") == 6 + 8 + 5 + 4);
	ck_assert(page_value(&page, "kvscout_lookups_hit_chunks_total") == 6 + 6 + 0 + 4);
	ck_assert(page_value(&page, "kvscout_namespace_lookups_total{namespace=\"test\"}") == 4);
	ck_assert(page_value(&page, "kvscout_namespace_asked_tokens_total{namespace=\"test\"}") == 23 * 16);
	ck_assert(page_value(&page, "kvscout_namespace_hit_tokens_total{namespace=\"test\"}") == 16 * 16);
	ck_assert(page_value(&page, "kvscout_namespace_ceiling_chunks_total{namespace=\"test\"}") == 16);
	ck_assert(page_value(&page, "kvscout_refused_total{reason=\"no_session\"}") == 1);
	ck_assert(page_value(&page, "kvscout_refused_total{reason=\"unknown_op\"}") == 1);
	ck_assert(page_value(&page, "kvscout_refused_total{reason=\"limit\"}") == 0);
	ck_assert(page_value(&page, "kvscout_ops_refused_total") == 2);
	ck_assert(page_value(&page, "kvscout_sessions") == 3);
	ck_assert(page_value(&page, "kvscout_l1_bytes_promised") == 6 * SHARD_BYTES);
	ck_assert(page_value(&page, "kvscout_l1_bytes_used") == 6 * SHARD_BYTES);
	/* The pool grows as it is used. */
	ck_assert(page_value(&page, "kvscout_l1_bytes_extents") >= 6 * SHARD_BYTES);
	ck_assert(page_value(&page, "kvscout_l1_evictions_total") == 0);
	ck_assert(page_value(&page, "kvscout_bugs_mismatches_total") == 0);
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_count") == 4);
	ck_assert_uint_eq(wire_status(&rig.client, "refused.no_session"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "refused.limit"), UINT64_MAX);
}
END_TEST

START_TEST(lookups_fall_into_the_bucket_of_their_time)
{
	struct scout_server_config cfg = rig_config(8);

	cfg.metrics = "127.0.0.1:0";
	cfg.reply_delay_us = 30000;
	rig_up_with(&rig, &cfg);
	for (unsigned i = 1; i <= 5; i++)
		(void)rig_hit(&rig.client, i, 1, 4);
	page_wait(&page, metrics_address(rig.server), "kvscout_lookup_duration_seconds_count", 5);
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_bucket{le=\"0.025000\"}") == 0);
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_bucket{le=\"10\"}") == 5);
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_bucket{le=\"+Inf\"}") == 5);
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_sum") >= 0.15);
}
END_TEST

START_TEST(stores_of_the_second_tier_are_timed)
{
	static const char bucket[] =
		"kvscout_l2_operation_duration_seconds_count{adapter=\"0\",scheme=\"memory\",operation=\"%s\"}";
	struct l2_rig r = l2_rig_of(64);
	char series[160];

	r.cfg.metrics = "127.0.0.1:0";
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 4);
	(void)snprintf(series, sizeof(series), bucket, "store");
	page_wait(&page, metrics_address(r.rig.server), series, 4);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 11, 1, 4, 0, 4);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 11, 1, 0, 4), 4);
	(void)snprintf(series, sizeof(series), bucket, "load");
	page_wait(&page, metrics_address(r.rig.server), series, 4);
	(void)snprintf(series, sizeof(series), bucket, "exists");
	ck_assert(page_value(&page, series) == 1);
	ck_assert(page_value(&page, "kvscout_l2_hit_chunks_total") == 4);
	ck_assert(page_value(&page, "kvscout_l2_breaker{adapter=\"0\",scheme=\"memory\",side=\"reads\"}") == 0);
	ck_assert(page_value(&page, "kvscout_l2_operations_total{adapter=\"0\",scheme=\"memory\",operation=\"load\","
				    "result=\"ok\"}") == 4);
	/* A store that fails five times is switched off, and here is where one sees it. */
	l2_memory_fail(r.m, SCOUT__L2_STORE, 1000, SCOUT__L2_ERROR);
	l2_store_in_pool(&r.rig.worker, 101, 6);
	page_wait(&page, metrics_address(r.rig.server),
		  "kvscout_l2_breaker{adapter=\"0\",scheme=\"memory\",side=\"writes\"}", 1);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 0, SCOUT__L2_OK);
	l2_down(&r);
}
END_TEST

START_TEST(status_is_json_of_the_same_names)
{
	static const char *const names[] = {"l1.chunks", "lookups.full", "peers", "ns.te\"st.peers", "ops.lookup"};
	static const uint64_t values[] = {6, 1, 3, 1, 1};
	struct wire_peer p;
	char *text, line[128];

	metrics_up(&rig, 8);
	hello_as(&p, rig.endpoint, "te\"st", 5);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	ck_assert_uint_eq(rig_hit(&rig.client, 1, 1, 6), 6);
	page_wait(&page, metrics_address(rig.server), "kvscout_ops_total{operation=\"lookup\"}", 1);
	text = http_get(metrics_address(rig.server), "/status");
	for (size_t i = 0; i < 5; i++) {
		(void)snprintf(line, sizeof(line), "\t\t\"%s\": %llu", i == 3 ? "ns.te\\\"st.peers" : names[i],
			       (unsigned long long)values[i]);
		ck_assert_msg(strstr(text, line), "no %s in %s", line, text);
		ck_assert_uint_eq(wire_status(&rig.client, names[i]), values[i]);
	}
	(void)snprintf(line, sizeof(line), "\"epoch\": \"%016llx\"", (unsigned long long)rig.client.epoch);
	ck_assert_ptr_nonnull(strstr(text, line));
	ck_assert_ptr_nonnull(strstr(text, "\"healthy\": true"));
	free(text);
	wire_close(&p);
}
END_TEST

/* ---- under load ---- */

struct load {
	const char *endpoint;
	atomic_bool stop;
	atomic_uint n;
};

static void *
load_main(void *arg)
{
	struct load *load = arg;
	struct scout__lookup_reply m;
	struct wire_peer p;
	uint64_t ticket = 1000;

	wire_open(&p, load->endpoint);
	if (wire_hello(&p) != SCOUT_WIRE_OK)
		abort();
	while (!atomic_load(&load->stop)) {
		if (wire_lookup(&p, ++ticket, 1, 6, 0, &m) != SCOUT_WIRE_OK ||
		    wire_simple(&p, SCOUT_OP_FINISH, ticket) != SCOUT_WIRE_OK)
			abort();
		atomic_fetch_add(&load->n, 1);
	}
	wire_close(&p);
	return NULL;
}

START_TEST(counters_only_grow_under_load)
{
	struct load load = {.stop = false};
	pthread_t thread;
	unsigned n = 0;

	metrics_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	load.endpoint = rig.endpoint;
	ck_assert_int_eq(pthread_create(&thread, NULL, load_main, &load), 0);
	page_wait(&before, metrics_address(rig.server), "kvscout_l1_chunks", 6);
	/* Often, and until something has happened, too. */
	while (n < 50 || atomic_load(&load.n) < 200) {
		page_get(&page, metrics_address(rig.server));
		ck_assert_uint_eq(page.n, before.n);
		for (size_t i = 0; i < page.n; i++) {
			ck_assert_str_eq(page.series[i].name, before.series[i].name);
			ck_assert_msg(!page.series[i].grows || page.series[i].value >= before.series[i].value,
				      "%s fell from %f to %f", page.series[i].name, before.series[i].value,
				      page.series[i].value);
		}
		before = page;
		n++;
	}
	atomic_store(&load.stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	page_wait(&page, metrics_address(rig.server), "kvscout_lookups_total{result=\"full\"}", atomic_load(&load.n));
	ck_assert(page_value(&page, "kvscout_lookup_duration_seconds_count") == atomic_load(&load.n));
}
END_TEST

/* However often somebody asks, the loop is asked 50 times a second at most. */
START_TEST(a_flood_of_requests_does_not_keep_the_loop_busy)
{
	uint64_t start_us, took_us;
	double turns, again;

	metrics_up(&rig, 8);
	page_get(&page, metrics_address(rig.server));
	turns = page_value(&page, "kvscout_loop_turns_total");
	start_us = scout__now_us();
	for (unsigned i = 0; i < 500; i++)
		free(http_get(metrics_address(rig.server), "/metrics"));
	took_us = scout__now_us() - start_us;
	page_get(&page, metrics_address(rig.server));
	again = page_value(&page, "kvscout_loop_turns_total");
	/* It turns 50 times a second by itself. */
	ck_assert_msg(again - turns <= 10 + 2 * (double)took_us / 20000, "%f turns in %f s", again - turns,
		      (double)took_us / 1e6);
}
END_TEST
