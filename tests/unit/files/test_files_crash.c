/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"
#include "waiting.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

/*
 * A process that stores, loads and evicts as fast as it can is killed in the middle of it, a hundred times and more: every other
 * time wherever it happens to be, and else where it has begun to write a file. After each start: every object in the catalogue is whole, everything in the folder is in the catalogue, and no leftovers remain.
 */

enum {
	KILLS = 120,
	KEYS = 400,
	WINDOW = 48,
	BYTES_MAX = 150000
};

#define LIMIT "?threads=4&max_bytes=4Mi"

static struct rig rig;

/* Shared with the child: it says when it is at work. */
static struct shared {
	_Atomic uint64_t completed;
	_Atomic uint32_t stored;
} * shared;

/* Made once: a child has nothing else to do than to store and load. */
static struct scout__l2_key keys[KEYS];
static uint8_t *payloads[KEYS];

static uint64_t
bytes_of(uint32_t i)
{
	return (uint64_t)i * 7919 % BYTES_MAX;
}

static void
setup(void)
{
	rig_init(&rig, true);
	for (uint32_t i = 0; i < KEYS; i++) {
		keys[i] = rig_key(i);
		payloads[i] = malloc(bytes_of(i) + 1);
		ck_assert_ptr_nonnull(payloads[i]);
		object_fill(payloads[i], bytes_of(i), i);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
}

static void
teardown(void)
{
	rig_fini(&rig);
	for (uint32_t i = 0; i < KEYS; i++)
		free(payloads[i]);
	(void)munmap(shared, sizeof(*shared));
}

/* In the child: no ck_assert, which belongs to the parent. */
static void
work(void *arg)
{
	static struct scout__l2_op ops[WINDOW];
	static atomic_uint done[WINDOW];
	static uint8_t *loaded[WINDOW];
	unsigned seed = *(unsigned *)arg;

	if (rig_try_open(&rig, LIMIT) != 0)
		return;
	for (unsigned i = 0; i < WINDOW; i++) {
		loaded[i] = malloc(BYTES_MAX);
		if (!loaded[i])
			return;
		atomic_store(&done[i], 1);
	}
	scout__enter_loop();
	for (unsigned at = 0;; at = (at + 1) % WINDOW) {
		uint32_t i = (uint32_t)rand_r(&seed) % KEYS;
		bool loads = rand_r(&seed) % 8 == 0;

		while (!atomic_load(&done[at]))
			(void)sched_yield();
		if (ops[at].what == SCOUT__L2_STORE && ops[at].result == SCOUT__L2_OK)
			(void)atomic_fetch_add(&shared->stored, 1);
		(void)atomic_fetch_add(&shared->completed, 1);
		ops[at] = (struct scout__l2_op){.what = loads ? SCOUT__L2_LOAD : SCOUT__L2_STORE,
						.key = &keys[i],
						.data = loads ? loaded[at] : payloads[i],
						.bytes = bytes_of(i),
						.user = &done[at]};
		atomic_store(&done[at], 0);
		if (!scout__l2_files.submit(rig.of.adapter, &ops[at]))
			return;
	}
}

/* Until it is at work, and then for a random number of operations more. */
static void
let_it_work(unsigned *seed)
{
	uint64_t wanted = atomic_load(&shared->completed) + WINDOW + 1 + (uint64_t)rand_r(seed) % 100;

	wait_until(atomic_load(&shared->completed) >= wanted)
		;
}

static bool
is_writing(void)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	bool found = false;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "%s/tmp", rig.folder);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir)) != NULL) // NOLINT(concurrency-mt-unsafe): a stream of our own
		found = entry->d_name[0] != '.';
	(void)closedir(dir);
	return found;
}

/* However fast disk and machine are: it stands still while we look. */
static void
stop_in_a_write(pid_t child)
{
	uint64_t until_us = wait_begin();
	int status;

	for (;;) {
		ck_assert_int_eq(kill(child, SIGSTOP), 0);
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		ck_assert(WIFSTOPPED(status));
		if (is_writing())
			return;
		ck_assert_uint_lt(scout__now_us(), until_us);
		ck_assert_int_eq(kill(child, SIGCONT), 0);
		(void)sched_yield();
	}
}

/* Returns how many remains it removed: proof that the process was in the middle of something. */
static uint64_t
check_after_a_crash(void)
{
	struct scout__l2_gauges gauges;
	struct l2_folder_report report;
	static uint8_t bytes[BYTES_MAX];
	uint32_t there = 0;

	rig_open(&rig, LIMIT);
	gauges = rig_gauges(&rig);
	l2_folder_check(rig.folder, &report);
	ck_assert_msg(report.damaged + report.temporaries + report.foreign == 0, "%s", report.first_bad);
	ck_assert_uint_eq(report.objects, gauges.objects);
	ck_assert_uint_eq(report.bytes, gauges.bytes);
	ck_assert_uint_le(gauges.bytes, 4 * 1024 * 1024);
	for (uint32_t i = 0; i < KEYS; i++) {
		if (!rig_exists(&rig, i, false))
			continue;
		there++;
		ck_assert_int_eq(rig_transfer(&rig, SCOUT__L2_LOAD, &keys[i], bytes, bytes_of(i)), SCOUT__L2_OK);
		ck_assert_mem_eq(bytes, payloads[i], bytes_of(i));
	}
	ck_assert_uint_eq(there, gauges.objects);
	adapter_down(&rig.of);
	return gauges.leftover;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_process_killed_at_any_moment_leaves_whole_objects_only)
{
	unsigned seed = 1;

	for (unsigned i = 0; i < KILLS; i++) {
		pid_t child = crash_start(work, &(unsigned){i});

		uint64_t leftover;

		let_it_work(&seed);
		if (i % 2)
			stop_in_a_write(child);
		ck_assert(crash_kill(child));
		leftover = check_after_a_crash();
		if (i % 2)
			ck_assert_uint_ge(leftover, 1);
	}
	ck_assert_uint_gt(atomic_load(&shared->stored), KILLS);
}
END_TEST
