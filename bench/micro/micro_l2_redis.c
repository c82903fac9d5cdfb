/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "l2.h"
#include "object.h"
#include "redis.h"
#include "say.h"

/*
 * The second tier on Redis, through the front that the server uses: objects are stored, asked for, and loaded, all of
 * one kind at once, as a lookup and its loads do. run-bench starts a redis-server for it and runs redis-benchmark beside.
 *
 *   store  seconds for all objects, in flight together
 *   exists one operation of --keys keys, every second of them there; p50 of --repeat
 *   load   seconds for all objects, in flight together, into memory that was written before; every byte compared once
 *
 * Keys are new in each run. What it stores stays: use a Redis of its own, or a URL with a ttl.
 *
 * Threads: main, which is the loop; the adapter's.
 */

#define MAX_OBJECTS 4096u

struct micro_l2_redis {
	const char *url;
	uint64_t objects, bytes, keys, repeat;
	struct scout__l2 *l2;
	struct scout__l2_op *ops;
	struct scout__l2_key *key;
	uint8_t *data, *slot;
	struct scout__l2_digest *digests;
	uint8_t *found;
	uint64_t ended;
	bool stored;
};

static void *
must(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

static void
done(void *user, struct scout__l2_op *op)
{
	struct micro_l2_redis *b = user;

	(void)op;
	b->ended++;
}

static void
wait_for(struct micro_l2_redis *b, uint64_t n) SCOUT_ON_LOOP
{
	struct pollfd item = {.fd = scout__l2_fd(b->l2), .events = POLLIN};

	while (b->ended < n) {
		if (poll(&item, 1, 100) < 0 && errno != EINTR)
			die("poll failed");
		while (scout__l2_reap(b->l2, 256, scout__now_us()))
			;
		scout__l2_tick(b->l2, scout__now_us());
	}
}

static void
make_objects(struct micro_l2_redis *b)
{
	const struct scout__l2_layout layout = {
		.name_space = "bench", .name_len = 5, .chunk_tokens = 256, .hash_bytes = 32};
	struct scout__l2_fingerprint fingerprint;
	uint64_t run = scout__now_ns(), x = run | 1;

	b->ops = must(calloc(b->objects, sizeof(*b->ops)));
	b->key = must(calloc(b->objects, sizeof(*b->key)));
	b->data = must(malloc(b->objects * b->bytes));
	b->slot = must(malloc(b->objects * b->bytes));
	b->digests = must(calloc(b->keys, sizeof(*b->digests)));
	b->found = must(calloc(b->keys, 1));
	for (uint64_t i = 0; i + 8 <= b->objects * b->bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(b->data + i, &x, 8);
	}
	memset(b->slot, 0, b->objects * b->bytes);
	scout__l2_fingerprint(&layout, &fingerprint);
	for (uint64_t i = 0; i < b->objects; i++) {
		uint8_t hash[32] = {0};

		memcpy(hash, &i, sizeof(i));
		memcpy(hash + 8, &run, sizeof(run));
		scout__l2_key_make(&b->key[i], &fingerprint, 0, 0, 0, hash, sizeof(hash), "", 0);
	}
	for (uint64_t i = 0; i < b->keys; i++)
		b->digests[i] = i % 2 ? (struct scout__l2_digest){.lo = i, .hi = run} : b->key[i % b->objects].digest;
}

/* All objects at once; seconds. */
static double
pass(struct micro_l2_redis *b, enum scout__l2_what what, uint8_t *memory) SCOUT_ON_LOOP
{
	uint64_t begun_ns = scout__now_ns(), ended_ns;

	b->ended = 0;
	for (uint64_t i = 0; i < b->objects; i++) {
		b->ops[i] = (struct scout__l2_op){
			.what = (uint8_t)what,
			.key = &b->key[i],
			.data = memory + i * b->bytes,
			.bytes = b->bytes,
			.timeout_us = 60000000,
			.done = done,
			.user = b,
		};
		scout__l2_submit(b->l2, 0, &b->ops[i], scout__now_us());
	}
	wait_for(b, b->objects);
	ended_ns = scout__now_ns();
	for (uint64_t i = 0; i < b->objects; i++) {
		if (b->ops[i].result == SCOUT__L2_OK)
			continue;
		complain("%s: %s (%d)", scout__l2_what_name(b->ops[i].what), scout__l2_result_name(b->ops[i].result),
			 b->ops[i].detail);
		die("an operation failed");
	}
	return (double)(ended_ns - begun_ns) / 1e9;
}

/* One question; nanoseconds. */
static uint64_t
ask(struct micro_l2_redis *b) SCOUT_ON_LOOP
{
	uint64_t begun_ns = scout__now_ns();

	b->ended = 0;
	b->ops[0] = (struct scout__l2_op){
		.what = SCOUT__L2_EXISTS,
		.n = (uint32_t)b->keys,
		.digests = b->digests,
		.found = b->found,
		.timeout_us = 10000000,
		.done = done,
		.user = b,
	};
	scout__l2_submit(b->l2, 0, &b->ops[0], scout__now_us());
	wait_for(b, 1);
	begun_ns = scout__now_ns() - begun_ns;
	for (uint64_t i = 0; i < b->keys; i++)
		if (b->ops[0].result != SCOUT__L2_OK || b->found[i] != (b->stored && i % 2 == 0))
			die("a wrong answer to EXISTS");
	return begun_ns;
}

static void
tell(const struct micro_l2_redis *b, const char *what, double seconds)
{
	double bytes = (double)b->objects * (double)b->bytes;

	say("%s %" PRIu64 " x %" PRIu64 " bytes: %.6f s, %.3f GB/s\n", what, b->objects, b->bytes, seconds,
	    bytes / seconds / 1e9);
}

static void
measure(struct micro_l2_redis *b)
{
	static struct scout__hist hist;

	scout__enter_loop();
	(void)ask(b); /* connects */
	tell(b, "store", pass(b, SCOUT__L2_STORE, b->data));
	b->stored = true;
	scout__hist_init(&hist);
	for (uint64_t i = 0; i < b->repeat; i++)
		scout__hist_add(&hist, ask(b));
	say("exists %" PRIu64 " keys, n %" PRIu64 ": p50 %.1f us, p99 %.1f us, max %.1f us\n", b->keys, b->repeat,
	    (double)scout__hist_quantile(&hist, 0.5) / 1e3, (double)scout__hist_quantile(&hist, 0.99) / 1e3,
	    (double)hist.max / 1e3);
	tell(b, "load", pass(b, SCOUT__L2_LOAD, b->slot));
	if (memcmp(b->slot, b->data, b->objects * b->bytes) != 0)
		die("wrong bytes");
	if (!scout__l2_stop(b->l2, 5000))
		die("the adapter does not stop");
}

static const struct scout__l2_adapter *const adapters[] = {&scout__l2_redis, NULL};

int
main(int argc, char **argv)
{
	struct micro_l2_redis b = {.objects = 96, .bytes = 1 << 20, .keys = 256, .repeat = 200};
	const struct cli_option options[] = {
		CLI_TEXT("url", "URL", &b.url, "redis://host:port; needed"),
		CLI_NUMBER("objects", &b.objects, 1, MAX_OBJECTS, "objects to store and load"),
		CLI_BYTES("bytes", &b.bytes, 8, 1 << 28, "payload of each"),
		CLI_NUMBER("keys", &b.keys, 2, SCOUT__L2_MAX_KEYS, "keys of each EXISTS"),
		CLI_NUMBER("repeat", &b.repeat, 1, 1000000, "questions"),
	};
	const struct cli cli = {.tool = "micro_l2_redis",
				.about = "The second tier on Redis: store, exists, load.",
				.options = options,
				.n = sizeof(options) / sizeof(options[0])};
	const struct scout__log log = {.who = "bench"};
	char err[512] = "";
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (!b.url)
		die("--url is missing: must be redis://host:port");
	if (scout__l2_new(adapters, &b.url, 1, 60000, MAX_OBJECTS, &log, &b.l2, err, sizeof(err)) != 0)
		die("%s", err);
	make_objects(&b);
	measure(&b);
	scout__l2_free(b.l2);
	free(b.ops);
	free(b.key);
	free(b.data);
	free(b.slot);
	free(b.digests);
	free(b.found);
	return EXIT_SUCCESS;
}
