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
#include <stdlib.h>
#include <string.h>

#include <kvscout/worker.h>

#include "key_store.h"
#include "mix.h"

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

int
lat_keys_store(struct lat *lat)
{
	const struct lat_keys *keys = &lat->keys;
	struct key_store store = {.is_stopped = lat_is_stopped};
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
	rc = key_store_open(&store, &cfg, err, sizeof(err));
	for (uint64_t p = 0; rc == 0 && p < keys->n_prompts && !lat_is_stopped(); p++)
		rc = key_store_put(&store, lat_keys_hashes(keys, p), keys->truth[p], err, sizeof(err));
	key_store_close(&store);
	return rc < 0 ? lat_fail(lat, "worker at %s: %s", lat->endpoint, err[0] ? err : scout_strerror(rc)) : 0;
}
