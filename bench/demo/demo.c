/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: one step is
 *
 *   arrive    take new requests while fewer than DEMO_MAX_WAITING wait
 *   compare   ask the same new questions the old way, in blocking round trips, beside the loop's own time
 *   ask       scout_step_begin(), scout_lookup() for each waiting request, scout_step_end(): what the loop pays
 *   collect   transfers that have ended: compare the bytes, or finish the request
 *   admit     answered requests, oldest first, while there are pages: scout_admit() and start to retrieve
 *   compute   the chunks that were no hit, up to the step's budget; a request that has all of them starts to store
 *
 * Nothing in a step waits for the cache, unless lookup_mode is polled: then "ask" waits for each answer. "compare"
 * waits, too, and is not part of any number but its own. An answered request that finds no free pages stays in line
 * and is asked about again, as engines do; that costs one read of its slot.
 */
#include "demo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "clock.h"
#include "log.h"

static int
demo_fail(struct demo *demo, const struct demo_job *job, int code, const char *what)
{
	return scout__fail(demo->err, sizeof(demo->err), code, "request %s: %s: %s", job->id, what,
			   scout_strerror(code));
}

static size_t
job_blocks(const struct demo *demo, const struct demo_job *job)
{
	return (size_t)job->request.n_total * engine_chunk_blocks(demo->engine);
}

static void
job_free(struct demo_job *job)
{
	engine_transfer_fini(&job->transfer);
	free(job->request.hashes);
	free(job->pages);
	free(job);
}

/* A request that is longer than all pages together is served as far as they go. */
static void
fit_to_pages(const struct demo *demo, struct workload_request *request)
{
	uint32_t most = (uint32_t)(demo->pages / engine_chunk_blocks(demo->engine));

	if (request->n_total <= most)
		return;
	request->n_total = most;
	if (request->n_prompt > most) {
		request->n_prompt = most;
		request->prompt_tokens = (uint64_t)most * workload_chunk_tokens(demo->workload) + 1;
	}
}

static int
add_job(struct demo *demo, struct workload_request *request)
{
	struct demo_job *job = calloc(1, sizeof(*job));

	fit_to_pages(demo, request);
	if (job)
		job->pages =
			calloc((size_t)request->n_total * engine_chunk_blocks(demo->engine) + 1, sizeof(*job->pages));
	if (!job || !job->pages) {
		free(job);
		free(request->hashes);
		return scout__fail(demo->err, sizeof(demo->err), SCOUT_ERR_NOMEM, "%s",
				   scout_strerror(SCOUT_ERR_NOMEM));
	}
	job->state = DEMO_WAITING;
	job->request = *request;
	job->is_new = true;
	(void)snprintf(job->id, sizeof(job->id), "request-%" PRIu64, request->number);
	demo->waiting[demo->n_waiting++] = job;
	return 0;
}

static int
arrive(struct demo *demo)
{
	struct workload_request request;
	int rc;

	while (demo->n_waiting < DEMO_MAX_WAITING) {
		rc = workload_next(demo->workload, demo->step, &request, demo->err, sizeof(demo->err));
		if (rc <= 0)
			return rc;
		rc = add_job(demo, &request);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int
compare(struct demo *demo)
{
	uint64_t sum = 0, ns, ticket;
	uint32_t hit;
	int rc;

	for (uint32_t i = 0; i < demo->n_waiting; i++) {
		const struct demo_job *job = demo->waiting[i];

		if (!job->is_new || job->request.n_prompt == 0)
			continue;
		ns = scout__now_ns();
		rc = probe_lookup(demo->probe, job->request.hashes, job->request.n_prompt, &ticket, &hit, demo->err,
				  sizeof(demo->err));
		ns = scout__now_ns() - ns;
		if (rc == 0)
			rc = probe_finish(demo->probe, &ticket, 1, demo->err, sizeof(demo->err));
		if (rc < 0)
			return rc;
		scout__hist_add(&demo->stats.round_trip_ns, ns);
		sum += ns;
	}
	if (sum > 0)
		scout__hist_add(&demo->stats.blocking_ns, sum);
	demo->stats.blocking_ns_sum += sum;
	return 0;
}

static int
ask_one(struct demo *demo, struct demo_job *job)
{
	struct scout_query lookup = {
		.id = job->id,
		.hashes = job->request.hashes,
		.hash_len = WORKLOAD_HASH_BYTES,
		.n = job->request.n_prompt,
		.prompt_tokens = job->request.prompt_tokens,
	};
	struct scout_hit hit;
	int rc = scout_lookup(engine_client(demo->engine), &lookup, &hit);

	job->is_new = false;
	if (rc == SCOUT_ERR_BUSY || rc == SCOUT_NOT_YET) {
		job->not_yet++;
		return 0;
	}
	if (rc < 0)
		return rc;
	job->answered = true;
	job->hit = hit;
	return 0;
}

/* Statistics of the answers that this step brought. Outside of the time that is measured. */
static void
note_answer(struct demo *demo, const struct demo_job *job)
{
	struct demo_stats *stats = &demo->stats;

	stats->answers++;
	stats->prompt_tokens += job->request.prompt_tokens;
	stats->hit_tokens += job->hit.tokens;
	if (job->hit.reason != SCOUT_REASON_HIT && job->hit.reason != SCOUT_REASON_MISS &&
	    job->hit.reason != SCOUT_REASON_LIMITED) {
		stats->unanswered++;
		stats->lookup_error = job->hit.error;
	}
	if (job->not_yet == 0)
		return;
	stats->not_yet++;
	scout__hist_add(&stats->not_yet_steps, job->not_yet);
}

static int
ask(struct demo *demo)
{
	struct scout_client *client = engine_client(demo->engine);
	const uint32_t n = demo->n_waiting;
	bool had[DEMO_MAX_WAITING];
	uint64_t start, ns;
	uint32_t i;
	int rc = 0;

	if (n == 0)
		return 0;
	for (i = 0; i < n; i++)
		had[i] = demo->waiting[i]->answered;
	start = scout__now_ns();
	scout_step_begin(client);
	for (i = 0; i < n && rc == 0; i++)
		rc = ask_one(demo, demo->waiting[i]);
	scout_step_end(client);
	ns = scout__now_ns() - start;
	if (rc < 0)
		return demo_fail(demo, demo->waiting[i - 1], rc, "lookup");
	scout__hist_add(&demo->stats.asking_ns, ns);
	demo->stats.asked_ns += ns;
	for (i = 0; i < n; i++)
		if (!had[i] && demo->waiting[i]->answered)
			note_answer(demo, demo->waiting[i]);
	return 0;
}

static int
finish(struct demo *demo, struct demo_job *job)
{
	int rc = scout_finish(engine_client(demo->engine), job->id);

	if (rc < 0)
		return demo_fail(demo, job, rc, "finish");
	engine_pages_return(demo->engine, job_blocks(demo, job), job->pages);
	workload_done(demo->workload, &job->request, demo->step);
	demo->stats.finished++;
	job_free(job);
	return 0;
}

/* The hit has come, or failed. What was not filled is computed at once: it lies before all that is to be computed. */
static void
loaded(struct demo *demo, struct demo_job *job)
{
	uint32_t chunk_blocks = engine_chunk_blocks(demo->engine), first = 0;

	(void)engine_verify(demo->engine, &job->transfer, job->request.hashes, job->hit.chunks,
			    job->pages); /* it counts */
	if (job->transfer.n_missing > 0) {
		while (!job->transfer.missing[first])
			first++;
		job->store_from = first / chunk_blocks;
		engine_compute(demo->engine, job->request.hashes, job->hit.chunks, job->pages, job->transfer.missing);
	}
	job->state = DEMO_COMPUTING;
}

static int
collect(struct demo *demo)
{
	uint32_t kept = 0, i;
	int rc = engine_poll(demo->engine);

	if (rc < 0)
		return scout__fail(demo->err, sizeof(demo->err), rc, "worker: %s", scout_strerror(rc));
	rc = 0;
	for (i = 0; i < demo->n_running; i++) {
		struct demo_job *job = demo->running[i];

		if (rc == 0 && job->state == DEMO_LOADING && job->transfer.pending == 0)
			loaded(demo, job);
		if (rc == 0 && job->state == DEMO_STORING && job->transfer.pending == 0) {
			rc = finish(demo, job);
			if (rc == 0)
				continue;
		}
		demo->running[kept++] = job;
	}
	demo->n_running = kept;
	return rc;
}

/* Take an answered request into the running ones: its pages are there. */
static int
start_job(struct demo *demo, struct demo_job *job)
{
	int rc = 0;

	demo->running[demo->n_running++] = job;
	job->computed = job->store_from = job->hit.chunks;
	job->state = DEMO_COMPUTING;
	if (job->request.n_prompt > 0) /* else it was answered on the spot, and the client knows no such request */
		rc = scout_admit(engine_client(demo->engine), job->id, 0, SCOUT_TO_END);
	if (rc < 0)
		return demo_fail(demo, job, rc, "admit");
	if (job->hit.chunks == 0)
		return 0;
	rc = engine_retrieve(demo->engine, &job->transfer, job->hit.ticket, 0, job->request.hashes, job->hit.chunks,
			     job->pages);
	if (rc < 0)
		return demo_fail(demo, job, rc, "retrieve");
	job->state = DEMO_LOADING;
	return 0;
}

static int
admit(struct demo *demo)
{
	uint32_t n = 0;
	int rc = 0;

	/* Oldest first, and no request overtakes: a long one would else wait for ever. */
	while (n < demo->n_waiting && demo->waiting[n]->answered && demo->n_running < DEMO_MAX_RUNNING && rc == 0) {
		struct demo_job *job = demo->waiting[n];

		if (!engine_pages_take(demo->engine, job_blocks(demo, job), job->pages)) {
			demo->stats.page_waits++;
			break;
		}
		rc = start_job(demo, job);
		n++;
	}
	demo->n_waiting -= n;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): it is an array of pointers that moves */
	memmove(demo->waiting, demo->waiting + n, demo->n_waiting * sizeof(demo->waiting[0]));
	return rc;
}

static int
store(struct demo *demo, struct demo_job *job)
{
	uint32_t from = job->store_from;
	int rc;

	job->state = DEMO_STORING;
	if (from == job->request.n_total)
		return 0; /* its transfer has ended already: collect() finishes it */
	rc = engine_store(demo->engine, &job->transfer, job->hit.ticket, from,
			  job->request.hashes + (size_t)from * WORKLOAD_HASH_BYTES, job->request.n_total - from,
			  job->pages + (size_t)from * engine_chunk_blocks(demo->engine));
	return rc < 0 ? demo_fail(demo, job, rc, "store") : 0;
}

static int
compute(struct demo *demo)
{
	uint32_t budget = DEMO_STEP_CHUNKS, n;
	int rc = 0;

	for (uint32_t i = 0; i < demo->n_running && rc == 0; i++) {
		struct demo_job *job = demo->running[i];

		if (job->state != DEMO_COMPUTING)
			continue;
		n = job->request.n_total - job->computed;
		n = n < budget ? n : budget;
		engine_compute(demo->engine, job->request.hashes + (size_t)job->computed * WORKLOAD_HASH_BYTES, n,
			       job->pages + (size_t)job->computed * engine_chunk_blocks(demo->engine), NULL);
		job->computed += n;
		budget -= n;
		if (job->computed == job->request.n_total)
			rc = store(demo, job);
	}
	return rc;
}

int
demo_step(struct demo *demo)
{
	int rc = arrive(demo);

	if (rc == 0)
		rc = compare(demo);
	if (rc == 0)
		rc = ask(demo);
	if (rc == 0)
		rc = collect(demo);
	if (rc == 0)
		rc = admit(demo);
	if (rc == 0)
		rc = compute(demo);
	demo->step++;
	return rc;
}

bool
demo_is_over(const struct demo *demo)
{
	return demo->n_waiting == 0 && demo->n_running == 0 && workload_is_over(demo->workload);
}

void
demo_drop_jobs(struct demo *demo)
{
	for (uint32_t i = 0; i < demo->n_waiting; i++)
		job_free(demo->waiting[i]);
	for (uint32_t i = 0; i < demo->n_running; i++)
		job_free(demo->running[i]);
	demo->n_waiting = demo->n_running = 0;
}
