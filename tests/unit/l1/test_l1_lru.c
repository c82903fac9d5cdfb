/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"

#include "policy_rig.h"

#include "check_main.h"

static void
setup(void)
{
	rig_open("lru", 16);
}

/* Entries 0 to @n - 1, in this order. */
static void
create(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		rig_create(i, i);
}

CHECKED_FIXTURE(setup, rig_close);

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
	rig_expect(NULL, 0);
	rig_create(3, 3);
	rig_pin(3);
	rig_expect(NULL, 0);
}
END_TEST

START_TEST(lru_evicts_in_order_of_insertion)
{
	static const uint32_t expected[] = {5, 0, 15, 7};

	for (uint32_t i = 0; i < 4; i++)
		rig_create(expected[i], i);
	rig_expect(expected, 4);
}
END_TEST

START_TEST(lru_access_moves_first_middle_and_last_to_the_end)
{
	create(4);
	rig_read(0);
	rig_stored(2);
	rig_read(2);
	rig_expect((const uint32_t[]){1, 3, 0, 2}, 4);
}
END_TEST

START_TEST(lru_access_of_the_only_entry_keeps_it)
{
	rig_create(9, 9);
	rig_read(9);
	rig_expect((const uint32_t[]){9}, 1);
}
END_TEST

START_TEST(lru_removes_first_middle_and_last)
{
	create(6);
	rig_pin(0);
	rig_pin(3);
	rig_pin(5);
	rig_expect((const uint32_t[]){1, 2, 4}, 3);
}
END_TEST

START_TEST(lru_unpinned_entry_is_the_most_recent)
{
	create(3);
	rig_pin(0);
	rig_unpin(0);
	rig_expect((const uint32_t[]){1, 2, 0}, 3);
}
END_TEST
