/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: a scheduler loop as an engine has it. `async`: in each step every waiting request asks scout_try_lookup();
 * those that are answered are admitted and finished in the same step, and new ones take their place in the next.
 * `polled`: in each step as many requests ask scout_wait_lookup(), one after the other.
 *
 * What is measured. async: the clock is read once between any two calls, so each call's time holds one reading
 * (reported apart, as "clock"); nothing else happens between scout_step_begin() and scout_step_end(), and what they
 * cost is in the step's stall. Histograms are filled after the step. polled: the answer's publishing cannot be seen
 * from outside the client, so `landed` is the time of the caller's return, which is later than it by the caller's
 * waking up: an upper bound.
 *
 * Invariant: an answer with reason timeout, unreachable or refused is counted as a failure and is in no metric,
 * nor is the step that saw it: it would look fast.
 *
 * Threads: main only. Rejected: asking in the step in which a request is answered for its successor, too (engines
 * take new requests from their queue at the next step).
 */
#include "lat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ID_BYTES 32

enum asker_state {
	IDLE,
	NEW,    /* to be submitted */
	WAITING /* submitted */
};

struct asker {
	enum asker_state state;
	int rc;
	uint64_t prompt;
	uint64_t submit_ns;
	struct scout_lookup lookup;
	struct scout_hit hit;
	char id[ID_BYTES];
};

struct loop {
	struct lat *lat;
	struct scout_client *client;
	struct asker *askers;
	uint64_t *stamps; /* one before the first call and one after each */
	uint64_t n;
	uint64_t next_request;
};

static void
print_log(void *user, int level, const char *text)
{
	(void)user;
	if (level <= SCOUT_LOG_WARN)
		fprintf(stderr, "kvscout-latency: %s\n", text);
}

static void
loop_close(void *self)
{
	struct loop *loop = self;

	if (!loop)
		return;
	scout_client_free(loop->client);
	free(loop->askers);
	free(loop->stamps);
	free(loop);
}

static int
start_client(struct loop *loop)
{
	const struct lat_options *opt = loop->lat->opt;
	struct scout_client_config cfg;
	char err[LAT_ERR_BYTES] = "";
	uint64_t arena;
	int rc;

	scout_client_config_init(&cfg);
	cfg.endpoint = loop->lat->endpoint;
	cfg.name_space = opt->name_space;
	cfg.chunk_tokens = LAT_CHUNK_TOKENS;
	cfg.hash_bytes = LAT_HASH_BYTES;
	cfg.lookup_timeout_ms = lat_timeout_ms(opt);
	cfg.spin_us = (uint32_t)opt->spin_us;
	cfg.log = print_log;
	if (opt->inflight > cfg.max_lookups)
		cfg.max_lookups = (uint32_t)opt->inflight;
	/* Twice what a step can submit: the courier may still hold the step before. */
	arena = 2 * opt->inflight * opt->chunks * LAT_HASH_BYTES;
	if (arena > cfg.arena_bytes)
		cfg.arena_bytes = arena < UINT64_C(4) << 30 ? arena : UINT64_C(4) << 30;
	rc = scout_client_new(&cfg, &loop->client, err, sizeof(err));
	if (!rc)
		rc = scout_client_wait_ready(loop->client, LAT_TIMEOUT_MS, err, sizeof(err));
	if (rc)
		return lat_fail(loop->lat, "client of %s: %s", loop->lat->endpoint, err[0] ? err : scout_strerror(rc));
	return 0;
}

static int
loop_open(struct lat *lat, void **ret_self)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return lat_fail(lat, "out of memory");
	loop->lat = lat;
	loop->n = lat->opt->inflight;
	loop->askers = calloc(loop->n, sizeof(*loop->askers));
	loop->stamps = calloc(loop->n + 1, sizeof(*loop->stamps));
	if (!loop->askers || !loop->stamps) {
		(void)lat_fail(lat, "out of memory");
		goto err_close;
	}
	if (start_client(loop))
		goto err_close;
	*ret_self = loop;
	return 0;

err_close:
	loop_close(loop);
	return -1;
}

/* Next request for this place. */
static void
renew(struct loop *loop, struct asker *asker)
{
	uint64_t number = loop->next_request++;

	asker->prompt = number % loop->lat->keys.n_prompts;
	(void)snprintf(asker->id, sizeof(asker->id), "request-%" PRIu64, number);
	asker->lookup = (struct scout_lookup){
		.id = asker->id,
		.hashes = lat_keys_hashes(&loop->lat->keys, asker->prompt),
		.hash_len = LAT_HASH_BYTES,
		.n = loop->lat->keys.chunks,
		/* One more than all chunks, so that a full hit is not cut by the last token. */
		.prompt_tokens = loop->lat->keys.chunks * LAT_CHUNK_TOKENS + 1,
	};
	asker->state = NEW;
}

/* Fill up to @max idle places; returns how many. */
static uint64_t
renew_idle(struct loop *loop, uint64_t max)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < loop->n && n < max; i++) {
		if (loop->askers[i].state != IDLE)
			continue;
		renew(loop, &loop->askers[i]);
		n++;
	}
	return n;
}

/* Admit and finish an answered request. */
static int
give_back(struct loop *loop, struct asker *asker)
{
	int rc = 0;

	if (asker->hit.tokens > 0)
		rc = scout_admit(loop->client, asker->id, 0, SCOUT_TO_END);
	(void)scout_finish(loop->client, asker->id); /* cannot be refused */
	return rc ? lat_fail(loop->lat, "scout_admit: %s", scout_strerror(rc)) : 0;
}

/* One answer against what is known. */
static void
count_answer(struct loop *loop, struct lat_result *result, const struct asker *asker)
{
	const struct scout_hit *hit = &asker->hit;
	uint32_t truth = loop->lat->keys.truth[asker->prompt];

	if (hit->reason != SCOUT_REASON_HIT && hit->reason != SCOUT_REASON_MISS) {
		lat_count_failure(loop->lat, result, "%s: %s", scout_reason_name(hit->reason),
				  scout_strerror(hit->error));
		return;
	}
	lat_count_answer(loop->lat, result, asker->prompt, hit->chunks);
	if (hit->chunks != truth)
		return;
	if (hit->tokens != (uint64_t)truth * LAT_CHUNK_TOKENS ||
	    hit->reason != (truth ? SCOUT_REASON_HIT : SCOUT_REASON_MISS))
		lat_count_wrong(loop->lat, result, asker->prompt, "%" PRIu64 " tokens, reason %s", hit->tokens,
				scout_reason_name(hit->reason));
}

/* By the call of this step. */
static bool
is_answered(const struct asker *asker)
{
	return asker->state != IDLE && asker->rc == 0;
}

static bool
was_good(const struct asker *asker)
{
	return asker->hit.reason == SCOUT_REASON_HIT || asker->hit.reason == SCOUT_REASON_MISS;
}

/* What one call was; its time ends at @end_ns. Returns -1 when the call failed. */
static int
account_call(struct loop *loop, struct lat_result *result, struct asker *asker, uint64_t start_ns, uint64_t end_ns)
{
	if (asker->rc == SCOUT_ERR_BUSY && asker->state == NEW) {
		result->busy++;
	} else if (asker->rc == SCOUT_NOT_YET) {
		scout__hist_add(&result->metrics[asker->state == NEW ? LAT_SUBMIT : LAT_PENDING], end_ns - start_ns);
		if (asker->state == NEW)
			asker->submit_ns = start_ns;
		asker->state = WAITING;
	} else if (asker->rc) {
		return lat_fail(loop->lat, "scout_try_lookup: %s", scout_strerror(asker->rc));
	} else if (asker->state == WAITING && was_good(asker)) {
		scout__hist_add(&result->metrics[LAT_SEEN], end_ns - asker->submit_ns);
	}
	return 0;
}

/* One step of the scheduler loop; *done grows by the requests that ended. */
static int
async_step(struct loop *loop, struct lat_result *result, uint64_t *done)
{
	uint64_t *stamps = loop->stamps;
	uint64_t begin_ns = scout__now_ns(), end_ns, failed = result->failed;
	struct asker *asker;
	int rc = 0;

	scout_step_begin(loop->client);
	stamps[0] = scout__now_ns();
	for (uint64_t i = 0; i < loop->n; i++) {
		asker = &loop->askers[i];
		if (asker->state != IDLE)
			asker->rc = scout_try_lookup(loop->client, &asker->lookup, &asker->hit);
		stamps[i + 1] = scout__now_ns();
	}
	/* Inside the step, so that what is given back travels with what is asked. */
	for (uint64_t i = 0; i < loop->n; i++) {
		if (is_answered(&loop->askers[i]))
			rc |= give_back(loop, &loop->askers[i]);
	}
	scout_step_end(loop->client);
	end_ns = scout__now_ns();
	if (rc)
		return -1;

	result->steps++;
	for (uint64_t i = 0; i < loop->n; i++) {
		asker = &loop->askers[i];
		if (asker->state == IDLE)
			continue;
		if (account_call(loop, result, asker, stamps[i], stamps[i + 1]))
			return -1;
		if (is_answered(asker)) {
			count_answer(loop, result, asker);
			asker->state = IDLE;
			(*done)++;
		}
	}
	if (result->failed == failed)
		scout__hist_add(&result->metrics[LAT_STALL], end_ns - begin_ns);
	return 0;
}

/* After an interrupt: forget what is still waiting. */
static void
abandon(struct loop *loop)
{
	for (uint64_t i = 0; i < loop->n; i++) {
		if (loop->askers[i].state != IDLE)
			(void)scout_finish(loop->client, loop->askers[i].id); /* cannot be refused */
		loop->askers[i].state = IDLE;
	}
}

static int
async_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct loop *loop = self;
	uint64_t started = 0, done = 0;
	struct lat_pace pace;
	int rc = 0;

	lat_pace_begin(&pace, loop->lat);
	while (!rc && done < requests && !lat_is_stopped()) {
		started += renew_idle(loop, requests - started);
		rc = async_step(loop, result, &done);
		lat_pace_wait(&pace);
	}
	abandon(loop);
	return rc;
}

/* One step of up to @max blocking lookups; *done grows. */
static int
polled_step(struct loop *loop, struct lat_result *result, uint64_t max, uint64_t *done)
{
	uint64_t n = renew_idle(loop, max);
	uint64_t start_ns, end_ns, stall_ns = 0, failed = result->failed;
	struct asker *asker;
	int rc = 0;

	for (uint64_t i = 0; i < n && !lat_is_stopped(); i++) {
		asker = &loop->askers[i];
		start_ns = scout__now_ns();
		asker->rc = scout_wait_lookup(loop->client, &asker->lookup, &asker->hit);
		end_ns = scout__now_ns();
		stall_ns += end_ns - start_ns;
		if (asker->rc)
			return lat_fail(loop->lat, "scout_wait_lookup: %s", scout_strerror(asker->rc));
		if (was_good(asker)) {
			scout__hist_add(&result->metrics[LAT_LANDED], end_ns - start_ns);
			scout__hist_add(&result->metrics[LAT_SEEN], end_ns - start_ns);
		}
		count_answer(loop, result, asker);
		asker->state = WAITING;
		(*done)++;
	}
	if (result->failed == failed)
		scout__hist_add(&result->metrics[LAT_STALL], stall_ns);
	result->steps++;
	/* Together and last, as `sync` does: giving back is not what is measured. */
	scout_step_begin(loop->client);
	for (uint64_t i = 0; i < n; i++) {
		if (loop->askers[i].state == WAITING)
			rc |= give_back(loop, &loop->askers[i]);
		loop->askers[i].state = IDLE;
	}
	scout_step_end(loop->client);
	return rc;
}

static int
polled_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct loop *loop = self;
	uint64_t done = 0;
	struct lat_pace pace;
	int rc = 0;

	lat_pace_begin(&pace, loop->lat);
	while (!rc && done < requests && !lat_is_stopped()) {
		rc = polled_step(loop, result, requests - done, &done);
		lat_pace_wait(&pace);
	}
	abandon(loop);
	return rc;
}

const struct lat_runner lat_async_runner = {
	.metrics = 1u << LAT_SUBMIT | 1u << LAT_PENDING | 1u << LAT_SEEN | 1u << LAT_STALL,
	.open = loop_open,
	.run = async_run,
	.close = loop_close,
};

const struct lat_runner lat_polled_runner = {
	.metrics = 1u << LAT_LANDED | 1u << LAT_SEEN | 1u << LAT_STALL,
	.open = loop_open,
	.run = polled_run,
	.close = loop_close,
};
