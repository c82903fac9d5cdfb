/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include "sized.h"

#include <string.h>

/*
 * DESIGN
 *
 * Purpose: counts what a worker has done. Jobs are counted on the caller's thread, where they are submitted and where
 * poll reports them; so the counters need no atomics, and submitted = live + ended at any time. The courier's counts
 * are read on request.
 */

void
scout__worker_count_submit(struct scout_worker *w, int kind)
{
	w->stats.stores += kind == SCOUT_JOB_STORE;
	w->stats.retrieves += kind == SCOUT_JOB_RETRIEVE;
	w->stats.verifies += kind == SCOUT_JOB_VERIFY;
}

/* The counter of how a job ended. */
static uint64_t *
end_of(struct scout_worker_counters *s, int kind, int status)
{
	bool is_store = kind == SCOUT_JOB_STORE;

	if (kind == SCOUT_JOB_VERIFY)
		return status && status != SCOUT_ERR_MISSING ? &s->verifies_failed : &s->verifies_ok;
	switch (status) {
	case 0:
		return is_store ? &s->stores_ok : &s->retrieves_ok;
	case SCOUT_ERR_MISSING:
		return &s->retrieves_missing; /* of retrieves only */
	case SCOUT_ERR_TIMEOUT:
		return is_store ? &s->stores_timeout : &s->retrieves_timeout;
	case SCOUT_ERR_CANCELED:
	case SCOUT_ERR_CLOSED:
		return is_store ? &s->stores_canceled : &s->retrieves_canceled;
	case SCOUT_ERR_UNREACHABLE:
	case SCOUT_ERR_EPOCH:
		return is_store ? &s->stores_unreachable : &s->retrieves_unreachable;
	case SCOUT_ERR_DEVICE:
	case SCOUT_ERR_CORRUPT:
		return is_store ? &s->stores_failed : &s->retrieves_failed;
	default:
		return is_store ? &s->stores_refused : &s->retrieves_refused;
	}
}

void
scout__worker_count_end(struct scout_worker *w, const struct scout__job_data *data, const struct scout_done *done)
{
	struct scout_worker_counters *s = &w->stats;

	(*end_of(s, done->kind, done->status))++;
	if (done->kind == SCOUT_JOB_STORE) {
		s->stored_chunks += done->chunks;
		s->stored_bytes += done->bytes;
		s->present_chunks += done->present;
		s->no_room_chunks += done->no_room;
		s->null_chunks += done->null_chunks;
		s->store_queued_us += done->queued_us;
		s->store_server_us += done->server_us;
		s->store_copy_us += done->copy_us;
		s->store_total_us += done->total_us;
		return;
	}
	s->mismatches += data->mismatches;
	if (done->kind == SCOUT_JOB_VERIFY) {
		s->verified_chunks += done->chunks;
		s->mismatched_chunks += done->mismatched;
		return;
	}
	s->retrieved_chunks += done->chunks;
	s->retrieved_bytes += done->bytes;
	s->missing_blocks += done->n_missing;
	s->retrieve_queued_us += done->queued_us;
	s->retrieve_server_us += done->server_us;
	s->retrieve_copy_us += done->copy_us;
	s->retrieve_total_us += done->total_us;
}

int
scout_worker_stats_sized(struct scout_worker *w, struct scout_worker_counters *ret_counters, size_t size)
{
	const struct scout__courier_stats *courier;
	struct scout_worker_counters own;
	int rc;

	if (!w || !ret_counters)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_worker_counters, protocol_errors), size);
	if (rc)
		return rc;
	courier = scout__courier_counts(w->courier);
	own = w->stats;
	own.live = w->n_live - w->n_led;
	own.server_up = atomic_load(&w->is_up);
	own.registered = atomic_load(&w->is_registered);
	own.frames_sent = atomic_load_explicit(&courier->frames_sent, memory_order_relaxed);
	own.frames_received = atomic_load_explicit(&courier->frames_received, memory_order_relaxed);
	own.reconnects = atomic_load_explicit(&courier->reconnects, memory_order_relaxed);
	own.epochs = atomic_load_explicit(&courier->epochs, memory_order_relaxed);
	own.protocol_errors = atomic_load_explicit(&courier->protocol_errors, memory_order_relaxed);
	scout__sized_write(ret_counters, size, &own, sizeof(own));
	return 0;
}
