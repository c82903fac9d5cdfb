/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The chunk index alone: what a lookup of 256 chunks and its finish cost the server's loop, without sockets and
 * without KV bytes (slots are 64 bytes). A pass is: find the leading run, promise every chunk; then withdraw all
 * promises and touch tail first. Miss passes ask for 256 keys that are not there, all of them (a server stops at the
 * first). Cold means that the prefix was not asked for recently: prefixes are drawn at random from all. The floor is
 * the line of plain probes: finding random keys and nothing else.
 *
 * 10000000 chunks need 1.5 GB of memory.
 *
 * Threads: main, which is the loop; the pool's thread that makes extents.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "chunk_index.h"
#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "mix.h"
#include "say.h"

#define PREFIX 256u
#define HASH_BYTES 32u
#define SLOT_BYTES 64u

struct micro_index {
	struct scout__l1 l1;
	struct scout__chunk_index *index;
	uint64_t seed;
	uint64_t n_chunks;
	uint64_t n_prefixes;
	uint32_t entries[64][PREFIX]; /* of the prefixes that are being stored */
	uint32_t *version; /* of each prefix: rises when it was evicted and is stored anew under other keys */
	uint64_t random;
	const char *eviction;
};

/* Chunk @i of prefix @prefix: what a digest looks like. */
static void
make_key(const struct micro_index *b, uint64_t prefix, uint32_t version, uint32_t i, uint8_t *ret_hash)
{
	uint64_t x = mix64(mix64(mix64(b->seed + version) ^ prefix) ^ i);

	for (uint32_t at = 0; at < HASH_BYTES; at += 8) {
		memcpy(ret_hash + at, &x, sizeof(x));
		x = mix64(x + MIX_STEP);
	}
}

static void
make_prefix(const struct micro_index *b, uint64_t prefix, uint32_t version, uint8_t *ret_hashes)
{
	for (uint32_t i = 0; i < PREFIX; i++)
		make_key(b, prefix, version, i, ret_hashes + (size_t)i * HASH_BYTES);
}

static SCOUT_ON_LOOP void
wait_for_extent(struct micro_index *b)
{
	struct pollfd ready = {.fd = b->l1.pool.ready_fd, .events = POLLIN};
	struct scout__extent *extent;

	if (poll(&ready, 1, 60000) <= 0)
		die("no extent came");
	while ((extent = scout__pool_ready(&b->l1.pool)))
		if (!scout__index_grow(b->index, extent))
			die("growing failed");
}

/* Chunk @i of @prefix, whose chunks before it were stored lately. As the server does it for one STORE. */
static SCOUT_ON_LOOP void
store(struct micro_index *b, uint64_t prefix, uint32_t i, const uint8_t *hash)
{
	uint32_t *entries = b->entries[prefix % 64];
	enum scout__reserve got;
	uint32_t entry;

	while ((got = scout__index_reserve(b->index, 1, hash, 0, NULL, &entry)) == SCOUT__RESERVE_WAIT)
		wait_for_extent(b);
	if (got != SCOUT__RESERVE_GRANTED)
		die("a store was refused");
	(void)scout__index_commit(b->index, entry, 0);
	entries[i] = entry;
	if (i >= SCOUT__AHEAD)
		scout__index_follows(b->index, entries[i - SCOUT__AHEAD], entry);
}

/*
 * Fill by conversations that grow in turns: @interleave prefixes are stored at a time, a chunk of each in turn, so that
 * neighbours in a prefix are not neighbours in memory. 1: one after the other.
 */
static SCOUT_ON_LOOP void
fill(struct micro_index *b, uint64_t interleave, struct scout__hist *per_store)
{
	uint8_t hash[HASH_BYTES];

	for (uint64_t first = 0; first < b->n_prefixes; first += interleave) {
		uint64_t last = first + interleave < b->n_prefixes ? first + interleave : b->n_prefixes;

		for (uint32_t i = 0; i < PREFIX; i++) {
			for (uint64_t prefix = first; prefix < last; prefix++) {
				uint64_t t0;

				make_key(b, prefix, b->version[prefix], i, hash);
				if (b->index->slots.n_free == 0 && b->version[prefix] == 0) /* the pool still grows */
					wait_for_extent(b);
				t0 = scout__now_ns();
				store(b, prefix, i, hash);
				scout__hist_add(per_store, scout__now_ns() - t0);
			}
		}
	}
}

/* Evict and replace every chunk about once, in the order that random use has left. */
static SCOUT_ON_LOOP void
churn(struct micro_index *b, struct scout__hist *per_store)
{
	for (uint64_t prefix = 0; prefix < b->n_prefixes; prefix++)
		b->version[prefix]++;
	fill(b, 64, per_store);
}

/* One lookup with its finish. Returns the hit length. */
static SCOUT_ON_LOOP uint32_t
look_up_and_finish(struct micro_index *b, const uint8_t *hashes)
{
	uint32_t entries[PREFIX];
	uint32_t found = scout__index_find_run(b->index, 1, hashes, PREFIX, entries);
	uint32_t hit = 0;
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};

	while (hit < found && scout__index_is_hit(b->index, entries[hit]) &&
	       scout__index_promise(b->index, entries[hit]))
		hit++;
	scout__index_asked(b->index, 0, PREFIX);
	touch.kind =
		scout__touch_kind(UINT64_C(512) * (PREFIX - scout__index_known_run(b->index, 1, hashes, hit, PREFIX)));
	for (uint32_t i = hit; i-- > 0;) {
		scout__index_unpromise(b->index, entries[i], 1);
		scout__index_touch(b->index, entries[i], &touch);
	}
	return hit;
}

static void
print(const struct micro_index *b, const char *what, const struct scout__hist *hist, const char *unit)
{
	say("%-10" PRIu64 " %-34s p50 %8.2f  p99 %8.2f  p99.9 %8.2f  max %9.2f %s  (n %" PRIu64 ")\n", b->n_chunks,
	    what, (double)scout__hist_quantile(hist, 0.5) / 1e3, (double)scout__hist_quantile(hist, 0.99) / 1e3,
	    (double)scout__hist_quantile(hist, 0.999) / 1e3, (double)hist->max / 1e3, unit, hist->n);
}

/* @hot: the same 16 prefixes again and again. */
static SCOUT_ON_LOOP void
measure_hits(struct micro_index *b, const char *what, uint32_t passes, bool hot)
{
	struct scout__hist *hist = malloc(sizeof(*hist));
	uint8_t hashes[PREFIX * HASH_BYTES];

	SCOUT_ASSERT(b->n_prefixes > 0);
	if (!hist)
		die("out of memory");
	scout__hist_init(hist);
	for (uint32_t pass = 0; pass < passes; pass++) {
		uint64_t prefix = mix_next(&b->random) % (hot && b->n_prefixes > 16 ? 16 : b->n_prefixes);
		uint64_t t0;

		make_prefix(b, prefix, b->version[prefix], hashes);
		t0 = scout__now_ns();
		if (look_up_and_finish(b, hashes) != PREFIX)
			die("a stored prefix was not found");
		scout__hist_add(hist, scout__now_ns() - t0);
	}
	print(b, what, hist, "us/256");
	free(hist);
}

static SCOUT_ON_LOOP void
measure_misses(struct micro_index *b, uint32_t passes)
{
	struct scout__hist *hist = malloc(sizeof(*hist));
	uint8_t hashes[PREFIX * HASH_BYTES];

	if (!hist)
		die("out of memory");
	scout__hist_init(hist);
	for (uint32_t pass = 0; pass < passes; pass++) {
		uint32_t entries[2];
		uint64_t t0;

		make_prefix(b, mix_next(&b->random), UINT32_MAX, hashes);
		t0 = scout__now_ns();
		for (uint32_t i = 0; i < PREFIX; i++) {
			if (i + 8 < PREFIX)
				scout__index_prefetch(b->index, 1, hashes + (size_t)(i + 8) * HASH_BYTES);
			if (scout__index_find(b->index, 1, hashes + (size_t)i * HASH_BYTES) != SCOUT__NO_ENTRY)
				die("a key was found that was never stored");
		}
		scout__hist_add(hist, scout__now_ns() - t0);
		if (scout__index_find_run(b->index, 1, hashes, PREFIX, entries) != 0)
			die("a run was found that was never stored");
	}
	print(b, "miss, all 256 probed", hist, "us/256");
	free(hist);
}

/* Are the keys of all prefixes there? A policy may prefer older ones that were read to what churn() has stored. */
static SCOUT_ON_LOOP bool
all_are_there(const struct micro_index *b)
{
	uint8_t hash[HASH_BYTES];

	for (uint64_t prefix = 0; prefix < b->n_prefixes; prefix++) {
		for (uint32_t i = 0; i < PREFIX; i++) {
			make_key(b, prefix, b->version[prefix], i, hash);
			if (scout__index_find(b->index, 1, hash) == SCOUT__NO_ENTRY)
				return false;
		}
	}
	return true;
}

/* Probes of random stored keys, 4096 keys to a batch, keys made outside the clock. */
static SCOUT_ON_LOOP void
measure_probes(struct micro_index *b, uint32_t batches)
{
	const uint32_t n = 4096;
	uint8_t *hashes = malloc((size_t)n * HASH_BYTES);
	uint32_t *entries = malloc(n * sizeof(*entries));
	uint64_t spent_ns = 0;

	if (!hashes || !entries)
		die("out of memory");
	for (uint32_t batch = 0; batch < batches; batch++) {
		uint64_t t0;

		for (uint32_t i = 0; i < n; i++) {
			uint64_t prefix = mix_next(&b->random) % b->n_prefixes;

			make_key(b, prefix, b->version[prefix], (uint32_t)(mix_next(&b->random) % PREFIX),
				 hashes + (size_t)i * HASH_BYTES);
		}
		t0 = scout__now_ns();
		if (scout__index_find_run(b->index, 1, hashes, n, entries) != n)
			die("a stored key was not found");
		spent_ns += scout__now_ns() - t0;
	}
	say("%-10" PRIu64 " %-34s %.1f M keys/s\n", b->n_chunks, "plain probes, random keys",
	    (double)batches * n / ((double)spent_ns / 1e9) / 1e6);
	free(hashes);
	free(entries);
}

/* Resident bytes of this process that are not shared with a file or memfd. */
static uint64_t
resident_bytes(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	uint64_t kib = 0;

	if (!file)
		die("/proc/self/status");
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, "RssAnon:", 8) == 0)
			kib = strtoull(line + 8, NULL, 10);
	(void)fclose(file); /* only read */
	return kib * 1024;
}

static SCOUT_ON_LOOP void
run(struct micro_index *b, uint64_t n_chunks, uint64_t interleave, uint32_t passes)
{
	struct scout__log log = {0};
	const uint64_t shard_bytes = SLOT_BYTES;
	struct scout__hist *per_store = malloc(sizeof(*per_store));
	uint64_t resident;
	char err[256];

	b->n_prefixes = n_chunks / PREFIX;
	b->n_chunks = b->n_prefixes * PREFIX;
	b->version = calloc(b->n_prefixes, sizeof(*b->version));
	if (!b->version || !per_store)
		die("out of memory");
	if (scout__l1_init(&b->l1, b->n_chunks * SLOT_BYTES, UINT64_C(16) << 20, UINT64_MAX, b->eviction, &log, err,
			   sizeof(err)))
		die("%s", err);
	resident = resident_bytes();
	if (scout__index_new(&b->l1, NULL, &shard_bytes, NULL, 1, 1, HASH_BYTES, &b->index))
		die("no chunk index");
	say("# %" PRIu64 " chunks, stored %s\n", b->n_chunks,
	    interleave > 1 ? "64 prefixes at a time" : "prefix by prefix");
	scout__hist_init(per_store);
	fill(b, interleave, per_store);
	print(b, "first store (reserve + commit)", per_store, "us");
	say("%-10" PRIu64 " %-34s %.1f resident, %.1f by count\n", b->n_chunks, "bytes per chunk",
	    (double)(resident_bytes() - resident) / (double)b->n_chunks,
	    (double)scout__index_own_bytes(b->index) / (double)b->n_chunks);
	measure_hits(b, "hit + promise + finish, cold", passes, false);
	measure_hits(b, "hit + promise + finish, hot", passes, true);
	measure_misses(b, passes);
	measure_probes(b, passes / 16 + 1);
	scout__hist_init(per_store);
	churn(b, per_store);
	print(b, "evicting store (reserve + commit)", per_store, "us");
	if (all_are_there(b)) {
		measure_hits(b, "hit after churn, cold", passes, false);
		measure_probes(b, passes / 16 + 1);
	} else {
		say("# no lookups after churn: %s kept other chunks\n", b->eviction);
	}
	scout__index_free(b->index);
	scout__l1_fini(&b->l1);
	free(b->version);
	free(per_store);
}

int
main(int argc, char **argv)
{
	uint64_t n_chunks, passes = 20000, seed = 1;
	struct cli_list sizes = {.n = 0};
	const char *eviction = "lru";
	const struct cli_option size = CLI_NUMBER("chunks", &n_chunks, PREFIX, 100000000, "");
	const struct cli_option options[] = {
		CLI_LIST("chunks", "N", &sizes, "size of the index; repeatable (default: 10000 and 1000000)"),
		CLI_NUMBER("passes", &passes, 1, UINT32_MAX - 1, "lookups per line"),
		CLI_NUMBER("seed", &seed, 0, UINT64_MAX, "of the keys"),
		CLI_TEXT("eviction", "POLICY", &eviction, "eviction policy"),
	};
	const struct cli cli = {
		.tool = "micro_index",
		.about = "What the chunk index needs for a lookup of 256 chunks with its finish, and for a store.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	char err[256];
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (sizes.n == 0)
		sizes = (struct cli_list){.items = {"10000", "1000000"}, .n = 2};
	for (size_t i = 0; i < sizes.n; i++)
		if (cli_set(&size, sizes.items[i], err, sizeof(err)) != 0)
			return cli_usage_error(&cli, "%s", err);
	scout__enter_loop();
	for (size_t i = 0; i < sizes.n; i++) {
		(void)cli_set(&size, sizes.items[i], err, sizeof(err)); /* was accepted above */
		for (uint64_t interleave = 1; interleave <= 64; interleave *= 64) {
			struct micro_index b = {.seed = seed, .random = seed, .eviction = eviction};

			run(&b, n_chunks, interleave, (uint32_t)passes);
		}
	}
	return EXIT_SUCCESS;
}
