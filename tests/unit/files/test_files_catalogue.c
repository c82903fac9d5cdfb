/* SPDX-License-Identifier: Apache-2.0 */
#include "files_catalogue.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "clock.h"
#include "thread.h"
#include "own_use.h"

static struct scout__cat cat;

static void
setup(void)
{
	ck_assert_int_eq(scout__cat_init(&cat, UINT64_MAX), 0);
}

static void
teardown(void)
{
	scout__cat_fini(&cat);
}

static struct scout__l2_digest
digest_of(uint64_t i)
{
	/* Uniform, as digests are; every third key meets another in shard and tag. */
	uint64_t x = (i / 3 + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x ^= x >> 31;
	return (struct scout__l2_digest){.lo = x * UINT64_C(0xbf58476d1ce4e5b9), .hi = i};
}

static uint32_t
must_claim(uint64_t i)
{
	uint32_t entry;

	ck_assert_int_eq(scout__cat_try_claim(&cat, digest_of(i), 0, &entry), SCOUT__CAT_CLAIMED);
	return entry;
}

static void
put(uint64_t i, uint64_t bytes)
{
	uint32_t entry = must_claim(i);

	ck_assert(scout__cat_reserve(&cat, entry, bytes));
	scout__cat_publish(&cat, entry);
}

static bool
is_there(uint64_t i)
{
	struct scout__l2_digest digest = digest_of(i);
	uint8_t found = 7;

	ck_assert_uint_eq(scout__cat_exists(&cat, &digest, 1, false, &found), found);
	return found;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_million_objects_come_and_go)
{
	enum {
		N = 1000000,
		ASKED = 256
	};
	static struct scout__l2_digest digests[ASKED];
	static uint8_t found[ASKED];
	struct scout__cat_victim victim;
	uint64_t begun_us;

	for (uint64_t i = 0; i < N; i++) {
		uint32_t entry;

		/* One assertion of Check's for each would be a file of 100 MB. */
		if (scout__cat_try_claim(&cat, digest_of(i), 0, &entry) != SCOUT__CAT_CLAIMED)
			ck_abort_msg("no claim");
		(void)scout__cat_reserve(&cat, entry, 10);
		scout__cat_publish(&cat, entry);
	}
	ck_assert_uint_eq(cat.n_objects, N);
	ck_assert_uint_eq(cat.bytes, 10 * N);
	begun_us = cpu_us();
	for (uint64_t first = 0; first + ASKED <= N; first += ASKED) {
		for (uint32_t i = 0; i < ASKED; i++)
			digests[i] = digest_of((first + i) * 7919 % (2 * N));
		if (scout__cat_exists(&cat, digests, ASKED, false, found) > ASKED)
			ck_abort_msg("more than all");
		for (uint32_t i = 0; i < ASKED; i++)
			if (found[i] != ((first + i) * 7919 % (2 * N) < N))
				ck_abort_msg("key %u of %u", i, (unsigned)first);
	}
	/* Reach: 2 us for each key. A sanitizer takes longer; a table that is searched, far more. */
	ck_assert_uint_lt((cpu_us() - begun_us) / (N / 1000), 20 * 1000);
	for (uint64_t i = 0; i < N; i++) {
		if (scout__cat_evict(&cat, true, SCOUT__CAT_NONE, &victim) != SCOUT__CAT_VICTIM ||
		    victim.digest.hi != i)
			ck_abort_msg("victim %u", (unsigned)i);
		scout__cat_drop(&cat, victim.entry);
	}
	ck_assert_int_eq(scout__cat_evict(&cat, true, SCOUT__CAT_NONE, &victim), SCOUT__CAT_STUCK);
	ck_assert_uint_eq(cat.n_objects, 0);
	ck_assert_uint_eq(cat.bytes, 0);
}
END_TEST

/* Everything at random beside the plainest model of it. */
enum {
	KEYS = 60
};

static struct {
	enum {
		NOTHING,
		THERE,
		MINE
	} state;
	uint64_t bytes, used_at;
	uint32_t pins, entry;
} model[KEYS];

static void
check_against_model(void)
{
	uint64_t objects = 0, bytes = 0, pinned = 0;

	for (unsigned i = 0; i < KEYS; i++) {
		objects += model[i].state == THERE;
		bytes += model[i].state == NOTHING ? 0 : model[i].bytes;
		pinned += model[i].pins > 0;
		if (is_there(i) != (model[i].state == THERE))
			ck_abort_msg("key %u", i);
	}
	ck_assert_uint_eq(cat.n_objects, objects);
	ck_assert_uint_eq(cat.bytes, bytes);
	ck_assert_uint_eq(cat.n_pinned, pinned);
}

static int
oldest_of_model(void)
{
	int oldest = -1;

	for (int i = 0; i < KEYS; i++)
		if (model[i].state == THERE && model[i].pins == 0 &&
		    (oldest < 0 || model[i].used_at < model[oldest].used_at))
			oldest = i;
	return oldest;
}

static void
step(unsigned *seed, uint64_t now)
{
	unsigned i = (unsigned)rand_r(seed) % KEYS;
	struct scout__l2_digest digest = digest_of(i);
	struct scout__cat_victim victim;
	struct scout__cat_ref ref;
	bool is_stale;
	uint8_t found;

	switch (rand_r(seed) % 8) {
	case 0:
	case 1: /* claim, or use of what is there */
		switch (scout__cat_try_claim(&cat, digest, 0, &model[i].entry)) {
		case SCOUT__CAT_CLAIMED:
			ck_assert_int_eq(model[i].state, NOTHING);
			model[i].state = MINE;
			model[i].bytes = (uint64_t)rand_r(seed) % 100;
			ck_assert(scout__cat_reserve(&cat, model[i].entry, model[i].bytes));
			break;
		case SCOUT__CAT_PRESENT:
			ck_assert_int_eq(model[i].state, THERE);
			model[i].used_at = model[i].pins ? model[i].used_at : now;
			break;
		default:
			ck_assert_int_eq(model[i].state, MINE);
		}
		break;
	case 2:
		if (model[i].state == MINE) {
			scout__cat_publish(&cat, model[i].entry);
			model[i].state = THERE;
			model[i].used_at = now;
		}
		break;
	case 3:
		if (model[i].state == MINE) {
			scout__cat_drop(&cat, model[i].entry);
			model[i].state = NOTHING;
		}
		break;
	case 4:
		(void)scout__cat_exists(&cat, &digest, 1, true, &found);
		ck_assert_uint_eq(found, model[i].state == THERE);
		model[i].pins += found;
		break;
	case 5:
		scout__cat_unpin(&cat, &digest, 1, NULL);
		if (model[i].pins > 0 && --model[i].pins == 0)
			model[i].used_at = now;
		break;
	case 6:
		if (scout__cat_use(&cat, digest, 0, &ref, &is_stale)) {
			ck_assert_int_eq(model[i].state, THERE);
			model[i].used_at = now;
			if (rand_r(seed) % 2) {
				ck_assert(scout__cat_claim_ref(&cat, ref));
				ck_assert(!scout__cat_claim_ref(&cat, ref));
				model[i].entry = ref.entry;
				model[i].state = MINE;
			}
		} else {
			ck_assert_int_ne(model[i].state, THERE);
		}
		break;
	default:
		if (rand_r(seed) % 4)
			break;
		if (scout__cat_evict(&cat, true, SCOUT__CAT_NONE, &victim) == SCOUT__CAT_STUCK) {
			ck_assert_int_eq(oldest_of_model(), -1);
			break;
		}
		ck_assert_int_eq((int)victim.digest.hi, oldest_of_model());
		ck_assert_uint_eq(victim.bytes, model[victim.digest.hi].bytes);
		if (rand_r(seed) % 3 == 0) {
			scout__cat_keep(&cat, &victim);
			model[victim.digest.hi].used_at = now;
		} else {
			scout__cat_drop(&cat, victim.entry);
			model[victim.digest.hi].state = NOTHING;
		}
	}
}

START_LOOP_TEST(it_behaves_as_the_model_does, 1, 9)
{
	unsigned seed = (unsigned)_i;

	for (uint64_t now = 1; now < 4000; now++) {
		step(&seed, now);
		if (now % 16 == 0)
			check_against_model();
	}
}
END_TEST

START_TEST(a_limit_is_kept_by_the_oldest)
{
	struct scout__cat_victim victim;

	cat.max_bytes = 100;
	for (uint64_t i = 0; i < 4; i++)
		put(i, 25);
	ck_assert_int_eq(scout__cat_evict(&cat, false, SCOUT__CAT_NONE, &victim), SCOUT__CAT_FITS);
	ck_assert(!scout__cat_reserve(&cat, must_claim(9), 101));
	ck_assert(scout__cat_reserve(&cat, must_claim(8), 26));
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(scout__cat_evict(&cat, false, SCOUT__CAT_NONE, &victim), SCOUT__CAT_VICTIM);
		ck_assert_uint_eq(victim.digest.hi, i);
		scout__cat_drop(&cat, victim.entry);
	}
	ck_assert_int_eq(scout__cat_evict(&cat, false, SCOUT__CAT_NONE, &victim), SCOUT__CAT_FITS);
}
END_TEST

START_TEST(what_was_seen_is_not_taken_for_what_came_after_it)
{
	struct scout__cat_ref old, now;
	bool is_stale;

	put(1, 10);
	ck_assert(scout__cat_use(&cat, digest_of(1), 0, &old, &is_stale));
	ck_assert(scout__cat_claim_ref(&cat, old));
	scout__cat_drop(&cat, old.entry);
	ck_assert(!scout__cat_claim_ref(&cat, old));
	put(1, 10);
	ck_assert(scout__cat_use(&cat, digest_of(1), 0, &now, &is_stale));
	ck_assert_uint_eq(now.entry, old.entry); /* or this proves nothing */
	ck_assert(!scout__cat_claim_ref(&cat, old));
	ck_assert(is_there(1));
	ck_assert(scout__cat_claim_ref(&cat, now));
}
END_TEST

static void *
drop_later(void *arg)
{
	uint32_t entry = *(uint32_t *)arg, waiters = 0;

	while (waiters == 0) {
		(void)sched_yield();
		(void)pthread_mutex_lock(&cat.mu);
		waiters = cat.waiters;
		(void)pthread_mutex_unlock(&cat.mu);
	}
	scout__cat_drop(&cat, entry);
	return NULL;
}

START_TEST(who_waits_for_a_claim_gets_it_or_hears_of_the_end)
{
	uint32_t entry = must_claim(1), mine;
	pthread_t thread;

	ck_assert_int_eq(scout__cat_try_claim(&cat, digest_of(1), scout__now_us() + 20000, &mine), SCOUT__CAT_TIMEOUT);
	ck_assert_int_eq(pthread_create(&thread, NULL, drop_later, &entry), 0);
	ck_assert_int_eq(scout__cat_try_claim(&cat, digest_of(1), UINT64_MAX, &mine), SCOUT__CAT_CLAIMED);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	scout__cat_stop(&cat);
	ck_assert_int_eq(scout__cat_try_claim(&cat, digest_of(1), UINT64_MAX, &entry), SCOUT__CAT_STOPPED);
}
END_TEST

START_TEST(what_was_there_before_is_older_than_what_was_used_since)
{
	uint32_t entries[6];
	uint32_t order[6] = {3, 0, 5, 1, 4, 2}; /* newest first */
	uint32_t ordered[6];
	struct scout__cat_victim victim;
	struct scout__cat_ref ref;
	bool is_stale;

	put(100, 1);
	for (uint64_t i = 0; i < 6; i++) {
		entries[i] = must_claim(i);
		scout__cat_adopt(&cat, entries[i], 1);
	}
	ck_assert(scout__cat_use(&cat, digest_of(4), 0, &ref, &is_stale));
	for (unsigned i = 0; i < 6; i++)
		ordered[i] = entries[order[i]];
	scout__cat_order(&cat, ordered, 6);
	for (const uint64_t *wanted = (const uint64_t[]){2, 1, 5, 0, 3, 100, 4}; cat.n_objects; wanted++) {
		ck_assert_int_eq(scout__cat_evict(&cat, true, SCOUT__CAT_NONE, &victim), SCOUT__CAT_VICTIM);
		ck_assert_uint_eq(victim.digest.hi, *wanted);
		scout__cat_drop(&cat, victim.entry);
	}
}
END_TEST
