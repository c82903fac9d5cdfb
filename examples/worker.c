/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole request on host memory: a scheduler asks, a worker loads what is cached, "computes" the rest and stores it. Run it twice: the
 * second time the KV comes from the cache. The pages would lie on a GPU in an engine; nothing else would differ.
 *
 *   cc worker.c $(pkg-config --cflags --libs kvscout-client kvscout-worker) -o worker && ./worker && ./worker
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/hash.h>
#include <kvscout/worker.h>

#define TOKENS 1000
#define CHUNK 256
#define CHUNKS (TOKENS / CHUNK)
#define BLOCK 16
#define BLOCKS (CHUNKS * CHUNK / BLOCK)

static uint32_t prompt[TOKENS];
static unsigned char layers[2][BLOCKS][4096]; /* the KV of two layers, in blocks of 16 tokens */
static int64_t ids[BLOCKS];                   /* the request's block table */

static void
start(struct scout_client **client, struct scout_worker **worker)
{
	struct scout_plane planes[] = {{layers[0], 4096, 4096}, {layers[1], 4096, 4096}};
	struct scout_table table = {
		.block_tokens = BLOCK, .n_planes = 2, .planes = planes, .n_blocks = BLOCKS, .null_block = -1};
	struct scout_client_config asks;
	struct scout_worker_config copies;
	char why[512];

	scout_client_config_init(&asks);
	scout_worker_config_init(&copies);
	asks.name_space = copies.name_space = "example";
	if (scout_client_config_load_env(&asks, why, sizeof(why)) != 0 ||
	    scout_client_new(&asks, client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(*client, 10000, why, sizeof(why)) != 0 ||
	    scout_worker_new(&copies, worker, why, sizeof(why)) != 0 ||
	    scout_worker_register(*worker, &table, 1, 10000, why, sizeof(why)) != 0)
		errx(1, "%s", why);
	scout_client_config_fini(&asks);
}

static int
status_at_end_of_job(struct scout_worker *worker)
{
	struct pollfd fd = {.fd = scout_worker_fd(worker), .events = POLLIN};
	struct scout_done done;

	while (scout_worker_poll(worker, &done, 1) != 1)
		poll(&fd, 1, -1);
	return done.status;
}

static unsigned char
kv_of(int layer, int block) /* stands for the model: the KV of a block */
{
	return (unsigned char)(layer * 101 + block * 7 + 1);
}

int
main(void)
{
	uint8_t hashes[CHUNKS][SCOUT_SHA256_BYTES];
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_query query = {.id = "request 1", .hashes = hashes, .hash_len = 32, .prompt_tokens = TOKENS};
	struct scout_client *client;
	struct scout_worker *worker;
	struct scout_hasher *hasher;
	struct scout_hit hit;
	uint64_t job;

	start(&client, &worker);
	for (int b = 0; b < BLOCKS; b++)
		ids[b] = b;
	if (scout_hasher_new(NULL, &hasher) != 0 ||
	    scout_hash_chunks(hasher, prompt, TOKENS, NULL, hashes[0], CHUNKS, &query.n) != 0 ||
	    scout_wait_lookup(client, &query, &hit) != 0 || scout_admit(client, query.id, 0, SCOUT_TO_END) != 0)
		errx(1, "cannot ask");
	if (hit.tokens > 0) {
		struct scout_retrieve load = {
			.ticket = hit.ticket, .to_token = hit.tokens, .blocks = &blocks, .n_groups = 1};

		if (scout_worker_retrieve(worker, &load, &job) != 0 || status_at_end_of_job(worker) != 0)
			errx(1, "load"); /* an engine computes what scout_done.missing names */
	}
	for (int b = (int)hit.tokens / BLOCK; b < BLOCKS; b++) /* the model computes the rest */
		for (int l = 0; l < 2; l++)
			memset(layers[l][b], kv_of(l, b), 4096);
	if (hit.chunks < CHUNKS) {
		struct scout_store store = {.ticket = hit.ticket,
					    .hashes = hashes[hit.chunks],
					    .hash_len = 32,
					    .n = CHUNKS - hit.chunks,
					    .first_token = hit.chunks * (uint64_t)CHUNK,
					    .blocks = &blocks,
					    .n_groups = 1};

		if (scout_worker_store(worker, &store, &job) != 0 || status_at_end_of_job(worker) != 0)
			errx(1, "store");
	}
	for (int i = 0; i < 2 * BLOCKS * 4096; i++)
		if (layers[i / 4096 / BLOCKS][i / 4096 % BLOCKS][i % 4096] !=
		    kv_of(i / 4096 / BLOCKS, i / 4096 % BLOCKS))
			errx(1, "wrong bytes in the pages");
	printf("%u of %d chunks loaded, the rest stored\n", hit.chunks, CHUNKS);
	scout_finish(client, query.id);
	scout_worker_free(worker);
	scout_client_free(client);
	scout_hasher_free(hasher);
	return 0;
}
