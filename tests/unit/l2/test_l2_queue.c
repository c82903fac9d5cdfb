/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_queue.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"

#define N 20000u
#define ROOM 64u

static struct scout__l2_queue queue;
static struct scout__l2_op ops[N];
static atomic_uint taken[N];
static atomic_uint n_taken;

static void
take(struct scout__l2_op *op)
{
	atomic_fetch_add(&taken[op - ops], 1);
	atomic_fetch_add(&n_taken, 1);
}

static void *
pool_main(void *arg)
{
	struct scout__l2_op *op;

	(void)arg;
	while ((op = scout__l2_queue_wait(&queue)))
		take(op);
	return NULL;
}

static void *
poll_main(void *arg)
{
	struct pollfd fd = {.fd = queue.bell.fd, .events = POLLIN};

	(void)arg;
	while (!scout__l2_queue_is_closed(&queue) || !scout__ring_empty(&queue.ring)) {
		struct scout__l2_op *op;

		while ((op = scout__l2_queue_try(&queue)))
			take(op);
		/* No timeout: a wake that is lost hangs the test. */
		if (scout__l2_queue_sleep(&queue))
			ck_assert_int_eq(poll(&fd, 1, -1), 1);
		scout__l2_queue_woke(&queue);
	}
	return NULL;
}

/* In bursts with a wait for the consumers between them, so that they fall asleep often. */
static void
push_all(void)
{
	scout__enter_loop();
	for (unsigned i = 0; i < N; i++) {
		while (!scout__l2_queue_push(&queue, &ops[i]))
			sched_yield();
		while (i % 7 == 0 && atomic_load(&n_taken) != i + 1)
			sched_yield();
	}
}

static void
check_all_taken_once(void)
{
	for (unsigned i = 0; i < N; i++)
		ck_assert_uint_eq(atomic_load(&taken[i]), 1);
}

static void
setup(void)
{
	atomic_store(&n_taken, 0);
	for (unsigned i = 0; i < N; i++)
		atomic_store(&taken[i], 0);
}

CHECKED_FIXTURE(setup, NULL);

START_TEST(each_operation_reaches_one_of_the_threads)
{
	pthread_t threads[3];

	ck_assert_int_eq(scout__l2_queue_init(&queue, ROOM, false), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(scout__thread_start(&threads[i], "pool", pool_main, NULL), 0);
	push_all();
	scout__l2_queue_close(&queue);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	check_all_taken_once();
	scout__l2_queue_fini(&queue);
}
END_TEST

START_TEST(each_operation_reaches_the_thread_that_polls)
{
	pthread_t thread;

	ck_assert_int_eq(scout__l2_queue_init(&queue, ROOM, true), 0);
	ck_assert_int_eq(scout__thread_start(&thread, "poll", poll_main, NULL), 0);
	push_all();
	scout__l2_queue_close(&queue);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	check_all_taken_once();
	scout__l2_queue_fini(&queue);
}
END_TEST

START_LOOP_TEST(operations_come_out_in_order_and_full_is_told, 0, 2)
{
	bool pollable = _i;
	unsigned n = 0;

	scout__enter_loop();
	ck_assert_int_eq(scout__l2_queue_init(&queue, ROOM, pollable), 0);
	ck_assert_ptr_null(scout__l2_queue_try(&queue));
	while (scout__l2_queue_push(&queue, &ops[n]))
		n++;
	ck_assert_uint_ge(n, ROOM);
	ck_assert_uint_eq(n, queue.ring.capacity);
	ck_assert_ptr_eq(scout__l2_queue_try(&queue), &ops[0]);
	ck_assert(scout__l2_queue_push(&queue, &ops[n]));
	for (unsigned i = 1; i <= n; i++)
		ck_assert_ptr_eq(pollable ? scout__l2_queue_try(&queue) : scout__l2_queue_wait(&queue), &ops[i]);
	ck_assert_ptr_null(scout__l2_queue_try(&queue));
	scout__l2_queue_fini(&queue);
}
END_TEST

START_LOOP_TEST(what_is_left_comes_out_after_the_close, 0, 2)
{
	bool pollable = _i;

	scout__enter_loop();
	ck_assert_int_eq(scout__l2_queue_init(&queue, ROOM, pollable), 0);
	ck_assert(scout__l2_queue_push(&queue, &ops[0]));
	ck_assert(scout__l2_queue_push(&queue, &ops[1]));
	scout__l2_queue_close(&queue);
	scout__l2_queue_close(&queue);
	ck_assert(scout__l2_queue_is_closed(&queue));
	ck_assert(!scout__l2_queue_push(&queue, &ops[2]));
	ck_assert_ptr_eq(scout__l2_queue_try(&queue), &ops[0]);
	ck_assert_ptr_eq(pollable ? scout__l2_queue_try(&queue) : scout__l2_queue_wait(&queue), &ops[1]);
	/* Each of the consumers gets the end, however many there are. */
	for (int i = 0; i < 5; i++)
		ck_assert_ptr_null(pollable ? scout__l2_queue_try(&queue) : scout__l2_queue_wait(&queue));
	if (pollable)
		ck_assert(!scout__l2_queue_sleep(&queue));
	scout__l2_queue_fini(&queue);
}
END_TEST

static bool
is_readable(int fd)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};

	return poll(&entry, 1, 0) == 1;
}

START_TEST(a_push_wakes_only_who_sleeps)
{
	scout__enter_loop();
	ck_assert_int_eq(scout__l2_queue_init(&queue, ROOM, true), 0);
	ck_assert(scout__l2_queue_push(&queue, &ops[0]));
	ck_assert(!is_readable(queue.bell.fd));
	ck_assert(!scout__l2_queue_sleep(&queue));
	scout__l2_queue_woke(&queue);
	ck_assert_ptr_eq(scout__l2_queue_try(&queue), &ops[0]);
	ck_assert(scout__l2_queue_sleep(&queue));
	ck_assert(scout__l2_queue_push(&queue, &ops[1]));
	ck_assert(is_readable(queue.bell.fd));
	scout__l2_queue_woke(&queue);
	ck_assert(!is_readable(queue.bell.fd));
	ck_assert(scout__l2_queue_push(&queue, &ops[2]));
	ck_assert(!is_readable(queue.bell.fd));
	ck_assert_ptr_eq(scout__l2_queue_try(&queue), &ops[1]);
	ck_assert_ptr_eq(scout__l2_queue_try(&queue), &ops[2]);
	ck_assert(scout__l2_queue_sleep(&queue));
	scout__l2_queue_close(&queue);
	ck_assert(is_readable(queue.bell.fd));
	scout__l2_queue_fini(&queue);
}
END_TEST
