/* SPDX-License-Identifier: Apache-2.0 */
#include "chunked_queue.h"

#include <stdlib.h>
#include <string.h>

#include "check_main.h"

#define N 20000u
#define JOIN_MOVES 384u /* two joins, of 192 at most */

static struct element {
	uint32_t key;
	struct scout__node node;
} elements[N];
static struct scout__chunked_queues queues;
static uint64_t seed;

static uint32_t
draw(uint32_t below)
{
	seed += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((((seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9)) >> 33) % below);
}

static void
open_for(uint32_t max)
{
	scout__chunked_queue_init(&queues, sizeof(elements[0]));
	ck_assert_int_eq(scout__chunked_queue_reserve(&queues, &elements[0].node, max), 0);
}

START_TEST(queues_keep_order_and_know_their_ends)
{
	open_for(N);
	ck_assert_uint_eq(scout__chunked_queue_head(&queues, 0), SCOUT__NO_ENTRY);
	for (uint32_t i = 0; i < 1000; i++) {
		scout__chunked_queue_append(&queues, i % 3, i);
		ck_assert(scout__chunked_queue_is_tail(&queues, i));
		ck_assert(i < 3 || !scout__chunked_queue_is_tail(&queues, i - 3));
	}
	for (uint32_t i = 0; i < 1000; i++) {
		ck_assert_uint_eq(scout__chunked_queue_head(&queues, i % 3), i);
		ck_assert_uint_eq(scout__chunked_queue_next(&queues, i), i + 3 < 1000 ? i + 3 : SCOUT__NO_ENTRY);
		scout__chunked_queue_unlink(&queues, i);
		scout__chunked_queue_check(&queues);
	}
	ck_assert_uint_eq(queues.n_used, 0);
	scout__chunked_queue_fini(&queues);
}
END_TEST

START_TEST(queues_tail_is_found_behind_those_that_were_taken_out)
{
	open_for(N);
	for (uint32_t i = 0; i < 300; i++)
		scout__chunked_queue_append(&queues, 0, i);
	/* In the newest chunk, and back over its begin. */
	for (uint32_t i = 300; i-- > 1;) {
		scout__chunked_queue_unlink(&queues, i);
		ck_assert(scout__chunked_queue_is_tail(&queues, i - 1));
		ck_assert(i < 2 || !scout__chunked_queue_is_tail(&queues, i - 2));
	}
	scout__chunked_queue_append(&queues, 0, 5);
	ck_assert(scout__chunked_queue_is_tail(&queues, 5));
	ck_assert(!scout__chunked_queue_is_tail(&queues, 0));
	scout__chunked_queue_check(&queues);
	scout__chunked_queue_fini(&queues);
}
END_TEST

/* The order in arrays, @n elements in two queues. */
static struct {
	uint32_t order[2][N];
	uint32_t n[2];
	int8_t queue[N]; /* -1: none */
} model;

static void
model_remove(uint32_t i)
{
	uint32_t *order = model.order[model.queue[i]];
	uint32_t *n = &model.n[model.queue[i]];
	uint32_t at = 0;

	while (order[at] != i)
		at++;
	memmove(order + at, order + at + 1, (--*n - at) * sizeof(*order));
	model.queue[i] = -1;
}

static void
model_append(uint32_t i, uint32_t queue)
{
	model.order[queue][model.n[queue]++] = i;
	model.queue[i] = (int8_t)queue;
}

static void
compare(void)
{
	scout__chunked_queue_check(&queues);
	for (uint32_t queue = 0; queue < 2; queue++) {
		uint32_t at = scout__chunked_queue_head(&queues, queue);

		ck_assert_uint_eq(queues.n[queue], model.n[queue]);
		for (uint32_t k = 0; k < model.n[queue]; k++) {
			ck_assert_uint_eq(at, model.order[queue][k]);
			ck_assert_int_eq(scout__chunked_queue_is_tail(&queues, at), k + 1 == model.n[queue]);
			at = scout__chunked_queue_next(&queues, at);
		}
		ck_assert_uint_eq(at, SCOUT__NO_ENTRY);
	}
}

/* Single ones, and runs of neighbours as a session takes and gives back: some in order, some tail first. */
START_LOOP_TEST(queues_do_what_a_naive_model_does, 0, 20)
{
	uint32_t n = 1 + (uint32_t)(_i * 379) % 3000;

	seed = (uint64_t)_i;
	memset(model.queue, -1, sizeof(model.queue));
	open_for(n);
	for (uint32_t step = 0; step < 3000; step++) {
		uint32_t first = draw(n);
		uint32_t len = draw(4) ? 1 : 1 + draw(300);
		uint32_t stride = draw(2) ? 1 : 1 + draw(64);
		uint32_t queue = draw(8) == 0;
		bool in = draw(3) > 0;

		for (uint32_t k = 0; k < len; k++) {
			uint32_t i = (uint32_t)((first + (uint64_t)k * stride) % n);

			if (model.queue[i] >= 0) {
				model_remove(i);
				scout__chunked_queue_unlink(&queues, i);
			}
			if (in) {
				model_append(i, queue);
				scout__chunked_queue_append(&queues, queue, i);
			}
		}
		if (step % 50 == 0)
			compare();
	}
	compare();
	scout__chunked_queue_fini(&queues);
}
END_TEST

/* How many elements beside @i were moved by appending it; none but where a chunk is begun. */
static uint32_t
moves_of_append(uint32_t i)
{
	static uint32_t before[N];
	uint32_t n_chunks = queues.n_chunks;
	uint32_t newest = queues.newest[0];
	uint32_t moved = 0;

	if (queues.chunks[newest].end < SCOUT__QUEUE_CHUNK_SLOTS) {
		scout__chunked_queue_append(&queues, 0, i);
		ck_assert(queues.newest[0] == newest && queues.n_chunks == n_chunks);
		return 0;
	}
	for (uint32_t k = 0; k < N; k++)
		before[k] = elements[k].node.at;
	scout__chunked_queue_append(&queues, 0, i);
	for (uint32_t k = 0; k < N; k++)
		moved += k != i && elements[k].node.at != before[k];
	return moved;
}

/* Elements stored by turns and taken out one of them after the other: all chunks become thin at the same moment. */
START_TEST(queues_that_become_thin_everywhere_are_joined_bit_by_bit)
{
	uint32_t most = 0;
	uint32_t thin;

	open_for(N);
	for (uint32_t i = 0; i < N; i++)
		scout__chunked_queue_append(&queues, 0, i);
	for (uint32_t i = 0; i < N; i++)
		if (i % 16)
			scout__chunked_queue_unlink(&queues, i);
	scout__chunked_queue_check(&queues);
	thin = queues.n_used;
	ck_assert_uint_ge(thin, N / SCOUT__QUEUE_CHUNK_SLOTS);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t moved;

		if (i % 16 == 0)
			continue;
		moved = moves_of_append(i);
		most = moved > most ? moved : most;
		ck_assert_uint_le(moved, JOIN_MOVES);
		/* As many chunks as before, and those that the thin ones were joined to are not full. */
		ck_assert_uint_le(queues.n_used, thin + 4);
	}
	ck_assert_uint_gt(most, 0);
	scout__chunked_queue_check(&queues);
	for (uint32_t i = 0; i < N; i += 16) {
		ck_assert_uint_eq(scout__chunked_queue_head(&queues, 0), i);
		scout__chunked_queue_unlink(&queues, i);
	}
	ck_assert_uint_eq(scout__chunked_queue_head(&queues, 0), 1);
	scout__chunked_queue_fini(&queues);
}
END_TEST

/* Whatever is taken out, there is always a chunk left: it would abort. */
START_LOOP_TEST(queues_never_need_more_chunks_than_they_have, 0, 8)
{
	uint32_t n = 40 * SCOUT__QUEUE_CHUNK_SLOTS;
	uint32_t found = 0;

	seed = (uint64_t)_i;
	open_for(n);
	for (uint32_t i = 0; i < n; i++)
		scout__chunked_queue_append(&queues, i / SCOUT__QUEUE_CHUNK_SLOTS % SCOUT__QUEUES, i);
	/* Of each chunk one is left behind, time and again, so that the newest ones are soon thin, too. */
	for (uint32_t round = 0; round < 60; round++) {
		uint32_t every = 2 + draw(300);
		uint32_t queue = draw(SCOUT__QUEUES);

		for (uint32_t k = 0; k < n; k++) {
			uint32_t i = (uint32_t)(k * UINT64_C(7919) % n);

			if (k % every == 0)
				continue;
			scout__chunked_queue_unlink(&queues, i);
			scout__chunked_queue_append(&queues, draw(50) ? queue : draw(SCOUT__QUEUES), i);
			ck_assert_uint_le(queues.n_chunks, queues.cap_chunks);
		}
		scout__chunked_queue_check(&queues);
	}
	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++)
		found += queues.n[queue];
	ck_assert_uint_eq(found, n);
	scout__chunked_queue_fini(&queues);
}
END_TEST
