/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-replay answers "what would this cache have done for that traffic?" with the real thing: each
 * request of a trace goes, one at a time and in order, through client, socket, server, worker and pool, and every
 * byte that comes back is compared with what must be there.
 *
 *   look up -> admit all -> retrieve the hit, compare -> compute and store the rest -> finish
 *
 * One at a time, because then the hit ratio is a property of the trace, the pool size and the eviction policy alone,
 * and equal to that of a simulation. The order on the two connections is kept by waiting: finish is sent when the
 * stores have ended, so that its touch covers them, and the next lookup follows finish on the same connection.
 *
 * With L2 every store is written to it before the next lookup: L2 is unlimited then, as in a simulation, and no hit
 * depends on the speed of the disk. What waits to be written may take a quarter of the pool, so stores are no longer
 * than that.
 *
 * A request is moved through a fixed number of pages, in pieces, so its length does not matter. One that is longer
 * than the whole pool stores its leading blocks, as many as fit behind its hit: more would evict its own head.
 *
 * Threads: main; those of client, workers and embedded server. The floor of a hit ratio is policy_sim with "lru".
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "cli.h"
#include "clock.h"
#include "engine.h"
#include "log.h"
#include "option_list.h"
#include "probe.h"
#include "replay.h"
#include "say.h"
#include "trace.h"

#define TOOL REPLAY_TOOL
#define MAX_PAGES 1024u
#define MAX_PAGE_MEMORY (UINT64_C(64) << 20) /* of one KV rank */
#define TRANSFER_MS 60000u
#define PROGRESS_NS UINT64_C(1000000000)
#define QUIET_NS UINT64_C(5000000000) /* not on a terminal: nothing is said before */
#define ERR_LEN REPLAY_ERR_LEN

/* The signal that ends the replay; 0: none yet. */
static volatile sig_atomic_t stop_signal;

static int
fail(struct replay *replay, int code, const char *what, uint64_t line)
{
	char text[ERR_LEN];

	(void)snprintf(text, sizeof(text), "%s", replay->err[0] ? replay->err : scout_strerror(code));
	return scout__fail(replay->err, sizeof(replay->err), code, "request in line %" PRIu64 ": %s: %s", line, what,
			   text);
}

/* One lookup, answered; the whole hit is admitted. */
static int
look_up(struct replay *replay, const char *id, const struct trace_request *request, struct scout_hit *ret_hit)
{
	struct scout_client *client = engine_client(replay->engine);
	struct scout_query lookup = {
		.id = id,
		.hashes = replay->hashes,
		.hash_len = TRACE_HASH_BYTES,
		.n = request->n,
		.prompt_tokens = request->n * TRACE_BLOCK_TOKENS + 1,
	};
	int rc = scout_wait_lookup(client, &lookup, ret_hit);

	if (rc < 0)
		return fail(replay, rc, "lookup", request->line);
	if (ret_hit->reason != SCOUT_REASON_HIT && ret_hit->reason != SCOUT_REASON_MISS &&
	    ret_hit->reason != SCOUT_REASON_LIMITED)
		return fail(replay, ret_hit->error ? ret_hit->error : SCOUT_ERR_UNREACHABLE,
			    scout_reason_name(ret_hit->reason), request->line);
	if (request->n == 0)
		return 0; /* answered on the spot: there is nothing to admit, nor a session */
	rc = scout_admit(client, id, 0, SCOUT_TO_END);
	return rc < 0 ? fail(replay, rc, "admit", request->line) : 0;
}

static int
retrieve(struct replay *replay, const struct scout_hit *hit, const struct trace_request *request)
{
	for (size_t at = 0, n; at < hit->chunks; at += n) {
		const uint8_t *hashes = replay->hashes + at * TRACE_HASH_BYTES;
		int rc;

		n = hit->chunks - at < replay->n_pages ? hit->chunks - at : replay->n_pages;
		rc = engine_retrieve(replay->engine, &replay->transfer, hit->ticket, at, hashes, n, replay->pages);
		if (rc == 0)
			rc = engine_wait(replay->engine, &replay->transfer, TRANSFER_MS);
		if (rc == 0 && replay->transfer.status != SCOUT_ERR_MISSING)
			rc = replay->transfer.status;
		if (rc < 0)
			return fail(replay, rc, "retrieve", request->line);
		(void)engine_verify(replay->engine, &replay->transfer, hashes, n, replay->pages); /* it counts */
	}
	return 0;
}

/* Until all that was stored is on L2, if there is one. */
static int
wait_written(struct replay *replay, const struct trace_request *request)
{
	uint64_t end_ns = scout__now_ns() + TRANSFER_MS * UINT64_C(1000000);
	uint64_t waiting = replay->has_l2;
	int rc = 0;

	while (rc == 0 && waiting > 0) {
		rc = probe_counter(replay->probe, "l2.writes.waiting", &waiting, replay->err, sizeof(replay->err));
		if (rc == 0 && waiting > 0 && scout__now_ns() > end_ns)
			rc = SCOUT_ERR_TIMEOUT;
	}
	return rc < 0 ? fail(replay, rc, "writing to L2", request->line) : 0;
}

/* Blocks that one store may have. */
static size_t
store_limit(const struct replay *replay)
{
	uint64_t quarter = replay->opt->l1_blocks / 4;

	if (!replay->opt->l2 || quarter >= replay->n_pages)
		return replay->n_pages;
	return quarter ? quarter : 1;
}

static int
store(struct replay *replay, const struct scout_hit *hit, const struct trace_request *request)
{
	const struct engine_stats *stats = engine_stats(replay->engine);
	uint64_t no_room = stats->chunks_no_room;
	size_t first = hit->chunks, end = request->n;

	if (!replay->opt->endpoint && end > replay->opt->l1_blocks)
		end = replay->opt->l1_blocks;
	/*
	 * A retrieve has ended when its bytes are there; that the server knows it, and its touch will find the blocks
	 * let go of, is only certain after another answer on the workers' connections. So a request that has nothing
	 * to store offers its last block again, which the server declines.
	 */
	if (first > 0 && first >= end)
		first = end - 1;
	for (size_t at = first, n; at < end && stats->chunks_no_room == no_room; at += n) {
		const uint8_t *hashes = replay->hashes + at * TRACE_HASH_BYTES;
		int rc;

		n = end - at < store_limit(replay) ? end - at : store_limit(replay);
		engine_compute(replay->engine, hashes, n, replay->pages, NULL);
		rc = engine_store(replay->engine, &replay->transfer, hit->ticket, at, hashes, n, replay->pages);
		if (rc == 0)
			rc = engine_wait(replay->engine, &replay->transfer, TRANSFER_MS);
		if (rc == 0)
			rc = replay->transfer.status;
		if (rc < 0)
			return fail(replay, rc, "store", request->line);
		rc = wait_written(replay, request);
		if (rc < 0)
			return rc;
	}
	/* Not one block has ever been stored: a hit ratio of 0 would be this server's state, not the trace's. */
	if (stats->chunks_no_room > 0 && stats->chunks_stored == 0) {
		(void)snprintf(replay->err, sizeof(replay->err),
			       "the server's pool is full of other namespaces' blocks");
		return fail(replay, SCOUT_ERR_NO_ROOM, "store", request->line);
	}
	return 0;
}

static int
make_hashes(struct replay *replay, const struct trace_request *request)
{
	if (request->n > replay->hashes_cap) {
		uint8_t *hashes = realloc(replay->hashes, request->n * TRACE_HASH_BYTES); /* n is bounded */

		if (!hashes)
			return fail(replay, SCOUT_ERR_NOMEM, "hashes", request->line);
		replay->hashes = hashes;
		replay->hashes_cap = request->n;
	}
	for (size_t i = 0; i < request->n; i++)
		trace_hash(request->ids[i], replay->hashes + i * TRACE_HASH_BYTES);
	return 0;
}

/* Of the request that is replayed. */
static enum scout_hint
hint_of(const struct replay *replay)
{
	if (replay->requests >= replay->hints.n)
		return SCOUT_HINT_UNKNOWN;
	return replay->hints.flagged[replay->requests] ? SCOUT_HINT_UNLIKELY : SCOUT_HINT_LIKELY;
}

static int
replay_one(struct replay *replay, const struct trace_request *request)
{
	struct scout_hit hit = {0};
	char id[32];
	int rc = make_hashes(replay, request);

	(void)snprintf(id, sizeof(id), "line-%" PRIu64, request->line);
	if (rc == 0)
		rc = look_up(replay, id, request, &hit);
	if (rc == 0)
		rc = retrieve(replay, &hit, request);
	if (rc == 0)
		rc = store(replay, &hit, request);
	if (rc < 0)
		return rc;
	rc = scout_finish_hint(engine_client(replay->engine), id, hint_of(replay));
	if (rc < 0)
		return fail(replay, rc, "finish", request->line);
	replay->requests++;
	replay->blocks += request->n;
	replay->hit_blocks += hit.chunks;
	replay->l2_hit_blocks += hit.l2_chunks;
	return 0;
}

static void
progress(struct replay *replay)
{
	uint64_t now = scout__now_ns();
	bool terminal = isatty(STDERR_FILENO);

	if (now < replay->next_progress_ns || (!terminal && now - replay->start_ns < QUIET_NS))
		return;
	replay->next_progress_ns = now + PROGRESS_NS;
	say_to(stderr, "%s" TOOL ": %" PRIu64 " requests, %.0f %% of the trace, hit ratio %.4f%s", terminal ? "\r" : "",
	       replay->requests, 100 * trace_progress(replay->trace), replay_hit_ratio(replay),
	       terminal ? "\033[K" : "\n");
}

static int
replay_all(struct replay *replay)
{
	struct trace_request request;
	int rc = 0;

	replay->start_ns = scout__now_ns();
	replay->next_progress_ns = replay->start_ns + PROGRESS_NS;
	while (!stop_signal && (replay->opt->limit == 0 || replay->requests < replay->opt->limit)) {
		rc = trace_next(replay->trace, &request, replay->err, sizeof(replay->err));
		if (rc <= 0)
			break;
		rc = replay_one(replay, &request);
		if (rc < 0)
			break;
		progress(replay);
	}
	replay->wall_ns = scout__now_ns() - replay->start_ns;
	if (isatty(STDERR_FILENO))
		say_to(stderr, "\r\033[K");
	if (rc == 0 && replay->requests == 0 && !stop_signal)
		rc = scout__fail(replay->err, sizeof(replay->err), SCOUT_ERR_FORMAT,
				 "trace file %s has no request in it", replay->opt->trace);
	return rc < 0 ? rc : 0;
}

static int
start(struct replay *replay)
{
	const struct replay_options *opt = replay->opt;
	struct engine_config cfg = {
		.tool = TOOL,
		.endpoint = opt->endpoint,
		.curve_secret_file = opt->keys.secret_file,
		.curve_server_key = opt->keys.server_key,
		.name_space = replay->name_space,
		.eviction = opt->eviction,
		.l2 = opt->l2,
		.settings = &opt->settings,
		.chunk_tokens = TRACE_BLOCK_TOKENS,
		.block_tokens = TRACE_BLOCK_TOKENS,
		.kv_ranks = (uint32_t)opt->kv_ranks,
		.n_planes = 2, /* keys and values */
		.plane_bytes = {opt->block_bytes / 2, opt->block_bytes - opt->block_bytes / 2},
		.pages = replay->n_pages,
	};
	uint64_t chunk_bytes = engine_chunk_bytes(&cfg);

	if (__builtin_mul_overflow(chunk_bytes, opt->l1_blocks, &cfg.l1_bytes))
		return scout__fail(replay->err, sizeof(replay->err), SCOUT_ERR_POOL_SIZE,
				   "%" PRIu64 " blocks of %" PRIu64 " bytes: %s", opt->l1_blocks, chunk_bytes,
				   scout_strerror(SCOUT_ERR_POOL_SIZE));
	/* One request at a time: its promise may cover the whole pool, or long requests would lose hits. */
	cfg.max_promised = cfg.l1_bytes;
	return engine_start(&cfg, &replay->engine, replay->err, sizeof(replay->err));
}

static int
connect_probe(struct replay *replay)
{
	struct probe_config cfg = {
		.endpoint = engine_endpoint(replay->engine),
		.curve_secret_file = replay->opt->keys.secret_file,
		.curve_server_key = replay->opt->keys.server_key,
		.name_space = replay->name_space,
		.chunk_tokens = TRACE_BLOCK_TOKENS,
		.kv_ranks = (uint32_t)replay->opt->kv_ranks,
		.hash_bytes = ENGINE_HASH_BYTES,
	};
	int rc = probe_new(&cfg, &replay->probe, replay->err, sizeof(replay->err));
	uint64_t waiting;

	if (rc < 0)
		return rc;
	replay->has_l2 =
		probe_counter(replay->probe, "l2.writes.waiting", &waiting, replay->err, sizeof(replay->err)) == 0;
	replay->err[0] = '\0';
	return probe_counter(replay->probe, "l1.evictions", &replay->evicted_before, replay->err, sizeof(replay->err));
}

/* What only the whole trace tells: it is read twice. */
static void
make_hints(struct replay *replay)
{
	struct policy_load load = {0};

	load_trace(&load, replay->opt->trace);
	oracle_hints_make(&load, replay->opt->recall, replay->opt->false_alarms, replay->opt->seed, &replay->hints);
	load_free(&load);
}

/* What a cache without end would hit, as the server says and as it is. */
static int
find_ceiling(struct replay *replay)
{
	struct policy_load load = {0};
	struct stat st;
	char name[128];
	int rc;

	(void)snprintf(name, sizeof(name), "ns.%s.ceiling_chunks", replay->name_space);
	rc = probe_counter(replay->probe, name, &replay->ceiling_blocks, replay->err, sizeof(replay->err));
	/* A pipe is read only once. */
	if (rc < 0 || replay->blocks == 0 || stat(replay->opt->trace, &st) != 0 || !S_ISREG(st.st_mode))
		return rc == SCOUT_ERR_UNSUPPORTED ? 0 : rc;
	load_trace(&load, replay->opt->trace);
	load.n_requests = replay->requests;
	replay->endless_blocks = oracle_optimum(&load, load.n_ids);
	load_free(&load);
	replay->has_ceiling = true;
	return 0;
}

/* Everything from the empty structure to the numbers in it. */
static int
run(struct replay *replay)
{
	uint64_t pages = MAX_PAGE_MEMORY / replay->opt->block_bytes;
	uint64_t evicted;
	int rc;

	/* A namespace of its own: on a server that runs on, an earlier replay must not answer this one. */
	(void)snprintf(replay->name_space, sizeof(replay->name_space), "replay-%ld-%" PRIx64, (long)getpid(),
		       scout__now_ns());
	replay->n_pages = pages > MAX_PAGES ? MAX_PAGES : pages;
	rc = trace_open(replay->opt->trace, &replay->trace, replay->err, sizeof(replay->err));
	if (rc == 0)
		rc = start(replay);
	if (rc == 0)
		rc = connect_probe(replay);
	if (rc < 0)
		return rc;
	if (replay->opt->hints)
		make_hints(replay);
	replay->pages = calloc(replay->n_pages, sizeof(*replay->pages));
	if (!replay->pages || !engine_pages_take(replay->engine, replay->n_pages, replay->pages))
		return scout__fail(replay->err, sizeof(replay->err), SCOUT_ERR_NOMEM, "%s",
				   scout_strerror(SCOUT_ERR_NOMEM));
	rc = replay_all(replay);
	if (rc == 0)
		rc = probe_counter(replay->probe, "l1.evictions", &evicted, replay->err, sizeof(replay->err));
	if (rc == 0)
		replay->evicted = evicted - replay->evicted_before;
	return rc == 0 ? find_ceiling(replay) : rc;
}

static void
on_signal(int number)
{
	stop_signal = number;
}

static void
fini(struct replay *replay)
{
	probe_free(replay->probe);
	engine_stop(replay->engine);
	trace_close(replay->trace);
	oracle_hints_free(&replay->hints);
	engine_transfer_fini(&replay->transfer);
	free(replay->pages);
	free(replay->hashes);
}

static bool
parse(int argc, char **argv, struct replay_options *opt, int *ret_status)
{
	const struct cli_option options[] = {
		CLI_TEXT("trace", "FILE", &opt->trace, "a trace in Mooncake's format (JSONL); required"),
		CLI_NUMBER("l1-blocks", &opt->l1_blocks, 1, UINT32_MAX / 2,
			   "blocks that the embedded server's pool holds"),
		CLI_TEXT("eviction", "POLICY", &opt->eviction,
			 "eviction policy of the embedded server; without it, the default of servers"),
		CLI_LIST(
			"l2", "URL", &opt->l2_urls,
			"L2 of the embedded server, such as fs:///folder; once for each store, in the order of preference"),
		CLI_TEXT(
			"hints", "oracle:RECALL,FALSE_ALARMS", &opt->hints,
			"finish each request with a hint whether the trace continues it: \"it will not\" in RECALL percent "
			"of the cases where that is so, and in FALSE_ALARMS percent of the others"),
		CLI_NUMBER("seed", &opt->seed, 0, UINT64_MAX, "of the hints that are wrong"),
		CLI_NUMBER("limit", &opt->limit, 0, UINT64_MAX, "requests to replay; 0: the whole trace"),
		CLI_TEXT("json", "FILE|-", &opt->json, "write the result as JSON; - is standard output"),
		CLI_BYTES("block-bytes", &opt->block_bytes, 2, 16 << 20, "bytes of one block on one KV rank"),
		CLI_NUMBER("kv-ranks", &opt->kv_ranks, 1, ENGINE_MAX_RANKS, "KV ranks, each with a worker"),
		CLI_TEXT("endpoint", "EP", &opt->endpoint, "a running server; without it, one is embedded"),
		KEYS_OPTION_ROWS(&opt->keys),
		SETTINGS_ROWS(&opt->settings),
	};
	bool given[sizeof(options) / sizeof(options[0])] = {false};
	const struct cli cli = {
		.tool = TOOL,
		.about = "Replay a trace of requests through the cache, compare every byte, and report the hit ratio.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.given = given,
		.notes =
			"SIGINT or SIGTERM ends the replay after the request that runs, and prints what was replayed until then;\n"
			"a second one ends it at once.\n"
			"Exit status: 0; 1 on a failure, missing or wrong bytes; 2 on wrong usage; 128 + signal when\n"
			"interrupted.\n",
	};

	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	if (!opt->trace)
		*ret_status = cli_usage_error(&cli, "--trace FILE is required");
	else if (opt->endpoint && (cli_is_given(&cli, "l1-blocks") || opt->eviction || opt->l2_urls.n))
		*ret_status =
			cli_usage_error(&cli, "--l1-blocks, --eviction and --l2 are of the embedded server; the one "
					      "at --endpoint has its own");
	else
		*ret_status = keys_option_check(&opt->keys, &cli, opt->endpoint);
	if (!*ret_status && opt->hints && !oracle_parse(opt->hints, &opt->recall, &opt->false_alarms))
		*ret_status = cli_usage_error(&cli, "--hints: \"%s\" is not oracle:RECALL,FALSE_ALARMS, each 0 to 100",
					      opt->hints);
	if (!*ret_status)
		*ret_status = settings_check(&opt->settings, &cli, opt->endpoint);
	return *ret_status == 0;
}

/* The texts of --l2 as one list. 0, or -1 without memory. */
static int
join_l2(struct replay_options *opt)
{
	for (size_t i = 0; i < opt->l2_urls.n; i++) {
		char *joined = scout__list_join(opt->l2, opt->l2_urls.items[i]);

		if (!joined)
			return -1;
		free(opt->l2);
		opt->l2 = joined;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	struct replay_options opt = {.seed = 1, .l1_blocks = 10000, .block_bytes = 4096, .kv_ranks = 1};
	struct replay replay = {.opt = &opt};
	/* The second one has its default: whatever is waited for, it ends. */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
	int status, rc;

	if (!parse(argc, argv, &opt, &status))
		return status;
	sigemptyset(&action.sa_mask);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	if (join_l2(&opt) < 0) {
		complain("out of memory");
		status = EXIT_FAILURE;
	} else if ((rc = run(&replay)) < 0) {
		complain("%s", replay.err);
		status = cli_exit_of(rc);
	} else {
		status = replay_report(&replay, stop_signal != 0);
	}
	fini(&replay);
	free(opt.l2);
	if (stop_signal && !status)
		complain("interrupted; the numbers are of what was replayed until then");
	return stop_signal && !status ? 128 + stop_signal : status;
}
