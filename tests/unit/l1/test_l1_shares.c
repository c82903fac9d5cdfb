/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l1_rig.h"

/*
 * Fair shares of the tenants of one namespace: a tenant within its guarantee loses nothing to others, under every
 * policy, and what it does not use is used by others.
 */

#define CHUNKS 100u
#define SLOT UINT64_C(100)
#define TENANTS 4u
#define KEYS 400u

static const char *const policies[] = {"lru", "s3fifo", "hdc"};
#define POLICIES 3

static struct scout__l1 l1;
static struct scout__l1_ns ns;
static struct scout__chunk_index *cache;
static uint32_t account[TENANTS + 1];

/* @chunks of one slot; tenant T has space T and keys from T * 100000 on. */
static SCOUT_STARTS_LOOP void
begin_with(const char *policy, uint32_t chunks, uint64_t slot)
{
	const uint64_t l1_bytes = chunks * scout__slot_stride(slot);
	char err[256] = "";

	scout__enter_loop();
	ck_assert_msg(scout__l1_init(&l1, l1_bytes, l1_bytes, l1_bytes, policy, &test_log, err, sizeof(err)) == 0, "%s",
		      err);
	scout__l1_ns_init(&ns, 1);
	ck_assert_int_eq(scout__index_new(&l1, NULL, &slot, NULL, 1, 1, HASH, &cache), 0);
	scout__index_belongs(cache, &ns);
	for (uint32_t t = 1; t <= TENANTS; t++) {
		account[t] = scout__account_new(&ns);
		ck_assert_uint_eq(account[t], t);
		ck_assert(scout__account_space(&ns, t, account[t]));
	}
	ck_assert(wait_grown(cache));
	ck_assert_uint_eq(cache->extents.n_slots, chunks);
}

static SCOUT_STARTS_LOOP void
begin(const char *policy)
{
	begin_with(policy, CHUNKS, SLOT);
}

static SCOUT_ON_LOOP void
end(void)
{
	scout__index_check(cache);
	scout__index_free(cache);
	for (uint32_t t = 0; t <= TENANTS; t++)
		ck_assert_uint_eq(ns.accounts[t].bytes, 0);
	ck_assert_uint_eq(ns.slot_bytes, 0);
	scout__l1_ns_fini(&ns);
	scout__l1_fini(&l1);
}

static SCOUT_ON_LOOP void
guarantee(uint32_t tenant, uint32_t percent)
{
	scout__account_guarantee(&ns, account[tenant], percent, false);
}

static SCOUT_ON_LOOP uint32_t
find(uint32_t tenant, uint32_t i)
{
	return scout__index_find(cache, tenant, key(tenant * 100000 + i));
}

static SCOUT_ON_LOOP enum scout__reserve
store(uint32_t tenant, uint32_t i)
{
	struct scout__touch touch = {.how = SCOUT__ACCESS_STORED};
	uint32_t entry = SCOUT__NO_ENTRY;
	enum scout__reserve got = scout__index_reserve(cache, tenant, key(tenant * 100000 + i), 0, NULL, &entry);

	if (got != SCOUT__RESERVE_GRANTED)
		return got;
	(void)scout__index_commit(cache, entry, 0);
	scout__index_touch(cache, entry, &touch);
	return got;
}

static SCOUT_ON_LOOP void
fill(uint32_t tenant, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		ck_assert_int_eq(store(tenant, i), SCOUT__RESERVE_GRANTED);
}

/* How many chunks of a tenant are there; the account agrees. */
static SCOUT_ON_LOOP uint32_t
count(uint32_t tenant)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cache->slots.next_fresh; i++)
		n += cache->entries[i].in_use && cache->entries[i].space == tenant;
	ck_assert_uint_eq(ns.accounts[account[tenant]].bytes, n * cache->chunk_bytes);
	return n;
}

CHECKED_FIXTURE(NULL, end);

START_LOOP_TEST(a_flood_takes_nothing_of_a_guaranteed_share, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 1000);
	scout__index_check(cache);
	ck_assert_uint_eq(count(1), 40);
	ck_assert_uint_eq(count(2), 60);
	for (uint32_t i = 0; i < 40; i++)
		ck_assert(find(1, i) != SCOUT__NO_ENTRY);
	/* The flooding tenant has its newest. */
	ck_assert(find(2, 999) != SCOUT__NO_ENTRY && find(2, 0) == SCOUT__NO_ENTRY);
	ck_assert_uint_eq(ns.accounts[account[1]].evicted_over + ns.accounts[account[1]].evicted_under, 0);
	ck_assert_uint_eq(ns.accounts[account[2]].evicted_over, l1.evictions);
}
END_TEST

START_LOOP_TEST(without_a_share_a_flood_takes_everything, 0, 1)
{
	begin(policies[_i]);
	fill(1, 0, 40);
	fill(2, 0, 1000);
	ck_assert_uint_eq(count(1), 0);
	ck_assert_uint_eq(cache->order.n_set_aside, 0);
}
END_TEST

START_LOOP_TEST(a_share_that_is_not_used_is_lent_and_comes_back_as_it_is_asked_for, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 40);
	guarantee(2, 30);
	fill(2, 0, 100);
	ck_assert_uint_eq(count(2), 100);
	for (uint32_t i = 0; i < 40; i++) {
		fill(1, i, 1);
		ck_assert_uint_eq(count(1), i + 1);
		ck_assert_uint_eq(count(2), 99 - i);
	}
	scout__index_check(cache);
}
END_TEST

START_LOOP_TEST(at_its_guarantee_a_tenant_replaces_its_own_where_all_are_guaranteed, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 50);
	guarantee(2, 50);
	fill(1, 0, 50);
	fill(2, 0, 50);
	for (uint32_t i = 0; i < 300; i++) {
		fill(2, 1000 + i, 1);
		ck_assert_uint_eq(count(1), 50);
		ck_assert_uint_eq(count(2), 50);
		fill(1, 1000 + i, 1);
		ck_assert_uint_eq(count(1), 50);
		ck_assert_uint_eq(count(2), 50);
	}
}
END_TEST

START_TEST(what_was_set_aside_goes_first_when_its_tenant_is_above_its_guarantee)
{
	begin("lru");
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 100);
	ck_assert_uint_eq(cache->order.n_set_aside, 40);
	guarantee(1, 39);
	fill(2, 1000, 1);
	ck_assert_uint_eq(count(1), 39);
	ck_assert(find(1, 0) == SCOUT__NO_ENTRY);
	/* A lower share takes effect at once, none ends the setting aside. */
	guarantee(1, 0);
	fill(2, 2000, 39);
	ck_assert_uint_eq(count(1), 0);
	ck_assert_uint_eq(cache->order.n_set_aside, 0);
}
END_TEST

START_LOOP_TEST(a_touch_a_pin_and_a_drop_find_what_is_set_aside, 0, POLICIES)
{
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};
	uint32_t entry;

	begin(policies[_i]);
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 100);
	ck_assert_uint_eq(cache->order.n_set_aside, 40);
	scout__index_touch(cache, find(1, 7), &touch);
	ck_assert_uint_eq(cache->order.n_set_aside, 39);
	scout__index_check(cache);
	entry = find(1, 8);
	ck_assert(scout__index_promise(cache, entry));
	ck_assert_uint_eq(cache->order.n_set_aside, 38);
	scout__index_check(cache);
	scout__index_unpromise(cache, entry, 1);
	scout__index_check(cache);
	ck_assert(scout__index_drop(cache, find(1, 9)));
	ck_assert_uint_eq(cache->order.n_set_aside, 37);
	ck_assert_uint_eq(count(1), 39);
	scout__index_check(cache);
}
END_TEST

START_LOOP_TEST(a_guarantee_yields_only_when_all_else_is_pinned, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 60);
	for (uint32_t i = 0; i < 60; i++)
		ck_assert(scout__index_promise(cache, find(2, i)));
	fill(2, 1000, 1);
	ck_assert_uint_eq(count(1), 39);
	ck_assert_uint_eq(ns.accounts[account[1]].evicted_under, 1);
	for (uint32_t i = 0; i < 60; i++)
		scout__index_unpromise(cache, find(2, i), 1);
	fill(2, 2000, 100);
	ck_assert_uint_eq(count(1), 39);
}
END_TEST

START_LOOP_TEST(an_idle_tenant_lends_what_it_has_until_it_asks_again, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 60);
	scout__index_asked(cache, 2, SCOUT__SHARE_IDLE * CHUNKS);
	fill(2, 1000, 60);
	ck_assert_uint_eq(count(1), 40);
	scout__index_asked(cache, 2, 1);
	/* In the policy's order, which is another one for each: all of it in time. */
	fill(2, 2000, 200);
	ck_assert_uint_lt(count(1), 40);
	scout__index_asked(cache, 1, 1);
	fill(1, 1000, 40 - count(1));
	fill(2, 3000, 100);
	ck_assert_uint_eq(count(1), 40);
}
END_TEST

START_LOOP_TEST(tenants_without_their_own_share_what_the_named_ones_leave, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 70);
	for (uint32_t t = 2; t <= TENANTS; t++)
		scout__account_guarantee(&ns, account[t], 20, true);
	ck_assert_uint_eq(scout__account_bytes_guaranteed(&ns, &ns.accounts[2]), 20 * cache->chunk_bytes);
	fill(2, 0, 1);
	fill(3, 0, 1);
	/* Three would be 60 % of the 30 % that are left. */
	ck_assert_uint_eq(scout__account_bytes_guaranteed(&ns, &ns.accounts[2]), 15 * cache->chunk_bytes);
	ck_assert_uint_eq(scout__account_bytes_guaranteed(&ns, &ns.accounts[4]), 10 * cache->chunk_bytes);
	fill(2, 100, 14);
	fill(3, 100, 300);
	fill(1, 0, 70);
	fill(3, 500, 300);
	ck_assert_uint_eq(count(1), 70);
	ck_assert_uint_eq(count(2), 15);
	ck_assert_uint_eq(count(3), 15);
}
END_TEST

START_LOOP_TEST(chunks_of_older_weights_are_protected_no_more, 0, POLICIES)
{
	begin(policies[_i]);
	guarantee(1, 40);
	fill(1, 0, 40);
	fill(2, 0, 100);
	scout__accounts_outdate(&ns, 10, cache->n_entries * cache->chunk_bytes);
	ck_assert(scout__account_space(&ns, 10, account[2]));
	ck_assert_uint_eq(scout__account_bytes(&ns, &ns.accounts[account[1]]), 0);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_int_eq(store(10, i), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(ns.accounts[0].bytes, 0);
	ck_assert_uint_eq(ns.accounts[account[2]].bytes, CHUNKS * cache->chunk_bytes);
}
END_TEST

START_TEST(a_long_run_of_protected_chunks_is_passed_in_turns)
{
	struct scout__user user;
	uint32_t entry, again = 0;
	enum scout__reserve got;

	begin_with("lru", 4096, 64);
	guarantee(1, 75);
	fill(1, 0, 3000);
	fill(2, 0, 1096);
	user = scout__index_user(cache, 77);
	do {
		user.skips = 1;
		got = scout__index_reserve(cache, 2, key(999999), 0, &user, &entry);
		again += got == SCOUT__RESERVE_AGAIN;
	} while (got == SCOUT__RESERVE_AGAIN);
	ck_assert_int_eq(got, SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(again, 3000 / 512);
	(void)scout__index_commit(cache, entry, 0);
	ck_assert_uint_eq(ns.accounts[account[1]].bytes, 3000 * cache->chunk_bytes);
	ck_assert(find(2, 0) == SCOUT__NO_ENTRY);
}
END_TEST

static uint32_t seed;

static uint32_t
draw(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* Chunks that may be evicted without touching the guarantee of any but @asker. */
static SCOUT_ON_LOOP uint32_t
count_free_to_go(uint32_t asker)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cache->slots.next_fresh; i++)
		n += cache->entries[i].in_use && cache->entries[i].in_order &&
		     !scout__share_protects(&ns, cache->entries[i].space, asker, cache->chunk_bytes);
	return n;
}

/* Tenants store, read and pin at random, and shares change: a guarantee is broken only when there is nothing else. */
START_LOOP_TEST(random_traffic_keeps_every_guarantee, 0, 12)
{
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};
	uint32_t pinned[32] = {0}, n_pinned = 0;

	begin(policies[_i % POLICIES]);
	seed = (uint32_t)_i + 1;
	for (uint32_t step = 0; step < 6000; step++) {
		uint32_t t = 1 + draw(TENANTS), i = draw(KEYS), what = draw(20);
		uint32_t entry = find(t, i);

		if (step % 500 == 0)
			for (uint32_t a = 1; a <= TENANTS; a++)
				scout__account_guarantee(&ns, account[a], draw(100 / TENANTS + 1), draw(3) == 0);
		if (what == 0 && entry != SCOUT__NO_ENTRY && n_pinned < 32 && scout__index_promise(cache, entry)) {
			pinned[n_pinned++] = entry;
		} else if (what == 1 && n_pinned > 0) {
			scout__index_unpromise(cache, pinned[--n_pinned], 1);
		} else if (entry != SCOUT__NO_ENTRY) {
			scout__index_asked(cache, t, 1);
			scout__index_touch(cache, entry, &touch);
		} else {
			uint64_t under = 0, now = 0;
			uint32_t may_go = count_free_to_go(t);

			for (uint32_t a = 1; a <= TENANTS; a++)
				under += a == t ? 0 : ns.accounts[a].evicted_under;
			scout__index_asked(cache, t, 1);
			ck_assert_int_eq(store(t, i), SCOUT__RESERVE_GRANTED);
			for (uint32_t a = 1; a <= TENANTS; a++)
				now += a == t ? 0 : ns.accounts[a].evicted_under;
			ck_assert(now == under || may_go == 0);
		}
		if (step % 100 == 0)
			scout__index_check(cache);
	}
	for (uint32_t t = 1; t <= TENANTS; t++)
		(void)count(t);
	while (n_pinned > 0)
		scout__index_unpromise(cache, pinned[--n_pinned], 1);
}
END_TEST
