/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What is wrong with a question that was refused, for the log: an error code has no room for the field. Only refused questions come
 * here, so the checks are made once more, in the order of client_ask.c. A line at most once in WRONG_LOG_US for each code, because
 * an engine asks in every step.
 *
 * Threads: the caller's.
 */
#include <inttypes.h>

#include <stdio.h>

#include "client_checked.h"

#define WRONG_LOG_US UINT64_C(10000000)

static void
describe(const struct scout_client *client, const struct scout_query *q, char *text, size_t len)
{
	uint32_t hash_tokens = client->cfg.hash_tokens;

	if (q->computed_tokens > q->prompt_tokens)
		(void)snprintf(text, len, "computed_tokens = %" PRIu64 ": must be at most prompt_tokens = %" PRIu64,
			       q->computed_tokens, q->prompt_tokens);
	else if (q->n > 0 && !q->hashes)
		(void)snprintf(text, len, "hashes: is NULL, and n = %zu", q->n);
	else if (q->from_token % hash_tokens != 0 || q->from_token > q->computed_tokens)
		(void)snprintf(text, len,
			       "from_token = %" PRIu64 ": must be a multiple of hash_tokens = %" PRIu32
			       ", and at most computed_tokens = %" PRIu64,
			       q->from_token, hash_tokens, q->computed_tokens);
	else if (q->want_lengths > SCOUT_MAX_LENGTHS)
		(void)snprintf(text, len, "want_lengths = %" PRIu32 ": must be at most %u", q->want_lengths,
			       (unsigned)SCOUT_MAX_LENGTHS);
	else if (q->timeout_ms > SCOUT_LOOKUP_TIMEOUT_MAX_MS)
		(void)snprintf(text, len, "timeout_ms = %" PRIu32 ": must be at most %u", q->timeout_ms,
			       (unsigned)SCOUT_LOOKUP_TIMEOUT_MAX_MS);
	else if (q->flags > SCOUT_QUERY_LOAD)
		(void)snprintf(text, len, "flags = %" PRIu32 ": must be 0 or SCOUT_QUERY_LOAD", q->flags);
	else
		(void)snprintf(text, len,
			       "n = %zu: must be at most %u, the hashes must fit into half of arena_bytes, and "
			       "from_token + n * hash_tokens (%" PRIu32 ") into prompt_tokens = %" PRIu64,
			       q->n, (unsigned)SCOUT_MAX_CHUNKS, hash_tokens, q->prompt_tokens);
}

int
scout__say_wrong(struct scout_client *client, const char *id, const struct scout_query *q, size_t hash_len, int rc)
{
	struct scout__log_limit *limit = NULL;
	char text[256];

	switch (rc) {
	case SCOUT_ERR_INVALID:
		limit = &client->wrong[0];
		(void)snprintf(text, sizeof(text), "hashes is NULL, or timeout_ms is too large");
		if (q)
			describe(client, q, text, sizeof(text));
		break;
	case SCOUT_ERR_HASH_LEN:
		limit = &client->wrong[1];
		(void)snprintf(text, sizeof(text), "hash_len = %zu: must be hash_bytes = %" PRIu32, hash_len,
			       client->cfg.hash_bytes);
		break;
	case SCOUT_ERR_STATE:
		limit = &client->wrong[2];
		(void)snprintf(
			text, sizeof(text),
			"this id is live with other hashes or another tenant: finish it before it names another");
		break;
	case SCOUT_ERR_REQUEST_ID:
	case SCOUT_ERR_TENANT:
	case SCOUT_ERR_KEY_COUNT:
	case SCOUT_ERR_GROUP:
		limit = &client->wrong[rc == SCOUT_ERR_REQUEST_ID ? 3 : rc == SCOUT_ERR_TENANT ? 4 : 5];
		(void)snprintf(text, sizeof(text), "%s", scout_strerror(rc));
		break;
	default:
		return rc;
	}
	scout__log_limited(&client->log, limit, scout__now_us(), WRONG_LOG_US, SCOUT_LOG_WARN,
			   "question \"%.64s\" is refused: %s (%s)", id ? id : "", text, scout_err_name(rc));
	return rc;
}
