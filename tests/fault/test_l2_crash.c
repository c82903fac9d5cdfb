/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "l2_folder.h"

/*
 * kvscoutd is killed at random moments of writing to its files, again and again. After each start the folder holds whole
 * objects and nothing else, and what a lookup counts comes back byte by byte.
 *
 * KVSCOUT_CRASHES: how often, default 100.
 */

#define KEYS 32u    /* stored in each round */
#define ROUNDS 100u /* kills, at least */
#define POOL 128u   /* chunks */
#define KEEP "1Mi"  /* of objects: some rounds' worth, so that eviction goes on, too */

static struct fault f;
static struct wire_peer client, worker;
static uint64_t random_state = 42;

static uint64_t
draw(uint64_t below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (random_state >> 33) % below;
}

static void
fill(uint8_t *slot, uint64_t key)
{
	for (uint32_t i = 0; i < FAULT_SHARD_BYTES; i++)
		slot[i] = (uint8_t)(key * 197 + i * 13 + (i >> 7));
}

static void
join_server(void)
{
	fault_server_start(&f);
	wire_open(&client, f.endpoint);
	ck_assert_int_eq(wire_hello(&client), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&client), SCOUT_LEASE_OK);
	wire_open(&worker, f.endpoint);
	worker.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&worker), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&worker, 0, 0, FAULT_SHARD_BYTES), SCOUT_WIRE_OK);
	fault_wait(&f, "l2.0.ready", 1);
}

static void
leave_server(void)
{
	wire_close(&worker);
	wire_close(&client);
}

static void
store(uint64_t first_key)
{
	struct wire_grants g;
	uint32_t readable;

	ck_assert_int_eq(wire_store(&worker, 0, first_key, KEYS, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, KEYS);
	for (uint32_t i = 0; i < KEYS; i++)
		fill(wire_slot(&worker, &g.grants[i]), first_key + i);
	ck_assert_int_eq(wire_store_done(&worker, g.id, KEYS, KEYS, &readable), SCOUT_WIRE_OK);
	free(g.grants);
}

/* What there is of a round's keys, one lookup for each since any may be lost; returns how many came back, all right. */
static uint32_t
load(uint64_t first_key, uint64_t *ticket)
{
	uint8_t expected[FAULT_SHARD_BYTES];
	struct scout__lookup_reply hit;
	struct wire_grants g;
	uint32_t n = 0;

	for (uint64_t key = first_key; key < first_key + KEYS; key++) {
		++*ticket;
		ck_assert_int_eq(wire_lookup(&client, *ticket, key, 1, 0, &hit), SCOUT_WIRE_OK);
		if (hit.hit == 0)
			continue;
		ck_assert_int_eq(wire_retrieve(&worker, *ticket, 0, 1, &g), SCOUT_WIRE_OK);
		ck_assert_uint_eq(g.n_granted, 1);
		fill(expected, key);
		ck_assert_mem_eq(wire_slot(&worker, &g.grants[0]), expected, FAULT_SHARD_BYTES);
		ck_assert_int_eq(wire_retrieve_done(&worker, g.id, 0), SCOUT_WIRE_OK);
		free(g.grants);
		n++;
	}
	return n;
}

/* Some time within the writing of a round's keys. */
static void
wait_a_moment(uint64_t longest_us)
{
	uint64_t us = draw(longest_us + 1);
	const struct timespec moment = {.tv_nsec = (long)(us * 1000)};

	(void)ppoll(NULL, 0, &moment, NULL);
}

START_TEST(killed_at_any_moment_of_writing_the_files_are_whole)
{
	const char *text = getenv("KVSCOUT_CRASHES");
	uint32_t rounds = text ? (uint32_t)strtoul(text, NULL, 10) : ROUNDS;
	struct l2_folder_report report;
	uint64_t ticket = 0, write_us = 20000, start_us;
	uint32_t in_the_middle = 0, came_back = 0;
	char folder[160], url[256];

	(void)snprintf(folder, sizeof(folder), "%s/l2-crash", fault_home());
	(void)snprintf(url, sizeof(url), "fs://%s?max_bytes=" KEEP, folder);
	f = (struct fault){.pool_chunks = POOL, .more = {"l2", url, "l2_queue_bytes", "1Gi", "l2_timeout_ms", "20000"}};
	fault_up(&f);
	fault_server_kill(&f);
	for (uint32_t round = 0; round < rounds; round++) {
		join_server();
		l2_folder_check(folder, &report);
		ck_assert_msg(report.damaged + report.temporaries + report.foreign == 0, "round %u: %s", round,
			      report.first_bad);
		ck_assert_uint_eq(fault_status(&f, "l2.0.objects"), report.objects);
		if (round > 1) {
			uint32_t n = load((round - 1) * (uint64_t)KEYS, &ticket);

			in_the_middle += n < KEYS;
			came_back += n;
		}
		store((uint64_t)round * KEYS);
		start_us = scout__now_us();
		if (round == 0) {
			/* How long it takes here. */
			fault_wait(&f, "l2.writes.waiting", 0);
			write_us = scout__now_us() - start_us;
		} else {
			wait_a_moment(write_us < 100000 ? write_us : 100000);
		}
		fault_server_kill(&f);
		leave_server();
	}
	/* The kills met what they were meant to meet, and not everything was lost. */
	ck_assert_uint_gt(in_the_middle, rounds / 10);
	ck_assert_uint_gt(came_back, 0);
	join_server();
	wire_lease_bye(&worker);
	wire_lease_bye(&client);
	leave_server();
	fault_down(&f);
	l2_folder_check(folder, &report);
	ck_assert_uint_eq(report.damaged + report.temporaries + report.foreign, 0);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("l2_crash");
	TCase *tc = tcase_create("l2_crash");

	fault_make_home();
	tcase_set_timeout(tc, 280);
	tcase_add_test(tc, killed_at_any_moment_of_writing_the_files_are_whole);
	suite_add_tcase(suite, tc);
	return suite;
}
