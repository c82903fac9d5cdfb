/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout-latency: what does asking cost a scheduler loop, and how long does an answer take? Every number stands
 * beside the blocking round trip that it replaces (`sync`) and beside what the transport alone takes (`floor`).
 *
 * With --compare the modes take turns: each round runs a part of every mode's requests, and the order rotates, so
 * that whatever else goes on in the machine meets all of them alike. Each mode keeps its connection over all rounds.
 *
 * Closed loop (the default): a request is asked for when a place is free, so a slow server is asked less often. Open
 * loop (--rate): requests arrive at times that do not depend on the server, and a request's time counts from when it
 * should have been asked for.
 *
 * --pin: threads inherit where their maker may run, and libraries make theirs while a mode is opened. So main is moved
 * to the others' CPU for that, and to its own for measuring.
 *
 * Invariants: prompts are stored, connections made and a warm-up done before anything counts; while a step runs
 * nothing is printed or allocated. SIGINT and SIGTERM end the run, and what was measured until then is printed.
 *
 * Threads: main; those of the libraries, which block all signals, so that handlers run on main and interrupt what it
 * waits in.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kvscout/server.h>

#include "cli.h"
#include "lat.h"
#include "say.h"
#include "thread_cpu.h"

#define EXIT_FAILED 1
#define CLOCK_READINGS 100000u
#define COMPARE_ROUNDS 10u
/* All prompts together; a hash has 32 bytes. */
#define MAX_KEYS UINT64_C(16000000)
#define L1_SPARE_BYTES (UINT64_C(64) << 20)
/* Of pool for each key: its slot, generously. */
#define L1_KEY_BYTES 512u
#define SPARE_PEERS 16u
#define MAX_WAITING UINT64_C(1000000)

static volatile sig_atomic_t stop_signal;

const struct lat_runner *const lat_runners[LAT_N_MODES] = {
	[LAT_ASYNC] = &lat_async_runner, [LAT_POLLED] = &lat_polled_runner, [LAT_SYNC] = &lat_sync_runner,
	[LAT_FLOOR] = &lat_floor_runner, [LAT_PEER] = &lat_peer_runner,
};

/* The modes of one run, in the order of the enum; NULL where it does not run. */
struct session {
	struct lat *lat;
	struct scout__curve_keys keys; /* lat->curve, where there are some */
	struct scout_server *server;
	int server_tid; /* of its loop; 0: not embedded */
	void *runners[LAT_N_MODES];
};

static const char notes[] =
	"Modes:\n"
	"  async   a scheduler loop: every waiting request asks once in each step and is never waited for\n"
	"  polled  the same client, waiting for each answer\n"
	"  sync    what engines did before: a blocking round trip for each request, on the scheduler thread\n"
	"  floor   bare ZeroMQ ping-pong of messages of the same sizes, on this machine; encrypted if the others are\n"
	"\n"
	"Metrics (nanoseconds): submit_ns a call that queues a lookup; pending_ns a call that answers \"not yet\";\n"
	"landed_ns submit to the answer's publishing by the client's courier, the caller blocked;\n"
	"seen_ns submit (--rate: intended start) to the caller's having the answer;\n"
	"service_ns (--rate) submit to the caller's having the answer;\n"
	" stall_ns_per_step time in calls in one step;\n"
	"rtt_ns one round trip. A time holds one reading of the clock, which is measured too. Percentiles are at\n"
	"most 0.8 % too high. A step in which nothing is asked for does not count.\n"
	"Times of lookups that failed are left out; the failures are counted.\n"
	"\n"
	"Ratios (--compare): a p50 over the p50 of the floor's round trip in the same round; the median of the\n"
	"rounds, then the smallest and the largest.\n"
	"\n"
	"Exit status: 0, 1 when the run or a lookup failed or (with --verify) an answer was wrong, 2 on wrong usage,\n"
	"128 + signal when interrupted.\n";

static void
on_signal(int number)
{
	stop_signal = number;
}

bool
lat_is_stopped(void)
{
	return stop_signal != 0;
}

static void
catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: waits must end */

	sigemptyset(&action.sa_mask);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
}

static void
print_log(void *user, int level, const char *text)
{
	(void)user;
	if (level <= SCOUT_LOG_WARN)
		complain("%s", text);
}

static int
start_server(struct session *session)
{
	struct lat *lat = session->lat;
	const struct lat_options *opt = lat->opt;
	struct scout_server_config cfg;
	char err[LAT_ERR_BYTES] = "";
	int rc;

	if (opt->endpoint) {
		lat->endpoint = opt->endpoint;
		return 0;
	}
	scout_server_config_init(&cfg);
	cfg.l1_bytes =
		opt->l1_bytes ? opt->l1_bytes : L1_SPARE_BYTES + lat->keys.n_prompts * lat->keys.chunks * L1_KEY_BYTES;
	/* All of it may be promised: how promises are limited is not what is measured. */
	cfg.max_promised = cfg.l1_bytes;
	cfg.listen = opt->transport == LAT_INPROC ? "inproc://kvscout-latency" : NULL;
	cfg.spin_us = (uint32_t)opt->server_spin_us;
	cfg.reply_delay_us = (uint32_t)opt->server_delay_us;
	cfg.reply_jitter_us = (uint32_t)opt->server_jitter_us;
	/* The modes beside async and polled have one connection each; nothing here may run into these limits. */
	if (cfg.max_peers < 2 * opt->clients + SPARE_PEERS)
		cfg.max_peers = (uint32_t)(2 * opt->clients + SPARE_PEERS);
	if (cfg.max_sessions < 4 * opt->clients * opt->inflight)
		cfg.max_sessions = (uint32_t)(4 * opt->clients * opt->inflight);
	cfg.log = print_log;
	rc = scout_server_start(&cfg, &session->server, err, sizeof(err));
	if (rc)
		return lat_fail(lat, "embedded server: %s", err[0] ? err : scout_strerror(rc));
	lat->endpoint = scout_server_endpoint(session->server);
	session->server_tid = thread_cpu_find("scout-server");
	return 0;
}

/* Before anything is started: a wrong key file should be told at once. */
static int
load_keys(struct session *session)
{
	const struct keys_option *from = &session->lat->opt->keys;
	char err[LAT_ERR_BYTES] = "";

	if (!from->secret_file)
		return 0;
	if (scout__curve_load(from->secret_file, from->server_key, &session->keys, err, sizeof(err)))
		return lat_fail(session->lat, "--curve-secret-file: %s", err);
	session->lat->curve = &session->keys;
	return 0;
}

static void
measure_clock(struct lat *lat)
{
	uint64_t before = scout__now_ns(), now;

	for (uint32_t i = 0; i < CLOCK_READINGS; i++) {
		now = scout__now_ns();
		scout__hist_add(&lat->clock, now - before);
		/* Not `now`: filling the histogram is not a part of reading. */
		before = scout__now_ns();
	}
}

static void
clear_result(struct lat_result *result)
{
	memset(result, 0, sizeof(*result));
	for (unsigned int m = 0; m < LAT_N_METRICS; m++)
		scout__hist_init(&result->metrics[m]);
	scout__hist_init(&result->asks);
}

/* Main may run on the CPU of its own, on the others', or (for a program that has threads of its own) on both. */
enum place {
	PLACE_MAIN = 1,
	PLACE_OTHERS = 2,
	PLACE_BOTH = 3
};

static int
pin(struct lat *lat, enum place place)
{
	cpu_set_t set;

	if (lat->opt->cpus[0] < 0)
		return 0;
	CPU_ZERO(&set);
	for (int i = 0; i < 2; i++) {
		if ((unsigned int)place & 1u << i)
			CPU_SET(lat->opt->cpus[i], &set);
	}
	if (sched_setaffinity(0, sizeof(set), &set))
		return lat_fail(lat, "--pin %s: this process may not run there (errno %d)", lat->opt->pin, errno);
	return 0;
}

/* Connect all modes, and let each run what does not count. */
static int
open_runners(struct session *session)
{
	struct lat *lat = session->lat;

	for (unsigned int mode = 0; mode < LAT_N_MODES && !lat_is_stopped(); mode++) {
		if (!lat_is_chosen(lat->opt, mode))
			continue;
		if (pin(lat, mode == LAT_PEER ? PLACE_BOTH : PLACE_OTHERS) ||
		    lat_runners[mode]->open(lat, &session->runners[mode]) || pin(lat, PLACE_MAIN))
			return -1;
		clear_result(&lat->scratch);
		if (lat->opt->warmup && lat_runners[mode]->run(session->runners[mode], &lat->scratch, lat->opt->warmup))
			return -1;
	}
	return 0;
}

/* What the process has used until now. */
struct usage {
	uint64_t wall_ns, switches, others_ns, server_ns;
};

static uint64_t
cpu_of(const struct rusage *usage)
{
	return ((uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec) * UINT64_C(1000000000) +
	       ((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) * 1000;
}

static struct usage
usage_now(const struct session *session)
{
	struct rusage all, self;
	struct usage now = {.wall_ns = scout__now_ns()};

	(void)getrusage(RUSAGE_SELF, &all); /* cannot fail, nor can the other */
	(void)getrusage(RUSAGE_THREAD, &self);
	now.switches = (uint64_t)all.ru_nvcsw + (uint64_t)all.ru_nivcsw;
	now.others_ns = cpu_of(&all) - cpu_of(&self);
	if (session->server_tid)
		now.server_ns = thread_cpu_ns(session->server_tid);
	return now;
}

static void
count_usage(const struct session *session, const struct usage *from, struct lat_result *result)
{
	struct usage now = usage_now(session);

	result->wall_ns = now.wall_ns - from->wall_ns;
	result->switches = now.switches - from->switches;
	result->others_ns = now.others_ns - from->others_ns;
	result->server_ns = now.server_ns - from->server_ns;
}

static int
run_rounds(struct session *session)
{
	struct lat *lat = session->lat;
	const struct lat_options *opt = lat->opt;
	struct usage before;
	uint64_t from, to;
	unsigned int mode;

	for (uint64_t round = 0; round < opt->rounds; round++) {
		from = opt->requests * round / opt->rounds;
		to = opt->requests * (round + 1) / opt->rounds;
		for (unsigned int i = 0; i < LAT_N_MODES; i++) {
			mode = (unsigned int)((i + round) % LAT_N_MODES);
			if (lat_is_stopped())
				return 0;
			if (!session->runners[mode] || to == from)
				continue;
			clear_result(&lat->scratch);
			before = usage_now(session);
			if (lat_runners[mode]->run(session->runners[mode], &lat->scratch, to - from))
				return -1;
			count_usage(session, &before, &lat->scratch);
			lat_end_round(lat, round, mode);
		}
	}
	return 0;
}

static int
run_session(struct session *session)
{
	struct lat *lat = session->lat;
	int rc;

	rc = load_keys(session);
	if (!rc)
		rc = lat_keys_init(lat);
	if (!rc)
		rc = pin(lat, PLACE_OTHERS);
	/* The floor alone needs no server. */
	if (!rc && (lat->opt->compare || lat->opt->mode != LAT_FLOOR)) {
		rc = start_server(session);
		if (!rc)
			rc = lat_keys_store(lat);
	}
	if (!rc)
		rc = open_runners(session);
	if (!rc)
		rc = run_rounds(session);
	if (lat_is_stopped() && !lat->err[0])
		rc = 0; /* an interrupted wait is no failure */
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++)
		lat_runners[mode]->close(session->runners[mode]);
	scout_server_stop(session->server);
	lat->endpoint = NULL; /* was the server's */
	lat->curve = NULL;
	explicit_bzero(&session->keys, sizeof(session->keys));
	return rc;
}

/* What the answers themselves say about the run. */
static int
judge(const struct lat *lat)
{
	const struct lat_result *result;
	int status = 0;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		result = &lat->results[mode];
		if (result->failed) {
			complain("%s: lookups failed; the first: %s", lat_mode_names[mode], result->first_failure);
			status = EXIT_FAILED;
		}
		if (result->wrong && lat->opt->verify) {
			complain("%s: wrong answers; the first: %s", lat_mode_names[mode], result->first_wrong);
			status = EXIT_FAILED;
		}
	}
	return status;
}

static bool
is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

/* Say what went wrong, and go on: what was measured should not be lost. */
static bool
note(const struct lat *lat, int rc)
{
	if (rc)
		complain("%s", lat->err);
	return rc != 0;
}

static int
report(struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	bool is_interrupted = lat_is_stopped();
	int status = judge(lat);

	if (!is_stdout(opt->json) && !is_stdout(opt->csv) && !is_stdout(opt->plot))
		lat_print_table(lat, is_interrupted);
	/* Each of them is written, also when another could not be. */
	if (opt->json && note(lat, lat_write_json(lat, opt->json, is_interrupted)))
		status = EXIT_FAILED;
	if (opt->csv && note(lat, lat_write_csv(lat, opt->csv, is_interrupted)))
		status = EXIT_FAILED;
	if (opt->hgrm && note(lat, lat_write_hgrm(lat, opt->hgrm)))
		status = EXIT_FAILED;
	if (opt->plot && note(lat, lat_write_plot(lat, opt->plot)))
		status = EXIT_FAILED;
	return status;
}

/* "CPU,CPU" */
static int
parse_pin(const struct cli *cli, struct lat_options *opt)
{
	const char *at = opt->pin;
	char *end = NULL;
	long cpu;

	for (int i = 0; i < 2; i++) {
		cpu = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
		if (cpu < 0 || cpu >= CPU_SETSIZE || *end != (i ? '\0' : ','))
			return cli_usage_error(cli, "--pin = \"%s\": must be CPU,CPU: two numbers, 0..%d", opt->pin,
					       CPU_SETSIZE - 1);
		opt->cpus[i] = (int)cpu;
		at = end + 1;
	}
	return 0;
}

/* Outputs that are for standard output. */
static int
n_to_stdout(const struct lat_options *opt)
{
	return is_stdout(opt->json) + is_stdout(opt->csv) + is_stdout(opt->plot);
}

/* What was said, as far as it matters; options of the embedded server by the index in embedded_only. */
#define N_EMBEDDED 5
static const char *const embedded_only[N_EMBEDDED] = {"server-delay-us", "server-jitter-us", "server-spin-us",
						      "transport", "l1-bytes"};

struct given {
	bool mode, rounds, embedded[N_EMBEDDED];
};

static void
note_given(struct cli_option *options, size_t n, struct given *given)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(options[i].name, "mode") == 0)
			options[i].given = &given->mode;
		else if (strcmp(options[i].name, "rounds") == 0)
			options[i].given = &given->rounds;
		for (size_t k = 0; k < N_EMBEDDED; k++)
			if (strcmp(options[i].name, embedded_only[k]) == 0)
				options[i].given = &given->embedded[k];
	}
}

/* What needs more than one option. Returns 0 or CLI_EXIT_USAGE. */
static int
check_options(const struct cli *cli, struct lat_options *opt, const struct given *given)
{
	if (opt->compare && given->mode)
		return cli_usage_error(cli, "--mode and --compare exclude each other");
	for (size_t i = 0; i < N_EMBEDDED; i++)
		if (opt->endpoint && given->embedded[i])
			return cli_usage_error(cli, "--%s is for the embedded server, not for --endpoint",
					       embedded_only[i]);
	if (opt->endpoint && strchr(opt->endpoint, ','))
		return cli_usage_error(cli, "--endpoint = \"%s\": must be one endpoint", opt->endpoint);
	if (keys_option_check(&opt->keys, cli, opt->endpoint))
		return CLI_EXIT_USAGE;
	if (opt->peer && !opt->compare)
		return cli_usage_error(cli, "--peer is for --compare");
	if (opt->peer && opt->keys.secret_file)
		return cli_usage_error(cli, "--peer brings a server of its own, which has no keys: not with "
					    "--curve-secret-file");
	if (n_to_stdout(opt) > 1)
		return cli_usage_error(cli, "only one of --json, --csv and --plot can have standard output");
	if (is_stdout(opt->hgrm))
		return cli_usage_error(cli, "--hgrm = \"-\": must be a file's name; several are written");
	if (opt->clients * opt->inflight > MAX_WAITING)
		return cli_usage_error(cli, "--clients times --inflight: must be 1..%llu",
				       (unsigned long long)MAX_WAITING);
	if (opt->pin && parse_pin(cli, opt))
		return CLI_EXIT_USAGE;
	if (strlen(opt->name_space) > 255)
		return cli_usage_error(cli, "--namespace: must have 1..255 bytes");
	if (opt->chunks * (opt->prompts ? opt->prompts : 1) > MAX_KEYS)
		return cli_usage_error(cli, "--chunks times --prompts: must be 1..%llu", (unsigned long long)MAX_KEYS);
	if (!given->rounds && !opt->compare)
		opt->rounds = 1;
	return 0;
}

/* False: leave with *ret_status. */
static bool
parse(struct lat_options *opt, int argc, char **argv, int *ret_status)
{
	static const char *const mode_words[] = {"async", "polled", "sync", "floor", NULL};
	struct given given = {0};
	struct cli_option options[] = {
		CLI_TEXT("endpoint", "EP", &opt->endpoint, "a running server; without it, one is embedded"),
		KEYS_OPTION_ROWS(&opt->keys),
		CLI_WORDS("mode", &opt->mode, mode_words, "what to run"),
		CLI_SWITCH("compare", &opt->compare, "run all modes, interleaved, with ratios to the floor"),
		CLI_NUMBER("requests", &opt->requests, 1, 100000000, "lookups of each mode"),
		CLI_NUMBER("warmup", &opt->warmup, 0, 100000000, "lookups before them that do not count"),
		CLI_NUMBER("rounds", &opt->rounds, 1, LAT_MAX_ROUNDS, "turns that modes take; 1 without --compare"),
		CLI_NUMBER("chunks", &opt->chunks, 1, 100000, "chunk hashes in a lookup"),
		CLI_NUMBER("inflight", &opt->inflight, 1, 4096, "requests that wait at once, of each client"),
		CLI_NUMBER("clients", &opt->clients, 1, 1000, "async, polled: schedulers, in turn on one thread"),
		CLI_NUMBER("rate", &opt->rate, 0, 10000000, "open loop: arrivals per second; 0: closed loop"),
		CLI_NUMBER("step-us", &opt->step_us, 0, 10000000, "length of a step; 0: without a pause"),
		CLI_FRACTION("hit-ratio", &opt->hit_ratio, 0, 1, "share of the chunks that are cached"),
		CLI_NUMBER("prompts", &opt->prompts, 0, 1000000, "different prompts; 0: 1 to 64, by --chunks"),
		CLI_NUMBER("server-delay-us", &opt->server_delay_us, 0, 10000000, "hold answers back, embedded"),
		CLI_NUMBER("server-jitter-us", &opt->server_jitter_us, 0, 10000000, "and by up to this much more"),
		CLI_BYTES("l1-bytes", &opt->l1_bytes, 0, UINT64_C(1) << 40, "embedded server's pool; 0: enough"),
		CLI_NUMBER("server-spin-us", &opt->server_spin_us, 0, 1000000, "its loop spins before it sleeps"),
		CLI_WORDS("transport", &opt->transport, lat_transport_names,
			  "to the embedded server; of the floor too"),
		CLI_NUMBER("spin-us", &opt->spin_us, 0, 1000000, "courier, and who waits, spin before they sleep"),
		CLI_TEXT("pin", "CPU,CPU", &opt->pin, "where the main thread runs, and where all others"),
		CLI_NUMBER("seed", &opt->seed, 0, INT64_MAX, "of the chunk hashes"),
		CLI_TEXT("namespace", "NAME", &opt->name_space, "on the server"),
		CLI_SWITCH("verify", &opt->verify, "fail if an answer is not what was stored"),
		CLI_TEXT("peer", "COMMAND", &opt->peer, "--compare: run this beside, as bench/peer_python.py"),
		CLI_TEXT("json", "FILE|-", &opt->json, "write the result as JSON; - is standard output"),
		CLI_TEXT("csv", "FILE|-", &opt->csv, "write a line for each metric"),
		CLI_TEXT("hgrm", "FILE", &opt->hgrm, "write percentile tables: FILE.MODE.METRIC.hgrm"),
		CLI_TEXT("plot", "FILE|-", &opt->plot, "write percentile curves as SVG"),
	};
	const struct cli cli = {
		.tool = "kvscout-latency",
		.about = "What asking for cached prefixes costs a scheduler loop.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.notes = notes,
	};

	note_given(options, cli.n, &given);
	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	*ret_status = check_options(&cli, opt, &given);
	return *ret_status == 0;
}

/* A thousand clients have some twenty descriptors each. Where it is not allowed, opening them says so. */
static void
allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int
main(int argc, char **argv)
{
	static struct lat lat; /* large: histograms */
	struct lat_options opt = {
		.name_space = "kvscout-latency",
		.requests = 10000,
		.warmup = 500,
		.rounds = COMPARE_ROUNDS,
		.chunks = 256,
		.inflight = 64,
		.clients = 1,
		.cpus = {-1, -1},
		.step_us = 1000,
		.hit_ratio = 1,
		.seed = 1,
	};
	struct session session = {.lat = &lat};
	int status;

	if (!parse(&opt, argc, argv, &status))
		return status;
	lat.opt = &opt;
	scout__hist_init(&lat.clock);
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		clear_result(&lat.results[mode]);
		if (lat_is_chosen(&opt, mode))
			lat.total += opt.requests + opt.warmup;
	}
	allow_files();
	catch_signals();
	measure_clock(&lat);
	status = 0;
	if (run_session(&session)) {
		complain("%s", lat.err);
		status = EXIT_FAILED;
	} else {
		status = report(&lat);
	}
	lat_keys_fini(&lat.keys);
	return stop_signal ? 128 + stop_signal : status;
}
