/* SPDX-License-Identifier: Apache-2.0 */
/* How the host backend queues, reports, wakes, fails on demand and closes. */
#include "copy_world.h"
#include "check_main.h"

#define ROUNDS_US 15000000 /* on a busy machine each handover takes a turn of the scheduler: fewer of them */

/* The races below are met by their number; under ThreadSanitizer, which finds them by other means, fewer will do. */
#ifdef SCOUT__TSAN
#define SLOWER 10
#else
#define SLOWER 1
#endif

START_TEST(batches_in_flight_end_once_each_in_order_and_busy_is_the_limit)
{
	enum {
		N = 16
	};
	struct single singles[N + 1];
	struct world w;
	struct gate gate;

	world_small(&w, N + 1, N);
	for (int round = 0; round < 3; round++) {
		gate_shut(&gate, false);
		for (uint32_t i = 0; i <= N; i++)
			single_init(&singles[i], &w, round & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, i);
		for (uint32_t i = 0; i < N; i++) {
			ck_assert_int_eq(ops->start(w.engine, &singles[i].batch), 0);
			model_copy(&w, singles[i].batch.direction, i, singles[i].ids);
		}
		ck_assert_int_eq(ops->start(w.engine, &singles[N].batch), SCOUT_ERR_BUSY);
		ck_assert_int_eq(singles[N].batch.status, 12345);
		atomic_store(&gate.shut, false);
		for (uint32_t i = 0; i < N; i++) {
			ck_assert_ptr_eq(next_ended(w.engine), &singles[i].batch);
			assert_copied(&singles[i], &w);
			if (i == 0) {
				/* One place came free with the first report. */
				ck_assert_int_eq(ops->start(w.engine, &singles[N].batch), 0);
				model_copy(&w, singles[N].batch.direction, N, singles[N].ids);
			}
		}
		ck_assert_ptr_eq(next_ended(w.engine), &singles[N].batch);
		assert_copied(&singles[N], &w);
		assert_goes_quiet(w.engine);
		assert_as_model(&w, "after a round");
	}
	world_fini(&w);
}
END_TEST

/* Four batches of three items; item _i + 1 of the twelve fails. */
START_LOOP_TEST(a_failed_item_ends_its_batch_and_no_other, 0, 12)
{
	enum {
		BATCHES = 4,
		EACH = 3
	};
	struct scout__copy_faults set = {.fail_item = (uint64_t)_i + 1};
	struct scout__copy_batch batches[BATCHES];
	struct scout__copy_item items[BATCHES][EACH];
	struct single singles[BATCHES * EACH];
	struct world w;
	uint32_t done;

	world_small(&w, BATCHES * EACH, BATCHES);
	scout__copy_host_faults(&set);
	memset(batches, 0, sizeof(batches));
	for (uint32_t i = 0; i < BATCHES; i++) {
		for (uint32_t k = 0; k < EACH; k++) {
			single_init(&singles[i * EACH + k], &w, SCOUT__COPY_SAVE, i * EACH + k);
			items[i][k] = singles[i * EACH + k].item;
			if ((int)(i * EACH + k) < _i || (int)i > _i / EACH)
				model_copy(&w, SCOUT__COPY_SAVE, i * EACH + k, singles[i * EACH + k].ids);
		}
		batches[i].direction = SCOUT__COPY_SAVE;
		batches[i].n = EACH;
		batches[i].items = items[i];
		ck_assert_int_eq(ops->start(w.engine, &batches[i]), 0);
	}
	for (uint32_t i = 0; i < BATCHES; i++) {
		ck_assert_ptr_eq(next_ended(w.engine), &batches[i]);
		done = (int)i == _i / EACH ? (uint32_t)_i % EACH : EACH;
		ck_assert_int_eq(batches[i].status, done == EACH ? 0 : SCOUT_ERR_DEVICE);
		ck_assert_uint_eq(batches[i].n_done, done);
		ck_assert_uint_eq(batches[i].bytes, done * w.shard_bytes);
	}
	assert_as_model(&w, "after a failure");
	world_fini(&w);
}
END_TEST

START_TEST(reports_come_in_reverse_on_demand)
{
	enum {
		N = 9
	};
	struct single singles[N];
	struct world w;
	struct gate gate;

	world_small(&w, N, N);
	gate_shut(&gate, true);
	for (uint32_t i = 0; i < N; i++) {
		single_init(&singles[i], &w, SCOUT__COPY_LOAD, i);
		ck_assert_int_eq(ops->start(w.engine, &singles[i].batch), 0);
		model_copy(&w, SCOUT__COPY_LOAD, i, singles[i].ids);
	}
	atomic_store(&gate.shut, false);
	for (uint32_t i = N; i-- > 0;) {
		ck_assert_ptr_eq(next_ended(w.engine), &singles[i].batch);
		assert_copied(&singles[i], &w);
	}
	assert_as_model(&w, "after all");
	world_fini(&w);
}
END_TEST

/* A gate that lets a number of items pass. */
static bool
shut_after(void *user)
{
	struct gate *gate = user;

	/* Looks count down here: 0 is shut. */
	if (atomic_load(&gate->looks) == 0)
		return atomic_load(&gate->shut);
	atomic_fetch_sub(&gate->looks, 1);
	return false;
}

/* Reverse order never keeps back a batch while the thread waits: not when idle, not at the gate. */
START_TEST(reverse_keeps_nothing_back_while_the_thread_waits)
{
	struct scout__copy_faults set = {.reverse = true};
	struct single singles[2];
	struct world w;
	struct gate gate;

	world_small(&w, 2, 2);
	single_init(&singles[0], &w, SCOUT__COPY_SAVE, 0);
	single_init(&singles[1], &w, SCOUT__COPY_SAVE, 1);
	scout__copy_host_faults(&set);
	ck_assert_int_eq(ops->start(w.engine, &singles[0].batch), 0);
	ck_assert_ptr_eq(next_ended(w.engine), &singles[0].batch);
	atomic_store(&gate.looks, 0);
	atomic_store(&gate.shut, true);
	set.gate = shut_after;
	set.user = &gate;
	scout__copy_host_faults(&set);
	ck_assert_int_eq(ops->start(w.engine, &singles[0].batch), 0);
	ck_assert_int_eq(ops->start(w.engine, &singles[1].batch), 0);
	/* With both there, let one pass: it must be reported though the other waits. */
	atomic_store(&gate.looks, 1);
	ck_assert_ptr_eq(next_ended(w.engine), &singles[0].batch);
	ck_assert_ptr_null(ops->poll(w.engine));
	atomic_store(&gate.shut, false);
	ck_assert_ptr_eq(next_ended(w.engine), &singles[1].batch);
	world_fini(&w);
}
END_TEST

START_TEST(the_gate_holds_a_batch_and_all_behind_it)
{
	struct single singles[3];
	struct world w;
	struct gate gate;

	world_small(&w, 3, 3);
	gate_shut(&gate, false);
	for (uint32_t i = 0; i < 3; i++) {
		single_init(&singles[i], &w, i == 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, i);
		ck_assert_int_eq(ops->start(w.engine, &singles[i].batch), 0);
	}
	wait_looks(&gate, 20);
	ck_assert(!readable(ops->fd(w.engine), 0));
	ck_assert_ptr_null(ops->poll(w.engine));
	/* The thread stands at the gate, so this memory is at rest. */
	assert_as_model(&w, "behind the gate");
	for (uint32_t i = 0; i < 3; i++)
		model_copy(&w, singles[i].batch.direction, i, singles[i].ids);
	atomic_store(&gate.shut, false);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_ptr_eq(next_ended(w.engine), &singles[i].batch);
		assert_copied(&singles[i], &w);
	}
	assert_as_model(&w, "after the gate");
	world_fini(&w);
}
END_TEST

START_TEST(the_descriptor_is_readable_while_poll_has_something)
{
	enum {
		N = 4
	};
	struct single singles[N];
	struct world w;
	struct gate gate;

	world_small(&w, N, N);
	ck_assert(!readable(ops->fd(w.engine), 0));
	ck_assert_ptr_null(ops->poll(w.engine));
	ck_assert(!readable(ops->fd(w.engine), 0));
	gate_shut(&gate, true);
	for (uint32_t i = 0; i < N; i++) {
		single_init(&singles[i], &w, SCOUT__COPY_SAVE, i);
		ck_assert_int_eq(ops->start(w.engine, &singles[i].batch), 0);
	}
	ck_assert(!readable(ops->fd(w.engine), 0));
	atomic_store(&gate.shut, false);
	for (uint32_t i = 0; i < N; i++) {
		/* Each time anew: taking one must not make the rest invisible. */
		ck_assert(readable(ops->fd(w.engine), wait_limit_ms()));
		ck_assert_ptr_nonnull(next_ended(w.engine));
	}
	assert_goes_quiet(w.engine);
	world_fini(&w);
}
END_TEST

/* Takes at most @max of what has ended; returns how many. The cookie is the slot. */
static uint32_t
take_some(struct world *w, struct single *singles, bool *busy, uint32_t max)
{
	struct scout__copy_batch *batch;
	uint32_t n = 0;

	while (n < max && (batch = ops->poll(w->engine)) != NULL) {
		ck_assert(busy[batch->cookie]);
		assert_copied(&singles[batch->cookie], w);
		busy[batch->cookie] = false;
		n++;
	}
	return n;
}

/*
 * A level-triggered loop that takes a few batches for each wakeup, often not all, and starts new ones at random. A lost
 * wakeup of either side runs into the deadline; a descriptor that stays readable for nothing shows in the count.
 */
START_TEST(no_wakeup_is_lost_and_few_are_for_nothing)
{
	enum {
		SLOTS = 8,
		BATCHES = 60000
	};
	struct single singles[SLOTS];
	bool busy[SLOTS] = {false};
	uint32_t started = 0, ended = 0, for_nothing = 0, taken, slot, n = BATCHES;
	uint64_t end_us = scout__now_us() + ROUNDS_US;
	struct world w;

	world_small(&w, SLOTS, SLOTS);
	while (ended < n) {
		if (n > started && scout__now_us() >= end_us)
			n = started;
		slot = (uint32_t)random_below(&w.seed, SLOTS);
		if (started < n && !busy[slot] && (started == ended || random_below(&w.seed, 8) > 0)) {
			single_init(&singles[slot], &w, started & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, slot);
			model_copy(&w, singles[slot].batch.direction, slot, singles[slot].ids);
			ck_assert_int_eq(ops->start(w.engine, &singles[slot].batch), 0);
			busy[slot] = true;
			started++;
			continue;
		}
		if (started == ended)
			continue;
		ck_assert_msg(readable(ops->fd(w.engine), wait_limit_ms()), "lost after %u batches", ended);
		taken = take_some(&w, singles, busy, 1 + (uint32_t)random_below(&w.seed, SLOTS));
		for_nothing += taken == 0;
		ended += taken;
	}
	/* poll() clears it where there is nothing, so each report wakes at most once for nothing. */
	ck_assert_uint_le(for_nothing, n);
	assert_goes_quiet(w.engine);
	assert_as_model(&w, "after all");
	world_fini(&w);
}
END_TEST

static void
spin(uint64_t n)
{
	for (volatile uint64_t i = 0; i < n; i++)
		;
}

/* Without a pause between two looks, as an engine's loop may: it meets the thread where a caller that sleeps does not. */
static void
poll_one(struct world *w, const struct single *single)
{
	uint64_t end_us = wait_begin();
	struct scout__copy_batch *batch;

	while ((batch = ops->poll(w->engine)) == NULL)
		ck_assert_msg(scout__now_us() < end_us, "a batch never began");
	ck_assert_ptr_eq(batch, &single->batch);
	assert_copied(single, w);
}

/*
 * One batch at a time with random pauses, so that start() and poll() meet the thread at every point of its way into
 * sleep and out of it: in turn a caller that waits on the descriptor, one that polls past the end and looks whether
 * the descriptor goes quiet, and one that only polls.
 */
START_TEST(start_and_poll_may_come_at_any_moment)
{
	enum {
		BATCHES = 60000
	};
	struct single single;
	struct world w;
	uint64_t end_us = scout__now_us() + ROUNDS_US;

	world_small(&w, 1, 1);
	for (int i = 0; i < BATCHES && scout__now_us() < end_us; i++) {
		single_init(&single, &w, i & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 0);
		spin(random_below(&w.seed, 500));
		ck_assert_int_eq(ops->start(w.engine, &single.batch), 0);
		if (i % 3 == 0) {
			spin(random_below(&w.seed, 2000));
			ck_assert_ptr_eq(next_ended(w.engine), &single.batch);
		} else {
			poll_one(&w, &single);
		}
		assert_copied(&single, &w);
		if (i % 3 == 1) {
			for (uint64_t k = random_below(&w.seed, 30); k > 0; k--)
				ck_assert_ptr_null(ops->poll(w.engine));
			spin(random_below(&w.seed, 2000));
			assert_goes_quiet(w.engine);
		}
	}
	world_fini(&w);
}
END_TEST

/* The first batch wakes the thread; the last one comes about when the thread has done the second and parks. */
START_TEST(a_batch_may_come_as_the_thread_falls_asleep)
{
	uint64_t end_us = scout__now_us() + ROUNDS_US;
	struct single singles[3];
	struct world w;

	world_small(&w, 3, 3);
	for (uint32_t i = 0; i < 3; i++)
		single_init(&singles[i], &w, SCOUT__COPY_SAVE, i);
	for (int i = 0; i < 16000 / SLOWER && scout__now_us() < end_us; i++) {
		ck_assert_int_eq(ops->start(w.engine, &singles[0].batch), 0);
		poll_one(&w, &singles[0]);
		ck_assert_int_eq(ops->start(w.engine, &singles[1].batch), 0);
		spin(random_below(&w.seed, 400));
		ck_assert_int_eq(ops->start(w.engine, &singles[2].batch), 0);
		poll_one(&w, &singles[1]);
		poll_one(&w, &singles[2]);
	}
	world_fini(&w);
}
END_TEST

START_TEST(close_leaves_no_thread_and_no_descriptor)
{
	unsigned int fds = count_dir("/proc/self/fd"), threads;
	struct single singles[3];
	struct world w;

	/* Sanitizers start a thread of their own with the first one. */
	world_small(&w, 3, 3);
	world_fini(&w);
	threads = count_dir("/proc/self/task");
	for (int i = 0; i < 20; i++) {
		world_small(&w, 3, 3);
		for (uint32_t k = 0; k < 3; k++) {
			single_init(&singles[k], &w, SCOUT__COPY_SAVE, k);
			ck_assert_int_eq(ops->start(w.engine, &singles[k].batch), 0);
		}
		/* Ended and not polled, running, or not begun: as it comes. */
		world_fini(&w);
	}
	ck_assert_uint_eq(count_dir("/proc/self/fd"), fds);
	/* A joined thread leaves /proc a moment later. */
	wait_until(count_dir("/proc/self/task") <= threads)
		;
}
END_TEST

START_TEST(close_says_what_was_done)
{
	struct scout__copy_faults set = {.gate = shut_after};
	struct scout__copy_batch batches[3];
	struct scout__copy_item items[3][2];
	struct single singles[6];
	struct world w;
	struct gate gate;

	world_small(&w, 6, 3);
	memset(batches, 0, sizeof(batches));
	/* Three items pass: all of the first batch and one of the second. */
	atomic_store(&gate.looks, 3);
	atomic_store(&gate.shut, true);
	set.user = &gate;
	scout__copy_host_faults(&set);
	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t k = 0; k < 2; k++) {
			single_init(&singles[2 * i + k], &w, SCOUT__COPY_SAVE, 2 * i + k);
			items[i][k] = singles[2 * i + k].item;
			if (2 * i + k < 3)
				model_copy(&w, SCOUT__COPY_SAVE, 2 * i + k, singles[2 * i + k].ids);
		}
		batches[i] = (struct scout__copy_batch){
			.direction = SCOUT__COPY_SAVE, .n = 2, .items = items[i], .status = 12345};
		ck_assert_int_eq(ops->start(w.engine, &batches[i]), 0);
	}
	/* The first is reported and left there; the third item is under way or done when the last look is taken. */
	ck_assert(readable(ops->fd(w.engine), wait_limit_ms()));
	wait_until(atomic_load(&gate.looks) == 0)
		;
	ops->close(w.engine);
	w.engine = NULL;
	ck_assert_int_eq(batches[0].status, 0);
	ck_assert_uint_eq(batches[0].n_done, 2);
	ck_assert_int_eq(batches[1].status, SCOUT_ERR_CLOSED);
	ck_assert_uint_eq(batches[1].n_done, 1);
	ck_assert_uint_eq(batches[1].bytes, w.shard_bytes);
	ck_assert_int_eq(batches[2].status, SCOUT_ERR_CLOSED);
	ck_assert_uint_eq(batches[2].n_done, 0);
	assert_as_model(&w, "after close");
	world_fini(&w);
}
END_TEST

/* Not under valgrind, which takes the look at the address for an error. */
START_TEST(a_table_that_is_no_memory_of_ours_is_named)
{
	static uint8_t page[64];
	struct scout__copy_plane planes[2] = {{page, 64, 64}, {page, 64, 64}};
	struct scout__copy_layout more = {
		.planes = &planes[1], .n_planes = 1, .blocks_per_chunk = 1, .n_blocks = 1, .group = 3};
	struct scout__copy_config cfg = {.max_batches = 4, .more = &more, .n_more = 1};
	void *engine = NULL;
	char err[200];

	cfg.layout = more;
	cfg.layout.planes = planes;
	planes[1].base = (uint8_t *)16;
	ck_assert_int_eq(ops->open(&cfg, &engine, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "the table of group 3: planes[0]: 0x10") != NULL, "%s", err);
	ck_assert_ptr_null(engine);
}
END_TEST
