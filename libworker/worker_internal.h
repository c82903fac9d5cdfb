/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_WORKER_INTERNAL_H
#define SCOUT_WORKER_INTERNAL_H

#include "job.h"
#include "worker_config.h"
#include "worker_state.h"

/* What the files of the worker's public calls have of each other. */

_Static_assert(SCOUT__MAX_JOBS <= SCOUT__SLOT_MASK + 1, "a job's number has room for each slot");

/* Push a word other than a job's number: worker.c has made room in the ring for each of them. */
static inline void
scout__worker_post(struct scout_worker *w, uint64_t word)
{
	bool pushed = scout__courier_push(w->courier, word);

	SCOUT_ASSERT(pushed);
	(void)scout__courier_ring(w->courier);
}

/* The same for a word that is in the ring once at most: @queued is true from here until the courier takes it off. */
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
/* The answer to REGISTER number @attempt; @op NULL: the connection went. */
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
/* Open the copy engine on the layout; its threads on the node of the pages, where `cpus` says auto. */
int scout__worker_open_engine(struct scout_worker *w, char *err, size_t err_len) SCOUT_ON_CALLER;
/* Close the engine and forget the layout. */
void scout__worker_drop_layout(struct scout_worker *w) SCOUT_ON_CALLER;

/* worker_live.c: the live job of that number, or NULL. */
struct scout__job *scout__worker_find_job(struct scout_worker *w, uint64_t id) SCOUT_ON_CALLER;
/* No copy of the job starts any more; one that runs stops where it can. The courier ends the job soon. */
void scout__worker_drop(struct scout_worker *w, struct scout__job *job) SCOUT_ON_CALLER;
/* No copy of any job that we have now starts any more. */
void scout__worker_drop_all(struct scout_worker *w) SCOUT_ON_CALLER;
/* The job of the next group of the same call, or NULL. */
struct scout__job *scout__worker_next_group(const struct scout_worker *w, const struct scout__job *job) SCOUT_ON_CALLER;
/* Return when no copy of the job runs; none starts any more where it was dropped before. */
void scout__worker_wait_copy(struct scout_worker *w, struct scout__job *job) SCOUT_ON_CALLER;
/* 0, SCOUT_ERR_INVALID (no ids) or SCOUT_ERR_BLOCK_ID (one is outside the pages). */
int scout__worker_check_ids(const struct scout__table *table, const int64_t *ids, size_t n) SCOUT_ON_CALLER;
/* The table of a group, or NULL. */
struct scout__table *scout__worker_table_of(const struct scout_worker *w, uint32_t group) SCOUT_ON_CALLER;
/* @by 1: the job is live, it counts for each block that it names; -1: it is not any more. */
void scout__worker_count_uses(struct scout_worker *w, const struct scout__job_data *data, int32_t by) SCOUT_ON_CALLER;

/* worker_job.c */

struct scout__job_shape {
	int kind;
	uint32_t n_groups;
	uint32_t n_chunks; /* of all groups */
	uint32_t n_grants; /* at once */
	size_t n_ids;      /* blocks of all chunks */
	size_t n_blocks;   /* retrieve: of its range, for the missing list */
	size_t hash_bytes; /* of all hashes */
	size_t tenant_len;
	uint32_t n_layers;
	bool has_events; /* one for each layer */
};

/* One allocation for the job and all its arrays, only those that its kind needs; NULL: no memory. */
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
/* What poll reports of a job that has ended, and is outdated. */
void scout__worker_outdate(const struct scout_worker *w, struct scout__job_data *data) SCOUT_ON_CALLER;
void scout__worker_on_reset(struct scout_worker *w) SCOUT_ON_COURIER;
/* A connection of this worker is up: it has said HELLO. */
void scout__worker_adopt_up(struct scout_worker *w) SCOUT_ON_COURIER;
/* Ask for our version, if it is time to. */
void scout__worker_adopt(struct scout_worker *w) SCOUT_ON_COURIER;
/* The answer; @op NULL: the connection went. */
void scout__worker_adopt_answer(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;
/* A connection is refused with @error, but the next HELLO says something else. */
bool scout__worker_adopt_mends(const struct scout_worker *w, int error) SCOUT_ON_COURIER;

/* worker_stats.c: what poll reports is counted. */
void scout__worker_count_submit(struct scout_worker *w, int kind) SCOUT_ON_CALLER;
void scout__worker_count_end(struct scout_worker *w, const struct scout__job_data *data,
			     const struct scout_done *done) SCOUT_ON_CALLER;

/* worker_poll.c: free what the jobs still have. After the courier was joined. */
void scout__worker_free_jobs(struct scout_worker *w);

/* worker_clear.c */
void scout__worker_on_clear(struct scout_worker *w) SCOUT_ON_COURIER;
/* Send CLEAR, if there is one to be sent. */
void scout__worker_clear_up(struct scout_worker *w) SCOUT_ON_COURIER;
void scout__worker_clear_pump(struct scout_worker *w) SCOUT_ON_COURIER;
/* The answer; @op NULL: the connection went. */
void scout__worker_clear_answer(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;
/* The answer to a HELLO that asks which clear the server has; @op NULL: the connection went. */
void scout__worker_clear_looked(struct scout_worker *w, const struct scout__op *op) SCOUT_ON_COURIER;

#endif
