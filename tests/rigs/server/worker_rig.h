/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "clock.h"
#include "waiting.h"
#include "worker_pages.h"

/*
 * A server in a process of its own (so that it can be stopped and killed), one scheduler's client, and some workers
 * with pages of host memory.
 */

#define RIG_MAX_WORKERS 4
#define RIG_SERVERS 2      /* starts of the server in one test */
#define RIG_GONE_US 300000 /* a server that stood still for longer may have been taken for gone */

/* A process that becomes a server when it reads a byte from go_fd, and writes one to ready_fd when it serves. */
struct rig_process {
	pid_t pid; /* 0: none */
	int go_fd;
	int ready_fd;
};

struct rig {
	pid_t server; /* of the one that runs; 0: none */
	struct rig_process spare[RIG_SERVERS];
	uint32_t n_started;
	char folder[64];
	char endpoint[128];
	uint64_t l1_bytes, extent_bytes;
	uint32_t prealloc;
	struct scout_client *client;
	uint32_t chunk_tokens, block_tokens, bpc;
	uint32_t kv_ranks, readers, n_workers;
	uint32_t max_jobs, transfer_timeout_ms, heartbeat_ms;
	uint64_t weights; /* of clients and workers that are made from now on */
	struct scout_worker *workers[RIG_MAX_WORKERS];
	struct rig_pages pages[RIG_MAX_WORKERS];
	unsigned next_id;
};

/* ---- the server ---- */

void rig_server_start(struct rig *rig);
void rig_server_end(struct rig *rig, int sig);

/* The server's process stands still from the return on. */
void rig_server_freeze(struct rig *rig);
void rig_server_thaw(struct rig *rig);

/* ---- client and workers ---- */

/* How they talk to the server: the default, or the socket, when the same tests run once more for it. */
uint32_t rig_transport(void);
void rig_client_start(struct rig *rig);
void rig_log(void *user, int level, const char *text);
void rig_worker_config(const struct rig *rig, uint32_t i, struct scout_worker_config *cfg);
void rig_table(const struct rig *rig, const struct rig_pages *pages, struct scout_table *layout);
struct scout_worker *rig_worker_new(const struct rig *rig, uint32_t i);
void rig_worker_start(struct rig *rig, uint32_t i);

/* The defaults: one worker, chunks of 4 blocks, 2 planes of odd sizes. */
void rig_init(struct rig *rig);

/* Everything but the workers. */
void rig_start_server(struct rig *rig);
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);

/* ---- requests ---- */

/* The next job that ends. Its missing list is as poll lends it. */
struct scout_done rig_wait(struct scout_worker *worker, uint64_t job);
/* Wait until its copy has been given to the engine, or so many of its layers. */
void rig_wait_enqueued(const struct scout_worker *worker, uint64_t job);
void rig_wait_layers(struct scout_worker *worker, uint64_t job, uint32_t enqueued);
bool rig_is_readable(struct scout_worker *worker);
uint64_t rig_store(struct rig *rig, uint32_t w, uint32_t prompt, size_t n, int64_t first_id);

/* Store until a job ends as @status: a worker that lost its server finds it, or the next one, by itself. */
struct scout_done rig_store_until(struct rig *rig, uint32_t w, uint32_t prompt, size_t n, int64_t first_id, int status);

/* Store from every worker's pages, and see that it is all there. */
void rig_store_all(struct rig *rig, uint32_t prompt, size_t n, int64_t first_id);

/* Look @n chunks of @prompt up. */
struct scout_hit rig_lookup(struct rig *rig, uint32_t prompt, size_t n, char id[32]);
uint64_t rig_retrieve(struct rig *rig, uint32_t w, uint64_t ticket, uint64_t from_block, const int64_t *ids, size_t n,
		      size_t skip);
