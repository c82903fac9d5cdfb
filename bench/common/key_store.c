/* SPDX-License-Identifier: Apache-2.0 */
#include "key_store.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

#include <kvscout/error.h>

#include "clock.h"
#include "log.h"

#define MAX_CHUNKS 4096u /* of one store */
#define PAGE_BYTES 64u
#define READY_MS 5000u
#define TIMEOUT_MS 30000u
#define POLL_MS 100

int
key_store_open(struct key_store *store, const struct scout_worker_config *cfg, char *err, size_t err_len)
{
	struct scout_plane plane = {.stride = PAGE_BYTES, .block_bytes = PAGE_BYTES};
	struct scout_table layout = {
		.block_tokens = cfg->chunk_tokens,
		.n_planes = 1,
		.planes = &plane,
		.n_blocks = MAX_CHUNKS,
		.null_block = -1,
	};
	int rc;

	store->hash_len = cfg->hash_bytes;
	store->chunk_tokens = cfg->chunk_tokens;
	plane.base = store->pages = calloc(MAX_CHUNKS, PAGE_BYTES);
	store->block_ids = calloc(MAX_CHUNKS, sizeof(*store->block_ids));
	if (!store->pages || !store->block_ids)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	for (int64_t i = 0; i < (int64_t)MAX_CHUNKS; i++)
		store->block_ids[i] = i;
	rc = scout_worker_new(cfg, &store->worker, err, err_len);
	return rc < 0 ? rc : scout_worker_register(store->worker, &layout, 1, READY_MS, err, err_len);
}

void
key_store_close(struct key_store *store)
{
	scout_worker_free(store->worker);
	free(store->pages);
	free(store->block_ids);
}

/* Wait for the end of the one job that runs. */
static int
wait_job(struct key_store *store, char *err, size_t err_len)
{
	uint64_t deadline_us = scout__now_us() + TIMEOUT_MS * UINT64_C(1000);
	struct pollfd pfd = {.fd = scout_worker_fd(store->worker), .events = POLLIN};
	struct scout_done done;
	int n;

	while ((n = scout_worker_poll(store->worker, &done, 1)) == 0) {
		if (store->is_stopped && store->is_stopped())
			return 0;
		if (scout__now_us() > deadline_us)
			return scout__fail(err, err_len, SCOUT_ERR_TIMEOUT, "storing keys took more than %u s",
					   TIMEOUT_MS / 1000);
		(void)poll(&pfd, 1, POLL_MS);
	}
	n = n < 0 ? n : done.status;
	if (n < 0)
		return scout__fail(err, err_len, n, "storing keys: %s", scout_strerror(n));
	if (done.no_room)
		return scout__fail(err, err_len, SCOUT_ERR_NO_ROOM,
				   "the server has no room for all keys (it refused %" PRIu32 " of at most %u chunks)",
				   done.no_room, MAX_CHUNKS);
	return 0;
}

int
key_store_put(struct key_store *store, const uint8_t *hashes, uint64_t n, char *err, size_t err_len)
{
	uint64_t job, piece;
	int rc;

	for (uint64_t at = 0; at < n && !(store->is_stopped && store->is_stopped()); at += piece) {
		piece = n - at < MAX_CHUNKS ? n - at : MAX_CHUNKS;
		const struct scout_store request = {
			.hashes = hashes + at * store->hash_len,
			.hash_len = store->hash_len,
			.n = piece,
			.blocks = &(struct scout_blocks){.first_token = at * store->chunk_tokens,
							 .ids = store->block_ids,
							 .n = piece},
			.n_groups = 1,
			.first_token = at * store->chunk_tokens,
		};

		rc = scout_worker_store(store->worker, &request, &job);
		if (rc < 0)
			return scout__fail(err, err_len, rc, "storing keys: %s", scout_strerror(rc));
		rc = wait_job(store, err, err_len);
		if (rc < 0)
			return rc;
	}
	return 0;
}
