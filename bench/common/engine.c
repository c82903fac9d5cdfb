/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: what an engine has around the libraries, and no more. All KV ranks live in this process, each with its own
 * pages and its own worker, so one page id means the same block of tokens on every rank, as in an engine with tensor
 * parallelism. A transfer is one job for each rank; it has ended when all have. Pages are handed out in a shuffled
 * order, because neighbours in a prompt are not neighbours in an engine that has run for a while.
 *
 * Everything that can differ between a right and a wrong byte is in kvmem.c; nothing here looks at contents.
 */
#include "engine.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/server.h>

#include "clock.h"
#include "kvmem.h"
#include "log.h"
#include "mix.h"
#include "pool.h"
#include "say.h"

#define READY_MS 60000u
#define MAX_JOBS 256u
#define L2_TIMEOUT_MS 30000u /* tools measure what is there; a busy disk must not turn it into a miss */

struct engine_running {
	uint64_t job;
	struct engine_transfer *transfer;
};

struct engine_rank {
	struct kvmem mem;
	struct scout_worker *worker;
	struct engine_running running[MAX_JOBS];
	size_t n_running;
};

struct engine {
	struct engine_config cfg;
	struct scout_server *server; /* NULL: another process's */
	struct scout_client *client;
	struct engine_rank *ranks; /* cfg.kv_ranks */
	uint32_t chunk_blocks;
	char *endpoint;
	int64_t *free_pages; /* a stack */
	uint64_t n_free;
	struct engine_stats stats;
};

uint64_t
engine_chunk_bytes(const struct engine_config *cfg)
{
	uint64_t shard = 0, bytes;

	if (cfg->block_tokens == 0 || cfg->chunk_tokens % cfg->block_tokens != 0)
		return 0;
	for (uint32_t i = 0; i < cfg->n_planes; i++)
		if (__builtin_add_overflow(shard, cfg->plane_bytes[i], &shard))
			return 0;
	if (__builtin_mul_overflow(shard, cfg->chunk_tokens / cfg->block_tokens, &shard))
		return 0;
	shard = scout__slot_stride(shard);
	if (shard == UINT64_MAX || __builtin_mul_overflow(shard, cfg->kv_ranks, &bytes))
		return 0;
	return bytes;
}

static int
check_config(const struct engine_config *cfg, char *err, size_t err_len)
{
	if (cfg->kv_ranks == 0 || cfg->kv_ranks > ENGINE_MAX_RANKS || cfg->n_planes == 0 ||
	    cfg->n_planes > ENGINE_MAX_PLANES || cfg->pages == 0 || engine_chunk_bytes(cfg) == 0)
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"these KV sizes make no chunk: block_tokens must divide chunk_tokens, and 1..%d KV ranks, 1..%d planes and 1 or more pages are allowed",
			ENGINE_MAX_RANKS, ENGINE_MAX_PLANES);
	return 0;
}

static int
start_server(struct engine *engine, char *err, size_t err_len)
{
	struct scout_server_config cfg;
	int rc;

	if (engine->cfg.endpoint)
		return 0;
	scout_server_config_init(&cfg);
	cfg.l1_bytes = engine->cfg.l1_bytes;
	cfg.max_promised = engine->cfg.max_promised;
	cfg.eviction = engine->cfg.eviction;
	if (engine->cfg.l2) {
		cfg.l2 = engine->cfg.l2;
		cfg.l2_timeout_ms = L2_TIMEOUT_MS;
		cfg.l2_lookup_timeout_ms = L2_TIMEOUT_MS;
		cfg.l2_queue_bytes = engine->cfg.l1_bytes;
	}
	cfg.log = complain_log;
	rc = settings_server(engine->cfg.settings, &cfg, err, err_len);
	if (rc == 0)
		rc = scout_server_start(&cfg, &engine->server, err, err_len);
	scout_server_config_fini(&cfg);
	return rc;
}

static int
start_client(struct engine *engine, char *err, size_t err_len)
{
	struct scout_client_config cfg;
	int rc;

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 5000; /* a loaded machine is no reason for a miss: hits are counted */
	cfg.endpoint = engine->endpoint;
	cfg.curve_secret_file = engine->cfg.curve_secret_file;
	cfg.curve_server_key = engine->cfg.curve_server_key;
	cfg.name_space = engine->cfg.name_space;
	cfg.chunk_tokens = engine->cfg.chunk_tokens;
	cfg.kv_ranks = engine->cfg.kv_ranks;
	cfg.hash_bytes = ENGINE_HASH_BYTES;
	cfg.lookup_mode = engine->cfg.lookup_mode;
	cfg.log = complain_log;
	rc = settings_client(engine->cfg.settings, &cfg, err, err_len);
	if (rc == 0)
		rc = scout_client_new(&cfg, &engine->client, err, err_len);
	scout_client_config_fini(&cfg);
	if (rc < 0)
		return rc;
	return scout_client_wait_ready(engine->client, READY_MS, err, err_len);
}

static int
start_rank(struct engine *engine, uint32_t kv_rank, char *err, size_t err_len)
{
	struct engine_rank *rank = &engine->ranks[kv_rank];
	struct scout_worker_config cfg;
	struct scout_table layout;
	int rc;

	rc = kvmem_init(&rank->mem, kv_rank, engine->cfg.plane_bytes, engine->cfg.n_planes, engine->cfg.pages);
	if (rc < 0)
		return scout__fail(err, err_len, rc, "%" PRIu64 " KV pages for KV rank %u: %s", engine->cfg.pages,
				   kv_rank, scout_strerror(rc));
	scout_worker_config_init(&cfg);
	cfg.endpoint = engine->endpoint;
	cfg.curve_secret_file = engine->cfg.curve_secret_file;
	cfg.curve_server_key = engine->cfg.curve_server_key;
	cfg.name_space = engine->cfg.name_space;
	cfg.chunk_tokens = engine->cfg.chunk_tokens;
	cfg.kv_ranks = engine->cfg.kv_ranks;
	cfg.kv_rank = kv_rank;
	cfg.hash_bytes = ENGINE_HASH_BYTES;
	cfg.max_jobs = MAX_JOBS;
	cfg.log = complain_log;
	rc = scout_worker_new(&cfg, &rank->worker, err, err_len);
	if (rc < 0)
		return rc;
	layout = (struct scout_table){
		.block_tokens = engine->cfg.block_tokens,
		.n_planes = engine->cfg.n_planes,
		.planes = rank->mem.planes,
		.n_blocks = engine->cfg.pages,
		.null_block = -1,
	};
	return scout_worker_register(rank->worker, &layout, 1, READY_MS, err, err_len);
}

static int
make_pages(struct engine *engine)
{
	uint64_t n = engine->cfg.pages, seed = 1;

	engine->free_pages = calloc(n, sizeof(*engine->free_pages));
	if (!engine->free_pages)
		return SCOUT_ERR_NOMEM;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = mix_range(&seed, 0, i);

		engine->free_pages[i] = engine->free_pages[j];
		engine->free_pages[j] = (int64_t)i;
	}
	engine->n_free = n;
	return 0;
}

int
engine_start(const struct engine_config *cfg, struct engine **ret_engine, char *err, size_t err_len)
{
	struct engine *engine;
	int rc = check_config(cfg, err, err_len);

	if (rc < 0)
		return rc;
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	engine->cfg = *cfg;
	engine->chunk_blocks = cfg->chunk_tokens / cfg->block_tokens;
	rc = start_server(engine, err, err_len);
	if (rc < 0)
		goto err_stop;
	engine->endpoint = strdup(engine->server ? scout_server_endpoint(engine->server) : cfg->endpoint);
	engine->ranks = calloc(cfg->kv_ranks, sizeof(*engine->ranks));
	if (!engine->endpoint || !engine->ranks || make_pages(engine) < 0) {
		rc = scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
		goto err_stop;
	}
	rc = start_client(engine, err, err_len);
	for (uint32_t i = 0; rc == 0 && i < cfg->kv_ranks; i++)
		rc = start_rank(engine, i, err, err_len);
	if (rc < 0)
		goto err_stop;
	*ret_engine = engine;
	return 0;

err_stop:
	engine_stop(engine);
	return rc;
}

void
engine_stop(struct engine *engine)
{
	if (!engine)
		return;
	/* Workers first: their copies use the pages, and tell the server when they are done. */
	for (uint32_t i = 0; engine->ranks && i < engine->cfg.kv_ranks; i++)
		scout_worker_free(engine->ranks[i].worker);
	scout_client_free(engine->client);
	scout_server_stop(engine->server);
	for (uint32_t i = 0; engine->ranks && i < engine->cfg.kv_ranks; i++)
		kvmem_fini(&engine->ranks[i].mem);
	free(engine->ranks);
	free(engine->free_pages);
	free(engine->endpoint);
	free(engine);
}

struct scout_client *
engine_client(struct engine *engine)
{
	return engine->client;
}

const char *
engine_endpoint(const struct engine *engine)
{
	return engine->endpoint;
}

const struct engine_stats *
engine_stats(const struct engine *engine)
{
	return &engine->stats;
}

struct engine_job_times
engine_times(const struct engine *engine, int kind)
{
	struct engine_job_times times = {0};
	bool stores = kind == SCOUT_JOB_STORE;

	for (uint32_t r = 0; r < engine->cfg.kv_ranks; r++) {
		struct scout_worker_counters stats;

		if (scout_worker_stats(engine->ranks[r].worker, &stats) != 0)
			continue;
		times.jobs += stores ? stats.stores_ok : stats.retrieves_ok;
		times.queued_us += stores ? stats.store_queued_us : stats.retrieve_queued_us;
		times.server_us += stores ? stats.store_server_us : stats.retrieve_server_us;
		times.copy_us += stores ? stats.store_copy_us : stats.retrieve_copy_us;
		times.bytes += stores ? stats.stored_bytes : stats.retrieved_bytes;
	}
	return times;
}

uint32_t
engine_chunk_blocks(const struct engine *engine)
{
	return engine->chunk_blocks;
}

bool
engine_pages_take(struct engine *engine, size_t n, int64_t *ret_ids)
{
	if (n > engine->n_free)
		return false;
	for (size_t i = 0; i < n; i++)
		ret_ids[i] = engine->free_pages[--engine->n_free];
	return true;
}

void
engine_pages_return(struct engine *engine, size_t n, const int64_t *ids)
{
	for (size_t i = 0; i < n; i++)
		engine->free_pages[engine->n_free++] = ids[i];
}

static struct kvmem_key
key_of(const struct engine *engine, const uint8_t *hashes, size_t block)
{
	return (struct kvmem_key){.hash = hashes + block / engine->chunk_blocks * ENGINE_HASH_BYTES,
				  .block = (uint32_t)(block % engine->chunk_blocks)};
}

void
engine_compute(struct engine *engine, const uint8_t *hashes, size_t n, const int64_t *ids, const bool *flags)
{
	for (uint32_t r = 0; r < engine->cfg.kv_ranks; r++)
		for (size_t i = 0; i < n * engine->chunk_blocks; i++)
			if (!flags || flags[i])
				kvmem_fill(&engine->ranks[r].mem, ids[i], key_of(engine, hashes, i));
}

static void
scrub(struct engine *engine, const uint8_t *hashes, size_t n, const int64_t *ids)
{
	for (uint32_t r = 0; r < engine->cfg.kv_ranks; r++)
		for (size_t i = 0; i < n * engine->chunk_blocks; i++)
			kvmem_scrub(&engine->ranks[r].mem, ids[i], key_of(engine, hashes, i));
}

static int
transfer_begin(struct engine_transfer *transfer, size_t n_blocks)
{
	if (n_blocks > transfer->missing_cap) {
		bool *missing = realloc(transfer->missing, n_blocks * sizeof(*missing));

		if (!missing)
			return SCOUT_ERR_NOMEM;
		transfer->missing = missing;
		transfer->missing_cap = n_blocks;
	}
	memset(transfer->missing, 0, n_blocks * sizeof(*transfer->missing));
	transfer->pending = 0;
	transfer->status = 0;
	transfer->n_blocks = n_blocks;
	transfer->n_missing = 0;
	return 0;
}

void
engine_transfer_fini(struct engine_transfer *transfer)
{
	free(transfer->missing);
	*transfer = (struct engine_transfer){0};
}

static void
mark_missing(struct engine_transfer *transfer, size_t block)
{
	if (block < transfer->n_blocks && !transfer->missing[block]) {
		transfer->missing[block] = true;
		transfer->n_missing++;
	}
}

/* One rank failed as a whole: nothing of it counts as filled. */
static void
rank_failed(struct engine *engine, struct engine_transfer *transfer, int status)
{
	engine->stats.jobs_failed++;
	engine->stats.job_error = status;
	transfer->status = status;
	for (size_t i = 0; i < transfer->n_blocks; i++)
		mark_missing(transfer, i);
}

/*
 * Note that a rank's worker took the job, or refused it. Returns an error only while no rank has taken the transfer:
 * after that, it must be waited for, and the refusal becomes its end.
 */
static int
note_submit(struct engine *engine, struct engine_rank *rank, struct engine_transfer *transfer, uint64_t job, int rc)
{
	if (rc == 0 && rank->n_running == MAX_JOBS)
		abort(); /* the worker was configured not to take more */
	if (rc == 0) {
		rank->running[rank->n_running++] = (struct engine_running){.job = job, .transfer = transfer};
		transfer->pending++;
		return 0;
	}
	if (rank == engine->ranks)
		return rc;
	rank_failed(engine, transfer, rc);
	return 0;
}

int
engine_retrieve(struct engine *engine, struct engine_transfer *transfer, uint64_t ticket, size_t first,
		const uint8_t *hashes, size_t n, const int64_t *ids)
{
	struct scout_retrieve request = {
		.ticket = ticket,
		.from_token = first * engine->cfg.chunk_tokens,
		.to_token = (first + n) * engine->cfg.chunk_tokens,
		.blocks = &(struct scout_blocks){.first_token = first * engine->cfg.chunk_tokens,
						 .ids = ids,
						 .n = n * engine->chunk_blocks},
		.n_groups = 1,
	};
	uint64_t job = 0;
	int rc = transfer_begin(transfer, request.blocks->n);

	if (rc < 0)
		return rc;
	scrub(engine, hashes, n, ids);
	for (uint32_t i = 0; rc == 0 && i < engine->cfg.kv_ranks; i++) {
		struct engine_rank *rank = &engine->ranks[i];

		rc = scout_worker_retrieve(rank->worker, &request, &job);
		rc = note_submit(engine, rank, transfer, job, rc);
	}
	return rc;
}

int
engine_store(struct engine *engine, struct engine_transfer *transfer, uint64_t ticket, size_t first,
	     const uint8_t *hashes, size_t n, const int64_t *ids)
{
	struct scout_store request = {
		.ticket = ticket,
		.hashes = hashes,
		.hash_len = ENGINE_HASH_BYTES,
		.n = n,
		.blocks = &(struct scout_blocks){.first_token = first * engine->cfg.chunk_tokens,
						 .ids = ids,
						 .n = n * engine->chunk_blocks},
		.n_groups = 1,
		.first_token = first * engine->cfg.chunk_tokens,
	};
	uint64_t job = 0;
	int rc = transfer_begin(transfer, request.blocks->n);

	for (uint32_t i = 0; rc == 0 && i < engine->cfg.kv_ranks; i++) {
		struct engine_rank *rank = &engine->ranks[i];

		rc = scout_worker_store(rank->worker, &request, &job);
		rc = note_submit(engine, rank, transfer, job, rc);
	}
	return rc;
}

uint64_t
engine_verify(struct engine *engine, const struct engine_transfer *transfer, const uint8_t *hashes, size_t n,
	      const int64_t *ids)
{
	uint64_t wrong = 0, checked = 0;

	for (uint32_t r = 0; r < engine->cfg.kv_ranks; r++) {
		const struct kvmem *mem = &engine->ranks[r].mem;

		for (size_t i = 0; i < n * engine->chunk_blocks; i++) {
			if (transfer->missing[i])
				continue;
			wrong += kvmem_wrong(mem, ids[i], key_of(engine, hashes, i));
			checked += kvmem_block_bytes(mem);
		}
	}
	engine->stats.wrong_bytes += wrong;
	engine->stats.bytes_verified += checked;
	return wrong;
}

static void
count_store(struct engine *engine, const struct engine_rank *rank, const struct scout_done *done)
{
	engine->stats.bytes_stored += done->bytes;
	/* A chunk becomes readable with its last shard, and counts for the rank that stored that one. */
	engine->stats.chunks_stored += done->chunks;
	if (rank != engine->ranks)
		return;
	engine->stats.chunks_present += done->present;
	engine->stats.chunks_no_room += done->no_room;
}

/* Takes one rank's end into its transfer. Returns whether the transfer has ended by it. */
static bool
take_done(struct engine *engine, struct engine_rank *rank, const struct scout_done *done)
{
	struct engine_transfer *transfer;
	size_t i = 0;

	while (i < rank->n_running && rank->running[i].job != done->job)
		i++;
	if (i == rank->n_running)
		abort(); /* a job that was never submitted, or ended twice */
	transfer = rank->running[i].transfer;
	rank->running[i] = rank->running[--rank->n_running];
	if (done->kind == SCOUT_JOB_STORE)
		count_store(engine, rank, done);
	else
		engine->stats.bytes_retrieved += done->bytes;
	if (done->status == SCOUT_ERR_MISSING) {
		if (transfer->status == 0)
			transfer->status = SCOUT_ERR_MISSING;
		for (i = 0; i < done->n_missing; i++)
			mark_missing(transfer, done->missing[i]);
	} else if (done->status != 0) {
		rank_failed(engine, transfer, done->status);
	}
	if (--transfer->pending > 0)
		return false;
	if (done->kind == SCOUT_JOB_RETRIEVE)
		engine->stats.blocks_missing += transfer->n_missing;
	return true;
}

int
engine_poll(struct engine *engine)
{
	int ended = 0;

	for (uint32_t i = 0; i < engine->cfg.kv_ranks; i++) {
		struct engine_rank *rank = &engine->ranks[i];
		struct scout_done done[16];
		int n;

		do {
			n = scout_worker_poll(rank->worker, done, sizeof(done) / sizeof(done[0]));
			for (int j = 0; j < n; j++)
				ended += take_done(engine, rank, &done[j]);
		} while (n > 0);
		if (n < 0)
			return n;
	}
	return ended;
}

int
engine_wait(struct engine *engine, const struct engine_transfer *transfer, uint32_t timeout_ms)
{
	struct pollfd fds[ENGINE_MAX_RANKS];
	uint64_t now = scout__now_ns(), end = now + timeout_ms * UINT64_C(1000000);
	int rc;

	for (uint32_t i = 0; i < engine->cfg.kv_ranks; i++)
		fds[i] = (struct pollfd){.fd = scout_worker_fd(engine->ranks[i].worker), .events = POLLIN};
	for (;;) {
		rc = engine_poll(engine);
		if (rc < 0)
			return rc;
		if (transfer->pending == 0)
			return 0;
		now = scout__now_ns();
		if (now >= end)
			return SCOUT_ERR_TIMEOUT;
		/* An interrupted or spurious return costs one more turn. */
		(void)poll(fds, engine->cfg.kv_ranks, (int)((end - now) / 1000000 + 1));
	}
}
