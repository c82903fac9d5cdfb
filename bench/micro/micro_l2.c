/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "l2.h"
#include "l2_adapters.h"
#include "l2_floor.h"
#include "object.h"
#include "say.h"

/*
 * The second tier alone: what a set of objects costs as store, exists and load, through the front and a real adapter, without a
 * server. All of a set is submitted at once, as a retrieve does it. Beside it, by turns in the same run, the floor: what
 * the store itself needs for the same bytes.
 *
 * Each round has objects of its own, and every loaded byte is compared.
 */

#define MAX_ROUNDS 1000u
#define TIMEOUT_MS 60000u

enum l2_phase {
	STORE,
	EXISTS,
	LOAD,
	FLOOR_STORE,
	FLOOR_LOAD,
	N_PHASES
};

struct micro_l2 {
	struct scout__l2 *l2;
	const struct l2_floor *floor; /* or NULL */
	uint32_t n;
	uint64_t bytes;
	uint8_t *data, *loaded;
	struct scout__l2_key *keys;
	struct scout__l2_digest *digests;
	uint8_t *found;
	struct scout__l2_op *ops;
	uint32_t left; /* of the operations that were submitted */
	uint64_t us[N_PHASES][MAX_ROUNDS];
	uint64_t cpu_us[N_PHASES][MAX_ROUNDS]; /* of all threads, in user and kernel */
	uint64_t begin_cpu_us;
};

static void *
must_alloc(size_t n, size_t size)
{
	/* Aligned as slots of the pool are. */
	void *p = aligned_alloc(4096, (n * size + 4095) / 4096 * 4096);

	if (!p)
		die("out of memory");
	memset(p, 0, n * size);
	return p;
}

static void
make_keys(struct micro_l2 *b, uint32_t round)
{
	struct scout__l2_fingerprint fingerprint = {{'b', 'e', 'n', 'c', 'h'}};
	uint8_t hash[32] = {0};
	uint64_t run = scout__now_ns();

	for (uint32_t i = 0; i < b->n; i++) {
		memcpy(hash, &run, sizeof(run));
		memcpy(hash + 8, &i, sizeof(i));
		memcpy(hash + 16, &round, sizeof(round));
		scout__l2_key_make(&b->keys[i], &fingerprint, 1, 0, 0, hash, sizeof(hash), NULL, 0);
		b->digests[i] = b->keys[i].digest;
	}
	/* Other bytes in each round: nothing can be left over from the one before. */
	for (uint64_t i = 0; i < b->n * b->bytes; i += 8) {
		uint64_t word = (i + run) * UINT64_C(0x9e3779b97f4a7c15);

		memcpy(b->data + i, &word, sizeof(word));
	}
}

static void
on_done(void *user, struct scout__l2_op *op)
{
	struct micro_l2 *b = user;

	if (op->result != SCOUT__L2_OK) {
		complain("%s: %s (detail %d)", scout__l2_what_name(op->what), scout__l2_result_name(op->result),
			 (int)op->detail);
		exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): no other thread calls it
	}
	b->left--;
}

static SCOUT_ON_LOOP void
submit(struct micro_l2 *b, struct scout__l2_op *op, uint64_t now_us)
{
	op->done = on_done;
	op->user = b;
	op->timeout_us = UINT64_C(1000) * TIMEOUT_MS;
	b->left++;
	scout__l2_submit(b->l2, 0, op, now_us);
}

static SCOUT_ON_LOOP void
wait_all(struct micro_l2 *b)
{
	struct pollfd fd = {.fd = scout__l2_fd(b->l2), .events = POLLIN};

	while (b->left) {
		if (poll(&fd, 1, TIMEOUT_MS) != 1)
			die("no answer from the second tier");
		(void)scout__l2_reap(b->l2, UINT32_MAX, scout__now_us());
	}
}

static SCOUT_ON_LOOP uint64_t
run_objects(struct micro_l2 *b, enum scout__l2_what what, uint8_t *data)
{
	uint64_t begin_us = scout__now_us();

	for (uint32_t i = 0; i < b->n; i++) {
		b->ops[i] = (struct scout__l2_op){
			.what = (uint8_t)what,
			.key = &b->keys[i],
			.data = data + i * b->bytes,
			.bytes = b->bytes,
		};
		submit(b, &b->ops[i], begin_us);
	}
	wait_all(b);
	return scout__now_us() - begin_us;
}

/* One batch of all keys, as a lookup asks. */
static SCOUT_ON_LOOP uint64_t
run_exists(struct micro_l2 *b)
{
	uint64_t begin_us = scout__now_us();

	b->ops[0] = (struct scout__l2_op){
		.what = SCOUT__L2_EXISTS,
		.n = b->n,
		.digests = b->digests,
		.found = b->found,
	};
	submit(b, &b->ops[0], begin_us);
	wait_all(b);
	return scout__now_us() - begin_us;
}

/* What this process has computed: on a machine that others use too, it says more than the time that went by. */
static uint64_t
cpu_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail with this clock */
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static void
record(struct micro_l2 *b, enum l2_phase phase, uint32_t round, uint64_t us)
{
	uint64_t now_us = cpu_us();

	b->us[phase][round] = us;
	b->cpu_us[phase][round] = now_us - b->begin_cpu_us;
	b->begin_cpu_us = now_us;
}

static SCOUT_ON_LOOP void
run_adapter(struct micro_l2 *b, uint32_t round)
{
	b->begin_cpu_us = cpu_us();
	record(b, STORE, round, run_objects(b, SCOUT__L2_STORE, b->data));
	record(b, EXISTS, round, run_exists(b));
	for (uint32_t i = 0; i < b->n; i++) {
		if (!b->found[i])
			die("an object that was stored is not there");
	}
	b->begin_cpu_us = cpu_us();
	record(b, LOAD, round, run_objects(b, SCOUT__L2_LOAD, b->loaded));
	if (memcmp(b->data, b->loaded, b->n * b->bytes) != 0)
		die("wrong bytes");
}

static void
run_floor(struct micro_l2 *b, uint32_t round)
{
	uint64_t begin_us = scout__now_us();

	b->begin_cpu_us = cpu_us();
	b->floor->store(round, b->data);
	record(b, FLOOR_STORE, round, scout__now_us() - begin_us);
	begin_us = scout__now_us();
	b->floor->load(round, b->loaded);
	record(b, FLOOR_LOAD, round, scout__now_us() - begin_us);
}

/* By turns who goes first: what one leaves to be written back is not always the other's burden. */
static SCOUT_ON_LOOP void
run_round(struct micro_l2 *b, uint32_t round)
{
	make_keys(b, round);
	if (b->floor && round % 2)
		run_floor(b, round);
	memset(b->loaded, 0, b->n * b->bytes);
	run_adapter(b, round);
	if (b->floor && round % 2 == 0)
		run_floor(b, round);
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double
median_ms(uint64_t *us, uint32_t rounds)
{
	uint32_t middle = rounds / 2;

	qsort(us, rounds, sizeof(*us), by_value);
	return (double)us[middle] / 1000;
}

static void
print_phase(struct micro_l2 *b, const char *name, enum l2_phase phase, enum l2_phase floor, uint32_t rounds)
{
	double ms = median_ms(b->us[phase], rounds), cpu_ms = median_ms(b->cpu_us[phase], rounds);
	double gib = (double)(b->n * b->bytes) / (1 << 30);

	say("%-7s p50 %9.3f ms  min %9.3f  max %9.3f", name, ms, (double)b->us[phase][0] / 1000,
	    (double)b->us[phase][rounds - 1] / 1000);
	if (phase == EXISTS)
		say("  %7.3f us/key", 1000 * ms / b->n);
	else
		say("  %7.2f GiB/s", 1000 * gib / ms);
	if (phase != EXISTS && b->floor) {
		double floor_ms = median_ms(b->us[floor], rounds);
		double floor_cpu_ms = median_ms(b->cpu_us[floor], rounds);

		say("  floor %9.3f ms, %5.1f %% of it", floor_ms, 100 * floor_ms / ms);
		say("; CPU %.3f ms, floor %.3f ms, %5.1f %%", cpu_ms, floor_cpu_ms, 100 * floor_cpu_ms / cpu_ms);
	}
	say("\n");
}

static void
find_floor(struct micro_l2 *b, const char *text)
{
	struct scout__l2_url url;

	if (scout__l2_url_parse(text, &url, NULL, 0) != 0)
		return;
	for (uint32_t i = 0; l2_floors[i]; i++) {
		if (strcmp(l2_floors[i]->scheme, url.scheme) == 0)
			b->floor = l2_floors[i];
	}
	if (b->floor)
		b->floor->begin(&url, b->n, b->bytes);
	scout__l2_url_fini(&url);
}

/* A catalogue that is rebuilt, or a connection that is made, is not what is measured. */
static SCOUT_ON_LOOP void
wait_ready(struct micro_l2 *b)
{
	uint64_t end_us = scout__now_us() + UINT64_C(1000) * TIMEOUT_MS;
	struct scout__l2_gauges gauges;

	for (;;) {
		scout__l2_gauges_of(b->l2, 0, &gauges);
		if (gauges.ready)
			return;
		if (scout__now_us() > end_us)
			die("the second tier does not become ready");
		(void)poll(NULL, 0, 1);
	}
}

static void
measure(struct micro_l2 *b, const char *url, uint32_t rounds)
{
	static const struct scout__log log = {.fn = complain_log, .who = "micro_l2"};
	char err[512];

	scout__enter_loop();
	if (scout__l2_new(scout__l2_adapters, &url, 1, TIMEOUT_MS, b->n, &log, &b->l2, err, sizeof(err)) != 0)
		die("%s", err);
	find_floor(b, url);
	wait_ready(b);
	/* The first warms up: files and connections are made. */
	for (uint32_t round = 0; round <= rounds; round++)
		run_round(b, round ? round - 1 : 0);
	say("%s: %" PRIu32 " objects of %" PRIu64 " bytes, %" PRIu32 " rounds%s%s\n", scout__l2_name_of(b->l2, 0), b->n,
	    b->bytes, rounds, b->floor ? "; floor: " : "", b->floor ? b->floor->what : "");
	print_phase(b, "store", STORE, FLOOR_STORE, rounds);
	print_phase(b, "exists", EXISTS, EXISTS, rounds);
	print_phase(b, "load", LOAD, FLOOR_LOAD, rounds);
	if (b->floor)
		b->floor->end();
	(void)scout__l2_stop(b->l2, 5000);
	scout__l2_free(b->l2);
}

static int
usage(int status)
{
	complain("usage: micro_l2 [--objects N] [--bytes N] [--rounds N] URL");
	return status;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"objects", required_argument, NULL, 'o'},
		{"bytes", required_argument, NULL, 'b'},
		{"rounds", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct micro_l2 b = {.n = 96, .bytes = 1 << 20};
	uint64_t rounds = 9;
	int option;

	say_begin("micro_l2");
	/* Before there are threads. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 10) : 0;

		if (option == 'o' && value > 0 && value <= SCOUT__L2_MAX_KEYS)
			b.n = (uint32_t)value;
		else if (option == 'b' && value >= 8 && value % 8 == 0 && value <= 1 << 30)
			b.bytes = value;
		else if (option == 'r' && value > 0 && value <= MAX_ROUNDS)
			rounds = value;
		else
			return usage(option == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	if (optind + 1 != argc)
		return usage(EXIT_FAILURE);
	b.data = must_alloc(b.n, b.bytes);
	b.loaded = must_alloc(b.n, b.bytes);
	b.keys = must_alloc(b.n, sizeof(*b.keys));
	b.digests = must_alloc(b.n, sizeof(*b.digests));
	b.found = must_alloc(b.n, 1);
	b.ops = must_alloc(b.n, sizeof(*b.ops));
	measure(&b, argv[optind], (uint32_t)rounds);
	free(b.data);
	free(b.loaded);
	free(b.keys);
	free(b.digests);
	free(b.found);
	free(b.ops);
	return EXIT_SUCCESS;
}
