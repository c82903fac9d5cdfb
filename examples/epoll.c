/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event loop for both sides: scout_client_fd() is readable when answers have landed, scout_worker_fd() when jobs have ended.
 * Eight requests are asked for at once; each then loads its chunk, or computes and stores it. The second run loads all of them.
 *
 *   cc epoll.c $(pkg-config --cflags --libs kvscout-client kvscout-worker) -o epoll && ./epoll && ./epoll
 */
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#define REQUESTS 8
#define CHUNK 64 /* tokens; here a block of the engine is as long */

static struct request {
	char id[16];
	uint8_t hash[32]; /* of the prompt's only chunk; an engine's own kind of hash will do */
	int64_t page;
	uint64_t job; /* 0: waits for its answer */
} requests[REQUESTS];
static unsigned char pages[REQUESTS][4096];
static struct scout_client *client;
static struct scout_worker *worker;
static int loaded, over; /* requests */

static void
start(void)
{
	struct scout_plane plane = {pages, sizeof(pages[0]), sizeof(pages[0])};
	struct scout_table table = {
		.block_tokens = CHUNK, .n_planes = 1, .planes = &plane, .n_blocks = REQUESTS, .null_block = -1};
	struct scout_client_config asks;
	struct scout_worker_config copies;
	char why[512];

	scout_client_config_init(&asks);
	scout_worker_config_init(&copies);
	asks.name_space = copies.name_space = "epoll";
	asks.chunk_tokens = copies.chunk_tokens = CHUNK;
	if (scout_client_config_load_env(&asks, why, sizeof(why)) != 0 ||
	    scout_client_new(&asks, &client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(client, 10000, why, sizeof(why)) != 0 ||
	    scout_worker_new(&copies, &worker, why, sizeof(why)) != 0 ||
	    scout_worker_register(worker, &table, 1, 10000, why, sizeof(why)) != 0)
		errx(1, "%s", why);
	scout_client_config_fini(&asks);
}

/* Ask, or look whether the answer is there; if so, start the request's job. */
static void
ask(struct request *r)
{
	struct scout_query query = {.id = r->id, .hashes = r->hash, .hash_len = 32, .n = 1, .prompt_tokens = CHUNK + 1};
	struct scout_blocks page = {.ids = &r->page, .n = 1};
	struct scout_store store = {.hashes = r->hash, .hash_len = 32, .n = 1, .blocks = &page, .n_groups = 1};
	struct scout_retrieve load = {.blocks = &page, .n_groups = 1};
	struct scout_hit hit;
	int rc = scout_try_lookup(client, &query, &hit);

	if (rc == SCOUT_NOT_YET || rc == SCOUT_ERR_BUSY)
		return;
	if (rc != 0 || scout_admit(client, r->id, 0, SCOUT_TO_END) != 0)
		errx(1, "%s: %s", r->id, scout_strerror(rc));
	load.ticket = store.ticket = hit.ticket;
	load.to_token = hit.tokens;
	if (hit.tokens > 0) {
		loaded++;
		rc = scout_worker_retrieve(worker, &load, &r->job);
	} else {
		memset(pages[r->page], 'a' + (int)r->page, sizeof(pages[0])); /* the model computes */
		rc = scout_worker_store(worker, &store, &r->job);
	}
	if (rc != 0)
		errx(1, "%s: %s", r->id, scout_strerror(rc));
}

static void
end_jobs(void)
{
	struct scout_done done;

	while (scout_worker_poll(worker, &done, 1) == 1)
		for (struct request *r = requests; r < requests + REQUESTS; r++)
			if (r->job == done.job) {
				if (done.status != 0 || pages[r->page][4095] != 'a' + (int)r->page)
					errx(1, "%s: %s", r->id, scout_strerror(done.status));
				over++;
				scout_finish(client, r->id);
			}
}

int
main(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int loop = epoll_create1(EPOLL_CLOEXEC);

	start();
	for (int i = 0; i < REQUESTS; i++) {
		(void)snprintf(requests[i].id, sizeof(requests[i].id), "request %d", i);
		memset(requests[i].hash, i + 1, 32);
		requests[i].page = i;
	}
	if (epoll_ctl(loop, EPOLL_CTL_ADD, scout_client_fd(client), &event) != 0 ||
	    epoll_ctl(loop, EPOLL_CTL_ADD, scout_worker_fd(worker), &event) != 0)
		err(1, "epoll_ctl");
	do {
		scout_client_fd_clear(client); /* before the answers are read, so that no later one is missed */
		scout_step_begin(client);
		for (struct request *r = requests; r < requests + REQUESTS; r++)
			if (r->job == 0)
				ask(r);
		scout_step_end(client);
		end_jobs();
	} while (over < REQUESTS && epoll_wait(loop, &event, 1, -1) > 0);
	printf("%d of %d requests were loaded, the others stored\n", loaded, REQUESTS);
	scout_worker_free(worker);
	scout_client_free(client);
	return 0;
}
