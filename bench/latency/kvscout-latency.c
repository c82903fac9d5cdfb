/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout-latency: what does asking cost a scheduler loop, and how long does an answer take? Every number stands
 * beside the blocking round trip that it replaces (`sync`) and beside what the transport alone takes (`floor`).
 *
 * With --compare the modes take turns: each round runs a part of every mode's requests, and the order rotates, so
 * that other load on the machine meets all of them alike. Each mode keeps its connection over all rounds.
 *
 * Closed loop (the default): a request is asked for when a place is free, so a slow server is asked less often. Open
 * loop (--rate): requests arrive at times that do not depend on the server, and a request's time counts from when it
 * should have been asked for.
 *
 * --pin: a thread inherits the CPUs of the thread that starts it, and the libraries start theirs while a mode is
 * opened. So main moves to the others' CPU for that, and to its own for measuring.
 *
 * Invariants: prompts are stored, connections made and a warm-up done before anything counts; while a step runs
 * nothing is printed or allocated. SIGINT and SIGTERM end the run, and so does a mode that cannot go on (its server
 * died, say): what was measured until then is printed. A second signal ends the process at once.
 *
 * Threads: main; those of the libraries, which block all signals, so that handlers run on main and interrupt what it
 * waits in.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kvscout/server.h>

#include "cli.h"
#include "lat.h"
#include "say.h"
#include "thread_cpu.h"

#define CLOCK_READINGS 100000u
#define L1_SPARE_BYTES (UINT64_C(64) << 20)
/* Of pool for each key: its slot, generously. */
#define L1_KEY_BYTES 512u
#define SPARE_PEERS 16u

static const struct lat_runner *const runners[LAT_N_MODES] = {
	[LAT_ASYNC] = &lat_async_runner, [LAT_POLLED] = &lat_polled_runner, [LAT_SYNC] = &lat_sync_runner,
	[LAT_FLOOR] = &lat_floor_runner, [LAT_PEER] = &lat_peer_runner,
};

/* The modes of one run, in the order of the enum; NULL where it does not run. */
struct lat_session {
	struct lat *lat;
	struct scout_server *server;
	int server_tid; /* of its loop; 0: not embedded */
	void *runners[LAT_N_MODES];
};

static int
start_server(struct lat_session *session)
{
	struct lat *lat = session->lat;
	const struct lat_options *opt = lat->opt;
	struct scout_server_config cfg;
	char err[LAT_ERR_BYTES] = "";
	int rc;

	if (opt->endpoint) {
		lat->endpoint = opt->endpoint;
		return lat_wait_for_server(lat);
	}
	scout_server_config_init(&cfg);
	cfg.l1_bytes =
		opt->l1_bytes ? opt->l1_bytes : L1_SPARE_BYTES + lat->keys.n_prompts * lat->keys.chunks * L1_KEY_BYTES;
	/* All of it may be promised: the limit of promises is not measured here. */
	cfg.max_promised = cfg.l1_bytes;
	cfg.spin_us = (uint32_t)opt->server_spin_us;
	cfg.reply_delay_us = (uint32_t)opt->server_delay_us;
	/* The modes beside async and polled have one connection each; nothing here may run into these limits. */
	if (cfg.max_peers < 2 * opt->clients + SPARE_PEERS)
		cfg.max_peers = (uint32_t)(2 * opt->clients + SPARE_PEERS);
	if (cfg.max_sessions < 4 * opt->clients * opt->inflight)
		cfg.max_sessions = (uint32_t)(4 * opt->clients * opt->inflight);
	cfg.log = complain_log;
	rc = settings_server(&opt->settings, &cfg, err, sizeof(err));
	if (!rc)
		rc = scout_server_start(&cfg, &session->server, err, sizeof(err));
	scout_server_config_fini(&cfg);
	lat->exit_status = rc ? cli_exit_of(rc) : 0;
	if (rc)
		return lat_fail(lat, "embedded server: %s", err[0] ? err : scout_strerror(rc));
	lat->endpoint = scout_server_endpoint(session->server);
	session->server_tid = thread_cpu_find("scout-server");
	return 0;
}

/* Before anything is started: a wrong key file should be told at once. */
static int
check_keys(struct lat *lat)
{
	const struct keys_option *from = &lat->opt->keys;
	struct scout__curve_keys keys;
	char err[LAT_ERR_BYTES] = "";

	if (!from->secret_file)
		return 0;
	if (scout__curve_load(from->secret_file, from->server_key, &keys, err, sizeof(err)))
		return lat_fail(lat, "--curve-secret-file: %s", err);
	explicit_bzero(&keys, sizeof(keys));
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
enum lat_place {
	PLACE_MAIN = 1,
	PLACE_OTHERS = 2,
	PLACE_BOTH = 3
};

static int
pin(struct lat *lat, enum lat_place place)
{
	char text[SAY_ERROR];
	cpu_set_t set;

	if (lat->opt->cpus[0] < 0)
		return 0;
	CPU_ZERO(&set);
	for (int i = 0; i < 2; i++) {
		if ((unsigned int)place & 1u << i)
			CPU_SET(lat->opt->cpus[i], &set);
	}
	if (sched_setaffinity(0, sizeof(set), &set))
		return lat_fail(lat, "--pin %s: %s", lat->opt->pin, say_error(text, errno));
	return 0;
}

/* "0-3,8", cut where there is no more room. */
static void
show_cpus(char *buf, size_t len, const cpu_set_t *set)
{
	size_t at = 0;
	int last, n;

	buf[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE && at < len; cpu = last + 1) {
		last = cpu;
		if (!CPU_ISSET(cpu, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		n = snprintf(buf + at, len - at, last > cpu ? "%s%d-%d" : "%s%d", at ? "," : "", cpu, last);
		at += n > 0 ? (size_t)n : 0;
	}
}

/* Each CPU alone: the kernel takes a set of which one is there. Leaves main on the last. */
static int
check_pin(struct lat *lat)
{
	char allowed[LAT_TEXT_BYTES];
	cpu_set_t before, set;

	if (lat->opt->cpus[0] < 0)
		return 0;
	CPU_ZERO(&before);
	(void)sched_getaffinity(0, sizeof(before), &before); /* only to be told */
	for (int i = 0; i < 2; i++) {
		CPU_ZERO(&set);
		CPU_SET(lat->opt->cpus[i], &set);
		if (!sched_setaffinity(0, sizeof(set), &set))
			continue;
		show_cpus(allowed, sizeof(allowed), &before);
		return lat_fail(lat, "--pin %s: this process may not run on CPU %d; it may on %s", lat->opt->pin,
				lat->opt->cpus[i], allowed);
	}
	return 0;
}

/* Connect all modes, and let each run what does not count. */
static int
open_runners(struct lat_session *session)
{
	struct lat *lat = session->lat;

	for (unsigned int mode = 0; mode < LAT_N_MODES && !lat_is_stopped(); mode++) {
		if (!lat_is_chosen(lat->opt, mode))
			continue;
		if (pin(lat, mode == LAT_PEER ? PLACE_BOTH : PLACE_OTHERS) ||
		    runners[mode]->open(lat, &session->runners[mode]) || pin(lat, PLACE_MAIN))
			return -1;
		clear_result(&lat->scratch);
		if (lat->opt->warmup && runners[mode]->run(session->runners[mode], &lat->scratch, lat->opt->warmup))
			return -1;
	}
	return 0;
}

/* What the process has used until now. */
struct lat_usage {
	uint64_t wall_ns, switches, others_ns, server_ns;
};

static uint64_t
cpu_of(const struct rusage *usage)
{
	return ((uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec) * UINT64_C(1000000000) +
	       ((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) * 1000;
}

static struct lat_usage
usage_now(const struct lat_session *session)
{
	struct rusage all, self;
	struct lat_usage now = {.wall_ns = scout__now_ns()};

	(void)getrusage(RUSAGE_SELF, &all); /* cannot fail, nor can the other */
	(void)getrusage(RUSAGE_THREAD, &self);
	now.switches = (uint64_t)all.ru_nvcsw + (uint64_t)all.ru_nivcsw;
	now.others_ns = cpu_of(&all) - cpu_of(&self);
	if (session->server_tid)
		now.server_ns = thread_cpu_ns(session->server_tid);
	return now;
}

static void
count_usage(const struct lat_session *session, const struct lat_usage *from, struct lat_result *result)
{
	struct lat_usage now = usage_now(session);

	result->wall_ns = now.wall_ns - from->wall_ns;
	result->switches = now.switches - from->switches;
	result->others_ns = now.others_ns - from->others_ns;
	result->server_ns = now.server_ns - from->server_ns;
}

static int
run_rounds(struct lat_session *session)
{
	struct lat *lat = session->lat;
	const struct lat_options *opt = lat->opt;
	struct lat_usage before;
	uint64_t from, to;
	unsigned int mode;
	int rc;

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
			rc = runners[mode]->run(session->runners[mode], &lat->scratch, to - from);
			count_usage(session, &before, &lat->scratch);
			lat_end_round(lat, round, mode); /* also when it failed in the middle */
			if (rc)
				return -1;
		}
	}
	return 0;
}

static int
run_session(struct lat_session *session)
{
	struct lat *lat = session->lat;
	int rc;

	rc = check_keys(lat);
	if (!rc)
		rc = check_pin(lat);
	if (!rc)
		rc = lat_keys_init(lat);
	if (!rc)
		rc = pin(lat, PLACE_OTHERS);
	/* The floor alone needs no server. */
	if (!rc && (lat->opt->compare || lat->opt->mode != LAT_FLOOR)) {
		rc = start_server(session);
		if (!rc && !lat_is_stopped())
			rc = lat_keys_store(lat);
	}
	if (!rc)
		rc = open_runners(session);
	if (!rc)
		rc = run_rounds(session);
	if (lat_is_stopped() && !lat->err[0])
		rc = 0; /* an interrupted wait is no failure */
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++)
		runners[mode]->close(session->runners[mode]);
	scout_server_stop(session->server);
	lat->endpoint = NULL; /* was the server's */
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
			status = EXIT_FAILURE;
		}
		if (result->wrong)
			complain("%s: wrong answers; the first: %s", lat_mode_names[mode], result->first_wrong);
		if (result->wrong && lat->opt->verify)
			status = EXIT_FAILURE;
		else if (result->wrong)
			complain(
				"%s: so the times are not those of the hit ratio that was asked for: is the pool too small "
				"for the prompts, or does another program store in this namespace?",
				lat_mode_names[mode]);
	}
	return status;
}

/* Say what went wrong, and go on: what was measured should not be lost. */
static bool
note(const struct lat *lat, int rc)
{
	if (rc)
		complain("%s", lat->err);
	return rc != 0;
}

static bool
has_results(const struct lat *lat)
{
	uint64_t n = 0;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++)
		n += lat->results[mode].requests;
	return n > 0;
}

static int
report(struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	int status = judge(lat);

	if (!lat_is_stdout(opt->json) && !lat_is_stdout(opt->plot))
		lat_print_table(lat);
	/* Each is written, also when the other could not be. */
	if (opt->json && note(lat, lat_write_json(lat, opt->json)))
		status = EXIT_FAILURE;
	if (opt->plot && note(lat, lat_write_plot(lat, opt->plot)))
		status = EXIT_FAILURE;
	return status;
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
	struct lat_options opt;
	struct lat_session session = {.lat = &lat};
	int status;

	if (!lat_options_parse(&opt, argc, argv, &status))
		return status;
	lat.opt = &opt;
	scout__hist_init(&lat.clock);
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		clear_result(&lat.results[mode]);
		if (lat_is_chosen(&opt, mode))
			lat.total += opt.requests + opt.warmup;
	}
	allow_files();
	lat_catch_signals();
	measure_clock(&lat);
	status = EXIT_SUCCESS;
	if (run_session(&session)) {
		complain("%s", lat.err);
		(void)snprintf(lat.failure, sizeof(lat.failure), "%s", lat.err);
		status = lat.exit_status ? lat.exit_status : EXIT_FAILURE;
	}
	if (!status || has_results(&lat))
		status |= report(&lat);
	lat_keys_fini(&lat.keys);
	return lat_stop_signal() ? 128 + lat_stop_signal() : status;
}
