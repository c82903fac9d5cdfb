/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"
#include "evict.h"

#include "check_main.h"

#define N 16u

static struct scout__entry entries[N];
static void *state;
static const struct scout__evict_args args;

static void
setup(void)
{
	ck_assert_int_eq(scout__evict_lru.open(&state, entries, N, &args), 0);
}

static void
teardown(void)
{
	scout__evict_lru.close(state);
}

static void
insert(uint32_t entry)
{
	entries[entry].in_order = 1;
	scout__evict_lru.insert(state, entry, SCOUT__INSERT_CREATED);
}

static void
take_out(uint32_t entry)
{
	scout__evict_lru.remove(state, entry, SCOUT__REMOVE_PINNED);
	entries[entry].in_order = 0;
}

static void
touch(uint32_t entry, enum scout__access how)
{
	scout__evict_lru.accessed(state, entry, &(struct scout__touch){.how = how});
}

/* Evict everything; the order must be @expected. Leaves the order empty. */
static void
expect_order(const uint32_t *expected, uint32_t n)
{
	scout__evict_lru.check(state, n);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_eq(scout__evict_lru.victim(state), expected[i]);
		take_out(expected[i]);
		scout__evict_lru.check(state, n - i - 1);
	}
	ck_assert_uint_eq(scout__evict_lru.victim(state), SCOUT__NO_ENTRY);
}

START_TEST(policies_are_found_by_their_text_only)
{
	static const char *const wrong[] = {"",
					    "LRU",
					    "lru2",
					    "lru:5",
					    "hdc:5",
					    "s3fifo:0",
					    "s3fifo:100",
					    "s3fifo:5:",
					    "s3fifo:05",
					    "s3fifo:5:6",
					    "s3fifo:",
					    ":",
					    "s3fifo:99999999999999999999",
					    "s3fifo: 5",
					    "s3fifo:5 ",
					    "adaptive",
					    "slru"};
	static const struct {
		const char *text;
		const struct scout__evict_ops *policy;
		struct scout__evict_args args;
	} right[] = {
		{"hdc", &scout__evict_hdc, {0}},
		{"lru", &scout__evict_lru, {0}},
		{"s3fifo", &scout__evict_s3fifo, {.share = 10}},
		{"s3fifo:50", &scout__evict_s3fifo, {.share = 50}},
	};
	struct scout__evict_args got;
	char err[512];

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		ck_assert_ptr_eq(scout__evict_parse(right[i].text, &got, err, sizeof(err)), right[i].policy);
		ck_assert_uint_eq(got.share, right[i].args.share);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		got = (struct scout__evict_args){.share = 7};
		err[0] = '\0';
		ck_assert_ptr_null(scout__evict_parse(wrong[i], &got, err, sizeof(err)));
		ck_assert_uint_eq(got.share, 7);
		ck_assert_ptr_nonnull(strstr(err, "hdc, lru, s3fifo[:SHARE]"));
	}
}
END_TEST

START_TEST(lru_empty_order_has_no_victim)
{
	ck_assert_uint_eq(scout__evict_lru.victim(state), SCOUT__NO_ENTRY);
	insert(3);
	take_out(3);
	expect_order(NULL, 0);
}
END_TEST

START_TEST(lru_evicts_in_order_of_insertion)
{
	static const uint32_t expected[] = {5, 0, 15, 7};

	for (uint32_t i = 0; i < 4; i++)
		insert(expected[i]);
	expect_order(expected, 4);
}
END_TEST

START_TEST(lru_victim_stays_until_removed)
{
	insert(1);
	insert(2);
	ck_assert_uint_eq(scout__evict_lru.victim(state), 1);
	ck_assert_uint_eq(scout__evict_lru.victim(state), 1);
	expect_order((const uint32_t[]){1, 2}, 2);
}
END_TEST

START_TEST(lru_access_moves_first_middle_and_last_to_the_end)
{
	for (uint32_t i = 0; i < 4; i++)
		insert(i);
	touch(0, SCOUT__ACCESS_READ);
	touch(2, SCOUT__ACCESS_STORED);
	touch(2, SCOUT__ACCESS_READ);
	expect_order((const uint32_t[]){1, 3, 0, 2}, 4);
}
END_TEST

START_TEST(lru_access_of_the_only_entry_keeps_it)
{
	insert(9);
	touch(9, SCOUT__ACCESS_READ);
	expect_order((const uint32_t[]){9}, 1);
}
END_TEST

START_TEST(lru_removes_first_middle_and_last)
{
	for (uint32_t i = 0; i < 6; i++)
		insert(i);
	take_out(0);
	take_out(3);
	take_out(5);
	expect_order((const uint32_t[]){1, 2, 4}, 3);
}
END_TEST

START_TEST(lru_unpinned_entry_is_the_most_recent)
{
	for (uint32_t i = 0; i < 3; i++)
		insert(i);
	take_out(0);
	entries[0].in_order = 1;
	scout__evict_lru.insert(state, 0, SCOUT__INSERT_UNPINNED);
	expect_order((const uint32_t[]){1, 2, 0}, 3);
}
END_TEST

START_TEST(lru_finished_read_changes_nothing)
{
	for (uint32_t i = 0; i < 3; i++)
		insert(i);
	scout__evict_lru.read_finished(state, 0);
	scout__evict_lru.read_finished(state, 7);
	expect_order((const uint32_t[]){0, 1, 2}, 3);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("l1_lru");
	TCase *tc = tcase_create("lru");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, policies_are_found_by_their_text_only);
	tcase_add_test(tc, lru_empty_order_has_no_victim);
	tcase_add_test(tc, lru_evicts_in_order_of_insertion);
	tcase_add_test(tc, lru_victim_stays_until_removed);
	tcase_add_test(tc, lru_access_moves_first_middle_and_last_to_the_end);
	tcase_add_test(tc, lru_access_of_the_only_entry_keeps_it);
	tcase_add_test(tc, lru_removes_first_middle_and_last);
	tcase_add_test(tc, lru_unpinned_entry_is_the_most_recent);
	tcase_add_test(tc, lru_finished_read_changes_nothing);
	suite_add_tcase(suite, tc);
	return suite;
}
