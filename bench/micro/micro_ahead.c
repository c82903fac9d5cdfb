/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How many lookups have their answer when a scheduler asks for them first, with an embedded server, in steps of new
 * requests:
 *
 *   plain       asked for without waiting: the floor, a scheduler that does nothing about it
 *   ahead       scout_lookup_ahead() for each, then --ahead-us of other work, then the first ask
 *   step wait   scout_try_lookup() for each, scout_step_wait(--wait-us) once, then the ask that counts
 *   few new     --live requests wait that were asked for before, --new are new: scout_lookup(), step_wait_us = --wait-us
 *
 * "Answered" is the share of new requests; "took" is the time that a step spent waiting.
 *
 * Threads: main; those of the client and of the embedded server.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvscout/client.h>
#include <kvscout/server.h>

#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "micro_peer.h"
#include "say.h"

#define MAX_LIVE 1024u
#define STEP_NS 2000000

struct micro_ahead {
	uint64_t live, fresh, chunks, rounds, ahead_us, wait_us, spin_us;
	bool busy;
	struct micro_questions q;
	struct scout_client *client;
	uint64_t asked, answered;
	struct scout__hist took;
};

/* The rest of a step: others have the processor. */
static void
rest(void)
{
	struct timespec ts = {.tv_nsec = STEP_NS};

	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* Work that is not about the cache: of the GPU, which the scheduler waits for, or (--busy) its own. */
static void
work(const struct micro_ahead *b)
{
	struct timespec ts = {.tv_sec = (time_t)(b->ahead_us / 1000000),
			      .tv_nsec = (long)(b->ahead_us % 1000000) * 1000};
	uint64_t us = b->ahead_us;

	if (!b->busy) {
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
		return;
	}
	for (uint64_t end_us = scout__now_us() + us; scout__now_us() < end_us;)
		;
}

static void
count(struct micro_ahead *b, int rc)
{
	if (rc < 0)
		die("lookup: %s", scout_strerror(rc));
	b->asked++;
	b->answered += rc == 0;
}

static void
finish(struct micro_ahead *b, uint64_t n)
{
	struct scout_hit hit;

	for (uint64_t i = 0; i < n; i++) {
		(void)!scout_wait_lookup(b->client, &b->q.lookups[i], &hit);
		(void)scout_finish(b->client, b->q.ids[i]);
	}
	rest();
}

static void
step_of_all(struct micro_ahead *b, bool ahead, bool waits)
{
	struct scout_hit hit;
	uint64_t start_ns;

	micro_questions_rename(&b->q);
	if (ahead) {
		scout_step_begin(b->client);
		for (uint64_t i = 0; i < b->live; i++)
			if (scout_lookup_ahead(b->client, &b->q.lookups[i]) != 0)
				die("ahead: refused");
		scout_step_end(b->client);
		work(b);
	}
	scout_step_begin(b->client);
	if (waits) {
		for (uint64_t i = 0; i < b->live; i++)
			(void)!scout_try_lookup(b->client, &b->q.lookups[i], &hit);
		start_ns = scout__now_ns();
		(void)scout_step_wait(b->client, (uint32_t)b->wait_us);
		scout__hist_add(&b->took, scout__now_ns() - start_ns);
	}
	for (uint64_t i = 0; i < b->live; i++)
		count(b, scout_try_lookup(b->client, &b->q.lookups[i], &hit));
	scout_step_end(b->client);
	finish(b, b->live);
}

/* Of the queue, the last ones are new. */
static void
step_of_few(struct micro_ahead *b)
{
	uint64_t old = b->live - b->fresh, start_ns;
	struct scout_hit hit;

	micro_questions_rename(&b->q);
	for (uint64_t i = 0; i < old; i++)
		if (scout_wait_lookup(b->client, &b->q.lookups[i], &hit) != 0)
			die("lookup: not answered");
	rest();
	scout_step_begin(b->client);
	start_ns = scout__now_ns();
	for (uint64_t i = 0; i < old; i++)
		(void)!scout_lookup(b->client, &b->q.lookups[i], &hit);
	for (uint64_t i = old; i < b->live; i++)
		count(b, scout_lookup(b->client, &b->q.lookups[i], &hit));
	scout__hist_add(&b->took, scout__now_ns() - start_ns);
	scout_step_end(b->client);
	finish(b, b->live);
}

static void
print(const struct micro_ahead *b, const char *name)
{
	say("%-10s answered at the first ask %6.2f %% of %" PRIu64 ", took p50 %" PRIu64 "  p99 %" PRIu64
	    "  max %" PRIu64 " us\n",
	    name, 100.0 * (double)b->answered / (double)b->asked, b->asked, scout__hist_quantile(&b->took, 0.5) / 1000,
	    scout__hist_quantile(&b->took, 0.99) / 1000, b->took.max / 1000);
}

static void
measure(struct micro_ahead *b, const char *name, unsigned mode)
{
	b->asked = b->answered = 0;
	scout__hist_init(&b->took);
	for (uint64_t round = 0; round < b->rounds; round++) {
		if (mode == 3)
			step_of_few(b);
		else
			step_of_all(b, mode == 1, mode == 2);
	}
	print(b, name);
}

int
main(int argc, char **argv)
{
	struct micro_ahead b = {
		.live = 64, .fresh = 1, .chunks = 32, .rounds = 200, .ahead_us = 100, .wait_us = 200, .spin_us = 0};
	const struct cli_option options[] = {
		CLI_NUMBER("live", &b.live, 1, MAX_LIVE, "requests that wait at once"),
		CLI_NUMBER("new", &b.fresh, 1, MAX_LIVE, "of them new in a step of \"few new\""),
		CLI_NUMBER("chunks", &b.chunks, 1, 4096, "hashes of a lookup"),
		CLI_NUMBER("rounds", &b.rounds, 1, 100000, "steps of each kind"),
		CLI_NUMBER("ahead-us", &b.ahead_us, 0, 1000000, "work between an ahead lookup and its first ask"),
		CLI_SWITCH("busy", &b.busy, "that work takes the scheduler's CPU"),
		CLI_NUMBER("wait-us", &b.wait_us, 0, 1000000, "how long a step may wait"),
		CLI_NUMBER("spin-us", &b.spin_us, 0, 1000000, "spin_us of the client"),
	};
	const struct cli cli = {
		.tool = "micro_ahead",
		.about = "How many lookups are answered when a scheduler asks for them first.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	struct scout_server_config server_cfg;
	struct scout_client_config cfg;
	struct scout_server *server;
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (b.fresh > b.live)
		b.fresh = b.live;
	micro_questions_init(&b.q, b.live, b.chunks);
	scout_server_config_init(&server_cfg);
	server_cfg.l1_bytes = UINT64_C(16) << 20;
	server = micro_start_server(&server_cfg);
	scout_client_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(server);
	cfg.step_wait_us = (uint32_t)b.wait_us;
	cfg.spin_us = (uint32_t)b.spin_us;
	b.client = micro_start_client(&cfg);
	measure(&b, "plain", 0);
	measure(&b, "ahead", 1);
	measure(&b, "step wait", 2);
	measure(&b, "few new", 3);
	scout_client_free(b.client);
	scout_server_stop(server);
	micro_questions_fini(&b.q);
	return EXIT_SUCCESS;
}
