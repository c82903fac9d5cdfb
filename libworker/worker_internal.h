/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "job.h"
#include "worker_config.h"
#include "worker_state.h"

/* What the files of the worker's public calls share. */

_Static_assert(SCOUT__MAX_JOBS <= SCOUT__SLOT_MASK + 1, "a job's number has room for each slot");

/* Push a word other than a job's number: worker.c has made room in the ring for each of them. */
static inline void
scout__worker_post(struct scout_worker *w, uint64_t word)
{
	bool pushed = scout__courier_push(w->courier, word);

	SCOUT_ASSERT(pushed);
	(void)scout__courier_ring(w->courier);
}

/* The same for a word that is in the ring at most once: @queued is true from here until the courier takes the word off. */
static inline void
scout__worker_post_once(struct scout_worker *w, atomic_bool *queued, uint64_t word)
{
	if (!atomic_exchange(queued, true))
		scout__worker_post(w, word);
}

/* worker_courier.c */
extern const struct scout__courier_ops scout__worker_courier_ops;

/* worker_register.c */
void scout__worker_on_register(struct scout_worker *w) SCOUT_ON_COURIER;
void scout__worker_on_forget(struct scout_worker *w) SCOUT_ON_COURIER;
/* The answer to REGISTER number @attempt; @op NULL: the connection was lost. */
void scout__worker_on_registered(struct scout_worker *w, uint64_t attempt, const struct scout__op *op) SCOUT_ON_COURIER;
/* The connection is refused, or lost. */
void scout__worker_register_down(struct scout_worker *w, int error, const char *text) SCOUT_ON_COURIER;
/* The server of this connection has our registration. */
bool scout__worker_is_registered(const struct scout_worker *w) SCOUT_ON_COURIER;
/* Register, if it is time to; end the jobs that wait for a registration that was refused. */
void scout__worker_register_pump(struct scout_worker *w, uint64_t now_us) SCOUT_ON_COURIER;
/* When scout__worker_register_pump() has something to do. */
uint64_t scout__worker_register_next(struct scout_worker *w) SCOUT_ON_COURIER;

/*
 * worker_layout.c. Each returns 0 or a code of scout_worker_register(), with a sentence in @err. @n_tables: 1 to the number of
 * groups.
 */
int scout__worker_check_tables(const struct scout_worker *w, const struct scout_table *tables, size_t n_tables,
			       char *err, size_t err_len) SCOUT_ON_CALLER;
/* Copy what the tables say. Also after an error the caller drops them. */
int scout__worker_take_tables(struct scout_worker *w, const struct scout_table *tables, size_t n_tables, char *err,
			      size_t err_len) SCOUT_ON_CALLER;
/* Open the copy engine on the layout; its threads run on the node of the pages if `cpus` is auto. */
int scout__worker_open_engine(struct scout_worker *w, char *err, size_t err_len) SCOUT_ON_CALLER;
/* Close the engine and forget the layout. */
void scout__worker_drop_layout(struct scout_worker *w) SCOUT_ON_CALLER;

/* worker_live.c: the live job of that number, or NULL. */
struct scout__job *scout__worker_find_job(struct scout_worker *w, uint64_t id) SCOUT_ON_CALLER;
/* Drop a job: no copy of it starts any more; a running one stops where it can. The courier ends the job soon. */
void scout__worker_drop(struct scout_worker *w, struct scout__job *job) SCOUT_ON_CALLER;
/* Drop all present jobs: none of their copies starts any more. */
void scout__worker_drop_all(struct scout_worker *w) SCOUT_ON_CALLER;
/* The job of the next group of the same call, or NULL. */
struct scout__job *scout__worker_next_group(const struct scout_worker *w, const struct scout__job *job) SCOUT_ON_CALLER;
/* Return when no copy of the job runs; if the job was dropped before, none starts any more. */
void scout__worker_wait_copy(struct scout_worker *w, struct scout__job *job) SCOUT_ON_CALLER;
/* 0, SCOUT_ERR_INVALID (no ids) or SCOUT_ERR_BLOCK_ID (one is outside the pages). */
int scout__worker_check_ids(const struct scout__table *table, const int64_t *ids, size_t n) SCOUT_ON_CALLER;
/* The table of a group, or NULL. */
struct scout__table *scout__worker_table_of(const struct scout_worker *w, uint32_t group) SCOUT_ON_CALLER;
/* @by 1: the job is now live, and counts for each block that it names; -1: it no longer is. */
void scout__worker_count_uses(struct scout_worker *w, const struct scout__job_data *data, int32_t by) SCOUT_ON_CALLER;

/* worker_job.c */

struct scout__job_shape {
	int kind;
	uint32_t n_groups;
	uint32_t n_chunks; /* of all groups */
	uint32_t n_grants; /* at once */
	size_t n_ids;      /* blocks of all chunks */
	size_t n_blocks;   /* retrieve: blocks of its range, for the missing list */
	size_t hash_bytes; /* of all hashes */
	size_t tenant_len;
	uint32_t n_layers;
	bool has_events;          /* one for each layer */
	size_t description_bytes; /* store: of all, as they are sent; 0: none */
};

/* One allocation for the job and the arrays that its kind needs; NULL: no memory. */
struct scout__job_data *scout__job_data_new(const struct scout_worker *w,
					    const struct scout__job_shape *shape) SCOUT_ON_CALLER;
/*
 * Hand a job to the courier. Takes @data, unless it returns NULL: the courier's ring is full. @timeout_ms 0: the configured one.
 */
struct scout__job *scout__job_submit(struct scout_worker *w, struct scout__job_data *data,
				     uint32_t timeout_ms) SCOUT_ON_CALLER;

/* worker_weights.c */

/* What ended a job that is outdated: SCOUT_ERR_WEIGHTS or SCOUT_ERR_CLEARED. */
int scout__worker_outdated_by(const struct scout_worker *w, const struct scout__job_data *data) SCOUT_ON_CALLER;
/* Set what poll reports of an ended job that is outdated. */
void scout__worker_outdate(const struct scout_worker *w, struct scout__job_data *data) SCOUT_ON_CALLER;
void scout__worker_on_reset(struct scout_worker *w) SCOUT_ON_COURIER;
/* A connection of this worker is up: it has said HELLO. */
void scout__worker_adopt_up(struct scout_worker *w) SCOUT_ON_COURIER;
/* Ask for our version, if it is time to. */
void scout__worker_adopt(struct scout_worker *w) SCOUT_ON_COURIER;
/* The answer; @op NULL: the connection went. */
void scout__worker_adopt_answer(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;
/* Whether a connection that is refused with @error will do better, because the next HELLO says something else. */
bool scout__worker_adopt_mends(const struct scout_worker *w, int error) SCOUT_ON_COURIER;

/* worker_stats.c: count what poll reports. */
void scout__worker_count_submit(struct scout_worker *w, int kind) SCOUT_ON_CALLER;
void scout__worker_count_end(struct scout_worker *w, const struct scout__job_data *data,
			     const struct scout_done *done) SCOUT_ON_CALLER;

/* worker_poll.c: free the memory of the remaining jobs. After the courier was joined. */
void scout__worker_free_jobs(struct scout_worker *w);

/* worker_clear.c */
void scout__worker_on_clear(struct scout_worker *w) SCOUT_ON_COURIER;
/* Send CLEAR, if one is due. */
void scout__worker_clear_up(struct scout_worker *w) SCOUT_ON_COURIER;
void scout__worker_clear_pump(struct scout_worker *w) SCOUT_ON_COURIER;
/* The answer; @op NULL: the connection went. */
void scout__worker_clear_answer(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;
/* The answer to a HELLO that asks which clear the server has; @op NULL: the connection was lost. */
void scout__worker_clear_looked(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;
