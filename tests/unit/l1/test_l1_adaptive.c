/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"
#include "ghost.h"
#include "segmented.h"
#include "mini_cache.h"

#include "policy_rig.h"

#include "check_main.h"

/* The policies `slru` and `adaptive`. */

START_TEST(slru_evicts_unread_ones_first_while_they_have_more_than_their_share)
{
	rig_open("slru:50", 16);
	for (uint32_t i = 0; i < 6; i++)
		rig_create(i, i);
	rig_read(0);
	rig_read(1);
	/* Two of six are protected; then, of four, still no more than half. */
	rig_expect((const uint32_t[]){2, 3, 4, 0, 5, 1}, 6);
	rig_close();
}
END_TEST

START_TEST(slru_protects_what_comes_back_soon_after_it_went)
{
	rig_open("slru:50", 16);
	for (uint32_t i = 0; i < 3; i++)
		rig_create(i, 100 + i);
	rig_drop(0);
	rig_create(0, 100);
	/* Stored anew, but no longer on probation: of three it is the last to go. */
	rig_stored(0, 5);
	rig_create(3, 200);
	rig_expect((const uint32_t[]){1, 2, 3, 0}, 4);
	rig_close();
}
END_TEST

START_TEST(slru_what_is_stored_deeper_than_the_cut_goes_first_until_it_is_read)
{
	rig_open("slru:99:4", 16);
	for (uint32_t i = 0; i < 6; i++)
		rig_create(i, i);
	for (uint32_t i = 6; i-- > 0;)
		rig_stored(i, i);
	rig_expect((const uint32_t[]){5, 4, 3, 2, 1, 0}, 6);
	for (uint32_t i = 0; i < 6; i++)
		rig_create(i, 100 + i);
	for (uint32_t i = 6; i-- > 0;)
		rig_stored(i, 5 - i);
	/* 0 and 1 are deep now, though touched last. 0 is read: of six only one is protected, and more are too many. */
	rig_read(0);
	rig_ops->check(rig_state, 6);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 1);
	rig_drop(1);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_close();
}
END_TEST

START_TEST(slru_deep_entry_that_was_pinned_is_on_probation_until_it_is_touched)
{
	rig_open("slru:99:4", 16);
	rig_create(0, 0);
	rig_create(1, 1);
	rig_stored(1, 9);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 1);
	rig_pin(1);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_unpin(1);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_stored(1, 9);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 1);
	rig_close();
}
END_TEST

START_TEST(segmented_stamps_compare_rightly_when_they_wrap)
{
	static struct element {
		struct scout__node node;
	} elements[2];
	struct scout__segmented s = {.args = {.share = 100}};

	ck_assert_int_eq(scout__chunked_queue_init(&s.queues, &elements[0].node, sizeof(elements[0]), 2), 0);
	s.moves = UINT64_C(0x20000000) * SCOUT__MOVES_PER_STAMP - 1;
	scout__segmented_put(&s, SCOUT__PROTECTED, 0);
	scout__segmented_put(&s, SCOUT__PROBATION, 1);
	ck_assert_uint_eq(elements[0].node.stamp, 0x1fffffff);
	ck_assert_uint_eq(elements[1].node.stamp, 0);
	ck_assert_uint_eq(scout__segmented_victim(&s), 0);
	scout__chunked_queue_fini(&s.queues);
}
END_TEST

/* ---- against a naive model ---- */

enum {
	MODEL_N = 40
};

/* No lists: every entry has a queue and the time of its last move, and who goes is found by looking at all. */
static struct {
	bool exists[MODEL_N];
	bool ordered[MODEL_N];
	int queue[MODEL_N];
	uint64_t moved[MODEL_N];
	uint64_t moves;
	uint32_t live;
	struct scout__evict_args args;
	struct scout__ghost ghost; /* what is remembered has tests of its own */
} model;

static uint32_t
model_oldest(int queue)
{
	uint32_t oldest = SCOUT__NO_ENTRY;

	for (uint32_t i = 0; i < MODEL_N; i++)
		if (model.ordered[i] && model.queue[i] == queue &&
		    (oldest == SCOUT__NO_ENTRY || model.moved[i] < model.moved[oldest]))
			oldest = i;
	return oldest;
}

static uint32_t
model_older(uint32_t a, uint32_t b)
{
	if (a == SCOUT__NO_ENTRY || b == SCOUT__NO_ENTRY)
		return a == SCOUT__NO_ENTRY ? b : a;
	return model.moved[a] / SCOUT__MOVES_PER_STAMP <= model.moved[b] / SCOUT__MOVES_PER_STAMP ? a : b;
}

static uint32_t
model_victim(void)
{
	uint32_t spare = model_oldest(SCOUT__SPARE);
	uint32_t young = model_older(spare, model_oldest(SCOUT__PROBATION));
	uint32_t kept = model_oldest(SCOUT__PROTECTED);
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < MODEL_N; i++)
		n_kept += model.ordered[i] && model.queue[i] == SCOUT__PROTECTED;
	if (model.args.cut && spare != SCOUT__NO_ENTRY)
		return spare;
	if (model.args.share == 100)
		return model_older(young, kept);
	return young == SCOUT__NO_ENTRY || n_kept * 100 > (100 - model.args.share) * model.live ? kept : young;
}

static void
model_put(uint32_t i, int queue)
{
	model.ordered[i] = true;
	model.queue[i] = queue;
	model.moved[i] = model.moves++;
}

/* Touched: the newest of @queue, where it may be that already. */
static void
model_move(uint32_t i, int queue)
{
	bool newest = model.queue[i] == queue;

	for (uint32_t other = 0; other < MODEL_N; other++)
		if (model.ordered[other] && model.queue[other] == queue && model.moved[other] > model.moved[i])
			newest = false;
	if (!newest)
		model_put(i, queue);
}

static void
model_drop(uint32_t i)
{
	model.exists[i] = model.ordered[i] = false;
	model.live--;
	scout__ghost_add(&model.ghost, scout__fingerprint(&rig_entries[i]));
}

static void
step(uint32_t n)
{
	uint32_t i = (uint32_t)rig_draw(n);
	uint32_t depth = (uint32_t)rig_draw(8);
	struct scout__entry e;

	if (!model.exists[i]) {
		rig_set_key(&e, (uint32_t)rig_draw(3 * (uint64_t)n));
		model.exists[i] = true;
		model.live++;
		model_put(i, scout__ghost_take(&model.ghost, scout__fingerprint(&e), model.live) ? SCOUT__PROTECTED
												 : SCOUT__PROBATION);
		memcpy(&depth, e.hash, sizeof(depth));
		rig_create(i, depth);
	} else if (!model.ordered[i]) {
		model_put(i, model.queue[i] == SCOUT__SPARE ? SCOUT__PROBATION : model.queue[i]);
		rig_unpin(i);
	} else {
		switch (rig_draw(8)) {
		case 0:
		case 1:
			model_move(i, SCOUT__PROTECTED);
			rig_read(i);
			break;
		case 2:
		case 3:
			if (model.queue[i] == SCOUT__PROTECTED)
				model_move(i, SCOUT__PROTECTED);
			else
				model_move(i,
					   model.args.cut && depth >= model.args.cut ? SCOUT__SPARE : SCOUT__PROBATION);
			rig_stored(i, depth);
			break;
		case 4:
			model.ordered[i] = false;
			rig_pin(i);
			break;
		case 5:
			model_drop(i);
			rig_drop(i);
			break;
		default:
			i = model_victim();
			ck_assert_uint_eq(rig_ops->victim(rig_state), i);
			if (i != SCOUT__NO_ENTRY) {
				model_drop(i);
				rig_drop(i);
			}
		}
	}
}

static uint32_t
n_ordered(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_N; i++)
		n += model.ordered[i];
	return n;
}

START_TEST(slru_does_what_a_naive_model_does)
{
	static const char *const texts[] = {"slru:1", "slru:50", "slru:30:4", "slru:99:1", "slru:70:3"};
	static const struct scout__evict_args args[] = {{1, 0}, {50, 0}, {30, 4}, {99, 1}, {70, 3}};
	uint32_t n = 1 + (uint32_t)(_i * 7) % MODEL_N;

	memset(&model, 0, sizeof(model));
	model.args = args[_i % 5];
	rig_random = (uint64_t)_i;
	ck_assert_int_eq(scout__ghost_init(&model.ghost, n), 0);
	rig_open(texts[_i % 5], n);
	for (uint32_t i = 0; i < 20000; i++) {
		step(n);
		rig_ops->check(rig_state, n_ordered());
	}
	scout__ghost_fini(&model.ghost);
	rig_close();
}
END_TEST

/* What adaptive does while plain LRU is its choice. */
START_TEST(slru_without_share_and_cut_is_lru)
{
	memset(&model, 0, sizeof(model));
	model.args.share = 100;
	rig_random = (uint64_t)_i + 1000;
	ck_assert_int_eq(scout__ghost_init(&model.ghost, MODEL_N), 0);
	rig_ops = &scout__evict_slru;
	ck_assert_int_eq(rig_ops->open(&rig_state, rig_entries, MODEL_N, &model.args), 0);
	for (uint32_t i = 0; i < 20000; i++) {
		step(MODEL_N);
		rig_ops->check(rig_state, n_ordered());
	}
	scout__ghost_fini(&model.ghost);
	rig_close();
}
END_TEST

/* ---- the choice ---- */

/* Hits of @text in a cache of @n keys that sees @rounds uses of each kind in turn; 0 hot and cold, 1 recency. */
static uint64_t
hits_of(const char *text, uint32_t n, const int *kinds, size_t n_kinds, uint32_t rounds)
{
	struct rig_cache cache;
	uint32_t fresh = RIG_MAX_KEYS / 4;
	uint64_t hits;

	rig_random = 7;
	rig_cache_init(&cache, text, n);
	for (size_t k = 0; k < n_kinds; k++) {
		for (uint32_t i = 0; i < rounds; i++) {
			uint32_t key = fresh + i;

			if (kinds[k] == 0 && rig_draw(3) == 0)
				key = (uint32_t)rig_draw(n / 2); /* one of a few, each too seldom for LRU */
			else if (kinds[k] == 1 && i > n * 3 / 4 && i % 2)
				key = fresh + i - (n * 3 / 4 | 1); /* an even one once more, in time for LRU only */
			rig_cache_use(&cache, key, 0);
		}
		fresh += rounds;
	}
	hits = cache.hits;
	rig_cache_fini(&cache);
	return hits;
}

START_TEST(adaptive_gains_what_a_fixed_share_gains_on_hot_and_cold_keys)
{
	const int hot[] = {0};
	uint32_t n = _i == 0 ? 300 : 4000;
	uint64_t lru = hits_of("lru", n, hot, 1, 150000);
	uint64_t slru = hits_of("slru:50", n, hot, 1, 150000);
	uint64_t adaptive = hits_of("adaptive", n, hot, 1, 150000);

	ck_assert_uint_gt(slru, lru + 4000);
	ck_assert_uint_gt(adaptive, lru + (slru - lru) / 4 * 3);
}
END_TEST

START_TEST(adaptive_loses_nothing_to_lru_where_recency_is_all)
{
	const int recency[] = {1};
	uint32_t n = _i == 0 ? 300 : 4000;
	uint64_t lru = hits_of("lru", n, recency, 1, 150000);

	ck_assert_uint_gt(lru, 70000);
	ck_assert_uint_lt(hits_of("slru:10", n, recency, 1, 150000), 10000);
	ck_assert_uint_ge(hits_of("adaptive", n, recency, 1, 150000) + 150000 / 200, lru);
}
END_TEST

START_TEST(adaptive_comes_back_to_lru_when_the_uses_change)
{
	const int both[] = {0, 1, 0, 1};
	uint64_t lru = hits_of("lru", 1000, both, 4, 60000);

	ck_assert_uint_gt(hits_of("adaptive", 1000, both, 4, 60000), lru + 2000);
}
END_TEST

/* A key that the chunk index has, whatever the simulations have. */
static void
use(struct scout__mini_caches *minis, uint32_t key)
{
	uint64_t print = (key + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);

	ck_assert(scout__mini_cache_samples(minis, print));
	scout__mini_cache_accessed(minis, print, SCOUT__ACCESS_READ, 0);
}

START_TEST(mini_caches_leave_lru_for_a_gain_and_comes_back_at_once)
{
	enum {
		N = 600
	}; /* few enough for all keys to be in the sample */
	struct scout__mini_caches *minis;
	uint32_t fresh = N;

	rig_random = 11;
	ck_assert_int_eq(scout__mini_cache_new(N, &minis), 0);
	ck_assert_uint_eq(scout__mini_cache_choice(minis).share, 100);
	for (uint32_t i = 0; i < 40 * N; i++)
		use(minis, rig_draw(3) ? fresh++ : (uint32_t)rig_draw(N / 2));
	ck_assert_uint_lt(scout__mini_cache_choice(minis).share, 100);
	/*
	 * Nearly as many keys as fit, and all of them once more: only LRU keeps them. The long past does not delay it.
	 */
	for (uint32_t i = 0; i < 2 * (N - N / 10); i++)
		use(minis, fresh + i % (N - N / 10));
	ck_assert_uint_eq(scout__mini_cache_choice(minis).share, 100);
	scout__mini_cache_check(minis);
	scout__mini_cache_free(minis);
}
END_TEST

START_TEST(adaptive_follows_an_index_that_gives_slots_to_another_namespace)
{
	struct rig_cache cache;

	rig_random = 3;
	rig_cache_init(&cache, "adaptive", 4000);
	for (uint32_t i = 0; i < 40000; i++)
		rig_cache_use(&cache, (uint32_t)rig_draw(9000), (uint32_t)rig_draw(30));
	/* 3600 entries go, and 400 are left to turn over. */
	for (uint32_t i = 0; i < 3600; i++) {
		uint32_t entry = rig_ops->victim(rig_state);

		rig_drop(entry);
		cache.entry[cache.key[entry]] = 0;
		cache.used--;
	}
	rig_ops->check(rig_state, 400);
	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t victim = rig_ops->victim(rig_state);
		uint32_t key = 20000 + (uint32_t)rig_draw(9000);

		rig_drop(victim);
		rig_create(victim, key);
		rig_stored(victim, 0);
		if (i % 100 == 0)
			rig_ops->check(rig_state, 400);
	}
	rig_ops->check(rig_state, 400);
	rig_close();
	free(cache.entry);
	free(cache.key);
}
END_TEST

START_TEST(adaptive_costs_at_most_fourteen_bytes_an_entry_in_large_indexes)
{
	static const uint32_t sizes[] = {1000000, 10000000, 100000000};
	struct scout__evict_args args = {.share = 100};

	for (size_t i = 0; i < 3; i++) {
		void *state;
		uint64_t bytes;

		ck_assert_int_eq(scout__evict_adaptive.open(&state, rig_entries, sizes[i], &args), 0);
		bytes = scout__evict_adaptive.state_bytes(state);
		scout__evict_adaptive.close(state);
		ck_assert_uint_le(bytes, (uint64_t)sizes[i] * 14);
	}
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("l1_adaptive");
	TCase *tc = tcase_create("adaptive");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, slru_evicts_unread_ones_first_while_they_have_more_than_their_share);
	tcase_add_test(tc, slru_protects_what_comes_back_soon_after_it_went);
	tcase_add_test(tc, slru_what_is_stored_deeper_than_the_cut_goes_first_until_it_is_read);
	tcase_add_test(tc, slru_deep_entry_that_was_pinned_is_on_probation_until_it_is_touched);
	tcase_add_test(tc, segmented_stamps_compare_rightly_when_they_wrap);
	tcase_add_loop_test(tc, slru_does_what_a_naive_model_does, 0, 50);
	tcase_add_loop_test(tc, slru_without_share_and_cut_is_lru, 0, 20);
	tcase_add_loop_test(tc, adaptive_gains_what_a_fixed_share_gains_on_hot_and_cold_keys, 0, 2);
	tcase_add_loop_test(tc, adaptive_loses_nothing_to_lru_where_recency_is_all, 0, 2);
	tcase_add_test(tc, adaptive_comes_back_to_lru_when_the_uses_change);
	tcase_add_test(tc, mini_caches_leave_lru_for_a_gain_and_comes_back_at_once);
	tcase_add_test(tc, adaptive_follows_an_index_that_gives_slots_to_another_namespace);
	tcase_add_test(tc, adaptive_costs_at_most_fourteen_bytes_an_entry_in_large_indexes);
	suite_add_tcase(suite, tc);
	return suite;
}
