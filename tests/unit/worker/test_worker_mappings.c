/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings that go: the courier's calls return while the memory is unpinned and unmapped on a thread of its own, and the server
 * hears of a segment only after that.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check_main.h"
#include "clock.h"
#include "mappings.h"
#include "waiting.h"

#define PAGE 4096u
#define MANY 1000u

static const struct scout__log quiet;
static struct scout__mappings mappings;
/* The engine: unpinning takes a millisecond, or waits at the gate. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint n_known, n_begun;
static bool is_slow;

static int
add_memory(void *engine, const struct scout__copy_memory *memory)
{
	(void)engine;
	(void)memory;
	atomic_fetch_add(&n_known, 1);
	return 0;
}

static void
remove_memory(void *engine, void *base)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	(void)engine;
	/* It is mapped as long as the engine may use it. */
	ck_assert_uint_eq(*(const uint8_t *)base, 0);
	atomic_fetch_add(&n_begun, 1);
	(void)pthread_mutex_lock(&gate);
	(void)pthread_mutex_unlock(&gate);
	if (is_slow)
		(void)nanosleep(&ms, NULL); /* plays the driver */
	atomic_fetch_sub(&n_known, 1);
}

static const struct scout__copy_ops ops = {.add_memory = add_memory, .remove_memory = remove_memory};

static void
add(uint32_t id)
{
	struct scout__lease_msg msg = {
		.segment = id, .slots = 1, .slot_stride = PAGE, .bytes = UINT64_C(2) * PAGE, .data_offset = PAGE};
	int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	scout__enter_courier();
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)msg.bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_int_eq(scout__mappings_add(&mappings, 1, &msg, fd), 0);
}

static void
up(void)
{
	is_slow = false;
	scout__enter_courier();
	ck_assert_int_eq(scout__mappings_init(&mappings, &quiet), 0);
	scout__mappings_attach(&mappings, &ops, &mappings);
}

static void
down(void)
{
	scout__mappings_fini(&mappings);
	ck_assert_uint_eq(n_known, 0);
}

/* As the courier does when the descriptor is readable, until nothing is left. */
static void
collect_all(void)
{
	struct pollfd pfd = {.fd = mappings.fd, .events = POLLIN};

	scout__enter_courier();
	while (scout__mappings_are_leaving(&mappings)) {
		ck_assert_int_eq(poll(&pfd, 1, wait_limit_ms()), 1);
		scout__mappings_collect(&mappings);
	}
	scout__mappings_collect(&mappings);
}

START_TEST(a_restart_does_not_wait_for_the_driver)
{
	scout__enter_courier();
	up();
	for (uint32_t i = 1; i <= 3; i++)
		add(i);
	(void)pthread_mutex_lock(&gate);
	scout__mappings_make_stale(&mappings);
	ck_assert(scout__mappings_are_leaving(&mappings));
	ck_assert_ptr_null(scout__mappings_find(&mappings, 2));
	/* The new server's segments come meanwhile. */
	add(1);
	ck_assert_ptr_nonnull(scout__mappings_find(&mappings, 1));
	ck_assert_uint_eq(n_known, 4);
	(void)pthread_mutex_unlock(&gate);
	collect_all();
	ck_assert_uint_eq(n_known, 1);
	down();
}
END_TEST

START_TEST(a_withdrawn_segment_is_told_once_it_is_unmapped)
{
	scout__enter_courier();
	up();
	add(7);
	(void)pthread_mutex_lock(&gate);
	ck_assert(scout__mappings_withdraw(&mappings, 7));
	wait_until(atomic_load(&n_begun) == 1)
		;
	scout__mappings_collect(&mappings);
	ck_assert_uint_eq(scout__mappings_released(&mappings), 0);
	(void)pthread_mutex_unlock(&gate);
	collect_all();
	ck_assert_uint_eq(scout__mappings_released(&mappings), 7);
	scout__mappings_told(&mappings);
	ck_assert_uint_eq(scout__mappings_released(&mappings), 0);
	down();
}
END_TEST

START_TEST(what_an_earlier_server_took_away_is_not_told_to_the_next)
{
	struct scout__mapping *used;

	scout__enter_courier();
	up();
	add(1);
	add(2);
	used = scout__mappings_find(&mappings, 2);
	scout__mapping_use(used);
	(void)pthread_mutex_lock(&gate);
	ck_assert(scout__mappings_withdraw(&mappings, 1));
	ck_assert(scout__mappings_withdraw(&mappings, 2)); /* goes with its last user */
	scout__mappings_make_stale(&mappings);
	(void)pthread_mutex_unlock(&gate);
	scout__mapping_release(&mappings, used);
	collect_all();
	ck_assert_uint_eq(scout__mappings_released(&mappings), 0);
	down();
}
END_TEST

START_TEST(an_engine_is_closed_after_it_has_let_go_of_all)
{
	scout__enter_courier();
	up();
	is_slow = true;
	for (uint32_t i = 1; i <= 8; i++)
		add(i);
	ck_assert(scout__mappings_withdraw(&mappings, 1));
	ck_assert(scout__mappings_withdraw(&mappings, 2));
	scout__mappings_detach(&mappings);
	ck_assert_uint_eq(n_known, 0);
	down();
}
END_TEST

START_TEST(a_thousand_segments_of_a_millisecond_each)
{
	uint64_t begin_us, called_us;

	scout__enter_courier();
	up();
	is_slow = true;
	for (uint32_t i = 1; i <= MANY; i++)
		add(i);
	begin_us = scout__now_us();
	scout__mappings_make_stale(&mappings);
	called_us = scout__now_us();
	collect_all();
	printf("# the courier was busy for %" PRIu64 " us, the unmapping took %" PRIu64 " us\n", called_us - begin_us,
	       scout__now_us() - called_us);
	ck_assert_uint_eq(n_known, 0);
	down();
}
END_TEST
