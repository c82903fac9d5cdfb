/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What a set of objects costs as store, exists and load on L2, through the entry point that the server uses and a
 * real adapter, without a server. All objects of a set are in flight together, as a retrieve asks for them; exists
 * asks for --keys keys in one operation, as a lookup does. The floor, on the files adapter: what the file system
 * needs for the same bytes (l2_floor.c), by turns in the same run. run-bench measures redis-benchmark beside the
 * Redis adapter.
 *
 * Each round has objects and bytes of its own, and every loaded byte is compared. What is stored stays: use a folder
 * or a Redis of its own, or a URL with a ttl.
 *
 * Threads: main, which is the loop; the adapter's.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "clock.h"
#include "l2.h"
#include "l2_adapters.h"
#include "l2_floor.h"
#include "mix.h"
#include "object.h"
#include "say.h"
#include "spread.h"
#include "url.h"

#define MAX_ROUNDS SPREAD_MAX
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
	const char *url;
	uint64_t n, bytes, rounds;
	uint64_t n_keys, repeat; /* of an exists; of each round */
	struct scout__l2 *l2;
	bool has_floor;
	uint8_t *data, *loaded;
	struct scout__l2_key *keys;
	struct scout__l2_digest *digests; /* n_keys; those behind the objects' are not there */
	uint8_t *found;
	struct scout__l2_op *ops;
	uint32_t left; /* of the operations that were submitted */
	double ms[N_PHASES][MAX_ROUNDS];
	double cpu_ms[N_PHASES][MAX_ROUNDS]; /* of all threads, in user and kernel */
	uint64_t begin_cpu_ns;
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
	uint64_t run = scout__now_ns(), seed = run;

	for (uint64_t i = 0; i < b->n_keys || i < b->n; i++) {
		struct scout__l2_key key;

		memcpy(hash, &run, sizeof(run));
		memcpy(hash + 8, &i, sizeof(i));
		memcpy(hash + 16, &round, sizeof(round));
		scout__l2_key_make(&key, &fingerprint, 1, 0, 0, hash, sizeof(hash), NULL, 0);
		if (i < b->n)
			b->keys[i] = key;
		if (i < b->n_keys)
			b->digests[i] = key.digest;
	}
	/* Other bytes in each round: nothing can be left over from the one before. */
	for (uint64_t i = 0; i < b->n * b->bytes; i += 8) {
		uint64_t word = mix_next(&seed);

		memcpy(b->data + i, &word, sizeof(word));
	}
}

static void
on_done(void *user, struct scout__l2_op *op)
{
	struct micro_l2 *b = user;

	if (op->result != SCOUT__L2_OK)
		die("%s: %s (detail %d)", scout__l2_what_name(op->what), scout__l2_result_name(op->result),
		    (int)op->detail);
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
			die("no answer from L2");
		(void)scout__l2_reap(b->l2, UINT32_MAX, scout__now_us());
	}
}

/* Milliseconds. */
static double
ms_since(uint64_t begin_ns)
{
	return (double)(scout__now_ns() - begin_ns) / 1e6;
}

static SCOUT_ON_LOOP double
run_objects(struct micro_l2 *b, enum scout__l2_what what, uint8_t *data)
{
	uint64_t begin_ns = scout__now_ns();

	for (uint64_t i = 0; i < b->n; i++) {
		b->ops[i] = (struct scout__l2_op){
			.what = (uint8_t)what,
			.key = &b->keys[i],
			.data = data + i * b->bytes,
			.bytes = b->bytes,
		};
		submit(b, &b->ops[i], scout__now_us());
	}
	wait_all(b);
	return ms_since(begin_ns);
}

/* One operation for all keys, as a lookup asks; the median of --repeat. */
static SCOUT_ON_LOOP double
run_exists(struct micro_l2 *b)
{
	double ms[SPREAD_MAX];

	for (uint64_t k = 0; k < b->repeat; k++) {
		uint64_t begin_ns = scout__now_ns();

		b->ops[0] = (struct scout__l2_op){
			.what = SCOUT__L2_EXISTS,
			.n = (uint32_t)b->n_keys,
			.digests = b->digests,
			.found = b->found,
		};
		submit(b, &b->ops[0], scout__now_us());
		wait_all(b);
		ms[k] = ms_since(begin_ns);
		for (uint64_t i = 0; i < b->n_keys; i++)
			if (b->found[i] != (i < b->n))
				die("a wrong answer to exists");
	}
	return spread_of(ms, b->repeat).p50;
}

/* What this process has computed: on a machine that others use too, it says more than the time that went by. */
static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* cannot fail with this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
record(struct micro_l2 *b, enum l2_phase phase, uint32_t round, double ms)
{
	b->ms[phase][round] = ms;
	b->cpu_ms[phase][round] = (double)(cpu_ns() - b->begin_cpu_ns) / 1e6;
	b->begin_cpu_ns = cpu_ns();
}

static SCOUT_ON_LOOP void
run_adapter(struct micro_l2 *b, uint32_t round)
{
	b->begin_cpu_ns = cpu_ns();
	record(b, STORE, round, run_objects(b, SCOUT__L2_STORE, b->data));
	record(b, EXISTS, round, run_exists(b));
	record(b, LOAD, round, run_objects(b, SCOUT__L2_LOAD, b->loaded));
	if (memcmp(b->data, b->loaded, b->n * b->bytes) != 0)
		die("wrong bytes");
}

static void
run_floor(struct micro_l2 *b, uint32_t round)
{
	uint64_t begin_ns = scout__now_ns();

	b->begin_cpu_ns = cpu_ns();
	l2_floor_store(round, b->data);
	record(b, FLOOR_STORE, round, ms_since(begin_ns));
	begin_ns = scout__now_ns();
	l2_floor_load(round, b->loaded);
	record(b, FLOOR_LOAD, round, ms_since(begin_ns));
}

/* Adapter and floor go first by turns: what the first leaves to be written back is not always the other's burden. */
static SCOUT_ON_LOOP void
run_round(struct micro_l2 *b, uint32_t round)
{
	make_keys(b, round);
	if (b->has_floor && round % 2)
		run_floor(b, round);
	memset(b->loaded, 0, b->n * b->bytes);
	run_adapter(b, round);
	if (b->has_floor && round % 2 == 0)
		run_floor(b, round);
}

static void
print_phase(const struct micro_l2 *b, const char *name, enum l2_phase phase, enum l2_phase floor)
{
	struct spread ms = spread_of(b->ms[phase], b->rounds), floor_ms = spread_of(b->ms[floor], b->rounds);
	double cpu_ms = spread_of(b->cpu_ms[phase], b->rounds).p50;
	double floor_cpu_ms = spread_of(b->cpu_ms[floor], b->rounds).p50;

	say("%-7s p50 %9.3f ms  min %9.3f  max %9.3f", name, ms.p50, ms.min, ms.max);
	if (phase == EXISTS)
		say("  %7.3f us/key", 1000 * ms.p50 / (double)b->n_keys);
	else
		say("  %7.2f GiB/s  CPU %.3f ms", (double)(b->n * b->bytes) / (1 << 30) * 1000 / ms.p50, cpu_ms);
	if (phase != EXISTS && b->has_floor)
		say("; floor %9.3f ms, %5.1f %% of it; CPU %.3f ms, %5.1f %%", floor_ms.p50,
		    100 * floor_ms.p50 / ms.p50, floor_cpu_ms, 100 * floor_cpu_ms / cpu_ms);
	say("\n");
}

static void
find_floor(struct micro_l2 *b)
{
	struct scout__l2_url url;

	if (scout__l2_url_parse(b->url, &url, NULL, 0) != 0)
		return;
	b->has_floor = strcmp(url.scheme, "fs") == 0;
	if (b->has_floor)
		l2_floor_begin(url.path, (uint32_t)b->n, b->bytes);
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
			die("L2 does not become ready");
		(void)poll(NULL, 0, 1);
	}
}

static SCOUT_ON_LOOP void
measure(struct micro_l2 *b)
{
	static const struct scout__log log = {.fn = complain_log, .who = "micro_l2"};
	char err[512];

	if (scout__l2_new(scout__l2_adapters, &b->url, 1, TIMEOUT_MS, (uint32_t)b->n, &log, &b->l2, err, sizeof(err)) !=
	    0)
		die("%s", err);
	find_floor(b);
	wait_ready(b);
	/* The first warms up: files and connections are made. */
	for (uint32_t round = 0; round <= b->rounds; round++)
		run_round(b, round ? round - 1 : 0);
	say("%s: %" PRIu64 " objects of %" PRIu64 " bytes, %" PRIu64 " keys, %" PRIu64 " rounds%s\n",
	    scout__l2_store_of(b->l2, 0)->name, b->n, b->bytes, b->n_keys, b->rounds,
	    b->has_floor ? "; floor: " L2_FLOOR_NAME : "");
	print_phase(b, "store", STORE, FLOOR_STORE);
	print_phase(b, "exists", EXISTS, EXISTS);
	print_phase(b, "load", LOAD, FLOOR_LOAD);
	if (b->has_floor)
		l2_floor_end();
	if (!scout__l2_stop(b->l2, 5000))
		die("the adapter does not stop");
	scout__l2_free(b->l2);
}

int
main(int argc, char **argv)
{
	static struct micro_l2 b = {.n = 96, .bytes = 1 << 20, .rounds = 9, .repeat = 1};
	const struct cli_option options[] = {
		CLI_TEXT("url", "URL", &b.url, "fs:///FOLDER, redis://HOST:PORT or plugin:///LIBRARY; required"),
		CLI_NUMBER("objects", &b.n, 1, SCOUT__L2_MAX_KEYS, "objects of a set"),
		CLI_BYTES("bytes", &b.bytes, 8, 1 << 30, "of one object; a multiple of 8"),
		CLI_NUMBER("rounds", &b.rounds, 1, MAX_ROUNDS, "sets to store, ask for and load"),
		CLI_NUMBER("keys", &b.n_keys, 0, SCOUT__L2_MAX_KEYS,
			   "keys of an exists; those beyond the objects are not there; 0: one for each object"),
		CLI_NUMBER("repeat", &b.repeat, 1, SPREAD_MAX, "exists operations in a round"),
	};
	const struct cli cli = {
		.tool = "micro_l2",
		.about = "What L2 needs for a set of objects: store, exists, load.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (!b.url)
		return cli_usage_error(&cli, "--url is missing");
	if (b.bytes % 8)
		return cli_usage_error(&cli, "--bytes: must be a multiple of 8");
	if (!b.n_keys)
		b.n_keys = b.n;
	b.data = must_alloc(b.n, b.bytes);
	b.loaded = must_alloc(b.n, b.bytes);
	b.keys = must_alloc(b.n, sizeof(*b.keys));
	b.digests = must_alloc(b.n_keys, sizeof(*b.digests));
	b.found = must_alloc(b.n_keys, 1);
	b.ops = must_alloc(b.n, sizeof(*b.ops));
	scout__enter_loop();
	measure(&b);
	free(b.data);
	free(b.loaded);
	free(b.keys);
	free(b.digests);
	free(b.found);
	free(b.ops);
	return EXIT_SUCCESS;
}
