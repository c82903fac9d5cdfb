/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "hist.h"
#include "probe.h"
#include "workload.h"

/* The scheduler loop of the demo: what an engine does around kvscout, step by step. One thread. */

#define DEMO_MAX_WAITING 32u
#define DEMO_MAX_RUNNING 64u
#define DEMO_STEP_CHUNKS 32u /* that one step can compute: an engine's token budget */
#define DEMO_ERR_LEN 512

enum demo_state {
	DEMO_WAITING = 1, /* being asked about, every step */
	DEMO_LOADING,     /* its hit is being retrieved */
	DEMO_COMPUTING,   /* the rest is being computed, some chunks a step */
	DEMO_STORING      /* what was computed is being stored */
};

struct demo_job {
	enum demo_state state;
	struct workload_request request;
	char id[32];
	bool is_new; /* never asked about */
	bool answered;
	uint64_t not_yet; /* steps that said so */
	struct scout_hit hit;
	uint32_t computed;   /* leading chunks whose KV is in the pages */
	uint32_t store_from; /* chunks from here on are stored in the end */
	int64_t *pages;
	struct engine_transfer transfer;
};

struct demo_stats {
	uint64_t finished;
	uint64_t prompt_tokens;
	uint64_t hit_tokens;
	uint64_t answers;
	uint64_t unanswered; /* ended by timeout, refusal or an unreachable server: computed without the cache */
	int lookup_error;    /* of the last of them */
	uint64_t not_yet;    /* answers that were not there at the first ask */
	uint64_t page_waits; /* steps in which an answered request found no free pages and was asked about again */
	uint64_t asked_ns;   /* sum of asking_ns */
	uint64_t blocking_ns_sum;
	struct scout__hist not_yet_steps; /* of those answers: steps until the answer */
	struct scout__hist asking_ns;     /* per step with a question */
	struct scout__hist blocking_ns;   /* per step with a new question: the same questions as blocking round trips */
	struct scout__hist round_trip_ns; /* each of these round trips */
};

struct demo {
	struct workload *workload;
	struct engine *engine;
	struct probe *probe;
	uint64_t pages; /* of each KV rank */
	uint64_t step;
	struct demo_job *waiting[DEMO_MAX_WAITING]; /* in the order of arrival */
	struct demo_job *running[DEMO_MAX_RUNNING]; /* in the order of admission */
	uint32_t n_waiting;
	uint32_t n_running;
	struct demo_stats stats;
	char err[DEMO_ERR_LEN];
};

/* One step of the loop, without its pause. Returns 0 or SCOUT_ERR_*, with a sentence in demo->err. */
int demo_step(struct demo *demo);
/* Nothing is left to do. */
bool demo_is_over(const struct demo *demo);
/* Frees the jobs that are left; the engine has been stopped. */
void demo_drop_jobs(struct demo *demo);
