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
 * cost is in the step's stall. Histograms are filled after the step. The client is asked to stamp its
 * answers, so that `landed` is the publishing itself and not the caller's return.
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
#include <string.h>

#include "cli.h"
#include "client_internal.h"
#include "say.h"

#define ID_BYTES 32
#define WAIT_SLICE_MS 100u
#define SMALL_ARENA_BYTES (UINT64_C(1) << 20)

enum lat_asker_state {
	IDLE,
	NEW,    /* to be submitted */
	WAITING /* submitted */
};

struct lat_asker {
	enum lat_asker_state state;
	int rc;
	uint64_t prompt;
	uint64_t submit_ns;
	uint64_t intended_ns; /* 0: when it is submitted */
	uint64_t asks;
	struct scout_query lookup;
	struct scout_hit hit;
	char id[ID_BYTES];
};

/* One scheduler. */
struct lat_loop {
	struct lat *lat;
	struct scout_client *client;
	struct lat_asker *askers;
	uint64_t *stamps; /* one before the first call and one after each */
	uint64_t n;
	uint64_t *next_request; /* the fleet's */
};

/* All schedulers: they take turns on the main thread, each with a client, courier and connection of its own. */
struct lat_fleet {
	struct lat *lat;
	uint64_t next_request;
	uint64_t n;
	struct lat_loop *loops;
};

static void
fleet_close(void *self)
{
	struct lat_fleet *fleet = self;

	if (!fleet)
		return;
	for (uint64_t i = 0; fleet->loops && i < fleet->n; i++) {
		scout_client_free(fleet->loops[i].client);
		free(fleet->loops[i].askers);
		free(fleet->loops[i].stamps);
	}
	free(fleet->loops);
	free(fleet);
}

/* Make a client and wait until the server has answered it; in slices, so that Ctrl-C is heard. Interrupted is ready. */
static int
connect_client(struct lat *lat, struct scout_client_config *cfg, struct scout_client **ret_client)
{
	uint64_t until_ms = scout__now_us() / 1000 + LAT_TIMEOUT_MS;
	char err[LAT_ERR_BYTES] = "";
	struct scout_client *client;
	const char *why;
	int rc = settings_client(&lat->opt->settings, cfg, err, sizeof(err));

	if (!rc)
		rc = scout_client_new(cfg, &client, err, sizeof(err));
	scout_client_config_fini(cfg);
	lat->exit_status = rc ? cli_exit_of(rc) : 0;
	if (rc)
		return lat_fail(lat, "client of %s: %s", lat->endpoint, err[0] ? err : scout_strerror(rc));
	do {
		rc = scout_client_wait_ready(client, WAIT_SLICE_MS, err, sizeof(err));
	} while (rc == SCOUT_ERR_TIMEOUT && !lat_is_stopped() && scout__now_us() / 1000 < until_ms);
	if (rc && !lat_is_stopped()) {
		scout_client_free(client);
		why = rc == SCOUT_ERR_TIMEOUT ? strstr(err, ": ") : NULL; /* before it: how long a slice is */
		if (rc == SCOUT_ERR_TIMEOUT)
			return lat_fail(lat, "no kvscout server answers at %s within %u ms%s", lat->endpoint,
					LAT_TIMEOUT_MS, why ? why : "");
		return lat_fail(lat, "client of %s: %s", lat->endpoint, err[0] ? err : scout_strerror(rc));
	}
	*ret_client = client;
	return 0;
}

static void
client_config(const struct lat *lat, struct scout_client_config *ret_cfg)
{
	const struct lat_options *opt = lat->opt;
	struct scout_client_config cfg;
	uint64_t arena;

	scout_client_config_init(&cfg);
	cfg.endpoint = lat->endpoint;
	cfg.curve_secret_file = opt->keys.secret_file;
	cfg.curve_server_key = opt->keys.server_key;
	cfg.name_space = opt->name_space;
	cfg.chunk_tokens = LAT_CHUNK_TOKENS;
	cfg.hash_bytes = LAT_HASH_BYTES;
	cfg.lookup_timeout_ms = lat_timeout_ms(opt);
	cfg.spin_us = (uint32_t)opt->spin_us;
	cfg.log = complain_log;
	/* Of a thousand clients none may have room for more than it needs. */
	if (opt->inflight > cfg.max_lookups || opt->clients > 1)
		cfg.max_lookups = (uint32_t)opt->inflight;
	/* Twice what a step can submit: the courier may still hold the step before. */
	arena = 2 * opt->inflight * opt->chunks * LAT_HASH_BYTES;
	if (opt->clients > 1)
		cfg.arena_bytes = SMALL_ARENA_BYTES;
	if (arena > cfg.arena_bytes)
		cfg.arena_bytes = arena < UINT64_C(4) << 30 ? arena : UINT64_C(4) << 30;
	*ret_cfg = cfg;
}

int
lat_wait_for_server(struct lat *lat)
{
	struct scout_client_config cfg;
	struct scout_client *client;

	client_config(lat, &cfg);
	if (connect_client(lat, &cfg, &client))
		return -1;
	scout_client_free(client);
	return 0;
}

static int
start_client(struct lat_loop *loop)
{
	struct scout_client_config cfg;

	client_config(loop->lat, &cfg);
	if (connect_client(loop->lat, &cfg, &loop->client))
		return -1;
	scout__client_stamp_answers(loop->client);
	return 0;
}

static int
loop_open(struct lat_fleet *fleet, struct lat_loop *loop)
{
	loop->lat = fleet->lat;
	loop->next_request = &fleet->next_request;
	loop->n = fleet->lat->opt->inflight;
	loop->askers = calloc(loop->n, sizeof(*loop->askers));
	loop->stamps = calloc(loop->n + 1, sizeof(*loop->stamps));
	if (!loop->askers || !loop->stamps)
		return lat_fail(fleet->lat, "out of memory");
	return start_client(loop);
}

static int
fleet_open(struct lat *lat, void **ret_self)
{
	struct lat_fleet *fleet = calloc(1, sizeof(*fleet));

	if (!fleet)
		return lat_fail(lat, "out of memory");
	fleet->lat = lat;
	fleet->n = lat->opt->clients;
	fleet->loops = calloc(fleet->n, sizeof(*fleet->loops));
	if (!fleet->loops) {
		(void)lat_fail(lat, "out of memory");
		goto err_close;
	}
	for (uint64_t i = 0; i < fleet->n; i++) {
		if (loop_open(fleet, &fleet->loops[i]))
			goto err_close;
	}
	*ret_self = fleet;
	return 0;

err_close:
	fleet_close(fleet);
	return -1;
}

/* Next request for this place. */
static void
renew(struct lat_loop *loop, struct lat_asker *asker)
{
	uint64_t number = (*loop->next_request)++;

	asker->prompt = number % loop->lat->keys.n_prompts;
	(void)snprintf(asker->id, sizeof(asker->id), "request-%" PRIu64, number);
	asker->lookup = (struct scout_query){
		.id = asker->id,
		.hashes = lat_keys_hashes(&loop->lat->keys, asker->prompt),
		.hash_len = LAT_HASH_BYTES,
		.n = loop->lat->keys.chunks,
		/* One more than all chunks, so that a full hit is not cut by the last token. */
		.prompt_tokens = loop->lat->keys.chunks * LAT_CHUNK_TOKENS + 1,
	};
	asker->state = NEW;
	asker->asks = 0;
}

/* Fill idle places with what has arrived; returns how many are in use then. */
static uint64_t
renew_idle(struct lat_loop *loop, struct lat_arrivals *arrivals)
{
	uint64_t now_ns = scout__now_ns(), intended_ns, n = 0;

	for (uint64_t i = 0; i < loop->n; i++) {
		struct lat_asker *asker = &loop->askers[i];

		if (asker->state == IDLE && lat_arrivals_take(arrivals, now_ns, &intended_ns)) {
			renew(loop, asker);
			asker->intended_ns = intended_ns;
		}
		n += asker->state != IDLE;
	}
	return n;
}

/* Admit and finish an answered request. */
static int
give_back(struct lat_loop *loop, struct lat_asker *asker)
{
	int rc = 0;

	if (asker->hit.tokens > 0)
		rc = scout_admit(loop->client, asker->id, 0, SCOUT_TO_END);
	(void)scout_finish(loop->client, asker->id); /* cannot be refused */
	return rc ? lat_fail(loop->lat, "scout_admit: %s", scout_strerror(rc)) : 0;
}

/* One answer against what is known. */
static void
count_answer(struct lat_loop *loop, struct lat_result *result, const struct lat_asker *asker)
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
is_answered(const struct lat_asker *asker)
{
	return asker->state != IDLE && asker->rc == 0;
}

static bool
was_good(const struct lat_asker *asker)
{
	return asker->hit.reason == SCOUT_REASON_HIT || asker->hit.reason == SCOUT_REASON_MISS;
}

static void
count_times(struct lat_result *result, const struct lat_asker *asker, uint64_t submit_ns, uint64_t end_ns)
{
	scout__hist_add(&result->metrics[LAT_SEEN], end_ns - (asker->intended_ns ? asker->intended_ns : submit_ns));
	if (asker->intended_ns)
		scout__hist_add(&result->metrics[LAT_SERVICE], end_ns - submit_ns);
}

/* What one call was; its time ends at @end_ns. Returns -1 when the call failed. */
static int
account_call(struct lat_loop *loop, struct lat_result *result, struct lat_asker *asker, uint64_t start_ns,
	     uint64_t end_ns)
{
	if (asker->rc == SCOUT_ERR_BUSY && asker->state == NEW) {
		result->busy++;
	} else if (asker->rc == SCOUT_NOT_YET) {
		scout__hist_add(&result->metrics[asker->state == NEW ? LAT_SUBMIT : LAT_PENDING], end_ns - start_ns);
		if (asker->state == NEW)
			asker->submit_ns = start_ns;
		asker->state = WAITING;
		asker->asks++;
	} else if (asker->rc) {
		return lat_fail(loop->lat, "scout_try_lookup: %s", scout_strerror(asker->rc));
	} else if (asker->state == WAITING && was_good(asker)) {
		count_times(result, asker, asker->submit_ns, end_ns);
		scout__hist_add(&result->asks, asker->asks);
		result->landed_in_step += asker->asks <= 1;
	}
	return 0;
}

/* One step of the scheduler loop; *done grows by the requests that ended. */
static int
async_step(struct lat_loop *loop, struct lat_result *result, uint64_t *done)
{
	uint64_t *stamps = loop->stamps;
	uint64_t begin_ns = scout__now_ns(), end_ns, failed = result->failed;
	struct lat_asker *asker;
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
abandon(struct lat_loop *loop)
{
	for (uint64_t i = 0; i < loop->n; i++) {
		if (loop->askers[i].state != IDLE)
			(void)scout_finish(loop->client, loop->askers[i].id); /* cannot be refused */
		loop->askers[i].state = IDLE;
	}
}

/* One step of blocking lookups; *done grows. */
static int
polled_step(struct lat_loop *loop, struct lat_result *result, uint64_t *done)
{
	uint64_t start_ns, end_ns, landed_ns, stall_ns = 0, failed = result->failed;
	struct lat_asker *asker;
	int rc = 0;

	for (uint64_t i = 0; i < loop->n && !lat_is_stopped(); i++) {
		asker = &loop->askers[i];
		if (asker->state == IDLE)
			continue;
		start_ns = scout__now_ns();
		asker->rc = scout_wait_lookup(loop->client, &asker->lookup, &asker->hit);
		end_ns = scout__now_ns();
		stall_ns += end_ns - start_ns;
		if (asker->rc)
			return lat_fail(loop->lat, "scout_wait_lookup: %s", scout_strerror(asker->rc));
		if (was_good(asker)) {
			landed_ns = scout__client_landed_ns(loop->client, asker->id);
			scout__hist_add(&result->metrics[LAT_LANDED], landed_ns - start_ns);
			count_times(result, asker, start_ns, end_ns);
		}
		count_answer(loop, result, asker);
		asker->state = WAITING;
		(*done)++;
	}
	if (result->failed == failed)
		scout__hist_add(&result->metrics[LAT_STALL], stall_ns);
	result->steps++;
	/* Together and last, as `sync` does: giving back is not measured. */
	scout_step_begin(loop->client);
	for (uint64_t i = 0; i < loop->n; i++) {
		if (loop->askers[i].state == WAITING)
			rc |= give_back(loop, &loop->askers[i]);
		loop->askers[i].state = IDLE;
	}
	scout_step_end(loop->client);
	return rc;
}

/* Steps until so many requests are done. A step that asks nothing is not one that costs nothing: it does not count. */
static int
run(struct lat_fleet *fleet, struct lat_result *result, uint64_t requests,
    int (*step)(struct lat_loop *loop, struct lat_result *result, uint64_t *done))
{
	struct lat_arrivals arrivals;
	struct lat_pace pace;
	uint64_t done = 0;
	int rc = 0;

	lat_arrivals_begin(&arrivals, fleet->lat, requests);
	lat_pace_begin(&pace, fleet->lat);
	while (!rc && done < requests && !lat_is_stopped()) {
		for (uint64_t i = 0; i < fleet->n && !rc && !lat_is_stopped(); i++)
			if (renew_idle(&fleet->loops[i], &arrivals))
				rc = step(&fleet->loops[i], result, &done);
		lat_pace_wait(&pace);
	}
	for (uint64_t i = 0; i < fleet->n; i++)
		abandon(&fleet->loops[i]);
	return rc;
}

static int
async_run(void *self, struct lat_result *result, uint64_t requests)
{
	return run(self, result, requests, async_step);
}

static int
polled_run(void *self, struct lat_result *result, uint64_t requests)
{
	return run(self, result, requests, polled_step);
}

const struct lat_runner lat_async_runner = {
	.open = fleet_open,
	.run = async_run,
	.close = fleet_close,
};

const struct lat_runner lat_polled_runner = {
	.open = fleet_open,
	.run = polled_run,
	.close = fleet_close,
};
