/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <stdlib.h>
#include <string.h>

#include "feed_ring.h"

/* The ring of a feed against a list of all events that were put, with random lengths. */

#define N 20000u
#define LARGEST 4400u
#define SIZE SCOUT__FEED_RING_MIN

static uint8_t
event_byte(uint64_t sequence, size_t i)
{
	return (uint8_t)(sequence * 31 + i);
}

/* Every event of the run is whole and at its place. */
static void
check_run(const struct scout__feed_run *run, const uint16_t *lens, uint64_t sequence)
{
	size_t at = 0;

	for (uint64_t s = sequence; s < sequence + run->n; s++)
		for (size_t i = 0; i < lens[s]; i++, at++) {
			ck_assert_uint_lt(at, run->len);
			ck_assert_uint_eq(run->bytes[at], event_byte(s, i));
		}
	ck_assert_uint_eq(at, run->len);
}

START_LOOP_TEST(the_newest_events_are_there_in_order_and_whole, 0, 3)
{
	static uint16_t lens[N + 2];
	struct scout__feed_ring ring;
	const uint32_t sizes[] = {25, 100, LARGEST}; /* the smallest ones are so many that places are short */
	uint32_t largest = sizes[_i];
	uint64_t reads = 0;

	scout__enter_loop();
	ck_assert_int_eq(scout__feed_ring_init(&ring, SIZE, largest < 64 ? 64 : largest), 0);
	ck_assert(scout__feed_ring_has(&ring, 1));
	ck_assert(!scout__feed_ring_has(&ring, 0));
	ck_assert(!scout__feed_ring_has(&ring, 2));
	srand(1);
	for (uint64_t s = 1; s <= N; s++) {
		uint8_t *event = scout__feed_ring_room(&ring);
		uint64_t bytes = 0;

		lens[s] = (uint16_t)(1 + (unsigned)rand() % largest);
		for (size_t i = 0; i < lens[s]; i++)
			event[i] = event_byte(s, i);
		scout__feed_ring_put(&ring, lens[s]);
		ck_assert_uint_eq(ring.next, s + 1);
		for (uint64_t i = ring.first; i <= s; i++)
			bytes += lens[i];
		ck_assert_uint_le(bytes, SIZE);
		/* The oldest one had to go: it was in the way of the largest, or the end was too near for one. */
		if (ring.first > 1)
			ck_assert(bytes + 3 * largest + SIZE / 64 > SIZE || s + 1 - ring.first >= SIZE / 64 - 1);
		if (s % 64 == 0) {
			uint64_t from = ring.first + (unsigned)rand() % (s + 2 - ring.first);
			struct scout__feed_run run = scout__feed_ring_get(&ring, from, 1u << (unsigned)rand() % 15);

			check_run(&run, lens, from);
			reads += run.n;
		}
	}
	ck_assert_uint_gt(reads, 0);
	ck_assert_uint_gt(ring.first, 1);
	scout__feed_ring_fini(&ring);
}
END_TEST

START_TEST(a_page_takes_what_fits_and_no_more)
{
	struct scout__feed_ring ring;
	struct scout__feed_run run;

	scout__enter_loop();
	ck_assert_int_eq(scout__feed_ring_init(&ring, SIZE, 64), 0);
	for (int i = 0; i < 3; i++) {
		memset(scout__feed_ring_room(&ring), i, 10);
		scout__feed_ring_put(&ring, 10);
	}
	run = scout__feed_ring_get(&ring, 1, 29);
	ck_assert_uint_eq(run.n, 2);
	ck_assert_uint_eq(run.len, 20);
	run = scout__feed_ring_get(&ring, 1, 30);
	ck_assert_uint_eq(run.n, 3);
	run = scout__feed_ring_get(&ring, 4, 30);
	ck_assert_uint_eq(run.n, 0);
	ck_assert_uint_eq(run.len, 0);
	scout__feed_ring_fini(&ring);
}
END_TEST
