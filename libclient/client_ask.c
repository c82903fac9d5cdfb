/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Asking and finishing, on the caller's thread, which owns the slot table and the caller's fields of each slot. A call
 * validates its arguments, finds the slot of the id, and either reads the slot, or fills it and pushes one word. None of these
 * calls allocates, and only the polling adapter below blocks.
 *
 * Asking again for a live id compares number, length and last hash of the question: hashes are chained, so the last one covers
 * all before it, and asking for a pending answer reads only one cache line.
 *
 * While a server is known to be gone, a new lookup is answered here and the courier never hears of it. It still gets a slot: an
 * answer must not change between an ask and its admit (C3). client_answer.c says how old answers are renewed.
 *
 * The public calls that ask accept structures of any version of the header, and choose by mode. The polling adapter is the same
 * lookup followed by a wait: it submits as scout_try_lookup() does and sleeps on the answer word (answer_word.c), so it wakes when
 * the answer lands, not at the next tick. The deadline is the courier's (C2): the answer word is set by then in any case, and the
 * adapter adds no request and no timer of its own.
 */
#include "client_internal.h"

#include <stdlib.h>
#include <string.h>

#include "answer_word.h"
#include "client_checked.h"
#include "clock.h"
#include "number.h"
#include "sized.h"

/* So many bytes of the hashes are prefetched, while the slot is made; the processor's own prefetcher finds the rest. */
#define FETCH_AHEAD_BYTES 1536u

/* ---- lookup ---- */

/* How many hashes the prompt has before the hashes of @q. */
static uint64_t
before(const struct scout_client *client, const struct scout_query *q)
{
	return q->from_token ? q->from_token / client->cfg.hash_tokens : 0; /* the usual case needs no division */
}

/* Whether the hashes of @q, and those before them, fit into the prompt, and the engine has the tokens before them. */
static bool
fits_prompt(const struct scout_client *client, const struct scout_query *q)
{
	uint64_t hash_tokens = client->cfg.hash_tokens;

	if (q->from_token == 0)
		return q->n * hash_tokens <= q->prompt_tokens;
	return q->from_token % hash_tokens == 0 && q->from_token <= q->computed_tokens &&
	       q->from_token <= q->prompt_tokens && q->n * hash_tokens <= q->prompt_tokens - q->from_token &&
	       before(client, q) + q->n <= SCOUT_MAX_CHUNKS;
}

/* How a lookup begins, at once or ahead. */
static int
begin(const struct scout_client *client, const struct scout_query *q, struct scout__checked *ret)
{
	int rc = scout__ask_begin(client, q->id, q->tenant, q->hash_len, ret);

	if (rc != 0)
		return rc;
	if (q->n > SCOUT_MAX_CHUNKS || (q->n > 0 && !q->hashes) || !fits_prompt(client, q) ||
	    q->want_lengths > SCOUT_MAX_LENGTHS || q->timeout_ms > SCOUT_LOOKUP_TIMEOUT_MAX_MS ||
	    q->flags > SCOUT_QUERY_LOAD || !scout__arena_can_hold(&client->arena, q->n * (uint64_t)q->hash_len))
		return SCOUT_ERR_INVALID;
	return 0;
}

static uint32_t
min_hashes(uint64_t tokens, uint32_t hash_tokens, uint32_t at_most)
{
	uint64_t hashes = tokens / hash_tokens;

	return (uint32_t)(hashes < at_most ? hashes : at_most);
}

/*
 * The longest length that may be asked for. At least one token of a prompt is computed. If all policies are `all` the engine can
 * take any part of a hit, and gets all but one token; a window or a state is of use at its own length only.
 */
static uint32_t
lengths_allowed(const struct scout_client *client, const struct scout_query *q)
{
	uint32_t n = (uint32_t)(before(client, q) + q->n);

	return client->is_run ? n : min_hashes(q->prompt_tokens - 1, client->cfg.hash_tokens, n);
}

/* The length up to which the server may wait for late chunks. 0: the server waits for none, the lookup is one shot. */
static uint32_t
expected_length(const struct scout_client *client, const struct scout_query *q)
{
	uint32_t at_most = lengths_allowed(client, q);
	const struct scout_client_config *cfg = &client->cfg;

	if (cfg->lookup_poll_key_timeout_ms == 0 || cfg->lookup_poll_key_intervals_ms == 0)
		return 0;
	if (q->expect_tokens == 0)
		return cfg->lookup_poll_key_all ? at_most : 0;
	return min_hashes(q->expect_tokens, cfg->hash_tokens, at_most);
}

static uint32_t
timeout_of(const struct scout_client *client, const struct scout_query *q, uint32_t expect)
{
	uint32_t late_keys_ms = expect > 0 ? client->cfg.lookup_poll_key_timeout_ms : 0;

	return (uint32_t)scout__max(scout__max(client->cfg.lookup_timeout_ms, late_keys_ms), q->timeout_ms);
}

static const uint8_t *
last_hash(const struct scout_query *q)
{
	return (const uint8_t *)q->hashes + (q->n - 1) * q->hash_len;
}

/* Compare 16 to 32 bytes: the first 16 and the last 16, which may overlap. No call, and no branch on the length. */
static bool
same_hash(const uint8_t *a, const uint8_t *b, size_t len)
{
	uint64_t x[4], y[4];

	memcpy(x, a, 16);
	memcpy(y, b, 16);
	memcpy(x + 2, a + len - 16, 16);
	memcpy(y + 2, b + len - 16, 16);
	return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
}

static bool
same_question(const struct scout_client *client, const struct scout__lookup_slot *slot, const struct scout_query *q)
{
	return slot->question.n == before(client, q) + q->n && q->n > 0 && slot->question.n_parts == 0 &&
	       same_hash(slot->question.last_hash, last_hash(q), q->hash_len) &&
	       (q->tenant && *q->tenant ? strcmp(slot->tenant, q->tenant) == 0 : slot->question.tenant_len == 0);
}

/* Whether the GPU still has the part that the lookup skipped. */
static bool
covers_skipped(const struct scout_client *client, const struct scout__lookup_slot *slot, uint64_t computed_tokens)
{
	return computed_tokens >= (uint64_t)slot->question.skip * client->cfg.hash_tokens;
}

static void
fetch_ahead(const struct scout_query *q)
{
	size_t bytes = q->n * q->hash_len;

	for (size_t at = 0; at < bytes && at < FETCH_AHEAD_BYTES; at += SCOUT__CACHE_LINE)
		__builtin_prefetch((const uint8_t *)q->hashes + at);
}

static void
fill_slot(const struct scout_client *client, struct scout__lookup_slot *slot, const struct scout_query *q)
{
	slot->terms.first = (uint32_t)before(client, q);
	slot->question.n = slot->terms.first + (uint32_t)q->n;
	slot->terms.at_most = lengths_allowed(client, q);
	slot->question.skip = min_hashes(q->computed_tokens, client->cfg.hash_tokens, slot->terms.at_most);
	if (slot->question.skip < slot->terms.first)
		slot->question.skip = slot->terms.at_most = slot->terms.first; /* the engine has the whole prompt */
	slot->terms.expect = expected_length(client, q);
	slot->question.want = q->want_lengths > 0 ? (uint8_t)q->want_lengths : 1;
	slot->terms.timeout_ms = timeout_of(client, q, slot->terms.expect) & INT32_MAX;
	slot->terms.loads = q->flags & SCOUT_QUERY_LOAD;
	slot->terms.prompt_tokens = q->prompt_tokens;
	memcpy(slot->question.last_hash, last_hash(q), q->hash_len);
}

/* A server is known to be gone: answer without the courier. */
void
scout__answer_unreachable(struct scout_client *client, struct scout__lookup_slot *slot, unsigned down)
{
	int error = SCOUT__DOWN_ERROR(down);

	slot->entry.submitted = false;
	slot->work.ended = true;
	slot->ask.ticket = 0;
	slot->landed_us = scout__now_us();
	slot->landed.epochs = atomic_load_explicit(&client->epochs, memory_order_relaxed);
	slot->landed.kept = SCOUT_KEEP_UNKNOWN;
	slot->landed.hit = (struct scout_hit){
		.error = error, .reason = scout__reason_of(error), .endpoint = SCOUT__DOWN_ENDPOINT(down)};
	client->stats.answers++;
	if (slot->landed.hit.reason == SCOUT_REASON_REFUSED)
		client->stats.refused++;
	else
		client->stats.unreachable++;
	atomic_store_explicit(&slot->answer, SCOUT__ANSWERED, memory_order_relaxed);
}

enum ask_when {
	ASK_NOW,
	ASK_AHEAD
};

/* A slot for a new lookup, filled; @bytes as for scout__slot_open(). Returns 0, SCOUT_ERR_TENANT or SCOUT_ERR_BUSY. */
static int
open_slot(struct scout_client *client, const struct scout_query *q, const struct scout__checked *checked, size_t bytes,
	  uint32_t *ret_slot)
{
	int rc = scout__slot_open(client, checked, bytes, ret_slot);

	if (rc != 0)
		return rc;
	fill_slot(client, &client->slots[*ret_slot], q);
	client->stats.lookups++;
	client->stats.asked_tokens += q->prompt_tokens;
	return 0;
}

/* Hand a filled slot to the courier. */
static void
submit(struct scout_client *client, uint32_t i, const struct scout_query *q, enum ask_when when)
{
	struct scout__lookup_slot *slot = &client->slots[i];

	memcpy(scout__arena_at(&client->arena, slot->ask.arena_pos), q->hashes, q->n * q->hash_len);
	if (slot->question.want > 1 && !client->is_run) /* if malloc() fails, only the longest length is known */
		slot->lengths = malloc(2 * (slot->question.want - 1u) * sizeof(*slot->lengths));
	/* Only the objects that each of several servers has tell which lengths they have in common. */
	slot->question.ahead = when == ASK_AHEAD || (!client->is_run && client->n_links > 1);
	if (slot->question.ahead) /* skip is not known yet, or is applied when the answer is settled */
		slot->question.skip = slot->terms.first;
	if (when == ASK_AHEAD)
		slot->entry.unasked = true;
	else
		scout__step_add(client, i);
	scout__table_asked(client, i);
	scout__slot_submit(client, i);
	client->stats.not_yet += when == ASK_NOW;
}

/*
 * A new lookup. Returns SCOUT_NOT_YET: it is submitted; 0: a server is known to be gone, and @ret_hit says so;
 * SCOUT_ERR_TENANT or SCOUT_ERR_BUSY.
 */
__attribute__((noinline)) static int
ask_anew(struct scout_client *client, const struct scout_query *q, const struct scout__checked *checked,
	 enum ask_when when, struct scout_hit *ret_hit)
{
	unsigned down = atomic_load_explicit(&client->down, memory_order_relaxed);
	uint32_t i;
	int rc;

	fetch_ahead(q);
	rc = open_slot(client, q, checked, down ? 0 : q->n * q->hash_len, &i);
	if (rc != 0)
		return rc;
	if (down) {
		scout__answer_unreachable(client, &client->slots[i], down);
		*ret_hit = client->slots[i].landed.hit;
		return 0;
	}
	submit(client, i, q, when);
	return SCOUT_NOT_YET;
}

void
scout__client_forget(struct scout_client *client, uint32_t i)
{
	scout__table_forget(client, i);
	scout__renew_forget(client, &client->slots[i]);
	scout__step_remove(client, i);
	if (client->slots[i].entry.submitted)
		scout__client_push(client, SCOUT__WORD(SCOUT__WORD_FINISH, i));
	else
		scout__table_release(client, i);
}

/* A server was restarted since @i was answered: its promises are gone, and its answer is void. Ask again. */
__attribute__((noinline)) static int
ask_restarted(struct scout_client *client, uint32_t i, const struct scout_query *q, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &client->slots[i];
	struct scout__checked checked = {
		.id = q->id,
		.tenant = q->tenant,
		.id_len = slot->entry.id_len,
		.tenant_len = slot->question.tenant_len,
		.id_hash = slot->entry.id_hash,
		.slot = SCOUT__NO_SLOT,
	};

	scout__client_forget(client, i);
	return ask_anew(client, q, &checked, ASK_NOW, ret_hit);
}

/* The answer of a live slot that is asked for again. */
__attribute__((noinline)) static int
read_answer(struct scout_client *client, uint32_t i, const struct scout_query *q, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &client->slots[i];

	if (!slot->question.ahead && scout__renew_look(client, i))
		scout__renew_ask(client, i, q);
	if (slot->landed.epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed))
		return ask_restarted(client, i, q, ret_hit);
	if (slot->question.ahead)
		scout__request_settle(client, i, q->computed_tokens);
	*ret_hit = slot->landed.hit;
	return 0;
}

/* Asked for and not answered yet. A lookup ahead joins the step that asks for it first: scout_step_wait() waits for it, too. */
static int
not_yet(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];

	if (slot->entry.unasked) {
		slot->entry.unasked = false;
		scout__step_add(client, i);
	}
	client->stats.not_yet++;
	return SCOUT_NOT_YET;
}

/* The slot is live: return its answer, or that it has none yet. */
static int
read_slot(struct scout_client *client, uint32_t i, const struct scout_query *q, struct scout_hit *ret_hit)
{
	if (atomic_load_explicit(&client->slots[i].answer, memory_order_acquire) != SCOUT__PENDING)
		return read_answer(client, i, q, ret_hit);
	return not_yet(client, i);
}

/*
 * Whether @q is exactly the question of @slot; if not, the caller checks @q in full. An equal question would pass begin(),
 * except for fields that the slot does not keep.
 */
static bool
asks_again(const struct scout_client *client, const struct scout__lookup_slot *slot, const struct scout_query *q)
{
	return q->id && slot->entry.id_len != 0 && strcmp(slot->id, q->id) == 0 && q->hashes &&
	       q->hash_len == client->cfg.hash_bytes && same_question(client, slot, q) && !slot->entry.admitted &&
	       q->want_lengths <= SCOUT_MAX_LENGTHS && fits_prompt(client, q) &&
	       q->computed_tokens <= q->prompt_tokens && covers_skipped(client, slot, q->computed_tokens);
}

__attribute__((noinline)) static int
try_lookup(struct scout_client *client, const struct scout_query *q, struct scout_hit *ret_hit)
{
	struct scout__checked checked;
	int rc = begin(client, q, &checked);

	if (rc == 0 && q->computed_tokens > q->prompt_tokens)
		rc = SCOUT_ERR_INVALID;
	if (rc != 0)
		return rc;
	if (checked.slot != SCOUT__NO_SLOT) {
		struct scout__lookup_slot *slot = &client->slots[checked.slot];

		if (!slot->entry.admitted && (q->n == 0 || !same_question(client, slot, q)))
			return SCOUT_ERR_STATE;
		if (!slot->entry.admitted && covers_skipped(client, slot, q->computed_tokens)) {
			scout__table_asked(client, checked.slot);
			return read_slot(client, checked.slot, q, ret_hit);
		}
		scout__client_forget(client,
				     checked.slot); /* admitted, or the GPU's own cache shrank: a new generation */
	}
	if (q->n > 0)
		return ask_anew(client, q, &checked, ASK_NOW, ret_hit);
	*ret_hit = (struct scout_hit){.reason = SCOUT_REASON_MISS, .endpoint = -1};
	return 0;
}

static int
ask_ahead(struct scout_client *client, const struct scout_query *q)
{
	struct scout__checked checked;
	struct scout_hit unused;
	int rc = begin(client, q, &checked);

	if (rc != 0)
		return rc;
	if (checked.slot != SCOUT__NO_SLOT && !client->slots[checked.slot].entry.admitted)
		return q->n == 0 || !same_question(client, &client->slots[checked.slot], q) ? SCOUT_ERR_STATE : 0;
	if (q->n == 0 || atomic_load_explicit(&client->down, memory_order_relaxed))
		return 0; /* there is nothing to ask, or no server to ask */
	if (checked.slot != SCOUT__NO_SLOT)
		scout__client_forget(client, checked.slot);
	rc = ask_anew(client, q, &checked, ASK_AHEAD, &unused);
	return rc == SCOUT_NOT_YET ? 0 : rc;
}

/* scout_try_lookup(), scout_lookup_ahead() and scout_poll_lookup() with structures of this version; pointers may be NULL. */
static int
client_ask(struct scout_client *client, const struct scout_query *q, struct scout_hit *ret_hit)
{
	if (!client || !q || !ret_hit)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	uint32_t guess = client->slots[client->last_asked].entry.next_asked;
	const struct scout__lookup_slot *slot = &client->slots[guess];

	if (!asks_again(client, slot, q))
		return scout__client_leave(client,
					   scout__said(client, q->id, q, q->hash_len, try_lookup(client, q, ret_hit)));
	client->last_asked = guess;
	__builtin_prefetch(&client->slots[slot->entry.next_asked]);
	__builtin_prefetch(client->slots[slot->entry.next_asked].id);
	return scout__client_leave(client, read_slot(client, guess, q, ret_hit));
}

static int
client_ask_ahead(struct scout_client *client, const struct scout_query *q)
{
	if (!client || !q)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	return scout__client_leave(client, scout__said(client, q->id, q, q->hash_len, ask_ahead(client, q)));
}

/* ---- poll ---- */

/* The answer of a live, unadmitted slot, unless it needs the hashes. */
__attribute__((noinline)) static int
poll_answer(struct scout_client *client, uint32_t i, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &client->slots[i];

	if (!slot->question.ahead && scout__renew_look(client, i))
		return SCOUT_NEED_QUERY;
	if (slot->landed.epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed))
		return SCOUT_NEED_QUERY;
	if (slot->question.ahead)
		scout__request_settle(client, i, computed_tokens);
	*ret_hit = slot->landed.hit;
	return 0;
}

static int
poll_slot(struct scout_client *client, uint32_t i, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &client->slots[i];

	if (slot->entry.admitted || slot->question.n_parts > 0 || !covers_skipped(client, slot, computed_tokens))
		return SCOUT_NEED_QUERY;
	if (atomic_load_explicit(&slot->answer, memory_order_acquire) != SCOUT__PENDING)
		return poll_answer(client, i, computed_tokens, ret_hit);
	return not_yet(client, i);
}

__attribute__((noinline)) static int
poll_lookup(struct scout_client *client, const char *id, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	uint32_t i;
	int rc = scout__table_find_id(client, id, &i);

	if (rc != 0)
		return rc;
	if (i == SCOUT__NO_SLOT)
		return SCOUT_NEED_QUERY;
	scout__table_asked(client, i);
	return poll_slot(client, i, computed_tokens, ret_hit);
}

static int
client_poll(struct scout_client *client, const char *id, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	if (!client || !ret_hit)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	uint32_t guess = client->slots[client->last_asked].entry.next_asked;
	const struct scout__lookup_slot *slot = &client->slots[guess];

	if (!id || slot->entry.id_len == 0 || strcmp(slot->id, id) != 0)
		return scout__client_leave(client, poll_lookup(client, id, computed_tokens, ret_hit));
	client->last_asked = guess;
	__builtin_prefetch(&client->slots[slot->entry.next_asked]);
	__builtin_prefetch(client->slots[slot->entry.next_asked].id);
	return scout__client_leave(client, poll_slot(client, guess, computed_tokens, ret_hit));
}

/* ---- finish ---- */

int
scout_finish(struct scout_client *client, const char *id)
{
	return scout_finish_hint(client, id, SCOUT_HINT_UNKNOWN);
}

int
scout_finish_hint(struct scout_client *client, const char *id, enum scout_hint hint)
{
	struct scout_finish finish = {.hint = hint};

	return scout_finish_keep(client, id, &finish);
}

int
scout_finish_keep_sized(struct scout_client *client, const char *id, const struct scout_finish *finish, size_t size)
{
	struct scout_finish own;
	uint32_t i;
	int rc;

	if (!client || !finish)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_finish, keep_ms), finish, size);
	if (rc != 0)
		return rc;
	if ((unsigned)own.hint > SCOUT_HINT_UNLIKELY)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	rc = scout__table_find_id(client, id, &i);
	if (rc == 0 && i != SCOUT__NO_SLOT) {
		if (own.keep_ms > SCOUT_KEEP_MAX_MS)
			own.keep_ms = SCOUT_KEEP_MAX_MS + 1; /* the server says that it is less */
		atomic_store_explicit(&client->slots[i].finish, own.keep_ms * SCOUT__HINTS + own.hint,
				      memory_order_relaxed);
		scout__client_forget(client, i);
	}
	return scout__client_leave(client, rc);
}

/* The slot of a request that was asked for just now. */
static struct scout__lookup_slot *
slot_of(struct scout_client *client, const char *id)
{
	uint32_t i;

	SCOUT_ASSERT(scout__table_find_id(client, id, &i) == 0);
	return &client->slots[i];
}

static int
wait_lookup(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	int rc;

	/* This repeats only if a server restarts just after it has answered. */
	while ((rc = client_ask(client, query, ret_hit)) == SCOUT_NOT_YET) {
		struct scout__lookup_slot *slot = slot_of(client, query->id);

		scout__client_push_on(client);
		(void)scout__answer_await(client, slot, UINT64_MAX); /* the courier's deadline ends it */
	}
	return rc;
}

/* scout_try_lookup(), then wait for its answer as long as the step's budget lasts. */
static int
lookup_in_step(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	int rc = client_ask(client, query, ret_hit);
	uint64_t start_us, took_us;
	uint32_t left_us;
	bool landed;

	if (rc != SCOUT_NOT_YET)
		return rc;
	left_us = client->in_step ? client->step_left_us : client->cfg.step_wait_us;
	if (left_us == 0)
		return rc;
	start_us = scout__now_us();
	scout__client_push_on(client);
	landed = scout__answer_await(client, slot_of(client, query->id), start_us + left_us);
	took_us = scout__now_us() - start_us;
	if (client->in_step)
		client->step_left_us = took_us < left_us ? left_us - (uint32_t)took_us : 0;
	return landed ? client_ask(client, query, ret_hit) : rc;
}

static int
lookup_by_mode(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	return client && client->cfg.lookup_mode == SCOUT_LOOKUP_POLLED ? wait_lookup(client, query, ret_hit)
									: lookup_in_step(client, query, ret_hit);
}

/* ---- the public calls, with the caller's structures ---- */

typedef int ask_fn(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit);

/* Call @ask with structures of any version of the header: see sized.h. */
static int
ask_sized(ask_fn *ask, struct scout_client *client, const struct scout_query *query, size_t query_size,
	  struct scout_hit *ret_hit, size_t hit_size)
{
	struct scout_query own;
	struct scout_hit hit;
	int rc;

	if (!query || !ret_hit)
		return SCOUT_ERR_INVALID;
	if (query_size == sizeof(own) && hit_size == sizeof(hit))
		return ask(client, query, ret_hit);
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_hit, endpoint), hit_size);
	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_query, from_token), query,
				       query_size);
	if (rc == 0)
		rc = ask(client, &own, &hit);
	if (rc == 0)
		scout__sized_write(ret_hit, hit_size, &hit, sizeof(hit));
	return rc;
}

int
scout_try_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
		       struct scout_hit *ret_hit, size_t hit_size)
{
	if (query_size == sizeof(*query) && hit_size == sizeof(*ret_hit))
		return client_ask(client, query, ret_hit);
	return ask_sized(client_ask, client, query, query_size, ret_hit, hit_size);
}

int
scout_wait_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
			struct scout_hit *ret_hit, size_t hit_size)
{
	return ask_sized(wait_lookup, client, query, query_size, ret_hit, hit_size);
}

int
scout_lookup_sized(struct scout_client *client, const struct scout_query *query, size_t query_size,
		   struct scout_hit *ret_hit, size_t hit_size)
{
	return ask_sized(lookup_by_mode, client, query, query_size, ret_hit, hit_size);
}

int
scout_poll_lookup_sized(struct scout_client *client, const char *id, uint64_t computed_tokens,
			struct scout_hit *ret_hit, size_t hit_size)
{
	struct scout_hit hit;
	int rc;

	if (!ret_hit)
		return SCOUT_ERR_INVALID;
	if (hit_size == sizeof(hit))
		return client_poll(client, id, computed_tokens, ret_hit);
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_hit, endpoint), hit_size);
	if (rc == 0)
		rc = client_poll(client, id, computed_tokens, &hit);
	if (rc == 0)
		scout__sized_write(ret_hit, hit_size, &hit, sizeof(hit));
	return rc;
}

int
scout_lookup_ahead_sized(struct scout_client *client, const struct scout_query *query, size_t query_size)
{
	struct scout_query own;
	int rc;

	if (!query)
		return SCOUT_ERR_INVALID;
	if (query_size == sizeof(own))
		return client_ask_ahead(client, query);
	rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_query, from_token), query, query_size);
	return rc == 0 ? client_ask_ahead(client, &own) : rc;
}
