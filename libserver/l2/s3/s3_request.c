/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

/*
 * Requests in rounds: all that have no outcome are signed and sent together, their answers judged, and those that are to
 * be tried again wait for the next round together. See s3_client.h. Threads: any.
 */

#define FIRST_WAIT_MS 100u
#define MAX_WAIT_MS 5000u
#define DOCUMENT_BYTES 4096u
#define UNSIGNED "UNSIGNED-PAYLOAD"
#define HASH_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* What one ask needs beside itself. */
struct work {
	struct scout__s3_exchange x;
	struct scout__s3_ask *ask;
	char url[2048], path[2048], query[2048];
	char authorization[1024];
	char date[SCOUT__S3_DATE_TEXT];
	char hash[SCOUT__S3_HASH_TEXT];
	char document[DOCUMENT_BYTES];
	bool is_over, was_plain, had_clock, had_keys;
	uint32_t votes; /* for PUTs without a condition, if this one succeeds without */
};

/* All of one call. */
struct round {
	struct scout__s3_client *client;
	struct scout__s3_line *line;
	struct scout__s3_watch *watch;
	struct scout__s3_keys keys;
	struct work *works;
	uint32_t n;
	bool waits; /* before the next round */
};

static struct scout__s3_line *
take_line(struct scout__s3_client *client)
{
	struct scout__s3_line *line;

	(void)pthread_mutex_lock(&client->mu);
	line = client->lines;
	if (line)
		client->lines = line->next;
	(void)pthread_mutex_unlock(&client->mu);
	return line ? line : scout__s3_line_new(client->ca_file);
}

static void
give_line(struct scout__s3_client *client, struct scout__s3_line *line)
{
	(void)pthread_mutex_lock(&client->mu);
	line->next = client->lines;
	client->lines = line;
	(void)pthread_mutex_unlock(&client->mu);
}

static void
fail(struct work *w, const char *why)
{
	(void)snprintf(w->ask->why, sizeof(w->ask->why), "%s", why);
	w->ask->result = SCOUT_L2_FAILED;
	w->is_over = true;
}

static bool
is_put(const struct work *w)
{
	return strcmp(w->ask->method, "PUT") == 0;
}

/* What stays the same in each try. */
static bool
prepare(const struct scout__s3_client *client, struct work *w, struct scout__s3_ask *ask)
{
	struct scout__s3_text path = scout__s3_text_in(w->path, sizeof(w->path));
	struct scout__s3_text query = scout__s3_text_in(w->query, sizeof(w->query));
	struct scout__s3_text url = scout__s3_text_in(w->url, sizeof(w->url));
	bool is_good = true;

	w->ask = ask;
	scout__s3_printf(&path, "/%s", client->bucket);
	if (ask->key) {
		scout__s3_printf(&path, "%s", *client->bucket ? "/" : "");
		scout__s3_put_encoded(&path, client->prefix, true);
		scout__s3_printf(&path, "%s", *client->prefix ? "/" : "");
		scout__s3_put_encoded(&path, ask->key, true);
	}
	scout__s3_query(&query, ask->pairs, ask->n_pairs);
	scout__s3_printf(&url, "%s://%s%s%s%s", client->scheme, client->host, w->path, query.len ? "?" : "", w->query);
	if (!is_put(w))
		(void)snprintf(w->hash, sizeof(w->hash), "%s", HASH_OF_NOTHING);
	else if (!client->hashes_payloads)
		(void)snprintf(w->hash, sizeof(w->hash), "%s", UNSIGNED);
	else
		is_good = scout__s3_hash(ask->parts, ask->n_parts, w->hash);
	return is_good && !path.is_cut && !query.is_cut && !url.is_cut;
}

static void
header(struct scout__s3_exchange *x, const char *name, const char *value)
{
	x->headers[x->n_headers++] = (struct scout__s3_pair){name, value};
}

/* Write the exchange of the next try. */
static bool
sign(struct round *r, struct work *w)
{
	struct scout__s3_text authorization = scout__s3_text_in(w->authorization, sizeof(w->authorization));
	struct scout__s3_to_sign what = {.method = w->ask->method,
					 .path = w->path,
					 .query = w->query,
					 .payload = w->hash,
					 .region = r->client->region,
					 .date = w->date};
	struct scout__s3_exchange *x = &w->x;

	*x = (struct scout__s3_exchange){.method = w->ask->method, .url = w->url};
	scout__s3_date((int64_t)time(NULL) + atomic_load_explicit(&r->client->clock_offset, memory_order_relaxed),
		       w->date);
	header(x, "x-amz-content-sha256", w->hash);
	header(x, "x-amz-date", w->date);
	if (*r->keys.token)
		header(x, "x-amz-security-token", r->keys.token);
	w->was_plain = w->was_plain ||
		       atomic_load_explicit(&r->client->plain_votes, memory_order_relaxed) >= SCOUT__S3_PLAIN_VOTES;
	if (is_put(w) && w->ask->must_be_new && !w->was_plain)
		header(x, "if-none-match", "*");
	if (w->ask->newest)
		header(x, "x-newest", "true");
	memcpy(what.headers, x->headers, sizeof(what.headers));
	what.n_headers = x->n_headers;
	what.headers[what.n_headers++] = (struct scout__s3_pair){"host", r->client->host};
	x->text = scout__s3_text_in(w->document, sizeof(w->document));
	if (w->ask->text.at) {
		w->ask->text = scout__s3_text_in(w->ask->text.at, w->ask->text.size);
		x->text = w->ask->text;
	}
	if (is_put(w)) {
		x->body = w->ask->parts;
		x->n_body = w->ask->n_parts;
	} else {
		x->into = w->ask->parts;
		x->n_into = w->ask->n_parts;
	}
	header(x, "Authorization", w->authorization);
	return scout__s3_sign(&what, r->keys.access, r->keys.secret, &authorization);
}

/* Put what is not over at the front; returns how many. Works are large, but they are few and seldom tried again. */
static uint32_t
gather(struct round *r, struct scout__s3_exchange *xs, struct work **of)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		struct work *w = &r->works[i];

		if (w->is_over)
			continue;
		if (!sign(r, w)) {
			fail(w, "the request could not be signed");
			continue;
		}
		xs[n] = w->x;
		of[n++] = w;
	}
	return n;
}

/* Do what a verdict asks for before the next try; false: it was done already, and did not help. */
static bool
ready_for_another(struct round *r, struct work *w, enum scout__s3_verdict verdict, const struct scout__s3_exchange *x)
{
	struct scout__s3_keys refused;
	char err[SCOUT__S3_SENTENCE];
	bool is_good;

	switch (verdict) {
	case SCOUT__S3_AGAIN_LATER:
		r->waits = true;
		return true;
	case SCOUT__S3_AGAIN_WITH_CLOCK:
		if (!w->had_clock && x->server_seconds) {
			w->had_clock = true;
			atomic_store_explicit(&r->client->clock_offset, x->server_seconds - (int64_t)time(NULL),
					      memory_order_relaxed);
			return true;
		}
		/* The answer to a HEAD does not say which of the two it is. */
		__attribute__((fallthrough));
	case SCOUT__S3_AGAIN_WITH_KEYS:
		if (w->had_keys)
			return false;
		w->had_keys = true;
		refused = r->keys;
		is_good = scout__s3_credentials_get(&r->client->credentials, r->line, r->watch, &refused, &r->keys, err,
						    sizeof(err)) &&
			  (strcmp(refused.access, r->keys.access) != 0 || strcmp(refused.token, r->keys.token) != 0);
		explicit_bzero(&refused, sizeof(refused));
		return is_good;
	case SCOUT__S3_AGAIN_PLAIN:
		w->was_plain = true;
		/* 400 may also be the fault of this one request. */
		w->votes = x->status == 501 ? SCOUT__S3_PLAIN_VOTES : 1;
		return true;
	case SCOUT__S3_IS_OVER:
		break;
	}
	return false;
}

static void
judge(struct round *r, struct work *w, const struct scout__s3_exchange *x)
{
	enum scout__s3_verdict verdict;

	if (w->ask->text.at)
		w->ask->text = x->text;
	verdict = scout__s3_judge(r->client, x, w->was_plain, w->ask);
	if (verdict == SCOUT__S3_IS_OVER || !ready_for_another(r, w, verdict, x))
		w->is_over = true;
	if (!is_put(w) || !w->ask->must_be_new ||
	    (w->ask->result != SCOUT_L2_DONE && w->ask->result != SCOUT_L2_PRESENT))
		return;
	if (!w->was_plain)
		atomic_store_explicit(&r->client->plain_votes, 0, memory_order_relaxed);
	else if (w->votes)
		(void)atomic_fetch_add_explicit(&r->client->plain_votes, w->votes, memory_order_relaxed);
}

/* One round. Returns how many asks have no outcome yet. */
static uint32_t
go_round(struct round *r)
{
	struct scout__s3_exchange xs[SCOUT__S3_AT_ONCE];
	struct work *of[SCOUT__S3_AT_ONCE];
	uint32_t n = gather(r, xs, of), left = 0;

	r->waits = false;
	(void)atomic_fetch_add_explicit(&r->client->n_requests, n, memory_order_relaxed);
	(void)scout__s3_run(r->line, xs, n, r->client->timeout_ms, r->watch);
	for (uint32_t i = 0; i < n; i++) {
		judge(r, of[i], &xs[i]);
		left += !of[i]->is_over;
	}
	return left;
}

/* Doubled each time, less up to a half, so that many servers do not come at once. */
static uint32_t
wait_before(uint32_t try)
{
	uint32_t ms = FIRST_WAIT_MS << (try < 6 ? try : 6);

	ms = ms < MAX_WAIT_MS ? ms : MAX_WAIT_MS;
	return ms - (uint32_t)(scout__now_us() % (ms / 2));
}

static void
cancel(struct round *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		if (!r->works[i].is_over)
			r->works[i].ask->result = SCOUT_L2_GAVE_UP;
	}
}

static void
go(struct round *r)
{
	uint32_t left = r->n;

	for (uint32_t try = 0; left > 0 && try < SCOUT__S3_TRIES; try++) {
		if (r->waits && !scout__s3_pause(r->line, wait_before(try - 1), r->watch)) {
			cancel(r);
			return;
		}
		if (try > 0)
			(void)atomic_fetch_add_explicit(&r->client->n_again, left, memory_order_relaxed);
		left = go_round(r);
	}
}

void
scout__s3_do(struct scout__s3_client *client, struct scout__s3_ask *asks, uint32_t n, struct scout__s3_watch *watch)
{
	struct round r = {.client = client, .watch = watch, .n = n};
	char why[SCOUT__S3_SENTENCE] = "no memory";
	bool is_good;

	r.works = calloc(n, sizeof(*r.works));
	r.line = take_line(client);
	is_good = r.works && r.line &&
		  scout__s3_credentials_get(&client->credentials, r.line, watch, NULL, &r.keys, why, sizeof(why));
	for (uint32_t i = 0; i < n; i++) {
		asks[i].result = SCOUT_L2_FAILED;
		asks[i].status = 0;
		(void)snprintf(asks[i].why, sizeof(asks[i].why), "%s", why);
		if (is_good && !prepare(client, &r.works[i], &asks[i]))
			fail(&r.works[i], "the key is too long, or libcrypto failed");
	}
	if (is_good)
		go(&r);
	if (r.line)
		give_line(client, r.line);
	free(r.works);
	explicit_bzero(&r.keys, sizeof(r.keys));
}
