/* SPDX-License-Identifier: Apache-2.0 */
/* When the host backend wakes its thread: only where it sleeps. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "copy_world.h"
#include "check_main.h"

/* True while the copy thread sleeps in the kernel. */
static bool
copy_thread_sleeps(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	char path[300], line[128];
	bool sleeps = false;
	FILE *file;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file))
			sleeps = sleeps || strstr(line, "(scout-copy) S") != NULL;
		fclose(file);
	}
	closedir(dir);
	return sleeps;
}

static atomic_uint writes_trapped;

static void
on_trap(int sig)
{
	(void)sig;
	atomic_fetch_add(&writes_trapped, 1);
}

/* From here on the calling thread's write() does nothing but count. */
static void
trap_writes(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	signal(SIGSYS, on_trap);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Starts batches as the courier would, on a thread whose writes are counted; asserting is left to the test's thread. */
struct starter {
	void *engine;
	struct single *singles;
	uint32_t n;
	int rc;
	unsigned int writes_first; /* after the first start */
	unsigned int writes_all;
};

static void *
starter_main(void *arg)
{
	struct starter *s = arg;

	trap_writes();
	/* Proof that the trap works. */
	(void)!write(-1, "", 1);
	if (atomic_exchange(&writes_trapped, 0) != 1) {
		s->rc = SCOUT_ERR_SYSTEM;
		return NULL;
	}
	for (uint32_t i = 0; i < s->n; i++) {
		s->rc |= ops->start(s->engine, &s->singles[i].batch);
		if (i == 0)
			s->writes_first = atomic_load(&writes_trapped);
	}
	s->writes_all = atomic_load(&writes_trapped);
	return NULL;
}

static void
run_starter(struct starter *s)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, starter_main, s), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(s->rc, 0);
}

START_TEST(start_writes_nothing_while_the_thread_is_busy)
{
	struct single singles[5];
	struct world w;
	struct gate gate;
	struct starter s = {.n = 4};

	world_small(&w, 5, 5);
	gate_shut(&gate, false);
	for (uint32_t i = 0; i < 5; i++)
		single_init(&singles[i], &w, SCOUT__COPY_SAVE, i);
	ck_assert_int_eq(ops->start(w.engine, &singles[0].batch), 0);
	wait_looks(&gate, 1);
	s.engine = w.engine;
	s.singles = singles + 1;
	run_starter(&s);
	ck_assert_uint_eq(s.writes_all, 0);
	atomic_store(&gate.shut, false);
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_ptr_eq(next_ended(w.engine), &singles[i].batch);
	world_fini(&w);
}
END_TEST

START_TEST(start_writes_once_for_a_parked_thread)
{
	struct single singles[4];
	struct world w;
	struct starter s = {.n = 3};

	world_small(&w, 4, 4);
	for (uint32_t i = 0; i < 4; i++)
		single_init(&singles[i], &w, SCOUT__COPY_SAVE, i);
	ck_assert_int_eq(ops->start(w.engine, &singles[3].batch), 0);
	ck_assert_ptr_eq(next_ended(w.engine), &singles[3].batch);
	assert_goes_quiet(w.engine);
	wait_until(copy_thread_sleeps())
		;
	/* The trapped write never wakes the thread, so it stays parked and nothing else may write. */
	s.engine = w.engine;
	s.singles = singles;
	run_starter(&s);
	ck_assert_uint_eq(s.writes_first, 1);
	ck_assert_uint_eq(s.writes_all, 1);
	ops->close(w.engine);
	w.engine = NULL;
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(singles[i].batch.status, SCOUT_ERR_CLOSED);
	world_fini(&w);
}
END_TEST
