/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What the two calls of a scheduler's step cost by themselves, in a loop that does nothing else: "pending" asks again
 * for lookups that are not answered, "submit" queues new ones inside a step, with the courier awake. The floor is
 * "clock": each time holds one reading of the clock, which the same run measures. "pending, no clock" is the time of
 * many calls divided by their number.
 *
 * Hot: the question's hashes were read just before. Cold: they were removed from the caches just before (clflush; on
 * machines without it, by writing a block larger than most caches). "After a sleep" is the case of a scheduler whose
 * step is a millisecond of GPU work: other threads have had the core and its caches.
 *
 * Threads: main; those of the client and of the embedded servers.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <kvscout/client.h>
#include <kvscout/server.h>

#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "micro_peer.h"
#include "say.h"

#define MAX_LIVE 65536u
#define LINE_BYTES 64u
#define FLUSH_BYTES (UINT64_C(64) << 20)
#define HOLD_US 10000000u
#define SLEEP_NS 1000000

struct micro_client {
	uint64_t live, chunks, rounds;
	bool pin;
	struct micro_questions q;
	uint64_t *stamps; /* live + 1 */
	volatile uint64_t sink;
};

static void
print(const char *name, const struct scout__hist *hist, uint64_t clock_p50)
{
	uint64_t p50 = scout__hist_quantile(hist, 0.5);

	say("%-24s p50 %6" PRIu64 "  p90 %6" PRIu64 "  p99 %6" PRIu64 "  p99.9 %6" PRIu64 "  max %8" PRIu64
	    "  above clock %6" PRIu64 " ns  (n %" PRIu64 ")\n",
	    name, p50, scout__hist_quantile(hist, 0.9), scout__hist_quantile(hist, 0.99),
	    scout__hist_quantile(hist, 0.999), hist->max, p50 > clock_p50 ? p50 - clock_p50 : 0, hist->n);
}

static uint64_t
measure_clock(void)
{
	static struct scout__hist hist;
	uint64_t before, now;

	scout__hist_init(&hist);
	for (int i = 0; i < 200000; i++) {
		before = scout__now_ns();
		now = scout__now_ns();
		scout__hist_add(&hist, now - before);
	}
	print("clock", &hist, 0);
	return scout__hist_quantile(&hist, 0.5);
}

/* ---- the question ---- */

static void
warm(struct micro_client *b, const struct scout_query *q)
{
	const uint8_t *p = q->hashes;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < b->chunks * MICRO_HASH_BYTES; i += LINE_BYTES)
		sum += p[i];
	b->sink = sum;
}

static void
chill(struct micro_client *b, const struct scout_query *q)
{
#if defined(__x86_64__)
	const uint8_t *p = q->hashes;

	for (uint64_t i = 0; i < b->chunks * MICRO_HASH_BYTES; i += LINE_BYTES)
		_mm_clflush(p + i);
	_mm_mfence();
#else
	static uint8_t *block;

	(void)q;
	if (!block && !(block = malloc(FLUSH_BYTES)))
		die("start: out of memory");
	memset(block, (int)b->sink++, FLUSH_BYTES);
#endif
}

/* With --pin, main runs on CPU 0 and what is started meanwhile on CPU 1: threads inherit it. */
static void
run_on(const struct micro_client *b, int cpu)
{
	cpu_set_t set;

	if (!b->pin)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		die("--pin: this process may not run on CPUs 0 and 1");
}

static void
nap(void)
{
	struct timespec ts = {.tv_nsec = SLEEP_NS};

	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* ---- client and server ---- */

static struct scout_server *
start_server(uint32_t delay_us)
{
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = UINT64_C(16) << 20;
	cfg.reply_delay_us = delay_us;
	return micro_start_server(&cfg);
}

static struct scout_client *
start_client(const struct scout_server *server, uint32_t spin_us)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(server);
	cfg.lookup_timeout_ms = HOLD_US / 1000 * 6;
	cfg.max_lookups = 2 * MAX_LIVE;
	cfg.spin_us = spin_us;
	return micro_start_client(&cfg);
}

static void
finish_all(struct micro_client *b, struct scout_client *client)
{
	scout_step_begin(client);
	for (uint64_t i = 0; i < b->live; i++)
		(void)scout_finish(client, b->q.ids[i]);
	scout_step_end(client);
}

/* ---- pending ---- */

static void
ask_all(struct micro_client *b, struct scout_client *client)
{
	struct scout_hit hit;

	b->stamps[0] = scout__now_ns();
	for (uint64_t i = 0; i < b->live; i++) {
		if (scout_try_lookup(client, &b->q.lookups[i], &hit) != SCOUT_NOT_YET)
			die("pending: answered too early");
		b->stamps[i + 1] = scout__now_ns();
	}
}

static void
count(const struct micro_client *b, struct scout__hist *hist)
{
	for (uint64_t i = 0; i < b->live; i++)
		scout__hist_add(hist, b->stamps[i + 1] - b->stamps[i]);
}

static void
measure_pending(struct micro_client *b, uint64_t clock_p50)
{
	run_on(b, 1);
	struct scout_server *server = start_server(HOLD_US);
	struct scout_client *client = start_client(server, 0);
	static struct scout__hist hist;
	struct scout_hit hit;
	uint64_t start_ns;

	run_on(b, 0);
	micro_questions_rename(&b->q);
	scout_step_begin(client);
	ask_all(b, client);
	scout_step_end(client);
	nap();
	scout__hist_init(&hist);
	for (uint64_t round = 0; round < b->rounds; round++) {
		ask_all(b, client);
		count(b, &hist);
	}
	print("pending", &hist, clock_p50);

	start_ns = scout__now_ns();
	for (uint64_t round = 0; round < b->rounds; round++)
		for (uint64_t i = 0; i < b->live; i++)
			b->sink += (uint64_t)scout_try_lookup(client, &b->q.lookups[i], &hit);
	say("%-24s %.1f ns a call\n", "pending, no clock",
	    (double)(scout__now_ns() - start_ns) / (double)(b->rounds * b->live));

	scout__hist_init(&hist);
	for (uint64_t round = 0; round < b->rounds / 4 + 1; round++) {
		nap();
		ask_all(b, client);
		count(b, &hist);
	}
	print("pending, after a sleep", &hist, clock_p50);
	finish_all(b, client);
	scout_client_free(client);
	scout_server_stop(server);
}

/* ---- submit ---- */

enum submit_case {
	HOT,
	COLD,
	SLEEP
};

static void
submit_all(struct micro_client *b, struct scout_client *client, struct scout__hist *hist, enum submit_case source)
{
	struct scout_hit hit;
	uint64_t start_ns;

	micro_questions_rename(&b->q);
	if (source == SLEEP)
		nap();
	scout_step_begin(client);
	for (uint64_t i = 0; i < b->live; i++) {
		if (source == HOT)
			warm(b, &b->q.lookups[i]);
		else if (source == COLD)
			chill(b, &b->q.lookups[i]);
		start_ns = scout__now_ns();
		if (scout_try_lookup(client, &b->q.lookups[i], &hit) != SCOUT_NOT_YET)
			die("submit: refused");
		scout__hist_add(hist, scout__now_ns() - start_ns);
	}
	scout_step_end(client);
	for (uint64_t i = 0; i < b->live; i++)
		if (scout_wait_lookup(client, &b->q.lookups[i], &hit) != 0 || hit.reason != SCOUT_REASON_MISS)
			die("submit: not answered");
	finish_all(b, client);
}

static void
measure_submit(struct micro_client *b, uint64_t clock_p50)
{
	static const char *const names[] = {"submit, hashes hot", "submit, hashes cold", "submit, after a sleep"};
	run_on(b, 1);
	struct scout_server *server = start_server(0);
	struct scout_client *client = start_client(server, 1000000);
	static struct scout__hist hists[3];

	run_on(b, 0);
	for (int source = HOT; source <= SLEEP; source++)
		scout__hist_init(&hists[source]);
	for (uint64_t round = 0; round < b->rounds / 4 + 1; round++)
		for (int source = HOT; source <= SLEEP; source++)
			submit_all(b, client, &hists[source], (enum submit_case)source);
	for (int source = HOT; source <= SLEEP; source++)
		print(names[source], &hists[source], clock_p50);
	scout_client_free(client);
	scout_server_stop(server);
}

int
main(int argc, char **argv)
{
	struct micro_client b = {.live = 64, .chunks = 256, .rounds = 1000};
	const struct cli_option options[] = {
		CLI_NUMBER("live", &b.live, 1, MAX_LIVE, "requests that wait at once"),
		CLI_NUMBER("chunks", &b.chunks, 1, 4096, "hashes of a lookup"),
		CLI_NUMBER("rounds", &b.rounds, 1, 100000, "times that each is asked for"),
		CLI_SWITCH("pin", &b.pin, "main on CPU 0, all other threads on CPU 1"),
	};
	const struct cli cli = {
		.tool = "micro_client",
		.about = "What scout_try_lookup() costs its caller.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	uint64_t clock_p50;
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	micro_questions_init(&b.q, b.live, b.chunks);
	b.stamps = calloc(b.live + 1, sizeof(*b.stamps));
	if (!b.stamps)
		die("out of memory");
	clock_p50 = measure_clock();
	measure_pending(&b, clock_p50);
	measure_submit(&b, clock_p50);
	micro_questions_fini(&b.q);
	free(b.stamps);
	return EXIT_SUCCESS;
}
