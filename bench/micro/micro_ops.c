/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * A fixed number of each operation, through the public interface alone, so that one source file measures any two
 * revisions: scripts/compare_micro.py builds it against the libraries of both and runs them by turns, or counts their
 * instructions.
 *
 *   miss, half, hit   lookups of --chunks hashes; none, the leading half, or all of them are stored; then FINISH
 *   retrieve          lookups of hits, admitted, and their chunks copied to the worker's pages
 *   store             new chunks, with room for all of them
 *   evict             new chunks, each in place of an old one
 *
 * With --feed the client reads the server's feed, as an engine that publishes events does: once after each step of lookups,
 * and after each step of stores until it has seen the newest. A reader that falls behind would measure the walk alone.
 *
 * It prints the CPU time of each thread for one operation: the caller's (submit and wait), the client's courier, the
 * server's loop, the worker's courier and its copies. A page holds 64 bytes, so that the copies are next to nothing.
 *
 * Threads: main; those of the embedded server, of the client and of the worker.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/client.h>
#if __has_include(<kvscout/client_feed.h>)
#include <kvscout/client_feed.h>
#define HAS_FEED 1
#else
#define HAS_FEED 0
#endif
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "cli.h"
#include "mix.h"
#include "say.h"
#include "thread_cpu.h"

#define HASH_BYTES 32u
#define CHUNK_TOKENS 16u
#define PAGE_BYTES 64u
#define BATCH 8u /* operations of one step */
#define PROMPTS 32u
#define SPARE_BYTES (UINT64_C(16) << 20)
#define EVICT_BYTES (UINT64_C(4) << 20)
#define READY_MS 60000u
#define ID_BYTES 40
#define EVENTS 1024u

static const char *const words[] = {"all", "miss", "half", "hit", "retrieve", "store", "evict", NULL};
enum {
	MISS,
	HALF,
	HIT,
	RETRIEVE,
	STORE,
	EVICT,
	N_CASES
};

static const char *const threads[] = {"caller", "scout-courier", "scout-server", "scout-worker", "scout-copy"};
#define N_THREADS (sizeof(threads) / sizeof(threads[0]))

struct micro_ops {
	unsigned kind;
	uint64_t chunks, rounds;
	const char *eviction; /* NULL: the server's own choice */
	bool feed;
	uint64_t n_events;
	struct scout_server *server;
	struct scout_client *client;
	struct scout_worker *worker;
	uint8_t *pages, *hashes; /* hashes: of PROMPTS + 1 prompts; the last one is never stored */
	int64_t *block_ids;
	uint64_t random, next_id;
	uint64_t next_job; /* hashes that no store has had */
	char ids[BATCH][ID_BYTES];
	struct scout_query queries[BATCH];
	int tids[N_THREADS];
};

static void
check(int rc, const char *what)
{
	if (rc < 0)
		die("%s: %s", what, scout_strerror(rc));
}

static void *
must(void *memory)
{
	if (!memory)
		die("out of memory");
	return memory;
}

/* ---- peers ---- */

static void
start_server(struct micro_ops *b)
{
	struct scout_server_config cfg;
	char err[256] = "";

	scout_server_config_init(&cfg);
	cfg.l1_bytes =
		b->kind == EVICT ? EVICT_BYTES : (b->rounds * BATCH + PROMPTS) * b->chunks * PAGE_BYTES + SPARE_BYTES;
	cfg.max_promised = cfg.l1_bytes;
	if (b->eviction)
		cfg.eviction = b->eviction;
	if (scout_server_start(&cfg, &b->server, err, sizeof(err)) != 0)
		die("server: %s", err);
	scout_server_config_fini(&cfg);
}

static void
start_client(struct micro_ops *b)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(b->server);
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.lookup_timeout_ms = READY_MS;
	if (scout_client_new(&cfg, &b->client, err, sizeof(err)) != 0 ||
	    scout_client_wait_ready(b->client, READY_MS, err, sizeof(err)) != 0)
		die("client: %s", err);
	scout_client_config_fini(&cfg);
}

static void
start_worker(struct micro_ops *b)
{
	struct scout_worker_config cfg;
	struct scout_plane plane = {.base = b->pages, .stride = PAGE_BYTES, .block_bytes = PAGE_BYTES};
	const struct scout_table table = {
		.block_tokens = CHUNK_TOKENS, .n_planes = 1, .planes = &plane, .n_blocks = b->chunks, .null_block = -1};
	char err[256] = "";

	scout_worker_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(b->server);
	cfg.backend = "host";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.transfer_timeout_ms = READY_MS;
	if (scout_worker_new(&cfg, &b->worker, err, sizeof(err)) != 0 ||
	    scout_worker_register(b->worker, &table, 1, READY_MS, err, sizeof(err)) != 0)
		die("worker: %s", err);
	scout_worker_config_fini(&cfg);
}

/* ---- the feed ---- */

/* Read until @hash is stored; NULL: once. */
static void
read_feed(struct micro_ops *b, const uint8_t *hash)
{
#if HAS_FEED
	struct scout_feed_event events[EVENTS];
	bool found = !hash;

	do {
		int n = scout_feed(b->client, events, EVENTS);

		check(n, "feed");
		for (int i = 0; i < n && hash; i++)
			found |= events[i].kind == SCOUT_FEED_STORED && memcmp(events[i].hash, hash, HASH_BYTES) == 0;
		b->n_events += (uint64_t)n;
		if (n == 0 && !found)
			(void)poll(NULL, 0, 1);
	} while (!found);
#else
	(void)hash;
	die("--feed: this revision has none");
#endif
}

/* ---- jobs of the worker ---- */

/* Wait for @n jobs. */
static void
wait_jobs(struct micro_ops *b, unsigned n)
{
	struct pollfd fd = {.fd = scout_worker_fd(b->worker), .events = POLLIN};
	struct scout_done done[BATCH];

	while (n) {
		int got = scout_worker_poll(b->worker, done, BATCH);

		check(got, "poll");
		for (int i = 0; i < got; i++) {
			check(done[i].status, "a job");
			if (done[i].no_room)
				die("a store: the server had no room");
		}
		n -= (unsigned)got;
		if (got == 0)
			(void)poll(&fd, 1, 1000);
	}
}

static void
submit_store(struct micro_ops *b, const uint8_t *hashes)
{
	const struct scout_blocks blocks = {.ids = b->block_ids, .n = b->chunks};
	const struct scout_store store = {
		.hashes = hashes, .hash_len = HASH_BYTES, .n = b->chunks, .blocks = &blocks, .n_groups = 1};
	uint64_t job;

	check(scout_worker_store(b->worker, &store, &job), "store");
}

static void
fill(uint8_t *hashes, uint64_t chunks, uint64_t seed)
{
	for (uint64_t at = 0; at < chunks * HASH_BYTES; at += sizeof(uint64_t)) {
		uint64_t word = mix_next(&seed);

		memcpy(hashes + at, &word, sizeof(word));
	}
}

/* BATCH stores of what was never stored. */
static void
store_step(struct micro_ops *b)
{
	for (unsigned i = 0; i < BATCH; i++) {
		uint8_t *hashes = b->hashes + i * b->chunks * HASH_BYTES;

		fill(hashes, b->chunks, mix64(~b->next_job++));
		submit_store(b, hashes);
	}
	wait_jobs(b, BATCH);
	if (b->feed)
		read_feed(b, b->hashes + (BATCH - 1) * b->chunks * HASH_BYTES);
}

/* ---- lookups ---- */

static void
ask(struct micro_ops *b, struct scout_hit *hits)
{
	scout_step_begin(b->client);
	for (unsigned i = 0; i < BATCH; i++) {
		uint64_t prompt = b->kind == MISS ? PROMPTS : mix_next(&b->random) % PROMPTS;

		(void)snprintf(b->ids[i], ID_BYTES, "cmpl-7f3a1c52-40d8-4be1-%012" PRIx64, b->next_id++);
		b->queries[i] = (struct scout_query){
			.id = b->ids[i],
			.hashes = b->hashes + prompt * b->chunks * HASH_BYTES,
			.hash_len = HASH_BYTES,
			.n = b->chunks,
			.prompt_tokens = b->chunks * CHUNK_TOKENS + 1,
		};
		if (scout_try_lookup(b->client, &b->queries[i], &hits[i]) != SCOUT_NOT_YET)
			die("lookup: refused, or answered too early");
	}
	scout_step_end(b->client);
	for (unsigned i = 0; i < BATCH; i++)
		check(scout_wait_lookup(b->client, &b->queries[i], &hits[i]), "lookup");
}

static void
retrieve(struct micro_ops *b, const struct scout_query *query, const struct scout_hit *hit)
{
	const struct scout_blocks blocks = {.ids = b->block_ids, .n = b->chunks};
	const struct scout_retrieve job = {
		.ticket = hit->ticket, .to_token = hit->tokens, .blocks = &blocks, .n_groups = 1};
	uint64_t number;

	check(scout_admit(b->client, query->id, 0, (int64_t)hit->tokens), "admit");
	check(scout_worker_retrieve(b->worker, &job, &number), "retrieve");
}

static void
lookup_step(struct micro_ops *b)
{
	uint64_t found = b->kind == MISS ? 0 : b->kind == HALF ? b->chunks / 2 : b->chunks;
	struct scout_hit hits[BATCH];

	ask(b, hits);
	for (unsigned i = 0; i < BATCH; i++) {
		if (hits[i].chunks != found)
			die("lookup: another hit than what is stored");
		if (b->kind == RETRIEVE)
			retrieve(b, &b->queries[i], &hits[i]);
	}
	if (b->kind == RETRIEVE)
		wait_jobs(b, BATCH);
	scout_step_begin(b->client);
	for (unsigned i = 0; i < BATCH; i++)
		check(scout_finish(b->client, b->ids[i]), "finish");
	scout_step_end(b->client);
	if (b->feed)
		read_feed(b, NULL);
}

/* ---- the measurement ---- */

/* What the case finds when it begins. Of a half hit, the hashes that are asked for differ from those that are stored. */
static void
prepare(struct micro_ops *b)
{
	uint64_t bytes = b->chunks * HASH_BYTES;

	if (b->feed)
		read_feed(b, NULL);
	for (uint64_t i = 0; i <= PROMPTS; i++)
		fill(b->hashes + i * bytes, b->chunks, mix64(i + 1));
	for (uint64_t i = 0; i < PROMPTS && b->kind != MISS && b->kind < STORE; i++) {
		submit_store(b, b->hashes + i * bytes);
		wait_jobs(b, 1);
		if (b->kind == HALF)
			fill(b->hashes + i * bytes + bytes / 2 / HASH_BYTES * HASH_BYTES, b->chunks - b->chunks / 2,
			     ~i);
	}
	for (uint64_t stored = 0; b->kind == EVICT && stored * PAGE_BYTES < 2 * EVICT_BYTES;
	     stored += BATCH * b->chunks)
		store_step(b);
}

static uint64_t
cpu_ns(const struct micro_ops *b, size_t i)
{
	uint64_t ns = b->tids[i] ? thread_cpu_ns(b->tids[i]) : 0;

	if (ns == UINT64_MAX)
		die("/proc/self/task: cannot be read");
	return ns;
}

static void
measure(struct micro_ops *b)
{
	uint64_t before[N_THREADS];

	for (size_t i = 0; i < N_THREADS; i++) {
		b->tids[i] = i ? thread_cpu_find(threads[i]) : (int)getpid();
		before[i] = cpu_ns(b, i);
	}
	for (uint64_t round = 0; round < b->rounds; round++) {
		if (b->kind >= STORE)
			store_step(b);
		else
			lookup_step(b);
	}
	say("%-9s", words[b->kind + 1]);
	for (size_t i = 0; i < N_THREADS; i++)
		say("  %s %.0f", threads[i], (double)(cpu_ns(b, i) - before[i]) / (double)(b->rounds * BATCH));
	say("  ns of CPU for each of %" PRIu64, b->rounds * BATCH);
	if (b->feed)
		say(", %" PRIu64 " events", b->n_events);
	say("\n");
}

static void
run(struct micro_ops *b)
{
	b->pages = must(calloc(b->chunks, PAGE_BYTES));
	b->hashes = must(calloc((PROMPTS + 1) * b->chunks, HASH_BYTES));
	b->block_ids = must(calloc(b->chunks, sizeof(*b->block_ids)));
	for (uint64_t i = 0; i < b->chunks; i++)
		b->block_ids[i] = (int64_t)i;
	start_server(b);
	start_client(b);
	start_worker(b);
	prepare(b);
	measure(b);
	scout_worker_free(b->worker);
	scout_client_free(b->client);
	scout_server_stop(b->server);
	free(b->pages);
	free(b->hashes);
	free(b->block_ids);
}

/* ---- the command line ---- */

int
main(int argc, char **argv)
{
	unsigned int only = 0;
	struct micro_ops options = {.chunks = 256, .rounds = 500};
	const struct cli_option rows[] = {
		CLI_WORDS("case", &only, words, "what to measure"),
		CLI_NUMBER("chunks", &options.chunks, 1, 4096, "hashes of an operation"),
		CLI_NUMBER("rounds", &options.rounds, 1, 1000000, "steps of 8 operations each"),
		CLI_SWITCH("feed", &options.feed, "read the feed of the server after each step"),
		CLI_TEXT("eviction", "POLICY", &options.eviction, "of the server; without it, its own choice"),
	};
	const struct cli cli = {
		.tool = "micro_ops",
		.about = "CPU time of a fixed number of operations, by thread.",
		.options = rows,
		.n = sizeof(rows) / sizeof(rows[0]),
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	for (unsigned kind = 0; kind < N_CASES; kind++) {
		struct micro_ops b = options;

		b.kind = kind;
		if (only == 0 || only == kind + 1)
			run(&b);
	}
	return EXIT_SUCCESS;
}
