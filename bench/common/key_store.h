/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/worker.h>

/*
 * Makes prompts known to a server, so that lookups hit: a real worker stores them, with pages as small as they can
 * be, because a lookup never touches KV bytes. One thread.
 */
struct key_store {
	struct scout_worker *worker;
	uint8_t *pages;
	int64_t *block_ids;
	size_t hash_len;
	uint32_t chunk_tokens;
	bool (*is_stopped)(void); /* ends waits; NULL: never */
};

/*
 * @cfg as for the worker, with hash_bytes. Returns 0, or SCOUT_ERR_* and a sentence in @err; close it in either case.
 */
int key_store_open(struct key_store *store, const struct scout_worker_config *cfg, char *err, size_t err_len);
/* Store @n leading chunks of one prompt. Returns as key_store_open(); 0 too when stopped. */
int key_store_put(struct key_store *store, const uint8_t *hashes, uint64_t n, char *err, size_t err_len);
void key_store_close(struct key_store *store);
