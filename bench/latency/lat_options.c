/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: the command line of kvscout-latency. It refuses all that can be found wrong without a server, and outputs
 * that cannot be written: a result must not be lost after ten minutes of measuring.
 *
 * Threads: main only.
 */
#include "lat.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "cli.h"
#include "say.h"

#define COMPARE_ROUNDS 10u
/* All prompts together; a hash has 32 bytes. */
#define MAX_KEYS UINT64_C(16000000)
#define MAX_WAITING UINT64_C(1000000)

static const char notes[] =
	"Modes:\n"
	"  async   a scheduler loop: every waiting request asks once in each step and is never waited for\n"
	"  polled  the same client, waiting for each answer\n"
	"  sync    what engines did before: a blocking round trip for each request, on the scheduler thread\n"
	"  floor   bare ZeroMQ ping-pong of messages of the same sizes, within this machine, on the kind of transport of\n"
	"          the others (ipc, tcp); encrypted if they are\n"
	"  peer    (--peer) another program that does what engines do today, with a server of its own on this machine\n"
	"\n"
	"Metrics (nanoseconds): submit_ns a call that queues a lookup; pending_ns a call that answers \"not yet\";\n"
	"landed_ns submit to the answer's publishing by the client's courier, the caller blocked;\n"
	"seen_ns submit (--rate: intended start) to the caller's having the answer;\n"
	"service_ns (--rate) submit to the caller's having the answer;\n"
	"stall_ns_per_step time in calls in one step;\n"
	"rtt_ns one round trip. A time holds one reading of the clock, which is measured too. Percentiles are at\n"
	"most 0.8 % too high. A step in which nothing is asked for does not count.\n"
	"Times of lookups that failed are left out; the failures are counted.\n"
	"\n"
	"Ratios (--compare): a p50 over the p50 of the floor's round trip in the same round; the median of the\n"
	"rounds, then the smallest and the largest.\n"
	"\n"
	"SIGINT or SIGTERM ends the run and prints what was measured until then; so does a server that dies. A second\n"
	"signal ends it at once.\n"
	"\n"
	"Exit status: 0, 1 when the run or a lookup failed or (with --verify) an answer was wrong, 2 on wrong usage,\n"
	"128 + signal when interrupted.\n";

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

bool
lat_is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

/* Texts that no output could hold. Returns 0 or CLI_EXIT_USAGE. */
static int
check_texts(const struct cli *cli, const struct lat_options *opt)
{
	const struct {
		const char *name, *text;
	} texts[] = {{"endpoint", opt->endpoint}, {"namespace", opt->name_space}, {"peer", opt->peer}};
	json_t *value;

	for (size_t i = 0; opt->json && i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (!texts[i].text)
			continue;
		value = json_string(texts[i].text);
		if (!value)
			return cli_usage_error(cli, "--%s: must be UTF-8, or a file with the result could not hold it",
					       texts[i].name);
		json_decref(value);
	}
	return 0;
}

/* Where the outputs go. Returns 0 or CLI_EXIT_USAGE. */
static int
check_outputs(const struct cli *cli, const struct lat_options *opt)
{
	if (!opt->json || !opt->plot || strcmp(opt->json, opt->plot) != 0)
		return 0;
	if (lat_is_stdout(opt->json))
		return cli_usage_error(cli, "only one of --json and --plot can have standard output");
	return cli_usage_error(cli, "--json and --plot name the same file, %s", opt->json);
}

/* Whether @path can be made or written, without making it: a run that fails leaves nothing behind. 0 or errno. */
static int
can_write(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct stat is;
	char *folder;
	int rc;

	if (stat(path, &is) == 0) {
		if (S_ISDIR(is.st_mode))
			return EISDIR;
		return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? errno : 0;
	}
	folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!folder)
		return ENOMEM;
	rc = faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) ? errno : 0;
	free(folder);
	return rc;
}

/* Before anything is measured. Returns 0 or EXIT_FAILURE. */
static int
probe_outputs(const struct lat_options *opt)
{
	const char *const paths[] = {opt->json, opt->plot};
	char text[SAY_ERROR];
	int status = 0, error;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		error = paths[i] && !lat_is_stdout(paths[i]) ? can_write(paths[i]) : 0;
		if (!error)
			continue;
		complain("cannot write %s: %s", paths[i], say_error(text, error));
		status = EXIT_FAILURE;
	}
	return status;
}

/* What needs more than one option. Returns 0 or CLI_EXIT_USAGE. */
static int
check_options(const struct cli *cli, struct lat_options *opt)
{
	static const char *const embedded_only[] = {"server-delay-us", "server-spin-us", "l1-bytes"};

	if (opt->compare && cli_is_given(cli, "mode"))
		return cli_usage_error(cli, "--mode and --compare exclude each other");
	for (size_t i = 0; i < sizeof(embedded_only) / sizeof(embedded_only[0]); i++)
		if (opt->endpoint && cli_is_given(cli, embedded_only[i]))
			return cli_usage_error(cli, "--%s is for the embedded server, not for --endpoint",
					       embedded_only[i]);
	if (keys_option_check(&opt->keys, cli, opt->endpoint) || settings_check(&opt->settings, cli, opt->endpoint))
		return CLI_EXIT_USAGE;
	if (opt->peer && !opt->compare)
		return cli_usage_error(cli, "--peer is for --compare");
	if (opt->peer && opt->keys.secret_file)
		return cli_usage_error(cli, "--peer brings a server of its own, which has no keys: not with "
					    "--curve-secret-file");
	if (check_outputs(cli, opt) || check_texts(cli, opt))
		return CLI_EXIT_USAGE;
	if (cli_is_given(cli, "clients") && !opt->compare && opt->mode != LAT_ASYNC && opt->mode != LAT_POLLED)
		return cli_usage_error(cli, "--clients is for the modes async and polled");
	if (opt->clients * opt->inflight > MAX_WAITING)
		return cli_usage_error(cli, "--clients times --inflight: must be 1..%llu",
				       (unsigned long long)MAX_WAITING);
	if (opt->pin && parse_pin(cli, opt))
		return CLI_EXIT_USAGE;
	if (strlen(opt->name_space) > 255)
		return cli_usage_error(cli, "--namespace: must have 1..255 bytes");
	if (opt->chunks * (opt->prompts ? opt->prompts : 1) > MAX_KEYS)
		return cli_usage_error(cli, "--chunks times --prompts: must be 1..%llu", (unsigned long long)MAX_KEYS);
	if (!cli_is_given(cli, "rounds") && !opt->compare)
		opt->rounds = 1;
	return 0;
}

static const struct lat_options defaults = {
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

bool
lat_options_parse(struct lat_options *opt, int argc, char **argv, int *ret_status)
{
	static const char *const mode_words[] = {"async", "polled", "sync", "floor", NULL};
	const struct cli_option options[] = {
		CLI_TEXT("endpoint", "EP", &opt->endpoint, "a running server; without it, one is embedded"),
		KEYS_OPTION_ROWS(&opt->keys),
		SETTINGS_ROWS(&opt->settings),
		CLI_WORDS("mode", &opt->mode, mode_words, "what to run"),
		CLI_SWITCH("compare", &opt->compare, "run all modes, interleaved, with ratios to the floor"),
		CLI_NUMBER("requests", &opt->requests, 1, 100000000, "lookups of each mode"),
		CLI_NUMBER("warmup", &opt->warmup, 0, 100000000, "lookups before those, which do not count"),
		CLI_NUMBER("rounds", &opt->rounds, 1, LAT_MAX_ROUNDS, "turns that modes take; 1 without --compare"),
		CLI_NUMBER("chunks", &opt->chunks, 1, 100000, "chunk hashes in a lookup"),
		CLI_NUMBER("inflight", &opt->inflight, 1, 4096, "requests that wait at once, of each client"),
		CLI_NUMBER("clients", &opt->clients, 1, 1000, "async, polled: schedulers, in turn on one thread"),
		CLI_NUMBER("rate", &opt->rate, 0, 10000000, "open loop: arrivals per second; 0: closed loop"),
		CLI_NUMBER("step-us", &opt->step_us, 0, 10000000, "length of a step; 0: without a pause"),
		CLI_FRACTION("hit-ratio", &opt->hit_ratio, 0, 1, "share of the chunks that are cached"),
		CLI_NUMBER("prompts", &opt->prompts, 0, 1000000, "different prompts; 0: 1 to 64, by --chunks"),
		CLI_NUMBER("server-delay-us", &opt->server_delay_us, 0, 10000000, "hold answers back, embedded"),
		CLI_BYTES("l1-bytes", &opt->l1_bytes, 0, UINT64_C(1) << 40, "embedded server's pool; 0: enough"),
		CLI_NUMBER("server-spin-us", &opt->server_spin_us, 0, 1000000,
			   "the embedded server's loop spins before it sleeps"),
		CLI_NUMBER("spin-us", &opt->spin_us, 0, 1000000, "courier and waiting caller spin before they sleep"),
		CLI_TEXT("pin", "CPU,CPU", &opt->pin, "where the main thread runs, and where all others"),
		CLI_NUMBER("seed", &opt->seed, 0, INT64_MAX, "of the chunk hashes"),
		CLI_TEXT("namespace", "NAME", &opt->name_space, "of the prompts on the server"),
		CLI_SWITCH("verify", &opt->verify, "fail if an answer is not what was stored"),
		CLI_TEXT("peer", "COMMAND", &opt->peer, "--compare: run this beside, as bench/scripts/peer_python.py"),
		CLI_TEXT("json", "FILE|-", &opt->json, "write the result as JSON; - is standard output"),
		CLI_TEXT("plot", "FILE|-", &opt->plot, "write percentile curves as SVG"),
	};
	bool given[sizeof(options) / sizeof(options[0])] = {false};
	const struct cli cli = {
		.tool = "kvscout-latency",
		.about = "What asking for cached prefixes costs a scheduler loop.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.given = given,
		.notes = notes,
	};

	*opt = defaults;
	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	*ret_status = check_options(&cli, opt);
	if (!*ret_status)
		*ret_status = probe_outputs(opt);
	return *ret_status == 0;
}
