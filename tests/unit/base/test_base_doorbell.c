/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbell: no wake is lost, none is made for a thread that is awake, and a burst makes one. */
#include "check_main.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "clock.h"
#include "doorbell.h"
#include "ring.h"

#define RING_WORDS 64u
#define ROUNDS_US 15000000 /* on a busy machine each handover takes a turn of the scheduler: fewer of them */

/* ---- the litmus test SB ---- */

#define SB_ROUNDS 200000u

static struct {
	_Alignas(64) atomic_uint parked;
	_Alignas(64) atomic_uint work;
	_Alignas(64) atomic_uint round; /* the waker begins it; UINT_MAX: it ends */
	_Alignas(64) atomic_uint ended; /* by the waker */
	bool saw_parked;                /* waker; read by the sleeper after `ended` */
} sb;

static void wait_until(atomic_uint *word, unsigned value)
{
	for (unsigned n = 1; atomic_load_explicit(word, memory_order_acquire) != value; n++)
		if (n % 4096 == 0)
			(void)sched_yield();
}

/* False: there are no more. */
static bool
wait_round(unsigned i)
{
	unsigned round, n = 1;

	for (; (round = atomic_load_explicit(&sb.round, memory_order_acquire)) != i && round != UINT_MAX; n++)
		if (n % 4096 == 0)
			(void)sched_yield();
	return round == i;
}

static void *
sb_waker(void *arg)
{
	for (unsigned i = 1; wait_round(i); i++) {
		atomic_store_explicit(&sb.work, i, memory_order_relaxed);
		sb.saw_parked = scout__unpark(&sb.parked);
		atomic_store_explicit(&sb.ended, i, memory_order_release);
	}
	return arg;
}

START_TEST(either_the_sleeper_sees_the_work_or_the_waker_sees_it_parked)
{
	uint64_t end_us = scout__now_us() + ROUNDS_US;
	pthread_t waker;
	unsigned n_lost = 0;

	ck_assert_int_eq(pthread_create(&waker, NULL, sb_waker, NULL), 0);
	for (unsigned i = 1; i <= SB_ROUNDS && scout__now_us() < end_us; i++) {
		bool saw_work;

		scout__awake(&sb.parked);
		atomic_store_explicit(&sb.round, i, memory_order_release);
		/* As long as the waker may need to see it, give or take some: so the two meet. */
		for (volatile unsigned n = i % 512; n > 0; n--)
			;
		scout__park(&sb.parked);
		saw_work = atomic_load_explicit(&sb.work, memory_order_relaxed) == i;
		wait_until(&sb.ended, i)
			;
		n_lost += !saw_work && !sb.saw_parked;
	}
	atomic_store(&sb.round, UINT_MAX);
	ck_assert_int_eq(pthread_join(waker, NULL), 0);
	ck_assert_uint_eq(n_lost, 0);
}
END_TEST

/* ---- a thread that sleeps, and one that gives it work ---- */

#define N_ITEMS 100000u

struct item {
	uint64_t value; /* plain memory: ordered by the ring */
};

struct pair {
	struct scout__ring ring;
	struct scout__doorbell bell;
	struct item items[N_ITEMS + 1];
	unsigned n_parks;   /* sleeper */
	uint64_t n_sum;     /* sleeper */
	uint32_t n_taken;   /* sleeper */
	bool stays_parked;  /* const: as loops that poll other descriptors too */
	atomic_uint n_seen; /* sleeper, for bursts */
	atomic_uint n_end;  /* so many will be given */
};

static struct pair *pair;

static void
setup(void)
{
	pair = calloc(1, sizeof(*pair));
	ck_assert_ptr_nonnull(pair);
	ck_assert_int_eq(scout__ring_init(&pair->ring, RING_WORDS), 0);
	ck_assert(scout__doorbell_open(&pair->bell));
}

static void
teardown(void)
{
	scout__doorbell_close(&pair->bell);
	ck_assert_int_eq(pair->bell.fd, -1);
	scout__ring_fini(&pair->ring);
	free(pair);
}

CHECKED_FIXTURE(setup, teardown);

static bool
is_raised(int timeout_ms)
{
	struct pollfd fd = {.fd = pair->bell.fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

static void
take_all(void)
{
	uint64_t i;

	while ((i = scout__ring_pop(&pair->ring)) != 0) {
		pair->n_sum += pair->items[i].value;
		pair->n_taken++;
	}
	atomic_store_explicit(&pair->n_seen, pair->n_taken, memory_order_release);
}

/* A wake that is lost leaves it in poll() for ever: the test's time limit ends it. */
static void *
sleeper_main(void *arg)
{
	if (pair->stays_parked)
		scout__park(&pair->bell.parked);
	while (pair->n_taken < atomic_load(&pair->n_end)) {
		take_all();
		if (pair->n_taken == atomic_load(&pair->n_end))
			break;
		pair->n_parks++;
		if (pair->stays_parked) {
			(void)is_raised(-1);
			(void)scout__doorbell_lower(&pair->bell);
			continue;
		}
		scout__park(&pair->bell.parked);
		if (scout__ring_empty(&pair->ring))
			(void)is_raised(-1);
		scout__awake(&pair->bell.parked);
		(void)scout__eventfd_lower(pair->bell.fd);
	}
	return arg;
}

/* In bursts of 1 to 16; every 64th waits until the sleeper has nothing to do, so that it parks. Returns how often it rang. */
static unsigned
give_all(void)
{
	uint64_t end_us = scout__now_us() + ROUNDS_US;
	unsigned n_rings = 0;

	for (uint32_t i = 1; i <= atomic_load(&pair->n_end); i++) {
		pair->items[i].value = i;
		while (!scout__ring_push(&pair->ring, i))
			(void)sched_yield();
		if (i % 64 == 0 && scout__now_us() >= end_us)
			atomic_store(&pair->n_end, i);
		if (i % (1 + i / 64 % 16) == 0 || i == N_ITEMS)
			n_rings += scout__doorbell_ring(&pair->bell);
		if (i % 64 == 0) {
			n_rings += scout__doorbell_ring(&pair->bell);
			wait_until(&pair->n_seen, i)
				;
		}
	}
	return n_rings;
}

static void
run(bool stays_parked)
{
	pthread_t sleeper;
	unsigned n_rings;

	pair->stays_parked = stays_parked;
	atomic_store(&pair->n_end, N_ITEMS);
	ck_assert_int_eq(pthread_create(&sleeper, NULL, sleeper_main, NULL), 0);
	n_rings = give_all();
	ck_assert_int_eq(pthread_join(sleeper, NULL), 0);
	ck_assert_uint_eq(pair->n_taken, atomic_load(&pair->n_end));
	ck_assert_uint_eq(pair->n_sum, (uint64_t)pair->n_taken * (pair->n_taken + 1) / 2);
	/* One ring for each time the word was set, at most. */
	ck_assert_uint_le(n_rings, pair->n_parks + 1);
}

START_TEST(a_sleeper_that_parks_gets_all)
{
	run(false);
}
END_TEST

START_TEST(a_sleeper_that_stays_parked_gets_all)
{
	run(true);
}
END_TEST

/* ---- alone ---- */

START_TEST(nobody_rings_a_thread_that_is_awake)
{
	ck_assert(!scout__doorbell_ring(&pair->bell));
	ck_assert(!is_raised(0));
	scout__park(&pair->bell.parked);
	scout__awake(&pair->bell.parked);
	ck_assert(!scout__doorbell_ring(&pair->bell));
	ck_assert(!is_raised(0));
}
END_TEST

START_TEST(a_burst_rings_once)
{
	scout__park(&pair->bell.parked);
	ck_assert(scout__doorbell_ring(&pair->bell));
	ck_assert(!scout__doorbell_ring(&pair->bell));
	ck_assert(is_raised(0));
	ck_assert(scout__doorbell_lower(&pair->bell));
	ck_assert(!is_raised(0));
	ck_assert(scout__doorbell_ring(&pair->bell));
}
END_TEST

START_TEST(a_bell_that_is_not_raised_stays_as_it_is)
{
	scout__park(&pair->bell.parked);
	ck_assert(scout__unpark(&pair->bell.parked)); /* a waker that has not written yet */
	ck_assert(!scout__doorbell_lower(&pair->bell));
	ck_assert_uint_eq(atomic_load(&pair->bell.parked), 0);
	scout__eventfd_raise(pair->bell.fd);
	ck_assert(scout__doorbell_lower(&pair->bell));
	ck_assert_uint_eq(atomic_load(&pair->bell.parked), 1);
}
END_TEST
