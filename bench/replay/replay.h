/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "engine.h"
#include "oracle.h"
#include "probe.h"
#include "settings.h"
#include "trace.h"

/* Between the files of kvscout-replay: what is replayed, and what came of it. Main thread. */

#define REPLAY_TOOL "kvscout-replay"
#define REPLAY_ERR_LEN 512

struct replay_options {
	const char *trace;
	const char *eviction;
	const char *hints;
	double recall, false_alarms; /* of the hints, in percent */
	uint64_t seed;
	struct cli_list l2_urls; /* as given */
	char *l2;                /* all of them as the server's key; NULL: none */
	const char *json;
	const char *endpoint;
	struct keys_option keys;
	struct settings settings;
	uint64_t l1_blocks;
	uint64_t limit;
	uint64_t block_bytes;
	uint64_t kv_ranks;
};

struct replay {
	const struct replay_options *opt;
	struct trace *trace;
	struct oracle_hints hints; /* n 0: none */
	struct engine *engine;
	struct probe *probe;
	int64_t *pages; /* all of the engine's */
	uint64_t n_pages;
	uint8_t *hashes; /* of the request that is replayed */
	size_t hashes_cap;
	struct engine_transfer transfer;
	char name_space[64];

	uint64_t requests;
	uint64_t blocks;
	uint64_t hit_blocks;
	uint64_t l2_hit_blocks;
	bool has_l2; /* the server has L2 */
	uint64_t evicted_before;
	uint64_t evicted;
	bool has_ceiling;
	uint64_t ceiling_blocks,
		endless_blocks; /* that a cache without end would hit: the server's estimate; counted */
	uint64_t start_ns;
	uint64_t next_progress_ns;
	uint64_t wall_ns;
	char err[REPLAY_ERR_LEN];
};

/* 0 to 1 */
double replay_hit_ratio(const struct replay *replay);
/* The results as text, and as JSON where that is asked for. Returns the exit status. */
int replay_report(const struct replay *replay, bool interrupted);
