/* SPDX-License-Identifier: Apache-2.0 */
/* What kvscout-latency writes for programs. */
#include "lat.h"

#include "json_env.h"

/* All options by their names. */
static json_t *
options_json(const struct lat_options *opt)
{
	return json_pack(
		"{s:s?, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:s?, "
		"s:s?, s:I, s:b}",
		"endpoint", opt->endpoint, "namespace", opt->name_space, "requests", (json_int_t)opt->requests,
		"warmup", (json_int_t)opt->warmup, "rounds", (json_int_t)opt->rounds, "chunks", (json_int_t)opt->chunks,
		"inflight", (json_int_t)opt->inflight, "step_us", (json_int_t)opt->step_us, "hit_ratio", opt->hit_ratio,
		"server_delay_us", (json_int_t)opt->server_delay_us, "spin_us", (json_int_t)opt->spin_us, "seed",
		(json_int_t)opt->seed, "compare", opt->compare, "verify", opt->verify, "clients",
		(json_int_t)opt->clients, "rate", (json_int_t)opt->rate, "prompts", (json_int_t)opt->prompts,
		"l1_bytes", (json_int_t)opt->l1_bytes, "pin", opt->pin, "peer", opt->peer, "server_spin_us",
		(json_int_t)opt->server_spin_us, "curve", opt->keys.secret_file != NULL);
}

static void
set_real(json_t *object, const char *key, bool is_known, double value)
{
	(void)json_object_set_new(object, key, is_known ? json_real(value) : json_null());
}

static json_t *
metrics_json(const struct lat *lat, unsigned int mode, json_t *(*to_json)(const struct scout__hist *hist))
{
	json_t *object = json_object();

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		if (lat_metrics(lat, mode) & 1u << m)
			(void)json_object_set_new(object, lat_metric_names[m], to_json(&lat->results[mode].metrics[m]));
	}
	return object;
}

static json_t *
counts_json(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)result->requests, "steps",
			 (json_int_t)result->steps, "hit_chunks", (json_int_t)result->hit_chunks, "asked_chunks",
			 (json_int_t)result->asked_chunks, "busy", (json_int_t)result->busy, "failed",
			 (json_int_t)result->failed, "wrong", (json_int_t)result->wrong);
}

/* What a scheduler has of it. Steps are null where a mode waits inside the step. */
static json_t *
scheduler_json(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];
	double stall_ns = lat_stall_per_request_ns(result), answered = (double)(result->requests - result->failed);
	json_t *object = json_object();

	set_real(object, "seconds", result->wall_ns, (double)result->wall_ns / 1e9);
	set_real(object, "lookups_per_s", result->wall_ns, lat_lookups_per_s(result));
	set_real(object, "stall_ns_per_request", stall_ns > 0, stall_ns);
	set_real(object, "same_step_share", result->asks.n, (double)result->landed_in_step / (double)result->asks.n);
	set_real(object, "switches_per_lookup", answered > 0, (double)result->switches / answered);
	set_real(object, "others_cpu_ns_per_lookup", answered > 0, (double)result->others_ns / answered);
	set_real(object, "lookups_per_server_cpu_s", result->server_ns, answered * 1e9 / (double)result->server_ns);
	(void)json_object_set_new(object, "steps_to_answer", json_hist(&result->asks));
	return object;
}

/* What percentiles are computed from, so that runs can be merged: [lowest, highest value, count] of each bucket. */
static json_t *
buckets_json(const struct scout__hist *hist)
{
	json_t *buckets = json_array();

	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++) {
		if (hist->counts[i])
			(void)json_array_append_new(buckets,
						    json_pack("[I, I, I]", (json_int_t)scout__hist_bucket_low(i),
							      (json_int_t)scout__hist_bucket_high(i),
							      (json_int_t)hist->counts[i]));
	}
	return json_pack("{s:f, s:o}", "sum", hist->sum, "buckets", buckets);
}

/* The median of each round, null where nothing was measured: ratios must be taken within a round. */
static json_t *
rounds_json(const struct lat *lat, unsigned int mode)
{
	json_t *object = json_object(), *array;

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		if (!(lat_metrics(lat, mode) & 1u << m))
			continue;
		array = json_array();
		for (uint64_t round = 0; round < lat->opt->rounds; round++) {
			uint64_t p50 = lat->round_p50[round][mode][m];

			(void)json_array_append_new(array, p50 ? json_integer((json_int_t)p50) : json_null());
		}
		(void)json_object_set_new(object, lat_metric_names[m], array);
	}
	return object;
}

static json_t *
ratios_json(const struct lat *lat, unsigned int mode)
{
	json_t *object = json_object();
	struct lat_ratio ratio;

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		ratio = lat_ratio_to_floor(lat, mode, m);
		if (ratio.n)
			(void)json_object_set_new(object, lat_metric_names[m],
						  json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)ratio.n, "min",
							    ratio.min, "p50", ratio.p50, "max", ratio.max));
	}
	return object;
}

static int
set(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value); /* takes the reference, also when it fails; refuses NULL */
}

int
lat_write_json(struct lat *lat, const char *path)
{
	json_t *root = json_object(), *modes = json_object(), *counts = json_object(), *ratios = json_object();
	json_t *scheduler = json_object(), *histograms = json_object(), *rounds = json_object();
	char err[LAT_ERR_BYTES] = "";
	const char *name;
	int rc = 0;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (!lat_is_chosen(lat->opt, mode))
			continue;
		name = lat_mode_names[mode];
		rc |= set(modes, name, metrics_json(lat, mode, json_hist));
		rc |= set(counts, name, counts_json(lat, mode));
		rc |= set(scheduler, name, scheduler_json(lat, mode));
		rc |= set(histograms, name, metrics_json(lat, mode, buckets_json));
		rc |= set(rounds, name, rounds_json(lat, mode));
		if (lat->opt->compare)
			rc |= set(ratios, name, ratios_json(lat, mode));
	}
	rc |= set(root, "tool", json_string("kvscout-latency"));
	rc |= set(root, "loop", json_string(lat->opt->rate ? "open" : "closed"));
	rc |= set(root, "interrupted", json_boolean(lat_is_stopped()));
	rc |= set(root, "failure", lat->failure[0] ? json_string(lat->failure) : json_null());
	rc |= set(root, "environment", json_env());
	rc |= set(root, "options", options_json(lat->opt));
	rc |= set(root, "floor_transport", json_string(lat_floor_transport(lat->opt)));
	rc |= set(root, "clock_ns", json_hist(&lat->clock));
	rc |= set(root, "modes", modes);
	rc |= set(root, "counts", counts);
	rc |= set(root, "ratios_to_floor", ratios);
	rc |= set(root, "scheduler", scheduler);
	rc |= set(root, "round_p50", rounds);
	rc |= set(root, "histograms", histograms);
	if (rc) {
		json_decref(root);
		return lat_fail(lat, "cannot make the JSON: out of memory, or a text that is not UTF-8");
	}
	if (json_write_file(root, path, err, sizeof(err)))
		return lat_fail(lat, "%s", err);
	return 0;
}
