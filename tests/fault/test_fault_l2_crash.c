/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "l2_folder.h"

/*
 * kvscoutd is killed at random moments of writing to its files, or to a plugin, again and again. After each start the folder holds whole
 * objects and nothing else, and what a lookup counts comes back byte by byte. The plugin leaves what it was writing under another name.
 *
 * KVSCOUT_CRASHES: how often; default 20, with KVSCOUT_LONG=1 100. Most of a round is the start of a server.
 */

#define KEYS 200u  /* stored in each round */
#define SAMPLE 8u  /* one of so many is looked at */
#define ROUNDS 20u /* kills */
#define ROUNDS_LONG 100u
#define POOL 1024u /* chunks: a quarter of them may wait to be written */
#define KEEP "4Mi" /* of objects: some rounds' worth, so that eviction goes on, too */

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

/* Some of a round's keys, one lookup for each since any may be lost; returns how many came back, all of them right. */
static uint32_t
load(uint64_t first_key, uint64_t *ticket)
{
	uint8_t expected[FAULT_SHARD_BYTES];
	struct scout__lookup_reply hit;
	struct wire_grants g;
	uint32_t n = 0;

	for (uint64_t key = first_key; key < first_key + KEYS; key += SAMPLE) {
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

static void
wait_a_moment(uint64_t us)
{
	const struct timespec moment = {.tv_nsec = (long)(us * 1000)};

	(void)ppoll(NULL, 0, &moment, NULL);
}

/*
 * How long the next kill may wait: a random time of a window that is made larger when it met nothing written, and smaller when all was.
 * So it meets the middle, however fast disk and machine are at this moment.
 */
static uint64_t
fit_window(uint64_t window_us, uint32_t n)
{
	if (n == 0)
		return window_us < 400000 ? window_us * 2 : window_us;
	if (n == KEYS / SAMPLE)
		return window_us > 100 ? window_us * 2 / 3 : window_us;
	return window_us;
}

static const struct {
	void (*check)(const char *path, struct l2_folder_report *ret_report);
	bool is_plugin; /* which knows no number of objects, and leaves what it was writing */
} stores[] = {{l2_folder_check, false}, {l2_folder_check_flat, true}};

UNCHECKED_FIXTURE(fault_make_home, NULL);

START_LOOP_TEST(killed_at_any_moment_of_writing_the_files_are_whole, 0, sizeof(stores) / sizeof(stores[0]))
{
	const char *text = getenv("KVSCOUT_CRASHES");
	uint32_t rounds = text ? (uint32_t)strtoul(text, NULL, 10) : is_long() ? ROUNDS_LONG : ROUNDS;
	struct l2_folder_report report;
	uint64_t ticket = 0, window_us = 20000;
	uint32_t in_the_middle = 0, came_back = 0;
	char folder[160], url[512];

	(void)snprintf(folder, sizeof(folder), "%s/l2-crash%d", fault_home(), _i);
	if (stores[_i].is_plugin)
		(void)snprintf(url, sizeof(url), "plugin://%s?threads=1&folder=%s&control=%s.control",
			       getenv("KVSCOUT_FAULTY_STORE"), folder, folder);
	else
		(void)snprintf(url, sizeof(url), "fs://%s?threads=1&max_bytes=" KEEP, folder);
	f = (struct fault){.pool_chunks = POOL, .more = {"l2", url, "l2_queue_bytes", "1Gi", "l2_timeout_ms", "20000"}};
	fault_up(&f);
	fault_server_kill(&f);
	for (uint32_t round = 0; round < rounds; round++) {
		join_server();
		stores[_i].check(folder, &report);
		ck_assert_msg(report.damaged + report.foreign == 0, "round %u: %s", round, report.first_bad);
		if (!stores[_i].is_plugin) {
			ck_assert_msg(report.temporaries == 0, "round %u: %s", round, report.first_bad);
			ck_assert_uint_eq(fault_status(&f, "l2.0.objects"), report.objects);
		}
		if (round > 0) {
			uint32_t n = load((round - 1) * (uint64_t)KEYS, &ticket);

			in_the_middle += n > 0 && n < KEYS / SAMPLE;
			came_back += n;
			window_us = fit_window(window_us, n);
		}
		store((uint64_t)round * KEYS);
		wait_a_moment(draw(window_us));
		fault_server_kill(&f);
		leave_server();
	}
	/* The kills met what they were meant to meet, and not everything was lost. */
	ck_assert_uint_gt(in_the_middle, 0);
	ck_assert_uint_gt(came_back, 0);
	join_server();
	wire_lease_bye(&worker);
	wire_lease_bye(&client);
	leave_server();
	fault_down(&f);
	stores[_i].check(folder, &report);
	ck_assert_uint_eq(report.damaged + (stores[_i].is_plugin ? 0 : report.temporaries) + report.foreign, 0);
}
END_TEST
