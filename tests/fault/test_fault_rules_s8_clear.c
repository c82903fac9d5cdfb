/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <dirent.h>
#include <stdio.h>

#include "l2_folder.h"

/*
 * S8, a clear: kvscoutd with files as its L2 is killed at any moment of it. What was stored before is never served
 * again, by the server that is started next, to peers that know of the clear or to peers that do not.
 */

static struct fault f;
static char *folder;
static char url[256], store[200];

static void
setup(void)
{
	folder = l2_folder_make(false);
	(void)snprintf(store, sizeof(store), "%s/kv", folder);
	(void)snprintf(url, sizeof(url), "fs://%s", store);
	memset(&f, 0, sizeof(f));
	f.more[0] = "l2";
	f.more[1] = url;
	f.more[2] = "l2_queue_bytes";
	f.more[3] = "64Mi";
	f.pool_chunks = 64;
}

static void
teardown(void)
{
	l2_folder_remove(folder);
	free(folder);
}

/* A clear's name and its record, as they are in the folder. */
static bool
has_record(void)
{
	DIR *dir = opendir(store);
	const struct dirent *entry;
	bool found = false;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		found |= strncmp(entry->d_name, "record-", 7) == 0;
	(void)closedir(dir);
	return found;
}

/* Bare peers have no memory: what they see is what the store says. */
static uint32_t
bare_hit(uint32_t prompt, uint32_t n)
{
	struct wire_peer client, worker;
	uint32_t hit;

	fault_bare_worker(&f, &worker); /* the namespace is complete */
	fault_bare_client(&f, &client);
	hit = fault_bare_lookup(&client, 1, prompt, n);
	ck_assert_int_eq(wire_simple(&client, SCOUT_OP_FINISH, 1), SCOUT_WIRE_OK);
	wire_close(&client);
	wire_lease_bye(&worker);
	wire_close(&worker);
	return hit;
}

static void
store_prompt(struct fault_actor *worker, uint32_t prompt)
{
	struct fault_done done = fault_store(worker, 0, prompt, 4);

	ck_assert_msg(done.status == 0, "%s", scout_err_name(done.status));
	fault_wait(&f, "l2.writes.waiting", 0);
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, teardown);

/* kill -9 between the record and the answer: whoever sent the CLEAR has no answer and is gone, too. */
START_TEST(S8_a_server_killed_between_the_record_and_the_answer_brings_nothing_back)
{
	struct fault_actor *worker;
	struct wire_peer client;

	fault_up(&f);
	worker = fault_worker(&f);
	store_prompt(worker, 1);
	fault_bare_client(&f, &client);
	scout__put_one_u64(wire_begin(&client, SCOUT_OP_CLEAR), 77);
	(void)wire_end(&client);
	wire_flush(&client);
	wait_until(has_record())
		;
	fault_server_kill(&f);
	fault_kill(worker);
	wire_close(&client);
	fault_server_start(&f);
	fault_wait(&f, "l2.0.ready", 1);
	ck_assert_uint_eq(bare_hit(1, 4), 0);
	fault_server_kill(&f);
	fault_server_start(&f);
	fault_wait(&f, "l2.0.ready", 1);
	ck_assert_uint_eq(bare_hit(1, 4), 0);
	fault_down(&f);
}
END_TEST

/* The scheduler clears while the server dies, or stops: the library tells the next one, before it asks anything. */
START_LOOP_TEST(S8_a_clear_that_met_a_dying_server_is_carried_out_by_the_next, 0, 3)
{
	struct fault_actor *sched, *worker;
	char generation[32];
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, NULL);
	for (uint32_t round = 1; round <= 4; round++) {
		if (_i == 2)
			ck_assert_int_eq(fault_store(worker, 0, round, 4).status, 0); /* it writes while it stops */
		else
			store_prompt(worker, round);
		if (_i == 0)
			fault_server_kill(&f); /* it is away when they call */
		if (_i == 2)
			fault_server_terminate(&f);
		(void)snprintf(generation, sizeof(generation), "%s", fault_ask(sched, "clear 0"));
		ck_assert_str_ne(generation, "0");
		(void)fault_ask(worker, "wclear 0 %s", generation);
		if (_i == 1)
			fault_server_kill(&f); /* it has heard of it, or not */
		if (_i == 2)
			fault_server_await_end(&f);
		fault_server_start(&f);
		wait_until((done = fault_store(worker, 0, 50 + round, 4)).status == 0)
			ck_assert_msg(done.status == SCOUT_ERR_UNREACHABLE || done.status == SCOUT_ERR_EPOCH, "%s",
				      scout_err_name(done.status));
		for (uint32_t prompt = 1; prompt <= round; prompt++) {
			char id[16];

			(void)snprintf(id, sizeof(id), "o%u-%u", (unsigned)round, (unsigned)prompt);
			hit = fault_lookup(sched, id, prompt, 4);
			ck_assert_uint_eq(hit.chunks, 0);
			(void)fault_ask(sched, "finish %s", id);
		}
		ck_assert_uint_eq(bare_hit(round, 4), 0);
	}
	fault_down(&f);
}
END_TEST
