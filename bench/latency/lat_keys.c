/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: prompts whose answer is known before the question. Prompt p has `chunks` hashes; the first truth[p] of
 * them are stored through a real worker, so the server's index, pins and pool are what they are in use. The pages are
 * as small as they can be: a lookup never touches them.
 *
 * Invariants: hashes are chained (each is mixed from the one before), no two prompts share one, and the hashes that
 * are not stored come from another stream than those that are: a second run with another hit ratio on the same server
 * finds nothing of the first one's. The ratio is spread over the prompts without rounding loss: with one chunk for
 * each and 0.5, every other prompt hits.
 */
#include "lat.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/worker.h>

#include "mix.h"

#define STORE_CHUNKS 4096u
#define STORE_TIMEOUT_MS 30000
#define POLL_MS 100
/* Prompts by default: some, so that caches do not hold one answer; not so many that storing them takes long. */
#define AUTO_CHUNKS 65536u
#define AUTO_PROMPTS 64u

/* The chain of one prompt, from @state on. */
static void
fill_hashes(uint8_t *to, uint64_t n, uint64_t state)
{
	uint64_t word;

	for (uint64_t i = 0; i < n * (LAT_HASH_BYTES / sizeof(word)); i++) {
		word = mix_next(&state);
		memcpy(to + i * sizeof(word), &word, sizeof(word));
		state ^= word << 1;
	}
}

const uint8_t *
lat_keys_hashes(const struct lat_keys *keys, uint64_t prompt)
{
	return keys->hashes + prompt * keys->chunks * LAT_HASH_BYTES;
}

static uint64_t
n_prompts(const struct lat_options *opt)
{
	uint64_t n = AUTO_CHUNKS / opt->chunks;

	if (opt->prompts)
		return opt->prompts;
	if (n > AUTO_PROMPTS)
		n = AUTO_PROMPTS;
	return n ? n : 1;
}

int
lat_keys_init(struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	struct lat_keys *keys = &lat->keys;
	uint64_t total, hits;
	double due;

	keys->chunks = opt->chunks;
	keys->n_prompts = n_prompts(opt);
	total = keys->n_prompts * keys->chunks; /* both are limited to 10^6 by the command line */
	keys->hashes = calloc(total, LAT_HASH_BYTES);
	keys->truth = calloc(keys->n_prompts, sizeof(*keys->truth));
	if (!keys->hashes || !keys->truth)
		return lat_fail(lat, "out of memory for %" PRIu64 " hashes", total);
	hits = 0;
	for (uint64_t p = 0; p < keys->n_prompts; p++) {
		uint8_t *hashes = keys->hashes + p * keys->chunks * LAT_HASH_BYTES;
		uint64_t state = mix64(mix64(opt->seed) + p);

		due = opt->hit_ratio * (double)((p + 1) * keys->chunks) + 1e-6;
		keys->truth[p] = (uint32_t)((uint64_t)due - hits);
		if (keys->truth[p] > keys->chunks)
			keys->truth[p] = (uint32_t)keys->chunks;
		hits += keys->truth[p];
		fill_hashes(hashes, keys->truth[p], state);
		fill_hashes(hashes + (size_t)keys->truth[p] * LAT_HASH_BYTES, keys->chunks - keys->truth[p],
			    mix64(~state));
	}
	return 0;
}

void
lat_keys_fini(struct lat_keys *keys)
{
	free(keys->hashes);
	free(keys->truth);
	memset(keys, 0, sizeof(*keys));
}

struct lat_storer {
	struct lat *lat;
	struct scout_worker *worker;
	uint8_t *pages;
	int64_t *block_ids;
};

/* Wait for the end of the one job that runs. */
static int
wait_job(struct lat_storer *storer)
{
	uint64_t deadline_us = scout__now_us() + STORE_TIMEOUT_MS * UINT64_C(1000);
	struct pollfd pfd = {.fd = scout_worker_fd(storer->worker), .events = POLLIN};
	struct scout_done done;
	int n;

	for (;;) {
		n = scout_worker_poll(storer->worker, &done, 1);
		if (n < 0)
			return lat_fail(storer->lat, "storing keys: %s", scout_strerror(n));
		if (n > 0)
			break;
		if (lat_is_stopped())
			return 0;
		if (scout__now_us() > deadline_us)
			return lat_fail(storer->lat, "storing keys took more than %d s", STORE_TIMEOUT_MS / 1000);
		(void)poll(&pfd, 1, POLL_MS);
	}
	if (done.status)
		return lat_fail(storer->lat, "storing keys: %s", scout_strerror(done.status));
	if (done.no_room)
		return lat_fail(storer->lat,
				"the server has no room for the keys of %" PRIu64 " prompts (%" PRIu32
				" of %u chunks were refused)",
				storer->lat->keys.n_prompts, done.no_room, STORE_CHUNKS);
	return 0;
}

static int
store_prompt(struct lat_storer *storer, uint64_t prompt)
{
	const struct lat_keys *keys = &storer->lat->keys;
	uint64_t job, n;
	int rc;

	for (uint64_t at = 0; at < keys->truth[prompt] && !lat_is_stopped(); at += n) {
		n = keys->truth[prompt] - at;
		if (n > STORE_CHUNKS)
			n = STORE_CHUNKS;
		struct scout_store store = {
			.hashes = lat_keys_hashes(keys, prompt) + at * LAT_HASH_BYTES,
			.hash_len = LAT_HASH_BYTES,
			.n = n,
			.block_ids = storer->block_ids,
			.n_blocks = n,
			.first_chunk = at,
		};

		rc = scout_worker_store(storer->worker, &store, &job);
		if (rc)
			return lat_fail(storer->lat, "storing keys: %s", scout_strerror(rc));
		if (wait_job(storer))
			return -1;
	}
	return 0;
}

static int
start_worker(struct lat_storer *storer)
{
	struct lat *lat = storer->lat;
	struct scout_plane plane = {.base = storer->pages, .stride = LAT_PAGE_BYTES, .block_bytes = LAT_PAGE_BYTES};
	struct scout_layout layout = {
		.size = sizeof(layout),
		.block_tokens = LAT_CHUNK_TOKENS,
		.n_planes = 1,
		.planes = &plane,
		.n_blocks = STORE_CHUNKS,
		.null_block = -1,
	};
	struct scout_worker_config cfg;
	char err[LAT_ERR_BYTES] = "";
	int rc;

	scout_worker_config_init(&cfg);
	cfg.endpoint = lat->endpoint;
	cfg.curve_secret_file = lat->opt->keys.secret_file;
	cfg.curve_server_key = lat->opt->keys.server_key;
	cfg.name_space = lat->opt->name_space;
	cfg.chunk_tokens = LAT_CHUNK_TOKENS;
	cfg.hash_bytes = LAT_HASH_BYTES;
	rc = scout_worker_new(&cfg, &storer->worker, err, sizeof(err));
	if (rc)
		return lat_fail(lat, "worker: %s", err[0] ? err : scout_strerror(rc));
	err[0] = '\0';
	rc = scout_worker_register(storer->worker, &layout, LAT_TIMEOUT_MS, err, sizeof(err));
	if (rc)
		return lat_fail(lat, "worker at %s: %s", lat->endpoint, err[0] ? err : scout_strerror(rc));
	return 0;
}

int
lat_keys_store(struct lat *lat)
{
	struct lat_storer storer = {.lat = lat};
	int rc = -1;

	storer.pages = calloc(STORE_CHUNKS, LAT_PAGE_BYTES);
	storer.block_ids = calloc(STORE_CHUNKS, sizeof(*storer.block_ids));
	if (!storer.pages || !storer.block_ids) {
		(void)lat_fail(lat, "out of memory");
		goto out_free;
	}
	for (int64_t i = 0; i < (int64_t)STORE_CHUNKS; i++)
		storer.block_ids[i] = i;
	rc = start_worker(&storer);
	for (uint64_t p = 0; !rc && p < lat->keys.n_prompts && !lat_is_stopped(); p++)
		rc = store_prompt(&storer, p);
	scout_worker_free(storer.worker);
out_free:
	free(storer.pages);
	free(storer.block_ids);
	return rc;
}
