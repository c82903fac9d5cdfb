/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_CLIENT_STATS_H
#define KVSCOUT_CLIENT_STATS_H

/*
 * What a client counts. Comes with <kvscout/client.h>.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/client_sized.h>
#include <kvscout/error.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_client;

/* Counters since scout_client_new(). */
struct scout_client_counters {
	uint64_t servers_up; /* endpoints that answer now */
	/* Lookups asked for the first time, or anew (after an admit, a restart of the server, or with fewer
	   computed_tokens); not lookups with n = 0. Each has an answer, was dropped, or is pending: lookups = answers +
	   dropped + pending ones. */
	uint64_t lookups;
	/* With an answer, for any reason: the next four counters; the rest are misses. */
	uint64_t answers;
	uint64_t hits; /* with at least one chunk */
	uint64_t timeouts;
	uint64_t unreachable; /* also lookups that were answered at once because a server was known to be away */
	uint64_t refused;
	uint64_t late;    /* answers that came after their lookup had ended; given back */
	uint64_t not_yet; /* asks that found no answer yet, the submitting one included */
	uint64_t busy;    /* times SCOUT_ERR_BUSY was returned */
	uint64_t rings;   /* doorbell writes by the caller */
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t reconnects; /* HELLOs accepted after the first, all endpoints */
	uint64_t epochs;     /* server restarts seen */
	uint64_t protocol_errors;
	uint64_t hit_tokens;
	uint64_t asked_tokens;   /* prompt tokens of all lookups */
	uint64_t live;           /* request ids known now */
	uint64_t renewals;       /* old answers that were renewed */
	uint64_t renewed;        /* renewed answers that were longer when they were asked for again */
	uint64_t dropped;        /* lookups that were finished, or ended by a reset, before they had an answer */
	uint64_t asked_keys;     /* in questions of scout_lookup_keys(), which count as lookups, too */
	uint64_t hit_keys;       /* of them, hits */
	uint64_t servers_untold; /* servers that are still to answer the last scout_reset() or scout_clear() */
	uint64_t stores_behind;  /* L2 stores that had not recorded the last clear when their servers answered it */
	/* What became of keep_ms of scout_finish_keep(), by the answer of each server: all of it is kept, the beginning
	   or for a shorter time, nothing because there is no room, nothing because the server had nothing of the request. */
	uint64_t keeps_accepted;
	uint64_t keeps_clipped;
	uint64_t keeps_rejected;
	uint64_t keeps_missing;
	uint64_t kept_tokens; /* tokens that these answers name, keys as one hash_tokens each */
};

/**
 * Read the counters.
 *
 * Thread:   the caller's.
 * Blocks:   no.
 * Returns:  0, SCOUT_ERR_INVALID (NULL), SCOUT_ERR_UNSUPPORTED (structure size).
 */
static inline SCOUT_MUST_CHECK int
scout_client_stats(struct scout_client *client, struct scout_client_counters *ret_counters)
{
	return scout_client_stats_sized(client, ret_counters, sizeof(*ret_counters));
}

#ifdef __cplusplus
}
#endif

#endif
