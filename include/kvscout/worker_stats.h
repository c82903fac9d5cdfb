/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_WORKER_STATS_H
#define KVSCOUT_WORKER_STATS_H

/*
 * What a worker counts. Comes with <kvscout/worker.h>.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/version.h>
#include <kvscout/worker_sized.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_worker;

/* Counters since scout_worker_new(). Each submitted job is live, or is counted in one of the ends of its kind. */
struct scout_worker_counters {
	uint64_t server_up;  /* 1: connected */
	uint64_t registered; /* 1: connected, and the server knows this worker's pages */
	uint64_t live;       /* jobs that poll has not reported */
	uint64_t retrieves;  /* submitted */
	uint64_t stores;
	uint64_t busy; /* times SCOUT_ERR_BUSY was returned */
	/* Ends, as poll reported them. */
	uint64_t retrieves_ok;
	uint64_t retrieves_missing;     /* SCOUT_ERR_MISSING */
	uint64_t retrieves_timeout;     /* SCOUT_ERR_TIMEOUT */
	uint64_t retrieves_canceled;    /* SCOUT_ERR_CANCELED, _CLOSED */
	uint64_t retrieves_unreachable; /* SCOUT_ERR_UNREACHABLE, _EPOCH */
	uint64_t retrieves_refused;     /* SCOUT_ERR_NO_SESSION, _WEIGHTS, _LIMIT and other refusals */
	uint64_t retrieves_failed;      /* SCOUT_ERR_DEVICE, _CORRUPT */
	uint64_t stores_ok;
	uint64_t stores_timeout;
	uint64_t stores_canceled;
	uint64_t stores_unreachable;
	uint64_t stores_refused;
	uint64_t stores_failed;
	/* Sums over the ended jobs, of the fields of struct scout_done. */
	uint64_t retrieved_chunks;
	uint64_t retrieved_bytes;
	uint64_t missing_blocks;
	uint64_t mismatches; /* slots that changed under a copy: a bug somewhere; their bytes were not used */
	uint64_t retrieve_queued_us;
	uint64_t retrieve_server_us;
	uint64_t retrieve_copy_us;
	uint64_t retrieve_total_us;
	uint64_t stored_chunks;
	uint64_t stored_bytes;
	uint64_t present_chunks;
	uint64_t no_room_chunks;
	uint64_t null_chunks;
	uint64_t store_queued_us;
	uint64_t store_server_us;
	uint64_t store_copy_us;
	uint64_t store_total_us;
	/* The connection. */
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t reconnects; /* HELLOs accepted after the first */
	uint64_t epochs;     /* server restarts seen */
	uint64_t protocol_errors;
	/* Verifications. */
	uint64_t verifies;          /* submitted */
	uint64_t verifies_ok;       /* ended with status 0 or SCOUT_ERR_MISSING */
	uint64_t verifies_failed;   /* ended otherwise */
	uint64_t verified_chunks;   /* compared */
	uint64_t mismatched_chunks; /* of these: differ */
};

/**
 * Read the counters.
 *
 * Thread:   the caller's.
 * Blocks:   no.
 * Returns:  0, SCOUT_ERR_INVALID (NULL), SCOUT_ERR_UNSUPPORTED (structure size).
 */
static inline SCOUT_MUST_CHECK int
scout_worker_stats(struct scout_worker *worker, struct scout_worker_counters *ret_counters)
{
	return scout_worker_stats_sized(worker, ret_counters, sizeof(*ret_counters));
}

#ifdef __cplusplus
}
#endif

#endif
