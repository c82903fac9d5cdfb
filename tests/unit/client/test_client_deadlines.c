/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "lookup_internal.h"

/* Which pending lookup has the nearest deadline: compared with the plainest way to say it. */

#define SLOTS 512u
#define DEFAULT_MS 500u

static struct scout_client *c;
static uint64_t rng_state;

static uint32_t
draw(uint32_t below)
{
	rng_state = rng_state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(rng_state >> 33) % below;
}

static void
setup(void)
{
	scout__enter_courier();
	c = aligned_alloc(_Alignof(struct scout_client), sizeof(*c));
	ck_assert_ptr_nonnull(c);
	memset(c, 0, sizeof(*c));
	c->slots = aligned_alloc(_Alignof(struct scout__lookup_slot), SLOTS * sizeof(*c->slots));
	ck_assert_ptr_nonnull(c->slots);
	memset(c->slots, 0, SLOTS * sizeof(*c->slots));
	c->cfg.lookup_timeout_ms = DEFAULT_MS;
	scout__deadlines_init(c);
}

static void
teardown(void)
{
	free(c->slots);
	free(c);
}

static uint64_t
nearest(void)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < SLOTS; i++)
		if (c->slots[i].work.in_deadlines && c->slots[i].ask.deadline_us < least)
			least = c->slots[i].ask.deadline_us;
	return least;
}

static void SCOUT_ON_COURIER
check(void)
{
	uint32_t i = scout__deadlines_first(c);

	ck_assert_uint_eq(i == SCOUT__NO_SLOT ? UINT64_MAX : c->slots[i].ask.deadline_us, nearest());
}

static void SCOUT_ON_COURIER
add(uint32_t i, uint64_t now_us, uint32_t timeout_ms)
{
	c->slots[i].terms.timeout_ms = timeout_ms;
	c->slots[i].ask.deadline_us = now_us + timeout_ms * UINT64_C(1000);
	scout__deadlines_add(c, i);
}

CHECKED_FIXTURE(setup, teardown);

/* Answers come in any order, before their deadlines and at them. @_i: of how many lookups one in so many has a timeout of its own. */
START_LOOP_TEST(the_first_is_the_nearest_whatever_comes_and_goes, 1, 5)
{
	uint64_t now_us = 1;

	scout__enter_courier();
	rng_state = (uint64_t)_i;
	check();
	for (unsigned round = 0; round < 20000; round++) {
		uint32_t i = draw(SLOTS);

		now_us += draw(2000);
		if (c->slots[i].work.in_deadlines)
			scout__deadlines_remove(c, i);
		else
			add(i, now_us, draw((uint32_t)_i) == 0 ? DEFAULT_MS + 1 + draw(3000) : DEFAULT_MS);
		check();
		while ((i = scout__deadlines_first(c)) != SCOUT__NO_SLOT && c->slots[i].ask.deadline_us <= now_us) {
			scout__deadlines_remove(c, i);
			check();
		}
	}
	for (uint32_t i; (i = scout__deadlines_first(c)) != SCOUT__NO_SLOT;) {
		scout__deadlines_remove(c, i);
		scout__deadlines_remove(c, i); /* changes nothing */
		check();
	}
	ck_assert_uint_eq(nearest(), UINT64_MAX);
}
END_TEST
