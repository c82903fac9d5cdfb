/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "kvmem.h"
#include "probe.h"
#include "settings.h"

/* The parts of micro_retrieve: its nodes (retrieve_node.c), and what it does with them. */

#define TOOL "micro_retrieve"
#define CHUNK_TOKENS 256u
#define BLOCKS 16u
#define PLANES 32u
#define CHUNK_PIECES (UINT64_C(1) * BLOCKS * PLANES)
#define HASH_BYTES 32u
#define MAX_ROUNDS 64u
#define READY_MS 10000u
#define MODES 3u
#define ERR_BYTES 512u
#define PATIENT_MS 600000u

struct retrieve_options {
	const char *l2;
	const char *folder;
	const char *json;
	struct settings settings;
	unsigned int mode;
	uint64_t chunk_bytes, chunks, rounds, think_us, pages, lookup_timeout_ms, poll_key_ms;
	bool cold;
};

/* A server with a client, a worker and a way to its counters. */
struct retrieve_node {
	struct scout_server *server;
	struct scout_client *client;
	struct scout_worker *worker;
	struct probe *probe;
};

struct retrieve_sample {
	double lookup_ms, retrieve_ms, server_ms, copy_ms, all_ms;
	uint32_t hit, missing;
	int reason; /* enum scout_reason, of the hit */
};

struct micro_retrieve {
	struct retrieve_options opt;
	char url[4096];
	uint8_t *prompts[2];
	int64_t *ids; /* pages of a prompt's blocks */
	struct kvmem mem;
	uint64_t n_blocks, l1_bytes;
	bool verifies;
	uint64_t wrong;
	uint32_t n_incomplete; /* samples */
	uint32_t n_samples[MODES];
	struct retrieve_sample samples[MODES][MAX_ROUNDS];
	char err[ERR_BYTES];
};

/* ---- retrieve_node.c. Nothing here returns after a failure ---- */

/* With what b->err says, or else @rc. */
_Noreturn void retrieve_die(struct micro_retrieve *b, const char *what, int rc);
void retrieve_check(struct micro_retrieve *b, int rc, const char *what);
void retrieve_node_up(struct micro_retrieve *b, struct retrieve_node *node, unsigned mode, uint64_t l1_bytes);
void retrieve_node_down(struct retrieve_node *node);
/* One of the server's counters; 0 where it has none of this name. */
uint64_t retrieve_counter(struct micro_retrieve *b, struct retrieve_node *node, const char *name);
void retrieve_wait_counter(struct micro_retrieve *b, struct retrieve_node *node, const char *name, uint64_t value);
/* Until job @job, the only one, has ended. */
struct scout_done retrieve_wait_job(struct micro_retrieve *b, struct retrieve_node *node, uint64_t job);
