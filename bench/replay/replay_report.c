/* SPDX-License-Identifier: Apache-2.0 */
/* The results of kvscout-replay, as text and as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "json_env.h"
#include "replay.h"
#include "say.h"

double
replay_hit_ratio(const struct replay *replay)
{
	return replay->blocks ? (double)replay->hit_blocks / (double)replay->blocks : 0;
}

static json_t *
times_json(const struct engine_job_times *times)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "jobs", (json_int_t)times->jobs, "bytes",
			 (json_int_t)times->bytes, "queued_us", (json_int_t)times->queued_us, "server_us",
			 (json_int_t)times->server_us, "copy_us", (json_int_t)times->copy_us);
}

static void
print_times(const char *what, const struct engine_job_times *times)
{
	say("%-15s %" PRIu64 " jobs, %.1f MiB: queued %.3f s, server %.3f s, copying %.3f s\n", what, times->jobs,
	    (double)times->bytes / (1 << 20), (double)times->queued_us / 1e6, (double)times->server_us / 1e6,
	    (double)times->copy_us / 1e6);
}

static json_t *
result_json(const struct replay *replay, bool interrupted)
{
	const struct engine_job_times retrieves = engine_times(replay->engine, SCOUT_JOB_RETRIEVE);
	const struct engine_job_times stores = engine_times(replay->engine, SCOUT_JOB_STORE);
	const struct engine_stats *stats = engine_stats(replay->engine);
	const struct replay_options *opt = replay->opt;
	json_t *result;
	json_t *config = json_pack("{s:s, s:s?, s:s?, s:I, s:I, s:I, s:s?, s:b}", "trace", opt->trace, "eviction",
				   opt->eviction, "l2", opt->l2, "block_bytes", (json_int_t)opt->block_bytes,
				   "kv_ranks", (json_int_t)opt->kv_ranks, "limit", (json_int_t)opt->limit, "endpoint",
				   opt->endpoint, "curve", opt->keys.secret_file != NULL);

	if (config)
		json_object_set_new(config, "hints", opt->hints ? json_string(opt->hints) : json_null());
	if (config)
		json_object_set_new(config, "l1_blocks",
				    opt->endpoint ? json_null() : json_integer((json_int_t)opt->l1_blocks));
	result = json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o}",
			   "tool", REPLAY_TOOL, "interrupted", interrupted, "requests", (json_int_t)replay->requests,
			   "blocks", (json_int_t)replay->blocks, "hit_blocks", (json_int_t)replay->hit_blocks,
			   "l2_hit_blocks", (json_int_t)replay->l2_hit_blocks, "hit_ratio", replay_hit_ratio(replay),
			   "evicted", (json_int_t)replay->evicted, "missing_blocks", (json_int_t)stats->blocks_missing,
			   "no_room_blocks", (json_int_t)stats->chunks_no_room, "bytes_verified",
			   (json_int_t)stats->bytes_verified, "wrong_bytes", (json_int_t)stats->wrong_bytes, "wall_s",
			   (double)replay->wall_ns / 1e9, "retrieves", times_json(&retrieves), "stores",
			   times_json(&stores), "config", config, "environment", json_env());
	if (result && replay->has_ceiling) {
		json_object_set_new(result, "ceiling_blocks", json_integer((json_int_t)replay->ceiling_blocks));
		json_object_set_new(result, "endless_blocks", json_integer((json_int_t)replay->endless_blocks));
	}
	return result;
}

static void
print_text(const struct replay *replay)
{
	const struct engine_stats *stats = engine_stats(replay->engine);
	const struct engine_job_times retrieves = engine_times(replay->engine, SCOUT_JOB_RETRIEVE);
	const struct engine_job_times stores = engine_times(replay->engine, SCOUT_JOB_STORE);
	const char *why;

	if (json_env_is_slow_build(&why))
		say("note: %s\n", why);
	say("requests        %" PRIu64 "\n"
	    "blocks          %" PRIu64 "\n"
	    "hit blocks      %" PRIu64 "\n"
	    "  L2   %" PRIu64 "\n"
	    "hit ratio       %.4f\n"
	    "evicted         %" PRIu64 "\n"
	    "bytes verified  %" PRIu64 "\n"
	    "wall time       %.2f s\n"
	    "wrong bytes: %" PRIu64 "\n",
	    replay->requests, replay->blocks, replay->hit_blocks, replay->l2_hit_blocks, replay_hit_ratio(replay),
	    replay->evicted, stats->bytes_verified, (double)replay->wall_ns / 1e9, stats->wrong_bytes);
	if (replay->has_ceiling)
		say("without end     %.4f; the server's estimate: %.4f\n",
		    (double)replay->endless_blocks / (double)replay->blocks,
		    (double)replay->ceiling_blocks / (double)replay->blocks);
	print_times("retrieves", &retrieves);
	print_times("stores", &stores);
}

int
replay_report(const struct replay *replay, bool interrupted)
{
	const struct engine_stats *stats = engine_stats(replay->engine);
	const char *json = replay->opt->json;
	char err[REPLAY_ERR_LEN];

	if (!json || strcmp(json, "-") != 0)
		print_text(replay);
	if (json && json_write_file(result_json(replay, interrupted), json, err, sizeof(err)) < 0) {
		complain("%s", err);
		return EXIT_FAILURE;
	}
	if (stats->blocks_missing > 0)
		complain("%" PRIu64 " blocks were promised and then not there", stats->blocks_missing);
	if (stats->wrong_bytes > 0)
		complain("%" PRIu64 " retrieved bytes were wrong", stats->wrong_bytes);
	return stats->blocks_missing || stats->wrong_bytes ? EXIT_FAILURE : EXIT_SUCCESS;
}
