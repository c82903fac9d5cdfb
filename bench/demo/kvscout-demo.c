/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-demo is a miniature inference engine with everything real but the model: an embedded server, a
 * worker for each of two KV ranks with paged memory, and a scheduler loop (demo.c) that never waits for the cache. It
 * shows what it does while it runs, and ends with the numbers that matter to the author of such a loop; above all:
 * were the bytes right?
 *
 * The floor of asking is the same questions as blocking round trips (probe.c), timed beside the loop.
 *
 * This file has everything around the loop: options, pace, progress, the table.
 *
 * Threads: main; those of client, workers and embedded server.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "cli.h"
#include "clock.h"
#include "demo.h"
#include "json_env.h"
#include "log.h"
#include "say.h"
#include "table.h"

#define TOOL "kvscout-demo"
#define KV_RANKS 2u
#define CHAT_USERS 64u
#define CHAT_REQUESTS 2000u
#define NAME_SPACE "demo"
#define TERMINAL_NS UINT64_C(100000000)
#define LINE_NS UINT64_C(2000000000)
#define STUCK_NS UINT64_C(60000000000)

struct demo_options {
	const char *trace;
	uint64_t requests;
	uint64_t seed;
	uint64_t l1_bytes;
	uint64_t step_us;
	unsigned int lookup_mode; /* enum scout_lookup_mode */
	struct settings settings;
};

static const char *const lookup_modes[] = {[SCOUT_LOOKUP_ASYNC] = "async", [SCOUT_LOOKUP_POLLED] = "polled", NULL};

static volatile sig_atomic_t interrupted;

static void
on_interrupt(int number)
{
	(void)number;
	interrupted = 1;
}

static double
share(uint64_t part, uint64_t whole)
{
	return whole ? 100 * (double)part / (double)whole : 0;
}

static void
progress(const struct demo *demo, uint64_t *next_ns)
{
	const struct demo_stats *stats = &demo->stats;
	bool terminal = isatty(STDERR_FILENO);
	uint64_t now = scout__now_ns();

	if (now < *next_ns)
		return;
	*next_ns = now + (terminal ? TERMINAL_NS : LINE_NS);
	say_to(stderr, "%sstep %" PRIu64 ": %" PRIu64, terminal ? "\r" : "", demo->step, stats->finished);
	if (workload_total(demo->workload))
		say_to(stderr, " of %" PRIu64, workload_total(demo->workload));
	say_to(stderr, " requests done, %u waiting, %u running, hit ratio %.1f %%, wrong bytes: %" PRIu64 "%s",
	       demo->n_waiting, demo->n_running, share(stats->hit_tokens, stats->prompt_tokens),
	       engine_stats(demo->engine)->wrong_bytes, terminal ? "\033[K" : "\n");
}

/* The rest of the step: where an engine's GPU computes. A step that took longer is followed at once by the next. */
static void
pause_until(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	/* A signal only makes this step shorter. */
	(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static int
run(struct demo *demo, uint64_t step_us)
{
	uint64_t now = scout__now_ns(), moved_ns = now, next_progress = now, done = 0;
	int rc = 0;

	while (!demo_is_over(demo) && !interrupted) {
		uint64_t start = scout__now_ns();

		rc = demo_step(demo);
		if (rc < 0)
			break;
		progress(demo, &next_progress);
		if (demo->stats.finished != done || demo->n_waiting + demo->n_running == 0) {
			done = demo->stats.finished;
			moved_ns = start;
		}
		if (start - moved_ns > STUCK_NS)
			return scout__fail(demo->err, sizeof(demo->err), SCOUT_ERR_TIMEOUT,
					   "no request has ended for 60 s; %u wait and %u run", demo->n_waiting,
					   demo->n_running);
		pause_until(start + step_us * 1000);
	}
	if (isatty(STDERR_FILENO))
		say_to(stderr, "\r\033[K");
	return rc;
}

static int
start(struct demo *demo, const struct demo_options *opt)
{
	struct workload_config workload = {
		.trace = opt->trace,
		.requests = opt->requests || opt->trace ? opt->requests : CHAT_REQUESTS,
		.seed = opt->seed,
		.users = CHAT_USERS,
	};
	/* Two layers, keys and values apart. A trace's blocks are 512 tokens long; their bytes are kept small. */
	struct engine_config engine = {
		.tool = TOOL,
		.name_space = NAME_SPACE,
		.l1_bytes = opt->l1_bytes,
		.kv_ranks = KV_RANKS,
		.n_planes = 4,
		.plane_bytes = {1024, 1024, 1024, 1024},
		.pages = 8192,
		.lookup_mode = opt->lookup_mode,
		.settings = &opt->settings,
	};
	struct probe_config probe = {.name_space = NAME_SPACE, .kv_ranks = KV_RANKS, .hash_bytes = ENGINE_HASH_BYTES};
	int rc = workload_new(&workload, &demo->workload, demo->err, sizeof(demo->err));

	if (rc < 0)
		return rc;
	engine.chunk_tokens = workload_chunk_tokens(demo->workload);
	engine.block_tokens = workload_block_tokens(demo->workload);
	demo->pages = engine.pages;
	rc = engine_start(&engine, &demo->engine, demo->err, sizeof(demo->err));
	if (rc < 0)
		return rc;
	probe.endpoint = engine_endpoint(demo->engine);
	probe.chunk_tokens = engine.chunk_tokens;
	return probe_new(&probe, &demo->probe, demo->err, sizeof(demo->err));
}

static void
print_intro(const struct demo *demo, const struct demo_options *opt)
{
	char pool[TABLE_TEXT], step[TABLE_TEXT];
	const char *why;

	say("%s: %s\n", TOOL, workload_text(demo->workload));
	say("embedded server with a pool of %s, %u workers (KV ranks), one step of the loop is %s\n",
	    table_bytes(opt->l1_bytes, pool), KV_RANKS, table_ns(opt->step_us * 1000, step));
	if (json_env_is_slow_build(&why))
		say("note: %s; times mean little\n", why);
	say_flush(); /* before the progress on standard error */
}

static void
print_times(const char *name, const struct scout__hist *hist)
{
	char p50[TABLE_TEXT], p99[TABLE_TEXT], max[TABLE_TEXT];

	say("  %-38s %10s %10s %10s %10" PRIu64 "\n", name, table_ns(scout__hist_quantile(hist, 0.5), p50),
	    table_ns(scout__hist_quantile(hist, 0.99), p99), table_ns(hist->n ? hist->max : 0, max), hist->n);
}

static void
print_answers(const struct demo_stats *stats)
{
	const struct scout__hist *steps = &stats->not_yet_steps;

	say("\nanswers                                  %10" PRIu64 "\n", stats->answers);
	say("  that came \"not yet\" at the first ask   %10" PRIu64 "\n", stats->not_yet);
	say("  steps until those came                 p50 %" PRIu64 ", p99 %" PRIu64 ", max %" PRIu64 "\n",
	    scout__hist_quantile(steps, 0.5), scout__hist_quantile(steps, 0.99), steps->n ? steps->max : 0);
	if (stats->unanswered)
		say("  that never came (timeout, refused, ...) %9" PRIu64 "\n", stats->unanswered);
	if (stats->page_waits)
		say("  steps that had no free pages for one   %10" PRIu64 "\n", stats->page_waits);
}

static void
print_asking(const struct demo_stats *stats, const char *lookup_mode)
{
	char asking[64];

	char one[TABLE_TEXT], ours[TABLE_TEXT], theirs[TABLE_TEXT];

	say("\ntime of a step that the loop spent asking       p50        p99        max      steps\n");
	(void)snprintf(asking, sizeof(asking), "scout_lookup, %s, all waiting", lookup_mode);
	print_times(asking, &stats->asking_ns);
	print_times("the same questions, blocking", &stats->blocking_ns);
	say("  one blocking round trip: p50 %s; all together: %s asking, %s blocking\n",
	    table_ns(scout__hist_quantile(&stats->round_trip_ns, 0.5), one), table_ns(stats->asked_ns, ours),
	    table_ns(stats->blocking_ns_sum, theirs));
}

static void
print_bytes(const char *name, uint64_t bytes)
{
	char text[TABLE_TEXT];

	say("%-40s %10s\n", name, table_bytes(bytes, text));
}

static void
print_table(const struct demo *demo, const struct demo_options *opt, uint64_t evicted, uint64_t wall_ns)
{
	const struct engine_stats *engine = engine_stats(demo->engine);
	const struct demo_stats *stats = &demo->stats;
	enum scout_lookup_mode other =
		opt->lookup_mode == SCOUT_LOOKUP_ASYNC ? SCOUT_LOOKUP_POLLED : SCOUT_LOOKUP_ASYNC;
	char wall[TABLE_TEXT];

	say("\nrequests                                 %10" PRIu64 "   in %s, %" PRIu64 " steps\n", stats->finished,
	    table_ns(wall_ns, wall), demo->step);
	say("prompt tokens                            %10" PRIu64 "\n", stats->prompt_tokens);
	say("  found in the cache                     %10" PRIu64 "   hit ratio %.1f %%\n", stats->hit_tokens,
	    share(stats->hit_tokens, stats->prompt_tokens));
	say("chunks stored                            %10" PRIu64 "   %" PRIu64 " evicted\n", engine->chunks_stored,
	    evicted);
	print_answers(stats);
	print_asking(stats, lookup_modes[opt->lookup_mode]);
	say("\n");
	print_bytes("bytes copied into the cache", engine->bytes_stored);
	print_bytes("bytes copied out of the cache", engine->bytes_retrieved);
	print_bytes("bytes verified", engine->bytes_verified);
	if (engine->blocks_missing)
		say("blocks that had to be computed again     %10" PRIu64 "\n", engine->blocks_missing);
	if (engine->jobs_failed)
		say("transfers that failed                    %10" PRIu64 "\n", engine->jobs_failed);
	say("wrong bytes: %" PRIu64 "\n", engine->wrong_bytes);
	say("\nnext: --lookup-mode %s shows the same with lookups that %s. README.md has the smallest scheduler,\n"
	    "      docs/engines.md which call belongs into which step, docs/operations.md a server of its own.\n",
	    lookup_modes[other], other == SCOUT_LOOKUP_POLLED ? "block" : "never block");
}

/* Everything between the options and the table. Returns the exit status. */
static int
play(struct demo *demo, const struct demo_options *opt)
{
	const struct engine_stats *engine;
	uint64_t evicted = 0, begin = 0;
	int rc = start(demo, opt);

	if (rc == 0) {
		print_intro(demo, opt);
		begin = scout__now_ns();
		rc = run(demo, opt->step_us);
		begin = scout__now_ns() - begin;
	}
	if (rc == 0)
		rc = probe_counter(demo->probe, "l1.evictions", &evicted, demo->err, sizeof(demo->err));
	if (rc < 0) {
		complain("%s", demo->err);
		return cli_exit_of(rc);
	}
	print_table(demo, opt, evicted, begin);
	engine = engine_stats(demo->engine);
	if (interrupted)
		complain("interrupted; the numbers are of what was done until then");
	if (demo->stats.unanswered)
		complain("%" PRIu64 " lookups failed, the last one with %s", demo->stats.unanswered,
			 scout_err_name(demo->stats.lookup_error));
	if (engine->jobs_failed)
		complain("%" PRIu64 " transfers failed, the last one with %s", engine->jobs_failed,
			 scout_err_name(engine->job_error));
	return engine->wrong_bytes || engine->jobs_failed || demo->stats.unanswered ? EXIT_FAILURE : EXIT_SUCCESS;
}

static bool
parse(int argc, char **argv, struct demo_options *opt, int *ret_status)
{
	const struct cli_option options[] = {
		CLI_TEXT("trace", "FILE", &opt->trace,
			 "take the requests from this trace (JSONL of Mooncake's format) instead of a generated chat"),
		CLI_NUMBER("requests", &opt->requests, 0, UINT32_MAX, "requests; 0: 2000 of the chat, all of a trace"),
		CLI_NUMBER("seed", &opt->seed, 0, UINT64_MAX, "of the generated chat"),
		CLI_BYTES("l1-bytes", &opt->l1_bytes, 1 << 20, UINT64_C(1) << 40, "host memory for the cache"),
		CLI_NUMBER("step-us", &opt->step_us, 0, 1000000, "length of one step of the loop"),
		CLI_WORDS("lookup-mode", &opt->lookup_mode, lookup_modes,
			  "async: the loop never waits; polled: it waits for each answer"),
		SETTINGS_ROWS(&opt->settings),
	};
	const struct cli cli = {
		.tool = TOOL,
		.about = "A miniature engine: a scheduler loop, two workers, and every byte compared.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.notes = "Exit status: 0; 1 on a failure or wrong bytes; 2 on wrong usage.\n",
	};

	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	*ret_status = settings_check(&opt->settings, &cli, NULL);
	return *ret_status == 0;
}

int
main(int argc, char **argv)
{
	/* Not on the stack: the histograms are large. */
	static struct demo demo;
	struct demo_options opt = {.seed = 1, .l1_bytes = 128 << 20, .step_us = 10000};
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
	int status;

	if (!parse(argc, argv, &opt, &status))
		return status;
	scout__hist_init(&demo.stats.not_yet_steps);
	scout__hist_init(&demo.stats.asking_ns);
	scout__hist_init(&demo.stats.blocking_ns);
	scout__hist_init(&demo.stats.round_trip_ns);
	(void)sigaction(SIGINT, &action, NULL); /* the second one ends the process, as ever */
	status = play(&demo, &opt);
	probe_free(demo.probe);
	engine_stop(demo.engine);
	demo_drop_jobs(&demo);
	workload_free(demo.workload);
	return status;
}
