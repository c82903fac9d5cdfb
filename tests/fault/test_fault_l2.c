/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"
#include "given_time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/l2_plugin.h>

#include "l2.h"
#include "l2_fault.h"
#include "l2_folder.h"
#include "object.h"
#include "fault_l2_rig.h"
#include "waiting.h"

/*
 * Faults of L2, on files and on a plugin, through a real server and real workers: whatever happens below, nothing wrong is served,
 * answers come in their time, the loop never waits, the pool goes on, a counter says what it was, and afterwards all works again by
 * itself. Slow and hanging disks meet timeouts of a second and more, which is most of the program's forty seconds.
 *
 * KVSCOUT_KVSCOUTD is the server that has faults to be switched on (l2_fault.h), KVSCOUT_SHIPPED the one without.
 */

#define LONG "20000" /* l2_timeout_ms where nothing is to be late */

START_TEST(without_faults_chunks_come_back_from_the_second_tier)
{
	struct fault_done done;

	up(LONG, "1000");
	store(1, 8);
	out_of_the_pool();
	ck_assert_uint_eq(fetch(1, 8, &done), 8);
	ck_assert_uint_eq(done.n_missing, 0);
	ck_assert_uint_ge(count("l2.hit_chunks"), 8);
	ck_assert_uint_eq(count("l2.loads.done"), 8);
	ck_assert_uint_eq(count("l2.0.load.ok"), 8);
	ck_assert_uint_eq(control->disk.hits, 0);
}
END_TEST

/* ---- what happens to files ---- */

START_TEST(a_truncated_file_is_a_miss)
{
	const off_t lengths[] = {0, 1, 511, 512, PAYLOAD_AT - 1, PAYLOAD_AT, FILE_BYTES - 1};
	const uint32_t n = sizeof(lengths) / sizeof(lengths[0]);
	struct fault_done done;

	up(LONG, "300");
	for (uint32_t i = 0; i < n; i++)
		store(1 + i, 1);
	list_files(n);
	out_of_the_pool();
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(truncate(files[i], lengths[i]), 0);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_eq(fetch(1 + i, 1, &done), 0);
		ck_assert_uint_eq(done.n_missing, FAULT_BPC);
		/* It is not offered again. */
		ck_assert_uint_eq(fault_lookup(sched, "again", 1 + i, 1).chunks, 0);
		(void)fault_ask(sched, "finish again");
	}
	ck_assert_uint_eq(count("l2.0.load.corrupt"), n);
	ck_assert_uint_eq(count("l2.loads.failed"), n);
	check_pool(50);
	for (uint32_t i = 0; i < n; i++)
		heals(1 + i, 1);
}
END_TEST

/* One of many chunks: exactly the blocks that cannot be had are named. */
START_TEST(a_truncated_file_costs_its_own_chunk_and_what_stands_behind_it)
{
	struct fault_done done;

	up(LONG, "300");
	store(1, 8);
	list_files(8);
	out_of_the_pool();
	ck_assert_int_eq(truncate(files[3], PAYLOAD_AT + 5), 0);
	ck_assert_uint_lt(fetch(1, 8, &done), 8);
	ck_assert_uint_ge(done.n_missing, FAULT_BPC);
	ck_assert_uint_eq(count("l2.0.load.corrupt"), 1);
	heals(1, 8);
}
END_TEST

static void
flip(const char *path, off_t at, unsigned bit)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= (uint8_t)(1u << bit);
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	ck_assert_int_eq(close(fd), 0);
}

/* In each of the header's fields, and all over the payload. What lies between them is nothing and may be anything. */
START_TEST(a_flipped_bit_is_a_miss)
{
	const off_t places[] = {0,
				7,
				8,
				9,
				10,
				11,
				12,
				15,
				16,
				23,
				24,
				39,
				40,
				41,
				57,
				70,
				100,
				300,
				503,
				504,
				511,
				PAYLOAD_AT,
				PAYLOAD_AT + 1,
				PAYLOAD_AT + 1000,
				PAYLOAD_AT + 2048,
				FILE_BYTES - 1};
	const uint32_t n = sizeof(places) / sizeof(places[0]);
	struct fault_done done;

	up(LONG, "300");
	for (uint32_t i = 0; i < n; i++)
		store(1 + i, 1);
	list_files(n);
	out_of_the_pool();
	for (uint32_t i = 0; i < n; i++)
		flip(files[i], places[i], i % 8);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(fetch(1 + i, 1, &done), 0);
	ck_assert_uint_eq(count("l2.0.load.corrupt"), n);
	check_pool(50);
	for (uint32_t i = 0; i < n; i++)
		heals(1 + i, 1);
}
END_TEST

START_TEST(a_flipped_bit_where_nothing_is_changes_nothing)
{
	struct fault_done done;

	up(LONG, "300");
	store(1, 2);
	list_files(2);
	out_of_the_pool();
	flip(files[0], SCOUT__L2_HEADER_BYTES, 0);
	flip(files[1], PAYLOAD_AT - 1, 7);
	/* Served if it is taken, and then it is right (fetch sees to that). */
	ck_assert_uint_eq(fetch(1, 2, &done) + count("l2.0.load.corrupt"), 2);
}
END_TEST

static void
read_header(const char *path, uint8_t header[SCOUT__L2_HEADER_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, header, SCOUT__L2_HEADER_BYTES, 0), SCOUT__L2_HEADER_BYTES);
	ck_assert_int_eq(close(fd), 0);
}

/* All sums are right: it only is the KV of another model, tenant or prompt. */
START_TEST(a_file_of_another_namespace_or_prompt_is_a_miss)
{
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	struct scout__l2_header parsed;
	struct fault_done done;
	char third[200];
	int fd;

	up(LONG, "300");
	for (uint32_t i = 1; i <= 3; i++)
		store(i, 1);
	list_files(3);
	out_of_the_pool();
	/* The fingerprint of another namespace in the first. */
	read_header(files[0], header);
	ck_assert_int_eq(scout__l2_header_get(header, &parsed), SCOUT__L2_HEADER_OK);
	parsed.key.bytes[2] ^= 1;
	scout__l2_header_put(header, &parsed.key, parsed.bytes, parsed.sum);
	fd = open(files[0], O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, header, sizeof(header), 0), sizeof(header));
	ck_assert_int_eq(close(fd), 0);
	/* The other two under each other's name. */
	(void)snprintf(third, sizeof(third), "%s.x", files[1]);
	ck_assert_int_eq(rename(files[1], third), 0);
	ck_assert_int_eq(rename(files[2], files[1]), 0);
	ck_assert_int_eq(rename(third, files[2]), 0);
	for (uint32_t i = 1; i <= 3; i++)
		ck_assert_uint_eq(fetch(i, 1, &done), 0);
	ck_assert_uint_eq(count("l2.0.load.corrupt"), 3);
	for (uint32_t i = 1; i <= 3; i++)
		heals(i, 1);
}
END_TEST

START_TEST(a_file_that_is_deleted_between_exists_and_load_is_a_miss)
{
	struct fault_done done;
	struct fault_hit hit;

	up(LONG, "300");
	store(1, 4);
	list_files(4);
	out_of_the_pool();
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_uint_eq(hit.chunks, 4);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(unlink(files[i]), 0);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	fault_check_pages(worker, 0, &done, 1, 0, 16);
	ck_assert_uint_eq(done.n_missing, 16);
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_ge(count("l2.0.load.absent"), 1);
	ck_assert_uint_eq(count("l2.0.load.corrupt"), 0);
	/* That something is gone is no fault of the store's. */
	ck_assert_uint_eq(count("l2.0.reads_switched_off"), 0);
	heals(1, 4);
}
END_TEST

/* ---- what happens to the disk ---- */

/* @n stores of one chunk each, from prompt @first on. */
static void
store_each(uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		store(first + i, 1);
}

/* The first of @n stores have failed as @failed, and all wait until the disk takes them. */
static void
check_switched_off(const char *failed, uint64_t n)
{
	ck_assert_uint_ge(count(failed), SCOUT__L2_FAILURES);
	ck_assert_uint_eq(count("l2.writes.waiting"), n);
	ck_assert_uint_eq(count("l2.writes.failed"), 0);
}

/* After the fault is over: stores reach L2 again, and come back from it. */
static void
writes_come_back(uint32_t first)
{
	uint64_t stored = count("l2.0.store.ok");
	struct fault_done done;

	wait_until(count("l2.0.store.ok") > stored) {
		store(first++, 1);
	}
	ck_assert_uint_eq(count("l2.0.breaker.writes"), 0);
	store(90000, 3);
	for (uint32_t chunks = 0; chunks < 2 * f.pool_chunks; chunks += 16)
		store(90001 + chunks, 16);
	ck_assert_uint_eq(fetch(90000, 3, &done), 3);
}

START_TEST(a_folder_that_is_read_only_is_still_read_and_written_again_when_it_can_be)
{
	struct fault_done done;

	up(LONG, "300");
	store(1, 4);
	out_of_the_pool();
	control->disk.change_errno = EROFS;
	store_each(10, 2 * SCOUT__L2_FAILURES);
	check_switched_off("l2.0.store.error", 2 * SCOUT__L2_FAILURES);
	ck_assert_uint_gt(count("l2.0.breaker.writes"), 0);
	ck_assert_uint_eq(count("l2.0.breaker.reads"), 0);
	ck_assert_uint_eq(count("l2.0.state"), SCOUT__L2_OFF);
	ck_assert_uint_eq(count("l2.0.ready"), 1); /* it is read */
	/* The pool has them, and what was there before is still loaded. */
	ck_assert_uint_eq(fetch(15, 1, &done), 1);
	ck_assert_uint_eq(fetch(1, 4, &done), 4);
	ck_assert_uint_eq(count("l2.0.load.ok"), 4);
	control->disk.change_errno = 0;
	fault_wait(&f, "l2.writes.waiting", 0);
	out_of_the_pool();
	for (uint32_t i = 0; i < 2 * SCOUT__L2_FAILURES; i++)
		ck_assert_uint_eq(fetch(10 + i, 1, &done), 1);
	writes_come_back(1000);
}
END_TEST

START_TEST(a_disk_that_gets_full_in_the_middle_of_a_write_keeps_no_half_object)
{
	struct l2_folder_report report;
	struct fault_done done;

	up(LONG, "300");
	control->disk.write_errno = ENOSPC;
	control->disk.write_room = PAYLOAD_AT + 1000;
	store_each(10, 2 * SCOUT__L2_FAILURES);
	ck_assert_uint_gt(control->disk.hits, 0);
	if (on->is_plugin) { /* room is its own affair */
		ck_assert_uint_eq(count("l2.0.store.full"), 2 * SCOUT__L2_FAILURES);
		ck_assert_uint_eq(count("l2.0.state"), SCOUT__L2_WORKS);
	} else {
		check_switched_off("l2.0.store.full", 2 * SCOUT__L2_FAILURES);
		ck_assert_uint_gt(count("l2.0.breaker.writes"), 0);
		ck_assert_uint_eq(count("l2.0.state"), SCOUT__L2_OFF);
	}
	ck_assert_uint_eq(count("l2.0.objects"), 0);
	l2_folder_check(folder, &report);
	ck_assert_msg(report.objects + report.damaged + report.temporaries + report.foreign == 0, "%s is left",
		      report.first_bad);
	for (uint32_t i = 0; i < 2 * SCOUT__L2_FAILURES; i++)
		ck_assert_uint_eq(fetch(10 + i, 1, &done), 1);
	/* Out of the pool there is nothing of it: no lookup counts a chunk that was never written. */
	out_of_the_pool();
	ck_assert_uint_eq(fetch(10, 1, &done), 0);
	control->disk.write_errno = 0;
	writes_come_back(1000);
}
END_TEST

START_TEST(a_disk_that_lands_other_bytes_is_found_out_at_the_load)
{
	struct fault_done done;

	up(LONG, "300");
	control->disk.write_flip = 1 + PAYLOAD_AT + 77;
	store(1, 1);
	control->disk.write_flip = 1 + 50;
	store(2, 1);
	ck_assert_uint_eq(control->disk.hits, 2);
	control->disk.write_flip = 0;
	out_of_the_pool();
	for (uint32_t i = 1; i <= 2; i++)
		ck_assert_uint_eq(fetch(i, 1, &done), 0);
	ck_assert_uint_eq(count("l2.0.load.corrupt"), 2);
	heals(1, 1);
	heals(2, 1);
}
END_TEST

START_TEST(a_disk_that_cannot_be_read_is_switched_off_and_on_again)
{
	struct fault_done done;

	up(LONG, "1");
	store_each(10, 3 * SCOUT__L2_FAILURES);
	out_of_the_pool();
	control->disk.read_errno = EIO;
	for (uint32_t i = 0; i < 2 * SCOUT__L2_FAILURES; i++)
		ck_assert_uint_eq(fetch(10 + i, 1, &done), 0);
	/* Nothing is asked any more: the rest was no hit at all. */
	ck_assert_uint_eq(count("l2.loads.failed"), SCOUT__L2_FAILURES);
	ck_assert_uint_ge(count("l2.0.load.error"), SCOUT__L2_FAILURES); /* trials, too */
	ck_assert_uint_eq(count("l2.0.reads_switched_off"), 1);
	ck_assert_uint_ge(count("l2.lookups.skipped"), SCOUT__L2_FAILURES);
	check_pool(50);
	control->disk.read_errno = 0;
	fault_wait(&f, "l2.0.breaker.reads", 0);
	for (uint32_t i = 2 * SCOUT__L2_FAILURES; i < 3 * SCOUT__L2_FAILURES; i++)
		ck_assert_uint_eq(fetch(10 + i, 1, &done), 1);
}
END_TEST

/* ---- a load that fails above the disk: the store still says that it has the object ---- */

START_TEST(a_load_that_fails_is_not_offered_again_for_bad_key_ms)
{
	struct fault_done done;
	uint64_t begin_us;

	up(LONG, "15000");
	store(1, 2);
	out_of_the_pool();
	control->ops[SCOUT__L2_LOAD].fail = on->failed;
	control->ops[SCOUT__L2_LOAD].detail = EIO;
	begin_us = scout__now_us();
	ck_assert_uint_eq(fetch(1, 2, &done), 0);
	ck_assert_uint_eq(done.n_missing, 2 * FAULT_BPC);
	control->ops[SCOUT__L2_LOAD].fail = 0;
	/* It is no hit, until the time is over; then it is one, and comes. This may be the store's fault: a sixtieth of the time. */
	wait_until(fetch(1, 2, &done) == 2)
		ck_assert_uint_eq(done.n_missing, 0);
	ck_assert_uint_ge(scout__now_us() - begin_us, 250000);
	ck_assert_uint_eq(count("l2.loads.failed"), 2);
	ck_assert_uint_eq(count("l2.loads.done"), 2);
}
END_TEST

/* ---- a disk that is slow or hangs ---- */

START_TEST(a_slow_disk_costs_its_deadline_and_no_more)
{
	uint64_t begin_us;
	struct fault_done done;

	up("1000", "1");
	store(1, 2);
	out_of_the_pool();
	control->disk.read_delay_ms = 600000;
	begin_us = scout__now_us();
	ck_assert_uint_eq(fetch(1, 2, &done), 0);
	ck_assert_uint_ge(scout__now_us() - begin_us, 1000000);
	ck_assert_uint_eq(done.n_missing, 2 * FAULT_BPC);
	ck_assert_uint_ge(count("l2.loads.late"), 1);
	check_pool(50);
	control->disk.read_delay_ms = 0;
	/* They end, late, and count as that. */
	wait_count("l2.0.late", 1);
	heals(1, 2);
}
END_TEST

START_TEST(a_lookup_waits_for_a_slow_store_until_its_deadline_at_most)
{
	struct fault_done done;
	struct fault_hit hit;
	uint64_t skipped;

	question_ms = "500";
	up(LONG, "1");
	store(1, 4);
	out_of_the_pool();
	store(2, 2);
	control->ops[SCOUT__L2_EXISTS].delay_ms = 600000;
	/* Two are in the pool and count; that there may be more nobody knows in time. */
	hit = fault_lookup(sched, "a", 2, 4);
	ck_assert_uint_eq(hit.chunks, 2);
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_eq(count("l2.lookups.late"), 1);
	/* After some of these it is not asked any more, and lookups cost nothing. */
	for (unsigned i = 0; count("l2.0.breaker.reads") == 0; i++) {
		ck_assert_uint_lt(i, 50);
		ck_assert_uint_eq(fetch(1, 4, &done), 0);
	}
	skipped = count("l2.lookups.skipped");
	hit = fault_lookup(sched, "b", 2, 4);
	ck_assert_uint_eq(hit.chunks, 2);
	ck_assert_uint_eq(count("l2.lookups.skipped"), skipped + 1);
	(void)fault_ask(sched, "finish b");
	control->ops[SCOUT__L2_EXISTS].delay_ms = 0;
	comes_back(1, 4);
}
END_TEST

/* Up to @n writes keep their slots for a store that hangs. */
static void
wait_for_the_stuck_only(uint32_t n)
{
	wait_until(count("l2.writes.bytes") <= (uint64_t)n * FAULT_SHARD_BYTES)
		;
}

START_TEST(a_disk_that_hangs_holds_its_slots_and_nothing_else)
{
	struct fault_done done;

	up("1000", "1");
	store(1, 6);
	out_of_the_pool();
	control->ops[SCOUT__L2_LOAD].hang = on->stuck;
	ck_assert_uint_eq(fetch(1, 6, &done), 0);
	ck_assert_uint_eq(done.n_missing, 6 * FAULT_BPC);
	/*
	 * What the disk has begun is late; what waited behind it, in the adapter's queue or for a place there, was never
	 * begun, and is a miss as soon as that is known.
	 */
	ck_assert_uint_eq(count("l2.loads.late"), LOADS_AT_ONCE);
	ck_assert_uint_eq(count("l2.loads.failed"), 6 - LOADS_AT_ONCE);
	ck_assert_uint_eq(count("l2.bad_keys"), on->begins);
	wait_count("l2.0.breaker.reads", 1);
	/*
	 * The slots that a late read may still fill are nobody else's, however hard the pool is pressed; a quarter of
	 * the pool may wait to be written.
	 */
	ck_assert_uint_ge(fault_pressure(&f, worker, 3), 3 * LOADS_AT_ONCE);
	wait_for_the_stuck_only(on->writes_behind);
	ck_assert_uint_le(fault_pressure(&f, worker, 1), LOADS_AT_ONCE + POOL_CHUNKS / 4);
	wait_for_the_stuck_only(on->writes_behind);
	check_pool(50);
	control->ops[SCOUT__L2_LOAD].hang = 0;
	wait_count("l2.0.late", LOADS_AT_ONCE);
	fault_wait(&f, "l2.0.breaker.reads", 0);
	fault_wait(&f, "l2.writes.waiting", 0);
	ck_assert_uint_eq(fault_pressure(&f, worker, 1), 0);
	heals(1, 6);
}
END_TEST

/* What is being written keeps its slot, too; the server ends all the same, also if the write never does (2). */
START_TEST(a_write_that_hangs_holds_its_slot_and_the_server_stops_in_time)
{
	struct fault_done done;

	up("100", "1");
	control->ops[SCOUT__L2_STORE].hang = (uint32_t)_i;
	ck_assert_uint_eq(fault_store(worker, 0, 1, WRITES_AT_ONCE).chunks, WRITES_AT_ONCE);
	ck_assert_uint_eq(fault_store(worker, 0, 2, 2).chunks, 2);
	/* The disk has one and hangs; the others waited for it, and give their slots back when that is known. */
	wait_count("l2.writes.late", WRITES_AT_ONCE);
	fault_wait(&f, "l2.writes.bytes", WRITES_AT_ONCE * FAULT_SHARD_BYTES);
	ck_assert_uint_eq(count("l2.0.store.refused"), 2);
	ck_assert_uint_le(fault_pressure(&f, worker, 2), 2 * WRITES_AT_ONCE + POOL_CHUNKS);
	ck_assert_uint_eq(fetch(1, WRITES_AT_ONCE, &done), WRITES_AT_ONCE);
	fault_down(&f);
}
END_TEST

/* Calls that meet a stop: clear and reset, by the client and by the worker. */
static const char *const calls[] = {"clear 0", "reset 7", "wclear 0 0", "wreset 0 7"};

/*
 * The server is told to stop and has a write to finish: it answers SHUTDOWN. What it was told then, by one peer alone, the next one carries
 * out before that peer asks anything.
 */
START_TEST(a_call_during_the_servers_stop_is_carried_out_by_the_next)
{
	bool by_client = _i < 2;
	struct wire_peer bare;
	struct fault_done done;

	up("5000", "1");
	store(1, 8);
	control->ops[SCOUT__L2_STORE].hang = 1;
	ck_assert_uint_eq(fault_store(worker, 0, 2, 1).chunks, 1);
	fault_bare_client(&f, &bare);
	fault_server_terminate(&f);
	wait_until(wire_simple(&bare, SCOUT_OP_FINISH, 1) == SCOUT_WIRE_SHUTDOWN)
		;
	wire_close(&bare);
	(void)fault_ask(by_client ? sched : worker, "%s", calls[_i]);
	/* They come after the call, which has its answer then. */
	if (by_client)
		ck_assert_int_eq(fault_look(sched, "stopping", 1, 8).reason, SCOUT_REASON_UNREACHABLE);
	else
		ck_assert_int_eq(fault_store(worker, 0, 3, 1).status, SCOUT_ERR_UNREACHABLE);
	control->ops[SCOUT__L2_STORE].hang = 0;
	fault_server_await_end(&f);
	fault_server_start(&f);
	fault_wait(&f, "l2.0.ready", 1);
	if (!by_client)
		wait_until((done = fault_store(worker, 0, 3, 1)).status == 0)
			;
	ck_assert_uint_eq(fault_lookup(sched, "old", 1, 8).chunks, 0);
}
END_TEST

/* All that the disk takes at once hangs: what waits behind it gives its slots back, and nothing is queued. */
START_TEST(writes_that_all_hang_do_not_fill_the_pool)
{
	up_with(256, "100", "1");
	control->ops[SCOUT__L2_STORE].hang = on->stuck;
	ck_assert_uint_eq(fault_store(worker, 0, 1, 60).chunks, 60);
	wait_count("l2.writes.late", WRITES_AT_ONCE);
	wait_for_the_stuck_only(WRITES_AT_ONCE + 1); /* and perhaps the trial */
	ck_assert_uint_gt(count("l2.0.breaker.writes"), 0);
	ck_assert_uint_ge(count("l2.writes.waiting"), 60 - WRITES_AT_ONCE - 1);
	ck_assert_uint_eq(fault_store(worker, 0, 10, 5).chunks, 5);
	wait_for_the_stuck_only(WRITES_AT_ONCE + 1); /* and perhaps the trial */
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(fault_store(worker, 0, 20 + i, 32).no_room, 0);
	control->ops[SCOUT__L2_STORE].hang = 0;
	fault_wait(&f, "l2.writes.waiting", 0);
	writes_come_back(1000);
}
END_TEST

/* ---- a server that is killed ---- */

/* In the middle of loads and of stores, earlier and later: each call on the disk takes a while. */
START_TEST(a_server_killed_during_transfers_leaves_whole_objects_and_serves_nothing_wrong)
{
	struct fault_done done;
	struct fault_hit hit;
	uint64_t hits;

	up(LONG, "300");
	store(1, 8);
	for (uint32_t kill = 0; kill < 3; kill++) {
		out_of_the_pool();
		control->disk.read_delay_ms = control->disk.write_delay_ms = 20;
		hit = fault_lookup(sched, "killed", 1, 8);
		hits = control->disk.hits;
		(void)fault_retrieve_begin(worker, 0, hit.ticket, 0, hit.chunks * FAULT_BPC);
		(void)fault_store_begin(worker, 0, 10 + kill, 10 + kill, 8, 0);
		wait_until(control->disk.hits >= hits + 1 + 4 * kill)
			;
		ck_assert_uint_eq(hit.chunks, 8);
		check_loop();
		fault_server_kill(&f);
		fault_kill(sched);
		fault_kill(worker);
		control->disk.read_delay_ms = control->disk.write_delay_ms = 0;
		fault_server_start(&f);
		sched = fault_scheduler(&f);
		worker = fault_worker(&f);
		fault_wait(&f, "l2.0.ready", 1);
		ck_assert_uint_eq(fetch(1, 8, &done), 8);
		(void)fetch(10 + kill, 8, &done);
		heals(10 + kill, 8);
	}
	unlink_temporaries();
}
END_TEST

/* ---- a plugin that does as it likes ---- */

/* Outcomes that are right, and one that is none; each is a lie where nothing was done. */
static const uint32_t outcomes[] = {SCOUT_L2_DONE,       SCOUT_L2_ABSENT,  SCOUT_L2_PRESENT,
				    SCOUT_L2_WRONG_SIZE, SCOUT_L2_FULL,    SCOUT_L2_TIMEOUT,
				    SCOUT_L2_FAILED,     SCOUT_L2_GAVE_UP, 99};

START_TEST(whatever_a_plugin_returns_nothing_wrong_is_served)
{
	static const enum scout__l2_what calls_of[] = {SCOUT__L2_EXISTS, SCOUT__L2_LOAD, SCOUT__L2_STORE};
	bool is_late = outcomes[_i] == SCOUT_L2_TIMEOUT || outcomes[_i] == SCOUT_L2_GAVE_UP;
	struct fault_done done;

	up(LONG, "1");
	store(1, 4);
	out_of_the_pool();
	for (uint32_t i = 0; i < sizeof(calls_of) / sizeof(calls_of[0]); i++) {
		struct l2_fault_rule *rule = &control->ops[calls_of[i]];

		rule->fail = 1 + outcomes[_i];
		if (calls_of[i] == SCOUT__L2_STORE)
			store(10, 4);
		else
			ck_assert_uint_eq(fetch(1, 4, &done), 0);
		ck_assert_uint_ge(rule->hits, 1);
		check_pool(50 + i);
		rule->fail = 0;
		out_of_the_pool();
		if (calls_of[i] == SCOUT__L2_STORE)
			ck_assert_uint_eq(fetch(10, 4, &done), 0);
		else
			heals(1, 4);
		out_of_the_pool();
	}
	ck_assert_int_eq(count("l2.0.exists.timeout") > 0, is_late);
	ck_assert_int_eq(count("l2.lookups.late") > 0, is_late);
}
END_TEST

START_TEST(a_plugin_that_finds_what_is_not_there_costs_a_miss_and_is_not_believed_again)
{
	struct fault_done done;
	struct fault_hit hit;

	up(LONG, "20000");
	store(1, 2);
	control->ops[SCOUT__L2_EXISTS].detail = 1;
	hit = fault_lookup(sched, "lie", 2, 8);
	ck_assert_uint_eq(hit.chunks, 8);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 8 * FAULT_BPC);
	ck_assert_uint_eq(done.n_missing, 8 * FAULT_BPC);
	fault_check_pages(worker, 0, &done, 2, 0, 8 * FAULT_BPC);
	(void)fault_ask(sched, "finish lie");
	ck_assert_uint_eq(count("l2.0.load.absent"), 8);
	ck_assert_uint_eq(fault_lookup(sched, "again", 2, 8).chunks, 0);
	(void)fault_ask(sched, "finish again");
	control->ops[SCOUT__L2_EXISTS].detail = 0;
	out_of_the_pool();
	ck_assert_uint_eq(fetch(1, 2, &done), 2);
}
END_TEST

/* It waits for a store that is gone, and asks whether to: such a call ends, and holds no slot. */
START_TEST(a_plugin_that_waits_is_told_to_give_up)
{
	struct fault_done done;

	up("500", "1");
	store(1, 6);
	out_of_the_pool();
	control->ops[SCOUT__L2_LOAD].hang = 1;
	ck_assert_uint_eq(fetch(1, 6, &done), 0);
	ck_assert_uint_eq(done.n_missing, 6 * FAULT_BPC);
	wait_count("l2.0.load.timeout", 2);
	fault_wait(&f, "l2.loads.running", 0);
	fault_wait(&f, "l2.writes.waiting", 0);
	ck_assert_uint_eq(fault_pressure(&f, worker, 1), 0);
	check_pool(50);
	control->ops[SCOUT__L2_LOAD].hang = 0;
	heals(1, 6);
}
END_TEST

static const enum scout__l2_what stuck_calls[] = {SCOUT__L2_EXISTS, SCOUT__L2_LOAD, SCOUT__L2_STORE};

static void
begin_what_hangs(enum scout__l2_what what)
{
	struct fault_done done;

	control->ops[what].hang = 2;
	if (what == SCOUT__L2_STORE)
		ck_assert_uint_eq(fault_store(worker, 0, 2, 4).chunks, 4);
	else
		ck_assert_uint_eq(fetch(1, 4, &done), 0);
	wait_until(control->ops[what].hits > 0)
		;
}

/* A call of the plugin never returns. A stop waits for it for 2 s. */
START_TEST(a_server_whose_plugin_is_stuck_for_ever_stops_all_the_same_and_says_so)
{
	FILE *log = tmpfile();
	struct given_time t;
	char text[65536];
	size_t n;

	ck_assert_ptr_nonnull(log);
	log_fd = fileno(log);
	question_ms = "500";
	up("500", "1");
	store(1, 4);
	out_of_the_pool();
	begin_what_hangs(stuck_calls[_i]);
	check_pool(50);
	check_loop();
	given_time_begin(&t);
	given_time_of(&t, f.server);
	fault_server_terminate(&f);
	fault_server_await_end(&f);
	(void)given_time_within(&t, 10000000, "the stop of a server whose plugin is stuck");
	n = (size_t)pread(log_fd, text, sizeof(text) - 1, 0);
	ck_assert_uint_lt(n, sizeof(text));
	text[n] = '\0';
	ck_assert_msg(strstr(text, "a call does not return; its thread is left running"), "%s", text);
	ck_assert_msg(strstr(text, "L2 hangs in the system: the pool stays mapped until the process ends"), "%s", text);
	ck_assert_int_eq(fclose(log), 0);
	/* The next one starts, and has what was stored. */
	log_fd = 0;
	f.log_fd = 0;
	control->ops[stuck_calls[_i]].hang = 0;
	fault_server_start(&f);
	fault_wait(&f, "l2.0.ready", 1);
	comes_back(1, 4);
	unlink_temporaries();
}
END_TEST

/* For each kind of store. */
static void
add_cases(TCase *tc)
{
	tcase_add_test(tc, without_faults_chunks_come_back_from_the_second_tier);
	tcase_add_test(tc, a_truncated_file_is_a_miss);
	tcase_add_test(tc, a_truncated_file_costs_its_own_chunk_and_what_stands_behind_it);
	tcase_add_test(tc, a_flipped_bit_is_a_miss);
	tcase_add_test(tc, a_file_of_another_namespace_or_prompt_is_a_miss);
	tcase_add_test(tc, a_file_that_is_deleted_between_exists_and_load_is_a_miss);
	tcase_add_test(tc, a_folder_that_is_read_only_is_still_read_and_written_again_when_it_can_be);
	tcase_add_test(tc, a_disk_that_gets_full_in_the_middle_of_a_write_keeps_no_half_object);
	tcase_add_test(tc, a_disk_that_lands_other_bytes_is_found_out_at_the_load);
	tcase_add_test(tc, a_disk_that_cannot_be_read_is_switched_off_and_on_again);
	tcase_add_test(tc, a_load_that_fails_is_not_offered_again_for_bad_key_ms);
	tcase_add_test(tc, a_slow_disk_costs_its_deadline_and_no_more);
	tcase_add_test(tc, a_lookup_waits_for_a_slow_store_until_its_deadline_at_most);
	tcase_add_test(tc, a_disk_that_hangs_holds_its_slots_and_nothing_else);
	tcase_add_loop_test(tc, a_write_that_hangs_holds_its_slot_and_the_server_stops_in_time, (int)on->stuck, 3);
	tcase_add_loop_test(tc, a_call_during_the_servers_stop_is_carried_out_by_the_next, 0,
			    sizeof(calls) / sizeof(calls[0]));
	tcase_add_test(tc, writes_that_all_hang_do_not_fill_the_pool);
	tcase_add_test(tc, a_server_killed_during_transfers_leaves_whole_objects_and_serves_nothing_wrong);
}

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("fault_l2");
	TCase *files_tc = tcase_create("files"), *plugin_tc = tcase_create("plugin");

	fault_make_home();
	on_files();
	tcase_add_checked_fixture(files_tc, on_files, down);
	add_cases(files_tc);
	tcase_add_test(files_tc, a_flipped_bit_where_nothing_is_changes_nothing);
	suite_add_tcase(suite, files_tc);
	on_plugin();
	tcase_add_checked_fixture(plugin_tc, on_plugin, down);
	add_cases(plugin_tc);
	tcase_add_loop_test(plugin_tc, whatever_a_plugin_returns_nothing_wrong_is_served, 0,
			    sizeof(outcomes) / sizeof(outcomes[0]));
	tcase_add_test(plugin_tc, a_plugin_that_finds_what_is_not_there_costs_a_miss_and_is_not_believed_again);
	tcase_add_test(plugin_tc, a_plugin_that_waits_is_told_to_give_up);
	tcase_add_loop_test(plugin_tc, a_server_whose_plugin_is_stuck_for_ever_stops_all_the_same_and_says_so, 0,
			    sizeof(stuck_calls) / sizeof(stuck_calls[0]));
	suite_add_tcase(suite, plugin_tc);
	return suite;
}
