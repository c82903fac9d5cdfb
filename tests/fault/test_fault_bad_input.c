/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * What an operator can get wrong: kvscoutd ends with a status and one sentence that has the numbers and the names.
 */

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

/* Start kvscoutd on @endpoint with a pool of @l1_bytes; it must refuse, with this exit status. Its sentence. */
static const char *
refusal(const char *endpoint, const char *l1_bytes, int exit_status)
{
	static char text[2048];
	char *argv[] = {(char *)(uintptr_t)fault_kvscoutd(), (char *)(uintptr_t) "--listen",
			(char *)(uintptr_t)endpoint,         (char *)(uintptr_t) "--l1_bytes",
			(char *)(uintptr_t)l1_bytes,         NULL};
	int status = fault_server_run(argv, text, sizeof(text));

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == exit_status, "status %d, it said: %s", status, text);
	return text;
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(bad_input_a_runtime_folder_that_others_can_write_is_refused_and_named)
{
	char endpoint[192], folder[160];
	const char *text;

	fault_up(&f);
	(void)snprintf(folder, sizeof(folder), "%s/open", f.folder);
	(void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/s", folder);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(chmod(folder, 0777), 0);
	text = refusal(endpoint, "1M", 1);
	ck_assert_msg(strstr(text, folder) && strstr(text, "777"), "%s", text);
	ck_assert_int_eq(chmod(folder, 0770), 0);
	text = refusal(endpoint, "1M", 1);
	ck_assert_msg(strstr(text, folder) && strstr(text, "770"), "%s", text);
	/* It has left nothing. */
	ck_assert_int_eq(rmdir(folder), 0);
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_a_second_server_on_the_endpoint_is_refused_and_told_who_holds_it)
{
	struct fault_actor *sched;
	const char *text;
	char pid[32];

	fault_up(&f);
	sched = fault_scheduler(&f);
	(void)snprintf(pid, sizeof(pid), "pid %d", (int)f.server);
	text = refusal(f.endpoint, "1M", 4);
	ck_assert_msg(strstr(text, pid) && strstr(text, f.folder), "%s", text);
	/* The first one serves on: who is connected, and who comes now. */
	assert_reason(fault_lookup(sched, "a", 1, 4).reason, SCOUT_REASON_MISS);
	(void)fault_ask(sched, "finish a");
	(void)fault_ask(fault_actor(&f), "client");
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_leftovers_of_a_killed_server_are_reclaimed)
{
	char path[192];

	fault_up(&f);
	fault_server_kill(&f);
	/* It could not clean up: its files are there. */
	(void)snprintf(path, sizeof(path), "%s/s", f.folder);
	ck_assert_int_eq(access(path, F_OK), 0);
	(void)snprintf(path, sizeof(path), "%s/s.lease", f.folder);
	ck_assert_int_eq(access(path, F_OK), 0);
	fault_server_start(&f);
	(void)fault_scheduler(&f);
	/* fault_down() sees that nothing is left. */
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_a_pool_larger_than_the_memory_is_refused_with_the_numbers)
{
	uint64_t bytes = UINT64_C(1) << 49;
	struct sysinfo machine;
	char want[32], endpoint[192];
	const char *text;

	fault_up(&f);
	(void)snprintf(want, sizeof(want), "%llu", (unsigned long long)bytes);
	(void)snprintf(endpoint, sizeof(endpoint), "%s.2", f.endpoint);
	text = refusal(endpoint, want, 2);
	ck_assert_msg(strstr(text, want), "%s", text);
	/* And what there is. */
	ck_assert_int_eq(sysinfo(&machine), 0);
	(void)snprintf(want, sizeof(want), "%llu", (unsigned long long)machine.totalram * machine.mem_unit);
	ck_assert_msg(strstr(text, want), "%s", text);
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_a_pool_smaller_than_a_chunk_is_told_at_register_with_the_numbers)
{
	const char *text;

	f.l1_bytes = FAULT_SHARD_BYTES - 1;
	fault_up(&f);
	text = fault_try(fault_actor(&f), "worker 0");
	ck_assert_msg(strstr(text, "err SCOUT_ERR_NO_ROOM") == text, "%s", text);
	ck_assert_msg(strstr(text, "4096") && strstr(text, "4095"), "%s", text);
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_a_pool_of_exactly_one_chunk_works)
{
	struct fault_actor *sched, *worker;
	struct fault_done done;
	struct fault_hit hit;

	f.pool_chunks = 1;
	fault_up_with(&f, &sched, &worker, NULL);
	done = fault_store(worker, 0, 1, 3);
	ck_assert_uint_eq(done.chunks, 1);
	ck_assert_uint_eq(done.no_room, 2);
	hit = fault_lookup(sched, "a", 1, 3);
	ck_assert_uint_eq(hit.chunks, 1);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 4);
	fault_check_all(worker, 0, &done, 1, 0, 4);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(bad_input_a_key_is_never_written_over_another)
{
	char path[160], text[512];
	char *argv[] = {(char *)(uintptr_t)fault_kvscoutd(), (char *)(uintptr_t) "--curve-keygen", path, NULL};
	struct stat st;
	int status;

	fault_up(&f);
	(void)snprintf(path, sizeof(path), "%s/key", f.folder);
	status = fault_server_run(argv, text, sizeof(text));
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", text);
	ck_assert_uint_eq(strcspn(text, "\n"), 40);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(st.st_size, 41);
	status = fault_server_run(argv, text, sizeof(text));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_msg(strstr(text, path) && strstr(text, "is there already"), "%s", text);
	ck_assert_int_eq(unlink(path), 0);
	fault_down(&f);
}
END_TEST
