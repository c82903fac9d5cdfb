/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "check_main.h"
#include "fault_store.h"
#include "s3_stand.h"
#include "s3_store.h"

/*
 * kvscoutd with its L2 on a real S3, OpenStack Swift, and faults before it: what was stored is found and loaded by a server
 * that was started anew, or another one, and whatever happens to the store, nothing wrong is served, lookups end in
 * time, the pool goes on working, and it heals by itself. One Swift serves all cases, each with a bucket of its own. The
 * first run installs Swift from PyPI below the build folder.
 *
 * It takes a minute, mostly for servers that start again and breakers that close.
 */

/* Of servers that are to miss the store, and to find it again: each request passes four Python programs on busy CPUs. */
#define PATIENCE "2000"

static struct swift swift;
static struct stand stand;
static char url[256];

static void
make_bucket(void)
{
	struct scout__s3_ask make = {.method = "PUT"};
	struct scout__s3_client client;
	char endpoint[64], err[512];
	struct scout__s3_options options = {.bucket = swift_bucket(), .endpoint = endpoint};

	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", stand.to);
	ck_assert_msg(scout__s3_client_init(&client, &options, err, sizeof(err)), "%s", err);
	scout__s3_do(&client, &make, 1, NULL);
	ck_assert_msg(make.result == SCOUT_L2_DONE, "%s", make.why);
	scout__s3_client_fini(&client);
}

static void
up_with(const char *lookup, const char *timeout_ms)
{
	make_bucket();
	(void)snprintf(url, sizeof(url), "s3://%s/a/b?endpoint=http://127.0.0.1:%u&%s", swift_bucket(), stand.port,
		       lookup);
	up(url, timeout_ms);
}

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
	memset(&stand, 0, sizeof(stand));
	stand.to = swift.port;
	stand_start(&stand);
}

static void
teardown(void)
{
	if (f.server)
		fault_down(&f);
	stand_fail(&stand, STAND_PASS, NULL, 1, 0);
	stand_stop(&stand);
}

static void
strike(enum stand_fault fault, const char *method, uint32_t one_in)
{
	stand_fail(&stand, fault, method, one_in, -1);
}

static void
heal(void)
{
	stand_fail(&stand, STAND_PASS, NULL, 1, 0);
}

static const char *const lookups[] = {"lookup=head", "lookup=index&list_s=1"};

CASE_TIMEOUT(300);
CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(a_new_server_finds_and_loads_what_another_stored, 0, 2)
{
	up_with(lookups[_i], LONG);
	store_through(1);
	start_anew();
	/* An index is empty until the first listing. */
	wait_until(use(1, true) == CHUNKS)
		;
	ck_assert_uint_eq(fault_status(&f, "l2.loads.done"), CHUNKS);
	/* By now it is in the pool: the store is not asked again. */
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.loads"), CHUNKS);
}
END_TEST

START_LOOP_TEST(servers_of_two_hosts_hit_what_the_other_stored, 0, 2)
{
	struct fault other = {.pool_chunks = 4 * CHUNKS};
	struct fault_actor *its_sched, *its_worker;
	struct fault_hit hit;
	struct fault_done done;

	up_with(lookups[_i], LONG);
	store_through(1);
	memcpy(other.more, f.more, sizeof(other.more));
	fault_up_with(&other, &its_sched, &its_worker, NULL);
	wait_until((hit = fault_lookup(its_sched, "r", 1, CHUNKS)).chunks == CHUNKS)
		(void)fault_ask(its_sched, "finish r");
	done = fault_retrieve(its_worker, 0, hit.ticket, 0, BLOCKS);
	fault_check_all(its_worker, 0, &done, 1, 0, BLOCKS);
	(void)fault_ask(its_sched, "finish r");
	ck_assert_uint_eq(fault_store(its_worker, 0, 2, CHUNKS).chunks, CHUNKS);
	fault_wait(&other, "l2.writes.done", CHUNKS);
	wait_until(use(2, true) == CHUNKS)
		;
	fault_down(&other);
}
END_TEST

START_TEST(what_was_cleared_stays_so_over_a_restart_and_on_other_servers)
{
	struct fault other = {.pool_chunks = 4 * CHUNKS};
	struct fault_actor *its_sched;

	up_with("lookup=head", LONG);
	store_through(1);
	memcpy(other.more, f.more, sizeof(other.more));
	fault_up(&other);
	its_sched = fault_scheduler(&other);
	(void)fault_worker(&other);
	ck_assert_uint_eq(fault_lookup(its_sched, "before", 1, CHUNKS).chunks, CHUNKS);
	(void)fault_ask(its_sched, "finish before");
	/* The first tries to record it fail. Killed before one succeeds, server and engine would take the clear with them. */
	stand_fail(&stand, STAND_BUSY, "PUT", 1, 8);
	(void)fault_ask(sched, "clear 0");
	ck_assert_uint_eq(use(1, true), 0);
	/* The other one learns it from the store. */
	wait_until(fault_lookup(its_sched, "after", 1, CHUNKS).chunks == 0)
		(void)fault_ask(its_sched, "finish after");
	(void)fault_ask(its_sched, "finish after");
	start_anew();
	ck_assert_uint_eq(use(1, true), 0);
	store_through(1);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	fault_down(&other);
}
END_TEST

static const enum stand_fault passing[] = {STAND_BUSY, STAND_RESET, STAND_LOST, STAND_SLOW};

START_LOOP_TEST(a_store_that_fails_one_request_of_four_loses_nothing, 0, 4)
{
	up_with("lookup=head", LONG);
	strike(passing[_i], NULL, passing[_i] == STAND_SLOW ? 1 : 4);
	store_through(1);
	if (passing[_i] == STAND_SLOW)
		be_impatient(SHORT); /* a load takes 500 ms in all, with a limit of 300 ms without progress */
	start_anew();
	wait_until(use(1, false) == CHUNKS)
		;
	ck_assert_uint_ge(stand.n_faults, 8);
	if (passing[_i] != STAND_SLOW)
		ck_assert_uint_eq(fault_status(&f, "l2.loads.failed"), 0);
}
END_TEST

/* A load would be late by then; a write, and the record of a clear, are not. */
START_TEST(a_store_that_thinks_about_what_it_is_given_gets_all_of_it)
{
	up_with("lookup=head", PATIENCE);
	strike(STAND_THINKS, "PUT", 1);
	store_through(1);
	ck_assert_uint_ge(stand.n_faults, CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.writes.done"), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.0.writes_switched_off"), 0);
	be_impatient(LONG);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	(void)fault_ask(sched, "clear 0");
	fault_wait(&f, "l2.0.record_write.ok", 1);
	start_anew();
	ck_assert_uint_eq(use(1, true), 0);
}
END_TEST

static const enum stand_fault lies[] = {STAND_WRONG, STAND_SHORT};

START_LOOP_TEST(a_lying_store_is_never_believed, 0, 2)
{
	struct fault_hit hit;
	struct fault_done done;

	up_with("lookup=head", LONG);
	store_through(1);
	start_anew();
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	strike(lies[_i], "GET", 1);
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	ck_assert_uint_eq(done.n_missing, BLOCKS);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	heal();
	check_healed(200);
}
END_TEST

START_TEST(what_goes_between_lookup_and_load_is_named_and_not_offered_again)
{
	struct fault_hit hit;
	struct fault_done done;

	up_with("lookup=head", LONG);
	store_through(1);
	start_anew();
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	stand_fail(&stand, STAND_ABSENT, "GET", 1, -1);
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, BLOCKS);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	ck_assert_uint_eq(use(1, true), 0);
	heal();
	check_pool(1);
	check_healed(100);
}
END_TEST

START_TEST(bytes_that_drip_are_no_progress)
{
	struct fault_hit hit;

	up_with("lookup=head", LONG);
	store_through(1);
	hit = promise_impatiently(PATIENCE);
	strike(STAND_DRIP, "GET", 1);
	assert_rc(fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS).status, SCOUT_ERR_MISSING);
	finish();
	wait_at_least("l2.0.reads_switched_off", 1);
	heal();
	check_healed(400);
}
END_TEST

START_TEST(an_object_stays_that_a_proxys_page_came_for)
{
	struct fault_hit hit;

	up_with("lookup=head", LONG);
	store_through(1);
	hit = promise_impatiently(PATIENCE);
	strike(STAND_PAGE, "GET", 1);
	assert_rc(fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS).status, SCOUT_ERR_MISSING);
	finish();
	heal();
	start_anew();
	wait_until(use(1, true) == CHUNKS)
		;
}
END_TEST

START_TEST(a_store_that_refuses_costs_the_second_tier_only_and_heals)
{
	strike(STAND_FORBIDDEN, NULL, 1);
	up_with("lookup=head", LONG);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(60 + i);
	}
	is_not_used();
	check_failing(
		"403 AccessDenied: GET was refused; without the right s3:ListBucket also what is absent is refused");
	heal();
	fault_wait(&f, "l2.0.state", SCOUT__L2_WORKS);
	fault_wait(&f, "l2.writes.waiting", 0);
	ck_assert_uint_eq(fault_status(&f, "l2.writes.done"), 8 * CHUNKS);
	start_anew();
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(use(60 + i, true), CHUNKS);
	check_healed(300);
}
END_TEST

START_TEST(a_frozen_store_costs_the_second_tier_only_and_heals)
{
	struct fault_hit hit;

	up_with("lookup=head", LONG);
	store_through(1);
	hit = promise_impatiently(PATIENCE);
	strike(STAND_FROZEN, NULL, 1);
	check_frozen(&hit);
	/* A loop that had waited for the store once would have stood for 2 s. */
	ck_assert_uint_lt(fault_status(&f, "loop.longest_us"), 1000000);
	heal();
	check_healed(400);
}
END_TEST

START_TEST(a_store_that_is_killed_and_comes_back_empty_is_believed)
{
	struct swift second;

	ck_assert_ptr_null(swift_start(&second));
	stand.to = second.port;
	up_with("lookup=head", LONG);
	store_through(1);
	be_impatient(PATIENCE);
	start_anew();
	swift_stop(&second);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(1, true), 0);
		check_pool(60 + i);
	}
	ck_assert_ptr_null(swift_start(&second));
	stand.to = second.port;
	make_bucket();
	wait_until(fault_status(&f, "l2.0.breaker.reads") == 0)
		;
	ck_assert_uint_eq(use(1, true), 0);
	check_healed(500);
	fault_down(&f);
	swift_stop(&second);
}
END_TEST

int
main(void)
{
	fault_make_home();
	return swift_main(&swift, suite_of_this_file());
}
