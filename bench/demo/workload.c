/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the chat is what makes a prefix cache worth its memory. Every user talks to one of a few assistants, each
 * with a long system prompt of its own; each turn's prompt is all that was said before and a new message; after some
 * turns the user begins a new conversation. Hashes are computed from token ids by the library's own hasher. Users are
 * a closed loop: the next turn comes some time after the last answer, so a slow cache meets fewer requests instead of
 * an endless queue.
 *
 * A trace gives hash ids instead of tokens, of 512-token blocks; its requests come as fast as they are taken.
 */
#include "workload.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/hash.h>

#include "log.h"
#include "mix.h"
#include "trace.h"

#define ASSISTANTS 4u
#define SYSTEM_TOKENS_MIN 768u
#define SYSTEM_TOKENS_MAX 2304u
#define MESSAGE_TOKENS_MIN 40u
#define MESSAGE_TOKENS_MAX 700u
#define OUTPUT_TOKENS_MIN 60u
#define OUTPUT_TOKENS_MAX 500u
#define TURNS_MIN 3u
#define TURNS_MAX 10u
#define THINK_STEPS_MIN 10u
#define THINK_STEPS_MAX 90u
#define VOCABULARY 128000u
#define MAX_TOKENS (SYSTEM_TOKENS_MAX + TURNS_MAX * (MESSAGE_TOKENS_MAX + OUTPUT_TOKENS_MAX))

struct workload_user {
	uint32_t *tokens; /* of the conversation, MAX_TOKENS */
	size_t n_tokens;
	uint64_t next_step; /* of the next turn */
	uint64_t turns_left;
	bool waits; /* for an answer */
};

struct workload {
	struct workload_config cfg;
	uint64_t count; /* requests given out */
	char text[160];

	struct trace *trace;
	bool trace_ended;

	uint64_t random;
	struct scout_hasher *hasher;
	struct workload_user *users;
	uint32_t next_user; /* where the search for a user with a turn goes on */
	size_t n_system[ASSISTANTS];
	uint32_t system[ASSISTANTS][SYSTEM_TOKENS_MAX];
};

static void
random_tokens(uint64_t *random, uint32_t *tokens, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tokens[i] = (uint32_t)mix_range(random, 0, VOCABULARY - 1);
}

static void
user_says(struct workload *workload, struct workload_user *user, size_t n)
{
	random_tokens(&workload->random, user->tokens + user->n_tokens, n);
	user->n_tokens += n;
}

static void
new_conversation(struct workload *workload, uint32_t index)
{
	struct workload_user *user = &workload->users[index];
	uint32_t assistant = index % ASSISTANTS;

	user->n_tokens = workload->n_system[assistant];
	memcpy(user->tokens, workload->system[assistant], user->n_tokens * sizeof(*user->tokens));
	user->turns_left = mix_range(&workload->random, TURNS_MIN, TURNS_MAX);
}

static int
chat_init(struct workload *workload, char *err, size_t err_len)
{
	int rc;

	workload->random = mix64(workload->cfg.seed + MIX_STEP);
	rc = scout_hasher_new(NULL, &workload->hasher);
	if (rc < 0)
		return scout__fail(err, err_len, rc, "hasher: %s", scout_strerror(rc));
	workload->users = calloc(workload->cfg.users, sizeof(*workload->users));
	if (!workload->users)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	for (uint32_t i = 0; i < ASSISTANTS; i++) {
		workload->n_system[i] = mix_range(&workload->random, SYSTEM_TOKENS_MIN, SYSTEM_TOKENS_MAX);
		random_tokens(&workload->random, workload->system[i], workload->n_system[i]);
	}
	for (uint32_t i = 0; i < workload->cfg.users; i++) {
		struct workload_user *user = &workload->users[i];

		user->tokens = calloc(MAX_TOKENS, sizeof(*user->tokens));
		if (!user->tokens)
			return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
		new_conversation(workload, i);
		user->next_step = mix_range(&workload->random, 0, THINK_STEPS_MAX);
	}
	(void)snprintf(workload->text, sizeof(workload->text),
		       "a generated chat of %u users with %u assistants, seed %" PRIu64, workload->cfg.users,
		       ASSISTANTS, workload->cfg.seed);
	return 0;
}

int
workload_new(const struct workload_config *cfg, struct workload **ret_workload, char *err, size_t err_len)
{
	struct workload *workload = calloc(1, sizeof(*workload));
	int rc;

	if (!workload)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	workload->cfg = *cfg;
	if (cfg->trace) {
		rc = trace_open(cfg->trace, &workload->trace, err, err_len);
		(void)snprintf(workload->text, sizeof(workload->text), "the trace %s", cfg->trace);
	} else {
		rc = chat_init(workload, err, err_len);
	}
	if (rc < 0) {
		workload_free(workload);
		return rc;
	}
	*ret_workload = workload;
	return 0;
}

void
workload_free(struct workload *workload)
{
	if (!workload)
		return;
	for (uint32_t i = 0; workload->users && i < workload->cfg.users; i++)
		free(workload->users[i].tokens);
	free(workload->users);
	scout_hasher_free(workload->hasher);
	trace_close(workload->trace);
	free(workload);
}

uint32_t
workload_chunk_tokens(const struct workload *workload)
{
	return workload->trace ? TRACE_BLOCK_TOKENS : SCOUT_HASH_CHUNK_TOKENS_DEFAULT;
}

uint32_t
workload_block_tokens(const struct workload *workload)
{
	return workload->trace ? TRACE_BLOCK_TOKENS : SCOUT_HASH_BLOCK_TOKENS_DEFAULT;
}

static int
trace_request(struct workload *workload, struct workload_request *ret_request, char *err, size_t err_len)
{
	struct trace_request from;
	uint8_t *hashes;
	int rc = trace_next(workload->trace, &from, err, err_len);

	if (rc == 0)
		workload->trace_ended = true;
	if (rc <= 0)
		return rc;
	hashes = malloc(from.n ? from.n * WORKLOAD_HASH_BYTES : 1); /* n is bounded by the reader */
	if (!hashes)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	for (size_t i = 0; i < from.n; i++)
		trace_hash(from.ids[i], hashes + i * WORKLOAD_HASH_BYTES);
	*ret_request = (struct workload_request){
		.prompt_tokens = from.n * TRACE_BLOCK_TOKENS + 1,
		.n_prompt = (uint32_t)from.n,
		.n_total = (uint32_t)from.n,
		.hashes = hashes,
	};
	return 1;
}

/* The turn of one user: the prompt is all that was said and a new message; the output is known already, to us. */
static int
chat_request(struct workload *workload, uint32_t index, struct workload_request *ret_request, char *err, size_t err_len)
{
	struct workload_user *user = &workload->users[index];
	size_t max_chunks = MAX_TOKENS / SCOUT_HASH_CHUNK_TOKENS_DEFAULT, n = 0, prompt;
	uint8_t *hashes = malloc(max_chunks * WORKLOAD_HASH_BYTES);
	int rc;

	if (!hashes)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	user_says(workload, user, mix_range(&workload->random, MESSAGE_TOKENS_MIN, MESSAGE_TOKENS_MAX));
	prompt = user->n_tokens;
	user_says(workload, user, mix_range(&workload->random, OUTPUT_TOKENS_MIN, OUTPUT_TOKENS_MAX));
	rc = scout_hash_chunks(workload->hasher, user->tokens, user->n_tokens, NULL, hashes, max_chunks, &n);
	if (rc < 0) {
		free(hashes);
		return scout__fail(err, err_len, rc, "chunk hashes: %s", scout_strerror(rc));
	}
	user->waits = true;
	user->turns_left--;
	*ret_request = (struct workload_request){
		.user = index,
		.prompt_tokens = prompt,
		.n_prompt = (uint32_t)(prompt / SCOUT_HASH_CHUNK_TOKENS_DEFAULT),
		.n_total = (uint32_t)n,
		.hashes = hashes,
	};
	return 1;
}

static int
chat_next(struct workload *workload, uint64_t step, struct workload_request *ret_request, char *err, size_t err_len)
{
	for (uint32_t i = 0; i < workload->cfg.users; i++) {
		uint32_t index = (workload->next_user + i) % workload->cfg.users;

		if (workload->users[index].waits || workload->users[index].next_step > step)
			continue;
		workload->next_user = index + 1;
		return chat_request(workload, index, ret_request, err, err_len);
	}
	return 0;
}

int
workload_next(struct workload *workload, uint64_t step, struct workload_request *ret_request, char *err, size_t err_len)
{
	int rc;

	if (workload_is_over(workload))
		return 0;
	if (workload->trace)
		rc = trace_request(workload, ret_request, err, err_len);
	else
		rc = chat_next(workload, step, ret_request, err, err_len);
	if (rc == 1)
		ret_request->number = ++workload->count;
	return rc;
}

void
workload_done(struct workload *workload, const struct workload_request *request, uint64_t step)
{
	struct workload_user *user;

	if (workload->trace)
		return;
	user = &workload->users[request->user];
	user->waits = false;
	user->next_step = step + mix_range(&workload->random, THINK_STEPS_MIN, THINK_STEPS_MAX);
	if (user->turns_left == 0)
		new_conversation(workload, request->user);
}

bool
workload_is_over(const struct workload *workload)
{
	if (workload->cfg.requests && workload->count >= workload->cfg.requests)
		return true;
	return workload->trace && workload->trace_ended;
}

uint64_t
workload_total(const struct workload *workload)
{
	return workload->cfg.requests;
}

const char *
workload_text(const struct workload *workload)
{
	return workload->text;
}
