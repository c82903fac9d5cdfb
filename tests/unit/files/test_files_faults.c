/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"
#include "l2_files_rig.h"
#include "own_use.h"
#include "waiting.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/wait.h>

/*
 * Disks that are full, broken, slow or hang. The linker puts the functions below between the adapter and libc (see
 * meson.build); what they do to a call is drawn up by `fault`. Calls of the test's own thread are let through.
 */

enum mode {
	NONE = 0,
	FAIL,  /* the nth call fails with errnum */
	SHORT, /* reads and writes move half of what they could, from the nth on */
	HANG,  /* reads wait at the gate */
	BROKEN /* reads fail with EIO */
};

static struct {
	_Atomic int mode;
	_Atomic unsigned nth, calls;
	int errnum;
	pthread_t test_thread;
	pthread_mutex_t mu;
	pthread_cond_t gate;
	bool open;     /* mu */
	unsigned held; /* mu: calls at the gate */
} fault = {.mu = PTHREAD_MUTEX_INITIALIZER, .gate = PTHREAD_COND_INITIALIZER};

static void
arm(enum mode mode, unsigned nth, int errnum)
{
	fault.errnum = errnum;
	fault.test_thread = pthread_self();
	atomic_store(&fault.calls, 0);
	atomic_store(&fault.nth, nth);
	atomic_store(&fault.mode, mode);
}

static void
disarm(void)
{
	atomic_store(&fault.mode, NONE);
}

static bool
fails(void)
{
	if (atomic_load(&fault.mode) != FAIL || pthread_equal(pthread_self(), fault.test_thread) ||
	    atomic_fetch_add(&fault.calls, 1) + 1 != atomic_load(&fault.nth))
		return false;
	errno = fault.errnum;
	return true;
}

static size_t
shortened(size_t n)
{
	if (atomic_load(&fault.mode) == SHORT && !pthread_equal(pthread_self(), fault.test_thread) && n > 1)
		return n / 2;
	return n;
}

static void
wait_at_gate(void)
{
	if (atomic_load(&fault.mode) != HANG || pthread_equal(pthread_self(), fault.test_thread))
		return;
	(void)pthread_mutex_lock(&fault.mu);
	fault.held++;
	(void)pthread_cond_broadcast(&fault.gate);
	while (!fault.open)
		(void)pthread_cond_wait(&fault.gate, &fault.mu);
	(void)pthread_mutex_unlock(&fault.mu);
}

/* Until @n calls are held; test's thread. */
static void
wait_for_held(unsigned n)
{
	(void)pthread_mutex_lock(&fault.mu);
	while (fault.held < n)
		(void)pthread_cond_wait(&fault.gate, &fault.mu);
	(void)pthread_mutex_unlock(&fault.mu);
}

static void
open_gate(void)
{
	(void)pthread_mutex_lock(&fault.mu);
	fault.open = true;
	(void)pthread_cond_broadcast(&fault.gate);
	(void)pthread_mutex_unlock(&fault.mu);
}

#define WRAP(type, name, params, args)                                                                                 \
	type __real_##name params;                                                                                     \
	type __wrap_##name params;                                                                                     \
	type __wrap_##name params                                                                                      \
	{                                                                                                              \
		return fails() ? -1 : __real_##name args;                                                              \
	}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
WRAP(int, openat64, (int dir, const char *path, int flags, mode_t mode), (dir, path, flags, mode))
WRAP(int, fstat64, (int fd, struct stat *st), (fd, st))
WRAP(int, fstatat64, (int dir, const char *path, struct stat *st, int flags), (dir, path, st, flags))
WRAP(int, ftruncate64, (int fd, off_t len), (fd, len))
WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
WRAP(int, linkat, (int from_dir, const char *from, int to_dir, const char *to, int flags),
     (from_dir, from, to_dir, to, flags))
WRAP(int, renameat2, (int from_dir, const char *from, int to_dir, const char *to, unsigned flags),
     (from_dir, from, to_dir, to, flags))
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to), (from_dir, from, to_dir, to))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times))

ssize_t __real_pread64(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *data, size_t n, off_t at);
ssize_t
__wrap_pread64(int fd, void *data, size_t n, off_t at)
{
	wait_at_gate();
	if (atomic_load(&fault.mode) == BROKEN && !pthread_equal(pthread_self(), fault.test_thread)) {
		errno = EIO;
		return -1;
	}
	return fails() ? -1 : __real_pread64(fd, data, shortened(n), at);
}

ssize_t __real_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t
__wrap_pwrite64(int fd, const void *data, size_t n, off_t at)
{
	return fails() ? -1 : __real_pwrite64(fd, data, shortened(n), at);
}

/* A close that fails has closed all the same. */
int __real_close(int fd);
int __wrap_close(int fd);
int
__wrap_close(int fd)
{
	int rc = __real_close(fd);

	return fails() ? -1 : rc;
}
/* NOLINTEND(bugprone-reserved-identifier) */

static struct rig rig;

/* Hundreds of folders, every store synced: in memory. */
static void
setup(void)
{
	rig_init(&rig, true);
}

static void
teardown(void)
{
	disarm();
	rig_fini(&rig);
}

/* ---- the nth call fails ---- */

#define BYTES 9000u /* 16 KiB on disk */

/* New folders, an eviction, a present object, loads, one that is found damaged, names, removes. */
static void
scenario(void)
{
	struct scout__l2_key damaged = rig_key(2);
	struct scout__l2_op remove_op = {.what = SCOUT__L2_REMOVE, .key = &damaged, .bytes = BYTES};
	char *path = rig_path(&rig, &damaged);

	for (uint32_t i = 0; i < 4; i++)
		(void)rig_store(&rig, i, BYTES);
	(void)rig_store(&rig, 3, BYTES);
	for (uint32_t i = 0; i < 4; i++) {
		bool there = rig_exists(&rig, i, true);
		enum scout__l2_result result = rig_load(&rig, i, BYTES); /* compares what is OK */

		if (result == SCOUT__L2_OK)
			ck_assert(there);
		if (there)
			rig_unpin(&rig, i);
	}
	(void)truncate(path, 5000); /* where it was stored */
	(void)rig_load(&rig, 2, BYTES);
	(void)rig_store(&rig, 2, BYTES);
	(void)adapter_run(&rig.of, &remove_op);
	free(path);
}

/* Every operation ended (or the test hangs), nothing wrong was served, and as soon as the disk is well, so is the adapter. */
static void
check_heals(const char *query)
{
	struct scout__l2_gauges gauges;
	struct l2_folder_report report;

	for (uint32_t i = 10; i < 13; i++) {
		ck_assert_int_eq(rig_store(&rig, i, BYTES), SCOUT__L2_OK);
		ck_assert_int_eq(rig_load(&rig, i, BYTES), SCOUT__L2_OK);
	}
	adapter_down(&rig.of);
	rig_open(&rig, query);
	gauges = rig_gauges(&rig);
	l2_folder_check(rig.folder, &report);
	ck_assert_msg(report.damaged + report.temporaries + report.foreign == 0, "%s", report.first_bad);
	ck_assert_uint_eq(gauges.objects, report.objects);
	ck_assert_uint_eq(gauges.bytes, report.bytes);
	ck_assert_uint_eq(gauges.pinned, 0);
	ck_assert_uint_ge(report.objects, 3);
	adapter_down(&rig.of);
}

static const struct {
	const char *query;
	int errnum;
} sweeps[] = {
	{"?max_bytes=48Ki&threads=1&sync=1", EIO},
	{"?max_bytes=48Ki&threads=1&sync=1", ENOSPC},
	{"?max_bytes=48Ki&threads=1", EMFILE},
	{"?max_bytes=48Ki&threads=1", EINVAL}, /* takes renames down every other way */
	{"?max_bytes=48Ki&threads=1", ENOENT},
	{"?max_bytes=48Ki&threads=1&sync=1", EINTR},
};

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(whichever_call_fails_nothing_wrong_is_served_and_it_heals, 0, (sizeof(sweeps) / sizeof(sweeps[0])))
{
	int before = 0;
	unsigned calls = 0;

	for (unsigned nth = 1; nth == 1 || calls >= nth - 1; nth++) {
		rig_open(&rig, sweeps[_i].query);
		arm(FAIL, nth, sweeps[_i].errnum);
		scenario();
		calls = atomic_load(&fault.calls);
		disarm();
		check_heals(sweeps[_i].query);
		if (nth == 1)
			before = count_fds();
		ck_assert_int_eq(count_fds(), before);
		l2_folder_remove(rig.folder);
		ck_assert_int_eq(mkdir(rig.folder, 0700), 0);
		ck_assert_uint_lt(nth, 1000);
		if (calls < nth)
			break;
	}
	/* The last one was not reached, and the sweep was one: */
	ck_assert_uint_gt(calls, 60);
}
END_TEST

START_TEST(whichever_call_fails_in_the_scan_the_next_one_is_right)
{
	unsigned calls = 0;

	rig_open(&rig, "");
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(rig_store(&rig, i, BYTES), SCOUT__L2_OK);
	adapter_down(&rig.of);
	for (unsigned nth = 1; nth == 1 || calls >= nth - 1; nth++) {
		arm(FAIL, nth, EIO);
		rig_open(&rig, "");
		calls = atomic_load(&fault.calls);
		disarm();
		ck_assert(calls >= nth || rig_gauges(&rig).recovered == 5);
		/* What could not be read may be unknown now, but is not lost. */
		for (uint32_t i = 0; i < 5; i++) {
			enum scout__l2_result wanted = rig_exists(&rig, i, false) ? SCOUT__L2_OK : SCOUT__L2_ABSENT;

			ck_assert_int_eq(rig_load(&rig, i, BYTES), wanted);
			ck_assert_int_eq(rig_store(&rig, i, BYTES), SCOUT__L2_PRESENT);
			ck_assert_int_eq(rig_load(&rig, i, BYTES), SCOUT__L2_OK);
		}
		adapter_down(&rig.of);
		rig_check_folder(&rig, 5);
		if (calls < nth)
			break;
	}
	ck_assert_uint_gt(calls, 20);
}
END_TEST

START_TEST(reads_and_writes_that_do_half_are_continued)
{
	rig_open(&rig, "?threads=2");
	arm(SHORT, 1, 0);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_int_eq(rig_store(&rig, i, 700000 + i), SCOUT__L2_OK);
		ck_assert_int_eq(rig_load(&rig, i, 700000 + i), SCOUT__L2_OK);
	}
	disarm();
	rig_check_folder(&rig, 4);
}
END_TEST

START_TEST(what_the_disk_cannot_read_is_not_offered_again)
{
	struct scout__l2_key key = rig_key(1);
	uint8_t data[BYTES];
	struct scout__l2_op op = {.what = SCOUT__L2_LOAD, .key = &key, .data = data, .bytes = BYTES};

	rig_open(&rig, "");
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	arm(BROKEN, 0, 0);
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_ERROR);
	ck_assert_int_eq(op.detail, EIO);
	disarm();
	ck_assert(!rig_exists(&rig, 1, false));
	ck_assert_ptr_nonnull(strstr(op.why, "Input/output error ("));
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_load(&rig, 1, BYTES), SCOUT__L2_OK);
}
END_TEST

/* ---- a disk that hangs ---- */

START_TEST(a_disk_that_hangs_delays_no_answer_what_exists)
{
	struct scout__l2_key key = rig_key(1);
	struct scout__l2_op loads[2];
	uint8_t data[2][BYTES];
	atomic_uint done[2];

	rig_open(&rig, "?threads=2");
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	arm(HANG, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		loads[i] = (struct scout__l2_op){.what = SCOUT__L2_LOAD, .key = &key, .data = data[i], .bytes = BYTES};
		adapter_submit(&rig.of, &loads[i], &done[i]);
	}
	wait_for_held(2);
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert(rig_exists(&rig, 1, true));
		ck_assert(!rig_exists(&rig, 2, true));
		rig_unpin(&rig, 1);
	}
	ck_assert(!done[0] && !done[1]);
	disarm();
	open_gate();
	(void)adapter_end(&loads[0], &done[0]);
	(void)adapter_end(&loads[1], &done[1]);
	ck_assert_int_eq(loads[0].result, SCOUT__L2_OK);
}
END_TEST

START_TEST(stop_does_not_wait_for_a_disk_that_hangs)
{
	enum {
		N = 20
	};
	struct scout__l2_key key = rig_key(1);
	struct scout__l2_op loads[N];
	static uint8_t data[N][BYTES];
	atomic_uint done[N];
	struct given_time t;
	unsigned n_done = 0;

	rig_open(&rig, "?threads=2");
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	arm(HANG, 0, 0);
	for (unsigned i = 0; i < N; i++) {
		loads[i] = (struct scout__l2_op){.what = SCOUT__L2_LOAD, .key = &key, .data = data[i], .bytes = BYTES};
		adapter_submit(&rig.of, &loads[i], &done[i]);
	}
	wait_for_held(2);
	given_time_begin(&t);
	ck_assert(!scout__l2_files.stop(rig.of.adapter, scout__now_us() + 200000));
	ck_assert_uint_ge(given_time_end(&t).elapsed_us, 200000);
	given_time_within(&t, 350000, "the stop of a files tier whose disk hangs, of 200 ms");
	ck_assert(adapter_logged(&rig.of, "does not answer"));
	/* What was not begun has ended; what hangs has not. */
	for (unsigned i = 0; i < N; i++) {
		n_done += done[i];
		ck_assert(!done[i] || loads[i].result == SCOUT__L2_CANCELLED);
	}
	ck_assert_uint_eq(n_done, N - 2);
	/* If the disk comes back, all is well. */
	disarm();
	open_gate();
	for (unsigned i = 0; i < N; i++)
		(void)adapter_end(&loads[i], &done[i]);
	adapter_down(&rig.of);
}
END_TEST

/* ---- no room ---- */

START_TEST(a_limit_on_file_sizes_ends_a_store_and_not_the_process)
{
	struct sigaction action;
	struct scout__l2_key key = rig_key(1);
	struct scout__l2_op op = {.what = SCOUT__L2_STORE, .key = &key, .bytes = 200000};

	op.data = calloc(1, op.bytes);
	rig_open(&rig, "");
	limit_file_size(65536);
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_FULL);
	ck_assert_int_eq(op.detail, EFBIG);
	ck_assert_int_eq(rig_store(&rig, 2, 50000), SCOUT__L2_OK);
	rig_check_folder(&rig, 1);
	/* The signal that comes with it would have ended us, and its handling is the host's. */
	ck_assert_int_eq(sigaction(SIGXFSZ, NULL, &action), 0);
	ck_assert(action.sa_handler == SIG_DFL);
	limit_file_size(RLIM_INFINITY);
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK);
	free(op.data);
}
END_TEST

/* A file system of 2 MiB of its own, seen by this process only. False: the kernel does not let us. */
static bool
mount_small(const char *path)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return false;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	return mount("tmpfs", path, "tmpfs", 0, "size=2m,mode=0700") == 0;
}

/* In a child, so that this process stays in its own namespace. Without the right to mount, ENOSPC comes from the sweep only. */
static bool
may_mount(void)
{
	pid_t child = fork();
	int status = 1;

	if (child == 0)
		_exit(mount_small("/tmp") ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

START_LOOP_TEST(a_full_disk_evicts_what_is_not_pinned, 0, may_mount())
{
	unsigned n_full = 0, n_there = 0;

	ck_assert(mount_small(rig.folder));
	rig_open(&rig, "");
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(rig_store(&rig, i, 60000), SCOUT__L2_OK);
	ck_assert_uint_gt(rig_gauges(&rig).evictions, 60);
	for (uint32_t i = 0; i < 100; i++) {
		if (!rig_exists(&rig, i, true))
			continue;
		n_there++;
		ck_assert_int_eq(rig_load(&rig, i, 60000), SCOUT__L2_OK);
	}
	ck_assert_uint_gt(n_there, 20);
	/* All pinned: in the middle of a write there is no room, what was begun goes, what is there stays. */
	for (uint32_t i = 200; i < 210; i++)
		n_full += rig_store(&rig, i, 60000) == SCOUT__L2_FULL;
	ck_assert_uint_ge(n_full, 9);
	rig_check_folder(&rig, n_there + 10 - n_full);
	for (uint32_t i = 0; i < 100; i++)
		rig_unpin(&rig, i);
	ck_assert_int_eq(rig_store(&rig, 300, 60000), SCOUT__L2_OK);
	adapter_down(&rig.of);
	ck_assert_int_eq(umount(rig.folder), 0);
}
END_TEST

#define PROMPTS 12u
#define CHUNKS 20u

/* All prompts at once, by turns, with three times as much as there is room for. */
static void
store_prompts(void)
{
	static struct scout__l2_key keys[PROMPTS * CHUNKS];
	static struct scout__l2_op ops[PROMPTS * CHUNKS];
	static atomic_uint done[PROMPTS * CHUNKS];
	static uint8_t data[20000];

	memset(done, 0, sizeof(done));
	for (uint32_t i = 0; i < PROMPTS * CHUNKS; i++) {
		keys[i] = rig_key(i);
		ops[i] = (struct scout__l2_op){
			.what = SCOUT__L2_STORE, .key = &keys[i], .data = data, .bytes = sizeof(data)};
		if (i >= PROMPTS)
			ops[i].after = keys[i - PROMPTS].digest;
		adapter_submit(&rig.of, &ops[i], &done[i]);
	}
	for (uint32_t i = 0; i < PROMPTS * CHUNKS; i++) {
		(void)adapter_end(&ops[i], &done[i]);
		ck_assert(ops[i].result == SCOUT__L2_OK || (ops[i].result == SCOUT__L2_FULL && ops[i].detail == 0));
	}
}

/* Chunks that a lookup would find. */
static uint32_t
n_leading(void)
{
	uint32_t n = 0;

	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++)
		for (uint32_t i = prompt; i < PROMPTS * CHUNKS && rig_exists(&rig, i, false); i += PROMPTS)
			n++;
	return n;
}

/* Up to max_bytes, and on a full disk. */
START_LOOP_TEST(what_goes_of_a_prompt_is_its_end, 0, 1 + may_mount())
{
	uint64_t n;

	if (_i)
		ck_assert(mount_small(rig.folder));
	rig_open(&rig, _i ? "" : "?max_bytes=1900Ki");
	store_prompts();
	n = rig_gauges(&rig).objects;
	ck_assert_uint_ge(n, 64);
	ck_assert_uint_le(n, 90);
	ck_assert_uint_ge(n_leading() * 10, n * 9);
	adapter_down(&rig.of);
	rig_open(&rig, "");
	wait_until(rig_gauges(&rig).ready)
		;
	ck_assert_uint_ge(n_leading() * 10, n * 9);
	adapter_down(&rig.of);
	if (_i)
		ck_assert_int_eq(umount(rig.folder), 0);
}
END_TEST

START_LOOP_TEST(a_disk_filled_by_others_is_full, 0, may_mount())
{
	char *path, block[65536] = {0};
	int fd;

	ck_assert(mount_small(rig.folder));
	rig_open(&rig, "");
	ck_assert_int_gt(asprintf(&path, "%s/others", rig.folder), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	ck_assert_int_eq(close(fd), 0);
	ck_assert_int_eq(rig_store(&rig, 1, 100000), SCOUT__L2_FULL);
	ck_assert_int_eq(unlink(path), 0);
	rig_check_folder(&rig, 0);
	ck_assert_int_eq(rig_store(&rig, 1, 100000), SCOUT__L2_OK);
	adapter_down(&rig.of);
	ck_assert_int_eq(umount(rig.folder), 0);
	free(path);
}
END_TEST

/* ---- a folder that cannot be written any more ---- */

static void
set_mode(const char *name, mode_t mode)
{
	char *path;

	ck_assert_int_gt(asprintf(&path, "%s/%s", rig.folder, name), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
	free(path);
}

START_TEST(a_folder_made_unwritable_stores_nothing_and_loads_all)
{
	struct scout__l2_key key = rig_key(1);
	char fan[33];

	if (geteuid() == 0) { /* who may write everything */
		ck_assert_int_eq(chown(rig.folder, 65534, 65534), 0);
		ck_assert_int_eq(seteuid(65534), 0);
	}
	rig_open(&rig, "?max_bytes=32Ki&threads=1");
	ck_assert_int_eq(rig_store(&rig, 1, BYTES), SCOUT__L2_OK);
	set_mode("tmp", 0500);
	ck_assert_int_eq(rig_store(&rig, 2, BYTES), SCOUT__L2_ERROR);
	ck_assert_int_eq(rig_load(&rig, 1, BYTES), SCOUT__L2_OK);
	set_mode("tmp", 0700);
	ck_assert_int_eq(rig_store(&rig, 2, BYTES), SCOUT__L2_OK);
	/* An object that cannot be evicted stays. */
	scout__l2_digest_text(key.digest, fan);
	fan[5] = '\0';
	memmove(fan + 3, fan + 2, 2);
	fan[2] = '/';
	set_mode(fan, 0500);
	ck_assert_int_eq(rig_load(&rig, 2, BYTES), SCOUT__L2_OK);
	ck_assert_int_eq(rig_store(&rig, 3, BYTES), SCOUT__L2_ERROR);
	ck_assert_int_eq(rig_load(&rig, 1, BYTES), SCOUT__L2_OK);
	set_mode(fan, 0700);
	ck_assert_int_eq(rig_store(&rig, 3, BYTES), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).objects, 2);
	rig_check_folder(&rig, 2);
	adapter_down(&rig.of);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
}
END_TEST
