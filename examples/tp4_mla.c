/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor parallelism with MLA: four workers hold the same KV, so there is one KV rank with four readers. Each worker passes all chunks to
 * its store and copies every fourth of them; a lookup hits when each chunk is there once, and each worker loads all of them.
 * With GQA each worker has other heads: kv_ranks=4, readers=1, and kv_rank in place of reader.
 *
 *   cc tp4_mla.c $(pkg-config --cflags --libs kvscout-client kvscout-worker) -o tp4_mla && ./tp4_mla
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#define TP 4
#define CHUNKS 8
#define CHUNK 64 /* tokens; here a block of the engine is as long */
#define BYTES 4096

static unsigned char pages[TP][CHUNKS][BYTES]; /* in an engine: of four processes, on four GPUs */
static uint8_t hashes[CHUNKS][32];
static int64_t ids[CHUNKS];
static char why[512];

static struct scout_worker *
start_worker(uint32_t rank)
{
	struct scout_plane plane = {pages[rank], BYTES, BYTES};
	struct scout_table table = {
		.block_tokens = CHUNK, .n_planes = 1, .planes = &plane, .n_blocks = CHUNKS, .null_block = -1};
	struct scout_worker_config cfg;
	struct scout_worker *worker;

	scout_worker_config_init(&cfg);
	cfg.name_space = "tp4-mla";
	cfg.chunk_tokens = CHUNK;
	cfg.readers = TP;
	cfg.reader = rank;
	if (scout_worker_new(&cfg, &worker, why, sizeof(why)) != 0 ||
	    scout_worker_register(worker, &table, 1, 10000, why, sizeof(why)) != 0)
		errx(1, "worker %u: %s", rank, why);
	return worker;
}

static struct scout_done
end_of_job(struct scout_worker *worker)
{
	struct pollfd fd = {.fd = scout_worker_fd(worker), .events = POLLIN};
	struct scout_done done;

	while (scout_worker_poll(worker, &done, 1) != 1)
		poll(&fd, 1, -1);
	if (done.status != 0)
		errx(1, "a job ended: %s", scout_strerror(done.status));
	return done;
}

int
main(void)
{
	struct scout_blocks blocks = {.ids = ids, .n = CHUNKS};
	struct scout_store store = {.hashes = hashes, .hash_len = 32, .n = CHUNKS, .blocks = &blocks, .n_groups = 1};
	struct scout_query query = {
		.id = "request 1", .hashes = hashes, .hash_len = 32, .n = CHUNKS, .prompt_tokens = CHUNKS * CHUNK + 1};
	struct scout_worker *workers[TP];
	struct scout_client_config cfg;
	struct scout_client *client;
	struct scout_hit hit;
	uint64_t job;

	scout_client_config_init(&cfg);
	cfg.name_space = "tp4-mla";
	cfg.chunk_tokens = CHUNK;
	cfg.readers = TP;
	if (scout_client_config_load_env(&cfg, why, sizeof(why)) != 0 ||
	    scout_client_new(&cfg, &client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(client, 10000, why, sizeof(why)) != 0)
		errx(1, "client: %s", why);
	scout_client_config_fini(&cfg);
	for (int c = 0; c < CHUNKS; c++) {
		ids[c] = c;
		memset(hashes[c], c + 1, 32);
	}
	for (uint32_t rank = 0; rank < TP; rank++) {
		workers[rank] = start_worker(rank);
		for (int c = 0; c < CHUNKS; c++)
			memset(pages[rank][c], 'a' + c, BYTES); /* each worker computes the same KV */
		if (scout_worker_store(workers[rank], &store, &job) != 0)
			errx(1, "store");
	}
	for (uint32_t rank = 0; rank < TP; rank++)
		printf("worker %u stored %u chunks\n", rank, end_of_job(workers[rank]).chunks);

	if (scout_wait_lookup(client, &query, &hit) != 0 || scout_admit(client, query.id, 0, SCOUT_TO_END) != 0)
		errx(1, "lookup");
	for (uint32_t rank = 0; rank < TP; rank++) {
		struct scout_retrieve load = {
			.ticket = hit.ticket, .to_token = hit.tokens, .blocks = &blocks, .n_groups = 1};

		memset(pages[rank], 0, sizeof(pages[rank]));
		if (scout_worker_retrieve(workers[rank], &load, &job) != 0)
			errx(1, "retrieve");
		printf("worker %u loaded %u chunks\n", rank, end_of_job(workers[rank]).chunks);
		for (int c = 0; c < CHUNKS; c++)
			if (pages[rank][c][0] != 'a' + c || pages[rank][c][BYTES - 1] != 'a' + c)
				errx(1, "wrong bytes");
	}
	scout_finish(client, query.id);
	for (uint32_t rank = 0; rank < TP; rank++)
		scout_worker_free(workers[rank]);
	scout_client_free(client);
	return 0;
}
