/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_CLIENT_KEYS_H
#define KVSCOUT_CLIENT_KEYS_H

/*
 * Objects by themselves: which of these (group, hash) pairs are cached? For callers that keep track of single objects,
 * such as a tier below an engine's own cache. Comes with <kvscout/client.h>, whose words and rules hold here too.
 *
 * A question has an id of its own, like a lookup, and ends with scout_finish(). Promises last until then:
 * scout_admit() is for lookups of prompts.
 *
 * A worker's retrieve loads hits by their place: the i-th key of a group, counted from 0 among the keys of this group
 * and in their order, stands for the tokens from i * unit_tokens to (i + 1) * unit_tokens. So for key i of a model with
 * one group, from_token is i * unit_tokens. For keys that should not be loaded, give null block ids; keys in the range
 * that are no hits are reported as missing.
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

#define SCOUT_KEYS_MAX 16384u /* in one question */

/* What is known of one key. */
enum scout_key_state {
	SCOUT_KEY_MISS = 0, /* not there: a server has looked and does not have it */
	SCOUT_KEY_HIT = 1,  /* all servers have it on all of their KV ranks, and promise it */
	/* Not known: no answer in time, a server that is away, max_promised, or an L2 that did not answer before the
	   deadline. A later question, after scout_finish(), may know. */
	SCOUT_KEY_RETRY = 2
};

/* One question. All pointers are borrowed for the call; keys are copied by the call that submits. */
struct scout_key_query {
	const char *id;         /* 1..255 bytes, NUL-terminated; not the id of a live request */
	const uint32_t *groups; /* n of them, in any order; NULL: all keys are of group 0 */
	const void *hashes;     /* n hashes of hash_len bytes each: for each key the hash at the end of its object */
	size_t hash_len;        /* 16..32, the configured hash_bytes */
	/* Keys, 1..SCOUT_KEYS_MAX; a key may be named twice. Fewer if they do not fit into half of arena_bytes, or if a
	   group's keys, at unit_tokens / hash_tokens hashes each, are more than 262144 hashes. */
	size_t n;
	const char *tenant;  /* cache salt, at most 255 bytes; NULL = "" */
	uint32_t timeout_ms; /* as in struct scout_query: the deadline is the larger of this and lookup_timeout_ms */
};

/* One answer: hits + misses + retries is n. */
struct scout_key_answer {
	uint64_t ticket; /* for the workers' retrieve; 0: no session */
	uint32_t hits;
	uint32_t misses;
	uint32_t retries;
	uint32_t l2_hits; /* of the hits: in L2 only. With several servers: at the one that has most there */
	/* enum scout_reason: `hit`, at least one; `limited`, keys are to be retried because max_promised is reached;
	   `timeout`, no hit, and keys are to be retried because the servers had no time for them; `miss`, misses only.
	   If @error is not 0, all n keys are to be retried. */
	int reason;
	int error;    /* 0, or the SCOUT_ERR_* that explains unreachable, refused and timeout */
	int endpoint; /* index of the endpoint that was unreachable or refused, else -1 */
};

/**
 * Ask for keys, or ask again: the first call for an id queues the question, later calls read one slot. The answer stays
 * the same until scout_finish(), with one exception: after a restart of a server the next call is SCOUT_NOT_YET, with a
 * new ticket and a new deadline. The answer is not renewed while the request waits. One question for the keys of a
 * whole step costs one message; inside a step it is sent at the step's end, and scout_step_wait() waits for its answer.
 *
 * @query       borrowed for the call.
 * @ret_states  room for n bytes, one for each key in the order of the query: enum scout_key_state. Written when 0 is
 *              returned.
 * @ret_answer  written when 0 is returned; may be NULL.
 *
 * Thread:   the caller's.
 * Blocks:   never, also with lookup_mode=polled. No lock, no allocation; no system call while the answer is pending.
 * Returns:  0 (answered), SCOUT_NOT_YET, or SCOUT_ERR_INVALID (no pointer; timeout_ms), SCOUT_ERR_KEY_COUNT (no keys,
 *           or too many), SCOUT_ERR_GROUP (a group that the key `group` does not name), SCOUT_ERR_UNSUPPORTED
 *           (structure size), SCOUT_ERR_REQUEST_ID (no id, an empty or too long one), SCOUT_ERR_HASH_LEN,
 *           SCOUT_ERR_TENANT, SCOUT_ERR_STATE (the id belongs to a live request, or to other keys), SCOUT_ERR_BUSY
 *           (slots or arena full), SCOUT_ERR_FORKED. On an error nothing is written and nothing was asked.
 */
static inline SCOUT_MUST_CHECK int
scout_lookup_keys(struct scout_client *client, const struct scout_key_query *query, uint8_t *ret_states,
		  struct scout_key_answer *ret_answer)
{
	return scout_lookup_keys_sized(client, query, sizeof(*query), ret_states, ret_answer, sizeof(*ret_answer));
}

#ifdef __cplusplus
}
#endif

#endif
