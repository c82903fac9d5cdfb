/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"

#include "hdc_model.h"

#include "check_main.h"

/* The policy `hdc`: each decision against a naive model that looks at every entry, and what it is for. */

enum {
	PROMPTS = 120
};

/* Prompts that come back soon, late or never, or one after the other: by turns, so that the guard has to step in. */
START_LOOP_TEST(hdc_does_what_a_naive_model_does, 0, 8)
{
	static const uint32_t sizes[] = {16, 100, 300, HDC_MODEL_MAX};
	uint32_t n = sizes[_i % 4];
	uint32_t next = 1000000, held = 0, spared = 0;

	rig_random = (uint64_t)_i;
	hdc_model_open(n);
	for (uint32_t round = 0; round < 1500; round++) {
		uint32_t mode = round / 125 % 4;
		uint32_t prompt = (uint32_t)rig_draw(PROMPTS);
		uint32_t length = 1 + (prompt * 7 + 3) % (n < HDC_MODEL_CHUNKS ? n / 2 : HDC_MODEL_CHUNKS);

		if (mode == 1 && rig_draw(3))
			(void)hdc_model_session(next += HDC_MODEL_CHUNKS, length, 2, 0);
		else if (mode == 2)
			(void)hdc_model_session((round % PROMPTS) * HDC_MODEL_CHUNKS, length, 1, 0);
		else
			(void)hdc_model_session(prompt * HDC_MODEL_CHUNKS, length, prompt % 4, prompt % 5 == 0);
		held += hdc_model_guarded();
		spared += hdc_model_policy()->queues.n[SCOUT__SPARE_QUEUE] > 0;
		if (round % 64 == 0)
			hdc_model_check();
	}
	if (n >= 100)
		ck_assert_uint_gt(spared, 0);
	ck_assert_uint_lt(held, 1500);
	hdc_model_close();
}
END_TEST

START_TEST(hdc_is_lru_until_it_has_learned)
{
	rig_open("hdc", 64);
	ck_assert_uint_eq(rig_ops->victim(rig_state), SCOUT__NO_ENTRY);
	for (uint32_t i = 0; i < 6; i++) {
		rig_ops->asked(rig_state, 1);
		rig_create(i, i);
		rig_stored(i);
	}
	rig_ops->asked(rig_state, 1);
	rig_read(2);
	rig_ops->asked(rig_state, 1);
	rig_read(0);
	rig_expect((const uint32_t[]){1, 3, 4, 5, 2, 0}, 6);
	rig_close();
}
END_TEST

START_TEST(hdc_touches_tail_first_and_the_head_of_a_prompt_goes_last)
{
	rig_open("hdc", 64);
	rig_ops->asked(rig_state, 5);
	for (uint32_t i = 0; i < 5; i++)
		rig_create(i, i);
	for (uint32_t i = 5; i-- > 0;)
		rig_stored(i);
	rig_expect((const uint32_t[]){4, 3, 2, 1, 0}, 5);
	rig_close();
}
END_TEST

START_TEST(hdc_remembers_touches_of_what_was_evicted)
{
	rig_open("hdc", 64);
	rig_ops->asked(rig_state, 3);
	rig_create(0, 100);
	rig_stored(0);
	rig_read(0);
	ck_assert_uint_eq(rig_entries[0].node.queue, 1);
	ck_assert(!rig_ops->remembers(rig_state, 1, rig_entries[0].hash));
	rig_drop(0);
	ck_assert(rig_ops->remembers(rig_state, 1, rig_entries[0].hash));
	ck_assert(!rig_ops->remembers(rig_state, 2, rig_entries[0].hash));
	rig_create(3, 100);
	ck_assert(!rig_ops->remembers(rig_state, 1, rig_entries[3].hash));
	rig_stored(3);
	ck_assert_uint_eq(rig_entries[3].node.queue, 2);
	rig_close();
}
END_TEST

/* Otherwise it would be evicted before those, which are of no use without it. */
START_TEST(hdc_chunk_that_comes_again_counts_as_often_as_those_behind_it)
{
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};

	rig_open("hdc", 64);
	rig_ops->asked(rig_state, 2);
	rig_create(0, 100);
	rig_create(1, 101);
	for (uint32_t i = 0; i < 4; i++)
		rig_read(1);
	rig_ops->accessed(rig_state, 1, &touch);
	ck_assert_uint_eq(touch.behind, 5);
	ck_assert_uint_eq(rig_entries[1].node.queue, 3);
	touch.how = SCOUT__ACCESS_STORED;
	rig_ops->accessed(rig_state, 0, &touch);
	ck_assert_uint_eq(touch.behind, 5);
	ck_assert_uint_eq(rig_entries[0].node.queue, 3);
	/* Alone it has one touch, and another session knows nothing of it. */
	rig_create(2, 102);
	rig_stored(2);
	ck_assert_uint_eq(rig_entries[2].node.queue, 0);
	rig_close();
}
END_TEST

START_TEST(hdc_kinds_split_requests_by_their_new_tokens)
{
	ck_assert_uint_eq(scout__touch_kind(0), 0);
	ck_assert_uint_eq(scout__touch_kind(1535), 0);
	ck_assert_uint_eq(scout__touch_kind(1536), 1);
	ck_assert_uint_eq(scout__touch_kind(8191), 1);
	ck_assert_uint_eq(scout__touch_kind(8192), 2);
	ck_assert_uint_eq(scout__touch_kind(32767), 2);
	ck_assert_uint_eq(scout__touch_kind(32768), 3);
	ck_assert_uint_eq(scout__touch_kind(UINT64_MAX), 3);
}
END_TEST

START_TEST(hdc_keeps_what_comes_back_before_a_scan)
{
	uint32_t hits = 0, asked = 0;

	/* 20 prompts of 20 chunks come back every 100 requests; the rest come once, and are more than the cache. */
	rig_random = 3;
	hdc_model_open(HDC_MODEL_MAX);
	for (uint32_t round = 0; round < 3000; round++) {
		bool returns = round % 5 == 0;
		uint32_t got = hdc_model_session(returns ? round / 5 % 20 * HDC_MODEL_CHUNKS
							 : 1000000 + round * HDC_MODEL_CHUNKS,
						 20, returns ? 1 : 3, 0);

		if (returns && round >= 1500) {
			hits += got;
			asked += 20;
		}
	}
	/* LRU has none of them: between two uses, 2000 chunks are stored. */
	ck_assert_uint_gt(hits * 100, asked * 90);
	hdc_model_close();
}
END_TEST

START_TEST(hdc_hints_are_learned_and_not_believed)
{
	uint32_t hits[2] = {0, 0};

	/* What is hinted never comes back, at first; later it does, and the other prompts do not. */
	for (uint32_t wrong = 0; wrong < 2; wrong++) {
		rig_random = 4;
		hdc_model_open(300);
		for (uint32_t round = 0; round < 3000; round++) {
			bool returns = round % 2;
			uint32_t from = returns ? round % 20 * HDC_MODEL_CHUNKS : 1000000 + round * HDC_MODEL_CHUNKS;

			hits[wrong] += hdc_model_session(from, 20, 1, returns == (wrong == 1));
		}
		hdc_model_close();
	}
	ck_assert_uint_gt(hits[0], 1000u * 20);
	ck_assert_uint_gt(hits[1], 1000u * 20);
}
END_TEST

START_TEST(hdc_relearning_is_sliced_and_ends_by_itself)
{
	struct scout__hdc *h;
	uint32_t touches = 0;

	rig_open("hdc", RIG_MAX_ENTRIES);
	h = rig_state;
	for (uint32_t i = 0; i < RIG_MAX_ENTRIES; i++) {
		rig_create(i, i);
		rig_stored(i);
	}
	rig_ops->asked(rig_state, RIG_MAX_ENTRIES);
	ck_assert_int_eq(h->relearning, SCOUT__RELEARN_RECORDS);
	for (; h->relearning != SCOUT__RELEARN_IDLE; touches++) {
		uint32_t at = h->relearn_at;

		rig_read(touches % RIG_MAX_ENTRIES);
		/* A touch does no more than one slice. */
		ck_assert(h->relearn_at < at || h->relearn_at - at <= 64);
		ck_assert_uint_lt(touches, RIG_MAX_ENTRIES / 4);
	}
	ck_assert_uint_gt(touches, SCOUT__CLASSES);
	rig_close();
}
END_TEST

START_TEST(hdc_guard_falls_back_to_lru_where_it_loses_and_tries_again)
{
	struct scout__hdc *h;
	uint32_t held = 0, longest = 0;

	rig_open("hdc", 1000);
	h = rig_state;
	for (uint32_t i = 0; i < 1000; i++) {
		rig_create(i, i);
		rig_stored(i);
	}
	/* LRU would hit: the same 500 keys again and again, though the policy is told that they were stored anew. */
	for (uint32_t i = 0; i < 400000; i++) {
		rig_ops->asked(rig_state, 1);
		rig_stored(i % 500);
		held += h->guard.holds_until != 0;
		longest = h->guard.length > longest ? h->guard.length : longest;
		if (h->guard.holds_until) {
			uint32_t victim = rig_ops->victim(rig_state);

			/* Plain LRU: nothing was touched longer ago than those that were touched once. */
			ck_assert_uint_ge(victim, 500);
		}
	}
	ck_assert_uint_gt(held, 200000);
	ck_assert_uint_lt(held, 399000);
	ck_assert_uint_eq(longest, 64);
	rig_close();
}
END_TEST

START_TEST(hdc_follows_the_capacity)
{
	struct scout__hdc *h;

	rig_open("hdc", 4096);
	h = rig_state;
	ck_assert_uint_eq(h->capacity, 4096);
	rig_ops->resized(rig_state, 1024);
	ck_assert_uint_eq(h->capacity, 1024);
	ck_assert_uint_eq(h->history.lru_size, 1024);
	/* Within a quarter nothing is scaled anew. */
	rig_ops->resized(rig_state, 1280);
	ck_assert_uint_eq(h->capacity, 1024);
	ck_assert_uint_eq(h->slots, 1280);
	rig_ops->resized(rig_state, 1281);
	ck_assert_uint_eq(h->capacity, 1281);
	rig_ops->resized(rig_state, 0);
	ck_assert_uint_eq(h->capacity, 1281);
	rig_ops->resized(rig_state, 1);
	ck_assert_uint_eq(h->capacity, 1);
	for (uint32_t i = 0; i < 50; i++) {
		rig_ops->asked(rig_state, 7);
		rig_create(i, i);
		rig_stored(i);
	}
	rig_ops->check(rig_state, 50);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_close();
}
END_TEST

START_TEST(hdc_costs_32_bytes_an_entry_beyond_lru_or_a_megabyte)
{
	static const uint32_t sizes[] = {1, 1000, 4095, 8191, 10000, 30000, 32768, 37000, 50000, 100000, 1000000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct scout__entry *entries = calloc(sizes[i], sizeof(*entries));
		uint64_t limit = (uint64_t)sizes[i] * 32 > 1 << 20 ? (uint64_t)sizes[i] * 32 : 1 << 20;
		struct scout__evict_args args = {0};
		void *own, *lru;

		ck_assert_ptr_nonnull(entries);
		ck_assert_int_eq(scout__evict_hdc.open(&own, sizes[i], &args), 0);
		ck_assert_int_eq(scout__evict_lru.open(&lru, sizes[i], &args), 0);
		ck_assert_int_eq(scout__evict_hdc.reserve(own, entries, sizes[i]), 0);
		ck_assert_int_eq(scout__evict_lru.reserve(lru, entries, sizes[i]), 0);
		ck_assert_uint_le(scout__evict_hdc.state_bytes(own, sizes[i]),
				  scout__evict_lru.state_bytes(lru, sizes[i]) + limit);
		scout__evict_hdc.close(own);
		scout__evict_lru.close(lru);
		free(entries);
	}
}
END_TEST
