/* SPDX-License-Identifier: Apache-2.0 */
#include "fault_store.h"

#include <inttypes.h>
#include <stdio.h>

/* See fault_store.h. */

struct fault f;
struct fault_actor *sched, *worker;

static uint32_t n_lookups;

static void
actors(void)
{
	sched = fault_scheduler(&f);
	worker = fault_worker(&f);
}

void
up(const char *url, const char *timeout_ms)
{
	const char *const keys[] = {
		"l2", url, "l2_timeout_ms", timeout_ms, "l2_lookup_timeout_ms", timeout_ms, "l2_queue_bytes", "64Mi"};

	for (int i = 0; i < 8; i++)
		f.more[i] = keys[i];
	f.pool_chunks = 16 * CHUNKS; /* what waits to be written is bounded by a share of it */
	fault_up(&f);
	actors();
}

void
be_impatient(const char *timeout_ms)
{
	f.more[3] = f.more[5] = timeout_ms;
	f.more[8] = "bad_key_ms";
	f.more[9] = "300";
}

void
start_anew(void)
{
	fault_kill(sched);
	fault_kill(worker);
	fault_server_kill(&f);
	fault_server_start(&f);
	actors();
	fault_wait(&f, "l2.0.ready", 1);
}

struct fault_hit
lookup(uint32_t prompt)
{
	char id[32];
	struct fault_hit hit;

	(void)snprintf(id, sizeof(id), "request-%u", n_lookups++);
	hit = fault_lookup(sched, id, prompt, CHUNKS);
	ck_assert_msg(hit.reason != SCOUT_REASON_TIMEOUT, "the client's timeout ended the lookup");
	return hit;
}

void
finish(void)
{
	(void)fault_ask(sched, "finish request-%u", n_lookups - 1);
}

uint32_t
use(uint32_t prompt, bool insist)
{
	struct fault_hit hit = lookup(prompt);
	uint32_t missing = 0;

	if (hit.chunks > 0) {
		uint32_t blocks = hit.chunks * FAULT_BPC;
		struct fault_done done = fault_retrieve(worker, 0, hit.ticket, 0, blocks);

		if (insist)
			fault_check_all(worker, 0, &done, prompt, 0, blocks);
		else
			fault_check_pages(worker, 0, &done, prompt, 0, blocks);
		missing = done.n_missing / FAULT_BPC;
	}
	finish();
	return hit.chunks - missing;
}

void
store(uint32_t prompt)
{
	ck_assert_uint_eq(fault_store(worker, 0, prompt, CHUNKS).chunks, CHUNKS);
}

void
store_through(uint32_t prompt)
{
	uint64_t before = fault_status(&f, "l2.writes.done");

	store(prompt);
	fault_wait(&f, "l2.writes.done", before + CHUNKS);
}

void
check_pool(uint32_t prompt)
{
	store(prompt);
	ck_assert_uint_eq(use(prompt, true), CHUNKS);
}

void
check_healed(uint32_t prompt)
{
	uint64_t before = UINT64_MAX - CHUNKS;

	wait_until(fault_status(&f, "l2.writes.done") >= before + CHUNKS) {
		fault_wait(&f, "l2.writes.waiting", 0);
		before = fault_status(&f, "l2.writes.done");
		store(++prompt);
		fault_wait(&f, "l2.writes.waiting", 0);
	}
	ck_assert_uint_eq(fault_status(&f, "l2.0.breaker.writes"), 0);
	start_anew();
	/* With a short timeout an overloaded machine may miss it, or some of it, once. */
	wait_until(use(prompt, false) == CHUNKS)
		;
}

void
check_failing(const char *words)
{
	char name[256];

	(void)snprintf(name, sizeof(name), "l2.0.words %s", words);
	fault_wait(&f, name, 1);
	ck_assert_uint_eq(fault_status(&f, "l2.0.state"), SCOUT__L2_FAILING);
	ck_assert_uint_eq(fault_status(&f, "l2.0.ready"), 0);
	ck_assert_uint_gt(fault_status(&f, "l2.0.breaker.reads"), 0);
	ck_assert_uint_gt(fault_status(&f, "l2.0.breaker.writes"), 0);
}

void
wait_at_least(const char *name, uint64_t value)
{
	uint64_t end_us = wait_begin();

	while (fault_status(&f, name) < value)
		ck_assert_msg(scout__now_us() < end_us, "%s is %" PRIu64, name, fault_status(&f, name));
}

struct fault_hit
promise_impatiently(const char *timeout_ms)
{
	struct fault_hit hit;

	be_impatient(timeout_ms);
	start_anew();
	wait_until((hit = lookup(1)).chunks == CHUNKS)
		finish();
	return hit;
}

void
check_frozen(const struct fault_hit *hit)
{
	struct fault_done done = fault_retrieve(worker, 0, hit->ticket, 0, BLOCKS);

	/* It was there; it does not come in time. */
	assert_rc(done.status, SCOUT_ERR_MISSING);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	wait_at_least("l2.loads.failed", 1);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(60 + i);
	}
	wait_at_least("l2.0.reads_switched_off", 1);
}

void
is_not_used(void)
{
	ck_assert_uint_eq(fault_status(&f, "l2.loads"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.hit_chunks"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.writes.done"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.0.reads_switched_off"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.0.writes_switched_off"), 0);
}
