/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_WORKER_SIZED_H
#define KVSCOUT_WORKER_SIZED_H

/*
 * What the inline calls of <kvscout/worker.h> call: functions that take the sizes of their structures. That header
 * includes this one. C and C++ use the inline calls. A language that has none calls these, with the sizes of its own
 * copies of the structures. The comment of an inline call holds for its function here, too; the head of client.h
 * says which sizes are legal.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_config_row;
struct scout_done;
struct scout_progress;
struct scout_retrieve;
struct scout_store;
struct scout_table;
struct scout_worker;
struct scout_worker_config;
struct scout_worker_counters;

/* ---- worker.h ---- */

SCOUT_API void scout_worker_config_init_sized(struct scout_worker_config *cfg, uint32_t size);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_config_help_sized(size_t i, struct scout_config_row *ret_row, size_t size);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_register_sized(struct scout_worker *worker,
							   const struct scout_table *tables, size_t n_tables,
							   size_t table_size, size_t plane_size, uint32_t timeout_ms,
							   char *err, size_t err_len);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_retrieve_sized(struct scout_worker *worker,
							   const struct scout_retrieve *retrieve, size_t size,
							   size_t blocks_size, uint64_t *ret_job);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_store_sized(struct scout_worker *worker, const struct scout_store *store,
							size_t size, size_t blocks_size, uint64_t *ret_job);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_verify_sized(struct scout_worker *worker,
							 const struct scout_retrieve *verify, size_t size,
							 size_t blocks_size, uint64_t *ret_job);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_poll_sized(struct scout_worker *worker, struct scout_done *done,
						       size_t done_size, size_t max);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_progress_sized(struct scout_worker *worker, uint64_t job,
							   struct scout_progress *ret_progress, size_t size);

/* ---- worker_stats.h ---- */

SCOUT_API SCOUT_MUST_CHECK int scout_worker_stats_sized(struct scout_worker *worker,
							struct scout_worker_counters *ret_counters, size_t size);

#ifdef __cplusplus
}
#endif

#endif
