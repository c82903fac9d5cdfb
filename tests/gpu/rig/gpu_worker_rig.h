/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A server in a process of its own, a scheduler's client, and a worker or two with pages in a GPU's memory. A page's bytes follow from
 * (prompt, rank, block of the prompt, plane, offset); whatever is not a page that was filled holds CANARY.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "clock.h"
#include "gpu_driver.h"
#include "gpu_test.h"

#define DEADLINE_MS 30000
#define CANARY 0xa5
#define HASH 32
#define N_PLANES 3
#define N_PAGES 400
#define CHUNK_TOKENS 64
#define BLOCK_TOKENS 16
#define BPC (CHUNK_TOKENS / BLOCK_TOKENS)
#define CHUNKS 5
#define BLOCKS (CHUNKS * BPC)
#define READY_FD 3

extern const char *const methods[];
extern const uint32_t two_layers[2];

/* One worker's. */
struct engine {
	struct scout_worker *worker;
	struct scout_plane planes[N_PLANES];
};

struct gpu_rig {
	pid_t server;
	char folder[64], endpoint[128];
	struct scout_client *client;
	const char *group; /* key of client and workers; NULL: one group */
	uint32_t ranks;
	struct engine engines[3];
	uint64_t seed;
	unsigned next_id;
};

extern struct gpu_rig rig;
uint64_t below(uint64_t n);

/* ---- the server ---- */

int server_main(const char *endpoint);
void server_start(void);
void server_end(int sig);

/* ---- pages ---- */

/* What block @block of @prompt holds in plane @p of rank @rank. */
void bytes_of(uint8_t *to, uint32_t prompt, uint32_t rank, uint64_t block, uint32_t p, uint64_t n);
uint8_t *page_at(const struct engine *engine, uint32_t p, int64_t id);
void fill(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block);
bool plane_is(uint32_t rank, uint32_t p, int64_t id, uint32_t prompt, uint64_t block);
bool page_is(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block);

/* Whether all of a page, and the gap behind it, is @value. */
bool page_holds(uint32_t rank, int64_t id, uint8_t value);
void pages_wipe(uint32_t rank);
void pages_init(uint32_t rank, void *(*alloc)(uint64_t bytes));

/* ---- client and workers ---- */

struct scout_worker *worker_new(uint32_t rank, const char *backend, const char *method);
void worker_register(uint32_t rank);
void start_server_and_client(void);

/* All of it, with a worker for each rank. */
void start(const char *backend, const char *method, void *(*alloc)(uint64_t bytes));
void end(void);

/* ---- requests ---- */

void hashes_of(uint8_t *hashes, uint32_t prompt);

/* BLOCKS ids from @first on, @step apart. */
void ids_from(int64_t *ids, int64_t first, int64_t step);
struct scout_done wait_done(uint32_t rank, uint64_t job);
uint64_t submit_store(uint32_t rank, uint32_t prompt, const int64_t *ids, struct scout_store store);

/* Fill pages with @prompt and store them, on all ranks. */
void store_all(uint32_t prompt, int64_t first);
struct scout_hit look_up(uint32_t prompt);
uint64_t submit_retrieve(uint32_t rank, uint64_t ticket, const int64_t *ids, struct scout_retrieve retrieve);

/* All blocks but those that are named as missing are in their pages. */
void require_filled(uint32_t rank, uint32_t prompt, const int64_t *ids, const struct scout_done *done);
void retrieve_all(uint32_t prompt, int64_t first, int64_t step);
