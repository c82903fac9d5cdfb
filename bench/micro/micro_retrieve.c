/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * One request whose whole prefix is on L2: the time from the lookup to the last byte in pages, through a real server,
 * client and worker, at the sizes of real KV. Its floor is micro_l2: the same objects without server and copies. The
 * prefetch modes take turns:
 *
 *   on_retrieve    the lookup is answered at once; the retrieve waits for the loads
 *   on_lookup      the same, but the loads start with the lookup: what the engine does meanwhile (--think-us) is won
 *   before_answer  the lookup waits for the loads, the retrieve copies
 *
 * Two prompts are stored. A turn starts a server of that mode, retrieves the one (not counted: the pool grows by it),
 * drops the other's files from the page cache if --cold, and measures the other, for which the pool has to evict the
 * first. Every byte that is copied is compared, unless --pages makes pages be used again.
 *
 *   lookup    from scout_try_lookup() to the answer
 *   retrieve  from scout_admit() to the end of the retrieve; of that the server's part (with the loads) and the copy's
 *   all       both, without --think-us between them
 *
 * --poll-key-ms: a decode node. Nothing of the prompt is stored when it is asked for; another server on the same
 * folder (needs shared=1) stores it meanwhile, as a prefill node does. Then all is from the lookup, and so from the
 * begin of the other's store.
 *
 * Threads: main; those of the libraries.
 */
#include "retrieve.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "json_env.h"
#include "mix.h"
#include "pool.h"
#include "say.h"
#include "spread.h"
#include "table.h"

static const char *const mode_words[] = {"on_retrieve", "on_lookup", "before_answer", "all", NULL};

static void *
must(struct micro_retrieve *b, void *p)
{
	if (!p)
		retrieve_die(b, "memory", SCOUT_ERR_NOMEM);
	return p;
}

/* ---- storing ---- */

static struct kvmem_key
key_of(const uint8_t *prompt, uint64_t block)
{
	return (struct kvmem_key){.hash = prompt + block / BLOCKS * HASH_BYTES, .block = (uint32_t)(block % BLOCKS)};
}

static uint64_t
begin_store(struct micro_retrieve *b, struct retrieve_node *node, const uint8_t *prompt, uint64_t first, uint64_t n)
{
	const struct scout_store request = {
		.hashes = prompt + first * HASH_BYTES,
		.hash_len = HASH_BYTES,
		.n = n,
		.blocks = &(struct scout_blocks){.first_token = first * CHUNK_TOKENS, .ids = b->ids, .n = n * BLOCKS},
		.n_groups = 1,
		.first_token = first * CHUNK_TOKENS,
	};
	uint64_t job = 0;

	SCOUT_ASSERT(b->ids);
	for (uint64_t i = 0; i < n * BLOCKS; i++)
		kvmem_fill(&b->mem, b->ids[i], key_of(prompt, first * BLOCKS + i));
	retrieve_check(b, scout_worker_store(node->worker, &request, &job), "store");
	return job;
}

/* In parts that the queue to L2 has room for: a quarter of the pool. */
static uint64_t
part_of(const struct micro_retrieve *b)
{
	uint64_t n = b->opt.chunks / 4, pages = b->mem.n_blocks / BLOCKS;

	n = n < pages ? n : pages;
	return n ? n : 1;
}

static void
store(struct micro_retrieve *b, struct retrieve_node *node, const uint8_t *prompt)
{
	for (uint64_t at = 0; at < b->opt.chunks; at += part_of(b)) {
		uint64_t n = b->opt.chunks - at < part_of(b) ? b->opt.chunks - at : part_of(b);
		struct scout_done done = retrieve_wait_job(b, node, begin_store(b, node, prompt, at, n));

		retrieve_check(b, done.status, "store");
		retrieve_wait_counter(b, node, "l2.writes.waiting", 0);
	}
	if (retrieve_counter(b, node, "l2.writes.failed") || retrieve_counter(b, node, "l2.writes.dropped"))
		retrieve_die(b, "not all of it was written to L2", SCOUT_ERR_LIMIT);
}

/* ---- measuring ---- */

static int
forget_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	int fd;

	(void)st;
	(void)at;
	if (type != FTW_F)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;    /* it may have been evicted */
	(void)fdatasync(fd); /* only clean pages go */
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	(void)close(fd);
	return 0;
}

static double
ms_since(uint64_t begin_ns)
{
	return (double)(scout__now_ns() - begin_ns) / 1e6;
}

static void
retrieve(struct micro_retrieve *b, struct retrieve_node *node, const struct scout_hit *hit, const char *id,
	 struct retrieve_sample *ret)
{
	const struct scout_retrieve request = {
		.ticket = hit->ticket,
		.to_token = (uint64_t)hit->chunks * CHUNK_TOKENS,
		.blocks = &(struct scout_blocks){.ids = b->ids, .n = (size_t)hit->chunks * BLOCKS},
		.n_groups = 1,
	};
	struct scout_done done;
	uint64_t job = 0;

	retrieve_check(b, scout_admit(node->client, id, 0, SCOUT_TO_END), "admit");
	retrieve_check(b, scout_worker_retrieve(node->worker, &request, &job), "retrieve");
	done = retrieve_wait_job(b, node, job);
	if (done.status != SCOUT_ERR_MISSING)
		retrieve_check(b, done.status, "retrieve");
	ret->missing = done.n_missing / BLOCKS;
	ret->server_ms = (double)done.server_us / 1e3;
	ret->copy_ms = (double)done.copy_us / 1e3;
}

static void
verify(struct micro_retrieve *b, const uint8_t *prompt, const struct retrieve_sample *sample)
{
	if (!b->verifies || sample->missing)
		return;
	for (uint64_t i = 0; i < (uint64_t)sample->hit * BLOCKS; i++)
		b->wrong += kvmem_wrong(&b->mem, b->ids[i], key_of(prompt, i));
}

/* @writer: stores the prompt meanwhile; NULL: it is there. */
static struct retrieve_sample
measure(struct micro_retrieve *b, struct retrieve_node *node, const uint8_t *prompt, struct retrieve_node *writer)
{
	static unsigned n_ids;
	struct retrieve_sample sample = {0};
	struct scout_hit hit;
	char id[32];
	const struct scout_query lookup = {
		.id = id,
		.hashes = prompt,
		.hash_len = HASH_BYTES,
		.n = b->opt.chunks,
		.prompt_tokens = b->opt.chunks * CHUNK_TOKENS + 1,
		.expect_tokens = writer ? b->opt.chunks * CHUNK_TOKENS : 0,
	};
	uint64_t begin_ns, think_ns, job = 0;
	int rc;

	(void)snprintf(id, sizeof(id), "%u", n_ids++);
	for (uint64_t i = 0; b->verifies && !writer && i < b->n_blocks; i++)
		kvmem_scrub(&b->mem, b->ids[i], key_of(prompt, i));
	begin_ns = scout__now_ns();
	rc = scout_try_lookup(node->client, &lookup, &hit);
	if (writer)
		job = begin_store(b, writer, prompt, 0, b->opt.chunks);
	if (rc == SCOUT_NOT_YET)
		rc = scout_wait_lookup(node->client, &lookup, &hit);
	retrieve_check(b, rc, "lookup");
	sample.lookup_ms = ms_since(begin_ns);
	sample.hit = hit.chunks;
	sample.reason = hit.reason;
	if (writer)
		(void)retrieve_wait_job(b, writer, job); /* it ended long ago: its chunks are in the store */
	if (b->opt.think_us)
		(void)poll(NULL, 0, (int)((b->opt.think_us + 999) / 1000));
	think_ns = scout__now_ns();
	if (hit.chunks)
		retrieve(b, node, &hit, id, &sample);
	sample.retrieve_ms = ms_since(think_ns);
	sample.all_ms = sample.lookup_ms + sample.retrieve_ms;
	(void)scout_finish(node->client, id);
	/* The pool has room for one prompt: the next lookup would be limited by what this one still pins. */
	retrieve_wait_counter(b, node, "holds", 0);
	retrieve_wait_counter(b, node, "l1.bytes_promised", 0);
	verify(b, prompt, &sample);
	return sample;
}

static void
new_prompt(struct micro_retrieve *b, uint8_t *prompt)
{
	static uint64_t seed;

	if (!seed)
		seed = scout__now_ns();
	for (uint64_t i = 0; i < b->opt.chunks * HASH_BYTES; i += 8) {
		uint64_t word = mix_next(&seed);

		memcpy(prompt + i, &word, 8);
	}
}

static void
note(struct micro_retrieve *b, unsigned mode, struct retrieve_sample sample)
{
	b->samples[mode][b->n_samples[mode]++] = sample;
	if (sample.hit == b->opt.chunks && sample.missing == 0)
		return;
	b->n_incomplete++;
	complain("%s: %" PRIu32 " of %" PRIu64 " chunks were a hit (%s), and %" PRIu32 " of them were missing",
		 mode_words[mode], sample.hit, b->opt.chunks, scout_reason_name(sample.reason), sample.missing);
}

static void
one_turn(struct micro_retrieve *b, unsigned mode, unsigned round)
{
	struct retrieve_node node;

	retrieve_node_up(b, &node, mode, b->l1_bytes);
	(void)measure(b, &node, b->prompts[round % 2], NULL);
	if (b->opt.cold) // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread changes the working directory
		(void)nftw(b->opt.folder, forget_file, 16, FTW_PHYS);
	note(b, mode, measure(b, &node, b->prompts[(round + 1) % 2], NULL));
	retrieve_node_down(&node);
}

/* Decode and prefill node, both warm: the prompt before has gone the same way. */
static void
one_late_turn(struct micro_retrieve *b, unsigned mode)
{
	struct retrieve_node decode, prefill;

	retrieve_node_up(b, &decode, mode, b->l1_bytes);
	/* Up to a quarter of a pool may wait to be written. */
	retrieve_node_up(b, &prefill, SCOUT_PREFETCH_ON_RETRIEVE, 4 * b->l1_bytes);
	for (unsigned i = 0; i < 2; i++) {
		struct retrieve_sample sample;

		new_prompt(b, b->prompts[i]);
		sample = measure(b, &decode, b->prompts[i], &prefill);
		if (i)
			note(b, mode, sample);
	}
	retrieve_node_down(&decode);
	retrieve_node_down(&prefill);
}

/* ---- what it says ---- */

/* Of one field of all samples of a mode. */
static struct spread
spread_of_field(const struct micro_retrieve *b, unsigned mode, size_t offset)
{
	double values[MAX_ROUNDS];

	for (uint32_t i = 0; i < b->n_samples[mode]; i++)
		memcpy(&values[i], (const char *)&b->samples[mode][i] + offset, sizeof(double));
	return spread_of(values, b->n_samples[mode]);
}

static const struct {
	const char *name;
	size_t offset;
} fields[] = {
	{"lookup_ms", offsetof(struct retrieve_sample, lookup_ms)},
	{"retrieve_ms", offsetof(struct retrieve_sample, retrieve_ms)},
	{"server_ms", offsetof(struct retrieve_sample, server_ms)},
	{"copy_ms", offsetof(struct retrieve_sample, copy_ms)},
	{"all_ms", offsetof(struct retrieve_sample, all_ms)},
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static void
print(const struct micro_retrieve *b)
{
	char chunk[TABLE_TEXT], all[TABLE_TEXT];

	say("%" PRIu64 " chunks of %s, %s in all, %s%s; median of %" PRIu64 " (min..max), ms\n", b->opt.chunks,
	    table_bytes(b->opt.chunk_bytes, chunk), table_bytes(b->opt.chunks * b->opt.chunk_bytes, all), b->url,
	    b->opt.cold ? ", page cache dropped" : "", b->opt.rounds);
	say("%-14s %10s %10s %10s %10s %28s %7s\n", "prefetch", "lookup", "retrieve", "of server", "of copy", "all",
	    "GB/s");
	for (unsigned mode = 0; mode < MODES; mode++) {
		struct spread v[N_FIELDS];

		if (b->n_samples[mode] == 0)
			continue;
		for (size_t i = 0; i < N_FIELDS; i++)
			v[i] = spread_of_field(b, mode, fields[i].offset);
		say("%-14s %10.2f %10.2f %10.2f %10.2f %10.2f (%.2f..%.2f) %7.2f\n", mode_words[mode], v[0].p50,
		    v[1].p50, v[2].p50, v[3].p50, v[4].p50, v[4].min, v[4].max,
		    (double)(b->opt.chunks * b->opt.chunk_bytes) / v[4].p50 / 1e6);
	}
}

static json_t *
json_mode(const struct micro_retrieve *b, unsigned mode)
{
	json_t *object = json_object();

	for (size_t i = 0; i < N_FIELDS; i++) {
		json_t *values = json_array();

		for (uint32_t k = 0; k < b->n_samples[mode]; k++) {
			double value;

			memcpy(&value, (const char *)&b->samples[mode][k] + fields[i].offset, sizeof(value));
			json_array_append_new(values, json_real(value));
		}
		json_object_set_new(object, fields[i].name, values);
	}
	return object;
}

static int
write_json(struct micro_retrieve *b)
{
	json_t *modes = json_object();
	json_t *root =
		json_pack("{s:o, s:{s:I, s:I, s:s, s:b, s:I, s:I}, s:o, s:I}", "environment", json_env(), "config",
			  "chunks", (json_int_t)b->opt.chunks, "chunk_bytes", (json_int_t)b->opt.chunk_bytes, "l2",
			  b->url, "cold", b->opt.cold, "think_us", (json_int_t)b->opt.think_us, "poll_key_ms",
			  (json_int_t)b->opt.poll_key_ms, "modes", modes, "wrong_bytes", (json_int_t)b->wrong);

	for (unsigned mode = 0; mode < MODES; mode++)
		if (b->n_samples[mode])
			json_object_set_new(modes, mode_words[mode], json_mode(b, mode));
	return json_write_file(root, b->opt.json, b->err, sizeof(b->err));
}

/* ---- the whole ---- */

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void
init(struct micro_retrieve *b)
{
	uint64_t plane_bytes[PLANES];

	for (unsigned i = 0; i < PLANES; i++)
		plane_bytes[i] = b->opt.chunk_bytes / CHUNK_PIECES;
	b->n_blocks = b->opt.chunks * BLOCKS;
	b->verifies = !b->opt.pages || b->opt.pages >= b->n_blocks;
	/* One prompt; while it is loaded the other leaves. */
	b->l1_bytes = b->opt.chunks * scout__slot_stride(b->opt.chunk_bytes);
	retrieve_check(b, kvmem_init(&b->mem, 0, plane_bytes, PLANES, b->verifies ? b->n_blocks : b->opt.pages),
		       "pages");
	b->ids = must(b, calloc(b->n_blocks, sizeof(*b->ids)));
	for (uint64_t i = 0; i < b->n_blocks; i++)
		b->ids[i] = (int64_t)(i % b->mem.n_blocks);
	for (unsigned i = 0; i < 2; i++) {
		b->prompts[i] = must(b, malloc(b->opt.chunks * HASH_BYTES));
		new_prompt(b, b->prompts[i]);
	}
	if (b->opt.l2)
		(void)snprintf(b->url, sizeof(b->url), "%s", b->opt.l2);
	else
		(void)snprintf(b->url, sizeof(b->url), "fs://%s/l2%s", b->opt.folder,
			       b->opt.poll_key_ms ? "?shared=1" : "");
}

static void
run(struct micro_retrieve *b)
{
	struct retrieve_node node;

	if (!b->opt.poll_key_ms) {
		retrieve_node_up(b, &node, SCOUT_PREFETCH_ON_RETRIEVE, b->l1_bytes);
		for (unsigned i = 0; i < 2; i++)
			store(b, &node, b->prompts[i]);
		retrieve_node_down(&node);
	}
	for (unsigned round = 0; round < b->opt.rounds; round++) {
		for (unsigned i = 0; i < MODES; i++) {
			/* None is always the first of a round. */
			unsigned mode = (i + round) % MODES;

			if (b->opt.mode != MODES && b->opt.mode != mode)
				continue;
			if (b->opt.poll_key_ms)
				one_late_turn(b, mode);
			else
				one_turn(b, mode, round);
		}
	}
}

static bool
parse(struct retrieve_options *opt, int argc, char **argv, int *ret_status)
{
	const struct cli_option options[] = {
		CLI_TEXT("l2", "URL", &opt->l2, "L2; without it, a folder below --folder, which is removed"),
		CLI_TEXT("folder", "DIR", &opt->folder, "where that folder is made"),
		CLI_WORDS("prefetch", &opt->mode, mode_words, "the modes to measure"),
		CLI_BYTES("chunk-bytes", &opt->chunk_bytes, CHUNK_PIECES, UINT64_C(1) << 30,
			  "bytes of one chunk; a multiple of 512"),
		CLI_NUMBER("chunks", &opt->chunks, 1, 65536, "chunks of the prompt"),
		CLI_NUMBER("rounds", &opt->rounds, 1, MAX_ROUNDS, "turns of each mode"),
		CLI_NUMBER("think-us", &opt->think_us, 0, 60000000, "what the engine does between answer and retrieve"),
		CLI_NUMBER("pages", &opt->pages, 0, UINT32_MAX,
			   "blocks of pages, used again and again, nothing compared; 0: one for each"),
		CLI_NUMBER("lookup-timeout-ms", &opt->lookup_timeout_ms, 1, 600000,
			   "timeout of a lookup: what before_answer has to load"),
		CLI_NUMBER("poll-key-ms", &opt->poll_key_ms, 0, 60000,
			   "key polling: ask at this interval for what another server stores; 0: it is stored before"),
		CLI_SWITCH("cold", &opt->cold, "drop the page cache of the folder before each measurement"),
		SETTINGS_ROWS(&opt->settings),
		CLI_TEXT("json", "FILE|-", &opt->json, "write the result as JSON; - is standard output"),
	};
	const struct cli cli = {
		.tool = TOOL,
		.about = "From the lookup to the last byte in pages, where all of a prompt is on L2.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.notes =
			"Exit status: 0; 1 on a failure, wrong bytes, or if not all chunks came; 2 on wrong usage.\n"
			"Memory: all chunks once in the pool and, without --pages, once in pages; with --poll-key-ms four\n"
			"times in the other server's pool.\n",
	};

	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	*ret_status = settings_check(&opt->settings, &cli, NULL);
	if (!*ret_status && opt->chunk_bytes % CHUNK_PIECES)
		*ret_status = cli_usage_error(&cli, "--chunk-bytes: must be a multiple of %" PRIu64, CHUNK_PIECES);
	if (!*ret_status && opt->pages && (opt->pages < BLOCKS || opt->pages % BLOCKS || opt->poll_key_ms))
		*ret_status =
			cli_usage_error(&cli, "--pages: must be a multiple of %u, and 0 with --poll-key-ms", BLOCKS);
	return *ret_status == 0;
}

int
main(int argc, char **argv)
{
	static struct micro_retrieve b = {.opt = {.folder = "/tmp",
						  .mode = MODES,
						  .chunk_bytes = 10 << 20,
						  .chunks = 32,
						  .rounds = 5,
						  .lookup_timeout_ms = 60000}};
	char folder[4096];
	int status;

	if (!parse(&b.opt, argc, argv, &status))
		return status;
	(void)snprintf(folder, sizeof(folder) - 16, "%s/kvscout-retrieve-XXXXXX", b.opt.folder);
	if (!mkdtemp(folder)) {
		char text[SAY_ERROR];

		complain("%s: %s", folder, say_error(text, errno));
		return EXIT_FAILURE;
	}
	b.opt.folder = folder;
	init(&b);
	run(&b);
	/* Standard output is the JSON's then. */
	if (!b.opt.json || strcmp(b.opt.json, "-") != 0)
		print(&b);
	if (b.wrong)
		complain("%" PRIu64 " WRONG BYTES", b.wrong);
	status = b.wrong || b.n_incomplete ? EXIT_FAILURE : EXIT_SUCCESS;
	if (b.opt.json && write_json(&b) != 0) {
		complain("%s", b.err);
		status = EXIT_FAILURE;
	}
	// NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread changes the working directory
	(void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	kvmem_fini(&b.mem);
	for (unsigned i = 0; i < 2; i++)
		free(b.prompts[i]);
	free(b.ids);
	return status;
}
