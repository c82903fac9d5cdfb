/* SPDX-License-Identifier: Apache-2.0 */
#include "fault_l2_rig.h"

#include <kvscout/l2_plugin.h>

#include "fault_rig_internal.h"
#include "given_time.h"

/* No step of the loop takes as long as the shortest time that a case lets a store hang. */
#define LOOP_LATE_US 50000u

struct fault f;

struct fault_actor *sched, *worker;

struct l2_fault_control *control;

char folder[128];

char l2_url[512];

const char *question_ms = "20000";

char files[MAX_FILES][160];

static uint32_t n_files;

static const struct fault_l2_store store_of_files = {.payload_at = 4096,
						     .level = 3,
						     .begins = LOADS_AT_ONCE,
						     .stuck = 1,
						     .failed = 1 + SCOUT__L2_ERROR,
						     .check = l2_folder_check},
				   store_of_plugin = {.is_plugin = true,
						      .payload_at = SCOUT__L2_HEADER_BYTES,
						      .level = 1,
						      .begins = 2,
						      .writes_behind = WRITES_AT_ONCE + 1,
						      .stuck = 2,
						      .failed = 1 + SCOUT_L2_FAILED,
						      .check = l2_folder_check_flat};

const struct fault_l2_store *on;

int log_fd;

void
on_files(void)
{
	on = &store_of_files;
}

void
on_plugin(void)
{
	on = &store_of_plugin;
}

int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void
up_with(uint32_t pool_chunks, const char *timeout_ms, const char *bad_key_ms)
{
	static unsigned n_folders;
	char path[160];

	memset(&f, 0, sizeof(f));
	n_folders++;
	(void)snprintf(folder, sizeof(folder), "%s/l2-%d-%u", fault_home(), (int)getpid(), n_folders);
	(void)snprintf(path, sizeof(path), "%s.control", folder);
	control = l2_fault_map(path);
	(void)snprintf(l2_url, sizeof(l2_url),
		       on == &store_of_plugin ? "plugin://%s?folder=%s&control=%s&threads=2"
					      : "fault+fs://%.0s%s?control=%s&threads=2",
		       on == &store_of_plugin ? fault_program("KVSCOUT_FAULTY_STORE") : "", folder, path);
	f.pool_chunks = pool_chunks;
	f.transfer_timeout_ms = 600000; /* a store that waited for a disk would wait for longer than the test does */
	f.more[0] = "l2";
	f.more[1] = l2_url;
	f.more[2] = "l2_timeout_ms";
	f.more[3] = timeout_ms;
	f.more[4] = "bad_key_ms";
	f.more[5] = bad_key_ms;
	f.more[6] = "eviction";
	f.more[7] = "lru";
	f.more[8] = "l2_queue_bytes";
	f.more[9] = "1Gi";
	f.more[10] = "l2_lookup_timeout_ms";
	f.more[11] = question_ms;
	f.log_fd = log_fd;
	if (on == &store_of_plugin)
		ck_assert_int_eq(setenv("KVSCOUT_KVSCOUTD", fault_program("KVSCOUT_SHIPPED"), 1), 0);
	fault_up_with(&f, &sched, &worker, NULL);
	fault_wait(&f, "l2.0.ready", 1);
}

void
up(const char *timeout_ms, const char *bad_key_ms)
{
	up_with(POOL_CHUNKS, timeout_ms, bad_key_ms);
}

static int
unlink_temporary(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	if (type == FTW_F && strchr(path + at->base, '.'))
		ck_assert_int_eq(unlink(path), 0);
	return 0;
}

void
unlink_temporaries(void)
{
	if (on == &store_of_plugin)
		ck_assert_int_eq(nftw(folder, unlink_temporary, 8, FTW_PHYS), 0);
}

void
check_folder(void)
{
	struct l2_folder_report report;

	on->check(folder, &report);
	ck_assert_msg(report.damaged + report.temporaries + report.foreign == 0, "%s is left", report.first_bad);
}

void
check_loop(void)
{
	struct given_time_result longest = {.elapsed_us = fault_status(&f, "loop.longest_us"),
					    .delay_us = given_time_delay_us(f.server, "scout-server")};

	(void)dprintf(STDOUT_FILENO,
		      "# the longest of %" PRIu64 " steps of the loop: %" PRIu64 " us; it waited %" PRIu64
		      " us for a CPU in all\n",
		      fault_status(&f, "loop.steps"), longest.elapsed_us, longest.delay_us);
	longest.delay_us = longest.delay_us < longest.elapsed_us ? longest.delay_us : longest.elapsed_us;
	ck_assert_int_ne(given_time_verdict(longest, LOOP_LATE_US), GIVEN_TIME_BROKEN);
}

void
down(void)
{
	if (!f.server) /* the case has ended it */
		return;
	fault_wait(&f, "l2.writes.waiting", 0);
	fault_wait(&f, "l2.0.pinned", 0);
	ck_assert_uint_eq(fault_status(&f, "bugs.mismatches"), 0);
	check_loop();
	fault_down(&f);
	check_folder();
	ck_assert_int_eq(nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
	(void)snprintf(folder + strlen(folder), 16, ".control");
	ck_assert_int_eq(unlink(folder), 0);
}

uint64_t
count(const char *name)
{
	uint64_t value = wire_status(&f.status, name);

	return value == UINT64_MAX ? 0 : value;
}

void
wait_count(const char *name, uint64_t least)
{
	uint64_t end_us = wait_begin();

	while (count(name) < least)
		ck_assert_msg(scout__now_us() < end_us, "%s is %" PRIu64 ", should become %" PRIu64, name, count(name),
			      least);
}

void
writes_at_rest(void)
{
	fault_wait(&f, "l2.writes.bytes", 0);
}

void
store(uint32_t prompt, uint32_t n)
{
	struct fault_done done = fault_store(worker, 0, prompt, n);

	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks + done.present, n);
	writes_at_rest();
}

void
out_of_the_pool(void)
{
	(void)fault_pressure(&f, worker, 2);
	writes_at_rest();
}

static int
note_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (type == FTW_F && at->level == on->level && st->st_size == FILE_BYTES) {
		ck_assert_uint_lt(n_files, MAX_FILES);
		(void)snprintf(files[n_files++], sizeof(files[0]), "%s", path);
	}
	return 0;
}

void
list_files(uint32_t expected)
{
	n_files = 0;
	ck_assert_int_eq(nftw(folder, note_file, 8, FTW_PHYS), 0);
	ck_assert_uint_eq(n_files, expected);
}

uint32_t
fetch(uint32_t prompt, uint32_t n, struct fault_done *ret_done)
{
	static unsigned n_ids;
	struct fault_hit hit;
	char id[32];

	(void)snprintf(id, sizeof(id), "fetch%u", n_ids++);
	hit = fault_lookup(sched, id, prompt, n);
	*ret_done = (struct fault_done){.missing = ""};
	if (hit.chunks) {
		*ret_done = fault_retrieve(worker, 0, hit.ticket, 0, hit.chunks * FAULT_BPC);
		fault_check_pages(worker, 0, ret_done, prompt, 0, hit.chunks * FAULT_BPC);
	}
	(void)fault_ask(sched, "finish %s", id);
	ck_assert_uint_eq(ret_done->n_missing % FAULT_BPC, 0);
	return hit.chunks - ret_done->n_missing / FAULT_BPC;
}

void
comes_back(uint32_t prompt, uint32_t n)
{
	struct fault_done done;

	wait_until(fetch(prompt, n, &done) == n)
		;
}

void
heals(uint32_t prompt, uint32_t n)
{
	store(prompt, n);
	comes_back(prompt, n);
}

void
check_pool(uint32_t prompt)
{
	struct fault_done done = fault_store(worker, 0, prompt, 4);

	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(fetch(prompt, 4, &done), 4);
}
