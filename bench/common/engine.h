/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#include "settings.h"

/*
 * A miniature inference engine for the tools: paged KV memory and a worker for each KV rank, a page allocator, the
 * scheduler's client, and, unless there is an endpoint, an embedded server. "Computing" KV means writing a pattern
 * that follows from (chunk hash, KV rank, plane, block, position), so whatever comes back from the cache can be
 * compared byte for byte with what must be there. One thread uses an engine.
 */

#define ENGINE_HASH_BYTES 32
#define ENGINE_MAX_PLANES 16
#define ENGINE_MAX_RANKS 16

struct engine_config {
	const char *tool;                                 /* prefix of log lines on standard error */
	const char *endpoint;                             /* NULL: start an embedded server */
	const char *curve_secret_file, *curve_server_key; /* for the one at endpoint; NULL: no encryption */
	const char *name_space;
	const char *eviction;            /* embedded server */
	const char *l2;                  /* embedded server: URLs of its L2; NULL: none */
	const struct settings *settings; /* more keys of embedded server and client, set last; NULL: none */
	uint64_t l1_bytes;               /* embedded server */
	uint64_t max_promised;           /* embedded server; 0: its default */
	uint32_t chunk_tokens;
	uint32_t block_tokens;
	uint32_t kv_ranks;
	uint32_t n_planes;
	uint64_t plane_bytes[ENGINE_MAX_PLANES]; /* of one block */
	uint64_t pages;                          /* blocks in every plane */
	uint32_t lookup_mode;                    /* enum scout_lookup_mode: of scout_lookup() */
};

struct engine;

/* Counters since the start, over all KV ranks. */
struct engine_stats {
	uint64_t bytes_retrieved; /* copied pool to pages */
	uint64_t bytes_stored;    /* copied pages to pool */
	uint64_t bytes_verified;  /* retrieved bytes that were compared */
	uint64_t wrong_bytes;     /* of them, and of the guards around the pages */
	uint64_t chunks_stored;   /* that became readable, with all their shards */
	uint64_t chunks_present;  /* of KV rank 0: need not be stored, were there already */
	uint64_t chunks_no_room;  /* of KV rank 0: got no slot */
	uint64_t blocks_missing;  /* promised, and yet not filled: had to be computed again */
	uint64_t jobs_failed;     /* transfers of one rank that ended with another error than missing blocks */
	int job_error;            /* of the last of them */
};

/* One transfer of all KV ranks. Its address must not change until it has ended. */
struct engine_transfer {
	uint32_t pending; /* KV ranks that have not ended; 0: ended */
	int status;       /* 0, SCOUT_ERR_MISSING, or another rank's error */
	size_t n_blocks;
	bool *missing; /* retrieve: n_blocks flags, set where some rank was not filled; the transfer's own */
	size_t missing_cap;
	uint32_t n_missing; /* flags that are set */
};

/*
 * Start everything and wait until client and workers are known to the server. Returns 0 or SCOUT_ERR_*; @err has a
 * sentence.
 */
int engine_start(const struct engine_config *cfg, struct engine **ret_engine, char *err, size_t err_len);
/* Ends running transfers, then stops everything. NULL is ignored. */
void engine_stop(struct engine *engine);

struct scout_client *engine_client(struct engine *engine);
const char *engine_endpoint(const struct engine *engine);
const struct engine_stats *engine_stats(const struct engine *engine);
/* Where the time of one kind of jobs went, over all KV ranks: sums, of jobs that ran side by side. */
struct engine_job_times {
	uint64_t jobs; /* that ended well */
	uint64_t queued_us, server_us, copy_us;
	uint64_t bytes;
};
/* @kind: SCOUT_JOB_RETRIEVE or SCOUT_JOB_STORE. */
struct engine_job_times engine_times(const struct engine *engine, int kind);
uint32_t engine_chunk_blocks(const struct engine *engine);

/* Bytes that one chunk occupies in the pool, over all KV ranks; 0 when the sizes make no sense. */
uint64_t engine_chunk_bytes(const struct engine_config *cfg);

/* Take @n pages; false, and none taken, when there are fewer. The same ids are used by all KV ranks. */
bool engine_pages_take(struct engine *engine, size_t n, int64_t *ret_ids);
void engine_pages_return(struct engine *engine, size_t n, const int64_t *ids);

/*
 * "Compute" the KV of @n chunks into their pages: chunk i of @hashes lies in ids[i * chunk_blocks ...]. @flags: of
 * each block whether to compute it; NULL: all.
 */
void engine_compute(struct engine *engine, const uint8_t *hashes, size_t n, const int64_t *ids, const bool *flags);

/*
 * Start to load chunks [first, first + n) of the session into pages. The pages are first filled with the complement
 * of what must arrive, so that every byte that is not written counts as wrong. Returns 0, or SCOUT_ERR_* when nothing
 * was started (SCOUT_ERR_BUSY: try later).
 */
int engine_retrieve(struct engine *engine, struct engine_transfer *transfer, uint64_t ticket, size_t first,
		    const uint8_t *hashes, size_t n, const int64_t *ids);
/* Compare what a retrieve has brought, all but the missing blocks, and count. Returns the wrong bytes. */
uint64_t engine_verify(struct engine *engine, const struct engine_transfer *transfer, const uint8_t *hashes, size_t n,
		       const int64_t *ids);
/* Start to store @n chunks, the first of which is chunk @first of its prompt. Returns as engine_retrieve(). */
int engine_store(struct engine *engine, struct engine_transfer *transfer, uint64_t ticket, size_t first,
		 const uint8_t *hashes, size_t n, const int64_t *ids);

/* Collect what has ended. Never blocks. Returns how many transfers ended by this, or SCOUT_ERR_*. */
int engine_poll(struct engine *engine);
/* Wait until @transfer has ended, collecting. Returns 0, SCOUT_ERR_TIMEOUT, or another error of the waiting itself. */
int engine_wait(struct engine *engine, const struct engine_transfer *transfer, uint32_t timeout_ms);
/* Free what an ended transfer owns. */
void engine_transfer_fini(struct engine_transfer *transfer);
