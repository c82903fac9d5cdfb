/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <stdlib.h>

#include "clock.h"
#include "run_queue.h"
#include "server_core.h"

/* Polls that are due, of one peer with many and another with one, beside operations. */

#define MANY 300u
#define POLL_US 60u /* two of them are more than SCOUT__POLLS_US */

static struct scout_server *s;
static struct scout__run_lane many, one;
static struct scout__run_item polls[MANY], good, operation;
static struct scout__run_item *ran[MANY + 2];
static uint32_t n_ran;

static void
take_a_while(struct scout_server *server, struct scout__run_item *item)
{
	uint64_t end_us = scout__now_us() + POLL_US;

	(void)server;
	ran[n_ran++] = item;
	while (scout__now_us() < end_us)
		;
}

static void
lane_init(struct scout__run_lane *lane)
{
	scout__list_init(&lane->node);
	scout__list_init(&lane->items);
}

static void
up(void)
{
	scout__enter_loop();
	s = calloc(1, sizeof(*s));
	ck_assert_ptr_nonnull(s);
	scout__list_init(&s->queue);
	scout__list_init(&s->lanes);
	lane_init(&many);
	lane_init(&one);
	s->now_us = scout__now_us();
	for (uint32_t i = 0; i < MANY; i++) {
		polls[i].step = take_a_while;
		scout__timer_set_poll(s, &polls[i], &many, 1 + i);
	}
	good.step = operation.step = take_a_while;
	scout__timer_set_poll(s, &good, &one, 1 + MANY); /* due after all of them */
	scout__timers_run(s);
}

START_TEST(peers_poll_by_turns_and_after_operations)
{
	scout__enter_loop();
	up();
	scout__run_queue_add(s, &operation);
	while (n_ran < 3)
		scout__run_queue_run(s);
	ck_assert_ptr_eq(ran[0], &operation);
	ck_assert_ptr_eq(ran[1], &polls[0]);
	ck_assert_ptr_eq(ran[2], &good);
	free(s->heap);
	free(s);
}
END_TEST

START_TEST(a_turn_has_few_polls_and_none_is_lost)
{
	uint32_t before;

	scout__enter_loop();
	up();
	while (!scout__run_queue_empty(s)) {
		before = n_ran;
		scout__run_queue_run(s);
		ck_assert_uint_le(n_ran - before, 2);
	}
	ck_assert_uint_eq(n_ran, MANY + 1);
	free(s->heap);
	free(s);
}
END_TEST

START_TEST(a_poll_that_is_cancelled_does_not_run)
{
	scout__enter_loop();
	up();
	scout__run_queue_remove(&good);
	scout__run_queue_remove(&polls[0]);
	while (!scout__run_queue_empty(s))
		scout__run_queue_run(s);
	ck_assert_uint_eq(n_ran, MANY - 1);
	ck_assert_ptr_eq(ran[0], &polls[1]);
	free(s->heap);
	free(s);
}
END_TEST
