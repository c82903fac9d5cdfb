/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill and decode as two engines that share a namespace. The decode engine asks before the prefill engine has stored: the proxy told it
 * how many tokens to expect, so the server waits for the late chunks, and only then answers. Neither scheduler waits. On two machines each
 * engine has a server of its own and both have the same L2 (a key of the server); the calls are the same.
 *
 *   cc prefill_decode.c $(pkg-config --cflags --libs kvscout-client kvscout-worker) -o prefill_decode && ./prefill_decode
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#define CHUNKS 4
#define CHUNK 256 /* tokens; here a block of the engine is as long */
#define BYTES 8192

static struct engine {
	unsigned char pages[CHUNKS][BYTES];
	struct scout_client *client;
	struct scout_worker *worker;
} prefill, decode;
static uint8_t hashes[CHUNKS][32];
static int64_t ids[CHUNKS];

static void
start(struct engine *engine, uint32_t late_ms)
{
	struct scout_plane plane = {engine->pages, BYTES, BYTES};
	struct scout_table table = {
		.block_tokens = CHUNK, .n_planes = 1, .planes = &plane, .n_blocks = CHUNKS, .null_block = -1};
	struct scout_client_config asks;
	struct scout_worker_config copies;
	char why[512];

	scout_client_config_init(&asks);
	scout_worker_config_init(&copies);
	asks.name_space = copies.name_space = "prefill-decode";
	asks.lookup_poll_key_timeout_ms = late_ms; /* how long the server waits for late chunks: 0, it does not */
	asks.lookup_poll_key_intervals_ms = late_ms ? 5 : 0;
	if (scout_client_config_load_env(&asks, why, sizeof(why)) != 0 ||
	    scout_client_new(&asks, &engine->client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(engine->client, 10000, why, sizeof(why)) != 0 ||
	    scout_worker_new(&copies, &engine->worker, why, sizeof(why)) != 0 ||
	    scout_worker_register(engine->worker, &table, 1, 10000, why, sizeof(why)) != 0)
		errx(1, "%s", why);
	scout_client_config_fini(&asks);
}

static void
wait_for(int fd)
{
	struct pollfd event = {.fd = fd, .events = POLLIN};

	poll(&event, 1, -1);
}

static struct scout_done
end_of_job(struct scout_worker *worker)
{
	struct scout_done done;

	while (scout_worker_poll(worker, &done, 1) != 1)
		wait_for(scout_worker_fd(worker));
	if (done.status != 0)
		errx(1, "a job ended: %s", scout_strerror(done.status));
	return done;
}

int
main(void)
{
	struct scout_blocks blocks = {.ids = ids, .n = CHUNKS};
	struct scout_store store = {.hashes = hashes, .hash_len = 32, .n = CHUNKS, .blocks = &blocks, .n_groups = 1};
	struct scout_query query = {.id = "request 1",
				    .hashes = hashes,
				    .hash_len = 32,
				    .n = CHUNKS,
				    .prompt_tokens = CHUNKS * CHUNK + 1,
				    .expect_tokens = (uint64_t)CHUNKS * CHUNK};
	struct scout_hit hit;
	uint64_t job;
	int answers;

	start(&prefill, 0);
	start(&decode, 10000);
	answers = scout_client_fd(decode.client); /* readable when an answer lands from now on */
	for (int c = 0; c < CHUNKS; c++) {
		ids[c] = c;
		memset(hashes[c], c + 1, 32);
		memset(prefill.pages[c], 'a' + c, BYTES); /* prefill computes */
	}

	if (scout_try_lookup(decode.client, &query, &hit) != SCOUT_NOT_YET) /* decode asks: nothing is stored yet */
		errx(1, "an answer before the store");
	if (scout_worker_store(prefill.worker, &store, &job) != 0)
		errx(1, "store");
	printf("prefill stored %u chunks\n", end_of_job(prefill.worker).chunks);

	while (scout_try_lookup(decode.client, &query, &hit) == SCOUT_NOT_YET) { /* an engine does other work here */
		wait_for(answers);
		scout_client_fd_clear(decode.client);
	}
	if (scout_admit(decode.client, query.id, 0, SCOUT_TO_END) != 0)
		errx(1, "admit");
	struct scout_retrieve load = {.ticket = hit.ticket, .to_token = hit.tokens, .blocks = &blocks, .n_groups = 1};
	if (scout_worker_retrieve(decode.worker, &load, &job) != 0)
		errx(1, "retrieve");
	printf("decode loaded %u chunks\n", end_of_job(decode.worker).chunks);
	if (memcmp(prefill.pages, decode.pages, sizeof(decode.pages)) != 0)
		errx(1, "wrong bytes");
	scout_finish(decode.client, query.id);
	scout_worker_free(prefill.worker);
	scout_worker_free(decode.worker);
	scout_client_free(prefill.client);
	scout_client_free(decode.client);
	return 0;
}
