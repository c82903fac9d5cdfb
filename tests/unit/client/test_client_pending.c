/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C1: a not-yet answer makes no system call and no allocation, and neither does a submit inside a step.
 *
 * A thread of its own traps every system call by seccomp from then on and counts the traps; the allocator is wrapped by the
 * linker. Each test also makes one deliberate system call, or allocation, to show that it would be seen. A trapped call is
 * not executed, so the thread cannot end either: it spins until the test process does.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check_main.h"
#include "client_rig.h"

/* Sanitizers make system calls and allocations of their own: no case runs. */
#define RUNS 1
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef RUNS
#define RUNS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef RUNS
#define RUNS 0
#endif
#endif

#define ROUNDS 10000

static atomic_uint traps;
static atomic_uint allocations;
static atomic_bool measuring;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static _Thread_local bool counted; /* only the measuring thread's allocations */

void *
__wrap_malloc(size_t size)
{
	allocations += counted && measuring;
	return __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	allocations += counted && measuring;
	return __real_calloc(n, size);
}

void *
__wrap_realloc(void *p, size_t size)
{
	allocations += counted && measuring;
	return __real_realloc(p, size);
}

static void
on_trap(int sig)
{
	(void)sig;
	atomic_fetch_add(&traps, 1);
}

/* From here on every system call of this thread raises SIGSYS, but the return from the handler. */
static bool
trap_system_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct measured {
	void (*work)(struct measured *m);
	atomic_bool done;
	bool trapping;
	unsigned traps, allocations; /* of the work */
	unsigned shown;              /* of the deliberate ones behind it */
	int rc_want, wrong;
};

static void *
measure(void *arg)
{
	struct measured *m = arg;
	void *volatile p;

	p = malloc(32); /* the thread's own arena comes from a system call */
	free(p);
	counted = true;
	m->trapping = trap_system_calls();
	if (m->trapping) {
		atomic_store(&measuring, true);
		m->work(m);
		m->traps = atomic_load(&traps);
		m->allocations = atomic_load(&allocations);
		(void)syscall(SYS_getppid);
		p = malloc(32);
		m->shown = atomic_load(&traps) - m->traps + atomic_load(&allocations) - m->allocations;
		free(p);
		atomic_store(&measuring, false);
	}
	atomic_store(&m->done, true);
	for (;;)
		;
	return NULL;
}

static void
run_measured(struct measured *m)
{
	struct sigaction action = {.sa_handler = on_trap, .sa_flags = SA_NODEFER};
	pthread_t thread;

	ck_assert_int_eq(sigaction(SIGSYS, &action, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, measure, m), 0);
	(void)pthread_detach(thread);
	wait_until(atomic_load(&m->done))
		;
	ck_assert_msg(m->trapping, "seccomp is not available here");
	ck_assert_uint_eq(m->shown, 2);
	ck_assert_int_eq(m->wrong, 0);
	ck_assert_uint_eq(m->traps, 0);
	ck_assert_uint_eq(m->allocations, 0);
}

static void
ask_pending(struct measured *m)
{
	struct scout_query q = rig_question("r1", RIG_MAX);
	struct scout_hit hit;

	for (int i = 0; i < ROUNDS; i++) {
		m->wrong += scout_try_lookup(client, &q, &hit) != SCOUT_NOT_YET;
		m->wrong += scout_poll_lookup(client, "r1", 0, &hit) != SCOUT_NOT_YET;
	}
}

CHECKED_FIXTURE(rig_up, rig_down);

START_LOOP_TEST(pending_makes_no_system_call_and_no_allocation, 0, RUNS)
{
	static struct measured m = {.work = ask_pending};
	struct scout_query q = rig_question("r1", RIG_MAX);
	struct scout_hit hit;

	scout_client_free(client);
	rig_client("lookup_timeout_ms", "60000");
	rig_ready();
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	run_measured(&m);
	ck_assert_uint_eq(rig_stats().not_yet, 2 * ROUNDS + 1); /* the submit said so, too */
}
END_TEST

static void
read_answer(struct measured *m)
{
	struct scout_query q = rig_question("r1", RIG_MAX);
	struct scout_hit hit;

	for (int i = 0; i < ROUNDS; i++) {
		m->wrong += scout_try_lookup(client, &q, &hit) != 0 || hit.chunks != 3;
		m->wrong += scout_poll_lookup(client, "r1", 0, &hit) != 0 || hit.chunks != 3;
	}
}

START_LOOP_TEST(reading_an_answer_makes_no_system_call_and_no_allocation, 0, RUNS)
{
	static struct measured m = {.work = read_answer};

	fake_set_hit(fake, 3);
	(void)rig_answer("r1", RIG_MAX);
	run_measured(&m);
}
END_TEST

START_LOOP_TEST(asking_anew_inside_a_step_makes_no_system_call_and_no_allocation, 0, RUNS)
{
	static struct measured m = {.work = read_answer};
	uint64_t before;
	struct scout_hit hit;
	unsigned lookups;

	rig_reopen("lookup_refresh_ms", "1");
	fake_set_hit(fake, 3);
	(void)rig_answer("r1", RIG_MAX);
	/* Old, and not being asked anew, as it is at once when the first read is late. */
	wait_until(scout_poll_lookup(client, "r1", 0, &hit) != 0)
		;
	before = rig_stats().renewals;
	lookups = fake_count(fake, SCOUT_OP_LOOKUP);
	scout_step_begin(client);
	run_measured(&m);
	ck_assert_uint_eq(rig_stats().renewals, before + 1);
	scout_step_end(client);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, lookups + 1));
}
END_TEST

static void
submit_in_step(struct measured *m)
{
	char id[] = "step-00";
	struct scout_query q = rig_question(id, RIG_MAX);
	struct scout_hit hit;

	for (int i = 0; i < 64; i++) {
		id[5] = (char)('0' + i / 10);
		id[6] = (char)('0' + i % 10);
		m->wrong += scout_try_lookup(client, &q, &hit) != SCOUT_NOT_YET;
	}
}

START_LOOP_TEST(submitting_inside_a_step_makes_no_system_call_and_no_allocation, 0, RUNS)
{
	static struct measured m = {.work = submit_in_step};

	(void)rig_answer("draws tickets for the next 255", 1);
	scout_step_begin(client);
	run_measured(&m);
	scout_step_end(client);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 65));
}
END_TEST

static const struct scout_key_query keys = {.id = "k1", .hashes = rig_hashes, .hash_len = RIG_HASH, .n = RIG_MAX};
static uint8_t states[RIG_MAX];

/* Nothing is sent inside a step, so there is no answer either. */
static void
ask_keys_in_step(struct measured *m)
{
	for (int i = 0; i < ROUNDS; i++)
		m->wrong += scout_lookup_keys(client, &keys, states, NULL) != SCOUT_NOT_YET;
}

START_LOOP_TEST(keys_make_no_system_call_and_no_allocation_until_they_are_answered, 0, RUNS)
{
	static struct measured m = {.work = ask_keys_in_step};

	(void)rig_answer("draws tickets for the next 255", 1);
	scout_step_begin(client);
	run_measured(&m);
	scout_step_end(client);
	ck_assert(fake_wait(fake, SCOUT_OP_KEYS, 1));
}
END_TEST

static void
read_keys(struct measured *m)
{
	struct scout_key_answer answer;

	for (int i = 0; i < ROUNDS; i++)
		m->wrong += scout_lookup_keys(client, &keys, states, &answer) != 0 || answer.hits != 3;
}

START_LOOP_TEST(reading_states_of_keys_makes_no_system_call_and_no_allocation, 0, RUNS)
{
	static struct measured m = {.work = read_keys};

	fake_set_present(fake, 0x7, 0, 0);
	ck_assert_int_eq(scout_lookup_keys(client, &keys, states, NULL), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_step_wait(client, 60000000), 0);
	run_measured(&m);
}
END_TEST
