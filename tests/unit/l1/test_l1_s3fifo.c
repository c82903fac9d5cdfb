/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"
#include "ghost.h"

#include "policy_rig.h"

#include "check_main.h"

CHECKED_FIXTURE(NULL, rig_close);

START_TEST(s3fifo_evicts_what_nobody_read_in_order_of_insertion)
{
	static const uint32_t order[] = {5, 0, 15, 7};

	rig_open("s3fifo:50", 16);
	ck_assert_uint_eq(rig_ops->victim(rig_state), SCOUT__NO_ENTRY);
	for (uint32_t i = 0; i < 4; i++)
		rig_create(order[i], i);
	for (uint32_t i = 0; i < 4; i++)
		rig_stored(order[3 - i]);
	rig_expect(order, 4);
}
END_TEST

START_TEST(s3fifo_read_once_goes_round_into_the_main_queue)
{
	rig_open("s3fifo:50", 16);
	for (uint32_t i = 0; i < 4; i++)
		rig_create(i, i);
	rig_read(0);
	rig_read(2);
	/* 0 moves on and 1 goes; 2 moves on: more than half of three, so 0 goes; then 3, the last small one. */
	rig_expect((const uint32_t[]){1, 0, 3, 2}, 4);
}
END_TEST

START_TEST(s3fifo_reads_are_worth_as_many_rounds_in_the_main_queue)
{
	rig_open("s3fifo:50", 16);
	for (uint32_t i = 0; i < 4; i++)
		rig_create(i, i);
	for (uint32_t i = 0; i < 4; i++)
		rig_read(i);
	/* 0, 1 and 2 have moved to the main queue when it is too long: their first reads are used up. */
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_read(0);
	rig_read(0);
	rig_read(1);
	rig_expect((const uint32_t[]){2, 1, 0, 3}, 4);
}
END_TEST

START_TEST(s3fifo_what_comes_back_soon_enters_the_main_queue)
{
	rig_open("s3fifo:50", 16);
	for (uint32_t i = 0; i < 4; i++)
		rig_create(i, 100 + i);
	ck_assert_uint_eq(rig_ops->victim(rig_state), 0);
	rig_drop(0);
	rig_create(0, 100);
	/* Older in time are 1, 2 and 3, and 0 is the only one in the main queue. */
	rig_create(4, 200);
	rig_expect((const uint32_t[]){1, 2, 3, 4, 0}, 5);
}
END_TEST

START_TEST(s3fifo_share_bounds_the_main_queue)
{
	/* 10 entries, all in the main queue but 2: with a share of 50 % main ones go first, with 10 % small ones. */
	for (int small = 0; small < 2; small++) {
		rig_open(small ? "s3fifo:10" : "s3fifo:50", 16);
		for (uint32_t i = 0; i < 8; i++) {
			rig_create(i, i);
			rig_drop(i);
			rig_create(i, i);
		}
		rig_create(8, 8);
		rig_create(9, 9);
		ck_assert_uint_eq(rig_ops->victim(rig_state), small ? 8 : 0);
		rig_close();
	}
}
END_TEST

START_TEST(s3fifo_entry_keeps_its_queue_and_its_reads_while_pinned)
{
	rig_open("s3fifo:50", 16);
	for (uint32_t i = 0; i < 4; i++)
		rig_create(i, i);
	rig_read(0);
	rig_pin(0);
	rig_unpin(0);
	rig_expect((const uint32_t[]){1, 2, 3, 0}, 4);
}
END_TEST

START_TEST(s3fifo_victim_of_a_cache_that_was_read_completely_is_found_in_few_steps)
{
	uint32_t spent = 0;
	uint32_t victim;

	rig_open("s3fifo:10", RIG_MAX_ENTRIES);
	for (uint32_t i = 0; i < RIG_MAX_ENTRIES; i++) {
		rig_create(i, i);
		for (uint32_t n = 0; n < 5; n++)
			rig_read(i);
	}
	victim = rig_ops->victim(rig_state);
	for (uint32_t i = 0; i < RIG_MAX_ENTRIES; i++)
		spent += rig_entries[i].policy_bits != 3;
	ck_assert_uint_le(spent, 65);
	ck_assert_uint_eq(rig_ops->victim(rig_state), victim);
	rig_ops->check(rig_state, RIG_MAX_ENTRIES);
}
END_TEST

/* ---- against a naive model ---- */

enum {
	MODEL_N = 48
};

static struct {
	uint32_t entry[2][MODEL_N]; /* small and main queue, the oldest first */
	uint32_t n[2];
	uint32_t reads[MODEL_N];
	int queue[MODEL_N];
	uint32_t live;
	uint32_t share;
	struct scout__ghost ghost; /* what is remembered has tests of its own */
} model;

static void
model_append(int queue, uint32_t entry)
{
	model.entry[queue][model.n[queue]++] = entry;
	model.queue[entry] = queue;
}

static void
model_take(uint32_t entry)
{
	int queue = model.queue[entry];
	uint32_t at = 0;

	while (model.entry[queue][at] != entry)
		at++;
	model.n[queue]--;
	memmove(&model.entry[queue][at], &model.entry[queue][at + 1], (model.n[queue] - at) * sizeof(uint32_t));
}

static uint32_t
model_victim(void)
{
	for (;;) {
		int from = model.n[1] * 100 > (100 - model.share) * model.live || model.n[0] == 0;
		uint32_t entry = model.entry[from][0];

		if (model.n[0] + model.n[1] == 0)
			return SCOUT__NO_ENTRY;
		if (model.reads[entry] == 0)
			return entry;
		model.reads[entry] = from ? model.reads[entry] - 1 : 0;
		model_take(entry);
		model_append(1, entry);
	}
}

static void
model_create(uint32_t entry, uint32_t key)
{
	struct scout__entry e;
	uint32_t touches;

	rig_set_key(&e, key);
	model.live++;
	model.reads[entry] = 0;
	model_append(scout__ghost_take(&model.ghost, scout__fingerprint(&e), model.live * UINT64_C(3) / 2, &touches),
		     entry);
}

static void
model_drop(uint32_t entry)
{
	model_take(entry);
	model.live--;
	if (model.queue[entry] == 0)
		scout__ghost_add(&model.ghost, scout__fingerprint(&rig_entries[entry]), 0);
}

static void
step(uint32_t n)
{
	uint32_t entry = (uint32_t)rig_draw(n);
	const struct scout__entry *e = &rig_entries[entry];
	uint32_t what = (uint32_t)rig_draw(10);

	if (!e->in_use) {
		uint32_t key = (uint32_t)rig_draw(3 * MODEL_N);

		model_create(entry, key);
		rig_create(entry, key);
	} else if (!e->in_order) {
		model_append(model.queue[entry], entry);
		rig_unpin(entry);
	} else if (what < 4) {
		model.reads[entry] += model.reads[entry] < 3;
		rig_read(entry);
	} else if (what < 5) {
		rig_stored(entry);
	} else if (what < 7) {
		model_take(entry);
		rig_pin(entry);
	} else if (what < 8) {
		model_drop(entry);
		rig_drop(entry);
	} else {
		entry = model_victim();
		ck_assert_uint_eq(rig_ops->victim(rig_state), entry);
		if (entry != SCOUT__NO_ENTRY) {
			model_drop(entry);
			rig_drop(entry);
		}
	}
}

START_LOOP_TEST(s3fifo_does_what_a_naive_model_does, 0, 40)
{
	static const char *const texts[] = {"s3fifo:1", "s3fifo", "s3fifo:50", "s3fifo:99"};
	static const uint32_t shares[] = {1, 10, 50, 99};
	uint32_t n = 1 + (uint32_t)(_i * 7) % 16; /* 3 reads each are within the bound of a victim's moves */

	memset(&model, 0, sizeof(model));
	model.share = shares[_i % 4];
	rig_random = (uint64_t)_i;
	ck_assert_int_eq(scout__ghost_init(&model.ghost, n), 0);
	rig_open(texts[_i % 4], n);
	for (uint32_t i = 0; i < 20000; i++) {
		step(n);
		rig_ops->check(rig_state, model.n[0] + model.n[1]);
	}
	scout__ghost_fini(&model.ghost);
}
END_TEST
